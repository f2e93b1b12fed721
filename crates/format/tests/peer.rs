//! Arrays labelled here, on sparse images in the test's own directory, as the installed mdadm sees them. Without
//! mdadm there is nothing to compare with, and the test says so.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use stripewise_format::bitmap::{BitmapSuperblock, Bits, SUPERBLOCK_BYTES};
use stripewise_format::examine::{self, Context};
use stripewise_format::level::{Layout, Level};
use stripewise_format::placement::{Consistency, Metadata, Placement, Plan};
use stripewise_format::ppl::{self, PplHeader};
use stripewise_format::superblock::Superblock;
use stripewise_format::superblock_0::{Disk, Superblock0};
use stripewise_format::superblock_1::{Minor, Role, Superblock1};
use stripewise_format::time::Timestamp;
use stripewise_format::uuid::Uuid;

const DEVICE_SECTORS: u64 = 49_152;
const CREATED_SECONDS: u32 = 1_800_000_000;

fn plan(level: Level, metadata: Metadata, consistency: Consistency) -> Plan {
    Plan {
        level,
        layout: Layout::default_of(level),
        raid_disks: u32::from(level.members_min()).max(3),
        chunk_sectors: if level.has_chunks() { 128 } else { 0 },
        metadata,
        consistency,
        data_offset_sectors: None,
    }
}

/// A superblock for each slot of a new, clean array.
fn label(plan: &Plan, place: &Placement, size_sectors: u64, uuid: Uuid) -> Vec<Superblock> {
    let slots = 0..plan.raid_disks;
    match plan.metadata {
        Metadata::V0 => {
            let mut array = Superblock0::new(plan.level, plan.raid_disks, uuid);
            array.ctime_seconds = CREATED_SECONDS;
            array.utime_seconds = CREATED_SECONDS;
            array.size_kib = (size_sectors / 2) as u32;
            array.layout = plan.layout.recorded_number(plan.level) as u32;
            array.chunk_bytes = plan.chunk_sectors * 512;
            array.events = 1;
            array.state =
                Superblock0::CLEAN | if place.bitmap.is_some() { Superblock0::BITMAP_PRESENT } else { 0 };
            (array.nr_disks, array.active_disks, array.working_disks) =
                (plan.raid_disks, plan.raid_disks, plan.raid_disks);
            for slot in slots.clone() {
                let state = Disk::ACTIVE | Disk::SYNC;
                array.disks[slot as usize] = Disk { number: slot, raid_disk: slot, state, ..Disk::default() };
            }
            let own = |slot: u32| {
                let mut own = array.clone();
                own.this_disk = own.disks[slot as usize];
                Superblock::V0(Box::new(own))
            };
            slots.map(own).collect()
        }
        Metadata::V1(_) => {
            let mut array = Superblock1::new(plan.level, plan.raid_disks, 0, uuid);
            array.set_name(Some("elsewhere"), "labelled");
            array.ctime = Timestamp::from_seconds(u64::from(CREATED_SECONDS));
            array.utime = array.ctime;
            array.layout = plan.layout.recorded_number(plan.level) as u32;
            array.chunk_sectors = plan.chunk_sectors;
            array.size_sectors = size_sectors;
            array.data_offset_sectors = place.data_offset_sectors;
            array.data_size_sectors = place.data_size_sectors;
            array.super_offset_sectors = place.super_offset_sectors;
            (array.bblog_offset_sectors, array.bblog_size_sectors) = place.bad_block_log.unwrap_or_default();
            if let Some(bitmap) = place.bitmap {
                array.set_bitmap(bitmap.offset_sectors);
            }
            if let Some(area) = place.ppl {
                array.set_ppl(area);
            }
            for slot in slots.clone() {
                array.dev_roles[slot as usize] = Role::Slot(slot as u16);
            }
            let own = |slot: u32| Superblock1 {
                dev_number: slot,
                device_uuid: Uuid([slot as u8 + 1; 16]),
                ..array.clone()
            };
            slots.map(|slot| Superblock::V1(Box::new(own(slot)))).collect()
        }
    }
}

