//! A session on a socket that keeps messages apart, as the device does; the kernel's part is played here.

use std::fs::File;
use std::io::{Read, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use stripewise_engine::io::{IoError, IoResult, Op};

use super::abi::{Fields, opcode};
use super::session::Session;
use crate::loans::{Loan, Loans};
use crate::members::Member;
use crate::nbd::{Accepted, Buffers, Export, News, REQUESTS_MAX, Task};

const BYTES: u64 = 1 << 20;
const ROOT: u64 = 1;
const FILE: u64 = 2;

struct Rig {
    session: Session,
    kernel: File,
    buffers: Buffers,
    loans: Loans,
    export: Export,
}

/// An answer: its errno, which request it is of, and its body.
type Answer = (i32, u64, Vec<u8>);

impl Rig {
    fn new() -> Self {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let (device, kernel) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        let export = Export {
            name: String::new(),
            description: String::new(),
            bytes: BYTES,
            min_bytes: 512,
            preferred_bytes: 4096,
            buffered: false,
            volatile: true,
            read_only: false,
            fast_zero: true,
        };
        let session = Session::new(device, None);
        Self {
            session,
            kernel: File::from(kernel),
            buffers: Buffers::default(),
            loans: Loans::default(),
            export,
        }
    }

    fn ask(&mut self, opcode: u32, unique: u64, node: u64, arguments: &[u8]) {
        self.kernel.write_all(&request(opcode, unique, node, arguments)).unwrap();
        self.session.tell(News { token: 0, readable: true, writable: true, ended: false, gone: false });
    }

    fn next(&mut self) -> Option<Accepted> {
        self.session.next(&self.export, &mut self.buffers)
    }

    fn finish(&mut self, accepted: Accepted, result: IoResult) {
        self.session.answer(accepted, result, &mut self.loans, &mut self.buffers);
    }

    fn answer(&mut self) -> Option<Answer> {
        let mut message = vec![0; 256 << 10];
        let bytes = self.kernel.read(&mut message).ok()?;
        let fields = Fields(&message[..bytes]);
        assert_eq!(fields.u32_at(0) as usize, bytes, "an answer says its length");
        Some((-(fields.u32_at(4) as i32), fields.u64_at(8), message[16..bytes].to_vec()))
    }

    /// The answer to what the array has no part in.
    fn asked(&mut self, opcode: u32, node: u64, arguments: &[u8]) -> Answer {
        self.ask(opcode, 7, node, arguments);
        assert!(self.next().is_none(), "the array has no part in {opcode}");
        self.answer().unwrap()
    }

    fn refusal(&mut self, opcode: u32, node: u64, arguments: &[u8]) -> i32 {
        self.asked(opcode, node, arguments).0
    }

    /// What the array is to do.
    fn task(&mut self, opcode: u32, arguments: &[u8]) -> Accepted {
        self.ask(opcode, 7, FILE, arguments);
        self.next().unwrap()
    }
}

fn request(opcode: u32, unique: u64, node: u64, arguments: &[u8]) -> Vec<u8> {
    let mut bytes = (40 + arguments.len() as u32).to_ne_bytes().to_vec();
    bytes.extend(opcode.to_ne_bytes());
    bytes.extend(unique.to_ne_bytes());
    bytes.extend(node.to_ne_bytes());
    bytes.extend([0; 16]);
    bytes.extend(arguments);
    bytes
}

/// `struct fuse_read_in` or `struct fuse_write_in`.
fn transfer(offset: u64, bytes: u32, open_flags: i32) -> Vec<u8> {
    let mut arguments = vec![0; 8];
    arguments.extend(offset.to_ne_bytes());
    arguments.extend(bytes.to_ne_bytes());
    arguments.extend([0; 12]);
    arguments.extend(open_flags.to_ne_bytes());
    arguments.extend([0; 4]);
    arguments
}

fn writing(offset: u64, payload: &[u8], open_flags: i32) -> Vec<u8> {
    [transfer(offset, payload.len() as u32, open_flags), payload.to_vec()].concat()
}

fn allocation(offset: u64, bytes: u64, mode: i32) -> Vec<u8> {
    let mut arguments = vec![0; 8];
    arguments.extend(offset.to_ne_bytes());
    arguments.extend(bytes.to_ne_bytes());
    arguments.extend(mode.to_ne_bytes());
    arguments.extend([0; 4]);
    arguments
}

fn parts(accepted: &Accepted) -> (Op, u64, u64, bool) {
    match accepted.task {
        Task::Array { op, range, fua } => (op, range.start, range.count, fua),
        other => panic!("{other:?}"),
    }
}

fn bytes_of(accepted: &mut Accepted, bytes: usize) -> &mut [u8] {
    let base = accepted.buffer.as_ref().unwrap().base();
    assert!(base.addr().is_multiple_of(4096), "buffers are for direct I/O");
    // SAFETY: the request's buffer, which is longer and nobody else's.
    unsafe { std::slice::from_raw_parts_mut(base, bytes) }
}

#[test]
fn the_kernels_greeting_is_answered_in_its_words() {
    let mut rig = Rig::new();
    let greet = |major: u32, minor: u32, flags: u32| {
        let mut arguments: Vec<u8> =
            [major, minor, 131_072, flags].into_iter().flat_map(u32::to_ne_bytes).collect();
        arguments.extend([0; 48]);
        arguments
    };
    let (errno, unique, body) = rig.asked(opcode::INIT, 0, &greet(7, 45, u32::MAX));
    assert_eq!((errno, unique, body.len()), (0, 7, 64));
    let fields = Fields(&body);
    assert_eq!((fields.u32_at(0), fields.u32_at(20)), (7, 1 << 20));
    let flags = fields.u32_at(12);
    assert_ne!(flags & 1 << 22, 0, "the longest transfer is said in pages");
    assert_eq!(flags & (1 << 16 | 1 << 3), 0, "the kernel neither caches writes nor cuts the file by itself");
    assert_eq!(fields.u32_at(28) & 0xffff, 256);
    // A later one asks again for 7; before 7.28 a transfer is 128 KiB.
    assert_eq!(Fields(&rig.asked(opcode::INIT, 0, &greet(8, 0, u32::MAX)).2).u32_at(0), 7);
    assert_eq!(rig.refusal(opcode::INIT, 0, &greet(7, 27, u32::MAX)), libc::EPROTO);
}

#[test]
fn the_folder_has_one_file_as_large_as_the_array() {
    let mut rig = Rig::new();
    let (errno, _, body) = rig.asked(opcode::LOOKUP, ROOT, b"disk\0");
    assert_eq!((errno, body.len()), (0, 128));
    let fields = Fields(&body);
    assert_eq!((fields.u64_at(0), fields.u64_at(48)), (FILE, BYTES));
    assert_eq!(rig.refusal(opcode::LOOKUP, ROOT, b"disks\0"), libc::ENOENT);
    let mode = |rig: &mut Rig, node| {
        let body = rig.asked(opcode::GETATTR, node, &[0; 16]).2;
        assert_eq!(body.len(), 104);
        Fields(&body).u32_at(76)
    };
    assert_eq!(mode(&mut rig, ROOT), 0o40555);
    assert_eq!(mode(&mut rig, FILE), 0o100_600);
    rig.export.read_only = true;
    assert_eq!(mode(&mut rig, FILE), 0o100_400);
    let whole = rig.asked(opcode::READDIR, ROOT, &transfer(0, 4096, 0)).2;
    assert_eq!(whole.len(), 32 + 32 + 32);
    assert!(whole.ends_with(b"disk\0\0\0\0"));
    assert_eq!(
        rig.asked(opcode::READDIR, ROOT, &transfer(0, 70, 0)).2,
        whole[..64],
        "as many as there is room for"
    );
    assert_eq!(rig.asked(opcode::READDIR, ROOT, &transfer(2, 70, 0)).2, whole[64..]);
    assert!(rig.asked(opcode::READDIR, ROOT, &transfer(3, 4096, 0)).2.is_empty());
    assert_eq!(Fields(&rig.asked(opcode::OPEN, FILE, &[0; 8]).2).u32_at(8), 1 | 1 << 6);
    let room = rig.asked(opcode::STATFS, FILE, &[]).2;
    assert!(room.len() == 80 && room[..24] == [0; 24], "no blocks, of which none is free or in use");
}

#[test]
fn the_file_is_in_use_until_the_last_user_lets_go_of_it() {
    let mut rig = Rig::new();
    assert_eq!(rig.refusal(opcode::OPENDIR, ROOT, &[0; 8]), 0);
    assert!(!rig.session.is_in_use(), "looking into the folder is no use of the file");
    for (asked, in_use) in
        [(opcode::OPEN, true), (opcode::OPEN, true), (opcode::RELEASE, true), (opcode::RELEASE, false)]
    {
        assert_eq!(rig.refusal(asked, FILE, &[0; 24]), 0);
        assert_eq!(rig.session.is_in_use(), in_use);
    }
}

#[test]
fn what_would_change_the_folder_or_the_size_is_refused() {
    let mut rig = Rig::new();
    for asked in [opcode::MKNOD, opcode::CREATE, opcode::UNLINK, opcode::RENAME2] {
        assert_eq!(rig.refusal(asked, ROOT, b"name\0"), libc::EPERM);
    }
    let set = |valid: u32, size: u64| {
        let mut arguments = vec![0; 88];
        arguments[..4].copy_from_slice(&valid.to_ne_bytes());
        arguments[16..24].copy_from_slice(&size.to_ne_bytes());
        arguments
    };
    assert_eq!(rig.refusal(opcode::SETATTR, FILE, &set(1 << 3, 0)), libc::EINVAL);
    let set_to = |valid: u32, mode: u32, uid: u32, gid: u32| {
        let mut arguments = set(valid, 0);
        for (place, number) in [(68, mode), (76, uid), (80, gid)] {
            arguments[place..place + 4].copy_from_slice(&number.to_ne_bytes());
        }
        arguments
    };
    // SAFETY: the calls take no pointers and cannot fail.
    let (uid, gid) = unsafe { (libc::geteuid(), libc::getegid()) };
    for (valid, mode, uid, gid) in [(1, 0o100_644, uid, gid), (2, 0, uid + 1, gid), (4, 0, uid, gid + 1)] {
        assert_eq!(rig.refusal(opcode::SETATTR, FILE, &set_to(valid, mode, uid, gid)), libc::EPERM);
    }
    assert_eq!(rig.refusal(opcode::SETATTR, FILE, &set_to(7, 0o100_600, uid, gid)), 0, "it is so already");
    assert_eq!(rig.refusal(opcode::SETATTR, ROOT, &set_to(1, 0o40555, uid, gid)), 0);
    assert_eq!(rig.refusal(opcode::SETATTR, FILE, &set(1 << 3, BYTES)), 0, "it is as large as that");
    assert_eq!(rig.refusal(opcode::SETATTR, FILE, &set(1 << 4 | 1 << 5, 0)), 0, "times are ignored");
    assert_eq!(rig.refusal(opcode::SETATTR + 17, FILE, &[0; 8]), libc::ENOSYS);
    // Nobody waits for an answer to these.
    rig.ask(42, 8, 0, &[0; 8]);
    rig.ask(2, 9, FILE, &[0; 8]);
    assert!(rig.next().is_none() && rig.answer().is_none());
}

/// The answer to a request that may be sent by another thread.
fn answer_soon(rig: &mut Rig) -> Answer {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        if let Some(answer) = rig.answer() {
            return answer;
        }
        assert!(Instant::now() < deadline, "no answer comes");
        std::thread::yield_now();
    }
}

