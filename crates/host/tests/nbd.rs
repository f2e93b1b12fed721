//! A server and small clients in one process: what needs no foreign program.

mod common;

use std::collections::HashSet;
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use common::nbd::{Client, DISC, FLUSH, FUA, READ, ZEROES};
use common::{files, memory, volume};
use stripewise_engine::io::Op;
use stripewise_engine::level::{Layout, Level};
use stripewise_host::{
    Array, ArrayConfig, HostError, MemberSpec, NbdServer, Observed, Observer, ServeConfig, ServeEvent,
    ServeReport,
};

/// Serves a fresh RAID-5 of three members of 8 MiB while `clients` runs.
fn with_server<T>(shards: u32, clients: impl FnOnce(&Path, &AtomicBool) -> T) -> (T, ServeReport, Array) {
    with_observed_server(shards, 16 << 10, |_| memory(3), None, clients)
}

fn with_observed_server<T>(
    shards: u32,
    sectors: u64,
    members: impl Fn(&Path) -> Vec<MemberSpec>,
    observer: Option<Arc<dyn Observer>>,
    clients: impl FnOnce(&Path, &AtomicBool) -> T,
) -> (T, ServeReport, Array) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("nbd.sock");
    let stop = Arc::new(AtomicBool::new(false));
    let volume = volume(Level::Raid5, Layout::default_of(Level::Raid5), 3, 128, sectors);
    let config = ArrayConfig::new(volume, members(folder.path()));
    let mut array = Array::open(ArrayConfig { shards, ..config }).unwrap();
    let config = ServeConfig {
        socket: Some(path.clone()),
        stop: Arc::clone(&stop),
        observer,
        ..ServeConfig::default()
    };
    let server = NbdServer::bind(config).unwrap();
    let (result, report) = std::thread::scope(|scope| {
        let serving = scope.spawn(|| server.serve(&mut array));
        // The server ends even if the clients' assertions do not hold.
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| clients(&path, &stop)));
        stop.store(true, Ordering::Relaxed);
        (result, serving.join().unwrap().unwrap())
    });
    assert!(!path.exists(), "the socket is removed");
    let result = result.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    (result, report, array)
}

#[test]
fn what_one_client_writes_others_and_the_array_read() {
    for shards in [1, 3] {
        let bytes: Vec<u8> = (0..5 << 20).map(|i: u32| (i / 512 % 251) as u8).collect();
        let ((), report, mut array) = with_server(shards, |path, _| {
            let mut clients: Vec<_> = (0..4).map(|_| Client::new(path)).collect();
            clients[0].write(0, 512, &bytes);
            assert_eq!(clients[1].read(512, 5 << 20), bytes);
            clients[2].write(FUA, 2 << 20, &[7; 4096]);
            assert_eq!(clients[3].read(2 << 20, 4096), [7; 4096]);
            assert_eq!(clients[1].simple(FLUSH, 0, 0), 0);
            assert_eq!(clients[3].simple(ZEROES, 4 << 20, 12 << 20), 0);
            assert_eq!(clients[0].read(4 << 20, 1 << 20), vec![0; 1 << 20]);
        });
        assert_eq!(report.status.connections_total, 4);
        assert_eq!(report.status.connections, 0);
        assert!(report.run.stopped);
        let mut back = vec![0; 1 << 20];
        array.read_at(1, &mut back).unwrap();
        assert_eq!(back, bytes[..1 << 20]);
    }
}

#[test]
fn requests_under_way_are_answered_when_the_server_stops() {
    let (answered, ..) = with_server(2, |path, stop| {
        let mut client = Client::new(path);
        for cookie in 0..100 {
            client.send(READ, 0, cookie, cookie * 65536, 65536);
        }
        assert_eq!(client.reply().0, 0);
        // The replies are more than a socket holds: given time to read the requests, the server has some under way.
        std::thread::sleep(Duration::from_millis(200));
        stop.store(true, Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(300));
        let mut rest = Vec::new();
        client.stream.read_to_end(&mut rest).unwrap();
        rest.len() - 65536
    });
    assert_eq!(answered % (65536 + 16), 0, "replies are whole");
    assert!(answered > 0);
}

