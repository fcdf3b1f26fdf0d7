//! What catches mutants of a log that goes on where the heads are, of the order in which disks read, and of how even
//! small writes are.

use crate::Catcher;
use weft_engine::mutant::Mutant;
use weft_sim::storm::Profile;
use weft_sim::{blink, fine, held, pinned, random_writes, spread, stream_reads};

/// What catches `mutant`, if it is one of these.
pub fn catcher(mutant: Mutant) -> Option<Catcher> {
    let story = match mutant {
        Mutant::HeldIsNotLanded | Mutant::HoldsWithoutEnd | Mutant::HeldForEver | Mutant::LongCopiesBeginAtOnce => {
            return Some(Catcher::Teller(held::what_is_flushed_often_is_held_and_leaves));
        }
        Mutant::PinsMoveForEver | Mutant::PinsTakeAll => pinned::what_cannot_leave_the_log_makes_nobody_wait_for_ever,
        Mutant::BusyLogIsInVain => pinned::a_little_that_cannot_leave_hinders_nobody_who_writes_much,
        Mutant::RemovedPins => pinned::what_is_removed_pins_nothing,
        Mutant::WholeGathersUnlanded => return Some(Catcher::Storm(Profile::Tiered, 114)),
        Mutant::PacksTakeTheRoom => fine::share::more_may_lie_packed_on_disks_that_do_not_seek,
        Mutant::SpreadUnannounced => spread::who_flushes_each_write_waits_for_no_revolution,
        Mutant::MoverSeesNoneComing => random_writes::no_second_with_a_usual_log_has_less_than_a_third_of_the_median,
        Mutant::LogLagsBehindHeads => spread::copies_lie_further_behind_where_the_log_may_not_go_on,
        Mutant::LeadNeverGrows => spread::how_long_disks_take_to_begin_is_learnt,
        Mutant::CopiesOverlap | Mutant::CopiesTooFar | Mutant::CopiesLeaveTheRound | Mutant::CopiesFoundNearby => {
            spread::copies_lie_in_order_and_within_their_rounds
        }
        Mutant::BroughtAtPosition => spread::a_crash_at_any_moment_loses_nothing_of_a_spread_log,
        Mutant::FormerLoggerFollows => spread::a_disk_with_spread_copies_may_follow_and_carry_the_log_again,
        Mutant::CopyBehindItself => spread::a_batch_that_is_cut_short_has_one_copy_on_each_disk,
        Mutant::LackingLookedThrough => spread::a_disk_that_lacks_many_batches_is_looked_through_once,
        Mutant::MetadataMovesToStale => blink::disks_that_blink_in_turn_while_metadata_moves_catch_up,
        Mutant::OvertakesForEver => stream_reads::no_reader_is_passed_over_for_long,
        Mutant::BeginsInTheMiddle | Mutant::ReadsOutOfOrder => {
            stream_reads::the_disks_of_a_mirror_begin_their_turns_at_the_beginning
        }
        Mutant::StallsAreQueuedFor => stream_reads::a_stream_waits_once_for_a_disk_that_stalls,
        Mutant::QueueIsSlow => stream_reads::a_disk_with_more_to_do_is_not_slow,
        _ => return None,
    };
    Some(Catcher::Story(story))
}
