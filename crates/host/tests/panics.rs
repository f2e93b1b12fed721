//! What is left of an array when a caller's code panics in the middle of its work.

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use common::{files, memory, volume};
use stripewise_engine::io::{Flags, IoResult, Op, Request, RequestId};
use stripewise_engine::level::{Layout, Level};
use stripewise_engine::units::{Instant, SectorRange, Slot};
use stripewise_engine::workload::{Next, Workload};
use stripewise_host::{Array, ArrayConfig, MemberSpec};

const REQUESTS: u32 = 8;
const REQUEST_SECTORS: u64 = 512;

/// Reads and writes until it panics: when all are issued, or when one ends.
struct Panics {
    issued: u32,
    when_one_ends: bool,
}

impl Workload for Panics {
    fn in_flight_max(&self) -> u32 {
        REQUESTS
    }
    fn request_bytes_max(&self) -> u64 {
        REQUEST_SECTORS * 512
    }
    fn next(&mut self, _: Instant) -> Next {
        if self.issued == REQUESTS {
            assert!(self.when_one_ends, "all are issued");
            return Next::Wait;
        }
        self.issued += 1;
        let id = self.issued - 1;
        Next::Issue(Request {
            id: RequestId(id),
            op: if id.is_multiple_of(2) { Op::Write } else { Op::Read },
            range: SectorRange::new(u64::from(id) * REQUEST_SECTORS, REQUEST_SECTORS),
            flags: Flags::default(),
        })
    }
    fn complete(&mut self, _: Instant, _: RequestId, _: IoResult) {
        panic!("one ended");
    }
}

fn open(members: Vec<MemberSpec>, shards: u32) -> Array {
    let volume = volume(Level::Raid5, Layout::default_of(Level::Raid5), 4, 128, 8192);
    Array::open(ArrayConfig { shards, ..ArrayConfig::new(volume, members) }).unwrap()
}

fn refuses_everything(mut array: Array) {
    let refused = |result: Result<(), String>| {
        let error = result.unwrap_err();
        assert!(error.contains("panicked") && error.contains("open it again"), "{error}");
    };
    let said = |e: stripewise_host::HostError| e.to_string();
    refused(array.read_at(0, &mut [0; 4096]).map_err(said));
    refused(array.write_at(0, &[1; 4096]).map_err(said));
    refused(array.flush().map_err(said));
    refused(array.sync(|_| ()).map(drop).map_err(said));
    refused(array.fail(Slot(0)).map_err(|e| e.to_string()));
    refused(array.run(vec![Panics { issued: 0, when_one_ends: true }]).map(drop).map_err(said));
    refused(array.close().map_err(said));
    assert_eq!(array.status().failed, []);
}

#[test]
fn an_array_whose_workload_panicked_touches_its_buffers_no_more() {
    for (shards, when_one_ends) in [(1, false), (1, true), (3, false), (3, true)] {
        let folder = tempfile::tempdir().unwrap();
        for members in [memory(4), files(folder.path(), 4, 8192)] {
            let mut array = open(members, shards);
            let workloads = (0..shards).map(|_| Panics { issued: 0, when_one_ends }).collect();
            let run = catch_unwind(AssertUnwindSafe(|| array.run(workloads).map(drop)));
            assert!(run.is_err(), "the panic goes on");
            refuses_everything(array);
        }
    }
}

#[test]
fn an_array_whose_watch_panicked_is_used_no_more() {
    let folder = tempfile::tempdir().unwrap();
    let mut volume = volume(Level::Raid5, Layout::default_of(Level::Raid5), 4, 128, 8192);
    volume.resync_from = Some(0);
    let config = ArrayConfig::new(volume, files(folder.path(), 4, 8192));
    let mut array = Array::open(config).unwrap();
    let sync = catch_unwind(AssertUnwindSafe(|| array.sync(|_| panic!("watched")).map(drop)));
    assert!(sync.is_err());
    refuses_everything(array);
}

/// A ring is told of its I/O on its own thread only.
#[test]
fn an_array_that_was_stopped_while_it_worked_may_go_to_another_thread() {
    let folder = tempfile::tempdir().unwrap();
    let mut volume = volume(Level::Raid5, Layout::default_of(Level::Raid5), 4, 128, 8192);
    volume.resync_from = Some(0);
    let config = ArrayConfig::new(volume, files(folder.path(), 4, 8192));
    let stop = Arc::clone(&config.stop);
    let mut array = Array::open(config).unwrap();
    array.sync(|_| stop.store(true, Ordering::Relaxed)).unwrap();
    std::thread::spawn(move || array.read_at(0, &mut [0; 4096]).unwrap()).join().unwrap();
}
