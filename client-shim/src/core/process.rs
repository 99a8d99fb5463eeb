//! The one [`Core`] of a process: when it comes to life, and how it ends.
//!
//! ```text
//!           first call              exit
//!   Unborn ───────────► Alive ───────────────► Over        calls answer Deinitialized
//!      │                  │
//!      │ fails            │ fork, in the child
//!      ▼                  ▼
//!   Failed             Orphan                              calls answer NotInitialized
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};
use rgpu_device::{AddressPlan, Device, DeviceInfo, Handle, LaunchLimits, Limit, Ordinal, Target};

use super::context::{Context, Primary};
use super::copy::Landing;
use super::device_heap::DeviceHeap;
use super::error::{self, Code, Error, Result};
use super::event::Event;
use super::host::HostSide;
use super::memory::MemoryMap;
use super::module::{Function, Kernel, Library, Module};
use super::registry::{NumberMap, Registry};
use super::session::Session;
use super::shared::SharedSpace;
use super::stream::Stream;
use super::virtual_memory::VirtualMemory;

const UNBORN: u8 = 0;
const ALIVE: u8 = 1;
const FAILED: u8 = 2;
const ORPHAN: u8 = 3;
const OVER: u8 = 4;

static STATE: AtomicU8 = AtomicU8::new(UNBORN);
static CORE: AtomicPtr<Core> = AtomicPtr::new(std::ptr::null_mut());
static BIRTH: Mutex<Option<Error>> = Mutex::new(None);
/// Set by [`use_in_process`].
static IN_PROCESS: AtomicBool = AtomicBool::new(false);

/// Everything that lives from the first CUDA call to the end of the process.
pub struct Core {
    pub(super) session: Session,
    /// The session's device, at hand.
    pub(super) device: Arc<dyn Device>,
    pub(super) plan: AddressPlan,
    pub(super) infos: Vec<DeviceInfo>,
    pub(super) host: Arc<HostSide>,
    pub(super) ordinals: Vec<PerDevice>,
    pub(super) shared: SharedSpace,
    pub(super) memory: MemoryMap,
    pub(super) virtual_memory: VirtualMemory,
    pub(super) landings: Mutex<Vec<Arc<Landing>>>,
    pub(super) contexts: Registry<Context>,
    pub(super) streams: Registry<Stream>,
    pub(super) events: Registry<Event>,
    pub(super) modules: Registry<Module>,
    pub(super) functions: Registry<Function>,
    pub(super) libraries: Registry<Library>,
    pub(super) kernels: Registry<Kernel>,
    /// Registered fat binaries as libraries, by their handle.
    pub(super) fat_binaries: RwLock<NumberMap<usize, Arc<Library>>>,
    next_handle: AtomicU64,
}

/// How much work a device was given, and how much of it is known to be finished.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct WorkCount {
    /// Pieces of work that were enqueued.
    pub enqueued: u64,
    /// So many, counted from the first, are finished.
    pub finished: u64,
    /// The last one that went to another stream than the legacy one.
    last_elsewhere: u64,
}

impl WorkCount {
    /// One more piece of work was enqueued.
    #[inline(always)]
    pub fn enqueued_in(&mut self, legacy: bool) {
        self.enqueued += 1;
        if !legacy {
            self.last_elsewhere = self.enqueued;
        }
    }

    /// Whether nothing can be unfinished.
    pub fn is_idle(&self) -> bool {
        self.finished >= self.enqueued
    }

    /// Everything up to `until` has finished in the legacy stream, or with `everywhere` in all streams.
    fn finish(&mut self, until: u64, everywhere: bool) {
        if everywhere || self.last_elsewhere <= self.finished {
            self.finished = self.finished.max(until);
        }
    }
}

