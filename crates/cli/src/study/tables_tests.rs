//! What stands in one place of a table is one workload on one target.

use serde_json::{Value, json};
use stripewise_lab::results::StudyResults;

use super::study;

/// A cell of 1 second that moved so many megabytes.
fn cell(target: &str, factors: &[(&str, &str)], replicate: u32, megabytes: u64) -> Value {
    let none = json!({"ios": 0, "bytes": 0, "errors": 0, "latency_mean_ns": 0.0, "latency_p50_ns": 0,
        "latency_p90_ns": 0, "latency_p99_ns": 0, "latency_p999_ns": 0, "latency_max_ns": 0});
    let mut read = none.clone();
    read["bytes"] = json!(megabytes * 1_000_000);
    let factors: Value = factors.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
    json!({"key": "", "target": target, "factors": factors, "replicate": replicate, "seed": 1,
        "seconds": 1.0, "read": read, "write": none, "error": null})
}

/// The text of a study, without blanks that only align it.
fn text(subject: &str, values: &[&str], cells: &[Value]) -> String {
    text_with(subject, values, cells, &Value::Null)
}

/// The same of a study that is a trade-off.
fn text_with(subject: &str, values: &[&str], cells: &[Value], trade_off: &Value) -> String {
    let results: StudyResults = serde_json::from_value(json!({
        "schema_version": 1, "study": "s", "title": "S", "question": "", "simulated": false, "quick": false,
        "subject": subject, "subject_values": values,
        "environment": {"target": "", "description": "", "version": "", "engine_hash": "", "host_cpu": "",
            "host_kernel": "", "started": "", "wall_seconds": 0.0, "notes": [], "provenance": []},
        "cells": cells,
        "recommendation": {"ranking": [], "best": "", "tied_with": [], "summary": "", "method": "",
            "weights": {}, "by_family": [], "commands": [], "trade_off": trade_off},
    }))
    .unwrap();
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    study(&results).lines().map(words).collect::<Vec<_>>().join("\n")
}

const BASE: [(&str, &str); 2] = [("numjobs", "1"), ("chunk", "64K")];

fn on_array(factors: &[(&str, &str)], megabytes: u64) -> Value {
    cell("array", &[&BASE, factors].concat(), 0, megabytes)
}

#[test]
fn read_shares_stand_apart() {
    let of = |share, megabytes| on_array(&[("rw", "randrw"), ("rwmixread", share), ("bs", "4k")], megabytes);
    let text = text("chunk", &["64K"], &[of("90", 30), of("10", 20)]);
    assert!(
        text.contains("random-mixed, numjobs 1, rwmixread 10: MB/s by bs and chunk\nbs 64K\n4k 20.0"),
        "{text}"
    );
    assert!(
        text.contains("random-mixed, numjobs 1, rwmixread 90: MB/s by bs and chunk\nbs 64K\n4k 30.0"),
        "{text}"
    );
}

#[test]
fn blocks_of_a_run_stand_apart_under_the_name_of_the_run() {
    let of = |bs, megabytes| on_array(&[("rw", "randread"), ("run", "256k"), ("bs", bs)], megabytes);
    let text = text("chunk", &["64K"], &[of("4k", 30), of("64k", 20)]);
    assert!(
        text.contains("random-read, bs 4k, numjobs 1: MB/s by run and chunk\nrun 64K\n256k 30.0"),
        "{text}"
    );
    assert!(
        text.contains("random-read, bs 64k, numjobs 1: MB/s by run and chunk\nrun 64K\n256k 20.0"),
        "{text}"
    );
}

#[test]
fn reads_and_mixed_jobs_that_only_read_stand_apart() {
    let cells = [
        on_array(&[("rw", "read"), ("bs", "4k")], 30),
        on_array(&[("rw", "rw"), ("rwmixread", "100"), ("bs", "4k")], 20),
    ];
    let text = text("chunk", &["64K"], &cells);
    assert!(text.contains("rw read: MB/s by bs and chunk\nbs 64K\n4k 30.0"), "{text}");
    assert!(text.contains("rw rw, rwmixread 100: MB/s by bs and chunk\nbs 64K\n4k 20.0"), "{text}");
}

#[test]
fn what_only_some_cells_have_stands_apart() {
    let cells = [
        on_array(&[("rw", "read"), ("bs", "4k")], 30),
        on_array(&[("rw", "read"), ("bs", "4k"), ("crypt", "aes")], 20),
    ];
    let text = text("chunk", &["64K"], &cells);
    assert!(text.contains("\n4k 30.0") && text.contains("crypt aes") && text.contains("\n4k 20.0"), "{text}");
}

#[test]
fn replicates_are_averaged() {
    let factors = [("rw", "read"), ("bs", "4k"), ("numjobs", "1"), ("chunk", "64K")];
    let cells = [cell("array", &factors, 0, 30), cell("array", &factors, 1, 20)];
    assert!(text("chunk", &["64K"], &cells).contains("\n4k 25.0"));
}

