//! The state in an SQLite file.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rgpu_control::LeaseId;
use rusqlite::{Connection, ErrorCode, OptionalExtension, params};

use super::files::{StateLock, bytes_left};
use super::{Kept, Store, StoreError, Write};

/// The version of the tables that this release writes.
pub(super) const VERSION: i64 = 3;

/// What a check writes: more than most commits do.
const CHECKED: usize = 32 << 10;
/// With less than this on its file system the state is as good as not writable: what a log or another program takes next fails.
const LITTLE: u64 = 1 << 20;

/// What rows of tables are; bodies are JSON, so that they can grow fields.
const TABLES: &str = "
    CREATE TABLE leases (id INTEGER PRIMARY KEY, body TEXT NOT NULL);
    CREATE TABLE nodes (name TEXT PRIMARY KEY, body TEXT NOT NULL) WITHOUT ROWID;
    CREATE TABLE settings (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
    CREATE TABLE waits (lease INTEGER PRIMARY KEY, rounds INTEGER NOT NULL);
    CREATE TABLE runs (lease INTEGER PRIMARY KEY, body TEXT NOT NULL);
";

/// What makes tables of each version those of the next one, from version 1.
const STEPS: [&str; VERSION as usize - 1] = [
    "CREATE TABLE waits (lease INTEGER PRIMARY KEY, rounds INTEGER NOT NULL);",
    "CREATE TABLE runs (lease INTEGER PRIMARY KEY, body TEXT NOT NULL);",
];

/// Keeps the state in an SQLite file, in write-ahead mode.
///
/// A commit is on the disk when it returns, and survives a power failure, as far as the disk keeps what it confirms.
pub struct SqliteStore {
    path: PathBuf,
    connection: Connection,
    _lock: StateLock,
}

impl SqliteStore {
    /// Opens a file, or makes it. It is this process's alone while it is open, but for those who copy it.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        Self::open_within(path, Duration::ZERO)
    }

    /// The same, where another broker may be about to end: waits for that for so long.
    pub fn open_within(path: &Path, patience: Duration) -> Result<Self, StoreError> {
        // Another broker with the same file would grant the same devices.
        let lock = StateLock::take(path, patience)?;
        let read = |e: rusqlite::Error| read_error(path, &e);
        let connection = Connection::open(path).map_err(read)?;
        // Whoever makes a copy, and brokers of releases that had no lock of their own.
        connection.busy_timeout(patience.max(Duration::from_secs(5))).map_err(read)?;
        connection.pragma_update(None, "journal_mode", "WAL").map_err(read)?;
        connection.pragma_update(None, "synchronous", "FULL").map_err(read)?;
        let mut store = Self { path: path.to_owned(), connection, _lock: lock };
        store.migrate()?;
        store.check()?;
        Ok(store)
    }

    fn read_error(&self, e: &rusqlite::Error) -> StoreError {
        read_error(&self.path, e)
    }

    fn write_error(&self, e: &rusqlite::Error) -> StoreError {
        StoreError::Write { place: self.path.display().to_string(), why: e.to_string() }
    }

    /// Makes tables, and with that they are of this version.
    fn make(&self, tables: &str) -> Result<(), StoreError> {
        let all = format!("BEGIN IMMEDIATE; {tables} PRAGMA user_version = {VERSION}; COMMIT;");
        self.connection.execute_batch(&all).map_err(|e| self.write_error(&e))
    }

    fn migrate(&mut self) -> Result<(), StoreError> {
        let found: i64 = self
            .connection
            .query_row("PRAGMA user_version", [], |row| row.get(0))
            .map_err(|e| self.read_error(&e))?;
        match found {
            VERSION => Ok(()),
            older @ 1..VERSION => self.make(&STEPS[older as usize - 1..].concat()),
            0 => {
                let tables: Option<String> = self
                    .connection
                    .query_row("SELECT name FROM sqlite_master LIMIT 1", [], |row| row.get(0))
                    .optional()
                    .map_err(|e| self.read_error(&e))?;
                if let Some(table) = tables {
                    return Err(StoreError::Read {
                        place: self.path.display().to_string(),
                        why: format!("it is another program's: it has a table {table:?}"),
                    });
                }
                self.make(TABLES)
            }
            found => {
                Err(StoreError::Version { place: self.path.display().to_string(), found, known: VERSION })
            }
        }
    }
}

