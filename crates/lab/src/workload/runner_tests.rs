use std::sync::atomic::Ordering;

use proptest::prelude::*;
use stripewise_engine::io::IoError;

use super::*;
use crate::workload::Rw;

const SECTORS: u64 = 1 << 16;
const START: Instant = Instant(5_000);

/// Completes each request after a latency that depends on its id, in order of time. Returns all requests.
fn drive(runner: &mut JobRunner, latency_ns: impl Fn(&Request) -> u64) -> Vec<(Instant, Request)> {
    drive_from(START, runner, latency_ns)
}

fn drive_from(
    start: Instant,
    runner: &mut JobRunner,
    latency_ns: impl Fn(&Request) -> u64,
) -> Vec<(Instant, Request)> {
    let mut now = start;
    let mut issued = Vec::new();
    let mut in_flight: Vec<(Instant, Request)> = Vec::new();
    loop {
        let mut finished = false;
        loop {
            match runner.next(now) {
                Next::Issue(request) => {
                    issued.push((now, request));
                    in_flight.push((now + Nanos(latency_ns(&request)), request));
                    assert!(request.id.0 < runner.in_flight_max());
                    let same = in_flight.iter().filter(|(_, other)| other.id == request.id).count();
                    assert_eq!(same, 1, "an id in flight was used again");
                }
                Next::Finished => {
                    finished = true;
                    break;
                }
                Next::Wait | Next::WaitUntil(_) => break,
            }
        }
        let Some(first) = (0..in_flight.len()).min_by_key(|&i| (in_flight[i].0, in_flight[i].1.id)) else {
            assert!(finished, "nothing in flight and not finished");
            return issued;
        };
        let (time, request) = in_flight.swap_remove(first);
        now = time;
        runner.complete(now, request.id, Ok(()));
    }
}

fn job(rw: Rw) -> Job {
    Job { rw, runtime: Nanos::from_millis(10), ..Job::default() }
}

#[test]
fn a_sequential_job_reads_block_after_block_and_wraps() {
    let spec = Job { bs: 4096, size: Some(16_384), ..job(Rw::Read) };
    let mut runner = JobRunner::new(&spec, SECTORS).unwrap();
    let starts: Vec<u64> = drive(&mut runner, |_| 1_000_000).iter().map(|(_, r)| r.range.start).collect();
    assert_eq!(starts, [0, 8, 16, 24, 0, 8, 16, 24, 0, 8]);
}

#[test]
fn reads_and_writes_of_a_sequential_job_have_places_of_their_own() {
    let spec = Job { rwmixread: 50, ..job(Rw::ReadWrite) };
    let mut runner = JobRunner::new(&spec, SECTORS).unwrap();
    let issued = drive(&mut runner, |_| 10_000);
    for op in [Op::Read, Op::Write] {
        let starts: Vec<u64> =
            issued.iter().filter(|(_, r)| r.op == op).map(|(_, r)| r.range.start).collect();
        assert!(starts.len() > 100);
        assert!(starts.iter().zip(0..).all(|(start, i)| *start == i * 8), "{op:?}");
    }
}

#[test]
fn sequential_jobs_spread_over_the_target_and_random_jobs_share_it() {
    let spec = Job { numjobs: 4, ..job(Rw::Write) };
    let mut runner = JobRunner::new(&spec, SECTORS).unwrap();
    let starts: Vec<u64> =
        drive(&mut runner, |_| 1_000_000).iter().take(4).map(|(_, r)| r.range.start).collect();
    assert_eq!(starts, [0, SECTORS / 4, SECTORS / 2, SECTORS / 4 * 3]);
    let regions = Job { rw: Rw::RandRead, ..spec }.regions(SECTORS * SECTOR_BYTES).unwrap();
    assert!(regions.iter().all(|r| r.start_sector == 0 && r.blocks == SECTORS / 8));
}

#[test]
fn the_ramp_and_what_ends_too_late_are_not_counted() {
    let spec = Job { ramp_time: Nanos::from_millis(5), ..job(Rw::RandRead) };
    let mut runner = JobRunner::new(&spec, SECTORS).unwrap();
    // Every 2 ms: completions at 2, 4 (ramp), 6, 8, 10, 12, 14 (counted), 16 (after the end at 15).
    let issued = drive(&mut runner, |_| 2_000_000);
    let measured = runner.measured();
    assert_eq!(issued.len(), 8);
    assert_eq!(measured.read.ios, 5);
    assert_eq!(measured.read.bytes, 5 * 4096);
    assert!((measured.seconds - 0.010).abs() < 1e-12);
    assert_eq!(measured.read.latency_max_ns, 2_000_000);
    assert!((measured.read.latency_mean_ns - 2e6).abs() < 1e-6);
    assert!(measured.read.latency_p50_ns.abs_diff(2_000_000) <= 2_000);
}

