//! Managing an array while it runs, in mdadm's words, with members by their paths.
//!
//! # Contract
//! *Ownership.* A member that comes in is opened and locked here, and is the array's from then on; one that is removed
//! is closed when its last I/O is answered. *Ordering.* What is under way goes on. A command is answered when the
//! members' superblocks say what it did. *Failure.* A command that is refused changes nothing, on the members or in the
//! array. *Blocking.* Opening a member and clearing what it held is done on the array's own thread: requests wait for
//! as long as that takes. A server has paths looked at before (`beneath`): one that leads to the array itself would never
//! be opened.

mod add;
mod beneath;
mod error;
mod idle;
mod status;

use std::fmt;
use std::path::{Path, PathBuf};

pub use add::AddHow;
pub(crate) use add::random_uuid;
pub(crate) use beneath::{device_of, look_beneath};
pub use error::{ManageError, NotReAddable};
pub use status::{ArrayStatus, MemberStatus};

use stripewise_engine::array::members::Standing;
use stripewise_engine::io::{AdminCommand, AdminReply, SyncAction};
use stripewise_engine::units::{Instant, MemberIndex, Nanos, Slot};
use stripewise_format::device_flags::{DeviceFlags, FlagsChange};

use crate::shard::{Context, Shard};

/// How long the members may take to say what a command did.
const RECORD_MAX: Nanos = Nanos::from_millis(5_000);

/// A command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Manage {
    /// Treat a member as failed.
    Fail(PathBuf),
    /// Let go of a failed member or a spare.
    Remove(PathBuf),
    /// Take a file or device into the array.
    Add {
        /// Which.
        member: PathBuf,
        /// As what.
        how: AddHow,
        /// Although it holds something else.
        force: bool,
        /// It is a block device that may be written to.
        destroy: bool,
        /// Its flags; as a new member it has none but these, as a former one its own.
        flags: FlagsChange,
    },
    /// Fill a spare with a member's content and let it take the member's place.
    Replace {
        /// The member.
        member: PathBuf,
        /// The spare; any if none is named.
        with: Option<PathBuf>,
    },
    /// Change a member's flags.
    SetFlags {
        /// The member.
        member: PathBuf,
        /// How.
        change: FlagsChange,
    },
    /// Begin a check or repair, stop what runs, or forbid that anything begins by itself.
    Sync(SyncAction),
    /// Bounds of the speed of the array's own work in KiB/s of each member; none stays as it is.
    SetSpeed {
        /// Not slowed below this.
        min_kib: Option<u32>,
        /// Never faster.
        max_kib: Option<u32>,
    },
}

/// What a command did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Managed {
    /// A member is failed.
    Failed(PathBuf),
    /// A replacement is given up, and can be removed.
    ReplacementFailed(PathBuf),
    /// A member or spare is removed.
    Removed(PathBuf),
    /// A device is a spare, or on its way into an empty slot.
    Added(PathBuf),
    /// A slot has its former member back.
    ReAdded(PathBuf, Slot),
    /// A slot's member is being replaced.
    Replacing(PathBuf, Slot),
    /// A member's flags are these.
    Flags(PathBuf, DeviceFlags),
    /// The array works, or rests, as asked.
    Sync(SyncAction),
    /// The bounds of its speed are these.
    Speed {
        /// Not slowed below this.
        min_kib: u32,
        /// Never faster.
        max_kib: u32,
    },
}

impl fmt::Display for Managed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(path) => write!(f, "set {} faulty", path.display()),
            Self::ReplacementFailed(path) => write!(f, "set replacement {} faulty", path.display()),
            Self::Removed(path) => write!(f, "removed {}", path.display()),
            Self::Added(path) => write!(f, "added {}", path.display()),
            Self::ReAdded(path, slot) => write!(f, "re-added {} to slot {slot}", path.display()),
            Self::Replacing(path, slot) => {
                write!(f, "marked {} of slot {slot} for replacement", path.display())
            }
            Self::Flags(path, flags) => {
                let names: Vec<_> = flags.names().collect();
                let names = if names.is_empty() { "none".to_owned() } else { names.join(" ") };
                write!(f, "flags of {} are {names}", path.display())
            }
            Self::Sync(action) => write!(f, "sync_action is {}", action.word()),
            Self::Speed { min_kib, max_kib } => {
                write!(f, "sync_speed_min is {min_kib} and sync_speed_max {max_kib} KiB/s")
            }
        }
    }
}

