//! What a bitmap costs, told beside a comparison of its chunks where the study has the same workloads without one.

use std::collections::BTreeMap;

use super::{FAMILIES, Question, family};
use crate::results::CellResult;

/// What is said where the command makes an array that mdadm may give a bitmap, which was not studied.
pub(super) const LEFT_OPEN: &str = "The study ran without a write-intent bitmap. mdadm gives an array of 100 GB or more one unless told \
    --bitmap=none: with it little is resynced after a crash, and small writes are slower, as the study `bitmap` shows.";

/// What is said where no bitmap is the fastest.
pub(super) const WITHOUT: &str = "Compared by throughput alone: without a bitmap the whole array is resynced after a crash, and a member \
    that was away for a moment is recovered whole; with one, only what had changed is. The study `bitmap` shows what larger chunks cost.";

type Workload = (BTreeMap<String, String>, u32);

/// A sentence for each family: every chunk's throughput beside none's, the geometric mean over workloads and replicates.
pub(super) fn costs(cells: &[CellResult], question: &Question<'_>) -> Vec<String> {
    if question.subject != "bitmap_chunk" {
        return Vec::new();
    }
    let speed = |cell: &CellResult| {
        let speed = cell.bytes_per_second();
        (cell.error.is_none() && cell.target == "array" && speed > 0.0).then_some(speed)
    };
    let is_without = |cell: &&CellResult| cell.factors.get("bitmap").is_some_and(|kind| kind == "none");
    let without: BTreeMap<Workload, f64> =
        cells.iter().filter(is_without).filter_map(|cell| Some((workload(cell), speed(cell)?))).collect();
    let of_family = |name: &'static str| {
        let told: Vec<String> = question
            .values
            .iter()
            .filter_map(|value| {
                let is_of = |cell: &&CellResult| {
                    cell.factors.get("bitmap_chunk") == Some(value) && family(&cell.factors) == Some(name)
                };
                let ratio = |cell: &CellResult| Some((speed(cell)? / without.get(&workload(cell))?).ln());
                let ratios: Vec<f64> = cells.iter().filter(is_of).filter_map(ratio).collect();
                let mean = ratios.iter().sum::<f64>() / ratios.len() as f64;
                (!ratios.is_empty()).then(|| format!("{value} {:.0} %", 100.0 * mean.exp()))
            })
            .collect();
        (!told.is_empty()).then(|| {
            format!("Throughput with a bitmap beside none, {name}, by bitmap_chunk: {}.", told.join(", "))
        })
    };
    let mut told: Vec<String> = FAMILIES.into_iter().filter_map(of_family).collect();
    if !told.is_empty() {
        told.push(
            "After a crash an array without a bitmap is resynced whole, one with a bitmap the chunks whose bits were set: the \
             larger the chunk, the more."
                .to_owned(),
        );
    }
    told
}

/// All of a cell but its bitmap.
fn workload(cell: &CellResult) -> Workload {
    let mut factors = cell.factors.clone();
    factors.retain(|name, _| !name.starts_with("bitmap"));
    (factors, cell.replicate)
}
