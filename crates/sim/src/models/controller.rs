//! A controller and its bus, and a bus that controllers share.

use super::{Model, ModelError, ModelKind};

/// A controller: shared bandwidth, the cost and the largest size of a command, queue depth.
#[derive(Clone, Debug, PartialEq)]
pub struct ControllerModel {
    /// The model as loaded.
    pub model: Model,
    /// Picoseconds a byte holds the bus.
    pub byte_ps: u64,
    /// Nanoseconds a command holds the bus besides its data.
    pub command_ns: u64,
    /// Sectors of the largest command.
    pub command_sectors_max: u64,
    /// Commands outstanding to one drive.
    pub queue_depth: u32,
    /// Most drives.
    pub ports: usize,
}

impl ControllerModel {
    /// Makes the typed model of a loaded one.
    pub fn new(model: &Model) -> Result<Self, ModelError> {
        model.expect_kind(ModelKind::Controller)?;
        Ok(Self {
            byte_ps: model.picoseconds_per_byte("rate"),
            command_ns: model.microseconds("command_cost"),
            command_sectors_max: model.kib_sectors("command_size_max"),
            queue_depth: model.number("queue_depth") as u32,
            ports: model.number("ports") as usize,
            model: model.clone(),
        })
    }
}

/// A bus that controllers share.
#[derive(Clone, Debug, PartialEq)]
pub struct BusModel {
    /// The model as loaded.
    pub model: Model,
    /// Picoseconds a byte holds the bus.
    pub byte_ps: u64,
    /// Nanoseconds a command holds the bus besides its data.
    pub command_ns: u64,
}

impl BusModel {
    /// Makes the typed model of a loaded one.
    pub fn new(model: &Model) -> Result<Self, ModelError> {
        model.expect_kind(ModelKind::Bus)?;
        Ok(Self {
            byte_ps: model.picoseconds_per_byte("rate"),
            command_ns: model.microseconds("command_cost"),
            model: model.clone(),
        })
    }
}
