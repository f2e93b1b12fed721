//! A drive that only takes its time, over NBD and as a virtual machine's disk: a small drive, and small clients.

mod common;
#[path = "common/machine.rs"]
#[allow(unreachable_pub, reason = "as the rest of common")]
mod machine;

use std::fs::File;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::nbd::{Client, DISC};
use machine::{FLUSH, GET_ID, IN, Machine, OUT, Status};
use stripewise_engine::units::{Instant, Nanos};
use stripewise_host::{
    DriveCommand, DriveExport, DriveReport, DriveServer, HostError, ListenProblem, TimedDrive,
    VhostDriveServer,
};

const SECTORS: u64 = 1 << 16;
const LATENCY: Nanos = Nanos::from_millis(20);
const EXPORT: DriveExport<'static> = DriveExport {
    name: "twenty-ms",
    description: "20 ms",
    sectors: SECTORS,
    kept_bytes: [1 << 20, 1 << 20],
    volatile_cache: true,
    physical_bytes: 512,
};
/// What a flash drive is that keeps what it was sent.
const SAFE: DriveExport<'static> = DriveExport { volatile_cache: false, physical_bytes: 4096, ..EXPORT };

/// Each command takes the same time, however many there are.
#[derive(Default)]
struct Constant(Vec<(Instant, u32)>);

impl TimedDrive for Constant {
    fn submit(&mut self, now: Instant, command: DriveCommand) {
        self.0.push((Instant(now.0 + LATENCY.0), command.id));
    }

    fn next_time(&self) -> Option<Instant> {
        self.0.first().map(|command| command.0)
    }

    fn advance(&mut self, now: Instant, ended: &mut Vec<u32>) {
        let count = self.0.iter().take_while(|command| command.0 <= now).count();
        ended.extend(self.0.drain(..count).map(|command| command.1));
    }
}

/// Serves a drive while `clients` runs.
fn while_served<S: Send>(
    server: S,
    serve: impl FnOnce(S, &AtomicBool) -> DriveReport + Send,
    clients: impl FnOnce(),
) -> DriveReport {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let serving = scope.spawn(|| serve(server, &stop));
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(clients));
        stop.store(true, Ordering::Relaxed);
        let report = serving.join().unwrap();
        result.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        report
    })
}

fn as_disk(path: &Path, clients: impl FnOnce()) -> DriveReport {
    as_disk_of(&EXPORT, path, clients)
}

fn as_disk_of(export: &DriveExport<'_>, path: &Path, clients: impl FnOnce()) -> DriveReport {
    let serve =
        |server: VhostDriveServer, stop: &AtomicBool| server.serve(export, &mut Constant::default(), stop);
    while_served(VhostDriveServer::bind(path).unwrap(), serve, clients)
}

fn over_nbd(path: &Path, clients: impl FnOnce()) -> DriveReport {
    over_nbd_of(EXPORT, path, clients)
}

fn over_nbd_of(export: DriveExport<'_>, path: &Path, clients: impl FnOnce()) -> DriveReport {
    let serve = |server: DriveServer, stop: &AtomicBool| server.serve(export, &mut Constant::default(), stop);
    while_served(DriveServer::bind(path).unwrap(), serve, clients)
}

/// The latency, and not much more than that on a machine with much else to do; far less than as many one after the other.
fn is_the_latency(elapsed: Duration) -> bool {
    (LATENCY.0..5 * LATENCY.0).contains(&(elapsed.as_nanos() as u64))
}

#[test]
fn a_machines_disk_keeps_its_ends_and_takes_its_time() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    let report = as_disk(&path, || {
        let mut machine = Machine::new(&path);
        assert_eq!(machine.capacity(), SECTORS);
        let ones = vec![1; 8192];
        for sector in [0, SECTORS - 16, 5000] {
            assert_eq!(machine.write(sector, &ones), Status::Done, "{sector}");
        }
        assert_eq!(machine.read(0, 8192), (Status::Done, ones.clone()));
        assert_eq!(machine.read(SECTORS - 16, 8192), (Status::Done, ones));
        assert_eq!(machine.read(5000, 8192), (Status::Done, vec![0; 8192]), "not kept");
        assert!(is_the_latency(machine.elapsed), "{:?}", machine.elapsed);
        assert_eq!(machine.submit(FLUSH, 0, 0), Status::Done);
        assert!(is_the_latency(machine.elapsed), "{:?}", machine.elapsed);
        assert_eq!(machine.submit(GET_ID, 0, 20), Status::Done);
        assert_eq!(&machine.data(20), b"twenty-ms\0\0\0\0\0\0\0\0\0\0\0");
    });
    assert_eq!(report.commands, 7, "all but the name");
    assert!(!path.exists(), "the socket is removed");
}

#[test]
fn clients_that_never_choose_an_export_keep_nobody_out() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("nbd");
    over_nbd(&path, || {
        let mut chosen = Client::new(&path);
        let silent: Vec<_> = (0..40).map(|_| UnixStream::connect(&path).unwrap()).collect();
        assert_eq!(Client::new(&path).read(0, 512), [0; 512]);
        assert_eq!(chosen.read(0, 512), [0; 512], "who has chosen stays");
        drop(silent);
    });
}

