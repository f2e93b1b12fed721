//! The engine's two vocabularies: what comes in ([`Input`]) and what goes out ([`Action`]).
//!
//! # Contract
//! *Ownership.* The engine never holds bytes. It names them: [`Buf::Request`] is the caller's buffer of a
//! request in flight, [`Buf::Page`] a page of the stripe cache, which the loop that runs the engine keeps
//! (one page per entry and slot; a simulator with phantom buffers keeps none).
//! *Ordering.* Actions may be carried out in any order and at the same time; where order matters the engine
//! waits for [`Input::IoDone`] or [`Input::Computed`] before it asks for the next step.
//! *Completion.* Every [`Action::Io`] and [`Action::Compute`] is answered exactly once by its tag; every
//! request is answered by exactly one [`Action::Complete`].

use stripewise_format::device_flags::DeviceFlags;

use crate::units::{MemberIndex, SectorRange, Slot};

/// The caller's handle of a request; unique among those in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId(pub u32);

/// The engine's handle of an action in flight, opaque to the loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tag(pub u64);

impl Tag {
    /// Bits of the indices in tags by which the layers know their own; no slab has so many records.
    pub(crate) const OF_CACHE: u64 = 1 << 31;
    pub(crate) const OF_CRYPT: u64 = 1 << 30;
    pub(crate) const OF_SINGLE: u64 = 1 << 29;
    /// Two bits from here on say which block of such a record an I/O is of.
    pub(crate) const OF_SINGLE_BLOCK: u32 = 27;

    /// A read that takes a member's bytes as they are; where it is of no such page.
    pub(crate) const OF_READ: u64 = 1 << 28;
    /// Such a read that is a part of a request.
    pub(crate) const OF_PART: u64 = 1 << 27;

    /// Whether it is of a read that takes a member's bytes as they are, past any stripe cache.
    #[inline]
    pub const fn is_of_read(self) -> bool {
        self.0 & (Self::OF_SINGLE | Self::OF_READ) == Self::OF_READ
    }

    /// Whether it is of such a read that is a part of a request.
    #[inline]
    pub(crate) const fn is_of_part(self) -> bool {
        self.0 & Self::OF_PART != 0
    }

    /// Whether it is of a page written alone.
    #[inline]
    pub(crate) const fn is_of_single(self) -> bool {
        self.0 & Self::OF_SINGLE != 0
    }
}

/// What a request asks of the array, or an action of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// Read bytes into the buffer.
    Read,
    /// Write the buffer's bytes.
    Write,
    /// Make every acknowledged write durable. The array ignores the range; a page cache above it writes back
    /// the dirty pages of the range alone, as `fsync` of a file that lies there, unless it is empty.
    Flush,
    /// Tell that the range is no longer used; its content is undefined afterwards.
    Discard,
    /// Make the range read as zeroes. Carries no buffer.
    WriteZeroes,
}

impl Op {
    /// Whether the operation changes what later reads return.
    pub const fn is_write(self) -> bool {
        matches!(self, Self::Write | Self::Discard | Self::WriteZeroes)
    }
}

/// What a request asks for beyond its operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a flag of its own, as in the block layer's requests"
)]
pub struct Flags {
    /// The write is durable before it is acknowledged (forced unit access).
    pub fua: bool,
    /// More requests follow at once: delayed partial stripes stay plugged to gather them.
    pub more: bool,
    /// The submitter waits for this request (md treats such writes without delay since Linux 3.2).
    pub sync: bool,
    /// Through the page cache, where the stack has one; otherwise past it, as with `O_DIRECT`.
    pub buffered: bool,
    /// Which open file the request comes through: each has its own readahead and its own report of
    /// write-back errors.
    pub stream: u16,
}

/// Why a member's I/O, or a request, failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IoError {
    /// The medium cannot return these sectors (EIO); the member itself answers.
    Media,
    /// The member is gone or answers nothing (ENODEV, ETIMEDOUT).
    Gone,
    /// No room for the write (ENOSPC, EDQUOT).
    NoSpace,
    /// The request lies outside the array, or is no whole number of sectors, of an encrypted payload of the cipher's (EINVAL).
    Range,
    /// The array is read-only or stopped writing after too many failures (EROFS).
    ReadOnly,
    /// The bytes cannot be had: more members are lost than the level survives (EIO).
    Lost,
}

impl std::fmt::Display for IoError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Media => "the medium cannot return these sectors",
            Self::Gone => "the member does not answer",
            Self::NoSpace => "no space left on the member's storage",
            Self::Range => "the range is outside the array, or no whole number of its blocks",
            Self::ReadOnly => "the array does not take writes",
            Self::Lost => "more members are lost than the level survives",
        })
    }
}

