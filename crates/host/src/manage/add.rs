//! Taking a file or device into a running array.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::Path;

use stripewise_engine::array::members::Standing;
use stripewise_engine::assembly::difference;
use stripewise_engine::io::{AdminCommand, AdminReply};
use stripewise_engine::metadata::MemberMetadata;
use stripewise_engine::units::{Instant, MemberIndex, SECTOR_BYTES, Slot};
use stripewise_format::add::{Addition, NewMember, add};
use stripewise_format::create::Area;
use stripewise_format::device_flags::{DeviceFlags, FlagsChange};
use stripewise_format::superblock::Superblock;
use stripewise_format::superblock_1::Role;
use stripewise_format::uuid::Uuid;

use super::{ManageError, Managed, NotReAddable};
use crate::error::{HostError, MemberProblem};
use crate::md::probe::{self, Found, Probe};
use crate::md::signature;
use crate::members::{Access, Caching, FileMember, FileSpec, Member};
use crate::shard::{Context, Shard};

/// What is cleared of a superblock that would be taken for the new one.
const OLD_BLOCK_BYTES: u64 = 4096;

/// As what a device comes in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AddHow {
    /// As its slot's former member if the bitmap allows, else as a new one.
    #[default]
    Any,
    /// As its slot's former member or not at all.
    ReAdd,
    /// As a new spare.
    Spare,
}

/// What is to be added.
pub(super) struct New<'a> {
    pub(super) path: &'a Path,
    pub(super) how: AddHow,
    pub(super) force: bool,
    pub(super) destroy: bool,
    pub(super) flags: FlagsChange,
}

impl New<'_> {
    fn host(&self, error: &io::Error) -> ManageError {
        MemberProblem::from_io(error, 0).at(self.path).into()
    }
}

/// A slot's former member that may come back.
struct Former {
    slot: Slot,
    metadata: MemberMetadata,
}

impl Shard {
    pub(super) fn add_member(
        &mut self,
        new: &New,
        now: Instant,
        context: &Context<'_>,
    ) -> Result<Managed, ManageError> {
        let superblocks = self.may_add(new)?;
        let probe = probe::probe(new.path)?;
        match (self.former(&superblocks, &probe), new.how) {
            (Ok(former), AddHow::Any | AddHow::ReAdd) => self.re_add_member(new, former, now, context),
            (Err(why), AddHow::ReAdd) => Err(ManageError::ReAdd(new.path.to_owned(), why)),
            _ => self.add_new(new, &superblocks, &probe, now, context),
        }
    }

    /// What the array's members say, if it may take another.
    fn may_add(&self, new: &New) -> Result<Vec<(MemberIndex, MemberMetadata)>, ManageError> {
        if self.find(new.path).is_some() {
            return Err(ManageError::IsMember(new.path.to_owned()));
        }
        if self.volume().sync_status().is_none() {
            return Err(ManageError::Array(AdminReply::NoRedundancy));
        }
        if !self.volume().is_writable() {
            return Err(ManageError::Array(AdminReply::ArrayFailed));
        }
        if self.members().iter().any(|member| matches!(**member, Member::Overlay(_))) {
            return Err(ManageError::UnderOverlay);
        }
        let superblocks = self.volume().superblocks().into_iter().enumerate();
        let superblocks: Vec<_> =
            superblocks.filter_map(|(index, known)| Some((MemberIndex(index as u16), known?))).collect();
        if superblocks.is_empty() { Err(ManageError::NoMetadata) } else { Ok(superblocks) }
    }

