//! Why an array cannot be put together.

use std::fmt;

use stripewise_format::superblock::SuperblockError;
use stripewise_format::superblock_1::Unsupported;
use stripewise_format::time::Timestamp;

use super::candidate::{Offered, Wanted};
use crate::geometry::GeometryError;
use crate::level::{Layout, Level, Raid0Layout};
use crate::units::{MEMBERS_MAX, Slot};

/// Why an array cannot be put together. Members are named by their labels.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields of a variant are named by its sentence")]
pub enum AssemblyError {
    /// Nobody is a member of anything.
    NoMembers,
    /// No array is the one asked for.
    NoSuchArray { wanted: Wanted, offered: Vec<Offered> },
    /// More than one array is there.
    SeveralArrays { offered: Vec<Offered> },
    /// Two current members are of one slot.
    SlotTwice { slot: Slot, first: String, second: String },
    /// Two members were each used without the other.
    SplitBrain { first: String, second: String },
    /// Two members were made in different creations of an array with this UUID, whose events count differently.
    CreatedTwice { first: String, first_time: Timestamp, second: String, second_time: Timestamp },
    /// Two members say different things of their array.
    Differs { field: &'static str, label: String, found: String, other: String, right: String },
    /// A superblock names what is not on its device.
    OnDevice { label: String, error: SuperblockError },
    /// The array's part of a member ends beyond it.
    DataBeyondDevice { label: String, data_offset_sectors: u64, size_sectors: u64, device_sectors: u64 },
    /// A member's slot is none of the array's.
    RoleBeyondSlots { label: String, role: u16, raid_disks: u32 },
    /// More slots than can be served.
    TooManySlots { label: String, raid_disks: u32 },
    /// Two devices are the array's write journal.
    JournalTwice { first: String, second: String },
    /// The write journal is missing, or one of these that are out of date.
    JournalLost { stale: Vec<String> },
    /// A feature that is not served.
    Unsupported { label: String, reason: Unsupported },
    /// A reshape is under way; how far it is, if that is known. Of superblocks of 0.90 Linux alone ends it.
    Reshape { label: String, done_percent: Option<u8>, is_linuxs: bool },
    /// A reshape has ended, and the superblocks of some members do not say so.
    ReshapeEnded { untold: Vec<String> },
    /// A change by superblocks alone was cut off before those of some members; what is to be asked of `grow` to finish it.
    CutOff { behind: Vec<String>, finish: String },
    /// The superblock says no layout where there must be one.
    NoLayout { label: String },
    /// A RAID-0 of several zones whose layout nobody wrote down.
    Raid0LayoutUnknown { label: String },
    /// A RAID-0 layout is asked for that is not the recorded one.
    Raid0LayoutRecorded { label: String, recorded: Raid0Layout },
    /// The geometry is impossible.
    Geometry(GeometryError),
    /// No member has a bitmap that can be used.
    Bitmap { label: String, problem: String },
    /// More members are missing than the level survives.
    NotEnough {
        level: Level,
        slots: usize,
        missing: Vec<Slot>,
        recovering: Vec<Slot>,
        stale: Vec<String>,
        /// What uses those that are out of date.
        by_force: &'static str,
    },
    /// Members are missing that were there when the array was last used; of `replaced`, some of the absent ones, there is a
    /// replacement that is copied in part.
    NeedsRun { absent: Vec<Slot>, replaced: Vec<Slot>, stale: Vec<String>, slots: usize, present: usize },
    /// Parity may be wrong and is needed.
    DirtyDegraded {
        missing: Vec<Slot>,
        recovering: Vec<Slot>,
        /// What takes it as it is.
        by_force: &'static str,
    },
}

impl From<GeometryError> for AssemblyError {
    fn from(error: GeometryError) -> Self {
        Self::Geometry(error)
    }
}

impl std::error::Error for AssemblyError {}

impl fmt::Display for AssemblyError {
    #[expect(clippy::too_many_lines, reason = "a flat table of sentences")]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoMembers => f.write_str("no device with a readable superblock is given"),
            Self::NoSuchArray { wanted, offered } => no_such_array(f, wanted, offered),
            Self::SeveralArrays { offered } => {
                f.write_str("the devices belong to several arrays; choose one with --uuid or --name:")?;
                list(f, offered)
            }
            Self::SlotTwice { slot, first, second } => write!(
                f,
                "{first} and {second} both claim slot {slot}; leave out the one that is a copy or was replaced"
            ),
            Self::SplitBrain { first, second } => write!(
                f,
                "{first} and {second} were each used without the other and have the same number of events; name the one whose \
                 data are to be kept, leave out the other, and add it once the array runs"
            ),
            Self::CreatedTwice { first, first_time, second, second_time } => write!(
                f,
                "{first} and {second} are of two arrays that were given one UUID: the one was created {} UTC, the other {} UTC; \
                 leave out the devices of one of them",
                first_time.calendar(0),
                second_time.calendar(0)
            ),
            Self::Differs { field, label, found, other, right } => {
                write!(f, "{label}: {field} is {found}; {other}, a member of the same array, has {right}")
            }
            Self::OnDevice { label, error } => write!(f, "{label}: {error}"),
            Self::DataBeyondDevice { label, data_offset_sectors, size_sectors, device_sectors } => write!(
                f,
                "{label}: data_offset {data_offset_sectors} and size {size_sectors} end beyond the device's \
                 {device_sectors} sectors; the device was cut off, or the superblock is of another device"
            ),
            Self::RoleBeyondSlots { label, role, raid_disks } => {
                write!(f, "{label}: dev_roles gives it slot {role}; raid_disks is {raid_disks}")
            }
            Self::TooManySlots { label, raid_disks } => {
                write!(f, "{label}: raid_disks is {raid_disks}; at most {MEMBERS_MAX} are supported")
            }
            Self::JournalTwice { first, second } => write!(
                f,
                "{first} and {second} are both the array's write journal; leave out the one that is a copy"
            ),
            Self::JournalLost { stale } => journal_lost(f, stale),
            Self::Unsupported { label, reason } => write!(f, "{label}: {reason}"),
            Self::Reshape { label, is_linuxs: true, .. } => write!(
                f,
                "{label}: the array is being reshaped; Linux ends the reshape (`mdadm --assemble`, with its --backup-file if it has one)"
            ),
            Self::Reshape { label, done_percent, .. } => {
                write!(f, "{label}: the array is being reshaped")?;
                if let Some(percent) = done_percent {
                    write!(f, ", and {percent} % is done")?;
                }
                f.write_str("; `stripewise grow --continue` ends the reshape")?;
                // One that is only just being begun may not be on all superblocks yet, which mdadm refuses.
                match done_percent {
                    Some(0) => Ok(()),
                    _ => f.write_str(
                        ", and so does Linux (`mdadm --assemble`, with its --backup-file if it has one)",
                    ),
                }
            }
            Self::ReshapeEnded { untold } => write!(
                f,
                "{}: the array's reshape has ended, which the superblock does not say yet; `stripewise grow --continue` writes it",
                untold.join(", ")
            ),
            Self::CutOff { behind, finish } => write!(
                f,
                "{}: `stripewise grow` was cut off before it wrote the superblock; `stripewise grow {finish}` finishes the change",
                behind.join(", ")
            ),
            Self::NoLayout { label } => write!(f, "{label}: the layout is not one of this level"),
            Self::Raid0LayoutUnknown { label } => write!(
                f,
                "{label}: the superblock does not say which of the two layouts this RAID-0 of unequal members has; \
                 give --layout original (made before Linux 3.14) or --layout alternate"
            ),
            Self::Raid0LayoutRecorded { label, recorded } => write!(
                f,
                "{label}: the superblock records layout {}; leave --layout out",
                Layout::Raid0(*recorded)
            ),
            Self::Geometry(error) => error.fmt(f),
            Self::Bitmap { label, problem } => {
                write!(
                    f,
                    "{label}: {problem}; --readonly reads the array without it, and `stripewise grow --bitmap none` takes it away"
                )
            }
            Self::NotEnough { level, slots, missing, recovering, stale, by_force } => {
                not_enough(f, *level, *slots, missing, recovering)?;
                if !stale.is_empty() {
                    write!(
                        f,
                        "; out of date: {} (`{by_force}` uses those that are needed)",
                        stale.join(", ")
                    )?;
                }
                Ok(())
            }
            Self::NeedsRun { absent, replaced, stale, slots, present } => {
                write!(
                    f,
                    "{present} of {slots} members are present; {} missing although the array last had {}",
                    that_are(absent),
                    if absent.len() == 1 { "it" } else { "them" }
                )?;
                if !replaced.is_empty() {
                    write!(
                        f,
                        ", and only a replacement of slot {} is present, not fully copied",
                        numbers(replaced)
                    )?;
                }
                if !stale.is_empty() {
                    return write!(f, "; out of date: {}; start degraded with --run", stale.join(", "));
                }
                let their = if absent.len() == 1 { "its member" } else { "their members" };
                write!(f, "; name {their}, too, or start degraded with --run")
            }
            Self::DirtyDegraded { missing, recovering, by_force } => {
                let slots: Vec<Slot> = missing.iter().chain(recovering).copied().collect();
                write!(
                    f,
                    "the array was not stopped cleanly and {} not in sync, so data may be wrong where writes \
                     were in flight; `{by_force}` takes it as it is, --readonly only reads it",
                    that_are(&slots)
                )
            }
        }
    }
}

