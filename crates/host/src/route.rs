//! Which shard serves which sectors.

use stripewise_engine::geometry::Geometry;
use stripewise_engine::units::SectorRange;

/// The fewest sectors of consecutive addresses kept in one shard: a hand-over between cores costs about as
/// much as copying some hundred KiB, so requests of common sizes should not be cut.
const GRANULE_SECTORS_MIN: u64 = 2048;

/// Cuts the array's address space into granules of whole stripes, dealt to the shards in turn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Router {
    granule_sectors: u64,
    shards: u64,
    /// The shard of what is not cut.
    whole: u32,
    /// The array's sector that ranges count from.
    start: u64,
}

impl Router {
    /// A router for `shards`, of which there is at least one.
    pub(crate) fn new(geometry: &Geometry, shards: u32) -> Self {
        // Sectors of one parity stripe belong together; without parity any cut will do.
        let stripe_sectors = if geometry.level().parity_count() > 0 {
            u64::from(geometry.data_disks()) * geometry.chunk_sectors()
        } else {
            1
        };
        let granule_sectors = GRANULE_SECTORS_MIN.div_ceil(stripe_sectors) * stripe_sectors;
        Self { granule_sectors, shards: u64::from(shards), whole: 0, start: 0 }
    }

    /// A router for sectors that are known to be of one shard.
    pub(crate) fn pinned(shard: u32) -> Self {
        Self { granule_sectors: u64::MAX, shards: 1, whole: shard, start: 0 }
    }

    /// The same for ranges that count from a sector of the array, of whose granules they are parts.
    pub(crate) fn starting_at(self, sector: u64) -> Self {
        Self { start: sector, ..self }
    }

    /// How many sectors of a longer `range` to take for a piece of about `most`: to the end of a granule, so
    /// that stripes stay whole.
    pub(crate) fn piece(&self, range: SectorRange, most: u64) -> u64 {
        let granules = (most / self.granule_sectors).max(1);
        let start = range.start.saturating_add(self.start);
        let end = (start / self.granule_sectors + granules).saturating_mul(self.granule_sectors);
        range.count.min(end - start)
    }

    /// The first part of `range` that lies in one shard, and that shard. Ranges that are empty or run past
    /// the end of the address space are not cut: any shard's engine refuses them.
    pub(crate) fn first_part(&self, range: SectorRange) -> (u32, SectorRange) {
        let is_cut = self.shards > 1 && range.count > 0;
        let Some(start) = range
            .start
            .checked_add(self.start)
            .filter(|start| is_cut && start.checked_add(range.count).is_some())
        else {
            return (self.whole, range);
        };
        let granule = start / self.granule_sectors;
        let left = (granule + 1).saturating_mul(self.granule_sectors) - start;
        ((granule % self.shards) as u32, SectorRange::new(range.start, range.count.min(left)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_a_range_once_and_end_at_granules() {
        let router = Router { granule_sectors: 3 * 1024, shards: 2, whole: 0, start: 0 };
        let mut range = SectorRange::new(1000, 20_000);
        let mut at = range.start;
        let mut shards = Vec::new();
        while range.count > 0 {
            let (shard, part) = router.first_part(range);
            assert_eq!(part.start, at);
            assert_eq!(part.start / 3072, (part.end() - 1) / 3072);
            assert_eq!(u64::from(shard), part.start / 3072 % 2);
            shards.push(shard);
            at = part.end();
            range = SectorRange::new(at, range.end() - at);
        }
        assert_eq!(at, 21_000);
        assert_eq!(shards, [0, 1, 0, 1, 0, 1, 0]);
    }

    #[test]
    fn granules_are_the_arrays_where_ranges_count_from_elsewhere() {
        let router = Router { granule_sectors: 2048, shards: 2, whole: 0, start: 0 }.starting_at(3000);
        assert_eq!(router.first_part(SectorRange::new(0, 4096)), (1, SectorRange::new(0, 1096)));
        assert_eq!(router.first_part(SectorRange::new(1096, 3000)), (0, SectorRange::new(1096, 2048)));
        assert_eq!(router.piece(SectorRange::new(0, 9000), 4096), 1096 + 2048);
    }

    #[test]
    fn a_range_past_the_address_space_is_left_to_the_engine() {
        let router = Router { granule_sectors: 2048, shards: 2, whole: 0, start: 0 };
        let range = SectorRange::new(u64::MAX - 1, 8);
        assert_eq!(router.first_part(range), (0, range));
    }
}
