//! A plan as a page: what `weft plan` prints, the picture, and each figure with its reason. One file, which needs
//! nothing else.

use crate::plan::{Answer, Choice, LayoutPlan, decimal};
use std::fmt::Write;

const STYLE: &str = "body{font-family:sans-serif;max-width:60em;margin:2em auto;padding:0 1em;line-height:1.4}\
table{border-collapse:collapse}td,th{padding:.2em .6em;border-bottom:1px solid #ccc;text-align:right}\
td:first-child,th:first-child{text-align:left}code{background:#eee;padding:.1em .3em}";

/// The page of a plan, in HTML.
pub fn html(answer: &Answer) -> String {
    let put = "writing to a string works";
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>weft plan: {0}</title>\
         <style>{STYLE}</style></head><body>\n<h1>{0}: {1} in all</h1>\n",
        escaped(&answer.described),
        decimal(answer.raw)
    );
    for (nth, choice) in answer.best.iter().enumerate() {
        page += &of_choice(nth + 1, choice);
    }
    page += "<h2>Compared</h2>\n<table><tr><th>layout</th><th>usable</th><th>of raw</th><th>may fail</th>\
             <th>write, MB/s</th><th>read, MB/s</th><th>random reads/s</th><th>random writes/s</th>\
             <th>rebuild, hours</th><th>loss a year</th></tr>\n";
    for plan in &answer.layouts {
        page += &row(plan);
    }
    page += "</table>\n<h2>As it grows</h2>\n";
    page += &crate::picture::svg(answer);
    page += "<h2>Beside the disks</h2>\n";
    for words in answer.advice.iter().map(|one| &one.words).chain(&answer.notes) {
        writeln!(page, "<p>{}</p>", escaped(words)).expect(put);
    }
    let kind =
        if answer.estimate { "estimates from a table that was measured on simulated disks" } else { "simulated" };
    writeln!(page, "<p>Rates are {kind}.</p>\n</body></html>").expect(put);
    page
}

fn of_choice(nth: usize, choice: &Choice) -> String {
    let put = "writing to a string works";
    let mut text = format!("<h2>{nth}. {}</h2>\n<ul>\n", escaped(&choice.layout.name));
    for words in &choice.words {
        writeln!(text, "<li>{}</li>", escaped(words)).expect(put);
    }
    for job in &choice.jobs {
        let (per_second, mb_s) = (job.per_second, job.mb_s);
        writeln!(text, "<li>Job {}: {per_second:.0} requests a second, {mb_s:.1} MB/s.</li>", escaped(&job.name))
            .expect(put);
    }
    let options = escaped(&choice.layout.options);
    text += &format!("</ul>\n<p><code>weft vdisk create POOL/NAME --size max {options}</code></p>\n");
    text += "<details><summary>What each figure follows from</summary><ul>\n";
    for (figure, reason) in &choice.reasons {
        writeln!(text, "<li>{figure}: {}</li>", escaped(reason)).expect(put);
    }
    text + "</ul></details>\n"
}

fn row(plan: &LayoutPlan) -> String {
    format!(
        "<tr><td>{}</td><td>{}</td><td>{:.1} %</td><td>{}</td><td>{:.0}</td><td>{:.0}</td><td>{:.0}</td><td>{:.0}</td>\
         <td>{:.1}</td><td>{:.1e}</td></tr>\n",
        escaped(&plan.name),
        decimal(plan.usable),
        plan.efficiency * 100.0,
        plan.failures,
        plan.write_mb_s,
        plan.read_mb_s,
        plan.random_reads,
        plan.random_writes,
        plan.rebuild_hours,
        plan.loss_per_year
    )
}

/// Text that names of classes and jobs, which are somebody's words, cannot break out of.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disks::{Class, PlannedDisk};
    use crate::plan::{Question, Workload, plan};

    #[test]
    fn a_page_has_every_layout_and_nobody_s_words_break_out_of_it() {
        let job = crate::jobs::Job::read("[<script>]\nrw=write\nbs=1m\nsize=1g\n").unwrap();
        let question = Question {
            disks: vec![PlannedDisk { size: 4_000_000_000_000, class: Class::Hdd7200 }; 5],
            grow: Vec::new(),
            failures: 1,
            workload: Workload::Own,
            jobs: job,
            exact: false,
            failures_percent: None,
            replace_hours: 72.0,
        };
        let answer = plan(&question).unwrap();
        let page = html(&answer);
        assert!(page.contains("<svg") && page.contains("&lt;script&gt;") && !page.contains("<script>"));
        assert!(answer.layouts.iter().all(|plan| page.contains(&plan.name)));
        assert_eq!(page, html(&answer));
    }
}
