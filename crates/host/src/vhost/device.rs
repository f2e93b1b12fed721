//! The disk: its queue in the machine's memory, and what is under way.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsRawFd, RawFd};

use stripewise_engine::io::Op;
use stripewise_engine::units::{SECTOR_BYTES, SectorRange};
use virtio_queue::{Queue, QueueT};
use vm_memory::GuestMemoryMmap;

use super::protocol::{Region, offered};
use super::request::{Asked, BlockRequest};
use crate::drive::{DriveCommand, DriveExport, Kept};

/// Requests the queue holds at most.
pub(super) const QUEUE_SIZE_MAX: u16 = 256;

/// A request by its handle in the drive.
#[derive(Debug)]
enum Place {
    Free,
    InDrive(BlockRequest),
    /// Of a machine that is gone, or answered already; the drive has yet to end it.
    Forgotten,
}

/// A request that was taken.
#[derive(Debug)]
pub(super) enum Taken {
    ForDrive(DriveCommand),
    /// The drive is not asked, and the machine has its answer.
    Answered,
}

/// Whether the queue makes sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sense {
    /// As far as it was looked at.
    Sound,
    /// It told of a request when it stood there, which has not been taken yet.
    Told { at: u16 },
    /// It does not: nothing is taken until it is set up anew.
    Broken,
}

/// A disk that one machine at a time uses.
#[derive(Debug)]
pub(super) struct Device {
    pub(super) sectors: u64,
    /// The features that the machine may choose of.
    pub(super) offered: u64,
    pub(super) physical_bytes: u64,
    name: Vec<u8>,
    kept: Kept,
    /// Whether the client may ask to be told that a message was obeyed.
    pub(super) acknowledges: bool,
    /// The machine's memory, by its own addresses, and where it has them in its process.
    pub(super) memory: Option<GuestMemoryMmap>,
    pub(super) regions: Vec<Region>,
    pub(super) queue: Queue,
    /// Whether requests may be taken.
    pub(super) is_enabled: bool,
    /// Tells of new requests,
    pub(super) kick: Option<File>,
    /// and tells the machine of answers.
    pub(super) call: Option<File>,
    /// The machine's end of a socket for requests to it; none are made.
    pub(super) requests: Option<File>,
    /// Where the machine is told that its queue makes no sense.
    pub(super) error: Option<File>,
    sense: Sense,
    places: Vec<Place>,
    has_answers: bool,
}

impl Device {
    pub(super) fn new(export: &DriveExport<'_>) -> Self {
        let [head, tail] = export.kept_bytes;
        Self {
            sectors: export.sectors,
            offered: offered(export.volatile_cache),
            physical_bytes: export.physical_bytes,
            name: export.name.as_bytes().to_vec(),
            kept: Kept::new(export.sectors * SECTOR_BYTES, head, tail),
            acknowledges: false,
            memory: None,
            regions: Vec::new(),
            queue: Queue::new(QUEUE_SIZE_MAX).expect("a power of two"),
            is_enabled: false,
            kick: None,
            call: None,
            requests: None,
            error: None,
            sense: Sense::Sound,
            places: Vec::new(),
            has_answers: false,
        }
    }

    /// Lets the machine go: its memory is not touched any more.
    pub(super) fn release(&mut self) {
        self.places.iter_mut().filter(|p| matches!(p, Place::InDrive(_))).for_each(|p| *p = Place::Forgotten);
        self.acknowledges = false;
        self.memory = None;
        self.regions.clear();
        self.queue.reset();
        self.is_enabled = false;
        (self.kick, self.call, self.requests, self.error) = (None, None, None, None);
        self.set_up();
        self.has_answers = false;
    }

    /// The queue is set up anew, and taken to make sense.
    pub(super) fn set_up(&mut self) {
        self.sense = Sense::Sound;
    }

    /// Where new requests are told of; negative if nowhere.
    pub(super) fn kick_fd(&self) -> RawFd {
        self.kick.as_ref().map_or(-1, AsRawFd::as_raw_fd)
    }

    /// Takes note that new requests were told of.
    pub(super) fn kicked(&mut self) {
        if let Some(kick) = &mut self.kick
            && kick.read(&mut [0; 8]).is_err_and(|error| error.kind() != ErrorKind::WouldBlock)
        {
            self.kick = None;
        }
    }

    /// Takes the machine's next request, if it has one.
    pub(super) fn next(&mut self) -> Option<Taken> {
        if !self.is_enabled || self.sense == Sense::Broken {
            return None;
        }
        let memory = self.memory.as_ref()?;
        let request = BlockRequest::new(&self.queue.pop_descriptor_chain(memory)?, self.sectors);
        self.sense = Sense::Sound;
        let (op, range): (Op, SectorRange) = match request.asked {
            Ok(Asked::Drive { op, range }) => (op, range),
            Ok(Asked::Name) | Err(_) => {
                self.answer(&request);
                return Some(Taken::Answered);
            }
        };
        let id = self.places.iter().position(|p| matches!(p, Place::Free)).unwrap_or_else(|| {
            self.places.push(Place::Free);
            self.places.len() - 1
        });
        self.places[id] = Place::InDrive(request);
        Some(Taken::ForDrive(DriveCommand { id: id as u32, op, range, fua: false }))
    }

    /// Asks to be told of the next request. True if one has come meanwhile.
    pub(super) fn listen(&mut self) -> bool {
        let Some(memory) = &self.memory else { return false };
        if !self.is_enabled || self.sense == Sense::Broken || !self.queue.ready() {
            return false;
        }
        if !self.queue.enable_notification(memory).unwrap_or(false) {
            self.sense = Sense::Sound;
            return false;
        }
        let told = Sense::Told { at: self.queue.next_avail() };
        // A queue that tells of a request twice and has none to take holds more than there is room for, or lies where there
        // is no memory.
        if self.sense != told {
            self.sense = told;
            return true;
        }
        self.sense = Sense::Broken;
        if let Some(error) = &mut self.error {
            // Who does not listen any more is noticed at the socket.
            let _told = error.write(&1_u64.to_ne_bytes());
        }
        false
    }

    /// A command has ended in the drive.
    pub(super) fn ended(&mut self, id: u32) {
        if let Place::InDrive(request) = std::mem::replace(&mut self.places[id as usize], Place::Free) {
            self.answer(&request);
        }
    }

    /// Answers what is under way without waiting for the drive: the machine takes its queue back.
    pub(super) fn end_all(&mut self) {
        for place in 0..self.places.len() {
            if let Place::InDrive(_) = self.places[place]
                && let Place::InDrive(request) = std::mem::replace(&mut self.places[place], Place::Forgotten)
            {
                self.answer(&request);
            }
        }
        self.tell();
    }

    fn answer(&mut self, request: &BlockRequest) {
        let Some(memory) = &self.memory else { return };
        let status = request.carry_out(memory, &mut self.kept, &self.name);
        let written = request.end(memory, status);
        // A queue that lies outside the memory is the machine's own loss.
        self.has_answers |= self.queue.add_used(memory, request.head, written).is_ok();
    }

    /// Tells the machine of the answers, if it wants to be.
    pub(super) fn tell(&mut self) {
        if !std::mem::take(&mut self.has_answers) {
            return;
        }
        let (Some(memory), Some(call)) = (&self.memory, &mut self.call) else { return };
        if self.queue.needs_notification(memory).unwrap_or(true) {
            // Who does not listen any more is noticed at the socket.
            let _told = call.write(&1_u64.to_ne_bytes());
        }
    }
}
