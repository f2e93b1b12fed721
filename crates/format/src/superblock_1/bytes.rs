//! The superblock's bytes: places, checksum, reading and writing.

use super::{BLOCK_BYTES, Features, HEAD_BYTES, MAGIC, ROLES_MAX, Role, Superblock1, Superblock1Error};
use crate::bytes::{array_at, put, u16_at, u32_at, u64_at};
use crate::error::{FieldError, require};
use crate::level::Level;
use crate::time::Timestamp;
use crate::uuid::Uuid;

const SB_CSUM: usize = 216;
const MAX_DEV: usize = 220;
const PAD3: usize = 224;

impl Superblock1 {
    /// Reads the superblock that lies at a sector of its device. `block` begins there and may be longer than needed.
    pub fn parse(block: &[u8], at_sector: u64) -> Result<Self, Superblock1Error> {
        let roles = checked_roles(block)?;
        let features = Features::from_number(u32_at(block, 8))
            .map_err(|bits| Superblock1Error::UnknownFeatures { bits })?;
        let superblock = Self {
            features,
            set_uuid: Uuid(array_at(block, 16)),
            set_name: array_at(block, 32),
            ctime: Timestamp(u64_at(block, 64)),
            level: level(u32_at(block, 72) as i32)?,
            layout: u32_at(block, 76),
            size_sectors: u64_at(block, 80),
            chunk_sectors: u32_at(block, 88),
            raid_disks: u32_at(block, 92),
            bitmap_or_ppl: u32_at(block, 96),
            new_level: u32_at(block, 100) as i32,
            reshape_position_sectors: u64_at(block, 104),
            delta_disks: u32_at(block, 112) as i32,
            new_layout: u32_at(block, 116),
            new_chunk_sectors: u32_at(block, 120),
            new_offset_sectors: u32_at(block, 124) as i32,
            data_offset_sectors: u64_at(block, 128),
            data_size_sectors: u64_at(block, 136),
            super_offset_sectors: u64_at(block, 144),
            recovery_offset_sectors: u64_at(block, 152),
            dev_number: u32_at(block, 160),
            corrected_reads: u32_at(block, 164),
            device_uuid: Uuid(array_at(block, 168)),
            devflags: block[184],
            bblog_shift: block[185],
            bblog_size_sectors: u16_at(block, 186),
            bblog_offset_sectors: u32_at(block, 188) as i32,
            utime: Timestamp(u64_at(block, 192)),
            events: u64_at(block, 200),
            resync_offset_sectors: u64_at(block, 208),
            dev_roles: roles,
        };
        superblock.check(at_sector)?;
        Ok(superblock)
    }

    /// The bytes to write at `super_offset`: whole sectors, checksum computed, roles past the last filled with
    /// "spare" as mdadm fills them.
    pub fn to_bytes(&self) -> Vec<u8> {
        let used = HEAD_BYTES + 2 * self.dev_roles.len();
        assert!(used <= BLOCK_BYTES, "{} roles do not fit a superblock", self.dev_roles.len());
        let mut block = vec![0; used.next_multiple_of(512)];
        self.put_array(&mut block);
        self.put_device(&mut block);
        put(&mut block, 192, self.utime.0.to_le_bytes());
        put(&mut block, 200, self.events.to_le_bytes());
        put(&mut block, 208, self.resync_offset_sectors.to_le_bytes());
        put(&mut block, MAX_DEV, (self.dev_roles.len() as u32).to_le_bytes());
        block[HEAD_BYTES..].fill(0xff);
        for (place, role) in block[HEAD_BYTES..].chunks_exact_mut(2).zip(&self.dev_roles) {
            place.copy_from_slice(&role.number().to_le_bytes());
        }
        let sum = checksum(&block[..used]);
        put(&mut block, SB_CSUM, sum.to_le_bytes());
        block
    }

    /// The checksum that these values have on disk (`sb_csum`).
    pub fn checksum(&self) -> u32 {
        u32_at(&self.to_bytes(), SB_CSUM)
    }

