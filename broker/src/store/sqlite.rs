//! The state in an SQLite file.

use std::path::{Path, PathBuf};

use rusqlite::{Connection, OptionalExtension, params};

use super::{Kept, Store, StoreError, Write};

/// The version of the tables that this release writes.
const VERSION: i64 = 1;

/// What rows of tables are; bodies are JSON, so that they can grow fields.
const TABLES: &str = "
    CREATE TABLE leases (id INTEGER PRIMARY KEY, body TEXT NOT NULL);
    CREATE TABLE nodes (name TEXT PRIMARY KEY, body TEXT NOT NULL) WITHOUT ROWID;
    CREATE TABLE settings (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
";

/// Keeps the state in an SQLite file, in write-ahead mode.
///
/// A commit is in the file when it returns, for whatever process reads it next, should this one be killed. After a power failure the
/// latest commits may be missing (never a part of one): nodes then report leases that are not known any more, and are told to end
/// them.
pub struct SqliteStore {
    path: PathBuf,
    connection: Connection,
}

impl SqliteStore {
    /// Opens a file, or makes it. It is this process's alone while it is open.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let read = |e: rusqlite::Error| read_error(path, &e);
        let connection = Connection::open(path).map_err(read)?;
        connection.busy_timeout(std::time::Duration::from_secs(1)).map_err(read)?;
        // Another broker with the same file would grant the same devices.
        connection.pragma_update(None, "locking_mode", "EXCLUSIVE").map_err(read)?;
        connection.pragma_update(None, "journal_mode", "WAL").map_err(read)?;
        connection.pragma_update(None, "synchronous", "NORMAL").map_err(read)?;
        let mut store = Self { path: path.to_owned(), connection };
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

    fn migrate(&mut self) -> Result<(), StoreError> {
        let found: i64 = self
            .connection
            .query_row("PRAGMA user_version", [], |row| row.get(0))
            .map_err(|e| self.read_error(&e))?;
        match found {
            VERSION => Ok(()),
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
                let all = format!("BEGIN IMMEDIATE; {TABLES} PRAGMA user_version = {VERSION}; COMMIT;");
                self.connection.execute_batch(&all).map_err(|e| self.write_error(&e))
            }
            found => {
                Err(StoreError::Version { place: self.path.display().to_string(), found, known: VERSION })
            }
        }
    }
}

fn read_error(path: &Path, e: &rusqlite::Error) -> StoreError {
    StoreError::Read { place: path.display().to_string(), why: e.to_string() }
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
                    Write::ForgetLease(id) => run("DELETE FROM leases WHERE id = ?", params![id.0 as i64])?,
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
        self.commit(&[Write::Setting("checked", env!("CARGO_PKG_VERSION").into())])
    }
}