#[test]
fn a_machine_is_refused_what_a_disk_cannot_do() {
    const DISCARD: u32 = 11;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    as_disk(&path, || {
        let mut machine = Machine::new(&path);
        for (kind, sector, bytes) in
            [(IN, SECTORS, 512), (OUT, SECTORS - 1, 1024), (IN, u64::MAX, 512), (OUT, 0, 100), (IN, 0, 0)]
        {
            assert_eq!(machine.submit(kind, sector, bytes), Status::Failed, "{kind} {sector} {bytes}");
        }
        assert_eq!(machine.submit(DISCARD, 0, 512), Status::Unsupported);
        assert_eq!(machine.elsewhere(IN), Status::Failed, "data outside of the machine's memory");
        assert_eq!(machine.read(0, 512).0, Status::Done, "it goes on");
    });
}

#[test]
fn requests_wait_side_by_side_and_a_machine_that_leaves_makes_room_for_the_next() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    as_disk(&path, || {
        let mut machine = Machine::new(&path);
        let elapsed = machine.reads_at_once(16);
        assert!(is_the_latency(elapsed), "{elapsed:?}");
        assert_eq!(machine.write(8, &[7; 512]), Status::Done);
        // Goes while the drive still has its requests.
        machine.begin_reads(4);
        drop(machine);
        let mut machine = Machine::new(&path);
        assert_eq!(machine.read(8, 512), (Status::Done, vec![7; 512]));
    });
}

#[test]
fn a_machine_whose_memory_is_not_there_is_let_go() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    as_disk(&path, || {
        let short = tempfile::tempfile().unwrap();
        short.set_len(4096).unwrap();
        assert!(Machine::with_memory(&path, &short).is_err());
        assert_eq!(Machine::new(&path).read(0, 512).0, Status::Done);
    });
}

#[test]
fn a_queue_that_makes_no_sense_stands_still_until_it_is_set_up_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    as_disk(&path, || {
        let mut machine = Machine::new(&path);
        assert_eq!(machine.read(0, 512).0, Status::Done);
        machine.overrun();
        assert_eq!(machine.capacity(), SECTORS, "messages are answered");
        machine.start_again();
        assert_eq!(machine.read(0, 512).0, Status::Done);
        machine.overrun();
        drop(machine);
        assert_eq!(Machine::new(&path).read(0, 512).0, Status::Done);
    });
}

#[test]
fn a_machine_that_never_stops_asking_does_not_keep_the_server_to_itself() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    let report = as_disk(&path, || {
        Machine::new(&path).insist(|machine| {
            (0..5000).for_each(|_| assert_eq!(machine.capacity(), SECTORS));
        });
    });
    assert_eq!(report.commands, 0);
}

/// NBD's error for what lies outside.
const INVALID: u32 = 22;

#[test]
fn an_nbd_client_finds_what_is_kept_and_waits_as_long() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("nbd");
    let report = over_nbd(&path, || {
        let mut client = Client::new(&path);
        client.write(0, 4096, &[5; 8192]);
        client.write(0, 16 << 20, &[5; 512]);
        assert_eq!(client.read(4096, 8192), [5; 8192]);
        let since = std::time::Instant::now();
        assert_eq!(client.read(16 << 20, 512), [0; 512], "not kept");
        assert!(is_the_latency(since.elapsed()), "{:?}", since.elapsed());
        assert_eq!(client.simple(common::nbd::READ, SECTORS * 512, 512), INVALID);
        client.send(DISC, 0, 0, 0, 0);
        assert_eq!(Client::new(&path).read(4096, 512), [5; 512], "another client's");
    });
    assert_eq!(report.commands, 5);
}

#[test]
fn clients_are_told_whether_flushes_matter_and_a_machine_how_large_physical_blocks_are() {
    const SEND_FLUSH: u16 = 1 << 2;
    const SEND_FUA: u16 = 1 << 3;
    let folder = tempfile::tempdir().unwrap();
    for (export, flushes, exponent) in [(EXPORT, true, 0), (SAFE, false, 3)] {
        let path = folder.path().join("disk");
        as_disk_of(&export, &path, || {
            let mut machine = Machine::new(&path);
            assert_eq!(machine.offers_flushes, flushes);
            assert_eq!(
                machine.config(20, 5),
                [0, 2, 0, 0, exponent],
                "blocks, and their number to a physical one"
            );
        });
        let path = folder.path().join("nbd");
        over_nbd_of(export, &path, || {
            let told = Client::new(&path).flags;
            let expected = if flushes { SEND_FLUSH | SEND_FUA } else { 0 };
            assert_eq!(told & (SEND_FLUSH | SEND_FUA), expected, "{told:#x}");
        });
    }
}

#[test]
fn a_socket_that_cannot_be_had_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    File::create(&path).unwrap();
    for error in [
        DriveServer::bind(&path).map(drop).unwrap_err(),
        VhostDriveServer::bind(&path).map(drop).unwrap_err(),
    ] {
        assert!(matches!(error, HostError::Listen { problem: ListenProblem::NotASocket, .. }), "{error}");
    }
}
