//! Cutting what a window has gathered into runs of rows that are alike, and starting them.

use super::Parity;
use super::log::Logs;
use super::op::{Kind, StripeOp};
use super::plan::parity_slots;
use super::single::Of;
use super::window::{Owned, Piece, Rows, share};
use crate::array::core::Core;
use crate::array::slots::SlotSet;
use crate::geometry::StripeMap;
use crate::io::ActionQueue;
use crate::mutation::{self, Mutation};
use crate::units::{PAGE_SECTORS, SectorRange};

/// Rows written, or read, alike: the same slots wholly, or the same one row in part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    rows: Rows,
    covered: SlotSet,
    partial: SlotSet,
}

/// What a window starts with.
struct Starting<'a> {
    index: u32,
    map: StripeMap,
    chosen: &'a [Piece],
    gate_open: bool,
    by_rows: bool,
}

/// How reads of different slots in the same rows go together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Together {
    /// Each is an operation of its own; they go on beside each other.
    Beside,
    /// Those that start at the same time are one operation: what one of them needs rebuilt is read once.
    Merged,
    /// One after another: a read failed here.
    Never,
}

impl Parity {
    /// Starts what waits in a window and whose rows are free. Writes that must read first start only if the
    /// gate is open (or their submitter's wait opens it, by policy); else they stay, on the delayed list.
    pub(super) fn start_runs(&mut self, core: &mut Core, out: &mut ActionQueue, index: u32, gate_open: bool) {
        let map = self.stripe_map(index);
        if gate_open && self.start_gathered_page(core, out, index, map) {
            return;
        }
        let mut chosen = self.spare.pop().unwrap_or_default();
        let together = self.together(core, index);
        self.choose(index, &map, together, &mut chosen);
        // An operation that ends at once must not free the window under the others.
        self.windows.get(index).gathering = true;
        let by_rows = self.goes_by_rows(core, index);
        let run = if by_rows || self.is_logged() { None } else { run_of_all(&map, &chosen) };
        if let Some(run) = run.filter(|run| self.alike(index, run.rows.0, run) == run.rows.1) {
            let mut op = self.empty_op(core, index, run.rows, Kind::Write, map);
            std::mem::swap(&mut op.pieces, &mut chosen);
            op.sort_pieces();
            op.covered = run.covered;
            self.start_or_delay(core, out, op, gate_open);
            return self.started(index, chosen);
        }
        for piece in chosen.iter().filter(|p| p.job || p.read && together != Together::Merged) {
            let kind = if piece.job { Kind::Job } else { Kind::Read };
            let (first, end) = piece.rows();
            let step = if by_rows { 1 } else { end - first };
            for row in (first..end).step_by(step as usize) {
                let rows = (row, row + step);
                let mut op = self.op(core, index, rows, kind, map, piece.clip(rows).into_iter());
                if together == Together::Beside && !piece.job {
                    op.shared = Some(map.data_slot(piece.data));
                }
                self.start(core, out, op);
            }
        }
        let mut runs = std::mem::take(&mut self.runs);
        if together == Together::Merged {
            cut(&map, &chosen, |p| p.read && !p.job, &mut self.cuts, &mut runs);
            for run in runs.drain(..) {
                let pieces = chosen.iter().filter(|p| p.read && !p.job).filter_map(|p| p.clip(run.rows));
                let op = self.op(core, index, run.rows, Kind::Read, map, pieces);
                self.start(core, out, op);
            }
        }
        cut(&map, &chosen, |p| !p.read, &mut self.cuts, &mut runs);
        let starting = Starting { index, map, chosen: &chosen, gate_open, by_rows };
        for run in runs.drain(..) {
            self.start_run(core, out, &starting, run);
        }
        self.runs = runs;
        // What was started or put back is counted anew, piece by piece as cut.
        for piece in chosen.drain(..) {
            core.part_ends(out, piece.request, Ok(()));
        }
        self.started(index, chosen);
    }

    /// What could start in a window has.
    fn started(&mut self, index: u32, spare: Vec<Piece>) {
        self.spare.push(spare);
        let window = self.windows.get(index);
        window.gathering = false;
        // Rows that such an operation left to those that are queued now.
        if window.active.is_empty() && !window.queue.is_empty() && !window.delayed {
            self.gather(index);
        }
        self.windows.close_if_free(index);
    }

