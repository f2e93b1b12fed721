//! What the members of an array with a write journal are told before its log is left behind: who is there, and whether there is
//! a journal.

use std::time::{SystemTime, UNIX_EPOCH};

use stripewise_engine::assembly::Consistency;
use stripewise_format::superblock::Superblock;
use stripewise_format::superblock_1::{Features, Role, Superblock1};
use stripewise_format::time::Timestamp;

use super::{AssembleError, Assembled, HostError, MemberProblem};
use crate::members::Member;

/// So many events a member may be behind and still be taken as current, so that one more round is needed than that.
const ROUNDS: u64 = 2;

impl Assembled {
    /// Whether the superblocks know more members than there are, or some are out of date and used by force. What is missing lacks
    /// what the log has, and nobody would know once the log is empty.
    pub(super) fn is_to_be_told(&self) -> bool {
        let candidates = &self.found.candidates;
        let told = |number: u32| candidates[self.assembly.freshest].superblock.role_of(number);
        let rows = candidates[self.assembly.freshest].superblock.device_rows();
        let is_here = |number: u32| {
            let mut here = self.table().into_iter().flatten();
            here.any(|candidate| candidates[candidate].superblock.dev_number() == number)
        };
        let is_missed = |number: u32| matches!(told(number), Role::Slot(_)) && !is_here(number);
        !self.assembly.forced.is_empty() || (0..rows).any(is_missed)
    }

    /// Has the superblocks say that the members that are there are all, so that the others are out of date.
    pub(super) fn tell_who_is_there(&mut self, devices: &[Member]) -> Result<(), AssembleError> {
        for _ in 0..ROUNDS {
            self.tell(devices, |_| {})?;
        }
        Ok(())
    }

    /// Has the superblocks say that there is no journal. If what it held is lost, parity is to be made right, as far as there is
    /// any beyond what is needed.
    pub(super) fn give_up_journal(&mut self, devices: &[Member], is_lost: bool) -> Result<(), AssembleError> {
        let parity = usize::from(self.assembly.geometry.level.parity_count());
        let has_redundancy = self.assembly.in_sync_count() + parity > self.assembly.slots.len();
        let resyncs = is_lost && has_redundancy;
        self.assembly.journal = None;
        // Whoever was not told, as the journal, is out of date to all.
        for _ in 0..ROUNDS {
            self.tell(devices, |superblock| {
                superblock.features = superblock.features.without(Features::JOURNAL);
                if resyncs {
                    superblock.resync_offset_sectors = 0;
                }
            })?;
        }
        self.assembly.consistency = Consistency::Resync;
        self.has_given_up_journal = true;
        if resyncs {
            self.assembly.resync_offset_sectors = 0;
            self.assembly.is_clean = false;
        }
        Ok(())
    }

    /// Writes the superblocks of members and journal, one event later.
    fn tell(&mut self, devices: &[Member], change: impl Fn(&mut Superblock1)) -> Result<(), AssembleError> {
        let here: Vec<(usize, usize)> = self
            .table()
            .into_iter()
            .chain([self.assembly.journal_device()])
            .enumerate()
            .filter_map(|(index, candidate)| Some((index, candidate?)))
            .collect();
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let candidates = here.iter().map(|(_, candidate)| &self.found.candidates[*candidate].superblock);
        let roles: Vec<(u32, Role)> = candidates.map(|s| (s.dev_number(), s.role())).collect();
        self.assembly.events += 1;
        for (index, candidate) in here {
            let place = self.found.candidates[candidate].at_sector;
            let Superblock::V1(superblock) = &mut self.found.candidates[candidate].superblock else {
                continue;
            };
            superblock.events = self.assembly.events;
            superblock.utime = Timestamp::from_seconds(since_1970.as_secs());
            set_roles(superblock, &roles);
            change(superblock);
            let device = &devices[index];
            let bytes = superblock.to_bytes();
            let written = device.write_device(place, &bytes).and_then(|()| device.flush_device());
            written.map_err(|error| HostError::Member {
                path: self.found.paths[candidate].clone(),
                problem: MemberProblem::Journal(error),
            })?;
        }
        Ok(())
    }
}

/// As the kernel's `super_1_sync`: what is not there is a spare.
fn set_roles(superblock: &mut Superblock1, roles: &[(u32, Role)]) {
    superblock.dev_roles.fill(Role::Spare);
    for (number, role) in roles {
        if let Some(place) = superblock.dev_roles.get_mut(*number as usize) {
            *place = *role;
        }
    }
}
