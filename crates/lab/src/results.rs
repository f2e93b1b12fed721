//! What a study found, as one document: the store fills it, statistics judge it, reports draw it and
//! `--json` prints it. The schema has a version; fields are added, never changed in meaning.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Version of the schema of [`StudyResults`].
pub const SCHEMA_VERSION: u32 = 1;

/// A study's results.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
pub struct StudyResults {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// The plan's name, e.g. `chunk-size`.
    pub study: String,
    /// The plan's title, for people.
    pub title: String,
    /// The question the study answers.
    pub question: String,
    /// Whether the figures come from modelled drives in virtual time.
    pub simulated: bool,
    /// Whether this is the shortened plan.
    pub quick: bool,
    /// The seed all cells' seeds derive from; none in results older than this field.
    #[serde(default)]
    pub seed: Option<u64>,
    /// The factor whose best value is sought, e.g. `chunk`.
    pub subject: String,
    /// The subject's values in order, as printed, e.g. `64K`.
    pub subject_values: Vec<String>,
    /// Where and on what it ran.
    pub environment: Environment,
    /// One entry per combination of factors and replicate.
    pub cells: Vec<CellResult>,
    /// What to do.
    pub recommendation: Recommendation,
    /// What was published, beside what was found here; empty for studies without a published result.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub claims: Vec<crate::claims::ClaimResult>,
}

/// Where and on what a study ran.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
pub struct Environment {
    /// The target as given to `--on`, e.g. `model`, `files:/mnt/x`, `memory`.
    pub target: String,
    /// One line of what was measured, e.g. `5 × ST31000333AS on 88SX6081 …`.
    pub description: String,
    /// stripewise's version.
    pub version: String,
    /// Content hash of the engine's and loops' sources.
    pub engine_hash: String,
    /// CPU model of the machine that ran it.
    pub host_cpu: String,
    /// Kernel of the machine that ran it.
    pub host_kernel: String,
    /// When the first of the cells began to be measured, in whichever run, RFC 3339 UTC.
    pub started: String,
    /// When the last of them ended; empty in results older than this field.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub finished: String,
    /// Seconds of real time that the cells took, added up.
    pub wall_seconds: f64,
    /// Notes a reader must know: a fallback from `O_DIRECT`, cells that failed, and so on.
    pub notes: Vec<String>,
    /// Provenance of every model parameter used (empty for real storage).
    pub provenance: Vec<Provenance>,
    /// What `stripewise study run` was given, but for weights; empty where it is not known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arguments: Vec<String>,
}

/// Where a model parameter's value comes from.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
pub struct Provenance {
    /// The model, e.g. `ST31000333AS`.
    pub model: String,
    /// The parameter, e.g. `seek_average_read`.
    pub parameter: String,
    /// Its value, as printed.
    pub value: String,
    /// Unit.
    pub unit: String,
    /// `quoted`, `derived` or `assumed`.
    pub kind: String,
    /// Source.
    pub source: String,
}

/// One measured cell: one combination of factors, one replicate.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
pub struct CellResult {
    /// Key in the store.
    pub key: String,
    /// `array` or `drive`.
    pub target: String,
    /// Every factor's value, as printed: `chunk` → `64K`, `rw` → `randrw`, `rwmixread` → `100`,
    /// `numjobs` → `1`, `bs` → `4k`, `iodepth` → `1`. The subject is absent for targets it does not touch.
    pub factors: BTreeMap<String, String>,
    /// Replicate number from 0.
    pub replicate: u32,
    /// Seed of the replicate.
    pub seed: u64,
    /// The run's length in seconds (virtual for a simulation), without the ramp.
    pub seconds: f64,
    /// Reads.
    pub read: DirectionResult,
    /// Writes.
    pub write: DirectionResult,
    /// What the array asked of its members, where the target counts it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member_ios: Option<MemberIos>,
    /// What else was found, by name and unit: `sync_kib_s`, `cpu_busy_share`, ….
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub figures: BTreeMap<String, f64>,
    /// Why the cell has no figures, where it has none.
    pub error: Option<String>,
    /// What a reader must know of how the figures came about, such as a fallback from `O_DIRECT`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// What an array asked of its members over a whole run, ramp included.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
pub struct MemberIos {
    /// Requests of the workload that completed.
    pub requests: u64,
    /// Bytes they moved.
    pub request_bytes: u64,
    /// Reads of members.
    pub reads: u64,
    /// Bytes they moved.
    pub read_bytes: u64,
    /// Writes to members.
    pub writes: u64,
    /// Bytes they moved.
    pub write_bytes: u64,
}

impl CellResult {
    /// Bytes per second, reads and writes together.
    pub fn bytes_per_second(&self) -> f64 {
        if self.seconds > 0.0 { (self.read.bytes + self.write.bytes) as f64 / self.seconds } else { 0.0 }
    }

    /// Mean completion latency in seconds, reads and writes together; none without I/O.
    pub fn latency_mean_seconds(&self) -> Option<f64> {
        let of = |direction: &DirectionResult| direction.ios as f64 * direction.latency_mean_ns;
        let ios = self.read.ios + self.write.ios;
        (ios > 0).then(|| (of(&self.read) + of(&self.write)) / ios as f64 / 1e9).filter(|mean| *mean > 0.0)
    }

