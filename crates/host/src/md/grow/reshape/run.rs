//! Runs a reshape: steps, and superblocks between them.
//!
//! # Contract
//! *Ordering.* Before superblocks name a position, all that was moved is flushed on every member; before anything is written that
//! the position before still needs, the superblocks with the new one are flushed on every member. No two members are more than an
//! event apart, but at the end. *Failure.* After an error, or
//! when it is told to stop, the reshape is where the superblocks say, or further; whoever goes on, this or Linux, begins there.

use std::fmt;
use std::io;
use std::ops::Range;
use std::thread;
use std::time::{Duration, Instant};

use stripewise_engine::geometry::{Geometry, GeometrySpec, Shape};
use stripewise_format::bitmap::{BitmapSuperblock, Bits};
use stripewise_format::grow::{END_EVENTS, Update, bitmap_area};
use stripewise_format::level::{Layout, Level};
use stripewise_format::superblock::Superblock;
use stripewise_format::superblock_1::{Features, Superblock1};
use stripewise_format::time::Timestamp;

use super::apart::{Apart, Copies};
use super::copies::{CopyRows, CopySide};
use super::course::{Course, CourseError, Next, Rows};
use super::moving::{self, Buffers, Devices, Loaded, MoveError, Mover, ParityRows, Side, at_once};
use crate::error::HostError;

/// A position is recorded so often at least, as by the kernel.
const RECORD_EVERY: Duration = Duration::from_secs(10);
/// Memory for what is on its way: twice what is read and what is written.
const MEMORY_BYTES: u64 = 96 << 20;
/// The longest piece of a member.
const PIECE_SECTORS_MAX: u64 = 16384;

/// A device of the array, a spare as well.
#[derive(Clone, Debug)]
pub(super) struct Member {
    pub(super) superblock: Superblock1,
    /// Of a bitmap its head, which counts events too.
    pub(super) bitmap: Option<BitmapSuperblock>,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    Done,
    /// It was told to; how far it came is recorded.
    Stopped,
}

/// Why a reshape does not begin, or go on.
#[derive(Debug)]
pub(super) enum RunError {
    Course(CourseError),
    Host(HostError),
    Move(MoveError),
    /// A superblock, or what it vouches for, could not be made to stay.
    Record {
        device: usize,
        error: io::Error,
    },
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Course(error) => error.fmt(f),
            Self::Host(error) => error.fmt(f),
            Self::Move(error) => error.fmt(f),
            Self::Record { error, .. } => error.fmt(f),
        }
    }
}

impl RunError {
    /// The device that is at fault, if one is.
    pub(super) const fn device(&self) -> Option<usize> {
        match self {
            Self::Move(MoveError::Write { device, .. }) | Self::Record { device, .. } => Some(*device),
            Self::Move(MoveError::Read { device, .. }) => *device,
            Self::Course(_) | Self::Host(_) => None,
        }
    }
}

/// A reshape that is under way.
#[derive(Debug)]
pub(super) struct Reshape<D> {
    devices: D,
    members: Vec<Member>,
    mover: Mover,
    course: Course,
    events: u64,
    /// A slot has no member that is in sync: what left does not come back by the bitmap.
    is_degraded: bool,
    larger_bitmap: Option<(BitmapSuperblock, Bits)>,
    piece_sectors: u64,
}

