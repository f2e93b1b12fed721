//! From a cell's parameters to the engine's configuration.

use stripewise_engine::geometry::{Geometry, GeometrySpec};
use stripewise_engine::level::{Layout, Level};
use stripewise_engine::units::SECTOR_BYTES;
use stripewise_engine::volume::VolumeConfig;

use crate::cell::Cell;
use crate::plan::CellTarget;

/// The volume of a cell on members of that many sectors. A drive by itself is a linear array of one member.
pub(super) fn volume(cell: &Cell, member_sectors: u64) -> Result<VolumeConfig, String> {
    let parameters = &cell.parameters;
    let array = &parameters.array;
    let (level, layout) = match parameters.target {
        CellTarget::Array => (array.level, parameters.layout()?),
        CellTarget::Drive => (Level::Linear, Layout::None),
    };
    let geometry = GeometrySpec {
        level,
        layout,
        chunk_sectors: if level.has_chunks() { array.chunk / SECTOR_BYTES } else { 0 },
        member_sectors: vec![member_sectors; parameters.members().into()],
    };
    let stripe_cache_size = array.stripe_cache_size;
    Ok(VolumeConfig { stripe_cache_size, ..VolumeConfig::new(geometry, parameters.policy()?) })
}

/// The sectors of the cell's target; refuses arrays that cannot be and jobs that do not fit.
pub(super) fn checked_sectors(cell: &Cell, member_sectors: u64) -> Result<u64, String> {
    let config = volume(cell, member_sectors)?;
    let geometry = Geometry::new(&config.geometry).map_err(|e| e.to_string())?;
    let sectors = geometry.array_sectors();
    cell.parameters.job.check_on(sectors).map_err(|e| e.to_string())?;
    Ok(sectors)
}
