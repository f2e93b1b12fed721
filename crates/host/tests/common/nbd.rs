//! A small NBD client.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use stripewise_host::{NbdServer, ServeConfig, ServeEvent};

pub const READ: u16 = 0;
pub const WRITE: u16 = 1;
pub const DISC: u16 = 2;
pub const FLUSH: u16 = 3;
pub const ZEROES: u16 = 6;
pub const FUA: u16 = 1;

/// A server at a socket, the flag that stops it, and what it says.
pub fn server(path: &Path) -> (NbdServer, Arc<AtomicBool>, Arc<Mutex<Vec<String>>>) {
    let (stop, told) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
    let lines = Arc::clone(&told);
    let config = ServeConfig {
        socket: Some(path.to_owned()),
        stop: Arc::clone(&stop),
        tell: Some(Arc::new(move |event: &ServeEvent| lines.lock().unwrap().push(event.to_string()))),
        ..ServeConfig::default()
    };
    (NbdServer::bind(config).unwrap(), stop, told)
}

/// A client that does one thing after the other, with simple replies.
pub struct Client {
    pub stream: UnixStream,
    /// The transmission flags that the server told.
    pub flags: u16,
}

impl Client {
    /// Connects and chooses the export, with simple replies.
    pub fn new(path: &Path) -> Self {
        let mut stream = UnixStream::connect(path).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut greeting = [0; 18];
        stream.read_exact(&mut greeting).unwrap();
        stream.write_all(b"\0\0\0\x03IHAVEOPT\0\0\0\x01\0\0\0\0").unwrap();
        let mut export = [0; 10];
        stream.read_exact(&mut export).unwrap();
        Self { stream, flags: u16::from_be_bytes([export[8], export[9]]) }
    }

    pub fn send(&mut self, command: u16, flags: u16, cookie: u64, offset: u64, length: u32) {
        let mut request = vec![0x25, 0x60, 0x95, 0x13];
        request.extend(flags.to_be_bytes());
        request.extend(command.to_be_bytes());
        request.extend(cookie.to_be_bytes());
        request.extend(offset.to_be_bytes());
        request.extend(length.to_be_bytes());
        self.stream.write_all(&request).unwrap();
    }

    /// The error and the cookie of the next reply.
    pub fn reply(&mut self) -> (u32, u64) {
        let mut reply = [0; 16];
        self.stream.read_exact(&mut reply).unwrap();
        assert_eq!(reply[..4], [0x67, 0x44, 0x66, 0x98]);
        let error = u32::from_be_bytes(reply[4..8].try_into().unwrap());
        (error, u64::from_be_bytes(reply[8..].try_into().unwrap()))
    }

    pub fn write(&mut self, flags: u16, offset: u64, bytes: &[u8]) {
        self.send(WRITE, flags, 1, offset, bytes.len() as u32);
        self.stream.write_all(bytes).unwrap();
        assert_eq!(self.reply(), (0, 1));
    }

    pub fn read(&mut self, offset: u64, length: u32) -> Vec<u8> {
        self.send(READ, 0, 2, offset, length);
        assert_eq!(self.reply(), (0, 2));
        let mut bytes = vec![0; length as usize];
        self.stream.read_exact(&mut bytes).unwrap();
        bytes
    }

    pub fn simple(&mut self, command: u16, offset: u64, length: u32) -> u32 {
        self.send(command, 0, 3, offset, length);
        self.reply().0
    }
}
