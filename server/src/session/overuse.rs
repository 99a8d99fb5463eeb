//! Device memory that a client on this machine takes without having been given it.
//!
//! A client that shares memory maps the files behind the devices' memory, which are as long as the devices are large and empty where
//! nothing was allocated: it can write where it has allocated nothing. That reaches nobody's memory but its own session's, and
//! takes memory of the machine. So it is looked now and then how much the files hold, against what the lease gives.

use crate::ledger::Ledger;
use std::os::fd::RawFd;
use std::sync::Arc;

/// So much more than the lease gives is let pass: large pages are taken whole, and what was freed is given back a little later.
const SLACK: u64 = 256 << 20;
/// So often in a row it has to be too much.
const LOOKS: u32 = 3;

/// Looks after a session's device memory.
pub(super) struct Overuse {
    ledger: Arc<Ledger>,
    slot: usize,
    /// How often in a row it was too much.
    looks: u32,
}

impl Overuse {
    pub(super) fn new(ledger: Arc<Ledger>, slot: usize) -> Self {
        Self { ledger, slot, looks: 0 }
    }

    /// Looks at the files behind the devices' memory, by ordinal, and that behind the memory that is one for both sides; says why
    /// the session has to end, if it has to.
    pub(super) fn look(&mut self, files: &[RawFd], shared: Option<RawFd>) -> Option<String> {
        // Without a lease a program may have all of the device.
        let most = |ordinal| self.ledger.most_of(self.slot, ordinal);
        let too_much = |file: RawFd, most: u64| {
            let held = held(file)?;
            (held > most.saturating_add(most / 4).saturating_add(SLACK)).then_some((held, most))
        };
        let mut every = files.iter().zip(0..);
        let over = every.find_map(|(file, ordinal)| {
            too_much(*file, most(ordinal)?).map(|found| (format!("of device {ordinal}"), found))
        });
        // It may be any device's.
        let all: Option<u64> = (0..files.len() as u32).map(most).sum();
        let over = over.or_else(|| {
            too_much(shared?, all?).map(|found| ("of memory that both sides share".to_owned(), found))
        });
        self.looks = if over.is_some() { self.looks + 1 } else { 0 };
        let (what, (held, most)) = over.filter(|_| self.looks >= LOOKS)?;
        let (held, most) = (held >> 20, most >> 20);
        Some(format!("the program has written {held} MiB {what}, of which its lease gives {most} MiB"))
    }
}

/// How many bytes a file occupies.
fn held(file: RawFd) -> Option<u64> {
    let mut about = std::mem::MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: a valid place, which is filled where the call succeeds.
    let about = unsafe {
        if libc::fstat(file, about.as_mut_ptr()) != 0 {
            return None;
        }
        about.assume_init()
    };
    Some(about.st_blocks as u64 * 512)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Terms;
    use rgpu_protocol::sys::memory_file;
    use std::fs::File;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::FileExt;

    #[test]
    fn what_a_lease_does_not_give_is_noticed() {
        let ledger = Arc::new(Ledger::new(&[1 << 40]).unwrap());
        let terms = |memory| [Terms { device: 0, memory, share_milli: 1000 }];
        let lease = ledger.take_lease(&terms(1 << 20), &[]).unwrap();
        let slot = ledger.take_slot().unwrap();
        let file = File::from(memory_file(c"device").unwrap());
        file.set_len(1 << 40).unwrap();
        let files = [file.as_raw_fd()];
        let write = |from: u64, bytes: u64| {
            let mebibyte = vec![1; 1 << 20];
            (from..from + (bytes >> 20)).for_each(|at| file.write_all_at(&mebibyte, at << 20).unwrap());
        };
        write(0, SLACK + (2 << 20));
        // Without a lease, everything; and with one, more than once.
        assert_eq!((0..5).filter_map(|_| Overuse::new(ledger.clone(), slot).look(&files, None)).count(), 0);
        ledger.bind(slot, lease);
        let mut overuse = Overuse::new(ledger.clone(), slot);
        assert_eq!((1..LOOKS).filter_map(|_| overuse.look(&files, None)).count(), 0);
        assert!(overuse.look(&files, None).unwrap().contains("gives 1 MiB"));
        // What was given once may be held still.
        ledger.set_terms(lease, &terms(4 << 20));
        ledger.set_terms(lease, &terms(1 << 20));
        assert_eq!((0..9).filter_map(|_| overuse.look(&files, None)).count(), 0);
        // The memory that both sides share is held against all devices' together.
        let mut overuse = Overuse::new(ledger.clone(), slot);
        write(SLACK + (2 << 20), 8 << 20);
        let empty = [File::from(memory_file(c"device").unwrap())];
        let devices = empty.each_ref().map(AsRawFd::as_raw_fd);
        assert_eq!((1..LOOKS).filter_map(|_| overuse.look(&devices, Some(files[0]))).count(), 0);
        assert!(overuse.look(&devices, Some(files[0])).unwrap().contains("both sides"));
    }
}
