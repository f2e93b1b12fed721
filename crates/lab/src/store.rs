//! The store: what was measured, in one `SQLite` file, found again by the content of the cell.
//!
//! # Contract
//! *Durability.* A cell is one transaction: a study that is killed keeps every cell it finished, and runs none
//! of them again. *Traceability.* A run names its cells by key, whether it measured or found them, and every
//! cell names the run that measured it. *Failures.* A cell that failed is kept with its reason, and is tried
//! again by the next run.

mod files;

use std::fmt;
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rusqlite::{Connection, OpenFlags, OptionalExtension, Transaction, TransactionBehavior, params};
use serde::{Deserialize, Serialize};

pub use files::is_of_store;

use crate::results::{CellResult, Environment};

/// Version of the tables.
const STORE_VERSION: i64 = 1;
/// How long to wait for another process that writes.
const BUSY_MAX: Duration = Duration::from_secs(5);
/// How long before the next attempt.
const BUSY_PAUSE: Duration = Duration::from_millis(10);
/// The file's name in a results folder.
pub const STORE_FILE: &str = "store.sqlite";

const TABLES: &str = "
CREATE TABLE run (
    id INTEGER PRIMARY KEY,
    study TEXT NOT NULL,
    started TEXT NOT NULL,
    header TEXT NOT NULL
);
CREATE TABLE cell (
    key TEXT PRIMARY KEY,
    run INTEGER NOT NULL REFERENCES run (id),
    finished TEXT NOT NULL,
    wall_seconds REAL NOT NULL,
    failed INTEGER NOT NULL,
    parameters TEXT NOT NULL,
    result TEXT NOT NULL
);
CREATE TABLE run_cell (
    run INTEGER NOT NULL REFERENCES run (id),
    place INTEGER NOT NULL,
    key TEXT NOT NULL,
    PRIMARY KEY (run, place)
) WITHOUT ROWID;
";

/// What a run is, besides its cells.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunHeader {
    /// The plan's name.
    pub study: String,
    /// The plan's title.
    pub title: String,
    /// The question.
    pub question: String,
    /// The plan's text.
    pub plan: String,
    /// Whether it is the shortened plan.
    pub quick: bool,
    /// Whether time is virtual.
    pub simulated: bool,
    /// The plan's seed.
    pub seed: u64,
    /// The factor whose best value is sought.
    pub subject: String,
    /// Its values in order.
    pub subject_values: Vec<String>,
    /// Parameters that are no factor, for the commands that apply the recommendation.
    pub fixed: std::collections::BTreeMap<String, String>,
    /// Where and on what it ran.
    pub environment: Environment,
}

/// A run's number in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RunId(pub i64);

/// When cells were measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// The first began, RFC 3339 UTC.
    pub from: String,
    /// The last ended.
    pub to: String,
    /// Real seconds they took, added up.
    pub seconds: f64,
}

/// A run as listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunSummary {
    /// Its number.
    pub id: RunId,
    /// The study.
    pub study: String,
    /// Start, RFC 3339 UTC.
    pub started: String,
    /// Cells it asked for.
    pub cells: u64,
    /// Those of them that are stored, failed ones among them.
    pub stored: u64,
}

