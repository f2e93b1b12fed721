//! Parity kernels in GB/s of data, beside Intel's ISA-L, where it is installed, and the crate reed-solomon-erasure.
//!
//! `cargo bench -p stripewise-lab --bench parity` takes a few minutes, `-- --quick` seconds; `-- WORD` runs only the cases
//! whose name contains the word; `-- --kernels` adds every kernel set this CPU runs, the scalar one first. Every contender
//! computes the same case in interleaved rounds, with its blocks packed (at strides of a power of two, where they share the
//! sets of a cache) and displaced by 1792 bytes each; each side stands with the better of the two.

use std::hint::black_box;
use std::process::Command;
use std::time::Instant;

use reed_solomon_erasure::galois_8::ReedSolomon;
use stripewise_host::Memory;
use stripewise_lab::environment::{host_cpu, host_kernel};
use stripewise_lab::selfbench::clock::steps_per_second;
use stripewise_lab::selfbench::table::{self, median};
use stripewise_lab::selfbench::{Row, Scale, Target, Unit};
use stripewise_parity::{Change, Kernels, Lost, Role, Stripe, kernels};

#[path = "parity/isal.rs"]
mod isal;

use isal::Isal;

/// Where a case's blocks lie: name, bytes of all its stripes, bytes of a block (the page of a stripe-cache row in L2).
const PLACES: [(&str, usize, usize); 3] =
    [("L2", 256 << 10, 4096), ("L3", 8 << 20, 64 << 10), ("DRAM", 256 << 20, 64 << 10)];
const DISPLACEMENTS_BYTES: [usize; 2] = [0, 1792];

#[derive(Clone, Copy, Debug, PartialEq)]
enum Operation {
    Xor,
    Pq,
    RecoverOneByP,
    RecoverOneByQ,
    RecoverTwo,
    Update,
    Check,
}

#[derive(Clone, Copy)]
struct Case {
    operation: Operation,
    width: usize,
    place: &'static str,
    bytes: usize,
    block_bytes: usize,
}

/// A way to compute.
enum Contender<'a> {
    Ours(Kernels),
    /// The chosen kernels, writing past the caches.
    Streaming,
    Isal {
        library: &'a Isal,
        by_matrix: bool,
    },
    ReedSolomon(Box<ReedSolomon>),
}

impl Operation {
    const fn name(self) -> &'static str {
        match self {
            Self::Xor => "xor",
            Self::Pq => "P+Q",
            Self::RecoverOneByP => "recovery of 1 by P,",
            Self::RecoverOneByQ => "recovery of 1 by Q,",
            Self::RecoverTwo => "recovery of 2,",
            Self::Update => "update of P+Q,",
            Self::Check => "check of P,",
        }
    }

    /// Blocks computed, or compared.
    const fn targets(self) -> usize {
        match self {
            Self::Pq | Self::RecoverTwo | Self::Update => 2,
            _ => 1,
        }
    }

    /// Whether our kernels have a flavour that writes past the caches.
    const fn can_stream(self) -> bool {
        !matches!(self, Self::Update | Self::Check)
    }

    /// Beside ISA-L.
    fn asked(self, place: &str) -> Option<f64> {
        match self {
            Self::Xor | Self::Pq => Some(if place == "DRAM" { 1.0 } else { 1.1 }),
            Self::RecoverOneByP | Self::RecoverOneByQ | Self::RecoverTwo => Some(1.5),
            Self::Update | Self::Check => None,
        }
    }
}

impl Contender<'_> {
    fn name(&self) -> String {
        match self {
            Self::Ours(kernels) => kernels.name(),
            Self::Streaming => format!("{} streaming", kernels().name()),
            Self::Isal { by_matrix: false, .. } => "ISA-L".to_owned(),
            Self::Isal { by_matrix: true, .. } => "ISA-L ec_encode_data".to_owned(),
            Self::ReedSolomon(_) => "reed-solomon-erasure".to_owned(),
        }
    }
}

