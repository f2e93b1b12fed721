use super::super::Whole;
use super::super::read::parse;
use super::*;
use stripewise_engine::io::IoError;

fn trace(rows: &str) -> Arc<Trace> {
    let count = rows.lines().count();
    let head =
        "stripewise-trace 1\ndevice_bytes 1073741824\ntime_ns op offset bytes flags stream latency_ns\n";
    let text = format!("{head}{rows}end {count}\n");
    Arc::new(parse("t", text.as_bytes(), Whole::Required).unwrap())
}

/// Requests as they start, until the replay has no more for now.
fn started(replay: &mut Replay, now: u64) -> (Vec<Request>, Next) {
    let mut requests = Vec::new();
    loop {
        match replay.next(Instant(now)) {
            Next::Issue(request) => requests.push(request),
            other => return (requests, other),
        }
    }
}

fn end(replay: &mut Replay, now: u64, request: &Request) {
    replay.complete(Instant(now), request.id, Ok(()));
}

#[test]
fn what_did_not_overlap_waits_and_what_overlapped_does_not() {
    // The second overlaps the first; the third came when the first was answered and the second was not.
    let mut replay =
        Replay::new(trace("0 W 0 4096 - 0 10\n5 R 4096 4096 f 1 100\n10 W 8192 512 f 0 5\n"), Speed::Asap);
    let (first, then) = started(&mut replay, 1000);
    assert_eq!((first.len(), then), (2, Next::Wait));
    assert_eq!((first[0].op, first[0].range), (Op::Write, SectorRange::new(0, 8)));
    // The second's answer is not what the third waits for.
    end(&mut replay, 1100, &first[1]);
    assert_eq!(started(&mut replay, 1100), (vec![], Next::Wait));
    end(&mut replay, 1200, &first[0]);
    let (last, then) = started(&mut replay, 1200);
    assert_eq!((last.len(), last[0].range, last[0].flags.fua), (1, SectorRange::new(16, 1), true));
    assert_eq!(then, Next::Wait);
    end(&mut replay, 1300, &last[0]);
    assert_eq!(replay.next(Instant(1300)), Next::Finished);
    let measured = replay.measured();
    assert_eq!((measured.write.ios, measured.write.bytes, measured.read.ios), (2, 4608, 1));
    assert!((measured.seconds - 300e-9).abs() < 1e-15);
    assert_eq!(measured.read.latency_max_ns, 100);
}

#[test]
fn recorded_times_are_kept_scaled_and_lateness_is_measured() {
    let rows = "1000000 R 0 512 - 0 10\n3000000 R 512 512 - 0 10\n";
    for (speed, due) in [("1x", 2_000_000), ("2x", 1_000_000), ("0.5x", 4_000_000)] {
        let mut replay = Replay::new(trace(rows), speed.parse().unwrap());
        let (first, then) = started(&mut replay, 50);
        assert_eq!((first.len(), then), (1, Next::WaitUntil(Instant(50 + due))), "{speed}");
        end(&mut replay, 60, &first[0]);
        // Asked too late, by 7 ns.
        let (second, _) = started(&mut replay, 50 + due + 7);
        end(&mut replay, 9_000_000, &second[0]);
        assert_eq!(replay.figures(), [("late_max_ms".to_owned(), 7e-6)]);
    }
}

#[test]
fn large_discards_go_in_pieces_one_after_another() {
    let mut replay = Replay::new(trace("0 D 512 41943040 - 0 10\n50 F 0 0 - 0 5\n"), Speed::Asap);
    let mut sectors = 0;
    for piece in 0..3 {
        let (requests, then) = started(&mut replay, piece);
        assert_eq!((requests.len(), then), (1, Next::Wait));
        assert_eq!((requests[0].op, requests[0].range.start), (Op::Discard, 1 + sectors));
        sectors += requests[0].range.count;
        end(&mut replay, piece + 1, &requests[0]);
    }
    assert_eq!(sectors, 41_943_040 / 512);
    let (flush, _) = started(&mut replay, 10);
    assert_eq!(flush[0].op, Op::Flush);
    end(&mut replay, 20, &flush[0]);
    assert_eq!(replay.next(Instant(20)), Next::Finished);
    assert_eq!(replay.measured().flush.ios, 1);
}

#[test]
fn errors_are_counted_and_the_replay_goes_on() {
    let mut replay = Replay::new(trace("0 F 0 0 - 0 1\n5 W 0 512 - 0 1\n"), Speed::Asap);
    for _ in 0..2 {
        let (requests, _) = started(&mut replay, 0);
        replay.complete(Instant(1), requests[0].id, Err(IoError::Media));
    }
    assert_eq!(replay.next(Instant(1)), Next::Finished);
    assert_eq!(replay.measured().write.errors, 2);
}

#[test]
fn speeds_are_read_and_printed() {
    for text in ["asap", "1x", "2x", "0.5x", "0.001x", "1000x"] {
        assert_eq!(text.parse::<Speed>().unwrap().to_string(), text);
    }
    for text in ["", "x", "1", "0x", "-1x", "1001x", "NaNx", "infx", "fast"] {
        assert!(text.parse::<Speed>().unwrap_err().contains("1x for the recorded times"), "{text}");
    }
}

/// Whoever looks at each request under way for each that starts takes minutes.
#[test]
fn a_request_costs_no_more_with_many_under_way() {
    let count = 100_000;
    let rows: Vec<String> = (0..count).map(|n| format!("{n} R {} 512 - 0 1000000\n", n * 512)).collect();
    let mut replay = Replay::new(trace(&rows.concat()), Speed::Asap);
    let began = std::time::Instant::now();
    let (requests, _) = started(&mut replay, 0);
    for request in &requests {
        end(&mut replay, 1, request);
    }
    assert_eq!((requests.len(), replay.next(Instant(2))), (count, Next::Finished));
    assert!(began.elapsed().as_secs() < 10, "{:?}", began.elapsed());
}
