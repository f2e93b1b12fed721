//! What several shards do as one array, and what only one can do.

mod common;

use common::{SECTOR, files, memory, volume};
use stripewise_engine::io::{AdminReply, Flags, IoError, IoResult, Op, Request, RequestId, SyncAction};
use stripewise_engine::level::{Layout, Level};
use stripewise_engine::units::{Instant, MemberIndex, SectorRange, Slot};
use stripewise_engine::volume::VolumeConfig;
use stripewise_engine::workload::{Next, Workload};
use stripewise_host::{Array, ArrayConfig, HostError, Manage, ManageError};

const SECTORS: u64 = 4096;
/// Sectors of the first, the second and the third of three shards.
const OF_EACH: [u64; 3] = [0, 3000, 5000];

fn raid5() -> VolumeConfig {
    volume(Level::Raid5, Layout::default_of(Level::Raid5), 4, 128, SECTORS)
}

fn open(shards: u32) -> Array {
    Array::open(ArrayConfig { shards, ..ArrayConfig::new(raid5(), memory(4)) }).unwrap()
}

/// One request.
struct One {
    op: Op,
    range: SectorRange,
    bytes: u64,
    is_issued: bool,
    result: Option<IoResult>,
}

impl Workload for One {
    fn in_flight_max(&self) -> u32 {
        1
    }
    fn request_bytes_max(&self) -> u64 {
        self.bytes
    }
    fn next(&mut self, _: Instant) -> Next {
        if std::mem::replace(&mut self.is_issued, true) {
            return Next::Finished;
        }
        Next::Issue(Request { id: RequestId(0), op: self.op, range: self.range, flags: Flags::default() })
    }
    fn complete(&mut self, _: Instant, _: RequestId, result: IoResult) {
        self.result = Some(result);
    }
}

fn result(array: &mut Array, op: Op, range: SectorRange, bytes: u64) -> IoResult {
    let one = One { op, range, bytes, is_issued: false, result: None };
    array.run(vec![one]).unwrap().1[0].result.unwrap()
}

/// Each shard would fill a spare of its own choice.
#[test]
fn members_that_change_are_of_one_shard() {
    type Change = fn(&mut VolumeConfig);
    let changes: [Change; 5] = [
        |v| v.spares = 2,
        |v| v.recovering = vec![(Slot(3), 0)],
        |v| v.replacements = vec![(Slot(3), MemberIndex(4), 0)],
        |v| v.returned = vec![Slot(3)],
        |v| v.resync_from = Some(0),
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let mut volume = raid5();
        change(&mut volume);
        let config = ArrayConfig::new(volume, memory(6));
        let error = Array::open(ArrayConfig { shards: 2, ..config.clone() }).err();
        assert!(matches!(error, Some(HostError::ShardsWithOwnWork { given: 2 })), "{number}: {error:?}");
        let text = error.unwrap().to_string();
        assert!(text.contains("2 shards") && text.contains("runs on 1"), "{text}");
        Array::open(config).unwrap();
    }
    let mut array = open(2);
    for command in [Manage::Sync(SyncAction::Repair), Manage::Fail("a".into())] {
        let error = array.manage(&command).unwrap_err().to_string();
        assert!(error.contains("2 shards") && error.contains("runs on 1"), "{error}");
    }
}

#[test]
fn a_member_that_is_missing_is_missing_in_every_shard() {
    let config = VolumeConfig { failed: vec![Slot(1)], ..raid5() };
    let mut array = Array::open(ArrayConfig { shards: 3, ..ArrayConfig::new(config, memory(4)) }).unwrap();
    let written = vec![7; array.geometry().array_sectors() as usize * SECTOR];
    array.write_at(0, &written).unwrap();
    let mut read = vec![0; written.len()];
    array.read_at(0, &mut read).unwrap();
    assert!(read == written);
    assert_eq!(array.failed_slots(), [Slot(1)]);
    assert!(array.sync(|_| {}).unwrap().events.is_empty());
}

