//! A mechanical drive: what is fitted, and how.

use stripewise_sim::models::{Model, Provenance, Value};

use super::drive::Guess;
use super::findings::{DEPTHS, ZONES};
use super::model::{all_assumed, checked, number, of_today, set, set_value};
use super::{CalibrateError, Circumstances, Findings};

/// Revolutions a minute that drives are made with.
const RPM: [f64; 7] = [3600.0, 4200.0, 5400.0, 5900.0, 7200.0, 10_000.0, 15_000.0];
/// How far a measured revolution may be from one of them to be taken for it.
const RPM_NEAR: f64 = 0.06;
/// Milliseconds by which seeks stay within what a seek curve allows, against rounding.
const MARGIN_MS: f64 = 0.01;
/// Random reads are this many times as fast at the greatest depth if the drive orders them.
const ORDERED: f64 = 1.15;

/// A mechanical drive as guessed so far; times in milliseconds.
#[derive(Clone, Debug)]
pub(super) struct Mechanical {
    like: Model,
    sectors: u64,
    rpm: f64,
    overhead: f64,
    link_mb_s: f64,
    seek_min: f64,
    seek_average: f64,
    seek_max: f64,
    sectors_per_track: [f64; ZONES],
    queue_depth: f64,
}

impl Mechanical {
    pub(super) fn first(found: &Findings, like: &Model) -> Self {
        let measured_rpm = 60e3 / found.spread_ms;
        let near = RPM.into_iter().find(|rpm| (measured_rpm / rpm - 1.0).abs() < RPM_NEAR);
        let rpm = near.unwrap_or_else(|| measured_rpm.round().clamp(1000.0, 30_000.0));
        let revolution = 60e3 / rpm;
        let beside = revolution / 2.0 + found.again_ms;
        let deepest = found.depth_iops[DEPTHS.len() - 1];
        let mut guess = Self {
            sectors: found.sectors,
            rpm,
            overhead: found.again_ms,
            link_mb_s: number(like, "link_rate"),
            seek_min: found.seek_ms[0] - beside,
            seek_average: found.random_ms - beside,
            seek_max: found.seek_ms[found.seek_ms.len() - 1] - beside,
            sectors_per_track: std::array::from_fn(|zone| {
                found.sequential_mb_s[zone] * 1e3 * revolution / 512.0 * 1.1
            }),
            queue_depth: if deepest > found.depth_iops[0] * ORDERED { 32.0 } else { 1.0 },
            like: like.clone(),
        };
        guess.bound();
        guess
    }

    /// Keeps the values to what a drive can have.
    fn bound(&mut self) {
        let revolution = 60e3 / self.rpm;
        self.overhead = self.overhead.clamp(0.001, 20.0);
        self.link_mb_s = self.link_mb_s.clamp(10.0, 100_000.0);
        self.seek_min = self.seek_min.clamp(0.05, revolution * 0.7);
        self.seek_max = self.seek_max.clamp(self.seek_min * 2.0, 100.0);
        self.seek_average = between(self.seek_min, self.seek_average, self.seek_max);
        for sectors in &mut self.sectors_per_track {
            *sectors = sectors.clamp(16.0, 1e6);
        }
    }

    /// Sets the seek times of reads, and those of writes as far above them as those of the model that is like it.
    fn set_seeks(&self, model: &mut Model, source: &str) {
        let more = |name: &str| {
            number(&self.like, &format!("seek_{name}_write"))
                - number(&self.like, &format!("seek_{name}_read"))
        };
        let (min, max) = (self.seek_min + more("min"), self.seek_max + more("max"));
        let average = between(min, self.seek_average + more("average"), max);
        let times = [
            ("min", self.seek_min, min),
            ("average", self.seek_average, average),
            ("max", self.seek_max, max),
        ];
        let of_like =
            format!("the read figure and what {} has above it; writes are not measured", self.like.name);
        for (name, read, write) in times {
            set(model, &format!("seek_{name}_read"), round(read), Provenance::Measured, source);
            set(model, &format!("seek_{name}_write"), round(write), Provenance::Assumed, &of_like);
        }
        let skew = number(&self.like, "cylinder_skew").max(round(self.seek_min.max(min)) + MARGIN_MS);
        let of_skew = "that of the model, or what the longer track-to-track seek needs".to_owned();
        set(model, "cylinder_skew", round(skew), Provenance::Assumed, &of_skew);
    }
}