impl Case {
    fn name(self) -> String {
        format!("{} {}+{}, {}", self.operation.name(), self.width, self.operation.targets(), self.place)
    }

    fn contenders(self, library: Option<&Isal>, has_all_kernels: bool) -> Vec<Contender<'_>> {
        use Operation::{Check, Pq, Update, Xor};
        let mut contenders = vec![Contender::Ours(kernels().clone())];
        if self.operation.can_stream() {
            contenders.push(Contender::Streaming);
        }
        if has_all_kernels {
            contenders.extend(Kernels::all().into_iter().map(Contender::Ours));
        }
        if let Some(library) = library {
            match self.operation {
                Xor | Pq => contenders.push(Contender::Isal { library, by_matrix: false }),
                Update | Check => {}
                _ => contenders.push(Contender::Isal { library, by_matrix: true }),
            }
        }
        if !matches!(self.operation, Update | Check) {
            let code = ReedSolomon::new(self.width, self.operation.targets());
            contenders.push(Contender::ReedSolomon(Box::new(code.expect("a possible code"))));
        }
        contenders
    }

    /// Bytes of data a second, stripe after stripe, with blocks so far from where they would be packed.
    ///
    /// What a caller knows before (the lists of its blocks) is made before the time is taken.
    fn rate(self, contender: &Contender<'_>, memory: &mut [u8], displacement: usize, scale: &Scale) -> f64 {
        let stride = self.block_bytes + displacement;
        let stripe_bytes = (self.width + self.operation.targets()) * stride;
        let bytes = self.bytes.min(memory.len()).max(stripe_bytes);
        let stripes = memory[..bytes].chunks_exact_mut(stripe_bytes);
        let mut works: Vec<Work<'_>> = stripes
            .map(|stripe| {
                let blocks = stripe.chunks_exact_mut(stride).map(|block| &mut block[..self.block_bytes]);
                work(contender, self.operation, blocks.collect())
            })
            .collect();
        let (mut next, count) = (0, works.len());
        let stripes_per_second = steps_per_second(scale.sample / 4, 4, || {
            works[next]();
            next = if next + 1 == count { 0 } else { next + 1 };
        });
        stripes_per_second * (self.width * self.block_bytes) as f64
    }
}

/// Does an operation on one stripe.
type Work<'a> = Box<dyn FnMut() + 'a>;

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let has = |option: &str| arguments.iter().any(|argument| argument == option);
    if has("--test") {
        return Ok(());
    }
    let scale = if has("--quick") { Scale::QUICK } else { Scale::TABLE };
    let word = arguments.iter().find(|argument| !argument.starts_with("--")).cloned().unwrap_or_default();
    let library = Isal::load();
    print_machine(library.is_some());
    let mut memory = Memory::new(if has("--quick") { 64 << 20 } else { 256 << 20 })?;
    memory.iter_mut().zip(0_usize..).for_each(|(byte, index)| *byte = (index ^ (index >> 7)) as u8);
    let mut missed = 0;
    for case in cases(has("--quick")).into_iter().filter(|case| case.name().contains(&word)) {
        for row in run_case(case, &mut memory, library.as_ref(), &scale, has("--kernels")) {
            missed += u32::from(row.verdict() == table::Verdict::Missed);
            print!("{}", table::row_text(&row, false));
        }
    }
    println!("\n{missed} missed");
    Ok(())
}

fn cases(is_quick: bool) -> Vec<Case> {
    use Operation::{Check, Pq, RecoverOneByP, RecoverOneByQ, RecoverTwo, Update, Xor};
    let widths: &[usize] = if is_quick { &[8] } else { &[4, 8, 22] };
    let mut cases = Vec::new();
    for operation in [Xor, Pq, RecoverOneByP, RecoverOneByQ, RecoverTwo, Update, Check] {
        for &width in widths {
            for (place, bytes, block_bytes) in PLACES {
                cases.push(Case { operation, width, place, bytes, block_bytes });
            }
        }
    }
    cases
}

