//! Choosing an array's members: the arguments that `assemble`, `detail`, `read`, `write` and `serve` share.

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Args;
use stripewise_engine::assembly::{Consistency, Options, Stale, StaleReason, Wanted};
use stripewise_engine::level::Raid0Layout;
use stripewise_engine::ppl::PplReport;
use stripewise_format::uuid::Uuid;
use stripewise_host::md::assemble::{Assembled, Found, Selection, find};
use stripewise_host::md::overlay::Overlay;
use stripewise_host::{Access, Array, ArrayConfig};

use super::journaled;
use crate::exit::Impossible;

/// Which members, and how they are taken.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct SelectArgs {
    /// Members, in any order.
    #[arg(value_name = "MEMBER")]
    pub(crate) members: Vec<PathBuf>,
    /// Search the files and devices of this folder for members.
    #[arg(long, value_name = "DIR")]
    pub(crate) scan: Option<PathBuf>,
    /// Select the array with this UUID.
    #[arg(long, short = 'u', value_name = "UUID")]
    pub(crate) uuid: Option<Uuid>,
    /// Select the array with this name, with or without its host.
    #[arg(long, short = 'N', value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Start degraded even if members are missing that the array last had.
    #[arg(long, short = 'R')]
    pub(crate) run: bool,
    /// Use out-of-date members if too few others are left, treat a dirty degraded array as clean, and start even if
    /// members are missing; give up a write journal that is missing or damaged.
    #[arg(long, short = 'f')]
    pub(crate) force: bool,
    /// Write nothing.
    #[arg(long)]
    pub(crate) readonly: bool,
    /// Redirect all writes to this copy-on-write file; members are only read.
    #[arg(long, value_name = "FILE")]
    pub(crate) overlay: Option<PathBuf>,
    /// Allow writing to this block device; may be repeated.
    #[arg(long, value_name = "DEV")]
    pub(crate) destroy: Vec<PathBuf>,
    /// Layout of a RAID-0 of unequal members whose superblocks do not record it.
    #[arg(long, value_name = "LAYOUT")]
    pub(crate) layout: Option<Raid0LayoutArg>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Raid0LayoutArg {
    /// Layout of Linux up to 3.13.
    Original,
    /// Layout of Linux since 3.14.
    Alternate,
}

/// What a command does to the array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// It looks at the superblocks; nothing is started, so nothing needs permission.
    Look,
    /// It reads.
    Read,
    /// It writes, unless `--readonly` says otherwise.
    Write,
    /// It does what is due and writes no more than that, unless `--readonly` says otherwise.
    Start,
}

impl Use {
    const fn writes(self) -> bool {
        matches!(self, Self::Write | Self::Start)
    }
}

impl SelectArgs {
    /// Finds the members and decides what they make; nothing is opened for writing.
    pub(crate) fn assemble(&self, what_for: Use) -> Result<Assembled> {
        let options = self.options(what_for);
        Ok(self.find(what_for)?.assemble(options)?)
    }

    pub(super) fn options(&self, what_for: Use) -> Options {
        let is_look = what_for == Use::Look;
        Options {
            run: self.run || is_look,
            force: self.force,
            readonly: self.readonly || is_look,
            forgets_bitmap: false,
            raid0_layout: self.layout.map(|layout| match layout {
                Raid0LayoutArg::Original => Raid0Layout::Original,
                Raid0LayoutArg::Alternate => Raid0Layout::Alternate,
            }),
        }
    }

    /// Finds the members; nothing is opened for writing.
    pub(super) fn find(&self, what_for: Use) -> Result<Found> {
        if self.members.is_empty() && self.scan.is_none() {
            return Err(impossible("no members given; name them, or a folder with --scan"));
        }
        if self.uuid.is_some() && self.name.is_some() {
            return Err(impossible("--uuid and --name both select the array; give one of them"));
        }
        let writes = what_for.writes() && !self.readonly;
        let overlay = match &self.overlay {
            Some(path) if writes => Some(Overlay::open(path)?),
            Some(path) => Some(Overlay::open_readonly(path)?),
            None => None,
        };
        let wanted = match (self.uuid, &self.name) {
            (Some(uuid), _) => Wanted::Uuid(uuid),
            (None, Some(name)) => Wanted::Name(name.clone()),
            (None, None) => Wanted::Only,
        };
        let selection = Selection {
            members: self.members.clone(),
            scan: self.scan.clone(),
            wanted,
            options: self.options(what_for),
            overlay,
        };
        Ok(find(&selection)?)
    }

