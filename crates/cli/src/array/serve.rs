//! `stripewise serve`: an assembled array over NBD, or as a mounted file.

use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Result;
use clap::{ArgGroup, Args};
use sd_notify::NotifyState;
use stripewise_engine::geometry::GeometrySpec;
use stripewise_engine::level::{Layout, Level};
use stripewise_engine::policy::Policy;
use stripewise_engine::units::SECTOR_BYTES;
use stripewise_engine::volume::VolumeConfig;
use stripewise_host::{
    Access, Array, ArrayConfig, Detail, FileSpec, MemberSpec, NbdServer, ServeConfig, ServeEvent,
    ServeStatus, check_mount,
};
use stripewise_lab::trace::{Claim, Recorder, TraceError};

use super::assemble::message;
use super::detail::SCHEMA;
use super::fresh::Fresh;
use super::grow::served::Regrow;
use super::layers::{CacheArgs, LuksArgs, raise};
use super::manage::{Checks, live};
use super::program::{self, Alert, Alerts};
use super::select::{SelectArgs, Use, impossible, tell};
use super::signals::stop_flag;
use super::size::UNITS;
use super::voice::Voice;
use crate::exit::{Exit, cannot_open};
use crate::output::{is_stdout, print};

/// `stripewise serve`.
#[derive(Debug, Args)]
#[command(after_help = UNITS, group = ArgGroup::new("where").args(["socket", "listen", "mount"]).required(true).multiple(true))]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    pub(super) select: SelectArgs,
    /// Listen for NBD clients at this unix socket.
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Listen for NBD clients at this TCP address or host name; port 0 means any free port.
    #[arg(long, value_name = "HOST:PORT", value_parser = address)]
    listen: Option<SocketAddr>,
    /// Mount the array at this empty folder as the file `disk` (FUSE); a loop device on the file makes it a block device.
    #[arg(long, value_name = "FOLDER")]
    mount: Option<PathBuf>,
    /// Accept the commands of `stripewise fail`, `add`, `detail`, `stop` and others at this unix socket.
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
    /// Name of the NBD export [default: the array's name without its host].
    #[arg(long, value_name = "NAME")]
    export_name: Option<String>,
    /// Record every request in this trace file (see `stripewise trace`).
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
    /// Run this program for each event, as `mdadm --monitor` does, with the event, the array's name and the member as arguments.
    #[arg(long, value_name = "PROGRAM")]
    program: Option<PathBuf>,
    /// Number of threads, which share the stripes of an array without redundancy.
    #[arg(long, value_name = "N", default_value_t = 1)]
    shards: u32,
    #[command(flatten)]
    cache: CacheArgs,
    #[command(flatten)]
    pub(super) luks: LuksArgs,
}

pub(crate) fn run(args: &ServeArgs) -> Result<Exit> {
    run_traced(args, args.trace.as_deref())
}

/// Serves, and records in a trace if one is named.
pub(crate) fn run_traced(args: &ServeArgs, trace: Option<&Path>) -> Result<Exit> {
    if args.select.overlay.is_some() && args.shards > 1 {
        return Err(impossible(
            "--shards: an array with an --overlay is served by one thread; leave --shards out",
        ));
    }
    let cache = args.cache.config()?;
    if cache.is_some() && args.shards > 1 {
        return Err(impossible(
            "--shards: an array with a --cache is served by one thread; leave one of them out",
        ));
    }
    let fresh = look_at_files(args, trace)?;
    let passphrase = args.luks.passphrase()?;
    let mut assembled = args.select.assemble(Use::Write)?;
    tell(&assembled);
    let stop = stop_flag()?;
    let mut array = args.select.open(&mut assembled, Use::Write, |config| config.shards = args.shards)?;
    if let Err(error) = raise(&mut array, cache.clone(), &args.luks, passphrase.as_ref()) {
        if !args.select.readonly {
            array.close()?;
        }
        return Err(error);
    }
    drop(passphrase);
    let name = assembled.assembly.name.as_str();
    let plain = name.split_once(':').map_or(name, |(_, after_host)| after_host);
    let line = message(&assembled);
    let checks = Checks::default();
    let regrow = Regrow::new(args, trace.is_some(), cache, &assembled, checks.clone());
    let described = regrow.described();
    let (told, readonly) = (checks.clone(), args.select.readonly);
    let detail = move |status: &ServeStatus| {
        live::document(SCHEMA, &described.get(), status, &told, readonly).to_string()
    };
    let export = Export {
        name: plain.to_owned(),
        line,
        is_degraded: assembled.assembly.is_degraded(),
        detail: Some(Arc::new(detail)),
        checks,
        closes: !args.select.readonly,
        fresh,
        regrow: Some(regrow),
    };
    export.serve(args, array, stop, trace)
}