/// What is kept for each device.
pub(super) struct PerDevice {
    /// Number of the sticky error, 0 if none.
    pub sticky: Arc<AtomicU32>,
    /// An asynchronous error that is not sticky, until somebody synchronises.
    pub pending: Arc<Mutex<Option<Error>>>,
    pub primary: Mutex<Primary>,
    pub heap: Mutex<DeviceHeap>,
    pub work: Mutex<WorkCount>,
    pub launch_limits: LaunchLimits,
    pub limits: Mutex<[Option<u64>; 3]>,
    /// Devices whose memory this one was given access to.
    pub peers: Mutex<Vec<Ordinal>>,
}

impl PerDevice {
    fn new(plan: rgpu_device::Range, info: &DeviceInfo) -> Self {
        Self {
            sticky: Arc::default(),
            pending: Arc::default(),
            primary: Mutex::new(Primary::default()),
            heap: Mutex::new(DeviceHeap::new(plan)),
            work: Mutex::default(),
            launch_limits: LaunchLimits::new(info),
            limits: Mutex::new([None; 3]),
            peers: Mutex::new(Vec::new()),
        }
    }
}

/// The process's core; the first call creates it from the environment.
///
/// Fails with [`Code::NoDevice`] where the environment names no device (said once on stderr), with the error of
/// connecting (remembered), with [`Code::NotInitialized`] in a child forked after the first CUDA call, and with
/// [`Code::Deinitialized`] once the process is ending.
pub fn current() -> Result<&'static Core> {
    if STATE.load(Ordering::Acquire) == ALIVE {
        // SAFETY: the pointer is set before the state becomes ALIVE, and what it points to is never freed.
        return Ok(unsafe { &*CORE.load(Ordering::Acquire) });
    }
    not_alive()
}

#[cold]
fn not_alive() -> Result<&'static Core> {
    not_alive_any_more()?;
    let mut failure = BIRTH.lock();
    if STATE.load(Ordering::Acquire) == UNBORN {
        match Core::open() {
            Ok(core) => {
                CORE.store(Box::into_raw(Box::new(core)), Ordering::Release);
                // SAFETY: registers a plain function; it stays loaded as this library does.
                unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
                STATE.store(ALIVE, Ordering::Release);
            }
            Err(error) => {
                error::say_once(&error.message);
                *failure = Some(error);
                STATE.store(FAILED, Ordering::Release);
            }
        }
    }
    match &*failure {
        Some(error) => Err(error.clone()),
        None if STATE.load(Ordering::Acquire) == ALIVE => {
            // SAFETY: as in `current`.
            Ok(unsafe { &*CORE.load(Ordering::Acquire) })
        }
        None => Err(Error::new(Code::Deinitialized, "The process is ending")),
    }
}

/// Fails where there can be no core any more.
fn not_alive_any_more() -> Result<()> {
    match STATE.load(Ordering::Acquire) {
        ORPHAN => Err(Error::new(
            Code::NotInitialized,
            "This process was forked after the first CUDA call; CUDA can't be used in it",
        )),
        OVER => Err(Error::new(Code::Deinitialized, "The process is ending")),
        _ => Ok(()),
    }
}

/// Whether there is a living core.
#[inline(always)]
pub(super) fn is_alive() -> bool {
    STATE.load(Ordering::Acquire) == ALIVE
}

/// The core if it is alive; creates nothing.
pub fn existing() -> Option<&'static Core> {
    // SAFETY: as in `current`.
    (STATE.load(Ordering::Acquire) == ALIVE).then(|| unsafe { &*CORE.load(Ordering::Acquire) })
}

/// Whether the process is ending: what comes now had better open nothing.
pub fn is_over() -> bool {
    STATE.load(Ordering::Acquire) == OVER
}

/// Has the core use a software GPU in this process, whatever the environment says. Fails with
/// [`Code::IllegalState`] where a server is in use already, and as [`current`] does in a forked child and at the
/// process's end.
pub fn use_in_process() -> Result<()> {
    let mut failure = BIRTH.lock();
    match STATE.load(Ordering::Acquire) {
        ALIVE if existing().is_some_and(|core| core.session.in_process) => Ok(()),
        ALIVE => Err(Error::new(Code::IllegalState, "A server's GPU is in use in this process already")),
        ORPHAN | OVER => not_alive_any_more(),
        _ => {
            IN_PROCESS.store(true, Ordering::Release);
            // What the environment asked for may have failed; this is something else.
            *failure = None;
            STATE.store(UNBORN, Ordering::Release);
            Ok(())
        }
    }
}

