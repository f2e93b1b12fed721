//! Rows that cannot be had any more, though no more members fail than the level survives: unreadable sectors beside them.

use stripewise_engine::io::{Flags, Op};
use stripewise_engine::level::Level;
use stripewise_engine::policy::Policy;
use stripewise_engine::units::{PAGE_SECTORS, SectorRange, Slot};

use super::array::ArrayPlan;
use super::scenario::{Scenario, Step};
use crate::faults::Fault;

/// Of each level with redundancy: a member dies when others have unreadable sectors, a page more than can be rebuilt, and
/// a spare takes its slot. The recovery must not call the page recovered.
pub fn lost_row_scenarios() -> Vec<Scenario> {
    let levels = [
        (Level::Raid1, 2, 1),
        (Level::Raid4, 3, 1),
        (Level::Raid5, 4, 1),
        (Level::Raid6, 5, 2),
        (Level::Raid10, 4, 1),
    ];
    levels.map(|(level, members, unreadable)| scenario(level, members, unreadable)).into()
}

fn scenario(level: Level, members: u16, unreadable: u16) -> Scenario {
    let array = ArrayPlan { spares: 1, ..ArrayPlan::small(level, members, Policy::stripewise()) };
    let sectors = array.geometry().expect("small arrays are possible").array_sectors();
    let request =
        |op, range| Step::Request { op, range, flags: Flags { sync: true, ..Flags::default() }, answers: 0 };
    let flush = request(Op::Flush, SectorRange::new(0, 0));
    // The stop empties the stripe cache.
    let mut steps = vec![request(Op::Write, SectorRange::new(0, sectors)), Step::Drain, Step::Stop];
    for device in 1..=unreadable {
        steps.push(Step::Fault(Fault::Latent { device, sector: 2 * PAGE_SECTORS, count: PAGE_SECTORS }));
    }
    // The flush finds out that the member is gone.
    steps.extend([Step::Kill(Slot(0)), flush, Step::Settle]);
    Scenario { seed: 1, array, steps }
}
