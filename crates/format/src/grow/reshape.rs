//! The superblock's part of a reshape, as by `mdadm --grow` (4.2) and Linux 6.1: a level with parity gets more members, another
//! chunk or another layout, and all data move.
//!
//! Data move towards lower sectors of the members if there is room before them, else from the end towards higher ones: then
//! `data_offset` changes ([`Superblock1::new_offset_sectors`]), and nothing that is not yet recorded as moved is written over.
//! Linux moves the first rows by help of a backup where there is no room; that is not done here.
//!
//! Facts: `super_1_sync`, `md_finish_reshape` and `raid5_start_reshape` in the kernel; the choice of the offsets from what
//! mdadm 4.2 chose (see the tests).

use std::fmt;

use super::level::Takeover;
use super::{BLOCK_SECTORS, Update};
use crate::bitmap::BitmapSuperblock;
use crate::error::require;
use crate::level::Level;
use crate::superblock_1::{Features, Minor, Role, Superblock1, Superblock1Error};

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

/// Why an array is not reshaped so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReshapeError {
    /// Not at this level.
    Level(Level),
    /// Not with metadata 0.90, which has no place for another data offset.
    Metadata,
    /// Beside a partial parity log Linux reshapes nothing.
    Ppl,
    /// The array is so already.
    Same,
    /// Slots would go.
    Fewer {
        /// Slots now.
        now: u32,
        /// Slots asked for.
        asked: u32,
    },
    /// Fewer spares than slots that are added.
    Spares {
        /// Slots that are added.
        added: u32,
        /// Spares.
        spares: u32,
    },
    /// More slots than the level or the superblock has.
    TooMany {
        /// The most.
        most: u32,
        /// Slots asked for.
        asked: u32,
    },
    /// The chunk is no power of two, or smaller than a page.
    Chunk {
        /// Sectors asked for.
        chunk_sectors: u32,
    },
    /// What is used of each member is not whole chunks.
    ChunkDoesNotDivide {
        /// The chunk, now or asked for.
        chunk_sectors: u32,
        /// Sectors used of each member.
        size_sectors: u64,
    },
    /// A member has no room to move its data by.
    Room {
        /// Which, in the order given.
        member: usize,
        /// Sectors that it takes.
        needed_sectors: u64,
        /// Sectors that are free before its data.
        before_sectors: u64,
        /// Sectors that are free behind its data.
        after_sectors: u64,
        /// Whether room behind the data would do as well.
        either: bool,
    },
}

impl fmt::Display for ReshapeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Level(level) => write!(
                f,
                "raid4, raid5 and raid6 arrays are reshaped here; a {level} array is Linux's work (`mdadm --grow`)"
            ),
            Self::Metadata => f.write_str(
                "metadata 0.90 has no place for another data offset, so that a reshape needs a backup, which is Linux's work \
                 (`mdadm --grow --backup-file`)",
            ),
            Self::Ppl => f.write_str(
                "beside a partial parity log md reshapes nothing; take it away first, with --consistency-policy resync",
            ),
            Self::Same => f.write_str("the array is so already"),
            Self::Fewer { now, asked } => write!(
                f,
                "the array has {now} raid devices, and {asked} would hold less; Linux makes arrays smaller, with `mdadm --grow \
                 --array-size` and then `--raid-devices`"
            ),
            Self::Spares { added, spares } => write!(
                f,
                "{added} more raid devices need as many spares, and there are {spares}; `stripewise add-spare` them first and \
                 name them"
            ),
            Self::TooMany { most, asked } => {
                write!(f, "{asked} raid devices are too many; this array can have {most} at most")
            }
            Self::Chunk { chunk_sectors } => write!(
                f,
                "a chunk of {} bytes cannot be; it is a power of two, 4K or more",
                u64::from(*chunk_sectors) * 512
            ),
            Self::ChunkDoesNotDivide { chunk_sectors, size_sectors } => {
                let chunk = u64::from(*chunk_sectors).max(1);
                if chunk > *size_sectors {
                    return write!(
                        f,
                        "{}K are used of each member, less than a chunk of {}K; take a smaller one",
                        size_sectors / 2,
                        chunk / 2
                    );
                }
                write!(
                    f,
                    "{}K are used of each member, which is no multiple of the chunk of {}K; another chunk divides it, or Linux makes \
                     the array smaller (`mdadm --grow --size {}`), after the file system on it",
                    size_sectors / 2,
                    chunk / 2,
                    size_sectors / chunk * chunk / 2
                )
            }
            Self::Room { needed_sectors, before_sectors, after_sectors, either, .. } => {
                let place = if *either { "before or behind" } else { "before" };
                write!(
                    f,
                    "to move its data safely {needed_sectors} sectors must be free {place} them; {before_sectors} are free before"
                )?;
                if *either {
                    write!(f, " and {after_sectors} behind")?;
                }
                f.write_str("; without that room it takes a backup, which is Linux's work (`mdadm --grow --backup-file`)")
            }
        }
    }
}