/// Holds the server up whenever a request ends.
struct Slow;

impl Observer for Slow {
    fn observe(&self, _: &Observed) {
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A bug of whoever observes.
struct Panicking(AtomicUsize);

impl Observer for Panicking {
    fn observe(&self, _: &Observed) {
        assert_ne!(self.0.fetch_add(1, Ordering::Relaxed), 5, "a bug");
    }
}

#[test]
fn an_array_whose_observer_panicked_touches_the_clients_buffers_no_more() {
    for shards in [1, 3] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("nbd.sock");
        let volume = volume(Level::Raid5, Layout::default_of(Level::Raid5), 3, 128, 16 << 10);
        let config = ArrayConfig::new(volume, files(folder.path(), 3, 16 << 10));
        let mut array = Array::open(ArrayConfig { shards, ..config }).unwrap();
        let observer: Arc<dyn Observer> = Arc::new(Panicking(AtomicUsize::new(0)));
        let config =
            ServeConfig { socket: Some(path.clone()), observer: Some(observer), ..ServeConfig::default() };
        let server = NbdServer::bind(config).unwrap();
        std::thread::scope(|scope| {
            let serving = scope.spawn(|| server.serve(&mut array).map(drop));
            let mut client = Client::new(&path);
            for cookie in 0..32 {
                client.send(READ, 0, cookie, cookie << 18, 1 << 18);
            }
            let ended = client.stream.read_to_end(&mut Vec::new());
            assert!(serving.join().is_err(), "the panic goes on: {ended:?}");
        });
        assert!(matches!(array.write_at(0, &[1; 512]), Err(HostError::Panicked)));
        assert!(matches!(array.close(), Err(HostError::Panicked)));
    }
}

#[test]
fn zeroing_ends_with_the_server() {
    const REQUESTS: u64 = 20;
    const SECTORS: u64 = 32 << 10;
    let on_files = |folder: &Path| files(folder, 3, SECTORS);
    let (errors, ..) = with_observed_server(1, SECTORS, on_files, Some(Arc::new(Slow)), |path, stop| {
        let mut client = Client::new(path);
        for cookie in 0..REQUESTS {
            client.send(ZEROES, 0, cookie, 0, 32 << 20);
        }
        assert_eq!(client.reply().0, 0, "a server that serves does all of it");
        stop.store(true, Ordering::Relaxed);
        (1..REQUESTS).filter(|_| client.reply().0 != 0).count()
    });
    assert!(errors > 0, "what was left to be done was done");
}

#[test]
fn clients_that_never_choose_an_export_keep_nobody_out() {
    with_server(1, |path, _| {
        let mut chosen = Client::new(path);
        let silent: Vec<_> = (0..200).map(|_| UnixStream::connect(path).unwrap()).collect();
        let begun = Instant::now();
        assert_eq!(Client::new(path).read(0, 512), [0; 512]);
        assert!(begun.elapsed() < Duration::from_secs(10));
        assert_eq!(chosen.read(0, 512), [0; 512], "who has chosen stays");
        drop(silent);
    });
}

#[test]
fn clients_that_read_no_replies_hold_no_more_than_there_is_for_all() {
    with_observed_server(
        1,
        32 << 10,
        |_| memory(3),
        None,
        |path, _| {
            // Two requests of 16 MiB each: eight such clients hold all.
            let mut deaf: Vec<_> = (0..10).map(|_| Client::new(path)).collect();
            for client in &mut deaf {
                client.send(READ, 0, 1, 0, 16 << 20);
                client.send(READ, 0, 1, 0, 16 << 20);
            }
            std::thread::sleep(Duration::from_millis(500));
            let mut client = Client::new(path);
            assert_eq!(client.read(0, 512 << 10).len(), 512 << 10, "its share is there for each");
            client.send(READ, 0, 9, 0, 16 << 20);
            client.stream.set_nonblocking(true).unwrap();
            std::thread::sleep(Duration::from_millis(500));
            let early = client.stream.read(&mut [0; 16]).unwrap_err();
            assert_eq!(early.kind(), std::io::ErrorKind::WouldBlock, "there is no room for it");
            client.stream.set_nonblocking(false).unwrap();
            deaf.clear();
            assert_eq!(client.reply(), (0, 9), "there is again");
        },
    );
}

#[test]
fn a_client_that_disconnects_gets_its_answers_first() {
    with_server(1, |path, _| {
        let mut client = Client::new(path);
        client.send(READ, 0, 7, 0, 512);
        client.send(DISC, 0, 0, 0, 0);
        assert_eq!(client.reply(), (0, 7));
        let mut rest = Vec::new();
        client.stream.read_to_end(&mut rest).unwrap();
        assert_eq!(rest.len(), 512);
    });
}

/// So many short requests of which `depth` are under way.
fn hurry(client: &mut Client, requests: u64, depth: u64) {
    let mut under_way = HashSet::new();
    for cookie in 0..requests + depth {
        if cookie < requests {
            under_way.insert(cookie);
            client.send(READ, 0, cookie, cookie % 4096 * 4096 % (8 << 20), 4096);
        }
        if cookie >= depth {
            let (error, answered) = client.reply();
            assert_eq!(error, 0);
            assert!(under_way.remove(&answered), "{answered} is answered once");
            client.stream.read_exact(&mut [0; 4096]).unwrap();
        }
    }
    assert!(under_way.is_empty());
}

#[test]
fn a_client_in_a_hurry_is_served_after_every_rest_and_beside_others() {
    for shards in [1, 2] {
        let ((), report, _) = with_server(shards, |path, _| {
            let mut client = Client::new(path);
            let mut waits = Vec::new();
            for depth in [1, 2, 32, 1] {
                hurry(&mut client, 3000, depth);
                client.write(0, 0, &vec![7; 4 << 20]);
                hurry(&mut client, 1000, depth);
                assert_eq!(client.read(0, 4 << 20), vec![7; 4 << 20]);
                hurry(&mut client, 1000, depth);
                // Long enough for the server to fall asleep.
                std::thread::sleep(Duration::from_millis(30));
                let start = Instant::now();
                client.read(0, 4096);
                waits.push(start.elapsed());
            }
            waits.sort();
            assert!(waits[0] < Duration::from_millis(15), "nothing wakes the server: {waits:?}");
            std::thread::scope(|scope| {
                for _ in 0..6 {
                    scope.spawn(|| hurry(&mut Client::new(path), 3000, 8));
                }
                hurry(&mut client, 3000, 16);
            });
            // One that goes in the middle of it.
            let mut other = Client::new(path);
            hurry(&mut other, 1000, 32);
            drop(other);
            hurry(&mut client, 1000, 4);
        });
        assert_eq!((report.status.connections, report.status.connections_total), (0, 8));
    }
}

#[test]
fn a_failed_array_answers_errors_and_goes_on_serving() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("nbd.sock");
    let volume = volume(Level::Raid0, Layout::default_of(Level::Raid0), 2, 128, 16 << 10);
    let mut array = Array::open(ArrayConfig { shards: 2, ..ArrayConfig::new(volume, memory(2)) }).unwrap();
    array.fail(stripewise_engine::units::Slot(1)).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let config =
        ServeConfig { socket: Some(path.clone()), stop: Arc::clone(&stop), ..ServeConfig::default() };
    let server = NbdServer::bind(config).unwrap();
    std::thread::scope(|scope| {
        let serving = scope.spawn(|| server.serve(&mut array));
        let (mut clients, mut writes) = ([Client::new(&path), Client::new(&path)], Vec::new());
        for client in &mut clients {
            assert_eq!(client.read(0, 4096), [0; 4096], "the first chunk is on the member that works");
            assert_eq!(client.simple(READ, 65536, 512), 5);
            writes.push(client.simple(ZEROES, 0, 4096));
            assert_eq!(client.simple(FLUSH, 0, 0), 5);
        }
        stop.store(true, Ordering::Relaxed);
        let ended = serving.join().unwrap();
        assert!(matches!(ended, Err(HostError::Io(_))), "the last flush fails: {ended:?}");
        assert_eq!(writes, [5, 5], "clients may write: it is an error, and no refusal");
    });
}