pub(super) fn read_error(path: &Path, e: &rusqlite::Error) -> StoreError {
    let mut why = e.to_string();
    if matches!(e.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked)) {
        why += ": another broker is using it";
    }
    StoreError::Read { place: path.display().to_string(), why }
}

impl Store for SqliteStore {
    fn load(&mut self) -> Result<Kept, StoreError> {
        let mut kept = Kept::default();
        let bodies = |sql: &str| -> rusqlite::Result<Vec<String>> {
            self.connection.prepare(sql)?.query_map([], |row| row.get(0))?.collect()
        };
        let damaged = |what: &str, e: serde_json::Error| StoreError::Read {
            place: self.path.display().to_string(),
            why: format!("a {what} in it is damaged: {e}"),
        };
        for body in bodies("SELECT body FROM leases").map_err(|e| self.read_error(&e))? {
            kept.leases.push(serde_json::from_str(&body).map_err(|e| damaged("lease", e))?);
        }
        for body in bodies("SELECT body FROM nodes").map_err(|e| self.read_error(&e))? {
            kept.nodes.push(serde_json::from_str(&body).map_err(|e| damaged("node", e))?);
        }
        for body in bodies("SELECT body FROM runs").map_err(|e| self.read_error(&e))? {
            kept.runs.push(serde_json::from_str(&body).map_err(|e| damaged("run", e))?);
        }
        let rounds = || -> rusqlite::Result<_> {
            let mut statement = self.connection.prepare("SELECT lease, rounds FROM waits")?;
            let row = |row: &rusqlite::Row<'_>| Ok((LeaseId(row.get::<_, i64>(0)? as u64), row.get(1)?));
            statement.query_map([], row)?.collect()
        };
        kept.rounds = rounds().map_err(|e| self.read_error(&e))?;
        let settings = || -> rusqlite::Result<_> {
            let mut statement = self.connection.prepare("SELECT name, value FROM settings")?;
            statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
        };
        kept.settings = settings().map_err(|e| self.read_error(&e))?;
        Ok(kept)
    }

    fn commit(&mut self, writes: &[Write]) -> Result<(), StoreError> {
        if writes.is_empty() {
            return Ok(());
        }
        let json = |e: serde_json::Error| rusqlite::Error::ToSqlConversionFailure(e.into());
        let attempt = |connection: &mut Connection| -> rusqlite::Result<()> {
            let transaction =
                connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
            for write in writes {
                let run = |sql: &str, values: &[&dyn rusqlite::ToSql]| {
                    transaction.prepare_cached(sql)?.execute(values).map(drop)
                };
                match write {
                    Write::Lease(lease) => {
                        let body = serde_json::to_string(&**lease).map_err(json)?;
                        run("INSERT OR REPLACE INTO leases VALUES (?, ?)", params![lease.id.0 as i64, body])?;
                    }
                    Write::Rounds(id, rounds) => {
                        run("INSERT OR REPLACE INTO waits VALUES (?, ?)", params![id.0 as i64, rounds])?;
                    }
                    Write::ForgetLease(id) => {
                        run("DELETE FROM leases WHERE id = ?", params![id.0 as i64])?;
                        run("DELETE FROM waits WHERE lease = ?", params![id.0 as i64])?;
                    }
                    Write::Run(run_record) => {
                        let body = serde_json::to_string(&**run_record).map_err(json)?;
                        let id = run_record.id.0 as i64;
                        run("INSERT OR REPLACE INTO runs VALUES (?, ?)", params![id, body])?;
                    }
                    Write::ForgetRun(id) => {
                        run("DELETE FROM runs WHERE lease = ?", params![id.0 as i64])?;
                    }
                    Write::Node(node) => {
                        let body = serde_json::to_string(&**node).map_err(json)?;
                        let name = &node.registration.name;
                        run("INSERT OR REPLACE INTO nodes VALUES (?, ?)", params![name, body])?;
                    }
                    Write::ForgetNode(name) => run("DELETE FROM nodes WHERE name = ?", params![name])?,
                    Write::Setting(name, value) => {
                        run("INSERT OR REPLACE INTO settings VALUES (?, ?)", params![name, value])?;
                    }
                }
            }
            transaction.commit()
        };
        attempt(&mut self.connection).map_err(|e| self.write_error(&e))
    }

