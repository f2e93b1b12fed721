//! A flash drive, and what must hold between its parameters.

use super::{Model, ModelError, ModelKind, Problem};

/// A flash drive.
#[derive(Clone, Debug, PartialEq)]
pub struct SsdModel {
    /// The model as loaded.
    pub model: Model,
    /// Sectors the drive offers.
    pub capacity_sectors: u64,
    /// Channels.
    pub channels: u32,
    /// Dies on all channels.
    pub dies: u32,
    /// Sectors of a page.
    pub page_sectors: u64,
    /// Bytes a die programs at once: all planes, all pages of one pass.
    pub program_bytes: u64,
    /// Bytes of an erase block on all planes of a die.
    pub block_bytes: u64,
    /// From cells to register.
    pub read_ns: u64,
    /// From register to cells, with the program's share of an erase.
    pub program_ns: u64,
    /// Picoseconds a byte takes on a channel.
    pub channel_byte_ps: u64,
    /// Dies that program at the same time.
    pub programs_max: u32,
    /// Thousandths of a byte's program time that garbage collection adds to a byte written at random.
    pub collection_permille: u64,
    /// Sectors of the smallest piece the drive keeps track of.
    pub mapping_sectors: u64,
    /// Bytes acknowledged and not yet in the flash.
    pub write_buffer_bytes: u64,
    /// Whether what is in the buffer survives a power cut.
    pub power_loss_protection: bool,
    /// Whether the drive tells that it has a volatile write cache.
    pub volatile_cache: bool,
    /// Sectors read beyond a sequential read.
    pub read_ahead_sectors: u64,
    /// Streams told apart.
    pub streams: usize,
    /// Firmware time of a command, one after another.
    pub command_ns: u64,
    /// Further time of a read.
    pub read_latency_ns: u64,
    /// Further time of a write.
    pub write_latency_ns: u64,
    /// Picoseconds a byte takes to the controller and over the link, whichever is slower.
    pub link_byte_ps: u64,
    /// Commands outstanding.
    pub queue_depth: u32,
}

impl SsdModel {
    /// Makes the typed model of a loaded one and checks what must hold between its parameters.
    pub fn new(model: &Model) -> Result<Self, ModelError> {
        model.expect_kind(ModelKind::Ssd)?;
        let channels = model.number("channels") as u32;
        let dies = channels * model.number("dies_per_channel") as u32;
        let page_sectors = model.kib_sectors("page_size");
        let program_pages = model.number("program_pages");
        let pages_per_block = model.number("pages_per_block");
        let planes_bytes = page_sectors * 512 * model.number("planes") as u64;
        let erase_share = program_pages / pages_per_block;
        let moved = write_amplification(model.number("overprovisioning")) - 1.0;
        let ssd = Self {
            capacity_sectors: model.number("capacity") as u64,
            channels,
            dies,
            page_sectors,
            program_bytes: planes_bytes * program_pages as u64,
            block_bytes: planes_bytes * pages_per_block as u64,
            read_ns: model.microseconds("read_time"),
            program_ns: model.microseconds("program_time")
                + (model.number("erase_time") * 1e3 * erase_share).round() as u64,
            channel_byte_ps: model.picoseconds_per_byte("channel_rate"),
            programs_max: model.number("programs_max") as u32,
            collection_permille: (moved * model.number("collection_cost") * 1e3).round() as u64,
            mapping_sectors: model.kib_sectors("mapping_unit"),
            write_buffer_bytes: (model.number("write_buffer") * 1_048_576.0) as u64,
            power_loss_protection: model.number("power_loss_protection") > 0.5,
            volatile_cache: model.number("volatile_cache") > 0.5,
            read_ahead_sectors: model.kib_sectors("read_ahead"),
            streams: model.number("read_streams") as usize,
            command_ns: model.microseconds("command_overhead"),
            read_latency_ns: model.microseconds("read_latency"),
            write_latency_ns: model.microseconds("write_latency"),
            link_byte_ps: model
                .picoseconds_per_byte("link_rate")
                .max(model.picoseconds_per_byte("controller_rate")),
            queue_depth: model.number("queue_depth") as u32,
            model: model.clone(),
        };
        ssd.check()?;
        Ok(ssd)
    }

    fn refuse(&self, parameter: &str, what: String) -> ModelError {
        let line = self.model.parameters.iter().find(|p| p.name == parameter).map(|p| p.line);
        ModelError::at(&self.model.file, line, parameter, Problem::Contradiction(what))
    }

    fn check(&self) -> Result<(), ModelError> {
        if self.programs_max > self.dies {
            let what = format!("{} dies program, but there are {}", self.programs_max, self.dies);
            return Err(self.refuse("programs_max", what));
        }
        if !self.page_sectors.is_multiple_of(self.mapping_sectors) {
            return Err(self.refuse("mapping_unit", "must divide page_size".to_owned()));
        }
        if !self.volatile_cache && !self.power_loss_protection {
            let what = "without power_loss_protection the buffer is volatile".to_owned();
            return Err(self.refuse("volatile_cache", what));
        }
        let together = self.program_bytes * u64::from(self.programs_max);
        if self.write_buffer_bytes < together {
            let what = format!(
                "{} KiB are programmed at the same time (programs_max x planes x program_pages x page_size); the \
                 buffer must hold as much",
                together / 1024
            );
            return Err(self.refuse("write_buffer", what));
        }
        Ok(())
    }
}

/// Bytes programmed for a byte written at random over the whole drive, in the steady state of blocks collected
/// in the order they were filled: of a block, the share x = exp(-(1 + spare) (1 - x)) is still valid when its
/// turn comes, and 1 / (1 - x) is programmed for each byte (P. Desnoyers, "Analytic modeling of SSD write
/// performance", 2012).
fn write_amplification(spare: f64) -> f64 {
    let mut valid = 0.5_f64;
    // Each round shrinks the error to (1 + spare) x valid of it, 0.99 at the least spare the schema admits.
    for _ in 0..2000 {
        valid = (-(1.0 + spare) * (1.0 - valid)).exp();
    }
    1.0 / (1.0 - valid)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes programmed for a byte written, by a log of blocks that is collected in the order it was filled.
    fn simulated(spare: f64) -> f64 {
        const BLOCK: usize = 64;
        let logical = 400 * BLOCK;
        let blocks = (400.0 * (1.0 + spare)) as usize;
        let (mut place, mut log) = (vec![0_usize; logical], std::collections::VecDeque::new());
        let (mut programmed, mut written, mut state) = (0_usize, 0_usize, 1_u64);
        let append =
            |page: usize, log: &mut std::collections::VecDeque<usize>, place: &mut Vec<usize>, at: usize| {
                place[page] = at;
                log.push_back(page);
            };
        for round in 0..40 * logical {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            append((state >> 33) as usize % logical, &mut log, &mut place, programmed);
            programmed += 1;
            while log.len() > (blocks - 1) * BLOCK {
                let oldest = programmed - log.len();
                let page = log.pop_front().expect("the log is not empty");
                if place[page] == oldest {
                    append(page, &mut log, &mut place, programmed);
                    programmed += 1;
                }
            }
            if round == 20 * logical {
                written = programmed;
            }
        }
        (programmed - written) as f64 / (20 * logical) as f64
    }

    #[test]
    fn write_amplification_is_that_of_a_simulated_log() {
        for spare in [0.15, 0.28, 0.37, 1.0] {
            let (formula, log) = (write_amplification(spare), simulated(spare));
            assert!((formula / log - 1.0).abs() < 0.05, "{spare}: {formula} by the formula, {log} in a log");
        }
    }
}
