//! Members in memory: what a workload sees of copies that are the I/O.

mod common;

use common::{SECTOR, assert_same, memory, sector_bytes, volume};
use stripewise_engine::array::sync::SpeedLimits;
use stripewise_engine::io::{Flags, IoResult, Op, Request, RequestId};
use stripewise_engine::level::{Layout, Level, ParityLayout};
use stripewise_engine::units::{Instant, SectorRange, Slot};
use stripewise_engine::workload::{Next, Workload};
use stripewise_host::{Array, ArrayConfig, Payload};

const SECTORS: u64 = 1 << 14;
const READ_SECTORS: u64 = 256;

fn raid5() -> Array {
    let volume = volume(Level::Raid5, Layout::default_of(Level::Raid5), 3, 64, SECTORS);
    Array::open(ArrayConfig::new(volume, memory(3))).unwrap()
}

/// Reads one range after another, as many at once as it has ids, and compares what comes.
struct Reader {
    ids: u32,
    free: Vec<u32>,
    reads_left: u64,
    ended: Vec<u32>,
}

impl Workload for Reader {
    fn in_flight_max(&self) -> u32 {
        self.ids
    }
    fn request_bytes_max(&self) -> u64 {
        READ_SECTORS * SECTOR as u64
    }
    fn next(&mut self, _: Instant) -> Next {
        if self.reads_left == 0 {
            return Next::Finished;
        }
        let Some(id) = self.free.pop() else { return Next::Wait };
        self.reads_left -= 1;
        let range = SectorRange::new(self.reads_left * READ_SECTORS, READ_SECTORS);
        Next::Issue(Request { id: RequestId(id), op: Op::Read, range, flags: Flags::default() })
    }
    fn complete(&mut self, _: Instant, id: RequestId, result: IoResult) {
        assert_eq!(result, Ok(()));
        self.ended.push(id.0);
        self.free.insert(0, id.0);
    }
}

impl Payload for Reader {
    fn fill(&mut self, _: &Request, _: &mut [u8]) {}
    fn check(&mut self, request: &Request, bytes: &[u8]) {
        assert_same(bytes, &contents(request.range), request.range.start);
    }
}

fn contents(range: SectorRange) -> Vec<u8> {
    (range.start..range.end()).flat_map(|sector| sector_bytes(sector, 1)).collect()
}

/// A few buffers stay in the caches, many do not; both hold what was written, and reads that were asked for first end first.
#[test]
fn long_reads_end_in_order_with_their_bytes() {
    let mut array = raid5();
    let all = SectorRange::new(0, array.geometry().array_sectors());
    array.write_at(0, &contents(all)).unwrap();
    for ids in [4, 120] {
        let free = (0..ids).rev().collect();
        let reader = Reader { ids, free, reads_left: all.count / READ_SECTORS, ended: Vec::new() };
        let (_, mut readers) = array.run_with_payload(vec![reader]).unwrap();
        let ended = readers.remove(0).ended;
        let in_order: Vec<u32> = (0..ids).cycle().take(ended.len()).collect();
        assert_eq!(ended, in_order);
    }
}

/// Whichever two blocks of a stripe they hold, data or parity: what is read without two others comes from the spares.
#[test]
fn two_spares_are_filled_with_data_and_both_parities() {
    let layouts = [ParityLayout::LeftSymmetric, ParityLayout::RightAsymmetric, ParityLayout::DdfNContinue];
    for (layout, lost, others) in layouts.into_iter().flat_map(|layout| {
        [([4, 5], [0, 1]), ([0, 3], [2, 5]), ([2, 3], [1, 4])].map(|(lost, others)| (layout, lost, others))
    }) {
        println!("{layout:?} {lost:?}");
        let mut volume = volume(Level::Raid6, Layout::Parity(layout), 6, 64, SECTORS);
        volume.spares = 2;
        volume.sync.start = true;
        volume.sync.speed = SpeedLimits { min_kib: u32::MAX, max_kib: u32::MAX };
        let mut array = Array::open(ArrayConfig::new(volume, memory(8))).unwrap();
        let all = SectorRange::new(0, array.geometry().array_sectors());
        array.write_at(0, &contents(all)).unwrap();
        for failed in [lost, others] {
            for slot in failed {
                array.fail(Slot(slot)).unwrap();
            }
            array.sync(|_| {}).unwrap();
            let mut bytes = vec![0; all.count as usize * SECTOR];
            array.read_at(0, &mut bytes).unwrap();
            assert_same(&bytes, &contents(all), 0);
        }
    }
}
