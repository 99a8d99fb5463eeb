//! A limit to how long a kernel may run, where one was set ([`Config::kernel_limit`](super::Config)).
//!
//! A thread looks at the kernels that are executing. One that has run for longer is ended: a signal makes each worker that is in the
//! midst of one of its blocks leave the block, which tells where it was. As with the [governor](super::governor), the signal counts
//! only while compiled code runs, which holds no locks; elsewhere it is ignored, and sent again.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use rgpu_device::{Code, Error, Result};

use super::fault;
use super::grid::Grid;
use super::shared::Shared;

/// How long workers have for telling where a kernel was before it is ended without.
const PATIENCE: Duration = Duration::from_secs(1);

/// The workers that can be stopped, and the kernel that is to be.
pub(super) struct Watchdog {
    limit: Duration,
    /// The number of the launch that is to end; 0 for none.
    overdue: AtomicU64,
    workers: Mutex<Vec<libc::pthread_t>>,
}

/// A worker's place; it is left when this is dropped.
pub(super) struct Place(Arc<Watchdog>);

impl Drop for Place {
    fn drop(&mut self) {
        // SAFETY: plain call.
        let own = unsafe { libc::pthread_self() };
        self.0.workers.lock().retain(|&worker| worker != own);
    }
}

impl Watchdog {
    /// One that lets kernels run for so long.
    pub(super) fn new(limit: Duration) -> Arc<Self> {
        fault::install_end();
        Arc::new(Self { limit, overdue: AtomicU64::new(0), workers: Mutex::default() })
    }

    /// The calling thread becomes a worker.
    pub(super) fn sit(self: &Arc<Self>) -> Place {
        // SAFETY: plain call.
        self.workers.lock().push(unsafe { libc::pthread_self() });
        Place(self.clone())
    }

    /// Which launch is to end.
    pub(super) fn overdue(&self) -> *const AtomicU64 {
        &raw const self.overdue
    }

    /// What the limit is, in words.
    pub(super) fn words(&self) -> String {
        format!("Time limit of {:?} exceeded", self.limit)
    }

    /// Starts the thread. It ends with the device.
    ///
    /// # Errors
    /// [`Code::OperatingSystem`] where there can be no thread.
    pub(super) fn start(self: &Arc<Self>, shared: &Arc<Shared>) -> Result<()> {
        let (own, shared) = (self.clone(), Arc::downgrade(shared));
        let body = move || own.run(&shared);
        let thread =
            std::thread::Builder::new().name("rgpu-watchdog".into()).stack_size(128 << 10).spawn(body);
        thread.map(drop).map_err(|e| Error::new(Code::OperatingSystem, format!("Cannot start a thread: {e}")))
    }

    fn run(&self, shared: &Weak<Shared>) {
        let tick = (self.limit / 16).clamp(Duration::from_millis(5), Duration::from_millis(100));
        loop {
            std::thread::sleep(tick);
            let Some(shared) = shared.upgrade() else { return };
            if shared.lock().is_stopped() {
                return;
            }
            let late = |grid: &Arc<Grid>| grid.has_begun() && grid.begun().elapsed() > self.limit;
            let Some(grid) = shared.executing(late) else {
                self.overdue.store(0, Ordering::Release);
                continue;
            };
            self.overdue.store(grid.id, Ordering::Release);
            {
                // Under the lock, so that none of the threads ends meanwhile.
                let workers = self.workers.lock();
                for &worker in &*workers {
                    // SAFETY: a thread that lives; the handler of the signal is installed.
                    unsafe { libc::pthread_kill(worker, fault::end_signal()) };
                }
            }
            if grid.begun().elapsed() > self.limit + PATIENCE && !grid.aborted() {
                let what = format!("{} in kernel {}", self.words(), grid.kernel.name);
                if grid.abort(Some(Error::new(Code::LaunchTimeout, what))) {
                    shared.grid_done(&grid);
                }
            }
        }
    }
}