    fn check(&mut self) -> Result<(), StoreError> {
        if let Some(left) = bytes_left(&self.path).filter(|left| *left < LITTLE) {
            let why = format!("its file system is full: {left} bytes are left");
            return Err(StoreError::Write { place: self.path.display().to_string(), why });
        }
        // A log that was written before has room for a little even where the disk is full.
        let text = format!("{:0>CHECKED$}", env!("CARGO_PKG_VERSION"));
        self.commit(&[Write::Setting("checked", text)])
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rgpu_control::api::{LeaseRequest, LeaseState, Registration};

    use super::*;
    use crate::store::{LeaseRecord, NodeRecord, RunRecord, backup, restore};

    /// A directory for a test, removed afterwards.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new() -> Scratch {
            let path = std::env::temp_dir().join(format!("rgpu-store-{}", LeaseId::random()));
            std::fs::create_dir(&path).unwrap();
            Scratch(path)
        }

        fn file(&self) -> PathBuf {
            self.0.join("state.sqlite")
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn lease(id: u64) -> Write {
        let request = r#"{"name":"a","gpus":1,"share_milli":250,"machine":"m","holder":"k"}"#;
        Write::Lease(Arc::new(LeaseRecord {
            id: LeaseId(id),
            tenant: "ann".into(),
            request: serde_json::from_str::<LeaseRequest>(request).unwrap(),
            state: LeaseState::Waiting,
            reason: "x".repeat(500),
            version: 0,
            orders: u64::MAX / 2,
            submitted_ms: 1,
            granted_ms: None,
            home: "n0".into(),
            grants: Vec::new(),
            unconfirmed: Vec::new(),
            nvmes: Vec::new(),
            lapsed: false,
            outstanding: Vec::new(),
            sizes: Vec::new(),
        }))
    }

    fn node(name: &str) -> Write {
        let about = format!(
            r#"{{"name":"{name}","instance":18446744073709551615,"address":"a:1","machine":"m","cpu_milli":1,
            "memory_mib":1,"nic_mbps":1,"devices":[],"transports":[],"version":"0","leases":[]}}"#
        );
        let registration = serde_json::from_str::<Registration>(&about).unwrap();
        Write::Node(Arc::new(NodeRecord { registration, draining: true }))
    }

    #[test]
    fn what_was_stored_is_there_again() {
        let place = Scratch::new();
        let mut store = SqliteStore::open(&place.file()).unwrap();
        store.commit(&[lease(1), lease(u64::MAX), node("n0"), Write::Setting("a", "1".into())]).unwrap();
        store.commit(&[lease(u64::MAX), Write::ForgetLease(LeaseId(1)), node("n1")]).unwrap();
        store.commit(&[Write::ForgetNode("n0".into()), Write::Setting("a", "2".into())]).unwrap();
        let kept = store.load().unwrap();
        drop(store);
        let mut store = SqliteStore::open(&place.file()).unwrap();
        assert_eq!(store.load().unwrap(), kept);
        assert_eq!(kept.leases.iter().map(|lease| lease.id.0).collect::<Vec<_>>(), [u64::MAX]);
        assert_eq!(kept.nodes[0].registration.name, "n1");
        assert_eq!(kept.nodes[0].registration.instance, u64::MAX);
        assert_eq!(kept.settings["a"], "2");
    }

    #[test]
    fn rounds_are_kept_while_a_lease_is() {
        let place = Scratch::new();
        let mut store = SqliteStore::open(&place.file()).unwrap();
        let ids = [LeaseId(1), LeaseId(u64::MAX)];
        store
            .commit(&[lease(1), lease(u64::MAX), Write::Rounds(ids[0], 1), Write::Rounds(ids[1], 7)])
            .unwrap();
        store.commit(&[Write::Rounds(ids[0], 2), Write::ForgetLease(ids[1])]).unwrap();
        drop(store);
        let kept = SqliteStore::open(&place.file()).unwrap().load().unwrap();
        assert_eq!(kept.rounds.into_iter().collect::<Vec<_>>(), [(ids[0], 2)]);
    }

    fn run_of(id: u64) -> Write {
        Write::Run(Arc::new(RunRecord {
            id: LeaseId(id),
            tenant: "ann".into(),
            program: "train.py".into(),
            input: u64::MAX,
            ended_ms: 7,
            seconds: 1.5,
            remote_share: 1.0,
            load: 0.25,
            traffic_mbps: 80.0,
            capacity_mbps: 1000.0,
            memory_mib: 12.0,
            share: 0.5,
        }))
    }

    #[test]
    fn runs_are_kept_until_they_are_forgotten() {
        let place = Scratch::new();
        let mut store = SqliteStore::open(&place.file()).unwrap();
        store.commit(&[run_of(1), run_of(u64::MAX)]).unwrap();
        store.commit(&[Write::ForgetRun(LeaseId(1))]).unwrap();
        drop(store);
        let kept = SqliteStore::open(&place.file()).unwrap().load().unwrap();
        let Write::Run(expected) = run_of(u64::MAX) else { unreachable!() };
        assert_eq!(kept.runs, [RunRecord::clone(&expected)]);
    }

    #[test]
    fn a_file_of_the_first_version_is_taken_over() {
        let place = Scratch::new();
        let mut store = SqliteStore::open(&place.file()).unwrap();
        store.commit(&[lease(1), node("n0")]).unwrap();
        store
            .connection
            .execute_batch("DROP TABLE waits; DROP TABLE runs; PRAGMA user_version = 1;")
            .unwrap();
        drop(store);
        let mut store = SqliteStore::open(&place.file()).unwrap();
        store.commit(&[Write::Rounds(LeaseId(1), 3), run_of(1)]).unwrap();
        let kept = store.load().unwrap();
        assert_eq!(kept.runs.len(), 1);
        assert_eq!((kept.leases.len(), kept.nodes.len(), kept.rounds[&LeaseId(1)]), (1, 1, 3));
    }

    #[test]
    fn a_file_has_one_broker() {
        let place = Scratch::new();
        let _store = SqliteStore::open(&place.file()).unwrap();
        let error = SqliteStore::open(&place.file()).err().unwrap().to_string();
        assert!(error.contains("another broker"), "{error}");
    }

    #[test]
    fn a_broker_that_starts_while_another_one_ends_waits_for_it() {
        let place = Scratch::new();
        let first = SqliteStore::open(&place.file()).unwrap();
        let file = place.file();
        let second =
            std::thread::spawn(move || SqliteStore::open_within(&file, Duration::from_secs(60)).map(drop));
        std::thread::sleep(Duration::from_millis(200));
        assert!(!second.is_finished());
        drop(first);
        second.join().unwrap().unwrap();
    }

    #[test]
    fn a_state_is_copied_while_a_broker_has_it_and_put_back_when_none_does() {
        let place = Scratch::new();
        let copy = place.0.join("copy");
        let mut store = SqliteStore::open(&place.file()).unwrap();
        store.commit(&[lease(1), node("n0"), Write::Setting("a", "1".into())]).unwrap();
        let before = store.load().unwrap();
        backup(&place.file(), &copy).unwrap();
        assert!(backup(&place.file(), &copy).unwrap_err().to_string().contains("already"));
        store.commit(&[lease(2), Write::ForgetLease(LeaseId(1))]).unwrap();
        let error = restore(&copy, &place.file()).unwrap_err().to_string();
        assert!(error.contains("is using it"), "{error}");
        let after = store.load().unwrap();
        drop(store);
        let old = restore(&copy, &place.file()).unwrap().unwrap();
        assert_eq!(SqliteStore::open(&place.file()).unwrap().load().unwrap(), before);
        assert_eq!(SqliteStore::open(&old).unwrap().load().unwrap(), after);
        // Where there is no state yet, on another machine for example.
        let elsewhere = place.0.join("elsewhere.sqlite");
        assert_eq!(restore(&copy, &elsewhere).unwrap(), None);
        assert_eq!(SqliteStore::open(&elsewhere).unwrap().load().unwrap(), before);
        std::fs::write(&copy, "nothing").unwrap();
        assert!(restore(&copy, &place.file()).is_err());
        assert_eq!(SqliteStore::open(&place.file()).unwrap().load().unwrap(), before);
    }

    #[test]
    fn a_full_disk_is_an_error_and_changes_nothing() {
        let place = Scratch::new();
        let mut store = SqliteStore::open(&place.file()).unwrap();
        store.commit(&[lease(0)]).unwrap();
        let pages: i64 = store.connection.query_row("PRAGMA page_count", [], |row| row.get(0)).unwrap();
        let limit = |store: &SqliteStore, pages: i64| {
            let sql = format!("PRAGMA max_page_count = {pages}");
            store.connection.query_row(&sql, [], |row| row.get::<_, i64>(0)).unwrap()
        };
        limit(&store, pages + 2);
        let many: Vec<Write> = (1..100).map(lease).collect();
        let error = store.commit(&many).unwrap_err();
        assert!(matches!(&error, StoreError::Write { why, .. } if why.contains("full")), "{error}");
        assert_eq!(store.load().unwrap().leases.len(), 1);
        limit(&store, 1 << 20);
        store.check().unwrap();
        store.commit(&many).unwrap();
        assert_eq!(store.load().unwrap().leases.len(), 100);
    }

    #[test]
    fn a_read_only_file_is_an_error_and_changes_nothing() {
        let place = Scratch::new();
        let mut store = SqliteStore::open(&place.file()).unwrap();
        store.connection.pragma_update(None, "query_only", true).unwrap();
        let error = store.commit(&[lease(0)]).unwrap_err();
        assert!(matches!(&error, StoreError::Write { why, .. } if why.contains("readonly")), "{error}");
        assert!(store.check().is_err());
        store.connection.pragma_update(None, "query_only", false).unwrap();
        store.check().unwrap();
        assert!(store.load().unwrap().leases.is_empty());
    }

    #[test]
    fn files_of_others_of_later_releases_and_damaged_ones_are_refused() {
        let place = Scratch::new();
        std::fs::write(place.file(), vec![7; 10_000]).unwrap();
        let error = SqliteStore::open(&place.file()).err().unwrap().to_string();
        assert!(error.contains("not a database") && error.contains("state.sqlite"), "{error}");
        std::fs::remove_file(place.file()).unwrap();
        let other = Connection::open(place.file()).unwrap();
        other.execute_batch("CREATE TABLE songs (name TEXT)").unwrap();
        drop(other);
        let error = SqliteStore::open(&place.file()).err().unwrap().to_string();
        assert!(error.contains("songs"), "{error}");
        std::fs::remove_file(place.file()).unwrap();
        let mut store = SqliteStore::open(&place.file()).unwrap();
        store.commit(&[lease(1)]).unwrap();
        store.connection.execute("UPDATE leases SET body = '{'", []).unwrap();
        assert!(matches!(store.load(), Err(StoreError::Read { .. })));
        store.connection.pragma_update(None, "user_version", 9).unwrap();
        drop(store);
        let error = SqliteStore::open(&place.file()).err().unwrap();
        assert!(matches!(error, StoreError::Version { found: 9, known: VERSION, .. }), "{error}");
        let nowhere = SqliteStore::open(&place.0.join("none").join("x")).err().unwrap().to_string();
        assert!(nowhere.contains("No such file"), "{nowhere}");
    }
}
