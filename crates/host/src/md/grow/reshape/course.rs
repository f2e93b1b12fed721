//! How far data may move before the superblocks must say so: pure arithmetic.
//!
//! # Contract
//! The **position** is the array's sector up to which (backwards: down to which) all is in its new place; the **recorded** one is
//! what every member's superblock says, durably. A crash goes on from there, so that until another is recorded nothing may be
//! written over what is old from the recorded position on: neither data nor parity of the whole old rows. [`Course::next`] never
//! names a step that would. As the kernel's `reshape_request`, whose rule for going on (`raid5_run`) each position meets: it is a
//! whole number of new stripes, of chunks as large as the larger of the two. Of a RAID-10 it may be any page: `apart` says how far
//! copies may go.

use std::fmt;
use std::ops::Range;

use stripewise_engine::units::PAGE_SECTORS;

use super::apart::Apart;

/// What the rows of an array are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rows {
    /// Data chunks of each.
    pub(super) data: u64,
    /// Sectors of a chunk.
    pub(super) chunk: u64,
}

impl Rows {
    const fn stripe(self) -> u64 {
        self.data * self.chunk
    }
}

/// What comes next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// These sectors of the array move to their new places.
    Move(Range<u64>),
    /// The position is to be recorded.
    Record,
    /// All is in its new place, and recorded.
    Done,
}

/// Why a reshape cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CourseError {
    /// The position is not where a reshape can be.
    Position { found: u64, unit: u64 },
    /// There is no room to write to without a backup.
    NoRoom,
}

impl fmt::Display for CourseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Position { found, unit } => {
                write!(f, "reshape_position is {found}; it is a multiple of {unit} within the array")
            }
            Self::NoRoom => f.write_str(
                "what comes next would be written over what is not yet moved, which takes a backup; that is Linux's work (`mdadm \
                 --grow --continue --backup-file`)",
            ),
        }
    }
}

/// What moves.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Way {
    /// Stripes with parity, from those to these.
    Rows(Rows, Rows),
    /// Copies.
    Copies(Apart),
}

/// The way of a reshape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Course {
    way: Way,
    /// Sectors of each member.
    size: u64,
    /// Sectors of the array that it goes through.
    whole: u64,
    /// By how much the data of each member move at least, in the direction of the move.
    shift: u64,
    backwards: bool,
    position: u64,
    recorded: u64,
}

impl Course {
    /// A reshape that has come to a position, which is recorded.
    pub(super) fn new(
        (old, new): (Rows, Rows),
        size: u64,
        shift: u64,
        backwards: bool,
        position: u64,
    ) -> Result<Self, CourseError> {
        let (way, whole) = (Way::Rows(old, new), size * new.data);
        let course = Self { way, size, whole, shift, backwards, position, recorded: position };
        course.check(old.chunk.max(new.chunk) * new.data)
    }

    /// A reshape of copies that goes through so many sectors of the array. What lies beyond them when it goes forwards is nothing that
    /// has to move, though Linux may have come there.
    pub(super) fn of_copies(
        apart: Apart,
        (size, whole): (u64, u64),
        shift: u64,
        backwards: bool,
        position: u64,
    ) -> Result<Self, CourseError> {
        let all = if backwards { whole } else { whole.max(apart.new.sectors(size)) };
        if position > all {
            return Err(CourseError::Position { found: position, unit: PAGE_SECTORS });
        }
        let position = position.min(whole);
        let way = Way::Copies(apart);
        Self { way, size, whole, shift, backwards, position, recorded: position }.check(PAGE_SECTORS)
    }

    /// Positions are multiples of a unit, and it can go on.
    fn check(self, unit: u64) -> Result<Self, CourseError> {
        let position = self.position;
        if !position.is_multiple_of(unit) && position != self.end() || position > self.whole {
            return Err(CourseError::Position { found: position, unit });
        }
        if self.next(u64::MAX) == Next::Record || !self.clone().ends() {
            return Err(CourseError::NoRoom);
        }
        Ok(self)
    }

    /// Whether it comes to its end. With fewer members it may be stuck on the way, with as many or more what can go on once can
    /// always.
    fn ends(mut self) -> bool {
        let is_fewer = match &self.way {
            Way::Rows(old, new) => new.data < old.data,
            Way::Copies(apart) => apart.new.slots < apart.old.slots,
        };
        if !is_fewer {
            return true;
        }
        loop {
            match self.next(u64::MAX) {
                Next::Move(range) => self.moved(&range),
                Next::Record if !self.is_ahead() => return false,
                Next::Record => self.recorded(),
                Next::Done => return true,
            }
        }
    }

