//! An encrypted payload on an array, as dm-crypt has it.
//!
//! # Contract
//! *Place.* Requests count sectors from the start of the payload; the array is asked for those sectors moved by where
//! the payload begins. Ranges are whole encrypted sectors.
//! *Ownership.* The layer holds neither bytes nor keys: the loop carries out [`Kernel::Encrypt`] and
//! [`Kernel::Decrypt`]. A read is decrypted in place, in the caller's buffer, after the array has answered. A write is
//! encrypted into pages of the layer's own ([`Buf::CryptPage`]), so that the caller's bytes stay as they are and the
//! array computes parity from bytes that do not change.
//! *Ordering.* None between requests in flight at the same time, as below.
//! *Durability.* Flushes and forced unit access are passed on.
//! *Limits.* The pages; a write that finds none waits, in order of arrival, and is cut into pieces that fit.
//!
//! A discard is answered and does nothing, as dm-crypt's devices do not pass it on unless they are told to: it would
//! show which sectors are in use.

mod pool;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use crate::array::slab::Slab;
use crate::io::{
    Action, ActionQueue, Buf, Compute, Flags, IoError, IoResult, Kernel, Op, Operand, OperandList, Request,
    RequestId, Role, Seg, SegList, Tag,
};
use crate::units::{PAGE_BYTES, PAGE_SECTORS, SECTOR_BYTES, SectorRange};
use pool::{Pool, Run};

/// Tells the layer's computations from the array's and the page cache's.
const TAG_BIT: u64 = Tag::OF_CRYPT;
/// Pages of one piece at most, as dm-crypt cuts writes (`BIO_MAX_VECS`).
const PIECE_PAGES_MAX: u32 = 256;

/// Where an encrypted payload is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CryptConfig {
    /// The array's sector it begins at.
    pub start_sector: u64,
    /// Its length.
    pub sectors: u64,
    /// Sectors of 512 bytes in an encrypted one: 1, 2, 4 or 8.
    pub unit_sectors: u64,
    /// Bytes of writes that are encrypted and under way at the same time; at least 1 MiB, one piece.
    pub buffer_bytes: u64,
}

impl CryptConfig {
    /// Room for 32 pieces: enough to keep an array of many drives busy.
    pub const BUFFER_BYTES: u64 = 32 << 20;

    /// Pages to encrypt into.
    pub const fn pages(&self) -> u32 {
        (self.buffer_bytes / PAGE_BYTES) as u32
    }

    fn check(&self, array_sectors: u64) -> Result<(), CryptError> {
        let Self { start_sector, sectors, unit_sectors, .. } = *self;
        if ![1, 2, 4, 8].contains(&unit_sectors) {
            return Err(CryptError::Unit(unit_sectors));
        }
        if sectors == 0 || !sectors.is_multiple_of(unit_sectors) {
            return Err(CryptError::Length { sectors, unit_sectors });
        }
        if start_sector.checked_add(sectors).is_none_or(|end| end > array_sectors) {
            return Err(CryptError::Beyond { start_sector, sectors, array_sectors });
        }
        if !(PIECE_PAGES_MAX..=u32::MAX / 2).contains(&self.pages()) {
            return Err(CryptError::Buffers(self.buffer_bytes));
        }
        Ok(())
    }
}

/// Why there can be no such payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CryptError {
    /// Encrypted sectors are of no size that dm-crypt has.
    Unit(u64),
    /// The payload is empty or not of whole encrypted sectors.
    Length {
        /// Its length.
        sectors: u64,
        /// That of an encrypted sector.
        unit_sectors: u64,
    },
    /// It ends behind the array.
    Beyond {
        /// Where it begins.
        start_sector: u64,
        /// Its length.
        sectors: u64,
        /// The array's.
        array_sectors: u64,
    },
    /// There is no room for one piece, or more than can be numbered.
    Buffers(u64),
}

