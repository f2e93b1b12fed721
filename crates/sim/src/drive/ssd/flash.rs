//! Dies and the channels they share.
//!
//! Pages lie on the dies in turn by page number, neighbours on different channels: what writing in order leaves
//! behind, and for random places as good as any other order. Nothing is kept for a page.

use crate::models::SsdModel;
use crate::reserved::Reserved;

#[derive(Clone, Copy, Debug, Default)]
struct Die {
    /// When it has done what it was asked for so far.
    free_ns: u64,
    programming: bool,
}

#[derive(Debug)]
pub(super) struct Flash {
    dies: Vec<Die>,
    channels: Vec<Reserved>,
    read_ns: u64,
    program_ns: u64,
    channel_byte_ps: u64,
    program_bytes: u64,
    /// The die that programs next, in turn, and when it may begin.
    next_die: usize,
    next_begin_ns: u64,
    /// Programs begin no closer than this: as many as may run at a time, evenly spread.
    spacing_ns: u64,
    busy_ns: u64,
}

impl Flash {
    pub(super) fn new(model: &SsdModel) -> Self {
        Self {
            dies: vec![Die::default(); model.dies as usize],
            channels: vec![Reserved::default(); model.channels as usize],
            read_ns: model.read_ns,
            program_ns: model.program_ns,
            channel_byte_ps: model.channel_byte_ps,
            program_bytes: model.program_bytes,
            next_die: 0,
            next_begin_ns: 0,
            spacing_ns: (model.program_ns + model.program_bytes * model.channel_byte_ps / 1000)
                / u64::from(model.programs_max),
            busy_ns: 0,
        }
    }

    /// Reads so many bytes of a page, not before `from_ns`; returns when the controller has them.
    pub(super) fn read(&mut self, now_ns: u64, from_ns: u64, page: u64, bytes: u64) -> u64 {
        let die = (page % self.dies.len() as u64) as usize;
        let begin_ns = from_ns.max(self.dies[die].free_ns);
        let crossed_ns = self.cross(now_ns, die, begin_ns + self.read_ns, bytes);
        self.dies[die].free_ns = crossed_ns;
        self.busy_ns += crossed_ns - begin_ns;
        crossed_ns
    }

    /// Programs the next die in turn that is not programming yet; returns it and when it has ended.
    pub(super) fn program(&mut self, now_ns: u64) -> (usize, u64) {
        while self.dies[self.next_die].programming {
            self.next_die = (self.next_die + 1) % self.dies.len();
        }
        let die = self.next_die;
        self.next_die = (die + 1) % self.dies.len();
        let begin_ns = now_ns.max(self.dies[die].free_ns).max(self.next_begin_ns);
        self.next_begin_ns = begin_ns + self.spacing_ns;
        let end_ns = self.cross(now_ns, die, begin_ns, self.program_bytes) + self.program_ns;
        self.dies[die] = Die { free_ns: end_ns, programming: true };
        self.busy_ns += end_ns - begin_ns;
        (die, end_ns)
    }

    /// A die has ended its program.
    pub(super) fn programmed(&mut self, die: usize) {
        self.dies[die].programming = false;
    }

    /// Time the dies have been at work, as a mean over all.
    pub(super) fn busy_ns(&self) -> u64 {
        self.busy_ns / self.dies.len() as u64
    }

    fn cross(&mut self, now_ns: u64, die: usize, from_ns: u64, bytes: u64) -> u64 {
        let channel = die % self.channels.len();
        self.channels[channel].take(now_ns, from_ns, bytes * self.channel_byte_ps / 1000, bytes).1
    }
}
