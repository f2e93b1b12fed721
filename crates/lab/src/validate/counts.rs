//! What the array sends: sectors and requests of each member, real md's beside the engine's.

use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result};
use serde::Serialize;
use stripewise_engine::units::{Nanos, PAGE_SECTORS};
use stripewise_sim::models::Model;
use stripewise_sim::{MemberReport, MemberStats};

use super::engine::{Shape, rig, simulate};
use super::kernel::{self, GuestPlan, GuestResult};
use super::requests::{Order, Requests};

/// Members of the widest array.
const MEMBERS_MAX: u16 = 12;
/// The rig only has to be quick: what is sent is counted, not timed.
const DRIVE: &str = "constant-latency";
/// Size of each RAM disk.
const RAM_DISK_KIB: u64 = 64 << 10;
/// Of which members use so much, beside the superblock.
const MEMBER_KIB: u64 = 48 << 10;
const DATA_OFFSET_KIB: u64 = 1 << 10;
/// The device mapper cuts requests to RAM disks to whole pages below the 255 sectors a driver gets that names no limit.
const READ_SECTORS_MAX: u64 = 248;
const SEED: u64 = 6;

/// An array and requests to it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CountCell {
    /// The array.
    pub shape: Shape,
    /// The requests.
    pub requests: Requests,
}

/// What all members were sent together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Sent {
    /// Reads: whole pieces of chunks past the stripe cache, single pages into it.
    pub reads: u64,
    /// Sectors read.
    pub sectors_read: u64,
    /// Writes of a page, on levels of copies of what a request wants of a member; those of the bitmap among them.
    pub writes: u64,
    /// Sectors written.
    pub sectors_written: u64,
}

/// A cell's outcome.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CountRow {
    /// The cell.
    #[serde(flatten)]
    pub cell: CountCell,
    /// By the kernel.
    pub linux: Sent,
    /// By the engine.
    pub engine: Sent,
    /// How far the engine's sectors, read and written together, are from the kernel's, of the kernel's.
    pub difference: f64,
    /// The same of the member where it is largest, of the members' mean.
    pub worst_member: f64,
}

impl Sent {
    fn sectors(&self) -> f64 {
        (self.sectors_read + self.sectors_written) as f64
    }

    fn of(members: &[[u64; 4]]) -> Self {
        members.iter().fold(Self::default(), |sum, m| Self {
            reads: sum.reads + m[0],
            sectors_read: sum.sectors_read + m[1],
            writes: sum.writes + m[2],
            sectors_written: sum.sectors_written + m[3],
        })
    }
}

/// The cells.
pub fn grid(quick: bool) -> Vec<CountCell> {
    use Order::{Random, Sequential};
    let shapes: &[(u8, u16, u16, u64, u32)] = if quick {
        &[(5, 5, 0, 64, 256), (5, 5, 1, 64, 256), (6, 6, 0, 64, 256)]
    } else {
        &[
            (5, 3, 0, 64, 256),
            (5, 5, 0, 64, 256),
            (5, 5, 0, 64, 4096),
            (5, 5, 0, 512, 256),
            (5, 5, 0, 512, 4096),
            (5, 5, 0, 4, 256),
            (5, 12, 0, 64, 256),
            (6, 4, 0, 64, 256),
            (6, 6, 0, 64, 256),
            (6, 6, 0, 512, 1024),
            (6, 12, 0, 128, 1024),
            (5, 5, 1, 64, 256),
            (5, 8, 1, 512, 4096),
            (6, 6, 1, 64, 256),
            (6, 6, 2, 64, 256),
        ]
    };
    let blocks: &[u64] = if quick { &[8, 128, 2048] } else { &[8, 32, 128, 512, 2048, 8192] };
    let mut cells = Vec::new();
    for &(level, members, missing, chunk_kib, stripe_cache_size) in shapes {
        let shape = Shape { level, members, missing, chunk_kib, stripe_cache_size, bitmap_chunk_kib: None };
        for &block_sectors in blocks {
            for (order, is_write, shift_sectors) in [
                (Sequential, false, 0),
                (Random, false, 0),
                (Sequential, true, 0),
                (Random, true, 0),
                (Random, true, 8),
                (Random, true, 1),
                (Sequential, true, 3),
            ] {
                let count = (32 << 11 >> block_sectors.ilog2()).clamp(8, 200);
                let requests = Requests { order, is_write, block_sectors, shift_sectors, threads: 1, count };
                cells.push(CountCell { shape, requests });
            }
        }
    }
    cells.extend(with_bitmap(quick));
    cells
}

