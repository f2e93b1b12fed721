//! What a write to rows of a stripe must read, rebuild and write: a pure function of what is known.
//!
//! | all needed blocks can be read | | fewest reads |
//! |---|---|---|
//! | RCW only | a written block is lost | new parity from all data |
//! | RMW only | another data block is lost | old parity, old and new data |
//! | both | | as the policy's RMW level says |
//! | neither | rebuild the lost data first | then RCW |

use crate::array::slots::SlotSet;
use crate::policy::{DegradedRows, RmwLevel};
use crate::units::Slot;

/// What is known of the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StripeView {
    /// Slots of data.
    pub data: SlotSet,
    /// Slot of P.
    pub p: Slot,
    /// Slot of Q, for RAID-6.
    pub q: Option<Slot>,
    /// Slots whose pages are wholly written anew.
    pub covered: SlotSet,
    /// Slots whose pages are written in part.
    pub partial: SlotSet,
    /// Slots whose present content is in the stripe cache.
    pub uptodate: SlotSet,
    /// Slots that cannot be read here: failed members, and those with an unreadable sector in these rows.
    pub lost: SlotSet,
    /// Slots that cannot be written: failed members.
    pub failed: SlotSet,
    /// A write journal is to have all parity, also that which cannot be written.
    pub is_journaled: bool,
}

/// How parity is brought up to date.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteMethod {
    /// Read-modify-write: from old parity, old data and new data.
    Rmw,
    /// Reconstruct-write: from all data.
    Rcw,
    /// Not at all: no parity slot can be written.
    NoParity,
}

/// What to do, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WritePlan {
    /// Slots to read into the stripe cache.
    pub read: SlotSet,
    /// Lost data slots to rebuild there from what was read.
    pub recover: SlotSet,
    /// How parity is computed.
    pub method: WriteMethod,
}

impl WritePlan {
    /// Nothing at all.
    pub const NOTHING: Self =
        Self { read: SlotSet::EMPTY, recover: SlotSet::EMPTY, method: WriteMethod::NoParity };

    /// Of a write of whole stripes: nothing is read, and parity is new if it can be written anywhere.
    pub const fn whole(has_parity: bool) -> Self {
        let method = if has_parity { WriteMethod::Rcw } else { WriteMethod::NoParity };
        Self { method, ..Self::NOTHING }
    }
}

/// The rows cannot be written, or read: more is lost than parity holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooMuchLost;

impl StripeView {
    /// The parity slots that are computed: those that can be written, or all for a write journal.
    pub fn parity(&self) -> SlotSet {
        let all = parity_slots(self.p, self.q);
        if self.is_journaled { all } else { all.minus(self.failed) }
    }

    /// What can be read and is not known.
    pub(super) fn left(&self) -> SlotSet {
        self.data.union(parity_slots(self.p, self.q)).minus(self.lost).minus(self.uptodate)
    }

    /// Whether a write reads all that is left of the rows, whatever it needs.
    pub(super) fn is_read_whole(&self, rows: DegradedRows) -> bool {
        let written = self.covered.union(self.partial);
        let unknown = self.lost.minus(self.uptodate);
        match rows {
            DegradedRows::Needed => false,
            _ if rows.are_read_for_any_write(self.q.is_some()) => !self.lost.is_empty(),
            // Of two that are lost, where parity is one of them or one is written, parity is made anew from all data.
            DegradedRows::WholeToWrite | DegradedRows::WholeToRebuild => {
                let anew = written.union(parity_slots(self.p, self.q)).and(unknown);
                let is_anew = self.lost.len() > 1 && !anew.is_empty();
                let rebuilt = self.data.minus(self.covered).and(unknown);
                !self.partial.and(unknown).is_empty() || is_anew && !rebuilt.is_empty()
            }
        }
    }

    /// What must be read to have these slots' content, and which of them must then be rebuilt.
    ///
    /// # Errors
    /// When they cannot be had.
    pub fn plan_fetch(&self, wanted: SlotSet) -> Result<(SlotSet, SlotSet), TooMuchLost> {
        let missing = wanted.minus(self.uptodate);
        if missing.and(self.lost).is_empty() {
            return Ok((missing, SlotSet::EMPTY));
        }
        // Every data block takes part in parity, so all lost ones are unknowns, wanted or not.
        let unknown = self.data.and(self.lost).minus(self.uptodate);
        let needed = unknown.len();
        let usable: SlotSet = [Some(self.p), self.q]
            .into_iter()
            .flatten()
            .filter(|s| self.uptodate.contains(*s) || !self.lost.contains(*s))
            .take(needed)
            .collect();
        if usable.len() < needed {
            return Err(TooMuchLost);
        }
        let read = self.data.union(usable).union(missing).minus(self.lost).minus(self.uptodate);
        Ok((read, unknown))
    }
}

/// P's slot and Q's.
pub(super) fn parity_slots(p: Slot, q: Option<Slot>) -> SlotSet {
    let mut set = SlotSet::one(p);
    if let Some(q) = q {
        set.insert(q);
    }
    set
}

