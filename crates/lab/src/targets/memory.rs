//! `memory`: the real loop on members in memory.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Result, anyhow, bail};
use stripewise_host::MemberSpec;

use super::real::{self, memory_available, print_room};
use super::volume::has_bitmap;
use super::{CellError, Measurement, Target, TargetKind, TargetOptions};
use crate::cell::Cell;
use crate::workload::{parse_size, print_size};

/// Bytes of each member unless the target's text, the user or the plan says otherwise.
const MEMBER_BYTES: u64 = 256 << 20;

pub(super) const KIND: TargetKind = TargetKind {
    name: "memory",
    usage: "memory or memory:SIZE (members in memory, 256m each unless SIZE or the plan says otherwise)",
    is_real: true,
    open: |rest, options| Ok(Box::new(MemoryTarget::new(rest, options)?)),
};

struct MemoryTarget {
    member_bytes: u64,
}

impl MemoryTarget {
    fn new(rest: &str, options: &TargetOptions) -> Result<Self> {
        if options.fill.is_some() {
            bail!("members in memory are not filled: all of their memory is there; leave --fill out");
        }
        let of_target = (!rest.is_empty()).then(|| parse_size(rest)).transpose();
        let of_target = of_target.map_err(|e| anyhow!("memory:{rest}: {e}"))?;
        let member_bytes = match (of_target, options.member_bytes) {
            (Some(here), Some(there)) if here != there => bail!(
                "memory:{rest} and a member size of {}: give the size of the members once",
                print_size(there)
            ),
            (here, there) => here.or(there).or(options.storage.member_bytes).unwrap_or(MEMBER_BYTES),
        };
        let needed = member_bytes.saturating_mul(options.members_max.into());
        if let Some(free) = memory_available().filter(|free| needed > free / 4 * 3) {
            bail!(
                "{} members of {} need {}, and at most three quarters of the {} of free memory are used; \
                 write memory:SIZE with a smaller size",
                options.members_max,
                print_size(member_bytes),
                print_room(needed),
                print_room(free)
            );
        }
        Ok(Self { member_bytes })
    }
}

impl Target for MemoryTarget {
    fn name(&self) -> String {
        format!("memory:{}", print_size(self.member_bytes))
    }

    fn describe(&self, cells: &[Cell]) -> String {
        let members = cells.iter().map(|c| c.parameters.members()).max().unwrap_or(0);
        format!("real time: up to {members} members of {} in memory", print_size(self.member_bytes))
    }

    fn identity(&self, _: &Cell) -> String {
        let (cpu, kernel) = (crate::environment::host_cpu(), crate::environment::host_kernel());
        format!("{} on {cpu}, {kernel}", self.name())
    }

    fn is_simulated(&self) -> bool {
        false
    }

    fn check(&self, cell: &Cell) -> Result<(), String> {
        if has_bitmap(cell) {
            return Err("bitmap internal: members in memory hold data alone; use --on model or files:DIR, or take none"
                .to_owned());
        }
        real::check(cell, self.member_bytes)
    }

    fn run(&self, cell: &Cell, cancel: &Arc<AtomicBool>) -> Result<Measurement, CellError> {
        let members = vec![MemberSpec::Memory; cell.parameters.members().into()];
        real::run(cell, members, self.member_bytes, cancel)
    }
}
