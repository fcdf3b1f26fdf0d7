//! A plan on one screen: the best layouts in words, then the table.

use crate::ops::table::{Rows, Style, cell, percent};
use crate::ops::text::Text;
use serde::Serialize;
use weft_lab::plan::{Answer, Choice, LayoutPlan, decimal};

/// The planner's answer, and how much of it is shown.
#[derive(Serialize)]
pub struct Planned {
    /// The answer.
    #[serde(flatten)]
    pub answer: Answer,
    /// Whether every layout is listed.
    #[serde(skip)]
    pub compare: bool,
}

impl Text for Planned {
    fn text(&self, style: Style) -> String {
        let Answer { described, raw, best, layouts, advice, notes, .. } = &self.answer;
        let mut text = format!("{described}: {} in all\n\n", decimal(*raw));
        for (nth, choice) in best.iter().enumerate() {
            text += &recommended(nth + 1, choice, style.verbose);
        }
        let mut rows = Rows::new(
            style,
            &[
                "LAYOUT",
                ">USABLE",
                ">OF RAW",
                ">MAY FAIL",
                ">WRITE MB/s",
                ">READ MB/s",
                ">READS/s",
                ">WRITES/s",
                ">REBUILD",
                ">LOSS/YEAR",
            ],
        );
        let listed: Vec<&LayoutPlan> =
            if self.compare { layouts.iter().collect() } else { best.iter().map(|choice| &choice.layout).collect() };
        for plan in listed {
            rows.row(vec![
                cell(&plan.name),
                cell(decimal(plan.usable)),
                cell(percent(plan.efficiency * 100.0)),
                cell(plan.failures),
                cell(format!("{:.0}", plan.write_mb_s)),
                cell(format!("{:.0}", plan.read_mb_s)),
                cell(format!("{:.0}", plan.random_reads)),
                cell(format!("{:.0}", plan.random_writes)),
                cell(format!("{:.1} h", plan.rebuild_hours)),
                cell(one_in(plan.loss_per_year)),
            ]);
        }
        text += &rows.draw();
        text.push('\n');
        for one in advice {
            text += &format!("{}\n", one.words);
        }
        for note in notes {
            text += &format!("{note}\n");
        }
        text += match self.answer.estimate {
            true => {
                "Rates are estimates; --exact simulates them, --verbose says what each follows from, --compare lists \
                every layout.\n"
            }
            false => "Rates are simulated on the engine itself; --verbose says what each figure follows from.\n",
        };
        text
    }
}

fn recommended(nth: usize, choice: &Choice, verbose: bool) -> String {
    let mut text = format!("{nth}. {}\n", choice.layout.name);
    for sentence in &choice.words {
        text += &format!("   {sentence}\n");
    }
    for job in &choice.jobs {
        let why = if verbose { format!(" ({})", job.reason) } else { String::new() };
        text += &format!("   Job {}: {:.0} requests a second, {:.1} MB/s{why}.\n", job.name, job.per_second, job.mb_s);
    }
    // A pool with as many disks as there may be does not grow.
    if let [now, later @ ..] = choice.growth.as_slice()
        && !later.is_empty()
    {
        let steps: Vec<String> =
            later.iter().map(|step| format!("{} {}", step.disks, decimal(step.usable_best))).collect();
        text += &format!(
            "   Disks and room as it grows: {} {}, {}.\n",
            now.disks,
            decimal(now.usable_best),
            steps.join(", ")
        );
    }
    text += &format!("   weft vdisk create POOL/NAME --size max {}\n", choice.layout.options);
    if verbose {
        for (figure, reason) in &choice.reasons {
            text += &format!("     {figure}: {reason}\n");
        }
    }
    text + "\n"
}

/// A small probability as people say it.
fn one_in(probability: f64) -> String {
    match probability {
        never if never < 1e-9 => "< 1 in 1e9".into(),
        rare if rare < 0.01 => {
            let one = 1.0 / rare;
            let digits = 10f64.powf(one.log10().floor() - 1.0);
            format!("1 in {:.0}", (one / digits).round() * digits)
        }
        often => percent(often * 100.0),
    }
}
