//! The state's file: one broker at a time has it, and it can be copied while that runs.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rusqlite::{Connection, OpenFlags, backup::Backup};

use super::StoreError;
use super::sqlite::{VERSION, read_error};

/// The lock of a state: whoever has it may change the state. The system lets it go when its process ends, however that happens.
#[derive(Debug)]
pub(super) struct StateLock {
    _file: File,
}

fn beside(state: &Path, suffix: &str) -> PathBuf {
    let mut name = state.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn cannot_read(path: &Path, why: impl ToString) -> StoreError {
    StoreError::Read { place: path.display().to_string(), why: why.to_string() }
}

fn cannot_write(path: &Path, why: impl ToString) -> StoreError {
    StoreError::Write { place: path.display().to_string(), why: why.to_string() }
}

impl StateLock {
    /// Takes the lock of a state's file. Where another broker has it, waits for its end for so long.
    pub(super) fn take(state: &Path, patience: Duration) -> Result<Self, StoreError> {
        let path = beside(state, ".lock");
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(|e| cannot_write(&path, e))?;
        let end = Instant::now() + patience;
        let mut said = false;
        loop {
            match file.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(e)) => return Err(cannot_write(&path, e)),
            }
            let mut holder = String::new();
            let _ = file.rewind().and_then(|()| file.read_to_string(&mut holder)); // for the message only
            let holder = match holder.trim() {
                "" => "another broker".to_owned(),
                process => format!("another broker (process {process})"),
            };
            if Instant::now() >= end {
                let why = format!("{holder} is using it: stop that one first, or use another data_dir");
                return Err(cannot_read(state, why));
            }
            if !std::mem::replace(&mut said, true) {
                let place = state.display();
                tracing::warn!(
                    "{holder} is using {place}: waiting up to {} s for its end",
                    patience.as_secs()
                );
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        // For people and messages; the lock itself is what counts.
        let _ = file
            .set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| writeln!(file, "{}", std::process::id()));
        Ok(Self { _file: file })
    }
}

/// Bytes that this user can still write to the file system of a path; `None` where that cannot be known.
pub(super) fn bytes_left(path: &Path) -> Option<u64> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let directory = std::ffi::CString::new(directory.as_os_str().as_encoded_bytes()).ok()?;
    // SAFETY: all-zero bytes are a valid value of this structure of numbers.
    let mut about: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: the text ends with a zero byte, and the structure is one that the call fills in.
    if unsafe { libc::statvfs(directory.as_ptr(), &mut about) } != 0 {
        return None;
    }
    Some(about.f_bavail.saturating_mul(about.f_frsize))
}

/// Writes a copy of a state, as it is after some commit, to a new file that only this user can read. A broker may be running
/// with the state meanwhile.
///
/// # Errors
/// The state is no broker's or cannot be read; there is such a file already, or no room for it.
pub fn backup(state: &Path, to: &Path) -> Result<(), StoreError> {
    if fs::symlink_metadata(to).is_ok() {
        return Err(cannot_write(to, "there is a file of that name already, and it is not replaced"));
    }
    let new = beside(to, ".new");
    let _ = fs::remove_file(&new); // an earlier attempt's
    let copied = copy(state, &new).and_then(|()| {
        let file = File::open(&new).and_then(|file| file.sync_all());
        file.and_then(|()| fs::rename(&new, to)).map_err(|e| cannot_write(to, e))
    });
    copied.inspect_err(|_| drop(fs::remove_file(&new)))
}

/// Makes `to` a copy of the state in `from`.
fn copy(from: &Path, to: &Path) -> Result<(), StoreError> {
    // Not read-only: where no broker runs, the write-ahead log has to be taken in.
    let source = Connection::open_with_flags(from, OpenFlags::SQLITE_OPEN_READ_WRITE)
        .map_err(|e| read_error(from, &e))?;
    source.busy_timeout(Duration::from_secs(10)).map_err(|e| read_error(from, &e))?;
    let found: i64 =
        source.query_row("PRAGMA user_version", [], |row| row.get(0)).map_err(|e| read_error(from, &e))?;
    if !(1..=VERSION).contains(&found) {
        return Err(StoreError::Version { place: from.display().to_string(), found, known: VERSION });
    }
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(to);
    file.map_err(|e| cannot_write(to, e))?;
    let mut target = Connection::open(to).map_err(|e| cannot_write(to, e))?;
    // All pages in one step: the copy is of one moment, and a broker that runs waits for no more than its reading.
    Backup::new(&source, &mut target)
        .and_then(|backup| backup.run_to_completion(i32::MAX, Duration::from_millis(50), None))
        .map_err(|e| cannot_write(to, e))?;
    // One file, without a log beside it.
    target.pragma_update(None, "journal_mode", "DELETE").map_err(|e| cannot_write(to, e))?;
    let good: String =
        target.query_row("PRAGMA quick_check", [], |row| row.get(0)).map_err(|e| cannot_write(to, e))?;
    if good != "ok" {
        return Err(cannot_read(from, format!("its copy is damaged: {good}")));
    }
    target.close().map_err(|(_, e)| cannot_write(to, e))
}

/// Puts a copy that [`backup`] made in the place of a state, with which no broker may be running. Returns what the old state's
/// file is called now, if there was one.
///
/// # Errors
/// A broker runs with the state; the copy is none, or cannot be read; there is no room.
pub fn restore(from: &Path, state: &Path) -> Result<Option<PathBuf>, StoreError> {
    let _lock = StateLock::take(state, Duration::ZERO)?;
    let new = beside(state, ".new");
    let _ = fs::remove_file(&new); // an earlier attempt's
    copy(from, &new)?;
    fs::set_permissions(&new, fs::Permissions::from_mode(0o600)).map_err(|e| cannot_write(&new, e))?;
    File::open(&new).and_then(|file| file.sync_all()).map_err(|e| cannot_write(&new, e))?;
    let kept = beside(state, &format!(".replaced-{}", rgpu_control::unix_time()));
    let mut old = None;
    for suffix in ["", "-wal", "-shm"] {
        let (was, is) = (beside(state, suffix), beside(&kept, suffix));
        match fs::rename(&was, &is) {
            Ok(()) if suffix.is_empty() => old = Some(is),
            Ok(()) => {}
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
            Err(e) => return Err(cannot_write(&was, e)),
        }
    }
    fs::rename(&new, state).map_err(|e| cannot_write(state, e))?;
    if let Some(directory) = state.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        let synced = File::open(directory).and_then(|directory| directory.sync_all());
        synced.map_err(|e| cannot_write(directory, e))?;
    }
    Ok(old)
}