#[derive(Default)]
struct Notes(Mutex<Vec<Observed>>);

impl Observer for Notes {
    fn observe(&self, observed: &Observed) {
        self.0.lock().unwrap().push(*observed);
    }
}

#[test]
fn an_observer_is_told_of_every_request_as_the_client_asked_it() {
    for shards in [1, 3] {
        let notes = Arc::new(Notes::default());
        let observer: Arc<dyn Observer> = Arc::<Notes>::clone(&notes);
        with_observed_server(
            shards,
            16 << 10,
            |_| memory(3),
            Some(observer),
            |path, _| {
                let mut first = Client::new(path);
                first.write(FUA, 512, &vec![1; 5 << 20]);
                let mut second = Client::new(path);
                second.read(4096, 8192);
                assert_eq!(second.simple(FLUSH, 0, 0), 0);
                // More than is carried out at once.
                assert_eq!(first.simple(ZEROES, 0, 16 << 20), 0);
                assert_ne!(second.simple(READ, 16 << 20, 512), 0, "beyond the end");
            },
        );
        let notes = notes.0.lock().unwrap();
        let asked: Vec<_> =
            notes.iter().map(|o| (o.op, o.range.start, o.range.count, o.fua, o.stream, o.is_ok)).collect();
        assert_eq!(
            asked,
            [
                (Op::Write, 1, 10_240, true, 0, true),
                (Op::Read, 8, 16, false, 1, true),
                (Op::Flush, 0, 0, false, 1, true),
                (Op::WriteZeroes, 0, 32_768, false, 0, true),
            ]
        );
        for pair in notes.windows(2) {
            assert!(pair[0].arrived + pair[0].latency <= pair[1].arrived, "one was answered before the next");
        }
        assert!(notes[0].latency.0 > 0);
    }
}