#[test]
fn long_answers_are_sent_by_another_thread_with_what_was_lent() {
    const LONG: u32 = 128 << 10;
    static LENT: [u8; 4096] = [0xAB; 4096];
    let senders = || {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
        tasks
            .filter(|task| std::fs::read(task.path().join("comm")).is_ok_and(|name| name == b"answers\n"))
            .count()
    };
    let mut rig = Rig::new();
    for unique in 0..4 {
        rig.ask(opcode::READ, unique, FILE, &transfer(unique * u64::from(LONG), LONG, 0));
    }
    for unique in 0..4 {
        let mut accepted = rig.next().unwrap();
        assert!(accepted.takes_loans);
        let bytes = bytes_of(&mut accepted, LONG as usize);
        bytes.fill(unique as u8);
        let to = bytes[8192..].as_mut_ptr();
        let member = Arc::new(Member::Missing);
        rig.loans.push(Loan { to, bytes: 4096, from: LENT.as_ptr(), member, sector: 0 });
        rig.finish(accepted, Ok(()));
        let (errno, of, sent) = answer_soon(&mut rig);
        assert_eq!((errno, of, sent.len()), (0, unique, LONG as usize));
        assert!(sent[8192..12288] == LENT && rig.loans.is_empty());
        assert!(sent[..8192].iter().chain(&sent[12288..]).all(|byte| *byte == unique as u8));
        // From the second on; where there are CPUs for both.
        let is_expected = unique > 0 && std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() > 1);
        assert_eq!(senders(), usize::from(is_expected));
    }
    drop(rig);
    assert_eq!(senders(), 0, "it ends with the session");
}

