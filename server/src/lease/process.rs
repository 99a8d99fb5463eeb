//! Ending the processes of sessions.

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// How long a session's process may take to end by itself, which tells its program why, before it is killed.
const TERMINATION_TIME: Duration = Duration::from_secs(1);

/// A session's process, by a descriptor that never means another one.
pub(super) struct Process(OwnedFd);

impl Process {
    /// The process with this number, which must be alive or not yet waited for.
    pub(super) fn open(pid: u32) -> io::Result<Self> {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::InvalidInput)?;
        Ok(Self(pidfd_open(pid, PidfdFlags::empty())?))
    }

    fn signal(&self, signal: Signal) {
        // It may be gone already, which is as good.
        let _ = pidfd_send_signal(&self.0, signal);
    }
}

/// Processes that are to end.
#[derive(Default)]
pub(super) struct Terminations(pub(super) Vec<Process>);

impl Terminations {
    /// Asks the processes to end, which have been told why; those that don't are killed.
    pub(super) fn carry_out(self) {
        if self.0.is_empty() {
            return;
        }
        self.0.iter().for_each(|process| process.signal(Signal::TERM));
        let kill = move || {
            std::thread::sleep(TERMINATION_TIME);
            self.0.iter().for_each(|process| process.signal(Signal::KILL));
        };
        let thread = std::thread::Builder::new().name("terminate".into()).stack_size(64 << 10).spawn(kill);
        if let Err(e) = thread {
            tracing::error!("no thread could be started: {e}");
        }
    }
}
