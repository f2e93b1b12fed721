//! An array with bytes under random requests and failures, its answers in random order, and a plain array as judge.

use std::collections::BTreeSet;

use stripewise_engine::array::slots::SlotSet;
use stripewise_engine::array::survives;
use stripewise_engine::geometry::{Geometry, Holds, Place, Shape};
use stripewise_engine::io::{
    Action, ActionQueue, AdminCommand, AdminReply, ArrayEvent, Compute, Flags, Input, IoError, IoResult,
    MemberIo, Op, Request, RequestId, Role, SyncAction,
};
use stripewise_engine::units::{Instant, MemberIndex, SectorRange, Slot};
use stripewise_engine::volume::{Volume, VolumeConfig};
use stripewise_parity::Kernels;
use stripewise_sim::Data;
use stripewise_sim::bytes::BytesStore;
use stripewise_sim::random::Random;

/// Members in the table beside those of the slots.
pub(crate) const SPARES_MAX: usize = 3;

enum Pending {
    Io(MemberIo, ActionQueue),
    Compute(Compute, ActionQueue),
}

/// An array under test and the plain copy of what it should hold.
pub(crate) struct Bench {
    pub(crate) volume: Volume,
    pub(crate) bytes: BytesStore,
    pub(crate) model: Vec<u8>,
    pending: Vec<Pending>,
    in_flight: Vec<Option<Request>>,
    pub(crate) random: Random,
    /// Members that answer most I/Os with an error, if any.
    gone: BTreeSet<u16>,
    discard: bool,
    /// Sectors of members that cannot be read until they are written.
    pub(crate) latent: BTreeSet<(u16, u64)>,
    /// The member that gets them.
    pub(crate) flaky: Option<u16>,
    pub(crate) completed: u64,
    pub(crate) events: Vec<ArrayEvent>,
    reply: Option<AdminReply>,
    /// Requests are expected to fail.
    pub(crate) may_fail: bool,
    /// So many requests are of one page: written alone it goes a way of its own.
    pub(crate) page_percent: u64,
    now: Instant,
}

impl Bench {
    pub(crate) fn new(config: &VolumeConfig, seed: u64) -> Self {
        let volume = Volume::new(config).unwrap();
        let slots = config.geometry.member_sectors.len();
        let mut sectors = config.geometry.member_sectors.clone();
        // Spares, and members that may come later.
        sectors.extend(std::iter::repeat_n(sectors[0], SPARES_MAX));
        let mut bytes = BytesStore::new(&sectors, volume.stripe_cache_entries());
        for member in slots..slots + SPARES_MAX {
            bytes.member(MemberIndex(member as u16)).fill(0xDD);
        }
        let model = vec![0; (volume.geometry().array_sectors() * 512) as usize];
        Self {
            volume,
            bytes,
            model,
            pending: Vec::new(),
            in_flight: vec![None; 12],
            random: Random::new(seed),
            gone: config.failed.iter().map(|s| s.0).collect(),
            discard: config.discard,
            latent: BTreeSet::new(),
            flaky: None,
            completed: 0,
            events: Vec::new(),
            reply: None,
            may_fail: false,
            page_percent: 10,
            now: Instant::ZERO,
        }
    }

    pub(crate) fn input(&mut self, input: Input) {
        self.input_at(self.now, input);
    }

    fn input_at(&mut self, now: Instant, input: Input) {
        self.now = self.now.max(now);
        let mut out = ActionQueue::default();
        self.volume.handle(now, input, &mut out);
        self.volume.check_invariants();
        for action in out.actions.clone() {
            match action {
                Action::Io(io) => self.pending.push(Pending::Io(io, out.clone())),
                Action::Compute(compute) => self.pending.push(Pending::Compute(compute, out.clone())),
                Action::Complete { id, result } => self.complete(id, result),
                Action::Replied { reply, .. } => self.reply = Some(reply),
                Action::Event(event) => self.events.push(event),
            }
        }
    }

