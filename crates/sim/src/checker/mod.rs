//! The judge: runs arrays through faults and checks every acknowledged byte.

mod array;
mod content;
mod crash;
mod driver;
mod failure;
mod logs;
mod lost;
mod maker;
mod oracle;
mod redundancy;
mod run;
mod scenario;
mod shrink;
mod start;
mod tally;

pub use array::ArrayPlan;
pub use content::Version;
pub use crash::{CrashCase, CrashReport, crash_cases, enumerate_crashes};
pub use driver::Driver;
pub use failure::Failure;
pub use lost::lost_row_scenarios;
pub use oracle::{Oracle, Watch, Wrong};
pub use run::{Outcome, run};
pub use scenario::{Scenario, Step};
pub use shrink::shrink;
pub use start::Start;
pub use tally::Tally;