/// Writes to arrays that keep a bitmap, of requests that nothing cuts on the way to a RAM disk.
fn with_bitmap(quick: bool) -> Vec<CountCell> {
    use Order::{Random, Sequential};
    let shapes: &[(u8, u16, u64, u32)] = if quick {
        &[(1, 2, 64, 64), (5, 5, 64, 64)]
    } else {
        &[
            (1, 2, 64, 4),
            (1, 2, 64, 64),
            (1, 2, 64, 4096),
            (5, 5, 64, 4),
            (5, 5, 64, 64),
            (5, 5, 64, 1024),
            (5, 5, 512, 256),
            (6, 6, 64, 64),
            (10, 4, 64, 4),
            (10, 4, 64, 64),
            (10, 4, 512, 4096),
        ]
    };
    let mut cells = Vec::new();
    for &(level, members, chunk_kib, bitmap_chunk_kib) in shapes {
        let shape = Shape {
            level,
            members,
            missing: 0,
            chunk_kib,
            stripe_cache_size: 256,
            bitmap_chunk_kib: Some(bitmap_chunk_kib),
        };
        for (order, block_sectors, shift_sectors, threads) in [
            (Random, 8, 0, 1),
            (Random, 8, 0, 4),
            (Random, 128, 0, 1),
            (Random, 128, 8, 1),
            (Sequential, 8, 0, 1),
            (Sequential, 128, 0, 1),
        ] {
            // How many of several in flight share the write of a page is a matter of time.
            if quick && threads > 1 {
                continue;
            }
            let requests = Requests {
                order,
                is_write: true,
                block_sectors,
                shift_sectors,
                threads,
                count: 200 / threads,
            };
            cells.push(CountCell { shape, requests });
        }
    }
    cells
}

/// What the engine sends for a cell.
///
/// # Errors
/// The models or the array cannot be had.
pub fn engine(cell: &CountCell) -> Result<Vec<[u64; 4]>> {
    let rig = rig(&Model::load(DRIVE)?, &[], cell.shape.members, 0)?;
    let run = simulate(&cell.shape, &cell.requests, MEMBER_KIB * 2, [SEED, SEED], &rig, Nanos(0))?;
    let through_cache = cell.requests.is_write;
    // Past the cache, a request comes to each chunk in one piece.
    let pieces = |m: &MemberReport| {
        let each = cell.requests.block_sectors.min(cell.shape.chunk_kib * 2);
        m.stats.reads * each.div_ceil(READ_SECTORS_MAX)
    };
    let pages = |sectors: u64| sectors.div_ceil(PAGE_SECTORS);
    Ok(run
        .members
        .iter()
        .map(|m| {
            let MemberStats { sectors_read, sectors_written, writes, .. } = m.stats;
            let reads = if through_cache { pages(sectors_read) } else { pieces(m) };
            let data = sectors_written - m.metadata_sectors;
            let has_pages = matches!(cell.shape.level, 4..=6);
            let writes = if has_pages { pages(data) + m.metadata_writes } else { writes };
            [reads, sectors_read, writes, sectors_written]
        })
        .collect())
}

/// Runs the grid on both sides.
///
/// # Errors
/// The kernel cannot be booted, or a cell fails; or `cancel` was set.
pub fn run(quick: bool, cancel: &AtomicBool, mut progress: impl FnMut(&str)) -> Result<Vec<CountRow>> {
    let cells = grid(quick);
    let plan = GuestPlan {
        module_options: [("brd", vec![format!("rd_nr={MEMBERS_MAX}"), format!("rd_size={RAM_DISK_KIB}")])]
            .into(),
        ram_disks: MEMBERS_MAX,
        cells: cells.iter().map(guest_cell).collect(),
        ..GuestPlan::default()
    };
    let total = cells.len();
    let ran = kernel::run(&plan, &[], cancel, |index, _| {
        progress(&format!("what is sent: {} of {total}", index + 1));
    })?;
    cells.into_iter().zip(ran.results).map(|(cell, result)| compare(cell, &result)).collect()
}

fn guest_cell(cell: &CountCell) -> kernel::GuestCell {
    let within = cell.shape.usable_sectors(MEMBER_KIB * 2);
    cell.shape.guest_cell(&cell.requests, within, SEED, MEMBER_KIB, DATA_OFFSET_KIB)
}

fn compare(cell: CountCell, result: &GuestResult) -> Result<CountRow> {
    let ours = engine(&cell).with_context(|| cell.requests.describe())?;
    let sectors = |m: &[u64; 4]| (m[1] + m[3]) as f64;
    let mean = result.members.iter().map(sectors).sum::<f64>() / result.members.len() as f64;
    let apart = ours.iter().zip(&result.members).map(|(a, b)| (sectors(a) - sectors(b)).abs() / mean);
    let worst_member = apart.fold(0.0, f64::max);
    let (linux, engine) = (Sent::of(&result.members), Sent::of(&ours));
    let difference = engine.sectors() / linux.sectors() - 1.0;
    Ok(CountRow { cell, linux, engine, difference, worst_member })
}

