//! More readers than a small cache has room for, and what is counted of them.

use super::*;

/// Readers of so many pages each, all at once. Answers in how many steps they end, oldest first or, with a seed, in any order.
fn readers_end_in(readers: u32, pages: u64, readahead_pages: u64, seed: u64) -> Option<u64> {
    let config = CacheConfig { readahead_sectors: Some(readahead_pages * 8), ..config() };
    let each = pages * PAGE_SECTORS;
    let mut bench = Bench::new(&config, (u64::from(readers) + 1) * each);
    for id in 0..readers {
        bench.buffers.insert(id, vec![9; each as usize]);
        let flags = Flags { stream: id as u16, ..BUFFERED };
        let range = SectorRange::new(u64::from(id + 1) * each, each);
        bench.start(Request { id: RequestId(id), op: Op::Read, range, flags });
    }
    let mut random = seed;
    (0..10_000).find(|_| {
        if !bench.copies.is_empty() {
            bench.end_copy(0);
        } else if seed == 0 {
            // The newest takes the place of the one that is answered.
            let oldest = bench.asked.remove(0);
            bench.asked.push(oldest);
            bench.answer(bench.asked.len() - 1, Ok(()));
        } else {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            bench.answer((random >> 33) as usize % bench.asked.len(), Ok(()));
        }
        bench.done.len() == readers as usize
    })
}

#[test]
fn readers_of_a_small_cache_come_to_their_ends() {
    for (readers, pages, readahead) in
        [(2, 2048, 32), (4, 2048, 32), (8, 512, 64), (8, 512, 128), (16, 64, 128), (32, 16, 128)]
    {
        for seed in 0..3 {
            let steps = readers_end_in(readers, pages, readahead, seed);
            assert!(
                steps.is_some(),
                "{readers} readers of {pages} pages, readahead {readahead}, seed {seed}"
            );
        }
    }
}

#[test]
fn a_page_that_is_there_does_not_make_room_for_what_is_read_ahead_of_it() {
    let mut bench = Bench::new(&CacheConfig { readahead_sectors: Some(256), ..config() }, 8192);
    let start = |bench: &mut Bench, id, page: u64, flags| {
        bench.buffers.insert(id, vec![9; 8]);
        let range = SectorRange::new(page * PAGE_SECTORS, PAGE_SECTORS);
        bench.start(Request { id: RequestId(id), op: Op::Read, range, flags });
    };
    // Pages 0 to 3, of which the next after 0 is marked; all other frames are in use.
    bench.one(Op::Read, 0, 8, BUFFERED).unwrap();
    let other = Flags { stream: 1, ..BUFFERED };
    let others: Vec<u64> = (0..252).map(|n| 300 + n * 2).collect();
    for page in &others {
        bench.one(Op::Read, page * PAGE_SECTORS, 8, other).unwrap();
    }
    for (id, page) in others.into_iter().chain([0, 2, 3]).enumerate() {
        start(&mut bench, id as u32, page, other);
    }
    assert_eq!(bench.copies.len(), 255);
    start(&mut bench, 999, 1, BUFFERED);
    assert_eq!((bench.copies.len(), bench.asked.len()), (256, 0), "there is no room to read ahead");
    bench.drain();
    assert!(bench.done.contains(&(999, Ok(()))));
}

#[test]
fn a_page_is_a_hit_or_a_miss_of_its_reader() {
    let mut bench = Bench::new(&config(), 8192);
    let counts = |bench: &Bench| (bench.cache.stats().hits, bench.cache.stats().misses);
    for page in [500, 100, 900] {
        bench.one(Op::Read, page * 8, 8, BUFFERED).unwrap();
    }
    assert_eq!(counts(&bench), (0, 3));
    bench.one(Op::Read, 4000, 8, BUFFERED).unwrap();
    assert_eq!(counts(&bench), (1, 3));
    bench.one(Op::Write, 801, 2, BUFFERED).unwrap();
    bench.one(Op::Write, 80, 2, BUFFERED).unwrap();
    assert_eq!(counts(&bench), (1, 3), "writes are none");
    // Two wait for the same page.
    for id in [1, 2] {
        bench.buffers.insert(id, vec![9; 8]);
        let range = SectorRange::new(5600, 8);
        bench.start(Request { id: RequestId(id), op: Op::Read, range, flags: BUFFERED });
    }
    bench.drain();
    assert_eq!(counts(&bench), (1, 5));
}
