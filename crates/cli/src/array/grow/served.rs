//! Changing an array that is being served: it is closed, changed as an idle one, and opened again, while requests wait.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use stripewise_engine::array::members::Standing;
use stripewise_engine::assembly::{Options, Wanted};
use stripewise_engine::cache::CacheConfig;
use stripewise_format::uuid::Uuid;
use stripewise_host::md::assemble::{Assembled, Selection, find};
use stripewise_host::md::grow::{Change, grow};
use stripewise_host::{Array, ArrayStatus, Changed, Layers};

use super::super::create::now;
use super::super::manage::Checks;
use super::super::select::{SelectArgs, Use};
use super::super::serve::ServeArgs;
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
        }
    }

    /// The array as it was assembled last.
    pub(crate) fn described(&self) -> Described {
        self.described.clone()
    }

    /// Changes the array, if it may be.
    pub(crate) fn change(&mut self, mut array: Array, change: Change) -> Changed {
        let status = array.status();
        let members: Vec<PathBuf> = status.members.iter().filter_map(|member| member.path.clone()).collect();
        if let Some(why) = self.refusal(&status, change).or_else(|| self.missing(&members)) {
            return Changed { array: Some(array), said: Err(why) };
        }
        let closed = array.close();
        drop(array);
        let said = match closed {
            Ok(()) => self.grow(&members, change).map_err(|error| format!("{error:#}")),
            Err(error) => Err(error.to_string()),
        };
        match self.open(&members, &status) {
            Ok(array) => Changed { array: Some(array), said },
            Err(error) => {
                let before = said.err().map_or_else(String::new, |why| format!("{why}; "));
                Changed { array: None, said: Err(format!("{before}{error:#}")) }
            }
        }
    }

    /// Why the array is not to be closed.
    fn refusal(&self, status: &ArrayStatus, change: Change) -> Option<String> {
        let is = |standing| status.members.iter().any(|member| member.standing == standing);
        let why = if self.select.readonly {
            "the array is only read (--readonly)"
        } else if self.select.overlay.is_some() {
            "the array's members are only read, beneath an overlay (--overlay)"
        } else if self.decrypts {
            "the server decrypts a LUKS container; stop it, and change the idle array with `stripewise grow`"
        } else if self.traces && matches!(change, Change::Size { .. }) {
            "the server records a trace, which has one size; stop it, and change the idle array with `stripewise grow`"
        } else if status.is_broken {
            "the array takes no more writes"
        } else if is(Standing::Failed) {
            "a member has failed; remove it first (`stripewise remove failed`)"
        } else {
            return None;
        };
        Some(why.to_owned())
    }

    /// Why the array would not be found again where its members were.
    fn missing(&self, members: &[PathBuf]) -> Option<String> {
        let found = match find(&self.selection(members)) {
            Ok(found) => found,
            Err(error) => return Some(error.to_string()),
        };
        let gone = members.iter().find(|member| !found.paths.contains(member));
        gone.map(|member| format!("{}: another array's superblock is there now", member.display()))
    }

    /// Changes the closed array; answers what was done.
    fn grow(&self, members: &[PathBuf], change: Change) -> Result<String> {
        let found = find(&self.selection(members))?;
        let grown = grow(found, self.options(), change, now()?, members).map_err(problem)?;
        Ok(said(&grown, true).trim_end().replace('\n', "; "))
    }

    /// Opens the array as it was open: with its members, layers and speed.
    fn open(&self, members: &[PathBuf], before: &ArrayStatus) -> Result<Array> {
        let mut assembled = find(&self.selection(members))?.assemble(self.options())?;
        // It had them, so that they may be written to.
        let select = SelectArgs { destroy: members.to_vec(), ..self.select.clone() };
        let mut array = select.open(&mut assembled, Use::Write, |config| {
            config.volume.sync.speed = before.speed.unwrap_or(config.volume.sync.speed);
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
