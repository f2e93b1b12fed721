//! Which files are a store's.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use super::STORE_FILE;

/// How `SQLite` begins a database.
const HEAD: &[u8; 16] = b"SQLite format 3\0";
/// What it adds to a database's name for the files beside it.
const BESIDE: [&str; 3] = ["-wal", "-shm", "-journal"];

/// Whether a path leads to a database, such as a store under whatever name, or to what `SQLite` keeps beside a store.
pub fn is_of_store(path: &Path) -> bool {
    is_database(path) || is_beside(path)
}

fn is_database(path: &Path) -> bool {
    // To open a pipe would wait for whoever writes to it.
    if !path.is_file() {
        return false;
    }
    let mut head = [0; HEAD.len()];
    File::open(path).and_then(|mut file| file.read_exact(&mut head)).is_ok() && head == *HEAD
}

/// Also of a name that is free: a store that is opened later would take the file for its own.
fn is_beside(path: &Path) -> bool {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    BESIDE.iter().any(|end| name.strip_suffix(end) == Some(STORE_FILE))
        && path.with_file_name(STORE_FILE).exists()
}
