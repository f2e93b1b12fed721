//! The parameters of a cell and the table that names them. A parameter is written once, in [`PARAMETERS`]:
//! plans may fix it, vary it as a factor or override it, and `bench` takes it as an option.

use std::collections::BTreeMap;

use stripewise_engine::level::{Layout, Level};
use stripewise_engine::policy::Policy;
use stripewise_engine::units::MEMBERS_MAX;

use crate::workload::{Job, parse_size, parse_time, print_chunk, print_size, print_time};

/// What a cell measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CellTarget {
    /// The array.
    Array,
    /// One member by itself, for reference.
    Drive,
}

/// The modelled rig, by the names of its models, and the kernel whose policy the array follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rig {
    /// Drive model.
    pub drive: String,
    /// Drives there are.
    pub count: u16,
    /// Controller model.
    pub controller: String,
    /// CPU model.
    pub cpu: String,
    /// Model of the block layer above a drive.
    pub block: String,
    /// Policy, one of [`Policy::ALL`].
    pub policy: String,
}

/// The array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArraySpec {
    /// Level.
    pub level: Level,
    /// Layout by mdadm's name; the level's default if absent.
    pub layout: Option<String>,
    /// Members; all drives of the rig if absent.
    pub raid_devices: Option<u16>,
    /// Chunk in bytes.
    pub chunk: u64,
    /// Stripe cache entries.
    pub stripe_cache_size: u32,
}

/// Everything that decides what a cell does, apart from the storage under it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// What is measured.
    pub target: CellTarget,
    /// Rig.
    pub rig: Rig,
    /// Array.
    pub array: ArraySpec,
    /// Workload. Its `randseed` is the cell's seed.
    pub job: Job,
}

impl Default for Parameters {
    /// A RAID-5 as mdadm makes it on five drives; the models must be named.
    fn default() -> Self {
        Self {
            target: CellTarget::Array,
            rig: Rig {
                drive: String::new(),
                count: 5,
                controller: String::new(),
                cpu: String::new(),
                block: String::new(),
                policy: Policy::stripewise().name.to_owned(),
            },
            array: ArraySpec {
                level: Level::Raid5,
                layout: None,
                raid_devices: None,
                chunk: 512 * 1024,
                stripe_cache_size: 256,
            },
            job: Job::default(),
        }
    }
}

impl Parameters {
    /// Members of the array.
    pub fn members(&self) -> u16 {
        match self.target {
            CellTarget::Array => self.array.raid_devices.unwrap_or(self.rig.count),
            CellTarget::Drive => 1,
        }
    }

    /// The array's layout.
    pub fn layout(&self) -> Result<Layout, String> {
        match &self.array.layout {
            None => Ok(Layout::default_of(self.array.level)),
            Some(name) => Layout::parse(self.array.level, name).map_err(|e| e.to_string()),
        }
    }

    /// The policy.
    pub fn policy(&self) -> Result<Policy, String> {
        policy(&self.rig.policy)
    }

    /// Every parameter that applies, as printed.
    pub fn printed(&self) -> BTreeMap<String, String> {
        PARAMETERS
            .iter()
            .filter(|p| (p.applies)(self))
            .map(|p| (p.name.to_owned(), (p.print)(self)))
            .collect()
    }

    /// Sets a parameter by name.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        (find(name)?.set)(self, value)
    }

    /// Refuses arrays and jobs that no storage can hold.
    pub fn check(&self) -> Result<(), String> {
        let (members, level) = (self.members(), self.array.level);
        if self.target == CellTarget::Array {
            if members < level.members_min() {
                let least = level.members_min();
                return Err(format!("{level} on {members} members: {level} needs at least {least}"));
            }
            if members > self.rig.count {
                let count = self.rig.count;
                return Err(format!("raid_devices is {members}, but the rig's count of drives is {count}"));
            }
            self.layout()?;
        }
        self.policy()?;
        self.job.check().map_err(|e| e.to_string())
    }
}

/// The part of a plan a parameter is fixed in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    /// `[rig]`
    Rig,
    /// `[array]`
    Array,
    /// `[job]`
    Job,
    /// Only in `[factors]`.
    Factors,
}

