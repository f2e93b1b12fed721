//! Where sectors are: zone, cylinder, angle; and when a head that follows a run of sectors gets to each.
//!
//! Sectors fill the tracks of a cylinder head by head, then the next cylinder inwards. Angles are counted in
//! nanoseconds of rotation. Each track starts later than the one before it by the track skew, the first
//! track of a cylinder by the cylinder skew, so a run loses exactly the skew at each crossing.

use crate::models::HddModel;
use stripewise_engine::geometry::Divisor;

/// A sector's place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) cylinder: u32,
    pub(crate) head: u16,
    /// Where on the track it starts, in nanoseconds of rotation.
    pub(crate) angle_ns: u32,
}

#[derive(Clone, Copy, Debug)]
struct Zone {
    first_sector: u64,
    sectors: u64,
    first_cylinder: u64,
    sectors_per_track: Divisor,
    sectors_per_cylinder: Divisor,
    /// Nanoseconds a sector takes to pass.
    sector_ns: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct Geometry {
    zones: Vec<Zone>,
    /// Zone by the high bits of the sector, a hint that is at most a few zones early.
    zone_hints: Vec<u16>,
    heads: u64,
    revolution_ns: Divisor,
    track_skew_ns: u64,
    /// Nanoseconds of a track of a run, with the skew to the next.
    track_ns: Divisor,
    /// Nanoseconds of a whole cylinder of a run, skews included.
    cylinder_ns: Divisor,
    /// By how much a cylinder starts later than the one before it.
    cylinder_shift_ns: u64,
}

const HINT_BITS: u32 = 24;

impl Geometry {
    pub(crate) fn new(model: &HddModel) -> Self {
        let mut zones = Vec::with_capacity(model.zones.len());
        let (mut first_sector, mut first_cylinder) = (0, 0);
        for zone in &model.zones {
            let sectors_per_cylinder = zone.sectors_per_track * model.heads;
            let sectors = sectors_per_cylinder * zone.cylinders;
            zones.push(Zone {
                first_sector,
                sectors,
                first_cylinder,
                sectors_per_track: Divisor::new(zone.sectors_per_track),
                sectors_per_cylinder: Divisor::new(sectors_per_cylinder),
                sector_ns: model.revolution_ns.div_ceil(zone.sectors_per_track),
            });
            first_sector += sectors;
            first_cylinder += zone.cylinders;
        }
        let skews_ns = (model.heads - 1) * model.track_skew_ns + model.cylinder_skew_ns;
        let zone_at = |sector| zones.partition_point(|z: &Zone| z.first_sector <= sector) - 1;
        let zone_hints = (0..=first_sector >> HINT_BITS).map(|i| zone_at(i << HINT_BITS) as u16).collect();
        Self {
            zone_hints,
            zones,
            heads: model.heads,
            revolution_ns: Divisor::new(model.revolution_ns),
            track_skew_ns: model.track_skew_ns,
            track_ns: Divisor::new(model.revolution_ns + model.track_skew_ns),
            cylinder_ns: Divisor::new(model.heads * model.revolution_ns + skews_ns),
            cylinder_shift_ns: skews_ns % model.revolution_ns,
        }
    }

    pub(crate) fn cylinders(model: &HddModel) -> u64 {
        model.zones.iter().map(|z| z.cylinders).sum()
    }

    fn zone_of(&self, sector: u64) -> usize {
        let hint = (sector >> HINT_BITS).min(self.zone_hints.len() as u64 - 1) as usize;
        let mut zone = self.zone_hints[hint] as usize;
        while zone + 1 < self.zones.len() && self.zones[zone + 1].first_sector <= sector {
            zone += 1;
        }
        zone
    }

    pub(crate) fn place(&self, sector: u64) -> Place {
        let zone = &self.zones[self.zone_of(sector)];
        let (cylinder, head, in_track_ns) = self.in_zone(zone, sector - zone.first_sector);
        let cylinder = zone.first_cylinder + cylinder;
        let angle_ns = in_track_ns + head * self.track_skew_ns + cylinder * self.cylinder_shift_ns;
        let (_, angle_ns) = self.revolution_ns.div_rem(angle_ns);
        Place { cylinder: cylinder as u32, head: head as u16, angle_ns: angle_ns as u32 }
    }

