//! The control socket: one JSON object a line in, one out.
//!
//! | line | answer |
//! |---|---|
//! | `{"command":"detail"}` | `{"detail":…}`, what the server's owner has to say, or its own figures |
//! | `{"command":"stop"}` | `{"stopping":true}`; the server drains and returns |
//! | anything else | `{"error":"…"}` |

use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use stripewise_engine::units::Slot;

use super::poller::News;
use super::socket::{self, Moved};

/// Longest line; a client that sends a longer one is let go.
const LINE_BYTES_MAX: usize = 4096;

/// Figures of a server at work.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServeStatus {
    /// Clients connected.
    pub connections: u64,
    /// Clients that have come so far.
    pub connections_total: u64,
    /// Requests that have come so far.
    pub requests: u64,
    /// Bytes read by clients.
    pub read_bytes: u64,
    /// Bytes written by clients.
    pub write_bytes: u64,
    /// Members out of use.
    pub failed: Vec<Slot>,
}

impl ServeStatus {
    /// The figures as a JSON object.
    pub fn to_json(&self) -> String {
        let failed: Vec<String> = self.failed.iter().map(ToString::to_string).collect();
        format!(
            r#"{{"connections":{},"connections_total":{},"requests":{},"read_bytes":{},"write_bytes":{},"failed":[{}]}}"#,
            self.connections,
            self.connections_total,
            self.requests,
            self.read_bytes,
            self.write_bytes,
            failed.join(",")
        )
    }
}

/// What a line asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    Detail,
    Stop,
}

/// Reads a line.
///
/// # Errors
/// The answer to a line that asks for nothing known.
pub(crate) fn parse(line: &[u8]) -> Result<Command, &'static str> {
    let Ok(value) = serde_json::from_slice::<serde_json::Value>(line) else {
        return Err(
            r#"{"error":"the line is not JSON; send {\"command\":\"detail\"} or {\"command\":\"stop\"}"}"#,
        );
    };
    match value.get("command").and_then(|c| c.as_str()) {
        Some("detail") => Ok(Command::Detail),
        Some("stop") => Ok(Command::Stop),
        _ => Err(r#"{"error":"the command is not known; there are detail and stop"}"#),
    }
}

/// A client of the control socket.
#[derive(Debug)]
pub(crate) struct ControlConnection {
    socket: OwnedFd,
    input: Vec<u8>,
    out: Vec<u8>,
    readable: bool,
    writable: bool,
    is_over: bool,
}

impl ControlConnection {
    pub(crate) fn new(socket: OwnedFd) -> Self {
        Self { socket, input: Vec::new(), out: Vec::new(), readable: true, writable: true, is_over: false }
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    pub(crate) fn tell(&mut self, news: News) {
        self.readable |= news.readable;
        self.writable |= news.writable;
    }

    pub(crate) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Answers what has come; `answer` makes an answer of a line.
    pub(crate) fn serve(&mut self, mut answer: impl FnMut(&[u8]) -> String) {
        self.send();
        // One answer at a time: a client that takes none is sent no more.
        while self.out.is_empty() && !self.is_over {
            if let Some(end) = self.input.iter().position(|b| *b == b'\n') {
                let line: Vec<u8> = self.input.drain(..=end).collect();
                self.out = answer(&line).into_bytes();
                self.out.push(b'\n');
                self.send();
            } else if self.input.len() > LINE_BYTES_MAX {
                self.is_over = true;
            } else if !self.receive() {
                return;
            }
        }
    }

    fn receive(&mut self) -> bool {
        let mut bytes = [0; LINE_BYTES_MAX];
        if !self.readable {
            return false;
        }
        // SAFETY: a local of that length.
        match unsafe { socket::receive(self.fd(), bytes.as_mut_ptr(), bytes.len()) } {
            Moved::Bytes(count) => self.input.extend(&bytes[..count]),
            Moved::Later => self.readable = false,
            Moved::Ended => self.is_over = true,
        }
        self.readable && !self.is_over
    }

    fn send(&mut self) {
        while self.writable && !self.out.is_empty() {
            let mut runs = [libc::iovec { iov_base: self.out.as_mut_ptr().cast(), iov_len: self.out.len() }];
            // SAFETY: the run is the output.
            match unsafe { socket::send(self.fd(), &mut runs) } {
                Moved::Bytes(count) => drop(self.out.drain(..count)),
                Moved::Later => self.writable = false,
                Moved::Ended => {
                    self.is_over = true;
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_known_and_anything_else_is_answered_in_json() {
        assert_eq!(parse(br#"{"command":"detail"}"#), Ok(Command::Detail));
        assert_eq!(parse(br#" {"command" : "stop", "id": 7} "#), Ok(Command::Stop));
        for line in [&b"{}"[..], b"", b"\xff\xfe", b"[1]", br#"{"command":7}"#, br#"{"command":"format"}"#] {
            let answer = parse(line).unwrap_err();
            let value: serde_json::Value = serde_json::from_str(answer).unwrap();
            assert!(value["error"].is_string());
        }
    }

    #[test]
    fn the_figures_are_json() {
        let status = ServeStatus { requests: 7, failed: vec![Slot(1), Slot(3)], ..ServeStatus::default() };
        let value: serde_json::Value = serde_json::from_str(&status.to_json()).unwrap();
        assert_eq!(value["requests"], 7);
        assert_eq!(value["failed"], serde_json::json!([1, 3]));
    }
}
