//! The modelled rig that cells run on.

/// The modelled rig, by the names of its models, and the kernel whose policy the array follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rig {
    /// Drive model.
    pub drive: String,
    /// Drives there are.
    pub count: u16,
    /// Controller model.
    pub controller: String,
    /// CPU model.
    pub cpu: String,
    /// Model of the block layer above a drive.
    pub block: String,
    /// Policy, one of [`Policy::ALL`](stripewise_engine::policy::Policy::ALL).
    pub policy: String,
}

impl Rig {
    /// With what it does not say as its drive's model says that the drive is used.
    ///
    /// # Errors
    /// No drive is named, its model cannot be loaded, or says nothing.
    pub fn completed(&self) -> Result<Self, String> {
        if self.drive.is_empty() {
            return Err("it names no drive model".to_owned());
        }
        let mut rig = self.clone();
        if ![&rig.controller, &rig.cpu, &rig.block].iter().any(|name| name.is_empty()) {
            return Ok(rig);
        }
        let drive = crate::load_model(&rig.drive).map_err(|e| e.to_string())?;
        if !drive.kind.is_drive() {
            return Err(format!(
                "{} is a model of kind \"{}\"; a drive is needed",
                rig.drive,
                drive.kind.name()
            ));
        }
        let companions = drive.rig;
        let parts = [
            ("controller", &mut rig.controller, companions.as_ref().map(|c| &c.controller)),
            ("cpu", &mut rig.cpu, companions.as_ref().map(|c| &c.cpu)),
            ("block", &mut rig.block, companions.as_ref().map(|c| &c.block)),
        ];
        for (what, name, usual) in parts {
            if name.is_empty() {
                let of_drive = "and its drive's model has no [rig] that does";
                usual.ok_or_else(|| format!("it names no {what} model, {of_drive}"))?.clone_into(name);
            }
        }
        Ok(rig)
    }
}
