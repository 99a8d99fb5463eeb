//! What is fetched once for all clones of the repository: in the user's cache, complete or absent.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

/// Where all clones of this repository keep what they have fetched.
///
/// # Errors
/// The user has no such place.
pub fn cache() -> Result<PathBuf> {
    let cache = match std::env::var_os("XDG_CACHE_HOME").filter(|d| Path::new(d).is_absolute()) {
        Some(dir) => PathBuf::from(dir),
        None => {
            let home = std::env::var_os("HOME").context("Neither XDG_CACHE_HOME nor HOME is set")?;
            PathBuf::from(home).join(".cache")
        }
    };
    Ok(cache.join("rgpu"))
}

/// Fills a directory of the cache, unless it is there: `fill` gets a temporary directory beside its place and answers what is to be
/// moved there. Others wait meanwhile. Answers how long it took, where it was not there.
///
/// # Errors
/// What `fill` says, and what the file system says.
pub fn once(
    root: &Path,
    what: &str,
    fill: impl FnOnce(&Path) -> Result<PathBuf>,
) -> Result<Option<Duration>> {
    let parent = root.parent().context("The cache directory has no parent")?;
    fs::create_dir_all(parent).with_context(|| format!("Creating {}", parent.display()))?;
    // Other clones wait here for the one that fetches. The lock goes with the process.
    let lock = File::create(root.with_added_extension("lock"))?;
    // SAFETY: flock takes a descriptor, which `lock` keeps open, and no pointers.
    if unsafe { libc::flock(lock.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } != 0 {
        println!("Waiting for another process that fetches {}", root.display());
        // SAFETY: as above.
        let locked = unsafe { libc::flock(lock.as_raw_fd(), libc::LOCK_EX) };
        ensure!(locked == 0, "Cannot lock: {}", std::io::Error::last_os_error());
    }
    if root.exists() {
        return Ok(None);
    }
    let start = Instant::now();
    println!("Fetching {what} into {}", root.display());
    let temporary = root.with_added_extension("fetching");
    if temporary.exists() {
        fs::remove_dir_all(&temporary)?; // left by a process that died; the lock says that it is gone
    }
    fs::create_dir_all(&temporary)?;
    let outcome = fill(&temporary)
        .and_then(|filled| fs::rename(filled, root).with_context(|| format!("Putting {what} in its place")));
    // It is gone where it was moved as a whole.
    let removed = if temporary.exists() { fs::remove_dir_all(&temporary) } else { Ok(()) };
    outcome?;
    removed?;
    Ok(Some(start.elapsed()))
}
