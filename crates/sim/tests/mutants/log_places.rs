//! What catches mutants of a log that goes on where the heads are.

use crate::Catcher;
use weft_engine::mutant::Mutant;
use weft_sim::{blink, spread};

/// What catches `mutant`, if it is one of these.
pub fn catcher(mutant: Mutant) -> Option<Catcher> {
    let story = match mutant {
        Mutant::SpreadUnannounced => spread::who_flushes_each_write_waits_for_no_revolution,
        Mutant::LeadNeverGrows => spread::how_long_disks_take_to_begin_is_learnt,
        Mutant::CopiesOverlap | Mutant::CopiesTooFar | Mutant::CopiesLeaveTheRound | Mutant::CopiesFoundNearby => {
            spread::copies_lie_in_order_and_within_their_rounds
        }
        Mutant::BroughtAtPosition => spread::a_crash_at_any_moment_loses_nothing_of_a_spread_log,
        Mutant::FormerLoggerFollows => spread::a_disk_with_spread_copies_may_follow_and_carry_the_log_again,
        Mutant::CopyBehindItself => spread::a_batch_that_is_cut_short_has_one_copy_on_each_disk,
        Mutant::LackingLookedThrough => spread::a_disk_that_lacks_many_batches_is_looked_through_once,
        Mutant::MetadataMovesToStale => blink::disks_that_blink_in_turn_while_metadata_moves_catch_up,
        _ => return None,
    };
    Some(Catcher::Story(story))
}
