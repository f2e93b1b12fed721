use super::*;
use crate::random::Random;

const LIMITS: QueueLimits = QueueLimits {
    request_sectors_max: 256,
    nr_requests: 128,
    expire_ns: [1_000, 10_000],
    batch: 16,
    write_back: true,
    fua: true,
};

/// The sectors of requests, which come a nanosecond after each other, in the order they go to a drive that takes one at a time,
/// a microsecond each, and is at sector 50,000.
fn order(limits: QueueLimits, requests: &[(CommandOp, u64)]) -> Vec<u64> {
    let (mut queue, mut fanout, mut done) = (BlockQueue::new(limits, None, 1), Fanout::default(), Vec::new());
    queue.position = 50_000;
    for (tag, &(op, start)) in (0..).zip(requests) {
        queue.add(tag, op, (start, 8), Tag(tag), None, &mut fanout);
    }
    let mut sectors = Vec::new();
    for now_ns in (500..).step_by(1_000) {
        let Some((tag, _, start, _)) = queue.next(now_ns, &mut fanout) else { break };
        sectors.push(start);
        queue.complete(now_ns, tag, &mut fanout, &mut done);
    }
    assert_eq!((sectors.len(), queue.is_idle()), (requests.len(), true));
    sectors
}

#[test]
fn what_was_queued_too_long_goes_first_and_a_batch_follows_it_in_order() {
    let mut random = Random::new(1);
    let requests: Vec<_> = (0..128).map(|_| (CommandOp::Read, random.below(1 << 30) * 16)).collect();
    let order = order(LIMITS, &requests);
    // The first is taken before any is due; then the one that came first of those left, with fifteen after it, and so on.
    let mut left: Vec<u64> = requests.iter().map(|request| request.1).filter(|s| *s != order[0]).collect();
    for batch in order[1..].chunks(16) {
        assert_eq!(batch[0], left[0]);
        let turns = batch.windows(2).filter(|pair| pair[1] < pair[0]).count();
        assert!(turns <= 1, "{batch:?}");
        left.retain(|sector| !batch.contains(sector));
    }
}

#[test]
fn a_drive_without_a_volatile_cache_gets_no_flush_and_no_forced_write() {
    for write_back in [true, false] {
        let limits = QueueLimits { write_back, ..LIMITS };
        let (mut queue, mut fanout) = (BlockQueue::new(limits, None, 4), Fanout::default());
        queue.add(0, CommandOp::WriteFua, (0, 8), Tag(1), None, &mut fanout);
        let (_, op, ..) = queue.next(0, &mut fanout).unwrap();
        assert_eq!(op, if write_back { CommandOp::WriteFua } else { CommandOp::Write });
        queue.add(1, CommandOp::Flush, (0, 0), Tag(2), None, &mut fanout);
        queue.add(2, CommandOp::Write, (100, 8), Tag(3), None, &mut fanout);
        assert_eq!(queue.next(2, &mut fanout).is_some(), !write_back, "a flush lets nothing past");
        let answered: &[Tag] = if write_back { &[] } else { &[Tag(2)] };
        assert_eq!(queue.answered(), answered);
        assert_eq!(queue.stats.flushes, u64::from(write_back));
    }
}

#[test]
fn a_read_goes_before_the_writes_that_go_on_ahead_of_it() {
    let writes = (0..200).map(|n| (CommandOp::Write, 100_000 + n * 1_000));
    let requests: Vec<_> = writes.chain([(CommandOp::Read, 8)]).collect();
    let place = |expire_ns| {
        order(QueueLimits { expire_ns, ..LIMITS }, &requests).iter().position(|start| *start == 8).unwrap()
    };
    assert_eq!(place([5_000, u64::MAX]), 5, "it does not wait for room behind them");
    assert!(place([u64::MAX, u64::MAX]) >= 200 - 128, "in order of sectors it is the last");
}

