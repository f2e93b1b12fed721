use super::*;
use crate::results::DirectionResult;

fn header(study: &str) -> RunHeader {
    RunHeader {
        study: study.to_owned(),
        title: String::new(),
        question: String::new(),
        plan: String::new(),
        quick: false,
        simulated: true,
        seed: 1,
        subject: "chunk".to_owned(),
        subject_values: vec!["64K".to_owned()],
        fixed: [].into(),
        environment: Environment {
            target: "fake".to_owned(),
            description: String::new(),
            version: String::new(),
            engine_hash: String::new(),
            host_cpu: String::new(),
            host_kernel: String::new(),
            started: "2024-01-01T00:00:00Z".to_owned(),
            finished: String::new(),
            wall_seconds: 0.0,
            notes: Vec::new(),
            provenance: Vec::new(),
            arguments: Vec::new(),
        },
    }
}

fn result(key: &str, error: Option<&str>) -> CellResult {
    CellResult {
        key: key.to_owned(),
        target: "array".to_owned(),
        factors: [("chunk".to_owned(), "64K".to_owned())].into(),
        replicate: 0,
        seed: 9_007_199_254_740_991,
        seconds: 0.1 + 0.2,
        read: DirectionResult { ios: 3, latency_mean_ns: 1.0 / 3.0, ..DirectionResult::default() },
        write: DirectionResult::default(),
        member_ios: None,
        figures: std::collections::BTreeMap::new(),
        error: error.map(str::to_owned),
        notes: Vec::new(),
    }
}

/// A user without rights reads it through the command's own test; here even root may not write.
#[test]
fn a_store_that_is_closed_is_read_without_a_write_whatever_its_name() {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("100 % of it? #1 ä");
    let run = {
        let mut store = Store::open(&folder).unwrap();
        store.begin_run(&header("s"), &["a".to_owned()]).unwrap()
    };
    let names = || std::fs::read_dir(&folder).unwrap().count();
    let store = Store::open_immutable(&folder.join(STORE_FILE)).unwrap();
    assert_eq!(store.load(run).unwrap().0.study, "s");
    assert_eq!(names(), 1);
    drop(store);
    std::fs::write(folder.join("store.sqlite-wal"), "not taken in").unwrap();
    let refused = Store::open_immutable(&folder.join(STORE_FILE)).unwrap_err().to_string();
    assert!(refused.contains("copy the folder"), "{refused}");
}

/// On a full file system a reader's own file beside the store cannot grow, which is an I/O error to `SQLite`.
#[test]
fn a_store_on_a_full_file_system_is_read_without_a_write() {
    let of = |code| {
        let error = rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(code), None);
        wrap(Path::new("r/store.sqlite"), error)
    };
    for code in
        [rusqlite::ffi::SQLITE_IOERR_SHMSIZE, rusqlite::ffi::SQLITE_FULL, rusqlite::ffi::SQLITE_READONLY]
    {
        assert!(of(code).is_of_writing(), "{}", of(code));
    }
    assert!(of(rusqlite::ffi::SQLITE_FULL).to_string().contains("file system is full"));
    assert!(!of(rusqlite::ffi::SQLITE_BUSY).is_of_writing());
}

#[test]
fn what_is_put_is_loaded_again_bit_for_bit() {
    let folder = tempfile::tempdir().unwrap();
    let keys = ["a".to_owned(), "b".to_owned(), "c".to_owned()];
    let run = {
        let mut store = Store::open(folder.path()).unwrap();
        let run = store.begin_run(&header("s"), &keys).unwrap();
        store.put(run, &result("a", None), "{}", 0.5).unwrap();
        store.put(run, &result("c", Some("broken")), "{}", 0.5).unwrap();
        run
    };
    let store = Store::open_existing(folder.path()).unwrap();
    let (loaded, cells) = store.load(run).unwrap();
    assert_eq!(loaded, header("s"));
    assert_eq!(cells, [Some(result("a", None)), None, Some(result("c", Some("broken")))]);
    assert_eq!([store.has("a"), store.has("b"), store.has("c")].map(Result::unwrap), [true, false, false]);
    assert_eq!(store.latest_run(None).unwrap(), run);
    assert!(store.latest_run(Some("other")).unwrap_err().to_string().contains("other"));
    let listed = &store.runs().unwrap()[0];
    assert_eq!((listed.cells, listed.stored), (3, 2));
}

/// A second run that finds all of its cells has measured none of them.
#[test]
fn when_cells_were_measured_is_told_by_the_cells() {
    let folder = tempfile::tempdir().unwrap();
    let keys = ["a".to_owned(), "b".to_owned()];
    let mut store = Store::open(folder.path()).unwrap();
    let first = store.begin_run(&header("s"), &keys).unwrap();
    assert_eq!(store.measured(first).unwrap(), None);
    store.put(first, &result("a", None), "{}", 90.0).unwrap();
    store.put(first, &result("b", None), "{}", 0.25).unwrap();
    store
        .connection
        .execute(
            "UPDATE cell SET finished = '2026-11-30T08:0' || (CASE key WHEN 'a' THEN 1 ELSE 2 END) || ':30Z'",
            [],
        )
        .unwrap();
    let second = store.begin_run(&header("s"), &keys).unwrap();
    let measured = Measured {
        from: "2026-11-30T08:00:00Z".to_owned(),
        to: "2026-11-30T08:02:30Z".to_owned(),
        seconds: 90.25,
    };
    assert_eq!(store.measured(second).unwrap(), Some(measured));
}

