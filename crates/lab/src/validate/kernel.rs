//! A real Linux kernel as a process: Debian's user-mode-linux on this machine's own root file system, which plays the
//! cells of a plan and ends.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

/// The kernel's first program.
const GUEST: &str = include_str!("guest.py");
/// Becomes the kernel, on CPUs whose registers are too many for it, too.
const LAUNCHER: &str = include_str!("registers.py");
/// What the kernel loads; those that are part of it are passed over.
const MODULES: [&str; 15] = [
    "libcrc32c",
    "async_tx",
    "async_memcpy",
    "async_xor",
    "async_pq",
    "async_raid6_recov",
    "md-mod",
    "raid1",
    "raid10",
    "raid456",
    "dm-mod",
    "brd",
    "mq-deadline",
    "virtio_blk",
    "virtio_uml",
];
const BOOT_MAX: Duration = Duration::from_secs(60);
/// Longest wait for one cell's answer.
const CELL_MAX: Duration = Duration::from_secs(180);
/// The kernel's memory, which it keeps in a file.
const MEMORY_MIB: u64 = 1536;
/// What is told of what was said before a kernel ended.
const LAST_WORDS_BYTES: usize = 2000;

/// Programs, and the Debian packages that have them.
const PROGRAMS: [(&str, &str); 5] = [
    ("linux.uml", "user-mode-linux"),
    ("mdadm", "mdadm"),
    ("dmsetup", "dmsetup"),
    ("insmod", "kmod"),
    ("/usr/bin/python3", "python3"),
];

/// The array's own work, watched for some time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct GuestSync {
    /// As `sync_action` has it.
    pub(super) action: &'static str,
    /// From its start, until it is watched.
    pub(super) ramp_s: f64,
    /// How long it is watched.
    pub(super) seconds: f64,
    /// Bounds of its speed.
    pub(super) speed_kib: [u32; 2],
}

/// One array and the requests it is given, or its own work.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct GuestCell {
    pub(super) level: u8,
    pub(super) members: u16,
    /// The last so many.
    pub(super) missing: u16,
    pub(super) chunk_kib: u64,
    pub(super) stripe_cache_size: u32,
    /// Chunk of an internal bitmap; none for none.
    pub(super) bitmap_chunk_kib: Option<u32>,
    pub(super) member_kib: u64,
    pub(super) data_offset_kib: u64,
    pub(super) is_write: bool,
    /// At the array's end, for writes that no list overlaps.
    pub(super) reserved_kib: u64,
    /// How long the drives are left alone before the first request.
    pub(super) rest_s: f64,
    pub(super) streams: Vec<Vec<(u64, u64)>>,
    /// Beside it the streams, all reads, are played until it has been watched.
    pub(super) sync: Option<GuestSync>,
}

/// What a kernel is booted for.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct GuestPlan {
    pub(super) modules: Vec<&'static str>,
    pub(super) module_options: std::collections::BTreeMap<&'static str, Vec<String>>,
    /// RAM disks to make; none for `devices`.
    pub(super) ram_disks: u16,
    pub(super) devices: Vec<String>,
    /// Attributes of each device's queue, in the order they are set.
    pub(super) queue: Vec<(&'static str, String)>,
    /// Before the cells: reads of 4 KiB of the first device, one after the other, and as many turns of two threads that wake each
    /// other; zero for none.
    pub(super) probes: u32,
    pub(super) cells: Vec<GuestCell>,
}

/// What a kernel came to.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Ran {
    /// Median times of the reads and of the turns of `probes`.
    pub(super) probed: Option<Probed>,
    /// Of each cell.
    pub(super) results: Vec<GuestResult>,
}

/// How long things take that have nothing to do with md, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
pub(super) struct Probed {
    /// A read of 4 KiB.
    pub(super) read_s: f64,
    /// From what wakes a thread to its next call.
    pub(super) turn_s: f64,
}

/// What a cell came to.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(super) struct GuestResult {
    /// From the first request to the end of the last; of its own work, as long as it was watched.
    pub(super) seconds: f64,
    /// Sectors that its own work did meanwhile.
    #[serde(default)]
    pub(super) sync_sectors: u64,
    /// Reads that were answered beside it.
    #[serde(default)]
    pub(super) reads: u64,
    /// Reads, sectors read, writes, sectors written of each member.
    pub(super) members: Vec<[u64; 4]>,
}

