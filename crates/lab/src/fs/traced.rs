//! What the real mkfs writes to a served array: its trace, through nbdfuse.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use stripewise_engine::geometry::GeometrySpec;
use stripewise_engine::io::Op;
use stripewise_engine::level::{Layout, Level};
use stripewise_engine::policy::Policy;
use stripewise_engine::units::SECTOR_BYTES;
use stripewise_engine::volume::VolumeConfig;
use stripewise_host::{
    Array, ArrayConfig, FileSpec, Fill, MemberSpec, NbdServer, ServeConfig, create_member_file,
};

use super::BLOCK_BYTES;
use crate::trace::{Claim, Trace};

/// Members of the array.
const MEMBERS: u64 = 2;

/// Finds administrators' programs too.
pub(super) fn command(program: &str) -> Command {
    let mut command = Command::new(program);
    command.env("PATH", format!("{}:/sbin:/usr/sbin", std::env::var("PATH").unwrap_or_default()));
    command
}

/// The export as a file.
struct Fuse {
    nbdfuse: Child,
    folder: PathBuf,
}

impl Fuse {
    /// Nothing where there is no nbdfuse or no FUSE.
    fn mount(folder: &Path, socket: &Path) -> Option<Self> {
        std::fs::create_dir(folder).unwrap();
        let uri = format!("nbd+unix:///?socket={}", socket.display());
        let mut nbdfuse = command("nbdfuse").arg(folder).arg(uri).stderr(Stdio::null()).spawn().ok()?;
        for _ in 0..200 {
            if folder.join("nbd").exists() {
                return Some(Self { nbdfuse, folder: folder.to_owned() });
            }
            if nbdfuse.try_wait().unwrap().is_some() {
                return None;
            }
            std::thread::sleep(Duration::from_millis(25));
        }
        nbdfuse.kill().unwrap();
        nbdfuse.wait().unwrap();
        None
    }
}

impl Drop for Fuse {
    fn drop(&mut self) {
        let _ = command("umount").arg(&self.folder).status();
        let _ = self.nbdfuse.wait();
    }
}

/// The blocks a command writes to a served RAID-0 of so many bytes, given as its last argument. Nothing, and a word
/// on standard error, where a program or FUSE is missing.
pub(super) fn written(bytes: u64, program: &str, arguments: &[&str]) -> Option<BTreeSet<u64>> {
    for needed in [program, "nbdfuse", "umount"] {
        if command(needed).arg("-V").stdout(Stdio::null()).stderr(Stdio::null()).status().is_err() {
            eprintln!("no {needed} here: nothing was compared");
            return None;
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let member_sectors = bytes / SECTOR_BYTES / MEMBERS;
    let members: Vec<_> = (0..MEMBERS).map(|n| folder.path().join(format!("{n}.img"))).collect();
    for path in &members {
        create_member_file(path, member_sectors, Fill::Sparse).unwrap();
    }
    let geometry = GeometrySpec {
        level: Level::Raid0,
        layout: Layout::default_of(Level::Raid0),
        chunk_sectors: 128,
        member_sectors: vec![member_sectors; MEMBERS as usize],
    };
    let volume = VolumeConfig::new(geometry, Policy::stripewise());
    let members = members.into_iter().map(|path| MemberSpec::File(FileSpec::new(path))).collect();
    let mut array = Array::open(ArrayConfig::new(volume, members)).unwrap();
    let (socket, file) = (folder.path().join("nbd.sock"), folder.path().join("mkfs.trace"));
    let recorder = Claim::new(&file).unwrap().begin(bytes, |error| panic!("{error}")).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let server = NbdServer::bind(ServeConfig {
        socket: Some(socket.clone()),
        stop: Arc::clone(&stop),
        observer: Some(recorder.observer()),
        ..ServeConfig::default()
    })
    .unwrap();
    let output = std::thread::scope(|scope| {
        let serving = scope.spawn(|| server.serve(&mut array));
        let output = Fuse::mount(&folder.path().join("fuse"), &socket)
            .map(|fuse| command(program).args(arguments).arg(fuse.folder.join("nbd")).output().unwrap());
        stop.store(true, Ordering::Relaxed);
        serving.join().unwrap().unwrap();
        output
    });
    recorder.finish().unwrap();
    let Some(output) = output else {
        eprintln!("no FUSE here: nothing was compared");
        return None;
    };
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    Some(blocks(&Trace::read(&file).unwrap()))
}

/// Whole blocks, as a page cache writes them.
fn blocks(trace: &Trace) -> BTreeSet<u64> {
    let writes = trace.records.iter().filter(|r| matches!(r.op, Op::Write | Op::WriteZeroes));
    writes.flat_map(|r| r.offset / BLOCK_BYTES..(r.offset + r.bytes).div_ceil(BLOCK_BYTES)).collect()
}
