//! The engine's side: the same array and the same requests in virtual time.

use anyhow::{Result, anyhow, bail};
use serde::Serialize;
use stripewise_engine::geometry::GeometrySpec;
use stripewise_engine::level::{Layout, Level};
use stripewise_engine::policy::Policy;
use stripewise_engine::units::{Nanos, Slot};
use stripewise_engine::volume::VolumeConfig;
use stripewise_sim::models::{Model, Value};
use stripewise_sim::{ControllerNames, MemberReport, Phantom, Rig, RigNames, SimConfig, World};

use super::kernel::GuestCell;
use super::requests::{Replay, Requests};
use crate::labels::{Bitmap, Devices, label};

/// The name of whichever drive is asked for.
const DRIVE: &str = "the drive";
const CONTROLLER: &str = "nvme-pcie4-x4";
const CPU: &str = "xeon-e5-2600-2s";
const BLOCK: &str = "linux-block-6.1";

/// Where members' data begin, if the array keeps a bitmap.
const DATA_OFFSET_SECTORS: u64 = 2048;
/// Longer than a cell lasts: no bit is cleared meanwhile.
const BITMAP_DELAY_SECONDS: u32 = 3600;

/// 32 rows; the smallest stripe cache has 17.
const RESERVED_KIB_MIN: u64 = 128;

/// An array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Shape {
    /// 1, 5, 6 or 10.
    pub level: u8,
    /// Members, missing ones included.
    pub members: u16,
    /// How many of them are missing, the last ones.
    pub missing: u16,
    /// Chunk.
    pub chunk_kib: u64,
    /// Stripe-cache entries.
    pub stripe_cache_size: u32,
    /// Chunk of its internal bitmap; none: it keeps none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bitmap_chunk_kib: Option<u32>,
}

impl Shape {
    /// The members that are there.
    pub const fn present(&self) -> u16 {
        self.members - self.missing
    }

    fn missing_slots(&self) -> impl Iterator<Item = Slot> {
        (self.present()..self.members).map(Slot)
    }

    fn data_members(&self) -> u64 {
        u64::from(match self.level {
            1 => 1,
            10 => self.members / 2,
            6 => self.members - 2,
            _ => self.members - 1,
        })
    }

    /// Of each member, left to writes that empty the stripe cache between cells: more rows than its least size.
    fn reserved_kib(&self) -> u64 {
        self.chunk_kib.max(RESERVED_KIB_MIN)
    }

    /// Sectors of the array that requests may use: all but the reserved ones.
    pub fn usable_sectors(&self, member_sectors: u64) -> u64 {
        let chunk = self.chunk_kib * 2;
        (member_sectors / chunk * chunk - self.reserved_kib() * 2) * self.data_members()
    }

    /// The cell as the kernel plays it.
    pub(super) fn guest_cell(
        &self,
        requests: &Requests,
        within: u64,
        seed: u64,
        member_kib: u64,
        data_offset_kib: u64,
    ) -> GuestCell {
        GuestCell {
            is_write: requests.is_write,
            reserved_kib: self.reserved_kib() * self.data_members(),
            streams: requests.lists(within, seed),
            ..self.guest_array(member_kib, data_offset_kib)
        }
    }

    /// The array as the kernel makes it, with nothing to do.
    pub(super) fn guest_array(&self, member_kib: u64, data_offset_kib: u64) -> GuestCell {
        GuestCell {
            level: self.level,
            members: self.members,
            missing: self.missing,
            chunk_kib: self.chunk_kib,
            stripe_cache_size: self.stripe_cache_size,
            bitmap_chunk_kib: self.bitmap_chunk_kib,
            member_kib,
            data_offset_kib,
            is_write: false,
            reserved_kib: 0,
            rest_s: 0.0,
            streams: Vec::new(),
            sync: None,
        }
    }

    /// The array with what is missing failed.
    ///
    /// # Errors
    /// There is no such bitmap.
    pub(super) fn config(&self, member_sectors: u64) -> Result<VolumeConfig> {
        let level = match self.level {
            1 => Level::Raid1,
            6 => Level::Raid6,
            10 => Level::Raid10,
            _ => Level::Raid5,
        };
        let geometry = GeometrySpec {
            level,
            layout: Layout::default_of(level),
            chunk_sectors: self.chunk_kib * 2,
            member_sectors: vec![member_sectors; self.members.into()],
        };
        let mut config = VolumeConfig {
            stripe_cache_size: self.stripe_cache_size,
            failed: self.missing_slots().collect(),
            ..VolumeConfig::new(geometry, Policy::linux_6_1())
        };
        if let Some(kib) = self.bitmap_chunk_kib {
            let offset = DATA_OFFSET_SECTORS;
            let devices = Devices {
                sectors: offset + member_sectors,
                data_offset_sectors: Some(offset),
                size_sectors: Some(member_sectors),
            };
            let bitmap = Bitmap { chunk_bytes: Some(kib << 10), delay_seconds: BITMAP_DELAY_SECONDS };
            label(&mut config, devices, bitmap).map_err(|e| anyhow!(e))?;
        }
        Ok(config)
    }
}

