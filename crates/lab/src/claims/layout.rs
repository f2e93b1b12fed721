//! Where the block groups of an ext file system begin on an array.

use serde::Deserialize;
use stripewise_engine::geometry::{Geometry, GeometrySpec};
use stripewise_engine::level::{Layout, Level};
use stripewise_engine::units::SECTOR_BYTES;

use super::test::Found;

/// On how many members of a RAID-5 the groups begin.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GroupStarts {
    /// Members.
    members: u16,
    /// Chunk in KiB.
    chunk_kib: u64,
    /// Size of a group in MiB.
    group_mib: u64,
    /// Members on which groups begin, all equally often.
    on: usize,
}

/// Groups looked at: a multiple of every plausible number of members.
const GROUPS: u64 = 2520;

impl GroupStarts {
    pub(super) fn run(&self) -> Found {
        match self.histogram() {
            Ok(counts) => {
                let used: Vec<u64> = counts.iter().copied().filter(|c| *c > 0).collect();
                let is_even = used.iter().all(|c| *c == used[0]);
                let here = format!("groups begin on {} of {} members", used.len(), counts.len());
                if used.len() == self.on && is_even { Found::Holds(here) } else { Found::Not(here) }
            }
            Err(message) => Found::Unknown(message),
        }
    }

    fn histogram(&self) -> Result<Vec<u64>, String> {
        let group_sectors = self.group_mib * (1 << 20) / SECTOR_BYTES;
        let spec = GeometrySpec {
            level: Level::Raid5,
            layout: Layout::default_of(Level::Raid5),
            chunk_sectors: self.chunk_kib * 1024 / SECTOR_BYTES,
            member_sectors: vec![group_sectors * GROUPS; self.members.into()],
        };
        let geometry = Geometry::new(&spec).map_err(|e| e.to_string())?;
        let mut counts = vec![0; self.members.into()];
        for group in 0..GROUPS {
            let place = geometry.place(group * group_sectors, 0);
            counts[place.slot.index()] += 1;
        }
        Ok(counts)
    }
}