/// A named parameter.
pub struct Parameter {
    /// Name in plans, options and results.
    pub name: &'static str,
    /// Where a plan fixes it.
    pub section: Section,
    /// Whether it makes a difference, given the parameters before it in the table.
    pub applies: fn(&Parameters) -> bool,
    /// Reads a value; the error says what would be right.
    pub set: fn(&mut Parameters, &str) -> Result<(), String>,
    /// Prints the value so that equal values print equally.
    pub print: fn(&Parameters) -> String,
}

/// Finds a parameter by name; the error names the known ones.
pub fn find(name: &str) -> Result<&'static Parameter, String> {
    PARAMETERS.iter().find(|p| p.name == name).ok_or_else(|| {
        let known: Vec<&str> = PARAMETERS.iter().map(|p| p.name).collect();
        format!("unknown parameter '{name}'; known are {}", known.join(", "))
    })
}

const fn always(_: &Parameters) -> bool {
    true
}

fn on_array(p: &Parameters) -> bool {
    p.target == CellTarget::Array
}

fn with_chunks(p: &Parameters) -> bool {
    on_array(p) && p.array.level.has_chunks()
}

fn with_parity(p: &Parameters) -> bool {
    on_array(p) && p.array.level.parity_count() > 0
}

fn mixed(p: &Parameters) -> bool {
    p.job.rw.is_mixed()
}

/// One line of the table.
macro_rules! parameter {
    ($name:literal, $section:ident, $applies:expr, |$p:ident, $v:ident| $set:expr, |$q:ident| $print:expr) => {
        Parameter {
            name: $name,
            section: Section::$section,
            applies: $applies,
            set: |$p, $v| {
                $set;
                Ok(())
            },
            print: |$q| $print,
        }
    };
}

/// Every parameter, in the order in which factors are expanded: what others depend on comes first.
pub static PARAMETERS: &[Parameter] = &[
    parameter!("target", Factors, always, |p, v| p.target = subject(v)?, |p| match p.target {
        CellTarget::Array => "array".to_owned(),
        CellTarget::Drive => "drive".to_owned(),
    }),
    parameter!("drive", Rig, always, |p, v| v.clone_into(&mut p.rig.drive), |p| p.rig.drive.clone()),
    parameter!("controller", Rig, always, |p, v| v.clone_into(&mut p.rig.controller), |p| p
        .rig
        .controller
        .clone()),
    parameter!("cpu", Rig, always, |p, v| v.clone_into(&mut p.rig.cpu), |p| p.rig.cpu.clone()),
    parameter!("block", Rig, always, |p, v| v.clone_into(&mut p.rig.block), |p| p.rig.block.clone()),
    parameter!("policy", Rig, always, |p, v| policy(v)?.name.clone_into(&mut p.rig.policy), |p| p
        .rig
        .policy
        .clone()),
    parameter!("count", Rig, always, |p, v| p.rig.count = members(v)?, |p| p.rig.count.to_string()),
    parameter!("level", Array, on_array, |p, v| p.array.level = level(v)?, |p| p.array.level.to_string()),
    parameter!("layout", Array, on_array, |p, v| p.array.layout = Some(v.to_owned()), |p| p
        .layout()
        .map_or_else(|_| p.array.layout.clone().unwrap_or_default(), |l| l.to_string())),
    parameter!("raid_devices", Array, on_array, |p, v| p.array.raid_devices = Some(members(v)?), |p| p
        .members()
        .to_string()),
    parameter!("stripe_cache_size", Array, with_parity, |p, v| p.array.stripe_cache_size = cache(v)?, |p| p
        .array
        .stripe_cache_size
        .to_string()),
    parameter!("chunk", Array, with_chunks, |p, v| p.array.chunk = chunk(v)?, |p| print_chunk(p.array.chunk)),
    parameter!("rw", Job, always, |p, v| p.job.rw = v.parse()?, |p| p.job.rw.to_string()),
    parameter!("rwmixread", Job, mixed, |p, v| p.job.rwmixread = percent(v)?, |p| p
        .job
        .rwmixread
        .to_string()),
    parameter!("numjobs", Job, always, |p, v| p.job.numjobs = at_least(v, 1)?, |p| p.job.numjobs.to_string()),
    parameter!("iodepth", Job, always, |p, v| p.job.iodepth = at_least(v, 1)?, |p| p.job.iodepth.to_string()),
    parameter!("bs", Job, always, |p, v| p.job.bs = block(v)?, |p| print_size(p.job.bs)),
    parameter!("direct", Job, always, |p, v| p.job.direct = switch(v)?, |p| u8::from(p.job.direct)
        .to_string()),
    parameter!("fsync", Job, always, |p, v| p.job.fsync = at_least(v, 0)?, |p| p.job.fsync.to_string()),
    parameter!("size", Job, always, |p, v| p.job.size = Some(parse_size(v)?), |p| p
        .job
        .size
        .map_or_else(|| "all".to_owned(), print_size)),
    parameter!("offset", Job, always, |p, v| p.job.offset = parse_size(v)?, |p| print_size(p.job.offset)),
    parameter!("offset_increment", Job, always, |p, v| p.job.offset_increment = Some(parse_size(v)?), |p| p
        .job
        .offset_increment
        .map_or_else(|| "default".to_owned(), print_size)),
    parameter!("runtime", Job, always, |p, v| p.job.runtime = parse_time(v)?, |p| print_time(p.job.runtime)),
    parameter!("ramp_time", Job, always, |p, v| p.job.ramp_time = parse_time(v)?, |p| print_time(
        p.job.ramp_time
    )),
    parameter!("time_based", Job, always, |p, v| p.job.time_based = switch(v)?, |p| u8::from(
        p.job.time_based
    )
    .to_string()),
];

