//! `stripewise create`: a new array on files and block devices.

mod output;

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow};
use clap::{Args, ValueEnum};
use stripewise_engine::assembly::assemble_new;
use stripewise_format::create::{
    self as plan, CreateError, JournalError, Label, NewArray, NewMember, Request,
};
use stripewise_format::device_flags::DeviceFlags;
use stripewise_format::level::{Layout, Level, Raid0Layout};
use stripewise_format::placement::{Consistency, Metadata, Plan};
use stripewise_format::time::Timestamp;
use stripewise_format::uuid::Uuid;
use stripewise_host::md::create::{Candidate, MemberWrite, begin_overlay, overlay_has_data, write};
use stripewise_host::md::overlay::{Overlay, OverlayProblem};
use stripewise_host::{HostError, MemberProblem};

use super::flags::{DEVICES, FlagArgs};
use super::name::{check_name, homehost};
use super::size::UNITS;
use super::{Size, host_error};
use crate::exit::{Exit, Impossible};

/// mdadm's since 3.1.1.
const CHUNK_SECTORS_DEFAULT: u32 = 1024;
/// What mdadm calls an array that has no name and is the first of its machine.
const NAME_DEFAULT: &str = "0";

/// The options of `create`, mdadm's.
#[derive(Debug, Args)]
#[command(after_help = UNITS)]
pub(crate) struct CreateArgs {
    #[command(flatten)]
    flags: FlagArgs,
    /// Files and block devices in slot order, then spares; `missing` leaves a slot empty.
    #[arg(id = DEVICES, required = true, value_name = "MEMBER")]
    members: Vec<PathBuf>,
    /// RAID level: linear, 0, 1, 4, 5, 6 or 10
    #[arg(long, short, value_name = "LEVEL")]
    level: Level,
    /// Number of active devices (slots)
    #[arg(long, short = 'n', value_name = "N")]
    raid_devices: u32,
    /// Number of spare devices
    #[arg(long, short = 'x', value_name = "N", default_value_t = 0)]
    spare_devices: u32,
    /// Chunk size [default: 512K, none for linear and raid1]
    #[arg(long, short, alias = "rounding", value_name = "SIZE")]
    chunk: Option<Size>,
    /// Layout, by mdadm's name [default: mdadm's]
    #[arg(long, short = 'p', value_name = "LAYOUT")]
    layout: Option<String>,
    /// Superblock version: 0.90, 1.0, 1.1 or 1.2
    #[arg(long, short = 'e', value_name = "VERSION", default_value = "1.2", value_parser = metadata)]
    metadata: Metadata,
    /// Space to use on each member, or max [default: max, all of the smallest member]
    #[arg(long, short = 'z', value_name = "SIZE", value_parser = size_or_max)]
    size: Option<MaxSize>,
    /// Write-intent bitmap [default: internal if more than 100G of each member are used, else none]
    #[arg(long, short, value_enum)]
    bitmap: Option<BitmapArg>,
    /// Data covered by one bit of the bitmap [default: 64M or the least that fits]
    #[arg(long, value_name = "SIZE")]
    bitmap_chunk: Option<Size>,
    /// Means to restore consistency after a crash [default: bitmap if there is one, else resync]
    #[arg(long, short = 'k', value_enum)]
    consistency_policy: Option<PolicyArg>,
    /// Log every write on this device first (raid4, raid5, raid6): no write hole, with members missing or not
    #[arg(long, value_name = "DEV", conflicts_with_all = ["bitmap", "overlay"])]
    write_journal: Option<PathBuf>,
    /// Assume that the members are in sync; skip the first resync
    #[arg(long)]
    assume_clean: bool,
    /// Array name [default: 0]
    #[arg(long, short = 'N', value_name = "NAME")]
    name: Option<String>,
    /// Host name before the array name; `<none>` for none [default: this machine's]
    #[arg(long, value_name = "HOST")]
    homehost: Option<String>,
    /// Array UUID [default: random]
    #[arg(long, short, value_name = "UUID")]
    uuid: Option<Uuid>,
    /// Start of the data on each member [default: as mdadm chooses]
    #[arg(long, value_name = "SIZE")]
    data_offset: Option<Size>,
    /// Overwrite members that hold data; start levels 4 and 5 with a resync instead of a recovery; allow a single device
    #[arg(long, short)]
    force: bool,
    /// Allow this block device to be overwritten; may be repeated
    #[arg(long, value_name = "DEV")]
    destroy: Vec<PathBuf>,
    /// Create the array in this copy-on-write file, discarding what it held; members are only read, whatever they hold
    #[arg(long, value_name = "FILE", conflicts_with = "destroy")]
    overlay: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum BitmapArg {
    Internal,
    None,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum PolicyArg {
    Resync,
    Bitmap,
    Ppl,
    Journal,
}

/// `--size`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MaxSize {
    Max,
    Size(Size),
}

fn metadata(name: &str) -> Result<Metadata, String> {
    Metadata::parse(name)
        .ok_or_else(|| format!("'{name}' is not a metadata version; use 0.90, 1.0, 1.1 or 1.2"))
}

pub(super) fn size_or_max(text: &str) -> Result<MaxSize, String> {
    if text == "max" { Ok(MaxSize::Max) } else { text.parse().map(MaxSize::Size) }
}

/// What a bit stands for, in bytes.
pub(super) fn bitmap_chunk_bytes(chunk: Size) -> Result<u32, String> {
    u32::try_from(chunk.0).map_err(|_| "--bitmap-chunk: a bitmap chunk is at most 2G".to_owned())
}

pub(crate) fn run(args: &CreateArgs) -> Result<Exit> {
    let plan = args.plan().map_err(Impossible)?;
    let members = args.members.iter().filter(|path| !is_missing(path));
    let paths: Vec<PathBuf> = members.chain(&args.write_journal).cloned().collect();
    let mut candidates = args.candidates(&paths)?;
    let request = args.request(plan, &candidates)?;
    let array = plan::create(&request).map_err(|error| args.create_error(&error))?;
    let device = |member: usize| {
        let new = request.members.get(member).copied().unwrap_or(request.journal);
        (args.path(member).display().to_string(), new.map_or(0, |new| new.device_sectors))
    };
    assemble_new(&array, device)
        .map_err(|error| Impossible(format!("an array with these options could not be started: {error}")))?;
    if let Some(path) = &args.overlay {
        args.begin_overlay(path, &mut candidates).map_err(host_error)?;
    }
    let writes: Vec<MemberWrite> = array
        .labels
        .iter()
        .map(|label| MemberWrite {
            candidate: &candidates[args.present_before(label.member)],
            clears: true,
            logs: &label.logs,
            superblock: &label.superblock_area,
        })
        .collect();
    write(&writes)?;
    output::print(args, &request, &array)?;
    Ok(Exit::Done)
}

fn is_missing(path: &Path) -> bool {
    path.as_os_str() == "missing"
}

/// The error of a member that is to be written to; a file that is not there can be made.
fn member_error(error: HostError) -> anyhow::Error {
    match &error {
        HostError::Member { path, problem: MemberProblem::NotFound } => {
            let path = path.display();
            Impossible(format!("{path}: no such file; make one first, for example: truncate -s 1G {path}"))
                .into()
        }
        _ => host_error(error),
    }
}

impl CreateArgs {
    /// Opens the members, which hold nothing unless that is allowed or they are not written to.
    fn candidates(&self, paths: &[PathBuf]) -> Result<Vec<Candidate>> {
        if self.overlay.is_some() {
            return Candidate::open_all_under_overlay(paths).map_err(member_error);
        }
        let candidates = Candidate::open_all(paths, &self.destroy).map_err(member_error)?;
        if !self.force {
            candidates.iter().try_for_each(Candidate::require_blank).map_err(host_error)?;
        }
        Ok(candidates)
    }