/// Refuses a folder that cannot be mounted before anything is made, and notes what the server will make.
fn look_at_files(args: &ServeArgs, trace: Option<&Path>) -> Result<Fresh> {
    if let Some(program) = &args.program {
        program::check(program)?;
    }
    if trace.is_some_and(is_stdout) {
        return Err(impossible(
            "-: a trace is not written to standard output; name a file, or ./- for one of that name",
        ));
    }
    let overlay = args.select.overlay.as_deref();
    let named = [
        ("--socket", args.socket.as_deref()),
        ("--control", args.control.as_deref()),
        ("--trace", trace),
        ("--overlay", overlay),
    ];
    for (at, (option, path)) in named.iter().enumerate() {
        let other = named[..at].iter().find(|(_, other)| path.is_some() && other == path);
        if let (Some((other, _)), Some(path)) = (other, path) {
            let path = path.display();
            return Err(impossible(format!("{option} {path}: {other} has the same path; choose another")));
        }
    }
    if let Some(folder) = &args.mount {
        let files: Vec<&Path> = named.into_iter().filter_map(|(_, path)| path).collect();
        check_mount(folder, &files)?;
    }
    Ok(Fresh::among(overlay))
}

/// Serves a file or device as it is, without an array's metadata, and records in a trace.
pub(crate) fn run_device(args: &ServeArgs, device: &Path, trace: &Path) -> Result<Exit> {
    if !args.select.members.is_empty() || args.select.scan.is_some() {
        return Err(impossible("--device: members are named, too; give either members or --device"));
    }
    let fresh = look_at_files(args, Some(trace))?;
    let mut file = File::open(device).map_err(|error| cannot_open(device, error))?;
    let sectors = file.seek(SeekFrom::End(0))? / SECTOR_BYTES;
    let access = if args.select.readonly { Access::ReadOnly } else { args.select.access(device) };
    let geometry = GeometrySpec {
        level: Level::Linear,
        layout: Layout::None,
        chunk_sectors: 0,
        member_sectors: vec![sectors],
    };
    let volume = VolumeConfig::new(geometry, Policy::stripewise());
    let member = MemberSpec::File(FileSpec { access, ..FileSpec::new(device) });
    let stop = stop_flag()?;
    let array = Array::open(ArrayConfig::new(volume, vec![member]))?;
    let name =
        device.file_name().map_or_else(|| "device".to_owned(), |name| name.to_string_lossy().into_owned());
    let line = format!("{} is served as it is.", device.display());
    let checks = Checks::default();
    let export =
        Export { name, line, is_degraded: false, detail: None, checks, closes: false, fresh, regrow: None };
    export.serve(args, array, stop, Some(trace))
}

/// What clients see of an open array.
struct Export {
    name: String,
    /// What is said when it is ready, and told to clients as its description.
    line: String,
    /// It lacks members.
    is_degraded: bool,
    detail: Option<Arc<Detail>>,
    /// Checks and repairs, for `detail` to tell of.
    checks: Checks,
    /// The array is marked as clean at the end.
    closes: bool,
    /// What is made for it, and stays when it is ready.
    fresh: Fresh,
    /// Changes it while it is served.
    regrow: Option<Regrow>,
}

impl Export {
    /// Serves until told to stop, and closes the array whatever happens.
    fn serve(
        self,
        args: &ServeArgs,
        array: Array,
        stop: Arc<AtomicBool>,
        trace: Option<&Path>,
    ) -> Result<Exit> {
        let closes = self.closes;
        let (voice, speaker) = Voice::new(std::io::stderr())?;
        let (alerts, runner) = match &args.program {
            Some(program) => {
                let (alerts, runner) = Alerts::new(program, &self.name, voice.clone())?;
                (Some(alerts), Some(runner))
            }
            None => (None, None),
        };
        let (served, array) = self.serve_open(args, array, stop, trace, (voice, alerts));
        let closed = match array {
            // Others may have the members while the program is waited for.
            Some(mut array) if closes => array.close(),
            _ => Ok(()),
        };
        if let Some(runner) = runner {
            runner.finish();
        }
        speaker.finish();
        let recorded = served?;
        closed?;
        if let Some(recorded) = recorded {
            print(&recorded)?;
        }
        Ok(Exit::Done)
    }

