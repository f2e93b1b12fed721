//! The whole server: sockets bound first, then served until told to stop.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use stripewise_engine::units::SECTOR_BYTES;

use super::control::ServeStatus;
use super::export::{Export, preferred_bytes};
use super::news::Teller;
use super::observer::Observer;
use super::service::{Doors, Service, Shared};
use super::socket::Listener;
use crate::array::Array;
use crate::error::{HostError, ListenProblem};
use crate::fuse::{FILE_NAME, check_mount, mount_at};
use crate::manage::ArrayStatus;
use crate::report::RunReport;
use crate::run::Running;

/// Longest name or description, by the protocol.
const STRING_BYTES_MAX: usize = 4096;

/// Tells the control socket's clients of the array: a JSON value on one line.
pub type Detail = dyn Fn(&ServeStatus) -> String + Send + Sync;

/// What is served, and where.
#[derive(Clone, Default)]
pub struct ServeConfig {
    /// Path of a unix socket.
    pub socket: Option<PathBuf>,
    /// Address of a TCP socket; port 0 means any.
    pub listen: Option<SocketAddr>,
    /// An empty folder to be mounted, where the array is the file `disk`.
    pub mount: Option<PathBuf>,
    /// Path of the control socket.
    pub control: Option<PathBuf>,
    /// The export's name; clients may also use the empty name.
    pub name: String,
    /// The export's description; may be empty.
    pub description: String,
    /// Refuse writes.
    pub read_only: bool,
    /// When set, the server drains and returns; looked at ten times a second.
    pub stop: Arc<AtomicBool>,
    /// Answers the control socket's `detail`; without it, the server's figures do.
    pub detail: Option<Arc<Detail>>,
    /// Told of every request that was carried out.
    pub observer: Option<Arc<dyn Observer>>,
    /// Told of what happens to the array; of one on several threads, what fails, once. Without it all that happens is kept
    /// for the report.
    pub tell: Option<Arc<Teller>>,
}

impl fmt::Debug for ServeConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServeConfig")
            .field("socket", &self.socket)
            .field("listen", &self.listen)
            .field("mount", &self.mount)
            .field("control", &self.control)
            .field("name", &self.name)
            .field("read_only", &self.read_only)
            .finish_non_exhaustive()
    }
}

impl ServeConfig {
    /// Whether clients can come at any time.
    pub(crate) fn has_socket(&self) -> bool {
        self.socket.is_some() || self.listen.is_some()
    }
}

/// What a server did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServeReport {
    /// Its figures at the end.
    pub status: ServeStatus,
    /// What was asked of the members, and what happened that [`ServeConfig::tell`] was not told of: without it, everything.
    pub run: RunReport,
}

/// A server that listens.
#[derive(Debug)]
pub struct NbdServer {
    config: ServeConfig,
    doors: Doors,
    address: Option<SocketAddr>,
}

impl NbdServer {
    /// Listens, and mounts. Clients that connect are answered once the server serves, and so are those who look into the
    /// mounted folder. A unix socket left by a server that is gone is replaced; sockets are removed with the server, and
    /// the folder unmounted.
    ///
    /// # Errors
    /// Neither a socket nor a mount is asked for, or one cannot be had; the message says what would be right.
    pub fn bind(config: ServeConfig) -> Result<Self, HostError> {
        if !config.has_socket() && config.mount.is_none() {
            return Err(ListenProblem::Nowhere.at("the server"));
        }
        let longest = config.name.len().max(config.description.len());
        if longest > STRING_BYTES_MAX {
            return Err(ListenProblem::LongName { bytes: longest, most: STRING_BYTES_MAX }.at("the export"));
        }
        if let Some(folder) = &config.mount {
            let sockets: Vec<_> =
                config.socket.iter().chain(&config.control).map(std::path::PathBuf::as_path).collect();
            check_mount(folder, &sockets)?;
        }
        let mut clients = Vec::new();
        let mut address = None;
        if let Some(path) = &config.socket {
            clients.push(Listener::unix(path)?);
        }
        if let Some(listen) = config.listen {
            let (listener, bound) = Listener::tcp(listen)?;
            clients.push(listener);
            address = Some(bound);
        }
        let control = config.control.as_deref().map(Listener::unix).transpose()?;
        let mount = config.mount.as_deref().map(|folder| mount_at(folder, config.read_only)).transpose()?;
        Ok(Self { config, doors: Doors { clients, control, mount }, address })
    }

    /// The path of the file that is the array, where it is mounted.
    pub fn file(&self) -> Option<PathBuf> {
        self.config.mount.as_ref().map(|folder| folder.join(FILE_NAME))
    }

    /// The address of the TCP socket.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Serves the array until the stop flag is set, the control socket says so, or the folder is unmounted where there is
    /// no socket; then answers what is under way, ends all connections, writes back what a page cache holds and flushes the members.
    ///
    /// # Errors
    /// No `io_uring`, no memory, or the last flush failed or tells of a write-back that did.
    pub fn serve(self, array: &mut Array) -> Result<ServeReport, HostError> {
        let Self { config, doors, .. } = self;
        let geometry = array.geometry();
        let export = Export {
            name: config.name.clone(),
            description: config.description.clone(),
            bytes: array.sectors() * SECTOR_BYTES,
            min_bytes: array.block_bytes() as u32,
            preferred_bytes: preferred_bytes(geometry),
            read_only: config.read_only,
            fast_zero: array.zeroes_fast(),
            buffered: array.cache_status().is_some(),
            volatile: true,
        };
        let shards = array.shard_count();
        let shared = Shared::new(export, config, array.router(), shards);
        let never = AtomicBool::new(false);
        let running = Running::new(shards, &never);
        let start = array.begin_counting();
        let mut doors = Some(doors);
        let jobs = (0..shards).map(|_| doors.take()).collect();
        array.on_shards(&running, jobs, |shard, doors, context| {
            Service::new(shard, doors, &shared, context)?.run(&running, context)
        })?;
        if !shared.export.read_only {
            array.flush()?;
        }
        let mut run = array.report(start);
        run.stopped = shared.config.stop.load(Ordering::Relaxed);
        let status = shared.status(ArrayStatus { failed: array.failed_slots(), ..array.status() });
        Ok(ServeReport { status, run })
    }
}
