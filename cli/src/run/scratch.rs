//! Files of a command's own that the program's processes write to.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::{Path, PathBuf};

use crate::Failure;

/// A path among the temporary files that nobody else has, and nobody can guess.
pub(super) fn path(what: &str) -> PathBuf {
    let unguessable = RandomState::new().build_hasher().finish();
    std::env::temp_dir().join(format!("rgpu-{what}-{}-{unguessable:016x}", std::process::id()))
}

/// The failure of writing there.
pub(super) fn cannot_write(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(format!("Cannot write to {}: {error}", path.display()))
}
