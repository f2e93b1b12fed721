//! The superblock's part of another level, as by `mdadm --grow --level` (4.2) and Linux 6.1.
//!
//! An array is **taken over** by the other level where its data are: only the superblocks say something else then. A reshape may
//! begin with the same superblocks and bring it to the layout that the level is wont to have. Linux writes the two one after the
//! other; here they are one change, so that no power cut leaves the first alone.
//!
//! Facts: `raid0_takeover`, `raid5_takeover`, `raid6_takeover`, `raid4_takeover`, `raid1_takeover`, `raid10_takeover` in the kernel; what mdadm 4.2 makes of `--layout`
//! from what it left on members (see the tests).

mod error;
mod raid0;

use crate::level::{Layout, Level, ParityLayout};
use crate::superblock_1::{Features, Role, Superblock1};
pub use error::LevelError;
pub use raid0::check_one_zone;

/// The longest chunk of a RAID-1 that is taken over as RAID-5, in sectors: 64K.
const CHUNK_SECTORS_MAX: u32 = 128;
/// The shortest: a page.
const CHUNK_SECTORS_MIN: u32 = 8;
/// Slots that a RAID-5 has at least, and at most, which is taken over as RAID-6.
const SLOTS_FOR_RAID6: std::ops::RangeInclusive<u32> = 3..=253;
/// What is added to a RAID-5 layout's number where Q has a slot of its own behind the others.
const Q_LAST: u32 = 16;

/// What an array is at another level, with its data where they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Takeover {
    /// The level.
    pub level: Level,
    /// The layout's number.
    pub layout: u32,
    /// The chunk; 0 for a level without.
    pub chunk_sectors: u32,
    /// Slots.
    pub raid_disks: u32,
    /// Sectors used of each member.
    pub size_sectors: u64,
}

/// What an array is at another level, which takes it over where its data are.
///
/// # Errors
/// It cannot.
pub fn take_over(array: &Superblock1, level: Level) -> Result<Takeover, LevelError> {
    let now = array.level;
    if array.ppl().is_some() {
        return Err(LevelError::Ppl);
    }
    let same = Takeover {
        level,
        layout: array.layout,
        chunk_sectors: array.chunk_sectors,
        raid_disks: array.raid_disks,
        size_sectors: array.size_sectors,
    };
    let parity_last = ParityLayout::ParityLast as u32;
    let slots = LevelError::Slots { now, asked: level, raid_disks: array.raid_disks };
    match (now, level) {
        (Level::Raid0, _) => raid0::over_raid0(array, level),
        (_, Level::Raid0) => raid0::as_raid0(array),
        (Level::Raid4, Level::Raid5) => Ok(Takeover { layout: parity_last, ..same }),
        (Level::Raid5, Level::Raid4) if array.layout == parity_last => Ok(Takeover { layout: 0, ..same }),
        (Level::Raid5, Level::Raid4) => Err(LevelError::Layout { asked: level, layout: "parity-last" }),
        (Level::Raid1, Level::Raid5) | (Level::Raid5, Level::Raid1) if array.raid_disks != 2 => Err(slots),
        (Level::Raid1, Level::Raid5) => {
            let chunk_sectors = chunk_of_copies(array.size_sectors)?;
            Ok(Takeover { layout: ParityLayout::LeftSymmetric as u32, chunk_sectors, ..same })
        }
        (Level::Raid5, Level::Raid1) => Ok(Takeover { layout: 0, chunk_sectors: 0, ..same }),
        (Level::Raid5, Level::Raid6) if !SLOTS_FOR_RAID6.contains(&array.raid_disks) => Err(slots),
        (Level::Raid5, Level::Raid6) => {
            let layout = if array.layout == parity_last { parity_last } else { array.layout + Q_LAST };
            Ok(Takeover { layout, raid_disks: array.raid_disks + 1, ..same })
        }
        (Level::Raid6, Level::Raid5) if array.layout == parity_last || array.layout >= Q_LAST => {
            Ok(Takeover { layout: normal_layout(array.layout), raid_disks: array.raid_disks - 1, ..same })
        }
        (Level::Raid6, Level::Raid5) => {
            Err(LevelError::Layout { asked: level, layout: name_with_q_last(array.layout) })
        }
        _ => Err(LevelError::Pair { now, asked: level }),
    }
}