#[test]
fn a_read_of_any_bytes_is_of_the_blocks_around_them() {
    let mut rig = Rig::new();
    let mut accepted = rig.task(opcode::READ, &transfer(1000, 100, 0));
    assert!(!accepted.takes_loans);
    assert_eq!(parts(&accepted), (Op::Read, 1, 2, false));
    for (byte, place) in bytes_of(&mut accepted, 1024).iter_mut().zip(0_u32..) {
        *byte = place as u8;
    }
    rig.finish(accepted, Ok(()));
    let right: Vec<u8> = (488_u32..588).map(|place| place as u8).collect();
    assert_eq!(rig.answer(), Some((0, 7, right)));
    // The end of the file cuts it, or leaves nothing.
    let accepted = rig.task(opcode::READ, &transfer(BYTES - 512, 4096, 0));
    assert_eq!((parts(&accepted), accepted.bytes), ((Op::Read, BYTES / 512 - 1, 1, false), 512));
    rig.finish(accepted, Err(IoError::Media));
    assert_eq!(rig.answer(), Some((libc::EIO, 7, Vec::new())));
    assert_eq!(rig.asked(opcode::READ, FILE, &transfer(BYTES, 4096, 0)), (0, 7, Vec::new()));
    rig.export.min_bytes = 4096;
    let accepted = rig.task(opcode::READ, &transfer(5000, 100, 0));
    assert_eq!(parts(&accepted), (Op::Read, 8, 8, false));
}

