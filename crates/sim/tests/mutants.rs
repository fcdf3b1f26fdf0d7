//! Every known mutation of the engine must be caught: the proof that the simulator looks where it matters.
//!
//! `cargo test -p weft-sim --features mutants --test mutants --profile proof`
#![cfg(feature = "mutants")]

#[allow(dead_code)]
#[path = "mutants/batches.rs"]
mod batches;
#[allow(dead_code)]
#[path = "mutants/check.rs"]
mod check;
#[path = "mutants/configuration.rs"]
mod configuration;
#[allow(dead_code)]
#[path = "mutants/leaving.rs"]
mod leaving;
#[allow(dead_code)]
#[path = "mutants/lists.rs"]
mod lists;
#[path = "mutants/log_places.rs"]
mod log_places;
#[path = "mutants/old_disk.rs"]
mod old_disk;
#[path = "mutants/opening.rs"]
mod opening;
#[path = "mutants/put_back.rs"]
mod put_back;
#[path = "mutants/rare.rs"]
mod rare;
#[allow(dead_code)]
#[path = "mutants/space.rs"]
mod space;
#[path = "mutants/stories.rs"]
mod stories;
#[allow(dead_code)]
#[path = "all/story.rs"]
mod story;
#[allow(dead_code)]
#[path = "mutants/tables.rs"]
mod tables;

use std::panic::catch_unwind;
use stories::a_page_write_that_was_put_off_leaves_the_last_image_alone;
use weft_engine::mutant::{self, ALL, Mutant};
use weft_sim::apart;
use weft_sim::cached_writes;
use weft_sim::capacity;
use weft_sim::exhaustive::{Options, repeat, run};
use weft_sim::fine::{self, change, copies, hollow, kept, order, risk, shelf, tier};
use weft_sim::flushes::a_flush_of_many_stripes_is_not_held_for_flushes;
use weft_sim::follower::{
    a_layout_that_survives_two_failures_has_three_copies_of_the_log, both_vanish_in_the_midst_of_writes,
    no_commit_flushes_a_disk_that_it_says_nothing_of,
    what_a_removed_disk_had_committed_is_right_where_a_crash_brings_it_back,
};
use weft_sim::growth::first_disks_of_pools_that_grew_go;
use weft_sim::mixed::a_writer_beside_readers_that_never_rest;
use weft_sim::random_writes::{
    no_flush_waits_for_the_mover_to_let_go_of_the_log, no_second_has_less_than_half_of_the_median,
    packed_stripes_are_left_by_all_of_their_units, small_writes_are_packed_in_a_pool_that_is_nearly_full,
    small_writes_are_packed_while_a_disk_is_missing, what_is_read_ahead_of_the_mover_is_forgotten_when_it_rests,
};
use weft_sim::read_ahead::{changes_beside_a_reader, rot_before_a_reader};
use weft_sim::removal::search;
use weft_sim::sample::{part_named, part_of};
use weft_sim::storm::{Profile, hunt};
use weft_sim::tree;
use weft_sim::wide;

/// The most storms before a mutant is caught.
const STORMS_MAX: u64 = 100;
/// The most pools that may have to be opened before a mutant is caught.
const OPENED_MAX: u64 = 5_000;

/// Mutants are set for the whole process, so one test runs them in sequence.
#[test]
fn every_mutant_is_caught_and_the_same_cases_pass_without_it() {
    let only = std::env::var("WEFT_MUTANT").unwrap_or_default();
    let named = ALL.into_iter().filter(|mutant| format!("{mutant:?}").contains(&only));
    // The cases themselves are all tried: no part of them alone is known to catch anything.
    let chosen = part_of(named, part_named("WEFT_MUTANTS_PART"));
    // One that lives hides no other: all of them are named at the end.
    let lives = |mutant: &Mutant| {
        let caught = catch_unwind(|| catch_one(*mutant));
        mutant::set(None);
        caught.is_err()
    };
    let alive: Vec<Mutant> = chosen.filter(lives).collect();
    assert_eq!(alive, [], "not caught, or caught without being there; each says why above");
}

