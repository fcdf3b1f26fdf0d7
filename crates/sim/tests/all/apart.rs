//! What lands of stripes that are on their way to other disks than the log's.

use weft_sim::apart;

#[test]
fn what_is_on_its_way_is_durable_once_its_rest_has_landed() {
    apart::what_is_on_its_way_is_durable_once_its_rest_has_landed();
}

#[test]
fn what_landed_on_its_way_stays_in_the_log_until_it_is_down() {
    apart::what_landed_on_its_way_stays_in_the_log_until_it_is_down();
}

#[test]
fn what_is_on_its_way_does_not_land_once_its_virtual_disk_is_removed() {
    apart::what_is_on_its_way_does_not_land_once_its_virtual_disk_is_removed();
}

#[test]
fn nothing_older_lands_behind_what_is_newer() {
    apart::nothing_older_lands_behind_what_is_newer();
}
