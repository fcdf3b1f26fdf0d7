//! Stripes: their geometry, the plans to read and write them, the buffers they are gathered in, and the executor.

pub mod buffer;
pub mod execute;
pub mod geometry;
pub mod landed;
pub mod plan;
pub mod table;
pub mod together;