    /// A member that is in a slot, whose superblock is the array's word.
    fn speaker<'a>(
        &self,
        superblocks: &'a [(MemberIndex, MemberMetadata)],
    ) -> Result<&'a Superblock, ManageError> {
        let in_slot = |member: MemberIndex| matches!(self.volume().standing(member), Standing::InSlot(_));
        let speaker = superblocks.iter().find(|(member, _)| in_slot(*member));
        speaker.map(|(_, known)| &known.superblock).ok_or(ManageError::NoMetadata)
    }

    /// The device as a slot's former member, if the bitmap knows what it missed.
    fn former(
        &self,
        superblocks: &[(MemberIndex, MemberMetadata)],
        probe: &Probe,
    ) -> Result<Former, NotReAddable> {
        let array = self.speaker(superblocks).map_err(|_| NotReAddable::Stranger)?;
        let own = probe.found.first().and_then(|found| Some((found, found.superblock.as_ref().ok()?)));
        let (found, superblock) = own.ok_or(NotReAddable::Stranger)?;
        let number = superblock.dev_number();
        if superblock.set_uuid() != array.set_uuid() {
            return Err(NotReAddable::Stranger);
        }
        if let Some(difference) = difference(array, superblock) {
            return Err(NotReAddable::Differs(difference));
        }
        // It left in the midst of what went on without it.
        if superblock.is_reshaped() {
            return Err(NotReAddable::Reshaped);
        }
        if let Some(reason) = superblock.unsupported() {
            return Err(NotReAddable::Unsupported(reason));
        }
        if superblocks.iter().any(|(_, known)| known.superblock.dev_number() == number) {
            return Err(NotReAddable::NumberTaken(number));
        }
        let is_whole = match superblock {
            Superblock::V0(_) => true,
            Superblock::V1(superblock) => superblock.recovered_sectors().is_none(),
        };
        let Role::Slot(slot) = superblock.role() else { return Err(NotReAddable::NoSlot) };
        if !is_whole || u32::from(slot) >= array.raid_disks() {
            return Err(NotReAddable::NoSlot);
        }
        let slot = Slot(slot);
        if self.volume().member_of(slot).is_some() {
            return Err(NotReAddable::Taken(slot));
        }
        let cleared = self.volume().bitmap().ok_or(NotReAddable::NoBitmap)?.events_cleared;
        let events = superblock.events();
        if events < cleared {
            return Err(NotReAddable::TooOld { events, cleared });
        }
        let Ok((file, sectors)) = probe::open(&probe.path) else { return Err(NotReAddable::BadBlocks) };
        let Ok(bad_blocks) = probe::read_bad_blocks(&file, sectors, superblock) else {
            return Err(NotReAddable::BadBlocks);
        };
        // What it was written without the array is in its own bitmap alone.
        match probe::read_bitmap(&file, sectors, superblock, found.at_sector) {
            Ok(None) => {}
            Ok(Some((head, bits))) if self.volume().bitmap_covers(&head, &bits) => {}
            _ => return Err(NotReAddable::WentItsWay),
        }
        let superblock = superblock.clone();
        Ok(Former { slot, metadata: MemberMetadata { superblock, sector: found.at_sector, bad_blocks } })
    }

    fn re_add_member(
        &mut self,
        new: &New,
        former: Former,
        now: Instant,
        context: &Context<'_>,
    ) -> Result<Managed, ManageError> {
        let Former { slot, mut metadata } = former;
        let superblock = &mut metadata.superblock;
        superblock.set_device_flags(new.flags.apply(superblock.device_flags()));
        let file = open(new, &metadata.superblock)?;
        let member = self.take_in(file, metadata);
        self.added(new, member, AdminCommand::ReAdd { slot, member }, now, context)?;
        Ok(Managed::ReAdded(new.path.to_owned(), slot))
    }

    fn add_new(
        &mut self,
        new: &New,
        superblocks: &[(MemberIndex, MemberMetadata)],
        probe: &Probe,
        now: Instant,
        context: &Context<'_>,
    ) -> Result<Managed, ManageError> {
        let array = self.speaker(superblocks)?;
        let taken: Vec<u32> = superblocks.iter().map(|(_, known)| known.superblock.dev_number()).collect();
        let as_member = NewMember {
            device_sectors: probe.device_sectors,
            device_uuid: random_uuid().map_err(|error| new.host(&error))?,
            device_number: device_number(new.path).map_err(|error| new.host(&error))?,
            flags: new.flags.apply(DeviceFlags::default()),
        };
        let addition = add(array, &taken, &as_member, self.volume().bitmap())
            .map_err(|error| ManageError::Add(new.path.to_owned(), error))?;
        if !new.force {
            refuse_others(new.path, probe, array.set_uuid())?;
        }
        let file = open(new, &addition.superblock)?;
        write(file.buffered(), probe, &addition).map_err(|error| new.host(&error))?;
        let Addition { superblock, at_sector, .. } = addition;
        let bad_blocks = match &superblock {
            Superblock::V1(superblock) if superblock.has_bad_block_log() => Some(Vec::new()),
            _ => None,
        };
        let member = self.take_in(file, MemberMetadata { superblock, sector: at_sector, bad_blocks });
        self.added(new, member, AdminCommand::AddSpare(member), now, context)?;
        Ok(Managed::Added(new.path.to_owned()))
    }

    fn take_in(&mut self, file: FileMember, metadata: MemberMetadata) -> MemberIndex {
        let member = self.admit(Member::File(file));
        self.introduce(member, metadata);
        member
    }

    fn added(
        &mut self,
        new: &New,
        member: MemberIndex,
        command: AdminCommand,
        now: Instant,
        context: &Context<'_>,
    ) -> Result<(), ManageError> {
        match self.admin(command, now, context) {
            AdminReply::Done => Ok(()),
            reply => {
                self.let_go(member);
                Err(ManageError::Member(new.path.to_owned(), reply))
            }
        }
    }
}