/// A line of the results.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Line {
    Result(GuestResult),
    Failed {
        failed: String,
    },
    /// Which release it is shows that it has booted.
    Booted {
        #[serde(rename = "kernel")]
        _kernel: String,
        #[serde(flatten)]
        probed: Option<Probed>,
    },
}

/// Fails with the names of packages if a program is not there.
///
/// # Errors
/// Programs are missing.
pub fn check_programs() -> Result<()> {
    let folders: Vec<PathBuf> =
        std::env::var_os("PATH").map(|path| std::env::split_paths(&path).collect()).unwrap_or_default();
    let is_there = |program: &str| {
        let system = [PathBuf::from("/usr/sbin"), PathBuf::from("/sbin")];
        folders.iter().chain(&system).any(|folder| folder.join(program).exists())
    };
    let missing: Vec<_> = PROGRAMS.iter().filter(|(program, _)| !is_there(program)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let programs: Vec<_> = missing.iter().map(|(program, _)| *program).collect();
    let packages: Vec<_> = missing.iter().map(|(_, package)| *package).collect();
    bail!("{} is missing; on Debian: apt-get install {}", programs.join(", "), packages.join(" "));
}

/// Boots a kernel with these arguments of its own, has it do a plan, and tells each result as it comes.
///
/// # Errors
/// The kernel does not boot, ends early, or a cell fails; or it was ended because of `cancel`.
pub(super) fn run(
    plan: &GuestPlan,
    arguments: &[String],
    cancel: &AtomicBool,
    mut tell: impl FnMut(usize, &GuestResult),
) -> Result<Ran> {
    let folder = tempfile::Builder::new().prefix("stripewise-validate.").tempdir_in("/var/tmp")?;
    let plan = GuestPlan { modules: MODULES.to_vec(), ..plan.clone() };
    fs::write(folder.path().join("plan.json"), serde_json::to_vec(&plan)?)?;
    fs::write(folder.path().join("guest.py"), GUEST)?;
    let init = folder.path().join("init");
    fs::write(&init, init_script(folder.path()))?;
    fs::set_permissions(&init, fs::Permissions::from_mode(0o755))?;
    let mut kernel = Kernel::boot(folder.path(), &init, arguments)?;
    let mut is_booted = false;
    let mut ran = Ran::default();
    let mut waiting_since = Instant::now();
    while !is_booted || ran.results.len() < plan.cells.len() {
        if cancel.load(Ordering::Relaxed) {
            bail!("interrupted");
        }
        let ended = kernel.has_ended()?;
        for line in lines(&folder.path().join("results.jsonl"), ran.results.len() + usize::from(is_booted))? {
            waiting_since = Instant::now();
            match line {
                Line::Booted { probed, .. } => (is_booted, ran.probed) = (true, probed),
                Line::Failed { failed } => bail!("in user-mode-linux: {}", failed.trim()),
                Line::Result(result) => {
                    tell(ran.results.len(), &result);
                    ran.results.push(result);
                }
            }
        }
        let limit = if is_booted { CELL_MAX } else { BOOT_MAX };
        if (!is_booted || ran.results.len() < plan.cells.len()) && (ended || waiting_since.elapsed() > limit)
        {
            let after =
                if ended { "ended".to_owned() } else { format!("was silent for {} s", limit.as_secs()) };
            bail!(
                "linux.uml {after} after {} of {} cells{}",
                ran.results.len(),
                plan.cells.len(),
                last_words(folder.path())
            );
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(ran)
}

/// The end of what the kernel and its first program said, if they said anything.
fn last_words(folder: &Path) -> String {
    let ends = ["console", "kernel.log"].iter().filter_map(|name| {
        let said = fs::read(folder.join(name)).ok()?;
        let end =
            String::from_utf8_lossy(&said[said.len().saturating_sub(LAST_WORDS_BYTES)..]).trim().to_owned();
        (!end.is_empty()).then(|| format!(": {end}"))
    });
    ends.collect()
}

fn init_script(folder: &Path) -> String {
    let folder = folder.display();
    format!(
        "#!/bin/sh\n\
         export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C\n\
         mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev 2>/dev/null\n\
         mount -t tmpfs tmp /run\n\
         echo 1 >/proc/sys/kernel/printk\n\
         /usr/bin/python3 -B {folder}/guest.py {folder} >{folder}/console 2>&1 </dev/null\n\
         halt -f\n"
    )
}

/// The complete lines after the first `skip`.
fn lines(file: &Path, skip: usize) -> Result<Vec<Line>> {
    let text = match fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    };
    let complete = text.split_inclusive('\n').filter(|line| line.ends_with('\n')).skip(skip);
    complete
        .map(|line| serde_json::from_str(line).with_context(|| format!("{}: {line}", file.display())))
        .collect()
}

/// A booted kernel; ended with what it started when dropped.
#[derive(Debug)]
struct Kernel(Child);

impl Kernel {
    fn boot(folder: &Path, init: &Path, arguments: &[String]) -> Result<Self> {
        let log = fs::File::create(folder.join("kernel.log"))?;
        let launcher = folder.join("registers.py");
        fs::write(&launcher, LAUNCHER)?;
        let mut command = Command::new("/usr/bin/python3");
        command
            .arg(launcher)
            .arg("linux.uml")
            .arg(format!("mem={MEMORY_MIB}M"))
            .args(["root=/dev/root", "rootfstype=hostfs", "rootflags=/", "rw"])
            .arg(format!("init={}", init.display()))
            .args(["con=null", "con0=null,fd:1", "quiet", "panic=-1"])
            // An idle kernel can miss that a device has answered, until its next timer: with a steady tick within 10 ms.
            .arg("nohz=off")
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            // Its processes are a group of their own, to be ended together.
            .process_group(0);
        command.env("TMPDIR", memory_folder(std::env::temp_dir())?);
        Ok(Self(command.spawn().context("linux.uml")?))
    }

    fn has_ended(&mut self) -> Result<bool> {
        Ok(self.0.try_wait()?.is_some())
    }
}

/// A folder with room for the kernel's memory; in memory, if there is one.
fn memory_folder(temporary: PathBuf) -> Result<PathBuf> {
    let folders = [PathBuf::from("/dev/shm"), temporary, PathBuf::from("/tmp"), PathBuf::from("/var/tmp")];
    let has_room = |folder: &PathBuf| {
        rustix::fs::statvfs(folder).is_ok_and(|at| at.f_bavail.saturating_mul(at.f_frsize) > MEMORY_MIB << 20)
    };
    let names = folders.each_ref().map(|folder| folder.display().to_string()).join(", ");
    folders.into_iter().find(has_room).with_context(|| {
        format!("linux.uml keeps its memory in a file of {MEMORY_MIB} MiB; none of {names} has room for it")
    })
}

impl Drop for Kernel {
    fn drop(&mut self) {
        if let Some(group) = rustix::process::Pid::from_raw(self.0.id() as i32) {
            // What is left of the group, if anything is.
            let _gone = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
        let _ended = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_said_last_is_told() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(last_words(folder.path()), "");
        fs::write(folder.path().join("console"), "\n").unwrap();
        fs::write(folder.path().join("kernel.log"), "x".repeat(5000) + " no room\n").unwrap();
        let told = last_words(folder.path());
        assert!(told.ends_with(" no room") && told.len() < 2100, "{told}");
    }

    #[test]
    fn results_are_read_line_by_line_and_a_half_written_one_waits() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("results.jsonl");
        assert!(lines(&file, 0).unwrap().is_empty());
        let text = "{\"kernel\": \"6.1\"}\n{\"seconds\": 1.5, \"members\": [[1, 8, 2, 16]]}\n{\"fai";
        fs::write(&file, text).unwrap();
        let read = lines(&file, 0).unwrap();
        assert!(matches!(&read[0], Line::Booted { probed: None, .. }));
        assert!(matches!(&read[1], Line::Result(r) if r.members == [[1, 8, 2, 16]]));
        assert_eq!(read.len(), 2);
        fs::write(&file, format!("{text}led\": \"no mdadm\"}}\n")).unwrap();
        assert!(matches!(&lines(&file, 2).unwrap()[..], [Line::Failed { failed }] if failed == "no mdadm"));
    }
}