#[cfg(test)]
mod tests {
    use super::*;

    const RAID5: Shape = Shape {
        level: 5,
        members: 5,
        missing: 0,
        chunk_kib: 64,
        stripe_cache_size: 256,
        bitmap_chunk_kib: None,
    };

    fn sent(shape: Shape, block_sectors: u64, shift_sectors: u64, count: u64) -> Sent {
        let requests = Requests {
            order: Order::Random,
            is_write: true,
            block_sectors,
            shift_sectors,
            threads: 1,
            count,
        };
        Sent::of(&engine(&CountCell { shape, requests }).unwrap())
    }

    /// The figures are those of md of Linux 6.1.
    #[test]
    fn a_request_larger_than_the_stripe_cache_reads_no_more_than_its_ends_need() {
        let shape = Shape { level: 5, members: 3, ..RAID5 };
        let sent = sent(shape, 8192, 8, 8);
        assert_eq!((sent.sectors_read, sent.sectors_written), (128, 98_368));
    }

    /// The figures are those of md of Linux 6.1, of a list it was given.
    #[test]
    fn small_writes_read_and_write_as_md_does() {
        let shape = RAID5;
        assert_eq!(sent(shape, 8, 0, 200).sectors_written, 3200);
        let shape = Shape { level: 6, members: 6, ..RAID5 };
        assert_eq!(sent(shape, 8, 0, 200).sectors_written, 4800);
    }

    /// As md of Linux 6.1: what is read to rebuild a missing chunk is what else is wanted.
    #[test]
    fn a_read_of_whole_stripes_reads_a_degraded_array_once() {
        let shape = Shape { missing: 1, ..RAID5 };
        for block_sectors in [512, 2048, 8192] {
            let requests = Requests {
                order: Order::Sequential,
                is_write: false,
                block_sectors,
                shift_sectors: 0,
                threads: 1,
                count: 65_536 / block_sectors,
            };
            let sent = Sent::of(&engine(&CountCell { shape, requests }).unwrap());
            assert_eq!(sent.sectors_read, 65_536, "{block_sectors}");
        }
    }

    /// The figures are those of md of Linux 6.1, which has no use for what it reads.
    #[test]
    fn a_write_beside_lost_parity_reads_as_md_does() {
        let shape = Shape { missing: 1, ..RAID5 };
        let sent = sent(shape, 8, 0, 200);
        assert_eq!((sent.sectors_read, sent.sectors_written), (3776, 2616));
    }

    /// The figures are those of md of Linux 6.1, which reads P and Q to rebuild one block, and whole rows where two are lost.
    #[test]
    fn a_degraded_raid_6_reads_whole_rows_as_md_does() {
        let raid6 = |missing| Shape { level: 6, members: 6, missing, ..RAID5 };
        let requests = |is_write, block_sectors, shift_sectors| Requests {
            order: Order::Random,
            is_write,
            block_sectors,
            shift_sectors,
            threads: 1,
            count: 200,
        };
        for (missing, requests, read, written) in [
            (1, requests(false, 8, 0), 2624, 0),
            (1, requests(true, 8, 0), 4784, 3992),
            (1, requests(true, 8, 1), 11560, 7984),
            (1, requests(false, 128, 0), 41984, 0),
            (2, requests(false, 128, 0), 50432, 0),
            (2, requests(true, 8, 0), 5560, 3152),
            (2, requests(true, 128, 8), 88848, 50840),
        ] {
            let sent = Sent::of(&engine(&CountCell { shape: raid6(missing), requests }).unwrap());
            assert_eq!((sent.sectors_read, sent.sectors_written), (read, written), "{missing} {requests:?}");
        }
    }

    /// The figures are those of md of Linux 6.1: a page for each request whose bit is clear, on every member.
    #[test]
    fn bitmap_pages_are_written_as_often_as_by_md() {
        let shape = Shape { bitmap_chunk_kib: Some(64), ..RAID5 };
        let sent = sent(shape, 8, 0, 200);
        assert_eq!((sent.sectors_read, sent.writes, sent.sectors_written), (3192, 1270, 4070));
    }

    #[test]
    fn the_quick_grid_is_part_of_the_kinds_of_the_whole() {
        let whole = grid(false);
        assert!(grid(true).iter().all(|cell| whole.contains(cell)));
        assert!(whole.len() > 400, "{}", whole.len());
    }
}
