//! Segments as they are listed for whoever looks for one.

use crate::planted::lists;

#[test]
fn what_becomes_free_is_listed() {
    lists::what_becomes_free_is_listed();
}

#[test]
fn what_a_disk_takes_with_it_is_listed() {
    lists::what_a_disk_takes_with_it_is_listed();
}
