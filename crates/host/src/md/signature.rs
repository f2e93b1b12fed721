//! What lies on a device besides md: file systems, partition tables, containers, by the bytes that name them.

use std::io;

use super::probe::Source;

/// Bytes at a place that name what a device holds.
struct Magic {
    what: &'static str,
    at: u64,
    bytes: &'static [u8],
}

macro_rules! magics {
    ($($what:literal $at:literal $bytes:literal,)*) => {
        &[$(Magic { what: $what, at: $at, bytes: $bytes },)*]
    };
}

/// Named by bytes at one place. What is more particular stands before what is less.
const MAGICS: &[Magic] = magics! {
    "a LUKS header" 0 b"LUKS\xba\xbe",
    "a LUKS header (its second copy)" 0x4000 b"SKUL\xba\xbe",
    "a BitLocker volume" 3 b"-FVE-FS-",
    "an xfs file system" 0 b"XFSB",
    "a btrfs file system" 0x1_0040 b"_BHRfS_M",
    "an ntfs file system" 3 b"NTFS    ",
    "an exfat file system" 3 b"EXFAT   ",
    "a fat file system" 54 b"FAT12   ",
    "a fat file system" 54 b"FAT16   ",
    "a fat file system" 82 b"FAT32   ",
    "an ext2, ext3 or ext4 file system" 1080 b"\x53\xef",
    "an f2fs file system" 1024 b"\x10\x20\xf5\xf2",
    "an erofs file system" 1024 b"\xe2\xe1\xf5\xe0",
    "a squashfs file system" 0 b"hsqs",
    "an hfs+ file system" 1024 b"H+\x00\x04",
    "an hfs+ file system" 1024 b"HX\x00\x05",
    "an apfs container" 32 b"NXSB",
    "a jfs file system" 0x8000 b"JFS1",
    "a reiserfs file system" 0x1_0034 b"ReIsEr",
    "a nilfs2 file system" 1030 b"\x34\x34",
    "a ufs file system" 0x255c b"\x19\x01\x54\x19",
    "an ocfs2 file system" 0x2000 b"OCFSV2",
    "an iso9660 file system" 0x8001 b"CD001",
    "a udf file system" 0x8001 b"BEA01",
    "a bcache or bcachefs device" 4120 b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81",
    "a bcache or bcachefs device" 4120 b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef",
    "a Stratis device" 516 b"!Stra0tis\x86\xff\x02^\x41rh",
    "a VDO device" 0 b"dmvdo001",
    "a Ceph device" 0 b"bluestore block device",
    "a GPT partition table" 512 b"EFI PART",
    "a GPT partition table" 4096 b"EFI PART",
    "a qcow2 image" 0 b"QFI\xfb",
    "an LVM physical volume" 24 b"LVM2 001",
    "an LVM physical volume" 536 b"LVM2 001",
    "an LVM physical volume" 1048 b"LVM2 001",
    "an LVM physical volume" 1560 b"LVM2 001",
    "swap space" 4086 b"SWAPSPACE2",
    "swap space" 4086 b"SWAP-SPACE",
    "swap space" 8182 b"SWAPSPACE2",
    "swap space" 16374 b"SWAPSPACE2",
    "swap space" 65526 b"SWAPSPACE2",
};

/// Bytes read from the start: they cover every place above.
const HEAD_BYTES: u64 = 0x1_1000;
/// Bytes read from the end: backups of tables and firmware RAID.
const TAIL_BYTES: u64 = 1024;
/// Where ZFS keeps the uberblocks of its first label, one in each so many bytes.
const ZFS_UBERBLOCKS: std::ops::Range<u64> = 0x2_0000..0x4_0000;
const ZFS_UBERBLOCK_BYTES: usize = 1024;
const ZFS_MAGIC: u64 = 0x00ba_b10c;

/// Says what a device holds, as far as its bytes name it.
pub fn find(source: &dyn Source, device_sectors: u64) -> io::Result<Vec<&'static str>> {
    let device_bytes = device_sectors * 512;
    let read = |from: u64, to: u64| {
        let (from, to) = (from.min(device_bytes), to.min(device_bytes));
        let mut bytes = vec![0; (to - from) as usize];
        source.read_exact_at(&mut bytes, from).map(|()| bytes)
    };
    let head = read(0, HEAD_BYTES)?;
    let tail = read(device_bytes.saturating_sub(TAIL_BYTES), device_bytes)?;
    let uberblocks = read(ZFS_UBERBLOCKS.start, ZFS_UBERBLOCKS.end)?;
    let is_at = |magic: &&Magic| head.get(magic.at as usize..).is_some_and(|b| b.starts_with(magic.bytes));
    let mut found: Vec<_> = MAGICS.iter().filter(is_at).map(|magic| magic.what).collect();
    if has_zfs(&uberblocks) {
        found.push("a zfs member");
    }
    if found.is_empty() && has_mbr(&head) {
        found.push("an MBR partition table");
    }
    found.extend(at_end(&tail));
    found.dedup();
    Ok(found)
}