impl std::error::Error for IoError {}

/// The outcome of an I/O or of a request.
pub type IoResult = Result<(), IoError>;

/// What the loop tells the engine.
#[derive(Clone, Copy, Debug)]
pub enum Input {
    /// A request from above.
    Request(Request),
    /// An [`Action::Io`] ended.
    IoDone {
        /// The action's tag.
        tag: Tag,
        /// How it ended.
        result: IoResult,
    },
    /// An [`Action::Compute`] ended.
    Computed {
        /// The action's tag.
        tag: Tag,
        /// What [`Kernel::Check`] found; [`Verdict::Consistent`] from the others.
        verdict: Verdict,
    },
    /// The deadline the engine named in `next_deadline` has come.
    Timer,
    /// An administrator's command, answered by [`Action::Replied`].
    Admin {
        /// The caller's handle of the command.
        id: u32,
        /// The command.
        command: AdminCommand,
    },
}

/// A request of the layer above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Handle, returned in [`Action::Complete`].
    pub id: RequestId,
    /// What is asked.
    pub op: Op,
    /// Which sectors of the array.
    pub range: SectorRange,
    /// What else is asked.
    pub flags: Flags,
}

/// What the array works on by itself, as md's `sync_action`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncAction {
    /// Nothing.
    Idle,
    /// Nothing, and nothing begins by itself.
    Frozen,
    /// Makes parity or copies agree after a crash.
    Resync,
    /// Fills members that took a failed one's place, and replacements.
    Recover,
    /// Compares, and counts what disagrees.
    Check,
    /// Compares, and makes parity or copies agree with the data that are read.
    Repair,
    /// Compares, and rewrites only the block that P and Q show to be wrong.
    RepairLocated,
}

impl SyncAction {
    /// md's word in `sync_action`.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Frozen => "frozen",
            Self::Resync => "resync",
            Self::Recover => "recover",
            Self::Check => "check",
            Self::Repair | Self::RepairLocated => "repair",
        }
    }
}

/// An administrator's command to a running array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdminCommand {
    /// Treat the slot's member as failed from now on.
    Fail(Slot),
    /// Take no more writes and leave the array clean; answered when the members say so.
    Stop,
    /// Let go of a failed member or a spare.
    Remove(MemberIndex),
    /// Keep a member of the loop's table as a spare. It is as large as the array uses its members; where members bear
    /// superblocks, [`crate::volume::Volume::introduce`] has named its own.
    AddSpare(MemberIndex),
    /// Take back a slot's former member, introduced like a spare if it was removed. With a write-intent bitmap only what was written since is recovered.
    ReAdd {
        /// The slot.
        slot: Slot,
        /// The member.
        member: MemberIndex,
    },
    /// Fill a spare with a slot's content and then let it take the slot.
    Replace {
        /// The slot.
        slot: Slot,
        /// The spare; any if none is named.
        with: Option<MemberIndex>,
    },
    /// Give up a slot's replacement; the slot's member stays.
    CancelReplacement(Slot),
    /// Give a member these flags, on its superblock too.
    SetFlags {
        /// The member.
        member: MemberIndex,
        /// All of its flags.
        flags: DeviceFlags,
    },
    /// Begin a check or repair, stop what is running, or forbid that anything begins by itself.
    Sync(SyncAction),
    /// Bounds of the speed of resync, recovery and checks, in KiB/s of each member.
    SetSpeed {
        /// Not slowed below this.
        min_kib: u32,
        /// Never faster.
        max_kib: u32,
    },
}

/// The answer to an administrator's command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdminReply {
    /// Done.
    Done,
    /// There is no such slot in this array.
    NoSuchSlot,
    /// The member had failed before.
    AlreadyFailed,
    /// There is no such member in this array.
    NoSuchMember,
    /// The level keeps no redundancy that this needs.
    NoRedundancy,
    /// The member is in use.
    InUse,
    /// There is no spare.
    NoSpare,
    /// Another action is under way.
    Busy,
    /// Too many members failed.
    ArrayFailed,
    /// The least speed must be above zero and not above the greatest.
    BadSpeed,
}

impl std::fmt::Display for AdminReply {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Done => "done",
            Self::NoSuchSlot => "the array has no such slot",
            Self::AlreadyFailed => "has failed already",
            Self::NoSuchMember => "is no member of the array",
            Self::NoRedundancy => "the level has no redundancy to do this with",
            Self::InUse => "is in use",
            Self::NoSpare => "the array has no spare; add one first",
            Self::Busy => "another action is under way; wait for its end, or ask for idle first",
            Self::ArrayFailed => {
                "the array does not take writes: it is read-only, or too many members failed"
            }
            Self::BadSpeed => "the least speed must be above zero and not above the greatest",
        })
    }
}

