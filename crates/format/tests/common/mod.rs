//! The fixtures in `tests/interop/fixtures` and their manifest.
#![allow(dead_code, reason = "each test file uses some of these")]

use std::fs;
use std::path::PathBuf;

use serde_json::Value;
use stripewise_format::placement::Metadata;
use stripewise_format::superblock::Superblock;
use stripewise_format::superblock_0::Superblock0;
use stripewise_format::superblock_1::Superblock1;

/// One member of one array, as real md left it.
pub(crate) struct Fixture {
    pub(crate) name: String,
    pub(crate) metadata: String,
    pub(crate) device_sectors: u64,
    row: Value,
}

pub(crate) fn json(name: &str) -> Vec<Value> {
    let text = fs::read_to_string(directory().join(name)).unwrap();
    let mut whole: Value = serde_json::from_str(&text).unwrap();
    whole["rows"].as_array_mut().unwrap().drain(..).collect()
}

pub(crate) fn fixtures() -> Vec<Fixture> {
    let fixture = |row: Value| Fixture {
        name: row["name"].as_str().unwrap().to_owned(),
        metadata: row["metadata"].as_str().unwrap().to_owned(),
        device_sectors: row["device_sectors"].as_u64().unwrap(),
        row,
    };
    json("manifest.json").into_iter().map(fixture).collect()
}

pub(crate) fn fixture(name: &str) -> Fixture {
    fixtures().into_iter().find(|f| f.name == name).unwrap_or_else(|| panic!("no fixture {name}"))
}

fn directory() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/interop/fixtures")
}

impl Fixture {
    /// The bytes of a structure that the member has: `sb`, `bitmap`, `ppl`, `bblog`, `journal`.
    pub(crate) fn bytes(&self, kind: &str) -> Option<Vec<u8>> {
        let file = self.row["files"].get(kind)?["file"].as_str().unwrap();
        Some(fs::read(directory().join(file)).unwrap())
    }

    pub(crate) fn sector(&self, kind: &str) -> u64 {
        self.row["files"][kind]["sector"].as_u64().unwrap()
    }

    pub(crate) fn lines(&self, of: &str) -> Vec<String> {
        self.row[of].as_array().unwrap().iter().map(|line| line.as_str().unwrap().to_owned()).collect()
    }

    /// The superblock of either version.
    pub(crate) fn superblock(&self) -> Superblock {
        let bytes = self.bytes("sb").unwrap();
        Superblock::parse(self.metadata(), &bytes, self.sector("sb"))
            .unwrap_or_else(|e| panic!("{}: {e}", self.name))
    }

    /// The superblock of a member of version 1.
    pub(crate) fn superblock_1(&self) -> Superblock1 {
        match self.superblock() {
            Superblock::V1(superblock) => *superblock,
            Superblock::V0(_) => panic!("{} is of 0.90", self.name),
        }
    }

    pub(crate) fn metadata(&self) -> Metadata {
        Metadata::parse(&self.metadata).unwrap()
    }
}

/// The bytes a big-endian machine would have written: each number in its order, halves of 64-bit numbers swapped.
pub(crate) fn big_endian(superblock: &Superblock0) -> Vec<u8> {
    let bytes = superblock.to_bytes();
    let mut words: Vec<u32> =
        bytes.chunks_exact(4).map(|w| u32::from_le_bytes(w.try_into().unwrap())).collect();
    for pair in [39, 41, 44] {
        words.swap(pair, pair + 1);
    }
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}