/// No shard does its part of what another refuses.
#[test]
fn a_request_that_is_refused_is_not_carried_out_in_part() {
    for shards in [1, 3] {
        let mut array = open(shards);
        let sectors = array.geometry().array_sectors();
        let written = vec![7; sectors as usize * SECTOR];
        array.write_at(0, &written).unwrap();
        let beyond = SectorRange::new(0, sectors + 1);
        let other = vec![9; written.len() + SECTOR];
        for range in [beyond, SectorRange::new(sectors, 8), SectorRange::new(0, u64::MAX)] {
            for op in [Op::WriteZeroes, Op::Discard] {
                assert_eq!(result(&mut array, op, range, 0), Err(IoError::Range), "{op:?} {range:?}");
            }
            assert!(matches!(array.write_zeroes(range), Err(HostError::Io(IoError::Range))));
        }
        assert_eq!(result(&mut array, Op::Write, beyond, other.len() as u64), Err(IoError::Range));
        let short = SectorRange::new(0, sectors);
        assert_eq!(result(&mut array, Op::Write, short, 2 << 20), Err(IoError::Range), "a short buffer");
        assert!(matches!(array.write_at(0, &other), Err(HostError::Io(IoError::Range))));
        let mut read = vec![0; other.len()];
        assert!(matches!(array.read_at(0, &mut read), Err(HostError::Io(IoError::Range))));
        assert!(read.iter().all(|byte| *byte == 0), "{shards} shards read a part");
        array.read_at(0, &mut read[..written.len()]).unwrap();
        assert!(read[..written.len()] == written, "{shards} shards wrote a part");
    }
}

#[test]
fn an_array_that_is_closed_takes_no_write_in_any_shard() {
    let folder = tempfile::tempdir().unwrap();
    for members in [memory(4), files(folder.path(), 4, SECTORS)] {
        let mut array = Array::open(ArrayConfig { shards: 3, ..ArrayConfig::new(raid5(), members) }).unwrap();
        let sectors = array.geometry().array_sectors();
        array.write_at(0, &vec![7; sectors as usize * SECTOR]).unwrap();
        array.close().unwrap();
        for sector in OF_EACH {
            let refused = array.write_at(sector, &[9; SECTOR]);
            assert!(matches!(refused, Err(HostError::Io(IoError::ReadOnly))), "{sector}: {refused:?}");
        }
        let mut read = vec![0; sectors as usize * SECTOR];
        array.read_at(0, &mut read).unwrap();
        assert!(read.iter().all(|byte| *byte == 7));
    }
}

/// What was not used yet has no ring.
#[test]
fn members_of_an_array_just_opened_can_be_failed() {
    for shards in [1, 2] {
        let folder = tempfile::tempdir().unwrap();
        let spares = u16::from(shards == 1);
        let mut volume = VolumeConfig { spares, ..raid5() };
        volume.sync.start = true;
        let members = files(folder.path(), 4 + usize::from(spares), SECTORS);
        let mut array = Array::open(ArrayConfig { shards, ..ArrayConfig::new(volume, members) }).unwrap();
        array.fail(Slot(2)).unwrap();
        if spares == 0 {
            let refused = array.fail(Slot(2)).unwrap_err();
            assert!(matches!(refused, ManageError::Array(AdminReply::AlreadyFailed)), "{refused}");
        }
        let refused = array.fail(Slot(9)).unwrap_err();
        assert!(matches!(refused, ManageError::Array(AdminReply::NoSuchSlot)), "{refused}");
        let written = vec![7; array.geometry().array_sectors() as usize * SECTOR];
        array.write_at(0, &written).unwrap();
        array.sync(|_| {}).unwrap();
        let mut read = vec![0; written.len()];
        array.read_at(0, &mut read).unwrap();
        assert!(read == written);
        assert_eq!(array.failed_slots(), if spares > 0 { vec![] } else { vec![Slot(2)] });
        // One more than RAID-5 survives.
        array.fail(Slot(0)).unwrap();
        array.fail(Slot(1)).unwrap();
        assert!(array.write_at(0, &written).is_err());
        assert!(array.close().is_err());
    }
}

#[test]
fn why_a_member_failed_is_known_whichever_shard_met_it() {
    for sector in OF_EACH {
        let folder = tempfile::tempdir().unwrap();
        let members = files(folder.path(), 4, SECTORS);
        let mut array = Array::open(ArrayConfig { shards: 3, ..ArrayConfig::new(raid5(), members) }).unwrap();
        std::fs::File::options().write(true).open(folder.path().join("member1")).unwrap().set_len(0).unwrap();
        // A whole stripe, on all members.
        let stripe = SectorRange::new(sector / 384 * 384, 384);
        assert_eq!(result(&mut array, Op::Write, stripe, 384 * SECTOR as u64), Ok(()));
        let status = array.status();
        let errors: Vec<_> = status.members.iter().filter_map(|member| member.error).collect();
        assert_eq!(
            (errors.len(), errors.first().map(|error| error.op)),
            (1, Some(Op::Write)),
            "{sector}: {status:?}"
        );
    }
}
