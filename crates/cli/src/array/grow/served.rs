//! Changing an array that is being served: it is closed, changed as an idle one, and opened again, while requests wait.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use stripewise_engine::array::members::Standing;
use stripewise_engine::assembly::{Options, Wanted};
use stripewise_engine::cache::CacheConfig;
use stripewise_format::uuid::Uuid;
use stripewise_host::md::assemble::{Assembled, Selection, find};
use stripewise_host::md::grow::{Change, check, grow};
use stripewise_host::{Array, ArrayStatus, Changer, Layers, Reopened};

use super::super::create::now;
use super::super::manage::Checks;
use super::super::select::{SelectArgs, Use};
use super::super::serve::ServeArgs;
use super::super::voice::Voice;
use super::{problem, said};

/// The array as it was assembled last, for all who ask.
#[derive(Clone, Debug)]
pub(crate) struct Described(Arc<Mutex<Assembled>>);

impl Described {
    pub(crate) fn get(&self) -> Assembled {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, assembled: Assembled) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = assembled;
    }
}

/// Changes a server's array.
#[derive(Debug)]
pub(crate) struct Regrow {
    select: SelectArgs,
    cache: Option<CacheConfig>,
    decrypts: bool,
    traces: bool,
    uuid: Uuid,
    described: Described,
    checks: Checks,
    voice: Option<Voice>,
}

impl Regrow {
    /// For a server of these arguments.
    pub(crate) fn new(
        args: &ServeArgs,
        traces: bool,
        cache: Option<CacheConfig>,
        assembled: &Assembled,
        checks: Checks,
    ) -> Self {
        Self {
            select: args.select.clone(),
            cache,
            decrypts: args.luks.decrypts(),
            traces,
            uuid: assembled.assembly.uuid,
            described: Described(Arc::new(Mutex::new(assembled.clone()))),
            checks,
            voice: None,
        }
    }

    /// Says what it did there.
    pub(crate) fn say_at(&mut self, voice: Voice) {
        self.voice = Some(voice);
    }

    /// The array as it was assembled last.
    pub(crate) fn described(&self) -> Described {
        self.described.clone()
    }

    /// Why the array is not to be closed.
    fn cannot(&self, status: &ArrayStatus, change: Change) -> Option<&'static str> {
        if self.select.readonly {
            Some("the array is only read (--readonly)")
        } else if self.select.overlay.is_some() {
            Some("the array's members are only read, beneath an overlay (--overlay)")
        } else if self.decrypts {
            Some(
                "the server decrypts a LUKS container; stop it, and change the idle array with `stripewise grow`",
            )
        } else if self.traces && matches!(change, Change::Size { .. }) {
            Some(
                "the server records a trace, which has one size; stop it, and change the idle array with `stripewise grow`",
            )
        } else if status.is_broken {
            Some("the array takes no more writes")
        } else if status.members.iter().any(|member| member.standing == Standing::Failed) {
            Some("a member has failed; remove it first (`stripewise remove failed`)")
        } else {
            None
        }
    }

    /// Whether the idle array would be changed so.
    fn check(&self, status: &ArrayStatus, change: Change) -> Result<()> {
        let found = find(&self.selection(&paths(status)))?;
        check(found, self.options(), change, now()?).map_err(problem)
    }

    /// Changes the closed array; answers what was done.
    fn grow(&self, members: &[PathBuf], change: Change) -> Result<String> {
        let found = find(&self.selection(members))?;
        let grown = grow(found, self.options(), change, now()?, members).map_err(problem)?;
        Ok(said(&grown, true).trim_end().to_owned())
    }

    /// Opens the array as it was open: with its members, layers and speed.
    fn open(&self, members: &[PathBuf], closed: &ArrayStatus) -> Result<Array> {
        let mut assembled = find(&self.selection(members))?.assemble(self.options())?;
        // It had them, so that they may be written to.
        let select = SelectArgs { destroy: members.to_vec(), ..self.select.clone() };
        let mut array = select.open(&mut assembled, Use::Write, |config| {
            config.volume.sync.speed = closed.speed.unwrap_or(config.volume.sync.speed);
        })?;
        array.raise(&Layers { crypt: None, cache: self.cache.clone() })?;
        self.described.set(assembled);
        self.checks.forget();
        Ok(array)
    }

    fn selection(&self, members: &[PathBuf]) -> Selection {
        Selection {
            members: members.to_vec(),
            scan: None,
            wanted: Wanted::Uuid(self.uuid),
            options: self.options(),
            overlay: None,
        }
    }

    /// An array that runs goes on without members that it lacks.
    fn options(&self) -> Options {
        Options { run: true, force: false, ..self.select.options(Use::Write) }
    }
}

impl Changer for Regrow {
    fn refusal(&mut self, array: &Array, change: Change) -> Option<String> {
        let status = array.status();
        let why = self.cannot(&status, change).map(str::to_owned);
        why.or_else(|| self.check(&status, change).err().map(|error| format!("{error:#}")))
    }

    fn reopen(&mut self, closed: &ArrayStatus, change: Option<Change>) -> Reopened {
        let members = paths(closed);
        let said = change.map_or(Ok(String::new()), |change| self.grow(&members, change));
        let said = said.map_err(|error| format!("{error:#}"));
        if let (Ok(done), Some(voice)) = (&said, &self.voice) {
            done.lines().for_each(|line| voice.say(line.to_owned()));
        }
        match self.open(&members, closed) {
            Ok(array) => Reopened { array: Some(array), said },
            Err(error) => {
                let before = said.err().map_or_else(String::new, |why| format!("{why}; "));
                Reopened { array: None, said: Err(format!("{before}{error:#}")) }
            }
        }
    }
}

/// Where the members are that have not failed.
fn paths(status: &ArrayStatus) -> Vec<PathBuf> {
    let members = status.members.iter().filter(|member| member.standing != Standing::Failed);
    members.filter_map(|member| member.path.clone()).collect()
}
