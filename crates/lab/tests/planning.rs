//! The planner beside what it stands on: the engine, its simulator, and the document.

use weft_lab::capacity::Space;
use weft_lab::disks::{Class, PlannedDisk};
use weft_lab::ratios::{CLASSES, Ratios, known, layouts, simulate, simulate_quickly};

/// What an estimate may be off.
const WITHIN: f64 = 0.10;

#[test]
fn the_table_of_the_document_is_what_the_planner_answers() {
    let document =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide/planning.md")).unwrap();
    let table = weft_lab::questions::table();
    assert!(document.contains(&table), "put this into docs/guide/planning.md:\n{table}");
}

#[test]
fn every_layout_that_is_planned_with_was_measured() {
    for (layout, class) in layouts().into_iter().flat_map(|layout| CLASSES.map(|class| (layout, class))) {
        let ratios = known(layout, class).expect("it is in the table");
        let Ratios { write, read, random_read, read_p99, .. } = ratios;
        assert!(write > 0.5 && write <= 1.0 && read > 0.3 && random_read > 0.1 && read_p99 > 0.0, "{layout}");
        let Ratios { degraded, degraded_write, rebuilding, rebuilding_write, .. } = ratios;
        for one_less in [degraded, degraded_write, rebuilding, rebuilding_write] {
            assert_eq!(one_less > 0.0, layout.failures() > 0, "{layout}");
        }
        assert_eq!(ratios.packed_write > 0.0 && ratios.write_p99 > 0.0, class.rotational(), "{layout} on {class}");
    }
}

#[test]
fn the_table_is_what_the_engine_does() {
    // Every layout on 7200 rpm disks, and those of four slots on the others: what is longer takes many minutes. One in
    // three of them, unless all are asked for (`make ratios` measures, and writes, the whole table).
    let step = if std::env::var_os("WEFT_ALL_RATIOS").is_some() { 1 } else { 3 };
    let every = layouts().into_iter().map(|layout| (layout, Class::Hdd7200));
    let four = layouts().into_iter().filter(|layout| layout.slots() == 4 && layout.failures() > 0);
    let others = four.flat_map(|layout| CLASSES[1..].iter().map(move |class| (layout, *class)));
    let all: Vec<_> = every.chain(others).collect();
    assert!(all.len() >= 30);
    // All that is off is told at once: it takes a while to find out.
    let mut off = Vec::new();
    for (layout, class) in all.into_iter().step_by(step) {
        let (known, now) = (known(layout, class).unwrap(), simulate_quickly(layout, class).unwrap());
        let mut near = |name: &str, known: f64, now: f64| {
            if (known - now).abs() > now * WITHIN {
                off.push(format!("{layout} on {class}: {name}: the table says {known}, the engine does {now}"));
            }
        };
        near("write", known.write, now.write);
        near("read", known.read, now.read);
        near("degraded", known.degraded, now.degraded);
        near("random read", known.random_read, now.random_read);
        near("degraded write", known.degraded_write, now.degraded_write);
        near("99 of 100 reads", known.read_p99, now.read_p99);
    }
    assert!(off.is_empty(), "{off:#?}");
}

#[test]
fn what_takes_longer_is_in_the_table_as_the_engine_does_it() {
    let three = layouts().into_iter().filter(|layout| layout.slots() == 3 && layout.failures() == 1);
    for layout in three {
        let (known, now) = (known(layout, Class::Hdd7200).unwrap(), simulate(layout, Class::Hdd7200).unwrap());
        for (name, known, now) in [
            ("rebuilding", known.rebuilding, now.rebuilding),
            ("rebuilding write", known.rebuilding_write, now.rebuilding_write),
            ("packed write", known.packed_write, now.packed_write),
            ("99 of 100 rounds of writes", known.write_p99, now.write_p99),
        ] {
            assert!((known - now).abs() <= now * WITHIN, "{layout}: {name}: {known} in the table, {now} now");
        }
    }
}

#[test]
fn room_on_other_sizes_of_disks_is_never_more_than_the_raw_share_and_close_to_it_for_equal_ones() {
    for layout in layouts() {
        let disks = vec![PlannedDisk { size: 4_000_000_000_000, class: Class::Hdd7200 }; layout.slots()];
        let raw = 4e12 * layout.data_columns() as f64;
        let share = Space::new(&disks).unwrap().room(layout).0 as f64 / raw;
        assert!((0.98..1.0).contains(&share), "{layout}: {share}");
    }
}
