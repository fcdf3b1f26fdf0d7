//! `docs/on-disk-format.md` says what the structs are, field by field, in both directions.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use weft_engine::format::doc::{layouts, numbers};
use weft_engine::store::heat::HEAT;
use weft_engine::store::meta::{conf::CONF, room::ROOM, sheets::SHEETS, space::SPACE};
use weft_engine::tree;

/// A structure as the document describes it: name, offset and width of each field, in the order of the rows.
type Described = BTreeMap<String, Vec<(String, usize, usize)>>;

fn document() -> String {
    let path: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/on-disk-format.md");
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The cells of a table's row.
fn cells(line: &str) -> Option<Vec<&str>> {
    let inner = line.trim().strip_prefix('|')?.strip_suffix('|')?;
    Some(inner.split('|').map(str::trim).collect())
}

fn code(text: &str) -> Option<&str> {
    text.strip_prefix('`')?.strip_suffix('`')
}

/// Byte tables: a heading with a structure's name in backquotes, then rows that begin with a field's name in
/// backquotes, offset, width.
fn described(text: &str) -> Described {
    let mut found = Described::new();
    let mut current = None;
    for line in text.lines() {
        let row = cells(line);
        if let Some(heading) = line.strip_prefix('#') {
            current = code(heading.trim_start_matches('#').trim()).map(str::to_string);
            if let Some(name) = &current {
                assert!(found.insert(name.clone(), Vec::new()).is_none(), "{name} is described twice");
            }
        } else if let Some(name) = &current {
            let fields = found.get_mut(name).expect("its heading was seen");
            match row.as_deref() {
                Some([field, offset, width, ..]) if code(field).is_some() => {
                    let number = |cell: &str| cell.parse().unwrap_or_else(|_| panic!("{name}: no number in {line}"));
                    fields.push((field.trim_matches('`').to_string(), number(offset), number(width)));
                }
                Some(_) => {}
                // The first line after its rows ends a byte table.
                None if !fields.is_empty() => current = None,
                None => {}
            }
        }
    }
    found
}

/// Rows outside of byte tables that name a constant in backquotes and give its value.
fn named_numbers(text: &str) -> BTreeMap<String, u64> {
    let mut found = BTreeMap::new();
    for cells in text.lines().filter_map(cells) {
        let (Some(name), Some(Ok(value))) = (code(cells[0]), cells.get(1).map(|value| value.parse())) else { continue };
        if name.chars().all(|c| c.is_ascii_uppercase() || c == '_') {
            assert!(found.insert(name.to_string(), value).is_none(), "{name} is given twice");
        }
    }
    found
}

#[test]
fn every_byte_table_of_the_document_is_the_struct_and_every_struct_is_in_the_document() {
    let expected: Described = layouts()
        .into_iter()
        .chain(tree::layouts())
        .map(|(name, fields)| {
            let owned = fields.into_iter().map(|(field, offset, width)| (field.to_string(), offset, width));
            (name.to_string(), owned.collect())
        })
        .collect();
    let described = described(&document());
    assert_eq!(described.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
    for (name, fields) in expected {
        assert_eq!(described[&name], fields, "{name}");
    }
}

#[test]
fn the_fields_of_every_struct_follow_each_other_without_a_gap() {
    for (name, fields) in layouts() {
        let mut at = 0;
        for (field, offset, width) in fields {
            assert_eq!(offset, at, "{name}.{field}");
            at += width;
        }
    }
}

#[test]
fn every_number_of_the_document_is_the_constant_and_every_constant_is_in_the_document() {
    let all = numbers().into_iter().chain([
        ("TREE_CONF", CONF.into()),
        ("TREE_ROOM", ROOM.into()),
        ("TREE_SHEETS", SHEETS.into()),
        ("TREE_HEAT", HEAT.into()),
        ("TREE_SPACE", SPACE.into()),
    ]);
    let expected: BTreeMap<String, u64> = all.map(|(name, value)| (name.to_string(), value)).collect();
    assert_eq!(named_numbers(&document()), expected);
}

#[test]
fn a_field_that_moved_or_vanished_in_the_document_is_noticed() {
    let text = "### `RecordHead`\n| field | offset | width | meaning |\n|---|---|---|---|\n| `kind` | 0 | 2 | its kind |\n| `len` | 4 | 4 | bytes |\n";
    let found = described(text);
    assert_eq!(found["RecordHead"], [("kind".to_string(), 0, 2), ("len".to_string(), 4, 4)]);
    let (_, real) = layouts().into_iter().find(|(name, _)| *name == "RecordHead").unwrap();
    assert_ne!(found["RecordHead"].len(), real.len());
}