/// Serves a RAID-5 of three files, of which the last is cut to nothing and then, of another chunk, the first; answers what is
/// told.
fn told_of_losses(shards: u32) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("nbd.sock");
    let volume = volume(Level::Raid5, Layout::default_of(Level::Raid5), 3, 128, 16 << 10);
    let members = files(folder.path(), 3, 16 << 10);
    let mut array = Array::open(ArrayConfig { shards, ..ArrayConfig::new(volume, members) }).unwrap();
    let (stop, told) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
    let tell = {
        let told = Arc::clone(&told);
        move |event: &ServeEvent| told.lock().unwrap().push(event.to_string())
    };
    let config = ServeConfig {
        socket: Some(path.clone()),
        stop: Arc::clone(&stop),
        tell: Some(Arc::new(tell)),
        ..ServeConfig::default()
    };
    let server = NbdServer::bind(config).unwrap();
    std::thread::scope(|scope| {
        let serving = scope.spawn(|| server.serve(&mut array));
        let mut client = Client::new(&path);
        client.write(0, 0, &vec![1; 12 << 20]);
        for member in ["member2", "member0"] {
            std::fs::File::options()
                .write(true)
                .open(folder.path().join(member))
                .unwrap()
                .set_len(0)
                .unwrap();
            // Whatever becomes of it, it is of every member.
            client.send(ZEROES, 0, 1, 0, 12 << 20);
            client.reply();
        }
        std::thread::sleep(Duration::from_millis(300));
        stop.store(true, Ordering::Relaxed);
        serving.join().unwrap().unwrap_err();
    });
    let folder = format!("{}/", folder.path().display());
    let told = told.lock().unwrap();
    told.iter().map(|line| line.replace(&folder, "")).collect()
}