/// Plans a write.
///
/// # Errors
/// When the old content that is needed cannot be had.
pub fn plan_write(view: &StripeView, rmw_level: RmwLevel) -> Result<WritePlan, TooMuchLost> {
    let parity = view.parity();
    if parity.is_empty() {
        return plan_anew(view);
    }
    let rcw = to_read(view, view.data.minus(view.covered));
    let rmw = to_read(view, view.covered.union(view.partial).union(parity));
    let prefer_rmw = match (rmw, rcw) {
        (Some(rmw), Some(rcw)) => rmw_level.prefers_rmw(rmw.len(), rcw.len()),
        (Some(_), None) => true,
        _ => false,
    };
    match rmw {
        Some(read) if prefer_rmw => Ok(WritePlan { read, recover: SlotSet::EMPTY, method: WriteMethod::Rmw }),
        _ => plan_anew(view),
    }
}

/// Plans a write as md does where parity is lost: it reads for RCW, though it has no use for it. None where nothing is lost of
/// parity, or data are lost, too.
pub(super) fn plan_past_lost_parity(view: &StripeView) -> Option<WritePlan> {
    if view.parity() == parity_slots(view.p, view.q) {
        return None;
    }
    let read = to_read(view, view.data.minus(view.covered))?;
    let method = if view.parity().is_empty() { WriteMethod::NoParity } else { WriteMethod::Rcw };
    Some(WritePlan { read, recover: SlotSet::EMPTY, method })
}

/// Plans a write whose parity is made from all data, never from what it was: RCW, lost data rebuilt first.
///
/// # Errors
/// When the old content that is needed cannot be had.
pub fn plan_anew(view: &StripeView) -> Result<WritePlan, TooMuchLost> {
    if view.parity().is_empty() {
        let (read, recover) = view.plan_fetch(view.partial)?;
        return Ok(WritePlan { read, recover, method: WriteMethod::NoParity });
    }
    let others = view.data.minus(view.covered);
    let (read, recover) = match to_read(view, others) {
        Some(read) => (read, SlotSet::EMPTY),
        None => view.plan_fetch(others)?,
    };
    Ok(WritePlan { read, recover, method: WriteMethod::Rcw })
}

