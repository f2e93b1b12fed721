//! Computes the content hash of the sources that decide a cell's figures, so that the store never answers
//! with a figure of another engine.
#![forbid(unsafe_code)]

use std::fs;
use std::path::{Path, PathBuf};

/// The folders hashed, seen from this crate.
const SOURCES: [&str; 6] =
    ["../engine/src", "../sim/src", "../host/src", "../parity/src", "../format/src", "src/workload"];

fn main() {
    let base = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    let mut hasher = blake3::Hasher::new();
    let mut complete = true;
    for folder in SOURCES {
        println!("cargo:rerun-if-changed={folder}");
        complete &= hash_folder(&base, Path::new(folder), &mut hasher);
    }
    let hash = if complete {
        hasher.finalize().to_hex()[..16].to_owned()
    } else {
        format!("version-{}", std::env::var("CARGO_PKG_VERSION").unwrap_or_default())
    };
    println!("cargo:rustc-env=STRIPEWISE_ENGINE_HASH={hash}");
}

/// Hashes every file below `folder` with its name, in the order of names. False if something is not there.
fn hash_folder(base: &Path, folder: &Path, hasher: &mut blake3::Hasher) -> bool {
    let Ok(entries) = fs::read_dir(base.join(folder)) else { return false };
    let mut names: Vec<_> = entries.filter_map(Result::ok).map(|e| e.file_name()).collect();
    names.sort();
    names.into_iter().all(|name| {
        let path = folder.join(name);
        if base.join(&path).is_dir() {
            return hash_folder(base, &path, hasher);
        }
        let Ok(bytes) = fs::read(base.join(&path)) else { return false };
        hasher.update(path.to_string_lossy().as_bytes());
        hasher.update(&(bytes.len() as u64).to_le_bytes());
        hasher.update(&bytes);
        true
    })
}