    /// Starts what waits in a window if that is one page to be written that nothing stands in the way of.
    fn start_gathered_page(
        &mut self,
        core: &mut Core,
        out: &mut ActionQueue,
        index: u32,
        map: StripeMap,
    ) -> bool {
        let window = self.windows.get(index);
        let [piece] = window.queue[..] else { return false };
        let is_page = u64::from(piece.count) == PAGE_SECTORS && piece.is_whole_pages() && !piece.read;
        let is_alone = !window.by_rows && window.active.is_empty();
        if !is_page || !is_alone || core.policy.writes_fill_cache {
            return false;
        }
        let new = core.request_seg(piece.request, piece.sector, PAGE_SECTORS).buf;
        let of = Of::Request(piece.request);
        if !self.start_page(core, out, index, &map, &piece, (new, of)) {
            return false;
        }
        self.windows.get(index).queue.clear();
        true
    }

    /// The sectors of every member that a window stands for.
    fn sectors_of(&self, index: u32) -> SectorRange {
        let sectors = self.windows.rows * PAGE_SECTORS;
        SectorRange::new(self.windows.number(index) * sectors, sectors)
    }

    /// Whether each row of a window is worked on by itself: one of them could not be read, or written.
    fn goes_by_rows(&mut self, core: &Core, index: u32) -> bool {
        self.windows.get(index).by_rows || core.has_bad_among(self.sectors_of(index))
    }

    /// How reads of the same rows of a window go together.
    fn together(&mut self, core: &Core, index: u32) -> Together {
        let has_reads = self.windows.get(index).queue.iter().any(|p| p.read);
        if !has_reads || self.goes_by_rows(core, index) {
            Together::Never
        } else if core.lost(self.sectors_of(index).end()).is_empty() {
            Together::Beside
        } else {
            Together::Merged
        }
    }

    /// Takes out of a window's queue what can start: whose rows no operation owns and nothing before it in
    /// the queue waits for. Writes to the same rows go together, and reads of different slots.
    fn choose(&mut self, index: u32, map: &StripeMap, together: Together, chosen: &mut Vec<Piece>) {
        let window = self.windows.get(index);
        if window.active.is_empty() && window.queue.iter().all(|p| !p.read) {
            chosen.append(&mut window.queue);
            return;
        }
        let mut kept = 0;
        for i in 0..window.queue.len() {
            let piece = window.queue[i];
            let rows = piece.rows();
            let is_read = piece.read && !piece.job;
            let is_shared = is_read && together == Together::Beside;
            let shared = is_shared.then(|| map.data_slot(piece.data));
            let wanted = Owned { rows, shared };
            let goes_with = |p: &Piece| {
                let reads = is_read && p.read && !p.job;
                !p.read && !piece.read || reads && p.data != piece.data && together != Together::Never
            };
            let blocked = window
                .active
                .iter()
                .any(|o| o.excludes(&wanted) && !mutation::is(Mutation::DropRowOwnership))
                || window.queue[..kept].iter().any(|p| share(p.rows(), rows))
                || chosen.iter().any(|p| share(p.rows(), rows) && !goes_with(p));
            if blocked {
                window.queue[kept] = piece;
                kept += 1;
            } else {
                chosen.push(piece);
            }
        }
        window.queue.truncate(kept);
    }

    #[inline]
    pub(super) fn stripe_map(&self, index: u32) -> StripeMap {
        self.shape.stripe_at(self.windows.number(index) * self.windows.sectors())
    }

    /// An operation on pieces, each counted as a part of its request. Its memory was another's before.
    pub(super) fn op(
        &mut self,
        core: &mut Core,
        window: u32,
        rows: Rows,
        kind: Kind,
        map: StripeMap,
        from: impl Iterator<Item = Piece>,
    ) -> Box<StripeOp> {
        let mut op = self.empty_op(core, window, rows, kind, map);
        op.pieces.extend(from);
        op.sort_pieces();
        for piece in &op.pieces {
            core.part_begins(piece.request);
        }
        op
    }

    /// An operation without pieces.
    fn empty_op(
        &mut self,
        core: &Core,
        window: u32,
        rows: Rows,
        kind: Kind,
        map: StripeMap,
    ) -> Box<StripeOp> {
        let mut op = self.spare_ops.pop().unwrap_or_else(|| Box::new(StripeOp::empty()));
        op.set_up(window, rows, kind, map);
        op.data = SlotSet::first(core.geometry.raid_disks());
        op.data.remove(map.p);
        map.q.iter().for_each(|q| op.data.remove(*q));
        if kind == Kind::Write && self.journal.is_some() {
            op.for_journal = parity_slots(map.p, map.q);
        }
        let first_row = self.windows.number(window) * self.windows.rows + u64::from(rows.0);
        op.range = SectorRange::new(first_row * PAGE_SECTORS, u64::from(rows.1 - rows.0) * PAGE_SECTORS);
        op
    }