    fn put_array(&self, block: &mut [u8]) {
        put(block, 0, MAGIC.to_le_bytes());
        put(block, 4, 1_u32.to_le_bytes());
        put(block, 8, self.features.number().to_le_bytes());
        put(block, 16, self.set_uuid.0);
        put(block, 32, self.set_name);
        put(block, 64, self.ctime.0.to_le_bytes());
        put(block, 72, self.level.number().to_le_bytes());
        put(block, 76, self.layout.to_le_bytes());
        put(block, 80, self.size_sectors.to_le_bytes());
        put(block, 88, self.chunk_sectors.to_le_bytes());
        put(block, 92, self.raid_disks.to_le_bytes());
        put(block, 96, self.bitmap_or_ppl.to_le_bytes());
        put(block, 100, self.new_level.to_le_bytes());
        put(block, 104, self.reshape_position_sectors.to_le_bytes());
        put(block, 112, self.delta_disks.to_le_bytes());
        put(block, 116, self.new_layout.to_le_bytes());
        put(block, 120, self.new_chunk_sectors.to_le_bytes());
        put(block, 124, self.new_offset_sectors.to_le_bytes());
    }

    fn put_device(&self, block: &mut [u8]) {
        put(block, 128, self.data_offset_sectors.to_le_bytes());
        put(block, 136, self.data_size_sectors.to_le_bytes());
        put(block, 144, self.super_offset_sectors.to_le_bytes());
        put(block, 152, self.recovery_offset_sectors.to_le_bytes());
        put(block, 160, self.dev_number.to_le_bytes());
        put(block, 164, self.corrected_reads.to_le_bytes());
        put(block, 168, self.device_uuid.0);
        block[184] = self.devflags;
        block[185] = self.bblog_shift;
        put(block, 186, self.bblog_size_sectors.to_le_bytes());
        put(block, 188, self.bblog_offset_sectors.to_le_bytes());
    }
}

/// Checks everything that says whether these bytes are a whole superblock, and returns its roles.
fn checked_roles(block: &[u8]) -> Result<Vec<Role>, Superblock1Error> {
    let cut_off = |needed_bytes| Superblock1Error::Truncated { found_bytes: block.len(), needed_bytes };
    if block.len() < HEAD_BYTES {
        return Err(cut_off(HEAD_BYTES));
    }
    let magic = u32_at(block, 0);
    if magic != MAGIC {
        return Err(Superblock1Error::Magic { found: magic, right: MAGIC });
    }
    require(u32_at(block, 4) == 1, "major_version", u32_at(block, 4), || "it is 1 in this place".to_owned())?;
    let max_dev = u32_at(block, MAX_DEV) as usize;
    require(max_dev <= ROLES_MAX, "max_dev", max_dev, || format!("at most {ROLES_MAX} roles fit 4 KiB"))?;
    let used = HEAD_BYTES + 2 * max_dev;
    if block.len() < used {
        return Err(cut_off(used));
    }
    let (found, right) = (u32_at(block, SB_CSUM), checksum(&block[..used]));
    if found != right {
        return Err(Superblock1Error::Checksum { found, right });
    }
    require(u32_at(block, 12) == 0, "pad0", u32_at(block, 12), || {
        "it is 0 in every known format".to_owned()
    })?;
    let pad3 = &block[PAD3..HEAD_BYTES];
    require(pad3.iter().all(|b| *b == 0), "pad3", "not zero", || {
        "it is zero in every known format".to_owned()
    })?;
    let numbers = block[HEAD_BYTES..used].chunks_exact(2).map(|b| u16::from_le_bytes([b[0], b[1]]));
    numbers
        .map(|number| {
            Role::from_number(number).ok_or_else(|| {
                FieldError::new(
                    "dev_roles",
                    format!("{number:#x}"),
                    "a role is a slot up to 0xff00, 0xfffd, 0xfffe or 0xffff",
                )
                .into()
            })
        })
        .collect()
}

fn level(number: i32) -> Result<Level, FieldError> {
    Level::from_number(number).ok_or_else(|| {
        let found = match number {
            -4 => "-4 (multipath)".to_owned(),
            -5 => "-5 (faulty)".to_owned(),
            -100 => "-100 (container)".to_owned(),
            _ => number.to_string(),
        };
        FieldError::new("level", found, "it is -1 (linear), 0, 1, 4, 5, 6 or 10")
    })
}

/// The kernel's `calc_sb_1_csum`: the little-endian words, with `sb_csum` taken as zero and a last half word as a
/// word of its own, summed in 64 bits and folded once.
fn checksum(used: &[u8]) -> u32 {
    let words = used.chunks_exact(4);
    let half = words.remainder();
    let mut sum: u64 = words.map(|word| u64::from(u32_at(word, 0))).sum();
    sum -= u64::from(u32_at(used, SB_CSUM));
    if half.len() == 2 {
        sum += u64::from(u16_at(half, 0));
    }
    (sum as u32).wrapping_add((sum >> 32) as u32)
}
