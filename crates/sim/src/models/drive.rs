//! Drives: what must hold between a mechanical drive's parameters, and the typed models.

use super::{Model, ModelError, ModelKind, Problem, SsdModel};

/// A drive of any kind.
#[derive(Clone, Debug, PartialEq)]
pub enum DriveModel {
    /// Mechanical.
    Hdd(HddModel),
    /// Flash.
    Ssd(SsdModel),
    /// Constant latency.
    Constant(ConstantModel),
}

impl DriveModel {
    /// Makes the typed model of a loaded one.
    pub fn new(model: &Model) -> Result<Self, ModelError> {
        match model.kind {
            ModelKind::Ssd => SsdModel::new(model).map(Self::Ssd),
            ModelKind::Constant => ConstantModel::new(model).map(Self::Constant),
            _ => HddModel::new(model).map(Self::Hdd),
        }
    }

    /// Whether it has heads that move.
    pub const fn is_rotational(&self) -> bool {
        matches!(self, Self::Hdd(_))
    }

    /// Whether it tells that it has a write cache that a power cut empties. Linux sends flushes and forced writes to no other.
    pub const fn has_volatile_cache(&self) -> bool {
        match self {
            Self::Hdd(hdd) => hdd.write_cache_sectors > 0,
            Self::Ssd(ssd) => ssd.volatile_cache,
            Self::Constant(_) => true,
        }
    }

    /// Bytes that the medium is written by: 512, or more where smaller sectors are made up.
    pub const fn physical_bytes(&self) -> u64 {
        match self {
            Self::Hdd(hdd) => hdd.physical_sectors * 512,
            Self::Ssd(_) | Self::Constant(_) => 512,
        }
    }

    /// The model as loaded.
    pub fn model(&self) -> &Model {
        match self {
            Self::Hdd(hdd) => &hdd.model,
            Self::Ssd(ssd) => &ssd.model,
            Self::Constant(constant) => &constant.model,
        }
    }

    /// Commands outstanding at a time.
    pub fn queue_depth(&self) -> u32 {
        match self {
            Self::Hdd(hdd) => hdd.queue_depth,
            Self::Ssd(ssd) => ssd.queue_depth,
            Self::Constant(constant) => constant.queue_depth,
        }
    }

    /// Sectors the drive offers.
    pub fn capacity_sectors(&self) -> u64 {
        match self {
            Self::Hdd(hdd) => hdd.capacity_sectors,
            Self::Ssd(ssd) => ssd.capacity_sectors,
            Self::Constant(constant) => constant.capacity_sectors,
        }
    }
}

/// A drive of constant latency.
#[derive(Clone, Debug, PartialEq)]
pub struct ConstantModel {
    /// The model as loaded.
    pub model: Model,
    /// Sectors the drive offers.
    pub capacity_sectors: u64,
    /// Nanoseconds from command to data.
    pub latency_ns: u64,
    /// Picoseconds a byte takes on the link.
    pub link_byte_ps: u64,
    /// Commands outstanding.
    pub queue_depth: u32,
}

impl ConstantModel {
    /// Makes the typed model of a loaded one.
    pub fn new(model: &Model) -> Result<Self, ModelError> {
        model.expect_kind(ModelKind::Constant)?;
        Ok(Self {
            capacity_sectors: model.number("capacity") as u64,
            latency_ns: model.microseconds("latency"),
            link_byte_ps: model.picoseconds_per_byte("link_rate"),
            queue_depth: model.number("queue_depth") as u32,
            model: model.clone(),
        })
    }
}

/// A zone: cylinders with as many sectors on each track.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneModel {
    /// Cylinders.
    pub cylinders: u64,
    /// Sectors on each track.
    pub sectors_per_track: u64,
}

/// Seek times in nanoseconds, settling included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeekModel {
    /// To the next cylinder.
    pub min_ns: u64,
    /// Mean between random places.
    pub average_ns: u64,
    /// Across all cylinders.
    pub max_ns: u64,
}