    /// Starts a run, cut further where the cache holds different slots for different rows, and to what a log takes.
    fn start_run(&mut self, core: &mut Core, out: &mut ActionQueue, starting: &Starting<'_>, run: Run) {
        let index = starting.index;
        let mut first = run.rows.0;
        while first < run.rows.1 {
            let alike = if starting.by_rows { first + 1 } else { self.alike(index, first, &run) };
            let end = alike.min(first.saturating_add(self.logged_rows_max(core)));
            let rows = (first, end);
            first = rows.1;
            let pieces = starting.chosen.iter().filter_map(|p| p.clip(rows));
            let mut op = self.op(core, index, rows, Kind::Write, starting.map, pieces);
            (op.covered, op.partial) = (run.covered, run.partial);
            self.keep_neighbours(&mut op);
            self.start_or_delay(core, out, op, starting.gate_open);
        }
    }

    /// Rows that an operation may have, by what a log takes.
    fn logged_rows_max(&self, core: &Core) -> u32 {
        let of_logs = self.logs.as_ref().map_or(u32::MAX, Logs::rows_max);
        let of_journal = self.journal.as_ref().map(|journal| journal.rows_max(core.geometry.raid_disks()));
        of_logs.min(of_journal.unwrap_or(u32::MAX))
    }

    /// Starts a write, or has it wait on the delayed list if it must read and may not.
    fn start_or_delay(&mut self, core: &mut Core, out: &mut ActionQueue, op: Box<StripeOp>, gate_open: bool) {
        let waited_for = core.policy.sync_writes_skip_delay && op.pieces.iter().any(|p| p.sync);
        if gate_open || waited_for || !self.must_read(core, &op) {
            return self.start(core, out, op);
        }
        let window = self.windows.get(op.window);
        window.queue.extend_from_slice(&op.pieces);
        if !window.delayed {
            window.delayed = true;
            self.delayed.push(op.window);
        }
        self.recycle(op);
    }

    /// The end of the rows from `first` on for which the cache holds the same slots; all of them if the
    /// whole stripe is written, when it does not matter.
    fn alike(&mut self, index: u32, first: u32, run: &Run) -> u32 {
        if run.covered.len() == usize::from(self.shape.data_disks()) {
            return run.rows.1;
        }
        let entries = &self.windows.get(index).entries;
        let uptodate = self.cache.uptodate(entries[first as usize]);
        (first + 1..run.rows.1)
            .find(|row| self.cache.uptodate(entries[*row as usize]) != uptodate)
            .unwrap_or(run.rows.1)
    }

    pub(super) fn recycle(&mut self, op: Box<StripeOp>) {
        self.spare_ops.push(op);
    }
}

/// The one run of pieces that are all written to the same whole rows: one of them alone, most often, or a whole stripe.
fn run_of_all(map: &StripeMap, pieces: &[Piece]) -> Option<Run> {
    let &[first, ref others @ ..] = pieces else { return None };
    let is_alike = |p: &Piece| !p.read && (p.start, p.count) == (first.start, first.count);
    if first.read || !first.is_whole_pages() || !others.iter().all(is_alike) {
        return None;
    }
    let covered = pieces.iter().map(|p| map.data_slot(p.data)).collect();
    Some(Run { rows: first.rows(), covered, partial: SlotSet::EMPTY })
}

/// Cuts the pieces meant into runs of rows in ascending order.
fn cut(
    map: &StripeMap,
    pieces: &[Piece],
    is_meant: impl Fn(&Piece) -> bool + Copy,
    cuts: &mut Vec<u32>,
    runs: &mut Vec<Run>,
) {
    let page = PAGE_SECTORS as u32;
    cuts.clear();
    for piece in pieces.iter().filter(|p| is_meant(p)) {
        let rows = piece.rows();
        cuts.extend([rows.0, rows.1]);
        if !piece.start.is_multiple_of(page) {
            cuts.push(rows.0 + 1);
        }
        if !piece.end().is_multiple_of(page) {
            cuts.push(rows.1 - 1);
        }
    }
    cuts.sort_unstable();
    cuts.dedup();
    for between in cuts.windows(2) {
        let run = coverage(map, pieces, is_meant, (between[0], between[1]));
        match runs.last_mut() {
            Some(last)
                if last.rows.1 == run.rows.0
                    && last.covered == run.covered
                    && last.partial.is_empty()
                    && run.partial.is_empty() =>
            {
                last.rows.1 = run.rows.1;
            }
            _ if run.covered.is_empty() && run.partial.is_empty() => {}
            _ => runs.push(run),
        }
    }
}

