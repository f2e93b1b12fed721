//! Reads of files in memory that are lent instead of copied: what who asked is sent.

use std::io::Read as _;
use std::os::fd::AsRawFd as _;
use std::path::PathBuf;
use std::sync::Arc;

use stripewise_engine::geometry::GeometrySpec;
use stripewise_engine::io::{
    ActionQueue, Area, Buf, Compute, Flags, IoError, IoResult, Kernel, MemberIo, Op, Operand, OperandList,
    Request, RequestId, Role, Seg, SegList, Tag,
};
use stripewise_engine::level::{Layout, Level};
use stripewise_engine::policy::Policy;
use stripewise_engine::units::{MemberIndex, Nanos, SectorRange, Slot};
use stripewise_engine::volume::VolumeConfig;

use super::bytes::{Entry, Origin};
use super::{Context, Shard};
use crate::buffers::{Mapping, Zeroes};
use crate::clock::Clock;
use crate::mailbox::{Mailbox, PartBuffer};
use crate::members::{FileSpec, MemberSpec, open_all};
use crate::route::Router;

const MEMBERS: usize = 5;
const MEMBER_SECTORS: u64 = 4096;
const CHUNK_SECTORS: u64 = 128;

/// An array of files in memory.
struct Stage {
    shard: Shard,
    zeroes: Zeroes,
    mailboxes: [Mailbox; 1],
    clock: Clock,
    buffer: Mapping,
    folder: tempfile::TempDir,
}

impl Stage {
    fn new(level: Level) -> Self {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let specs: Vec<_> = (0..MEMBERS)
            .map(|number| {
                let path = folder.path().join(number.to_string());
                std::fs::File::create(&path).unwrap().set_len((MEMBER_SECTORS + 8) * 512).unwrap();
                MemberSpec::File(FileSpec { data_offset_sectors: 8, ..FileSpec::new(path) })
            })
            .collect();
        let members = open_all(&specs, &[MEMBER_SECTORS; MEMBERS], 1).unwrap();
        let members: Vec<_> = members.into_iter().map(Arc::new).collect();
        let member_sectors = vec![MEMBER_SECTORS; MEMBERS];
        let geometry = GeometrySpec {
            level,
            layout: Layout::default_of(level),
            chunk_sectors: CHUNK_SECTORS,
            member_sectors,
        };
        let config = VolumeConfig::new(geometry, Policy::stripewise());
        Self {
            shard: Shard::new(0, 1, &config, &members).unwrap(),
            zeroes: Zeroes::new().unwrap(),
            mailboxes: [Mailbox::new().unwrap()],
            clock: Clock::start(),
            buffer: Mapping::new(1 << 20, "a test").unwrap(),
            folder,
        }
    }

    fn member(&self, number: usize) -> PathBuf {
        self.folder.path().join(number.to_string())
    }

    /// Has the array carry a request out.
    fn run(&mut self, op: Op, range: SectorRange, takes_loans: bool) -> IoResult {
        let Self { shard, zeroes, mailboxes, clock, buffer, .. } = self;
        let context = Context { zeroes, mailboxes, clock: *clock };
        if !shard.is_prepared() {
            shard.prepare(&context, None, None).unwrap();
        }
        let buffer = PartBuffer { base: buffer.base(), bytes: 1 << 20, takes_loans };
        let request = Request { id: RequestId(7), op, range, flags: Flags::default() };
        assert_eq!(shard.start_whole(&Router::pinned(0), request, buffer), 1);
        loop {
            while shard.step(clock.now(), &context) {}
            if let Some((7, result)) = shard.take_ended() {
                return result;
            }
            shard.sleep(Some(clock.now() + Nanos::from_millis(10)), &context);
        }
    }

    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the buffer is that long, and nothing is under way.
        unsafe { std::slice::from_raw_parts_mut(self.buffer.base(), 1 << 20) }
    }

    fn write(&mut self, range: SectorRange, content: &[u8]) {
        self.bytes()[..content.len()].copy_from_slice(content);
        self.run(Op::Write, range, false).unwrap();
    }

    /// What is sent of a read that takes loans, and how many bytes of it were lent.
    fn sent(&mut self, range: SectorRange) -> (Vec<u8>, usize) {
        self.bytes().fill(0xEE);
        self.run(Op::Read, range, true).unwrap();
        let base = self.buffer.base();
        let place = base..base.wrapping_add((range.count * 512) as usize);
        let runs = self.shard.loans.sent_as(&[], place.clone());
        let is_lent = |run: &&libc::iovec| !place.contains(&run.iov_base.cast());
        let lent = runs.iter().filter(is_lent).map(|run| run.iov_len).sum();
        let mut all = Vec::new();
        for run in runs {
            let mut one = vec![0; run.iov_len];
            let (mut reader, writer) = std::io::pipe().unwrap();
            std::thread::scope(|scope| {
                scope.spawn(|| reader.read_exact(&mut one).unwrap());
                let (mut at, mut left) = (run.iov_base.cast_const(), run.iov_len);
                while left > 0 {
                    // SAFETY: the kernel answers for the address.
                    let moved = unsafe { libc::write(writer.as_raw_fd(), at, left) };
                    assert!(moved > 0, "{}", std::io::Error::last_os_error());
                    at = at.wrapping_byte_add(moved as usize);
                    left -= moved as usize;
                }
            });
            all.extend(one);
        }
        self.shard.loans.end(place);
        assert!(self.shard.loans.is_empty());
        (all, lent)
    }
}