    /// Opens an array. Nothing is written by it, but that partial parity logs and a write journal are followed where the array may be
    /// written to.
    pub(crate) fn open(
        &self,
        assembled: &mut Assembled,
        what_for: Use,
        configure: impl FnOnce(&mut ArrayConfig),
    ) -> Result<Array> {
        let writes = what_for.writes() && !self.readonly;
        if !writes {
            self.beware_of_dirt(assembled)?;
            journaled::beware(assembled, self.readonly)?;
        }
        let opened = assembled.open(!writes, |path| self.access(path), configure);
        tell_of_logs(assembled);
        Ok(opened?)
    }

    /// Without a member, what was being written is wrong until the partial parity logs are followed, which writes; without
    /// such logs it may stay so.
    fn beware_of_dirt(&self, assembled: &Assembled) -> Result<()> {
        let assembly = &assembled.assembly;
        let works_out = assembly.geometry.level.parity_count() > 0 && assembly.is_degraded();
        // What is taken by force was told.
        if !works_out || assembly.is_clean || assembly.forced_clean {
            return Ok(());
        }
        let has_logs = assembly.consistency == Consistency::Ppl;
        let logs = if has_logs { " and its partial parity logs are not applied" } else { "" };
        let what = format!(
            "the array was not stopped cleanly{logs}, so data of the missing member may be wrong where writes were in flight"
        );
        if has_logs && !self.readonly {
            return Err(impossible(format!(
                "{what}; `stripewise assemble --run` applies the logs, --readonly takes the data as they are"
            )));
        }
        say!("stripewise: {what}");
        Ok(())
    }

    /// What is allowed to happen to a member.
    pub(crate) fn access(&self, path: &Path) -> Access {
        let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let is_named = self.destroy.iter().any(|named| real(named) == real(path));
        if is_named { Access::Destroy } else { Access::ReadWrite }
    }
}

/// Says what was done about members that are not as they should be.
pub(crate) fn tell(assembled: &Assembled) {
    let Assembled { found, assembly, .. } = assembled;
    for skipped in &found.skipped {
        say!("stripewise: {} is left out: {}", skipped.path.display(), skipped.why);
    }
    let label = |candidate: usize| &found.candidates[candidate].label;
    for stale in &assembly.stale {
        let again = comes_back(assembled, stale);
        say!("stripewise: {} is left out: {}{again}", label(stale.candidate), stale.why);
    }
    for slot in &assembly.returned {
        if let Some(candidate) = assembly.slots[slot.index()].candidate() {
            say!("stripewise: {} returns to slot {slot}; the bitmap says what to recover", label(candidate));
        }
    }
    for forced in &assembly.forced {
        say!(
            "stripewise: {} is used in slot {} although its events are {} and the latest are {}",
            label(forced.candidate),
            forced.slot,
            forced.events,
            assembly.events
        );
    }
    if assembly.forced_clean {
        let rest = if assembly.is_clean { "" } else { " for the missing data, and the rest is resynced" };
        say!("stripewise: the array was not stopped cleanly; its parity is taken as correct{rest}");
    }
    if let Some(damage) = &assembly.bitmap_damage {
        say!("stripewise: {damage}; the bitmap is not used");
    }
}

/// Whether a member that is left out can come back by the bitmap, or what it says otherwise of the array so that it cannot.
fn comes_back(Assembled { found, assembly, .. }: &Assembled, stale: &Stale) -> String {
    if let Some(slot) = stale.re_addable {
        return format!(
            "; the bitmap covers what it missed: once the array is clean, name it to `stripewise assemble` to return it to slot {slot}"
        );
    }
    let is_former = matches!(stale.why, StaleReason::Events { .. } | StaleReason::Faulty);
    let difference = assembly.difference(&found.candidates, stale.candidate).filter(|_| is_former);
    difference.map_or_else(String::new, |difference| format!("; it cannot return as it is: {difference}"))
}

/// Says what the partial parity logs or the write journal were good for, where there was something to follow.
fn tell_of_logs(assembled: &Assembled) {
    journaled::tell(assembled);
    let Some(PplReport { entries, unusable, damaged, .. }) = assembled.logs else { return };
    if entries > 0 {
        say!("stripewise: parity is corrected for {entries} writes that were in flight");
    }
    if unusable > 0 {
        say!("stripewise: {unusable} entries of the partial parity logs are torn and cannot be applied");
    }
    if damaged > 0 {
        say!("stripewise: the partial parity logs of {damaged} members are damaged and cannot be applied");
    }
}

/// An error for arguments that cannot be.
pub(crate) fn impossible(message: impl Into<String>) -> anyhow::Error {
    Impossible(message.into()).into()
}