/// Writes a new array's members and returns them with their superblocks.
fn make(name: &str, plan: &Plan) -> Vec<(PathBuf, Superblock, Option<BitmapSuperblock>)> {
    let data_offset = plan.data_offset_sectors(DEVICE_SECTORS);
    let size = plan.size_sectors(plan.usable_sectors(DEVICE_SECTORS, data_offset).unwrap(), None);
    let place = plan.place(DEVICE_SECTORS, data_offset, size).unwrap();
    let uuid = Uuid(std::array::from_fn(|n| name.bytes().cycle().nth(n).unwrap() ^ n as u8));
    let write = |(slot, superblock): (usize, Superblock)| {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.{slot}"));
        let file = File::create(&path).unwrap();
        file.set_len(DEVICE_SECTORS * 512).unwrap();
        file.write_all_at(&superblock.to_bytes(), place.super_offset_sectors * 512).unwrap();
        let bitmap = place.bitmap.map(|bitmap| {
            let head =
                BitmapSuperblock::new(superblock.bitmap_uuid(), bitmap.sync_size_sectors, bitmap.chunk_bytes);
            let sector = superblock.bitmap_sector(place.super_offset_sectors).unwrap();
            file.write_all_at(&head.to_bytes(), sector * 512).unwrap();
            file.write_all_at(Bits::clear(head.bits()).as_bytes(), sector * 512 + SUPERBLOCK_BYTES as u64)
                .unwrap();
            head
        });
        if let Some(area) = place.ppl {
            let header = PplHeader { signature: ppl::signature(&uuid), ..PplHeader::default() };
            let sector = place.super_offset_sectors.checked_add_signed(area.offset_sectors.into()).unwrap();
            file.write_all_at(&header.to_bytes(), sector * 512).unwrap();
        }
        (path, superblock, bitmap)
    };
    label(plan, &place, size, uuid).into_iter().enumerate().map(write).collect()
}

#[test]
fn mdadm_describes_what_is_written_here_as_it_is_described_here() {
    if Command::new("mdadm").arg("--version").output().is_err() {
        eprintln!("mdadm is not installed: nothing to compare with");
        return;
    }
    for metadata in Metadata::ALL {
        for level in Level::ALL {
            compare(&format!("{metadata}-{level}"), &plan(level, metadata, Consistency::Resync));
            if !matches!(level, Level::Linear | Level::Raid0) {
                let consistency = Consistency::Bitmap { chunk_bytes: Some(1 << 16) };
                compare(&format!("{metadata}-{level}-bitmap"), &plan(level, metadata, consistency));
            }
        }
        if metadata != Metadata::V0 {
            compare(&format!("{metadata}-ppl"), &plan(Level::Raid5, metadata, Consistency::Ppl));
        }
    }
}

fn compare(name: &str, plan: &Plan) {
    for (path, superblock, bitmap) in make(name, plan) {
        assert_eq!(superblock.check_on_device(DEVICE_SECTORS), Ok(()), "{name}");
        let context =
            Context { device_sectors: DEVICE_SECTORS, bitmap: bitmap.as_ref(), ..Context::default() };
        let lines = match &superblock {
            Superblock::V0(superblock) => examine::superblock_0(superblock, &context),
            Superblock::V1(superblock) => examine::superblock_1(superblock, &context),
        };
        let ours = examine::render(&lines, 15);
        let output = Command::new("mdadm").arg("-E").arg(&path).env("TZ", "UTC").output().unwrap();
        let theirs = String::from_utf8(output.stdout).unwrap();
        // Rows of 0.90's table end with device names of this machine.
        let fields = |text: &str| {
            text.lines().filter(|line| line.contains(" : ")).map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(fields(&ours), fields(&theirs), "{}", path.display());
    }
}

/// The line of mdadm.conf, and what it counts as spares, for names with what a reader of words trips over.
#[test]
fn mdadm_names_an_array_in_its_configuration_as_it_is_named_here() {
    if Command::new("mdadm").arg("--version").output().is_err() {
        eprintln!("mdadm is not installed: nothing to compare with");
        return;
    }
    let plan = plan(Level::Raid1, Metadata::V1(Minor::Start4K), Consistency::Resync);
    let (path, superblock, _) = make("brief", &plan).swap_remove(0);
    let file = File::options().write(true).open(&path).unwrap();
    let Superblock::V1(superblock) = superblock else { panic!("made of version 1") };
    let names = [
        "",
        "x",
        "7",
        "a:b",
        "a b",
        " a ",
        "a\tb",
        "x/y",
        "/",
        "it's",
        "\"",
        "'",
        "a'\"b",
        "a\"'b",
        "'\"'\"",
        "a\\b",
        "h x:y z",
        "h/x:y/z",
        "h'x:y",
        ":x",
        "x:",
        "\"a\" 'b'",
    ];
    for name in names {
        for role in [Role::Slot(0), Role::Spare, Role::Journal, Role::Faulty] {
            let mut superblock = superblock.clone();
            superblock.set_name(None, name);
            superblock.dev_roles[superblock.dev_number as usize] = role;
            let sector = superblock.super_offset_sectors;
            let superblock = Superblock::V1(superblock);
            file.write_all_at(&superblock.to_bytes(), sector * 512).unwrap();
            let spares = if examine::counts_as_spare(&superblock) { "   spares=1\n" } else { "" };
            let output = Command::new("mdadm").args(["-E", "--brief"]).arg(&path).output().unwrap();
            let theirs = String::from_utf8(output.stdout).unwrap();
            assert_eq!(format!("{}\n{spares}", examine::brief(&superblock)), theirs, "{name:?}, {role:?}");
        }
    }
}
