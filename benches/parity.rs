//! Parity kernels in GB/s of data, beside the scalar kernels and, where it is installed, Intel's ISA-L.
//!
//! `cargo bench -p stripewise-parity` takes about a minute, `-- --quick` under ten seconds; `-- WORD`
//! runs only the cases whose name contains the word. Every kernel computes the same case in
//! interleaved rounds, so a slow spell of the machine hits all alike. Printed per kernel: the median
//! rate, the ratio of medians to scalar (and to ISA-L), and every round's rate.

use std::hint::black_box;
use std::time::{Duration, Instant};

use stripewise_parity::{Change, Kernels, Lost, Role, Stripe, kernels};

#[path = "parity/isal.rs"]
mod isal;
#[path = "parity/memory.rs"]
mod memory;

use isal::Isal;
use memory::Arena;

/// Total bytes of a case's working set, and what that makes it.
const WORKING_SETS: [(&str, usize); 3] = [("L2", 256 << 10), ("L3", 8 << 20), ("DRAM", 256 << 20)];

/// Bytes of a block: the chunk of the DRAM and L3 cases; the page of a stripe-cache row in L2.
const CHUNK_BYTES: usize = 64 << 10;
const PAGE_BYTES: usize = 4096;

#[derive(Clone, Copy, PartialEq)]
enum Operation {
    Copy,
    Xor,
    Pq,
    Update,
    RecoverOneByQ,
    RecoverTwo,
    Check,
}

struct Case {
    operation: Operation,
    width: usize,
    place: &'static str,
    working_set_bytes: usize,
}

/// A way to compute: one of the project's kernel sets, or ISA-L.
enum Contender<'a> {
    Ours(Kernels),
    /// The raced kernels, writing past the caches.
    Streaming,
    Isal {
        library: &'a Isal,
        by_matrix: bool,
    },
    Memcpy,
}

impl Operation {
    fn name(self) -> &'static str {
        match self {
            Self::Copy => "copy",
            Self::Xor => "xor",
            Self::Pq => "pq",
            Self::Update => "pq-update",
            Self::RecoverOneByQ => "recover-1-by-q",
            Self::RecoverTwo => "recover-2",
            Self::Check => "check",
        }
    }

    fn parity_blocks(self) -> usize {
        match self {
            Self::Copy | Self::Xor => 1,
            _ => 2,
        }
    }
}

impl Contender<'_> {
    fn name(&self) -> String {
        match self {
            Self::Ours(kernels) => kernels.name(),
            Self::Streaming => format!("{} streaming", kernels().name()),
            Self::Isal { by_matrix: false, .. } => "isa-l".to_owned(),
            Self::Isal { by_matrix: true, .. } => "isa-l ec_encode_data".to_owned(),
            Self::Memcpy => "memcpy".to_owned(),
        }
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let quick = arguments.iter().any(|argument| argument == "--quick");
    let word = arguments.iter().find(|argument| !argument.starts_with("--"));
    print_machine();
    let library = Isal::load();
    match &library {
        Some(_) => println!("isa-l      loaded"),
        None => println!("isa-l      not installed (Debian: apt-get install libisal-dev); not compared"),
    }
    let mut arena = Arena::new(if quick { 64 << 20 } else { 256 << 20 });
    for case in cases(quick, arena.len()) {
        let name = format!(
            "{} {}+{} {}",
            case.operation.name(),
            case.width,
            case.operation.parity_blocks(),
            case.place
        );
        if word.is_none_or(|word| name.contains(word.as_str())) {
            run_case(&name, &case, &mut arena, library.as_ref(), quick);
        }
    }
}

fn cases(quick: bool, arena_bytes: usize) -> Vec<Case> {
    use Operation::{Check, Copy, Pq, RecoverOneByQ, RecoverTwo, Update, Xor};
    let mut cases = Vec::new();
    for operation in [Copy, Xor, Pq, Update, RecoverOneByQ, RecoverTwo, Check] {
        let widths: &[usize] = match operation {
            Copy => &[1],
            _ if quick => &[8],
            _ => &[4, 8, 22],
        };
        for &width in widths {
            for (place, working_set_bytes) in WORKING_SETS {
                let working_set_bytes = working_set_bytes.min(arena_bytes);
                cases.push(Case { operation, width, place, working_set_bytes });
            }
        }
    }
    cases
}