    /// Serves until told to stop; answers what is to be said of the trace, and the array unless it was lost.
    fn serve_open(
        mut self,
        args: &ServeArgs,
        mut array: Array,
        stop: Arc<AtomicBool>,
        trace: Option<&Path>,
        (voice, alerts): (Voice, Option<Alerts>),
    ) -> (Result<Option<String>>, Option<Array>) {
        let regrow = self.regrow.take();
        let said = voice.clone();
        let (server, recorder) = match self.ready(args, &array, stop, trace, (voice, alerts)) {
            Ok(ready) => ready,
            Err(error) => return (Err(error), Some(array)),
        };
        let (served, array) = match regrow {
            Some(mut regrow) => {
                regrow.say_at(said);
                server.serve_changing(array, &mut regrow)
            }
            None => (server.serve(&mut array), Some(array)),
        };
        let recorded = recorder.map(Recorder::finish).transpose();
        let recorded = served.map_err(anyhow::Error::from).and(recorded.map_err(anyhow::Error::from));
        let recorded = recorded.map(|recorded| {
            recorded.zip(trace).map(|(written, path)| {
                format!("stripewise: {} requests are recorded in {}\n", written.records, path.display())
            })
        });
        (recorded, array)
    }

    /// Begins to listen, and says so.
    fn ready(
        self,
        args: &ServeArgs,
        array: &Array,
        stop: Arc<AtomicBool>,
        trace: Option<&Path>,
        (voice, alerts): (Voice, Option<Alerts>),
    ) -> Result<(NbdServer, Option<Recorder>)> {
        let Self { name, line, is_degraded, detail, checks, fresh, .. } = self;
        let claim = trace.map(Claim::new).transpose()?;
        let recorded_by = voice.clone();
        let first = alerts.clone().filter(|_| is_degraded);
        let tell = move |event: &ServeEvent| {
            checks.hear(event);
            voice.say(event.to_string());
            if let (Some(alerts), Some(alert)) = (&alerts, Alert::of(event)) {
                alerts.send(alert);
            }
        };
        let server = NbdServer::bind(ServeConfig {
            socket: args.socket.clone(),
            listen: args.listen,
            mount: args.mount.clone(),
            control: args.control.clone(),
            name: args.export_name.clone().unwrap_or(name),
            description: line.trim_end_matches('.').to_owned(),
            read_only: args.select.readonly,
            stop,
            detail,
            observer: claim.as_ref().map(Claim::observer),
            tell: Some(Arc::new(tell)),
        })?;
        // What is refused until here leaves an older trace as it was.
        let recorder = claim.map(|claim| begin(claim, array, recorded_by)).transpose()?;
        fresh.keep();
        let unix = args.socket.as_ref().map(|path| path.display().to_string());
        let tcp = server.address().map(|address| address.to_string());
        let file = server.file().map(|path| path.display().to_string());
        let places: Vec<String> = unix.into_iter().chain(tcp).chain(file).collect();
        let ready = format!("{line} Ready at {}", places.join(" and "));
        // That nobody reads it is no reason not to serve.
        let _unread = print(&format!("stripewise: {ready}\n"));
        let _unheard = sd_notify::notify(&[NotifyState::Ready, NotifyState::Status(&ready)]);
        if let Some(alerts) = first {
            alerts.send(Alert::degraded(ready));
        }
        Ok((server, recorder))
    }
}

/// The first address of a host and port.
fn address(named: &str) -> Result<SocketAddr, String> {
    const BOTH: &str = "give a host and a port, as in localhost:10809 or [::1]:10809";
    if let Ok(address) = named.parse() {
        return Ok(address);
    }
    let (host, port) = named.rsplit_once(':').ok_or_else(|| format!("the port is missing; {BOTH}"))?;
    if host.is_empty() {
        return Err(format!("the host is missing; {BOTH}"));
    }
    let port: u16 =
        port.parse().map_err(|_| format!("{port:?} is no port, a number from 0 to 65535; {BOTH}"))?;
    let unknown = |why: String| {
        format!("no address is known for the host {host:?}{why}; correct the name, or give an address")
    };
    let mut found = (host, port).to_socket_addrs().map_err(|error| unknown(format!(" ({error})")))?;
    found.next().ok_or_else(|| unknown(String::new()))
}

/// Begins the trace of an array. That it cannot be written is said when it happens; the array is served on.
fn begin(claim: Claim, array: &Array, voice: Voice) -> Result<Recorder, TraceError> {
    let bytes = array.sectors() * SECTOR_BYTES;
    claim.begin(bytes, move |error| voice.say(error.to_string()))
}