#[test]
fn a_job_without_time_ends_with_its_size() {
    let spec = Job {
        time_based: false,
        runtime: Nanos(0),
        numjobs: 2,
        size: Some(64 * 4096),
        iodepth: 4,
        ..job(Rw::Write)
    };
    let mut runner = JobRunner::new(&spec, SECTORS).unwrap();
    let issued = drive(&mut runner, |_| 1_000);
    assert_eq!(issued.len(), 64);
    let measured = runner.measured();
    assert_eq!(measured.write.ios, 64);
    assert!((measured.seconds - 8e-6).abs() < 1e-12, "{}", measured.seconds);
}

#[test]
fn fsync_flushes_after_every_nth_write_of_a_job() {
    let spec = Job { fsync: 3, ..job(Rw::RandWrite) };
    let mut runner = JobRunner::new(&spec, SECTORS).unwrap();
    let ops: Vec<Op> = drive(&mut runner, |_| 100_000).iter().map(|(_, r)| r.op).collect();
    assert!(ops.iter().enumerate().all(|(i, op)| (*op == Op::Flush) == (i % 4 == 3)), "{ops:?}");
    let flush = runner.measured().flush;
    assert_eq!((flush.ios, flush.bytes, flush.latency_p99_ns), (25, 0, 100_000));
    let figures: Vec<_> = runner.measured().flush_figures().collect();
    let named = [("flushes", 25.0), ("flush_mean_ms", 0.1), ("flush_p99_ms", 0.1)];
    assert_eq!(figures, named.map(|(name, value)| (name.to_owned(), value)));
    let none = JobRunner::new(&job(Rw::RandWrite), SECTORS).unwrap().measured();
    assert_eq!(none.flush_figures().count(), 0);
}

/// Of each job's requests, writes as `w` and flushes as `f`.
fn writes_and_flushes(spec: &Job) -> Vec<String> {
    let mut runner = JobRunner::new(spec, SECTORS).unwrap();
    let mut of_jobs = vec![String::new(); spec.numjobs as usize];
    for (_, request) in drive(&mut runner, |_| 10_000) {
        of_jobs[usize::from(request.flags.stream)].push(if request.op == Op::Flush { 'f' } else { 'w' });
    }
    of_jobs
}

#[test]
fn the_last_run_of_a_size_is_flushed_even_if_the_time_is_over() {
    let spec = Job {
        run: Some(16_384),
        run_fsync: true,
        time_based: false,
        size: Some(40_960),
        offset_increment: Some(SECTORS * SECTOR_BYTES - 24_576),
        numjobs: 2,
        ..job(Rw::RandWrite)
    };
    for runtime in [10, 0] {
        let spec = Job { runtime: Nanos::from_millis(runtime), ..spec.clone() };
        assert_eq!(writes_and_flushes(&spec), ["wwwwfwwwwfwwf", "wwwwfwwf"]);
    }
    // The second job's blocks are used up before the time is over, the first's are not.
    let long = Job { size: None, runtime: Nanos(10_000 * 100), ..spec };
    let of_jobs = writes_and_flushes(&long);
    assert!(of_jobs[0].ends_with("wwwwf") && of_jobs[0].len() >= 100, "{of_jobs:?}");
    assert_eq!(of_jobs[1], "wwwwfwwf");
}

#[test]
fn sequential_jobs_have_no_runs() {
    let plain = Job { bs: 65_536, time_based: false, ..job(Rw::Write) };
    let with = Job { run: Some(4096), run_fsync: true, ..plain.clone() };
    assert_eq!(with.block(), 65_536);
    let requests = |spec: &Job| drive(&mut JobRunner::new(spec, SECTORS).unwrap(), |_| 10_000);
    assert_eq!(requests(&with), requests(&plain));
}

#[test]
fn a_target_that_fails_everything_ends_the_run() {
    let mut runner = JobRunner::new(&job(Rw::Read), SECTORS).unwrap();
    let mut issued = 0;
    while let Next::Issue(request) = runner.next(Instant::ZERO) {
        issued += 1;
        let error = if issued == 1 { IoError::NoSpace } else { IoError::Gone };
        runner.complete(Instant::ZERO, request.id, Err(error));
    }
    assert_eq!(issued, ERRORS_MAX);
    assert_eq!(runner.measured().first_error, Some(IoError::NoSpace));
    assert_eq!(runner.measured().read.errors, ERRORS_MAX);
}

