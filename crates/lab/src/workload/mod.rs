//! Workloads in fio's vocabulary, run as a closed loop: each job keeps `iodepth` requests in flight and
//! starts the next when one completes.
//!
//! # Contract
//! *Determinism.* The requests depend on the [`Job`], the size of the target and the order of completions
//! alone. Every job draws from its own stream of random numbers, seeded by `randseed` and the job's number.
//! *Offsets.* Random offsets are drawn uniformly among the blocks of the job's region, as with fio's
//! `norandommap`: a block may come twice. Reads and writes of a sequential job go on from places of their
//! own, as fio's do. Random jobs may go on for a *run*: as many bytes one block after another before the next random
//! offset, which is then a multiple of the run (fio's number after `rw=randread:`, as a size).
//! *Measure.* The ramp is not counted, nor is a request that completes after the time is over. Jobs that flush after
//! every run end with the run that is under way when the time is over, and their time ends there.

mod cancel;
mod measure;
mod random;
mod runner;
mod size;

use std::fmt;
use std::str::FromStr;

use stripewise_engine::units::{Nanos, SECTOR_BYTES};

pub(crate) use cancel::Cancel;
pub(crate) use measure::Counters;
pub use measure::Measured;
pub use random::Random;
pub use runner::JobRunner;
pub use size::{parse_size, parse_time, print_chunk, print_size, print_time};

/// The most requests a job may keep in flight, all its clones together.
pub const IN_FLIGHT_MAX: u64 = 65_536;
/// The largest block; buffer segments are counted in 32 bits.
pub const BLOCK_BYTES_MAX: u64 = 1 << 30;

/// The direction and order of a job (fio's `rw`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rw {
    /// Sequential reads.
    Read,
    /// Sequential writes.
    Write,
    /// Sequential reads and writes, mixed by `rwmixread`.
    ReadWrite,
    /// Random reads.
    RandRead,
    /// Random writes.
    RandWrite,
    /// Random reads and writes, mixed by `rwmixread`.
    RandRw,
}

impl Rw {
    /// Every value.
    pub const ALL: [Self; 6] =
        [Self::Read, Self::Write, Self::ReadWrite, Self::RandRead, Self::RandWrite, Self::RandRw];

    /// fio's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::ReadWrite => "rw",
            Self::RandRead => "randread",
            Self::RandWrite => "randwrite",
            Self::RandRw => "randrw",
        }
    }

    /// Whether offsets are random.
    pub const fn is_random(self) -> bool {
        matches!(self, Self::RandRead | Self::RandWrite | Self::RandRw)
    }

    /// Whether `rwmixread` applies.
    pub const fn is_mixed(self) -> bool {
        matches!(self, Self::ReadWrite | Self::RandRw)
    }
}

impl fmt::Display for Rw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Rw {
    type Err = String;
    /// Takes fio's names, `readwrite` among them.
    fn from_str(name: &str) -> Result<Self, String> {
        let short = if name == "readwrite" { "rw" } else { name };
        Self::ALL.into_iter().find(|rw| rw.name() == short).ok_or_else(|| {
            format!("'{name}' is not a value of rw; use one of {}", Self::ALL.map(Self::name).join(", "))
        })
    }
}

/// A workload, in fio's option names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// Direction and order.
    pub rw: Rw,
    /// Percentage of reads where `rw` mixes; each request is drawn by itself.
    pub rwmixread: u8,
    /// Block size in bytes.
    pub bs: u64,
    /// Requests each job keeps in flight.
    pub iodepth: u32,
    /// Jobs that run at the same time.
    pub numjobs: u32,
    /// Past the page cache.
    pub direct: bool,
    /// Bytes of a random job one block after another before the next random offset; one block if absent.
    pub run: Option<u64>,
    /// A flush after every run that writes.
    pub run_fsync: bool,
    /// A flush after every so many writes of a job; 0 for none.
    pub fsync: u32,
    /// Bytes of the target used, from `offset`; all the rest of it if absent.
    pub size: Option<u64>,
    /// First byte used.
    pub offset: u64,
    /// Distance in bytes between the starts of the jobs. If absent, sequential jobs share the region evenly
    /// (`size` / `numjobs` each, so that streams do not overlap, unless the region holds fewer blocks than
    /// there are jobs) and random jobs all use the whole region.
    pub offset_increment: Option<u64>,
    /// Time measured; zero for no limit, which needs `time_based` off.
    pub runtime: Nanos,
    /// Time before the measure starts.
    pub ramp_time: Nanos,
    /// Whether jobs start again at the end of their region until the time is over. On by default, unlike fio.
    pub time_based: bool,
    /// Seed of the random numbers.
    pub randseed: u64,
}

