//! Which I/Os of the array a command answers: chains that tie commands to I/Os in flight.

use stripewise_engine::io::Tag;

/// The end of a chain; and of a piece that is all of its I/O.
pub(super) const NONE: u32 = u32::MAX;

/// The chains that tie commands to the I/Os of the array in flight. Shared by all queues.
#[derive(Debug, Default)]
pub(crate) struct Fanout {
    links: Vec<Link>,
    free_links: Vec<u32>,
    /// Of each I/O in several pieces, those not complete.
    left: Vec<u32>,
    free_left: Vec<u32>,
}

/// A piece of an I/O, in the chain of its request.
#[derive(Clone, Copy, Debug)]
struct Link {
    io: Tag,
    left: u32,
    next: u32,
}

/// A piece of an I/O: all of it, or one that counts in [`Fanout::left`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    io: Tag,
    /// [`NONE`] if it is all.
    left: u32,
}

impl Fanout {
    /// Takes note of an I/O in so many pieces.
    pub(super) fn begin(&mut self, io: Tag, pieces: u32) -> Piece {
        if pieces == 1 {
            return Piece { io, left: NONE };
        }
        let left = take(&mut self.left, &mut self.free_left, pieces);
        Piece { io, left }
    }

    pub(super) fn link(&mut self, of: Piece, next: u32) -> u32 {
        take(&mut self.links, &mut self.free_links, Link { io: of.io, left: of.left, next })
    }

    /// Completes every piece of a chain; the I/Os thereby complete are added to `done`.
    pub(super) fn complete(&mut self, chain: u32, done: &mut Vec<Tag>) {
        let mut at = chain;
        while at != NONE {
            let Link { io, left, next } = self.links[at as usize];
            self.free_links.push(at);
            if left == NONE || self.is_last(left) {
                done.push(io);
            }
            at = next;
        }
    }

    /// Whether with one more piece all of an I/O is complete.
    fn is_last(&mut self, index: u32) -> bool {
        let left = &mut self.left[index as usize];
        *left -= 1;
        let is_last = *left == 0;
        if is_last {
            self.free_left.push(index);
        }
        is_last
    }
}

/// Keeps a value in a free place of a table, or in a new one.
fn take<T>(table: &mut Vec<T>, free: &mut Vec<u32>, value: T) -> u32 {
    if let Some(index) = free.pop() {
        table[index as usize] = value;
        return index;
    }
    table.push(value);
    table.len() as u32 - 1
}
