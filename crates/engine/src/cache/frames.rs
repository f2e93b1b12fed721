//! The frames: where pages are kept, in what state, and which is given up first.
//!
//! Two lists as Linux's: a page enters the inactive list, the second access moves it to the active one, and
//! what is given up is the clean, unused page at the inactive list's end. The active list feeds the inactive
//! one when it has become too long. A page met at the end that cannot be given up is set aside, and comes back when it can
//! be: to the end if it was written back, as `folio_rotate_reclaimable` has it, else to the head. So each page is
//! met once for each time that it is used, however many are dirty.

use super::policy::InactiveLow;

/// No frame.
const NONE: u32 = u32::MAX;

/// What a frame holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holds {
    /// No page.
    Nothing,
    /// A page whose bytes are being read.
    Reading,
    /// A page as it is on the array.
    Clean,
    /// A page newer than on the array. `fresh` until its first bytes, which cover it whole, have come.
    Dirty { fresh: bool },
    /// A page that is being written back; its bytes must not change.
    WritingBack,
}

/// A frame. Copies to and from it keep its page where it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    pub(super) page: u64,
    previous: u32,
    next: u32,
    /// Copies from it under way.
    pub(super) readers: u32,
    /// Copies to it under way.
    pub(super) writers: u32,
    pub(super) holds: Holds,
    list: ListName,
    is_referenced: bool,
    /// A reader that reaches it starts the next readahead window.
    pub(super) is_marked: bool,
    /// A flush waits for the copies to it: no new one starts.
    pub(super) is_wanted: bool,
}

impl Frame {
    const fn is_reclaimable(&self) -> bool {
        matches!(self.holds, Holds::Clean) && self.readers == 0 && self.writers == 0
    }

    /// Whether its bytes can be read.
    pub(super) const fn is_readable(&self) -> bool {
        matches!(self.holds, Holds::Clean | Holds::Dirty { fresh: false } | Holds::WritingBack)
    }

    /// Whether a copy to it may start.
    pub(super) const fn is_writable(&self) -> bool {
        matches!(self.holds, Holds::Clean | Holds::Dirty { fresh: false }) && !self.is_wanted
    }
}

/// Which list a page is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ListName {
    Inactive,
    Active,
    /// Inactive, and could not be given up when it was met.
    Aside,
}

#[derive(Clone, Copy, Debug)]
struct List {
    head: u32,
    tail: u32,
    count: u32,
}

const EMPTY: List = List { head: NONE, tail: NONE, count: 0 };

/// The frames of a cache.
#[derive(Debug)]
pub(super) struct Frames {
    table: Vec<Frame>,
    /// Frames there may be.
    limit: u32,
    free: Vec<u32>,
    /// By name.
    lists: [List; 3],
    reclaimable: u32,
    /// The active list may be this many times as long as the inactive one.
    active_share: u32,
    /// How often a page was put into a list.
    #[cfg(test)]
    moves: u64,
}

impl Frames {
    pub(super) fn new(limit: u32, inactive_low: InactiveLow) -> Self {
        let active_share = match inactive_low {
            InactiveLow::ShorterThanActive => 1,
            InactiveLow::BelowSquareRoot => {
                let gib = u64::from(limit) >> 18;
                if gib == 0 { 1 } else { (10 * gib).isqrt() as u32 }
            }
        };
        Self {
            table: Vec::new(),
            limit,
            free: Vec::new(),
            lists: [EMPTY; 3],
            reclaimable: 0,
            active_share,
            #[cfg(test)]
            moves: 0,
        }
    }

    pub(super) fn get(&self, frame: u32) -> &Frame {
        &self.table[frame as usize]
    }

    /// Where a frame's state is: not looked at.
    pub(super) fn address(&self, frame: u32) -> Option<*const u8> {
        self.table.get(frame as usize).map(|at| std::ptr::from_ref(at).cast())
    }

    /// Changes a frame's state, counting what can be given up.
    pub(super) fn change<R>(&mut self, frame: u32, change: impl FnOnce(&mut Frame) -> R) -> R {
        let at = &mut self.table[frame as usize];
        let before = at.is_reclaimable();
        let was_written_back = at.holds == Holds::WritingBack;
        let result = change(at);
        let after = at.is_reclaimable();
        let is_aside = at.list == ListName::Aside;
        self.reclaimable += u32::from(after);
        self.reclaimable -= u32::from(before);
        if is_aside && after {
            self.unlink(frame);
            self.table[frame as usize].list = ListName::Inactive;
            if was_written_back {
                self.push_last(frame);
            } else {
                self.push(frame);
            }
        }
        result
    }

    /// Whether a page would find a frame.
    pub(super) const fn is_available(&self) -> bool {
        self.reclaimable > 0 || !self.free.is_empty() || self.table.len() < self.limit as usize
    }

