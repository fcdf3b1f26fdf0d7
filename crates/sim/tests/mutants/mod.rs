//! Stories by which planted bugs are caught, and that are tests of their own, too.

pub mod batches;
pub mod check;
pub mod configuration;
pub mod leaving;
pub mod lists;
pub mod opening;
pub mod space;
pub mod tables;