impl<D: Devices> Reshape<D> {
    /// The reshape that `array`, the freshest superblock, tells of. `slots` has the member of each slot that is read, `written` of
    /// each that is written to: one that is being recovered is not read. Both have those of before and of after; those that go are
    /// read alone.
    pub(super) fn new(
        devices: D,
        mut members: Vec<Member>,
        array: &Superblock1,
        slots: &[Option<usize>],
        written: &[Option<usize>],
    ) -> Result<Self, RunError> {
        let Some(reshape) = array.reshape() else { panic!("no reshape is under way") };
        let (before, stays) = (array.slots_before_reshape() as usize, array.raid_disks as usize);
        let written = &written[..stays];
        let size = array.size_sectors;
        let moved = |index: usize| {
            let offset = i64::from(members[index].superblock.reshape().map_or(0, |r| r.new_offset_sectors));
            if reshape.backwards { offset } else { -offset }
        };
        let shift = written.iter().flatten().map(|index| moved(*index)).min().unwrap_or(0);
        let old_place = |index: &usize| (*index, members[*index].superblock.data_offset_sectors);
        let new_place = |index: &usize| (*index, members[*index].superblock.reshaped().data_offset_sectors);
        let after = array.reshaped();
        let Ok(shift) = u64::try_from(shift) else { return Err(RunError::Course(CourseError::NoRoom)) };
        let old_places: Places = slots[..before].iter().map(|slot| slot.as_ref().map(old_place)).collect();
        let new_places: Places = written.iter().map(|slot| slot.as_ref().map(new_place)).collect();
        let pieces = 2 * (old_places.len() + new_places.len()) as u64;
        let (old, old_sectors) = shape(array, before)?;
        let (new, _) = shape(&after, stays)?;
        let chunks = (u64::from(array.chunk_sectors), u64::from(after.chunk_sectors));
        let (rows, course) = match (old, new) {
            (Shape::Parity(old), Shape::Parity(new)) => {
                let course = (
                    Rows { data: old.data_disks().into(), chunk: chunks.0 },
                    Rows { data: new.data_disks().into(), chunk: chunks.1 },
                );
                let old = Side { shape: old, chunk: chunks.0, slots: old_places };
                let new = Side { shape: new, chunk: chunks.1, slots: new_places };
                (
                    moving::Rows::Parity(ParityRows { old, new, old_sectors }),
                    Course::new(course, size, shift, reshape.backwards, reshape.position_sectors),
                )
            }
            (Shape::Raid10(old), Shape::Raid10(new)) => {
                let apart = Apart {
                    old: Copies { shape: old.clone(), slots: old_places.len() as u64, chunk: chunks.0 },
                    new: Copies { shape: new.clone(), slots: new_places.len() as u64, chunk: chunks.1 },
                    old_sectors,
                };
                let old = CopySide { shape: old, chunk: chunks.0, slots: old_places };
                let new = CopySide { shape: new, chunk: chunks.1, slots: new_places };
                if let Some(sector) = old.lost().or_else(|| new.lost()) {
                    return Err(RunError::Move(MoveError::Read { device: None, sector, error: None }));
                }
                let sizes = (size, array.reshape_sectors());
                (
                    moving::Rows::Copies(CopyRows { old, new, old_sectors }),
                    Course::of_copies(apart, sizes, shift, reshape.backwards, reshape.position_sectors),
                )
            }
            _ => unreachable!("a reshape is of one level, with parity or of copies"),
        };
        let course = course.map_err(RunError::Course)?;
        for member in &mut members {
            member.superblock = member.superblock.with_reshape_position(
                reshape.position_sectors,
                Update { events: array.events, utime: array.utime },
            );
        }
        Ok(Self {
            devices,
            events: array.events,
            is_degraded: slots.iter().any(Option::is_none),
            mover: Mover { rows, buffers: Buffers::default() },
            course,
            members,
            larger_bitmap: None,
            piece_sectors: (MEMORY_BYTES / 512 / pieces).min(PIECE_SECTORS_MAX),
        })
    }

    /// The bitmap of the array when the reshape has ended, if it is another than before: it stands for more.
    pub(super) fn set_larger_bitmap(&mut self, bitmap: (BitmapSuperblock, Bits)) {
        self.larger_bitmap = Some(bitmap);
    }

    /// Pieces of so many sectors of each member.
    #[cfg(test)]
    pub(super) const fn set_piece_sectors(&mut self, sectors: u64) {
        self.piece_sectors = sectors;
    }

