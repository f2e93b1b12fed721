//! The superblock's part of a reshape, as by `mdadm --grow` (4.2) and Linux 6.1: a level with parity, or a RAID-10, gets more
//! or fewer members, another chunk or another layout, and all data move.
//!
//! Data move towards lower sectors of the members if there is room before them, else from the end towards higher ones, as always where
//! members go: then `data_offset` changes ([`Superblock1::new_offset_sectors`]), and nothing that is not yet recorded as moved is
//! written over.
//! Linux moves the first rows by help of a backup where there is no room; that is not done here.
//!
//! Facts: `super_1_sync`, `md_finish_reshape` and `raid5_start_reshape` in the kernel; the choice of the offsets from what
//! mdadm 4.2 chose (see the tests).

mod copies;
mod error;
mod fewer;

use super::level::Takeover;
use super::{BLOCK_SECTORS, Update};
use crate::bitmap::BitmapSuperblock;
use crate::error::require;
use crate::level::Level;
use crate::superblock_1::{Features, Minor, Role, Superblock1, Superblock1Error};
pub use error::{Place, ReshapeError};
pub use fewer::{check_kept, shrunk_size_sectors};

/// From here on an offset is not rounded further: 1 MiB.
const ALIGNED_SECTORS: u64 = 2048;
/// The furthest that data move: what `new_offset` holds, aligned.
const MOVE_MAX_SECTORS: i64 = i32::MAX as i64 / ALIGNED_SECTORS as i64 * ALIGNED_SECTORS as i64;
/// Sectors from the superblock on that are kept free of data.
const HEAD_SECTORS: i64 = 72;

/// What an array is to be made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// Slots.
    pub raid_disks: u32,
    /// The chunk.
    pub chunk_sectors: u32,
    /// The layout's number.
    pub layout: u32,
}

/// Sectors of a member that nothing uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Before its data.
    pub before_sectors: u64,
    /// Behind them.
    pub after_sectors: u64,
}

/// What a member has free, where the kernel lets data go (`super_1_allow_new_offset`): 36 KiB behind the superblock are kept, and the
/// logs.
pub fn reshape_room(member: &Superblock1, bitmap: Option<&BitmapSuperblock>) -> Room {
    let data = member.data_offset_sectors;
    let spare = member.data_size_sectors.saturating_sub(member.size_sectors);
    let at_superblock = |offset: i64| member.super_offset_sectors.saturating_add_signed(offset);
    let bitmap_start = member.bitmap_sector();
    let log_start = member.bad_block_log_sector();
    if member.minor() == Minor::End {
        let starts = [bitmap_start, log_start].into_iter().flatten();
        let end = starts.fold(member.super_offset_sectors, u64::min);
        let behind = end.saturating_sub(data.saturating_add(member.size_sectors));
        return Room { before_sectors: data, after_sectors: spare.min(behind) };
    }
    let bitmap_sectors = bitmap.map_or(BLOCK_SECTORS, |head| head.area_bytes() / 512);
    let bitmap_end = bitmap_start.map(|start| start.saturating_add(bitmap_sectors));
    let log_end = log_start.map(|start| start.saturating_add(member.bblog_size_sectors.into()));
    let ends = [bitmap_end, log_end].into_iter().flatten();
    let first_free = ends.fold(at_superblock(HEAD_SECTORS), u64::max);
    Room { before_sectors: data.saturating_sub(first_free), after_sectors: spare }
}

/// How the data move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Course {
    /// What is added to each member's data offset, in the order given.
    pub new_offsets: Vec<i32>,
    /// From the array's end to its start.
    pub backwards: bool,
}

