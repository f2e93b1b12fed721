//! The engine and its models beside real Linux md, which is the judge.
//!
//! The kernel is Debian's user-mode-linux: md 6.1 itself, run as a process on this machine. Both sides are given the same
//! lists of requests: [`requests`]. What md *sends* to its members is counted on RAM disks: [`counts`].
//! How *long* that takes is measured on modelled drives in real time: [`times`]; and how fast the array works by itself:
//! [`syncs`].

pub mod counts;
mod drives;
mod engine;
mod kernel;
pub mod report;
pub mod requests;
pub mod syncs;
pub mod times;

pub use engine::Shape;
pub use kernel::check_programs;
pub use report::Validation;
