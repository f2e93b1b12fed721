//! The array under test: what it is made of, and how it starts from the bytes of its members.

use stripewise_engine::geometry::{Geometry, GeometryError, GeometrySpec};
use stripewise_engine::level::{Layout, Level};
use stripewise_engine::policy::Policy;
use stripewise_engine::units::Slot;
use stripewise_engine::volume::VolumeConfig;

use crate::faults::MemberStorage;

/// What an array is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArrayPlan {
    /// Level.
    pub level: Level,
    /// Layout.
    pub layout: Layout,
    /// Slots.
    pub members: u16,
    /// Chunk in sectors; 0 for levels without.
    pub chunk_sectors: u64,
    /// Sectors of each member's data.
    pub data_sectors: u64,
    /// Whose behaviour.
    pub policy: Policy,
    /// Stripe-cache entries.
    pub stripe_cache_size: u32,
    /// Members take discards.
    pub discard: bool,
}

impl ArrayPlan {
    /// A small array of a level in its default layout.
    pub fn small(level: Level, members: u16, policy: Policy) -> Self {
        let chunk_sectors = if level.has_chunks() { 8 } else { 0 };
        Self {
            level,
            layout: Layout::default_of(level),
            members,
            chunk_sectors,
            data_sectors: 48,
            policy,
            stripe_cache_size: 17,
            discard: false,
        }
    }

    fn spec(&self) -> GeometrySpec {
        GeometrySpec {
            level: self.level,
            layout: self.layout,
            chunk_sectors: self.chunk_sectors,
            member_sectors: vec![self.data_sectors; self.members.into()],
        }
    }

    /// Its geometry.
    ///
    /// # Errors
    /// If there is no such array.
    pub fn geometry(&self) -> Result<Geometry, GeometryError> {
        Geometry::new(&self.spec())
    }

    /// Devices for it, all zeroes.
    pub fn devices(&self) -> Vec<MemberStorage> {
        (0..self.members).map(|_| MemberStorage::new(self.data_sectors)).collect()
    }

    /// How it starts from its devices; `lost` are those that do not answer.
    pub fn start(&self, lost: &[usize]) -> Start {
        let config = VolumeConfig {
            stripe_cache_size: self.stripe_cache_size,
            failed: lost.iter().map(|device| Slot(*device as u16)).collect(),
            discard: self.discard,
            ..VolumeConfig::new(self.spec(), self.policy.clone())
        };
        let devices = (0..usize::from(self.members)).collect();
        Start { config, devices, data_offset_sectors: vec![0; self.members.into()] }
    }
}

/// An array that can be started.
#[derive(Clone, Debug)]
pub struct Start {
    /// For the engine.
    pub config: VolumeConfig,
    /// The device of each member.
    pub devices: Vec<usize>,
    /// Where each device's data begin.
    pub data_offset_sectors: Vec<u64>,
}
