//! A plan as a picture: usable room and the rate of writes against the number of disks, for each of the best layouts.
//! SVG without a library, as there are only lines and words.

use crate::plan::{Answer, Growth};
use std::fmt::Write;

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 300.0;
const MARGIN: f64 = 60.0;
const COLOURS: [&str; 3] = ["#1f77b4", "#d62728", "#2ca02c"];

/// The picture of a plan.
pub fn svg(answer: &Answer) -> String {
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
        HEIGHT * 2.0
    );
    panel(&mut svg, answer, 0.0, "usable, TB", |growth| growth.usable as f64 / 1e12);
    panel(&mut svg, answer, HEIGHT, "sequential writes, MB/s", |growth| growth.write_mb_s);
    svg += "</svg>\n";
    svg
}

fn panel(svg: &mut String, answer: &Answer, top: f64, title: &str, value: impl Fn(&Growth) -> f64) {
    let all = || answer.best.iter().flat_map(|choice| &choice.growth);
    let most = all().map(&value).fold(1e-9, f64::max);
    let (first, last) = all().fold((usize::MAX, 0), |(low, high), at| (low.min(at.disks), high.max(at.disks)));
    if first > last {
        return;
    }
    let x = |disks: usize| MARGIN + (WIDTH - 2.0 * MARGIN) * (disks - first) as f64 / (last - first).max(1) as f64;
    let y = |value: f64| top + HEIGHT - MARGIN + 20.0 - (HEIGHT - MARGIN - 30.0) * value / most;
    let put = "writing to a string works";
    writeln!(svg, "<text x=\"{MARGIN}\" y=\"{}\">{title} (up to {most:.1})</text>", top + 14.0).expect(put);
    for disks in first..=last {
        writeln!(svg, "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{disks}</text>", x(disks), y(0.0) + 16.0)
            .expect(put);
    }
    let (left, right) = (x(first), x(last));
    writeln!(svg, "<path d=\"M{left} {0}H{right}\" stroke=\"#999\" fill=\"none\"/>", y(0.0)).expect(put);
    for (nth, choice) in answer.best.iter().enumerate() {
        let colour = COLOURS[nth % COLOURS.len()];
        let points: Vec<String> =
            choice.growth.iter().map(|at| format!("{:.1},{:.1}", x(at.disks), y(value(at)))).collect();
        writeln!(
            svg,
            "<polyline points=\"{}\" stroke=\"{colour}\" stroke-width=\"2\" fill=\"none\"/>",
            points.join(" ")
        )
        .expect(put);
        writeln!(
            svg,
            "<text x=\"{}\" y=\"{}\" fill=\"{colour}\">{}</text>",
            WIDTH - 250.0,
            top + 14.0 + 14.0 * nth as f64,
            choice.layout.name
        )
        .expect(put);
    }
}