fn print_machine() {
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field = |name: &str| {
        let line = cpu.lines().find(|line| line.starts_with(name))?;
        Some(line.split(':').nth(1)?.trim().to_owned())
    };
    let commit = std::process::Command::new("git").args(["describe", "--always", "--dirty"]).output();
    let commit = commit.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    println!(
        "machine    {} (family {}, model {}), {}",
        field("model name").unwrap_or_else(|| "unknown CPU".to_owned()),
        field("cpu family").unwrap_or_default(),
        field("model\t").unwrap_or_default(),
        std::env::consts::ARCH
    );
    println!("commit     {}", commit.unwrap_or_else(|_| "unknown".to_owned()));
    let start = Instant::now();
    let chosen = kernels();
    println!("race       {chosen}, in {:.1} ms", start.elapsed().as_secs_f64() * 1e3);
    for heat in chosen.race_results() {
        println!("           {heat}");
    }
}

fn contenders<'a>(case: &Case, library: Option<&'a Isal>) -> Vec<Contender<'a>> {
    let mut contenders: Vec<_> = Kernels::all().into_iter().map(Contender::Ours).collect();
    if matches!(case.operation, Operation::Copy | Operation::Xor | Operation::Pq) {
        contenders.push(Contender::Streaming);
    }
    match (case.operation, library) {
        (Operation::Copy, _) => contenders.push(Contender::Memcpy),
        (Operation::Xor, Some(library)) => contenders.push(Contender::Isal { library, by_matrix: false }),
        (Operation::Pq, Some(library)) => {
            contenders.push(Contender::Isal { library, by_matrix: false });
            contenders.push(Contender::Isal { library, by_matrix: true });
        }
        (Operation::RecoverOneByQ | Operation::RecoverTwo, Some(library)) => {
            contenders.push(Contender::Isal { library, by_matrix: true });
        }
        _ => {}
    }
    contenders
}

fn run_case(name: &str, case: &Case, arena: &mut Arena, library: Option<&Isal>, quick: bool) {
    let contenders = contenders(case, library);
    let (rounds, round_time) =
        if quick { (5, Duration::from_millis(4)) } else { (7, Duration::from_millis(12)) };
    let mut samples = vec![Vec::new(); contenders.len()];
    for _ in 0..rounds {
        for (contender, samples) in contenders.iter().zip(&mut samples) {
            samples.push(round(contender, case, arena, round_time));
        }
    }
    let medians: Vec<f64> = samples.iter().map(|samples| median(samples)).collect();
    let is_peer = |contender: &Contender<'_>| matches!(contender, Contender::Isal { .. } | Contender::Memcpy);
    let peer = contenders.iter().position(is_peer);
    println!("\n{name}, {} KiB working set", case.working_set_bytes >> 10);
    for ((contender, samples), rate) in contenders.iter().zip(&samples).zip(&medians) {
        let to_peer = peer.map_or(String::new(), |peer| {
            format!(" {:5.2} x {}", rate / medians[peer], contenders[peer].name())
        });
        let raw: Vec<String> = samples.iter().map(|sample| format!("{sample:.1}")).collect();
        println!(
            "  {:22} {rate:6.1} GB/s {:6.2} x scalar{to_peer}   [{}]",
            contender.name(),
            rate / medians[0],
            raw.join(" ")
        );
    }
}

/// Walks the working set, stripe after stripe, for about `time`; returns GB/s of data.
fn round(contender: &Contender<'_>, case: &Case, arena: &mut Arena, time: Duration) -> f64 {
    let block_bytes = if case.place == "L2" { PAGE_BYTES } else { CHUNK_BYTES };
    let blocks = case.width + case.operation.parity_blocks();
    let stripes = usize::max(1, case.working_set_bytes / (blocks * block_bytes));
    let mut run = |stripe: usize| {
        let mut blocks = arena.stripe(stripe, blocks, block_bytes);
        compute(contender, case, &mut blocks);
    };
    run(0);
    let start = Instant::now();
    let mut done = 0;
    loop {
        run(done % stripes);
        done += 1;
        if done % 4 == 0 && start.elapsed() >= time {
            break;
        }
    }
    (done * case.width * block_bytes) as f64 / start.elapsed().as_secs_f64() / 1e9
}