/// Whether [`use_in_process`] was called.
pub(super) fn is_told_in_process() -> bool {
    IN_PROCESS.load(Ordering::Acquire)
}

/// Whether this is a child that was forked after the first CUDA call.
pub(super) fn is_orphan() -> bool {
    STATE.load(Ordering::Acquire) == ORPHAN
}

/// Runs in a child after fork: what the parent has stays the parent's.
unsafe extern "C" fn in_child() {
    let _ = STATE.compare_exchange(ALIVE, ORPHAN, Ordering::AcqRel, Ordering::Acquire);
    rgpu_remote::trace::abandon();
}

/// Runs when the library is finalised, after the destructors of the program and of its other libraries.
extern "C" fn at_exit() {
    if STATE.compare_exchange(ALIVE, OVER, Ordering::AcqRel, Ordering::Acquire).is_err() {
        return;
    }
    // SAFETY: as in `current`.
    let core = unsafe { &*CORE.load(Ordering::Acquire) };
    error::guard_value((), || core.session.close());
    error::guard_value((), rgpu_remote::trace::close);
}

/// Whether an error says that GPU code cannot be used.
fn is_about_code(code: Code) -> bool {
    use Code::{InvalidImage, InvalidPtx, NoBinaryForGpu, NotSupported, UnsupportedPtxVersion};
    matches!(code, InvalidImage | InvalidPtx | NoBinaryForGpu | NotSupported | UnsupportedPtxVersion)
}

#[used]
#[unsafe(link_section = ".fini_array")]
static AT_EXIT: extern "C" fn() = at_exit;

impl Core {
    fn open() -> Result<Self> {
        Self::with_session(Session::open()?)
    }

    /// A core over a session. Tests make several.
    pub(super) fn with_session(session: Session) -> Result<Self> {
        let plan = session.plan.clone();
        let infos = session.infos.clone();
        if plan.devices.len() < infos.len() {
            return Err(Error::new(
                Code::SystemNotReady,
                "The device named no address range for some ordinal",
            ));
        }
        Ok(Self {
            device: session.device.clone(),
            host: session.host.clone(),
            ordinals: plan
                .devices
                .iter()
                .zip(&infos)
                .map(|(range, info)| PerDevice::new(*range, info))
                .collect(),
            shared: SharedSpace::new(plan.shared),
            memory: MemoryMap::default(),
            virtual_memory: VirtualMemory::default(),
            landings: Mutex::default(),
            contexts: Registry::new("context"),
            streams: Registry::new("stream"),
            events: Registry::new("event"),
            modules: Registry::new("module"),
            functions: Registry::new("function"),
            libraries: Registry::new("library"),
            kernels: Registry::new("kernel"),
            fat_binaries: RwLock::new(NumberMap::default()),
            next_handle: AtomicU64::new(rgpu_device::FIRST_STREAM),
            plan,
            infos,
            session,
        })
    }

    /// What executes the calls.
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// Whether host and device are in one process.
    pub fn is_in_process(&self) -> bool {
        self.session.in_process
    }

    /// A handle for the device that was never used before.
    pub(super) fn device_handle(&self) -> Handle {
        self.next_handle.fetch_add(1, Ordering::Relaxed)
    }

    /// What is kept for an ordinal that is known to exist.
    pub(super) fn of(&self, ordinal: Ordinal) -> &PerDevice {
        &self.ordinals[ordinal as usize]
    }

    /// The number of the sticky error of a device, 0 if it has none.
    pub fn sticky_code(&self, ordinal: Ordinal) -> u32 {
        self.ordinals.get(ordinal as usize).map_or(0, |device| device.sticky.load(Ordering::Relaxed))
    }

