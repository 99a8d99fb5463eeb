//! Machine code in a folder, as a client keeps it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// A folder with machine code, and how often something was found there and something new was put there.
#[derive(Default)]
pub(crate) struct Code {
    folder: Option<PathBuf>,
    found: AtomicU32,
    kept: AtomicU32,
}

impl Code {
    /// What is kept in a folder.
    pub(crate) fn of(folder: impl AsRef<Path>) -> Self {
        Self { folder: Some(folder.as_ref().to_owned()), ..Self::default() }
    }

    /// How often something was found.
    pub(crate) fn found(&self) -> u32 {
        self.found.load(Relaxed)
    }

    /// How often something new was kept.
    pub(crate) fn kept(&self) -> u32 {
        self.kept.load(Relaxed)
    }

    fn path(&self, name: &[u8; 32]) -> Option<PathBuf> {
        let name: String = name.iter().map(|byte| format!("{byte:02x}")).collect();
        Some(self.folder.as_ref()?.join(name))
    }

    /// What was kept under a name.
    pub(crate) fn find(&self, name: &[u8; 32]) -> Option<Vec<u8>> {
        let code = fs::read(self.path(name)?).ok()?;
        self.found.fetch_add(1, Relaxed);
        Some(code)
    }

    /// Keeps it, if there is a folder.
    pub(crate) fn keep(&self, name: &[u8; 32], code: &[u8]) {
        if let Some(path) = self.path(name) {
            self.kept.fetch_add(1, Relaxed);
            fs::write(path, code).unwrap();
        }
    }
}

/// A folder of a test's own.
pub(crate) struct Folder(PathBuf);

impl AsRef<Path> for Folder {
    fn as_ref(&self) -> &Path {
        &self.0
    }
}

impl Folder {
    /// An empty one, which goes with this.
    pub(crate) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("rgpu-kept-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    /// What lies in it.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        fs::read_dir(&self.0).unwrap().map(|file| file.unwrap().path()).collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
