//! Workload families and the weights a user gives them.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, bail};

use crate::results::CellResult;

/// Every family: order, then direction; then what is replayed, what arrays do by themselves, and the making of file systems.
pub const FAMILIES: [&str; 10] = [
    "sequential-read",
    "sequential-mixed",
    "sequential-write",
    "random-read",
    "random-mixed",
    "random-write",
    "trace",
    "paced-trace",
    "sync",
    "mkfs",
];

/// The family of traces that were replayed at a pace of their own, which decides how much is asked for: they are judged by how long
/// requests took.
pub(crate) const PACED: &str = FAMILIES[7];

/// The family of what arrays do by themselves.
pub(crate) const SYNC: &str = FAMILIES[8];

/// The family of cells that made a file system.
pub(crate) const MKFS: &str = FAMILIES[9];

/// The rate of a resync or recovery, in KiB of each member a second.
const SYNC_RATE: &str = "sync_kib_s";

/// What a cell is judged by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Judged {
    /// The family, of [`FAMILIES`].
    pub family: &'static str,
    /// What was found.
    pub figure: JudgedFigure,
}

/// What is found of a cell that decides.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum JudgedFigure {
    /// Bytes a second, more is better: of the job or trace, or of each member where the array works by itself.
    BytesPerSecond(f64),
    /// Seconds, less is better: of something that has to be done once, or of a request on average.
    Seconds(f64),
}

impl Judged {
    /// What values are compared by: twice as much is twice as good.
    pub fn speed(self) -> f64 {
        match self.figure {
            JudgedFigure::BytesPerSecond(rate) => rate,
            JudgedFigure::Seconds(seconds) => seconds.recip(),
        }
    }
}

/// What a cell is judged by; `None` if it has neither a workload, a resync or recovery, nor made a file system, as one that failed.
pub fn judged(cell: &CellResult) -> Option<Judged> {
    if let Some(family) = family(&cell.factors) {
        let figure = match family {
            PACED => JudgedFigure::Seconds(cell.latency_mean_seconds()?),
            _ => JudgedFigure::BytesPerSecond(cell.bytes_per_second()),
        };
        return Some(Judged { family, figure });
    }
    if let Some(rate) = cell.figures.get(SYNC_RATE) {
        return Some(Judged { family: SYNC, figure: JudgedFigure::BytesPerSecond(rate * 1024.0) });
    }
    // Without a workload it is mkfs alone that has writes of its own; what they move says nothing, as they are what differs.
    let made = cell.write.ios > 0 && cell.seconds > 0.0;
    made.then_some(Judged { family: MKFS, figure: JudgedFigure::Seconds(cell.seconds) })
}

/// The family of a cell, told by its factors `trace`, `speed`, `rw` and `rwmixread`; `None` if they name no workload.
pub fn family(factors: &BTreeMap<String, String>) -> Option<&'static str> {
    if factors.contains_key("trace") {
        let is_paced = factors.get("speed").is_some_and(|speed| speed != "asap");
        return Some(if is_paced { PACED } else { FAMILIES[6] });
    }
    let rw: crate::workload::Rw = factors.get("rw")?.parse().ok()?;
    let reads = match rw {
        _ if rw.is_mixed() => factors.get("rwmixread")?.parse().ok()?,
        crate::workload::Rw::Read | crate::workload::Rw::RandRead => 100,
        _ => 0,
    };
    let direction = match reads {
        100 => 0,
        0 => 2,
        _ => 1,
    };
    Some(FAMILIES[usize::from(rw.is_random()) * 3 + direction])
}

/// The families of a study's cells. One that failed without naming a workload may be of either of those that name none.
pub fn families_of(cells: &[CellResult]) -> BTreeSet<&'static str> {
    let of_cell = |cell: &CellResult| match family(&cell.factors).or_else(|| judged(cell).map(|j| j.family)) {
        Some(family) => vec![family],
        None => vec![SYNC, MKFS],
    };
    cells.iter().flat_map(of_cell).collect()
}

/// Whether a name is the family's, or one of its words.
fn is_meant(name: &str, family: &str) -> bool {
    family == name || family.split('-').any(|word| word == name)
}

/// The largest weight: with it, a family counts alone, and sums stay numbers.
const WEIGHT_MAX: f64 = 1e9;

