//! The superblock's words: places, byte order, checksum, reading and writing.

use super::{BLOCK_BYTES, DISKS, Disk, MAGIC, Reshape, Superblock0, Superblock0Error, WORDS};
use crate::error::{FieldError, require};
use crate::level::Level;
use crate::uuid::Uuid;

const SB_CSUM: usize = 38;
const EVENTS: usize = 39;
const CP_EVENTS: usize = 41;
const RESHAPE_POSITION: usize = 44;
const DISKS_START: usize = 128;
const DISK_WORDS: usize = 32;
const THIS_DISK: usize = 992;
const MINOR_PLAIN: u32 = 90;
const MINOR_RESHAPING: u32 = 91;

/// The byte order of a version-0.90 superblock: its writer's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ByteOrder {
    /// Least significant byte first.
    Little,
    /// Most significant byte first.
    Big,
}

impl ByteOrder {
    fn word(self, bytes: [u8; 4]) -> u32 {
        match self {
            Self::Little => u32::from_le_bytes(bytes),
            Self::Big => u32::from_be_bytes(bytes),
        }
    }

    /// A number of two words: they lie in memory as the writer's machine lays out 64 bits.
    fn pair(self, words: &[u32; WORDS], at: usize) -> u64 {
        let (low, high) = match self {
            Self::Little => (words[at], words[at + 1]),
            Self::Big => (words[at + 1], words[at]),
        };
        u64::from(high) << 32 | u64::from(low)
    }
}

pub(super) fn parse(block: &[u8]) -> Result<Superblock0, Superblock0Error> {
    let Some(block) = block.get(..BLOCK_BYTES) else {
        return Err(Superblock0Error::Truncated { found_bytes: block.len(), needed_bytes: BLOCK_BYTES });
    };
    let first: [u8; 4] = block[..4].try_into().expect("four bytes");
    let order = [ByteOrder::Little, ByteOrder::Big].into_iter().find(|order| order.word(first) == MAGIC);
    let Some(order) = order else {
        return Err(Superblock0Error::Magic { found: u32::from_le_bytes(first), right: MAGIC });
    };
    let mut words = Box::new([0; WORDS]);
    for (word, bytes) in words.iter_mut().zip(block.chunks_exact(4)) {
        *word = order.word(bytes.try_into().expect("four bytes"));
    }
    require(words[1] == 0, "major_version", words[1], || "it is 0 in this place".to_owned())?;
    let (found, right) = (words[SB_CSUM], checksum(&words));
    if found != right {
        return Err(Superblock0Error::Checksum { found, right });
    }
    let minors = MINOR_PLAIN..=MINOR_RESHAPING;
    require(minors.contains(&words[2]), "minor_version", words[2], || {
        "it is 90, or 91 while reshaping".to_owned()
    })?;
    Ok(from_words(order, words)?)
}

fn from_words(order: ByteOrder, words: Box<[u32; WORDS]>) -> Result<Superblock0, FieldError> {
    let level = words[7] as i32;
    let level = Level::from_number(level)
        .ok_or_else(|| FieldError::new("level", level, "it is -1 (linear), 0, 1, 4, 5, 6 or 10"))?;
    let reshape = (words[2] == MINOR_RESHAPING).then(|| Reshape {
        position_sectors: order.pair(&words, RESHAPE_POSITION),
        new_level: words[46] as i32,
        delta_disks: words[47] as i32,
        new_layout: words[48],
        new_chunk_bytes: words[49],
    });
    Ok(Superblock0 {
        byte_order: order,
        patch_version: words[3],
        set_uuid: Uuid::from_words([words[5], words[13], words[14], words[15]]),
        ctime_seconds: words[6],
        level,
        size_kib: words[8],
        nr_disks: words[9],
        raid_disks: words[10],
        md_minor: words[11],
        not_persistent: words[12],
        utime_seconds: words[32],
        state: words[33],
        active_disks: words[34],
        working_disks: words[35],
        failed_disks: words[36],
        spare_disks: words[37],
        events: order.pair(&words, EVENTS),
        checkpoint_events: order.pair(&words, CP_EVENTS),
        recovery_checkpoint_sectors: words[43],
        reshape,
        layout: words[64],
        chunk_bytes: words[65],
        disks: std::array::from_fn(|row| disk(&words, DISKS_START + row * DISK_WORDS)),
        this_disk: disk(&words, THIS_DISK),
        words,
    })
}

