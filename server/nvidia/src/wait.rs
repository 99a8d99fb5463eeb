//! The waiting thread: it watches events, and does what is to be done when they are reached.
//!
//! It asks instead of waiting for one event, so that nobody's completion is delayed by somebody else's work.
//! What is done comes in an order that callers may rely on: whoever hears that something is over finds that what
//! had to come before it was done, too. So waits are looked at from the last to the first, and served from the
//! first to the last: when one is found reached, all that the driver did before it is found reached as well.

use super::core::Core;
use super::staging::Marker;
use parking_lot::{Condvar, Mutex};
use rgpu_device::{Code, Error, Ordinal, Result};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

/// What is to be done when some events are reached.
pub(crate) struct Wait {
    /// The device it is about.
    pub ordinal: Ordinal,
    /// What is waited for.
    pub markers: Vec<Arc<Marker>>,
    /// How many launches had been submitted then, if the wait covers all of them.
    pub launches: u64,
    /// Whether it tells somebody about earlier work's errors.
    pub tells: bool,
    /// What is done; it is told what has become of the device.
    pub then: Box<dyn FnOnce(Result<()>) + Send>,
}

#[derive(Default)]
struct Inbox {
    waits: Vec<Wait>,
    /// Waits of this ordinal are to be ended, and who is told.
    abandon: Vec<(Ordinal, std::sync::mpsc::SyncSender<()>)>,
    stop: bool,
}

/// What is handed to the waiting thread.
#[derive(Default)]
pub(crate) struct Waits {
    inbox: Mutex<Inbox>,
    filled: Condvar,
}

impl Waits {
    /// Hands a wait to the thread.
    pub(crate) fn push(&self, wait: Wait) {
        self.inbox.lock().waits.push(wait);
        self.filled.notify_one();
    }

    /// Ends all waits of an ordinal with an error, and waits until that is done.
    pub(crate) fn abandon(&self, ordinal: Ordinal) {
        let (send, receive) = std::sync::mpsc::sync_channel(1);
        {
            let mut inbox = self.inbox.lock();
            if inbox.stop {
                return;
            }
            inbox.abandon.push((ordinal, send));
        }
        self.filled.notify_one();
        let _ = receive.recv();
    }

    /// Ends the thread.
    pub(crate) fn stop(&self) {
        self.inbox.lock().stop = true;
        self.filled.notify_one();
    }
}

/// Looks so often without a pause.
const EAGER: u32 = 100;
/// The pauses after that grow from the first to the second.
const PAUSES: (Duration, Duration) = (Duration::from_micros(5), Duration::from_micros(200));

/// The waiting thread.
pub(crate) fn run(core: &Core) {
    // Short pauses are meant to be short.
    // SAFETY: plain system call about this thread.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1, 0, 0, 0) };
    let mut open: Vec<Wait> = Vec::new();
    let mut looks = 0;
    loop {
        {
            let mut inbox = core.waits.inbox.lock();
            while open.is_empty() && inbox.waits.is_empty() && inbox.abandon.is_empty() && !inbox.stop {
                core.waits.filled.wait(&mut inbox);
                looks = 0;
            }
            if inbox.stop {
                return;
            }
            if !inbox.waits.is_empty() {
                looks = 0;
                open.append(&mut inbox.waits);
            }
            let abandon = std::mem::take(&mut inbox.abandon);
            drop(inbox);
            for (ordinal, done) in abandon {
                let error = Error::new(Code::ContextIsDestroyed, "The device was reset");
                for wait in open.extract_if(.., |wait| wait.ordinal == ordinal) {
                    (wait.then)(Err(error.clone()));
                }
                let _ = done.send(());
            }
        }
        if serve(core, &mut open) {
            looks = 0;
        } else if !open.is_empty() {
            looks += 1;
            pause(core, looks);
        }
    }
}

fn pause(core: &Core, looks: u32) {
    if looks < EAGER {
        std::thread::yield_now();
        return;
    }
    let pause = PAUSES.0.saturating_mul(1 << ((looks - EAGER) / 32).min(16)).min(PAUSES.1);
    let mut inbox = core.waits.inbox.lock();
    if inbox.waits.is_empty() && inbox.abandon.is_empty() && !inbox.stop {
        core.waits.filled.wait_for(&mut inbox, pause);
    }
}

/// Serves what can be served; false if that was nothing.
fn serve(core: &Core, open: &mut Vec<Wait>) -> bool {
    let mut outcomes: Vec<_> = open.iter().rev().map(|wait| reached(core, wait)).collect();
    let mut served = false;
    let mut at = 0;
    while let Some(outcome) = outcomes.pop() {
        if matches!(outcome, Ok(false)) {
            at += 1;
            continue;
        }
        let wait = open.remove(at);
        finish(core, wait, outcome.map(drop));
        served = true;
    }
    served
}

fn reached(core: &Core, wait: &Wait) -> Result<bool> {
    for marker in &wait.markers {
        if marker.is_gone() {
            continue;
        }
        core.enter(wait.ordinal)?;
        if !core.driver.event_is_done(marker.raw)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn finish(core: &Core, wait: Wait, outcome: Result<()>) {
    if let Err(error) = &outcome {
        core.keep(wait.ordinal, error.clone());
    }
    if let Ok(gpu) = core.gpu(wait.ordinal) {
        if wait.launches > 0 {
            gpu.launches.lock().over(wait.launches);
        }
        if let Some(marker) = wait.markers.last()
            && wait.tells
            && gpu.may_have_printed.load(SeqCst)
        {
            // The driver hands text out when it is waited for; asking is not enough.
            let _ = core.driver.event_synchronize(marker.raw);
            core.printed.forward(&*core.host);
        }
    }
    let told = wait.tells;
    (wait.then)(outcome.and_then(|()| if told { core.check(wait.ordinal).map(drop) } else { Ok(()) }));
}