fn print_machine(has_isal: bool) {
    let commit = Command::new("git").args(["describe", "--always", "--dirty"]).output();
    let commit = commit.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    println!("{}, {}, commit {}", host_cpu(), host_kernel(), commit.unwrap_or_else(|_| "unknown".to_owned()));
    let start = Instant::now();
    println!("kernels: {}, chosen in {:.1} ms", kernels(), start.elapsed().as_secs_f64() * 1e3);
    if !has_isal {
        println!("ISA-L is not installed (Debian: apt-get install libisal-dev): not compared");
    }
    print!("\n{}", table::heading());
}

/// Prints every contender's rates, packed and displaced; returns the rows beside each peer.
fn run_case(
    case: Case,
    memory: &mut [u8],
    library: Option<&Isal>,
    scale: &Scale,
    has_all_kernels: bool,
) -> Vec<Row> {
    let contenders = case.contenders(library, has_all_kernels);
    let mut samples = vec![[const { Vec::new() }; DISPLACEMENTS_BYTES.len()]; contenders.len()];
    for round in 0..=scale.rounds {
        for (contender, samples) in contenders.iter().zip(&mut samples) {
            for (displacement, samples) in DISPLACEMENTS_BYTES.into_iter().zip(samples) {
                let rate = case.rate(contender, memory, displacement, scale);
                if round > 0 {
                    samples.push(rate);
                }
            }
        }
    }
    println!();
    let mut best: Vec<(String, Vec<f64>)> = Vec::new();
    for (contender, [packed, displaced]) in contenders.iter().zip(samples) {
        let [p, d] = [&packed, &displaced].map(|samples| median(samples).unwrap_or(0.0));
        println!(
            "{:<46} {:<22} {:6.1} GB/s packed {:6.1} displaced",
            case.name(),
            contender.name(),
            p / 1e9,
            d / 1e9
        );
        let (place, samples) = if p >= d { ("packed", packed) } else { ("displaced", displaced) };
        best.push((format!("{}, {place}", contender.name()), samples));
    }
    // The chosen kernels, and their streaming flavour where there is one, come first: callers take the one that fits.
    let ours_count = if case.operation.can_stream() { 2 } else { 1 };
    let by_median = |a: &&(String, Vec<f64>), b: &&(String, Vec<f64>)| {
        median(&a.1).unwrap_or(0.0).total_cmp(&median(&b.1).unwrap_or(0.0))
    };
    let Some(ours) = best[..ours_count].iter().max_by(by_median) else { return Vec::new() };
    let peers = contenders
        .iter()
        .zip(&best)
        .filter(|(contender, _)| !matches!(contender, Contender::Ours(_) | Contender::Streaming));
    peers
        .map(|(contender, (name, samples))| {
            let row = Row::new(case.name(), Unit::GbPerSecond, ours.1.clone())
                .beside(name, samples.clone())
                .noted(format!("ours: {}", ours.0));
            match (contender, case.operation.asked(case.place)) {
                (Contender::Isal { .. }, Some(least)) => row.asked(Target::RatioAtLeast(least)),
                _ => row,
            }
        })
        .collect()
}

/// The operation on a stripe; the blocks that are computed come first.
fn work<'a>(contender: &'a Contender<'_>, operation: Operation, mut targets: Vec<&'a mut [u8]>) -> Work<'a> {
    let data = targets.split_off(operation.targets());
    match contender {
        Contender::Isal { library, by_matrix: true } => library.encode(targets, data),
        Contender::Isal { library, .. } => library.generate(targets, data),
        Contender::Streaming => work_ours(kernels(), true, operation, targets, data),
        Contender::Ours(kernels) => work_ours(kernels, false, operation, targets, data),
        Contender::ReedSolomon(code) => work_reed_solomon(code, operation, targets, data),
    }
}

