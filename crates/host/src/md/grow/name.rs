//! Gives an array another name.

use std::path::PathBuf;

use stripewise_engine::assembly::Candidate as Offered;
use stripewise_format::superblock::Superblock;

use super::super::assemble::Found;
use super::{Area, Candidate, Changed, GrowProblem, require_same, write_all};

/// Gives an array that nobody uses a name, its host's before it, as superblocks have it. Answers how many devices had another.
///
/// Nothing else of the superblocks changes, events included, as by mdadm: so it does not matter what the array is in the midst of, and
/// bitmaps stay good. Every device that was found is renamed, whatever it is to the array; after a power cut, some.
///
/// # Errors
/// Version 0.90 has no name; a device cannot be opened or written. Then all are as they were.
pub fn rename(found: &Found, name: [u8; 32], destroy: &[PathBuf]) -> Result<usize, GrowProblem> {
    let opened = Candidate::open_all(&found.paths, destroy)?;
    let mut changes = Vec::new();
    for (opened, offered) in opened.iter().zip(&found.candidates) {
        require_same(opened, &offered.superblock)?;
        if let Some(superblock) = renamed(offered, name)? {
            changes.push((opened, Changed { logs: Vec::new(), superblock }));
        }
    }
    write_all(changes.iter().map(|(opened, changed)| (*opened, changed)))?;
    Ok(changes.len())
}

/// The superblock of a device with the name; nothing if it has it.
fn renamed(candidate: &Offered, name: [u8; 32]) -> Result<Option<Area>, GrowProblem> {
    let Superblock::V1(superblock) = &candidate.superblock else {
        return Err(GrowProblem::refused("a superblock of version 0.90 has no name"));
    };
    let mut superblock = superblock.clone();
    let has_it = std::mem::replace(&mut superblock.set_name, name) == name;
    Ok((!has_it).then(|| Area { at_sector: candidate.at_sector, bytes: superblock.to_bytes() }))
}
