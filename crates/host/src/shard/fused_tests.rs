//! What is computed while it is written: where it goes, and who is told.

use stripewise_engine::io::{ActionQueue, Buf, Compute, Kernel, Operand, OperandList, Role, Seg, Tag};
use stripewise_engine::units::Slot;
use stripewise_parity::kernels;

use super::Bytes;
use super::bytes::Buffers;
use super::fused::{Fused, Lent};
use crate::buffers::{Arena, PAGE, Zeroes};

const BYTES: usize = 5 * PAGE;
const RAID5: &[Role] = &[Role::Data(0), Role::Data(1), Role::Data(2), Role::P];
/// The parities where a stripe's P is in the last slot: Q is before it.
const RAID6: &[Role] = &[Role::Q, Role::Data(0), Role::Data(1), Role::Data(2), Role::P];

/// A stripe whose blocks are pages of the stripe cache, and members of as many bytes that hold something else.
struct Stage {
    roles: &'static [Role],
    buffers: Buffers,
    zeroes: Zeroes,
    queue: ActionQueue,
    members: Vec<Vec<u8>>,
    fused: Fused,
}

impl Stage {
    fn new(roles: &'static [Role]) -> Self {
        let slots = roles.len() as u16;
        let arena = Arena::new(slots, 8).unwrap();
        for slot in 0..slots {
            let page = arena.address(2, Slot(slot), 0, BYTES as u32);
            // SAFETY: the pages are the arena's.
            unsafe { page.write_bytes(1 << slot, BYTES) };
        }
        Self {
            roles,
            buffers: Buffers { arena: Some(arena), ..Buffers::default() },
            zeroes: Zeroes::new().unwrap(),
            queue: ActionQueue::default(),
            members: vec![vec![0xee; BYTES]; roles.len()],
            fused: Fused::default(),
        }
    }

    fn page(&self, slot: usize) -> *mut u8 {
        self.buffers.arena.as_ref().unwrap().address(2, Slot(slot as u16), 0, BYTES as u32)
    }

    fn bytes(&self, slot: usize) -> Vec<u8> {
        // SAFETY: the page is the arena's or a member's.
        unsafe { std::slice::from_raw_parts(self.page(slot), BYTES) }.to_vec()
    }

    fn ask(&mut self, kernel: Kernel, sources: &[usize], targets: &[usize], bytes: usize) -> Compute {
        self.queue.clear();
        let mut list = |slots: &[usize]| {
            let first = self.queue.operands.len() as u32;
            for &slot in slots {
                let buf = Buf::Page { entry: 2, slot: Slot(slot as u16), offset: 0 };
                let segs = self.queue.add_seg(Seg { buf, bytes: bytes as u32 });
                self.queue.operands.push(Operand { role: self.roles[slot], segs });
            }
            OperandList { first, count: slots.len() as u32 }
        };
        let (sources, targets) = (list(sources), list(targets));
        Compute { tag: Tag(9), kernel, bytes: bytes as u64, sources, targets }
    }

    fn begin(&mut self, kernel: Kernel, sources: &[usize], targets: &[usize], bytes: usize) -> bool {
        let compute = self.ask(kernel, sources, targets, bytes);
        let names = Bytes { buffers: &self.buffers, zeroes: &self.zeroes, metadata: &[] };
        self.fused.begin(&compute, &self.queue, &names)
    }

    /// A computation joins the one that waits, if it can.
    fn join(&mut self, kernel: Kernel, sources: &[usize], targets: &[usize], bytes: usize) -> bool {
        let compute = self.ask(kernel, sources, targets, bytes);
        let names = Bytes { buffers: &self.buffers, zeroes: &self.zeroes, metadata: &[] };
        let joins = self.fused.is_joined_by(&compute, &self.queue, &names);
        if joins {
            self.fused.join(&compute, &self.queue, &names);
        }
        joins
    }

    /// The block of a slot is written to its member.
    fn take(&mut self, slot: usize) -> bool {
        let run = (self.page(slot), BYTES);
        self.fused.take(Tag(slot as u64), self.members[slot].as_mut_ptr(), std::iter::once(run))
    }

    /// Answers which writes ended.
    fn finish(&mut self) -> Vec<u64> {
        let arena = self.buffers.arena.as_mut().unwrap();
        let mut ended = Vec::new();
        let lend = |Lent { entry, slot, bytes, from }| arena.lend(entry, slot, bytes, from);
        // SAFETY: pages and members are there.
        unsafe { self.fused.finish(lend, |tag| ended.push(tag.0)) };
        ended
    }
}