/// A results folder that is taken for a run on real storage.
#[derive(Debug)]
pub struct RealLock(#[expect(dead_code, reason = "the lock is let go of when the file is closed")] File);

/// An open store.
#[derive(Debug)]
pub struct Store {
    path: PathBuf,
    connection: Connection,
}

/// Why the store cannot be used.
#[derive(Debug)]
pub enum StoreError {
    /// The folder cannot be made.
    Folder(PathBuf, std::io::Error),
    /// There is no store in the folder.
    Absent(PathBuf),
    /// It cannot be told whether there is a store.
    Unreachable(PathBuf, std::io::Error),
    /// The file was written by a later version.
    Newer(PathBuf, i64),
    /// The file is not a store, or is damaged.
    Damaged(PathBuf, String),
    /// The file or folder cannot be written.
    ReadOnly(PathBuf),
    /// A run was cut off, and what it logged cannot be taken in because the folder cannot be written.
    Unfinished(PathBuf),
    /// Another process keeps the file locked.
    Busy(PathBuf),
    /// A run on real storage is under way in the folder.
    Running(PathBuf),
    /// No such run.
    NoRun(PathBuf, String),
    /// The file system or the database failed.
    Database(PathBuf, rusqlite::Error),
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Folder(path, e) => {
                write!(f, "cannot create the results folder {}: {e}{}", path.display(), advice(e))
            }
            Self::Absent(path) => write!(f, "there is no {STORE_FILE} in {}", path.display()),
            Self::Unreachable(path, e) => write!(f, "cannot open {}: {e}{}", path.display(), advice(e)),
            Self::Newer(path, version) => write!(
                f,
                "{} has store version {version}, this program knows up to {STORE_VERSION}; \
                 use a newer stripewise or another results folder",
                path.display()
            ),
            Self::Damaged(path, why) => write!(
                f,
                "{} is damaged or not a store ({why}); move it away to start a new one",
                path.display()
            ),
            Self::ReadOnly(path) => {
                write!(f, "{} cannot be written; choose a results folder you may write to", path.display())
            }
            Self::Unfinished(path) => write!(
                f,
                "{}: a run was interrupted, and its last cells are in a log that can be read only in a folder that you may write \
                 to; copy the folder to such a place",
                path.display()
            ),
            Self::Busy(path) => write!(f, "{} is in use by another stripewise", path.display()),
            Self::Running(path) => write!(
                f,
                "{}: another run on real storage is in progress there, and each would disturb the measurements of the other; \
                 wait for its end",
                path.display()
            ),
            Self::NoRun(path, what) => write!(f, "{} holds no run {what}", path.display()),
            Self::Database(path, e) if is_of_space(e) => {
                write!(f, "{}: {e}; see whether its file system is full or its drive fails", path.display())
            }
            Self::Database(path, e) => write!(f, "{}: {e}", path.display()),
        }
    }
}

impl std::error::Error for StoreError {}

impl StoreError {
    /// Whether the folder may be one that takes no write: read-only, or on a full file system, where what even a reader writes
    /// beside the store fails as I/O.
    fn is_of_writing(&self) -> bool {
        match self {
            Self::ReadOnly(_) => true,
            Self::Database(_, error) => is_of_space(error),
            _ => false,
        }
    }
}

/// Whether a full file system can be the cause.
fn is_of_space(error: &rusqlite::Error) -> bool {
    use rusqlite::ErrorCode as Code;
    matches!(error.sqlite_error_code(), Some(Code::SystemIoFailure | Code::DiskFull))
}

/// Which results folder would do.
fn advice(error: &std::io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::NotADirectory => "; name a folder, or a path that does not exist yet",
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
            "; choose a results folder you may use"
        }
        _ => "",
    }
}

type Result<T> = std::result::Result<T, StoreError>;

impl Store {
    /// Opens the store of a results folder, made if need be.
    pub fn open(folder: &Path) -> Result<Self> {
        std::fs::create_dir_all(folder).map_err(|e| {
            // What is there is no folder: the system only says that it exists.
            let is_file = e.kind() == ErrorKind::AlreadyExists;
            StoreError::Folder(folder.to_owned(), if is_file { ErrorKind::NotADirectory.into() } else { e })
        })?;
        let path = folder.join(STORE_FILE);
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
        let store = Self::connect(&path, &path, flags)?;
        store.make_tables().map_err(|e| store.error(e))?;
        store.check_version()?;
        Ok(store)
    }

