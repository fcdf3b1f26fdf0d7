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
    /// The part of the drawn ones that follow the one before after all.
    pub follows: f64,
    /// Requests at once, of all threads.
    pub depth: usize,
    /// Whether writes must be durable.
    pub durable: bool,
    /// For how long.
    pub span: Option<Nanos>,
}

impl Line {
    /// Reads in order, 4 KiB each, one at once.
    pub const ONE: Line =
        Line { writes: 0.0, len: 4096, random: false, follows: 0.0, depth: 1, durable: false, span: None };

    /// Runs it on the first `file` bytes.
    pub fn run(self, volume: &Rc<dyn Volume>, file: u64, span: Option<Nanos>) -> Trace {
        drive(volume, self.requests(file), self.depth, self.span.or(span), false)
    }

    /// Its requests to the first `file` bytes, without end; the same each time.
    pub fn requests(self, file: u64) -> impl Iterator<Item = Ask> + Send + 'static {
        self.drawn(file, 1)
    }

    /// Its requests to the first `file` bytes, without end, drawn from `seed`.
    pub fn drawn(self, file: u64, seed: u64) -> impl Iterator<Item = Ask> + Send + 'static {
        let Line { writes, len, random, follows, durable, .. } = self;
        let (mut rng, mut next) = (Rng::new(seed), 0);
        std::iter::repeat_with(move || {
            let drawn = random && !rng.chance(follows);
            let nth = if drawn { rng.below(file / len) } else { next % (file / len) };
            let at = nth * len;
            next = nth + 1;
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
        let mut line = Line { writes, len, durable: sqlio, ..Line::ONE };
        let (mut threads, mut each) = (1, if sqlio { 1 } else { 2 });
        for word in words {
            let whole = |text: &str| text.parse::<u64>().map_err(|_| format!("`{word}` has no number"));
            match (sqlio, word.get(..2).unwrap_or(word), word.get(2..).unwrap_or("")) {
                (false, "-w", part) => line.writes = whole(part)? as f64 / 100.0,
                (false, "-b", part) => line.len = bytes(part).ok_or_else(|| format!("`{word}` has no size"))?,
                (false, "-r", "") | (true, "-f", "random") => line.random = true,
                (false, "-r", part) if part.starts_with('s') => {
                    let drawn = whole(&part[1..])?;
                    let drawn = (drawn <= 100).then_some(drawn).ok_or_else(|| format!("`{word}` is more than all"))?;
                    (line.random, line.follows) = (drawn > 0, (100 - drawn) as f64 / 100.0);
                }
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
        let meant = Line { writes: 1.0, len: 4096, random: true, follows: 0.0, depth: 256, durable: true, span: None };
        assert_eq!(diskspd, meant);
        let part: Line = "diskspd -b32K -rs65 -o1".parse().unwrap();
        assert_eq!((part.random, part.follows), (true, 0.35));
        let sqlio: Line = "SQLIO -kW -s30 -frandom -b64 -t1 -o1".parse().unwrap();
        let span = Some(Nanos::secs(30));
        let meant = Line { writes: 1.0, len: 64 << 10, random: true, follows: 0.0, depth: 1, durable: true, span };
        assert_eq!(sqlio, meant);
    }

    #[test]
    fn what_is_not_understood_is_named() {
        assert!("diskspd -Zx".parse::<Line>().unwrap_err().contains("`-Zx`"));
        assert!("diskspd -rs101".parse::<Line>().unwrap_err().contains("`-rs101` is more than all"));
        assert!("fio -b4K".parse::<Line>().is_err() && "diskspd -bK".parse::<Line>().is_err());
    }
}
