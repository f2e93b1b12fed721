//! Why: what the best and the worst value of a family made the members do.

use super::{MKFS, Question, judged};
use crate::results::{CellResult, FamilyBest};

/// A difference of cost below this share explains nothing.
const TELLING: f64 = 0.1;
/// A family whose scores lie closer together than this needs no reason.
const APART: f64 = 0.05;

/// What a request costs the members, over cells: I/Os as their geometric mean, since block sizes span four
/// orders of magnitude, bytes as their mean.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Cost {
    /// Member I/Os for each request.
    ios: f64,
    /// Bytes members move for each byte requested.
    bytes: f64,
    /// Of these, bytes read.
    read: f64,
}

/// A sentence for each family that counts and in which the subject matters, best and worst value beside each other.
pub(super) fn reasons(cells: &[CellResult], question: &Question<'_>, families: &[FamilyBest]) -> Vec<String> {
    let counts = |family: &&FamilyBest| question.weights.of(&family.family) > 0.0;
    families.iter().filter(counts).filter_map(|family| reason(cells, question, family)).collect()
}

fn reason(cells: &[CellResult], question: &Question<'_>, best: &FamilyBest) -> Option<String> {
    let (worst, score) = question
        .values
        .iter()
        .zip(&best.scores)
        .min_by(|a, b| a.1.total_cmp(b.1))
        .filter(|(v, _)| **v != best.best)?;
    if best.score - score < APART || best.tied_with.contains(worst) {
        return None;
    }
    if let Some(reason) = of_mkfs(cells, question, best, (worst, *score)) {
        return Some(reason);
    }
    let of = |value: &str| cost(cells, question.subject, &best.family, value);
    let (low, high) = (of(&best.best)?, of(worst)?);
    let writes = !best.family.ends_with("-read");
    Some(format!(
        "{}: at {} a request takes {}; at {worst}, {:.0} % slower, {}.{}",
        best.family,
        best.best,
        words(low, writes),
        (1.0 - score / best.score) * 100.0,
        words(high, writes),
        because(low, high, writes)
    ))
}

/// How much mkfs writes, where that is what differs: its requests then differ in number, not in what each costs.
fn of_mkfs(
    cells: &[CellResult],
    question: &Question<'_>,
    best: &FamilyBest,
    (worst, score): (&String, f64),
) -> Option<String> {
    let written = |value: &str| {
        let of = |cell: &&CellResult| cell.factors.get(question.subject).is_some_and(|v| v == value);
        let cells = cells.iter().filter(|c| c.target == "array" && c.error.is_none()).filter(of);
        let bytes: Vec<u64> =
            cells.filter(|c| judged(c).is_some_and(|j| j.family == MKFS)).map(|c| c.write.bytes).collect();
        (!bytes.is_empty()).then(|| bytes.iter().sum::<u64>() as f64 / bytes.len() as f64 / 1e6)
    };
    let (low, high) = (written(&best.best)?, written(worst)?);
    let differs = best.family == MKFS && (high / low - 1.0).abs() > TELLING;
    let slower = (1.0 - score / best.score) * 100.0;
    differs.then(|| {
        format!(
            "mkfs: at {} it writes {low:.0} MB; at {worst}, {slower:.0} % slower, {high:.0} MB.",
            best.best
        )
    })
}

fn cost(cells: &[CellResult], subject: &str, name: &str, value: &str) -> Option<Cost> {
    let costs: Vec<Cost> = cells
        .iter()
        .filter(|c| c.target == "array" && c.factors.get(subject).is_some_and(|v| v == value))
        .filter(|c| judged(c).is_some_and(|j| j.family == name))
        .filter_map(|c| c.member_ios.filter(|m| m.requests > 0))
        .map(|m| {
            let per_byte = |bytes: u64| bytes as f64 / m.request_bytes as f64;
            Cost {
                ios: (m.reads + m.writes) as f64 / m.requests as f64,
                bytes: per_byte(m.read_bytes + m.write_bytes),
                read: per_byte(m.read_bytes),
            }
        })
        .collect();
    // The logarithm of 0 would make the mean of all 0: cells that the page cache alone answers have no part in it.
    let logs: Vec<f64> = costs.iter().filter(|c| c.ios > 0.0).map(|c| c.ios.ln()).collect();
    let ios = if logs.is_empty() { 0.0 } else { (logs.iter().sum::<f64>() / logs.len() as f64).exp() };
    let mean = |of: fn(&Cost) -> f64| costs.iter().map(of).sum::<f64>() / costs.len() as f64;
    (!costs.is_empty()).then(|| Cost { ios, bytes: mean(|c| c.bytes), read: mean(|c| c.read) })
}