    /// Pages held.
    pub(super) const fn pages(&self) -> u32 {
        self.inactive() + self.list(ListName::Active).count
    }

    /// Pages that are not active.
    const fn inactive(&self) -> u32 {
        self.list(ListName::Inactive).count + self.list(ListName::Aside).count
    }

    const fn list(&self, name: ListName) -> &List {
        &self.lists[name as usize]
    }

    /// Finds a frame for a page, at the head of the inactive list. Answers it and the page given up for it;
    /// nothing if every page is in use or dirty.
    pub(super) fn take(&mut self, page: u64, holds: Holds) -> Option<(u32, Option<u64>)> {
        let (frame, evicted) = if let Some(frame) = self.free.pop() {
            (frame, None)
        } else if (self.table.len() as u32) < self.limit {
            self.table.push(Frame {
                page,
                previous: NONE,
                next: NONE,
                readers: 0,
                writers: 0,
                holds: Holds::Nothing,
                list: ListName::Inactive,
                is_referenced: false,
                is_marked: false,
                is_wanted: false,
            });
            (self.table.len() as u32 - 1, None)
        } else {
            let frame = self.reclaim()?;
            let evicted = self.get(frame).page;
            self.unlink(frame);
            (frame, Some(evicted))
        };
        self.change(frame, |f| {
            f.page = page;
            f.holds = holds;
            f.list = ListName::Inactive;
            f.is_referenced = false;
            f.is_marked = false;
            f.is_wanted = false;
        });
        self.push(frame);
        Some((frame, evicted))
    }

    /// Forgets the page of a frame that nothing uses.
    pub(super) fn release(&mut self, frame: u32) {
        let at = *self.get(frame);
        assert!(at.readers == 0 && at.writers == 0 && !at.is_wanted, "{at:?} is in use");
        self.unlink(frame);
        self.change(frame, |f| f.holds = Holds::Nothing);
        self.free.push(frame);
    }

    /// Notes an access: the second one makes a page active.
    pub(super) fn touch(&mut self, frame: u32) {
        let at = &mut self.table[frame as usize];
        if !at.is_referenced {
            at.is_referenced = true;
        } else if at.list != ListName::Active {
            self.move_to(frame, ListName::Active);
        }
    }

    /// The page to give up: clean and unused, from the inactive list's end.
    fn reclaim(&mut self) -> Option<u32> {
        if self.reclaimable == 0 {
            return None;
        }
        loop {
            self.balance();
            loop {
                let frame = self.list(ListName::Inactive).tail;
                if frame == NONE {
                    break;
                }
                if self.get(frame).is_reclaimable() {
                    return Some(frame);
                }
                self.unlink(frame);
                self.table[frame as usize].list = ListName::Aside;
                self.push(frame);
            }
            // Whatever can be given up is active.
            self.deactivate();
        }
    }

    /// Moves pages from the active list's end while it is too long.
    fn balance(&mut self) {
        while self.list(ListName::Active).count > self.inactive().saturating_mul(self.active_share) {
            self.deactivate();
        }
    }

    fn deactivate(&mut self) {
        let frame = self.list(ListName::Active).tail;
        assert_ne!(frame, NONE, "a page that can be given up is in one of the lists");
        self.move_to(frame, ListName::Inactive);
    }

    /// Moves a page to the head of another list, where it counts as not looked at since.
    fn move_to(&mut self, frame: u32, list: ListName) {
        self.unlink(frame);
        let at = &mut self.table[frame as usize];
        (at.list, at.is_referenced) = (list, false);
        self.push(frame);
    }

    fn push(&mut self, frame: u32) {
        #[cfg(test)]
        {
            self.moves += 1;
        }
        let list = &mut self.lists[self.table[frame as usize].list as usize];
        let head = std::mem::replace(&mut list.head, frame);
        list.count += 1;
        if head == NONE {
            list.tail = frame;
        } else {
            self.table[head as usize].previous = frame;
        }
        let at = &mut self.table[frame as usize];
        (at.previous, at.next) = (NONE, head);
    }

    fn push_last(&mut self, frame: u32) {
        let list = &mut self.lists[self.table[frame as usize].list as usize];
        let tail = std::mem::replace(&mut list.tail, frame);
        list.count += 1;
        if tail == NONE {
            list.head = frame;
        } else {
            self.table[tail as usize].next = frame;
        }
        let at = &mut self.table[frame as usize];
        (at.previous, at.next) = (tail, NONE);
    }

