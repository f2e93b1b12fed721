//! The control socket: one JSON object a line in, one out.
//!
//! | line | what it asks |
//! |---|---|
//! | `{"command":"detail"}` | what the server's owner has to say of the array, or the server's own figures |
//! | `{"command":"stop","force":BOOL}` | the server drains and returns; unforced, unless its mounted file is open |
//! | `{"command":"fail","member":PATH}`, `"remove"` | see [`Manage`] |
//! | `{"command":"add","member":PATH,"force":BOOL,"destroy":BOOL,"write_mostly":BOOL,"failfast":BOOL}`, `"re-add"`, `"add-spare"` | the same; flags may be left out |
//! | `{"command":"replace","member":PATH,"with":PATH}` | the same; `with` may be left out |
//! | `{"command":"state","member":PATH,"write_mostly":BOOL,"failfast":BOOL}` | the same; flags may be left out |
//! | `{"command":"check"}`, `"repair"` with `"locate":BOOL`, `"idle"`, `"frozen"` | the same |
//! | `{"command":"speed","min_kib":N,"max_kib":N}` | the same; one may be left out |
//! | `{"command":"grow",…}` | a [`Change`] of the array while requests wait, one of: `"bitmap":"none"`; `"bitmap":"internal"` with `"bitmap_chunk_bytes":N`; `"size_bytes":N` or `"max"`, with `"assume_clean":BOOL`; `"raid_devices":N` with `"force":BOOL`; `"consistency_policy":"resync"` or `"ppl"` |
//!
//! Answers are `{"detail":…}`, `{"stopping":true}`, `{"done":"…"}`, and `{"error":"…"}` where nothing was done. Paths
//! are the server's: absolute ones are safe.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::PathBuf;

use serde_json::Value;
use stripewise_engine::io::SyncAction;
use stripewise_engine::units::{PAGE_BYTES, Slot};
use stripewise_format::device_flags::FlagsChange;

use super::change;
use super::poller::News;
use super::socket::{self, Moved};
use crate::manage::{AddHow, ArrayStatus, Manage};
use crate::md::grow::Change;

/// Longest line; a client that sends a longer one is let go.
const LINE_BYTES_MAX: usize = 16 << 10;

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
    /// The array it serves; [`Self::to_json`] leaves it out.
    pub array: ArrayStatus,
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

    /// The page cache's figures as a JSON value; null without one.
    pub fn cache_json(&self) -> Value {
        let Some(cache) = &self.array.cache else { return Value::Null };
        let pages = |count: u64| count.saturating_mul(PAGE_BYTES);
        serde_json::json!({
            "bytes_max": cache.bytes_max,
            "bytes": cache.bytes,
            "dirty_bytes": cache.dirty_bytes,
            "hits": cache.stats.hits,
            "misses": cache.stats.misses,
            "read_bytes": pages(cache.stats.pages_read),
            "written_bytes": pages(cache.stats.pages_written),
            "throttled": cache.stats.throttled,
        })
    }
}

/// What a line asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    Detail,
    /// Even while the mounted file is open, if forced.
    Stop {
        force: bool,
    },
    Manage(Manage),
    Grow(Change),
}