/// What is to be read of slots whose content is needed, if all of it can be.
fn to_read(view: &StripeView, needed: SlotSet) -> Option<SlotSet> {
    let read = needed.minus(view.uptodate);
    read.and(view.lost).is_empty().then_some(read)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subsets(of: SlotSet) -> impl Iterator<Item = SlotSet> {
        let slots: Vec<Slot> = of.iter().collect();
        (0..1u32 << slots.len()).map(move |bits| {
            slots.iter().enumerate().filter(|(i, _)| bits >> i & 1 == 1).map(|(_, s)| *s).collect()
        })
    }

    /// Whether knowing these slots' old content determines that one's.
    fn determined(view: &StripeView, known: SlotSet, recover: SlotSet) -> bool {
        let parities = [Some(view.p), view.q].into_iter().flatten().filter(|s| known.contains(*s)).count();
        let unknown = view.data.minus(known);
        recover.minus(unknown).is_empty() && unknown == recover && unknown.len() <= parities
    }

    fn check(view: &StripeView, level: RmwLevel) {
        let plan = plan_write(view, level);
        let wanted = view.data.minus(view.covered).minus(view.uptodate);
        let unknown = view.data.and(view.lost).minus(view.uptodate);
        let both = SlotSet::one(view.p).union(view.q.map_or(SlotSet::EMPTY, SlotSet::one));
        let parities = both.minus(view.lost.minus(view.uptodate)).len();
        let hopeless = !wanted.and(view.lost).is_empty() && unknown.len() > parities;
        let Ok(plan) = plan else {
            assert!(hopeless, "{view:?} was given up");
            return;
        };
        assert!(plan.read.and(view.lost).is_empty(), "{view:?}: reads what is lost: {plan:?}");
        assert!(plan.read.and(view.uptodate).is_empty(), "{view:?}: reads what is known: {plan:?}");
        let known = view.uptodate.union(plan.read);
        assert!(plan.recover.is_empty() || determined(view, known, plan.recover), "{view:?}: {plan:?}");
        let known = known.union(plan.recover);
        let needed = match plan.method {
            WriteMethod::Rmw => view.covered.union(view.partial).union(view.parity()),
            WriteMethod::Rcw => view.data.minus(view.covered),
            WriteMethod::NoParity => {
                assert!(view.parity().is_empty());
                view.partial
            }
        };
        assert!(
            needed.minus(known).is_empty(),
            "{view:?}: does not know {:?}: {plan:?}",
            needed.minus(known)
        );
    }

    #[test]
    fn every_plan_of_small_stripes_knows_what_it_needs() {
        for (members, parities) in [(2u16, 1u16), (3, 1), (4, 1), (4, 2), (5, 2)] {
            let all = SlotSet::first(members);
            let p = Slot(members - parities);
            let q = (parities == 2).then(|| Slot(members - 1));
            let data = SlotSet::first(members - parities);
            for lost in subsets(all) {
                for covered in subsets(data) {
                    for partial in subsets(data.minus(covered)) {
                        for uptodate in subsets(all) {
                            if covered.union(partial).is_empty() {
                                continue;
                            }
                            for failed in [lost, SlotSet::EMPTY, lost.and(SlotSet::first(members / 2))] {
                                let view = StripeView {
                                    data,
                                    p,
                                    q,
                                    covered,
                                    partial,
                                    uptodate,
                                    lost,
                                    failed,
                                    is_journaled: false,
                                };
                                for level in [RmwLevel::Never, RmwLevel::Cheaper, RmwLevel::Prefer] {
                                    check(&view, level);
                                }
                            }
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn whole_stripes_are_planned_as_any_write() {
        let all = SlotSet::first(5);
        for lost in subsets(all) {
            for uptodate in subsets(all) {
                let (p, q) = (Slot(3), Some(Slot(4)));
                let (data, partial) = (SlotSet::first(3), SlotSet::EMPTY);
                let view = StripeView {
                    data,
                    p,
                    q,
                    covered: data,
                    partial,
                    uptodate,
                    lost,
                    failed: lost,
                    is_journaled: false,
                };
                for level in [RmwLevel::Never, RmwLevel::Cheaper, RmwLevel::Prefer] {
                    let whole = WritePlan::whole(!view.parity().is_empty());
                    assert_eq!(plan_write(&view, level), Ok(whole), "{view:?}");
                }
            }
        }
    }

    #[test]
    fn rows_that_md_reads_whole() {
        use DegradedRows::{Needed, WholeToRebuild, WholeToWrite};
        let slots = |slots: &[u16]| slots.iter().map(|s| Slot(*s)).collect::<SlotSet>();
        let (data, p, q) = (SlotSet::first(4), Slot(4), Slot(5));
        for (lost, covered, partial, of_raid6) in [
            (&[][..], &[0][..], &[][..], [false, false]),
            (&[0], &[0], &[], [false, true]),
            (&[0], &[], &[0], [true, true]),
            (&[0], &[], &[1], [false, true]),
            (&[4], &[], &[1], [false, true]),
            (&[0, 1], &[2], &[], [false, true]),
            (&[0, 1], &[0], &[], [true, true]),
            (&[0, 1], &[0, 1], &[], [false, true]),
            (&[0, 4], &[1], &[], [true, true]),
            (&[0, 4], &[0], &[], [false, true]),
            (&[4, 5], &[1], &[], [false, true]),
        ] {
            let (covered, partial, lost) = (slots(covered), slots(partial), slots(lost));
            let uptodate = SlotSet::EMPTY;
            let view = StripeView {
                data,
                p,
                q: Some(q),
                covered,
                partial,
                uptodate,
                lost,
                failed: lost,
                is_journaled: false,
            };
            let whole = [WholeToRebuild, WholeToWrite].map(|rows| view.is_read_whole(rows));
            assert_eq!((whole, view.is_read_whole(Needed)), (of_raid6, false), "{view:?}");
            assert_eq!(view.left(), SlotSet::first(6).minus(lost));
            if lost.len() < 2 && !lost.contains(q) {
                let raid5 = StripeView { q: None, ..view };
                let whole = [WholeToRebuild, WholeToWrite].map(|rows| raid5.is_read_whole(rows));
                assert_eq!(whole, [of_raid6[0]; 2], "{raid5:?}");
            }
        }
    }

    fn reads(members: u16, written: u16, level: RmwLevel) -> (WriteMethod, usize) {
        let view = StripeView {
            data: SlotSet::first(members - 1),
            p: Slot(members - 1),
            q: None,
            covered: SlotSet::first(written),
            partial: SlotSet::EMPTY,
            uptodate: SlotSet::EMPTY,
            lost: SlotSet::EMPTY,
            failed: SlotSet::EMPTY,
            is_journaled: false,
        };
        let plan = plan_write(&view, level).unwrap();
        (plan.method, plan.read.len())
    }

    #[test]
    fn reads_per_written_page_as_md_counts_them() {
        use WriteMethod::{Rcw, Rmw};
        let of_5: Vec<_> = (1..=4).map(|w| reads(5, w, RmwLevel::Cheaper)).collect();
        assert_eq!(of_5, [(Rmw, 2), (Rcw, 2), (Rcw, 1), (Rcw, 0)]);
        let of_4: Vec<_> = (1..=3).map(|w| reads(4, w, RmwLevel::Cheaper)).collect();
        assert_eq!(of_4, [(Rcw, 2), (Rcw, 1), (Rcw, 0)]);
        assert_eq!(reads(5, 1, RmwLevel::Never), (Rcw, 3));
        assert_eq!(reads(4, 1, RmwLevel::Prefer), (Rmw, 2));
        assert_eq!(reads(5, 4, RmwLevel::Prefer), (Rcw, 0));
    }
}
