//! The layer over a plain array of bytes that answers in any order, and what it asks for in named situations.

use proptest::prelude::*;
use proptest::test_runner::Config;

use super::*;

const SECTORS: u64 = 20_000;
const START: u64 = 100;

fn config() -> CryptConfig {
    CryptConfig { start_sector: START, sectors: SECTORS, unit_sectors: 1, buffer_bytes: 2 << 20 }
}

/// A sector is told by a mark; the cipher adds the sector's number and one.
struct Bench {
    crypt: Crypt,
    array: Vec<u64>,
    pages: Vec<u64>,
    buffers: Vec<Vec<u64>>,
    computes: Vec<(Tag, Kernel, Seg, Seg)>,
    asked: Vec<Request>,
    done: Vec<(u32, IoResult)>,
}

impl Bench {
    fn new(config: &CryptConfig) -> Self {
        Self {
            crypt: Crypt::new(config, START + SECTORS).unwrap(),
            array: vec![0; (START + SECTORS) as usize],
            pages: vec![0; config.pages() as usize * 8],
            buffers: Vec::new(),
            computes: Vec::new(),
            asked: Vec::new(),
            done: Vec::new(),
        }
    }

    fn after(&mut self, out: &ActionQueue) {
        while let Some(request) = self.crypt.next_below() {
            self.asked.push(request);
        }
        self.crypt.check_invariants();
        for action in &out.actions {
            match action {
                Action::Complete { id, result } => self.done.push((id.0, *result)),
                Action::Compute(c) => {
                    let seg = |list: OperandList| out.segs(out.operands(list)[0].segs)[0];
                    self.computes.push((c.tag, c.kernel, seg(c.sources), seg(c.targets)));
                }
                other => panic!("{other:?} is none of the layer's business"),
            }
        }
    }

    fn start(&mut self, id: u32, op: Op, start: u64, count: u64, buffer: Vec<u64>) {
        if self.buffers.len() <= id as usize {
            self.buffers.resize(id as usize + 1, Vec::new());
        }
        self.buffers[id as usize] = buffer;
        let range = SectorRange::new(start, count);
        let mut out = ActionQueue::default();
        self.crypt.request(Request { id: RequestId(id), op, range, flags: Flags::default() }, &mut out);
        self.after(&out);
    }

    fn place(&mut self, buf: Buf, sector: usize) -> &mut u64 {
        match buf {
            Buf::Request { id, offset } => {
                &mut self.buffers[id.0 as usize][(offset / SECTOR_BYTES) as usize + sector]
            }
            Buf::CryptPage { page, offset } => {
                &mut self.pages[page as usize * 8 + offset as usize / 512 + sector]
            }
            other => panic!("{other:?} is none of the layer's names"),
        }
    }

    fn compute(&mut self, index: usize) {
        let (tag, kernel, source, target) = self.computes.swap_remove(index);
        for sector in 0..source.bytes as usize / 512 {
            let from = if source.buf == Buf::Zero { 0 } else { *self.place(source.buf, sector) };
            *self.place(target.buf, sector) = match kernel {
                Kernel::Encrypt { sector: first } => from.wrapping_add(first + sector as u64 + 1),
                Kernel::Decrypt { sector: first } => from.wrapping_sub(first + sector as u64 + 1),
                other => panic!("{other:?} is no cipher"),
            };
        }
        let mut out = ActionQueue::default();
        self.crypt.computed(tag, &mut out);
        self.after(&out);
    }

    fn answer(&mut self, index: usize, result: IoResult) -> Request {
        let request = self.asked.swap_remove(index);
        let mut segs = Vec::new();
        if matches!(request.op, Op::Read | Op::Write) {
            self.crypt.name(request.id, 0, (request.range.count * SECTOR_BYTES) as u32, &mut segs);
        }
        for sector in 0..request.range.count as usize {
            let at = request.range.start as usize + sector;
            match request.op {
                _ if result.is_err() => {}
                Op::Read => *self.place(segs[0].buf, sector) = self.array[at],
                Op::Write => self.array[at] = *self.place(segs[0].buf, sector),
                _ => {}
            }
        }
        let mut out = ActionQueue::default();
        self.crypt.below_ended(request.id, result, &mut out);
        self.after(&out);
        request
    }

    fn drain(&mut self) {
        while !self.computes.is_empty() || !self.asked.is_empty() {
            if self.computes.is_empty() {
                self.answer(0, Ok(()));
            } else {
                self.compute(0);
            }
        }
        assert!(self.crypt.is_idle());
    }
}

#[test]
fn a_write_leaves_the_callers_bytes_alone_and_a_read_gets_them_back() {
    let mut bench = Bench::new(&config());
    bench.start(0, Op::Write, 7, 3, vec![40, 50, 60]);
    bench.drain();
    assert_eq!(bench.buffers[0], [40, 50, 60]);
    assert_eq!(bench.array[107..110], [48, 59, 70]);
    bench.start(1, Op::Read, 8, 2, vec![0; 2]);
    bench.drain();
    assert_eq!(bench.buffers[1], [50, 60]);
    assert_eq!(bench.done, [(0, Ok(())), (1, Ok(()))]);
}

