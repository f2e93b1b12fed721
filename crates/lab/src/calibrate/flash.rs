//! A flash drive: what is fitted, and how. What lies behind its reads (channels, dies, programs) is not seen by reading.

use stripewise_sim::models::{Model, Provenance};

use super::drive::Guess;
use super::findings::DEPTHS;
use super::model::{all_assumed, checked, number, of_today, set};
use super::{CalibrateError, Circumstances, Findings};

/// A flash drive as guessed so far; times in microseconds.
#[derive(Clone, Debug)]
pub(super) struct Flash {
    like: Model,
    sectors: u64,
    overhead: f64,
    read_latency: f64,
    read_time: f64,
    rate_mb_s: f64,
    channel_mb_s: f64,
}

impl Flash {
    pub(super) fn first(found: &Findings, like: &Model) -> Self {
        let mut guess = Self {
            sectors: found.sectors,
            overhead: number(like, "command_overhead"),
            read_latency: number(like, "read_latency"),
            read_time: number(like, "read_time"),
            rate_mb_s: found.deep_mb_s,
            channel_mb_s: number(like, "channel_rate"),
            like: like.clone(),
        };
        guess.bound();
        guess
    }

    fn bound(&mut self) {
        self.overhead = self.overhead.clamp(0.05, 1000.0);
        self.read_latency = self.read_latency.clamp(0.0, 1000.0);
        self.read_time = self.read_time.clamp(1.0, 1000.0);
        self.rate_mb_s = self.rate_mb_s.clamp(10.0, 100_000.0);
        self.channel_mb_s = self.channel_mb_s.clamp(10.0, 10_000.0);
    }
}

fn round(us: f64) -> f64 {
    (us * 1e2).round() / 1e2
}

impl Guess for Flash {
    fn model(&self, circumstances: &Circumstances) -> Result<Model, CalibrateError> {
        let mut model = self.like.clone();
        "fitted".clone_into(&mut model.name);
        "fitted.toml".clone_into(&mut model.file);
        model.rig = Some(of_today("nvme-pcie4-x4"));
        model.title = format!("A flash drive of {:.0} GB", self.sectors as f64 * 512e-9);
        all_assumed(
            &mut model,
            &format!("that of {}; not seen from outside by reading alone", self.like.name),
        );
        let source = &circumstances.to_string();
        let fitted = |how: &str| format!("{source}: {how}");
        let one = fitted("small random reads, one at a time");
        let deep = fitted("large sequential reads, 8 at a time");
        let values = [
            ("capacity", self.sectors as f64, source.clone()),
            ("command_overhead", round(self.overhead), fitted("small random reads, 32 at a time")),
            ("read_latency", round(self.read_latency), one.clone()),
            ("read_time", round(self.read_time), one),
            ("channel_rate", self.channel_mb_s.round(), deep.clone()),
            ("controller_rate", self.rate_mb_s.round(), deep.clone()),
            ("link_rate", self.rate_mb_s.round(), deep),
        ];
        for (name, value, source) in values {
            set(&mut model, name, value, Provenance::Measured, &source);
        }
        Ok(checked(&model)?)
    }

    fn correct(&mut self, drive: &Findings, model: &Findings) {
        let last = DEPTHS.len() - 1;
        let each_us = |f: &Findings| 1e6 / f.depth_iops[last];
        self.overhead += each_us(drive) - each_us(model);
        let latency_us = (drive.random_ms - model.random_ms) * 1e3;
        // What is left when nothing is left of the latency is the cells'.
        let beyond = (self.read_latency + latency_us).min(0.0);
        self.read_latency += latency_us;
        self.read_time += beyond;
        let ratio = drive.deep_mb_s / model.deep_mb_s;
        self.rate_mb_s *= ratio;
        if ratio > 1.0 {
            self.channel_mb_s *= ratio;
        }
        self.bound();
    }
}
