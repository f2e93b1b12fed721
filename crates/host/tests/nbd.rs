//! A server and small clients in one process: what needs no foreign program.

mod common;

use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::nbd::{Client, DISC, FLUSH, FUA, READ, ZEROES};
use common::{memory, volume};
use stripewise_engine::level::{Layout, Level};
use stripewise_host::{Array, ArrayConfig, HostError, NbdServer, ServeConfig, ServeReport};

/// Serves a fresh RAID-5 of three members of 8 MiB while `clients` runs.
fn with_server<T>(shards: u32, clients: impl FnOnce(&Path, &AtomicBool) -> T) -> (T, ServeReport, Array) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("nbd.sock");
    let stop = Arc::new(AtomicBool::new(false));
    let volume = volume(Level::Raid5, Layout::default_of(Level::Raid5), 3, 128, 16 << 10);
    let mut array = Array::open(ArrayConfig { shards, ..ArrayConfig::new(volume, memory(3)) }).unwrap();
    let config =
        ServeConfig { socket: Some(path.clone()), stop: Arc::clone(&stop), ..ServeConfig::default() };
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
        client.0.read_to_end(&mut rest).unwrap();
        rest.len() - 65536
    });
    assert_eq!(answered % (65536 + 16), 0, "replies are whole");
    assert!(answered > 0);
}

#[test]
fn a_client_that_disconnects_gets_its_answers_first() {
    with_server(1, |path, _| {
        let mut client = Client::new(path);
        client.send(READ, 0, 7, 0, 512);
        client.send(DISC, 0, 0, 0, 0);
        assert_eq!(client.reply(), (0, 7));
        let mut rest = Vec::new();
        client.0.read_to_end(&mut rest).unwrap();
        assert_eq!(rest.len(), 512);
    });
}

#[test]
fn a_failed_array_answers_errors_and_goes_on_serving() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("nbd.sock");
    let volume = volume(Level::Raid0, Layout::default_of(Level::Raid0), 2, 128, 16 << 10);
    let mut array = Array::open(ArrayConfig { shards: 2, ..ArrayConfig::new(volume, memory(2)) }).unwrap();
    array.fail(stripewise_engine::units::Slot(1));
    let stop = Arc::new(AtomicBool::new(false));
    let config =
        ServeConfig { socket: Some(path.clone()), stop: Arc::clone(&stop), ..ServeConfig::default() };
    let server = NbdServer::bind(config).unwrap();
    std::thread::scope(|scope| {
        let serving = scope.spawn(|| server.serve(&mut array));
        let mut clients = [Client::new(&path), Client::new(&path)];
        for client in &mut clients {
            assert_eq!(client.read(0, 4096), [0; 4096], "the first chunk is on the member that works");
            assert_eq!(client.simple(READ, 65536, 512), 5);
            assert_eq!(client.simple(FLUSH, 0, 0), 5);
        }
        stop.store(true, Ordering::Relaxed);
        let ended = serving.join().unwrap();
        assert!(matches!(ended, Err(HostError::Io(_))), "the last flush fails: {ended:?}");
    });
}