fn catch_one(mutant: Mutant) {
    match catcher_of(mutant) {
        Catcher::Scenes(only) => catch_exhaustively(mutant, only),
        Catcher::OldDisk => catch_with_the_story_of_an_old_disk(mutant),
        Catcher::Removal => catch(mutant, "a removal", removals),
        Catcher::Story(story) => catch(mutant, "a story", || panics(story)),
        Catcher::Stories(stories) => stories.iter().for_each(|story| catch(mutant, "a story", || panics(*story))),
        Catcher::Teller(story) => catch(mutant, "a story that tells", story),
        Catcher::Storm(profile, seed) => catch_with_a_storm(mutant, profile, seed),
        Catcher::Both(story, profile, seed) => {
            catch(mutant, "a story", || panics(story));
            catch_with_a_storm(mutant, profile, seed);
        }
    }
}

/// What catches a mutant.
enum Catcher {
    /// The exhaustive search of these scenes.
    Scenes(&'static str),
    /// It takes more than a crash.
    OldDisk,
    /// Crashes beside removals.
    Removal,
    /// A story that says what does not hold.
    Teller(fn() -> Option<String>),
    /// The storm of this profile and seed, or one of the next few: a change of the engine gives each another course.
    Storm(Profile, u64),
    /// A story that ends with a panic.
    Story(fn()),
    /// Stories, each of which does.
    Stories(&'static [fn()]),
    /// A story, and a storm.
    Both(fn(), Profile, u64),
}

fn catcher_of(mutant: Mutant) -> Catcher {
    match mutant {
        Mutant::CommitBeforeData => Catcher::Scenes("mirror2/rewrite"),
        Mutant::ReuseBeforeCommit => Catcher::Scenes("simple/reuse"),
        Mutant::FlushForgetsDisk => Catcher::Scenes("parity3/rewrite"),
        Mutant::UnprotectedUnflushed => Catcher::Storm(Profile::Protected, 1),
        Mutant::StaleDiskTrusted => Catcher::OldDisk,
        Mutant::LabelBeforeCheckpoint => Catcher::Scenes("mirror2/reopen"),
        Mutant::LandingRetiredEarly => Catcher::Scenes("simple/checkpoint"),
        Mutant::PagesAheadOfLog => Catcher::Scenes("mirror2/early"),
        Mutant::SlabsFreedBeforeDrop
        | Mutant::DiscardBeforeDrop
        | Mutant::DiscardAfterReuse
        | Mutant::DiscardsWhatIsTaken => Catcher::Removal,
        Mutant::AheadOutlivesPlace => Catcher::Teller(changes_beside_a_reader),
        Mutant::ReadsUnproven => Catcher::Teller(rot_before_a_reader),
        Mutant::FlushWaitsForItself => Catcher::Teller(a_flush_of_many_stripes_is_not_held_for_flushes),
        Mutant::TurnNeverEnds => Catcher::Teller(a_writer_beside_readers_that_never_rest),
        Mutant::CopiesStayTogether => Catcher::Teller(first_disks_of_pools_that_grew_go),
        Mutant::SheetDamageOverlooked => Catcher::Story(check::a_copy_that_lacks_its_checksums_is_damage),
        Mutant::CheckHeals => Catcher::Story(check::a_check_that_only_looks_changes_nothing),
        Mutant::UnsafeCommits => Catcher::Storm(Profile::Powerless, 21),
        Mutant::MissedStripsForgotten => Catcher::Storm(Profile::Flicker, 3),
        Mutant::TouchedForgotten => Catcher::Storm(Profile::Flicker, 290),
        Mutant::RehomedWithoutFlush => Catcher::Storm(Profile::Blink, 330),
        Mutant::MoveForgetsNewStripes => Catcher::Storm(Profile::Blink, 2),
        Mutant::LogEndsInItsMiddle => Catcher::Storm(Profile::Classic, 12),
        Mutant::LoggerUnflushed => Catcher::Storm(Profile::Classic, 33),
        Mutant::PageVersionsIgnored => Catcher::Storm(Profile::Classic, 1008),
        Mutant::BatchNotRepeated => Catcher::Storm(Profile::Outage, 190),
        Mutant::FreezeIgnored => Catcher::Story(stories::two_of_five_disks_acknowledge_nothing),
        Mutant::ReturnedDiskIsWhole => Catcher::Storm(Profile::Blink, 60),
        Mutant::NoLabelsBeforeAck => {
            let story = stories::a_flush_that_half_of_the_disks_acknowledged_is_never_opened_without;
            Catcher::Both(story, Profile::Powerless, 1)
        }
        Mutant::OpeningFlushesNothing => Catcher::Story(stories::two_openings_one_killed_and_one_cut_off_leave_a_pool),
        Mutant::PagesKeepOneSlot => {
            Catcher::Both(stories::a_checkpoint_that_is_torn_anywhere_takes_nothing, Profile::Torn, 200)
        }
        Mutant::CheckpointForgetsLosses => {
            Catcher::Story(stories::pages_that_disks_missed_while_a_checkpoint_was_taken_are_written_to_them)
        }
        Mutant::MoveForgetsLosses => {
            Catcher::Story(stories::a_disk_that_blinks_while_the_job_that_fills_it_rests_loses_nothing)
        }
        Mutant::ReadmitCopiesNothing => {
            Catcher::Both(stories::a_disk_that_is_back_gets_the_pages_that_it_missed, Profile::Powerless, 1)
        }
        Mutant::LastImageOverwritten => Catcher::Story(a_page_write_that_was_put_off_leaves_the_last_image_alone),
        Mutant::SuccessorsNotAwaited => Catcher::Story(stories::a_flush_waits_for_what_replaced_a_lost_version),
        Mutant::UnknownAbsenceTracked => {
            Catcher::Both(put_back::a_disk_that_is_put_back_from_an_older_copy_is_proven_as_a_whole, Profile::Damage, 1)
        }
        Mutant::PromiseNotSeen => {
            Catcher::Story(put_back::a_disk_that_an_opening_lost_is_proven_when_it_is_put_back_from_before_that)
        }
        Mutant::NotesAfterCommits => {
            Catcher::Story(stories::a_kill_after_disks_blinked_leaves_no_stripe_without_redundancy_in_silence)
        }
        Mutant::ReleasedPoolGoesOn => Catcher::Story(stories::a_pool_whose_disks_were_given_up_writes_nothing_and_ends),
        Mutant::ReturnFlushesNothing => {
            Catcher::Story(stories::a_disk_that_is_back_has_a_label_whenever_the_power_goes)
        }
        Mutant::LeftBehindBatchesCount => Catcher::Story(stories::what_an_opening_left_behind_does_not_come_back),
        Mutant::LogCopiesTooFew => Catcher::Story(a_layout_that_survives_two_failures_has_three_copies_of_the_log),
        Mutant::FollowerNamedEarly => Catcher::Story(both_vanish_in_the_midst_of_writes),
        other => catcher_of_moved(other),
    }
}

/// What catches a mutant of what is moved where slabs are lacking.
fn catcher_of_moved(mutant: Mutant) -> Catcher {
    match mutant {
        Mutant::MoveVoidsUnits => Catcher::Story(hollow::what_is_packed_above_a_stripe_that_is_moved_stays),
        Mutant::MoveReplacesNewer | Mutant::EmptiedTakesStripes => {
            Catcher::Story(hollow::what_is_written_while_segments_are_emptied_is_newer)
        }
        Mutant::MoveUnflushed => Catcher::Story(hollow::whatever_happens_while_segments_are_emptied_loses_nothing),
        Mutant::RisingKeepsNothing => Catcher::Story(hollow::a_change_of_a_nearly_full_pool_ends_under_random_writes),
        Mutant::AnnexRoomUnchecked => {
            Catcher::Story(wide::a_pool_whose_disks_have_no_room_for_annexes_does_not_grow_beyond_64)
        }
        Mutant::AnnexAtOneEnd => Catcher::Story(wide::either_end_of_wide_labels_is_enough),
        Mutant::MoveBitUnannounced => Catcher::Story(hollow::what_is_discarded_here_and_there_is_room_for_others),
        Mutant::RoomIsNotAwaited => Catcher::Story(hollow::disks_that_are_away_for_a_moment_cost_no_room),
        Mutant::RepairEmptiesNothing => {
            Catcher::Story(hollow::a_disk_that_is_gone_is_rebuilt_where_hollow_segments_lie)
        }
        Mutant::LeavesWithoutEmptying => Catcher::Story(hollow::a_disk_leaves_where_hollow_segments_lie),
        Mutant::LostCopyIsLoss | Mutant::RestoredUnknownToTier => {
            Catcher::Story(copies::a_copy_that_is_lost_costs_nothing)
        }
        Mutant::WrittenCopyForgiven => Catcher::Story(copies::what_clients_wrote_into_a_copy_is_never_lost_in_silence),
        tree => catcher_of_tree(tree),
    }
}

/// What catches a mutant of the tree of metadata.
fn catcher_of_tree(mutant: Mutant) -> Catcher {
    match mutant {
        Mutant::TreeWrittenOnce | Mutant::TreeLeftBehind => Catcher::Teller(tree::found_by_storms),
        Mutant::TreeReusedEarly => Catcher::Teller(tree::found_by_slow_readers),
        Mutant::TreeRoomForgotten => Catcher::Teller(tree::found_by_crashes),
        Mutant::TreePlacesNotGivenBack => Catcher::Teller(tree::found_by_blinks),
        Mutant::TreeNotHealed | Mutant::TreeCopyBelieved => Catcher::Teller(tree::found_by_damage),
        Mutant::TreeHomeUnnamed => {
            Catcher::Story(configuration::a_metadata_segment_that_is_made_for_the_tree_of_a_checkpoint_is_found)
        }
        Mutant::TreeReplayUntold => Catcher::Story(configuration::what_is_replayed_is_in_the_next_checkpoint),
        Mutant::ChunkPutLate => {
            Catcher::Story(configuration::a_virtual_disk_that_is_removed_while_a_checkpoint_is_taken_is_no_riddle)
        }
        Mutant::TreeBegunAnewEmpty => {
            Catcher::Story(configuration::a_checkpoint_for_whose_tree_there_is_no_room_is_taken_all_the_same)
        }
        Mutant::TreeStuckIgnored => Catcher::Story(configuration::what_a_lost_page_of_the_tree_held_is_written_anew),
        Mutant::OwnerNotCompared => Catcher::Story(put_back::a_place_that_came_to_be_another_stripe_s_is_an_error),
        Mutant::BirthsAlike => Catcher::Story(put_back::an_older_version_in_its_own_place_is_an_error),
        Mutant::LateReadAccuses => {
            Catcher::Story(put_back::a_read_that_began_before_a_disk_was_brought_up_to_date_accuses_nobody)
        }
        Mutant::RolledBackUnseen => {
            Catcher::Story(put_back::a_disk_that_is_put_back_from_a_copy_made_since_its_last_label_is_proven)
        }
        Mutant::EmptyingOutlivesUse => Catcher::Story(leaving::the_emptying_of_a_disk_that_is_used_again_ends),
        Mutant::LeavesBeforeRepair => {
            Catcher::Story(leaving::a_disk_that_leaves_does_not_take_the_room_that_a_repair_needs)
        }
        Mutant::OpeningWaits => Catcher::Story(opening::an_opening_whose_disks_vanish_ends),
        Mutant::PutBackPagesBelieved => {
            Catcher::Story(put_back::pages_of_a_disk_that_is_put_back_one_label_old_are_brought_up_to_date)
        }
        Mutant::SheetVersionsIgnored => Catcher::Story(put_back::old_data_that_agrees_with_old_checksums_is_an_error),
        Mutant::StalePagesBelieved => {
            Catcher::Story(stories::disks_that_are_back_get_pages_of_the_tree_from_the_one_that_has_them)
        }
        Mutant::SpacePutEarly => Catcher::Story(space::what_is_committed_while_a_checkpoint_runs_is_in_use),
        Mutant::FreedStaysInUse => {
            Catcher::Story(space::a_whole_checkpoint_has_its_tables_counted_and_the_next_one_has_not)
        }
        Mutant::LostSpaceIsFree => Catcher::Story(space::what_is_lost_of_what_is_in_use_is_counted),
        Mutant::UnnamedPageTaken => Catcher::Story(space::pages_of_a_checkpoint_that_was_cut_off_mislead_nobody),
        Mutant::BatchBoundBelieved => {
            Catcher::Story(batches::a_batch_from_before_the_bound_is_missed_as_far_as_it_may_have_reached)
        }
        Mutant::OldSpaceBelieved => Catcher::Story(space::what_an_older_weft_left_of_what_is_in_use_is_not_believed),
        Mutant::DirtyTablePageDropped => Catcher::Story(tables::a_page_that_changed_stays_until_a_checkpoint_has_it),
        Mutant::LossForgetsLabel => {
            Catcher::Story(put_back::a_disk_that_is_lost_and_put_back_older_is_brought_all_since_its_last_label)
        }
        Mutant::AbsenceForgetsLog => Catcher::Stories(&[
            put_back::a_disk_that_is_away_at_an_opening_and_put_back_older_is_brought_what_the_log_says,
            put_back::a_disk_that_is_put_back_before_it_was_up_to_date_is_proven,
        ]),
        Mutant::MovesStopHealing => Catcher::Story(check::a_repair_beside_moves_leaves_nothing_bad),
        Mutant::AttemptedForgotten => Catcher::Storm(Profile::Split, 1_001_342),
        Mutant::GoneCountsAsBad => Catcher::Story(check::a_scrub_whose_disk_goes_finds_nothing_bad),
        Mutant::TablePageInTime => Catcher::Story(tables::a_page_is_waited_for_where_only_a_slow_disk_has_it),
        Mutant::OneCopyBelieved => {
            Catcher::Story(tables::one_copy_of_a_page_is_read_and_another_one_where_it_is_not_the_page)
        }
        Mutant::OldTablePageBelieved => Catcher::Story(tables::a_page_that_is_lost_is_an_error_for_its_stripes_only),
        packs => catcher_of_packs(packs),
    }
}

/// What catches a mutant of packed stripes.
fn catcher_of_packs(mutant: Mutant) -> Catcher {
    match mutant {
        Mutant::UnitVoidedEarly => Catcher::Story(fine::what_a_lost_stripe_had_replaced_is_there_when_that_is_given_up),
        Mutant::PackFreedEarly => Catcher::Story(fine::what_is_moved_down_is_as_it_was_and_its_packed_stripes_are_free),
        Mutant::DiscardKeepsUnits | Mutant::ReplayKeepsUnits => {
            Catcher::Story(fine::a_whole_stripe_and_a_discard_make_fine_units_void)
        }
        Mutant::TailPassesPacks => {
            Catcher::Story(fine::small_writes_leave_packed_and_read_nothing_with_every_resiliency)
        }
        Mutant::PackUnflushed => {
            Catcher::Story(fine::disks_that_blink_while_stripes_are_packed_take_nothing_that_was_flushed)
        }
        Mutant::MoverOverwrites => {
            Catcher::Story(fine::beside::what_is_written_beside_the_mover_is_never_replaced_by_what_it_read)
        }
        Mutant::BlockFilledTooEarly => {
            Catcher::Story(fine::beside::what_is_written_beside_packing_lies_above_what_was_written_before)
        }
        Mutant::ShiftNotAsked => Catcher::Story(rare::a_rebalance_ends_where_the_emptiest_disk_takes_nothing),
        Mutant::LastCopyShifted => Catcher::Story(rare::a_rebalance_leaves_alone_what_is_not_repaired_yet),
        Mutant::StrayedBelieved => {
            Catcher::Story(put_back::a_disk_that_went_on_while_an_older_one_was_told_to_is_proven)
        }
        Mutant::LateTreeCopyPassed => Catcher::Story(rare::a_look_waits_for_what_a_slow_disk_has_of_the_tree),
        Mutant::CacheThinTaken => {
            Catcher::Story(fine::cache::a_cache_that_lacks_redundancy_takes_nothing_and_empties_itself)
        }
        Mutant::CacheDroppedFull => Catcher::Storm(Profile::Cached, 16_000_000),
        Mutant::CacheUnitsMiscounted => Catcher::Storm(Profile::Cached, 16_000_014),
        Mutant::CacheBitUnannounced => Catcher::Story(fine::cache::a_cache_that_survives_less_is_refused),
        Mutant::JournalCopiesGivenUp => {
            Catcher::Story(fine::journal::a_journal_keeps_the_copies_of_metadata_that_too_few_others_have)
        }
        Mutant::CutBatchForgotten => {
            Catcher::Story(rare::what_is_cut_short_by_a_closing_is_written_when_the_disks_are_back)
        }
        Mutant::LateCopyForgotten => {
            Catcher::Story(fine::behind::a_copy_that_is_behind_is_mended_though_its_disk_was_slow_at_the_opening)
        }
        Mutant::PackMemoryUncounted => Catcher::Story(fine::packed_units_are_no_more_than_their_memory_takes),
        Mutant::PackBitUnannounced | Mutant::PackBitGoesEarly => {
            Catcher::Story(fine::the_bit_of_packed_stripes_is_set_before_the_first_and_goes_with_the_last)
        }
        Mutant::ConfigRoomUncounted => {
            Catcher::Story(fine::packed_stripes_leave_room_for_the_configuration_of_whole_ones)
        }
        other => log_places::catcher(other).unwrap_or_else(|| catcher_of_stacks(other)),
    }
}

/// What catches a mutant of stacks of tables.
fn catcher_of_stacks(mutant: Mutant) -> Catcher {
    match mutant {
        Mutant::ZeroFallsThrough => Catcher::Story(change::what_is_zeroed_above_an_older_table_stays_zeros),
        Mutant::OlderFreedEarly => {
            Catcher::Story(change::a_crash_at_any_moment_of_a_change_loses_nothing_and_the_change_goes_on)
        }
        Mutant::OlderTableDroppedEarly => Catcher::Storm(Profile::Changed, 1),
        Mutant::NewTableRetiresNothing => {
            Catcher::Story(change::what_landed_before_a_change_and_was_given_back_stays_away)
        }
        Mutant::StackBitUnannounced => Catcher::Story(change::the_bit_of_stacks_is_set_before_the_first),
        Mutant::UnsettledHides => {
            Catcher::Story(change::what_clients_wrote_hides_an_older_table_only_once_it_is_durable)
        }
        order => catcher_of_order(order),
    }
}

/// What catches a mutant of what is put in order.
fn catcher_of_order(mutant: Mutant) -> Catcher {
    match mutant {
        Mutant::OrderTakesRoom => Catcher::Story(order::what_is_put_in_order_leaves_clients_the_room_that_they_need),
        Mutant::OrderOverwritesNewer => Catcher::Story(order::what_is_written_while_it_is_put_in_order_is_what_is_read),
        Mutant::OrderNeverRests => {
            Catcher::Story(order::what_was_written_anywhere_comes_to_lie_in_order_and_then_all_is_still)
        }
        Mutant::OrderCostsAnything => Catcher::Story(order::a_few_writes_now_and_then_do_not_move_everything_each_time),
        Mutant::PassedByForgotten => Catcher::Story(packed_stripes_are_left_by_all_of_their_units),
        Mutant::ShadowPinsTail | Mutant::ShortWaitsForMover => {
            Catcher::Story(no_flush_waits_for_the_mover_to_let_go_of_the_log)
        }
        Mutant::MoverCountsStripes => Catcher::Story(no_second_has_less_than_half_of_the_median),
        Mutant::FlushWaitsForMerged => Catcher::Story(cached_writes::no_flush_before_a_cache_waits_for_hard_disks),
        Mutant::PacksStayThin => Catcher::Story(cached_writes::a_full_cache_takes_as_much_as_is_brought_down),
        Mutant::MergedUnflushed => Catcher::Storm(Profile::Cached, 16_000_324),
        Mutant::RepackedReplacesNewer => Catcher::Storm(Profile::Cached, 60_000_120),
        Mutant::RepackedRetires => Catcher::Storm(Profile::Cached, 62_000_154),
        Mutant::FlushWaitsForMoved => Catcher::Story(cached_writes::no_flush_before_a_cache_waits_for_hard_disks),
        Mutant::OneUnpackableEndsAll => {
            Catcher::Story(cached_writes::what_cannot_be_packed_any_more_has_no_others_merged)
        }
        Mutant::BadBlockCountedAgain => {
            Catcher::Story(cached_writes::a_block_that_nobody_can_heal_is_held_against_its_disk_once)
        }
        Mutant::RepackReadsAgain => {
            Catcher::Story(cached_writes::what_cannot_be_read_of_a_full_cache_is_in_nobodys_way)
        }
        Mutant::LandedInFlightUnflushed => {
            Catcher::Story(cached_writes::what_becomes_whole_is_flushed_without_hard_disks)
        }
        Mutant::LandsAnyBacklog => {
            Catcher::Story(cached_writes::who_flushes_more_than_hard_disks_take_never_waits_long)
        }
        Mutant::FreshChunkPutEarly => Catcher::Storm(Profile::Many, 50_001_518),
        Mutant::MetadataMadeStale => Catcher::Storm(Profile::Tiered, 8_002_263),
        Mutant::OlderLandsLater => Catcher::Story(apart::nothing_older_lands_behind_what_is_newer),
        Mutant::LandedInFlightForgotten | Mutant::LandedInFlightNotRetired => {
            Catcher::Story(apart::what_landed_on_its_way_stays_in_the_log_until_it_is_down)
        }
        Mutant::GatheredForgotten | Mutant::SealedIsLanded => Catcher::Storm(Profile::Cached, 10),
        Mutant::PackedAheadKept => Catcher::Story(what_is_read_ahead_of_the_mover_is_forgotten_when_it_rests),
        Mutant::PacksWaitForDisks => Catcher::Story(small_writes_are_packed_while_a_disk_is_missing),
        Mutant::GathersLastSegments | Mutant::PacksCountNoRoom => {
            Catcher::Story(small_writes_are_packed_in_a_pool_that_is_nearly_full)
        }
        Mutant::KeptIsLost | Mutant::GatheredAgainForgotten => {
            Catcher::Story(kept::what_the_log_has_of_a_lost_version_is_written_again_and_a_flush_waits_for_that)
        }
        Mutant::CopiesStandIn | Mutant::RolledBackReturns => {
            Catcher::Story(put_back::older_copies_take_nothing_with_them)
        }
        Mutant::WrittenOverIsAskedFor => Catcher::Story(put_back::disks_that_blink_are_no_copies),
        Mutant::UnprovenIsSafe => Catcher::Story(put_back::no_disk_is_taken_out_while_another_is_not_proven),
        Mutant::LostIsAskedFor => Catcher::Storm(Profile::Copied, 30),
        Mutant::GathersOverNewer => Catcher::Story(kept::what_gathers_again_lies_below_what_was_written_since),
        Mutant::TierSizeIgnored => Catcher::Story(tier::what_is_pinned_lies_in_the_tier),
        Mutant::TierBitUnannounced => Catcher::Story(tier::the_labels_name_tiers_before_the_first_record_does),
        Mutant::TierThinTaken => Catcher::Story(tier::a_tier_that_lost_a_disk_takes_nothing_and_empties_itself),
        Mutant::TierDroppedFull | Mutant::TierClaimKept => {
            Catcher::Story(tier::what_is_written_lies_in_the_tier_until_that_is_full_or_is_to_be_no_more)
        }
        Mutant::TierMoveOverwrites => {
            Catcher::Story(tier::what_is_written_beside_a_job_that_moves_lies_above_what_it_read)
        }
        Mutant::TierTakesRoom => Catcher::Story(tier::a_full_disk_is_overwritten_whatever_tier_it_lies_in),
        Mutant::FreedStaysUnlisted => Catcher::Story(lists::what_becomes_free_is_listed),
        Mutant::ListsForgetDisks => Catcher::Story(lists::what_a_disk_takes_with_it_is_listed),
        shelves => catcher_of_shelves(shelves),
    }
}

/// What catches a mutant of read caches.
fn catcher_of_shelves(mutant: Mutant) -> Catcher {
    match mutant {
        Mutant::ShelfUnproven => Catcher::Story(shelf::what_is_wrong_in_a_cache_is_dropped_and_the_disks_are_read),
        Mutant::ShelfOutlivesPlace => Catcher::Story(shelf::what_was_written_anew_is_not_read_from_the_cache),
        Mutant::ShelfFillDelays | Mutant::ShelfWaits => {
            Catcher::Story(shelf::a_disk_of_a_cache_that_does_not_answer_delays_no_read)
        }
        Mutant::CheckReadsShelf => Catcher::Story(shelf::a_check_reads_the_disks_and_not_the_cache),
        Mutant::ShelfSlabsFree | Mutant::ShelfSlabsFreedEarly | Mutant::ReadCacheBitUnannounced => {
            Catcher::Story(shelf::the_slabs_of_a_cache_are_its_own_until_the_last_write_there_has_ended)
        }
        Mutant::LostFallsThrough => Catcher::Story(risk::what_rested_on_a_lost_disk_is_an_error_until_it_is_back),
        Mutant::CommitsFlushAll => Catcher::Story(no_commit_flushes_a_disk_that_it_says_nothing_of),
        Mutant::DroppedUnflushed => {
            Catcher::Story(what_a_removed_disk_had_committed_is_right_where_a_crash_brings_it_back)
        }
        Mutant::FrontsWasteRoom => Catcher::Story(capacity::a_stream_fills_unequal_disks),
        Mutant::CacheLosesUnasked => Catcher::Story(risk::a_cache_may_survive_less_where_that_is_said),
        other => panic!("nothing is known to catch {other:?}"),
    }
}

fn catch(mutant: Mutant, by: &str, story: impl Fn() -> Option<String>) {
    mutant::set(Some(mutant));
    let caught = story();
    mutant::set(None);
    println!("{mutant:?}: caught by {by}: {}", caught.unwrap_or_else(|| panic!("{mutant:?} was not caught by {by}")));
    assert_eq!(story(), None, "without {mutant:?}");
}

/// `weft-sim --mutant NAME --profile NAME --runs 300` finds another seed, where this one says nothing any more.
fn catch_with_a_storm(mutant: Mutant, profile: Profile, seed: u64) {
    let caught = hunt(mutant, profile, seed..seed + STORMS_MAX);
    let (seed, why) = caught.unwrap_or_else(|| panic!("{mutant:?} lives through {STORMS_MAX} storms of {profile}"));
    println!("{mutant:?}: caught by {profile} {seed}: {why}");
}

/// What a story panicked with, if it did.
fn panics(story: fn()) -> Option<String> {
    let cause = catch_unwind(story).err()?;
    let text = cause.downcast_ref::<String>().cloned();
    Some(text.or_else(|| cause.downcast_ref::<&str>().map(|text| String::from(*text))).unwrap_or_default())
}

fn removals() -> Option<String> {
    weft_sim::removal::stories()
        .into_iter()
        .filter(|story| story.disks == 1)
        .find_map(|story| search(story, false).failures.pop())
}

fn catch_exhaustively(mutant: Mutant, only: &str) {
    let options = Options { only: only.into(), limit: Some(OPENED_MAX), ..Options::default() };
    mutant::set(Some(mutant));
    let caught = run(&options);
    let again = caught.as_ref().err().map(|failure| repeat(&failure.case));
    mutant::set(None);
    let Err(failure) = caught else { panic!("{mutant:?} was not caught by {only}: {}", caught.unwrap()) };
    println!("{mutant:?}: caught after {} openings: {failure}", failure.opened);
    assert!(again.is_some_and(|again| again.is_err()), "{mutant:?}: the line of a failure repeats it");
    repeat(&failure.case).unwrap_or_else(|what: String| panic!("without {mutant:?}, {} fails: {what}", failure.case));
    run(&options).unwrap_or_else(|failure| panic!("without {mutant:?}: {failure}"));
}

fn catch_with_the_story_of_an_old_disk(mutant: Mutant) {
    mutant::set(Some(mutant));
    let with = old_disk::story();
    mutant::set(None);
    assert_eq!(with, old_disk::End::OldData, "{mutant:?} was not caught");
    assert_eq!(old_disk::story(), old_disk::End::Honest);
    println!("{mutant:?}: caught by the story of an old disk");
}