    /// Goes on until all has moved, or `watch`, which is told how many sectors of how many of each member have, answers false.
    pub(super) fn run(
        &mut self,
        mut clock: impl FnMut() -> Timestamp,
        mut watch: impl FnMut(u64, u64) -> bool,
    ) -> Result<Ended, RunError> {
        // Some members may be an event and a position behind, and what that needs is kept until all say the same.
        self.write_superblocks()?;
        if self.is_degraded {
            // Whoever is not there may be an event ahead, and is out of date from now on.
            for _ in 0..=END_EVENTS {
                self.record(clock())?;
            }
        }
        let result = self.steps(&mut clock, &mut watch);
        if matches!(result, Ok(Ended::Stopped) | Err(RunError::Move(MoveError::Read { .. })))
            && self.course.is_ahead()
        {
            self.record(clock())?;
        }
        if matches!(result, Ok(Ended::Done)) {
            self.end(clock())?;
        }
        result
    }

    fn steps(
        &mut self,
        clock: &mut impl FnMut() -> Timestamp,
        watch: &mut impl FnMut(u64, u64) -> bool,
    ) -> Result<Ended, RunError> {
        let mut recorded = Instant::now();
        let mut ahead: Option<(Range<u64>, Loaded)> = None;
        loop {
            let (done, of) = self.course.done();
            if !watch(done, of) {
                return Ok(Ended::Stopped);
            }
            let is_time = self.course.is_ahead() && recorded.elapsed() >= RECORD_EVERY;
            match self.course.next(self.piece_sectors) {
                Next::Move(range) if !is_time => ahead = self.step(&range, ahead)?,
                Next::Record if !self.course.is_ahead() => {
                    return Err(RunError::Course(CourseError::NoRoom));
                }
                Next::Move(_) | Next::Record => {
                    self.record(clock())?;
                    recorded = Instant::now();
                }
                Next::Done => return Ok(Ended::Done),
            }
        }
    }

    /// Moves a range, and reads the next meanwhile.
    fn step(
        &mut self,
        range: &Range<u64>,
        ahead: Option<(Range<u64>, Loaded)>,
    ) -> Result<Option<(Range<u64>, Loaded)>, RunError> {
        let (mover, devices) = (&self.mover, &self.devices);
        let loaded = match ahead {
            Some((ahead, loaded)) if ahead == *range => loaded,
            _ => mover.load(devices, range).map_err(RunError::Move)?,
        };
        self.course.moved(range);
        let later = self.later();
        // What cannot be read is tried again, and told, when it is next.
        let read = || {
            let range = later?;
            let loaded = mover.load(devices, &range).ok()?;
            Some((range, loaded))
        };
        let (stored, next) = thread::scope(|scope| {
            let next = thread::Builder::new().spawn_scoped(scope, read);
            let stored = mover.store(devices, loaded);
            (stored, next.ok().and_then(|next| next.join().expect("no panic")))
        });
        stored.map_err(RunError::Move)?;
        Ok(next)
    }

    /// What moves next, whether a position is recorded before or not.
    fn later(&self) -> Option<Range<u64>> {
        let mut course = self.course.clone();
        if course.next(self.piece_sectors) == Next::Record {
            course.recorded();
        }
        match course.next(self.piece_sectors) {
            Next::Move(range) => Some(range),
            Next::Record | Next::Done => None,
        }
    }

    /// Records the position on every member.
    fn record(&mut self, utime: Timestamp) -> Result<(), RunError> {
        self.events += 1;
        let update = Update { events: self.events, utime };
        let position = self.course.position();
        for member in &mut self.members {
            member.superblock = member.superblock.with_reshape_position(position, update);
        }
        self.write_superblocks()?;
        self.course.recorded();
        Ok(())
    }

    /// Says on every member that the reshape has ended.
    fn end(&mut self, utime: Timestamp) -> Result<(), RunError> {
        self.events += END_EVENTS;
        for member in &mut self.members {
            let update = Update { events: self.events, utime };
            member.superblock = member.superblock.reshape_ended().with_update(update);
        }
        if let Some((head, bits)) = self.larger_bitmap.take() {
            self.write_bitmap(&head, &bits)?;
        }
        self.write_superblocks()
    }