/// The longest chunk up to 64K that divides what is used of each copy: it lies the same whatever the chunk.
fn chunk_of_copies(size_sectors: u64) -> Result<u32, LevelError> {
    let divisor = 1_u64 << size_sectors.trailing_zeros().min(CHUNK_SECTORS_MAX.trailing_zeros());
    let chunk = divisor as u32;
    if chunk < CHUNK_SECTORS_MIN { Err(LevelError::NoChunk { size_sectors }) } else { Ok(chunk) }
}

/// The layout whose Q is among the others: what mdadm makes of a RAID-5 that becomes RAID-6.
const fn normal_layout(layout: u32) -> u32 {
    if layout >= Q_LAST { layout - Q_LAST } else { layout }
}

/// The layout with Q in a slot of its own that is nearest to one without.
fn name_with_q_last(layout: u32) -> &'static str {
    let number = |one: &ParityLayout| *one as u32;
    let near = ParityLayout::ALL.into_iter().find(|one| number(one) == layout + Q_LAST);
    near.unwrap_or(ParityLayout::LeftSymmetric6).name()
}

/// The layout's number that an array is to have which a level takes over, or has: by its name, `preserve` for where the data are,
/// `normalise` for a RAID-6 whose Q is among the others. Without a name it is mdadm's choice.
///
/// # Errors
/// The level has no such layout; the text says which there are.
pub fn level_layout(array: Takeover, is_new: bool, name: Option<&str>) -> Result<u32, String> {
    match name {
        None if is_new && array.level == Level::Raid6 => Ok(normal_layout(array.layout)),
        None | Some("preserve") => Ok(array.layout),
        Some("normalise" | "normalize") if array.level == Level::Raid6 => Ok(normal_layout(array.layout)),
        Some(_) if array.level == Level::Raid0 => {
            Err("a raid0 array whose members are of the same size has no layouts".to_owned())
        }
        Some(_) if matches!(array.level, Level::Raid1 | Level::Raid4) => {
            Err(format!("a {} array has no layouts", array.level))
        }
        Some(name) => {
            let layout = Layout::parse(array.level, name).map_err(|error| error.to_string())?;
            Ok(layout.recorded_number(array.level) as u32)
        }
    }
}

impl Superblock1 {
    /// What the array is, as if its level had just taken it over.
    pub const fn as_it_is(&self) -> Takeover {
        Takeover {
            level: self.level,
            layout: self.layout,
            chunk_sectors: self.chunk_sectors,
            raid_disks: self.raid_disks,
            size_sectors: self.size_sectors,
        }
    }

    /// The superblock of the array at the level that takes it over. Members of slots that it has not are spares then. Slots that are
    /// new are empty.
    #[must_use]
    pub fn taken_over(&self, takeover: Takeover) -> Self {
        let Takeover { level, layout, chunk_sectors, raid_disks, size_sectors } = takeover;
        let mut new = Self { level, layout, size_sectors, chunk_sectors, raid_disks, ..self.clone() };
        if level == Level::Raid0 || self.level == Level::Raid0 {
            new.features = new.features.without(Features::RAID0_LAYOUT);
            new.resync_offset_sectors = u64::MAX;
            new.dev_roles = raid0::roles(self, level);
            // All that a RAID-0 has of a member is the array's.
            new.data_size_sectors = size_sectors;
        }
        for role in &mut new.dev_roles {
            if matches!(role, Role::Slot(slot) if u32::from(*slot) >= raid_disks) {
                *role = Role::Spare;
            }
        }
        new
    }

    /// Whether the device is of no use to the array as it is: a RAID-0 has no spares.
    pub fn is_dropped(&self) -> bool {
        self.level == Level::Raid0 && !matches!(self.role(), Role::Slot(_))
    }