/// A mechanical drive.
#[derive(Clone, Debug, PartialEq)]
pub struct HddModel {
    /// The model as loaded.
    pub model: Model,
    /// Sectors the drive offers.
    pub capacity_sectors: u64,
    /// Sectors of a physical sector, the least that is written.
    pub physical_sectors: u64,
    /// Nanoseconds of a revolution.
    pub revolution_ns: u64,
    /// Recording surfaces.
    pub heads: u64,
    /// Zones, outermost first.
    pub zones: Vec<ZoneModel>,
    /// Seeks for reading.
    pub seek_read: SeekModel,
    /// Seeks for writing.
    pub seek_write: SeekModel,
    /// Head switch.
    pub head_switch_ns: u64,
    /// Skew between the tracks of a cylinder.
    pub track_skew_ns: u64,
    /// Skew between cylinders.
    pub cylinder_skew_ns: u64,
    /// Firmware time of a command.
    pub command_ns: u64,
    /// Commands outstanding.
    pub queue_depth: u32,
    /// Age at which a command goes first.
    pub ageing_ns: u64,
    /// Read segments.
    pub segments: usize,
    /// Sectors of a read segment.
    pub segment_sectors: u64,
    /// Sectors read ahead for a sequential reader though other commands wait.
    pub read_ahead_min_sectors: u64,
    /// Sectors of dirty data the cache takes; zero without a write cache.
    pub write_cache_sectors: u64,
    /// Dirty ranges the cache keeps apart.
    pub write_extents_max: usize,
    /// Dirty sectors above which destaging competes with reads.
    pub write_high_water_sectors: u64,
    /// Dirty ranges above which destaging competes with reads.
    pub write_high_water_extents: usize,
    /// Dirty ranges the drive chooses from.
    pub destage_window: usize,
    /// Sectors written in one go.
    pub destage_run_sectors: u64,
    /// Picoseconds a byte takes on the link.
    pub link_byte_ps: u64,
}

impl HddModel {
    /// Makes the typed model of a loaded one and checks what must hold between its parameters.
    pub fn new(model: &Model) -> Result<Self, ModelError> {
        model.expect_kind(ModelKind::Hdd)?;
        let seek = |what: &str| SeekModel {
            min_ns: model.milliseconds(&format!("seek_min_{what}")),
            average_ns: model.milliseconds(&format!("seek_average_{what}")),
            max_ns: model.milliseconds(&format!("seek_max_{what}")),
        };
        let zones = model.list("zone_cylinders").iter().zip(model.list("zone_sectors_per_track"));
        let write_cache = model.number("write_cache") * 2048.0;
        let hdd = Self {
            capacity_sectors: model.number("capacity") as u64,
            physical_sectors: model.number("physical_sector") as u64 / 512,
            revolution_ns: (60e9 / model.number("rpm")).round() as u64,
            heads: model.number("heads") as u64,
            zones: zones
                .map(|(&c, &s)| ZoneModel { cylinders: c as u64, sectors_per_track: s as u64 })
                .collect(),
            seek_read: seek("read"),
            seek_write: seek("write"),
            head_switch_ns: model.milliseconds("head_switch"),
            track_skew_ns: model.milliseconds("track_skew"),
            cylinder_skew_ns: model.milliseconds("cylinder_skew"),
            command_ns: model.milliseconds("command_overhead"),
            queue_depth: model.number("queue_depth") as u32,
            ageing_ns: model.milliseconds("ageing"),
            segments: model.number("read_segments") as usize,
            segment_sectors: model.kib_sectors("read_segment_size"),
            read_ahead_min_sectors: model.kib_sectors("read_ahead_min"),
            write_cache_sectors: write_cache as u64,
            write_extents_max: model.number("write_extents") as usize,
            write_high_water_sectors: (write_cache * model.number("write_high_water")) as u64,
            write_high_water_extents: (model.number("write_extents") * model.number("write_high_water"))
                .ceil() as usize,
            destage_window: model.number("destage_window") as usize,
            destage_run_sectors: model.kib_sectors("destage_run"),
            link_byte_ps: model.picoseconds_per_byte("link_rate"),
            model: model.clone(),
        };
        if !hdd.physical_sectors.is_power_of_two() || model.number("physical_sector") % 512.0 > 0.0 {
            return Err(hdd.refuse(
                "physical_sector",
                "must be 512 bytes or a power of two of them, such as 4096".to_owned(),
            ));
        }
        hdd.check_zones()?;
        hdd.check_times()?;
        hdd.check_cache()?;
        Ok(hdd)
    }