/// Reads a line.
///
/// # Errors
/// What is wrong with a line that asks for nothing known.
pub(crate) fn parse(line: &[u8]) -> Result<Command, String> {
    let Ok(value) = serde_json::from_slice::<Value>(line) else {
        return Err(r#"the line is not JSON; send {"command":"detail"}, for one"#.to_owned());
    };
    let command = value.get("command").and_then(Value::as_str).unwrap_or_default();
    let member = || path(&value, "member");
    let add = |how| {
        let (force, destroy) = (flag(&value, "force")?, flag(&value, "destroy")?);
        let flags = flags(&value)?;
        Ok::<_, String>(Manage::Add { member: member()?, how, force, destroy, flags })
    };
    Ok(Command::Manage(match command {
        "detail" => return Ok(Command::Detail),
        "stop" => return Ok(Command::Stop { force: flag(&value, "force")? }),
        "grow" => return change::parse(&value).map(Command::Grow),
        "fail" => Manage::Fail(member()?),
        "remove" => Manage::Remove(member()?),
        "add" => add(AddHow::Any)?,
        "re-add" => add(AddHow::ReAdd)?,
        "add-spare" => add(AddHow::Spare)?,
        "replace" => {
            let with = value.get("with").filter(|with| !with.is_null()).map(|_| path(&value, "with"));
            Manage::Replace { member: member()?, with: with.transpose()? }
        }
        "state" => Manage::SetFlags { member: member()?, change: flags(&value)? },
        "check" => Manage::Sync(SyncAction::Check),
        "repair" if flag(&value, "locate")? => Manage::Sync(SyncAction::RepairLocated),
        "repair" => Manage::Sync(SyncAction::Repair),
        "idle" => Manage::Sync(SyncAction::Idle),
        "frozen" => Manage::Sync(SyncAction::Frozen),
        "speed" => {
            Manage::SetSpeed { min_kib: speed(&value, "min_kib")?, max_kib: speed(&value, "max_kib")? }
        }
        _ => {
            return Err(
                "the command is not known; there are detail, stop, fail, remove, add, re-add, add-spare, \
                        replace, state, check, repair, idle, frozen, speed and grow"
                    .to_owned(),
            );
        }
    }))
}

fn path(value: &Value, name: &str) -> Result<PathBuf, String> {
    let path = value.get(name).and_then(Value::as_str).filter(|path| !path.is_empty());
    path.map(PathBuf::from).ok_or_else(|| format!("\"{name}\" is missing; it is the path of a member"))
}

pub(super) fn flag(value: &Value, name: &str) -> Result<bool, String> {
    Ok(asked(value, name)?.unwrap_or(false))
}

fn asked(value: &Value, name: &str) -> Result<Option<bool>, String> {
    let flag =
        value.get(name).map(|flag| flag.as_bool().ok_or_else(|| format!("\"{name}\" is true or false")));
    flag.transpose()
}

fn flags(value: &Value) -> Result<FlagsChange, String> {
    Ok(FlagsChange { write_mostly: asked(value, "write_mostly")?, failfast: asked(value, "failfast")? })
}

fn speed(value: &Value, name: &str) -> Result<Option<u32>, String> {
    let Some(speed) = value.get(name).filter(|speed| !speed.is_null()) else { return Ok(None) };
    let speed = speed.as_u64().and_then(|speed| u32::try_from(speed).ok());
    speed.map(Some).ok_or_else(|| format!("\"{name}\" is a number of KiB/s below 2^32"))
}

/// A client of the control socket.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "facts that are independent of each other")]
pub(crate) struct ControlConnection {
    socket: OwnedFd,
    /// When it was last heard of, in the order of all.
    pub(crate) heard: u64,
    input: Vec<u8>,
    out: Vec<u8>,
    readable: bool,
    writable: bool,
    /// It sends nothing more.
    has_ended: bool,
    is_over: bool,
    /// Its last line will be answered by [`Self::answer`].
    is_waiting: bool,
}

impl ControlConnection {
    pub(crate) fn new(socket: OwnedFd, heard: u64) -> Self {
        Self {
            socket,
            heard,
            input: Vec::new(),
            out: Vec::new(),
            readable: true,
            writable: true,
            has_ended: false,
            is_over: false,
            is_waiting: false,
        }
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

    /// Whether its last line is not answered yet.
    pub(crate) fn is_waiting(&self) -> bool {
        self.is_waiting
    }

    /// Answers the line that had no answer yet.
    pub(crate) fn answer(&mut self, answer: &str) {
        self.is_waiting = false;
        self.out = format!("{answer}\n").into_bytes();
        self.send();
    }

    /// Answers a line that has come, by `answer`; answers whether there was one. After it there may be more, but for a line that is
    /// answered later.
    pub(crate) fn serve(&mut self, mut answer: impl FnMut(&[u8]) -> Option<String>) -> bool {
        self.send();
        // One answer at a time: a client that takes none is sent no more.
        while self.out.is_empty() && !self.is_over && !self.is_waiting {
            if let Some(end) = self.input.iter().position(|b| *b == b'\n') {
                let line: Vec<u8> = self.input.drain(..=end).collect();
                self.is_waiting = true;
                if let Some(answer) = answer(&line) {
                    self.answer(&answer);
                }
                return true;
            }
            if self.input.len() > LINE_BYTES_MAX || self.has_ended {
                self.is_over = true;
            } else if !self.receive() {
                return false;
            }
        }
        false
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
            Moved::Ended => {
                self.has_ended = true;
                // A last line needs no end of its own.
                if !self.input.is_empty() {
                    self.input.push(b'\n');
                }
            }
        }
        self.readable
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
    use std::io::{Read, Write};
    use std::net::Shutdown;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_last_line_without_an_end_is_answered() {
        let (server, mut client) = UnixStream::pair().unwrap();
        server.set_nonblocking(true).unwrap();
        let mut connection = ControlConnection::new(server.into(), 0);
        client.write_all(b"one\ntwo").unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        let mut lines = Vec::new();
        while !connection.is_over() {
            connection.tell(News { token: 0, readable: true, writable: true, ended: true, gone: false });
            connection.serve(|line| {
                lines.push(String::from_utf8(line.to_vec()).unwrap());
                Some(format!("answer {}", lines.len()))
            });
        }
        assert_eq!(lines, ["one\n", "two\n"]);
        drop(connection);
        let mut answers = String::new();
        client.read_to_string(&mut answers).unwrap();
        assert_eq!(answers, "answer 1\nanswer 2\n");
    }

    #[test]
    fn commands_are_known_and_anything_else_is_explained() {
        assert_eq!(parse(br#"{"command":"detail"}"#), Ok(Command::Detail));
        assert_eq!(parse(br#" {"command" : "stop", "id": 7} "#), Ok(Command::Stop { force: false }));
        assert_eq!(parse(br#"{"command":"stop","force":true}"#), Ok(Command::Stop { force: true }));
        for line in [
            &b"{}"[..],
            b"",
            b"\xff\xfe",
            b"[1]",
            br#"{"command":7}"#,
            br#"{"command":"format"}"#,
            br#"{"command":"fail"}"#,
            br#"{"command":"fail","member":7}"#,
            br#"{"command":"add","member":"a","force":1}"#,
            br#"{"command":"replace","member":"a","with":""}"#,
            br#"{"command":"speed","min_kib":-1}"#,
            br#"{"command":"speed","max_kib":4294967296}"#,
        ] {
            assert!(parse(line).is_err_and(|why| !why.is_empty()), "{}", String::from_utf8_lossy(line));
        }
    }

    #[test]
    fn members_and_options_are_read() {
        let manage = |line: &str| match parse(line.as_bytes()) {
            Ok(Command::Manage(manage)) => manage,
            other => panic!("{line}: {other:?}"),
        };
        assert_eq!(manage(r#"{"command":"fail","member":"/a"}"#), Manage::Fail("/a".into()));
        assert_eq!(
            manage(r#"{"command":"add-spare","member":"/a","force":true}"#),
            Manage::Add {
                member: "/a".into(),
                how: AddHow::Spare,
                force: true,
                destroy: false,
                flags: FlagsChange::default()
            }
        );
        let flags = FlagsChange { write_mostly: Some(false), failfast: Some(true) };
        assert_eq!(
            manage(r#"{"command":"re-add","member":"/a","write_mostly":false,"failfast":true}"#),
            Manage::Add { member: "/a".into(), how: AddHow::ReAdd, force: false, destroy: false, flags }
        );
        assert_eq!(
            manage(r#"{"command":"state","member":"/a","write_mostly":true}"#),
            Manage::SetFlags {
                member: "/a".into(),
                change: FlagsChange { write_mostly: Some(true), failfast: None }
            }
        );
        assert_eq!(
            manage(r#"{"command":"replace","member":"/a","with":"/b"}"#),
            Manage::Replace { member: "/a".into(), with: Some("/b".into()) }
        );
        assert_eq!(manage(r#"{"command":"repair","locate":true}"#), Manage::Sync(SyncAction::RepairLocated));
        assert_eq!(
            manage(r#"{"command":"speed","max_kib":5000}"#),
            Manage::SetSpeed { min_kib: None, max_kib: Some(5000) }
        );
    }

    #[test]
    fn the_figures_are_json() {
        let status = ServeStatus { requests: 7, failed: vec![Slot(1), Slot(3)], ..ServeStatus::default() };
        let value: serde_json::Value = serde_json::from_str(&status.to_json()).unwrap();
        assert_eq!(value["requests"], 7);
        assert_eq!(value["failed"], serde_json::json!([1, 3]));
    }
}
