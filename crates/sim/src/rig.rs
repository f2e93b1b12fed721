//! A rig: which drives, on which controllers, under which CPU and block layer.

use crate::models::{BlockModel, BusModel, ControllerModel, CpuModel, DriveModel, Model, ModelError};
use crate::topology::{self, TopologyError};
use std::fmt;
use stripewise_engine::units::Slot;

/// The models of a rig by name (built in) or path (a `.toml` file).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RigNames<'a> {
    /// Every member's drive.
    pub drive: &'a str,
    /// Controllers with their members.
    pub controllers: Vec<ControllerNames<'a>>,
    /// CPU.
    pub cpu: &'a str,
    /// Block layer.
    pub block: &'a str,
}

/// A controller by name or path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerNames<'a> {
    /// The controller.
    pub model: &'a str,
    /// Its members.
    pub members: Vec<Slot>,
    /// The bus it shares with every other controller that names the same; none if it has its own way to memory.
    pub bus: Option<&'a str>,
}

impl<'a> RigNames<'a> {
    /// All members on one controller.
    pub fn on_one_controller(
        drive: &'a str,
        controller: &'a str,
        cpu: &'a str,
        block: &'a str,
        members: u16,
    ) -> Self {
        let members = (0..members).map(Slot).collect();
        let controllers = vec![ControllerNames { model: controller, members, bus: None }];
        Self { drive, controllers, cpu, block }
    }

    /// Members in turn on controllers written as `MODEL[:COUNT][@BUS]`, joined by `+`, each with at most as
    /// many members as its count says, the last without a count with all that are left. `sii3114-pci:2 +
    /// nforce4-sata:2` splits four members over two controllers; `sii3114-pci:4@pci-32-33 +
    /// sii3114-pci:4@pci-32-33` has two controllers share a bus. A controller of one port stands for one of each of
    /// its members: `nvme-pcie4-x4`.
    pub fn with_topology(
        drive: &'a str,
        topology: &'a str,
        cpu: &'a str,
        block: &'a str,
        members: u16,
    ) -> Result<Self, TopologyError> {
        Ok(Self { drive, controllers: topology::parse(topology, members)?, cpu, block })
    }
}

/// A controller and the members attached to it.
#[derive(Clone, Debug, PartialEq)]
pub struct Controller {
    /// The controller and its bus.
    pub model: ControllerModel,
    /// Its members.
    pub members: Vec<Slot>,
    /// The bus it shares, by its place in [`Rig::buses`].
    pub bus: Option<usize>,
}

/// What an array runs on.
#[derive(Clone, Debug, PartialEq)]
pub struct Rig {
    /// Every member's drive.
    pub drive: DriveModel,
    /// Controllers; each member is on exactly one.
    pub controllers: Vec<Controller>,
    /// Buses that controllers share.
    pub buses: Vec<BusModel>,
    /// CPU.
    pub cpu: CpuModel,
    /// Block layer above each member.
    pub block: BlockModel,
    /// Nanoseconds each command is on its way to the drive, any number side by side. Zero in studies: it stands for what
    /// lies between kernel and drive where a rig is compared with a real one.
    pub way_ns: u64,
    /// Threads beside md's own that handle stripes: Linux's `group_thread_cnt` (since 3.12). They share no lock here.
    pub group_thread_cnt: usize,
}

/// Why a rig does not fit an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RigError {
    /// A member is on no controller.
    Unattached(Slot),
    /// A member is on two controllers, or twice on one.
    AttachedTwice(Slot),
    /// A controller names a slot the array does not have.
    NoSuchSlot {
        /// The slot.
        slot: Slot,
        /// Members of the array.
        members: usize,
    },
    /// More members than ports.
    TooManyMembers {
        /// Members attached.
        members: usize,
        /// Ports of the controller.
        ports: usize,
    },
    /// A member's data need more sectors than its drive has.
    DriveTooSmall {
        /// The member.
        slot: Slot,
        /// Sectors needed.
        needed: u64,
        /// Sectors the drive offers.
        capacity: u64,
    },
}

