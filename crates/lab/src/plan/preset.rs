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

/// Every built-in plan.
pub static PRESETS: &[Preset] =
    &[Preset { name: "chunk-size", text: include_str!("../../../../studies/chunk-size.toml") }];

impl Preset {
    /// Reads the plan.
    pub fn plan(&self) -> Result<Plan, PlanError> {
        Plan::parse(&format!("{}.toml (built in)", self.name), self.text)
    }
}
