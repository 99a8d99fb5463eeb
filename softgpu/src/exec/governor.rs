//! Holding workers back, where the device's user may have only a share of its time.
//!
//! Device time is the processor time of the workers, divided by their number. A thread, the *governor*, reads the workers'
//! clocks every few milliseconds while they work, tells the [`Pacer`], and closes the gate of an ordinal that has to be left
//! alone for a while. Workers look at the gate between blocks. A worker in the midst of a block, perhaps of a kernel that
//! never ends, is stopped by a signal: its handler waits at the gate. It does so only while compiled code runs, which holds
//! no locks; elsewhere the signal is ignored, and sent again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use rgpu_device::{Code, Error, Ordinal, Pacer, Result};

/// How often the clocks are read where there is a limit. By so much the share may be exceeded before it is paid back.
const TICK: Duration = Duration::from_millis(2);
/// How often they are read where there is none.
const UNLIMITED_TICK: Duration = Duration::from_millis(20);
/// A gate is looked at again after this time at the latest: shares are changed now and then.
const LOOK: Duration = Duration::from_millis(20);

/// What is in front of an ordinal.
#[derive(Default)]
struct Gate {
    /// 1 where it is closed. A futex.
    closed: AtomicU32,
}

impl Gate {
    /// Waits until it is open. Nothing is done here that a signal handler may not do.
    fn wait(&self) {
        while self.closed.load(SeqCst) != 0 {
            let patience = libc::timespec { tv_sec: 1, tv_nsec: 0 };
            let operation = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
            // SAFETY: the word and the time are valid; the call does nothing else to memory.
            unsafe {
                libc::syscall(libc::SYS_futex, self.closed.as_ptr(), operation, 1, &raw const patience)
            };
        }
    }

    fn open(&self) {
        if self.closed.swap(0, SeqCst) != 0 {
            let operation = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
            // SAFETY: as above.
            unsafe { libc::syscall(libc::SYS_futex, self.closed.as_ptr(), operation, i32::MAX) };
        }
    }
}

/// What a worker did since it was last looked at.
struct Account {
    ordinal: Ordinal,
    /// The worker's clock, as far as it has been told.
    told: u64,
}

/// A worker, as the governor sees it.
pub(super) struct Seat {
    gates: Arc<[Gate]>,
    thread: libc::pthread_t,
    clock: libc::clockid_t,
    /// What it works for.
    ordinal: AtomicU32,
    account: Mutex<Account>,
    working: AtomicBool,
    /// Whether it waits at a gate.
    parked: AtomicBool,
}

impl Seat {
    /// Waits at the gate of what the worker is doing. May be called by a signal handler on the worker's thread.
    pub(super) fn wait(&self) {
        if let Some(gate) = self.gates.get(self.ordinal.load(Relaxed) as usize)
            && gate.closed.load(Relaxed) != 0
        {
            self.parked.store(true, SeqCst);
            gate.wait();
            self.parked.store(false, SeqCst);
        }
    }

    fn clock_ns(&self) -> Option<u64> {
        let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `now` is a valid place for the answer. The thread lives as long as its seat is taken.
        let known = unsafe { libc::clock_gettime(self.clock, &mut now) } == 0;
        known.then(|| now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
    }

    /// Tells a pacer what the worker has used since this was last done.
    fn tell(&self, pacer: &dyn Pacer, workers: u64) {
        let mut account = self.account.lock();
        self.tell_locked(&mut account, pacer, workers);
    }

    fn tell_locked(&self, account: &mut Account, pacer: &dyn Pacer, workers: u64) {
        let Some(now) = self.clock_ns() else { return };
        let share = now.saturating_sub(account.told) / workers;
        if share > 0 {
            // What does not divide is told the next time.
            account.told += share * workers;
            pacer.used(account.ordinal, share);
        }
    }
}

/// Holds the workers of one software GPU back.
pub(super) struct Governor {
    pacer: Arc<dyn Pacer>,
    workers: u64,
    gates: Arc<[Gate]>,
    seats: Mutex<Vec<Arc<Seat>>>,
    /// Workers that have something to do.
    working: AtomicUsize,
    asleep: AtomicBool,
    sleep: Mutex<()>,
    wake: Condvar,
    stop: AtomicBool,
}

/// In a clock's number: of a single thread, as the scheduler counts.
const PER_THREAD_SCHEDULED: libc::clockid_t = 4 | 2;

impl Governor {
    /// One for a device with so many ordinals and workers. Its thread ends with [`Governor::stop`].
    pub(super) fn start(pacer: Arc<dyn Pacer>, devices: u32, workers: usize) -> Result<Arc<Self>> {
        super::fault::install_hold();
        let governor = Arc::new(Self {
            pacer,
            workers: workers.max(1) as u64,
            gates: (0..devices).map(|_| Gate::default()).collect(),
            seats: Mutex::default(),
            working: AtomicUsize::new(0),
            asleep: AtomicBool::new(false),
            sleep: Mutex::default(),
            wake: Condvar::new(),
            stop: AtomicBool::new(false),
        });
        let own = governor.clone();
        let body = move || own.run();
        let thread =
            std::thread::Builder::new().name("rgpu-governor".into()).stack_size(128 << 10).spawn(body);
        match thread {
            Ok(_) => Ok(governor),
            Err(e) => Err(Error::new(Code::OperatingSystem, format!("Cannot start a thread: {e}"))),
        }
    }

