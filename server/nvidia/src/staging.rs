//! Events and pinned buffers that are used again and again.

use super::driver::Driver;
use super::sys::Event;
use parking_lot::{Condvar, Mutex};
use rgpu_device::{Code, Error, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

/// Bytes of a large buffer, which is how much of a copy moves at once.
pub(crate) const LARGE: usize = 1 << 20;
/// Bytes of a small buffer.
pub(crate) const SMALL: usize = 64 << 10;
/// The most bytes of large buffers; whoever needs more waits.
const MAX_LARGE: usize = 1 << 30;
/// The most bytes of small buffers.
const MAX_SMALL: usize = 64 << 20;

/// Events of one context, with or without timing.
pub(crate) struct Markers {
    driver: Arc<Driver>,
    timing: bool,
    free: Mutex<Vec<Event>>,
    /// Whether the context is gone, and the events with it.
    gone: AtomicBool,
}

impl Markers {
    /// None yet.
    pub(crate) fn new(driver: Arc<Driver>, timing: bool) -> Arc<Self> {
        Arc::new(Self { driver, timing, free: Mutex::default(), gone: AtomicBool::new(false) })
    }

    /// An event; the context must be current.
    pub(crate) fn take(self: &Arc<Self>) -> Result<Arc<Marker>> {
        let raw = match self.free.lock().pop() {
            Some(raw) => raw,
            None => self.driver.event_create(self.timing)?,
        };
        Ok(Arc::new(Marker { home: self.clone(), raw }))
    }

    /// The context is gone.
    pub(crate) fn forget(&self) {
        self.gone.store(true, SeqCst);
        self.free.lock().clear();
    }
}

/// A recorded event. Nobody else uses it as long as somebody has it.
pub(crate) struct Marker {
    home: Arc<Markers>,
    /// The driver's event.
    pub raw: Event,
}

impl Marker {
    /// Whether its context is gone.
    pub(crate) fn is_gone(&self) -> bool {
        self.home.gone.load(SeqCst)
    }
}

impl Drop for Marker {
    fn drop(&mut self) {
        if !self.is_gone() {
            self.home.free.lock().push(self.raw);
        }
    }
}

#[derive(Default)]
struct Buffers {
    small: Vec<usize>,
    large: Vec<usize>,
    bytes_small: usize,
    bytes_large: usize,
}

/// Pinned buffers of one context.
pub(crate) struct Staging {
    driver: Arc<Driver>,
    buffers: Mutex<Buffers>,
    returned: Condvar,
    gone: AtomicBool,
}

impl Staging {
    /// None yet.
    pub(crate) fn new(driver: Arc<Driver>) -> Arc<Self> {
        Arc::new(Self {
            driver,
            buffers: Mutex::default(),
            returned: Condvar::new(),
            gone: AtomicBool::new(false),
        })
    }

    /// A buffer for so many bytes, at most [`LARGE`]; the context must be current. Waits when there are many in
    /// use: what they are used for is under way already.
    pub(crate) fn take(self: &Arc<Self>, bytes: usize) -> Result<Buffer> {
        let small = bytes <= SMALL;
        let size = if small { SMALL } else { LARGE };
        let mut buffers = self.buffers.lock();
        loop {
            if self.gone.load(SeqCst) {
                return Err(Error::new(Code::ContextIsDestroyed, "The device was reset"));
            }
            let free = if small { &mut buffers.small } else { &mut buffers.large };
            if let Some(at) = free.pop() {
                return Ok(Buffer { home: self.clone(), at: at as *mut u8, size });
            }
            let (used, most) = match small {
                true => (&mut buffers.bytes_small, MAX_SMALL),
                false => (&mut buffers.bytes_large, MAX_LARGE),
            };
            if *used + size <= most {
                match self.driver.host_alloc(size) {
                    Ok(at) => {
                        *used += size;
                        return Ok(Buffer { home: self.clone(), at, size });
                    }
                    Err(e) if *used == 0 || e.code != Code::OutOfMemory => return Err(e),
                    Err(_) => {}
                }
            }
            self.returned.wait(&mut buffers);
        }
    }

    /// Frees everything, because the context is going. To be called when no buffer is in use.
    pub(crate) fn forget(&self) {
        self.gone.store(true, SeqCst);
        let mut buffers = self.buffers.lock();
        let all: Vec<usize> = buffers.small.drain(..).collect();
        for at in all.into_iter().chain(buffers.large.drain(..)) {
            // Failing keeps memory until the context goes, which is about to happen.
            let _ = self.driver.host_free(at as *mut u8);
        }
        self.returned.notify_all();
    }
}

/// A pinned buffer. Goes back when dropped.
pub(crate) struct Buffer {
    home: Arc<Staging>,
    /// Its first byte.
    pub at: *mut u8,
    size: usize,
}

// SAFETY: the buffer is plain memory that its owner alone uses.
unsafe impl Send for Buffer {}

impl Buffer {
    /// Its first bytes.
    pub(crate) fn bytes(&self, len: usize) -> &[u8] {
        // SAFETY: the driver gave so many bytes, zeroed or written; the device writes them no more.
        unsafe { std::slice::from_raw_parts(self.at, len.min(self.size)) }
    }

    /// Its first bytes, to be written.
    pub(crate) fn bytes_mut(&mut self, len: usize) -> &mut [u8] {
        // SAFETY: as above, and nobody else has it.
        unsafe { std::slice::from_raw_parts_mut(self.at, len.min(self.size)) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let mut buffers = self.home.buffers.lock();
        if self.home.gone.load(SeqCst) {
            // The context took it along.
            return;
        }
        let small = self.size == SMALL;
        if small { &mut buffers.small } else { &mut buffers.large }.push(self.at as usize);
        self.home.returned.notify_one();
    }
}