    /// What is next; a move is of about so many sectors of each member at most.
    pub(super) fn next(&self, most: u64) -> Next {
        let limit = self.limit();
        let step = self.step(most);
        if self.backwards && self.position > limit {
            Next::Move(limit.max(self.position.saturating_sub(step))..self.position)
        } else if !self.backwards && self.position < limit {
            Next::Move(self.position..limit.min(self.position.saturating_add(step)))
        } else if self.position == self.end() && self.recorded == self.position {
            Next::Done
        } else {
            Next::Record
        }
    }

    /// What [`Course::next`] named has moved.
    pub(super) fn moved(&mut self, range: &Range<u64>) {
        let (from, to) = if self.backwards { (range.end, range.start) } else { (range.start, range.end) };
        assert_eq!(from, self.position, "moves follow each other");
        self.position = to;
    }

    /// The position is on every member, durably.
    pub(super) const fn recorded(&mut self) {
        self.recorded = self.position;
    }

    /// The array's sector up to which all is in its new place.
    pub(super) const fn position(&self) -> u64 {
        self.position
    }

    /// Whether something has moved that is not recorded.
    pub(super) const fn is_ahead(&self) -> bool {
        self.position != self.recorded
    }

    /// Sectors of each member that are done, of how many.
    pub(super) fn done(&self) -> (u64, u64) {
        let moved = if self.backwards { self.whole - self.position } else { self.position };
        let done = u128::from(moved) * u128::from(self.size) / u128::from(self.whole.max(1));
        (done as u64, self.size)
    }

    const fn end(&self) -> u64 {
        if self.backwards { 0 } else { self.whole }
    }

    /// Sectors of the array that take about so many of each member.
    fn step(&self, most: u64) -> u64 {
        match &self.way {
            Way::Rows(old, new) => {
                let unit = old.chunk.max(new.chunk);
                (most / unit).max(1).saturating_mul(unit).saturating_mul(new.data)
            }
            Way::Copies(Apart { old, new, .. }) => {
                let unit = old.chunk.max(new.chunk);
                let copies = u64::from(new.shape.layout().copies());
                (most.saturating_mul(new.slots) / copies / unit).max(1).saturating_mul(unit)
            }
        }
    }

    /// How far data may go with what is recorded.
    fn limit(&self) -> u64 {
        match &self.way {
            Way::Rows(old, new) => self.limit_of_rows(*old, *new),
            Way::Copies(apart) if self.backwards => {
                apart.limit_backwards(self.recorded, self.position, self.shift)
            }
            Way::Copies(apart) => apart.limit(self.recorded, self.position, self.whole, self.shift),
        }
    }