fn open(new: &New, superblock: &Superblock) -> Result<FileMember, HostError> {
    let spec = FileSpec {
        path: new.path.to_owned(),
        data_offset_sectors: superblock.data_offset_sectors(),
        access: if new.destroy { Access::Destroy } else { Access::ReadWrite },
        caching: Caching::Direct,
    };
    FileMember::open(&spec, superblock.size_sectors(), 1)
}

/// Refuses a device that holds anything but a superblock of the array.
fn refuse_others(path: &Path, probe: &Probe, set_uuid: Uuid) -> Result<(), HostError> {
    let holds = |what: String| Err(MemberProblem::Holds { what }.at(path));
    for Found { metadata, superblock, .. } in &probe.found {
        match superblock {
            Ok(superblock) if superblock.set_uuid() == set_uuid => {}
            Ok(superblock) => {
                let (uuid, level) = (superblock.set_uuid(), superblock.level());
                return holds(format!(
                    "an md superblock of version {} (array {uuid}, {level})",
                    metadata.name()
                ));
            }
            Err(error) => {
                return holds(format!("a damaged md superblock of version {} ({error})", metadata.name()));
            }
        }
    }
    if probe.found.is_empty() {
        let problem = |e: io::Error| MemberProblem::from_io(&e, 0).at(path);
        let (file, device_sectors) = probe::open(path)?;
        let signatures = signature::find(&file, device_sectors).map_err(problem)?;
        if !signatures.is_empty() {
            return holds(signatures.join(", "));
        }
    }
    Ok(())
}

/// Clears old superblocks, then writes the logs; the new superblock is written by who keeps the array's.
fn write(file: &File, probe: &Probe, addition: &Addition) -> io::Result<()> {
    for found in &probe.found {
        let room = (probe.device_sectors - found.at_sector) * SECTOR_BYTES;
        let bytes = vec![0; room.min(OLD_BLOCK_BYTES) as usize];
        file.write_all_at(&bytes, found.at_sector * SECTOR_BYTES)?;
    }
    for Area { at_sector, bytes } in &addition.logs {
        file.write_all_at(bytes, at_sector * SECTOR_BYTES)?;
    }
    file.sync_data()
}

/// Major and minor number of a block device; zeros for a file.
fn device_number(path: &Path) -> io::Result<(u32, u32)> {
    let metadata = std::fs::metadata(path)?;
    let number = metadata.rdev();
    let is_device = metadata.file_type().is_block_device();
    Ok(if is_device { (libc::major(number), libc::minor(number)) } else { (0, 0) })
}

pub(crate) fn random_uuid() -> io::Result<Uuid> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(Uuid(bytes))
}