    fn complete(&mut self, id: RequestId, result: IoResult) {
        let request = self.in_flight[id.0 as usize].take().expect("a request ends once");
        self.completed += 1;
        if self.may_fail && result.is_err() {
            return;
        }
        assert_eq!(result, Ok(()), "{request:?}");
        if request.op == Op::Read {
            let expected = &self.model[bytes(request.range)];
            let got = self.bytes.request(id);
            let differs = expected.iter().zip(got.iter()).position(|(a, b)| a != b);
            assert_eq!(differs, None, "{request:?} read something else from this byte on");
        }
    }

    pub(crate) fn pending_count(&self) -> usize {
        self.pending.len()
    }

    pub(crate) fn has_requests(&self) -> bool {
        self.in_flight.iter().any(Option::is_some)
    }

    /// Answers one action that is pending, any of them.
    fn answer_one(&mut self) {
        let index = self.random.below(self.pending.len() as u64) as usize;
        match self.pending.swap_remove(index) {
            Pending::Io(io, out) => {
                let result = self.answer(&io, &out);
                self.input(Input::IoDone { tag: io.tag, result });
            }
            Pending::Compute(compute, out) => {
                let verdict = self.bytes.compute(&compute, &out);
                self.input(Input::Computed { tag: compute.tag, verdict });
            }
        }
    }

    /// A member's answer.
    fn answer(&mut self, io: &MemberIo, out: &ActionQueue) -> IoResult {
        let member = io.member.0;
        if self.gone.contains(&member) && self.random.chance(70) {
            return Err(IoError::Gone);
        }
        let within = (member, io.range.start)..(member, io.range.end());
        let bad: Vec<_> = self.latent.range(within).copied().collect();
        match io.op {
            Op::Read if !bad.is_empty() => return Err(IoError::Media),
            Op::Read | Op::Flush => {}
            _ => bad.iter().for_each(|sector| assert!(self.latent.remove(sector))),
        }
        self.bytes.io(io, out);
        Ok(())
    }

    /// An administrator's command.
    pub(crate) fn admin(&mut self, command: AdminCommand) -> AdminReply {
        self.input(Input::Admin { id: 0, command });
        self.reply.take().expect("a command is answered at once")
    }

    /// Slots that lack some of their content.
    pub(crate) fn incomplete(&self) -> SlotSet {
        let slots = (0..self.volume.geometry().raid_disks()).map(Slot);
        slots
            .filter(|s| self.volume.member_of(*s).is_none() || self.volume.recovered_sectors(*s).is_some())
            .collect()
    }

    /// The slot whose member has unreadable sectors.
    fn flaky_slot(&self) -> Option<Slot> {
        let mut slots = (0..self.volume.geometry().raid_disks()).map(Slot);
        let flaky = self.flaky?;
        slots.rfind(|s| self.volume.member_of(*s) == Some(MemberIndex(flaky)))
    }

    /// Whether the array does without a slot, and without the one with unreadable sectors.
    fn spares_one(&self, slot: Slot) -> bool {
        let mut lost = self.incomplete();
        lost.insert(slot);
        self.flaky_slot().into_iter().for_each(|s| lost.insert(s));
        survives(self.volume.geometry(), lost)
    }

    /// A sector of the flaky member cannot be read from now on.
    pub(crate) fn spoil(&mut self) {
        if let Some(slot) = self.flaky_slot().filter(|s| self.spares_one(*s)) {
            let member = self.volume.member_of(slot).expect("it was found by its member");
            let sectors = self.volume.geometry().used_sectors(slot);
            self.latent.insert((member.0, self.random.below(sectors)));
        }
    }

    /// Fails a member, if the array survives it.
    pub(crate) fn fail_one(&mut self) {
        let slot = Slot(self.random.below(u64::from(self.volume.geometry().raid_disks())) as u16);
        if let Some(member) = self.volume.member_of(slot).filter(|_| self.spares_one(slot)) {
            self.gone.insert(member.0);
            let spared = self.admin(AdminCommand::Fail(slot));
            assert_eq!(spared, AdminReply::Done);
        }
    }