fn journal_lost(f: &mut fmt::Formatter<'_>, stale: &[String]) -> fmt::Result {
    f.write_str("the array's write journal is missing")?;
    if !stale.is_empty() {
        write!(f, " (out of date: {})", stale.join(", "))?;
    }
    f.write_str(
        ", and may hold its last writes; name its device, too. --readonly reads the members as they are, \
         `stripewise assemble --force` gives the journal up and what it holds",
    )
}

/// "slot 0 is" or "slots 0, 1 are".
fn that_are(slots: &[Slot]) -> String {
    let (noun, verb) = if slots.len() == 1 { ("slot", "is") } else { ("slots", "are") };
    format!("{noun} {} {verb}", numbers(slots))
}

fn numbers(slots: &[Slot]) -> String {
    slots.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn not_enough(
    f: &mut fmt::Formatter<'_>,
    level: Level,
    slots: usize,
    missing: &[Slot],
    recovering: &[Slot],
) -> fmt::Result {
    let present = slots - missing.len() - recovering.len();
    write!(f, "{present} of {slots} members are in sync, not enough to start a {level} array")?;
    if !missing.is_empty() {
        write!(f, "; missing: slot {}", numbers(missing))?;
    }
    if !recovering.is_empty() {
        write!(f, "; not recovered to the end: slot {}", numbers(recovering))?;
    }
    Ok(())
}

fn no_such_array(f: &mut fmt::Formatter<'_>, wanted: &Wanted, offered: &[Offered]) -> fmt::Result {
    match wanted {
        Wanted::Only => return f.write_str("no array is found among the devices"),
        Wanted::Uuid(uuid) => write!(f, "no array has UUID {uuid}")?,
        Wanted::Name(name) => write!(f, "no array has the name '{name}'")?,
    }
    if offered.is_empty() {
        return f.write_str("; none is found");
    }
    f.write_str("; there are:")?;
    list(f, offered)
}

fn list(f: &mut fmt::Formatter<'_>, offered: &[Offered]) -> fmt::Result {
    for array in offered {
        let Offered { uuid, name, level, raid_disks, candidates } = array;
        write!(f, "\n  {uuid} {level}, {} of {raid_disks} members", candidates.len())?;
        if !name.is_empty() {
            write!(f, ", name {name:?}")?;
        }
    }
    Ok(())
}
