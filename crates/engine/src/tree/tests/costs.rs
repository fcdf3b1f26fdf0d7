//! Later.

extern crate std;