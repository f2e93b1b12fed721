//! Members that have no room for what is written, in an array that cannot do without them.

mod common;

use std::io::{Read, Write};
use std::sync::atomic::Ordering;

use common::nbd::{Client, READ, WRITE};
use common::{files, volume};
use stripewise_engine::level::{Layout, Level};
use stripewise_host::{Array, ArrayConfig, take_size_limit_as_error};

const SECTORS: u64 = 16 << 10;

/// Files of this process get no longer than this, as on a file system that is full.
fn limit(bytes: u64) {
    take_size_limit_as_error();
    let limit = libc::rlimit { rlim_cur: bytes, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: the call takes a pointer to a local.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) }, 0);
}

#[test]
fn the_first_error_of_a_member_that_stays_in_use_is_told_once() {
    for shards in [1, 3] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("nbd.sock");
        let volume = volume(Level::Raid0, Layout::default_of(Level::Raid0), 2, 128, SECTORS);
        let config = ArrayConfig::new(volume, files(folder.path(), 2, SECTORS));
        let mut array = Array::open(ArrayConfig { shards, ..config }).unwrap();
        limit(SECTORS * 512 / 2);
        let (server, stop, told) = common::nbd::server(&path);
        std::thread::scope(|scope| {
            let serving = scope.spawn(|| server.serve(&mut array));
            let mut answers = Vec::new();
            let mut clients = [Client::new(&path), Client::new(&path), Client::new(&path)];
            for client in &mut clients {
                for chunk in (128..256).step_by(3) {
                    client.send(WRITE, 0, chunk, chunk << 16, 4096);
                    client.stream.write_all(&[7; 4096]).unwrap();
                    answers.push(client.reply().0);
                }
                answers.push(client.simple(READ, 0, 512));
                client.stream.read_exact(&mut [0; 512]).unwrap();
            }
            stop.store(true, Ordering::Relaxed);
            serving.join().unwrap().unwrap();
            assert_eq!(answers, [vec![28; 43], vec![0]].concat().repeat(3), "it is served on");
        });
        // The next array's files are to be made.
        limit(libc::RLIM_INFINITY);
        let mut told = told.lock().unwrap().clone();
        told.sort();
        assert_eq!(told.len(), 2, "{shards} shards: {told:?}");
        for (member, line) in told.iter().enumerate() {
            let why = "no space left on the member's storage";
            assert!(
                line.contains(&format!("member{member} had an error and stays in use (write at sector ")),
                "{line}"
            );
            assert!(line.contains(why), "{line}");
        }
    }
}