/// Which slots the pieces cover in rows between two cuts. Their bytes do not overlap, so that a slot is
/// wholly covered if the sectors add up.
fn coverage(map: &StripeMap, pieces: &[Piece], is_meant: impl Fn(&Piece) -> bool + Copy, rows: Rows) -> Run {
    let whole = (rows.1 - rows.0) * PAGE_SECTORS as u32;
    let mut run = Run { rows, covered: SlotSet::EMPTY, partial: SlotSet::EMPTY };
    for piece in pieces.iter().filter(|p| is_meant(p)).filter_map(|p| p.clip(rows)) {
        let slot = map.data_slot(piece.data);
        if piece.count == whole {
            run.covered.insert(slot);
        } else {
            run.partial.insert(slot);
        }
    }
    for slot in run.partial.iter() {
        let of_slot = |p: &Piece| is_meant(p) && map.data_slot(p.data) == slot;
        let sectors: u32 =
            pieces.iter().filter(|p| of_slot(p)).filter_map(|p| p.clip(rows)).map(|p| p.count).sum();
        if sectors == whole {
            run.partial.remove(slot);
            run.covered.insert(slot);
        }
    }
    run
}

#[cfg(test)]
mod tests {
    use crate::geometry::GeometrySpec;
    use crate::io::{Action, ActionQueue, Flags, Input, MemberIo, Op, Request, RequestId};
    use crate::level::{Layout, Level, ParityLayout};
    use crate::policy::Policy;
    use crate::units::{Instant, SectorRange, Slot};
    use crate::volume::{Volume, VolumeConfig};

    /// A RAID-5 of four members with 64K chunks, whose reads go through the stripe cache.
    fn volume(failed: Vec<Slot>) -> Volume {
        let geometry = GeometrySpec {
            level: Level::Raid5,
            layout: Layout::Parity(ParityLayout::LeftSymmetric),
            chunk_sectors: 128,
            member_sectors: vec![1 << 16; 4],
        };
        let config = VolumeConfig::new(geometry, Policy::linux_2_6_18());
        Volume::new(&VolumeConfig { failed, ..config }).unwrap()
    }

    /// What the members are asked when so much is read.
    fn read(volume: &mut Volume, id: u32, start: u64, count: u64) -> Vec<MemberIo> {
        let mut out = ActionQueue::default();
        let range = SectorRange::new(start, count);
        let request = Request { id: RequestId(id), op: Op::Read, range, flags: Flags::default() };
        volume.handle(Instant::ZERO, Input::Request(request), &mut out);
        volume.check_invariants();
        let ios = out.actions.iter().filter_map(|a| if let Action::Io(io) = a { Some(*io) } else { None });
        ios.collect()
    }

    fn members(ios: &[MemberIo]) -> Vec<usize> {
        let mut members: Vec<usize> = ios.iter().map(|io| io.member.index()).collect();
        members.sort_unstable();
        members
    }

    #[test]
    fn a_read_of_whole_stripes_asks_all_members_at_once() {
        let mut volume = volume(Vec::new());
        let ios = read(&mut volume, 0, 0, 768);
        assert_eq!(members(&ios), [0, 0, 1, 1, 2, 3], "six chunks on four members");
        assert!(ios.iter().all(|io| io.range.count == 128));
    }

    #[test]
    fn a_read_need_not_wait_for_another_of_the_same_stripe() {
        let mut volume = volume(Vec::new());
        assert_eq!(members(&read(&mut volume, 0, 0, 128)), [0]);
        assert_eq!(members(&read(&mut volume, 1, 128, 128)), [1]);
        assert!(read(&mut volume, 2, 64, 64).is_empty(), "of the same chunk it does");
    }

    #[test]
    fn a_degraded_read_of_a_stripe_reads_every_other_member_once() {
        let mut volume = volume(vec![Slot(1)]);
        assert_eq!(members(&read(&mut volume, 0, 0, 384)), [0, 2, 3], "two chunks and the parity");
    }
}
