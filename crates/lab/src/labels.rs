//! Arrays with a write-intent bitmap: laid out as mdadm does, with superblocks of 1.2 and the bitmap between them and the data.
//!
//! What the members say is as after some time of writes: the array is active, and no bit is set. It stays active, as with md's
//! `safe_mode_delay` 0, so that whatever is written beside the data is the bitmap.

use stripewise_engine::geometry::GeometrySpec;
use stripewise_engine::metadata::{BitmapConfig, MemberMetadata, MetadataConfig};
use stripewise_engine::units::{Nanos, Slot};
use stripewise_engine::volume::VolumeConfig;
use stripewise_format::bitmap::{BitmapSuperblock, Bits};
use stripewise_format::create::{NewMember, Request, create};
use stripewise_format::device_flags::DeviceFlags;
use stripewise_format::placement::{Consistency, Metadata, Plan};
use stripewise_format::superblock::Superblock;
use stripewise_format::time::Timestamp;
use stripewise_format::uuid::Uuid;

/// Any will do: no such array is assembled again.
const SET_UUID: Uuid = Uuid([0x6d; 16]);
const CREATED: Timestamp = Timestamp::from_seconds(0);

/// An internal bitmap as mdadm is asked for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bitmap {
    /// `--bitmap-chunk`; mdadm's choice if absent.
    pub(crate) chunk_bytes: Option<u32>,
    /// `--delay`: seconds between two looks at what may be cleared.
    pub(crate) delay_seconds: u32,
}

/// The devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Devices {
    /// Length of each.
    pub(crate) sectors: u64,
    /// `--data-offset`; mdadm's choice if absent.
    pub(crate) data_offset_sectors: Option<u64>,
    /// `--size`; all there is if absent.
    pub(crate) size_sectors: Option<u64>,
}

/// Gives an array members with labels and a bitmap: its geometry is then that of their data.
///
/// # Errors
/// What mdadm would refuse, in words.
pub(crate) fn label(volume: &mut VolumeConfig, devices: Devices, bitmap: Bitmap) -> Result<(), String> {
    let GeometrySpec { level, layout, chunk_sectors, member_sectors } = &volume.geometry;
    let slots = member_sectors.len();
    let member = |slot: usize| {
        (!volume.failed.contains(&Slot(slot as u16))).then(|| NewMember {
            device_sectors: devices.sectors,
            device_uuid: Uuid([slot as u8; 16]),
            device_number: (0, 0),
            flags: DeviceFlags::default(),
        })
    };
    let chunk_sectors = if level.has_chunks() { *chunk_sectors } else { 0 };
    let chunk_sectors = u32::try_from(chunk_sectors).map_err(|_| "the chunk is too large".to_owned())?;
    let request = Request {
        plan: Plan {
            level: *level,
            layout: *layout,
            raid_disks: slots as u32,
            chunk_sectors,
            metadata: Metadata::DEFAULT,
            consistency: Consistency::Bitmap { chunk_bytes: bitmap.chunk_bytes },
            data_offset_sectors: devices.data_offset_sectors,
        },
        auto_bitmap: false,
        size_sectors: devices.size_sectors,
        assume_clean: true,
        force: false,
        spares: 0,
        members: (0..slots).map(member).collect(),
        journal: None,
        set_uuid: SET_UUID,
        name: String::new(),
        homehost: None,
        created: CREATED,
    };
    let array = create(&request).map_err(|e| e.to_string())?;
    let mut members: Vec<Option<MemberMetadata>> = vec![None; slots];
    let mut head = None;
    for label in array.labels {
        let Some(place) = label.slot.and_then(|slot| members.get_mut(usize::from(slot))) else { continue };
        let sector = label.superblock_area.at_sector;
        let bitmap_sector = label.superblock.bitmap_sector(sector);
        let area = label.logs.iter().find(|area| Some(area.at_sector) == bitmap_sector);
        head = head.or(area.map(|area| BitmapSuperblock::parse(&area.bytes)));
        let mut superblock = label.superblock;
        if let Superblock::V1(superblock) = &mut superblock {
            superblock.resync_offset_sectors = 0;
        }
        *place = Some(MemberMetadata { superblock, sector, bad_blocks: None });
    }
    let mut superblock = head.ok_or("the members have no bitmap")?.map_err(|e| e.to_string())?;
    superblock.daemon_sleep_seconds = bitmap.delay_seconds;
    let bits = Bits::clear(superblock.bits());
    volume.geometry.member_sectors = vec![array.size_sectors; slots];
    volume.metadata = Some(MetadataConfig {
        members,
        bitmap: Some(BitmapConfig { superblock, bits }),
        journal: None,
        clock_start: CREATED,
        safe_mode_delay: Nanos(0),
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use stripewise_engine::geometry::Geometry;
    use stripewise_engine::level::{Layout, Level};
    use stripewise_engine::policy::Policy;
    use stripewise_engine::volume::Volume;

    use super::*;

    const DEVICES: Devices = Devices { sectors: 20 << 31, data_offset_sectors: None, size_sectors: None };

    fn labelled(level: Level, chunk_bytes: Option<u32>) -> Result<VolumeConfig, String> {
        let geometry = GeometrySpec {
            level,
            layout: Layout::default_of(level),
            chunk_sectors: 1024,
            member_sectors: vec![DEVICES.sectors; 5],
        };
        let mut volume = VolumeConfig::new(geometry, Policy::linux_6_1());
        label(&mut volume, DEVICES, Bitmap { chunk_bytes, delay_seconds: 7 })?;
        Ok(volume)
    }

    /// The engine takes the bitmap as it is: of one that did not fit the array it would set every bit.
    #[test]
    fn a_labelled_array_starts_active_with_no_bit_set() {
        for level in [Level::Raid1, Level::Raid4, Level::Raid5, Level::Raid6, Level::Raid10] {
            let volume = labelled(level, None).unwrap();
            Volume::new(&volume).unwrap();
            let metadata = volume.metadata.as_ref().unwrap();
            let BitmapConfig { superblock, bits } = metadata.bitmap.as_ref().unwrap();
            let geometry = Geometry::new(&volume.geometry).unwrap();
            let covered = if level == Level::Raid10 {
                geometry.array_sectors()
            } else {
                geometry.used_sectors(Slot(0))
            };
            assert!(superblock.sync_size_sectors >= covered && !superblock.is_stale(), "{level}");
            assert_eq!((bits.dirty_count(), superblock.daemon_sleep_seconds), (0, 7));
            assert_eq!(superblock.chunk_bytes, 64 << 20, "mdadm's choice");
            for member in metadata.members.iter().flatten() {
                assert!(superblock.events >= member.superblock.events());
                assert_eq!(member.superblock.resync_offset_sectors(), 0, "active");
                assert_eq!((member.sector, member.superblock.bitmap_sector(8)), (8, Some(16)));
                let end = member.superblock.data_offset_sectors() + volume.geometry.member_sectors[0];
                assert!(end <= DEVICES.sectors, "{end}");
            }
        }
    }

    #[test]
    fn a_bitmap_that_mdadm_refuses_is_refused() {
        let refused = labelled(Level::Raid5, Some(4096)).unwrap_err();
        assert!(refused.contains("is the least that fits"), "{refused}");
        assert!(labelled(Level::Raid0, None).unwrap_err().contains("cannot have a bitmap"));
    }
}
