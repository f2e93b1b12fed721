//! Plans: a question, the factors that vary and what stays fixed, in TOML.
//!
//! A plan names parameters ([`PARAMETERS`]) in three places: fixed in `[rig]`, `[array]`, `[stack]` and `[job]`, varied
//! in `[factors]`, and replaced in `[quick]` (the shortened plan), `[real]` (real storage) and `[real.quick]`,
//! which are applied in that order. A plan may have parts (`[[part]]`), each with tables of its own that go before the
//! plan's: a parameter that a part fixes is no factor there. Anything unknown is an error that names file, line, key and what is known.

mod error;
mod expand;
mod own_work;
mod parameter;
mod preset;
mod rig;
mod table;

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use serde::de::{Deserializer, Visitor};
use toml::Spanned;

pub use error::PlanError;
pub use expand::{CELLS_MAX, Choices, Expansion, ResolvedPlan};
pub use parameter::{ArraySpec, CellTarget, Fault, Parameter, Parameters, Section, StackSpec, Work, find};
pub use preset::{PRESETS, Preset};
pub use rig::Rig;
pub use table::PARAMETERS;

use error::Source;

/// A plan as written.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Where it was read from: a path, or `NAME.toml (built in)`.
    pub file: String,
    /// The TOML.
    pub text: String,
    document: Document,
}

/// The plan's TOML.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    name: Spanned<String>,
    title: String,
    question: String,
    #[serde(default)]
    source: String,
    subject: Spanned<String>,
    #[serde(default = "default_seed")]
    seed: u64,
    replicates: Option<Spanned<u32>>,
    #[serde(default)]
    rig: Table,
    #[serde(default)]
    array: Table,
    #[serde(default)]
    stack: Table,
    #[serde(default)]
    job: Table,
    #[serde(default)]
    factors: Factors,
    #[serde(default)]
    quick: Overrides,
    #[serde(default)]
    real: Real,
    #[serde(default)]
    part: Vec<Part>,
}

/// A part of a plan whose cells do not combine with those of the others.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Part {
    name: Spanned<String>,
    replicates: Option<Spanned<u32>>,
    #[serde(default)]
    rig: Table,
    #[serde(default)]
    array: Table,
    #[serde(default)]
    stack: Table,
    #[serde(default)]
    job: Table,
    #[serde(default)]
    factors: Factors,
    #[serde(default)]
    quick: Overrides,
}

/// Parameters by name, each with the place of its value.
type Table = BTreeMap<String, Spanned<Scalar>>;
/// Factors by name.
type Factors = BTreeMap<String, Spanned<Vec<Spanned<Scalar>>>>;

impl Overrides {
    fn is_empty(&self) -> bool {
        let Self { replicates, runtime, ramp_time, policy, factors } = self;
        let are_set = [runtime.is_some(), ramp_time.is_some(), policy.is_some(), !factors.is_empty()];
        replicates.is_none() && !are_set.contains(&true)
    }
}

/// What a shortened or a real run replaces.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Overrides {
    replicates: Option<Spanned<u32>>,
    runtime: Option<Spanned<Scalar>>,
    ramp_time: Option<Spanned<Scalar>>,
    policy: Option<Spanned<Scalar>>,
    #[serde(default)]
    factors: Factors,
}

/// What real storage needs to know besides.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Real {
    member_size: Option<Spanned<Scalar>>,
    fill: Option<Fill>,
    replicates: Option<Spanned<u32>>,
    runtime: Option<Spanned<Scalar>>,
    ramp_time: Option<Spanned<Scalar>>,
    policy: Option<Spanned<Scalar>>,
    #[serde(default)]
    factors: Factors,
    #[serde(default)]
    quick: Overrides,
}

/// What member files hold when a study starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Fill {
    /// Nothing: blocks are allocated as they are written. A read of what has not been written is of a hole and touches no drive.
    Sparse,
    /// Random bytes: every block is allocated and nothing compresses.
    #[default]
    Random,
}

impl Parameter {
    /// Whether it names the modelled rig rather than the array or the workload. The policy is the engine's.
    pub fn is_of_rig(&self) -> bool {
        self.section == Section::Rig && self.name != "policy"
    }
}

/// What a study needs of real storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RealStorage {
    /// Bytes of each member, where the plan says.
    pub member_bytes: Option<u64>,
    /// What member files hold at the start: random bytes, unless sparse ones are asked for, since even writes read.
    pub fill: Fill,
}

/// Bytes of each member file where nobody says.
pub const MEMBER_BYTES_DEFAULT: u64 = 1 << 30;