impl Default for Job {
    fn default() -> Self {
        Self {
            rw: Rw::Read,
            rwmixread: 50,
            bs: 4096,
            iodepth: 1,
            numjobs: 1,
            direct: true,
            run: None,
            run_fsync: false,
            fsync: 0,
            size: None,
            offset: 0,
            offset_increment: None,
            runtime: Nanos::from_millis(10_000),
            ramp_time: Nanos(0),
            time_based: true,
            randseed: 1,
        }
    }
}

impl Job {
    /// Percentage of reads, whatever `rw` is.
    pub const fn read_percent(&self) -> u8 {
        match self.rw {
            Rw::Read | Rw::RandRead => 100,
            Rw::Write | Rw::RandWrite => 0,
            Rw::ReadWrite | Rw::RandRw => self.rwmixread,
        }
    }

    /// Refuses what cannot be run on any target.
    pub fn check(&self) -> Result<(), JobError> {
        if self.block() == 0 || !self.block().is_multiple_of(SECTOR_BYTES) || self.bs > BLOCK_BYTES_MAX {
            return Err(JobError::BlockSize(self.block()));
        }
        if !self.offset.is_multiple_of(SECTOR_BYTES)
            || !self.offset_increment.unwrap_or(0).is_multiple_of(SECTOR_BYTES)
        {
            return Err(JobError::Offset);
        }
        if let Some(run) = self.run_bytes()
            && (run == 0 || !run.is_multiple_of(self.block()))
        {
            return Err(JobError::Run { run, block: self.bs });
        }
        if self.run_fsync && self.run.is_none() {
            return Err(JobError::NoRun { block: self.bs });
        }
        if self.rwmixread > 100 {
            return Err(JobError::Mix(self.rwmixread));
        }
        let in_flight = u64::from(self.iodepth) * u64::from(self.numjobs);
        if in_flight == 0 || in_flight > IN_FLIGHT_MAX {
            return Err(JobError::InFlight(in_flight));
        }
        if self.runtime == Nanos(0) && self.time_based {
            return Err(JobError::Endless);
        }
        Ok(())
    }

    /// Refuses what cannot be run on a target of that many sectors.
    pub fn check_on(&self, target_sectors: u64) -> Result<(), JobError> {
        self.check()?;
        self.regions(target_sectors * SECTOR_BYTES).map(|_| ())
    }

    /// Bytes of one I/O: a run shorter than the block is one I/O of its own length.
    pub fn block(&self) -> u64 {
        self.run_bytes().map_or(self.bs, |run| run.min(self.bs))
    }

    /// Bytes of a random job's runs; sequential jobs have none, whatever `run` is.
    pub(crate) fn run_bytes(&self) -> Option<u64> {
        self.run.filter(|_| self.rw.is_random())
    }

    /// Bytes of what it does at one place: a run, or a block.
    fn place_bytes(&self) -> u64 {
        self.run_bytes().unwrap_or(self.bs)
    }

    /// The bytes of all buffers it keeps in flight.
    pub fn buffer_bytes(&self) -> u64 {
        u64::from(self.iodepth) * u64::from(self.numjobs) * self.bs
    }

    /// The regions of the jobs on a target of that many bytes.
    fn regions(&self, target_bytes: u64) -> Result<Vec<Region>, JobError> {
        let too_large =
            JobError::TooLarge { block: self.place_bytes(), offset: self.offset, target: target_bytes };
        let Some(rest) = target_bytes.checked_sub(self.offset) else { return Err(too_large) };
        let span = self.size.map_or(rest, |size| size.min(rest));
        if span < self.place_bytes() {
            return Err(match self.size {
                Some(size) if size < rest => JobError::SmallSize { block: self.place_bytes(), size },
                _ => too_large,
            });
        }
        (0..u64::from(self.numjobs)).map(|number| self.region(number, span, rest)).collect()
    }

