//! A modelled drive, in virtual time.

use stripewise_engine::units::Slot;
use stripewise_sim::models::{BlockModel, ControllerModel, CpuModel, DriveModel, Model, ModelError};
use stripewise_sim::{Controller, Phantom, Rig, SimConfig, World};

use super::device::alone;
use super::{CalibrateError, Load, Probe};

/// A controller so fast that the drive's own link limits.
const CONTROLLER: &str = "nvme-pcie4-x4";
/// The block layer of a current kernel.
const BLOCK: &str = "linux-block-6.1";

/// A drive model on a CPU model.
pub struct Modelled {
    world: World<Phantom>,
    sectors: u64,
}

impl Modelled {
    /// The drive under that CPU; the seed says where its platters are.
    ///
    /// # Errors
    /// The model cannot be simulated.
    pub fn new(drive: &Model, cpu: &Model, seed: u64) -> Result<Self, CalibrateError> {
        let drive = DriveModel::new(drive)?;
        let sectors = drive.capacity_sectors();
        let rig = rig(drive, cpu)?;
        let config = SimConfig { volume: alone(sectors), rig, seed };
        Ok(Self { world: World::new(&config, Phantom)?, sectors })
    }
}

fn rig(drive: DriveModel, cpu: &Model) -> Result<Rig, ModelError> {
    let model = ControllerModel::new(&Model::load(CONTROLLER)?)?;
    Ok(Rig {
        drive,
        controllers: vec![Controller { model, members: vec![Slot(0)], bus: None }],
        buses: Vec::new(),
        cpu: CpuModel::new(cpu)?,
        block: BlockModel::new(&Model::load(BLOCK)?)?,
        way_ns: 0,
        group_thread_cnt: 0,
    })
}

impl Probe for Modelled {
    fn sectors(&self) -> u64 {
        self.sectors
    }

    fn run(&mut self, mut load: Load) -> Result<Load, CalibrateError> {
        self.world.run(&mut load, None)?;
        Ok(load)
    }
}
