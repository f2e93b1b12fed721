//! Messages on the socket: 12 bytes of header, a payload, descriptors beside it (QEMU's vhost-user specification, front-end
//! and back-end messages).
//!
//! The crate `vhost` reads them too, but refuses user-mode-linux: its table of memory regions always has room for two.

use std::fs::File;
use std::io::{self, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

/// How long a client may take for the rest of a message.
const MESSAGE_WITHIN: Duration = Duration::from_secs(1);
const HEADER_BYTES: usize = 12;
/// The longest payload: a configuration space with its header.
const PAYLOAD_BYTES_MAX: u32 = 4096;
/// Descriptors of one message: of a table of memory regions.
const FILES_MAX: usize = 8;

/// What headers say: the version,
const VERSION: u32 = 1;
/// that it is an answer,
const IS_REPLY: u32 = 1 << 2;
/// that one is wanted.
const WANTS_REPLY: u32 = 1 << 3;

/// A message that has arrived.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) request: u32,
    pub(super) payload: Vec<u8>,
    pub(super) files: Vec<File>,
    pub(super) wants_reply: bool,
}

impl Message {
    /// The payload's number of so many bytes at a place; a message that is too short is refused.
    pub(super) fn u32_at(&self, at: usize) -> Option<u32> {
        Some(u32::from_ne_bytes(self.payload.get(at..at + 4)?.try_into().ok()?))
    }

    pub(super) fn u64_at(&self, at: usize) -> Option<u64> {
        Some(u64::from_ne_bytes(self.payload.get(at..at + 8)?.try_into().ok()?))
    }
}

/// A client's socket.
#[derive(Debug)]
pub(super) struct Link(UnixStream);

impl Link {
    pub(super) fn new(socket: UnixStream) -> io::Result<Self> {
        socket.set_nonblocking(false)?;
        socket.set_read_timeout(Some(MESSAGE_WITHIN))?;
        socket.set_write_timeout(Some(MESSAGE_WITHIN))?;
        Ok(Self(socket))
    }

    pub(super) fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Takes a message, whose first byte has arrived.
    ///
    /// # Errors
    /// The client is gone, stops within a message, or sends what is none.
    pub(super) fn receive(&mut self) -> io::Result<Message> {
        let mut header = [0; HEADER_BYTES];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_MAX))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut part = [IoSliceMut::new(&mut header)];
        let count = recvmsg(&self.0, &mut part, &mut ancillary, RecvFlags::CMSG_CLOEXEC)?.bytes;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut files = Vec::new();
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                files.extend(rights.map(File::from));
            }
        }
        let until = Instant::now() + MESSAGE_WITHIN;
        self.read_until(&mut header[count..], until)?;
        let [request, flags, bytes] =
            [0, 4, 8].map(|at| u32::from_ne_bytes(header[at..at + 4].try_into().expect("four bytes")));
        if flags & 3 != VERSION || flags & IS_REPLY != 0 || bytes > PAYLOAD_BYTES_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut payload = vec![0; bytes as usize];
        self.read_until(&mut payload, until)?;
        Ok(Message { request, payload, files, wants_reply: flags & WANTS_REPLY != 0 })
    }

    /// Fills a buffer, however its bytes drip in, by that time.
    fn read_until(&mut self, mut rest: &mut [u8], until: Instant) -> io::Result<()> {
        while !rest.is_empty() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.0.set_read_timeout(Some(left))?;
            match self.0.read(rest) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => rest = &mut rest[count..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Answers a message.
    ///
    /// # Errors
    /// The client is gone, or does not read.
    pub(super) fn reply(&mut self, request: u32, payload: &[u8]) -> io::Result<()> {
        let header = [request, VERSION | IS_REPLY, payload.len() as u32].map(u32::to_ne_bytes);
        self.0.write_all(&[header.as_flattened(), payload].concat())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_that_drips_is_not_waited_for_longer_than_a_message_may_take() {
        let (mut client, server) = UnixStream::pair().unwrap();
        let mut link = Link::new(server).unwrap();
        client.write_all([1, VERSION, 1000].map(u32::to_ne_bytes).as_flattened()).unwrap();
        let begun = Instant::now();
        let dripping = std::thread::spawn(move || {
            while client.write_all(&[0]).is_ok() {
                std::thread::sleep(Duration::from_millis(100));
            }
        });
        assert!(link.receive().is_err());
        assert!(begun.elapsed() < 3 * MESSAGE_WITHIN);
        drop(link);
        dripping.join().unwrap();
    }
}