    fn refuse(&self, parameter: &str, what: String) -> ModelError {
        let line = self.model.parameters.iter().find(|p| p.name == parameter).map(|p| p.line);
        ModelError::at(&self.model.file, line, parameter, Problem::Contradiction(what))
    }

    fn check_zones(&self) -> Result<(), ModelError> {
        let cylinders = self.model.list("zone_cylinders").len();
        let tracks = self.model.list("zone_sectors_per_track").len();
        if cylinders != tracks {
            let what = format!("{tracks} zones here, {cylinders} in zone_cylinders; give as many of both");
            return Err(self.refuse("zone_sectors_per_track", what));
        }
        let held: u64 = self.zones.iter().map(|z| z.cylinders * self.heads * z.sectors_per_track).sum();
        let limit = self.capacity_sectors + self.capacity_sectors / 20;
        if held < self.capacity_sectors || held > limit {
            let what = format!(
                "the zones hold {held} sectors, but the capacity is {}; cylinders x heads x sectors per track \
                 must sum to the capacity or at most 5 % more",
                self.capacity_sectors
            );
            return Err(self.refuse("zone_cylinders", what));
        }
        Ok(())
    }

    fn check_times(&self) -> Result<(), ModelError> {
        for (what, s) in [("read", self.seek_read), ("write", self.seek_write)] {
            let name = format!("seek_average_{what}");
            if s.min_ns > s.average_ns || s.average_ns > s.max_ns {
                let what = format!(
                    "seek times must rise from track-to-track to full stroke, but they are {} / {} / {} ms",
                    s.min_ns as f64 / 1e6,
                    s.average_ns as f64 / 1e6,
                    s.max_ns as f64 / 1e6
                );
                return Err(self.refuse(&name, what));
            }
            // Lee's curve has negative coefficients outside these bounds and would fall somewhere.
            let (min, average, max) = (s.min_ns as i128, s.average_ns as i128, s.max_ns as i128);
            if 15 * average < 10 * min + 5 * max || 15 * average > 7 * min + 8 * max {
                let what = "no rising seek curve has these three times: 15 x average must lie between \
                            10 x min + 5 x max and 7 x min + 8 x max"
                    .to_owned();
                return Err(self.refuse(&name, what));
            }
        }
        if self.track_skew_ns < self.head_switch_ns {
            let what = "must be at least head_switch, or every track costs a revolution".to_owned();
            return Err(self.refuse("track_skew", what));
        }
        let seek_min_ns = self.seek_read.min_ns.max(self.seek_write.min_ns).max(self.head_switch_ns);
        if self.cylinder_skew_ns < seek_min_ns {
            let what =
                "must be at least the longest of seek_min_read, seek_min_write and head_switch, or every \
                        cylinder costs a revolution"
                    .to_owned();
            return Err(self.refuse("cylinder_skew", what));
        }
        if self.track_skew_ns.max(self.cylinder_skew_ns) >= self.revolution_ns {
            return Err(self.refuse("track_skew", "must be shorter than a revolution".to_owned()));
        }
        Ok(())
    }

    fn check_cache(&self) -> Result<(), ModelError> {
        let cache = (self.model.number("cache") * 2048.0) as u64;
        let used = self.segments as u64 * self.segment_sectors + self.write_cache_sectors;
        if used > cache {
            let what = format!(
                "read segments and write cache take {} KiB of a cache of {} KiB",
                used / 2,
                cache / 2
            );
            return Err(self.refuse("cache", what));
        }
        Ok(())
    }
}