fn content(sectors: u64) -> Vec<u8> {
    (0..sectors * 512).map(|place| (place / 512 * 7 + place % 251) as u8).collect()
}

fn part(content: &[u8], range: SectorRange) -> &[u8] {
    &content[(range.start * 512) as usize..(range.end() * 512) as usize]
}

#[test]
fn reads_are_lent_whole_however_short() {
    for level in [Level::Raid0, Level::Raid5, Level::Raid6] {
        let mut stage = Stage::new(level);
        let content = content(2048);
        stage.write(SectorRange::new(0, 2048), &content);
        let all = SectorRange::new(0, 2048);
        assert!(stage.sent(all) == (content.clone(), 1 << 20), "{level:?}");
        // 8 sectors of one chunk, three chunks, 8 of the last.
        let some = SectorRange::new(120, 400);
        for some in [some, SectorRange::new(264, 8), SectorRange::new(1151, 2), SectorRange::new(3, 1)] {
            let (bytes, lent) = stage.sent(some);
            assert!(bytes == part(&content, some), "{level:?} {some:?}");
            assert_eq!(lent, (some.count * 512) as usize, "{level:?} {some:?}");
        }
        assert_eq!(stage.run(Op::Read, all, false), Ok(()));
        assert!(stage.shard.loans.is_empty() && stage.bytes() == content, "who takes no loans gets none");
    }
}

#[test]
fn what_is_recovered_is_of_the_bytes_themselves() {
    for level in [Level::Raid5, Level::Raid6] {
        let mut stage = Stage::new(level);
        let content = content(2048);
        let all = SectorRange::new(0, 2048);
        stage.write(all, &content);
        for slot in 0..level.parity_count() {
            let Stage { shard, zeroes, mailboxes, clock, .. } = &mut stage;
            let context = Context { zeroes, mailboxes, clock: *clock };
            shard.fail(Slot(slot), clock.now(), &context);
            assert!(stage.sent(all).0 == content, "{level:?} without {}", slot + 1);
            let some = SectorRange::new(130, 300);
            assert!(stage.sent(some).0 == part(&content, some), "{level:?} without {}", slot + 1);
        }
    }
}

#[test]
fn holes_are_read_and_stay() {
    use std::os::unix::fs::MetadataExt as _;
    let mut stage = Stage::new(Level::Raid0);
    let all = SectorRange::new(0, 2048);
    assert!(stage.sent(all) == (vec![0; 1 << 20], 0));
    let room =
        |stage: &Stage| (0..MEMBERS).map(|i| stage.member(i).metadata().unwrap().blocks()).sum::<u64>();
    assert_eq!(room(&stage), 0);
    stage.write(SectorRange::new(128, 128), &content(128));
    assert_eq!(stage.sent(all).1, 64 << 10);
    assert_eq!(room(&stage), 128);
}

#[test]
fn a_member_that_was_cut_short_lends_nothing_and_is_recovered() {
    let mut stage = Stage::new(Level::Raid5);
    let content = content(2048);
    let all = SectorRange::new(0, 2048);
    stage.write(all, &content);
    let file = std::fs::File::options().write(true).open(stage.member(1)).unwrap();
    file.set_len(8 * 512).unwrap();
    let (bytes, lent) = stage.sent(all);
    assert!(bytes == content && lent < 1 << 20);
}

#[test]
fn a_failed_read_leaves_no_loans() {
    let mut stage = Stage::new(Level::Raid0);
    stage.write(SectorRange::new(0, 2048), &content(2048));
    std::fs::File::options().write(true).open(stage.member(2)).unwrap().set_len(8 * 512).unwrap();
    assert!(stage.run(Op::Read, SectorRange::new(0, 2048), true).is_err());
    assert!(stage.shard.loans.is_empty());
}

