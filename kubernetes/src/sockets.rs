//! Services on unix sockets.

use std::io;
use std::path::{Path, PathBuf};

use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;

/// A socket that is removed when this is dropped.
pub struct Socket {
    path: PathBuf,
    stream: Option<UnixListenerStream>,
}

impl Socket {
    /// Listens. A socket that a process has left behind there is replaced.
    ///
    /// # Errors
    /// What the system says.
    pub fn bind(path: &Path) -> io::Result<Self> {
        let named =
            |e: io::Error| io::Error::new(e.kind(), format!("cannot listen at {}: {e}", path.display()));
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(named)?;
        }
        match std::fs::remove_file(path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(named(e)),
            _ => {}
        }
        let listener = UnixListener::bind(path).map_err(named)?;
        Ok(Self { path: path.to_owned(), stream: Some(UnixListenerStream::new(listener)) })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The connections that come; once.
    pub fn incoming(&mut self) -> UnixListenerStream {
        self.stream.take().expect("a socket is served once")
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path); // only tidiness
    }
}