fn subject(text: &str) -> Result<CellTarget, String> {
    match text {
        "array" => Ok(CellTarget::Array),
        "drive" => Ok(CellTarget::Drive),
        _ => Err(format!("'{text}' is no target; known are array, drive")),
    }
}

fn policy(text: &str) -> Result<Policy, String> {
    Policy::by_name(text).ok_or_else(|| {
        let known = Policy::ALL.map(|p| p.name).join(", ");
        format!("'{text}' is no policy; known are {known}")
    })
}

fn level(text: &str) -> Result<Level, String> {
    text.parse().map_err(|e: stripewise_engine::level::UnknownName| e.to_string())
}

fn members(text: &str) -> Result<u16, String> {
    match text.parse() {
        Ok(count) if (1..=MEMBERS_MAX as u16).contains(&count) => Ok(count),
        _ => Err(format!("'{text}' is no number of members; an array has 1 to {MEMBERS_MAX}")),
    }
}

fn chunk(text: &str) -> Result<u64, String> {
    let bytes = parse_size(text)?;
    if bytes < 4096 || !bytes.is_power_of_two() || bytes > 1 << 30 {
        return Err(format!("'{text}' is no chunk; a chunk is a power of two from 4K to 1024M"));
    }
    Ok(bytes)
}

fn block(text: &str) -> Result<u64, String> {
    let bytes = parse_size(text)?;
    Job { bs: bytes, ..Job::default() }.check().map_err(|e| e.to_string())?;
    Ok(bytes)
}

fn cache(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(entries) if (17..=32_768).contains(&entries) => Ok(entries),
        _ => Err(format!("'{text}' is no stripe_cache_size; md takes 17 to 32768 entries")),
    }
}

fn percent(text: &str) -> Result<u8, String> {
    match text.parse() {
        Ok(percent) if percent <= 100 => Ok(percent),
        _ => Err(format!("'{text}' is no percentage; write 0 to 100")),
    }
}

fn at_least(text: &str, least: u32) -> Result<u32, String> {
    match text.parse() {
        Ok(count) if count >= least => Ok(count),
        _ => Err(format!("'{text}' is no number from {least} on")),
    }
}

fn switch(text: &str) -> Result<bool, String> {
    match text {
        "1" | "true" => Ok(true),
        "0" | "false" => Ok(false),
        _ => Err(format!("'{text}' is no switch; write 1 or 0")),
    }
}