impl Shard {
    /// Carries out a command. The members may not say yet what it did.
    ///
    /// # Errors
    /// Why it is refused; then nothing has changed.
    pub(crate) fn manage(
        &mut self,
        command: &Manage,
        now: Instant,
        context: &Context<'_>,
    ) -> Result<Managed, ManageError> {
        let mut admin = |command| match self.admin(command, now, context) {
            AdminReply::Done => Ok(()),
            reply => Err(ManageError::Array(reply)),
        };
        match command {
            Manage::Fail(path) => self.fail_member(path, now, context),
            Manage::Remove(path) => self.remove_member(path, now, context),
            Manage::Add { member, how, force, destroy, flags } => {
                let new =
                    add::New { path: member, how: *how, force: *force, destroy: *destroy, flags: *flags };
                self.add_member(&new, now, context)
            }
            Manage::Replace { member, with } => self.replace_member(member, with.as_deref(), now, context),
            Manage::SetFlags { member, change } => self.set_flags(member, *change, now, context),
            Manage::Sync(action) => admin(AdminCommand::Sync(*action)).map(|()| Managed::Sync(*action)),
            Manage::SetSpeed { min_kib, max_kib } => {
                let before = self.volume().speed_limits();
                let (min_kib, max_kib) =
                    (min_kib.unwrap_or(before.min_kib), max_kib.unwrap_or(before.max_kib));
                match self.admin(AdminCommand::SetSpeed { min_kib, max_kib }, now, context) {
                    AdminReply::Done => Ok(Managed::Speed { min_kib, max_kib }),
                    reply => Err(ManageError::Array(reply)),
                }
            }
        }
    }

    /// Goes on until the members say what was done, or do not for a long time.
    pub(crate) fn record(&mut self, context: &Context<'_>) {
        let until = context.clock.now() + RECORD_MAX;
        loop {
            // Where members answer at once a sync is always a step further.
            let goes_on = self.step(context.clock.now(), context);
            if self.volume().is_recorded() || context.clock.now() >= until {
                return;
            }
            if goes_on {
                self.poll();
            } else {
                self.sleep(Some(until), context);
            }
        }
    }

    /// Whether a path is one that a member was opened at.
    pub(crate) fn is_member(&self, path: &Path) -> bool {
        self.members().iter().any(|member| member.is_named(path))
    }

    /// The member of a path, with where it stands.
    fn find(&self, path: &Path) -> Option<(MemberIndex, Standing)> {
        let named = self.members().iter().position(|member| member.is_named(path));
        // A file system that hangs holds up who follows links on it.
        let index = named.or_else(|| self.members().iter().position(|member| member.is_at(path)))?;
        let member = MemberIndex(index as u16);
        let standing = self.volume().standing(member);
        (standing != Standing::Absent).then_some((member, standing))
    }

    fn member(&self, path: &Path) -> Result<(MemberIndex, Standing), ManageError> {
        self.find(path).ok_or_else(|| ManageError::Member(path.to_owned(), AdminReply::NoSuchMember))
    }

    /// Refuses what a level without redundancy has no use for.
    fn require_redundancy(&self) -> Result<(), ManageError> {
        match self.volume().sync_status() {
            None => Err(ManageError::Array(AdminReply::NoRedundancy)),
            Some(_) => Ok(()),
        }
    }