fn words(cost: Cost, writes: bool) -> String {
    let read = if writes { format!(" ({:.2} of them read)", cost.read) } else { String::new() };
    format!("{:.1} member I/Os, which move {:.2} bytes for each byte asked{read}", cost.ios, cost.bytes)
}

/// What stands out of the difference.
fn because(best: Cost, worst: Cost, writes: bool) -> &'static str {
    if writes && worst.read > best.read * (1.0 + TELLING) + 0.01 {
        " More of its writes cover only part of a stripe and must read before they write."
    } else if best.ios < 1.0 - TELLING && worst.ios > best.ios * (1.0 + TELLING) {
        " The page cache answers, or joins, fewer of its requests."
    } else if worst.bytes > best.bytes * (1.0 + TELLING) {
        " Its members move more for the same bytes."
    } else if worst.ios > best.ios * (1.0 + TELLING) {
        " Its requests are cut into more pieces, each a command of its own; before each a mechanical drive positions."
    } else if worst.ios < best.ios * (1.0 - TELLING) {
        " Its requests keep fewer members busy at a time."
    } else {
        ""
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::recommend::Weights;
    use crate::results::{DirectionResult, MemberIos};

    fn cell(chunk: &str, reads: u64) -> CellResult {
        let factors = [("rw", "randwrite"), ("chunk", chunk)].map(|(k, v)| (k.to_owned(), v.to_owned()));
        let member_ios = MemberIos {
            requests: 10,
            request_bytes: 1000,
            reads,
            read_bytes: reads * 100,
            writes: 20,
            write_bytes: 2000,
        };
        CellResult {
            key: String::new(),
            target: "array".to_owned(),
            factors: BTreeMap::from(factors),
            replicate: 0,
            seed: 0,
            seconds: 1.0,
            read: DirectionResult::default(),
            write: DirectionResult::default(),
            member_ios: Some(member_ios),
            figures: std::collections::BTreeMap::new(),
            error: None,
            notes: Vec::new(),
        }
    }

    #[test]
    fn a_write_that_reads_first_is_named_with_its_figures() {
        let values = ["16K".to_owned(), "1024K".to_owned()];
        let weights = Weights::default();
        let fixed = BTreeMap::new();
        let question = Question { subject: "chunk", values: &values, fixed: &fixed, weights: &weights };
        let best = FamilyBest {
            family: "random-write".to_owned(),
            best: "16K".to_owned(),
            score: 1.0,
            tied_with: Vec::new(),
            scores: vec![1.0, 0.5],
        };
        let said = reasons(&[cell("16K", 0), cell("1024K", 20)], &question, std::slice::from_ref(&best));
        assert_eq!(
            said,
            [
                "random-write: at 16K a request takes 2.0 member I/Os, which move 2.00 bytes for each byte asked \
              (0.00 of them read); \
              at 1024K, 50 % slower, 4.0 member I/Os, which move 4.00 bytes for each byte asked (2.00 of them read). More of its \
              writes cover only part of a stripe and must read before they write."
            ]
        );
        let mut cached = cell("16K", 0);
        cached.member_ios = cached.member_ios.map(|ios| MemberIos { writes: 0, write_bytes: 0, ..ios });
        let said =
            reasons(&[cached, cell("16K", 0), cell("1024K", 20)], &question, std::slice::from_ref(&best));
        assert!(said[0].contains("a request takes 2.0 member I/Os, which move 1.00 bytes"), "{said:?}");
        let none = |best: FamilyBest, question: &Question<'_>| {
            reasons(&[cell("16K", 0), cell("1024K", 20)], question, &[best]).is_empty()
        };
        assert!(none(FamilyBest { scores: vec![1.0, 0.97], ..best.clone() }, &question));
        assert!(none(FamilyBest { tied_with: vec!["1024K".to_owned()], ..best.clone() }, &question));
        let weights = Weights::parse(["random-write=0"]).unwrap();
        assert!(none(best, &Question { weights: &weights, ..question }));
    }
    /// Less than one member I/O for a request is what a cache above the array makes.
    #[test]
    fn requests_that_reach_the_members_are_not_called_cut() {
        let cost = |ios: f64| Cost { ios, bytes: 1.0, read: 1.0 };
        let cached = " The page cache answers, or joins, fewer of its requests.";
        assert_eq!(because(cost(0.01), cost(0.5), false), cached);
        assert_eq!(because(cost(0.01), cost(1.2), false), cached);
        assert!(because(cost(1.0), cost(2.0), false).contains("cut into more pieces"));
        let copies = Cost { ios: 6.0, bytes: 6.0, read: 0.0 };
        assert_eq!(
            because(Cost { read: 0.0, ..cost(1.0) }, copies, true),
            " Its members move more for the same bytes."
        );
    }
}
