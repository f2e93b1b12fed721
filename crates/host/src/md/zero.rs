//! Clears the superblocks of devices that are to be known as members no more.
//!
//! # Contract
//! Every device is opened, claimed and looked at before the first is written. What fails then is put back on all of them, and the
//! error says whether that worked. Bitmaps, logs and data stay as they are, but that a superblock which lies in the data of another
//! array is one to be cleared, too, by force.

use std::fmt;
use std::path::{Path, PathBuf};

use stripewise_format::create::Area;
use stripewise_format::placement::Metadata;
use stripewise_format::superblock::SuperblockError;

use super::create::{Candidate, MemberWrite, WriteError, write};
use crate::error::HostError;

/// A device, and the versions of the superblocks that it had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Zeroed {
    /// Its path, as given.
    pub path: PathBuf,
    /// The versions, the one it went by first.
    pub metadata: Vec<Metadata>,
}

/// Why nothing was cleared.
#[derive(Debug)]
pub enum ZeroError {
    /// A device cannot be opened, or is in use.
    Host(HostError),
    /// A device has no superblock.
    Absent {
        /// The device.
        path: PathBuf,
        /// What it holds instead.
        holds: Vec<&'static str>,
    },
    /// A device has only superblocks that are not valid, and nothing said that these may be cleared.
    Damaged {
        /// The device.
        path: PathBuf,
        /// The version of the first.
        metadata: Metadata,
        /// What is wrong with it.
        error: SuperblockError,
    },
    /// A device has superblocks of several arrays, of which one may be data of another, and nothing said that all may be cleared.
    Several {
        /// The device.
        path: PathBuf,
        /// The versions.
        metadata: Vec<Metadata>,
    },
    /// A device could not be written.
    Write(WriteError),
}

impl fmt::Display for ZeroError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(error) => error.fmt(f),
            Self::Write(error) => error.fmt(f),
            Self::Absent { path, holds } => {
                write!(f, "{}: holds no md superblock", path.display())?;
                if holds.is_empty() { Ok(()) } else { write!(f, "; it holds {}", holds.join(", ")) }
            }
            Self::Several { path, metadata } => write!(
                f,
                "{}: holds superblocks of several arrays, of versions {}: one may lie in another's data; --force clears all of them",
                path.display(),
                metadata.iter().map(|metadata| metadata.name()).collect::<Vec<_>>().join(" and ")
            ),
            Self::Damaged { path, metadata, error } => write!(
                f,
                "{}: holds a superblock of version {metadata} that is not valid: {error}; --force clears it all the same",
                path.display()
            ),
        }
    }
}

impl std::error::Error for ZeroError {}

/// Clears every superblock of the devices, of all versions; damaged ones alone only by force. A block device is taken only if
/// `destroy` names it.
pub fn zero_superblocks(
    paths: &[PathBuf],
    destroy: &[PathBuf],
    force: bool,
) -> Result<Vec<Zeroed>, ZeroError> {
    let candidates = Candidate::open_all(paths, destroy).map_err(ZeroError::Host)?;
    let firsts = candidates.iter().map(|candidate| first(candidate, force)).collect::<Result<Vec<_>, _>>()?;
    let member = |(candidate, superblock)| MemberWrite { candidate, clears: true, logs: &[], superblock };
    let members: Vec<_> = candidates.iter().zip(&firsts).map(member).collect();
    write(&members).map_err(ZeroError::Write)?;
    let zeroed = |path: &Path, candidate: &Candidate| Zeroed {
        path: path.to_owned(),
        metadata: candidate.probe.found.iter().map(|found| found.metadata).collect(),
    };
    Ok(paths.iter().zip(&candidates).map(|(path, candidate)| zeroed(path, candidate)).collect())
}

/// Zeroes for the place of the superblock that a device goes by.
fn first(candidate: &Candidate, force: bool) -> Result<Area, ZeroError> {
    let path = || candidate.probe.path.clone();
    let Some(found) = candidate.probe.found.first() else {
        return Err(ZeroError::Absent { path: path(), holds: candidate.signatures.clone() });
    };
    match &found.superblock {
        Err(error) if !force => {
            Err(ZeroError::Damaged { path: path(), metadata: found.metadata, error: error.clone() })
        }
        _ if !force && is_of_several(candidate) => {
            let reads_well = candidate.probe.found.iter().filter(|found| found.superblock.is_ok());
            let metadata = reads_well.map(|found| found.metadata).collect();
            Err(ZeroError::Several { path: path(), metadata })
        }
        _ => Ok(Area { at_sector: found.at_sector, bytes: vec![0; 512] }),
    }
}

/// Whether the superblocks that read well are of several arrays.
fn is_of_several(candidate: &Candidate) -> bool {
    let uuids =
        candidate.probe.found.iter().filter_map(|found| Some(found.superblock.as_ref().ok()?.set_uuid()));
    let mut uuids: Vec<_> = uuids.collect();
    uuids.dedup();
    uuids.len() > 1
}
