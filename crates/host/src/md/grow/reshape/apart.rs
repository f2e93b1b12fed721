//! How far the copies of a RAID-10 may move with what is recorded: pure arithmetic.
//!
//! Rows of copies need not be full, so that old and new are told apart member by member: on each, what is written must end before
//! (backwards: begin behind) the first (last) sector that holds a copy of what has not moved. That is what the kernel's
//! `reshape_request` means, sector by sector in place of row by row.

use std::ops::Range;

use stripewise_engine::geometry::Raid10Shape;
use stripewise_engine::units::PAGE_SECTORS;

/// Where an array's copies lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Copies {
    pub(super) shape: Raid10Shape,
    /// Slots.
    pub(super) slots: u64,
    /// Sectors of a chunk.
    pub(super) chunk: u64,
}

impl Copies {
    const fn near(&self) -> u64 {
        self.shape.layout().near as u64
    }

    /// Sectors of a member that a row of the array takes.
    const fn row_sectors(&self) -> u64 {
        self.shape.layout().far as u64 * self.chunk
    }

    /// Chunks of the array that may lie in so many of its rows from one on, and some beside.
    const fn chunks(&self, rows: Range<u64>) -> Range<u64> {
        rows.start * self.slots / self.near()..(rows.end * self.slots).div_ceil(self.near())
    }

    /// Sectors of the array when so many of each member are used.
    pub(super) const fn sectors(&self, size: u64) -> u64 {
        size / self.row_sectors() * self.slots / self.near() * self.chunk
    }

    /// The row in which a chunk begins.
    const fn row_of(&self, chunk: u64) -> u64 {
        chunk * self.near() / self.slots
    }

    /// Each place of a sector: slot, and sector of its member.
    fn places(&self, sector: u64) -> impl Iterator<Item = (usize, u64)> {
        (0..self.shape.layout().copies()).map(move |copy| {
            let place = self.shape.place(sector, copy);
            (place.slot.index(), place.sector)
        })
    }
}

/// What moves from where to where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Apart {
    pub(super) old: Copies,
    pub(super) new: Copies,
    /// Sectors of the array that was.
    pub(super) old_sectors: u64,
}

impl Apart {
    /// Up to which sector the array may move, from a position on, when what lies from the recorded one on is needed. The data of each
    /// member move by `shift` towards its start.
    pub(super) fn limit(&self, recorded: u64, position: u64, end: u64, shift: u64) -> u64 {
        let needed = self.first_needed(recorded);
        let bounds: Vec<u64> = needed.iter().map(|first| first.saturating_add(shift)).collect();
        let least = bounds.iter().copied().min().unwrap_or(u64::MAX);
        if least == u64::MAX {
            return end;
        }
        // Whole rows before the first bound are clear; a chunk may begin in the last of them.
        let row = least / self.new.row_sectors();
        let first = self.new.chunks(row..row).start.saturating_sub(1).max(position / self.new.chunk);
        for chunk in first..end.div_ceil(self.new.chunk) {
            let start = chunk * self.new.chunk;
            let clear =
                self.new.places(start).map(|(slot, sector)| bounds[slot].saturating_sub(sector)).min();
            let clear = clear.unwrap_or(u64::MAX);
            if clear < self.new.chunk {
                let limit = start + clear;
                return (limit - limit % PAGE_SECTORS).clamp(position, end);
            }
        }
        end
    }

    /// The same from the end on: down to which sector, when what lies before the recorded one is needed. The data move towards the end
    /// of each member.
    pub(super) fn limit_backwards(&self, recorded: u64, position: u64, shift: u64) -> u64 {
        let needed = self.last_needed(recorded.min(self.old_sectors));
        let bounds: Vec<u64> = needed.iter().map(|last| last.saturating_sub(shift)).collect();
        let most = bounds.iter().copied().max().unwrap_or(0);
        let row = most.div_ceil(self.new.row_sectors());
        let end = self.new.chunks(row..row).end.min(position.div_ceil(self.new.chunk));
        for chunk in (0..end).rev() {
            let start = chunk * self.new.chunk;
            let kept = self.new.places(start).map(|(slot, sector)| bounds[slot].saturating_sub(sector)).max();
            let kept = kept.unwrap_or(0).min(self.new.chunk);
            if kept > 0 {
                return (start + kept).next_multiple_of(PAGE_SECTORS).min(position);
            }
        }
        0
    }

    /// Of each slot the first sector that holds something of the array that was from a sector on.
    fn first_needed(&self, from: u64) -> Vec<u64> {
        let old = &self.old;
        let mut needed = vec![u64::MAX; old.slots.max(self.new.slots) as usize];
        let first = from / old.chunk;
        let row = old.row_of(first);
        for chunk in first..old.chunks(row..row + 2).end {
            let sector = from.max(chunk * old.chunk);
            if sector >= self.old_sectors {
                break;
            }
            for (slot, place) in old.places(sector) {
                needed[slot] = needed[slot].min(place);
            }
        }
        needed
    }

