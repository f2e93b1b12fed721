//! What Linux md writes on its members: the numbers and names of levels and layouts.
#![forbid(unsafe_code)]

pub mod level;
