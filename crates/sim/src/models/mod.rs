//! Model files: drives, controllers, CPUs and block layers as TOML, every parameter with its unit, its
//! source and whether it is quoted, measured, derived or assumed.
//!
//! # Contract
//! Whatever the simulator charges comes from a parameter of a model; nothing is hidden in code. A file is
//! checked in full when it is loaded: unknown and missing parameters, units, bounds, and what must hold
//! between parameters. A drive's file may name the rest of its usual rig ([`Companions`]). A new model is
//! one file in `studies/models/` and one line in [`BUILT_IN`].

mod block;
mod controller;
mod cpu;
mod drive;
mod error;
mod parse;
mod schema;
mod ssd;

use std::fmt;

pub use block::{BlockModel, SliceModel};
pub use controller::{BusModel, ControllerModel};
pub use cpu::CpuModel;
pub use drive::{ConstantModel, DriveModel, HddModel, SeekModel, ZoneModel};
pub use error::{ModelError, Problem};
pub use ssd::SsdModel;

/// A model file compiled into the program.
#[derive(Clone, Copy, Debug)]
pub struct BuiltIn {
    /// Name, as written in plans.
    pub name: &'static str,
    /// File, from the root of the repository.
    pub file: &'static str,
    text: &'static str,
}

macro_rules! built_in {
    ($($name:literal),* $(,)?) => {
        [$(BuiltIn {
            name: $name,
            file: concat!("studies/models/", $name, ".toml"),
            text: include_str!(concat!("../../../../studies/models/", $name, ".toml")),
        }),*]
    };
}

/// The models compiled into the program.
pub const BUILT_IN: [BuiltIn; 25] = built_in![
    "hdd-2006-7200",
    "st3320620as",
    "st31000333as",
    "st3000dm001",
    "exos-x20-20tb",
    "ssd-dc-s3700-800gb",
    "ssd-d7-p5600-6.4tb",
    "constant-latency",
    "sii3114-pci",
    "nforce4-sata",
    "88sx6081-pci32",
    "sas2008-pcie2-x8",
    "sas-hba-pcie3-x8",
    "nvme-pcie4-x4",
    "pci-32-33",
    "athlon64-2.0",
    "opteron-244",
    "opteron-4238",
    "xeon-e5-2600-2s",
    "zen3-2vcpu",
    "epyc-7313",
    "linux-block-2.6.18",
    "linux-block-2.6.27",
    "linux-block-3.2",
    "linux-block-6.1",
];

/// What a model describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelKind {
    /// A mechanical drive.
    Hdd,
    /// A flash drive.
    Ssd,
    /// A drive of constant latency.
    Constant,
    /// A controller and the bus it sits on.
    Controller,
    /// A bus that controllers share.
    Bus,
    /// A CPU.
    Cpu,
    /// The block layer above each member.
    Block,
}

impl ModelKind {
    /// Whether it is a drive.
    pub const fn is_drive(self) -> bool {
        matches!(self, Self::Hdd | Self::Ssd | Self::Constant)
    }

    /// All kinds.
    pub const ALL: [Self; 7] =
        [Self::Hdd, Self::Ssd, Self::Constant, Self::Controller, Self::Bus, Self::Cpu, Self::Block];

    /// The word used in model files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hdd => "hdd",
            Self::Ssd => "ssd",
            Self::Constant => "constant",
            Self::Controller => "controller",
            Self::Bus => "bus",
            Self::Cpu => "cpu",
            Self::Block => "block",
        }
    }
}

/// Where a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Provenance {
    /// A published figure for this very thing.
    Quoted,
    /// Measured here; the source says how.
    Measured,
    /// Computed from published figures; the source says how.
    Derived,
    /// A guess; the source says what it leans on.
    Assumed,
}

impl Provenance {
    /// The word used in model files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Quoted => "quoted",
            Self::Measured => "measured",
            Self::Derived => "derived",
            Self::Assumed => "assumed",
        }
    }
}

/// A parameter's value.
#[derive(Clone, Debug, PartialEq, serde::Deserialize)]
#[serde(untagged, expecting = "the value must be a number or a list of numbers")]
pub enum Value {
    /// One number.
    Number(f64),
    /// One number per zone.
    List(Vec<f64>),
}

impl Value {
    /// The numbers of the value.
    pub fn numbers(&self) -> &[f64] {
        match self {
            Self::Number(number) => std::slice::from_ref(number),
            Self::List(list) => list,
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, number) in self.numbers().iter().enumerate() {
            write!(f, "{}{number}", if i == 0 { "" } else { " " })?;
        }
        Ok(())
    }
}

/// One parameter of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    /// Name.
    pub name: &'static str,
    /// What it means.
    pub about: &'static str,
    /// Value, in `unit`.
    pub value: Value,
    /// Unit.
    pub unit: &'static str,
    /// Whether it is quoted, measured, derived or assumed.
    pub kind: Provenance,
    /// Where it comes from.
    pub source: String,
    /// What else should be known.
    pub note: Option<String>,
    /// Line of the value in the file.
    pub line: usize,
}

/// The rest of the rig that a drive is usually in, by the names of its models.
#[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(deny_unknown_fields)]
pub struct Companions {
    /// Controllers, as [`crate::RigNames::with_topology`] reads them.
    pub controller: String,
    /// CPU.
    pub cpu: String,
    /// Block layer.
    pub block: String,
}

