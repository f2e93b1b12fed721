//! Writes reports from synthetic figures, for working on the report's look and for its browser test:
//! `cargo run -p stripewise-lab --example sample_report -- OUTPUT_FOLDER`.
//!
//! The figures come from a formula, not from a run; every report says so in its title.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context as _;
use stripewise_lab::results::{
    CellResult, DirectionResult, Environment, FamilyBest, Provenance, RankedValue, Recommendation,
    SCHEMA_VERSION, StudyResults,
};

const CHUNKS: [(&str, f64); 9] = [
    ("4K", 4.0),
    ("8K", 8.0),
    ("16K", 16.0),
    ("32K", 32.0),
    ("64K", 64.0),
    ("128K", 128.0),
    ("256K", 256.0),
    ("512K", 512.0),
    ("1024K", 1024.0),
];
const BLOCKS: [(&str, f64); 9] = [
    ("4k", 4.0),
    ("8k", 8.0),
    ("32k", 32.0),
    ("64k", 64.0),
    ("256k", 256.0),
    ("1m", 1024.0),
    ("4m", 4096.0),
    ("8m", 8192.0),
    ("64m", 65536.0),
];

fn main() -> anyhow::Result<()> {
    let folder = std::env::args().nth(1).context("usage: sample_report OUTPUT_FOLDER")?;
    let folder = Path::new(&folder);
    std::fs::create_dir_all(folder)?;
    let full = sample();
    write(folder, "full.html", &full)?;
    write(folder, "measured.html", &measured(&full))?;
    write(folder, "names.html", &names())?;
    write(folder, "both.html", &both())?;
    write(folder, "resync.html", &resync())?;
    write(folder, "paced.html", &paced())?;
    write(folder, "parts.html", &parts())?;
    write(folder, "sparse.html", &sparse(&full))?;
    write(folder, "empty.html", &empty(&full))
}

fn write(folder: &Path, name: &str, results: &StudyResults) -> anyhow::Result<()> {
    let path = folder.join(name);
    std::fs::write(&path, stripewise_lab::report::render(results)?)
        .with_context(|| format!("cannot write {}", path.display()))?;
    println!("{}", path.display());
    Ok(())
}

