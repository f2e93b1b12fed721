//! Modelled drives in real time below a booted kernel: for each a server of its own, a virtio disk to the kernel.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// How long a program may take to listen.
const LISTENS_WITHIN: Duration = Duration::from_secs(10);

/// Programs that run while a kernel does; ended when dropped.
#[derive(Debug)]
pub(super) struct Drives {
    programs: Vec<Program>,
    sockets: Vec<PathBuf>,
    folder: tempfile::TempDir,
}

#[derive(Debug)]
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        if let Some(pid) = rustix::process::Pid::from_raw(self.0.id() as i32) {
            // It may have ended by itself.
            let _ended = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let _status = self.0.wait();
    }
}

impl Drives {
    /// Starts `count` drives, each by `stripewise drive serve` with these words.
    ///
    /// # Errors
    /// A program does not start.
    pub(super) fn start(stripewise: &Path, words: &[String], count: u16) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("stripewise-drives.").tempdir_in("/var/tmp")?;
        let mut drives = Self { programs: Vec::new(), sockets: Vec::new(), folder };
        let folder = drives.folder.path().to_owned();
        for index in 0..count {
            let socket = folder.join(format!("drive{index}"));
            let log = folder.join(format!("drive{index}.log"));
            let mut serve = Command::new(stripewise);
            serve.args(["drive", "serve"]).args(words).arg("--vhost-user").arg(&socket);
            serve.args(["--seed", &(index + 1).to_string()]);
            drives.begin(serve, &socket, &log)?;
            drives.sockets.push(socket);
        }
        Ok(drives)
    }

    /// What the kernel is told of the disks.
    pub(super) fn kernel_arguments(&self) -> Vec<String> {
        self.sockets.iter().map(|socket| format!("virtio_uml.device={}:2", socket.display())).collect()
    }

    /// The disks' names in the kernel.
    pub(super) fn names(&self) -> Vec<String> {
        (b'a'..).take(self.sockets.len()).map(|letter| format!("vd{}", char::from(letter))).collect()
    }

    fn begin(&mut self, mut command: Command, socket: &Path, log: &Path) -> Result<()> {
        let name = command.get_program().to_string_lossy().into_owned();
        let output = File::create(log)?;
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        self.programs.push(Program(command.spawn().with_context(|| name.clone())?));
        let since = Instant::now();
        while !socket.exists() {
            let ended = match self.programs.last_mut() {
                Some(program) => program.0.try_wait()?.is_some(),
                None => true,
            };
            if ended || since.elapsed() > LISTENS_WITHIN {
                bail!("{name} does not listen: {}", std::fs::read_to_string(log)?.trim());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }
}