fn has_zfs(uberblocks: &[u8]) -> bool {
    uberblocks.chunks_exact(ZFS_UBERBLOCK_BYTES).any(|block| {
        let word: [u8; 8] = block[..8].try_into().expect("eight bytes");
        u64::from_le_bytes(word) == ZFS_MAGIC || u64::from_be_bytes(word) == ZFS_MAGIC
    })
}

/// Whether the first sector ends as a boot sector does and its four entries can be partitions, of which one is used.
fn has_mbr(head: &[u8]) -> bool {
    let Some(sector) = head.get(..512) else { return false };
    let mut entries = sector[446..510].chunks_exact(16);
    sector[510..] == [0x55, 0xaa]
        && entries.clone().all(|entry| matches!(entry[0], 0 | 0x80))
        && entries.any(|entry| entry[4] != 0)
}

fn at_end(tail: &[u8]) -> Option<&'static str> {
    let last = tail.len().checked_sub(512).map(|at| &tail[at..])?;
    if tail.starts_with(b"Intel Raid ISM Cfg Sig. ") {
        Some("an Intel firmware RAID member")
    } else if last.starts_with(&[0xde, 0x11, 0xde, 0x11]) || last.starts_with(&[0x11, 0xde, 0x11, 0xde]) {
        Some("a DDF RAID member")
    } else if last.starts_with(b"EFI PART") {
        Some("a GPT partition table (its backup)")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Bytes(Vec<u8>);

    impl Source for Bytes {
        fn read_exact_at(&self, bytes: &mut [u8], offset_bytes: u64) -> io::Result<()> {
            let from = offset_bytes as usize;
            bytes.copy_from_slice(&self.0[from..from + bytes.len()]);
            Ok(())
        }
    }

    fn found_in(length: usize, writes: &[(usize, &[u8])]) -> Vec<&'static str> {
        let mut bytes = vec![0; length];
        for (at, text) in writes {
            bytes[*at..at + text.len()].copy_from_slice(text);
        }
        find(&Bytes(bytes), length as u64 / 512).unwrap()
    }

    #[test]
    fn every_magic_is_found_at_its_place_and_nowhere_else() {
        for magic in MAGICS {
            let found = found_in(1 << 20, &[(magic.at as usize, magic.bytes)]);
            assert_eq!(found, [magic.what]);
            assert_eq!(found_in(1 << 20, &[(magic.at as usize + 2, magic.bytes)]), [""; 0], "{}", magic.what);
        }
    }

    #[test]
    fn every_place_lies_in_what_is_read() {
        assert!(MAGICS.iter().all(|magic| magic.at + magic.bytes.len() as u64 <= HEAD_BYTES));
    }

    #[test]
    fn blank_and_tiny_devices_hold_nothing() {
        for length in [0, 512, 1024, 4096, 1 << 18, 1 << 20] {
            assert!(found_in(length, &[]).is_empty(), "{length}");
        }
    }

    #[test]
    fn an_mbr_has_a_partition() {
        let boot: (usize, &[u8]) = (510, &[0x55, 0xaa]);
        assert!(found_in(1 << 20, &[boot]).is_empty());
        assert_eq!(found_in(1 << 20, &[boot, (450, &[0x83])]), ["an MBR partition table"]);
    }

    #[test]
    fn what_lies_at_the_end_and_in_the_middle_is_found() {
        let length = 1 << 20;
        assert_eq!(found_in(length, &[(length - 512, b"EFI PART")]), ["a GPT partition table (its backup)"]);
        assert_eq!(
            found_in(length, &[(length - 1024, b"Intel Raid ISM Cfg Sig. 1.0")]),
            ["an Intel firmware RAID member"]
        );
        assert_eq!(found_in(length, &[(0x2_0400, &ZFS_MAGIC.to_le_bytes())]), ["a zfs member"]);
    }
}