impl fmt::Display for RigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Unattached(slot) => write!(f, "member {slot} is on no controller; list it under one"),
            Self::AttachedTwice(slot) => {
                write!(f, "member {slot} is attached twice; list it under one controller")
            }
            Self::NoSuchSlot { slot, members } => {
                write!(f, "a controller has member {slot}, but the array has members 0 to {}", members - 1)
            }
            Self::TooManyMembers { members, ports } => {
                write!(f, "{members} members on a controller with {ports} ports; add a controller")
            }
            Self::DriveTooSmall { slot, needed, capacity } => write!(
                f,
                "member {slot} needs {needed} sectors, but the drive has {capacity}; make the array smaller or \
                 choose another drive"
            ),
        }
    }
}

impl std::error::Error for RigError {}

impl Rig {
    /// Loads the models of a rig.
    pub fn load(names: &RigNames<'_>) -> Result<Self, ModelError> {
        Self::load_with(names, Model::load)
    }

    /// Makes a rig of the models that `load` answers with for their names.
    pub fn load_with(
        names: &RigNames<'_>,
        load: impl Fn(&str) -> Result<Model, ModelError>,
    ) -> Result<Self, ModelError> {
        let mut controllers = Vec::with_capacity(names.controllers.len());
        let (mut buses, mut bus_names) = (Vec::new(), Vec::new());
        for controller in &names.controllers {
            let known = bus_names.iter().position(|&name| Some(name) == controller.bus);
            let bus = match (known, controller.bus) {
                (None, Some(name)) => {
                    bus_names.push(name);
                    buses.push(BusModel::new(&load(name)?)?);
                    Some(buses.len() - 1)
                }
                (known, _) => known,
            };
            let model = ControllerModel::new(&load(controller.model)?)?;
            // One with a single port, as an NVMe drive's lanes, stands for one of each drive.
            let each = if model.ports == 1 { 1 } else { controller.members.len().max(1) };
            let shares = controller.members.chunks(each);
            controllers.extend(shares.map(|m| Controller { model: model.clone(), members: m.to_vec(), bus }));
        }
        Ok(Self {
            drive: DriveModel::new(&load(names.drive)?)?,
            controllers,
            buses,
            cpu: CpuModel::new(&load(names.cpu)?)?,
            block: BlockModel::new(&load(names.block)?)?,
            way_ns: 0,
            group_thread_cnt: 0,
        })
    }

    /// All models of the rig as loaded, for listing and provenance.
    pub fn models(&self) -> impl Iterator<Item = &Model> {
        std::iter::once(self.drive.model())
            .chain(self.controllers.iter().map(|c| &c.model.model))
            .chain(self.buses.iter().map(|b| &b.model))
            .chain([&self.cpu.model, &self.block.model])
    }

    /// A hash of everything the simulator reads from the rig.
    pub fn hash(&self) -> u64 {
        let mut hash = crate::trace::Fnv::new();
        self.models().for_each(|m| hash.word(m.hash()));
        if self.way_ns > 0 {
            hash.word(self.way_ns);
        }
        if self.group_thread_cnt > 0 {
            hash.word(2 << 32 | self.group_thread_cnt as u64);
        }
        for controller in &self.controllers {
            hash.word(controller.members.len() as u64);
            controller.members.iter().for_each(|m| hash.word(m.index() as u64));
            if let Some(bus) = controller.bus {
                hash.word(1 << 32 | bus as u64);
            }
        }
        hash.finish()
    }

    /// The controller of each member, or why the rig does not fit members that need so many sectors.
    pub(crate) fn attach(&self, member_sectors: &[u64]) -> Result<Vec<usize>, RigError> {
        let members = member_sectors.len();
        let mut attached = vec![None; members];
        for (index, controller) in self.controllers.iter().enumerate() {
            let ports = controller.model.ports;
            if controller.members.len() > ports {
                return Err(RigError::TooManyMembers { members: controller.members.len(), ports });
            }
            for &slot in &controller.members {
                let place = attached.get_mut(slot.index()).ok_or(RigError::NoSuchSlot { slot, members })?;
                if place.replace(index).is_some() {
                    return Err(RigError::AttachedTwice(slot));
                }
            }
        }
        let capacity = self.drive.capacity_sectors();
        let mut controllers = Vec::with_capacity(members);
        for (index, (found, &needed)) in attached.into_iter().zip(member_sectors).enumerate() {
            let slot = Slot(index as u16);
            if needed > capacity {
                return Err(RigError::DriveTooSmall { slot, needed, capacity });
            }
            controllers.push(found.ok_or(RigError::Unattached(slot))?);
        }
        Ok(controllers)
    }
}
