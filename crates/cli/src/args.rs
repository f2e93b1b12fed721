//! The arguments, in fio's and mdadm's words.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use stripewise_lab::plan::Fill;

const AFTER: &str = "\
Exit codes: 0 success; 1 the storage or the machine failed; 2 the request is not possible, nothing was done; \
3 done, but some cells have no result; 4 a check found mismatches; 130 interrupted, run the same command again to continue.";

const BENCH_UNITS: &str = "\
SIZE is in bytes, or has a suffix k, m, g or t (powers of 1024). TIME is in seconds, or has a suffix us, ms, s, m, h or d.";

/// Linux software RAID in user space, and the lab that finds its best settings.
#[derive(Debug, Parser)]
#[command(name = "stripewise", version, propagate_version = true, after_help = AFTER, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Compare settings: run studies, read their reports and recommendations.
    #[command(subcommand)]
    Study(StudyCommand),
    /// Run one workload on one array or drive (with fio's option names).
    // A negative value is told with the option it is of, not as an option that does not exist.
    #[command(allow_negative_numbers = true)]
    Bench(Box<BenchArgs>),
    /// Create an md array on files or block devices (mdadm --create).
    Create(Box<crate::array::create::CreateArgs>),
    /// Change an idle array: its bitmap, size, members, chunk, layout or level (mdadm --grow).
    Grow(crate::array::grow::GrowArgs),
    /// Print the md superblocks of files and devices (mdadm --examine).
    Examine(crate::array::examine::ExamineArgs),
    /// Clear the md superblocks of devices that no array is to find any more (mdadm --zero-superblock).
    ZeroSuperblock(crate::array::zero::ZeroArgs),
    /// Assemble an existing array, finish pending resync and recovery, and leave it clean (mdadm --assemble).
    ///
    /// Pending work is the parity of interrupted writes (from partial parity logs), the resync after a crash, and recovery
    /// onto spares and replacements. As with mdadm, a member that missed writes is left out. If you name it, it rejoins at
    /// once (mdadm --re-add), provided that the write-intent bitmap covers all that it missed and nothing else is doubtful.
    /// Progress is shown on a terminal. Ctrl-C stops the work and records its progress in the superblocks.
    Assemble(crate::array::assemble::AssembleArgs),
    /// Describe an array as mdadm -D does, without writing to it.
    Detail(crate::array::detail::DetailArgs),
    /// Copy bytes of an array to a pipe or file.
    Read(crate::array::transfer::ReadArgs),
    /// Copy bytes from a pipe or file into an array.
    Write(crate::array::transfer::WriteArgs),
    /// Serve an array over NBD or as a mounted file.
    Serve(Box<crate::array::serve::ServeArgs>),
    /// Mark members as failed (mdadm --fail).
    Fail(crate::array::manage::MembersArgs),
    /// Release failed members and spares (mdadm --remove).
    Remove(crate::array::manage::MembersArgs),
    /// Add devices: into their former slots if the bitmap allows it, otherwise as spares, which fill empty slots at once
    /// (mdadm --add).
    Add(crate::array::manage::AddArgs),
    /// Re-add former members, recovering only what changed since they left (mdadm --re-add; needs a write-intent bitmap).
    ReAdd(crate::array::manage::AddArgs),
    /// Add devices as spares, even former members (mdadm --add-spare).
    AddSpare(crate::array::manage::AddArgs),
    /// Copy a member to a spare, which then takes its slot (mdadm --replace).
    Replace(crate::array::manage::ReplaceArgs),
    /// Set or clear members' flags: write-mostly, failfast (md's `dev-*/state`).
    State(crate::array::manage::StateArgs),
    /// Compare all copies and parity and report mismatches; with --readonly, write nothing (mdadm --action=check).
    Check(crate::array::manage::SyncArgs),
    /// Compare all copies and parity and correct mismatches (mdadm --action=repair).
    Repair(crate::array::manage::RepairArgs),
    /// Set the sync action of a served array: idle, frozen, check or repair (mdadm --action).
    Action(crate::array::manage::ActionArgs),
    /// Limit the speed of a served array's resync, recovery and checks (md's `sync_speed_min`, `sync_speed_max`).
    Speed(crate::array::manage::SpeedArgs),
    /// Stop a server and leave its array clean (mdadm --stop).
    Stop(crate::array::manage::StopArgs),
    /// Format, test, read and write LUKS containers.
    #[command(subcommand)]
    Luks(crate::luks::LuksCommand),
    /// List, show and calibrate drive, controller and CPU models.
    #[command(subcommand)]
    Models(ModelsCommand),
    /// Record the requests to a served array, and replay them on any target.
    #[command(subcommand)]
    Trace(crate::trace::TraceCommand),
    /// Serve a drive model in real time.
    #[command(subcommand)]
    Drive(crate::drive::DriveCommand),
    /// Test the engine on simulated members that fail.
    #[command(subcommand)]
    Sim(crate::sim::SimCommand),
    /// Print a shell completion script.
    Completions(crate::manual::CompletionsArgs),
    /// Write a manual page for each command.
    Man(crate::manual::ManArgs),
}