/// As `REQ_PREFLUSH`: those that wait share a flush, nothing of theirs goes before it has ended, and others wait for it.
#[test]
fn writes_behind_a_flush_go_when_it_has_ended() {
    let limits = QueueLimits { request_sectors_max: 1024, expire_ns: [u64::MAX; 2], ..LIMITS };
    let (mut queue, mut fanout, mut done) = (BlockQueue::new(limits, None, 4), Fanout::default(), Vec::new());
    queue.add(0, CommandOp::Write, (800, 8), Tag(1), None, &mut fanout);
    let (first, ..) = queue.next(0, &mut fanout).unwrap();
    queue.add_behind_flush(0, CommandOp::WriteFua, (16, 8), Tag(2), false, &mut fanout);
    queue.add_behind_flush(0, CommandOp::WriteFua, (64, 8), Tag(3), false, &mut fanout);
    assert!(queue.next(0, &mut fanout).is_none(), "a flush goes alone");
    queue.complete(1, first, &mut fanout, &mut done);
    let (flush, op, ..) = queue.next(1, &mut fanout).unwrap();
    assert_eq!((op, queue.stats.flushes, queue.stats.writes), (CommandOp::Flush, 1, 1));
    assert!(queue.next(1, &mut fanout).is_none() && !queue.is_idle());
    queue.complete(2, flush, &mut fanout, &mut done);
    assert_eq!(done, [Tag(1)]);
    let next = |queue: &mut BlockQueue, fanout: &mut Fanout| queue.next(2, fanout).map(|c| (c.0, c.1, c.2));
    let (a, b) = (next(&mut queue, &mut fanout).unwrap(), next(&mut queue, &mut fanout).unwrap());
    assert_eq!([(a.1, a.2), (b.1, b.2)], [(CommandOp::WriteFua, 16), (CommandOp::WriteFua, 64)]);
    queue.complete(3, a.0, &mut fanout, &mut done);
    queue.complete(3, b.0, &mut fanout, &mut done);
    assert_eq!((done.as_slice(), queue.stats.flushes), (&[Tag(1), Tag(2), Tag(3)][..], 1));
    assert!(queue.is_idle());
}

/// What was there when a flush came and had room in the drive goes before it, unless the flush passes it; the write behind the
/// flush, and the flush after that, go before what is queued still.
#[test]
fn a_flush_and_its_write_go_before_what_the_drive_has_no_room_for() {
    const FLUSH: u64 = 0;
    for (passes, wanted) in [
        (false, [1000, 2000, FLUSH, 16, 3000, FLUSH, 4000]),
        (true, [FLUSH, 16, 1000, FLUSH, 2000, 3000, 4000]),
    ] {
        let limits = QueueLimits { fua: false, ..LIMITS };
        let (mut queue, mut fanout, mut done) =
            (BlockQueue::new(limits, None, 2), Fanout::default(), Vec::new());
        for (tag, start) in (1..).zip([1000, 2000, 3000]) {
            queue.add(0, CommandOp::Write, (start, 8), Tag(tag), None, &mut fanout);
        }
        queue.add_behind_flush(0, CommandOp::WriteFua, (16, 8), Tag(4), passes, &mut fanout);
        let mut sent = Vec::new();
        for now_ns in 0..7 {
            let next = |_| queue.next(now_ns, &mut fanout);
            let tags: Vec<_> = (0..2)
                .map_while(next)
                .map(|(tag, op, start, _)| {
                    sent.push(if op == CommandOp::Flush { FLUSH } else { start });
                    tag
                })
                .collect();
            if now_ns == 0 {
                // The flush has come before it.
                queue.add(0, CommandOp::Write, (4000, 8), Tag(5), None, &mut fanout);
            }
            for tag in tags {
                queue.complete(now_ns, tag, &mut fanout, &mut done);
            }
        }
        assert_eq!((sent.as_slice(), queue.is_idle()), (&wanted[..], true), "passes: {passes}");
    }
}

/// As of a SATA drive under Linux: what is forced is written, and a flush after it is answered for all that waited for one.
#[test]
fn without_fua_a_flush_follows_forced_writes() {
    let (mut queue, mut fanout, mut done) =
        (BlockQueue::new(QueueLimits { fua: false, ..LIMITS }, None, 2), Fanout::default(), Vec::new());
    queue.add(0, CommandOp::WriteFua, (0, 8), Tag(1), None, &mut fanout);
    queue.add(0, CommandOp::WriteFua, (64, 8), Tag(2), None, &mut fanout);
    let [a, b] = [1, 2].map(|now_ns| queue.next(now_ns, &mut fanout).unwrap());
    assert_eq!([a.1, b.1], [CommandOp::Write; 2]);
    queue.complete(3, a.0, &mut fanout, &mut done);
    assert!(queue.next(3, &mut fanout).is_none(), "a flush goes alone");
    queue.complete(4, b.0, &mut fanout, &mut done);
    assert!(done.is_empty(), "nothing is answered before the flush: {done:?}");
    queue.add_behind_flush(4, CommandOp::WriteFua, (128, 8), Tag(3), false, &mut fanout);
    let (flush, op, ..) = queue.next(5, &mut fanout).unwrap();
    assert_eq!((op, queue.stats.flushes), (CommandOp::Flush, 1));
    queue.complete(6, flush, &mut fanout, &mut done);
    done.sort_unstable_by_key(|tag| tag.0);
    assert_eq!(done, [Tag(1), Tag(2)]);
    let (write, op, start, _) = queue.next(7, &mut fanout).unwrap();
    assert_eq!((op, start), (CommandOp::Write, 128), "it waited for the same flush");
    queue.complete(8, write, &mut fanout, &mut done);
    let (flush, ..) = queue.next(9, &mut fanout).unwrap();
    queue.complete(10, flush, &mut fanout, &mut done);
    assert_eq!((done.last(), queue.stats.flushes, queue.is_idle()), (Some(&Tag(3)), 2, true));
}