    fn unlink(&mut self, frame: u32) {
        let Frame { previous, next, list, .. } = *self.get(frame);
        let list = &mut self.lists[list as usize];
        list.count -= 1;
        if previous == NONE {
            list.head = next;
        }
        if next == NONE {
            list.tail = previous;
        }
        if previous != NONE {
            self.table[previous as usize].next = next;
        }
        if next != NONE {
            self.table[next as usize].previous = previous;
        }
    }

    pub(super) fn check_invariants(&self) {
        let mut reclaimable = 0;
        for name in [ListName::Inactive, ListName::Active, ListName::Aside] {
            let list = self.list(name);
            let (mut frame, mut previous, mut count) = (list.head, NONE, 0);
            while frame != NONE {
                let at = self.get(frame);
                assert_eq!((at.previous, at.list), (previous, name), "frame {frame} is where it says");
                assert!(
                    name != ListName::Aside || !at.is_reclaimable(),
                    "what can be given up is in a list that is looked at"
                );
                assert_ne!(at.holds, Holds::Nothing, "listed frames hold pages");
                assert!(
                    at.writers == 0 || matches!(at.holds, Holds::Dirty { .. }),
                    "written pages are dirty"
                );
                reclaimable += u32::from(at.is_reclaimable());
                count += 1;
                (previous, frame) = (frame, at.next);
            }
            assert_eq!((list.tail, list.count), (previous, count), "a list's end and length");
        }
        assert_eq!(self.reclaimable, reclaimable, "pages that can be given up are counted");
        assert_eq!(self.pages() as usize + self.free.len(), self.table.len(), "a frame is listed or free");
        assert!(self.table.len() <= self.limit as usize, "no more memory than allowed");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(count: u32) -> Frames {
        let mut frames = Frames::new(count, InactiveLow::ShorterThanActive);
        for page in 0..u64::from(count) {
            assert_eq!(frames.take(page, Holds::Clean), Some((page as u32, None)));
        }
        frames
    }

    #[test]
    fn pages_used_twice_outlive_a_scan() {
        let mut frames = filled(8);
        for frame in 0..3 {
            frames.touch(frame);
            frames.touch(frame);
        }
        for page in 100..200 {
            let (frame, evicted) = frames.take(page, Holds::Clean).unwrap();
            assert!(frame >= 3 && evicted.is_some_and(|p| p > 2), "page {evicted:?} was given up");
            frames.check_invariants();
        }
    }

    #[test]
    fn dirty_pages_and_pages_in_use_are_not_given_up() {
        let mut frames = filled(4);
        frames.change(0, |f| f.holds = Holds::Dirty { fresh: false });
        frames.change(1, |f| f.readers = 1);
        frames.change(2, |f| f.holds = Holds::WritingBack);
        assert_eq!(frames.take(10, Holds::Reading), Some((3, Some(3))));
        assert_eq!(frames.take(11, Holds::Reading), None);
        frames.change(1, |f| f.readers = 0);
        assert_eq!(frames.take(11, Holds::Reading), Some((1, Some(1))));
        frames.check_invariants();
    }

    #[test]
    fn what_was_set_aside_is_given_up_first_once_it_is_written_back_and_last_once_it_is_unused() {
        let mut frames = filled(5);
        for (frame, holds) in
            [(0, Holds::WritingBack), (1, Holds::Reading), (2, Holds::Dirty { fresh: false })]
        {
            frames.change(frame, |f| f.holds = holds);
        }
        assert_eq!(frames.take(10, Holds::Clean), Some((3, Some(3))));
        for frame in [2, 1, 0] {
            frames.change(frame, |f| f.holds = Holds::Clean);
            frames.check_invariants();
        }
        let given_up: Vec<_> =
            (11..15).map(|page| frames.take(page, Holds::Clean).unwrap().1.unwrap()).collect();
        assert_eq!(given_up, [0, 4, 10, 2]);
    }

    #[test]
    fn giving_up_a_page_costs_the_same_however_many_are_dirty() {
        let mut frames = Frames::new(10 << 18, InactiveLow::BelowSquareRoot);
        frames.limit = 20_000;
        for page in 0..20_000 {
            let (frame, _) = frames.take(page, Holds::Clean).unwrap();
            frames.touch(frame);
            frames.touch(frame);
        }
        frames.moves = 0;
        for page in 20_000..30_000 {
            frames.take(page, Holds::Dirty { fresh: false }).unwrap();
        }
        assert!(frames.moves < 4 * 10_000, "{}", frames.moves);
        frames.check_invariants();
    }

    #[test]
    fn a_long_active_list_gives_way() {
        let mut frames = filled(6);
        for frame in 0..6 {
            frames.touch(frame);
            frames.touch(frame);
        }
        assert_eq!(frames.take(10, Holds::Clean), Some((0, Some(0))), "the first to become active");
        frames.check_invariants();
    }
}