#[test]
fn a_cancelled_run_issues_nothing_more() {
    let flag = Arc::new(AtomicBool::new(false));
    let mut runner = JobRunner::new(&job(Rw::Read), SECTORS).unwrap().with_cancel(Arc::clone(&flag));
    assert!(matches!(runner.next(Instant::ZERO), Next::Issue(_)));
    flag.store(true, Ordering::Relaxed);
    assert_eq!(runner.next(Instant::ZERO), Next::Finished);
}

#[test]
fn what_cannot_run_is_refused_with_what_would_be_right() {
    let refused = |spec: Job| JobRunner::new(&spec, SECTORS).unwrap_err().to_string();
    let random = || Job { rw: Rw::RandWrite, ..Job::default() };
    assert!(refused(Job { run: Some(6144), ..random() }).contains("multiple"));
    assert!(refused(Job { run_fsync: true, ..random() }).contains("run=4k"));
    assert!(refused(Job { bs: 1000, ..Job::default() }).contains("multiple of 512"));
    assert!(refused(Job { bs: 0, ..Job::default() }).contains("multiple of 512"));
    assert!(refused(Job { rwmixread: 101, ..Job::default() }).contains("100"));
    assert!(refused(Job { numjobs: 0, ..Job::default() }).contains("at least 1"));
    assert!(refused(Job { iodepth: 65_536, numjobs: 2, ..Job::default() }).contains("65536"));
    assert!(refused(Job { bs: 64 << 20, ..Job::default() }).contains("does not fit in the target of 32m"));
    assert!(
        refused(Job { bs: 64 << 10, size: Some(32 << 10), ..Job::default() }).contains("not fit in size 32k")
    );
    assert!(refused(Job { offset: 1 << 30, ..Job::default() }).contains("does not fit"));
    assert!(refused(Job { runtime: Nanos(0), ..Job::default() }).contains("never ends"));
    let far = Job { offset_increment: Some(32 << 20), numjobs: 2, ..Job::default() };
    assert!(refused(far).contains("job 1"));
}

fn any_job() -> impl Strategy<Value = Job> {
    let shape = (0..6usize, 0..=100u8, 1..64u64, 1..5u32, 1..5u32, 0..4u32);
    let place =
        (0..1024u64, proptest::option::of(1..SECTORS), proptest::option::of(0..4096u64), any::<u64>());
    (shape, place).prop_map(
        |((rw, rwmixread, bs, iodepth, numjobs, fsync), (offset, size, increment, randseed))| Job {
            rw: Rw::ALL[rw],
            rwmixread,
            bs: bs * SECTOR_BYTES,
            iodepth,
            numjobs,
            fsync,
            offset: offset * SECTOR_BYTES,
            size: size.map(|s| s * SECTOR_BYTES),
            offset_increment: increment.map(|i| i * SECTOR_BYTES),
            randseed,
            runtime: Nanos::from_micros(300),
            ..Job::default()
        },
    )
}

proptest! {
    #[test]
    fn requests_stay_in_bounds_aligned_and_within_the_depth(spec in any_job()) {
        let Ok(mut runner) = JobRunner::new(&spec, SECTORS) else { return Ok(()) };
        let issued = drive(&mut runner, |r| 1_000 + u64::from(r.id.0) * 37 % 501);
        prop_assert!(issued.len() as u32 >= spec.numjobs * spec.iodepth);
        let first_instant = issued[0].0;
        let at_once = issued.iter().take_while(|(t, _)| *t == first_instant).count() as u32;
        prop_assert_eq!(at_once, spec.numjobs * spec.iodepth);
        for (_, request) in issued.iter().filter(|(_, r)| r.op != Op::Flush) {
            prop_assert_eq!(request.range.count, spec.bs / SECTOR_BYTES);
            prop_assert!(request.range.start >= spec.offset / SECTOR_BYTES);
            prop_assert!(request.range.end() <= SECTORS);
            if spec.offset_increment.is_none() {
                let from_start = request.range.start * SECTOR_BYTES - spec.offset;
                prop_assert!(from_start.is_multiple_of(spec.bs));
            }
        }
    }

    #[test]
    fn the_mix_is_as_asked(rwmixread in 0..=100u8, seed in any::<u64>()) {
        let spec = Job {
            rwmixread,
            randseed: seed,
            numjobs: 2,
            runtime: Nanos::from_millis(4),
            ..job(Rw::RandRw)
        };
        let mut runner = JobRunner::new(&spec, SECTORS).unwrap();
        let issued = drive(&mut runner, |_| 1_000);
        let reads = issued.iter().filter(|(_, r)| r.op == Op::Read).count() as f64;
        let share = reads / issued.len() as f64 * 100.0;
        // Five standard deviations of a share of about 8000 draws.
        prop_assert!((share - f64::from(rwmixread)).abs() <= 5.0 * 50.0 / (issued.len() as f64).sqrt());
        prop_assert!(rwmixread % 100 != 0 || (share - f64::from(rwmixread)).abs() < f64::EPSILON);
    }

    #[test]
    fn the_same_seed_gives_the_same_requests(seed in any::<u64>()) {
        let requests = |randseed| {
            let spec = Job { randseed, iodepth: 3, numjobs: 2, ..job(Rw::RandRw) };
            let mut runner = JobRunner::new(&spec, SECTORS).unwrap();
            drive(&mut runner, |r| 100_000 + u64::from(r.id.0))
        };
        prop_assert_eq!(requests(seed), requests(seed));
        prop_assert_ne!(requests(seed), requests(seed ^ 1));
    }
}