    /// Puts an overlay over the members. One that holds data of an array is not dropped unless that is allowed.
    fn begin_overlay(&self, path: &Path, candidates: &mut [Candidate]) -> Result<(), HostError> {
        let overlay = Overlay::open(path)?;
        if !self.force && overlay_has_data(&overlay)? {
            return Err(HostError::Overlay { path: path.to_owned(), problem: OverlayProblem::HasData });
        }
        begin_overlay(&overlay, candidates)
    }

    fn plan(&self) -> Result<Plan, String> {
        let level = self.level;
        let chunk_sectors = match self.chunk {
            Some(chunk) => {
                u32::try_from(chunk.sectors()).map_err(|_| "--chunk: a chunk is at most 1G".to_owned())?
            }
            None if level.has_chunks() => CHUNK_SECTORS_DEFAULT,
            None => 0,
        };
        let layout = match self.layout.as_deref() {
            None | Some("default") if level == Level::Raid0 => Layout::Raid0(Raid0Layout::Original),
            None => Layout::default_of(level),
            Some(name) => Layout::parse(level, name).map_err(|error| error.to_string())?,
        };
        if level == Level::Raid0 && self.metadata == Metadata::V0 && self.layout.is_some() {
            return Err(CreateError::Raid0LayoutInV0.to_string());
        }
        Ok(Plan {
            level,
            layout,
            raid_disks: self.raid_devices,
            chunk_sectors,
            metadata: self.metadata,
            consistency: self.consistency()?,
            data_offset_sectors: self.data_offset.map(Size::sectors),
        })
    }

