//! The arguments, in fio's and mdadm's words.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use stripewise_lab::plan::Fill;

const AFTER: &str = "\
Exit codes: 0 done; 1 the storage or the machine failed; 2 what was asked for is not possible, nothing was done; \
3 done, but some cells have no result; 4 a check found redundancy that disagrees; 130 interrupted, the same command resumes.";

/// Linux software RAID in user space, and the lab that finds its best settings.
#[derive(Debug, Parser)]
#[command(name = "stripewise", version, propagate_version = true, after_help = AFTER, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Compare settings: run a study, read its report and its recommendation.
    #[command(subcommand)]
    Study(StudyCommand),
    /// Run one workload on one array or drive (fio's option names).
    Bench(Box<BenchArgs>),
    /// Make a new md array on files or block devices (mdadm --create).
    Create(Box<crate::array::create::CreateArgs>),
    /// Change an idle array: its bitmap, size, members, chunk, layout or level (mdadm --grow).
    Grow(crate::array::grow::GrowArgs),
    /// Print the superblock of members (mdadm --examine).
    Examine(crate::array::examine::ExamineArgs),
    /// Put an existing array together, finish what is due and leave it clean (mdadm --assemble).
    ///
    /// Due are the parity of writes that were cut off, as partial parity logs have it, the resync after a crash, and
    /// recovery onto spares and replacements. A member that missed writes is left out, as mdadm does; one that is named
    /// comes back at once if the write-intent bitmap knows what it missed (mdadm --re-add) and nothing else is doubtful.
    /// Progress is shown on a terminal; Ctrl-C ends it with how far it came in the superblocks.
    Assemble(crate::array::assemble::AssembleArgs),
    /// Describe an array as mdadm -D does; nothing is written.
    Detail(crate::array::detail::DetailArgs),
    /// Copy array bytes to a pipe or file.
    Read(crate::array::transfer::ReadArgs),
    /// Copy bytes from a pipe or file to an array.
    Write(crate::array::transfer::WriteArgs),
    /// Serve an array over NBD, or as a mounted file.
    Serve(Box<crate::array::serve::ServeArgs>),
    /// Mark members as failed (mdadm --fail).
    Fail(crate::array::manage::MembersArgs),
    /// Let go of failed members and spares (mdadm --remove).
    Remove(crate::array::manage::MembersArgs),
    /// Add devices: back into their slot if the bitmap allows, else as spares, which take empty slots at once.
    Add(crate::array::manage::AddArgs),
    /// Add former members, of which only what changed since is recovered (needs a write-intent bitmap).
    ReAdd(crate::array::manage::AddArgs),
    /// Add devices as spares, whatever they were before.
    AddSpare(crate::array::manage::AddArgs),
    /// Copy a member to a spare, which then takes its place (mdadm --replace).
    Replace(crate::array::manage::ReplaceArgs),
    /// Set or clear members' flags: write-mostly, failfast (md's `dev-*/state`).
    State(crate::array::manage::StateArgs),
    /// Read all members, and say where redundancy disagrees; with --readonly without a single write.
    Check(crate::array::manage::SyncArgs),
    /// Read all members, and make redundancy agree.
    Repair(crate::array::manage::RepairArgs),
    /// Say what a served array does by itself: idle, frozen, check, repair (mdadm --action).
    Action(crate::array::manage::ActionArgs),
    /// Bound the speed of a served array's resync, recovery and checks.
    Speed(crate::array::manage::SpeedArgs),
    /// End a server, which leaves its array clean (mdadm --stop).
    Stop(crate::array::manage::StopArgs),
    /// Read, make and check LUKS containers.
    #[command(subcommand)]
    Luks(crate::luks::LuksCommand),
    /// List the drive, controller and CPU models, with the source of every value.
    #[command(subcommand)]
    Models(ModelsCommand),
    /// Record the requests that reach a served array, and replay them on any rig.
    #[command(subcommand)]
    Trace(crate::trace::TraceCommand),
    /// Run a drive model in real time.
    #[command(subcommand)]
    Drive(crate::drive::DriveCommand),
    /// Try the engine itself on simulated members that fail.
    #[command(subcommand)]
    Sim(crate::sim::SimCommand),
    /// Print a completion script for a shell.
    Completions(crate::manual::CompletionsArgs),
    /// Write manual pages, one for each command.
    Man(crate::manual::ManArgs),
}

