//! Command lines of load generators, as the sources give them: `diskspd -w100 -b4K -r -F8 -o32 -Sh`, `SQLIO -kW -s30
//! -frandom -b64 -t1 -o1`. What is not understood is an error, lest another load is run than was meant.

use crate::volume::Volume;
use crate::workload::{Ask, Trace, drive};
use std::rc::Rc;
use std::str::FromStr;
use weft_engine::units::Nanos;
use weft_sim::rng::Rng;

/// A load.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Line {
    /// The part of the requests that writes.
    pub writes: f64,
    /// Bytes of a request.
    pub len: u64,
    /// Whether places are drawn, or follow each other.
    pub random: bool,
    /// Requests at once, of all threads.
    pub depth: usize,
    /// Whether writes must be durable.
    pub durable: bool,
    /// For how long.
    pub span: Option<Nanos>,
}

impl Line {
    /// Runs it on the first `file` bytes.
    pub fn run(self, volume: &Rc<dyn Volume>, file: u64, span: Option<Nanos>) -> Trace {
        drive(volume, self.requests(file), self.depth, self.span.or(span), false)
    }

    /// Its requests to the first `file` bytes, without end.
    pub fn requests(self, file: u64) -> impl Iterator<Item = Ask> + Send + 'static {
        let Line { writes, len, random, durable, .. } = self;
        let (mut rng, mut next) = (Rng::new(1), 0);
        std::iter::repeat_with(move || {
            let at = if random { rng.below(file / len) } else { next % (file / len) } * len;
            next += 1;
            match (rng.chance(writes), durable) {
                (true, true) => Ask::WriteThrough(at, len),
                (true, false) => Ask::Write(at, len),
                (false, _) => Ask::Read(at, len),
            }
        })
    }
}

impl FromStr for Line {
    type Err = String;

    fn from_str(text: &str) -> Result<Line, String> {
        let mut words = text.split_whitespace();
        let sqlio = match words.next().map(str::to_lowercase).as_deref() {
            Some("diskspd") => false,
            Some("sqlio") => true,
            _ => return Err(format!("`{text}` begins with neither diskspd nor SQLIO")),
        };
        let writes = if sqlio { 1.0 } else { 0.0 };
        let len = if sqlio { 2 << 10 } else { 64 << 10 };
        let mut line = Line { writes, len, random: false, depth: 0, durable: sqlio, span: None };
        let (mut threads, mut each) = (1, if sqlio { 1 } else { 2 });
        for word in words {
            let whole = |text: &str| text.parse::<u64>().map_err(|_| format!("`{word}` has no number"));
            match (sqlio, word.get(..2).unwrap_or(word), word.get(2..).unwrap_or("")) {
                (false, "-w", part) => line.writes = whole(part)? as f64 / 100.0,
                (false, "-b", part) => line.len = bytes(part).ok_or_else(|| format!("`{word}` has no size"))?,
                (false, "-r", "") | (true, "-f", "random") => line.random = true,
                (false, "-S", "h") => line.durable = true,
                (true, "-f", "sequential") => line.random = false,
                (true, "-b", part) => line.len = whole(part)? << 10,
                (true, "-k", "W") => line.writes = 1.0,
                (true, "-k", "R") => line.writes = 0.0,
                (true, "-s", part) | (false, "-d", part) => line.span = Some(Nanos::secs(whole(part)?)),
                (false, "-F" | "-t", part) | (true, "-t", part) => threads = whole(part)?,
                (_, "-o", part) => each = whole(part)?,
                _ => return Err(format!("`{word}` of `{text}` is not understood")),
            }
        }
        line.depth = (threads * each) as usize;
        Ok(line)
    }
}

/// `4K`, `1M`, `1G`.
pub(crate) fn bytes(text: &str) -> Option<u64> {
    let (number, shift) = match text.as_bytes().last()? {
        b'K' => (&text[..text.len() - 1], 10),
        b'M' => (&text[..text.len() - 1], 20),
        b'G' => (&text[..text.len() - 1], 30),
        b'T' => (&text[..text.len() - 1], 40),
        _ => (text, 0),
    };
    number.parse::<u64>().ok()?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_sources_are_understood() {
        let diskspd: Line = "diskspd -w100 -b4K -r -F8 -o32 -Sh".parse().unwrap();
        let meant = Line { writes: 1.0, len: 4096, random: true, depth: 256, durable: true, span: None };
        assert_eq!(diskspd, meant);
        let sqlio: Line = "SQLIO -kW -s30 -frandom -b64 -t1 -o1".parse().unwrap();
        let span = Some(Nanos::secs(30));
        assert_eq!(sqlio, Line { writes: 1.0, len: 64 << 10, random: true, depth: 1, durable: true, span });
    }

    #[test]
    fn what_is_not_understood_is_named() {
        assert!("diskspd -Zx".parse::<Line>().unwrap_err().contains("`-Zx`"));
        assert!("fio -b4K".parse::<Line>().is_err() && "diskspd -bK".parse::<Line>().is_err());
    }
}
