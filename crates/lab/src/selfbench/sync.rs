//! Resync and recovery of members in memory, beside what that memory can do.

use anyhow::Result;
use stripewise_engine::array::sync::{SpeedLimits, SyncConfig};
use stripewise_engine::geometry::GeometrySpec;
use stripewise_engine::level::{Layout, Level};
use stripewise_engine::policy::Policy;
use stripewise_engine::units::{SECTOR_BYTES, Slot};
use stripewise_engine::volume::VolumeConfig;
use stripewise_host::{Array, ArrayConfig, MemberSpec};

use super::Scale;
use super::clock::{Stopwatch, interleaved};
use super::limits::{MemoryProbe, Traffic};
use super::table::{Row, Target, Unit};

const CHUNK_SECTORS: u64 = 128;
const ASKED: f64 = 0.6;

/// What is made whole.
#[derive(Clone, Copy)]
enum Due {
    /// Everything is read and compared.
    Resync,
    /// So many members are filled.
    Recover(u16),
}

#[derive(Clone, Copy)]
struct Case {
    level: Level,
    members: u16,
    due: Due,
}

const CASES: [Case; 7] = [
    Case { level: Level::Raid5, members: 5, due: Due::Resync },
    Case { level: Level::Raid5, members: 5, due: Due::Recover(1) },
    Case { level: Level::Raid6, members: 6, due: Due::Resync },
    Case { level: Level::Raid6, members: 6, due: Due::Recover(1) },
    Case { level: Level::Raid6, members: 6, due: Due::Recover(2) },
    Case { level: Level::Raid1, members: 2, due: Due::Recover(1) },
    Case { level: Level::Raid10, members: 4, due: Due::Recover(1) },
];

impl Case {
    fn name(self) -> String {
        let what = match self.due {
            Due::Resync => "resync, as check".to_owned(),
            Due::Recover(count) => format!("recovery of {count}"),
        };
        format!("{} of {}, {what}", self.level.name(), self.members)
    }

    /// What an ideal implementation reads and writes for a byte of every member.
    fn traffic(self) -> Traffic {
        let members = f64::from(self.members);
        match (self.due, self.level) {
            (Due::Resync, _) => Traffic { reads: members, writes: 0.0 },
            (Due::Recover(count), Level::Raid1 | Level::Raid10) => {
                Traffic { reads: f64::from(count), writes: f64::from(count) }
            }
            // Of RAID-6 with one member lost, one of those that are left need not be read.
            (Due::Recover(count), level) => {
                let parity = if level == Level::Raid6 { 2.0 } else { 1.0 };
                Traffic { reads: members - parity, writes: f64::from(count) }
            }
        }
    }

    /// An array in memory whose members all hold zeroes: it is right, and nobody knows.
    fn open(self, member_bytes: u64) -> Result<Array> {
        let geometry = GeometrySpec {
            level: self.level,
            layout: Layout::default_of(self.level),
            chunk_sectors: if self.level == Level::Raid1 { 0 } else { CHUNK_SECTORS },
            member_sectors: vec![member_bytes / SECTOR_BYTES; self.members.into()],
        };
        let mut volume = VolumeConfig::new(geometry, Policy::stripewise());
        let unlimited = SpeedLimits { min_kib: u32::MAX, max_kib: u32::MAX };
        volume.sync = SyncConfig { speed: unlimited, start: true };
        match self.due {
            Due::Resync => volume.resync_from = Some(0),
            // The last slots: RAID-10's first two hold the same.
            Due::Recover(count) => {
                volume.recovering = (0..count).map(|n| (Slot(self.members - 1 - n), 0)).collect();
            }
        }
        Ok(Array::open(ArrayConfig::new(volume, vec![MemberSpec::Memory; self.members.into()]))?)
    }

    /// Bytes of a member a second.
    fn rate(self, member_bytes: u64) -> f64 {
        let Ok(mut array) = self.open(member_bytes) else { return f64::NAN };
        let watch = Stopwatch::start();
        let ended = array.sync(|_| {});
        if ended.is_ok() { member_bytes as f64 / watch.seconds() } else { f64::NAN }
    }
}

pub(super) fn rows(scale: &Scale) -> Result<Vec<Row>> {
    let mut probe = MemoryProbe::new(scale.probe_bytes)?;
    Ok(CASES
        .into_iter()
        .map(|case| {
            // A whole run is a sample.
            let [ours, limit] = interleaved(
                scale.rounds,
                [&mut |_| case.rate(scale.member_bytes), &mut |_| probe.rates().limit(case.traffic())],
            );
            let Traffic { reads, writes } = case.traffic();
            Row::new(case.name(), Unit::MbPerSecondPerMember, ours)
                .beside(format!("the memory's limit: {reads:.0} read, {writes:.0} written"), limit)
                .asked(Target::RatioAtLeast(ASKED))
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_comes_to_its_end() {
        for case in CASES {
            assert!(case.rate(1 << 20) > 0.0, "{}", case.name());
        }
    }

    #[test]
    fn an_ideal_recovery_reads_no_more_than_it_needs() {
        let of = |case: Case| (case.traffic().reads as u32, case.traffic().writes as u32);
        assert_eq!(CASES.map(of), [(5, 0), (4, 1), (6, 0), (4, 1), (4, 2), (1, 1), (1, 1)]);
    }
}
