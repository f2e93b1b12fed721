use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use stripewise_engine::io::Op;
use stripewise_engine::units::{Instant, Nanos, SectorRange};

use super::super::{Claim, Trace};
use super::*;

fn observed(time: u64, sector: u64) -> Observed {
    let (arrived, latency, range) = (Instant(time), Nanos(7), SectorRange::new(sector, 8));
    Observed { arrived, latency, op: Op::Write, range, fua: sector == 8, stream: 2, is_ok: sector != 16 }
}

#[test]
fn what_is_observed_by_several_threads_is_what_is_read_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.trace");
    let recorder = Claim::new(&path).unwrap().begin(1 << 30, |e| panic!("{e}")).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let observer = recorder.observer();
            scope.spawn(move || {
                for n in 0..100_000 {
                    observer.observe(&observed(n * 4 + thread, n % 1000 * 8));
                }
            });
        }
    });
    assert_eq!(recorder.finish().unwrap().records, 400_000);
    let trace = Trace::read(&path).unwrap();
    assert_eq!((trace.records.len(), trace.device_bytes), (400_000, 1 << 30));
    for (time, record) in trace.records.iter().enumerate() {
        let sector = time as u64 / 4 % 1000 * 8;
        assert_eq!((record.time_ns, record.offset, record.bytes), (time as u64, sector * 512, 4096));
        assert_eq!(
            (record.fua, record.failed, record.stream, record.latency_ns),
            (sector == 8, sector == 16, 2, 7)
        );
    }
}

#[test]
fn a_file_that_is_no_trace_is_left_alone_and_an_older_trace_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk.img");
    std::fs::write(&path, vec![0; 100]).unwrap();
    let error = Claim::new(&path).unwrap_err();
    assert!(error.to_string().contains("is not a trace"), "{error}");
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 100);
    std::fs::write(&path, "").unwrap();
    for _ in 0..2 {
        Claim::new(&path).unwrap().begin(512, |_| {}).unwrap().finish().unwrap();
        assert_eq!(Trace::read(&path).unwrap().records.len(), 0);
    }
    let nowhere = Claim::new(&folder.path().join("no/t")).unwrap_err();
    assert!(nowhere.to_string().contains("cannot make the trace"), "{nowhere}");
}

#[test]
fn a_file_is_as_it_was_until_the_trace_begins() {
    let folder = tempfile::tempdir().unwrap();
    let (old, new) = (folder.path().join("old"), folder.path().join("new"));
    Claim::new(&old).unwrap().begin(1 << 20, |_| {}).unwrap().finish().unwrap();
    drop(Claim::new(&old).unwrap());
    assert_eq!(Trace::read(&old).unwrap().device_bytes, 1 << 20);
    let claim = Claim::new(&new).unwrap();
    assert!(new.exists(), "it can be made");
    drop(claim);
    assert!(!new.exists());
    Claim::new(&old).unwrap().begin(512, |_| {}).unwrap().finish().unwrap();
    assert_eq!(Trace::read(&old).unwrap().device_bytes, 512);
}

#[test]
fn a_trace_has_one_recorder() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t");
    let recorder = Claim::new(&path).unwrap().begin(1 << 20, |_| {}).unwrap();
    let error = Claim::new(&path).unwrap_err();
    assert!(error.to_string().contains("t: another recording is writing this trace"), "{error}");
    recorder.observer().observe(&observed(0, 0));
    recorder.finish().unwrap();
    assert_eq!(Trace::read(&path).unwrap().records.len(), 1);
    drop(Claim::new(&path).unwrap());
    let null = Path::new("/dev/null");
    let claims = [Claim::new(null), Claim::new(null)];
    assert!(claims.iter().all(Result::is_ok), "what keeps nothing has room for all");
}

/// Takes so many bytes, then has no room.
struct Full(Arc<AtomicU64>);

impl Write for Full {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.load(Ordering::SeqCst) < bytes.len() as u64 {
            return Err(io::Error::from(io::ErrorKind::StorageFull));
        }
        self.0.fetch_sub(bytes.len() as u64, Ordering::SeqCst);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_full_disk_is_told_once_stops_nobody_and_is_an_error_at_the_end() {
    let told = Arc::new(AtomicBool::new(false));
    let tell = Arc::clone(&told);
    let full = Full(Arc::new(AtomicU64::new(1 << 20)));
    let recorder = Recorder::onto("t".to_owned(), Arc::default(), full, move |error| {
        assert!(error.to_string().contains("cannot write the trace"), "{error}");
        assert!(!tell.swap(true, Ordering::SeqCst));
    });
    let observer = recorder.observer();
    // Far more than the buffer holds: whoever waited for room is let go.
    for n in 0..3 * BUFFERED_MAX as u64 {
        observer.observe(&observed(n, 0));
    }
    let error = recorder.finish().unwrap_err();
    assert!(told.load(Ordering::SeqCst));
    assert!(error.to_string().contains("t: cannot write the trace"), "{error}");
}

/// Takes everything, slowly at first.
struct Slow(Arc<AtomicU64>);

impl Write for Slow {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.fetch_add(bytes.len() as u64, Ordering::SeqCst) == 0 {
            std::thread::sleep(Duration::from_millis(300));
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_slow_disk_makes_requests_wait_and_loses_none() {
    let bytes = Arc::new(AtomicU64::new(0));
    let recorder =
        Recorder::onto("t".to_owned(), Arc::default(), Slow(Arc::clone(&bytes)), |e| panic!("{e}"));
    let observer = recorder.observer();
    let count = 3 * BUFFERED_MAX as u64;
    for n in 0..count {
        observer.observe(&observed(n, 0));
    }
    assert_eq!(recorder.finish().unwrap().records, count);
    assert!(bytes.load(Ordering::SeqCst) > count * 20);
}