impl std::fmt::Display for CryptError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unit(found) => {
                write!(f, "encrypted sectors of {found} sectors; 1, 2, 4 or 8 are possible")
            }
            Self::Length { sectors, unit_sectors } => write!(
                f,
                "an encrypted payload of {sectors} sectors; it is a multiple of its {unit_sectors}, and not empty"
            ),
            Self::Beyond { start_sector, sectors, array_sectors } => write!(
                f,
                "an encrypted payload of {sectors} sectors from sector {start_sector} on; the array has {array_sectors}"
            ),
            Self::Buffers(bytes) => write!(
                f,
                "{bytes} bytes to encrypt into; at least {} are needed",
                u64::from(PIECE_PAGES_MAX) * PAGE_BYTES
            ),
        }
    }
}

impl std::error::Error for CryptError {}

type RequestKey = u64;

/// A request in flight.
#[derive(Clone, Copy, Debug)]
struct State {
    request: Request,
    /// Sectors that pieces were cut from.
    cut: u64,
    /// Pieces under way.
    pieces: u32,
    result: IoResult,
}

/// Where a piece is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// The array reads it.
    Read,
    /// It is being decrypted.
    Decrypt,
    /// It is being encrypted into these pages.
    Encrypt(Run),
    /// The array writes these pages.
    Write(Run),
    /// The array flushes.
    Flush,
}

/// A part of a request: the whole of it, unless it is written.
#[derive(Clone, Copy, Debug)]
struct Piece {
    request: RequestKey,
    /// Within the payload.
    range: SectorRange,
    step: Step,
}

/// The layer of an encrypted payload.
#[derive(Debug)]
pub struct Crypt {
    config: CryptConfig,
    pool: Pool,
    requests: Slab<State>,
    /// By number, which is the array's name of what it is asked.
    pieces: Vec<Option<Piece>>,
    free: Vec<u32>,
    /// Writes that are not cut to their end.
    waiting: VecDeque<RequestKey>,
    encrypting: u32,
    outbox: VecDeque<Request>,
}

impl Crypt {
    /// Makes the layer of a payload on an array of so many sectors.
    ///
    /// # Errors
    /// A payload that cannot be.
    pub fn new(config: &CryptConfig, array_sectors: u64) -> Result<Self, CryptError> {
        config.check(array_sectors)?;
        Ok(Self {
            config: *config,
            pool: Pool::new(config.pages()),
            requests: Slab::new(),
            pieces: Vec::new(),
            free: Vec::new(),
            waiting: VecDeque::new(),
            encrypting: 0,
            outbox: VecDeque::new(),
        })
    }

    /// Where the payload is.
    pub const fn config(&self) -> &CryptConfig {
        &self.config
    }

    /// Whether a computation is one of this layer's.
    pub const fn owns(tag: Tag) -> bool {
        tag.0 & TAG_BIT != 0
    }

    /// Whether no request is in flight.
    pub fn is_idle(&self) -> bool {
        self.requests.len() == 0
    }

    /// Takes a request from above.
    pub(crate) fn request(&mut self, request: Request, out: &mut ActionQueue) {
        if request.op != Op::Flush
            && let Some(error) = self.refuses(&request)
        {
            return out.push(Action::Complete { id: request.id, result: Err(error) });
        }
        if request.op == Op::Discard {
            return out.push(Action::Complete { id: request.id, result: Ok(()) });
        }
        let is_cut = matches!(request.op, Op::Write | Op::WriteZeroes);
        let cut = if is_cut { 0 } else { request.range.count };
        let key = self.requests.insert(State { request, cut, pieces: 0, result: Ok(()) });
        match request.op {
            Op::Read => {
                let piece = self.start(Piece { request: key, range: request.range, step: Step::Read });
                self.ask(piece, Op::Read, request.range, request.flags);
            }
            Op::Flush => {
                let piece = self.start(Piece { request: key, range: request.range, step: Step::Flush });
                self.outbox.push_back(Request { id: RequestId(piece), ..request });
            }
            Op::Write | Op::WriteZeroes | Op::Discard => {
                self.waiting.push_back(key);
                self.cut(out);
            }
        }
    }

