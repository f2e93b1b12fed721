//! Writes under way on an array whose power is about to be cut: what is asked of the members is answered in any order.

use std::collections::{BTreeMap, BTreeSet};

use stripewise_engine::io::{
    Action, ActionQueue, Area, ArrayEvent, Compute, Flags, Input, IoError, MemberIo, Op, Request, RequestId,
};
use stripewise_engine::units::{Instant, MemberIndex, SectorRange};
use stripewise_engine::volume::Volume;
use stripewise_sim::Data;
use stripewise_sim::bytes::BytesStore;
use stripewise_sim::random::Random;

/// What the loop was asked for.
pub(crate) enum Pending {
    Io(MemberIo, ActionQueue),
    Compute(Compute, ActionQueue),
}

/// A volume and what is under way on it.
pub(crate) struct Load {
    pub(crate) volume: Volume,
    pub(crate) bytes: BytesStore,
    pub(crate) pending: Vec<Pending>,
    pub(crate) in_flight: BTreeMap<u32, SectorRange>,
    /// What was acknowledged last, by sector: the write's number.
    pub(crate) acknowledged: Vec<u32>,
    pub(crate) random: Random,
    pub(crate) now: Instant,
    /// A member that refuses all that it is asked from now on, for which writes may end as refused.
    pub(crate) broken: Option<MemberIndex>,
    /// Sectors of members' data that take no writes.
    pub(crate) worn: BTreeSet<(MemberIndex, u64)>,
    /// Members with data written that no flush has made durable, and at which step the last of it was.
    pub(crate) unflushed: BTreeMap<MemberIndex, u64>,
    /// At which step flushes were asked for.
    flushes: BTreeMap<u64, u64>,
    /// What the volume told.
    pub(crate) events: Vec<ArrayEvent>,
    steps: u64,
    ids: u32,
}

/// The content of a sector: of the write that wrote it.
pub(crate) fn content(sector: u64, write: u32) -> [u8; 512] {
    let mut random = Random::new(sector << 32 | u64::from(write));
    std::array::from_fn(|i| if write == 0 { 0 } else { (random.next_u64() >> (i % 7)) as u8 })
}

pub(crate) fn put(bytes: &mut BytesStore, member: MemberIndex, sector: u64, content: &[u8]) {
    let start = (sector * 512) as usize;
    bytes.member(member)[start..start + content.len()].copy_from_slice(content);
}

impl Load {
    pub(crate) fn new(volume: Volume, bytes: BytesStore, random: Random) -> Self {
        let acknowledged = vec![0; volume.geometry().array_sectors() as usize];
        Self {
            volume,
            bytes,
            pending: Vec::new(),
            in_flight: BTreeMap::new(),
            acknowledged,
            random,
            now: Instant::ZERO,
            broken: None,
            worn: BTreeSet::new(),
            unflushed: BTreeMap::new(),
            flushes: BTreeMap::new(),
            events: Vec::new(),
            steps: 0,
            ids: 0,
        }
    }

    pub(crate) fn input(&mut self, input: Input) {
        let mut out = ActionQueue::default();
        self.volume.handle(self.now, input, &mut out);
        self.volume.check_invariants();
        for action in &out.actions {
            match *action {
                Action::Io(io) => {
                    if io.op == Op::Flush {
                        self.flushes.insert(io.tag.0, self.steps);
                    }
                    self.pending.push(Pending::Io(io, out.clone()));
                }
                Action::Compute(compute) => self.pending.push(Pending::Compute(compute, out.clone())),
                // It may be there in part.
                Action::Complete { result: Err(_), .. } if self.broken.is_some() => {}
                Action::Complete { id, result } => {
                    assert_eq!(result, Ok(()));
                    let range = self.in_flight.remove(&id.0).unwrap();
                    for sector in range.start..range.end() {
                        self.acknowledged[sector as usize] = id.0;
                    }
                }
                Action::Event(event) => self.events.push(event),
                Action::Replied { .. } => {}
            }
        }
    }

    pub(crate) fn write(&mut self) {
        self.ids += 1;
        let sectors = self.volume.geometry().array_sectors();
        let count = [1, 4, 8, 16, 32, 64, 96, 120][self.random.below(8) as usize];
        let start = self.random.below(sectors - count);
        let range = SectorRange::new(start, count);
        // Overlaps would leave the order of two contents open; the checker of the swarm has them.
        if self.in_flight.values().any(|other| other.overlaps(range)) {
            return;
        }
        let id = RequestId(self.ids);
        *self.bytes.request(id) = (start..range.end()).flat_map(|s| content(s, id.0)).collect();
        self.in_flight.insert(id.0, range);
        let flags =
            Flags { sync: self.random.below(2) == 0, more: self.random.below(2) == 0, ..Flags::default() };
        self.input(Input::Request(Request { id, op: Op::Write, range, flags }));
    }

    /// Whether it is a write that is not taken.
    pub(crate) fn is_worn(&self, io: &MemberIo) -> bool {
        let is_of_data = io.op != Op::Read && io.area == Area::Data;
        is_of_data
            && self.worn.range((io.member, io.range.start)..(io.member, io.range.end())).next().is_some()
    }

    /// Takes note of what a member that answered has in its cache.
    fn note_cached(&mut self, io: &MemberIo) {
        match (io.op, io.area) {
            (Op::Write, Area::Data) => {
                self.unflushed.insert(io.member, self.steps);
            }
            (Op::Flush, _) => {
                let asked = self.flushes.remove(&io.tag.0);
                self.unflushed.retain(|member, written| *member != io.member || Some(*written) > asked);
            }
            _ => {}
        }
    }

    pub(crate) fn answer(&mut self) {
        self.steps += 1;
        if self.pending.is_empty() {
            if let Some(deadline) = self.volume.next_deadline() {
                self.now = self.now.max(deadline);
                self.input(Input::Timer);
            }
            return;
        }
        let index = self.random.below(self.pending.len() as u64) as usize;
        match self.pending.swap_remove(index) {
            Pending::Io(io, out) => {
                let is_refused = self.broken == Some(io.member) || self.is_worn(&io);
                if !is_refused {
                    self.bytes.io(&io, &out);
                    self.note_cached(&io);
                }
                let result = if is_refused { Err(IoError::Media) } else { Ok(()) };
                self.input(Input::IoDone { tag: io.tag, result });
            }
            Pending::Compute(compute, out) => {
                let verdict = self.bytes.compute(&compute, &out);
                self.input(Input::Computed { tag: compute.tag, verdict });
            }
        }
    }
}