    /// What an administrator may do at any time.
    pub(crate) fn meddle(&mut self) {
        let members = u64::from(self.volume.geometry().raid_disks()) + SPARES_MAX as u64;
        let member = MemberIndex(self.random.below(members) as u16);
        let slot = Slot(self.random.below(u64::from(self.volume.geometry().raid_disks())) as u16);
        let action = self.random.below(12);
        match action {
            0..3 => {
                if self.admin(AdminCommand::AddSpare(member)) == AdminReply::Done {
                    self.gone.remove(&member.0);
                    self.latent = self.latent.iter().copied().filter(|(m, _)| *m != member.0).collect();
                }
            }
            3 => drop(self.admin(AdminCommand::Remove(member))),
            4..6 => drop(self.admin(AdminCommand::Replace { slot, with: None })),
            6..8 => drop(self.admin(AdminCommand::Sync(SyncAction::Check))),
            8 => drop(self.admin(AdminCommand::Sync(SyncAction::Repair))),
            9 => drop(self.admin(AdminCommand::Sync(SyncAction::Frozen))),
            _ => drop(self.admin(AdminCommand::Sync(SyncAction::Idle))),
        }
        if let Some(status) = self.volume.sync_status() {
            assert_eq!(status.mismatches, [], "nothing disagrees");
        }
    }

    fn random_range(&mut self, aligned: bool) -> SectorRange {
        let sectors = self.volume.geometry().array_sectors();
        if self.random.chance(self.page_percent) {
            return SectorRange::new(self.random.below(sectors / 8) * 8, 8);
        }
        let unit = if aligned { 8 } else { 1 };
        let limit = if self.random.chance(20) { sectors } else { 64.min(sectors) };
        let start = self.random.below(sectors / unit) * unit;
        let count = ((1 + self.random.below(limit)).next_multiple_of(unit)).min(sectors - start);
        SectorRange::new(start, count)
    }

    pub(crate) fn issue(&mut self, aligned: bool) {
        let Some(index) = self.in_flight.iter().position(Option::is_none) else { return };
        let op = match self.random.below(20) {
            0..8 => Op::Read,
            8..17 => Op::Write,
            17 => Op::WriteZeroes,
            18 => Op::Discard,
            _ => Op::Flush,
        };
        let range = self.random_range(aligned);
        // What a read returns while an overlapping write is under way is not defined, nor is discarded data.
        let overlaps =
            |r: &Request| r.op != Op::Flush && r.range.overlaps(range) && (r.op != op || op == Op::Discard);
        if self.in_flight.iter().flatten().any(overlaps) {
            return;
        }
        let flags = Flags {
            fua: self.random.chance(10),
            more: self.random.chance(40),
            sync: self.random.chance(50),
            ..Flags::default()
        };
        let request = Request { id: RequestId(index as u32), op, range, flags };
        self.start(request);
    }

    pub(crate) fn start(&mut self, request: Request) {
        let Request { id, op, range, .. } = request;
        let buffer = self.bytes.request(id);
        buffer.clear();
        buffer.resize((range.count * 512) as usize, 0xEE);
        match op {
            Op::Write => {
                let mut random = Random::new(self.random.next_u64());
                for word in buffer.chunks_mut(8) {
                    word.copy_from_slice(&random.next_u64().to_le_bytes());
                }
                self.model[bytes(range)].copy_from_slice(buffer);
            }
            // On these members a discard reads as zeroes, where it is taken at all.
            Op::WriteZeroes => self.model[bytes(range)].fill(0),
            Op::Discard if self.discard => {
                let whole = match self.volume.geometry().shape() {
                    Shape::Parity(shape) => shape.stripe_sectors(),
                    _ => 1,
                };
                let (start, end) = (range.start.next_multiple_of(whole), range.end() / whole * whole);
                self.model[bytes(SectorRange::new(start, end.saturating_sub(start)))].fill(0);
            }
            Op::Discard | Op::Read | Op::Flush => {}
        }
        self.in_flight[id.0 as usize] = Some(request);
        self.input(Input::Request(request));
    }

