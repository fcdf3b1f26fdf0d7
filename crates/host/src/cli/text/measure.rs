//! What was measured of a disk.

use crate::ops::table::Style;
use crate::ops::text::Text;
use serde::Serialize;
use std::path::PathBuf;
use weft_lab::disks::Class;
use weft_lab::measured::{Figures, Random};
use weft_lab::plan::decimal;

/// A disk that was measured.
#[derive(Serialize)]
pub struct Measurement {
    /// The name of its class.
    pub name: String,
    /// What was read.
    pub path: PathBuf,
    /// What was found.
    pub figures: Figures,
    /// The class it is most like.
    pub like: Class,
    /// Random reads per second, 32 at once, that the fitted model gives.
    pub model_together: f64,
    /// What makes the figures doubtful.
    pub doubts: Vec<String>,
    /// Where the class is kept.
    pub kept: PathBuf,
}

impl Text for Measurement {
    fn text(&self, style: Style) -> String {
        let Figures { size, streams, alone, together, .. } = &self.figures;
        let ends = [streams.first(), streams.last()].map(|end| end.map_or(0.0, |stream| stream.rate / 1e6));
        let mut text = format!("{}: {}, most like {}\n", self.path.display(), decimal(*size), self.like);
        text += &format!("  long reads     {:.0} MB/s where it begins, {:.0} MB/s where it ends\n", ends[0], ends[1]);
        if style.verbose {
            for stream in streams {
                text += &format!("                 {:.0} MB/s at {}\n", stream.rate / 1e6, decimal(stream.at));
            }
        }
        text += &format!("  random reads   {}, one at a time\n", random(alone));
        if let Some(together) = together {
            let model = self.model_together;
            text +=
                &format!("                 {}, 32 at once; the model gives {model:.0} a second\n", random(together));
        }
        for doubt in &self.doubts {
            text += &format!("  doubtful: {doubt}\n");
        }
        let size = decimal(*size).replace(' ', "");
        text + &format!("kept as class {}: `weft plan --disks 4x{size}:{}`\n", self.name, self.name)
    }
}

/// `81 a second (12.3 ms, 99 of 100 within 20.1 ms)`
fn random(found: &Random) -> String {
    let [mean, p99] = [found.mean, found.p99].map(|nanos| match nanos {
        0..1_000_000 => format!("{:.0} us", nanos as f64 / 1e3),
        _ => format!("{:.1} ms", nanos as f64 / 1e6),
    });
    format!("{:.0} a second ({mean}, 99 of 100 within {p99})", found.per_second)
}
