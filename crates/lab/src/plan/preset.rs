//! The plans that come with the program.

use super::{Plan, PlanError};

/// A built-in plan.
#[derive(Clone, Copy, Debug)]
pub struct Preset {
    /// Name, as typed.
    pub name: &'static str,
    /// The TOML.
    pub text: &'static str,
}

macro_rules! presets {
    ($($name:literal),* $(,)?) => {
        &[$(Preset { name: $name, text: include_str!(concat!("../../../../studies/", $name, ".toml")) }),*]
    };
}

/// Every built-in plan.
pub static PRESETS: &[Preset] =
    presets!["cache-size", "chunk-size", "monkey-house", "stride", "ssd-cached", "rebuild", "bitmap", "nvme"];

impl Preset {
    /// Reads the plan.
    pub fn plan(&self) -> Result<Plan, PlanError> {
        Plan::parse(&format!("{}.toml (built in)", self.name), self.text)
    }
}