#[test]
fn a_drive_that_the_subject_does_not_touch_is_a_column() {
    let drive = cell("drive", &[("rw", "read"), ("bs", "4k"), ("numjobs", "1")], 0, 7);
    let text = text("chunk", &["64K"], &[on_array(&[("rw", "read"), ("bs", "4k")], 30), drive]);
    assert!(text.contains("bs 64K one drive\n4k 30.0 7.00"), "{text}");
}

#[test]
fn a_drive_that_the_subject_touches_has_a_table_of_its_own() {
    let of = |target, depth, megabytes| {
        let factors = [("rw", "read"), ("bs", "4k"), ("numjobs", "1"), ("iodepth", depth)];
        cell(target, &factors, 0, megabytes)
    };
    let cells = [of("array", "1", 20), of("array", "32", 60), of("drive", "1", 10), of("drive", "32", 50)];
    let text = text("iodepth", &["1", "32"], &cells);
    assert!(
        text.contains("sequential-read, numjobs 1: MB/s by bs and iodepth\nbs 1 32\n4k 20.0 60.0"),
        "{text}"
    );
    let drive = "sequential-read, one drive, numjobs 1: MB/s by bs and iodepth\nbs 1 32\n4k 10.0 50.0";
    assert!(text.contains(drive), "{text}");
}

#[test]
fn each_trace_is_one_line() {
    let of = |trace, replicate| cell("array", &[("trace", trace), ("chunk", "64K")], replicate, 30);
    let text =
        text("chunk", &["64K"], &[of("b.trace", 0), of("a.trace", 0), of("b.trace", 1), of("a.trace", 1)]);
    assert_eq!(text.matches("a.trace 30.0").count(), 1, "{text}");
    assert_eq!(text.matches("b.trace 30.0").count(), 1, "{text}");
}

#[test]
fn the_rate_of_a_resync_has_a_table() {
    let of = |chunk, replicate, rate: u64| {
        let mut cell = cell("array", &[("chunk", chunk)], replicate, 0);
        cell["figures"] = json!({"sync_kib_s": rate, "bus_mb_s": 1.0});
        cell
    };
    let text =
        text("chunk", &["64K", "128K"], &[of("64K", 0, 1000), of("64K", 1, 3000), of("128K", 0, 50_000)]);
    assert!(
        text.contains("resync or recovery: MB/s of each member by chunk\n64K 128K\nrate 2.05 51.2"),
        "{text}"
    );
}

#[test]
fn a_trade_off_stands_beside_its_first_value() {
    let row = |value: &str, ratio: f64| {
        let spread = (1.0 - ratio) / 5.0;
        json!({"family": "random-read", "in_flight": 1, "value": value, "sync_kib_s": 1024.0, "member_seconds": 3600.0,
            "bytes_per_second": 1e6, "p99_ns": 1e7, "throughput_ratio": ratio, "throughput_ratio_ci": [ratio - spread, ratio + spread], "p99_ratio": ratio, "p99_ratio_ci": null})
    };
    let trade_off = json!({"rule": "", "rows": [row("raid5", 1.0), row("raid6", 0.5)]});
    let text = text_with("level", &["raid5", "raid6"], &[], &trade_off);
    let heading = "family in flight level recovery MiB/s whole member job MB/s of raid5 95 % interval p99 x raid5 95 % interval";
    assert!(text.contains(heading), "{text}");
    assert!(text.contains("random-read 1 raid6 1.00 1.00 h 1.00 50 % 40 % to 60 % 10.0 ms 0.50 -"), "{text}");
    assert!(text.contains("random-read 1 raid5 1.00 1.00 h 1.00 100 % - 10.0 ms 1.00 -"), "{text}");
}

#[test]
fn what_has_no_value_of_the_subject_is_a_column() {
    let cells = [cell("array", &[("rw", "read"), ("bs", "4k"), ("numjobs", "1")], 0, 7)];
    assert!(text("chunk", &["64K"], &cells).contains("bs 64K any\n4k - 7.00"));
}

#[test]
fn the_seconds_of_mkfs_have_a_table() {
    let of = |chunk, fs, replicate, seconds: f64| {
        let mut cell = cell("array", &[("chunk", chunk), ("fs", fs)], replicate, 0);
        cell["seconds"] = json!(seconds);
        cell["read"]["ios"] = json!(0);
        cell["write"]["ios"] = json!(7);
        cell
    };
    let cells = [
        of("64K", "ext4", 0, 1.0),
        of("64K", "ext4", 1, 2.0),
        of("128K", "ext4", 0, 30.0),
        of("64K", "xfs", 0, 0.5),
    ];
    let text = text("chunk", &["64K", "128K"], &cells);
    assert!(
        text.contains("mkfs, fs ext4: seconds, less is better, by chunk\n64K 128K\ntime 1.50 30.0"),
        "{text}"
    );
    assert!(
        text.contains("mkfs, fs xfs: seconds, less is better, by chunk\n64K 128K\ntime 0.50 -"),
        "{text}"
    );
}