#[derive(Debug, Subcommand)]
pub(crate) enum StudyCommand {
    /// List the built-in studies.
    List(JsonArgs),
    /// Run a study; skip cells that are already in the results folder.
    Run(RunArgs),
    /// Print the tables and recommendation of a study's latest run.
    Show(StoredArgs),
    /// Write the HTML report of a study's latest run.
    Report(ReportArgs),
    /// Export every cell of a study's latest run as CSV or JSON.
    Export(ExportArgs),
    /// Run the built-in studies and compare their results with the published claims.
    Verify(VerifyArgs),
    /// Vary each parameter of a study's models and list the verdicts that change.
    Sensitivity(SensitivityArgs),
    /// Compare the engine and its models with Linux md, run in user-mode Linux on this machine.
    ///
    /// The requests that md 6.1 sends to its members are counted on RAM disks; times are measured on drive models served in
    /// real time. Needs linux.uml, mdadm, dmsetup, insmod and python3, and an otherwise idle machine.
    Validate(ValidateArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ValidateArgs {
    /// Run fewer cells; skip `loads` unless --only names it.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Compare only one part: requests sent (counts), throughput (times), speed of resync, recovery and check (syncs), or
    /// that speed within limits and beside other reads (loads) [default: all].
    #[arg(long, value_name = "PART")]
    pub(crate) only: Option<ValidatePart>,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ValidatePart {
    Counts,
    Times,
    Syncs,
    Loads,
}

#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    /// Built-in studies to verify [default: all with published claims].
    pub(crate) studies: Vec<String>,
    /// Use the shortened plans.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Folder in which each study gets its results folder.
    #[arg(long, value_name = "DIR", default_value = "stripewise-results")]
    pub(crate) results: PathBuf,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct SensitivityArgs {
    /// Built-in study.
    pub(crate) study: String,
    /// Vary each parameter by this percentage, up and down.
    #[arg(long, value_name = "PERCENT", default_value_t = 20, value_parser = clap::value_parser!(u8).range(1..=90))]
    pub(crate) step: u8,
    /// Vary only parameters of this kind; may be repeated.
    #[arg(long, value_name = "KIND", value_parser = ["quoted", "measured", "derived", "assumed"])]
    pub(crate) kind: Vec<String>,
    /// Vary only parameters of this model; may be repeated.
    #[arg(long, value_name = "NAME")]
    pub(crate) model: Vec<String>,
    /// Use the whole plan instead of the shortened one.
    #[arg(long)]
    pub(crate) full: bool,
    /// Results folder [default: stripewise-results/STUDY/sensitivity].
    #[arg(long, value_name = "DIR")]
    pub(crate) results: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct JsonArgs {
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "one for each switch of the command line")]
pub(crate) struct RunArgs {
    /// Built-in study (see `study list`) or path of a plan file.
    pub(crate) study: String,
    /// Target: `model` (simulated, in virtual time), `memory[:SIZE]` or `files:DIR`.
    #[arg(long, default_value = "model", value_name = "TARGET")]
    pub(crate) on: String,
    /// Use the shortened plan: fewer values, shorter cells.
    #[arg(long)]
    pub(crate) quick: bool,
    /// List the cells and their estimated time; run nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Random seed [default: the plan's].
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// Number of runs of each cell [default: the plan's].
    #[arg(long)]
    pub(crate) replicates: Option<u32>,
    /// Keep the member files.
    #[arg(long)]
    pub(crate) keep: bool,
    /// Size of each member with --on memory or files [default: the plan's, else 256m or 1g].
    #[arg(long = "member-size", value_name = "SIZE")]
    pub(crate) member_size: Option<String>,
    /// Initial content of member files: random bytes, or sparse, where reads reach no drive [default: the plan's].
    #[arg(long, value_name = "FILL")]
    pub(crate) fill: Option<FillArg>,
    /// Results folder [default: stripewise-results/STUDY].
    #[arg(long, value_name = "DIR")]
    pub(crate) results: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) weights: WeightArgs,
    /// Print the results as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct WeightArgs {
    /// Weight of the workload families of this name, as random-read=3, sequential=0.5 or write=0; may be repeated, the last
    /// that matches applies [default: 1 each].
    #[arg(long = "weight", value_name = "FAMILY=N")]
    pub(crate) weights: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct StoredArgs {
    /// Study name, plan file or results folder.
    pub(crate) study: String,
    #[command(flatten)]
    pub(crate) weights: WeightArgs,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// Study name, plan file or results folder.
    pub(crate) study: String,
    #[command(flatten)]
    pub(crate) weights: WeightArgs,
    /// Output file, - for standard output [default: report.html in the results folder].
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Print the path as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    /// Study name, plan file or results folder.
    pub(crate) study: String,
    #[command(flatten)]
    pub(crate) weights: WeightArgs,
    /// Output format.
    #[arg(long, default_value = "csv")]
    pub(crate) format: ExportFormat,
    /// Same as --format json.
    #[arg(long)]
    pub(crate) json: bool,
    /// Output file [default: -, standard output].
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ExportFormat {
    Csv,
    Json,
}

/// The percentage of reads beside so many writes.
fn rest_to_read(writes: &str) -> Result<String, String> {
    let percent = writes.parse::<u8>().ok().and_then(|percent| 100_u8.checked_sub(percent));
    percent.map(|reads| reads.to_string()).ok_or_else(|| "it is a number from 0 to 100".to_owned())
}

/// One option of `bench`: the name of a parameter and its value.
macro_rules! bench_args {
    ($($(#[$doc:meta])* $field:ident $name:literal $value:literal $heading:literal,)*) => {
        /// The options of `bench`; those left out keep the default of fio or mdadm.
        #[derive(Debug, Args)]
        #[command(after_help = BENCH_UNITS)]
        pub(crate) struct BenchArgs {
            /// Benchmark this build against what this machine can do, in under three minutes. WORD selects the rows whose
            /// name contains it: parity, write-sequential, read-sequential, read-random, write-random, cache-hit, shards,
            /// sync, control-flow, growth, simulation, peers.
            #[arg(long = "self", value_name = "WORD", num_args = 0..=1, default_missing_value = "", conflicts_with_all = ["on", "member_size", "fill", "keep", "randseed"])]
            pub(crate) of_itself: Option<String>,
            /// With --self: take only seconds; the figures merely show that everything runs.
            #[arg(long, requires = "of_itself")]
            pub(crate) quick: bool,
            /// Target: `model` (simulated, in virtual time), `memory[:SIZE]` or `files:DIR`.
            #[arg(long, default_value = "model", value_name = "TARGET")]
            pub(crate) on: String,
            /// Size of each member with --on memory or files [default: 256m or 1g].
            #[arg(long = "member-size", value_name = "SIZE")]
            pub(crate) member_size: Option<String>,
            /// Initial content of member files: random bytes, or sparse, where reads reach no drive [default: random].
            #[arg(long, value_name = "FILL")]
            pub(crate) fill: Option<FillArg>,
            /// Keep the member files.
            #[arg(long)]
            pub(crate) keep: bool,
            /// Random seed (fio's randseed).
            #[arg(long, default_value_t = 1)]
            pub(crate) randseed: u64,
            /// Print JSON.
            #[arg(long)]
            pub(crate) json: bool,
            /// Percentage of writes with rw and randrw, in place of --rwmixread [default: 50]
            #[arg(long, value_name = "PERCENT", help_heading = "Workload", value_parser = rest_to_read, conflicts_with = "rwmixread")]
            pub(crate) rwmixwrite: Option<String>,
            $($(#[$doc])* #[arg(long = $name, value_name = $value, help_heading = $heading)]
            pub(crate) $field: Option<String>,)*
        }

        impl BenchArgs {
            /// The option that gave a parameter.
            pub(crate) fn option(&self, name: &str) -> String {
                if name == "rwmixread" && self.rwmixwrite.is_some() {
                    return "--rwmixwrite".to_owned();
                }
                $(if name == stringify!($field) { return concat!("--", $name).to_owned(); })*
                format!("--{name}")
            }

            /// The parameters given, by the names plans use.
            pub(crate) fn parameters(&self) -> Vec<(&'static str, &str)> {
                let mut given = Vec::new();
                $(if let Some(value) = &self.$field { given.push((stringify!($field), value.as_str())); })*
                given.extend(self.rwmixwrite.as_deref().map(|percent| ("rwmixread", percent)));
                given
            }
        }
    };
}

bench_args! {
    /// What to measure: array, or drive for a single member [default: array]
    target "target" "KIND" "Array",
    /// RAID level [default: 5]
    level "level" "LEVEL" "Array",
    /// Number of members [default: 5]
    raid_devices "raid-devices" "N" "Array",
    /// Chunk size [default: 512K]
    chunk "chunk" "SIZE" "Array",
    /// Layout, by mdadm's name [default: mdadm's]
    layout "layout" "LAYOUT" "Array",
    /// Number of stripe cache entries [default: 256]
    stripe_cache_size "stripe-cache-size" "N" "Array",
    /// Number of worker threads beside md's own that handle stripes, with --policy linux-6.1 on a model; locks between them
    /// are not modelled [default: 0]
    group_thread_cnt "group-thread-cnt" "N" "Array",
    /// Number of serving threads of a real array, each with its share of the stripes and of the stripe cache; jobs are
    /// assigned to them in turn, long requests of one job go to several [default: 1]
    shards "shards" "N" "Array",
    /// Implementation to follow: stripewise, linux-6.1, linux-3.2, linux-2.6.27 or linux-2.6.18 [default: stripewise]
    policy "policy" "NAME" "Array",
    /// I/O pattern: read, write, rw, randread, randwrite or randrw [default: read]
    rw "rw" "PATTERN" "Workload",
    /// Percentage of reads with rw and randrw [default: 50]
    rwmixread "rwmixread" "PERCENT" "Workload",
    /// Block size [default: 4k]
    bs "bs" "SIZE" "Workload",
    /// Number of requests each job keeps in flight [default: 1]
    iodepth "iodepth" "N" "Workload",
    /// Number of jobs [default: 1]
    numjobs "numjobs" "N" "Workload",
    /// 1: bypass the page cache, 0: use it [default: 1]
    direct "direct" "0|1" "Workload",
    /// Flush after every N writes of a job, 0: never [default: 0]
    fsync "fsync" "N" "Workload",
    /// Size of the region used [default: from --offset to the end]
    size "size" "SIZE" "Workload",
    /// Start of the region used [default: 0]
    offset "offset" "SIZE" "Workload",
    /// Distance between the starts of successive jobs [default: size divided by numjobs for sequential jobs, 0 for random
    /// ones]
    offset_increment "offset_increment" "SIZE" "Workload",
    /// Bytes of a random job read or written in sequence before the next random offset [default: one block]
    run "run" "SIZE" "Workload",
    /// 1: flush after each run that writes [default: 0]
    run_fsync "run_fsync" "0|1" "Workload",
    /// Size of the page cache with --direct 0 [default: 1g]
    memory "memory" "SIZE" "Layers",
    /// Readahead in sectors of 512 bytes [default: md's, two stripes of data, at least 256]
    readahead "readahead" "SECTORS" "Layers",
    /// Percentage of the page cache that may be dirty before writers wait [default: that of --policy, 20 for stripewise]
    dirty_ratio "dirty_ratio" "PERCENT" "Layers",
    /// Percentage of dirty pages in the page cache above which write-back runs [default: that of --policy, 10 for
    /// stripewise]
    dirty_background_ratio "dirty_background_ratio" "PERCENT" "Layers",
    /// Cipher of an encryption layer: none, aes-cbc-essiv:sha256 or aes-xts-plain64 [default: none]
    crypt "crypt" "CIPHER" "Layers",
    /// Offset of the payload in the encrypted container [default: 0]
    crypt_offset "crypt-offset" "SIZE" "Layers",
    /// File system: none, ext3 or ext4; the jobs use one file that fills it [default: none]
    fs "fs" "NAME" "Layers (--on model)",
    /// Stride of the file system (mkfs -E stride), as a size [default: 0]
    stride "stride" "SIZE" "Layers (--on model)",
    /// Write-intent bitmap: none or internal [default: none]
    bitmap "bitmap" "KIND" "Array",
    /// Data covered by one bit of the bitmap [default: mdadm's choice]
    bitmap_chunk "bitmap-chunk" "SIZE" "Array",
    /// Interval in seconds at which bits are cleared (mdadm's --delay) [default: 5]
    bitmap_delay "bitmap-delay" "SECONDS" "Array",
    /// Number of failed members [default: 0]
    failed "failed" "N" "Array",
    /// Duration of the measurement [default: 5s]
    runtime "runtime" "TIME" "Workload",
    /// Duration of the workload before the measurement [default: 0]
    ramp_time "ramp_time" "TIME" "Workload",
    /// Drive model [default: st31000333as]
    drive "drive" "MODEL" "Rig (--on model)",
    /// Controller model, or several as MODEL:COUNT + MODEL [default: the drive's]
    controller "controller" "MODEL" "Rig (--on model)",
    /// CPU model [default: the drive's]
    cpu "cpu" "MODEL" "Rig (--on model)",
    /// Block-layer model [default: the drive's]
    block "block" "MODEL" "Rig (--on model)",
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum FillArg {
    Sparse,
    Random,
}

impl From<FillArg> for Fill {
    fn from(fill: FillArg) -> Self {
        match fill {
            FillArg::Sparse => Self::Sparse,
            FillArg::Random => Self::Random,
        }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum ModelsCommand {
    /// List the built-in models.
    List(JsonArgs),
    /// Print every parameter of a model with its unit and source.
    Show(ShowModelArgs),
    /// Make a model of this machine's CPU or of a real drive by measuring it.
    ///
    /// A drive or file is only read. Values that reads do not show are taken from another model and marked as assumed. The
    /// probes then run on the fitted model too, and every difference is printed.
    Calibrate(crate::calibrate::CalibrateArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ShowModelArgs {
    /// Built-in model (see `models list`) or path of a model file.
    pub(crate) name: String,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}