#[test]
fn dealt_jobs_ask_for_the_same_and_are_counted_together() {
    let spec = Job {
        numjobs: 5,
        iodepth: 2,
        rwmixread: 70,
        size: Some(1 << 20),
        time_based: false,
        ramp_time: Nanos(0),
        ..job(Rw::RandRw)
    };
    let whole = JobRunner::new(&spec, SECTORS).unwrap();
    let places = |issued: Vec<(Instant, Request)>| {
        let mut places: Vec<_> =
            issued.iter().map(|(_, r)| (r.flags.stream, r.op == Op::Read, r.range.start)).collect();
        places.sort_unstable();
        places
    };
    for (runners, expected) in [(1, 1), (2, 2), (5, 5), (64, 5)] {
        let mut dealt = whole.clone().dealt(runners);
        assert_eq!(dealt.len(), expected);
        assert_eq!(dealt.iter().map(JobRunner::in_flight_max).sum::<u32>(), 10);
        let mut asked: Vec<_> = Vec::new();
        for (first, runner) in dealt.iter_mut().enumerate() {
            // Every second runner is slower, so that the last completion of all is not that of the last runner.
            let issued = drive(runner, |_| 1_000 + 500 * (first as u64 % 2));
            let streams = places(issued).into_iter();
            asked.extend(streams.map(|(s, read, start)| (s as usize * expected + first, read, start)));
        }
        asked.sort_unstable();
        let mut alone = whole.clone();
        let expected: Vec<_> = places(drive(&mut alone, |_| 1_000))
            .into_iter()
            .map(|(stream, read, start)| (stream as usize, read, start))
            .collect();
        assert_eq!(asked, expected);
        let (sum, one) = (JobRunner::joined(&dealt), alone.measured());
        let counts = |m: &Measured| {
            [m.requests, m.request_bytes, m.read.ios, m.write.ios, m.read.bytes, m.write.bytes]
        };
        assert_eq!(counts(&sum), counts(&one));
        let latest = dealt.iter().map(|r| r.last_completion.0).max().unwrap();
        assert!((sum.seconds - (latest - START.0) as f64 / 1e9).abs() < 1e-12);
        assert_eq!(sum.read.latency_max_ns, if runners > 1 { 1_500 } else { 1_000 });
    }
    assert_eq!(JobRunner::joined(&[]), Measured::default());
}

#[test]
fn dealt_runners_measure_the_same_time() {
    let ramp_time = Nanos::from_millis(1);
    let spec = Job { numjobs: 2, fsync: 3, ramp_time, runtime: Nanos::from_millis(10), ..job(Rw::Write) };
    let mut dealt = JobRunner::new(&spec, SECTORS).unwrap().dealt(2);
    let end = START + ramp_time + spec.runtime;
    for (runner, late) in dealt.iter_mut().zip([0, 4_000_000]) {
        let issued = drive_from(START + Nanos(late), runner, |_| 1_000);
        assert!(issued.iter().all(|(time, _)| *time < end), "the one who began late ends with the others");
    }
    let each: Vec<_> = dealt.iter().map(JobRunner::measured).collect();
    let sum = JobRunner::joined(&dealt);
    assert!((sum.seconds - 0.01).abs() < 1e-12, "{}", sum.seconds);
    assert!(each.iter().all(|m| m.flush.ios > 0 && m.write.ios > 0));
    assert_eq!(sum.flush.ios, each[0].flush.ios + each[1].flush.ios);
    assert_eq!(sum.write.ios, each[0].write.ios + each[1].write.ios);
    // One whose thread did nothing, and one that met errors.
    let mut dealt = JobRunner::new(&spec, SECTORS).unwrap().dealt(2);
    drive(&mut dealt[1], |_| 1_000);
    (dealt[0].write.errors, dealt[1].write.errors) = (2, 5);
    let sum = JobRunner::joined(&dealt);
    assert!((sum.seconds - 0.01).abs() < 1e-12, "{}", sum.seconds);
    assert_eq!(sum.write.errors, 7);
}
