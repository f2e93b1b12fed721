//! Models fitted to what is here: this machine's CPU, a real drive.
//!
//! # Contract
//! *Nothing is written* to a device: it is opened read-only. *Measured* is what a run here showed; what cannot be seen from
//! outside is taken from a model that is named, and marked as assumed. *The fit is judged* by running the same probes on the
//! fitted model in the simulator, on this machine's CPU model, and telling every difference.

mod cpu;
mod device;
mod drive;
mod findings;
mod flash;
mod hdd;
mod load;
mod model;
mod modelled;

use std::fmt;
use std::path::{Path, PathBuf};

pub use cpu::cpu;
pub use device::Device;
pub use drive::{Compared, FittedDrive, fit};
pub use findings::{Effort, Findings};
pub use load::Load;
pub use model::toml;
pub use modelled::Modelled;

use stripewise_host::HostError;
use stripewise_sim::SimError;
use stripewise_sim::models::ModelError;

/// What loads are run on.
pub trait Probe {
    /// Sectors of the device.
    fn sectors(&self) -> u64;
    /// Runs a load until all its reads are answered.
    ///
    /// # Errors
    /// A read that failed, or a device that cannot be used.
    fn run(&mut self, load: Load) -> Result<Load, CalibrateError>;
}

/// Who measured what, as written in sources.
#[derive(Clone, Debug)]
pub struct Circumstances {
    /// When.
    pub date: String,
    /// On which CPU.
    pub cpu: String,
}

impl fmt::Display for Circumstances {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "measured by models calibrate on {}, {}", self.date, self.cpu)
    }
}

/// Why there is no model.
#[derive(Debug)]
pub enum CalibrateError {
    /// The device, or an array in memory, cannot be used.
    Host(HostError),
    /// A file or device cannot be opened.
    Open {
        /// Which.
        path: PathBuf,
        /// Why.
        error: String,
    },
    /// Parts of a file were never written.
    Holes {
        /// Which.
        path: PathBuf,
        /// The first byte that is of a hole.
        first: u64,
    },
    /// A read failed.
    Read {
        /// Reads that failed.
        errors: u64,
        /// The first sector of one of them.
        sector: u64,
    },
    /// The device is too small to tell its places apart.
    TooSmall {
        /// Sectors it has.
        sectors: u64,
        /// Sectors it needs.
        needed: u64,
    },
    /// The fitted values make no model.
    Model(ModelError),
    /// The fitted model cannot be simulated.
    Sim(SimError),
}

impl fmt::Display for CalibrateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(error) => write!(f, "{error}"),
            Self::Open { path, error } => write!(f, "{}: cannot be opened: {error}", path.display()),
            Self::Holes { path, first } => write!(
                f,
                "{}: has holes, the first at byte {first}, and reads of holes reach no drive; write the whole file, or name the \
                 drive",
                path.display()
            ),
            Self::Read { errors, sector } => {
                write!(f, "{errors} reads failed, one of them at sector {sector}; a fit needs a sound device")
            }
            Self::TooSmall { sectors, needed } => {
                write!(
                    f,
                    "a device of {sectors} sectors is too small to be measured; it needs {needed} (1 GiB)"
                )
            }
            Self::Model(error) => write!(f, "the measured values make no model: {error}"),
            Self::Sim(error) => write!(f, "the fitted model cannot be simulated: {error}"),
        }
    }
}

impl CalibrateError {
    fn open(path: &Path, error: &std::io::Error) -> Self {
        Self::Open { path: path.to_owned(), error: error.to_string() }
    }
}

impl std::error::Error for CalibrateError {}

impl From<HostError> for CalibrateError {
    fn from(error: HostError) -> Self {
        Self::Host(error)
    }
}

impl From<ModelError> for CalibrateError {
    fn from(error: ModelError) -> Self {
        Self::Model(error)
    }
}

impl From<SimError> for CalibrateError {
    fn from(error: SimError) -> Self {
        Self::Sim(error)
    }
}

#[cfg(test)]
mod tests;