#[derive(Debug, Subcommand)]
pub(crate) enum StudyCommand {
    /// List the built-in studies.
    List(JsonArgs),
    /// Run a study; cells already in the results folder are not run again.
    Run(RunArgs),
    /// Print a study that was run: tables and recommendation.
    Show(StoredArgs),
    /// Write the HTML report of a study that was run.
    Report(ReportArgs),
    /// Print every cell of a study that was run as CSV or JSON.
    Export(ExportArgs),
    /// Run the built-in studies and compare each with what was published of it.
    Verify(VerifyArgs),
    /// Move each parameter of a study's models and list the verdicts that change.
    Sensitivity(SensitivityArgs),
    /// Compare the engine and its models with real Linux md, run in user-mode-linux on this machine.
    ///
    /// What md 6.1 sends to its members is counted on RAM disks; how long it takes is measured on modelled drives that are
    /// served in real time. Needs linux.uml, mdadm, dmsetup, insmod and python3, and a quiet machine.
    Validate(ValidateArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ValidateArgs {
    /// A part of the cells.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Compare only what is sent, how long it takes, or the array's own work (resync, recovery).
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
    /// Built-in studies [default: all].
    pub(crate) studies: Vec<String>,
    /// The shortened plans.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Where the results folders go.
    #[arg(long, value_name = "DIR", default_value = "stripewise-results")]
    pub(crate) results: PathBuf,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct SensitivityArgs {
    /// A built-in study.
    pub(crate) study: String,
    /// By how many percent each parameter is moved, either way.
    #[arg(long, value_name = "PERCENT", default_value_t = 20, value_parser = clap::value_parser!(u8).range(1..=90))]
    pub(crate) step: u8,
    /// Only parameters of this kind: quoted, measured, derived or assumed; more than once for several.
    #[arg(long, value_name = "KIND", value_parser = ["quoted", "measured", "derived", "assumed"])]
    pub(crate) kind: Vec<String>,
    /// Only parameters of this model; more than once for several.
    #[arg(long, value_name = "NAME")]
    pub(crate) model: Vec<String>,
    /// The whole plan instead of the shortened one.
    #[arg(long)]
    pub(crate) full: bool,
    /// The results folder [default: stripewise-results/STUDY/sensitivity].
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
    /// A built-in study (see `study list`) or the path of a plan.
    pub(crate) study: String,
    /// What to measure on: `model` (virtual time), `memory`, or `files:DIR`.
    #[arg(long, default_value = "model", value_name = "TARGET")]
    pub(crate) on: String,
    /// The shortened plan: fewer values, shorter cells.
    #[arg(long)]
    pub(crate) quick: bool,
    /// List the cells and the time they take; run nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Seed of all random numbers, instead of the plan's.
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// Runs of each cell, instead of the plan's number.
    #[arg(long)]
    pub(crate) replicates: Option<u32>,
    /// Leave member files where they are.
    #[arg(long)]
    pub(crate) keep: bool,
    /// Size of each member for memory and files, instead of the plan's.
    #[arg(long = "member-size", value_name = "SIZE")]
    pub(crate) member_size: Option<String>,
    /// What member files hold at the start, instead of what the plan says: random bytes, or nothing (sparse), of which
    /// reads touch no drive.
    #[arg(long, value_name = "FILL")]
    pub(crate) fill: Option<FillArg>,
    /// The results folder [default: stripewise-results/STUDY].
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
    /// How much a workload family counts: random-read=3, sequential=0.5, write=0; the last that fits holds.
    #[arg(long = "weight", value_name = "FAMILY=N")]
    pub(crate) weights: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct StoredArgs {
    /// The study's name or its results folder.
    pub(crate) study: String,
    #[command(flatten)]
    pub(crate) weights: WeightArgs,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// The study's name or its results folder.
    pub(crate) study: String,
    #[command(flatten)]
    pub(crate) weights: WeightArgs,
    /// Where to write it, - for standard output [default: report.html in the results folder].
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Print the path as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    /// The study's name or its results folder.
    pub(crate) study: String,
    #[command(flatten)]
    pub(crate) weights: WeightArgs,
    /// csv or json.
    #[arg(long, default_value = "csv")]
    pub(crate) format: ExportFormat,
    /// The same as --format json.
    #[arg(long)]
    pub(crate) json: bool,
    /// Where to write it [default: standard output, which is also -].
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ExportFormat {
    Csv,
    Json,
}

/// One option of `bench`: the name of a parameter and its value.
macro_rules! bench_args {
    ($($(#[$doc:meta])* $field:ident $name:literal $heading:literal,)*) => {
        /// The options of `bench`; those left out keep the default of fio or mdadm.
        #[derive(Debug, Args)]
        pub(crate) struct BenchArgs {
            /// Print the table of what this build does on this machine, beside what the machine can do; under three
            /// minutes. A word chooses rows: parity, write, read, random, shards, sync, control, growth, simulation.
            #[arg(long = "self", value_name = "WORD", num_args = 0..=1, default_missing_value = "", conflicts_with_all = ["on", "member_size", "fill", "keep", "randseed"])]
            pub(crate) of_itself: Option<String>,
            /// With --self: seconds only; the figures show no more than that everything runs.
            #[arg(long, requires = "of_itself")]
            pub(crate) quick: bool,
            /// What to measure on: `model` (virtual time), `memory`, or `files:DIR`.
            #[arg(long, default_value = "model", value_name = "TARGET")]
            pub(crate) on: String,
            /// Size of each member [default: 1g for files, 256m in memory].
            #[arg(long = "member-size", value_name = "SIZE")]
            pub(crate) member_size: Option<String>,
            /// What member files hold at the start: random bytes, or nothing (sparse), of which reads touch no drive
            /// [default: random].
            #[arg(long, value_name = "FILL")]
            pub(crate) fill: Option<FillArg>,
            /// Leave member files where they are.
            #[arg(long)]
            pub(crate) keep: bool,
            /// Seed of all random numbers (fio's randseed).
            #[arg(long, default_value_t = 1)]
            pub(crate) randseed: u64,
            /// Print JSON.
            #[arg(long)]
            pub(crate) json: bool,
            $($(#[$doc])* #[arg(long = $name, value_name = "VALUE", help_heading = $heading)]
            pub(crate) $field: Option<String>,)*
        }

        impl BenchArgs {
            /// The parameters given, by the names plans use.
            pub(crate) fn parameters(&self) -> Vec<(&'static str, &str)> {
                let mut given = Vec::new();
                $(if let Some(value) = &self.$field { given.push((stringify!($field), value.as_str())); })*
                given
            }
        }
    };
}

bench_args! {
    /// array, or drive for one member alone [default: array]
    target "target" "Array",
    /// RAID level [default: 5]
    level "level" "Array",
    /// Members [default: 5]
    raid_devices "raid-devices" "Array",
    /// Chunk [default: 512K]
    chunk "chunk" "Array",
    /// Layout, in mdadm's names [default: mdadm's]
    layout "layout" "Array",
    /// Stripe-cache entries [default: 256]
    stripe_cache_size "stripe-cache-size" "Array",
    /// Threads that serve a real array, each with its share of the stripes and of the stripe cache; jobs are dealt to
    /// them in turn, and long requests of one job go to several [default: 1]
    shards "shards" "Array",
    /// Whose behaviour: stripewise, linux-6.1, linux-3.2, linux-2.6.27, linux-2.6.18 [default: stripewise]
    policy "policy" "Array",
    /// read, write, rw, randread, randwrite or randrw [default: read]
    rw "rw" "Workload",
    /// Reads in a hundred, of rw and randrw [default: 50]
    rwmixread "rwmixread" "Workload",
    /// Block size [default: 4k]
    bs "bs" "Workload",
    /// Requests each job keeps in flight [default: 1]
    iodepth "iodepth" "Workload",
    /// Jobs [default: 1]
    numjobs "numjobs" "Workload",
    /// 1: past the page cache [default: 1]
    direct "direct" "Workload",
    /// Flush after so many writes [default: 0, never]
    fsync "fsync" "Workload",
    /// How much of the target is used [default: all]
    size "size" "Workload",
    /// Where that begins [default: 0]
    offset "offset" "Workload",
    /// How far apart the jobs begin [default: size divided by numjobs for sequential jobs, 0 for random ones]
    offset_increment "offset_increment" "Workload",
    /// Bytes read or written one block after another before the next random place [default: one block]
    run "run" "Workload",
    /// 1: flush after each run that writes [default: 0]
    run_fsync "run_fsync" "Workload",
    /// Size of the page cache, with direct 0 [default: 1g]
    memory "memory" "Layers",
    /// Readahead in sectors [default: md's]
    readahead "readahead" "Layers",
    /// Percent of the page cache that may be dirty [default: the kernel's]
    dirty_ratio "dirty_ratio" "Layers",
    /// Percent of the page cache above which it is written back [default: the kernel's]
    dirty_background_ratio "dirty_background_ratio" "Layers",
    /// none, aes-cbc-essiv:sha256 or aes-xts-plain64 [default: none]
    crypt "crypt" "Layers",
    /// Where the payload of the encrypted container begins [default: 0]
    crypt_offset "crypt-offset" "Layers",
    /// none, ext3 or ext4: the job uses a file that fills it [default: none]
    fs "fs" "Layers (--on model)",
    /// mkfs's -E stride, as a size [default: 0]
    stride "stride" "Layers (--on model)",
    /// none or internal: the write-intent bitmap [default: none]
    bitmap "bitmap" "Array",
    /// What a bit of the bitmap stands for, as a size [default: mdadm's choice]
    bitmap_chunk "bitmap-chunk" "Array",
    /// Seconds between two looks at which bits may be cleared (mdadm's --delay) [default: 5]
    bitmap_delay "bitmap-delay" "Array",
    /// Members that have failed [default: 0]
    failed "failed" "Array",
    /// How long [default: 5s]
    runtime "runtime" "Workload",
    /// How long before measuring [default: 0]
    ramp_time "ramp_time" "Workload",
    /// Drive model [default: st31000333as]
    drive "drive" "Rig (--on model)",
    /// Controller model, or several as MODEL:COUNT + MODEL [default: 88sx6081-pci32]
    controller "controller" "Rig (--on model)",
    /// CPU model [default: opteron-244]
    cpu "cpu" "Rig (--on model)",
    /// Block-layer model [default: linux-block-2.6.27]
    block "block" "Rig (--on model)",
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
    /// Make a model of this machine's CPU, or of a real drive, by measuring it.
    ///
    /// A drive or file is only read. What cannot be seen by reading is that of another model, and said to be assumed. The
    /// probes then run on the fitted model too, and every difference is printed.
    Calibrate(crate::calibrate::CalibrateArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ShowModelArgs {
    /// A built-in model (see `models list`) or the path of a model file.
    pub(crate) name: String,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}