impl std::error::Error for ReshapeError {}

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
    if !matches!(array.level, Level::Raid4 | Level::Raid5 | Level::Raid6) {
        return Err(ReshapeError::Level(array.level));
    }
    if (raid_disks, chunk_sectors, layout) == (array.raid_disks, array.chunk_sectors, array.layout) {
        return Err(ReshapeError::Same);
    }
    if array.ppl().is_some() {
        return Err(ReshapeError::Ppl);
    }
    if raid_disks < array.raid_disks {
        return Err(ReshapeError::Fewer { now: array.raid_disks, asked: raid_disks });
    }
    let added = raid_disks - array.raid_disks;
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
        Some(chunk) => Err(ReshapeError::ChunkDoesNotDivide { chunk_sectors: *chunk, size_sectors }),
        None => Ok(()),
    }
}

/// The least by which data are moved: what holds the fewest whole stripes, old and new, that are as long as each other, spread over
/// the fewer members. It is a chunk, of the larger kind, or more.
fn move_min_sectors(array: &Superblock1, target: Target) -> u64 {
    let parity = u32::from(array.level.parity_count());
    let stripe = |disks: u32, chunk: u32| u64::from(disks - parity) * u64::from(chunk);
    let (old, new) =
        (stripe(array.raid_disks, array.chunk_sectors), stripe(target.raid_disks, target.chunk_sectors));
    let data = u64::from(array.raid_disks.min(target.raid_disks) - parity);
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

/// How the data of members with so much room move: more members forwards, by what mdadm moves them, or by less where there is not so
/// much room; else to where there is more room, by about half of it. The member with the least room decides for all, as mdadm has it:
/// the others could not follow one another, nor could a device of its size take a member's place.
///
/// # Errors
/// A member has too little room.
pub fn plan_course(
    array: &Superblock1,
    target: Target,
    members: &[(&Superblock1, Room)],
) -> Result<Course, ReshapeError> {
    let is_growing = target.raid_disks > array.raid_disks;
    let usual_sectors = move_min_sectors(array, target);
    let needed_sectors = if is_growing { grow_min_sectors(array, target) } else { usual_sectors };
    let least = |room: fn(&Room) -> u64| members.iter().map(|(_, r)| room(r)).min().unwrap_or(0);
    let (before, after) = (least(|room| room.before_sectors), least(|room| room.after_sectors));
    let backwards = !is_growing && after > before;
    let has_room = |room: &Room| {
        let free = if backwards { room.after_sectors } else { room.before_sectors };
        free >= needed_sectors
    };
    if let Some(member) = members.iter().position(|(_, room)| !has_room(room)) {
        let Room { before_sectors, after_sectors } = members[member].1;
        let either = !is_growing;
        return Err(ReshapeError::Room { member, needed_sectors, before_sectors, after_sectors, either });
    }
    let moved = |(member, _): &(&Superblock1, Room)| {
        let now = member.data_offset_sectors;
        let new = if is_growing {
            let unit = u64::from(array.chunk_sectors.max(target.chunk_sectors));
            let less = (before / unit * unit).max(needed_sectors);
            now - if before < usual_sectors { less } else { usual_sectors }
        } else if backwards {
            let end = now + after;
            round_offset(now..=end, now + needed_sectors..=end)
        } else {
            let start = now - before;
            round_offset(start..=now, start..=now - needed_sectors)
        };
        // A superblock has no more than 1 TiB.
        (new as i64 - now as i64).clamp(-MOVE_MAX_SECTORS, MOVE_MAX_SECTORS) as i32
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
        let data = u64::from(target.raid_disks) - u64::from(self.level.parity_count());
        let position = if backwards { self.size_sectors.saturating_mul(data) } else { 0 };
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
        new
    }

    /// The superblock when the reshape has ended, but for what it filled: `md_finish_reshape` and `super_1_sync`. Fields that mean
    /// nothing any more stay as they were, as in Linux. Without a reshape it is the same.
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

    /// How far a reshape of a level with parity is, in percent; none if no such is under way.
    pub fn reshaped_percent(&self) -> Option<u8> {
        let reshape = self.reshape().filter(|_| self.level.parity_count() > 0)?;
        let data = u64::from(self.raid_disks).checked_sub(self.level.parity_count().into())?;
        let all = u128::from(self.size_sectors) * u128::from(data);
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
            new.filter(|_| one.set_uuid == array.set_uuid && one.size_sectors == array.size_sectors)
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
    let taken = member.follow_level(before)?;
    let new = taken.with_reshape(&beginning, offset, update);
    let is_behind = member.reshape().is_none() && member.events.checked_add(1) == Some(array.events);
    let is_alike = taken.as_it_is() == before;
    let is_at_start = new.reshape_position_sectors == array.reshape_position_sectors;
    let room = reshape_room(member, None);
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
mod tests {
    use super::*;
    use crate::time::Timestamp;
    use crate::uuid::Uuid;

    fn array(level: Level, raid_disks: u32, chunk_kib: u32, data_offset: u64, size: u64) -> Superblock1 {
        let mut superblock = Superblock1::new(level, raid_disks, 0, Uuid([7; 16]));
        (superblock.super_offset_sectors, superblock.data_offset_sectors) = (8, data_offset);
        (superblock.size_sectors, superblock.data_size_sectors) = (size, 131_072 - data_offset);
        (superblock.chunk_sectors, superblock.layout) = (chunk_kib * 2, 2);
        let slots = superblock.raid_disks as usize;
        superblock
            .dev_roles
            .iter_mut()
            .take(slots)
            .zip(0..)
            .for_each(|(role, slot)| *role = Role::Slot(slot));
        superblock
    }

    fn target(raid_disks: u32, chunk_kib: u32) -> Target {
        Target { raid_disks, chunk_sectors: chunk_kib * 2, layout: 2 }
    }

    fn new_offset(array: &Superblock1, target: Target) -> Result<(u64, bool), ReshapeError> {
        let (before_sectors, after_sectors) =
            (array.data_offset_sectors - 80, array.data_size_sectors - array.size_sectors);
        let course = plan_course(array, target, &[(array, Room { before_sectors, after_sectors })])?;
        Ok((array.data_offset_sectors.strict_add_signed(course.new_offsets[0].into()), course.backwards))
    }

    /// `New Offset` of mdadm 4.2 on devices of 131072 sectors.
    #[test]
    fn more_members_move_the_data_as_far_as_mdadm_moves_them() {
        for (level, disks, more, chunk, new_chunk, offset, right) in [
            (Level::Raid5, 3, 4, 64, 64, 2048, 1664),
            (Level::Raid5, 3, 5, 64, 64, 2048, 1792),
            (Level::Raid5, 3, 4, 512, 512, 4096, 1024),
            (Level::Raid5, 3, 4, 64, 64, 1024, 640),
            (Level::Raid4, 3, 4, 64, 64, 2048, 1664),
            (Level::Raid6, 4, 5, 64, 64, 2048, 1664),
            (Level::Raid6, 4, 6, 64, 128, 2048, 1536),
        ] {
            let array = array(level, disks, chunk, offset, 102_400);
            assert_eq!(
                new_offset(&array, target(more, new_chunk)),
                Ok((right, false)),
                "{level} {disks} {more}"
            );
        }
        let tight = array(Level::Raid5, 3, 64, 128, 102_400);
        assert_eq!(
            new_offset(&tight, target(4, 64)),
            Err(ReshapeError::Room {
                member: 0,
                needed_sectors: 128,
                before_sectors: 48,
                after_sectors: 28_544,
                either: false
            })
        );
        // mdadm helps itself with a backup there.
        let tight = array(Level::Raid5, 4, 512, 4096, 102_400);
        assert_eq!(new_offset(&tight, target(5, 512)), Ok((1024, false)));
    }

    /// As the above, of a chunk of 32K in place of 64K; 0 stands for all that there is.
    #[test]
    fn another_chunk_moves_the_data_to_where_mdadm_moves_them() {
        for (offset, size, right, backwards) in [
            (2048, 0, 1024, false),
            (6144, 0, 4096, false),
            (10_240, 0, 6144, false),
            (20_480, 0, 10_240, false),
            (2200, 0, 2048, false),
            (2048, 79_872, 26_624, true),
            (2048, 81_920, 24_576, true),
            (2048, 102_400, 14_336, true),
            (2048, 122_880, 4096, true),
            (2048, 126_976, 4096, true),
            (2048, 125_184, 4096, true),
        ] {
            let size = if size == 0 { 131_072 - offset } else { size };
            let array = array(Level::Raid5, 3, 64, offset, size);
            assert_eq!(new_offset(&array, target(3, 32)), Ok((right, backwards)), "{offset} {size}");
        }
        for (offset, right) in [(600, 512), (192, 128)] {
            let array = array(Level::Raid5, 3, 16, offset, 131_072 - offset);
            assert_eq!(new_offset(&array, target(3, 8)), Ok((right, false)), "{offset}");
        }
    }

    #[test]
    fn room_ends_where_logs_are() {
        let mut start = array(Level::Raid5, 3, 64, 2048, 129_000);
        assert_eq!(reshape_room(&start, None), Room { before_sectors: 1968, after_sectors: 24 });
        start.set_bitmap(8);
        let bitmap = BitmapSuperblock::new(start.set_uuid, 129_000, 4096);
        assert_eq!(reshape_room(&start, Some(&bitmap)).before_sectors, 1968);
        (start.bblog_offset_sectors, start.bblog_size_sectors) = (200, 8);
        assert_eq!(reshape_room(&start, Some(&bitmap)).before_sectors, 2048 - 216);
        let mut end = array(Level::Raid5, 3, 64, 0, 81_920);
        end.super_offset_sectors = 131_056;
        assert_eq!(reshape_room(&end, None), Room { before_sectors: 0, after_sectors: 131_056 - 81_920 });
        (end.bblog_offset_sectors, end.bblog_size_sectors) = (-8, 8);
        end.set_bitmap(-16);
        assert_eq!(reshape_room(&end, None).after_sectors, 131_040 - 81_920);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let five = array(Level::Raid5, 3, 64, 2048, 128_000);
        let check = |array: &Superblock1, target, spares| check_reshape(array, target, spares).unwrap_err();
        assert_eq!(check(&five, target(3, 64), 0), ReshapeError::Same);
        assert_eq!(check(&five, target(2, 64), 0), ReshapeError::Fewer { now: 3, asked: 2 });
        assert_eq!(check(&five, target(5, 64), 1), ReshapeError::Spares { added: 2, spares: 1 });
        assert_eq!(check(&five, target(3, 6), 0), ReshapeError::Chunk { chunk_sectors: 12 });
        assert_eq!(
            check(&five, target(3, 1024), 0),
            ReshapeError::ChunkDoesNotDivide { chunk_sectors: 2048, size_sectors: 128_000 }
        );
        let larger = check(&five, target(3, 1 << 20), 0).to_string();
        assert_eq!(
            larger,
            "64000K are used of each member, less than a chunk of 1048576K; take a smaller one"
        );
        let one = array(Level::Raid1, 3, 0, 2048, 128_000);
        assert_eq!(check(&one, target(4, 64), 1), ReshapeError::Level(Level::Raid1));
        let six = array(Level::Raid6, 4, 64, 2048, 128_000);
        assert_eq!(check(&six, target(256, 64), 300), ReshapeError::TooMany { most: 255, asked: 256 });
        assert!(check_reshape(&five, target(4, 32), 1).is_ok());
    }

    #[test]
    fn the_member_with_the_least_room_decides_how_far_all_move() {
        // 48, 16 and 20 MiB of which 8 are used, from 1 MiB on: mdadm moves all of them to sector 8192.
        let small = array(Level::Raid5, 3, 64, 2048, 16_384);
        let room = |after_sectors| Room { before_sectors: 2032, after_sectors };
        let moved = |rooms: &[u64]| {
            let rooms: Vec<_> = rooms.iter().map(|after| (&small, room(*after))).collect();
            plan_course(&small, target(3, 128), &rooms).unwrap()
        };
        assert_eq!(moved(&[79_872, 14_336, 22_528]), Course { new_offsets: vec![6144; 3], backwards: true });
        let far = moved(&[1 << 34; 3]).new_offsets;
        assert_eq!(far, [2_147_481_600; 3], "aligned, and no more than the superblock holds");
        assert!(
            moved(&[79_872, 600, 79_872]).new_offsets.iter().all(|offset| *offset < 0),
            "where there is more room for all"
        );
    }

    #[test]
    fn what_the_first_or_last_superblocks_did_not_reach_follows() {
        let update = |events| Update { events, utime: Timestamp::from_seconds(events) };
        let mut before = array(Level::Raid5, 3, 64, 2048, 129_024);
        before.events = 4;
        let roles = vec![Role::Slot(0), Role::Slot(1), Role::Slot(2), Role::Slot(3)];
        let beginning = Beginning { target: target(4, 32), backwards: false, roles };
        let begun = before.with_reshape(&beginning, -384, update(5));
        let mut members = [before.clone(), begun.clone()];
        assert_eq!(follow_reshape(&mut members), [0]);
        assert_eq!(members, [begun.clone(), begun.clone()]);
        let on = begun.with_reshape_position(3072, update(6));
        let mut members = [begun.clone(), on.clone()];
        assert_eq!(follow_reshape(&mut members), [0_usize; 0], "it knows");
        let mut members = [before.clone(), on.clone()];
        assert_eq!(follow_reshape(&mut members), [0_usize; 0], "it is out of date");
        let mut ended = on.reshaped();
        ended.events = 6 + END_EVENTS;
        ended.utime = Timestamp::from_seconds(9);
        let mut members = [ended.clone(), on.clone(), begun];
        assert_eq!(follow_reshape(&mut members), [1]);
        assert_eq!(members[1], ended);
    }

    #[test]
    fn a_reshape_begins_goes_on_and_ends_as_in_linux() {
        let before = array(Level::Raid5, 3, 64, 2048, 129_024);
        let roles = vec![Role::Slot(0), Role::Slot(1), Role::Slot(2), Role::Slot(3)];
        let beginning = Beginning { target: Target { layout: 1, ..target(4, 32) }, backwards: false, roles };
        let update = |events| Update { events, utime: Timestamp::from_seconds(events) };
        let begun = before.with_reshape(&beginning, -384, update(5));
        assert_eq!(begun.features, Features::RESHAPE_ACTIVE | Features::NEW_OFFSET);
        assert_eq!((begun.raid_disks, begun.chunk_sectors, begun.layout), (4, 128, 2), "those of before");
        assert_eq!((begun.new_chunk_sectors, begun.new_layout, begun.delta_disks), (64, 1, 1));
        assert_eq!((begun.reshape_position_sectors, begun.slots_before_reshape()), (0, 3));
        let on = begun.with_reshape_position(3072, update(6));
        assert_eq!((on.reshape_position_sectors, on.events), (3072, 6));
        assert_eq!((on.reshaped_percent(), before.reshaped_percent()), (Some(0), None));
        assert_eq!(begun.with_reshape_position(129_024, update(6)).reshaped_percent(), Some(33));
        let bytes = on.to_bytes();
        assert_eq!(Superblock1::parse(&bytes, 8).unwrap(), on, "it reads");
        assert!(on.check_reshaped().is_ok());
        let onto_superblock = Superblock1 { new_offset_sectors: -2045, ..on.clone() };
        assert!(onto_superblock.check_reshaped().is_err());
        let before_device = Superblock1 { new_offset_sectors: -4000, ..on.clone() };
        assert!(before_device.check_reshaped().unwrap_err().to_string().contains("new_offset"));
        let done = on.reshaped();
        assert_eq!(done.features, Features::default());
        assert_eq!((done.data_offset_sectors, done.data_size_sectors), (1664, 129_408));
        assert_eq!((done.raid_disks, done.chunk_sectors, done.layout), (4, 64, 1));
        assert_eq!(done.delta_disks, 1, "what means nothing stays");
        let mut back = Beginning { backwards: true, ..beginning };
        back.target.raid_disks = 3;
        let begun = before.with_reshape(&back, 1024, update(5));
        assert!(begun.features.contains(Features::RESHAPE_BACKWARDS));
        assert_eq!(begun.reshape_position_sectors, 129_024 * 2);
    }
}