#[test]
fn a_newer_store_is_refused_and_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    store.connection.pragma_update(None, "user_version", 99).unwrap();
    drop(store);
    let error = Store::open(folder.path()).unwrap_err();
    assert!(matches!(error, StoreError::Newer(_, 99)), "{error}");
}

#[test]
fn a_file_that_is_no_store_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(
        folder.path().join(STORE_FILE),
        "not a database, but long enough to be read as one".repeat(40),
    )
    .unwrap();
    let error = Store::open(folder.path()).unwrap_err();
    assert!(matches!(error, StoreError::Damaged(..)), "{error:?}");
    let error = Store::open_existing(tempfile::tempdir().unwrap().path()).unwrap_err();
    assert!(matches!(error, StoreError::Absent(_)), "{error:?}");
}

#[test]
fn a_database_of_something_else_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(STORE_FILE);
    let other = Connection::open(&path).unwrap();
    other.execute_batch("CREATE TABLE photos (name TEXT)").unwrap();
    let error = Store::open(folder.path()).unwrap_err();
    assert!(matches!(error, StoreError::Damaged(..)), "{error:?}");
    let tables: i64 = other.query_row("SELECT count(*) FROM sqlite_master", [], |row| row.get(0)).unwrap();
    assert_eq!(tables, 1);
}

#[test]
fn a_damaged_store_is_told_as_such() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(STORE_FILE);
    let mut store = Store::open(folder.path()).unwrap();
    let run = store.begin_run(&header("s"), &["a".to_owned()]).unwrap();
    store.connection.execute("UPDATE run SET header = '{'", []).unwrap();
    assert!(matches!(store.load(run).unwrap_err(), StoreError::Damaged(..)));
    drop(store);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[100..].fill(0xff);
    std::fs::write(&path, bytes).unwrap();
    assert!(Store::open(folder.path()).and_then(|s| s.runs()).is_err());
}

#[test]
fn a_file_is_no_results_folder_and_what_would_be_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    for error in [Store::open(&file).unwrap_err(), Store::open_existing(&file).unwrap_err()] {
        let (StoreError::Folder(_, of) | StoreError::Unreachable(_, of)) = &error else {
            panic!("{error:?}")
        };
        assert_eq!(of.kind(), std::io::ErrorKind::NotADirectory);
        assert!(error.to_string().contains("name a folder, or a path"), "{error}");
    }
}

#[test]
fn a_folder_that_cannot_be_written_is_told_as_such() {
    let error = Store::open(Path::new("/proc/nowhere")).unwrap_err();
    assert!(matches!(error, StoreError::Folder(..)), "{error:?}");
}

#[test]
fn several_who_open_a_new_store_at_once_all_do() {
    for _ in 0..20 {
        let folder = tempfile::tempdir().unwrap();
        let together = std::sync::Barrier::new(8);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    together.wait();
                    let mut store = Store::open(folder.path()).unwrap();
                    store.begin_run(&header("s"), &["a".to_owned()]).unwrap();
                });
            }
        });
        assert_eq!(Store::open(folder.path()).unwrap().runs().unwrap().len(), 8);
    }
}

#[test]
fn a_second_run_on_real_storage_in_a_folder_is_refused_until_the_first_ends() {
    let folder = tempfile::tempdir().unwrap();
    let [first, second] = [(); 2].map(|()| Store::open(folder.path()).unwrap());
    let taken = first.lock_for_real().unwrap();
    let refused = second.lock_for_real().unwrap_err();
    assert!(matches!(refused, StoreError::Running(_)), "{refused:?}");
    assert!(refused.to_string().contains("real storage"), "{refused}");
    drop(taken);
    second.lock_for_real().unwrap();
}

#[test]
fn a_store_that_cannot_be_looked_at_is_not_called_absent() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("file"), "").unwrap();
    let error = Store::open_existing(&folder.path().join("file")).unwrap_err();
    assert!(matches!(error, StoreError::Unreachable(..)), "{error:?}");
    assert!(error.to_string().contains("Not a directory"), "{error}");
}

#[test]
fn a_store_is_known_under_every_name_and_so_is_what_is_beside_it() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    std::fs::write(at("store.sqlite-wal"), "no store is beside it").unwrap();
    assert!(!is_of_store(&at("store.sqlite-wal")));
    std::fs::remove_file(at("store.sqlite-wal")).unwrap();
    let _open = Store::open(folder.path()).unwrap();
    std::fs::hard_link(at(STORE_FILE), at("hard.csv")).unwrap();
    for (name, of) in [("soft.csv", STORE_FILE), ("log.csv", "store.sqlite-wal")] {
        std::os::unix::fs::symlink(at(of), at(name)).unwrap();
    }
    // The journal is not there; a name for it is all the same.
    for name in [STORE_FILE, "hard.csv", "soft.csv", "log.csv", "store.sqlite-shm", "store.sqlite-journal"] {
        assert!(is_of_store(&at(name)), "{name}");
    }
    std::fs::write(at("export.csv"), "study,simulated\n").unwrap();
    for name in ["export.csv", "new.csv", "report.html", "store.sqlite.csv", ""] {
        assert!(!is_of_store(&at(name)), "{name}");
    }
}