/// A number from 0 to 1 that looks random and is the same for the same input (the end of splitmix64).
fn noise(input: u64) -> f64 {
    let mut x = input.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((x ^ (x >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
}

/// A combination of factors of the sample.
struct Point<'a> {
    access: &'a str,
    read_share: f64,
    threads: f64,
    block: f64,
    /// KiB; none for the single drive.
    chunk: Option<f64>,
}

/// Something like an array's throughput in MB/s: a ceiling, a cost per request, a best chunk that grows
/// with the block size, and a price for small writes.
fn throughput(point: &Point) -> f64 {
    let random = point.access == "random";
    let members: f64 = point.chunk.map_or(1.0, |_| 4.0);
    let ceiling = if random { 38.0 } else { 62.0 } * members.sqrt();
    let half = if random { 700.0_f64 } else { 12.0 } / point.threads.powf(0.35);
    let saturation = point.block / (point.block + half);
    let best_chunk = if random { (point.block * 0.6).clamp(48.0, 512.0) } else { 64.0 };
    let distance = point.chunk.map_or(0.0, |chunk| (chunk / best_chunk).log2());
    let chunk_factor = (-distance * distance / 60.0).exp();
    let write_cost = if point.chunk.is_some() && random { 0.28 } else { 0.7 };
    ceiling * saturation * chunk_factor * (point.read_share + (1.0 - point.read_share) * write_cost)
}

fn direction(megabytes: f64, block: f64, random: bool, seed: u64) -> DirectionResult {
    let ios = (megabytes * 1e6 * 20.0 / (block * 1024.0)).round();
    if ios < 1.0 {
        return DirectionResult::default();
    }
    let median = if random { 9.0e6 } else { 0.4e6 } + block * 1024.0 * 18.0 * (0.9 + 0.2 * noise(seed));
    let spread = 1.0 + noise(seed + 1);
    DirectionResult {
        ios: ios as u64,
        bytes: (ios * block * 1024.0) as u64,
        errors: 0,
        latency_mean_ns: median * 1.2,
        latency_p50_ns: median as u64,
        latency_p90_ns: (median * (1.5 + spread * 0.4)) as u64,
        latency_p99_ns: (median * (2.0 + spread)) as u64,
        latency_p999_ns: (median * (3.5 + spread * 2.5)) as u64,
        latency_max_ns: (median * 11.0) as u64,
    }
}

fn cells() -> Vec<CellResult> {
    let mut cells = Vec::new();
    for (share, access) in
        [100, 50, 0].into_iter().flat_map(|share| [(share, "sequential"), (share, "random")])
    {
        for (threads, (bs, block)) in [1, 20].into_iter().flat_map(|t| BLOCKS.iter().map(move |b| (t, b))) {
            let chunks = CHUNKS.iter().map(|(name, chunk)| (Some(*name), Some(*chunk)));
            for (name, chunk) in chunks.chain([(None, None)]) {
                for replicate in 0..3 {
                    let read_share = f64::from(share) / 100.0;
                    let point =
                        Point { access, read_share, threads: f64::from(threads), block: *block, chunk };
                    let mut factors = BTreeMap::from([
                        ("rw".to_owned(), if access == "random" { "randrw" } else { "rw" }.to_owned()),
                        ("rwmixread".to_owned(), share.to_string()),
                        ("numjobs".to_owned(), threads.to_string()),
                        ("bs".to_owned(), (*bs).to_owned()),
                        ("iodepth".to_owned(), "1".to_owned()),
                    ]);
                    if let Some(name) = name {
                        factors.insert("chunk".to_owned(), name.to_owned());
                    }
                    cells.push(cell(&point, factors, replicate, cells.len() as u64));
                }
            }
        }
    }
    cells
}

fn cell(point: &Point, factors: BTreeMap<String, String>, replicate: u32, number: u64) -> CellResult {
    let megabytes = throughput(point) * (0.975 + 0.05 * noise(number));
    let random = point.access == "random";
    CellResult {
        key: format!("{:016x}{:016x}", (noise(number) * 1e19) as u64, (noise(number + 7) * 1e19) as u64),
        target: if point.chunk.is_some() { "array" } else { "drive" }.to_owned(),
        factors,
        replicate,
        seed: u64::MAX - number,
        seconds: 20.0,
        read: direction(megabytes * point.read_share, point.block, random, number * 2),
        write: direction(megabytes * (1.0 - point.read_share), point.block, random, number * 2 + 1),
        member_ios: None,
        figures: std::collections::BTreeMap::new(),
        error: None,
        notes: Vec::new(),
    }
}

fn sample() -> StudyResults {
    StudyResults {
        schema_version: SCHEMA_VERSION,
        study: "chunk-size".to_owned(),
        title: "Synthetic sample: which chunk size suits a RAID-5 array?".to_owned(),
        question: "How does throughput depend on the chunk size of a five-drive RAID-5 array, for reads and \
                   writes, sequential and random, with one thread and with twenty?"
            .to_owned(),
        simulated: true,
        quick: false,
        seed: Some(1),
        subject: "chunk".to_owned(),
        subject_values: CHUNKS.iter().map(|(name, _)| (*name).to_owned()).collect(),
        environment: Environment {
            arguments: Vec::new(),
            target: "model".to_owned(),
            description: "5 × ST31000333AS on an 88SX6081 in a 32-bit PCI slot, Opteron 244, Linux 2.6.27 \
                          policy (synthetic figures)"
                .to_owned(),
            version: "0.1.0".to_owned(),
            engine_hash: "0".repeat(64),
            host_cpu: "Sample CPU, 2 cores".to_owned(),
            host_kernel: "6.1.0-sample".to_owned(),
            started: "2026-01-01T12:00:00Z".to_owned(),
            finished: "2026-11-22T10:02:11Z".to_owned(),
            wall_seconds: 131.4,
            notes: vec![
                "These figures are a formula’s, made to try the report; no run stands behind them."
                    .to_owned(),
            ],
            provenance: provenance(),
        },
        cells: cells(),
        recommendation: recommendation(),
        claims: Vec::new(),
    }
}

fn provenance() -> Vec<Provenance> {
    [
        ("sample drive", "rotation_speed", "7200", "1/min", "quoted", "sample data sheet, page 1"),
        ("sample drive", "rotation_time", "8.333", "ms", "derived", "60 s ÷ rotation_speed"),
        ("sample drive", "seek_average_read", "8.5", "ms", "quoted", "sample data sheet, page 2"),
        ("sample drive", "cache_segments", "16", "", "assumed", "typical of the sample’s generation"),
        ("sample controller", "bus_bandwidth", "133", "MB/s", "derived", "32 bit × 33.3 MHz"),
        ("sample controller", "command_cost", "20", "µs", "assumed", "no figure published"),
    ]
    .map(|(model, parameter, value, unit, kind, source)| Provenance {
        model: model.to_owned(),
        parameter: parameter.to_owned(),
        value: value.to_owned(),
        unit: unit.to_owned(),
        kind: kind.to_owned(),
        source: source.to_owned(),
    })
    .into()
}

fn recommendation() -> Recommendation {
    let scores = [
        ("64K", 0.962),
        ("128K", 0.955),
        ("32K", 0.921),
        ("256K", 0.902),
        ("16K", 0.861),
        ("512K", 0.823),
        ("8K", 0.774),
        ("1024K", 0.728),
        ("4K", 0.655),
    ];
    let ranking = scores.map(|(value, score)| RankedValue {
        value: value.to_owned(),
        score,
        score_ci: Some((score - 0.008, score + 0.007)),
        worst: score * score - 0.11,
        worst_cell: "random, 50 % reads, 20 threads, bs 64k".to_owned(),
        ratio_to_best: score / 0.962,
        ratio_to_best_ci: Some((score / 0.962 - 0.009, score / 0.962 + 0.009)),
    });
    let families = [
        ("sequential-read", 4, 0.985),
        ("sequential-mixed", 4, 0.977),
        ("sequential-write", 4, 0.971),
        ("random-read", 5, 0.968),
        ("random-mixed", 5, 0.942),
        ("random-write", 6, 0.931),
    ];
    let score_at = |peak: usize, top: f64, index: usize| {
        let distance = peak.abs_diff(index) as f64;
        top * (-distance * distance / 32.0).exp()
    };
    Recommendation {
        reasons: Vec::new(),
        ranking: ranking.into(),
        best: "64K".to_owned(),
        tied_with: vec!["128K".to_owned()],
        summary:
            "64K and 128K are tied: the evidence does not separate them. Take 64K where sequential work \
                  matters more, 128K where random work does."
                .to_owned(),
        method:
            "Throughput of each chunk relative to the best chunk of the same cell, combined over cells as \
                 a weighted geometric mean; intervals from the replicates, differences paired by seed."
                .to_owned(),
        weights: families.map(|(family, ..)| (family.to_owned(), 1.0)).into(),
        trade_off: None,
        by_family: families
            .map(|(family, peak, top)| FamilyBest {
                family: family.to_owned(),
                best: CHUNKS[peak].0.to_owned(),
                score: top,
                tied_with: if peak == 5 { vec![CHUNKS[4].0.to_owned()] } else { Vec::new() },
                scores: (0..CHUNKS.len()).map(|index| score_at(peak, top, index)).collect(),
            })
            .into(),
        commands: vec![
            "mdadm --create /dev/md0 --level=5 --raid-devices=5 --chunk=64 /dev/sd[b-f]".to_owned(),
            "mkfs.ext4 -E stride=16,stripe-width=64 /dev/md0".to_owned(),
        ],
    }
}

/// A measured, quick study with one replicate, no interval and text that tries to be markup.
fn measured(full: &StudyResults) -> StudyResults {
    let mut results = full.clone();
    results.simulated = false;
    results.quick = true;
    "Synthetic sample: measured, quick, one replicate".clone_into(&mut results.title);
    "files:/mnt/<fast & \"quoted\">/a long folder name".clone_into(&mut results.environment.target);
    results
        .environment
        .notes
        .push("</script><script>window.injected = 1</script><img src=x onerror=alert(1)>".to_owned());
    results.environment.provenance.clear();
    results.cells.retain(|cell| cell.replicate == 0 && !["8k", "8m"].contains(&cell.factors["bs"].as_str()));
    let advice = &mut results.recommendation;
    advice.tied_with.clear();
    "64K scored highest in a single run, but no winner can be told without an interval."
        .clone_into(&mut advice.summary);
    for ranked in &mut advice.ranking {
        (ranked.score_ci, ranked.ratio_to_best_ci) = (None, None);
    }
    results
}

/// Another subject, whose values are names, and a single workload: no factor for an axis.
fn names() -> StudyResults {
    let mut results = sample();
    "stripe-cache".clone_into(&mut results.study);
    "Synthetic sample: which layout?".clone_into(&mut results.title);
    "layout".clone_into(&mut results.subject);
    let layouts = ["left-symmetric", "left-asymmetric", "right-symmetric", "parity-first"];
    results.subject_values = layouts.map(str::to_owned).into();
    results.cells.retain(|cell| {
        let factor = |name: &str| cell.factors.get(name).map_or("", String::as_str);
        let chunk = ["", "4K", "8K", "16K", "32K"].contains(&factor("chunk"));
        chunk
            && factor("bs") == "64k"
            && factor("rw") == "randrw"
            && factor("rwmixread") == "50"
            && factor("numjobs") == "1"
    });
    let chunks = ["4K", "8K", "16K", "32K"];
    for cell in &mut results.cells {
        if let Some(chunk) = cell.factors.remove("chunk") {
            let index = chunks.iter().position(|name| *name == chunk).unwrap_or(0);
            cell.factors.insert("layout".to_owned(), layouts[index].to_owned());
        }
    }
    let advice = &mut results.recommendation;
    advice.ranking.truncate(4);
    for (ranked, layout) in advice.ranking.iter_mut().zip(layouts) {
        layout.clone_into(&mut ranked.value);
    }
    layouts[0].clone_into(&mut advice.best);
    advice.tied_with = vec![layouts[1].to_owned()];
    advice.by_family.retain(|family| family.family == "random-mixed");
    for family in &mut advice.by_family {
        family.scores = vec![0.972, 0.951, 0.905, 0.88];
        layouts[0].clone_into(&mut family.best);
        family.tied_with.clear();
    }
    advice.commands = vec![
        "mdadm --create /dev/md0 --level=5 --raid-devices=5 --layout=left-symmetric /dev/sd[b-f]".to_owned(),
    ];
    results
}

/// A study whose subject, the threads, is one of the array and of the single drive.
fn both() -> StudyResults {
    let mut results = sample();
    "Synthetic sample: how many threads?".clone_into(&mut results.title);
    "numjobs".clone_into(&mut results.subject);
    results.subject_values = vec!["1".to_owned(), "20".to_owned()];
    results.cells.retain(|cell| {
        let factor = |name: &str| cell.factors.get(name).map_or("", String::as_str);
        ["", "64K"].contains(&factor("chunk")) && factor("rw") == "randrw" && factor("rwmixread") == "100"
    });
    for cell in &mut results.cells {
        cell.factors.remove("chunk");
    }
    without_judgement(&mut results);
    results
}

/// A study of an array's own work, which has no job beside it.
fn resync() -> StudyResults {
    let mut results = one_workload("Synthetic sample: how fast is a resync?");
    for (number, cell) in (0..).zip(&mut results.cells) {
        cell.factors.retain(|name, _| name == "chunk");
        cell.read = DirectionResult::default();
        cell.write = DirectionResult::default();
        cell.figures.insert("sync_kib_s".to_owned(), 19_000.0 + 1000.0 * noise(number));
    }
    without_judgement(&mut results);
    results
}

/// A study of a trace that was replayed at its own pace.
fn paced() -> StudyResults {
    let mut results = one_workload("Synthetic sample: how long do the requests of a trace take?");
    for cell in &mut results.cells {
        cell.factors.retain(|name, _| name == "chunk");
        cell.factors
            .extend([("trace", "mail.trace"), ("speed", "1x")].map(|(n, v)| (n.to_owned(), v.to_owned())));
    }
    without_judgement(&mut results);
    results
}

/// A plan of parts that do not combine: two with axes of their own, the single drive of one of them, what the other is without a
/// bitmap and so without the subject, and a part that the subject is no factor of.
fn parts() -> StudyResults {
    let mut results = sample();
    "Synthetic sample: a plan of several parts".clone_into(&mut results.title);
    results.cells.retain(|cell| {
        let factor = |name: &str| cell.factors.get(name).map(String::as_str);
        factor("rw") == Some("randrw") && factor("numjobs") == Some("1") && factor("rwmixread") != Some("50")
    });
    let small = results.cells.clone();
    for cell in &mut results.cells {
        let part = if cell.factors.contains_key("chunk") { "small" } else { "small-drive" };
        cell.factors.insert("part".to_owned(), part.to_owned());
        cell.factors.insert("raid_devices".to_owned(), "5".to_owned());
        if part == "small-drive" {
            cell.factors.remove("raid_devices");
        }
    }
    for mut cell in small.iter().filter(|cell| cell.factors.contains_key("chunk")).cloned() {
        let run = cell.factors.insert("bs".to_owned(), "8k".to_owned()).unwrap_or_default();
        let more = [("part", "large"), ("run", run.as_str()), ("bitmap", "internal")];
        cell.factors.extend(more.map(|(n, v)| (n.to_owned(), v.to_owned())));
        let mut without = cell.clone();
        results.cells.push(cell);
        if without.factors.remove("chunk").is_some_and(|chunk| chunk == "64K") {
            without.factors.insert("bitmap".to_owned(), "none".to_owned());
            results.cells.push(without);
        }
    }
    let first = small.iter().filter(|cell| cell.factors.get("bs").is_some_and(|bs| bs == "4k"));
    for (mut cell, controller) in first.cloned().zip(["one-port", "two-ports", "hba"]) {
        cell.factors.remove("chunk");
        cell.replicate = 0;
        cell.factors.extend(
            [("part", "controllers"), ("controller", controller)].map(|(n, v)| (n.to_owned(), v.to_owned())),
        );
        results.cells.push(cell);
    }
    without_judgement(&mut results);
    results
}

/// The cells of one workload, with every chunk.
fn one_workload(title: &str) -> StudyResults {
    let mut results = sample();
    title.clone_into(&mut results.title);
    results.cells.retain(|cell| {
        let factor = |name: &str| cell.factors.get(name).map(String::as_str);
        let plain =
            factor("bs") == Some("4k") && factor("rw") == Some("rw") && factor("numjobs") == Some("1");
        plain && factor("rwmixread") == Some("100") && factor("chunk").is_some()
    });
    results
}

fn without_judgement(results: &mut StudyResults) {
    let advice = &mut results.recommendation;
    advice.ranking.clear();
    advice.best.clear();
    advice.tied_with.clear();
    advice.by_family.clear();
    advice.commands.clear();
    "Nothing is recommended.".clone_into(&mut advice.summary);
}

/// An interrupted study: most cells missing, some failed.
fn sparse(full: &StudyResults) -> StudyResults {
    let mut results = full.clone();
    "Synthetic sample: interrupted, with failed cells".clone_into(&mut results.title);
    let mut number = 0;
    results.cells.retain(|_| {
        number += 1;
        noise(number) < 0.2
    });
    for cell in results.cells.iter_mut().step_by(4) {
        cell.error = Some("member 3: Input/output error <EIO>".to_owned());
        cell.read = DirectionResult::default();
        cell.write = DirectionResult::default();
    }
    results
}

/// A study without a single cell.
fn empty(full: &StudyResults) -> StudyResults {
    let mut results = full.clone();
    "Synthetic sample: no cells".clone_into(&mut results.title);
    results.cells.clear();
    results.recommendation.ranking.clear();
    results.recommendation.by_family.clear();
    results.recommendation.best.clear();
    results.recommendation.tied_with.clear();
    results.recommendation.commands.clear();
    "No cell has been run.".clone_into(&mut results.recommendation.summary);
    results
}
