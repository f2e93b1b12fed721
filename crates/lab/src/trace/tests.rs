//! What is read, and what is refused.

use super::read::parse;
use super::*;

const HEAD: &str =
    "stripewise-trace 1\ndevice_bytes 1048576\ntime_ns op offset bytes flags stream latency_ns\n";

fn read(rest: &str) -> Result<Trace, String> {
    parse("a.trace", format!("{HEAD}{rest}").as_bytes(), Whole::Required).map_err(|e| e.to_string())
}

fn refused(rest: &str) -> String {
    read(rest).unwrap_err()
}

#[test]
fn every_field_is_read_and_records_are_in_the_order_they_came() {
    let trace = read("20 W 4096 512 f 3 7\n10 F 0 0 - 0 5\n15 D 0 1048576 fe 4294967295 1\nend 3\n").unwrap();
    let of = |time_ns, op, offset, bytes, fua, failed, stream, latency_ns| Record {
        time_ns,
        op,
        offset,
        bytes,
        fua,
        failed,
        stream,
        latency_ns,
    };
    assert_eq!(
        trace.records,
        [
            of(10, Op::Flush, 0, 0, false, false, 0, 5),
            of(15, Op::Discard, 0, 1_048_576, true, true, u32::MAX, 1),
            of(20, Op::Write, 4096, 512, true, false, 3, 7),
        ]
    );
    assert_eq!((trace.device_bytes, trace.is_cut_short, trace.bytes_used()), (1 << 20, false, 1 << 20));
}

#[test]
fn a_trace_cut_at_any_byte_is_refused_or_the_line_named() {
    let whole = format!("{HEAD}0 W 0 512 - 0 5\n10 R 512 512 - 0 5\nend 2\n");
    for length in 0..whole.len() {
        let error = parse("a.trace", &whole.as_bytes()[..length], Whole::Required).unwrap_err();
        assert!(error.line.is_some(), "{length}: {error}");
        if length >= HEAD.len() {
            let records = whole[HEAD.len()..length].matches('\n').count() as u64;
            assert_eq!(error.problem, Problem::CutShort { records }, "{length}");
            assert_eq!(error.line, Some(4 + records));
            let partial = parse("a.trace", &whole.as_bytes()[..length], Whole::NotRequired).unwrap();
            assert_eq!((partial.records.len() as u64, partial.is_cut_short), (records, true));
        }
    }
    for length in 1..HEAD.len() {
        for whole_asked in [Whole::Required, Whole::NotRequired] {
            let error = parse("a.trace", &whole.as_bytes()[..length], whole_asked).unwrap_err();
            assert_eq!(error.problem, Problem::HeadCut, "{length}: {error}");
            assert!(!error.to_string().contains("--partial"), "{error}");
        }
    }
    assert!(refused("0 W 0 512 - 0 5\n").contains("a.trace:5: the trace is cut short after record 1"));
}

#[test]
fn lines_may_end_with_a_carriage_return() {
    let text = format!("{HEAD}0 W 0 512 - 0 5\n10 R 512 512 f 0 5\nend 2\n");
    let of = |text: &str| parse("a.trace", text.as_bytes(), Whole::Required);
    let trace = of(&text.replace('\n', "\r\n")).unwrap();
    assert_eq!(trace.records, of(&text).unwrap().records);
    assert!(of(&text.replace("- 0 5\n", "- 0 5\r\r\n")).is_err());
}

#[test]
fn what_ends_past_all_bytes_is_beyond_the_largest_device() {
    let head = HEAD.replace("1048576", &u64::MAX.to_string());
    let text = format!("{head}0 D 18446744073709551104 1024 - 0 0\nend 1\n");
    let error = parse("a.trace", text.as_bytes(), Whole::Required).unwrap_err();
    assert!(matches!(error.problem, Problem::Beyond { .. }), "{error}");
}

