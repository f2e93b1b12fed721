//! What to read ahead: Linux's on-demand readahead, one state for each stream.
//!
//! | the page that is missing (or marked) | what is read |
//! |---|---|
//! | page 0, or the one after the stream's last | a first window: the read, rounded up and doubled or more |
//! | the end of the window, or its marked page | the next window: twice as long, four times while it is small |
//! | a marked page of another stream's window | a window behind what is cached |
//! | after a run of cached pages (by policy) | the read and as much again as is cached before it |
//! | any other | the read alone; the state stays as it was |
//!
//! A window's last part is read before it is needed: its first page carries a mark, and when a reader reaches
//! it the next window is read while the reader goes on.

/// Pages to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Window {
    /// First page.
    pub(super) start: u64,
    /// Pages.
    pub(super) count: u64,
    /// The page that starts the next window when a reader reaches it.
    pub(super) marked: Option<u64>,
}

/// The readahead of one stream (`file_ra_state`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Readahead {
    start: u64,
    size: u64,
    /// Pages at the window's end that are read before they are needed.
    ahead: u64,
    /// The last page the stream read.
    last: Option<u64>,
}

/// The first window of a stream that reads `count` pages at once: see `get_init_ra_size`.
fn first_size(count: u64, max: u64) -> u64 {
    let rounded = count.next_power_of_two();
    if rounded <= max / 32 {
        rounded * 4
    } else if rounded <= max / 4 {
        rounded * 2
    } else {
        max
    }
}

/// The window after one of `size` pages: see `get_next_ra_size`.
const fn next_size(size: u64, max: u64) -> u64 {
    if size < max / 16 {
        size * 4
    } else if size <= max / 2 {
        size * 2
    } else {
        max
    }
}

impl Readahead {
    /// Notes the last page of a read.
    pub(super) fn read(&mut self, page: u64) {
        self.last = Some(page);
    }

    /// Whether the stream's last read ended in this page.
    pub(super) fn ended_in(&self, page: u64) -> bool {
        self.last == Some(page)
    }

    /// A reader of `count` pages from `page` on finds the first missing. `cached_before` counts the cached pages
    /// directly before it, as far as the readahead.
    pub(super) fn missing(
        &mut self,
        page: u64,
        count: u64,
        max: u64,
        cached_before: impl FnOnce() -> u64,
    ) -> Window {
        if page == 0 {
            return self.first(page, count, max);
        }
        if self.continues(page) {
            return self.next(page, max);
        }
        if count > max || self.last.is_some_and(|last| page.wrapping_sub(last) <= 1) {
            return self.first(page, count, max);
        }
        let cached = cached_before();
        if cached > count {
            // A history from the very start of the volume speaks for a long stream.
            let history = if cached >= page { 2 * cached } else { cached };
            self.start = page;
            self.size = (history + count).min(max);
            self.ahead = 1;
            return self.window(page, max);
        }
        Window { start: page, count, marked: None }
    }

    /// A reader of `count` pages from `page` on finds the first marked. `missing_behind` finds the first page
    /// behind it that is not cached, as far as the readahead.
    pub(super) fn marked(
        &mut self,
        page: u64,
        count: u64,
        max: u64,
        missing_behind: impl FnOnce() -> Option<u64>,
    ) -> Option<Window> {
        if self.continues(page) {
            return Some(self.next(page, max));
        }
        let start = missing_behind().filter(|start| start - page <= max)?;
        self.start = start;
        self.size = next_size(start - page + count, max);
        self.ahead = self.size;
        Some(self.window(page, max))
    }

    const fn continues(&self, page: u64) -> bool {
        self.size > 0 && (page == self.start + self.size - self.ahead || page == self.start + self.size)
    }

    fn first(&mut self, page: u64, count: u64, max: u64) -> Window {
        self.start = page;
        self.size = first_size(count, max);
        self.ahead = if self.size > count { self.size - count } else { self.size };
        self.window(page, max)
    }

    fn next(&mut self, page: u64, max: u64) -> Window {
        self.start += self.size;
        self.size = next_size(self.size, max);
        self.ahead = self.size;
        self.window(page, max)
    }

    /// The window as it is read. One whose mark would be met at once grows by the next.
    fn window(&mut self, page: u64, max: u64) -> Window {
        if page == self.start && self.size == self.ahead {
            let more = next_size(self.size, max);
            if self.size + more <= max {
                self.ahead = more;
                self.size += more;
            } else {
                self.size = max;
                self.ahead = max / 2;
            }
        }
        let marked = (self.ahead > 0).then(|| self.start + self.size - self.ahead);
        Window { start: self.start, count: self.size, marked }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: u64 = 32;
    fn window(start: u64, count: u64, marked: u64) -> Window {
        Window { start, count, marked: Some(marked) }
    }

    #[test]
    fn a_sequential_stream_ramps_up_to_the_readahead() {
        let mut ra = Readahead::default();
        assert_eq!(ra.missing(0, 1, MAX, || 0), window(0, 4, 1));
        assert_eq!(ra.marked(1, 1, MAX, || None), Some(window(4, 8, 4)));
        assert_eq!(ra.marked(4, 1, MAX, || None), Some(window(12, 16, 12)));
        assert_eq!(ra.marked(12, 1, MAX, || None), Some(window(28, 32, 28)));
        assert_eq!(ra.marked(28, 1, MAX, || None), Some(window(60, 32, 60)), "and stays there");
    }

    #[test]
    fn a_random_read_reads_itself_and_leaves_the_stream_alone() {
        let mut ra = Readahead::default();
        ra.missing(0, 1, MAX, || 0);
        let before = ra;
        assert_eq!(ra.missing(500, 2, MAX, || 0), Window { start: 500, count: 2, marked: None });
        assert_eq!(ra, before);
    }

    #[test]
    fn a_second_read_in_sequence_begins_a_stream_anywhere() {
        let mut ra = Readahead::default();
        ra.missing(500, 2, MAX, || 0);
        ra.read(501);
        assert_eq!(ra.missing(502, 2, MAX, || 0), window(502, 4, 504));
    }

    #[test]
    fn a_read_longer_than_the_readahead_takes_a_full_window_with_a_mark_in_the_middle() {
        let mut ra = Readahead::default();
        assert_eq!(ra.missing(1000, 256, MAX, || 0), window(1000, 32, 1016));
    }

    #[test]
    fn cached_pages_before_a_read_speak_for_a_stream() {
        let mut ra = Readahead::default();
        assert_eq!(ra.missing(1000, 2, MAX, || 6), window(1000, 8, 1007));
        assert_eq!(Readahead::default().missing(1000, 2, MAX, || 2).marked, None);
    }

    #[test]
    fn a_mark_of_another_stream_reads_behind_what_is_cached() {
        let mut ra = Readahead::default();
        assert_eq!(ra.marked(100, 1, MAX, || Some(108)), Some(window(108, 18, 108)));
        assert_eq!(Readahead::default().marked(100, 1, MAX, || None), None);
    }
}