    fn limit_of_rows(&self, old: Rows, new: Rows) -> u64 {
        let stripe = old.stripe();
        let unit = old.chunk.max(new.chunk);
        if self.backwards {
            // Rows up to this sector of each member are still needed.
            let needed = self.recorded.div_ceil(stripe) * old.chunk;
            let least = needed.saturating_sub(self.shift);
            return least.div_ceil(unit).saturating_mul(unit) * new.data;
        }
        if self.recorded >= self.size * old.data {
            return self.end();
        }
        let needed = self.recorded / stripe * old.chunk;
        let most = (needed + self.shift).min(self.size);
        most / unit * unit * new.data
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(data: u64, chunk: u64) -> Rows {
        Rows { data, chunk }
    }

    /// mdadm's move for these rows.
    fn least_shift(old: Rows, new: Rows) -> u64 {
        let (a, b) = (old.stripe(), new.stripe());
        let mut common = (a, b);
        while common.1 != 0 {
            common = (common.1, common.0 % common.1);
        }
        a / common.0 * b / old.data
    }

    fn rows_of(course: &Course) -> (Rows, Rows) {
        let Way::Rows(old, new) = course.way else { panic!("it has parity") };
        (old, new)
    }

    /// Whether the kernel goes on from here by itself (`raid5_run`).
    fn may_linux_go_on(course: &Course) -> bool {
        let (old_rows, new_rows) = rows_of(course);
        let chunk = old_rows.chunk.max(new_rows.chunk);
        let position = course.recorded;
        let (new, old) = (position / (chunk * new_rows.data), position / (chunk * old_rows.data));
        let is_whole = position.is_multiple_of(chunk * new_rows.data);
        let is_clear = if old_rows.data == new_rows.data {
            course.shift >= chunk
        } else if course.backwards {
            new * chunk + course.shift > old * chunk
        } else {
            new * chunk < old * chunk + course.shift
        };
        is_whole && is_clear
    }

    /// Every pair of rows that is near each other, both ways.
    fn each(mut check: impl FnMut(Course)) {
        for (old_data, new_data) in (1..6).flat_map(|old| (old..7).map(move |new| (old, new))) {
            for (old_chunk, new_chunk) in [1, 2, 4, 8].iter().flat_map(|a| [1, 2, 8].map(|b| (*a, b))) {
                let (old, new) = (rows(old_data, old_chunk), rows(new_data, new_chunk));
                let least = least_shift(old, new);
                let unit = old_chunk.max(new_chunk);
                let kept = if old_chunk == new_chunk { 0 } else { old_chunk };
                let tight = if old_data < new_data { (unit + kept).min(least) } else { least };
                for shift in [tight, least, least + 3, 4 * least] {
                    let size = 16 * old_chunk.max(new_chunk);
                    check(Course::new((old, new), size, shift, false, 0).unwrap());
                    if old_data == new_data {
                        let end = size * new_data;
                        check(Course::new((old, new), size, shift, true, end).unwrap());
                    }
                }
            }
        }
        each_with_fewer(check);
    }

    /// The same with fewer members, which is a way backwards.
    fn each_with_fewer(mut check: impl FnMut(Course)) {
        for (old_data, new_data) in (2..7).flat_map(|old| (1..old).map(move |new| (old, new))) {
            for (old_chunk, new_chunk) in [1, 2, 4, 8].iter().flat_map(|a| [1, 2, 8].map(|b| (*a, b))) {
                let (old, new) = (rows(old_data, old_chunk), rows(new_data, new_chunk));
                let least = least_shift(old, new);
                let tight = old_chunk.max(new_chunk).min(least);
                for shift in [tight, least, least + 3, 4 * least] {
                    let size = 16 * old_chunk.max(new_chunk);
                    check(Course::new((old, new), size, shift, true, size * new_data).unwrap());
                }
            }
        }
    }

    #[test]
    fn every_way_leads_to_its_end_and_linux_could_take_over_anywhere() {
        each(|mut course| {
            for _ in 0..10_000 {
                assert!(may_linux_go_on(&course), "{course:?}");
                match course.next(3) {
                    Next::Move(range) => course.moved(&range),
                    Next::Record => {
                        assert!(course.is_ahead(), "stuck: {course:?}");
                        course.recorded();
                    }
                    Next::Done => {
                        assert_eq!(course.done(), (course.size, course.size));
                        return;
                    }
                }
            }
            panic!("no end: {course:?}");
        });
    }

    /// Sector by sector: nothing is written where a row lies that the recorded position needs.
    #[test]
    fn nothing_is_written_over_what_the_recorded_position_needs() {
        each(|mut course| {
            // Old data begin at sector `base` of a member.
            let base = 1_000_000;
            let (old, new) = rows_of(&course);
            let new_base = if course.backwards { base + course.shift } else { base - course.shift };
            loop {
                match course.next(5) {
                    Next::Move(range) => {
                        let written = new_base + range.start / new.data..new_base + range.end / new.data;
                        let (stripe, all) = (old.stripe(), course.size * old.data);
                        let needed = if course.backwards { 0..course.recorded } else { course.recorded..all };
                        for at in needed {
                            let row = at / stripe;
                            let kept = base + row * old.chunk..base + (row + 1) * old.chunk;
                            let is_apart = written.end <= kept.start || kept.end <= written.start;
                            assert!(is_apart, "{course:?} writes {written:?} over {kept:?}");
                        }
                        course.moved(&range);
                    }
                    Next::Record => course.recorded(),
                    Next::Done => return,
                }
            }
        });
    }

    #[test]
    fn what_has_no_room_is_refused() {
        let same = (rows(2, 8), rows(2, 16));
        assert_eq!(Course::new(same, 160, 8, false, 0), Err(CourseError::NoRoom));
        assert!(Course::new(same, 160, 16, false, 0).is_ok());
        assert_eq!(Course::new(same, 160, 16, false, 16), Err(CourseError::Position { found: 16, unit: 32 }));
        assert!(Course::new(same, 160, 16, false, 352).is_err(), "beyond the end");
        let fewer = (rows(3, 8), rows(2, 8));
        for (shift, from) in [(0, 320), (7, 320), (0, 16)] {
            assert_eq!(
                Course::new(fewer, 160, shift, true, from),
                Err(CourseError::NoRoom),
                "{shift} {from}"
            );
        }
        assert!(Course::new(fewer, 160, 8, true, 320).is_ok());
        // More members need no room once a few rows have moved.
        let more = (rows(2, 8), rows(3, 8));
        assert_eq!(Course::new(more, 160, 0, false, 0), Err(CourseError::NoRoom));
        assert!(Course::new(more, 160, 0, false, 96).is_ok());
    }
}
