//! Waiting without sleeping, for a little while.

use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use rgpu_device::{Code, Error, Result};

/// An idle worker looks for so long before it sleeps: programs that launch one kernel after another come again soon.
pub(super) const FOR_WORK: Duration = Duration::from_micros(25);
/// Who waits for work looks for so long. To be woken may take as long.
const FOR_OTHERS: Duration = Duration::from_micros(100);
/// Looks before the processor is first offered to others.
const LOOKS: u32 = 8;

/// Looks until `there` says so; false where that took longer. Between looks the processor is offered to whoever else wants it,
/// which may be the one who is waited for.
pub(super) fn look(time: Duration, mut there: impl FnMut() -> bool) -> bool {
    for _ in 0..LOOKS {
        if there() {
            return true;
        }
        std::hint::spin_loop();
    }
    let start = Instant::now();
    while start.elapsed() < time {
        std::thread::yield_now();
        if there() {
            return true;
        }
    }
    false
}

/// Waits for what a callback sends.
pub(super) fn wait_for(receive: &Receiver<Result<()>>) -> Result<()> {
    let mut outcome = None;
    look(FOR_OTHERS, || {
        outcome = receive.try_recv().ok();
        outcome.is_some()
    });
    outcome.unwrap_or_else(|| receive.recv().unwrap_or_else(|_| Err(Error::from(Code::Unknown))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::sync_channel;

    #[test]
    fn what_comes_soon_and_what_comes_late_are_both_received() {
        let (send, receive) = sync_channel(1);
        send.send(Err(Error::from(Code::NotFound))).unwrap();
        assert_eq!(wait_for(&receive).unwrap_err().code, Code::NotFound);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(FOR_OTHERS * 20);
                send.send(Ok(())).unwrap();
            });
            wait_for(&receive).unwrap();
        });
        drop(send);
        assert_eq!(wait_for(&receive).unwrap_err().code, Code::Unknown);
    }

    #[test]
    fn looking_ends() {
        let mut looks = 0;
        assert!(!look(Duration::from_micros(1), || {
            looks += 1;
            false
        }));
        assert!(looks >= LOOKS);
    }
}