    fn refuses(&self, request: &Request) -> Option<IoError> {
        let SectorRange { start, count } = request.range;
        let moves_bytes = matches!(request.op, Op::Read | Op::Write);
        let is_outside = start.checked_add(count).is_none_or(|end| end > self.config.sectors);
        let is_cut = !request.range.has_whole(self.config.unit_sectors);
        // Buffers are named by 32-bit lengths.
        let is_long = moves_bytes && count > u64::from(u32::MAX) / SECTOR_BYTES;
        (count == 0 || is_outside || is_cut || is_long).then_some(IoError::Range)
    }

    fn state(&mut self, key: RequestKey) -> &mut State {
        self.requests.get_mut(key).expect("a request lives until it is answered")
    }

    fn start(&mut self, piece: Piece) -> u32 {
        self.state(piece.request).pieces += 1;
        let number = self.free.pop().unwrap_or_else(|| {
            self.pieces.push(None);
            (self.pieces.len() - 1) as u32
        });
        self.pieces[number as usize] = Some(piece);
        number
    }

    /// Asks the array for a range of the payload.
    fn ask(&mut self, piece: u32, op: Op, range: SectorRange, flags: Flags) {
        let range = SectorRange::new(range.start + self.config.start_sector, range.count);
        self.outbox.push_back(Request { id: RequestId(piece), op, range, flags });
    }

    /// The next request for the array, if there is one.
    pub(crate) fn next_below(&mut self) -> Option<Request> {
        self.outbox.pop_front()
    }

    /// Encrypts what waits, as far as there are pages.
    fn cut(&mut self, out: &mut ActionQueue) {
        while let Some(&key) = self.waiting.front() {
            let State { request, cut, result, .. } = *self.state(key);
            let left = request.range.count - cut;
            if left == 0 || result.is_err() {
                self.waiting.pop_front();
                self.state(key).cut = request.range.count;
                self.end_if_done(key, out);
                continue;
            }
            let count = left.min(u64::from(PIECE_PAGES_MAX) * PAGE_SECTORS);
            let Some(run) = self.pool.take(count.div_ceil(PAGE_SECTORS) as u32) else { return };
            self.state(key).cut += count;
            let range = SectorRange::new(request.range.start + cut, count);
            let piece = self.start(Piece { request: key, range, step: Step::Encrypt(run) });
            self.encrypting += 1;
            let bytes = (count * SECTOR_BYTES) as u32;
            let source = match request.op {
                Op::WriteZeroes => Buf::Zero,
                _ => Buf::Request { id: request.id, offset: cut * SECTOR_BYTES },
            };
            let source = Seg { buf: source, bytes };
            let target = Seg { buf: Buf::CryptPage { page: run.first, offset: 0 }, bytes };
            compute(piece, Kernel::Encrypt { sector: range.start }, source, target, out);
        }
    }

    /// A computation has ended.
    pub(crate) fn computed(&mut self, tag: Tag, out: &mut ActionQueue) {
        let number = (tag.0 & !TAG_BIT) as u32;
        let Some(piece) = &mut self.pieces[number as usize] else { return };
        let Piece { request, range, step } = *piece;
        match step {
            Step::Encrypt(run) => {
                piece.step = Step::Write(run);
                self.encrypting -= 1;
                let mut flags = self.state(request).request.flags;
                flags.more |= self.encrypting > 0;
                self.ask(number, Op::Write, range, flags);
            }
            Step::Decrypt => self.end_piece(number, Ok(()), out),
            Step::Read | Step::Write(_) | Step::Flush => unreachable!("such pieces are with the array"),
        }
    }