    /// Fails with the sticky error of a device.
    pub(super) fn check_sticky(&self, ordinal: Ordinal) -> Result<()> {
        match self.sticky_code(ordinal) {
            0 => Ok(()),
            code => Err(Code::from_number(code).into()),
        }
    }

    /// Remembers a sticky error on its way to the program.
    pub(super) fn note<T>(&self, ordinal: Ordinal, result: Result<T>) -> Result<T> {
        if let Err(error) = &result {
            self.note_error(ordinal, error);
        }
        result
    }

    #[cold]
    pub(super) fn note_error(&self, ordinal: Ordinal, error: &Error) {
        if !error.code.is_sticky() {
            if is_about_code(error.code) {
                // A module that nobody waited for could not be loaded: its user should read why.
                error::say_once(&error.message);
            }
            return;
        }
        super::fatbin::forget_functions();
        if error.code == Code::SystemNotReady {
            // Whoever noticed the loss has said why.
            for device in &self.ordinals {
                device.sticky.store(error.code as u32, Ordering::Relaxed);
            }
        } else {
            let before = self.of(ordinal).sticky.compare_exchange(
                0,
                error.code as u32,
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
            if before.is_ok() {
                error::say_once(&error.message);
            }
        }
    }

    /// Remembers the failure of something that the program has not waited for.
    pub(super) fn note_asynchronous(&self, ordinal: Ordinal, error: Error) {
        if error.code.is_sticky() {
            self.note_error(ordinal, &error);
        } else {
            error::log(&format!("asynchronous: {error}"));
            self.of(ordinal).pending.lock().get_or_insert(error);
        }
    }

    /// Work was put on a stream; to be called after the device has it, before the program's call returns.
    #[inline]
    pub(super) fn work_enqueued(&self, stream: &Stream) {
        self.of(stream.ordinal).work.lock().enqueued_in(stream.is_legacy());
    }

    /// The core itself put work on a device's legacy stream.
    pub(super) fn work_of_our_own(&self, ordinal: Ordinal) {
        self.of(ordinal).work.lock().enqueued += 1;
    }

    /// How much work the device was given.
    pub(super) fn enqueued(&self, ordinal: Ordinal) -> u64 {
        self.of(ordinal).work.lock().enqueued
    }

    /// Whether nothing that was enqueued on the device can be unfinished.
    pub(super) fn is_idle(&self, ordinal: Ordinal) -> bool {
        self.of(ordinal).work.lock().is_idle()
    }

    /// Everything up to `until` has finished, as far as `target` covers it.
    pub(super) fn work_finished(&self, ordinal: Ordinal, target: Target, until: u64) {
        let device = self.of(ordinal);
        match target {
            Target::Device(_) => device.work.lock().finish(until, true),
            Target::Stream(handle) if handle == Handle::from(ordinal) => {
                device.work.lock().finish(until, false);
            }
            Target::Stream(handle) => device.heap.lock().stream_finished(handle, until),
            Target::Event(_) => {}
        }
    }

    /// Waits for a target: its work is done, what it changed in mirrored memory is visible to the host. Asks nobody
    /// where all work is known to be finished.
    pub(super) fn wait(&self, ordinal: Ordinal, target: Target) -> Result<()> {
        let work = *self.of(ordinal).work.lock();
        if !work.is_idle() {
            let result = self.note(ordinal, self.device.synchronize_blocking(target));
            self.after_wait();
            result?;
            self.work_finished(ordinal, target, work.enqueued);
        }
        self.take_pending(ordinal)
    }

    /// Whether a target is finished. If so, what it changed in mirrored memory is visible to the host.
    pub(super) fn is_finished(&self, ordinal: Ordinal, target: Target) -> Result<bool> {
        self.check_sticky(ordinal)?;
        let work = *self.of(ordinal).work.lock();
        if !work.is_idle() {
            if !self.note(ordinal, self.device.query(target))? {
                return Ok(false);
            }
            self.after_wait();
            self.work_finished(ordinal, target, work.enqueued);
        }
        self.take_pending(ordinal)?;
        Ok(true)
    }

    /// Reports an asynchronous error once.
    pub(super) fn take_pending(&self, ordinal: Ordinal) -> Result<()> {
        self.check_sticky(ordinal)?;
        match self.of(ordinal).pending.lock().take() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// Waits for all work of the device (`cudaDeviceSynchronize`, `cuCtxSynchronize`).
    pub fn device_synchronize(&self, ordinal: Ordinal) -> Result<()> {
        crate::graph::capture::refuse_any()?;
        self.device_info(ordinal)?;
        self.check_sticky(ordinal)?;
        self.wait(ordinal, Target::Device(ordinal))
    }

    /// How many devices there are.
    pub fn device_count(&self) -> u32 {
        self.infos.len() as u32
    }

    /// What a device tells about itself; [`Code::InvalidDevice`] where there is none of this number.
    pub fn device_info(&self, ordinal: Ordinal) -> Result<&DeviceInfo> {
        self.infos
            .get(ordinal as usize)
            .ok_or_else(|| Error::new(Code::InvalidDevice, format!("There is no device {ordinal}")))
    }

    /// A limit's value.
    pub fn get_limit(&self, ordinal: Ordinal, limit: Limit) -> Result<u64> {
        self.device_info(ordinal)?;
        Ok(self.of(ordinal).limits.lock()[limit as usize].unwrap_or(match limit {
            Limit::StackSize => 1024,
            Limit::PrintfFifoSize => 1 << 20,
            Limit::MallocHeapSize => 8 << 20,
        }))
    }

    /// Sets a limit.
    pub fn set_limit(&self, ordinal: Ordinal, limit: Limit, value: u64) -> Result<()> {
        self.device_info(ordinal)?;
        self.note(ordinal, self.device.set_limit(ordinal, limit, value))?;
        self.of(ordinal).limits.lock()[limit as usize] = Some(value);
        Ok(())
    }

    /// Whether kernels of `from` may use memory of `to` (`cudaDeviceCanAccessPeer`).
    pub fn can_access_peer(&self, from: Ordinal, to: Ordinal) -> Result<bool> {
        self.device_info(from)?;
        self.device_info(to)?;
        Ok(from != to && self.session.are_together(from, to))
    }

    /// `cudaDeviceEnablePeerAccess`, from the current device to `peer`.
    pub fn enable_peer_access(&self, from: Ordinal, peer: Ordinal) -> Result<()> {
        if !self.can_access_peer(from, peer)? {
            if from != peer {
                let text = format!("Devices {from} and {peer} are on different servers: copy between them");
                return Err(Error::new(Code::PeerAccessUnsupported, text));
            }
            return Err(Error::new(Code::InvalidDevice, "A device is not its own peer"));
        }
        let mut peers = self.of(from).peers.lock();
        if peers.contains(&peer) {
            return Err(Code::PeerAccessAlreadyEnabled.into());
        }
        peers.push(peer);
        Ok(())
    }

    /// `cudaDeviceDisablePeerAccess`.
    pub fn disable_peer_access(&self, from: Ordinal, peer: Ordinal) -> Result<()> {
        self.can_access_peer(from, peer)?;
        let mut peers = self.of(from).peers.lock();
        let at = peers.iter().position(|p| *p == peer).ok_or(Code::PeerAccessNotEnabled)?;
        peers.swap_remove(at);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_legacy_stream_speaks_for_all_only_while_it_is_alone() {
        let mut work = WorkCount { enqueued: 3, finished: 0, last_elsewhere: 0 };
        work.finish(3, false);
        assert!(work.is_idle());
        work.enqueued = 5;
        work.last_elsewhere = 4;
        work.finish(5, false);
        assert_eq!(work.finished, 3);
        work.finish(4, true);
        assert_eq!(work.finished, 4);
        work.finish(5, false);
        assert!(work.is_idle());
    }
}
