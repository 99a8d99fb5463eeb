//! What a device asks of the application: printing, reading mirrored memory, calling host functions.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, OnceLock};

use parking_lot::{Mutex, RwLock};
use rgpu_control::kept::Folder;
use rgpu_device::{Check, Device, Finding, Host};

use super::check::Reports;
use super::error::{self, Code, Error, Result};
use super::registry::NumberMap;
use rgpu_remote::Application;
use rgpu_remote::threads::spawn_quiet;

unsafe extern "C" {
    /// The program's own standard output.
    static stdout: *mut libc::FILE;
}

/// Keeps a stream where it has got to a host function, until this is dropped.
pub(crate) struct Hold {
    id: u64,
    device: Arc<dyn Device>,
    waiting: Arc<AtomicUsize>,
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.waiting.fetch_sub(1, Ordering::AcqRel);
        if let Err(error) = self.device.host_func_done(self.id) {
            error::log(&format!("host function: {error}"));
        }
    }
}

/// What to do when a stream has got to a host function: it gets the status of the device, a [`Code`] number, and what
/// keeps the stream there.
pub(crate) type Reached = Box<dyn FnOnce(u32, Hold) + Send>;

/// A host function that waits for its stream.
pub(crate) struct HostFunction {
    /// The function.
    pub function: Reached,
    /// Asks for the status when the time has come.
    pub status: Box<dyn Fn() -> u32 + Send>,
    /// Not to be called after an error.
    pub only_if_well: bool,
}

/// A run of mirrored memory: where it lies on the host.
#[derive(Debug, Clone, Copy)]
struct Mirror {
    size: u64,
    host: u64,
}

/// Has what finished work changed in mirrored memory sent here, for [`Device::collect_shared_writes`] to hand out.
pub(super) type Pull = Box<dyn Fn() + Send + Sync>;

/// All mirrored memory, by the device's address.
#[derive(Default)]
struct Mirrors(RwLock<BTreeMap<u64, Mirror>>);

impl Mirrors {
    fn store(&self, addr: u64, bytes: &[u8]) {
        let mirrors = self.0.read();
        let Some((&base, mirror)) = mirrors.range(..=addr).next_back() else { return };
        let offset = addr - base;
        if offset >= mirror.size {
            return;
        }
        let len = (bytes.len() as u64).min(mirror.size - offset) as usize;
        // SAFETY: the mirror is registered, so its host copy is mapped, and the lock keeps it so.
        unsafe { std::ptr::copy(bytes.as_ptr(), (mirror.host + offset) as *mut u8, len) };
    }
}

/// The application's side of a session.
pub(crate) struct HostSide {
    device: OnceLock<Arc<dyn Device>>,
    pull: Arc<OnceLock<Pull>>,
    mirrors: Arc<Mirrors>,
    functions: Mutex<NumberMap<u64, HostFunction>>,
    next_function: AtomicU64,
    waiting_functions: Arc<AtomicUsize>,
    caller: Mutex<Option<Sender<(u64, HostFunction)>>>,
    /// Where machine code is kept for later programs, if it is.
    code: Option<Folder>,
    /// Where it is written what was found wrong with kernels, if they are looked at.
    reports: Option<Reports>,
}

impl HostSide {
    /// An application's side without a device yet.
    pub(crate) fn new() -> Self {
        Self {
            device: OnceLock::new(),
            pull: Arc::default(),
            mirrors: Arc::default(),
            functions: Mutex::default(),
            next_function: AtomicU64::new(1),
            waiting_functions: Arc::default(),
            caller: Mutex::new(None),
            code: None,
            reports: None,
        }
    }

    /// The same, where machine code is kept in a folder, if it is.
    #[cfg(feature = "in-process")]
    pub(super) fn keep_code_in(self, code: Option<Folder>) -> Self {
        Self { code, ..self }
    }

    /// The same, where kernels are looked at for that, if for anything.
    pub(super) fn report(self, check: Option<Check>) -> Self {
        Self { reports: check.map(|check| Reports::new(check.limit)), ..self }
    }

    /// The program ends, and the device has been told so: nothing more will be found.
    pub(super) fn end_reports(&self, told: &Result<()>) {
        match (&self.reports, told) {
            (None, _) => {}
            (Some(reports), Ok(())) => reports.end(),
            (Some(reports), Err(why)) => reports.incomplete(why),
        }
    }

    /// Tells it whom to answer.
    pub(crate) fn attach(&self, device: Arc<dyn Device>) {
        let _ = self.device.set(device);
    }

    /// Tells it how to have the device's changes sent at a time when nothing was waited for.
    pub(crate) fn set_pull(&self, pull: Pull) {
        let _ = self.pull.set(pull);
    }

    /// Mirrored memory at `addr` has its host copy at `host` (the same address, or memory that the program registered).
    /// Both are page aligned.
    pub(crate) fn add_mirror(&self, addr: u64, size: u64, host: u64) {
        self.mirrors.0.write().insert(addr, Mirror { size, host });
    }

    /// The mirrored memory at `addr` is gone: nobody touches its host copy after this.
    pub(crate) fn remove_mirror(&self, addr: u64) {
        self.mirrors.0.write().remove(&addr);
    }

