//! The virtual loop: modelled drives, buses and CPUs run the engine in virtual time.
//!
//! # Contract
//! *Determinism.* A run depends on its [`SimConfig`], its workload and its data, and on nothing else: no
//! clock, no threads, no randomness but the seed. Equal runs have equal trace hashes. The seed decides only
//! what is physically random: where platters and arms are at the start.
//! *Honesty.* All times come from the parameters of [`models`], each with its source.
//! *Bytes.* With [`Phantom`] data only time is simulated.
#![forbid(unsafe_code)]

mod block;
mod bus;
pub mod bytes;
pub mod checker;
mod clock;
mod cpu;
mod crypt;
mod data;
mod drive;
pub mod faults;
pub mod models;
pub mod random;
mod realtime;
mod report;
mod reserved;
mod rig;
mod slices;
mod topology;
mod trace;
mod world;

pub use block::MemberStats;
pub use crypt::{Cipher, CryptConfig};
pub use data::{Data, Phantom};
pub use realtime::{LoneDrive, LoneRequest};
pub use report::{MemberReport, SimReport};
pub use rig::{Controller, ControllerNames, Rig, RigError, RigNames};
pub use topology::TopologyError;
pub use trace::TraceHash;
pub use world::{SimConfig, SimError, World, run};