#[test]
fn a_lost_block_is_computed_to_its_member_which_lends_it() {
    let mut stage = Stage::new(RAID5);
    assert!(stage.begin(Kernel::Recover, &[0, 2, 3], &[1], BYTES));
    assert!(!stage.take(0), "what it is recovered from is written by itself");
    assert!(stage.take(1) && !stage.take(1));
    assert_eq!(stage.finish(), [1]);
    assert_eq!(stage.members[1], vec![1 ^ 4 ^ 8; BYTES]);
    assert_eq!(stage.page(1), stage.members[1].as_mut_ptr());
    assert!(!stage.fused.is_pending());
}

#[test]
fn what_nobody_writes_is_computed_to_its_pages() {
    let mut stage = Stage::new(RAID5);
    let own = stage.page(1);
    assert!(stage.begin(Kernel::Recover, &[0, 2, 3], &[1], BYTES));
    assert!(stage.finish().is_empty());
    assert_eq!((stage.page(1), stage.bytes(1)), (own, vec![1 ^ 4 ^ 8; BYTES]));
}

#[test]
fn data_are_copied_and_parity_goes_to_its_member() {
    let mut stage = Stage::new(RAID5);
    // In another order than that of their indices.
    assert!(stage.begin(Kernel::Generate, &[2, 0, 1], &[3], BYTES));
    assert!([1, 3, 0].into_iter().all(|slot| stage.take(slot)));
    assert_eq!(stage.finish(), [0, 1, 3]);
    let expected = [(0, 1), (1, 2), (2, 0xee), (3, 7)];
    for (slot, byte) in expected {
        assert_eq!(stage.members[slot], vec![byte; BYTES], "{slot}");
    }
    assert_eq!(stage.page(3), stage.members[3].as_mut_ptr());
    assert_ne!(stage.page(0), stage.members[0].as_mut_ptr());
}

#[test]
fn parts_of_pages_and_short_or_other_computations_do_not_wait() {
    let mut stage = Stage::new(RAID5);
    let part = BYTES - 512;
    assert!(!stage.begin(Kernel::Recover, &[0, 2, 3], &[1], part));
    assert!(!stage.begin(Kernel::Generate, &[0, 1, 2], &[3], PAGE));
    assert!(!stage.begin(Kernel::Generate, &[0, 2], &[3], BYTES), "of all data");
    assert!(!stage.begin(Kernel::Update, &[0, 1, 2], &[3], BYTES));
    assert!(!stage.begin(Kernel::Generate, &[0, 1, 2], &[3], part));
    assert!(!stage.fused.is_pending());
}

#[test]
fn both_parities_go_to_their_members_wherever_they_are() {
    let mut stage = Stage::new(RAID6);
    let data = [1, 2, 3].map(|slot| stage.bytes(slot));
    let (mut p, mut q) = (vec![0; BYTES], vec![0; BYTES]);
    kernels().pq(&mut p, &mut q, &[Some(&data[0]), Some(&data[1]), Some(&data[2])]);
    for data_too in [true, false] {
        assert!(stage.begin(Kernel::Generate, &[1, 2, 3], &[0, 4], BYTES));
        assert!((0..5).filter(|slot| data_too || [0, 4].contains(slot)).all(|slot| stage.take(slot)));
        assert_eq!(stage.finish().len(), if data_too { 5 } else { 2 });
        assert!(stage.members[0] == q && stage.members[4] == p);
        assert_eq!(stage.page(0), stage.members[0].as_mut_ptr());
        for slot in [0, 4] {
            stage.members[slot].fill(0xee);
        }
    }
    assert_eq!(stage.members[2], data[1]);
}

#[test]
fn q_alone_goes_to_its_member() {
    let mut stage = Stage::new(RAID6);
    let data = [1, 2, 3].map(|slot| stage.bytes(slot));
    let (mut p, mut q) = (vec![0; BYTES], vec![0; BYTES]);
    kernels().pq(&mut p, &mut q, &[Some(&data[0]), Some(&data[1]), Some(&data[2])]);
    assert!(stage.begin(Kernel::Generate, &[1, 2, 3], &[0], BYTES));
    assert!(!stage.take(1) && stage.take(0));
    assert_eq!(stage.finish(), [0]);
    assert!(stage.members[0] == q);
    assert_eq!(stage.page(0), stage.members[0].as_mut_ptr());
}