/// Bytes, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Buf {
    /// The caller's buffer of a request in flight, from a byte offset.
    Request {
        /// The request.
        id: RequestId,
        /// Offset in bytes.
        offset: u64,
    },
    /// A page of the stripe cache, from a byte offset within it. Runs longer than a page go on in the
    /// pages of the following entries of the same slot.
    Page {
        /// Stripe-cache entry.
        entry: u32,
        /// Slot.
        slot: Slot,
        /// Offset in bytes, below [`crate::units::PAGE_BYTES`].
        offset: u32,
    },
    /// A page of the page cache, from a byte offset within it. Runs longer than a page go on in the
    /// following frames.
    CachePage {
        /// The frame.
        frame: u32,
        /// Offset in bytes, below [`crate::units::PAGE_BYTES`].
        offset: u32,
    },
    /// A page that writes are encrypted into, from a byte offset within it. Runs longer than a page go on in the
    /// following pages.
    CryptPage {
        /// The page.
        page: u32,
        /// Offset in bytes, below [`crate::units::PAGE_BYTES`].
        offset: u32,
    },
    /// Bytes of [`ActionQueue::metadata`] from this offset on: written to members, never read into. The loop
    /// takes its copy while it carries out the action, before the queue is cleared.
    Metadata {
        /// Offset in bytes.
        offset: u32,
    },
    /// Zeroes.
    Zero,
}

/// What a member I/O's sectors count from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Area {
    /// The start of the member's data (md's `data_offset`).
    #[default]
    Data,
    /// The start of the device: superblocks, bitmap, bad-block log, PPL.
    Device,
}

/// A run of named bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seg {
    /// Where.
    pub buf: Buf,
    /// Length in bytes.
    pub bytes: u32,
}

/// A range of [`ActionQueue::segs`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SegList {
    /// Index of the first segment.
    pub first: u32,
    /// Number of segments.
    pub count: u32,
}

/// An I/O to a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberIo {
    /// To be returned in [`Input::IoDone`].
    pub tag: Tag,
    /// The member.
    pub member: MemberIndex,
    /// What `range` counts from.
    pub area: Area,
    /// What to do.
    pub op: Op,
    /// Which sectors.
    pub range: SectorRange,
    /// Forced unit access.
    pub fua: bool,
    /// The bytes, in order; together as long as the range for reads and writes, none otherwise.
    pub segs: SegList,
}

/// What part a block plays in a stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Data with this index in the Q syndrome (coefficient 2 to the power of the index).
    Data(u16),
    /// P, the xor of the data.
    P,
    /// Q, the Reed–Solomon syndrome.
    Q,
}

/// Bytes of a stripe with the part they play. The segments of all operands of one computation are
/// as long as each other in sum, but may be cut at different places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operand {
    /// The part.
    pub role: Role,
    /// The bytes.
    pub segs: SegList,
}

/// A range of [`ActionQueue::operands`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OperandList {
    /// Index of the first operand.
    pub first: u32,
    /// Number of operands.
    pub count: u32,
}

/// What to compute over buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernel {
    /// Target *i* becomes a copy of source *i*.
    Copy,
    /// Targets (P, Q or both) are computed from the sources, which are all data; a data index that is
    /// not among the sources counts as zero.
    Generate,
    /// Targets (P, Q or both) are brought up to date in place: sources come in pairs of equal role,
    /// old bytes then new bytes.
    Update,
    /// Targets (one or two roles) are rebuilt from the sources, which hold every other data block that is
    /// not zero and the parities needed.
    Recover,
    /// Sources are compared, and the answer is a [`Verdict`]: data with the parities among them, or, if there is no
    /// parity among them, copies with each other. There are no targets.
    Check,
    /// The one source is summed, and the answer is [`Verdict::Checksum`]. There are no targets.
    Checksum,
    /// The one target becomes the one source, encrypted.
    Encrypt {
        /// The payload's sector that the first byte is of.
        sector: u64,
    },
    /// The one target becomes the one source, decrypted; they may be the same bytes.
    Decrypt {
        /// The payload's sector that the first byte is of.
        sector: u64,
    },
}

/// What a comparison of redundancy found.
///
/// A block is named on the premise that one is wrong and the others are right.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verdict {
    /// All agree.
    #[default]
    Consistent,
    /// Q agrees with the data, P does not.
    P,
    /// P agrees with the data, Q does not.
    Q,
    /// Neither agrees, in the way a wrong data block of this index makes them disagree.
    Data(u16),
    /// They disagree, and no single block explains it or there is nothing to tell by.
    Unlocated,
    /// Not a comparison but the sum that [`Kernel::Checksum`] was asked for (CRC-32C).
    Checksum(u32),
}

