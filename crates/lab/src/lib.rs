//! The lab: plans, cells, targets, the store, statistics, recommendations and reports.
#![forbid(unsafe_code)]

pub mod calibrate;
pub mod cell;
pub mod claims;
pub mod environment;
pub mod export;
pub mod fs;
mod labels;
pub mod plan;
pub mod recommend;
pub mod report;
pub mod results;
mod runner;
pub mod selfbench;
pub mod sensitivity;
mod small_file;
pub mod stats;
pub mod store;
pub mod study;
pub mod targets;
pub mod trace;
pub mod units;
pub mod validate;
pub mod workload;

pub use small_file::load_model;
