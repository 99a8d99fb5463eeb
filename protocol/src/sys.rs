//! System calls that several parts of rgpu make, each once.

use std::io;
use std::os::fd::{AsRawFd, RawFd};

/// Who is at the other end of a Unix socket, as the kernel says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerCredentials {
    /// Its process; 0 where that is in a PID namespace that this one does not see.
    pub process: i32,
    /// Its effective user.
    pub user: u32,
}

impl PeerCredentials {
    /// Whether it is the user of this process.
    pub fn is_this_user(self) -> bool {
        // SAFETY: plain system call.
        self.user == unsafe { libc::geteuid() }
    }
}

/// Who is at the other end of a Unix socket.
///
/// # Errors
/// It is no Unix socket.
pub fn peer_credentials(socket: &impl AsRawFd) -> io::Result<PeerCredentials> {
    // Not by rustix, whose type for a process's number has no 0, which the kernel does answer.
    let mut who = libc::ucred { pid: 0, uid: libc::uid_t::MAX, gid: libc::gid_t::MAX };
    socket_option(socket.as_raw_fd(), libc::SO_PEERCRED, &mut who)?;
    Ok(PeerCredentials { process: who.pid, user: who.uid })
}

/// Whether a descriptor is a Unix socket.
pub fn is_unix_socket(descriptor: &impl AsRawFd) -> bool {
    let mut domain: libc::c_int = 0;
    socket_option(descriptor.as_raw_fd(), libc::SO_DOMAIN, &mut domain).is_ok() && domain == libc::AF_UNIX
}

fn socket_option<T: Copy>(fd: RawFd, name: libc::c_int, value: &mut T) -> io::Result<()> {
    let mut length = size_of::<T>() as libc::socklen_t;
    // SAFETY: both are valid places for the answer, of whose bytes the kernel writes no more than `length`; both types that
    // are asked for are plain numbers.
    let r = unsafe {
        libc::getsockopt(fd, libc::SOL_SOCKET, name, std::ptr::from_mut(value).cast(), &mut length)
    };
    if r == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::os::unix::net::UnixStream;

    #[test]
    fn the_peer_of_a_unix_socket_is_known() {
        let (a, _b) = UnixStream::pair().unwrap();
        let who = peer_credentials(&a).unwrap();
        assert!(who.is_this_user() && who.process == std::process::id() as i32);
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(is_unix_socket(&a) && !is_unix_socket(&tcp) && !is_unix_socket(&-1));
    }
}
