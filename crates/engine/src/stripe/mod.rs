//! Stripes: the plans to read and write them, the buffers they are gathered in, and the tables that say where they are.

pub mod buffer;
pub mod fronts;
pub mod landed;
pub mod plan;
pub mod sealed;
pub mod table;