    /// Completed I/Os per second, reads and writes together.
    pub fn iops(&self) -> f64 {
        if self.seconds > 0.0 { (self.read.ios + self.write.ios) as f64 / self.seconds } else { 0.0 }
    }
}

/// Reads or writes of a cell.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq)]
pub struct DirectionResult {
    /// Completed I/Os.
    pub ios: u64,
    /// Bytes they moved.
    pub bytes: u64,
    /// I/Os that failed.
    pub errors: u64,
    /// Completion latency in nanoseconds: mean; zero when there was no I/O, as below.
    pub latency_mean_ns: f64,
    /// Percentiles in nanoseconds: 50.
    pub latency_p50_ns: u64,
    /// 90.
    pub latency_p90_ns: u64,
    /// 99.
    pub latency_p99_ns: u64,
    /// 99.9.
    pub latency_p999_ns: u64,
    /// Largest.
    pub latency_max_ns: u64,
}

/// What a study recommends, with its evidence.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
pub struct Recommendation {
    /// The subject's values from best to worst score.
    pub ranking: Vec<RankedValue>,
    /// The value of the highest score. It is not proven to be best where `tied_with` names others, nor where its
    /// `score_ci` is none.
    pub best: String,
    /// Values that the evidence does not tell from the best, or that are too close to it to matter.
    pub tied_with: Vec<String>,
    /// One sentence for people, saying best or tie.
    pub summary: String,
    /// Why, by workload family: what the best and the worst value made the members do. Empty where the
    /// target counts no member I/O.
    #[serde(default)]
    pub reasons: Vec<String>,
    /// How the values were compared, in a sentence.
    pub method: String,
    /// Weights by workload family that the score used.
    pub weights: BTreeMap<String, f64>,
    /// Best value per workload family, with ties.
    pub by_family: Vec<FamilyBest>,
    /// What each value gives and costs, where a recovery runs beside the jobs. Nothing is ranked then: `ranking` and
    /// `by_family` are empty, and `best` is named by the rule, or empty where the subject is no limit of the recovery's speed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trade_off: Option<TradeOff>,
    /// Commands that apply it, e.g. the `mdadm --create` line.
    pub commands: Vec<String>,
}

/// What the subject's values give to a recovery and cost the jobs beside it.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
pub struct TradeOff {
    /// How `best` is chosen, in words; or that it is not.
    pub rule: String,
    /// By family, then by load, then by value: numbers smallest first, others in the plan's order.
    pub rows: Vec<TradeOffRow>,
}

/// A value in one workload family at one load; geometric means over its workloads.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
pub struct TradeOffRow {
    /// Family, e.g. `random-write`.
    pub family: String,
    /// Requests kept in flight: `iodepth` × `numjobs`.
    pub in_flight: u64,
    /// The subject's value.
    pub value: String,
    /// KiB of a member recovered per second.
    pub sync_kib_s: f64,
    /// Seconds a whole member takes at that rate.
    pub member_seconds: f64,
    /// Throughput of the job, reads and writes together.
    pub bytes_per_second: f64,
    /// The 99th percentile of completion latency in nanoseconds, of the slower direction.
    pub p99_ns: f64,
    /// Throughput as a share of that at the first value.
    pub throughput_ratio: f64,
    /// Its 95 % interval, paired over replicates; none from single runs, or in results older than this field.
    #[serde(default)]
    pub throughput_ratio_ci: Option<(f64, f64)>,
    /// p99 as a multiple of that at the first value.
    pub p99_ratio: f64,
    /// Its 95 % interval, paired over replicates; none from single runs.
    pub p99_ratio_ci: Option<(f64, f64)>,
}

/// A subject value with its score.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
pub struct RankedValue {
    /// The value, e.g. `64K`.
    pub value: String,
    /// Weighted geometric mean, over cells, of throughput relative to the best value of the same cell; 0 to 1.
    pub score: f64,
    /// 95 % confidence interval of the score, low and high; none where a cell ran only once.
    pub score_ci: Option<(f64, f64)>,
    /// The smallest relative throughput over cells.
    pub worst: f64,
    /// The factors of that cell, in words.
    pub worst_cell: String,
    /// Ratio of this value's score to the best one's.
    pub ratio_to_best: f64,
    /// Its interval, paired over replicates; those of all pairs of values hold together with 95 %. None where a cell
    /// ran only once.
    pub ratio_to_best_ci: Option<(f64, f64)>,
}

/// The best subject value for one workload family.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
pub struct FamilyBest {
    /// Family, e.g. `random-write` (see `cell` families), as used in `--weight`.
    pub family: String,
    /// Best value.
    pub best: String,
    /// Its score within the family, 0 to 1.
    pub score: f64,
    /// Values not separated from it.
    pub tied_with: Vec<String>,
    /// Score of every value within the family, in the order of `subject_values`.
    pub scores: Vec<f64>,
}