/// Does the case's operation once; the parity blocks come first.
fn compute(contender: &Contender<'_>, case: &Case, blocks: &mut [&mut [u8]]) {
    let (parity, data) = blocks.split_at_mut(case.operation.parity_blocks());
    match contender {
        Contender::Memcpy => parity[0].copy_from_slice(data[0]),
        Contender::Isal { library, by_matrix } => match case.operation {
            Operation::Xor => library.xor(parity[0], data),
            Operation::RecoverOneByQ => library.encode(&mut parity[..1], data),
            _ if *by_matrix => library.encode(parity, data),
            _ => library.pq(parity, data),
        },
        Contender::Streaming => compute_streaming(case.operation, parity, data),
        Contender::Ours(kernels) => compute_ours(kernels, case.operation, parity, data),
    }
    black_box(parity);
}

fn compute_ours(kernels: &Kernels, operation: Operation, parity: &mut [&mut [u8]], data: &mut [&mut [u8]]) {
    let sources: Vec<&[u8]> = data.iter().map(|block| &**block).collect();
    let optional: Vec<Option<&[u8]>> = sources.iter().copied().map(Some).collect();
    let (first, second) = parity.split_at_mut(1);
    match operation {
        // A copy is the xor of one block.
        Operation::Copy | Operation::Xor => kernels.xor(first[0], &sources),
        Operation::Pq => kernels.pq(first[0], second[0], &optional),
        Operation::Update => {
            // Each pair of data blocks stands for the old and new contents of one block.
            let changes: Vec<Change<'_>> = (0..)
                .zip(sources.chunks_exact(2))
                .map(|(index, pair)| Change { index, old: pair[0], new: pair[1] })
                .collect();
            kernels.pq_update(Some(first[0]), Some(second[0]), &changes);
        }
        Operation::RecoverOneByQ => {
            // As much is read as in a stripe of `width`: the last data block stands for Q.
            let mut survivors = optional.clone();
            survivors[sources.len() - 1] = None;
            let stripe = Stripe { data: &survivors, p: None, q: Some(sources[sources.len() - 1]) };
            let lost = (sources.len() - 1) as u16;
            let targets = &mut [Lost::wanted(Role::Data(lost), first[0]), Lost::unwanted(Role::P)];
            kernels.recover(&stripe, targets).expect("one block and P are lost");
        }
        Operation::RecoverTwo => {
            let mut survivors = optional.clone();
            let last = sources.len() - 1;
            (survivors[last - 1], survivors[last]) = (None, None);
            let stripe = Stripe { data: &survivors, p: Some(sources[last - 1]), q: Some(sources[last]) };
            let targets = &mut [
                Lost::wanted(Role::Data(last as u16 - 1), first[0]),
                Lost::wanted(Role::Data(last as u16), second[0]),
            ];
            kernels.recover(&stripe, targets).expect("two blocks are lost");
        }
        Operation::Check => {
            // The arena's blocks do not agree, and a check that finds that out goes on to locate the
            // culprit; without Q it stops after its one pass.
            black_box(kernels.check(&optional, first[0], None));
        }
    }
}

fn compute_streaming(operation: Operation, parity: &mut [&mut [u8]], data: &[&mut [u8]]) {
    let sources: Vec<&[u8]> = data.iter().map(|block| &**block).collect();
    match (operation, parity) {
        (Operation::Copy, [target]) => kernels().copy_streaming(target, sources[0]),
        (Operation::Xor, [target]) => kernels().xor_streaming(target, &sources),
        (Operation::Pq, [p, q]) => {
            let optional: Vec<Option<&[u8]>> = sources.iter().copied().map(Some).collect();
            kernels().pq_streaming(p, q, &optional);
        }
        _ => unreachable!("{} has no streaming flavour", operation.name()),
    }
}

fn median(samples: &[f64]) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}