    /// Answers an action, or lets time pass if there is none.
    pub(crate) fn step(&mut self) {
        if self.pending.is_empty() {
            let deadline = self
                .volume
                .next_deadline()
                .unwrap_or_else(|| panic!("nothing is awaited: {:#?}", self.volume));
            self.input_at(deadline, Input::Timer);
        } else {
            self.answer_one();
        }
    }

    /// Lets requests end.
    pub(crate) fn drain(&mut self) {
        while self.in_flight.iter().any(Option::is_some) {
            self.step();
        }
    }

    /// Lets everything end, the array's own work too.
    pub(crate) fn rest(&mut self) {
        self.drain();
        for step in 0.. {
            assert!(step < 1_000_000, "it never rests: {:#?}", self.volume);
            if self.pending.is_empty() && self.volume.next_deadline().is_none() {
                break;
            }
            self.step();
        }
        assert!(self.volume.is_idle(), "nothing is left over: {:#?}", self.volume);
        self.volume.check_invariants();
    }

    /// What the slot's member holds up to here is the slot's content.
    fn holds(&self, slot: Slot, end: u64) -> Option<MemberIndex> {
        let is_there = self.volume.recovered_sectors(slot).is_none_or(|recovered| end <= recovered);
        self.volume.member_of(slot).filter(|_| is_there)
    }

    /// Every working member holds what the geometry says, parity included.
    pub(crate) fn check_members(&mut self) {
        let geometry = self.volume.geometry().clone();
        for sector in 0..geometry.array_sectors() {
            for copy in 0..geometry.copies() {
                let place = geometry.place(sector, copy);
                if let Some(member) = self.holds(place.slot, place.sector + 1) {
                    let on_member = &self.bytes.member(member)[bytes(SectorRange::new(place.sector, 1))];
                    let expected = &self.model[bytes(SectorRange::new(sector, 1))];
                    assert!(on_member == expected, "sector {sector}, copy {copy} at {place:?}");
                }
            }
        }
        if let Shape::Parity(shape) = geometry.shape() {
            let chunk = geometry.chunk_sectors();
            for stripe in 0..geometry.used_sectors(Slot(0)) / chunk {
                self.check_parity(&geometry, shape, stripe, chunk);
            }
        }
    }

    fn check_parity(
        &mut self,
        geometry: &Geometry,
        shape: &stripewise_engine::geometry::ParityShape,
        stripe: u64,
        chunk: u64,
    ) {
        let map = shape.stripe(stripe);
        let length = (chunk * 512) as usize;
        let mut data: Vec<Option<Vec<u8>>> = vec![None; usize::from(geometry.raid_disks())];
        for slot in (0..geometry.raid_disks()).map(Slot) {
            if let Role::Data(index) = map.operand_role(slot) {
                let Holds::Data(sector) = geometry.holds(Place { slot, sector: stripe * chunk }) else {
                    panic!()
                };
                data[usize::from(index)] = Some(self.model[bytes(SectorRange::new(sector, chunk))].to_vec());
            }
        }
        let blocks: Vec<Option<&[u8]>> = data.iter().map(Option::as_deref).collect();
        let (mut p, mut q) = (vec![0; length], vec![0; length]);
        Kernels::scalar().pq(&mut p, &mut q, &blocks);
        for (slot, expected) in [(Some(map.p), p), (map.q, q)] {
            let Some(slot) = slot else { continue };
            if let Some(member) = self.holds(slot, (stripe + 1) * chunk) {
                let on_member = &self.bytes.member(member)[bytes(SectorRange::new(stripe * chunk, chunk))];
                assert!(on_member == expected, "parity of stripe {stripe} in slot {slot}");
            }
        }
    }
}

pub(crate) const fn bytes(range: SectorRange) -> std::ops::Range<usize> {
    range.start as usize * 512..range.end() as usize * 512
}
