//! An open array as a network block device: the NBD protocol over unix and TCP sockets.
//!
//! # Contract
//! *Threads.* Each shard's thread serves the connections dealt to it; requests are carried out on the thread
//! that read them unless their sectors are another shard's. No thread is made per connection, none waits for
//! a client. *Ordering.* As the array's: overlapping writes are ordered, a read that arrives after a write
//! was acknowledged sees it, on any connection. *Durability.* A flush, on any connection, covers every write
//! acknowledged on any. *Bounds.* Of connections, and of requests and bytes under way on each. *Stopping.*
//! What is under way is answered, members are flushed, sockets removed.
//!
//! | file | concern |
//! |---|---|
//! | `wire` | the protocol's bytes |
//! | `export` | what a client is told of the export |
//! | `handshake` | the newstyle handshake, sans-IO |
//! | `task` | requests judged |
//! | `status` | what ranges hold |
//! | `socket`, `poller` | the system's part |
//! | `connection` | one client |
//! | `service` | one shard with its clients |
//! | `control` | the control socket |
//! | `change` | changes of the array while requests wait |
//! | `observer` | who is told of requests |
//! | `news` | what happens to the array, in words |
//! | `server` | the whole |
//! | `drive` | a drive that only takes its time |

mod buffers;
mod change;
mod connection;
#[cfg(test)]
mod connection_tests;
mod control;
mod drive;
mod export;
mod handshake;
#[cfg(test)]
mod handshake_tests;
mod news;
mod observer;
mod poller;
mod server;
mod service;
mod socket;
mod status;
mod task;
mod wire;

pub(crate) use buffers::{Buffer, Buffers};
pub(crate) use connection::{Accepted, BYTES_MAX, REQUESTS_MAX};
pub(crate) use export::Export;
pub(crate) use poller::News;
pub(crate) use socket::{Listener, Moved, moved};
pub(crate) use task::Task;

pub use change::{Changer, Reopened};
pub use control::ServeStatus;
pub use drive::DriveServer;
pub use news::{ServeEvent, Teller};
pub use observer::{Observed, Observer};
pub use server::{Detail, NbdServer, ServeConfig, ServeReport};