/// Whether an array of so many spares can become that, but for room on its members.
///
/// # Errors
/// It cannot.
pub fn check_reshape(array: &Superblock1, target: Target, spares: u32) -> Result<(), ReshapeError> {
    let Target { raid_disks, chunk_sectors, layout } = target;
    if !matches!(array.level, Level::Raid4 | Level::Raid5 | Level::Raid6 | Level::Raid10) {
        return Err(ReshapeError::Level(array.level));
    }
    if (raid_disks, chunk_sectors, layout) == (array.raid_disks, array.chunk_sectors, array.layout) {
        return Err(ReshapeError::Same);
    }
    if array.ppl().is_some() {
        return Err(ReshapeError::Ppl);
    }
    fewer::check(array, target)?;
    if array.level == Level::Raid10 {
        copies::check(array, target)?;
    }
    let added = raid_disks.saturating_sub(array.raid_disks);
    let most = if array.level == Level::Raid6 { 255 } else { crate::create::SLOTS_MAX_V1 };
    if raid_disks > most {
        return Err(ReshapeError::TooMany { most, asked: raid_disks });
    }
    if added > spares {
        return Err(ReshapeError::Spares { added, spares });
    }
    if crate::superblock_1::check_chunk("chunksize", array.level, chunk_sectors).is_err() {
        return Err(ReshapeError::Chunk { chunk_sectors });
    }
    let size_sectors = array.size_sectors;
    match [chunk_sectors, array.chunk_sectors]
        .iter()
        .find(|chunk| !size_sectors.is_multiple_of(u64::from(**chunk)))
    {
        Some(chunk) => {
            Err(ReshapeError::ChunkDoesNotDivide { chunk_sectors: *chunk, size_sectors, can_use_less: true })
        }
        None if array.level == Level::Raid10 && raid_disks >= array.raid_disks => {
            copies::check_held(array, target)
        }
        None => Ok(()),
    }
}

/// The least by which mdadm has data move: what holds the fewest whole stripes, old and new, that are as long as each other, spread over
/// the members of before.
fn move_min_sectors(array: &Superblock1, target: Target) -> u64 {
    if array.level == Level::Raid10 {
        return copies::move_min_sectors(array, target);
    }
    let parity = u32::from(array.level.parity_count());
    let stripe = |disks: u32, chunk: u32| u64::from(disks - parity) * u64::from(chunk);
    let (old, new) =
        (stripe(array.raid_disks, array.chunk_sectors), stripe(target.raid_disks, target.chunk_sectors));
    let data = u64::from(array.raid_disks - parity);
    old / common_divisor(old, new) * new / data
}

/// The least by which the data of a growing array can move: there is room for the next rows, of the larger chunk, at every position. An
/// old row that is done in part is kept whole, which takes up a chunk of it.
fn grow_min_sectors(array: &Superblock1, target: Target) -> u64 {
    let (old, new) = (u64::from(array.chunk_sectors), u64::from(target.chunk_sectors));
    let kept = if old == new { 0 } else { old };
    (old.max(new) + kept).min(move_min_sectors(array, target))
}

fn common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { common_divisor(b, a % b) }
}

/// How the data of members with so much room move: more members forwards, fewer backwards, by what mdadm moves them, or by less where
/// there is not so much room; else to where there is more room, by about half of it. The member with the least room decides for all, as
/// mdadm has it: the others could not follow one another, nor could a device of its size take a member's place.
///
/// # Errors
/// A member has too little room.
pub fn plan_course(
    array: &Superblock1,
    target: Target,
    members: &[(&Superblock1, Room)],
) -> Result<Course, ReshapeError> {
    let (is_growing, is_shrinking) =
        (target.raid_disks > array.raid_disks, target.raid_disks < array.raid_disks);
    let usual_sectors = move_min_sectors(array, target);
    let needed_sectors = match array.level {
        Level::Raid10 => copies::safe_min_sectors(array, target),
        _ if is_growing => grow_min_sectors(array, target),
        _ if is_shrinking => fewer::shrink_min_sectors(array, target),
        _ => usual_sectors,
    };
    let least = |room: fn(&Room) -> u64| members.iter().map(|(_, r)| room(r)).min().unwrap_or(0);
    let (before, after) = (least(|room| room.before_sectors), least(|room| room.after_sectors));
    let backwards = is_shrinking || (!is_growing && after >= before);
    let has_room = |room: &Room| {
        let free = if backwards { room.after_sectors } else { room.before_sectors };
        free >= needed_sectors
    };
    if let Some(member) = members.iter().position(|(_, room)| !has_room(room)) {
        let room = members[member].1;
        let has_backup = array.level != Level::Raid10;
        let place = match (is_growing, is_shrinking) {
            (true, _) => Place::Before,
            (_, true) => Place::Behind,
            _ => Place::Either,
        };
        return Err(ReshapeError::Room { member, needed_sectors, room, place, has_backup });
    }
    let unit = u64::from(array.chunk_sectors.max(target.chunk_sectors));
    // Whole chunks of what there is, where that is less than mdadm would take.
    let by = |free: u64| {
        if free < usual_sectors {
            (free / unit * unit).max(needed_sectors)
        } else {
            usual_sectors.max(needed_sectors)
        }
    };
    let moved = |(member, _): &(&Superblock1, Room)| {
        let now = member.data_offset_sectors;
        let new = if is_growing {
            now - by(before)
        } else if is_shrinking {
            now.saturating_add(by(after))
        } else if backwards {
            let end = now.saturating_add(after);
            round_offset(now..=end, now.saturating_add(needed_sectors)..=end)
        } else {
            let start = now - before;
            round_offset(start..=now, start..=now - needed_sectors)
        };
        // A superblock has no more than 1 TiB.
        let moved_sectors = i128::from(new) - i128::from(now);
        moved_sectors.clamp((-MOVE_MAX_SECTORS).into(), MOVE_MAX_SECTORS.into()) as i32
    };
    Ok(Course { new_offsets: members.iter().map(moved).collect(), backwards })
}

