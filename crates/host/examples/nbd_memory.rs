//! Serves a fresh array on memory or files over NBD, for trying clients and for measuring.
//!
//! ```text
//! nbd_memory [--socket PATH] [--listen ADDR:PORT] [--control PATH] [--files FOLDER | --device PATH…]
//!            [--level 0|1|5|6] [--members N] [--member-mib N] [--chunk-kib N] [--shards N]
//!            [--buffered] [--no-discard] [--read-only]
//! ```
//! Prints `ready` once clients may come; ends at SIGTERM and SIGINT.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use stripewise_engine::geometry::GeometrySpec;
use stripewise_engine::level::{Layout, Level};
use stripewise_engine::policy::Policy;
use stripewise_engine::volume::{STRIPE_CACHE_DEFAULT, VolumeConfig};
use stripewise_host::{
    Access, Array, ArrayConfig, Caching, FileSpec, Fill, MemberSpec, NbdServer, ServeConfig,
    create_member_file,
};

struct Options {
    serve: ServeConfig,
    files: Option<PathBuf>,
    devices: Vec<PathBuf>,
    level: Level,
    members: usize,
    member_mib: u64,
    chunk_kib: u64,
    shards: u32,
    caching: Caching,
    discard: bool,
}

fn main() -> ExitCode {
    match parse().and_then(|options| serve(options).map_err(|e| e.to_string())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("nbd_memory: {message}");
            ExitCode::FAILURE
        }
    }
}

fn parse() -> Result<Options, String> {
    let mut options = Options {
        serve: ServeConfig {
            name: "memory".to_owned(),
            description: "a fresh array".to_owned(),
            ..ServeConfig::default()
        },
        files: None,
        devices: Vec::new(),
        level: Level::Raid5,
        members: 5,
        member_mib: 64,
        chunk_kib: 64,
        shards: 1,
        caching: Caching::Direct,
        discard: true,
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        match name.as_str() {
            "--buffered" => options.caching = Caching::Buffered,
            "--no-discard" => options.discard = false,
            "--read-only" => options.serve.read_only = true,
            _ => {
                let value = arguments.next().ok_or(format!("{name} needs a value"))?;
                option(&mut options, &name, &value)?;
            }
        }
    }
    Ok(options)
}

fn option(options: &mut Options, name: &str, value: &str) -> Result<(), String> {
    let number = || value.parse::<u64>().map_err(|e| format!("{name} {value}: {e}"));
    match name {
        "--socket" => options.serve.socket = Some(value.into()),
        "--listen" => {
            options.serve.listen = Some(value.parse().map_err(|e| format!("{name} {value}: {e}"))?);
        }
        "--control" => options.serve.control = Some(value.into()),
        "--files" => options.files = Some(value.into()),
        "--device" => options.devices.push(value.into()),
        "--level" => {
            options.level = match value {
                "0" => Level::Raid0,
                "1" => Level::Raid1,
                "5" => Level::Raid5,
                "6" => Level::Raid6,
                _ => return Err(format!("{name} {value}: 0, 1, 5 and 6 are possible")),
            };
        }
        "--members" => options.members = number()? as usize,
        "--member-mib" => options.member_mib = number()?,
        "--chunk-kib" => options.chunk_kib = number()?,
        "--shards" => options.shards = number()? as u32,
        _ => return Err(format!("{name} is not an option")),
    }
    Ok(())
}

fn serve(options: Options) -> Result<(), stripewise_host::HostError> {
    let sectors = options.member_mib * 2048;
    let mut members = Vec::new();
    for slot in 0..options.members {
        members.push(match (options.devices.get(slot), &options.files) {
            (Some(path), _) => {
                let (access, caching) = (Access::Destroy, options.caching);
                MemberSpec::File(FileSpec { access, caching, ..FileSpec::new(path.clone()) })
            }
            (None, Some(folder)) => {
                let path = folder.join(format!("member{slot}"));
                create_member_file(&path, sectors, Fill::Sparse)?;
                MemberSpec::File(FileSpec { caching: options.caching, ..FileSpec::new(path) })
            }
            (None, None) => MemberSpec::Memory,
        });
    }
    let geometry = GeometrySpec {
        level: options.level,
        layout: Layout::default_of(options.level),
        chunk_sectors: options.chunk_kib * 2,
        member_sectors: vec![sectors; options.members],
    };
    let volume = VolumeConfig {
        stripe_cache_size: STRIPE_CACHE_DEFAULT * options.shards,
        discard: options.discard,
        ..VolumeConfig::new(geometry, Policy::stripewise())
    };
    let mut array = Array::open(ArrayConfig { shards: options.shards, ..ArrayConfig::new(volume, members) })?;
    let stop = Arc::clone(&options.serve.stop);
    if let Err(e) = ctrlc::set_handler(move || stop.store(true, Ordering::Relaxed)) {
        eprintln!("nbd_memory: signals are not caught: {e}");
    }
    let server = NbdServer::bind(options.serve)?;
    match server.address() {
        Some(address) => println!("ready {address}"),
        None => println!("ready"),
    }
    let report = server.serve(&mut array)?;
    println!("{}", report.status.to_json());
    Ok(())
}