#[test]
fn a_write_arrives_whole_and_aligned_whatever_its_length() {
    let mut rig = Rig::new();
    // Moved out of the room, and left in it.
    for length in [512, 4096, 64 << 10, 65 << 10, 128 << 10] {
        let payload: Vec<u8> = (0..length).map(|place: u32| (place / 7) as u8).collect();
        let mut accepted = rig.task(opcode::WRITE, &writing(8192, &payload, 0));
        assert_eq!(parts(&accepted), (Op::Write, 16, u64::from(length) / 512, false));
        assert!(bytes_of(&mut accepted, length as usize) == payload.as_slice());
        rig.finish(accepted, Ok(()));
        let (errno, _, body) = rig.answer().unwrap();
        assert_eq!((errno, body.len(), Fields(&body).u32_at(0)), (0, 8, length));
    }
}

#[test]
fn bytes_around_an_unaligned_write_are_kept_and_others_wait() {
    let mut rig = Rig::new();
    let before = rig.task(opcode::READ, &transfer(0, 512, 0));
    rig.ask(opcode::WRITE, 8, FILE, &writing(1000, &[9; 100], libc::O_DSYNC));
    rig.ask(opcode::READ, 9, FILE, &transfer(0, 512, 0));
    assert!(rig.next().is_none() && !rig.session.is_patch_due(), "the read before it is under way");
    rig.finish(before, Ok(()));
    assert!(rig.session.is_patch_due());
    let mut around = rig.next().unwrap();
    assert_eq!(parts(&around), (Op::Read, 1, 2, false));
    assert!(rig.next().is_none(), "what it reads must not change");
    bytes_of(&mut around, 1024).fill(5);
    rig.finish(around, Ok(()));
    assert!(rig.session.is_patch_due());
    let mut write = rig.next().unwrap();
    assert_eq!((write.cookie, parts(&write)), (8, (Op::Write, 1, 2, true)));
    let bytes = bytes_of(&mut write, 1024);
    assert!(bytes[..488] == [5; 488] && bytes[488..588] == [9; 100] && bytes[588..] == [5; 436]);
    let read = rig.next().unwrap();
    rig.finish(write, Ok(()));
    rig.finish(read, Ok(()));
    let answers: Vec<_> =
        (0..3).filter_map(|_| rig.answer()).map(|(errno, unique, _)| (errno, unique)).collect();
    assert_eq!(answers, [(0, 7), (0, 8), (0, 9)]);
    // One whose surroundings cannot be read is not carried out.
    rig.ask(opcode::WRITE, 10, FILE, &writing(1, &[9; 512], 0));
    let around = rig.next().unwrap();
    rig.finish(around, Err(IoError::Media));
    assert_eq!(rig.answer(), Some((libc::EIO, 10, Vec::new())));
    assert!(rig.next().is_none() && !rig.session.is_patch_due());
}

