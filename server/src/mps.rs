//! NVIDIA's multi-process service (MPS): whether it runs, and what a process says to have a part of a GPU from it.
//!
//! The driver asks for the service at a socket in a folder when it starts, and does without it if nobody answers there. A
//! process's part is limited by variables that the driver reads then, so it cannot be changed while the process runs.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The variable that says where the service is.
const FOLDER: &str = "CUDA_MPS_PIPE_DIRECTORY";
/// Where it is unless that says otherwise.
const USUAL_FOLDER: &str = "/tmp/nvidia-mps";
/// What is left of a limit of memory for what the driver itself needs, and for pieces that allocations don't fill.
const ROOM: u64 = 256 << 20;

/// The service, running or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mps {
    folder: PathBuf,
}

impl Mps {
    /// Where this process's driver would look for it.
    pub(crate) fn from_environment() -> Self {
        let said = std::env::var_os(FOLDER).filter(|folder| !folder.is_empty());
        Self::at(said.map_or_else(|| USUAL_FOLDER.into(), PathBuf::from))
    }

    /// In a folder.
    pub(crate) fn at(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// Where its control daemon listens.
    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.join("control")
    }

    /// Whether a control daemon listens that this user may talk to. Nothing is said to it.
    pub(crate) fn answers(&self) -> bool {
        match connect(&self.socket()) {
            Ok(()) => true,
            // A listener whose queue is full, or one that takes messages instead of a stream.
            Err(e) => matches!(e.raw_os_error(), Some(libc::EPROTOTYPE | libc::EAGAIN)),
        }
    }

    /// What a process is started with that is to have this percentage of the multiprocessors, and no more memory than this of
    /// the driver's devices with these numbers.
    pub(crate) fn environment(
        &self,
        percentage: u32,
        memory: &[(u32, u64)],
    ) -> Vec<(&'static str, OsString)> {
        let mut all = vec![
            (FOLDER, self.folder.clone().into_os_string()),
            ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", percentage.to_string().into()),
        ];
        if !memory.is_empty() {
            // A second wall: the ledger is the first, and exact.
            let wall = |bytes: u64| (bytes + bytes / 16 + ROOM).div_ceil(1 << 20);
            let limits: Vec<String> =
                memory.iter().map(|(device, bytes)| format!("{device}={}M", wall(*bytes))).collect();
            all.push(("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", limits.join(",").into()));
        }
        all
    }
}

/// Connects to a socket, without waiting for anything.
fn connect(path: &Path) -> io::Result<()> {
    // SAFETY: all zeros is a valid address.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    let bytes = path.as_os_str().as_bytes();
    if bytes.len() >= address.sun_path.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (place, byte) in address.sun_path.iter_mut().zip(bytes) {
        *place = *byte as libc::c_char;
    }
    let kind = libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: plain system call.
    let fd = unsafe { libc::socket(libc::AF_UNIX, kind, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a fresh descriptor that nobody else owns.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    let size = size_of::<libc::sockaddr_un>() as libc::socklen_t;
    // SAFETY: the address is valid for its size, and its path ends in a zero.
    match unsafe { libc::connect(socket.as_raw_fd(), (&raw const address).cast(), size) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_process_is_told() {
        let mps = Mps::at("/run/mps".into());
        let said = |memory: &[(u32, u64)]| {
            let all = mps.environment(25, memory);
            all.into_iter().map(|(name, value)| (name, value.into_string().unwrap())).collect::<Vec<_>>()
        };
        assert_eq!(
            said(&[]),
            [(FOLDER, "/run/mps".into()), ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "25".to_owned())]
        );
        assert_eq!(
            said(&[(0, 1 << 30), (2, 16 << 20)])[2],
            ("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=1344M,2=273M".to_owned())
        );
    }

    #[test]
    fn who_listens_is_found() {
        let folder = std::env::temp_dir().join(format!("rgpu-mps-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir(&folder).unwrap();
        let mps = Mps::at(folder.clone());
        assert!(!mps.answers());
        let listener = std::os::unix::net::UnixListener::bind(mps.socket()).unwrap();
        assert!(mps.answers());
        // The socket of one that has ended.
        drop(listener);
        assert!(!mps.answers());
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