    /// Opens the store of a results folder that has one, to report from it. The folder need not be writable.
    pub fn open_existing(folder: &Path) -> Result<Self> {
        let path = folder.join(STORE_FILE);
        match std::fs::metadata(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Err(StoreError::Absent(folder.to_owned()));
            }
            Err(error) => return Err(StoreError::Unreachable(path, error)),
            Ok(_) => {}
        }
        let opened = Self::connect(&path, &path, OpenFlags::SQLITE_OPEN_READ_ONLY)
            .and_then(|store| store.check_version().map(|()| store));
        match opened {
            Err(error) if error.is_of_writing() => Self::open_immutable(&path),
            other => other,
        }
    }

    /// Reads a store as one that nobody changes: even a reader writes beside it otherwise.
    fn open_immutable(path: &Path) -> Result<Self> {
        let mut log = path.as_os_str().to_owned();
        log.push("-wal");
        if std::fs::metadata(log).is_ok_and(|log| log.len() > 0) {
            return Err(StoreError::Unfinished(path.to_owned()));
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
        let store = Self::connect(path, &immutable_uri(path), flags)?;
        store.check_version()?;
        Ok(store)
    }

    /// Opens the file by its path, or a URI of it.
    fn connect(path: &Path, name: &Path, flags: OpenFlags) -> Result<Self> {
        let path = path.to_owned();
        let connection = Connection::open_with_flags(name, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX)
            .map_err(|e| wrap(&path, e))?;
        let store = Self { path, connection };
        store.connection.busy_timeout(BUSY_MAX).map_err(|e| store.error(e))?;
        Ok(store)
    }

    fn make_tables(&self) -> rusqlite::Result<()> {
        // A commit then waits for no disk, and a killed process still loses nothing.
        self.take_log()?;
        self.connection.pragma_update(None, "synchronous", "NORMAL")?;
        // A transaction that begins as a reader could not wait for another that makes the tables.
        let transaction = Transaction::new_unchecked(&self.connection, TransactionBehavior::Immediate)?;
        let version: i64 = transaction.pragma_query_value(None, "user_version", |row| row.get(0))?;
        let tables: i64 =
            transaction.query_row("SELECT count(*) FROM sqlite_master", [], |row| row.get(0))?;
        // What holds something else is told of by the version that it lacks.
        if version == 0 && tables == 0 {
            transaction.execute_batch(TABLES)?;
            transaction.pragma_update(None, "user_version", STORE_VERSION)?;
        }
        transaction.commit()
    }

    /// Switches to a write-ahead log. `SQLite` does not wait for others who do the same, whatever its busy timeout is.
    fn take_log(&self) -> rusqlite::Result<()> {
        let started = Instant::now();
        loop {
            match self.connection.pragma_update(None, "journal_mode", "WAL") {
                Err(error) if is_busy(&error) && started.elapsed() < BUSY_MAX => {
                    std::thread::sleep(BUSY_PAUSE);
                }
                other => return other,
            }
        }
    }

    fn check_version(&self) -> Result<()> {
        let version: i64 = self
            .connection
            .pragma_query_value(None, "user_version", |row| row.get(0))
            .map_err(|e| self.error(e))?;
        match version {
            STORE_VERSION => Ok(()),
            newer if newer > STORE_VERSION => Err(StoreError::Newer(self.path.clone(), newer)),
            _ => Err(StoreError::Damaged(self.path.clone(), "it has no tables of a store".to_owned())),
        }
    }

    fn error(&self, error: rusqlite::Error) -> StoreError {
        wrap(&self.path, error)
    }

    fn damaged(&self, error: &serde_json::Error) -> StoreError {
        StoreError::Damaged(self.path.clone(), error.to_string())
    }

    /// Takes the results folder for a run on real storage; it is let go of with what is returned. Runs in virtual time need
    /// not: what they find does not depend on who else is at work.
    pub fn lock_for_real(&self) -> Result<RealLock> {
        let folder =
            self.path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let file = File::open(folder).map_err(|e| StoreError::Folder(folder.to_owned(), e))?;
        match file.try_lock() {
            Err(std::fs::TryLockError::WouldBlock) => Err(StoreError::Running(folder.to_owned())),
            // A file system without locks keeps nobody apart.
            Err(std::fs::TryLockError::Error(_)) | Ok(()) => Ok(RealLock(file)),
        }
    }

    /// The time now, RFC 3339 UTC.
    pub fn now(&self) -> Result<String> {
        self.connection
            .query_row("SELECT strftime('%Y-%m-%dT%H:%M:%SZ', 'now')", [], |row| row.get(0))
            .map_err(|e| self.error(e))
    }

    /// Notes a run and the keys of its cells.
    pub fn begin_run(&mut self, header: &RunHeader, keys: &[String]) -> Result<RunId> {
        let json = serde_json::to_string(header).map_err(|e| self.damaged(&e))?;
        let insert = |connection: &mut Connection| {
            let transaction = connection.transaction()?;
            transaction.execute(
                "INSERT INTO run (study, started, header) VALUES (?1, ?2, ?3)",
                params![header.study, header.environment.started, json],
            )?;
            let run = transaction.last_insert_rowid();
            {
                let mut statement =
                    transaction.prepare("INSERT INTO run_cell (run, place, key) VALUES (?1, ?2, ?3)")?;
                for (place, key) in keys.iter().enumerate() {
                    statement.execute(params![run, place as i64, key])?;
                }
            }
            transaction.commit()?;
            Ok(RunId(run))
        };
        insert(&mut self.connection).map_err(|e| wrap(&self.path, e))
    }

    /// Writes a run's header again, with what was learnt while it ran.
    pub fn update_run(&mut self, run: RunId, header: &RunHeader) -> Result<()> {
        let json = serde_json::to_string(header).map_err(|e| self.damaged(&e))?;
        self.connection
            .execute("UPDATE run SET header = ?2 WHERE id = ?1", params![run.0, json])
            .map(|_| ())
            .map_err(|e| self.error(e))
    }

    /// Keeps a cell's result. One transaction.
    pub fn put(
        &mut self,
        run: RunId,
        result: &CellResult,
        parameters: &str,
        wall_seconds: f64,
    ) -> Result<()> {
        let json = serde_json::to_string(result).map_err(|e| self.damaged(&e))?;
        self.connection
            .prepare_cached(
                "INSERT OR REPLACE INTO cell (key, run, finished, wall_seconds, failed, parameters, result)
                 VALUES (?1, ?2, strftime('%Y-%m-%dT%H:%M:%SZ', 'now'), ?3, ?4, ?5, ?6)",
            )
            .and_then(|mut statement| {
                let failed = result.error.is_some();
                statement.execute(params![result.key, run.0, wall_seconds, failed, parameters, json])
            })
            .map(|_| ())
            .map_err(|e| self.error(e))
    }

    /// Whether figures of that key are there; a failed cell has none.
    pub fn has(&self, key: &str) -> Result<bool> {
        self.connection
            .prepare_cached("SELECT 1 FROM cell WHERE key = ?1 AND failed = 0")
            .and_then(|mut statement| statement.exists([key]))
            .map_err(|e| self.error(e))
    }

    /// The real seconds the stored cells took on average, and for each second that they measured, without their ramp; `None` if there
    /// are none.
    pub fn wall_paces(&self) -> Result<Option<(f64, f64)>> {
        let query = "SELECT avg(wall_seconds), sum(wall_seconds) / sum(json_extract(result, '$.seconds'))
             FROM cell WHERE failed = 0 AND json_extract(result, '$.seconds') > 0";
        let both =
            |row: &rusqlite::Row<'_>| Ok((row.get::<_, Option<f64>>(0)?, row.get::<_, Option<f64>>(1)?));
        let (mean, rate) = self.connection.query_row(query, [], both).map_err(|e| self.error(e))?;
        Ok(mean.zip(rate))
    }

    /// When the cells of a run were measured, by whichever run measured them; `None` if none is stored.
    pub fn measured(&self, run: RunId) -> Result<Option<Measured>> {
        let query = "SELECT min(strftime('%Y-%m-%dT%H:%M:%SZ', cell.finished, '-' || cell.wall_seconds || ' seconds')),
                 max(cell.finished), sum(cell.wall_seconds)
             FROM run_cell JOIN cell ON cell.key = run_cell.key WHERE run_cell.run = ?1";
        let read = |row: &rusqlite::Row<'_>| {
            let (from, to, seconds): (Option<_>, Option<_>, Option<_>) =
                (row.get(0)?, row.get(1)?, row.get(2)?);
            Ok(from.zip(to).zip(seconds).map(|((from, to), seconds)| Measured { from, to, seconds }))
        };
        self.connection.query_row(query, [run.0], read).map_err(|e| self.error(e))
    }

    /// The runs, oldest first.
    pub fn runs(&self) -> Result<Vec<RunSummary>> {
        let query = "SELECT run.id, run.study, run.started, count(*), count(cell.key)
             FROM run JOIN run_cell ON run_cell.run = run.id LEFT JOIN cell ON cell.key = run_cell.key
             GROUP BY run.id ORDER BY run.id";
        let read = || {
            let mut statement = self.connection.prepare(query)?;
            let rows = statement.query_map([], |row| {
                Ok(RunSummary {
                    id: RunId(row.get(0)?),
                    study: row.get(1)?,
                    started: row.get(2)?,
                    cells: row.get::<_, i64>(3)? as u64,
                    stored: row.get::<_, i64>(4)? as u64,
                })
            })?;
            rows.collect::<rusqlite::Result<Vec<_>>>()
        };
        read().map_err(|e| self.error(e))
    }

    /// The latest run, of a study if one is named.
    pub fn latest_run(&self, study: Option<&str>) -> Result<RunId> {
        self.connection
            .query_row("SELECT max(id) FROM run WHERE ?1 IS NULL OR study = ?1", [study], |row| row.get(0))
            .map_err(|e| self.error(e))
            .and_then(|id: Option<i64>| {
                let what = study.map_or_else(|| "yet".to_owned(), |s| format!("of '{s}'"));
                id.map(RunId).ok_or_else(|| StoreError::NoRun(self.path.clone(), what))
            })
    }

    /// A run's header, and for each of its cells the stored result, if there is one.
    pub fn load(&self, run: RunId) -> Result<(RunHeader, Vec<Option<CellResult>>)> {
        let header: Option<String> = self
            .connection
            .query_row("SELECT header FROM run WHERE id = ?1", [run.0], |row| row.get(0))
            .optional()
            .map_err(|e| self.error(e))?;
        let header = header.ok_or_else(|| StoreError::NoRun(self.path.clone(), run.0.to_string()))?;
        let read = || {
            let mut statement = self.connection.prepare(
                "SELECT cell.result FROM run_cell LEFT JOIN cell ON cell.key = run_cell.key
                 WHERE run_cell.run = ?1 ORDER BY run_cell.place",
            )?;
            let rows = statement.query_map([run.0], |row| row.get::<_, Option<String>>(0))?;
            rows.collect::<rusqlite::Result<Vec<_>>>()
        };
        let cells = read()
            .map_err(|e| self.error(e))?
            .into_iter()
            .map(|json| json.map(|j| serde_json::from_str(&j)).transpose())
            .collect::<serde_json::Result<_>>()
            .map_err(|e| self.damaged(&e))?;
        Ok((serde_json::from_str(&header).map_err(|e| self.damaged(&e))?, cells))
    }
}

