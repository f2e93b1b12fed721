//! The judge: runs arrays through faults and checks every acknowledged byte.

mod array;
mod content;
mod crash;
mod driver;
mod failure;
mod oracle;
mod redundancy;
mod scenario;
mod swarm;

pub use array::{ArrayPlan, Start};
pub use content::Version;
pub use crash::{CrashCase, CrashReport, crash_cases, enumerate_crashes};
pub use driver::Driver;
pub use failure::Failure;
pub use oracle::{Oracle, Watch, Wrong};
pub use scenario::{Scenario, Step};
pub use swarm::{Outcome, run, shrink};