/// A computation over buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compute {
    /// To be returned in [`Input::Computed`].
    pub tag: Tag,
    /// What to compute.
    pub kernel: Kernel,
    /// Bytes of each operand.
    pub bytes: u64,
    /// What is read.
    pub sources: OperandList,
    /// What is written.
    pub targets: OperandList,
}

/// Something the layers above, or an administrator, should know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArrayEvent {
    /// A member was taken out of use after an error or by command.
    MemberFailed {
        /// The member.
        slot: Slot,
    },
    /// Sectors that could not be read were rewritten from the redundancy, and read back.
    ReadErrorCorrected {
        /// The member.
        slot: Slot,
        /// The member's sectors.
        range: SectorRange,
    },
    /// More members are lost than the level survives: writes are refused from now on.
    ArrayFailed,
    /// The write journal had an error: writes are refused from now on.
    JournalFailed,
    /// A member had an error for which it would fail if it were not the only one with some of its content: writes are refused
    /// from now on, and it is read.
    LastCopyKept {
        /// The member.
        slot: Slot,
    },
    /// The slot's member, or what replaced it, holds all of its content.
    MemberInSync {
        /// The slot.
        slot: Slot,
    },
    /// The member that was to replace the slot's failed.
    ReplacementFailed {
        /// The slot.
        slot: Slot,
    },
    /// The array began to work by itself.
    SyncStarted(SyncAction),
    /// It came to its end.
    SyncDone(SyncAction),
    /// It stopped before its end.
    SyncInterrupted(SyncAction),
    /// It stopped because these sectors, in its own units, cannot be had any more.
    SyncFailed {
        /// What stopped.
        action: SyncAction,
        /// What cannot be had.
        range: SectorRange,
    },
}

/// What the engine asks of the loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Do this I/O.
    Io(MemberIo),
    /// Compute this.
    Compute(Compute),
    /// The request has ended.
    Complete {
        /// The request.
        id: RequestId,
        /// How.
        result: IoResult,
    },
    /// The administrator's command has ended.
    Replied {
        /// The command's handle.
        id: u32,
        /// How.
        reply: AdminReply,
    },
    /// Something happened.
    Event(ArrayEvent),
}

/// The actions of one or more calls to `handle`, with the segments and operands they name. The loop takes
/// them and then calls [`ActionQueue::clear`]; nothing is allocated once the vectors have grown.
#[derive(Clone, Debug, Default)]
pub struct ActionQueue {
    /// The actions, oldest first.
    pub actions: Vec<Action>,
    /// Segments named by [`SegList`].
    pub segs: Vec<Seg>,
    /// Operands named by [`OperandList`].
    pub operands: Vec<Operand>,
    /// Bytes named by [`Buf::Metadata`].
    pub metadata: Vec<u8>,
    /// There are no bytes, only time: whoever carries the actions out looks at no segment, and the common requests name none.
    pub is_phantom: bool,
}

impl ActionQueue {
    /// Forgets everything, keeping the memory.
    #[inline]
    pub fn clear(&mut self) {
        self.actions.clear();
        self.segs.clear();
        self.operands.clear();
        self.metadata.clear();
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.actions.is_empty()
    }

    /// The segments of a list.
    pub fn segs(&self, list: SegList) -> &[Seg] {
        &self.segs[list.first as usize..(list.first + list.count) as usize]
    }

    /// The operands of a list.
    pub fn operands(&self, list: OperandList) -> &[Operand] {
        &self.operands[list.first as usize..(list.first + list.count) as usize]
    }

    /// Adds segments under a name.
    pub fn add_segs(&mut self, segs: impl IntoIterator<Item = Seg>) -> SegList {
        if self.is_phantom {
            return SegList::default();
        }
        let first = self.segs.len() as u32;
        self.segs.extend(segs);
        SegList { first, count: self.segs.len() as u32 - first }
    }

    /// Adds one segment under a name.
    #[inline]
    pub fn add_seg(&mut self, seg: Seg) -> SegList {
        if self.is_phantom {
            return SegList::default();
        }
        self.segs.push(seg);
        SegList { first: self.segs.len() as u32 - 1, count: 1 }
    }

    /// Adds metadata bytes, whose length is a multiple of a sector, under a name.
    pub fn add_metadata(&mut self, bytes: &[u8]) -> SegList {
        let offset = self.metadata.len() as u32;
        self.metadata.extend_from_slice(bytes);
        self.add_seg(Seg { buf: Buf::Metadata { offset }, bytes: bytes.len() as u32 })
    }

    /// Adds an action.
    #[inline]
    pub fn push(&mut self, action: Action) {
        self.actions.push(action);
    }
}
