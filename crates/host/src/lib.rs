//! The real loop around the sans-IO engine: members that hold bytes, buffers, shards on threads.
//!
//! # Contract
//! *Ownership.* [`Array`] owns its members, the stripe-cache arenas and the buffers of requests; the engine
//! only names bytes. *Ordering.* A completion becomes an `Input`, an `Action` becomes a submission, and the
//! loop sleeps until the next completion or deadline. *Sharding.* Each shard owns disjoint stripes and is
//! driven by one thread; shards pass messages and share no lock on an engine. *Cancellation.* The stop flag
//! ends issuing; what is in flight is drained before [`Array::run`] returns.
//!
//! A member kind is one file in `members/` and one line in its `mod.rs`.

mod allocator;
mod array;
mod buffers;
mod clock;
mod compute;
mod copy_ahead;
mod delayed;
mod drive;
mod error;
mod flushes;
mod fuse;
mod given_up;
mod iovecs;
mod layers;
mod loans;
mod mailbox;
mod manage;
pub mod md;
mod members;
mod nbd;
mod patience;
mod report;
mod ring;
mod route;
mod run;
mod shard;
mod signals;
mod sync;
mod vhost;

pub use allocator::keep_freed_memory;
pub use array::{Array, ArrayConfig, SHARDS_MAX};
pub use buffers::Memory;
pub use delayed::MemoryReads;
pub use drive::{DriveCommand, DriveExport, DriveReport, TimedDrive};
pub use error::{HostError, ListenProblem, MemberProblem, io_error_from_errno, is_of_path};
pub use fuse::{MountProblem, check_mount};
pub use layers::{CacheStatus, CryptLayer, Layers};
pub use manage::{AddHow, ArrayStatus, Manage, ManageError, Managed, MemberStatus, NotReAddable};
pub use members::{
    Access, Caching, FileSpec, Fill, MemberSpec, OverlaySpec, claim, create_member_file, loop_device,
    member_file_sectors,
};
pub use nbd::{
    Changer, Detail, DriveServer, NbdServer, Observed, Observer, Reopened, ServeConfig, ServeEvent,
    ServeReport, ServeStatus, Teller,
};
pub use report::{MemberCounts, MemberError, Note, RunReport, TimedEvent};
pub use run::Payload;
pub use signals::{IgnoredHangup, take_size_limit_as_error};
pub use vhost::VhostDriveServer;
