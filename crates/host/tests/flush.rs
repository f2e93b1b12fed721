//! No acknowledged flush is lost, whichever shard it goes to.

mod common;

use common::{files, memory, volume};
use stripewise_engine::io::{Flags, IoError, IoResult, Op, Request, RequestId};
use stripewise_engine::level::{Layout, Level};
use stripewise_engine::units::{Instant, SectorRange, Slot};
use stripewise_engine::workload::{Next, Workload};
use stripewise_host::{Array, ArrayConfig};

/// Flushes, so many at a time.
struct FlushOnly {
    left: u32,
    depth: u32,
    free: Vec<u32>,
    results: Vec<IoResult>,
}

impl FlushOnly {
    fn new(count: u32, depth: u32) -> Self {
        Self { left: count, depth, free: (0..depth).collect(), results: Vec::new() }
    }
}

impl Workload for FlushOnly {
    fn in_flight_max(&self) -> u32 {
        self.depth
    }
    fn request_bytes_max(&self) -> u64 {
        512
    }
    fn next(&mut self, _: Instant) -> Next {
        if self.left == 0 {
            return Next::Finished;
        }
        let Some(id) = self.free.pop() else { return Next::Wait };
        self.left -= 1;
        let (range, flags) = (SectorRange::new(0, 0), Flags::default());
        Next::Issue(Request { id: RequestId(id), op: Op::Flush, range, flags })
    }
    fn complete(&mut self, _: Instant, id: RequestId, result: IoResult) {
        self.free.push(id.0);
        self.results.push(result);
    }
}

fn flushes(array: &mut Array, shards: usize) -> Vec<IoResult> {
    let (_, workloads) = array.run((0..shards).map(|_| FlushOnly::new(50, 8)).collect()).unwrap();
    assert!(workloads.iter().all(|w| w.results.len() == 50), "each flush is answered once");
    workloads.into_iter().flat_map(|w| w.results).collect()
}

fn open(level: Level, members: Vec<stripewise_host::MemberSpec>, shards: u32) -> Array {
    let volume = volume(level, Layout::default_of(level), members.len(), 128, 4096);
    Array::open(ArrayConfig { shards, ..ArrayConfig::new(volume, members) }).unwrap()
}

#[test]
fn flushes_of_all_shards_reach_file_members_and_share_calls() {
    let folder = tempfile::tempdir().unwrap();
    let mut array = open(Level::Raid5, files(folder.path(), 3, 4096), 2);
    assert!(flushes(&mut array, 2).iter().all(Result::is_ok));
    assert_eq!(array.flush().map_err(|e| e.to_string()), Ok(()));
}

#[test]
fn a_member_lost_beyond_redundancy_fails_the_flushes_of_every_shard() {
    for shards in [1, 2, 3] {
        let mut array = open(Level::Raid0, memory(2), shards);
        assert!(flushes(&mut array, shards as usize).iter().all(Result::is_ok));
        array.fail(Slot(1)).unwrap();
        // The other shards hear of it before they take their first request.
        let results = flushes(&mut array, shards as usize);
        assert!(results.iter().all(|r| *r == Err(IoError::Lost)), "{shards} shards: {results:?}");
        assert!(array.flush().is_err());
    }
}

#[test]
fn a_member_lost_within_redundancy_fails_no_flush() {
    let mut array = open(Level::Raid5, memory(4), 2);
    array.fail(Slot(1)).unwrap();
    assert!(flushes(&mut array, 2).iter().all(Result::is_ok));
}