#[test]
fn writes_are_judged_by_place_size_and_how_the_file_is_open() {
    let mut rig = Rig::new();
    let durable = rig.task(opcode::WRITE, &writing(0, &[1; 512], libc::O_WRONLY | libc::O_DSYNC));
    assert_eq!(parts(&durable), (Op::Write, 0, 1, true));
    let cut = rig.task(opcode::WRITE, &writing(BYTES - 512, &[1; 1024], 0));
    assert_eq!((parts(&cut), cut.bytes), ((Op::Write, BYTES / 512 - 1, 1, false), 512));
    assert_eq!(rig.refusal(opcode::WRITE, FILE, &writing(BYTES, &[1; 512], 0)), libc::ENOSPC);
    assert_eq!(rig.refusal(opcode::WRITE, FILE, &writing(u64::MAX - 511, &[1; 512], 0)), libc::ENOSPC);
    let lying = [transfer(0, 1024, 0), vec![1; 512]].concat();
    assert_eq!(rig.refusal(opcode::WRITE, FILE, &lying), libc::EINVAL);
    let sync = rig.task(opcode::FSYNC, &[0; 16]);
    assert_eq!(parts(&sync).0, Op::Flush);
    rig.finish(sync, Err(IoError::Lost));
    assert_eq!(rig.answer(), Some((libc::EIO, 7, Vec::new())));
    rig.finish(durable, Err(IoError::ReadOnly));
    assert_eq!(rig.answer(), Some((libc::EIO, 7, Vec::new())), "it is not mounted read-only");
    rig.export.read_only = true;
    assert_eq!(rig.refusal(opcode::WRITE, FILE, &writing(0, &[1; 512], 0)), libc::EROFS);
    assert_eq!(rig.refusal(opcode::FSYNC, FILE, &[0; 16]), 0);
}

