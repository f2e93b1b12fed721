//! Why: what the best and the worst value of a family made the members do.

use super::{MKFS, Question, judged};
use crate::results::{CellResult, FamilyBest};
use crate::targets::LEFT_DIRTY;
use stripewise_sim::models::ModelKind;

/// A difference of cost below this share explains nothing.
const TELLING: f64 = 0.1;
/// A cost explains a slowness only if it grew by at least this power of it.
const EXPLAINS: f64 = 0.25;
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
    let slowness = best.score / score;
    let is_for_lost = question.subject == "failed";
    let told = Told { writes, is_for_lost, is_mechanical: is_mechanical(question) };
    let because = because(low, high, slowness, told)?;
    Some(format!(
        "{}: at {} a request takes {}; at {worst}, {:.0} % slower, {}. {because}",
        best.family,
        best.best,
        words(low, writes),
        (1.0 - 1.0 / slowness) * 100.0,
        words(high, writes),
    ))
}

/// What decides the words.
#[derive(Clone, Copy, Debug)]
struct Told {
    /// The family writes.
    writes: bool,
    /// Values differ in how many members are lost.
    is_for_lost: bool,
    /// All drives are mechanical.
    is_mechanical: bool,
}

/// Whether all drives of the study are known to be mechanical; those of real storage are not known.
fn is_mechanical(question: &Question<'_>) -> bool {
    let of_model = |name: &String| crate::load_model(name).is_ok_and(|model| model.kind == ModelKind::Hdd);
    if question.subject == "drive" {
        question.values.iter().all(of_model)
    } else {
        question.fixed.get("drive").is_some_and(of_model)
    }
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
        .filter_map(|c| {
            Some((
                c.member_ios.filter(|m| m.requests > 0)?,
                c.figures.get(LEFT_DIRTY).copied().unwrap_or(0.0),
            ))
        })
        .filter_map(|(m, left_dirty)| {
            // Of what is still in the page cache nothing has reached the members.
            let reached = m.request_bytes as f64 - left_dirty;
            let requests = m.requests as f64 * reached / m.request_bytes as f64;
            let per_byte = |bytes: u64| bytes as f64 / reached;
            (reached > 0.0).then(|| Cost {
                ios: (m.reads + m.writes) as f64 / requests,
                bytes: per_byte(m.read_bytes + m.write_bytes),
                read: per_byte(m.read_bytes),
            })
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

/// What stands out of the difference, if that may explain how many times slower the worst is.
fn because(best: Cost, worst: Cost, slowness: f64, told: Told) -> Option<&'static str> {
    let explains = |best: f64, worst: f64| (worst / best).ln() >= EXPLAINS * slowness.ln();
    let is_more = |best: f64, worst: f64| worst > best * (1.0 + TELLING) && explains(best, worst);
    let reads_more = worst.read > best.read * (1.0 + TELLING) + 0.01
        && (explains(best.bytes, worst.bytes) || explains(best.ios, worst.ios));
    let has_more = is_more(best.bytes, worst.bytes) || is_more(best.ios, worst.ios);
    if told.is_for_lost && (has_more || told.writes && reads_more) {
        Some("What lost members held is computed from what the others hold.")
    } else if told.writes && reads_more {
        Some(
            "More is read before it can be written: the old data and parity, or the rest, of stripes of which a write is a part.",
        )
    } else if best.ios < 1.0 - TELLING && is_more(best.ios, worst.ios) {
        Some("The page cache answers, or joins, fewer of its requests.")
    } else if is_more(best.bytes, worst.bytes) {
        Some("Its members move more for the same bytes.")
    } else if is_more(best.ios, worst.ios) && told.is_mechanical {
        Some(
            "Its requests are cut into more pieces, each a command of its own; before each a drive positions.",
        )
    } else if is_more(best.ios, worst.ios) {
        Some(
            "Its requests are cut into more pieces, each a command of its own, which costs drives and kernel its time.",
        )
    } else if worst.ios < best.ios * (1.0 - TELLING) {
        Some("Its requests keep fewer members busy at a time.")
    } else {
        None
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

    /// 16K, beside 1024K.
    fn twice_as_fast() -> FamilyBest {
        FamilyBest {
            family: "random-write".to_owned(),
            best: "16K".to_owned(),
            score: 1.0,
            tied_with: Vec::new(),
            scores: vec![1.0, 0.5],
        }
    }

    #[test]
    fn a_write_that_reads_first_is_named_with_its_figures() {
        let values = ["16K".to_owned(), "1024K".to_owned()];
        let weights = Weights::default();
        let fixed = BTreeMap::new();
        let question = Question { subject: "chunk", values: &values, fixed: &fixed, weights: &weights };
        let best = twice_as_fast();
        let said = reasons(&[cell("16K", 0), cell("1024K", 20)], &question, std::slice::from_ref(&best));
        assert_eq!(
            said,
            [
                "random-write: at 16K a request takes 2.0 member I/Os, which move 2.00 bytes for each byte asked \
              (0.00 of them read); \
              at 1024K, 50 % slower, 4.0 member I/Os, which move 4.00 bytes for each byte asked (2.00 of them read). More is \
              read before it can be written: the old data and parity, or the rest, of stripes of which a write is a part."
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
        let told = |writes| Told { writes, is_for_lost: false, is_mechanical: true };
        let read = |best, worst| because(best, worst, 2.0, told(false)).unwrap_or_default();
        let cached = "The page cache answers, or joins, fewer of its requests.";
        assert_eq!(read(cost(0.01), cost(0.5)), cached);
        assert_eq!(read(cost(0.01), cost(1.2)), cached);
        assert!(read(cost(1.0), cost(2.0)).contains("cut into more pieces"));
        let copies = Cost { ios: 6.0, bytes: 6.0, read: 0.0 };
        assert_eq!(
            because(Cost { read: 0.0, ..cost(1.0) }, copies, 2.0, told(true)),
            Some("Its members move more for the same bytes.")
        );
    }

    #[test]
    fn what_differs_too_little_for_the_slowness_is_no_reason() {
        let cost = |ios: f64| Cost { ios, bytes: 1.0, read: 1.0 };
        let told = Told { writes: false, is_for_lost: false, is_mechanical: true };
        assert_eq!(because(cost(0.25), cost(0.29), 4.0, told), None);
        assert!(because(cost(0.25), cost(0.29), 1.5, told).is_some());
        assert_eq!(because(cost(1.0), cost(1.0), 1.3, told), None);
    }

    #[test]
    fn only_mechanical_drives_position() {
        let values = ["16K".to_owned(), "1024K".to_owned()];
        let weights = Weights::default();
        let best = twice_as_fast();
        let more_ios = |mut cell: CellResult| {
            cell.member_ios = cell.member_ios.map(|ios| MemberIos { writes: 60, ..ios });
            cell
        };
        let said = |drive: Option<&str>| {
            let fixed = drive.map(|drive| ("drive".to_owned(), drive.to_owned())).into_iter().collect();
            let question = Question { subject: "chunk", values: &values, fixed: &fixed, weights: &weights };
            let cells = [cell("16K", 0), more_ios(cell("1024K", 0))];
            reasons(&cells, &question, std::slice::from_ref(&best)).remove(0)
        };
        assert!(said(Some("exos-x20-20tb")).contains("before each a drive positions"));
        for other in [Some("ssd-d7-p5600-6.4tb"), Some("<exos-x20-20tb|st3000dm001>"), None] {
            let said = said(other);
            assert!(
                said.contains("a command of its own") && !said.contains("positions"),
                "{other:?}: {said}"
            );
        }
    }

    #[test]
    fn more_reads_of_a_degraded_array_are_for_what_it_lost() {
        let cost = |ios: f64| Cost { ios, bytes: ios, read: ios / 2.0 };
        let because = |writes| {
            because(cost(4.0), cost(4.6), 1.3, Told { writes, is_for_lost: true, is_mechanical: true })
        };
        assert!(because(true).unwrap().contains("lost members"));
        assert!(because(false).unwrap().contains("lost members"));
    }

    #[test]
    fn what_is_left_in_the_page_cache_has_cost_the_members_nothing_yet() {
        let mut half = cell("64K", 0);
        half.figures.insert(LEFT_DIRTY.to_owned(), 500.0);
        let cost = cost(&[half], "chunk", "random-write", "64K").unwrap();
        assert_eq!((cost.ios, cost.bytes), (4.0, 4.0));
        let mut all = cell("64K", 0);
        all.figures.insert(LEFT_DIRTY.to_owned(), 1000.0);
        assert_eq!(super::cost(&[all], "chunk", "random-write", "64K"), None);
    }
}