/// A round sector near the middle of the room that is `wide`, among the `allowed` ones. Bit by bit from the least it goes up or down
/// to where more room is left, until it is whole MiB or would leave what is allowed.
fn round_offset(wide: std::ops::RangeInclusive<u64>, allowed: std::ops::RangeInclusive<u64>) -> u64 {
    let mut sector = u64::midpoint(*wide.start(), *wide.end()).clamp(*allowed.start(), *allowed.end());
    let mut bit = 1;
    while bit < ALIGNED_SECTORS {
        if sector & bit != 0 {
            let (up, down) = (sector + bit, sector - bit);
            let (may_up, may_down) = (allowed.contains(&up), allowed.contains(&down));
            let is_up_roomier = wide.end().saturating_sub(up) > down.saturating_sub(*wide.start());
            sector = match (may_up, may_down) {
                (false, false) => break,
                (true, true) if is_up_roomier => up,
                (true, false) => up,
                (_, true) => down,
            };
        }
        bit <<= 1;
    }
    sector
}

/// What a reshape begins with: all members say the same of it, each with its own offset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Beginning {
    /// What the array is to be made of.
    pub target: Target,
    /// From the array's end to its start.
    pub backwards: bool,
    /// The roles from now on.
    pub roles: Vec<Role>,
}

impl Superblock1 {
    /// Begins a reshape: nothing has moved yet. A spare that takes a slot which the array has already, and had nobody in, is filled by
    /// the reshape: it is written to, and read as far as that came.
    #[must_use]
    pub fn with_reshape(&self, beginning: &Beginning, new_offset_sectors: i32, update: Update) -> Self {
        let Beginning { target, backwards, .. } = *beginning;
        let mut new = self.clone();
        new.delta_disks = target.raid_disks as i32 - self.raid_disks as i32;
        new.raid_disks = target.raid_disks;
        new.new_level = self.level.number();
        new.new_layout = target.layout;
        new.new_chunk_sectors = target.chunk_sectors;
        new.new_offset_sectors = new_offset_sectors;
        new.features |= Features::RESHAPE_ACTIVE;
        if new_offset_sectors != 0 {
            new.features |= Features::NEW_OFFSET;
        }
        if backwards && new.delta_disks == 0 {
            new.features |= Features::RESHAPE_BACKWARDS;
        }
        new.dev_roles.clone_from(&beginning.roles);
        if let (Role::Spare, Role::Slot(slot)) = (self.role(), new.role())
            && u32::from(slot) < self.raid_disks
        {
            new.features |= Features::RECOVERY_OFFSET;
            new.recovery_offset_sectors = 0;
        }
        let position = if backwards { new.reshape_sectors() } else { 0 };
        new.with_reshape_position(position, update)
    }

    /// The same of another time.
    #[must_use]
    pub fn with_update(&self, update: Update) -> Self {
        Self { events: update.events, utime: update.utime, ..self.clone() }
    }

