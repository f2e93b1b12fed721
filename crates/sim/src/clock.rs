//! The virtual clock: what happens next, by time and then by the order in which it was asked for.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Something that happens at a point in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// The CPU has prepared a request: the engine takes it. Index into the requests in flight.
    Submit(u32),
    /// The CPU has completed a request: the workload is told.
    Complete(u32),
    /// A request failed; as `Complete`.
    CompleteError(u32),
    /// The workload asked to be called at this time.
    Wake,
    /// The oldest computation has ended.
    Computed,
    /// A copy between a request and cached pages has ended: its number.
    Copied(u32),
    /// The arm of this member's drive has finished what it was committed to, or a die its program.
    Arm(u32),
    /// This member's drive has read ahead as far as it would, and may write dirty data.
    ReadAheadFull(u32),
    /// This member's queue has answered something itself, or no longer keeps its drive idle.
    Queue(u32),
    /// A command's data have crossed the bus, or come to where they can: member and command.
    Transferred(u32, u8),
}

const KIND_BITS: u32 = 4;
const INDEX_BITS: u32 = 29;
const ORDER_BITS: u32 = 64 - INDEX_BITS;
const COMMAND_BITS: u32 = 8;

impl Event {
    /// The most members, requests in flight or commands of a drive the packed form takes.
    pub(crate) const INDEX_MAX: u32 = 1 << (INDEX_BITS - KIND_BITS - COMMAND_BITS);

    const fn pack(self) -> u64 {
        (match self {
            Self::Submit(id) => id << KIND_BITS,
            Self::Complete(id) => 1 | id << KIND_BITS,
            Self::CompleteError(id) => 2 | id << KIND_BITS,
            Self::Wake => 3,
            Self::Computed => 4,
            Self::Arm(member) => 5 | member << KIND_BITS,
            Self::ReadAheadFull(member) => 6 | member << KIND_BITS,
            Self::Copied(number) => 8 | number << KIND_BITS,
            Self::Queue(member) => 9 | member << KIND_BITS,
            Self::Transferred(member, command) => {
                7 | (command as u32) << KIND_BITS | member << (KIND_BITS + COMMAND_BITS)
            }
        }) as u64
    }

    const fn unpack(word: u64) -> Self {
        let word = word as u32 & ((1 << INDEX_BITS) - 1);
        let index = word >> KIND_BITS;
        match word & ((1 << KIND_BITS) - 1) {
            0 => Self::Submit(index),
            1 => Self::Complete(index),
            2 => Self::CompleteError(index),
            3 => Self::Wake,
            4 => Self::Computed,
            5 => Self::Arm(index),
            6 => Self::ReadAheadFull(index),
            8 => Self::Copied(index),
            9 => Self::Queue(index),
            _ => Self::Transferred(index >> COMMAND_BITS, (index & ((1 << COMMAND_BITS) - 1)) as u8),
        }
    }
}

/// Events in order of time, then of scheduling. An entry is one word of 128 bits: time, order, event.
#[derive(Debug, Default)]
pub(crate) struct Schedule {
    /// The first of all, unless that is in the heap: most events happen soon after they are asked for, and before all others.
    first: Option<u128>,
    heap: BinaryHeap<Reverse<u128>>,
    scheduled: u64,
}

impl Schedule {
    #[inline]
    pub(crate) fn at(&mut self, time_ns: u64, event: Event) {
        let low = (self.scheduled << INDEX_BITS) | event.pack();
        self.scheduled = (self.scheduled + 1) & ((1 << ORDER_BITS) - 1);
        let entry = u128::from(time_ns) << 64 | u128::from(low);
        if self.peek().is_some_and(|first| first < entry) {
            self.heap.push(Reverse(entry));
        } else if let Some(second) = self.first.replace(entry) {
            self.heap.push(Reverse(second));
        }
    }

    #[inline]
    pub(crate) fn next_time(&self) -> Option<u64> {
        self.peek().map(|entry| (entry >> 64) as u64)
    }

    #[inline]
    fn peek(&self) -> Option<u128> {
        self.first.or_else(|| self.heap.peek().map(|Reverse(entry)| *entry))
    }

    #[inline]
    pub(crate) fn pop(&mut self) -> Option<(u64, Event)> {
        let entry = self.first.take().or_else(|| self.heap.pop().map(|Reverse(entry)| entry))?;
        Some(((entry >> 64) as u64, Event::unpack(entry as u64)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_by_time_then_by_order_of_scheduling() {
        let mut schedule = Schedule::default();
        schedule.at(20, Event::Arm(3));
        schedule.at(10, Event::Transferred(383, 255));
        schedule.at(10, Event::Submit(7));
        schedule.at(20, Event::Complete(1));
        schedule.at(5, Event::Wake);
        let order: Vec<_> = std::iter::from_fn(|| schedule.pop()).collect();
        assert_eq!(
            order,
            [
                (5, Event::Wake),
                (10, Event::Transferred(383, 255)),
                (10, Event::Submit(7)),
                (20, Event::Arm(3)),
                (20, Event::Complete(1)),
            ]
        );
    }

    #[test]
    fn events_asked_for_meanwhile_take_their_places() {
        let mut schedule = Schedule::default();
        let mut random = crate::random::Random::new(3);
        let (mut waiting, mut asked) = (Vec::new(), 0);
        let mut now_ns = 0;
        for step in 0..2000 {
            for _ in 0..random.next_u64() % 3 {
                let time_ns = now_ns + random.next_u64() % 5;
                schedule.at(time_ns, Event::Submit(asked));
                waiting.push((time_ns, asked));
                asked += 1;
            }
            waiting.sort_unstable();
            assert_eq!(schedule.next_time(), waiting.first().map(|(time_ns, _)| *time_ns), "step {step}");
            let first = (!waiting.is_empty()).then(|| waiting.remove(0));
            assert_eq!(
                schedule.pop(),
                first.map(|(time_ns, id)| (time_ns, Event::Submit(id))),
                "step {step}"
            );
            now_ns = first.map_or(now_ns, |(time_ns, _)| time_ns);
        }
    }
}