    /// A member that does not know that the array has another level, as it would be if it knew; none if the array is something else
    /// than what that level makes of it. Which members have slots is as the others say.
    pub(super) fn follow_level(&self, array: Takeover, roles: &[Role]) -> Option<Self> {
        if self.level == array.level {
            return Some(self.clone());
        }
        let takeover = take_over(self, array.level).ok().filter(|takeover| *takeover == array)?;
        let mut new = self.taken_over(takeover);
        if array.level == Level::Raid0 {
            new.dev_roles = roles.to_vec();
        }
        Some(new)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::{Beginning, END_EVENTS, Target, Update, follow, follow_reshape, is_left_behind};
    use super::*;
    use crate::superblock::Superblock;
    use crate::superblock_1::Features;
    use crate::time::Timestamp;
    use crate::uuid::Uuid;

    pub(super) fn array(level: Level, raid_disks: u32, layout: u32) -> Superblock1 {
        let mut array = Superblock1::new(level, raid_disks, 1, Uuid([7; 16]));
        (array.super_offset_sectors, array.data_offset_sectors, array.events) = (8, 2048, 4);
        (array.size_sectors, array.data_size_sectors) = (47_104, 47_104);
        array.chunk_sectors = if level == Level::Raid1 { 0 } else { 128 };
        array.layout = layout;
        let slots = array.raid_disks as usize;
        array.dev_roles.iter_mut().take(slots).zip(0..).for_each(|(role, slot)| *role = Role::Slot(slot));
        array
    }

    /// What mdadm 4.2 left of arrays of 47104 sectors a member: the layout and chunk as the level takes them over, and its choice of
    /// the layout in the end.
    #[test]
    fn a_level_takes_over_what_linux_has_it_take_over() {
        use Level::{Raid1, Raid4, Raid5, Raid6};
        for ((now, disks, layout), (level, more, taken, chunk), end) in [
            ((Raid5, 3, 2), (Raid6, 4, 18, 128), 2),
            ((Raid5, 4, 0), (Raid6, 5, 16, 128), 0),
            ((Raid5, 3, 4), (Raid6, 4, 20, 128), 4),
            ((Raid5, 3, 5), (Raid6, 4, 5, 128), 5),
            ((Raid4, 3, 0), (Raid5, 3, 5, 128), 5),
            ((Raid5, 3, 5), (Raid4, 3, 0, 128), 0),
            ((Raid1, 2, 0), (Raid5, 2, 2, 128), 2),
            ((Raid5, 2, 2), (Raid1, 2, 0, 0), 0),
            ((Raid6, 4, 18), (Raid5, 3, 2, 128), 2),
            ((Raid6, 5, 5), (Raid5, 4, 5, 128), 5),
        ] {
            let array = array(now, disks, layout);
            let (chunk_sectors, size_sectors) = (chunk, 47_104);
            let right = Takeover { level, layout: taken, chunk_sectors, raid_disks: more, size_sectors };
            assert_eq!(take_over(&array, level), Ok(right), "{now} {layout}");
            assert_eq!(level_layout(right, true, None), Ok(end), "{now} {layout}");
            assert_eq!(level_layout(right, true, Some("preserve")), Ok(taken), "{now} {layout}");
            let read = Superblock1::parse(&array.taken_over(right).to_bytes(), 8).unwrap();
            assert_eq!(read.as_it_is(), right, "it reads");
            assert_eq!((read.size_sectors, read.data_offset_sectors), (47_104, 2048), "data stay");
        }
        let mut odd = array(Raid1, 2, 0);
        odd.size_sectors = 24_584;
        assert_eq!(take_over(&odd, Raid5).unwrap().chunk_sectors, 8, "mdadm sets another then, and fails");
    }

    #[test]
    fn what_cannot_be_is_refused() {
        use Level::{Raid0, Raid1, Raid4, Raid5, Raid6, Raid10};
        let refused = |array: &Superblock1, level| take_over(array, level).unwrap_err();
        for (now, asked) in
            [(Raid4, Raid6), (Raid0, Raid1), (Raid0, Raid6), (Raid6, Raid0), (Raid5, Raid10), (Raid1, Raid6)]
        {
            assert_eq!(refused(&array(now, 3, 0), asked), LevelError::Pair { now, asked });
        }
        for (now, disks, asked) in
            [(Raid1, 3, Raid5), (Raid5, 3, Raid1), (Raid5, 2, Raid6), (Raid5, 254, Raid6)]
        {
            let error = LevelError::Slots { now, asked, raid_disks: disks };
            assert_eq!(refused(&array(now, disks, 2), asked), error);
        }
        let layout = |asked, layout| LevelError::Layout { asked, layout };
        assert_eq!(refused(&array(Raid5, 3, 2), Raid4), layout(Raid4, "parity-last"));
        assert_eq!(refused(&array(Raid6, 4, 3), Raid5), layout(Raid5, "right-symmetric-6"));
        assert_eq!(refused(&array(Raid6, 4, 10), Raid5), layout(Raid5, "left-symmetric-6"));
        let mut one = array(Raid1, 2, 0);
        one.size_sectors = 24_588;
        assert_eq!(refused(&one, Raid5), LevelError::NoChunk { size_sectors: 24_588 });
        let mut logged = array(Raid5, 3, 2);
        logged.features |= Features::MULTIPLE_PPLS;
        assert_eq!(refused(&logged, Raid6), LevelError::Ppl);
        let five = array(Raid5, 3, 2).as_it_is();
        assert!(level_layout(five, false, Some("ddf-N-continue")).is_err());
        assert!(level_layout(array(Raid4, 3, 0).as_it_is(), false, Some("ls")).is_err());
        assert_eq!(level_layout(five, false, Some("ra")), Ok(1));
        let six = array(Raid6, 4, 18).as_it_is();
        assert_eq!(
            (level_layout(six, false, None), level_layout(six, false, Some("normalise"))),
            (Ok(18), Ok(2))
        );
    }

    #[test]
    fn q_is_a_spare_when_its_slot_goes() {
        let mut six = array(Level::Raid6, 4, 18);
        six.dev_number = 3;
        let five = six.taken_over(take_over(&six, Level::Raid5).unwrap());
        assert_eq!((five.role(), five.dev_roles[2]), (Role::Spare, Role::Slot(2)));
    }

    #[test]
    fn a_member_that_another_level_did_not_reach_follows() {
        for (now, disks, layout, level) in [
            (Level::Raid4, 3, 0, Level::Raid5),
            (Level::Raid1, 2, 0, Level::Raid5),
            (Level::Raid6, 4, 18, Level::Raid5),
            (Level::Raid5, 3, 2, Level::Raid6),
        ] {
            let member = array(now, disks, layout);
            let taken = member.taken_over(take_over(&member, level).unwrap());
            let taken = taken.with_update(Update { events: 5, utime: Timestamp::from_seconds(5) });
            let boxed = |one: &Superblock1| Superblock::V1(Box::new(one.clone()));
            assert!(is_left_behind(&boxed(&member), &boxed(&taken)));
            assert_eq!(follow(&boxed(&member), 8, 1 << 20, &boxed(&taken)), Some(boxed(&taken)));
            let other = Superblock1 { layout: 1, ..taken };
            assert_eq!(follow(&boxed(&member), 8, 1 << 20, &boxed(&other)), None, "not as it would be");
        }
    }

    /// As md has it beside the reshape of a RAID-5 that became RAID-6: the spare in Q's slot has what was moved.
    #[test]
    fn the_member_of_a_new_slot_is_filled_by_the_reshape() {
        let mut spare = array(Level::Raid5, 3, 2);
        spare.dev_number = 3;
        let taken = spare.taken_over(take_over(&spare, Level::Raid6).unwrap());
        let roles: Vec<Role> = (0..5).map(Role::Slot).collect();
        let update = |events| Update { events, utime: Timestamp::from_seconds(events) };
        let begin = |raid_disks, backwards, number| {
            let target = Target { raid_disks, chunk_sectors: 128, layout: 2 };
            let beginning = Beginning { target, backwards, roles: roles.clone() };
            Superblock1 { dev_number: number, ..taken.clone() }.with_reshape(&beginning, -1024, update(5))
        };
        let begun = begin(4, false, 3);
        assert_eq!((begun.features.number(), begun.recovered_sectors()), (70, Some(0)));
        assert_eq!((begun.level, begun.layout, begun.new_level, begun.new_layout), (Level::Raid6, 18, 6, 2));
        assert_eq!(begin(4, false, 2).features.number(), 68, "the others are whole");
        assert_eq!(begin(5, false, 4).features.number(), 68, "what the reshape adds is whole");
        let on = begun.with_reshape_position(16_384, update(6));
        assert_eq!(on.recovered_sectors(), Some(8192));
        let back = begin(4, true, 3).with_reshape_position(16_384, update(6));
        assert_eq!((back.features.number(), back.recovered_sectors()), (102, Some(0)));
        let done = on.reshape_ended();
        assert_eq!((done.features.number(), done.recovery_offset_sectors), (0, 0));
        assert_eq!(on.reshaped().recovered_sectors(), Some(8192), "until then it lacks the rest");
        let ended = done.with_update(update(6 + END_EVENTS));
        let mut members = [ended.clone(), on];
        assert_eq!(follow_reshape(&mut members), [1]);
        assert_eq!(members, [ended.clone(), ended]);
        let mut members = [begun.clone(), spare];
        assert_eq!(follow_reshape(&mut members), [1]);
        assert_eq!(members, [begun.clone(), begun]);
    }
}