/// A request that was lent the second chunk of the first member for its first 64 KiB, which hold something else; and a member
/// to write to.
fn lent_to() -> (Stage, RequestId) {
    let mut stage = Stage::new(Level::Raid0);
    stage.write(SectorRange::new(0, 2048), &content(2048));
    stage.bytes().fill(0xEE);
    let buffer = PartBuffer { base: stage.buffer.base(), bytes: 1 << 20, takes_loans: true };
    let entry = Entry { buffer, origin: Origin::Own { whole: 7 }, is_spoilt: false };
    let id = stage.shard.buffers.entries.insert(entry);
    let Stage { shard, zeroes, mailboxes, clock, .. } = &mut stage;
    // As within an input, so that what is answered is not handled.
    shard.depth = 2;
    let mut queue = ActionQueue::default();
    let segs = queue.add_seg(of_request(id, 0, 64 << 10));
    let io = member_io(Op::Read, 0, SectorRange::new(128, 128), segs);
    shard.start_io(&io, &queue, &Context { zeroes, mailboxes, clock: *clock });
    assert!(!shard.loans.is_empty());
    shard.completions.clear();
    (stage, id)
}

fn of_request(id: RequestId, offset: u64, bytes: u32) -> Seg {
    Seg { buf: Buf::Request { id, offset }, bytes }
}

fn member_io(op: Op, member: u16, range: SectorRange, segs: SegList) -> MemberIo {
    MemberIo { tag: Tag(0), member: MemberIndex(member), op, area: Area::Data, range, fua: false, segs }
}

/// What the stage's member 0 holds there: of RAID-0, every fifth chunk.
fn second_chunk() -> Vec<u8> {
    part(&content(2048), SectorRange::new(640, 128)).to_vec()
}

#[test]
fn what_is_computed_has_the_bytes_themselves() {
    let (mut stage, id) = lent_to();
    let Stage { shard, zeroes, mailboxes, clock, .. } = &mut stage;
    let mut queue = ActionQueue::default();
    for buf in [Buf::Zero, Buf::Request { id, offset: 4096 }] {
        let segs = queue.add_seg(Seg { buf, bytes: 4096 });
        queue.operands.push(Operand { role: Role::Data(0), segs });
    }
    let (sources, targets) = (OperandList { first: 0, count: 1 }, OperandList { first: 1, count: 1 });
    let compute = Compute { tag: Tag(0), kernel: Kernel::Copy, bytes: 4096, sources, targets };
    shard.compute(&compute, &queue, clock.now(), &Context { zeroes, mailboxes, clock: *clock });
    assert!(shard.loans.is_empty());
    shard.completions.clear();
    let right = second_chunk();
    let bytes = stage.bytes();
    assert!(bytes[..4096] == right[..4096] && bytes[8192..64 << 10] == right[8192..]);
    assert!(bytes[4096..8192] == [0; 4096] && bytes[64 << 10..].iter().all(|byte| *byte == 0xEE));
}

#[test]
fn what_is_written_and_what_is_read_anew_are_the_bytes_themselves() {
    // The latter may be lent again, and then only that.
    for (op, lent_again) in [(Op::Write, 0), (Op::Read, 4096)] {
        let (mut stage, id) = lent_to();
        let Stage { shard, zeroes, mailboxes, clock, .. } = &mut stage;
        let mut queue = ActionQueue::default();
        // So short that it is carried out at once.
        let segs = queue.add_seg(of_request(id, 8192, 4096));
        let io = member_io(op, 1, SectorRange::new(0, 8), segs);
        shard.start_io(&io, &queue, &Context { zeroes, mailboxes, clock: *clock });
        shard.completions.clear();
        let base = stage.buffer.base();
        let runs = stage.shard.loans.sent_as(&[], base..base.wrapping_add(64 << 10));
        let is_lent = |run: &&libc::iovec| run.iov_base.addr().wrapping_sub(base.addr()) >= 64 << 10;
        assert_eq!(runs.iter().filter(is_lent).map(|run| run.iov_len).sum::<usize>(), lent_again);
        stage.shard.take_own(&[of_request(id, 0, 64 << 10)]);
        assert!(stage.shard.loans.is_empty());
        let (right, other) = (second_chunk(), part(&content(2048), SectorRange::new(128, 8)).to_vec());
        let there = &std::fs::read(stage.member(1)).unwrap()[4096..8192];
        let is_right = match op {
            Op::Write => there == &right[8192..12288] && stage.bytes()[8192..12288] == right[8192..12288],
            _ => there == other && stage.bytes()[8192..12288] == other,
        };
        assert!(is_right && stage.bytes()[..8192] == right[..8192], "{op:?}");
        assert!(stage.bytes()[12288..64 << 10] == right[12288..], "{op:?}");
    }
}

#[test]
fn a_request_whose_bytes_are_gone_ends_with_an_error() {
    let (mut stage, id) = lent_to();
    std::fs::File::options().write(true).open(stage.member(0)).unwrap().set_len(4096).unwrap();
    stage.shard.take_own(&[of_request(id, 0, 512)]);
    assert_eq!(stage.shard.complete(id, Ok(())).1, Err(IoError::Gone));
    assert!(stage.shard.loans.is_empty());
}