/// What a simulation came to.
#[derive(Clone, Debug)]
pub(super) struct Simulated {
    /// From the first request to the end of the last.
    pub(super) seconds: f64,
    /// What each member that is there was sent.
    pub(super) members: Vec<MemberReport>,
}

/// A rig of one drive model; each drive has a controller of its own, as each is served by a process of its own. The
/// block layer is Linux 6.1's with these values changed; commands are so long on their way to the drive.
///
/// # Errors
/// A model has no such value.
pub(super) fn rig(drive: &Model, block: &[(&str, f64)], members: u16, way_ns: u64) -> Result<Rig> {
    let controllers = (0..members)
        .map(|slot| ControllerNames { model: CONTROLLER, members: vec![Slot(slot)], bus: None })
        .collect();
    let load = |name: &str| {
        if name == DRIVE {
            return Ok(drive.clone());
        }
        let model = Model::load(name)?;
        let changes = if name == BLOCK { block } else { &[] };
        changes.iter().try_fold(model, |model, (key, value)| model.with_value(key, &Value::Number(*value)))
    };
    let rig = Rig::load_with(&RigNames { drive: DRIVE, controllers, cpu: CPU, block: BLOCK }, load)?;
    Ok(Rig { way_ns, ..rig })
}

/// Plays a cell on modelled drives by threads that take so long from one request to the next; the seeds are the lists' and the
/// drives'.
///
/// # Errors
/// The array cannot be had on the rig.
pub(super) fn simulate(
    shape: &Shape,
    requests: &Requests,
    member_sectors: u64,
    [lists_seed, seed]: [u64; 2],
    rig: &Rig,
    turn: Nanos,
) -> Result<Simulated> {
    let config = SimConfig { volume: shape.config(member_sectors)?, rig: rig.clone(), seed };
    let within = shape.usable_sectors(member_sectors);
    let mut replay = Replay::new(requests.lists(within, lists_seed), requests.is_write).with_turn(turn);
    let report = World::new(&config, Phantom)?.run(&mut replay, None)?;
    if replay.errors > 0 {
        bail!("{} requests failed in the simulator", replay.errors);
    }
    Ok(Simulated {
        seconds: replay.end.0 as f64 / 1e9,
        members: report.members.iter().take(shape.present().into()).copied().collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LATENCY_US: f64 = 1_000_000.0;
    /// Of a bit of the bitmap.
    const BIT_SECTORS: u64 = 64 << 11;

    /// Seconds, rounded, of writes of 4 KiB to these bits, a list for each thread, on a RAID-1 of drives that take a second for
    /// whatever they do.
    fn seconds(holds: bool, bits: [&[u64]; 2]) -> u64 {
        let shape = Shape {
            level: 1,
            members: 2,
            missing: 0,
            chunk_kib: 64,
            stripe_cache_size: 256,
            bitmap_chunk_kib: Some(64 << 10),
        };
        let drive = Model::load("constant-latency")
            .and_then(|model| model.with_value("latency", &Value::Number(LATENCY_US)))
            .unwrap();
        let rig = rig(&drive, &[], 2, 0).unwrap();
        let mut volume = shape.config(64 * BIT_SECTORS).unwrap();
        volume.policy.bitmap_holds_writes = holds;
        let config = SimConfig { volume, rig, seed: 1 };
        let lists = (0..)
            .zip(bits)
            .map(|(thread, bits)| bits.iter().map(|bit| (bit * BIT_SECTORS + thread * 8, 8)).collect());
        let mut replay = Replay::new(lists.collect(), true);
        World::new(&config, Phantom).unwrap().run(&mut replay, None).unwrap();
        (replay.end.0 as f64 / 1e9).round() as u64
    }

    /// A round is a flush, the page, and a flush; then the copies are written.
    #[test]
    fn copies_are_not_written_while_the_bitmap_is() {
        assert_eq!(seconds(true, [&[0], &[]]), 4);
        assert_eq!(seconds(true, [&[0, 0, 0], &[]]), 6, "the bit is set already");
        assert_eq!(seconds(true, [&[0, 1, 2, 3], &[]]), 16);
        // The other thread's bit is set from the first round on.
        let beside = [&[0, 1, 2, 3][..], &[0; 9]];
        assert_eq!([true, false].map(|holds| seconds(holds, beside)), [21, 18]);
    }
}
