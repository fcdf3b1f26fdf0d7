//! Rates over time as a picture, one panel below the other. SVG without a library, as there are only lines and words;
//! the same rates give the same bytes.

use crate::claims::Course;
use std::fmt::Write;

const WIDTH: f64 = 760.0;
const PANEL: f64 = 170.0;
const HEAD: f64 = 48.0;
/// Around the curve of a panel: left, top, right, bottom.
const AROUND: (f64, f64, f64, f64) = (56.0, 30.0, 16.0, 26.0);
const COLOURS: [&str; 3] = ["#d62728", "#1f77b4", "#2ca02c"];
const PUT: &str = "writing to a string works";

/// A picture of what became of a claim: its title, what the source says, and each course in a panel of its own.
pub fn svg(title: &str, says: &str, courses: &[Course]) -> String {
    let height = HEAD + PANEL * courses.len() as f64;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    writeln!(svg, "<text x=\"12\" y=\"20\" font-size=\"14\">{}</text>", escaped(title)).expect(PUT);
    writeln!(svg, "<text x=\"12\" y=\"38\" fill=\"#555\">the source: {}</text>", escaped(says)).expect(PUT);
    for (nth, course) in courses.iter().enumerate() {
        panel(&mut svg, course, HEAD + PANEL * nth as f64, COLOURS[nth % COLOURS.len()]);
    }
    svg + "</svg>\n"
}

fn panel(svg: &mut String, course: &Course, top: f64, colour: &str) {
    let (left, above, right, below) = AROUND;
    let (first, last) = (left, WIDTH - right);
    let (high, low) = (top + above, top + PANEL - below);
    let most = round_up(course.top(8.0) / 1e6);
    let y = |rate: f64| low - (low - high) * (rate / 1e6 / most).min(1.0);
    writeln!(svg, "<text x=\"{left}\" y=\"{:.0}\" fill=\"{colour}\">{}</text>", top + 18.0, escaped(&course.of))
        .expect(PUT);
    for part in [0.0, 0.5, 1.0] {
        let line = low - (low - high) * part;
        writeln!(svg, "<path d=\"M{first} {line:.1}H{last}\" stroke=\"#ddd\" fill=\"none\"/>").expect(PUT);
        let unit = if part == 1.0 { " MB/s" } else { "" };
        let (at, words) = (line + 4.0, format!("{}{unit}", number(most * part)));
        let (x, anchor) = if part == 1.0 { (4.0, "start") } else { (left - 6.0, "end") };
        writeln!(svg, "<text x=\"{x}\" y=\"{at:.1}\" text-anchor=\"{anchor}\" font-size=\"10\">{words}</text>")
            .expect(PUT);
    }
    for quarter in 0..=4 {
        let part = f64::from(quarter) / 4.0;
        let (x, anchor) = (first + (last - first) * part, if quarter == 4 { "end" } else { "middle" });
        let seconds = number(course.seconds * part);
        let at = low + 16.0;
        writeln!(svg, "<text x=\"{x:.1}\" y=\"{at:.1}\" text-anchor=\"{anchor}\" font-size=\"10\">{seconds} s</text>")
            .expect(PUT);
    }
    let step = (last - first) / course.rates.len() as f64;
    let mut path = format!("M{first:.1} {low:.1}");
    for (nth, rate) in course.rates.iter().enumerate() {
        write!(path, "V{:.1}H{:.1}", y(*rate), first + step * (nth + 1) as f64).expect(PUT);
    }
    writeln!(
        svg,
        "<path d=\"{path}V{low:.1}Z\" stroke=\"{colour}\" fill=\"{colour}\" fill-opacity=\"0.25\" stroke-width=\"1\"/>"
    )
    .expect(PUT);
}

/// The next number of one digit and zeros, or of 1.5 or 2.5 of them.
fn round_up(value: f64) -> f64 {
    let mut unit = 1e-3;
    while unit * 10.0 < value {
        unit *= 10.0;
    }
    let steps = [1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0];
    steps.into_iter().map(|step| step * unit).find(|step| *step >= value).unwrap_or(unit * 10.0)
}

fn number(value: f64) -> String {
    if value >= 10.0 || value == 0.0 { format!("{value:.0}") } else { format!("{value:.1}") }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn course(rates: Vec<f64>) -> Course {
        Course { of: "a < b & c".into(), rates, seconds: 8.0 }
    }

    #[test]
    fn a_picture_has_a_panel_for_each_course_and_is_the_same_each_time() {
        let courses = [course(vec![1e8, 0.0, 3e8, 2e8]), course(vec![5e6; 7])];
        let picture = svg("Q5: a", "b", &courses);
        assert_eq!(picture.matches("fill-opacity").count(), 2);
        assert!(picture.contains("a &lt; b &amp; c") && picture.ends_with("</svg>\n"));
        assert_eq!(picture, svg("Q5: a", "b", &courses));
        // Nothing moves in the second of four parts: the line lies on the ground there.
        let ground = HEAD + PANEL - AROUND.3;
        assert!(picture.contains(&format!("V{ground:.1}H")), "{picture}");
    }

    #[test]
    fn a_course_in_which_nothing_moved_is_drawn_too() {
        assert!(svg("", "", &[course(vec![0.0; 3])]).contains("fill-opacity"));
        assert!(!svg("", "", &[course(vec![0.0; 3])]).contains("NaN"));
    }

    #[test]
    fn axes_end_at_round_numbers() {
        assert_eq!([0.7, 9.0, 101.0, 198.0, 1011.0].map(round_up), [0.8, 10.0, 150.0, 200.0, 1500.0]);
    }
}
