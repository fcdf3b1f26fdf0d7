//! One story or more for every numbered invariant of the engine that a simulated world can show. Each says which it is
//! about: the file, and the number in its head.

mod crashes;
mod members;
mod metadata;
mod service;
mod space;
mod story;