/// Weights by family; 1 unless given.
#[derive(Clone, Debug, PartialEq)]
pub struct Weights(BTreeMap<&'static str, f64>);

impl Default for Weights {
    fn default() -> Self {
        Self(FAMILIES.into_iter().map(|family| (family, 1.0)).collect())
    }
}

impl Weights {
    /// Reads `FAMILY=WEIGHT`, each applied after the one before. A family may be named by one of its words:
    /// `random=2` weighs all random ones.
    pub fn parse<'a>(texts: impl IntoIterator<Item = &'a str>) -> Result<Self> {
        let mut weights = Self::default();
        for text in texts {
            let Some((name, number)) = text.split_once('=') else {
                bail!("'{text}' is not a weight; write FAMILY=WEIGHT, such as random-read=3");
            };
            let Some(weight) = number.parse::<f64>().ok().filter(|w| (0.0..=WEIGHT_MAX).contains(w)) else {
                bail!(
                    "'{number}' is not a weight; write a number from 0 to {WEIGHT_MAX}, such as random-read=3"
                );
            };
            let mut matched = false;
            for (family, old) in &mut weights.0 {
                if is_meant(name, family) {
                    *old = weight;
                    matched = true;
                }
            }
            if !matched {
                bail!(
                    "'{name}' is not a workload family; use one of {}, or a word of their names",
                    FAMILIES.join(", ")
                );
            }
        }
        if weights.0.values().all(|weight| *weight == 0.0) {
            bail!("all weights are 0; at least one workload family must count");
        }
        Ok(weights)
    }

    /// Refuses a weight, given as text, of families that a study has none of: it would change nothing.
    pub fn check<'a>(texts: impl IntoIterator<Item = &'a str>, present: &BTreeSet<&str>) -> Result<()> {
        for name in texts.into_iter().filter_map(|text| text.split_once('=')).map(|(name, _)| name) {
            if !present.is_empty() && !present.iter().any(|family| is_meant(name, family)) {
                let present: Vec<&str> = FAMILIES.into_iter().filter(|f| present.contains(f)).collect();
                bail!(
                    "the study has no workload of the family '{name}'; its families are {}",
                    present.join(", ")
                );
            }
        }
        Ok(())
    }

    /// Those of a study's families that are not the usual 1, as they are given.
    pub fn given(of_study: &BTreeMap<String, f64>) -> Vec<String> {
        let unusual = of_study.iter().filter(|(_, weight)| (**weight - 1.0).abs() > f64::EPSILON);
        unusual.map(|(family, weight)| format!("{family}={weight}")).collect()
    }

    /// Only that family.
    pub(super) fn only(family: &'static str) -> Self {
        Self([(family, 1.0)].into())
    }

    /// The family's weight.
    pub fn of(&self, family: &str) -> f64 {
        self.0.get(family).copied().unwrap_or(0.0)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(rw: &str, mix: &str) -> Option<&'static str> {
        family(&[("rw".to_owned(), rw.to_owned()), ("rwmixread".to_owned(), mix.to_owned())].into())
    }

    #[test]
    fn families_by_order_and_direction() {
        assert_eq!(of("rw", "100"), Some("sequential-read"));
        assert_eq!(of("rw", "50"), Some("sequential-mixed"));
        assert_eq!(of("write", "50"), Some("sequential-write"));
        assert_eq!(of("randread", "0"), Some("random-read"));
        assert_eq!(of("randrw", "1"), Some("random-mixed"));
        assert_eq!(of("randrw", "0"), Some("random-write"));
        assert_eq!(of("trim", "0"), None);
        assert_eq!(family(&[("rw".to_owned(), "rw".to_owned())].into()), None);
    }

    /// A pace asks for the same throughput of every value: how long its requests wait tells them apart.
    #[test]
    fn a_paced_trace_is_judged_by_its_latency() {
        let cell = |speed: &str| {
            let direction = |ios, mean| {
                json!({"ios": ios, "bytes": 4096, "errors": 0, "latency_mean_ns": mean,
                "latency_p50_ns": 1, "latency_p90_ns": 1, "latency_p99_ns": 1, "latency_p999_ns": 1, "latency_max_ns": 1})
            };
            let cell = json!({"key": "k", "target": "array", "factors": {"trace": "t", "speed": speed}, "replicate": 0,
                "seed": 1, "seconds": 2.0, "read": direction(3, 1e6), "write": direction(1, 5e6), "error": null});
            judged(&serde_json::from_value(cell).unwrap()).unwrap()
        };
        let of = |family, figure| Judged { family, figure };
        assert_eq!(cell("1x"), of("paced-trace", JudgedFigure::Seconds(0.002)));
        assert_eq!(cell("asap"), of("trace", JudgedFigure::BytesPerSecond(4096.0)));
        assert!((cell("0.5x").speed() - 500.0).abs() < 1e-9);
    }

    #[test]
    fn weights_match_families_and_words() {
        let weights = Weights::parse(["random=2", "random-read=3", "write=0"]).unwrap();
        let found = FAMILIES.map(|f| weights.of(f));
        assert_eq!(found.map(|w| w as u32), [1, 1, 0, 3, 2, 0, 1, 1, 1, 1]);
    }

    #[test]
    fn weights_of_what_a_study_lacks_are_refused() {
        let present = ["random-read", "sync"].into();
        let check = |text| Weights::check([text], &present).map_err(|e| e.to_string());
        assert_eq!((check("random=2"), check("random-read=0"), check("sync=3")), (Ok(()), Ok(()), Ok(())));
        for (text, name) in
            [("random-write=2", "random-write"), ("sequential=0", "sequential"), ("mkfs=1", "mkfs")]
        {
            let refused = check(text).unwrap_err();
            assert_eq!(
                refused,
                format!(
                    "the study has no workload of the family '{name}'; its families are random-read, sync"
                )
            );
        }
        let given = |weights: &[(&str, f64)]| {
            Weights::given(&weights.iter().map(|(family, weight)| ((*family).to_owned(), *weight)).collect())
        };
        assert_eq!(
            given(&[("random-read", 0.0), ("random-write", 0.0)]),
            ["random-read=0", "random-write=0"]
        );
        assert_eq!(given(&[("random-read", 0.5), ("random-write", 1.0)]), ["random-read=0.5"]);
    }

    #[test]
    fn wrong_weights_say_what_is_known() {
        let refused = |text| Weights::parse([text]).unwrap_err().to_string();
        assert!(refused("rand=2").contains("random-mixed"));
        assert!(refused("random").contains("FAMILY=WEIGHT"));
        for text in ["random=-1", "random=x", "random=inf", "random=1e10", "random=NaN", "random="] {
            assert!(refused(text).contains("from 0 to 1000000000"), "{text}");
        }
        assert!(
            Weights::parse(["random=0", "sequential=0", "trace=0", "sync=0", "mkfs=0"])
                .unwrap_err()
                .to_string()
                .contains("all weights")
        );
    }
}