    /// The reshape has come to a sector of the array. A member that it fills has its rows up to there, if it goes forwards; else none
    /// until it ends, as in `reshape_request`.
    #[must_use]
    pub fn with_reshape_position(&self, position_sectors: u64, update: Update) -> Self {
        let mut new = self.with_update(update);
        new.reshape_position_sectors = position_sectors;
        let data = u64::from(self.raid_disks).saturating_sub(self.level.parity_count().into());
        let is_forwards = self.reshape().is_some_and(|reshape| !reshape.backwards);
        if is_forwards && self.features.contains(Features::RECOVERY_OFFSET) {
            new.recovery_offset_sectors = position_sectors.checked_div(data).unwrap_or(0);
        }
        new
    }

    /// The superblock when the reshape has ended, and has filled the members that it was to fill (`raid5_end_reshape`).
    #[must_use]
    pub fn reshape_ended(&self) -> Self {
        let mut new = self.reshaped();
        if self.reshape().is_some() && new.features.contains(Features::RECOVERY_OFFSET) {
            new.features = new.features.without(Features::RECOVERY_OFFSET | Features::RECOVERY_BITMAP);
            new.recovery_offset_sectors = 0;
        }
        let is_forwards = self.reshape().is_some_and(|reshape| !reshape.backwards);
        if self.level == Level::Raid10 && is_forwards {
            // What the array holds now beyond what has moved is whatever was there, other things on each member.
            let moved = self.reshape_sectors();
            if new.held_sectors() > moved {
                new.resync_offset_sectors = new.resync_offset_sectors.min(moved);
            }
        }
        new
    }

    /// The superblock when the reshape has ended, but for what it filled: `md_finish_reshape` and `super_1_sync`. Whose slot went is a
    /// spare (`raid5_finish_reshape`). Fields that mean nothing any more stay as they were, as in Linux. Without a reshape it is the same.
    #[must_use]
    pub fn reshaped(&self) -> Self {
        let Some(reshape) = self.reshape() else { return self.clone() };
        let mut new = self.clone();
        let offset = i64::from(reshape.new_offset_sectors);
        new.features = new
            .features
            .without(Features::RESHAPE_ACTIVE | Features::NEW_OFFSET | Features::RESHAPE_BACKWARDS);
        new.chunk_sectors = reshape.new_chunk_sectors;
        new.layout = reshape.new_layout;
        for role in &mut new.dev_roles {
            if matches!(role, Role::Slot(slot) if u32::from(*slot) >= self.raid_disks) {
                *role = Role::Spare;
            }
        }
        new.data_offset_sectors = self.data_offset_sectors.saturating_add_signed(offset);
        new.data_size_sectors = self.data_size_sectors.saturating_add_signed(-offset);
        new
    }

    /// Checks that what a reshape that is under way makes of this member can be: its data keep clear of superblock and logs there, too.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check_reshaped(&self) -> Result<(), Superblock1Error> {
        let offset = self.reshape().map_or(0, |reshape| reshape.new_offset_sectors);
        require(
            self.data_offset_sectors.checked_add_signed(offset.into()).is_some(),
            "new_offset",
            offset,
            || {
                format!(
                    "data_offset is {}, and the data would begin before the device",
                    self.data_offset_sectors
                )
            },
        )?;
        Self::parse(&self.reshaped().to_bytes(), self.super_offset_sectors).map(|_| ())
    }

    /// Sectors of the array as it is by its shape; of a RAID-0 if its members are of the same size.
    pub fn held_sectors(&self) -> u64 {
        let Self { level, size_sectors, .. } = *self;
        match level {
            Level::Raid0 => {
                let chunks = self.data_size_sectors.checked_div(self.chunk_sectors.into()).unwrap_or(0);
                chunks.saturating_mul(self.chunk_sectors.into()).saturating_mul(self.raid_disks.into())
            }
            Level::Raid1 => size_sectors,
            Level::Raid10 => {
                let Self { raid_disks, chunk_sectors, layout, .. } = *self;
                copies::held_sectors(Target { raid_disks, chunk_sectors, layout }, size_sectors)
            }
            _ => {
                let data = self.raid_disks.saturating_sub(level.parity_count().into());
                size_sectors.saturating_mul(data.into())
            }
        }
    }

    /// Sectors of the array that the reshape under way goes through: all of the new one, but of a RAID-10 that it goes through
    /// forwards those there were.
    pub fn reshape_sectors(&self) -> u64 {
        let Some(reshape) = self.reshape() else { return 0 };
        if self.level == Level::Raid10 && !reshape.backwards {
            return Self { raid_disks: self.slots_before_reshape(), ..self.clone() }.held_sectors();
        }
        self.reshaped().held_sectors()
    }

    /// How far a reshape of a level with parity, or of a RAID-10, is, in percent; none if no such is under way.
    pub fn reshaped_percent(&self) -> Option<u8> {
        let is_known = self.level.parity_count() > 0 || self.level == Level::Raid10;
        let reshape = self.reshape().filter(|_| is_known)?;
        let all = u128::from(self.reshape_sectors());
        let position = u128::from(reshape.position_sectors).min(all);
        let done = if reshape.backwards { all - position } else { position };
        Some((done * 100).checked_div(all)? as u8)
    }

    /// Slots before the reshape that is under way; those there are if none is.
    pub fn slots_before_reshape(&self) -> u32 {
        let added = self.reshape().map_or(0, |reshape| reshape.delta_disks);
        self.raid_disks.saturating_add_signed(added.saturating_neg())
    }
}