    /// Of each slot the sector behind the last that holds something of the array before a sector.
    fn last_needed(&self, before: u64) -> Vec<u64> {
        let old = &self.old;
        let mut needed = vec![0; old.slots.max(self.new.slots) as usize];
        let Some(last) = before.checked_sub(1) else { return needed };
        let row = old.row_of(last / old.chunk);
        for chunk in old.chunks(row.saturating_sub(1)..row).start.saturating_sub(1)..=last / old.chunk {
            let end = before.min((chunk + 1) * old.chunk);
            for (slot, place) in old.places(end - 1) {
                needed[slot] = needed[slot].max(place + 1);
            }
        }
        needed
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::super::course::{Course, CourseError, Next};
    use super::*;
    use stripewise_engine::geometry::{Geometry, GeometrySpec, Shape};
    use stripewise_engine::level::{FarSets, Layout, Level, Raid10Layout};

    const SIZE: u64 = 192;

    fn copies(slots: u64, chunk: u64, near: u16, far: u16) -> Copies {
        let layout = Raid10Layout { near, far, offset: far > 1, far_sets: FarSets::Original };
        let spec = GeometrySpec {
            level: Level::Raid10,
            layout: Layout::Raid10(layout),
            chunk_sectors: chunk,
            member_sectors: vec![SIZE; slots as usize],
        };
        let geometry = Geometry::new(&spec).unwrap();
        let Shape::Raid10(shape) = geometry.shape() else { unreachable!() };
        Copies { shape: shape.clone(), slots, chunk }
    }

    /// Every pair of rows that is near each other, both ways, with the least that the kernel has them move and more.
    fn each(mut check: impl FnMut(&Apart, &mut Course, (u64, bool))) {
        for (before, after) in (2..11).flat_map(|slots| (2..11).map(move |other| (slots, other))) {
            for (near, far, then_near, then_far) in
                [(2, 1, 2, 1), (1, 2, 1, 2), (2, 1, 1, 2), (1, 2, 2, 1), (3, 1, 3, 1), (1, 3, 3, 1)]
            {
                if before.min(after) < u64::from(near * far) {
                    continue;
                }
                for (chunk, then) in [(8, 8), (8, 16), (16, 8), (8, 32), (32, 8), (16, 32)] {
                    let old = copies(before, chunk, near, far);
                    let new = copies(after, then, then_near, then_far);
                    let least = old.row_sectors().max(new.row_sectors());
                    let is_uneven = before == after && far != then_far && before % u64::from(near * far) != 0;
                    let least = if is_uneven { 2 * least } else { least };
                    let old_sectors = old.sectors(SIZE);
                    let is_fewer = after < before;
                    if !is_fewer && (Copies { slots: before, ..new.clone() }).sectors(SIZE) < old_sectors {
                        continue;
                    }
                    let apart = Apart { old, new, old_sectors };
                    for shift in [least, least + 8, 3 * least] {
                        let sizes = (SIZE, old_sectors);
                        if is_fewer {
                            let all = apart.new.sectors(SIZE);
                            let mut course =
                                Course::of_copies(apart.clone(), (SIZE, all), shift, true, all).unwrap();
                            check(&apart, &mut course, (shift, true));
                            continue;
                        }
                        let mut course = Course::of_copies(apart.clone(), sizes, shift, false, 0).unwrap();
                        check(&apart, &mut course, (shift, false));
                        if before == after {
                            let all = apart.new.sectors(SIZE);
                            let mut course =
                                Course::of_copies(apart.clone(), (SIZE, all), shift, true, all).unwrap();
                            check(&apart, &mut course, (shift, true));
                        }
                    }
                }
            }
        }
    }

    /// Page by page: every way comes to its end, and nothing is written over a copy of what the recorded position needs.
    #[test]
    fn copies_are_never_written_over_before_all_have_moved() {
        each(|apart, course, (shift, backwards)| {
            // Old data begin at sector `base` of a member.
            let base = 1_000_000;
            let new_base = if backwards { base + shift } else { base - shift };
            let pages = (0..apart.old_sectors).step_by(PAGE_SECTORS as usize);
            let held: HashMap<(usize, u64), u64> = pages
                .flat_map(|page| apart.old.places(page).map(move |(slot, at)| ((slot, base + at), page)))
                .collect();
            let mut recorded = course.position();
            for _ in 0..10_000 {
                match course.next(24) {
                    Next::Move(range) => {
                        for page in range.clone().step_by(PAGE_SECTORS as usize) {
                            for (slot, at) in apart.new.places(page) {
                                let lost = held.get(&(slot, new_base + at));
                                let is_needed =
                                    |old: &u64| if backwards { *old < recorded } else { *old >= recorded };
                                assert!(
                                    !lost.is_some_and(is_needed),
                                    "{course:?} writes {page} over {lost:?}, {recorded} is recorded"
                                );
                            }
                        }
                        course.moved(&range);
                    }
                    Next::Record => {
                        assert!(course.is_ahead(), "stuck: {course:?}");
                        recorded = course.position();
                        course.recorded();
                    }
                    Next::Done => return assert_eq!(course.done(), (SIZE, SIZE)),
                }
            }
            panic!("no end: {course:?}");
        });
    }

    #[test]
    fn a_position_is_any_page_of_what_moves() {
        let (old, new) = (copies(4, 16, 2, 1), copies(5, 16, 2, 1));
        let apart = Apart { old_sectors: old.sectors(SIZE), old, new };
        let at = |position| Course::of_copies(apart.clone(), (SIZE, 384), 16, false, position);
        assert_eq!(at(24).map(|course| course.position()), Ok(24));
        assert_eq!(at(20), Err(CourseError::Position { found: 20, unit: 8 }));
        assert_eq!(at(400).map(|course| course.next(1)), Ok(Next::Done), "Linux came further than it had to");
        assert_eq!(at(488), Err(CourseError::Position { found: 488, unit: 8 }));
        assert_eq!(Course::of_copies(apart, (SIZE, 384), 0, false, 0), Err(CourseError::NoRoom));
    }
}
