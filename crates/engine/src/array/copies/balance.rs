//! Which of the copies is read, as Linux's `read_balance` of these levels has it.

use crate::geometry::Geometry;
use crate::level::Layout;

/// What of a copy counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Balance {
    /// How busy its member is. A RAID-1's reader that goes on where it was stays there.
    LeastBusy { goes_on: bool },
    /// Whether its member is idle, else how near to its head it is; a RAID-1's reader stays where it was.
    Nearest { goes_on: bool },
    /// How low its sector is, where drives are fastest and one copy's data lie as a RAID-0's: far and offset layouts. With
    /// near copies as well, an idle member goes before.
    Lowest { or_idle: bool },
}

impl Balance {
    /// That of an array whose members have heads if they are `rotational`.
    pub(super) fn of(geometry: &Geometry, rotational: bool) -> Self {
        match geometry.layout() {
            Layout::Raid10(_) if !rotational => Self::LeastBusy { goes_on: false },
            Layout::Raid10(layout) if layout.far > 1 => Self::Lowest { or_idle: layout.near > 1 },
            Layout::Raid10(_) => Self::Nearest { goes_on: false },
            _ if rotational => Self::Nearest { goes_on: true },
            _ => Self::LeastBusy { goes_on: true },
        }
    }

    /// The less, the rather the copy is read: of a member with so many requests, whose last read ended so many sectors away,
    /// at a sector of it.
    #[inline]
    pub(super) const fn rank(self, in_flight: u64, distance: u64, sector: u64) -> u64 {
        match self {
            Self::LeastBusy { goes_on: true } | Self::Nearest { goes_on: true } if distance == 0 => 0,
            Self::LeastBusy { .. } => 1 + in_flight,
            Self::Nearest { .. } | Self::Lowest { or_idle: true } if in_flight == 0 => 1,
            Self::Nearest { .. } => 2 + distance,
            Self::Lowest { .. } => 2 + sector,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::geometry::GeometrySpec;
    use crate::io::{Action, ActionQueue, Flags, Input, Op, Request, RequestId};
    use crate::level::{Layout, Level};
    use crate::policy::Policy;
    use crate::units::{Instant, SectorRange};
    use crate::volume::{Volume, VolumeConfig};

    const CHUNK: u64 = 64;

    /// The members that reads go to which are all under way at once.
    fn read(level: Level, layout: &str, members: usize, rotational: bool, sectors: &[u64]) -> Vec<u16> {
        let geometry = GeometrySpec {
            level,
            layout: Layout::parse(level, layout).unwrap_or(Layout::None),
            chunk_sectors: if level.has_chunks() { CHUNK } else { 0 },
            member_sectors: vec![1 << 14; members],
        };
        let config = VolumeConfig { rotational, ..VolumeConfig::new(geometry, Policy::linux_6_1()) };
        let mut volume = Volume::new(&config).unwrap();
        let mut member = |(id, sector): (u32, &u64)| {
            let mut out = ActionQueue::default();
            let range = SectorRange::new(*sector, 8);
            let request = Request { id: RequestId(id), op: Op::Read, range, flags: Flags::default() };
            volume.handle(Instant::ZERO, Input::Request(request), &mut out);
            out.actions.iter().find_map(|a| if let Action::Io(io) = a { Some(io.member.0) } else { None })
        };
        (0..).zip(sectors).map(|request| member(request).expect("a member is asked")).collect()
    }

    #[test]
    fn a_raid1_reads_on_where_it_was_then_from_the_idle_and_then_from_the_nearest_or_least_busy() {
        let on_and_away = [0, 8, 16, 4000, 24, 4008, 4100, 100];
        assert_eq!(read(Level::Raid1, "", 2, true, &on_and_away), [0, 0, 0, 1, 0, 1, 1, 0]);
        let away = [4000, 0, 8000, 12_000, 100, 9000];
        assert_eq!(read(Level::Raid1, "", 2, false, &away), [0, 1, 0, 1, 0, 1]);
        assert_eq!(read(Level::Raid1, "", 2, false, &[0, 8, 16, 4000, 24]), [0, 0, 0, 1, 0]);
    }

    #[test]
    fn near_copies_are_read_from_the_idle_and_then_from_the_nearest_or_least_busy() {
        // The first chunk is on members 0 and 1.
        assert_eq!(read(Level::Raid10, "n2", 4, true, &[0, 0, 8, 8, 0]), [0, 1, 0, 1, 0]);
        assert_eq!(read(Level::Raid10, "n2", 4, false, &[0, 8, 16, 24, 32]), [0, 1, 0, 1, 0]);
    }

    #[test]
    fn far_and_offset_copies_are_read_from_the_lowest_sectors_of_drives_with_heads() {
        for layout in ["f2", "o2"] {
            let chunks = [0, CHUNK, 2 * CHUNK, 3 * CHUNK, 0, 0, CHUNK];
            assert_eq!(read(Level::Raid10, layout, 4, true, &chunks), [0, 1, 2, 3, 0, 0, 1], "{layout}");
            assert_eq!(read(Level::Raid10, layout, 4, false, &[0, 0, 0, 0]), [0, 1, 0, 1], "{layout}");
        }
    }
}