    /// The calling thread becomes a worker.
    pub(super) fn sit(&self) -> Arc<Seat> {
        // SAFETY: plain calls that cannot fail.
        let (thread, number) = unsafe { (libc::pthread_self(), libc::syscall(libc::SYS_gettid)) };
        // The kernel's number for the clock of a thread's processor time (clock_getcpuclockid(3)); the C library's function
        // for it has a symbol version that old systems lack.
        let clock = (!(number as libc::clockid_t) << 3) | PER_THREAD_SCHEDULED;
        let seat = Arc::new(Seat {
            gates: self.gates.clone(),
            thread,
            clock,
            ordinal: AtomicU32::new(0),
            account: Mutex::new(Account { ordinal: 0, told: 0 }),
            working: AtomicBool::new(false),
            parked: AtomicBool::new(false),
        });
        self.seats.lock().push(seat.clone());
        seat
    }

    /// The calling worker's thread ends.
    pub(super) fn leave(&self, seat: &Arc<Seat>) {
        seat.tell(&*self.pacer, self.workers);
        self.seats.lock().retain(|other| !Arc::ptr_eq(other, seat));
    }

    /// The worker has something to do.
    pub(super) fn work(&self, seat: &Seat) {
        if !seat.working.swap(true, SeqCst) {
            self.working.fetch_add(1, SeqCst);
            if self.asleep.load(SeqCst) {
                drop(self.sleep.lock());
                self.wake.notify_one();
            }
        }
    }

    /// The worker has nothing to do.
    pub(super) fn rest(&self, seat: &Seat) {
        if seat.working.swap(false, SeqCst) {
            self.working.fetch_sub(1, SeqCst);
        }
    }

    /// The worker goes on with something of this ordinal, as soon as it may.
    pub(super) fn enter(&self, seat: &Seat, ordinal: Ordinal) {
        if seat.ordinal.load(Relaxed) != ordinal {
            let mut account = seat.account.lock();
            seat.tell_locked(&mut account, &*self.pacer, self.workers);
            account.ordinal = ordinal;
            seat.ordinal.store(ordinal, Relaxed);
        }
        seat.wait();
    }

    /// A kernel was executed to its end.
    pub(super) fn launched(&self, ordinal: Ordinal) {
        self.pacer.launched(ordinal, 1);
    }

    /// Tells the pacer what has been used by now.
    pub(super) fn tell(&self) {
        for seat in self.seats.lock().iter() {
            seat.tell(&*self.pacer, self.workers);
        }
    }

    /// Opens all gates for good.
    pub(super) fn stop(&self) {
        self.stop.store(true, SeqCst);
        self.gates.iter().for_each(Gate::open);
        drop(self.sleep.lock());
        self.wake.notify_one();
    }

    fn run(&self) {
        let mut next = TICK;
        loop {
            self.rest_until_needed(next);
            self.tell();
            if self.stop.load(SeqCst) {
                self.gates.iter().for_each(Gate::open);
                return;
            }
            next = self.mind_gates();
        }
    }

    /// Waits for a while, and then as long as no worker has anything to do.
    fn rest_until_needed(&self, time: Duration) {
        std::thread::sleep(time);
        let mut sleep = self.sleep.lock();
        self.asleep.store(true, SeqCst);
        if self.working.load(SeqCst) == 0 && !self.stop.load(SeqCst) {
            self.tell();
            while self.working.load(SeqCst) == 0 && !self.stop.load(SeqCst) {
                self.wake.wait(&mut sleep);
            }
        }
        self.asleep.store(false, SeqCst);
    }

    /// Opens and closes gates; says when to do so again.
    fn mind_gates(&self) -> Duration {
        let (mut next, mut limited) = (LOOK, false);
        for seat in self.seats.lock().iter().filter(|seat| seat.working.load(SeqCst)) {
            self.pacer.wanted(seat.ordinal.load(Relaxed));
        }
        for (ordinal, gate) in (0..).zip(self.gates.iter()) {
            let delay = match self.pacer.is_limited(ordinal) {
                true => self.pacer.delay(ordinal),
                false => Duration::ZERO,
            };
            limited |= self.pacer.is_limited(ordinal);
            if delay.is_zero() {
                gate.open();
            } else {
                gate.closed.store(1, SeqCst);
                next = next.min(delay);
            }
        }
        let mut at_large = false;
        for seat in self.seats.lock().iter() {
            if !seat.working.load(SeqCst) || seat.parked.load(SeqCst) {
                continue;
            }
            at_large = true;
            let gate = self.gates.get(seat.ordinal.load(Relaxed) as usize);
            if gate.is_some_and(|gate| gate.closed.load(SeqCst) != 0) {
                // SAFETY: a thread whose seat is taken lives, and has a handler for the signal.
                unsafe { libc::pthread_kill(seat.thread, super::fault::hold_signal()) };
            }
        }
        match (limited, at_large) {
            (true, true) => next.min(TICK),
            (true, false) => next,
            (false, _) => UNLIMITED_TICK,
        }
    }
}