    fn fail_member(
        &mut self,
        path: &Path,
        now: Instant,
        context: &Context<'_>,
    ) -> Result<Managed, ManageError> {
        let refused = |reply| ManageError::Member(path.to_owned(), reply);
        let (_, standing) = self.member(path)?;
        self.require_redundancy()?;
        let is_in_use = matches!(standing, Standing::InSlot(_) | Standing::Replacement(_));
        if is_in_use && !self.volume().is_writable() {
            return Err(ManageError::Array(AdminReply::ArrayFailed));
        }
        let (command, done) = match standing {
            Standing::InSlot(slot) if !self.volume().survives_without(slot) => {
                return Err(ManageError::Last(path.to_owned()));
            }
            Standing::InSlot(slot) => (AdminCommand::Fail(slot), Managed::Failed(path.to_owned())),
            Standing::Replacement(slot) => {
                (AdminCommand::CancelReplacement(slot), Managed::ReplacementFailed(path.to_owned()))
            }
            Standing::Spare => return Err(ManageError::Spare(path.to_owned())),
            Standing::Failed => return Err(refused(AdminReply::AlreadyFailed)),
            Standing::Journal => return Err(ManageError::Journal(path.to_owned())),
            Standing::Absent => return Err(refused(AdminReply::NoSuchMember)),
        };
        match self.admin(command, now, context) {
            AdminReply::Done => Ok(done),
            reply => Err(refused(reply)),
        }
    }

    fn remove_member(
        &mut self,
        path: &Path,
        now: Instant,
        context: &Context<'_>,
    ) -> Result<Managed, ManageError> {
        let (member, standing) = self.member(path)?;
        match standing {
            Standing::InSlot(_) | Standing::Replacement(_) => {
                return Err(ManageError::NotFailed(path.to_owned()));
            }
            Standing::Journal => return Err(ManageError::Journal(path.to_owned())),
            Standing::Spare | Standing::Failed | Standing::Absent => {}
        }
        match self.admin(AdminCommand::Remove(member), now, context) {
            AdminReply::Done => {
                self.let_go(member);
                Ok(Managed::Removed(path.to_owned()))
            }
            reply => Err(ManageError::Member(path.to_owned(), reply)),
        }
    }

    fn set_flags(
        &mut self,
        path: &Path,
        change: FlagsChange,
        now: Instant,
        context: &Context<'_>,
    ) -> Result<Managed, ManageError> {
        let (member, _) = self.member(path)?;
        self.require_redundancy()?;
        if !self.volume().is_writable() {
            return Err(ManageError::Array(AdminReply::ArrayFailed));
        }
        let superblocks = self.volume().superblocks();
        let known =
            superblocks.get(member.index()).and_then(Option::as_ref).ok_or(ManageError::NoMetadata)?;
        let flags = change.apply(known.superblock.device_flags());
        match self.admin(AdminCommand::SetFlags { member, flags }, now, context) {
            AdminReply::Done => Ok(Managed::Flags(path.to_owned(), flags)),
            reply => Err(ManageError::Member(path.to_owned(), reply)),
        }
    }

    fn replace_member(
        &mut self,
        path: &Path,
        with: Option<&Path>,
        now: Instant,
        context: &Context<'_>,
    ) -> Result<Managed, ManageError> {
        let (_, standing) = self.member(path)?;
        self.require_redundancy()?;
        let refused = |path: &Path, reply| Err(ManageError::Member(path.to_owned(), reply));
        let slot = match standing {
            Standing::InSlot(slot) => slot,
            Standing::Failed => return refused(path, AdminReply::AlreadyFailed),
            _ => return Err(ManageError::NotInSlot(path.to_owned())),
        };
        let with = match with.map(|with| (with, self.find(with))) {
            None => None,
            Some((_, Some((member, Standing::Spare)))) => Some(member),
            Some((with, Some((_, Standing::Failed)))) => return refused(with, AdminReply::AlreadyFailed),
            Some((with, Some(_))) => return Err(ManageError::NotSpare(with.to_owned())),
            Some((with, None)) => return Err(ManageError::NoSuchSpare(with.to_owned())),
        };
        match self.admin(AdminCommand::Replace { slot, with }, now, context) {
            AdminReply::Done => Ok(Managed::Replacing(path.to_owned(), slot)),
            reply => Err(ManageError::Array(reply)),
        }
    }
}