    fn consistency(&self) -> Result<Consistency, String> {
        let wants_journal = self.consistency_policy == Some(PolicyArg::Journal);
        if wants_journal != (self.write_journal.is_some() && self.consistency_policy.is_some()) {
            return Err("--write-journal DEV and --consistency-policy journal go together".to_owned());
        }
        let wants_bitmap = match (self.bitmap, self.consistency_policy) {
            (Some(BitmapArg::Internal), None)
            | (None | Some(BitmapArg::Internal), Some(PolicyArg::Bitmap)) => true,
            (Some(BitmapArg::Internal), Some(_)) => {
                return Err("--bitmap internal: goes only with --consistency-policy bitmap".to_owned());
            }
            (Some(BitmapArg::None), Some(PolicyArg::Bitmap)) => {
                return Err("--consistency-policy bitmap needs a bitmap; leave --bitmap none out".to_owned());
            }
            (Some(BitmapArg::None) | None, _) => false,
        };
        let chunk_bytes = match self.bitmap_chunk {
            Some(_) if !wants_bitmap => {
                return Err("--bitmap-chunk needs --bitmap internal".to_owned());
            }
            Some(chunk) => Some(bitmap_chunk_bytes(chunk)?),
            None => None,
        };
        Ok(match self.consistency_policy {
            _ if wants_bitmap => Consistency::Bitmap { chunk_bytes },
            Some(PolicyArg::Ppl) => Consistency::Ppl,
            _ => Consistency::Resync,
        })
    }

    fn request(&self, plan: Plan, candidates: &[Candidate]) -> Result<Request> {
        let mut random = Random::open()?;
        let mut present = candidates.iter();
        let mut members = Vec::new();
        let mut device = |candidate: &Candidate, flags: DeviceFlags| -> Result<NewMember> {
            Ok(NewMember {
                device_sectors: candidate.probe.device_sectors,
                device_uuid: random.uuid()?,
                device_number: candidate.device_number,
                flags,
            })
        };
        for (place, path) in self.members.iter().enumerate() {
            let candidate = if is_missing(path) { None } else { present.next() };
            let flags = self.flags.of(place).apply(DeviceFlags::default());
            members.push(candidate.map(|candidate| device(candidate, flags)).transpose()?);
        }
        let journal =
            present.next().map(|candidate| device(candidate, DeviceFlags::default())).transpose()?;
        let homehost = homehost(self.homehost.as_deref())?;
        let name = self.name.clone().unwrap_or_else(|| NAME_DEFAULT.to_owned());
        check_name(&name)?;
        Ok(Request {
            plan,
            auto_bitmap: self.bitmap.is_none()
                && self.consistency_policy.is_none()
                && self.write_journal.is_none(),
            size_sectors: match self.size {
                Some(MaxSize::Size(size)) => Some(size.sectors()),
                Some(MaxSize::Max) | None => None,
            },
            assume_clean: self.assume_clean,
            force: self.force,
            spares: self.spare_devices,
            members,
            journal,
            set_uuid: match self.uuid {
                Some(uuid) => uuid,
                None => random.uuid()?,
            },
            name,
            homehost,
            created: now()?,
        })
    }

    /// A member, or the journal behind them.
    fn path(&self, member: usize) -> &Path {
        let journal = self.write_journal.as_deref().unwrap_or(Path::new("missing"));
        self.members.get(member).map_or(journal, PathBuf::as_path)
    }

    /// Members before one of the list, those missing left out.
    fn present_before(&self, member: usize) -> usize {
        self.members[..member].iter().filter(|path| !is_missing(path)).count()
    }

    fn create_error(&self, error: &CreateError) -> anyhow::Error {
        let member = match error {
            CreateError::Member { member, .. } | CreateError::SizeTooLarge { member, .. } => Some(*member),
            CreateError::Journal(JournalError::Short { .. }) => Some(self.members.len()),
            _ => None,
        };
        Impossible(match member {
            Some(member) => format!("{}: {error}", self.path(member).display()),
            None => error.to_string(),
        })
        .into()
    }

    /// What the caller should know, though it was done.
    fn warnings(&self, array: &NewArray) -> Vec<String> {
        let used = array.size_sectors / 2;
        let unused = array.largest_unused.map(|(member, sectors)| {
            let path = self.members[member].display();
            format!("{path}: has room for {}K, but only {used}K of each member are used", sectors / 2)
        });
        let is_write_mostly = |label: &Label| label.superblock.device_flags().is_write_mostly;
        let spares_nobody = array.plan.level != Level::Raid1 && array.labels.iter().any(is_write_mostly);
        let in_vain = spares_nobody.then(|| {
            let level = array.plan.level;
            format!("write-mostly is recorded but has no effect: only raid1 respects it, {level} does not")
        });
        unused.into_iter().chain(in_vain).collect()
    }
}

/// The time, as superblocks have it.
pub(super) fn now() -> Result<Timestamp> {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .context("the system clock is set to a time before 1970")?;
    Ok(Timestamp::from_seconds(since.as_secs()))
}

/// The system's random bytes.
struct Random(File);

impl Random {
    fn open() -> Result<Self> {
        File::open("/dev/urandom").map(Self).map_err(|e| anyhow!("/dev/urandom: {e}"))
    }

    fn uuid(&mut self) -> Result<Uuid> {
        let mut bytes = [0; 16];
        self.0.read_exact(&mut bytes).context("/dev/urandom")?;
        Ok(Uuid(bytes))
    }
}