/// The line without what was asked for and where, which depends on who comes first.
fn without_place(line: &str) -> String {
    let Some((before, after)) = line.split_once(" at sector ") else { return line.to_owned() };
    let before = before.trim_end_matches("read").trim_end_matches("write");
    format!("{before}I/O{}", after.trim_start_matches(|c: char| c.is_ascii_digit()))
}

#[test]
fn the_loss_of_a_member_and_of_the_array_is_told_once() {
    const WHY: &str = "(I/O: it does not answer, or was cut short)";
    for shards in [1, 3] {
        let mut told: Vec<String> = told_of_losses(shards).iter().map(|line| without_place(line)).collect();
        assert_eq!(
            told.remove(0),
            format!("member2 failed and is out of use {WHY}: the array is degraded (2 of 3 members)"),
            "{shards} shards"
        );
        told.sort();
        assert_eq!(
            told,
            [
                &format!("member0 failed and is out of use {WHY}: the array has failed (1 of 3 members)"),
                "more members are lost than the array survives: writes are refused from now on",
            ],
            "{shards} shards"
        );
    }
}

#[test]
fn members_that_fail_at_once_are_told_of_with_one_count() {
    // In memory, I/O is carried out at once: both fail before anything is told.
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = folder.path().join("nbd.sock");
    let volume = volume(Level::Raid5, Layout::default_of(Level::Raid5), 4, 128, 16 << 10);
    let mut array = Array::open(ArrayConfig::new(volume, files(folder.path(), 4, 16 << 10))).unwrap();
    let (server, stop, told) = common::nbd::server(&path);
    std::thread::scope(|scope| {
        let serving = scope.spawn(|| server.serve(&mut array));
        let mut client = Client::new(&path);
        // The block written, and its parity.
        for member in ["member0", "member3"] {
            let file = std::fs::File::options().write(true).open(folder.path().join(member)).unwrap();
            file.set_len(0).unwrap();
        }
        let answer = client.simple(ZEROES, 0, 4096);
        stop.store(true, Ordering::Relaxed);
        serving.join().unwrap().unwrap_err();
        assert_eq!(answer, 5);
    });
    let told = told.lock().unwrap();
    let failed: Vec<&String> = told.iter().filter(|line| line.contains("out of use")).collect();
    assert_eq!(failed.len(), 2, "{told:?}");
    assert!(failed.iter().all(|line| line.ends_with(": the array has failed (2 of 4 members)")), "{told:?}");
}

#[test]
fn what_happened_is_kept_for_the_report_only_where_nobody_was_told() {
    for is_told in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("nbd.sock");
        let volume = volume(Level::Raid5, Layout::default_of(Level::Raid5), 3, 128, 16 << 10);
        let mut array = Array::open(ArrayConfig::new(volume, files(folder.path(), 3, 16 << 10))).unwrap();
        let (stop, told) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(0)));
        let count = Arc::clone(&told);
        let config = ServeConfig {
            socket: Some(path.clone()),
            stop: Arc::clone(&stop),
            tell: is_told.then(|| Arc::new(move |_: &ServeEvent| *count.lock().unwrap() += 1) as _),
            ..ServeConfig::default()
        };
        let server = NbdServer::bind(config).unwrap();
        let report = std::thread::scope(|scope| {
            let serving = scope.spawn(|| server.serve(&mut array));
            let mut client = Client::new(&path);
            std::fs::File::options()
                .write(true)
                .open(folder.path().join("member2"))
                .unwrap()
                .set_len(0)
                .unwrap();
            client.write(0, 0, &vec![1; 12 << 20]);
            stop.store(true, Ordering::Relaxed);
            serving.join().unwrap().unwrap()
        });
        let expected = if is_told { (1, 0) } else { (0, 1) };
        assert_eq!((*told.lock().unwrap(), report.run.events.len()), expected, "told: {is_told}");
    }
}