/// Slots 0 and 4 hold Q and P.
#[test]
fn a_lost_parity_joins_the_lost_block_that_it_is_of() {
    for (known, lost_parity) in [(4, 0), (0, 4)] {
        let mut stage = Stage::new(RAID6);
        let data = [1, 2, 3].map(|slot| stage.bytes(slot));
        let (mut p, mut q) = (vec![0; BYTES], vec![0; BYTES]);
        kernels().pq(&mut p, &mut q, &[Some(&data[0]), Some(&data[1]), Some(&data[2])]);
        let (parity, other) = if known == 4 { (&p, &q) } else { (&q, &p) };
        for (slot, bytes) in [(known, parity), (2, &vec![0xdd; BYTES])] {
            // SAFETY: the page is the arena's.
            unsafe { stage.page(slot).copy_from_nonoverlapping(bytes.as_ptr(), BYTES) };
        }
        for is_data_written_first in [true, false] {
            assert!(stage.begin(Kernel::Recover, &[1, 3, known], &[2], BYTES));
            assert!(stage.join(Kernel::Generate, &[1, 2, 3], &[lost_parity], BYTES));
            let order = if is_data_written_first { [2, lost_parity] } else { [lost_parity, 2] };
            assert!(order.into_iter().all(|slot| stage.take(slot)) && !stage.take(1));
            assert_eq!(stage.finish(), [2, lost_parity as u64]);
            for (slot, bytes) in [(2, &data[1]), (lost_parity, other)] {
                assert!(stage.members[slot] == *bytes, "slot {slot}");
                assert_eq!(stage.page(slot), stage.members[slot].as_mut_ptr());
                stage.members[slot].fill(0xee);
            }
        }
    }
}

#[test]
fn of_a_block_and_its_parity_one_alone_may_be_written() {
    for (written, other) in [(0, 2), (2, 0)] {
        let mut stage = Stage::new(RAID6);
        let p: Vec<u8> =
            (0..BYTES).map(|i| [1, 2, 3].iter().fold(0, |sum, slot| sum ^ stage.bytes(*slot)[i])).collect();
        // SAFETY: the page is the arena's.
        unsafe { stage.page(4).copy_from_nonoverlapping(p.as_ptr(), BYTES) };
        let data = [1, 2, 3].map(|slot| stage.bytes(slot));
        let (mut p, mut q) = (vec![0; BYTES], vec![0; BYTES]);
        kernels().pq(&mut p, &mut q, &[Some(&data[0]), Some(&data[1]), Some(&data[2])]);
        let expected = |slot| if slot == 0 { &q } else { &data[1] };
        // SAFETY: the page is the arena's.
        unsafe { stage.page(2).write_bytes(0xdd, BYTES) };
        assert!(stage.begin(Kernel::Recover, &[1, 3, 4], &[2], BYTES));
        assert!(stage.join(Kernel::Generate, &[1, 2, 3], &[0], BYTES));
        assert!(stage.take(written));
        assert_eq!(stage.finish(), [written as u64]);
        assert!(stage.members[written] == *expected(written) && stage.members[other] == vec![0xee; BYTES]);
        assert!(stage.bytes(other) == *expected(other));
        assert_ne!(stage.page(other), stage.members[other].as_mut_ptr());
    }
}

#[test]
fn other_computations_do_not_join() {
    let mut stage = Stage::new(RAID6);
    assert!(!stage.join(Kernel::Generate, &[1, 2, 3], &[0], BYTES), "nothing waits");
    assert!(stage.begin(Kernel::Recover, &[1, 3, 4], &[2], BYTES));
    assert!(!stage.join(Kernel::Generate, &[1, 2, 3], &[4], BYTES), "it is known");
    assert!(!stage.join(Kernel::Generate, &[1, 3], &[0], BYTES), "not of all data");
    assert!(!stage.join(Kernel::Generate, &[1, 3, 4], &[0], BYTES), "of something else");
    assert!(!stage.join(Kernel::Generate, &[1, 2, 3], &[0], BYTES - PAGE), "of another length");
    assert!(!stage.join(Kernel::Update, &[1, 2, 3], &[0], BYTES));
    assert!(stage.take(2));
    assert!(!stage.join(Kernel::Generate, &[1, 2, 3], &[0], BYTES), "what it is made of is being written");
    stage.finish();
    assert!(stage.begin(Kernel::Recover, &[1, 4, 0], &[2, 3], BYTES));
    assert!(!stage.join(Kernel::Generate, &[1, 2, 3], &[0], BYTES), "two are lost already");
    stage.finish();
    assert!(stage.begin(Kernel::Generate, &[1, 2, 3], &[4], BYTES));
    assert!(!stage.join(Kernel::Generate, &[1, 2, 3], &[0], BYTES), "nothing is lost");
    stage.finish();
}
