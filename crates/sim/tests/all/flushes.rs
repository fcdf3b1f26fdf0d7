//! What a flush costs beside other clients, in revolutions of simulated disks.

use weft_engine::geometry::{Layout, Resiliency};
use weft_engine::units::ByteCount;
use weft_sim::flushes::{Beside, Case, Load, Medium, Outcome, a_flush_of_many_stripes_is_not_held_for_flushes, run};
use weft_sim::held::what_is_flushed_often_is_held_and_leaves;
use weft_sim::streams::CLASS;

/// A stream, beside what `load` says.
fn beside_a_stream(layout: Layout, load: Load) -> Outcome {
    run(Case { medium: Medium::Hdd, layout, load, beside: Beside::Stream, flushes: 100, protected: false })
}

#[test]
fn a_write_with_fua_beside_a_stream_takes_ten_revolutions_at_most_and_the_stream_keeps_more_than_half() {
    for (resiliency, columns) in [(Resiliency::Parity { parity: 1 }, 5), (Resiliency::Mirror { copies: 2 }, 1)] {
        let layout = Layout::new(resiliency, columns, ByteCount::kib(256)).unwrap();
        let (alone, outcome) = (beside_a_stream(layout, Load::Nothing), beside_a_stream(layout, Load::FuaInOrder));
        // The first one finds what the stream wrote when nobody flushed.
        let longest = outcome.took[outcome.took.len() - 2].0;
        assert!(longest <= 10 * CLASS.revolution, "{layout}: {outcome}");
        assert!(outcome.beside_rate > 0.57 * alone.beside_rate, "{layout}: {outcome}, alone {}", alone.beside_rate);
    }
}

#[test]
fn a_flush_of_many_stripes_is_not_held_for_the_sake_of_flushes() {
    assert_eq!(a_flush_of_many_stripes_is_not_held_for_flushes(), None);
}

#[test]
fn whole_stripes_of_who_flushes_often_are_held_and_leave() {
    assert_eq!(what_is_flushed_often_is_held_and_leaves(), None);
}
