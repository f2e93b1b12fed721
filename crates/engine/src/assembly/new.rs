//! Whether an array that is yet to be written could be started: asked of assembly itself, so that no limit is known twice.

use stripewise_format::bitmap::BitmapSuperblock;
use stripewise_format::create::{Label, NewArray};

use super::{Assembly, AssemblyError, Candidate, Options, assemble};

/// Assembles what a new array's members are going to hold. `devices` has the name and the length of each, by its place in the
/// request's list.
///
/// # Errors
/// Why nobody could start it.
pub fn assemble_new(
    array: &NewArray,
    devices: impl Fn(usize) -> (String, u64),
) -> Result<Assembly, AssemblyError> {
    let candidate = |made: &Label| {
        let (label, device_sectors) = devices(made.member);
        let at_sector = made.superblock_area.at_sector;
        let bitmap_sector = made.superblock.bitmap_sector(at_sector);
        let bitmap = made.logs.iter().find(|area| Some(area.at_sector) == bitmap_sector);
        Candidate {
            label,
            device_sectors,
            at_sector,
            superblock: made.superblock.clone(),
            bitmap: bitmap.map(|area| BitmapSuperblock::parse(&area.bytes).map_err(|e| e.to_string())),
        }
    };
    let candidates: Vec<Candidate> = array.labels.iter().map(candidate).collect();
    assemble(&candidates, Options::default())
}

#[cfg(test)]
mod tests {
    use stripewise_format::create::{NewMember, Request, create};
    use stripewise_format::device_flags::DeviceFlags;
    use stripewise_format::level::{Layout, Level};
    use stripewise_format::placement::{Consistency, Metadata, Plan};
    use stripewise_format::time::Timestamp;
    use stripewise_format::uuid::Uuid;

    use super::*;
    use crate::geometry::GeometryError;

    const DEVICE_SECTORS: u64 = 8192;

    fn request(level: Level, layout: Layout, chunk_sectors: u32, members: &[bool]) -> Request {
        let plan = Plan {
            level,
            layout,
            raid_disks: members.len() as u32,
            chunk_sectors,
            metadata: Metadata::DEFAULT,
            consistency: Consistency::Resync,
            data_offset_sectors: None,
        };
        let device = |n: usize| NewMember {
            device_sectors: DEVICE_SECTORS,
            device_uuid: Uuid([n as u8; 16]),
            device_number: (0, 0),
            flags: DeviceFlags::default(),
        };
        Request {
            plan,
            auto_bitmap: false,
            size_sectors: None,
            assume_clean: false,
            force: false,
            spares: 0,
            members: members.iter().enumerate().map(|(n, is_there)| is_there.then(|| device(n))).collect(),
            journal: None,
            set_uuid: Uuid([7; 16]),
            name: "0".to_owned(),
            homehost: None,
            created: Timestamp::from_seconds(0),
        }
    }

    fn start(request: &Request) -> Result<Assembly, AssemblyError> {
        assemble_new(&create(request).unwrap(), |member| (format!("m{member}"), DEVICE_SECTORS))
    }

    #[test]
    fn a_level_that_takes_fewer_members_than_superblocks_list_is_refused() {
        let raid6 = |members: usize| {
            let layout = Layout::default_of(Level::Raid6);
            start(&request(Level::Raid6, layout, 8, &vec![true; members]))
        };
        assert!(raid6(255).is_ok());
        let too_many = GeometryError::TooManyMembers { level: Level::Raid6, members: 256, allowed: 255 };
        assert_eq!(raid6(256), Err(AssemblyError::Geometry(too_many)));
    }

    #[test]
    fn members_without_room_for_a_chunk_of_each_copy_are_refused() {
        let far = Layout::parse(Level::Raid10, "f4").unwrap();
        let small = Request { size_sectors: Some(2048), ..request(Level::Raid10, far, 1024, &[true; 4]) };
        let too_small = GeometryError::TooSmall { sectors: 2048, needed: 4096 };
        assert_eq!(start(&small), Err(AssemblyError::Geometry(too_small)));
        assert!(start(&Request { size_sectors: Some(4096), ..small }).is_ok());
    }

    #[test]
    fn a_forced_raid_6_that_lacks_a_member_can_be_started() {
        let layout = Layout::default_of(Level::Raid6);
        for (members, in_sync) in
            [([true, true, true, false], 2), ([true, false, true, false], 2), ([true; 4], 4)]
        {
            let forced = Request { force: true, ..request(Level::Raid6, layout, 32, &members) };
            assert_eq!(start(&forced).map(|assembly| assembly.in_sync_count()), Ok(in_sync), "{members:?}");
        }
    }

    #[test]
    fn a_bitmap_of_every_version_is_found() {
        let layout = Layout::default_of(Level::Raid1);
        for metadata in Metadata::ALL {
            let mut request = request(Level::Raid1, layout, 0, &[true, true]);
            request.plan.metadata = metadata;
            request.plan.consistency = Consistency::Bitmap { chunk_bytes: None };
            let consistency = start(&request).map(|assembly| assembly.consistency);
            assert_eq!(consistency, Ok(crate::assembly::Consistency::Bitmap), "{metadata}");
        }
    }
}
