//! Pacing launches, where the device's user may have only a share of its time.
//!
//! While there is a limit, each launch is put between two events that keep time; what lies between them is told to the
//! [`Pacer`]. Before the next launch the submitting thread waits until the pacer lets it go on. A launched kernel cannot be
//! stopped, so only a few are in the device's queue at a time, and what was used too much is paid back before the next one.
//! Kernels that execute side by side are counted once: time that was told already is not told again.
//!
//! Where there is no limit, no events are recorded; the time in which there was a launch that is not known to be over is
//! told now and then.

use super::core::Core;
use super::staging::Marker;
use rgpu_device::{Ordinal, Pacer};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// So many launches may be executing …
const MOST: usize = 16;
/// … and none that was submitted longer ago than this, when the next one comes.
const LONGEST: Duration = Duration::from_millis(5);
/// So many of those that are not over are looked at.
const LOOKED_AT: usize = 64;
/// How often it is looked whether a launch is over.
const LOOK: Duration = Duration::from_micros(100);

struct Timed {
    start: Arc<Marker>,
    end: Arc<Marker>,
    since: Instant,
}

/// The launches of one device that are being measured.
#[derive(Default)]
pub(crate) struct Meter {
    open: VecDeque<Timed>,
    /// The end of the latest that was told.
    last: Option<Arc<Marker>>,
    /// Of what the device counts as busy, what was told.
    told_ns: u64,
}

impl Meter {
    /// A launch was submitted between two events.
    pub(crate) fn submitted(&mut self, start: Arc<Marker>, end: Arc<Marker>) {
        self.open.push_back(Timed { start, end, since: Instant::now() });
    }

    /// Everything was abandoned.
    pub(crate) fn forget(&mut self) {
        self.open.clear();
        self.last = None;
    }

    /// Tells what is over, and says whether enough is being executed. Kernels of several streams end in any order.
    fn tell(&mut self, core: &Core, ordinal: Ordinal, pacer: &dyn Pacer) -> bool {
        let (mut at, mut started, mut long) = (0, 0, false);
        while let Some(timed) = self.open.get(at).filter(|_| at < LOOKED_AT) {
            let is_done = |marker: &Marker| core.driver.event_is_done(marker.raw);
            // A device that has failed, or was reset: whoever asks it next is told.
            let gone = timed.start.is_gone() || timed.end.is_gone();
            let (Ok(begun), Ok(over), false) = (is_done(&timed.start), is_done(&timed.end), gone) else {
                self.forget();
                return false;
            };
            if over {
                let Some(timed) = self.open.remove(at) else { return false };
                self.tell_one(core, ordinal, pacer, timed);
                continue;
            }
            started += usize::from(begun);
            long |= begun && timed.since.elapsed() > LONGEST;
            at += 1;
        }
        // What has not begun may be waiting for something that the program has yet to submit.
        long || started >= MOST
    }

    fn tell_one(&mut self, core: &Core, ordinal: Ordinal, pacer: &dyn Pacer, timed: Timed) {
        let between = |from: &Marker, to: &Marker| core.driver.event_elapsed(from.raw, to.raw).ok();
        let whole = between(&timed.start, &timed.end).unwrap_or(0.0);
        let since_last = self.last.as_ref().and_then(|last| between(last, &timed.end));
        let (ms, is_later) = since_last.map_or((whole, true), |ms| (whole.min(ms), ms > 0.0));
        if ms > 0.0 {
            pacer.used(ordinal, (f64::from(ms) * 1e6) as u64);
        }
        if is_later {
            self.last = Some(timed.end);
        }
    }
}

/// Before a launch: waits until it may be submitted. Says whether it is to be measured.
pub(crate) fn before(core: &Core, ordinal: Ordinal) -> bool {
    let Some(pacer) = core.pacer.as_deref() else { return false };
    let Ok(gpu) = core.gpu(ordinal) else { return false };
    while pacer.is_limited(ordinal) {
        let full = {
            // The context may be another one after a reset.
            if core.enter(ordinal).is_err() {
                return false;
            }
            gpu.meter.lock().tell(core, ordinal, pacer)
        };
        let delay = pacer.delay(ordinal);
        if !full && delay.is_zero() {
            return true;
        }
        // Shares change; and a reset must not wait for long.
        std::thread::sleep(if full { LOOK } else { delay.min(Duration::from_millis(20)) });
    }
    false
}

/// Tells what has been used by now. `busy_ns` is the time in which there was a launch that is not known to be over.
pub(crate) fn tell(core: &Core, ordinal: Ordinal, busy_ns: u64) {
    let (Some(pacer), Ok(gpu)) = (core.pacer.as_deref(), core.gpu(ordinal)) else { return };
    let mut meter = gpu.meter.lock();
    let measured = pacer.is_limited(ordinal) || !meter.open.is_empty();
    let more = busy_ns.saturating_sub(std::mem::replace(&mut meter.told_ns, busy_ns));
    if !measured {
        pacer.used(ordinal, more);
    } else if core.enter(ordinal).is_ok() {
        meter.tell(core, ordinal, pacer);
    }
}
