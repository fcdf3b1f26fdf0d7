//! Words of others, fit to be shown: names of files, and what was read from disks, may hold anything, and a terminal
//! obeys what it is told.

use std::fmt::Write;

/// `text` in one line, with escapes in place of what is no character to be seen.
pub(crate) fn line(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if is_seen(c) { shown.push(c) } else { shown.extend(c.escape_default()) }
    }
    shown
}

/// `text` with escapes in place of what is no character to be seen, but for ends of lines and our own colours.
pub(crate) fn lines(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let colour = rest.strip_prefix("\u{1b}[").and_then(|after| {
            let digits = after.trim_start_matches(|c: char| c.is_ascii_digit() || c == ';');
            digits.starts_with('m').then(|| rest.len() - digits.len() + 1)
        });
        let len = colour.unwrap_or(c.len_utf8());
        match c {
            _ if colour.is_some() || c == '\n' || is_seen(c) => shown += &rest[..len],
            c => shown.extend(c.escape_default()),
        }
        rest = &rest[len..];
    }
    shown
}

/// JSON that means the same: its writers escape the first 32 characters, and terminals obey others, too. They are in
/// strings only.
pub(crate) fn json(json: &str) -> String {
    let mut shown = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            '\n' => shown.push(c),
            c if is_seen(c) => shown.push(c),
            c => c
                .encode_utf16(&mut [0; 2])
                .iter()
                .for_each(|unit| write!(shown, "\\u{unit:04x}").expect("a string takes all")),
        }
    }
    shown
}

/// Whether it neither moves a cursor, nor turns the writing round, so that a name looks like another.
fn is_seen(c: char) -> bool {
    !c.is_control() && !matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_colours_and_ends_of_lines_reach_the_terminal_as_they_are() {
        assert_eq!(lines("a\u{1b}[32mgreen\u{1b}[39m\n"), "a\u{1b}[32mgreen\u{1b}[39m\n");
        assert_eq!(lines("\u{1b}[2J\u{7}x\r\u{9b}1;1H"), "\\u{1b}[2J\\u{7}x\\r\\u{9b}1;1H");
        assert_eq!(line("a\u{1b}[32mb\nc \u{202e}d"), "a\\u{1b}[32mb\\nc \\u{202e}d");
    }

    #[test]
    fn json_means_the_same_and_moves_nothing() {
        for text in ["plain", "\u{1b}[2J", "\u{9b}2J\u{7f}", "\u{202e}x \"quoted\" \\ \n", "grün 🦀"] {
            let shown = json(&serde_json::to_string(text).unwrap());
            assert!(shown.chars().all(is_seen), "{shown:?}");
            assert_eq!(serde_json::from_str::<String>(&shown).unwrap(), text);
        }
    }
}