    /// Of the sector at an offset of a zone: the zone's cylinder, the head, and when it starts from the start of its track on.
    #[inline]
    fn in_zone(&self, zone: &Zone, offset: u64) -> (u64, u64, u64) {
        let (cylinder, in_cylinder) = zone.sectors_per_cylinder.div_rem(offset);
        let (head, in_track) = zone.sectors_per_track.div_rem(in_cylinder);
        let (in_track_ns, _) = zone.sectors_per_track.div_rem(in_track * self.revolution_ns.get());
        (cylinder, head, in_track_ns)
    }

    /// Nanoseconds from the start of the zone's first sector to the start of the sector at `offset`, in a run.
    fn start_ns(&self, zone: &Zone, offset: u64) -> u64 {
        let (cylinder, head, in_track_ns) = self.in_zone(zone, offset);
        cylinder * self.cylinder_ns.get() + head * self.track_ns.get() + in_track_ns
    }

    /// Sectors of the zone wholly passed so many nanoseconds after the start of its first sector.
    fn passed(&self, zone: &Zone, ns: u64) -> u64 {
        let (cylinder, in_cylinder_ns) = self.cylinder_ns.div_rem(ns);
        let head = self.track_ns.div_rem(in_cylinder_ns).0.min(self.heads - 1);
        let in_track_ns = in_cylinder_ns - head * self.track_ns.get();
        let per_track = zone.sectors_per_track.get();
        let (in_track, _) = self.revolution_ns.div_rem(in_track_ns * per_track);
        let sectors = cylinder * zone.sectors_per_cylinder.get() + head * per_track + in_track.min(per_track);
        sectors.min(zone.sectors)
    }
}

/// A head that follows a run of sectors from some time on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    zone: usize,
    /// When the head was, or would have been, at the start of the zone.
    zone_start_ns: i64,
}

impl Run {
    /// The run whose sector `start` comes under the head at `start_ns`.
    pub(crate) fn new(geometry: &Geometry, start: u64, start_ns: u64) -> Self {
        let index = geometry.zone_of(start);
        let zone = &geometry.zones[index];
        let offset_ns = geometry.start_ns(zone, start - zone.first_sector);
        Self { zone: index, zone_start_ns: start_ns as i64 - offset_ns as i64 }
    }

    /// When the last sector before `end` has passed.
    pub(crate) fn end_ns(mut self, geometry: &Geometry, end: u64) -> u64 {
        let last = end - 1;
        while self.zone + 1 < geometry.zones.len() && last >= geometry.zones[self.zone + 1].first_sector {
            self.advance(geometry);
        }
        let zone = &geometry.zones[self.zone];
        let offset = last.saturating_sub(zone.first_sector);
        let passed_ns = geometry.start_ns(zone, offset) + zone.sector_ns;
        (self.zone_start_ns + passed_ns as i64).max(0) as u64
    }

    /// The first sector that has not wholly passed at `now_ns`.
    pub(crate) fn sector_at(mut self, geometry: &Geometry, now_ns: u64) -> u64 {
        loop {
            let zone = &geometry.zones[self.zone];
            let passed = geometry.passed(zone, (now_ns as i64 - self.zone_start_ns).max(0) as u64);
            if passed < zone.sectors || self.zone + 1 == geometry.zones.len() {
                return zone.first_sector + passed;
            }
            self.advance(geometry);
        }
    }

    fn advance(&mut self, geometry: &Geometry) {
        let zone = &geometry.zones[self.zone];
        let (cylinders, _) = zone.sectors_per_cylinder.div_rem(zone.sectors);
        self.zone_start_ns += (cylinders * geometry.cylinder_ns.get()) as i64;
        self.zone += 1;
    }
}