/// The file's URI, as `SQLite` reads it, for one that cannot change.
fn immutable_uri(path: &Path) -> PathBuf {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-".contains(&byte);
    let written =
        |&byte: &u8| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    let path: String = path.as_os_str().as_bytes().iter().map(written).collect();
    PathBuf::from(format!("file:{path}?immutable=1"))
}

fn is_busy(error: &rusqlite::Error) -> bool {
    use rusqlite::ErrorCode as Code;
    matches!(error.sqlite_error_code(), Some(Code::DatabaseBusy | Code::DatabaseLocked))
}

/// Gives a database error its meaning.
fn wrap(path: &Path, error: rusqlite::Error) -> StoreError {
    use rusqlite::ErrorCode as Code;
    match error.sqlite_error_code() {
        Some(Code::NotADatabase | Code::DatabaseCorrupt) => {
            StoreError::Damaged(path.to_owned(), error.to_string())
        }
        Some(Code::ReadOnly | Code::CannotOpen | Code::PermissionDenied) => {
            StoreError::ReadOnly(path.to_owned())
        }
        Some(Code::DatabaseBusy | Code::DatabaseLocked) => StoreError::Busy(path.to_owned()),
        _ => StoreError::Database(path.to_owned(), error),
    }
}

#[cfg(test)]
#[path = "store_tests.rs"]
mod tests;