    /// How many host functions were enqueued and have not returned.
    pub(crate) fn waiting_functions(&self) -> usize {
        self.waiting_functions.load(Ordering::Acquire)
    }

    /// Keeps a host function until its stream gets there. The result is its id.
    pub(crate) fn keep_function(&self, function: HostFunction) -> u64 {
        let id = self.next_function.fetch_add(1, Ordering::Relaxed);
        self.waiting_functions.fetch_add(1, Ordering::AcqRel);
        self.functions.lock().insert(id, function);
        id
    }

    /// Forgets a host function that could not be enqueued.
    pub(crate) fn drop_function(&self, id: u64) {
        if self.functions.lock().remove(&id).is_some() {
            self.waiting_functions.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// The thread that calls host functions, one after another.
    fn caller(&self) -> Option<Sender<(u64, HostFunction)>> {
        let mut caller = self.caller.lock();
        if caller.is_none() {
            let device = self.device.get()?.clone();
            let (send, receive) = channel::<(u64, HostFunction)>();
            let waiting = self.waiting_functions.clone();
            let (pull, mirrors) = (self.pull.clone(), self.mirrors.clone());
            let spawned = spawn_quiet("rgpu-host-func", move || {
                for (id, call) in receive {
                    if !mirrors.0.read().is_empty() {
                        // The function may look at what kernels before it have written.
                        if let Some(pull) = pull.get() {
                            pull();
                        }
                        device.collect_shared_writes(&mut |addr, bytes| mirrors.store(addr, bytes));
                    }
                    let hold = Hold { id, device: device.clone(), waiting: waiting.clone() };
                    let status = (call.status)();
                    if status == 0 || !call.only_if_well {
                        error::guard_value((), || (call.function)(status, hold));
                    }
                }
            });
            if let Err(e) = spawned {
                error::say(&format!("cannot start the thread for host functions: {e}"));
                return None;
            }
            *caller = Some(send);
        }
        caller.clone()
    }
}

impl Host for HostSide {
    fn print(&self, text: &[u8]) {
        // SAFETY: `stdout` is the C library's; the buffer is valid for its length.
        unsafe { libc::fwrite(text.as_ptr().cast::<c_void>(), 1, text.len(), stdout) };
    }

    fn fetch(&self, addr: u64, buf: &mut [u8]) -> Result<()> {
        let mirrors = self.mirrors.0.read();
        let found = mirrors.range(..=addr).next_back().filter(|(base, mirror)| {
            let offset = addr - **base;
            offset <= mirror.size && buf.len() as u64 <= mirror.size - offset
        });
        let Some((base, mirror)) = found else {
            return Err(Error::new(Code::IllegalAddress, format!("{addr:#x} is no mapped host memory")));
        };
        // SAFETY: the mirror is registered, so its host copy is mapped, and the lock keeps it so. The last page of
        // memory that the program registered may hold anything else of the heap, `buf` included: hence no
        // `nonoverlapping`.
        unsafe {
            std::ptr::copy((mirror.host + (addr - base)) as *const u8, buf.as_mut_ptr(), buf.len());
        }
        Ok(())
    }

    fn host_func(&self, id: u64) {
        let Some(function) = self.functions.lock().remove(&id) else { return };
        match self.caller() {
            Some(caller) => drop(caller.send((id, function))),
            None => {
                self.waiting_functions.fetch_sub(1, Ordering::AcqRel);
            }
        }
    }

    fn found(&self, finding: Finding<'_>) {
        if let Some(reports) = &self.reports {
            reports.found(finding);
        }
    }

    fn kept_code(&self, name: &[u8; 32]) -> Option<Vec<u8>> {
        let read = self.code.as_ref()?.read(name);
        read.unwrap_or_else(|e| {
            error::log(&format!("a compiled kernel is compiled again: {e}"));
            None
        })
    }

    fn keep_code(&self, name: &[u8; 32], code: &[u8]) {
        if let Some(folder) = &self.code
            && let Err(e) = folder.write(name, code)
        {
            error::log(&format!("a compiled kernel is not kept: {e}"));
        }
    }
}

impl Application for HostSide {
    fn store_mirrored(&self, addr: u64, bytes: &[u8]) {
        self.mirrors.store(addr, bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mirrors_are_read_and_written_within_bounds() {
        let host = HostSide::new();
        let mut memory = vec![7u8; 4096];
        host.add_mirror(0x10000, 4096, memory.as_mut_ptr() as u64);
        let mut buf = [0u8; 4096];
        host.fetch(0x10000, &mut buf).unwrap();
        assert_eq!(buf, [7; 4096]);
        host.store_mirrored(0x10000 + 4094, &[1, 2, 3, 4]);
        assert_eq!(memory[4092..], [7, 7, 1, 2]);
        host.store_mirrored(0xF000, &[9; 16]);
        assert_eq!(host.fetch(0x11000, &mut buf).unwrap_err().code, Code::IllegalAddress);
        assert_eq!(host.fetch(0x0, &mut buf).unwrap_err().code, Code::IllegalAddress);
        host.remove_mirror(0x10000);
        assert_eq!(host.fetch(0x10000, &mut buf).unwrap_err().code, Code::IllegalAddress);
    }
}