fn work_ours<'a>(
    kernels: &'a Kernels,
    is_streaming: bool,
    operation: Operation,
    mut targets: Vec<&'a mut [u8]>,
    data: Vec<&'a mut [u8]>,
) -> Work<'a> {
    let sources: Vec<&[u8]> = data.into_iter().map(|block| &*block).collect();
    let mut optional: Vec<Option<&[u8]>> = sources.iter().copied().map(Some).collect();
    let last = sources.len() - 1;
    // In the recoveries as much is read as in a stripe of that width: the last blocks stand for P and Q.
    match operation {
        Operation::RecoverOneByP | Operation::RecoverOneByQ => optional[last] = None,
        Operation::RecoverTwo => optional[last - 1..].fill(None),
        _ => {}
    }
    let recover = move |stripe: &Stripe<'_>, lost: &mut [Lost<'_>]| {
        let result = if is_streaming {
            kernels.recover_streaming(stripe, lost)
        } else {
            kernels.recover(stripe, lost)
        };
        result.expect("no more is lost than there is parity");
    };
    Box::new(move || {
        match (operation, &mut targets[..]) {
            (Operation::Xor, [target]) if is_streaming => kernels.xor_streaming(target, &sources),
            (Operation::Xor, [target]) => kernels.xor(target, &sources),
            (Operation::Pq, [p, q]) if is_streaming => kernels.pq_streaming(p, q, &optional),
            (Operation::Pq, [p, q]) => kernels.pq(p, q, &optional),
            (Operation::Update, [p, q]) => {
                // Each pair of data blocks stands for the old and new contents of one block.
                let changes: Vec<Change<'_>> = (0..)
                    .zip(sources.chunks_exact(2))
                    .map(|(index, pair)| Change { index, old: pair[0], new: pair[1] })
                    .collect();
                kernels.pq_update(Some(p), Some(q), &changes);
            }
            (Operation::RecoverOneByP, [target]) => {
                let stripe = Stripe { data: &optional, p: Some(sources[last]), q: None };
                recover(&stripe, &mut [Lost::wanted(Role::Data(last as u16), target)]);
            }
            (Operation::RecoverOneByQ, [target]) => {
                let stripe = Stripe { data: &optional, p: None, q: Some(sources[last]) };
                let lost = Lost::wanted(Role::Data(last as u16), target);
                recover(&stripe, &mut [lost, Lost::unwanted(Role::P)]);
            }
            (Operation::RecoverTwo, [x, y]) => {
                let stripe = Stripe { data: &optional, p: Some(sources[last - 1]), q: Some(sources[last]) };
                let (x_role, y_role) = (Role::Data(last as u16 - 1), Role::Data(last as u16));
                recover(&stripe, &mut [Lost::wanted(x_role, x), Lost::wanted(y_role, y)]);
            }
            // The blocks do not agree, and a check with Q would go on to locate the culprit.
            (Operation::Check, [p]) => {
                black_box(kernels.check(&optional, p, None));
            }
            (operation, _) => unreachable!("{operation:?} has as many targets as it says"),
        }
        black_box(&mut targets);
    })
}

fn work_reed_solomon<'a>(
    code: &'a ReedSolomon,
    operation: Operation,
    mut targets: Vec<&'a mut [u8]>,
    mut data: Vec<&'a mut [u8]>,
) -> Work<'a> {
    if matches!(operation, Operation::Xor | Operation::Pq) {
        return Box::new(move || code.encode_sep(&data, &mut targets).expect("blocks of one length"));
    }
    // The last data blocks are lost: what is computed takes their places, and they stand for parity.
    let parity = data.split_off(data.len() - targets.len());
    let lost = data.len()..data.len() + targets.len();
    let blocks = data.into_iter().chain(targets).chain(parity);
    let mut blocks: Vec<(&mut [u8], bool)> = blocks.map(|block| (block, true)).collect();
    Box::new(move || {
        blocks[lost.clone()].iter_mut().for_each(|(_, is_there)| *is_there = false);
        code.reconstruct_data(&mut blocks).expect("as many blocks are lost as there is parity");
    })
}