/// A string, number or boolean, kept as printed.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Scalar(String);

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ScalarVisitor;
        impl Visitor<'_> for ScalarVisitor {
            type Value = Scalar;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a string, a whole number or a boolean")
            }
            fn visit_str<E>(self, v: &str) -> Result<Scalar, E> {
                Ok(Scalar(v.to_owned()))
            }
            fn visit_i64<E>(self, v: i64) -> Result<Scalar, E> {
                Ok(Scalar(v.to_string()))
            }
            fn visit_bool<E>(self, v: bool) -> Result<Scalar, E> {
                Ok(Scalar(v.to_string()))
            }
        }
        deserializer.deserialize_any(ScalarVisitor)
    }
}

const fn default_seed() -> u64 {
    1
}

impl Plan {
    /// Reads a plan from TOML; `file` is named in errors.
    pub fn parse(file: &str, text: &str) -> Result<Self, PlanError> {
        let source = Source { file, text };
        let document: Document = toml::from_str(text).map_err(|e| source.syntax(&e))?;
        let plan = Self { file: file.to_owned(), text: text.to_owned(), document };
        plan.check_names()?;
        // Every value of every variant is read now, so that a fault shows before anything runs.
        for (quick, real) in [(false, false), (true, false), (false, true), (true, true)] {
            plan.resolve(Choices { quick, real, ..Choices::default() })?;
        }
        Ok(plan)
    }

    /// A study's name is that of its folder; parts are told apart by theirs.
    fn check_names(&self) -> Result<(), PlanError> {
        let name = &self.document.name;
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        if !name.get_ref().chars().all(is_plain) || name.get_ref().trim_matches('.').is_empty() {
            let message = format!(
                "name '{}' cannot name a folder; use letters, digits, dots, dashes and underscores",
                name.get_ref()
            );
            return Err(self.source_text().error(Some(name.span()), message));
        }
        for (index, part) in self.document.part.iter().enumerate() {
            let name = &part.name;
            if self.document.part[..index].iter().any(|other| other.name.get_ref() == name.get_ref()) {
                let message =
                    format!("two parts are named '{}'; give each a name of its own", name.get_ref());
                return Err(self.source_text().error(Some(name.span()), message));
            }
        }
        Ok(())
    }

    /// Reads a plan from a file.
    pub fn read(path: &Path) -> Result<Self, PlanError> {
        let file = path.display().to_string();
        let text = crate::small_file::read(path).map_err(|e| PlanError {
            file: file.clone(),
            line: None,
            message: format!("cannot read the plan: {e}"),
        })?;
        Self::parse(&file, &text)
    }

    /// A built-in plan by name, or the plan in the file of that path.
    pub fn open(name_or_path: &str) -> Result<Self, PlanError> {
        if let Some(preset) = PRESETS.iter().find(|p| p.name == name_or_path) {
            return preset.plan();
        }
        let path = Path::new(name_or_path);
        let is_toml = path.extension().is_some_and(|e| e.eq_ignore_ascii_case("toml"));
        if path.exists() || is_toml || name_or_path.contains('/') {
            return Self::read(path);
        }
        let known: Vec<&str> = PRESETS.iter().map(|p| p.name).collect();
        Err(PlanError {
            file: name_or_path.to_owned(),
            line: None,
            message: format!("no such study; built in are {}, or name a plan's file", known.join(", ")),
        })
    }

    /// The plan's name.
    pub fn name(&self) -> &str {
        self.document.name.get_ref()
    }

    /// The plan's title.
    pub fn title(&self) -> &str {
        &self.document.title
    }

    /// The question it answers.
    pub fn question(&self) -> &str {
        &self.document.question
    }

    /// Where the study comes from, for people.
    pub fn source(&self) -> &str {
        &self.document.source
    }

    /// What it needs of real storage.
    pub fn real_storage(&self) -> Result<RealStorage, PlanError> {
        let real = &self.document.real;
        let read = |size: &Spanned<Scalar>| {
            crate::workload::parse_size(&size.get_ref().0)
                .map_err(|e| self.source_text().error(Some(size.span()), format!("member_size: {e}")))
        };
        let member_bytes = real.member_size.as_ref().map(read).transpose()?;
        Ok(RealStorage { member_bytes, fill: real.fill.unwrap_or_default() })
    }

    const fn source_text(&self) -> Source<'_> {
        Source { file: self.file.as_str(), text: self.text.as_str() }
    }
}

#[cfg(test)]
mod tests;
