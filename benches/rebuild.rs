//! Resync and recovery of members in memory by one thread, beside the limit measured in the same run: the time it takes
//! to read and to write the bytes that must be read and written, as fast as this machine's memory goes.
//!
//! Then what a recovery costs those who use the array: a mixed random job of 4 KiB beside it at several speed limits, and
//! without it.
//!
//! Rounds are interleaved, so that a slow moment of the machine meets both sides. `--quick` for a first look (under 15 s).

#[path = "rebuild_load.rs"]
mod load;

use std::hint::black_box;
use std::time::Instant as WallInstant;

use stripewise_engine::array::sync::{SpeedLimits, SyncConfig};
use stripewise_engine::geometry::GeometrySpec;
use stripewise_engine::level::{Layout, Level};
use stripewise_engine::policy::Policy;
use stripewise_engine::units::{SECTOR_BYTES, Slot};
use stripewise_engine::volume::VolumeConfig;
use stripewise_host::{Array, ArrayConfig, MemberSpec};

const CHUNK_SECTORS: u64 = 128;

/// What is made whole.
#[derive(Clone, Copy)]
enum Due {
    /// Everything is read and compared.
    Resync,
    /// So many members are filled.
    Recover(u16),
}

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
    fn name(&self) -> String {
        let what = match self.due {
            Due::Resync => "resync".to_owned(),
            Due::Recover(count) => format!("recovery of {count}"),
        };
        format!("{} of {}, {what}", self.level.name(), self.members)
    }

    /// Bytes that an ideal implementation reads and writes for a byte of every member.
    fn traffic(&self) -> (f64, f64) {
        let members = f64::from(self.members);
        match (self.due, self.level) {
            (Due::Resync, _) => (members, 0.0),
            (Due::Recover(count), Level::Raid1 | Level::Raid10) => (f64::from(count), f64::from(count)),
            // Of RAID-6 with one member lost, one of those that are left need not be read.
            (Due::Recover(count), level) => {
                let parity = if level == Level::Raid6 { 2.0 } else { 1.0 };
                (members - parity, f64::from(count))
            }
        }
    }

    /// An array in memory whose members all hold zeroes: it is right, and nobody knows.
    fn open(&self, member_bytes: u64) -> Array {
        let geometry = GeometrySpec {
            level: self.level,
            layout: Layout::default_of(self.level),
            chunk_sectors: if self.level == Level::Raid1 { 0 } else { CHUNK_SECTORS },
            member_sectors: vec![member_bytes / SECTOR_BYTES; self.members.into()],
        };
        let mut volume = VolumeConfig::new(geometry, Policy::stripewise());
        let unlimited = SpeedLimits { min_kib: u32::MAX, max_kib: u32::MAX };
        volume.sync = SyncConfig { speed: unlimited, start: true };
        let members = vec![MemberSpec::Memory; self.members.into()];
        match self.due {
            Due::Resync => volume.resync_from = Some(0),
            Due::Recover(count) => {
                // The last slots: RAID-10's first two hold the same.
                volume.recovering = (0..count).map(|n| (Slot(self.members - 1 - n), 0)).collect();
            }
        }
        Array::open(ArrayConfig::new(volume, members)).expect("the array opens")
    }

    /// Bytes of a member per second.
    fn rate(&self, member_bytes: u64) -> f64 {
        let mut array = self.open(member_bytes);
        let start = WallInstant::now();
        array.sync(|_| {}).expect("it comes to its end");
        member_bytes as f64 / start.elapsed().as_secs_f64()
    }
}

/// Bytes per second of reading, and of writing, memory larger than every cache.
fn memory_rates(memory: &mut [u64]) -> (f64, f64) {
    let bytes = size_of_val(memory) as f64;
    let start = WallInstant::now();
    let sums = memory.chunks_exact(8).fold([0_u64; 8], |mut sums, block| {
        sums.iter_mut().zip(block).for_each(|(sum, word)| *sum ^= word);
        sums
    });
    black_box(sums);
    let read = bytes / start.elapsed().as_secs_f64();
    let start = WallInstant::now();
    memory.fill(black_box(read.to_bits()));
    black_box(&memory);
    (read, bytes / start.elapsed().as_secs_f64())
}

pub(crate) fn median(samples: &mut [f64]) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}

fn main() {
    let is_quick = std::env::args().any(|argument| argument == "--quick");
    let (rounds, member_bytes) = if is_quick { (1, 32 << 20) } else { (7, 128 << 20) };
    let mut memory = vec![1_u64; (256 << 20) / 8];
    let mut rates = vec![(Vec::new(), Vec::new()); CASES.len()];
    for round in 0..=rounds {
        for (case, (ours, limits)) in CASES.iter().zip(&mut rates) {
            let rate = case.rate(member_bytes);
            let (read, write) = memory_rates(&mut memory);
            let (reads, writes) = case.traffic();
            // The first round warms up.
            if round > 0 {
                ours.push(rate);
                limits.push(1.0 / (reads / read + writes / write));
            }
        }
    }
    println!("members in memory, {} MiB each, chunk 64 KiB, one thread", member_bytes >> 20);
    for (case, (mut ours, mut limits)) in CASES.iter().zip(rates) {
        let (ours, limit) = (median(&mut ours), median(&mut limits));
        println!(
            "{:<32} {:>8.0} MB/s per member   limit {:>8.0} MB/s   ratio {:.2}",
            case.name(),
            ours / 1e6,
            limit / 1e6,
            ours / limit
        );
    }
    load::curve(is_quick);
}
