//! Cells: one combination of factors, one replicate, and the key it is stored by.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::plan::{CellTarget, Parameters};

/// Content hash of the sources that decide a cell's figures.
pub const ENGINE_HASH: &str = env!("STRIPEWISE_ENGINE_HASH");

/// Changes when what a cell records changes its meaning, so that older cells are measured again.
const KEY_SCHEMA: u32 = 3;

/// How many threads serve the array, and what it keeps beside its data: the requests are the same.
const SAME_REQUESTS: [&str; 5] = ["group_thread_cnt", "shards", "bitmap", "bitmap_chunk", "bitmap_delay"];

/// Parameters that came later, with the value that stands for what all arrays were before: where they have it they decide nothing
/// new, and what was measured before them is found again.
const LATER: [(&str, &str); 2] = [("bitmap", "none"), ("group_thread_cnt", "0")];

/// The parameters every result names besides its factors, because families are told by them.
const ALWAYS_NAMED: [&str; 7] = ["rw", "rwmixread", "bs", "numjobs", "iodepth", "trace", "speed"];

/// One combination of factors, one replicate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell {
    /// Everything that decides what it does; the job's `randseed` is the cell's seed.
    pub parameters: Parameters,
    /// The factors and the workload's shape, as printed.
    pub factors: BTreeMap<String, String>,
    /// Replicate from 0.
    pub replicate: u32,
}

impl Cell {
    /// The cell of those parameters. Its seed derives from the plan's seed, the replicate and every parameter
    /// but `following`, the subject and what changes with it, and what asks for the same requests (`SAME_REQUESTS`), so that the values
    /// compared meet the same requests.
    pub fn new(
        mut parameters: Parameters,
        factors: &[&str],
        following: &[&str],
        replicate: u32,
        plan_seed: u64,
    ) -> Self {
        let mut printed = parameters.printed();
        let named = |name: &str| factors.contains(&name) || ALWAYS_NAMED.contains(&name);
        let factors = printed
            .iter()
            .filter(|(name, _)| named(name) && *name != "target")
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        printed
            .retain(|name, _| !SAME_REQUESTS.contains(&name.as_str()) && !following.contains(&name.as_str()));
        let identity = canonical(&(plan_seed, &printed, replicate));
        let hash = blake3::hash(identity.as_bytes());
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&hash.as_bytes()[..8]);
        // Seeds stay below 2^53, so that they survive JSON read by anything.
        parameters.job.randseed = u64::from_le_bytes(bytes) >> 11;
        Self { parameters, factors, replicate }
    }

    /// The cell of one workload on one array, outside a plan.
    pub fn single(parameters: Parameters) -> Self {
        let factors = parameters.printed();
        Self { parameters, factors, replicate: 0 }
    }

    /// The seed of all its random numbers.
    pub const fn seed(&self) -> u64 {
        self.parameters.job.randseed
    }

    /// `array` or `drive`.
    pub const fn target(&self) -> &'static str {
        match self.parameters.target {
            CellTarget::Array => "array",
            CellTarget::Drive => "drive",
        }
    }

    /// Seconds it runs, ramp included; `None` if only its size ends it.
    pub fn seconds(&self) -> Option<f64> {
        let job = &self.parameters.job;
        (job.runtime.0 > 0).then(|| (job.ramp_time + job.runtime).as_secs_f64())
    }

    /// The key of its figures: a hash of everything that decides them. `target_identity` names the storage,
    /// with the content of its models.
    pub fn key(&self, target_identity: &str) -> String {
        let mut parameters = self.parameters.printed();
        leave_out_later(&mut parameters);
        let identity = canonical(&KeyContent {
            schema: KEY_SCHEMA,
            engine: ENGINE_HASH,
            target: target_identity,
            parameters: &parameters,
            replicate: self.replicate,
            seed: self.seed(),
            trace: self.parameters.trace.as_ref().map(|t| t.hash.as_str()),
        });
        blake3::hash(identity.as_bytes()).to_hex()[..32].to_owned()
    }

    /// The factors in a line, for progress and errors.
    pub fn label(&self) -> String {
        let factors = self.factors.iter().map(|(name, value)| format!("{name}={value}"));
        let words: Vec<String> = std::iter::once(self.target().to_owned()).chain(factors).collect();
        format!("{} #{}", words.join(" "), self.replicate)
    }
}

fn leave_out_later(printed: &mut BTreeMap<String, String>) {
    printed.retain(|name, value| !LATER.contains(&(name.as_str(), value.as_str())));
}

