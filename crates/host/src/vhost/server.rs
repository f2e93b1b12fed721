//! The loop: messages, requests, and the drive's ends on one thread.

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use super::device::{Device, QUEUE_SIZE_MAX, Taken};
use super::message::Link;
use super::protocol::Answer;
use crate::clock::Clock;
use crate::drive::{DriveExport, DriveReport, Pace, TimedDrive};
use crate::error::HostError;
use crate::nbd::Listener;

/// A drive's vhost-user server that listens.
#[derive(Debug)]
pub struct VhostDriveServer {
    door: Listener,
}

impl VhostDriveServer {
    /// Listens at a unix socket. The socket of a server that is gone is replaced.
    ///
    /// # Errors
    /// The socket cannot be had; the message says what would be right.
    pub fn bind(socket: &Path) -> Result<Self, HostError> {
        Ok(Self { door: Listener::unix(socket)? })
    }

    /// Serves a drive until the flag is set.
    pub fn serve(
        self,
        export: &DriveExport<'_>,
        drive: &mut dyn TimedDrive,
        stop: &AtomicBool,
    ) -> DriveReport {
        let mut service = Service {
            door: self.door,
            client: None,
            device: Device::new(export),
            ended: Vec::new(),
            report: DriveReport::default(),
            pace: Pace::of_this_thread(),
        };
        let clock = Clock::start();
        while !stop.load(Ordering::Relaxed) {
            service.round(clock, drive);
        }
        service.report
    }
}

struct Service {
    door: Listener,
    client: Option<Link>,
    device: Device,
    ended: Vec<u32>,
    report: DriveReport,
    pace: Pace,
}

impl Service {
    fn round(&mut self, clock: Clock, drive: &mut dyn TimedDrive) {
        self.report.advance(clock, drive, &mut self.ended);
        for id in self.ended.drain(..) {
            self.device.ended(id);
        }
        let more = self.take(clock, drive);
        self.device.tell();
        let kick = self.device.kick_fd();
        let (door, client) = match &self.client {
            Some(client) => (-1, client.fd()),
            None => (self.door.fd(), -1),
        };
        let until = if more { Some(clock.now()) } else { drive.next_time() };
        let [someone, message, is_kicked] = self.pace.wait(clock, until, &[door, client, kick]);
        if is_kicked {
            self.device.kicked();
        }
        if message {
            self.message();
        }
        if someone {
            self.welcome();
        }
    }

    /// Takes requests, a queue full of them at most: a machine that always has another one does not keep the loop to itself.
    /// True if there may be more.
    fn take(&mut self, clock: Clock, drive: &mut dyn TimedDrive) -> bool {
        for _ in 0..QUEUE_SIZE_MAX {
            match self.device.next() {
                Some(Taken::ForDrive(command)) => {
                    self.report.commands += 1;
                    drive.submit(clock.now(), command);
                }
                Some(Taken::Answered) => {}
                None if self.device.listen() => {}
                None => return false,
            }
        }
        true
    }

    /// Lets a client in; without a descriptor for it, it is asked again in the next round.
    fn welcome(&mut self) {
        if let Ok(Some(socket)) = self.door.accept() {
            self.client = Link::new(UnixStream::from(socket)).ok();
        }
    }

    /// Does what a message says. A client that is gone is let go, and one whose message makes no sense.
    fn message(&mut self) {
        if self.obey().is_none() {
            self.client = None;
            self.device.release();
        }
    }

    fn obey(&mut self) -> Option<()> {
        let client = self.client.as_mut()?;
        let message = client.receive().ok()?;
        let (request, wants_reply) = (message.request, message.wants_reply);
        let answer = self.device.obey(message);
        match answer {
            Some(Answer::Bytes(bytes)) => client.reply(request, &bytes).ok(),
            Some(Answer::Done) if wants_reply && self.device.acknowledges => {
                client.reply(request, &0_u64.to_ne_bytes()).ok()
            }
            Some(Answer::Done) => Some(()),
            None if wants_reply && self.device.acknowledges => {
                client.reply(request, &1_u64.to_ne_bytes()).ok()
            }
            None => None,
        }
    }
}