#[test]
fn a_long_write_waits_for_pages_and_others_behind_it() {
    let mut bench = Bench::new(&config());
    bench.start(0, Op::Write, 0, 6000, vec![1; 6000]);
    bench.start(1, Op::Write, 7000, 8, vec![2; 8]);
    let encrypting = |bench: &Bench| bench.computes.iter().map(|c| c.2.bytes / 512).collect::<Vec<_>>();
    assert_eq!(encrypting(&bench), [2048, 2048], "1 MiB each, 2 MiB together");
    bench.compute(0);
    bench.compute(0);
    assert_eq!(bench.asked.iter().map(|r| r.flags.more).collect::<Vec<_>>(), [true, false]);
    assert_eq!(bench.answer(0, Ok(())).range.count, 2048);
    assert_eq!(encrypting(&bench), [1904, 8], "the rest, and the next");
    bench.drain();
    assert_eq!(bench.array[START as usize + 5999], 1 + 6000);
    assert_eq!(bench.done.len(), 2);
}

#[test]
fn a_failed_piece_fails_its_request_once_and_leaves_the_rest_of_it() {
    let mut bench = Bench::new(&config());
    bench.start(0, Op::Write, 0, 10_000, vec![1; 10_000]);
    bench.start(1, Op::WriteZeroes, 10_000, 5, Vec::new());
    bench.compute(0);
    bench.answer(0, Err(IoError::NoSpace));
    bench.drain();
    bench.done.sort_unstable_by_key(|done| done.0);
    assert_eq!(bench.done, [(0, Err(IoError::NoSpace)), (1, Ok(()))]);
    assert_eq!(bench.array[START as usize + 4096], 0, "what was not begun is not written");
    assert_eq!(bench.array[START as usize + 10_001], 10_002, "zeroes are encrypted");
    bench.start(0, Op::Read, 0, 5, vec![0; 5]);
    bench.answer(0, Err(IoError::Media));
    assert_eq!(bench.done.pop(), Some((0, Err(IoError::Media))), "nothing is decrypted");
}

#[test]
fn flushes_go_down_and_discards_do_not() {
    let mut bench = Bench::new(&config());
    bench.start(0, Op::Discard, 0, 8, Vec::new());
    assert_eq!(bench.done.pop(), Some((0, Ok(()))));
    bench.start(0, Op::Flush, 0, 0, Vec::new());
    assert_eq!(bench.answer(0, Err(IoError::Gone)).op, Op::Flush);
    assert_eq!(bench.done.pop(), Some((0, Err(IoError::Gone))));
}

#[test]
fn ranges_outside_or_within_a_sector_are_refused() {
    let mut bench = Bench::new(&CryptConfig { unit_sectors: 8, ..config() });
    for (start, count) in [(1, 8), (0, 4), (SECTORS, 8), (SECTORS - 8, 16), (u64::MAX - 7, 8), (0, 0)] {
        for op in [Op::Read, Op::Write, Op::WriteZeroes, Op::Discard] {
            bench.start(0, op, start, count, Vec::new());
            assert_eq!(bench.done.pop(), Some((0, Err(IoError::Range))), "{op:?} of {count} at {start}");
        }
    }
}

#[test]
fn impossible_payloads_are_refused_with_the_value() {
    let refused = |change: &dyn Fn(&mut CryptConfig)| {
        let mut config = config();
        change(&mut config);
        Crypt::new(&config, START + SECTORS).unwrap_err().to_string()
    };
    assert!(refused(&|c| c.unit_sectors = 3).contains("1, 2, 4 or 8"));
    assert!(refused(&|c| c.sectors = 0).contains("not empty"));
    assert!(refused(&|c| (c.unit_sectors, c.sectors) = (8, 12)).contains("multiple of its 8"));
    assert!(refused(&|c| c.sectors += 1).contains("the array has 20100"));
    assert!(refused(&|c| c.start_sector = u64::MAX).contains("the array has 20100"));
    assert!(refused(&|c| c.buffer_bytes = 4096).contains("at least 1048576"));
}

proptest! {
    #![proptest_config(Config::with_cases(64))]

    #[test]
    fn whatever_the_order_every_request_ends_once_and_bytes_come_back(
        picks in prop::collection::vec((any::<bool>(), any::<u16>()), 0..200),
        zones in prop::collection::vec((0u64..1000, 1u64..3000), 5),
    ) {
        let mut bench = Bench::new(&config());
        let mut want = vec![None; SECTORS as usize];
        for (id, (skip, count)) in (0..).zip(zones) {
            let start = u64::from(id) * 4000 + skip;
            let buffer: Vec<u64> = (0..count).map(|s| u64::from(id + 1) << 32 | s).collect();
            want[start as usize..(start + count) as usize].fill(Some(id));
            bench.start(id, Op::Write, start, count, buffer);
        }
        for (is_compute, pick) in picks {
            if is_compute && !bench.computes.is_empty() {
                bench.compute(usize::from(pick) % bench.computes.len());
            } else if !bench.asked.is_empty() {
                bench.answer(usize::from(pick) % bench.asked.len(), Ok(()));
            }
        }
        bench.drain();
        bench.done.sort_unstable_by_key(|done| done.0);
        prop_assert_eq!(&bench.done, &(0..5).map(|id| (id, Ok(()))).collect::<Vec<_>>());
        bench.start(5, Op::Read, 0, SECTORS, vec![0; SECTORS as usize]);
        bench.drain();
        for (sector, want) in want.into_iter().enumerate() {
            let found = bench.buffers[5][sector];
            if let Some(id) = want {
                prop_assert_eq!(found >> 32, u64::from(id + 1), "sector {}", sector);
            } else {
                prop_assert_eq!(found, 0u64.wrapping_sub(sector as u64 + 1), "sector {}", sector);
            }
        }
    }
}
