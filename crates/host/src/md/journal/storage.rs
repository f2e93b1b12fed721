//! The devices of an array with a write journal, as its recovery sees them.

use stripewise_engine::io::{IoResult, Role};
use stripewise_engine::journal::{JournalStorage, RowBlock};
use stripewise_engine::ppl::MemberStorage;
use stripewise_engine::units::MemberIndex;
use stripewise_format::journal::BLOCK_BYTES;
use stripewise_format::superblock_1::Superblock1;
use stripewise_parity::{Lost, Stripe, kernels};

use super::super::logs;
use crate::members::Member;

/// Members, those of the slots first and the journal last, each as a whole device.
pub(super) struct Devices<'a> {
    all: logs::Devices<'a>,
    journal: MemberIndex,
    superblock_sector: u64,
    superblock: Superblock1,
}

impl<'a> Devices<'a> {
    /// `superblock` is the journal's, which lies at `superblock_sector`.
    pub(super) const fn new(all: &'a [Member], superblock_sector: u64, superblock: Superblock1) -> Self {
        let journal = MemberIndex((all.len() - 1) as u16);
        Self { all: logs::Devices::new(all), journal, superblock_sector, superblock }
    }

    /// The last that refused.
    pub(super) const fn failed(&self) -> Option<usize> {
        self.all.failed
    }

    /// The journal's superblock as it is now.
    pub(super) fn into_superblock(self) -> Superblock1 {
        self.superblock
    }
}

impl MemberStorage for Devices<'_> {
    fn read(&mut self, member: MemberIndex, sector: u64, bytes: &mut [u8]) -> IoResult {
        self.all.read(member, sector, bytes)
    }

    fn write(&mut self, member: MemberIndex, sector: u64, bytes: &[u8]) -> IoResult {
        self.all.write(member, sector, bytes)
    }

    fn flush(&mut self, member: MemberIndex) -> IoResult {
        self.all.flush(member)
    }
}

impl JournalStorage for Devices<'_> {
    fn move_tail(&mut self, tail_sectors: u64) -> IoResult {
        self.superblock.recovery_offset_sectors = tail_sectors;
        let bytes = self.superblock.to_bytes();
        self.write(self.journal, self.superblock_sector, &bytes)?;
        self.flush(self.journal)
    }

    fn solve(&mut self, row: &mut [RowBlock]) {
        let (known, mut unknown): (Vec<_>, Vec<_>) = row.iter_mut().partition(|block| block.bytes.is_some());
        let index = |role: Role| match role {
            Role::Data(index) => Some(usize::from(index)),
            Role::P | Role::Q => None,
        };
        let roles = known.iter().map(|block| block.role).chain(unknown.iter().map(|block| block.role));
        let count = roles.filter_map(index).max().map_or(0, |most| most + 1);
        let mut data = vec![None; count];
        let (mut p, mut q) = (None, None);
        for block in &known {
            let bytes = block.bytes.as_deref();
            match block.role {
                Role::Data(index) => data[usize::from(index)] = bytes,
                Role::P => p = bytes,
                Role::Q => q = bytes,
            }
        }
        let mut solved = vec![vec![0; BLOCK_BYTES]; unknown.len()];
        let targets = unknown.iter().zip(&mut solved);
        let mut lost: Vec<Lost<'_>> =
            targets.map(|(block, target)| Lost::wanted(parity_role(block.role), target)).collect();
        kernels()
            .recover(&Stripe { data: &data, p, q }, &mut lost)
            .expect("no more blocks are unknown than the level has parity");
        drop(lost);
        for (block, bytes) in unknown.iter_mut().zip(solved) {
            block.bytes = Some(bytes);
        }
    }
}

const fn parity_role(role: Role) -> stripewise_parity::Role {
    match role {
        Role::Data(index) => stripewise_parity::Role::Data(index),
        Role::P => stripewise_parity::Role::P,
        Role::Q => stripewise_parity::Role::Q,
    }
}