#[test]
fn what_is_wrong_is_named_with_line_and_column() {
    for (rest, line, what) in [
        ("0 X 0 512 - 0 5\nend 1\n", 4, "op is 'X'"),
        ("0 W 0 512 - 0 5\n0 W 1 512 - 0 5\nend 2\n", 5, "offset is '1'; it must be a multiple of 512"),
        ("0 W 0 0 - 0 5\nend 1\n", 4, "bytes is '0'"),
        ("0 R 0 134217728 - 0 5\nend 1\n", 4, "at most 67108864"),
        ("0 R 1048576 512 - 0 5\nend 1\n", 4, "beyond the device of 1048576"),
        ("0 R 18446744073709551104 512 - 0 5\nend 1\n", 4, "beyond the device"),
        ("0 F 512 0 - 0 5\nend 1\n", 4, "for a flush"),
        ("0 W 0 512 x 0 5\nend 1\n", 4, "flags is 'x'"),
        ("0 W 0 512 - -1 5\nend 1\n", 4, "stream is '-1'"),
        ("0 W 0 512 - 4294967296 5\nend 1\n", 4, "below 2^32"),
        ("0 W 0 512 - 0\nend 1\n", 4, "a record has 6 fields"),
        ("0  W 0 512 - 0 5\nend 1\n", 4, "a record has 8 fields"),
        ("end 1\n", 4, "counts 1 records, but there are 0"),
        ("end\n", 4, "a record has 1 fields"),
        ("end 0\n\n", 5, "text after the end line"),
    ] {
        let error = refused(rest);
        assert!(error.starts_with(&format!("a.trace:{line}: ")) && error.contains(what), "{rest}: {error}");
    }
    let long = refused(&"1".repeat(1000));
    assert!(long.contains("a.trace:4"), "{long}");
}

#[test]
fn what_is_no_trace_or_of_another_version_is_said_to_be() {
    let of = |text: &[u8]| parse("x", text, Whole::Required).unwrap_err().to_string();
    assert!(of(b"\x7fELF\x02\x01\x01\n").contains("x:1: this is not a trace"));
    assert!(of(&[0xff; 5000]).contains("x:1: this is not a trace"));
    assert!(of(b"").contains("this is not a trace"));
    assert!(of(b"stripewise-trace 2\n").contains("version 2"));
    assert!(of(b"stripewise-trace 1\nbytes 5\n").contains("x:2: the line must be 'device_bytes N'"));
    assert!(of(b"stripewise-trace 1\ndevice_bytes 5\ntime\n").contains("x:3"));
}

#[test]
fn a_shared_trace_is_read_anew_when_it_changes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t");
    std::fs::write(&path, format!("{HEAD}end 0\n")).unwrap();
    let first = Trace::shared(&path).unwrap();
    assert!(Arc::ptr_eq(&first, &Trace::shared(&path).unwrap()));
    std::fs::write(&path, format!("{HEAD}0 F 0 0 - 0 1\nend 1\n")).unwrap();
    let second = Trace::shared(&path).unwrap();
    assert_eq!((second.records.len(), first.hash == second.hash), (1, false));
}

#[test]
fn a_summary_counts_and_tells_random_from_sequential() {
    let trace = read(
        "0 R 0 4096 - 0 10\n5 R 65536 4096 - 1 10\n10 R 4096 4096 - 0 10\n20 R 512 512 - 0 30\n30 W 0 512 f 0 5\nend 5\n",
    )
    .unwrap();
    let summary = Summary::of(&trace);
    assert_eq!((summary.requests, summary.streams, summary.in_flight_max), (5, 2, 2));
    assert!((summary.seconds - 50e-9).abs() < 1e-15);
    assert!((summary.in_flight_mean - 65.0 / 50.0).abs() < 1e-9);
    let read = &summary.operations[0];
    assert_eq!((read.operation, read.requests, read.bytes, read.latency_max_ns), ("read", 4, 12_800, 30));
    assert!((read.random_share - 0.75).abs() < 1e-9, "each client's first has nothing to follow");
    assert_eq!(read.sizes, [(512, 1), (4096, 3)].into());
    assert_eq!((summary.operations[1].operation, summary.operations[1].fua), ("write", 1));
}
