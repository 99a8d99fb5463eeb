//! Starting the process that serves one application.

use super::Daemon;
use super::client::Entrant;
use crate::device_spec::DeviceKind;
use crate::lease::Admission;
use crate::ledger::Descriptors;
use crate::orders::{CONNECTION, LEDGER_OWN, LEDGER_RULES, LEDGER_USAGE, ORDERS, Orders, PEERS, STORE};
use crate::partition::Arrangement;
use crate::peer::Channel;
use crate::{APP_SERVER_COMMAND, inventory};
use rgpu_protocol::sys::SignalSet;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::PoisonError;

/// What the process of an admitted application is handed beside its connection.
struct Belongings<'d> {
    orders: OwnedFd,
    ledger: &'d Descriptors,
    /// The process's end of the socket that leads to the desk.
    desk: Option<UnixStream>,
    peers: Option<Channel>,
}

impl Belongings<'_> {
    /// Each with its place. What there is none of is nothing that the process would look at.
    fn descriptors(&self) -> [(RawFd, RawFd); 6] {
        let orders = self.orders.as_raw_fd();
        [
            (orders, ORDERS),
            (self.ledger.rules.as_raw_fd(), LEDGER_RULES),
            (self.ledger.usage.as_raw_fd(), LEDGER_USAGE),
            (self.ledger.own.as_raw_fd(), LEDGER_OWN),
            (self.desk.as_ref().map_or(orders, AsRawFd::as_raw_fd), STORE),
            (self.peers.as_ref().map_or(orders, AsRawFd::as_raw_fd), PEERS),
        ]
    }
}

impl Daemon {
    /// What an application's process is handed, and the daemon's end of the socket that leads to the desk.
    fn belongings(
        &self,
        orders: &Orders,
        peers: Option<Channel>,
    ) -> io::Result<(Belongings<'_>, Option<UnixStream>)> {
        let (ours, desk) = orders.desk.then(UnixStream::pair).transpose()?.unzip();
        let ledger = self.ledger.descriptors().ok_or(io::ErrorKind::NotFound)?;
        Ok((Belongings { orders: orders.to_file()?, ledger, desk, peers }, ours))
    }

    /// Starts the process that serves an application. The socket leads to the desk.
    pub(super) fn start(
        &self,
        connection: RawFd,
        peers: Option<Channel>,
        orders: &Orders,
        arranged: &Arrangement,
        lease: Option<&Admission>,
    ) -> io::Result<(Child, Option<UnixStream>)> {
        let (belongings, ours) = self.belongings(orders, peers)?;
        let [a, b, c, d, e, f] = belongings.descriptors();
        let mut children = self.children.lock().unwrap_or_else(PoisonError::into_inner);
        let descriptors = [(connection, CONNECTION), a, b, c, d, e, f];
        let child = self.spawn(descriptors, arranged.device.kind, &arranged.environment)?;
        children.push(child.id());
        drop(children);
        self.has_started(&child, orders, lease);
        Ok((child, ours))
    }

    /// Has the process that speaks with a client serve the application.
    pub(super) fn admit(
        &self,
        entrant: Entrant<'_>,
        peers: Option<Channel>,
        orders: &Orders,
        lease: Option<&Admission>,
    ) -> io::Result<(Child, Option<UnixStream>)> {
        let (belongings, ours) = self.belongings(orders, peers)?;
        let child = entrant.admit(&belongings.descriptors().map(|(descriptor, _)| descriptor))?;
        self.has_started(&child, orders, lease);
        Ok((child, ours))
    }

    /// An application's process is there: it ends with its lease, and has what that has of the processors.
    fn has_started(&self, child: &Child, orders: &Orders, lease: Option<&Admission>) {
        if let Some(lease) = lease {
            self.leases.started(lease.lease, orders.slot as usize, child.id());
            if let Some(applications) = &self.applications {
                applications.started(lease.lease, child.id());
            }
        }
    }

    /// Starts the process with these descriptors, each at its place, and these variables beside the few of the daemon's that a
    /// device of this kind needs.
    pub(super) fn spawn<const N: usize>(
        &self,
        descriptors: [(RawFd, RawFd); N],
        kind: DeviceKind,
        environment: &[(&'static str, OsString)],
    ) -> io::Result<Child> {
        let mut command = Command::new("/proc/self/exe");
        command.arg(APP_SERVER_COMMAND).stdin(Stdio::null()).stdout(Stdio::null());
        inventory::with_few_variables(&mut command, kind);
        command.envs(environment.iter().map(|(name, value)| (name, value)));
        // SAFETY: only async-signal-safe functions are called.
        unsafe { command.pre_exec(move || prepare_child(descriptors)) };
        command.spawn()
    }
}

/// Runs in the child between fork and exec.
fn prepare_child<const N: usize>(descriptors: [(RawFd, RawFd); N]) -> io::Result<()> {
    let last = descriptors.iter().fold(libc::STDERR_FILENO, |last, (_, to)| last.max(*to));
    let check = |r: libc::c_int| if r < 0 { Err(io::Error::last_os_error()) } else { Ok(r) };
    // SAFETY: plain system calls, all async-signal-safe.
    unsafe {
        // Away from the places where they are to go first, so that none overwrites another.
        let mut high = [0; N];
        for (place, (from, _)) in high.iter_mut().zip(descriptors) {
            *place = check(libc::fcntl(from, libc::F_DUPFD_CLOEXEC, 16))?;
        }
        for (from, (_, to)) in high.into_iter().zip(descriptors) {
            check(libc::dup2(from, to))?;
        }
        // The daemon's own are close-on-exec anyway; this is for what it has inherited.
        libc::syscall(libc::SYS_close_range, last + 1, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC);
        check(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL))?;
        // A Ctrl-C is the daemon's business.
        libc::setsid();
    }
    SignalSet::none().replace_blocked();
    Ok(())
}