    /// The array answered a request.
    pub(crate) fn below_ended(&mut self, id: RequestId, result: IoResult, out: &mut ActionQueue) {
        let piece = self.pieces[id.0 as usize].as_mut().expect("the array answers a request once");
        if piece.step != Step::Read || result.is_err() {
            return self.end_piece(id.0, result, out);
        }
        piece.step = Step::Decrypt;
        let Piece { request, range, .. } = *piece;
        let State { request, .. } = *self.state(request);
        let bytes = (range.count * SECTOR_BYTES) as u32;
        let place = Seg { buf: Buf::Request { id: request.id, offset: 0 }, bytes };
        compute(id.0, Kernel::Decrypt { sector: range.start }, place, place, out);
    }

    fn end_piece(&mut self, number: u32, result: IoResult, out: &mut ActionQueue) {
        let piece = self.pieces[number as usize].take().expect("a piece ends once");
        self.free.push(number);
        let state = self.state(piece.request);
        state.pieces -= 1;
        state.result = state.result.and(result);
        self.end_if_done(piece.request, out);
        if let Step::Write(run) = piece.step {
            self.pool.give(run);
            self.cut(out);
        }
    }

    fn end_if_done(&mut self, key: RequestKey, out: &mut ActionQueue) {
        let State { request, cut, pieces, result } = *self.state(key);
        if pieces == 0 && cut == request.range.count {
            self.requests.remove(key);
            out.push(Action::Complete { id: request.id, result });
        }
    }

    /// Adds the names of a part of a request's bytes, as the layer above knows them.
    pub(crate) fn name(&self, id: RequestId, offset: u64, bytes: u32, segs: &mut Vec<Seg>) {
        let piece = self.pieces[id.0 as usize].expect("the array names requests in flight");
        let buf = match piece.step {
            Step::Write(run) => {
                let page = run.first + (offset / PAGE_BYTES) as u32;
                Buf::CryptPage { page, offset: (offset % PAGE_BYTES) as u32 }
            }
            Step::Read => {
                let id = self.reading(piece.request);
                Buf::Request { id, offset }
            }
            Step::Encrypt(_) | Step::Decrypt | Step::Flush => {
                unreachable!("{:?} has no bytes below", piece.step)
            }
        };
        segs.push(Seg { buf, bytes });
    }

    fn reading(&self, key: RequestKey) -> RequestId {
        self.requests.get(key).expect("a request lives until it is answered").request.id
    }

    /// Panics if the layer contradicts itself.
    pub fn check_invariants(&self) {
        self.pool.check_invariants();
        let pieces = || self.pieces.iter().flatten();
        let pages = |piece: &Piece| match piece.step {
            Step::Encrypt(run) | Step::Write(run) => run.count,
            _ => 0,
        };
        assert_eq!(pieces().map(pages).sum::<u32>(), self.pool.taken(), "pages are taken by pieces");
        let encrypting = pieces().filter(|piece| matches!(piece.step, Step::Encrypt(_))).count();
        assert_eq!(encrypting, self.encrypting as usize, "what is being encrypted is counted");
        let under_way: u32 = self.requests.iter().map(|state| state.pieces).sum();
        assert_eq!(pieces().count(), under_way as usize, "pieces belong to requests");
        if self.requests.len() == 0 {
            assert!(self.waiting.is_empty() && self.outbox.is_empty(), "without requests nothing waits");
        }
    }
}

/// Asks for the cipher over one run.
fn compute(piece: u32, kernel: Kernel, source: Seg, target: Seg, out: &mut ActionQueue) {
    let mut operand = |seg: Seg| {
        let segs: SegList = out.add_seg(seg);
        out.operands.push(Operand { role: Role::Data(0), segs });
        OperandList { first: out.operands.len() as u32 - 1, count: 1 }
    };
    let (sources, targets) = (operand(source), operand(target));
    let tag = Tag(u64::from(piece) | TAG_BIT);
    out.push(Action::Compute(Compute { tag, kernel, bytes: u64::from(source.bytes), sources, targets }));
}