/// The superblocks of a reshape's end count so many changes at once: a member that they did not reach looks for its data where they
/// were, and is out of date to everybody.
pub const END_EVENTS: u64 = 2;

/// Takes members that a reshape's first or last superblocks did not reach as what they would have become. Answers which those are.
pub fn follow_reshape(superblocks: &mut [Superblock1]) -> Vec<usize> {
    let Some(array) = superblocks.iter().max_by_key(|one| one.events).cloned() else { return Vec::new() };
    let mut followed = Vec::new();
    for (index, one) in superblocks.iter_mut().enumerate() {
        let new = if array.reshape().is_some() { begin_as(one, &array) } else { end_as(one, &array) };
        if let Some(new) =
            new.filter(|new| one.set_uuid == array.set_uuid && new.size_sectors == array.size_sectors)
        {
            *one = new;
            followed.push(index);
        }
    }
    followed
}

/// A member that does not know of a reshape that began.
fn begin_as(member: &Superblock1, array: &Superblock1) -> Option<Superblock1> {
    let reshape = array.reshape()?;
    let target = Target {
        raid_disks: array.raid_disks,
        chunk_sectors: reshape.new_chunk_sectors,
        layout: reshape.new_layout,
    };
    let beginning = Beginning { target, backwards: reshape.backwards, roles: array.dev_roles.clone() };
    let offset = reshape.new_offset_sectors;
    let update = Update { events: array.events, utime: array.utime };
    let before = Takeover { raid_disks: array.slots_before_reshape(), ..array.as_it_is() };
    let mut taken = member.follow_level(before, &array.dev_roles)?;
    if reshape.delta_disks < 0 {
        taken.size_sectors = taken.size_sectors.min(array.size_sectors);
    }
    let new = taken.with_reshape(&beginning, offset, update);
    let is_behind = member.reshape().is_none() && member.events.checked_add(1) == Some(array.events);
    let is_alike = taken.as_it_is() == before;
    let is_at_start = new.reshape_position_sectors == array.reshape_position_sectors;
    let room = reshape_room(&taken, None);
    let free = if offset < 0 { room.before_sectors } else { room.after_sectors };
    (is_behind && is_alike && is_at_start && u64::from(offset.unsigned_abs()) <= free).then_some(new)
}

/// A member that does not know of a reshape's end.
fn end_as(member: &Superblock1, array: &Superblock1) -> Option<Superblock1> {
    member.reshape()?;
    let mut new = member.reshape_ended();
    let is_behind = member.events < array.events && member.events.saturating_add(END_EVENTS) >= array.events;
    let is_alike = (new.raid_disks, new.chunk_sectors, new.layout)
        == (array.raid_disks, array.chunk_sectors, array.layout);
    (new.events, new.utime) = (array.events, array.utime);
    new.dev_roles.clone_from(&array.dev_roles);
    (is_behind && is_alike).then_some(new)
}

#[cfg(test)]
mod tests;
