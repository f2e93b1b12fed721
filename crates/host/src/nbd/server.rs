//! The whole server: sockets bound first, then served until told to stop.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use stripewise_engine::units::{Instant, SECTOR_BYTES};

use super::change::{AskedChange, Changer, Held, Reopened, Said};
use super::control::ServeStatus;
use super::export::{Export, preferred_bytes};
use super::news::Teller;
use super::observer::Observer;
use super::service::{Doors, Guests, Service, Shared, Told};
use super::socket::Listener;
use crate::array::Array;
use crate::clock::Clock;
use crate::error::{HostError, ListenProblem};
use crate::fuse::{FILE_NAME, check_mount, mount_at};
use crate::manage::ArrayStatus;
use crate::md::grow::Change;
use crate::report::{RunReport, TimedEvent};
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
        let mut served = Served::new(self, array, false)?;
        served.round(array)?;
        served.finish(array)
    }

    /// As [`serve`](Self::serve), and has the array changed when the control socket asks for it. In the report, what was asked of
    /// the members counts from the last change on. Also answers the array, unless a change has lost it.
    ///
    /// # Errors
    /// As [`serve`](Self::serve), or what was written before a change could not be flushed, or the array not be opened again.
    pub fn serve_changing(
        self,
        mut array: Array,
        changer: &mut dyn Changer,
    ) -> (Result<ServeReport, HostError>, Option<Array>) {
        let mut served = match Served::new(self, &array, true) {
            Ok(served) => served,
            Err(error) => return (Err(error), Some(array)),
        };
        loop {
            let asked = match served.round(&mut array) {
                Ok(None) => return (served.finish(&mut array), Some(array)),
                Ok(Some(asked)) => asked,
                Err(error) => return (Err(error), Some(array)),
            };
            let (changed, said) = served.change(array, asked.change, changer);
            for guests in &mut served.guests {
                guests.answer(asked.control, &said);
            }
            let Some(changed) = changed else {
                let (Said::Done(why) | Said::Refused(why) | Said::Failed(why)) = said;
                return (Err(HostError::Reopen { why }), None);
            };
            array = changed;
        }
    }
}

/// A server at work on an array.
struct Served {
    shared: Shared,
    guests: Vec<Guests>,
    /// Of the first array.
    clock: Clock,
    /// When the array was opened or changed.
    start: Instant,
    /// What happened to it before it was changed.
    events: Vec<TimedEvent>,
}

impl Served {
    fn new(server: NbdServer, array: &Array, may_change: bool) -> Result<Self, HostError> {
        let NbdServer { config, doors, .. } = server;
        let shards = array.shard_count();
        let mut doors = Some(doors);
        let guests = (0..shards).map(|_| Guests::new(doors.take())).collect::<Result<_, _>>()?;
        let shared = Shared::new(export(&config, array), config, may_change, array.router(), shards);
        Ok(Self { shared, guests, clock: array.clock(), start: Instant::ZERO, events: Vec::new() })
    }

    /// Serves until it is to end, or the array is to be changed.
    fn round(&mut self, array: &mut Array) -> Result<Option<AskedChange>, HostError> {
        let never = AtomicBool::new(false);
        let running = Running::new(self.guests.len(), &never);
        self.start = array.begin_counting();
        let shared = &self.shared;
        let asked =
            array.on_shards(&running, self.guests.iter_mut().collect(), |shard, guests, context| {
                Service::new(shard, guests, shared, context)?.run(&running, context)
            })?;
        self.events.extend(array.report(self.start).events);
        Ok(asked.into_iter().flatten().next())
    }

    /// Has the array changed if it may be; answers it as it is open then, unless it is lost.
    fn change(
        &mut self,
        mut array: Array,
        change: Change,
        changer: &mut dyn Changer,
    ) -> (Option<Array>, Said) {
        let held = Held::by(&array);
        if let Some(why) = changer.refusal(&array, change).or_else(|| held.misplaced()) {
            return (Some(array), Said::Refused(why));
        }
        let before = array.failed_slots().len();
        let closed = self.close(&mut array);
        let status = array.status();
        let has_lost_a_member = status.failed.len() > before;
        drop(array);
        if let Err(error) = closed {
            return (None, Said::Failed(error.to_string()));
        }
        let Reopened { array, said } = changer.reopen(&status, Some(change).filter(|_| !has_lost_a_member));
        let Some(array) = array else { return (None, Said::Failed(said.unwrap_or_else(|why| why))) };
        if let Some(why) = held.other(&Held::by(&array)) {
            return (None, Said::Failed(why));
        }
        let clock_ahead = self.clock.now().since(array.clock().now());
        self.shared.renew(export(&self.shared.config, &array), array.router(), clock_ahead);
        for guests in &self.guests {
            guests.look_again();
        }
        let said = match said {
            _ if has_lost_a_member => {
                Said::Refused("a member failed while the array was closed, so nothing is changed".to_owned())
            }
            Ok(done) => Said::Done(done),
            Err(why) => Said::Refused(why),
        };
        (Some(array), said)
    }

    /// Flushes and closes the array, and tells what happens to it meanwhile.
    fn close(&mut self, array: &mut Array) -> Result<(), HostError> {
        let mut told = Told::default();
        told.look(array.first());
        let start = array.begin_counting();
        let closed = array.close();
        let events = array.report(start).events;
        match &self.shared.config.tell {
            Some(tell) => events.iter().for_each(|happened| tell(&told.event(array.first(), happened))),
            None => self.events.extend(events),
        }
        closed
    }

    fn finish(self, array: &mut Array) -> Result<ServeReport, HostError> {
        let Self { shared, start, mut events, .. } = self;
        if !shared.export.read_only {
            array.flush()?;
        }
        let mut run = array.report(start);
        events.append(&mut run.events);
        run.events = events;
        run.stopped = shared.config.stop.load(Ordering::Relaxed);
        let status = shared.status(ArrayStatus { failed: array.failed_slots(), ..array.status() });
        Ok(ServeReport { status, run })
    }
}

/// What clients are told of an array.
fn export(config: &ServeConfig, array: &Array) -> Export {
    Export {
        name: config.name.clone(),
        description: config.description.clone(),
        bytes: array.sectors() * SECTOR_BYTES,
        min_bytes: array.block_bytes() as u32,
        preferred_bytes: preferred_bytes(array.geometry()),
        read_only: config.read_only,
        fast_zero: array.zeroes_fast(),
        buffered: array.cache_status().is_some(),
        volatile: true,
    }
}