fn disk(words: &[u32; WORDS], at: usize) -> Disk {
    Disk {
        number: words[at],
        major: words[at + 1],
        minor: words[at + 2],
        raid_disk: words[at + 3],
        state: words[at + 4],
    }
}

fn put_disk(words: &mut [u32; WORDS], at: usize, disk: &Disk) {
    words[at..at + 5].copy_from_slice(&[disk.number, disk.major, disk.minor, disk.raid_disk, disk.state]);
}

fn put_pair(words: &mut [u32; WORDS], at: usize, value: u64) {
    words[at] = value as u32;
    words[at + 1] = (value >> 32) as u32;
}

/// The kernel's `calc_sb_csum`: the words, with `sb_csum` taken as zero, summed in 64 bits and folded once.
fn checksum(words: &[u32; WORDS]) -> u32 {
    let sum = words.iter().map(|word| u64::from(*word)).sum::<u64>() - u64::from(words[SB_CSUM]);
    (sum as u32).wrapping_add((sum >> 32) as u32)
}

impl Superblock0 {
    /// A superblock without devices, of no size, for a new array.
    pub fn new(level: Level, raid_disks: u32, set_uuid: Uuid) -> Self {
        let blank = from_words(ByteOrder::Little, Box::new([0; WORDS])).expect("level 0 is a level");
        Self { set_uuid, level, raid_disks, ..blank }
    }

    /// The 4096 bytes to write, little-endian, checksum computed.
    pub fn to_bytes(&self) -> Vec<u8> {
        let words = self.to_words();
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// The checksum that these values have on disk (`sb_csum`).
    pub fn checksum(&self) -> u32 {
        self.to_words()[SB_CSUM]
    }

    fn to_words(&self) -> Box<[u32; WORDS]> {
        let mut words = self.words.clone();
        let minor = if self.reshape.is_some() { MINOR_RESHAPING } else { MINOR_PLAIN };
        words[..4].copy_from_slice(&[MAGIC, 0, minor, self.patch_version]);
        let [uuid0, uuid1, uuid2, uuid3] = self.set_uuid.words();
        let size = [self.size_kib, self.nr_disks, self.raid_disks, self.md_minor, self.not_persistent];
        words[5..8].copy_from_slice(&[uuid0, self.ctime_seconds, self.level.number() as u32]);
        words[8..13].copy_from_slice(&size);
        words[13..16].copy_from_slice(&[uuid1, uuid2, uuid3]);
        let counts = [self.active_disks, self.working_disks, self.failed_disks, self.spare_disks];
        words[32..34].copy_from_slice(&[self.utime_seconds, self.state]);
        words[34..38].copy_from_slice(&counts);
        put_pair(&mut words, EVENTS, self.events);
        put_pair(&mut words, CP_EVENTS, self.checkpoint_events);
        words[43] = self.recovery_checkpoint_sectors;
        if let Some(reshape) = &self.reshape {
            put_pair(&mut words, RESHAPE_POSITION, reshape.position_sectors);
            let (level, delta) = (reshape.new_level as u32, reshape.delta_disks as u32);
            words[46..50].copy_from_slice(&[level, delta, reshape.new_layout, reshape.new_chunk_bytes]);
        }
        words[64..66].copy_from_slice(&[self.layout, self.chunk_bytes]);
        for (row, disk) in self.disks.iter().enumerate().take(DISKS) {
            put_disk(&mut words, DISKS_START + row * DISK_WORDS, disk);
        }
        put_disk(&mut words, THIS_DISK, &self.this_disk);
        words[SB_CSUM] = checksum(&words);
        words
    }
}