/// The average seek nearest to one that a rising seek curve can have (Lee's: 15 × average lies between 10 × min + 5 × max
/// and 7 × min + 8 × max).
fn between(min: f64, average: f64, max: f64) -> f64 {
    let (least, most) = ((10.0 * min + 5.0 * max) / 15.0, (7.0 * min + 8.0 * max) / 15.0);
    average.clamp(least + MARGIN_MS, most - MARGIN_MS)
}

fn round(ms: f64) -> f64 {
    (ms * 1e3).round() / 1e3
}

impl Guess for Mechanical {
    fn model(&self, circumstances: &Circumstances) -> Result<Model, CalibrateError> {
        let mut model = self.like.clone();
        "fitted".clone_into(&mut model.name);
        "fitted.toml".clone_into(&mut model.file);
        model.rig = Some(of_today("sas-hba-pcie3-x8"));
        model.title = format!("A drive of {:.0} GB at {:.0} rpm", self.sectors as f64 * 512e-9, self.rpm);
        all_assumed(
            &mut model,
            &format!("that of {}; not seen from outside by reading alone", self.like.name),
        );
        let source = &circumstances.to_string();
        let fitted = |how: &str| format!("{source}: {how}");
        set(&mut model, "capacity", self.sectors as f64, Provenance::Measured, source);
        set(
            &mut model,
            "rpm",
            self.rpm,
            Provenance::Measured,
            &fitted(
                "what lies between the quick and the slow of reads at one distance, taken for the nearest usual speed",
            ),
        );
        let heads = number(&self.like, "heads");
        let sectors_per_track: Vec<f64> = self.sectors_per_track.iter().map(|s| s.round()).collect();
        let each = self.sectors as f64 / ZONES as f64;
        let cylinders = sectors_per_track.iter().map(|s| (each / (heads * s)).ceil()).collect();
        set_value(
            &mut model,
            "zone_cylinders",
            Value::List(cylinders),
            Provenance::Derived,
            "16 zones of equal capacity at zone_sectors_per_track",
        );
        set_value(
            &mut model,
            "zone_sectors_per_track",
            Value::List(sectors_per_track),
            Provenance::Measured,
            &fitted("the sequential rate in the middle of each zone"),
        );
        self.set_seeks(
            &mut model,
            &fitted("reads at random and at given distances, without half a revolution"),
        );
        let again = fitted("reads of a place that was just read");
        set(&mut model, "command_overhead", round(self.overhead), Provenance::Measured, &again);
        set(&mut model, "link_rate", self.link_mb_s.round(), Provenance::Measured, &again);
        set(
            &mut model,
            "queue_depth",
            self.queue_depth,
            Provenance::Measured,
            &fitted("whether random reads gain by depth; 32 is what ATA has"),
        );
        Ok(checked(&model)?)
    }

    fn correct(&mut self, drive: &Findings, model: &Findings) {
        let last = drive.seek_ms.len() - 1;
        self.overhead += drive.again_ms - model.again_ms;
        let per_byte = |f: &Findings| (f.again_large_ms - f.again_ms) / (124.0 * 1024.0);
        let link_ms = 1.0 / (self.link_mb_s * 1e3) + per_byte(drive) - per_byte(model);
        self.link_mb_s = if link_ms > 0.0 { 1.0 / (link_ms * 1e3) } else { 100_000.0 };
        // What the overhead puts right is not the seek's.
        let over = drive.again_ms - model.again_ms;
        self.seek_min += drive.seek_ms[0] - model.seek_ms[0] - over;
        self.seek_average += drive.random_ms - model.random_ms - over;
        self.seek_max += drive.seek_ms[last] - model.seek_ms[last] - over;
        for (zone, sectors) in self.sectors_per_track.iter_mut().enumerate() {
            *sectors *= drive.sequential_mb_s[zone] / model.sequential_mb_s[zone];
        }
        self.bound();
    }
}
