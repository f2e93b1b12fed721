//! A drive that only takes its time, as a virtio disk of a virtual machine: a vhost-user-blk back end (virtio 1.2, 5.2;
//! QEMU's vhost-user specification). What holds of time, bytes and order is said in [`crate::drive`].
//!
//! # Contract
//! *Threads.* One, which takes the machine's requests from its memory and puts the answers there. *Clients.* One at a time;
//! the drive and what it keeps outlive it. *Requests.* Read, write, flush, and the disk's name; of one queue. What cannot be
//! is answered with an error at once. *Memory.* The machine's, shared: nothing found there is believed without a check, and
//! nothing is copied that is not kept.
//!
//! | file | concern |
//! |---|---|
//! | `request` | one request in the machine's memory |
//! | `device` | the disk: its queue, and what is under way |
//! | `message` | the protocol's bytes |
//! | `protocol` | what the messages set up |
//! | `server` | the loop |

mod device;
mod message;
mod protocol;
mod request;
mod server;

pub use server::VhostDriveServer;