    /// Writes the whole of a bitmap. It is flushed before the superblocks.
    fn write_bitmap(&mut self, head: &BitmapSuperblock, bits: &Bits) -> Result<(), RunError> {
        let mut head = head.clone();
        head.events = self.events;
        for member in self.members.iter_mut().filter(|member| member.bitmap.is_some()) {
            member.bitmap = Some(head.clone());
        }
        let devices = &self.devices;
        on_all(&self.members, |index, member| {
            let superblock = Superblock::V1(Box::new(member.superblock.clone()));
            match bitmap_area(&superblock, member.superblock.super_offset_sectors, &head, bits) {
                Some(area) if member.bitmap.is_some() => devices.write(index, area.at_sector, &area.bytes),
                _ => Ok(()),
            }
        })
    }

    /// Flushes what was moved, and only then writes the superblocks.
    fn write_superblocks(&mut self) -> Result<(), RunError> {
        for member in &mut self.members {
            let Some(head) = &mut member.bitmap else { continue };
            head.events = self.events;
            if self.is_degraded {
                head.events_cleared = self.events;
            }
        }
        let devices = &self.devices;
        on_all(&self.members, |index, _| devices.flush(index))?;
        on_all(&self.members, |index, member| {
            if let (Some(head), Some(sector)) = (&member.bitmap, member.superblock.bitmap_sector()) {
                devices.write(index, sector, &head.to_bytes())?;
            }
            devices.write(index, member.superblock.super_offset_sectors, &member.superblock.to_bytes())?;
            devices.flush(index)
        })
    }
}

/// Records something on all members at the same time.
fn on_all(
    members: &[Member],
    what: impl Fn(usize, &Member) -> io::Result<()> + Sync,
) -> Result<(), RunError> {
    let ends = at_once(members.iter().enumerate(), |(index, member)| {
        what(index, member).map_err(|error| RunError::Record { device: index, error })
    });
    ends.into_iter().collect()
}

/// Each slot's device, and the sector where its data begin.
type Places = Vec<Option<(usize, u64)>>;

/// Where the rows of an array lie that has what a superblock says, apart from the slots; and the sectors that it holds.
fn shape(array: &Superblock1, slots: usize) -> Result<(Shape, u64), RunError> {
    let layout = array.layout().unwrap_or_else(|| Layout::default_of(array.level));
    let spec = GeometrySpec {
        level: array.level,
        layout,
        chunk_sectors: array.chunk_sectors.into(),
        member_sectors: vec![array.size_sectors; slots],
    };
    let geometry = Geometry::new(&spec).map_err(|error| RunError::Host(HostError::Geometry(error)))?;
    Ok((geometry.shape().clone(), geometry.array_sectors()))
}

/// Whether a reshape is one that is run here, by what its superblock says.
pub(super) fn check_supported(array: &Superblock1) -> Result<(), String> {
    let Some(reshape) = array.reshape() else { return Err("the array is not being reshaped".to_owned()) };
    let linux = "that is Linux's work (`mdadm --grow --continue`)";
    if !matches!(array.level, Level::Raid4 | Level::Raid5 | Level::Raid6 | Level::Raid10) {
        return Err(format!("a {} array is being reshaped; {linux}", array.level));
    }
    if reshape.new_level != array.level.number() {
        return Err(format!("its level is being changed; {linux}"));
    }
    if reshape.backwards && reshape.delta_disks > 0 {
        return Err(format!("it is being reshaped backwards to more raid devices; {linux}"));
    }
    if array.features.contains(Features::REPLACEMENT) {
        return Err(format!("a member is being replaced; {linux}"));
    }
    let chunks = [array.chunk_sectors, reshape.new_chunk_sectors];
    if !chunks.iter().all(|chunk| array.size_sectors.is_multiple_of(u64::from(*chunk))) {
        return Err(format!("what is used of each member is not whole chunks; {linux}"));
    }
    let layouts = [array.layout, reshape.new_layout].map(|one| Layout::from_number(array.level, one as i32));
    if layouts.iter().any(|one| matches!(one, Some(Layout::Raid10(one)) if one.far > 1 && !one.offset)) {
        return Err("its copies lie far away (fN), where md does not move them".to_owned());
    }
    if layouts[1].is_none() {
        return Err(format!("new_layout is {}, which this level has not", reshape.new_layout));
    }
    Ok(())
}
