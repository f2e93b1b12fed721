//! `model`: modelled drives in virtual time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::bail;
use stripewise_engine::units::SECTOR_BYTES;
use stripewise_sim::models::Model;
use stripewise_sim::{Rig, RigNames, SimConfig};

use super::volume::{checked_sectors, volume};
use super::{CellError, Measurement, Target, TargetKind};
use crate::cell::Cell;
use crate::results::Provenance;
use crate::workload::JobRunner;

pub(super) const KIND: TargetKind = TargetKind {
    name: "model",
    usage: "model (the plan's modelled rig, in virtual time)",
    is_real: false,
    open: |rest, _| {
        if !rest.is_empty() {
            bail!("'model:{rest}': the rig is named in the plan; write model alone");
        }
        Ok(Box::new(ModelTarget::default()))
    },
};

/// Runs cells in the simulator.
#[derive(Default)]
struct ModelTarget {
    /// Rigs by the names and the members that make them.
    rigs: Mutex<BTreeMap<[String; 5], Arc<Rig>>>,
}

impl ModelTarget {
    fn rig(&self, cell: &Cell) -> Result<Arc<Rig>, String> {
        let rig = &cell.parameters.rig;
        let members = cell.parameters.members();
        let names = [&rig.drive, &rig.controller, &rig.cpu, &rig.block];
        for (name, what) in names.iter().zip(["drive", "controller", "cpu", "block"]) {
            if name.is_empty() {
                return Err(format!("the plan's [rig] names no {what} model"));
            }
        }
        let [drive, controller, cpu, block] = names.map(Clone::clone);
        let key = [drive, controller, cpu, block, members.to_string()];
        let mut rigs = self.rigs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = rigs.get(&key) {
            return Ok(Arc::clone(found));
        }
        let names = RigNames::with_topology(&key[0], &key[1], &key[2], &key[3], members);
        let names = names.map_err(|e| format!("the plan's [rig]: {e}"))?;
        let loaded = Arc::new(Rig::load(&names).map_err(|e| e.to_string())?);
        rigs.insert(key, Arc::clone(&loaded));
        Ok(loaded)
    }

    /// The models of all cells, each once, as the rigs name them.
    fn models(&self, cells: &[Cell]) -> Vec<Model> {
        let mut named = BTreeSet::new();
        let mut models = Vec::new();
        for rig in cells.iter().filter_map(|cell| self.rig(cell).ok()) {
            for model in rig.models() {
                if named.insert(model.file.clone()) {
                    models.push(model.clone());
                }
            }
        }
        models
    }

    fn config(&self, cell: &Cell) -> Result<SimConfig, String> {
        let rig = self.rig(cell)?;
        let volume = volume(cell, rig.drive.capacity_sectors())?;
        Ok(SimConfig { volume, rig: Rig::clone(&rig), seed: cell.seed() })
    }
}

impl Target for ModelTarget {
    fn name(&self) -> String {
        "model".to_owned()
    }

    fn describe(&self, cells: &[Cell]) -> String {
        let members = cells.iter().map(|c| c.parameters.members()).max().unwrap_or(0);
        let policies: BTreeSet<&str> = cells.iter().map(|c| c.parameters.rig.policy.as_str()).collect();
        let titles: Vec<String> = self.models(cells).into_iter().map(|m| m.title).collect();
        let policies = policies.into_iter().collect::<Vec<_>>().join(", ");
        format!("simulated: up to {members} members; {}; array policy {policies}", titles.join("; "))
    }

    fn identity(&self, cell: &Cell) -> String {
        self.rig(cell).map_or_else(|e| e, |rig| format!("model {:016x}", rig.hash()))
    }

    fn is_simulated(&self) -> bool {
        true
    }

    fn provenance(&self, cells: &[Cell]) -> Vec<Provenance> {
        let entry = |model: &str, p: stripewise_sim::models::Parameter| Provenance {
            model: model.to_owned(),
            parameter: p.name.to_owned(),
            value: p.value.to_string(),
            unit: p.unit.to_owned(),
            kind: p.kind.name().to_owned(),
            source: p.note.map_or_else(|| p.source.clone(), |note| format!("{}; {note}", p.source)),
        };
        let of_model = |m: Model| m.parameters.into_iter().map(|p| entry(&m.name, p)).collect::<Vec<_>>();
        self.models(cells).into_iter().flat_map(of_model).collect()
    }

    fn check(&self, cell: &Cell) -> Result<(), String> {
        let rig = self.rig(cell)?;
        let members = usize::from(cell.parameters.members());
        if let Some(full) = rig.controllers.iter().find(|c| c.members.len() > c.model.ports) {
            let (name, ports) = (&full.model.model.name, full.model.ports);
            return Err(format!("{members} members on {name}, which has {ports} ports"));
        }
        checked_sectors(cell, rig.drive.capacity_sectors()).map(|_| ())
    }

    fn run(&self, cell: &Cell, cancel: &Arc<AtomicBool>) -> Result<Measurement, CellError> {
        let config = self.config(cell).map_err(CellError)?;
        let sectors = checked_sectors(cell, config.rig.drive.capacity_sectors()).map_err(CellError)?;
        let runner = JobRunner::new(&cell.parameters.job, sectors).map_err(|e| CellError(e.to_string()))?;
        let mut runner = runner.with_cancel(Arc::clone(cancel));
        let report = stripewise_sim::run(&config, &mut runner).map_err(|e| CellError(e.to_string()))?;
        let bytes = |sectors: u64| sectors * SECTOR_BYTES;
        let members = report.members.iter().map(|m| m.stats);
        let members = members.map(|s| [s.reads, bytes(s.sectors_read), s.writes, bytes(s.sectors_written)]);
        Measurement::of(runner.measured(), members)
    }
}

#[cfg(test)]
#[path = "model_tests.rs"]
mod tests;
