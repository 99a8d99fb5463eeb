//! What can go wrong between a file and a result.

use std::path::{Path, PathBuf};

/// Why a simulation could not be set up, run or written down.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file can't be read.
    #[error("Cannot read {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// A file can't be written.
    #[error("Cannot write {path}: {source}")]
    Write {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// A row of a file is wrong; nothing of the file was used.
    #[error("{path}:{line}: {what}")]
    Row {
        /// The file.
        path: PathBuf,
        /// Its line, counted from 1.
        line: u64,
        /// What is wrong with it.
        what: String,
    },
    /// A file is well-formed but makes no sense as a whole.
    #[error("{path}: {what}")]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// The placement refused a cluster, a job or a placement.
    #[error(transparent)]
    Placement(#[from] rgpu_placement::Error),
    /// An option has a value that it can't have.
    #[error("{0}")]
    Option(String),
    /// A plot could not be drawn.
    #[error("Cannot draw {path}: {what}")]
    Plot {
        /// The file.
        path: PathBuf,
        /// Why not.
        what: String,
    },
}

impl Error {
    /// A wrong row.
    pub(crate) fn row(path: &Path, line: u64, what: impl Into<String>) -> Error {
        Error::Row { path: path.to_owned(), line, what: what.into() }
    }

    /// A wrong file.
    pub(crate) fn file(path: &Path, what: impl Into<String>) -> Error {
        Error::File { path: path.to_owned(), what: what.into() }
    }
}

/// A result whose error is [`enum@Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;
