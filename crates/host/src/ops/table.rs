//! Tables and words for people.

use comfy_table::{Cell, CellAlignment, Color, ContentArrangement, Table, presets};
use weft_engine::units::ByteCount;

/// How text is drawn.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Style {
    /// In colour.
    pub color: bool,
    /// With more columns.
    pub verbose: bool,
}

/// A table that is being drawn. Columns whose heading begins with `>` are numbers.
pub(crate) struct Rows {
    table: Table,
}

/// How a word is meant.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tone {
    Good,
    Poor,
    Bad,
    Plain,
}

impl Rows {
    pub(crate) fn new(style: Style, headings: &[&str]) -> Rows {
        let mut table = Table::new();
        table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled).force_no_tty();
        if style.color {
            table.enforce_styling();
        }
        table.set_header(headings.iter().map(|heading| Cell::new(heading.trim_start_matches('>'))));
        for (column, heading) in table.column_iter_mut().zip(headings) {
            column.set_padding((0, 2));
            if heading.starts_with('>') {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        Rows { table }
    }

    pub(crate) fn row(&mut self, cells: Vec<(String, Tone)>) {
        self.table.add_row(cells.into_iter().map(|(text, tone)| match tone {
            Tone::Good => Cell::new(text).fg(Color::Green),
            Tone::Poor => Cell::new(text).fg(Color::Yellow),
            Tone::Bad => Cell::new(text).fg(Color::Red),
            Tone::Plain => Cell::new(text),
        }));
    }

    pub(crate) fn draw(&self) -> String {
        let mut text = String::new();
        for line in self.table.lines() {
            text += line.trim_end();
            text.push('\n');
        }
        text
    }
}

/// A plain cell.
pub(crate) fn cell(text: impl ToString) -> (String, Tone) {
    (text.to_string(), Tone::Plain)
}

/// Names and values, one per line.
pub(crate) fn pairs(pairs: &[(&str, String)]) -> String {
    let width = pairs.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    pairs.iter().map(|(name, value)| format!("{name:width$}  {value}\n")).collect()
}

/// A size for people.
pub(crate) fn human(bytes: u64) -> String {
    ByteCount(bytes).to_string()
}

/// A share of 100.
pub(crate) fn percent(share: f64) -> String {
    if share > 0.0 && share < 99.95 { format!("{share:.1} %") } else { format!("{share:.0} %") }
}
