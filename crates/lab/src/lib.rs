//! The lab: plans, cells, targets, the store, statistics, recommendations and reports.
#![forbid(unsafe_code)]

pub mod report;
pub mod results;
pub mod workload;
