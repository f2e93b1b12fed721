//! Reads within a page that is there, and what waits for them.

use super::*;

fn start(bench: &mut Bench, id: u32, op: Op, start: u64, count: u64, flags: Flags) {
    bench.buffers.insert(id, vec![9; count as usize]);
    bench.start(Request { id: RequestId(id), op, range: SectorRange::new(start, count), flags });
}

#[test]
fn a_read_is_one_copy_and_its_answer() {
    let mut bench = Bench::new(&config(), 8192);
    bench.one(Op::Write, 8, 8, BUFFERED).unwrap();
    start(&mut bench, 3, Op::Read, 11, 2, BUFFERED);
    assert!(!bench.cache.is_idle() && bench.done.is_empty());
    let page = Seg { buf: Buf::CachePage { frame: 0, offset: 1536 }, bytes: 1024 };
    let caller = Seg { buf: Buf::Request { id: RequestId(3), offset: 0 }, bytes: 1024 };
    assert_eq!((&bench.copies[0].1, &bench.copies[0].2), (&vec![page], &vec![caller]));
    bench.end_copy(0);
    assert_eq!((bench.done.pop(), &bench.buffers[&3]), (Some((3, Ok(()))), &vec![7, 7]));
    assert!(bench.cache.is_idle());
    assert_eq!(bench.cache.stats().hits, 1);
}

#[test]
fn a_write_past_the_cache_waits_for_a_read_and_holds_up_others_of_its_pages() {
    let mut bench = Bench::new(&config(), 8192);
    bench.one(Op::Read, 8, 16, BUFFERED).unwrap();
    bench.log.clear();
    start(&mut bench, 1, Op::Read, 10, 2, BUFFERED);
    start(&mut bench, 2, Op::WriteZeroes, 8, 16, DIRECT);
    start(&mut bench, 3, Op::Read, 16, 8, BUFFERED);
    assert_eq!((bench.copies.len(), bench.asked.len()), (1, 0), "the second page is there still, but taken");
    bench.end_copy(0);
    assert_eq!(bench.asked_ranges(Op::WriteZeroes), [(8, 16)]);
    bench.drain();
    assert_eq!(bench.buffers[&3], [0; 8]);
}

#[test]
fn who_waits_for_a_frame_goes_on_when_a_read_ends() {
    let mut bench = Bench::new(&config(), 8192);
    for page in 1..=256 {
        bench.one(Op::Read, page * 24, 8, BUFFERED).unwrap();
    }
    for page in 1..=256 {
        start(&mut bench, page, Op::Read, u64::from(page) * 24, 8, BUFFERED);
    }
    assert_eq!(bench.copies.len(), 256, "every frame is in use");
    bench.log.clear();
    start(&mut bench, 999, Op::Read, 8, 8, BUFFERED);
    assert!(bench.asked.is_empty());
    bench.end_copy(0);
    assert_eq!(bench.asked_ranges(Op::Read), [(8, 8)]);
    bench.drain();
}

#[test]
fn a_stream_is_known_by_reads_of_what_is_there() {
    let mut bench = Bench::new(&config(), 8192);
    bench.one(Op::Read, 800, 8, BUFFERED).unwrap();
    bench.one(Op::Read, 4000, 8, BUFFERED).unwrap();
    bench.log.clear();
    bench.one(Op::Read, 800, 8, BUFFERED).unwrap();
    bench.one(Op::Read, 808, 8, BUFFERED).unwrap();
    let asked = bench.asked_ranges(Op::Read);
    assert!(matches!(asked[..], [(808, count)] if count > 8), "reads ahead from there on: {asked:?}");
}

#[test]
fn pages_read_again_outlive_a_scan_and_the_two_halves_of_a_page_are_one_read() {
    let mut bench = Bench::new(&config(), 1 << 16);
    for (start, count) in [(8, 8), (8, 8), (24, 4), (28, 4)] {
        bench.one(Op::Read, start, count, BUFFERED).unwrap();
    }
    (100..400).for_each(|page| bench.one(Op::Read, page * 16, 8, BUFFERED).unwrap());
    bench.log.clear();
    bench.one(Op::Read, 8, 8, BUFFERED).unwrap();
    assert_eq!(bench.asked_ranges(Op::Read), [], "read twice");
    bench.one(Op::Read, 24, 8, BUFFERED).unwrap();
    assert_eq!(bench.asked_ranges(Op::Read), [(24, 8)], "read once, in halves");
}

#[test]
fn what_a_page_has_beyond_the_volume_is_refused() {
    let mut bench = Bench::new(&config(), 100);
    bench.one(Op::Read, 96, 4, BUFFERED).unwrap();
    assert_eq!(bench.one(Op::Read, 98, 2, BUFFERED), Ok(()));
    assert_eq!(bench.one(Op::Read, 98, 3, BUFFERED), Err(IoError::Range));
    assert_eq!(bench.one(Op::Read, 98, 0, BUFFERED), Err(IoError::Range));
}