#[derive(Serialize)]
struct KeyContent<'a> {
    schema: u32,
    engine: &'a str,
    target: &'a str,
    parameters: &'a BTreeMap<String, String>,
    replicate: u32,
    seed: u64,
    /// The content of the trace that is replayed.
    #[serde(skip_serializing_if = "Option::is_none")]
    trace: Option<&'a str>,
}

/// JSON of a value whose maps are ordered: the same text for the same content.
fn canonical(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("numbers, strings and string-keyed maps always have a JSON form")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(chunk: &str, replicate: u32, seed: u64) -> Cell {
        let mut parameters = Parameters::default();
        parameters.set("chunk", chunk).unwrap();
        Cell::new(parameters, &["chunk"], &["chunk"], replicate, seed)
    }

    #[test]
    fn values_compared_meet_the_same_requests() {
        assert_eq!(cell("64K", 0, 1).seed(), cell("128K", 0, 1).seed());
        assert_ne!(cell("64K", 0, 1).seed(), cell("64K", 1, 1).seed());
        assert_ne!(cell("64K", 0, 1).seed(), cell("64K", 0, 2).seed());
    }

    #[test]
    fn how_many_threads_serve_an_array_changes_the_key_but_no_request() {
        let shards = |shards: &str| {
            let mut parameters = Parameters::default();
            parameters.set("shards", shards).unwrap();
            Cell::new(parameters, &["chunk"], &["chunk"], 0, 1)
        };
        let workers = |threads: &str| {
            let mut parameters = Parameters::default();
            parameters.set("policy", "linux-6.1").unwrap();
            parameters.set("group_thread_cnt", threads).unwrap();
            Cell::new(parameters, &["chunk"], &["chunk"], 0, 1)
        };
        assert_eq!(workers("0").seed(), workers("4").seed());
        assert_ne!(workers("0").key("a"), workers("4").key("a"));
        assert_eq!(shards("1").seed(), shards("2").seed());
        assert_ne!(shards("1").key("a"), shards("2").key("a"));
    }

    /// Stored results of the built-in studies are found again: nothing else follows from their subjects.
    #[test]
    fn seeds_of_the_built_in_studies_leave_out_the_subject_alone() {
        use crate::plan::{Choices, PRESETS};
        for preset in PRESETS {
            let plan = preset.plan().unwrap();
            let resolved = plan.resolve(Choices { quick: true, ..Choices::default() }).unwrap();
            for cell in plan.expand(&resolved).unwrap().cells {
                let alone = Cell::new(
                    cell.parameters.clone(),
                    &[],
                    &[resolved.subject],
                    cell.replicate,
                    resolved.seed,
                );
                assert_eq!(cell.seed(), alone.seed(), "{}: {}", preset.name, cell.label());
            }
        }
    }

    /// What was measured before arrays had bitmaps is found again, and an array with one meets the same requests.
    #[test]
    fn no_bitmap_is_no_part_of_a_key_and_none_of_a_seed() {
        let bitmap = |kind: &str, chunk: &str| {
            let mut parameters = Parameters::default();
            parameters.set("bitmap", kind).unwrap();
            parameters.set("bitmap_chunk", chunk).unwrap();
            Cell::new(parameters, &["chunk"], &["chunk"], 0, 1)
        };
        let none = bitmap("none", "default");
        let mut named = none.parameters.printed();
        assert_eq!(named["bitmap"], "none");
        leave_out_later(&mut named);
        assert!(named.keys().all(|name| !name.starts_with("bitmap")), "{named:?}");
        assert_eq!(none.key("a"), bitmap("none", "128M").key("a"));
        let keys =
            [bitmap("internal", "default").key("a"), bitmap("internal", "128M").key("a"), none.key("a")];
        assert!(keys[0] != keys[1] && keys[0] != keys[2] && keys[1] != keys[2]);
        assert_eq!(none.seed(), bitmap("internal", "128M").seed());
    }

    #[test]
    fn a_key_tells_apart_all_that_decides_the_figures() {
        let key = cell("64K", 0, 1).key("a");
        assert_eq!(key, cell("65536", 0, 1).key("a"));
        for other in [cell("128K", 0, 1).key("a"), cell("64K", 1, 1).key("a"), cell("64K", 0, 2).key("a")] {
            assert_ne!(key, other);
        }
        assert_ne!(key, cell("64K", 0, 1).key("b"));
    }
}