#[test]
fn holes_are_zeroed_and_not_discarded() {
    let mut rig = Rig::new();
    let (hole, zero) = (libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE, libc::FALLOC_FL_ZERO_RANGE);
    let accepted = rig.task(opcode::FALLOCATE, &allocation(4096, BYTES - 4096, hole));
    assert_eq!(parts(&accepted), (Op::WriteZeroes, 8, BYTES / 512 - 8, false));
    rig.finish(accepted, Ok(()));
    assert_eq!(rig.answer(), Some((0, 7, Vec::new())));
    rig.export.fast_zero = false;
    assert_eq!(rig.refusal(opcode::FALLOCATE, FILE, &allocation(0, 4096, hole)), libc::EOPNOTSUPP);
    assert_eq!(parts(&rig.task(opcode::FALLOCATE, &allocation(0, 4096, zero))).0, Op::WriteZeroes);
    assert_eq!(rig.refusal(opcode::FALLOCATE, FILE, &allocation(0, 4096, 0)), libc::EOPNOTSUPP);
    rig.export.read_only = true;
    assert_eq!(rig.refusal(opcode::FALLOCATE, FILE, &allocation(0, 4096, zero)), libc::EROFS);
}

#[test]
fn requests_beyond_the_bound_wait_in_the_kernel() {
    let mut rig = Rig::new();
    let mut taken = Vec::new();
    for unique in 0..u64::from(REQUESTS_MAX) {
        rig.ask(opcode::READ, unique, FILE, &transfer(0, 512, 0));
        taken.extend(rig.next());
    }
    rig.ask(opcode::READ, 1000, FILE, &transfer(0, 512, 0));
    assert!(taken.len() == REQUESTS_MAX as usize && rig.next().is_none());
    rig.finish(taken.pop().unwrap(), Ok(()));
    assert_eq!(rig.next().unwrap().cookie, 1000);
}

#[test]
fn draining_answers_what_the_kernel_has_asked_for() {
    let mut rig = Rig::new();
    rig.ask(opcode::READ, 1, FILE, &transfer(0, 512, 0));
    rig.session.drain();
    let accepted = rig.next().unwrap();
    assert!(rig.next().is_none() && !rig.session.is_over());
    rig.ask(opcode::READ, 2, FILE, &transfer(0, 512, 0));
    assert!(rig.next().is_none(), "that came too late");
    rig.finish(accepted, Ok(()));
    assert!(rig.session.is_over());
    assert_eq!(rig.answer().unwrap().1, 1);
}

#[test]
fn a_mount_that_is_gone_is_over() {
    let mut rig = Rig::new();
    let accepted = rig.task(opcode::READ, &transfer(0, 512, 0));
    rig.kernel = File::open("/dev/null").unwrap();
    rig.session.tell(News { token: 0, readable: true, writable: true, ended: true, gone: false });
    assert!(rig.next().is_none() && rig.session.is_over());
    rig.finish(accepted, Ok(()));
}

proptest! {
    /// The kernel would not, but a request that makes no sense must end in an answer or in a task within the array.
    #[test]
    fn any_request_is_answered_or_within_the_array(
        opcode in 0_u32..60, node in 0_u64..4, arguments in prop::collection::vec(any::<u8>(), 0..200), cut in 0_usize..60,
    ) {
        let mut rig = Rig::new();
        let message = request(opcode, 5, node, &arguments);
        rig.kernel.write_all(&message[..message.len().saturating_sub(cut).max(1)]).unwrap();
        match rig.next() {
            Some(mut accepted) => {
                if let (Op::Read, Some(write)) = (parts(&accepted).0, Some(&mut rig).filter(|_| opcode == opcode::WRITE)) {
                    write.finish(accepted, Ok(()));
                    accepted = write.next().unwrap();
                }
                let (_, start, count, _) = parts(&accepted);
                prop_assert!((start + count) * 512 <= BYTES);
                rig.finish(accepted, Ok(()));
                prop_assert!(rig.answer().is_some());
            }
            None => prop_assert!(rig.answer().is_some() || matches!(opcode, opcode::FORGET | opcode::BATCH_FORGET)),
        }
    }
}
