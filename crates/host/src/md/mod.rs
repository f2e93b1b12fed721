//! Linux md's members on this machine: what lies on files and block devices, read and written whole.
//!
//! # Contract
//! Probing opens read-only and writes nothing. What is found on a member is never trusted: it is checked by
//! `stripewise-format`, and nothing is allocated by a size that it states.
//!
//! # Example
//! A RAID-5 of three files: made, found again, opened, used, and left clean.
//! ```
//! use std::path::PathBuf;
//!
//! use stripewise_engine::assembly::{Options, Wanted};
//! use stripewise_format::create::{NewMember, Request, create};
//! use stripewise_format::device_flags::DeviceFlags;
//! use stripewise_format::level::{Layout, Level};
//! use stripewise_format::placement::{Consistency, Metadata, Plan};
//! use stripewise_format::superblock_1::Minor;
//! use stripewise_format::time::Timestamp;
//! use stripewise_format::uuid::Uuid;
//! use stripewise_host::md::assemble::{Selection, find};
//! use stripewise_host::md::create::{Candidate, MemberWrite, write};
//! use stripewise_host::{Access, Manage};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let folder = tempfile::tempdir()?;
//! let members: Vec<PathBuf> = ["a", "b", "c"].iter().map(|name| folder.path().join(name)).collect();
//! for path in &members {
//!     std::fs::File::create(path)?.set_len(6 << 20)?;
//! }
//!
//! // Make the array: open what becomes members, plan the bytes, write them.
//! let candidates = Candidate::open_all(&members, &[])?;
//! candidates.iter().try_for_each(Candidate::require_blank)?;
//! let new = |(number, candidate): (u8, &Candidate)| NewMember {
//!     device_sectors: candidate.probe.device_sectors,
//!     device_uuid: Uuid([number; 16]), // in earnest, random
//!     device_number: candidate.device_number,
//!     flags: DeviceFlags::default(),
//! };
//! let planned = create(&Request {
//!     plan: Plan {
//!         level: Level::Raid5,
//!         layout: Layout::default_of(Level::Raid5),
//!         raid_disks: 3,
//!         chunk_sectors: 128,
//!         metadata: Metadata::V1(Minor::Start4K),
//!         consistency: Consistency::Ppl,
//!         data_offset_sectors: None,
//!     },
//!     auto_bitmap: false,
//!     size_sectors: None,
//!     assume_clean: false,
//!     force: false,
//!     spares: 0,
//!     members: (1..).zip(&candidates).map(new).map(Some).collect(),
//!     journal: None,
//!     set_uuid: Uuid([9; 16]),
//!     name: "example".into(),
//!     homehost: None,
//!     created: Timestamp::from_seconds(1_700_000_000),
//! })?;
//! let writes = planned.labels.iter().map(|label| MemberWrite {
//!     candidate: &candidates[label.member],
//!     clears: true,
//!     logs: &label.logs,
//!     superblock: &label.superblock_area,
//! });
//! write(&writes.collect::<Vec<_>>())?;
//! drop(candidates); // they are locked until then
//!
//! // Find it and open it, as after every start of the machine.
//! let options = Options { run: true, ..Options::default() }; // it may start without its last member, which is not filled yet
//! let selection =
//!     Selection { members: members.clone(), scan: None, wanted: Wanted::Only, options, overlay: None };
//! let mut assembled = find(&selection)?.assemble(options)?;
//! let mut array = assembled.open(false, |_path| Access::ReadWrite, |_config| ())?;
//!
//! // Do what is due: here, fill the last member.
//! array.sync(|status| println!("{}/{} sectors", status.done_sectors, status.total_sectors))?;
//!
//! // Use it. Offsets are sectors of 512 bytes; what is written is durable after a flush.
//! array.write_at(2048, &[7; 4096])?;
//! array.flush()?;
//! array.manage(&Manage::Fail(members[0].clone()))?;
//! let mut bytes = [0; 4096];
//! array.read_at(2048, &mut bytes)?;
//! assert_eq!(bytes, [7; 4096], "worked out from the others");
//!
//! // Leave it clean. An array that is only dropped has to be resynced, or its logs followed.
//! array.close()?;
//! # Ok(())
//! # }
//! ```

pub mod assemble;
pub mod create;
pub mod grow;
pub mod journal;
mod logs;
mod open;
pub mod overlay;
pub mod paths;
pub mod probe;
pub mod signature;
pub mod zero;
