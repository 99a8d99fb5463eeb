//! The folder that a container sees in place of `rgpu run`'s memory: a copy of the lease's ticket.
//!
//! A container has processes of its own, so `/proc/PID/fd/N` means nothing there. The copy is a file, which holds a private key: it lies in a
//! folder of the user's own, in memory where the system offers that, and goes when the container has ended. What a killed `rgpu run`
//! left behind is removed by the next one; nobody has the lock on it any more.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use rgpu_control::settings;
use rgpu_control::ticket::Ticket;
use rustix::fs::FlockOperation;

use super::super::threads::spawn_without_signals;
use crate::{Failure, library};

/// How often a ticket that another process keeps up to date is looked at. Leases are renewed after a third of their time, of which a
/// minute is usual.
const FOLLOWING: Duration = Duration::from_secs(2);

/// A folder for one container, which is removed with all that it holds when this is dropped.
#[derive(Debug)]
pub(super) struct Place {
    folder: PathBuf,
    _lock: File,
    /// What ends the thread that follows a ticket, by being dropped.
    following: Option<mpsc::Sender<()>>,
}

impl Place {
    /// Makes it, and removes those that nobody uses any more.
    pub(super) fn create() -> Result<Self, Failure> {
        let base = base();
        let made = library::make_private(&base)
            .and_then(|()| library::make_private(&base.join("containers")))
            .and_then(|()| Self::create_in(&base.join("containers")));
        made.map_err(|e| {
            Failure::new(format!("There is no place for the container's ticket in {}: {e}", base.display()))
        })
    }

    fn create_in(base: &Path) -> io::Result<Self> {
        // Others wait while this one makes its lock or looks at theirs.
        let others = File::open(base)?;
        rustix::fs::flock(&others, FlockOperation::LockExclusive)?;
        remove_left_over(base);
        let name = format!("{}-{:016x}", std::process::id(), rgpu_control::LeaseId::random().0);
        let folder = base.join(name);
        library::make_private(&folder)?;
        let lock = File::create(folder.join("lock"))?;
        rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        library::make_private(&folder.join("lease"))?;
        Ok(Self { folder, _lock: lock, following: None })
    }

    /// What the container is to see: a folder, so that it sees the next ticket, too.
    pub(super) fn shown(&self) -> PathBuf {
        self.folder.join("lease")
    }

    /// The ticket's file in there.
    pub(super) fn ticket(&self) -> PathBuf {
        self.shown().join("ticket")
    }

    /// Copies a ticket that another process keeps up to date, from now on.
    pub(super) fn follow(&mut self, source: PathBuf) -> io::Result<()> {
        let mut last = Ticket::read(&source)?;
        let target = self.ticket();
        last.write(&target)?;
        let (following, over) = mpsc::channel();
        let body = move || {
            while over.recv_timeout(FOLLOWING) == Err(mpsc::RecvTimeoutError::Timeout) {
                match Ticket::read(&source) {
                    Ok(ticket) if ticket != last && ticket.write(&target).is_ok() => last = ticket,
                    // The lease has ended: no program may begin with it.
                    Err(e) if e.kind() == io::ErrorKind::NotFound => drop(fs::remove_file(&target)),
                    _ => {}
                }
            }
        };
        spawn_without_signals("ticket", body)?;
        self.following = Some(following);
        Ok(())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.following = None;
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Where tickets for containers may be: in memory, and gone when the user logs out, where there is such a place.
fn base() -> PathBuf {
    let runtime = settings::path("XDG_RUNTIME_DIR").filter(|path| path.is_absolute() && path.is_dir());
    runtime.map_or_else(library::temporary_base, |path| path.join("rgpu"))
}

fn remove_left_over(base: &Path) {
    for folder in fs::read_dir(base).into_iter().flatten().flatten().map(|entry| entry.path()) {
        let lock = File::open(folder.join("lock"));
        if lock.is_ok_and(|lock| rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok()) {
            let _ = fs::remove_dir_all(&folder);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rgpu_control::LeaseId;
    use rgpu_control::token::PrivateKey;

    fn ticket(token: &str) -> Ticket {
        Ticket {
            lease: LeaseId(1),
            token: token.into(),
            key: PrivateKey::generate().to_text(),
            transport: "auto".into(),
            servers: Vec::new(),
            ca: None,
        }
    }

    #[test]
    fn a_folder_goes_with_its_owner_or_with_the_next_one() {
        let base = std::env::temp_dir().join(format!("rgpu-places-{}", std::process::id()));
        fs::create_dir_all(&base).unwrap();
        let (first, second) = (Place::create_in(&base).unwrap(), Place::create_in(&base).unwrap());
        ticket("t").write(&first.ticket()).unwrap();
        assert!(second.folder.exists() && first.folder.exists(), "that of a living owner stays");
        let left = first.folder.clone();
        // As after SIGKILL: the lock is gone, the folder is not.
        drop(second);
        let Place { _lock: lock, .. } = &first;
        rustix::fs::flock(lock, FlockOperation::Unlock).unwrap();
        let third = Place::create_in(&base).unwrap();
        assert!(!left.exists(), "what nobody locks is removed");
        drop((first, third));
        assert_eq!(fs::read_dir(&base).unwrap().count(), 0);
        fs::remove_dir(&base).unwrap();
    }

    #[test]
    fn a_ticket_is_followed_until_it_is_gone() {
        let base = std::env::temp_dir().join(format!("rgpu-follow-{}", std::process::id()));
        fs::create_dir_all(&base).unwrap();
        let source = base.join("source");
        ticket("1").write(&source).unwrap();
        let mut place = Place::create_in(&base).unwrap();
        place.follow(source.clone()).unwrap();
        assert_eq!(Ticket::read(&place.ticket()).unwrap().token, "1");
        let until = |what: &dyn Fn() -> bool| {
            let end = std::time::Instant::now() + Duration::from_secs(60);
            while !what() {
                assert!(std::time::Instant::now() < end, "nothing happened for a minute");
                std::thread::sleep(Duration::from_millis(50));
            }
        };
        ticket("2").write(&source).unwrap();
        until(&|| Ticket::read(&place.ticket()).is_ok_and(|ticket| ticket.token == "2"));
        fs::remove_file(&source).unwrap();
        until(&|| !place.ticket().exists());
        drop(place);
        fs::remove_dir_all(base).unwrap();
    }
}
