//! Clients that write and know what they wrote, and the control socket of their server.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use stripewise_host::{Array, NbdServer, ServeConfig, ServeStatus};

use super::nbd::Client;

const BLOCK: usize = 4096;

/// A client that writes its own part of the array and knows what is there.
pub struct Load {
    pub first: u64,
    pub versions: Vec<u32>,
}

impl Load {
    /// Three of an array of zeroes.
    pub fn of_each_third(array: &Array) -> Vec<Self> {
        let part = array.geometry().array_sectors() / 8 / 3;
        (0..3).map(|third| Self { first: third * part, versions: vec![0; part as usize] }).collect()
    }

    fn block(&self, index: usize) -> Vec<u8> {
        let version = self.versions[index];
        let seed = (self.first + index as u64) << 32 | u64::from(version);
        let word = if version == 0 { 0 } else { seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1 };
        word.to_le_bytes().repeat(BLOCK / 8)
    }

    fn at(&self, index: usize) -> u64 {
        (self.first + index as u64) * BLOCK as u64
    }

    /// Writes and reads until told to stop.
    pub fn run(&mut self, socket: &Path, stop: &AtomicBool) {
        let mut client = Client::new(socket);
        let mut state = self.first + 1;
        while !stop.load(Ordering::Relaxed) {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let index = (state >> 33) as usize % self.versions.len();
            if (state >> 20).is_multiple_of(4) {
                let bytes = client.read(self.at(index), BLOCK as u32);
                assert!(bytes == self.block(index), "block {} is another", self.first + index as u64);
            } else {
                self.versions[index] += 1;
                client.write((state >> 22).is_multiple_of(8).into(), self.at(index), &self.block(index));
            }
        }
    }

    /// Everything is there.
    pub fn verify(&self, array: &mut Array) {
        let mut bytes = vec![0; BLOCK];
        for index in 0..self.versions.len() {
            array.read_at(self.at(index) / 512, &mut bytes).unwrap();
            assert!(bytes == self.block(index), "block {} is another", self.first + index as u64);
        }
    }
}

/// Has an array served by `serve` under load while `manage` runs; answers what the clients know.
pub fn serve_under_load(
    mut loads: Vec<Load>,
    folder: &Path,
    serve: impl FnOnce(NbdServer) + Send,
    manage: impl FnOnce(&mut Control),
) -> Vec<Load> {
    let stop = Arc::new(AtomicBool::new(false));
    let (socket, control) = (folder.join("nbd.sock"), folder.join("control.sock"));
    let detail = |status: &ServeStatus| {
        let sync = status.array.sync.as_ref().map(|sync| format!("{:?}", sync.action));
        let failed: Vec<u16> = status.failed.iter().map(|slot| slot.0).collect();
        serde_json::json!({ "failed": failed, "sync": sync }).to_string()
    };
    let server = NbdServer::bind(ServeConfig {
        socket: Some(socket.clone()),
        control: Some(control.clone()),
        stop: Arc::clone(&stop),
        detail: Some(Arc::new(detail)),
        ..ServeConfig::default()
    });
    let server = server.unwrap();
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let serving = scope.spawn(|| serve(server));
        let clients: Vec<_> =
            loads.iter_mut().map(|load| scope.spawn(|| load.run(&socket, &ended))).collect();
        let managed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let stream = UnixStream::connect(&control).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
            manage(&mut Control(BufReader::new(stream)));
        }));
        ended.store(true, Ordering::Relaxed);
        let clients: Vec<_> = clients.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        stop.store(true, Ordering::Relaxed);
        serving.join().unwrap();
        if let Some(panic) = clients.into_iter().chain([managed]).find_map(Result::err) {
            std::panic::resume_unwind(panic);
        }
    });
    loads
}

/// The control socket of a server.
pub struct Control(pub BufReader<UnixStream>);

impl Control {
    pub fn ask(&mut self, line: &str) -> serde_json::Value {
        self.0.get_mut().write_all(format!("{line}\n").as_bytes()).unwrap();
        let mut answer = String::new();
        self.0.read_line(&mut answer).unwrap();
        serde_json::from_str(&answer).unwrap()
    }

    pub fn member(&mut self, command: &str, path: &Path) -> serde_json::Value {
        self.ask(&serde_json::json!({ "command": command, "member": path }).to_string())
    }

    pub fn done(&mut self, command: &str, path: &Path) {
        let answer = self.member(command, path);
        assert!(answer["done"].is_string(), "{command} {}: {answer}", path.display());
    }

    /// Waits until nothing is failed and nothing works.
    pub fn whole(&mut self) {
        let until = Instant::now() + Duration::from_secs(60);
        loop {
            let detail = self.ask(r#"{"command":"detail"}"#)["detail"].take();
            if detail["failed"] == serde_json::json!([]) && detail["sync"] == "Idle" {
                return;
            }
            assert!(Instant::now() < until, "it does not end: {detail}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