/// A model as loaded: what is listed, reported and hashed. The typed models are made from it.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// Name.
    pub name: String,
    /// What it describes.
    pub kind: ModelKind,
    /// One line about it.
    pub title: String,
    /// The file it was loaded from.
    pub file: String,
    /// Of a drive: what it is usually used with, for rigs that do not say.
    pub rig: Option<Companions>,
    /// The parameters, in the order of the kind's table.
    pub parameters: Vec<Parameter>,
}

impl Model {
    /// Loads a built-in model by name, or any model by path (a name with `/` or ending in `.toml`).
    pub fn load(name: &str) -> Result<Self, ModelError> {
        let is_path =
            name.contains('/') || std::path::Path::new(name).extension().is_some_and(|e| e == "toml");
        if is_path {
            let text = std::fs::read_to_string(name)
                .map_err(|e| ModelError::whole_file(name, Problem::Unreadable(e.to_string())))?;
            return Self::parse(name, &text);
        }
        match BUILT_IN.iter().find(|b| b.name == name) {
            Some(built_in) => Self::parse(built_in.file, built_in.text),
            None => Err(ModelError::whole_file(name, Problem::NoSuchModel)),
        }
    }

    /// Loads a model from the text of a file; `file` is named in errors.
    pub fn parse(file: &str, text: &str) -> Result<Self, ModelError> {
        let model = parse::model(file, text)?;
        model.check()?;
        Ok(model)
    }

    /// The model with every number of a parameter multiplied; whole numbers are rounded.
    ///
    /// # Errors
    /// What the model then contradicts, a value that is out of its bounds, or one that rounding leaves as it was.
    pub fn scaled(&self, parameter: &str, factor: f64) -> Result<Self, ModelError> {
        let mut model = self.clone();
        for found in model.parameters.iter_mut().filter(|p| p.name == parameter) {
            let spec = schema::of(self.kind).iter().find(|spec| spec.name == parameter);
            let spec = spec.expect("a model has the parameters of its kind");
            let is_whole = spec.shape != schema::Shape::Number;
            let scaled = |number: &f64| {
                let product = number * factor;
                if is_whole { product.round() } else { product }
            };
            let value = match &found.value {
                Value::Number(number) => Value::Number(scaled(number)),
                Value::List(list) => Value::List(list.iter().map(scaled).collect()),
            };
            let fault = |problem| ModelError::at(&self.file, Some(found.line), parameter, problem);
            if is_whole && value == found.value {
                let what = format!("{factor} times {value} is rounded to the same: it does not move");
                return Err(fault(Problem::Contradiction(what)));
            }
            parse::check(spec, &value).map_err(fault)?;
            found.value = value;
        }
        model.check()?;
        Ok(model)
    }

    /// The model with another value of a parameter, which then counts as assumed.
    ///
    /// # Errors
    /// There is no such parameter, the value is out of its bounds, or contradicts another.
    pub fn with_value(&self, parameter: &str, value: &Value) -> Result<Self, ModelError> {
        let specs = schema::of(self.kind);
        let at = |line, problem| ModelError::at(&self.file, line, parameter, problem);
        let Some(spec) = specs.iter().find(|s| s.name == parameter) else {
            let known = specs.iter().map(|s| s.name).collect();
            return Err(at(None, Problem::UnknownParameter { known }));
        };
        parse::check(spec, value).map_err(|problem| at(None, problem))?;
        let mut model = self.clone();
        for found in model.parameters.iter_mut().filter(|p| p.name == parameter) {
            found.value = value.clone();
            found.kind = Provenance::Assumed;
            "given by the user".clone_into(&mut found.source);
            found.note = None;
        }
        model.check()?;
        Ok(model)
    }

    /// A hash of what the simulator reads from the model: kind, names, units and values. Titles, sources,
    /// notes and companions do not count.
    pub fn hash(&self) -> u64 {
        let mut hash = crate::trace::Fnv::new();
        hash.text(self.kind.name());
        for parameter in &self.parameters {
            hash.text(parameter.name);
            hash.text(parameter.unit);
            parameter.value.numbers().iter().for_each(|n| hash.word(n.to_bits()));
        }
        hash.finish()
    }

    fn check(&self) -> Result<(), ModelError> {
        match self.kind {
            ModelKind::Hdd => HddModel::new(self).map(|_| ()),
            ModelKind::Ssd => SsdModel::new(self).map(|_| ()),
            _ => Ok(()),
        }
    }

    /// The first number of a parameter. The parameter is in the kind's table, hence present.
    fn number(&self, name: &str) -> f64 {
        self.list(name)[0]
    }

    fn list(&self, name: &str) -> &[f64] {
        let parameter = self.parameters.iter().find(|p| p.name == name);
        parameter.expect("a loaded model has every parameter of its kind").value.numbers()
    }

    fn milliseconds(&self, name: &str) -> u64 {
        (self.number(name) * 1e6).round() as u64
    }

    fn microseconds(&self, name: &str) -> u64 {
        (self.number(name) * 1e3).round() as u64
    }

    /// Sectors of a size in KiB.
    fn kib_sectors(&self, name: &str) -> u64 {
        (self.number(name) * 2.0) as u64
    }

    /// Picoseconds a byte takes at a rate in MB/s.
    fn picoseconds_per_byte(&self, name: &str) -> u64 {
        (1e6 / self.number(name)).round() as u64
    }

    fn expect_kind(&self, wanted: ModelKind) -> Result<(), ModelError> {
        if self.kind == wanted {
            return Ok(());
        }
        let problem = Problem::WrongKind { found: self.kind.name(), wanted: wanted.name() };
        Err(ModelError::whole_file(&self.file, problem))
    }
}