    /// The region of one job within the `span` bytes of `rest` that all jobs use.
    fn region(&self, number: u64, span: u64, rest: u64) -> Result<Region, JobError> {
        let share = span / u64::from(self.numjobs) / self.block() * self.block();
        let (start, bytes) = match self.offset_increment {
            Some(increment) => {
                let start = increment.saturating_mul(number);
                (start, span.min(rest.saturating_sub(start)))
            }
            None if self.rw.is_random() || share == 0 => (0, span),
            None => (share * number, share),
        };
        if bytes < self.place_bytes() {
            return Err(JobError::JobBeyondEnd { number, start: self.offset.saturating_add(start) });
        }
        Ok(Region { start_sector: (self.offset + start) / SECTOR_BYTES, blocks: bytes / self.block() })
    }
}

/// The part of the target one job uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Region {
    start_sector: u64,
    blocks: u64,
}

/// Why a job cannot be run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobError {
    /// A block size that is zero, no multiple of a sector, or too large.
    BlockSize(u64),
    /// `offset` or `offset_increment` is no multiple of a sector.
    Offset,
    /// A run that is no multiple of the block.
    Run {
        /// Bytes of the run.
        run: u64,
        /// Bytes of the block.
        block: u64,
    },
    /// Flushes between runs of which there are none.
    NoRun {
        /// Bytes of the block.
        block: u64,
    },
    /// `rwmixread` above 100.
    Mix(u8),
    /// `iodepth` × `numjobs` is zero or too large.
    InFlight(u64),
    /// Neither time nor size ends it.
    Endless,
    /// Not one block fits the size.
    SmallSize {
        /// Block size in bytes.
        block: u64,
        /// `size` in bytes.
        size: u64,
    },
    /// Not one block fits between the offset and the end.
    TooLarge {
        /// Block size in bytes.
        block: u64,
        /// Offset in bytes.
        offset: u64,
        /// The target's bytes.
        target: u64,
    },
    /// A job's region starts too close to the end.
    JobBeyondEnd {
        /// The job.
        number: u64,
        /// Its first byte.
        start: u64,
    },
}

impl fmt::Display for JobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Run { run, block } => write!(
                f,
                "run of {} with bs {}: a run is at most one block, or a multiple of it",
                print_size(*run),
                print_size(*block)
            ),
            Self::NoRun { block } => write!(
                f,
                "run_fsync flushes after each run, but there is no run; set one, such as run={} of one block",
                print_size(*block)
            ),
            Self::BlockSize(bytes) => write!(
                f,
                "bs of {bytes} bytes: a block is a multiple of {SECTOR_BYTES} bytes, at most {}",
                print_size(BLOCK_BYTES_MAX)
            ),
            Self::Offset => write!(f, "offset and offset_increment are multiples of {SECTOR_BYTES} bytes"),
            Self::Mix(percent) => write!(f, "rwmixread of {percent}: a percentage is at most 100"),
            Self::InFlight(count) => {
                write!(f, "iodepth × numjobs is {count}: it is at least 1, at most {IN_FLIGHT_MAX}")
            }
            Self::Endless => f.write_str("runtime of 0 never ends with time_based=1; give a runtime"),
            Self::SmallSize { block, size } => write!(
                f,
                "bs {} does not fit in size {}; use a smaller bs or a larger size",
                print_size(*block),
                print_size(*size)
            ),
            Self::TooLarge { block, offset, target } => write!(
                f,
                "bs {} at offset {} does not fit in the target of {}",
                print_size(*block),
                print_size(*offset),
                print_size(*target)
            ),
            Self::JobBeyondEnd { number, start } => write!(
                f,
                "job {number} would start at {}, with no room for a block before the end; \
                 use a smaller offset_increment",
                print_size(*start)
            ),
        }
    }
}

impl std::error::Error for JobError {}
