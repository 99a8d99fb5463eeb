//! The devices of a session: what each was given to do, how far it is, and what went wrong.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};
use rgpu_device::{AddressPlan, Device, DeviceInfo, Handle, LaunchLimits, Limit, Ordinal, Range, Target};

use super::device_heap::DeviceHeap;
use super::error::{self, Code, Error, Result};
use super::generation;
use super::host::HostSide;
use super::session::Session;
use super::shared::SharedSpace;
use super::stream::Stream;
use super::work::WorkCount;

/// What is kept for one device.
struct DeviceState {
    /// Number of the sticky error, 0 if none.
    sticky: AtomicU32,
    /// An asynchronous error that is not sticky, until somebody synchronises.
    pending: Mutex<Option<Error>>,
    /// Where in its range its allocations lie.
    heap: Mutex<DeviceHeap>,
    work: Mutex<WorkCount>,
    /// What it can launch at most.
    launch_limits: LaunchLimits,
    /// Limits that the program has set, by [`Limit`].
    limits: Mutex<[Option<u64>; 3]>,
    /// Devices whose memory this one was given access to.
    peers: Mutex<Vec<Ordinal>>,
    /// Versions of the mathematical libraries that were asked for, by the library's number.
    libraries: Mutex<BTreeMap<u32, Result<u32>>>,
}

impl DeviceState {
    fn new(range: Range, info: &DeviceInfo) -> Self {
        Self {
            sticky: AtomicU32::new(0),
            pending: Mutex::default(),
            heap: Mutex::new(DeviceHeap::new(range)),
            work: Mutex::default(),
            launch_limits: LaunchLimits::new(info),
            limits: Mutex::new([None; 3]),
            peers: Mutex::new(Vec::new()),
            libraries: Mutex::default(),
        }
    }
}

/// The devices of a session, by ordinal. It owns the session, and everything that is known about the devices' progress,
/// errors and addresses; the other owners reach the devices through it.
pub(crate) struct Devices {
    session: Session,
    /// [`Device::sees_host_memory`], which never changes.
    sees_host_memory: bool,
    /// [`Device::shares_memory`], which never changes.
    shares_memory: bool,
    states: Vec<DeviceState>,
    shared: SharedSpace,
    next_handle: AtomicU64,
}

/// Whether an error says that GPU code cannot be used.
fn is_about_code(code: Code) -> bool {
    use Code::{InvalidImage, InvalidPtx, NoBinaryForGpu, NotSupported, UnsupportedPtxVersion};
    matches!(code, InvalidImage | InvalidPtx | NoBinaryForGpu | NotSupported | UnsupportedPtxVersion)
}

impl Devices {
    /// The devices of a session, with nothing done yet. Fails with [`Code::SystemNotReady`] where some ordinal has no range
    /// of addresses.
    pub(crate) fn new(session: Session) -> Result<Self> {
        let (plan, infos) = (&session.plan, &session.infos);
        if plan.devices.len() < infos.len() {
            return Err(Error::new(
                Code::SystemNotReady,
                "The device named no address range for some ordinal",
            ));
        }
        let states = plan.devices.iter().zip(infos).map(|(range, info)| DeviceState::new(*range, info));
        Ok(Self {
            sees_host_memory: session.device.sees_host_memory(),
            shares_memory: session.device.shares_memory(),
            states: states.collect(),
            shared: SharedSpace::new(plan.shared),
            next_handle: AtomicU64::new(rgpu_device::FIRST_STREAM),
            session,
        })
    }

    /// What executes the calls.
    #[inline]
    pub(crate) fn device(&self) -> &Arc<dyn Device> {
        &self.session.device
    }

    /// Whether pinned and managed memory is one memory for host and device, so that it is not mirrored.
    pub(crate) fn shares_memory(&self) -> bool {
        self.shares_memory
    }

    /// Whether the device is in this process, and sees its ordinary memory.
    pub(crate) fn sees_host_memory(&self) -> bool {
        self.sees_host_memory
    }

    /// What the device calls back.
    pub(crate) fn host(&self) -> &HostSide {
        &self.session.host
    }

    /// How the devices' addresses are used.
    pub(crate) fn plan(&self) -> &AddressPlan {
        &self.session.plan
    }

    /// The range of addresses that host and device share, and when the device has to look at it again.
    pub(crate) fn shared(&self) -> &SharedSpace {
        &self.shared
    }

    /// How many devices there are.
    pub(crate) fn count(&self) -> u32 {
        self.session.infos.len() as u32
    }

    /// What a device tells about itself; [`Code::InvalidDevice`] where there is none of this number.
    pub(crate) fn info(&self, ordinal: Ordinal) -> Result<&DeviceInfo> {
        let found = self.session.infos.get(ordinal as usize);
        found.ok_or_else(|| Error::new(Code::InvalidDevice, format!("There is no device {ordinal}")))
    }

    /// Whether the devices are of several servers.
    pub(crate) fn are_of_several_servers(&self) -> bool {
        !self.session.groups.is_empty()
    }

    /// Whether two devices are of the same server, or in this process.
    pub(crate) fn are_together(&self, a: Ordinal, b: Ordinal) -> bool {
        self.session.are_together(a, b)
    }

    /// Ends the session: what was posted is on its way when this returns.
    pub(crate) fn close(&self) {
        self.session.close();
    }

    /// A handle for the device that was never used before.
    pub(crate) fn new_handle(&self) -> Handle {
        self.next_handle.fetch_add(1, Ordering::Relaxed)
    }

    /// What is kept for an ordinal that is known to exist.
    fn of(&self, ordinal: Ordinal) -> &DeviceState {
        &self.states[ordinal as usize]
    }

    /// Where in a device's range its allocations lie. The device is known to exist.
    pub(crate) fn heap(&self, ordinal: Ordinal) -> MutexGuard<'_, DeviceHeap> {
        self.of(ordinal).heap.lock()
    }

    /// The work of a device that is known to exist.
    #[inline]
    pub(crate) fn work(&self, ordinal: Ordinal) -> &Mutex<WorkCount> {
        &self.of(ordinal).work
    }

    /// What a device, which is known to exist, can launch at most.
    pub(crate) fn launch_limits(&self, ordinal: Ordinal) -> &LaunchLimits {
        &self.of(ordinal).launch_limits
    }

    /// To be called before enqueueing work that may read mirrored memory on the device.
    #[inline]
    pub(crate) fn before_device_work(&self) -> Result<()> {
        self.shared.before_device_work(&*self.session.device)
    }

    /// The version of a mathematical library, or why there is none. The device is asked once.
    pub(crate) fn library_version(&self, ordinal: Ordinal, library: u32) -> Result<u32> {
        let mut known = self.of(ordinal).libraries.lock();
        known.entry(library).or_insert_with(|| self.session.device.library_version(ordinal, library)).clone()
    }

    /// To be called after waiting for the device: takes over what it changed in mirrored memory.
    #[inline]
    pub(crate) fn after_wait(&self) {
        self.shared.after_wait(&*self.session.device, &self.session.host);
    }

    /// The device has just been reset: its memory, its work and its settings are gone. With `recovered`, so is its sticky error.
    pub(crate) fn forget(&self, ordinal: Ordinal, recovered: bool) {
        let state = self.of(ordinal);
        *state.heap.lock() = DeviceHeap::new(self.plan().devices[ordinal as usize]);
        {
            let mut work = state.work.lock();
            work.finished = work.enqueued;
        }
        *state.pending.lock() = None;
        *state.limits.lock() = [None; 3];
        state.peers.lock().clear();
        if recovered {
            state.sticky.store(0, Ordering::Relaxed);
        }
    }

    /// A reset could not mend the device: NVIDIA's driver leaves one on which a kernel has failed unusable, until the process ends. The
    /// reset succeeds all the same, and every later call fails with this.
    pub(crate) fn give_up(&self, ordinal: Ordinal) {
        self.of(ordinal).sticky.store(Code::DevicesUnavailable as u32, Ordering::Relaxed);
    }

    /// The number of the sticky error of a device, 0 if it has none.
    pub(crate) fn sticky_code(&self, ordinal: Ordinal) -> u32 {
        self.states.get(ordinal as usize).map_or(0, |device| device.sticky.load(Ordering::Relaxed))
    }

    /// Fails with the sticky error of a device.
    pub(crate) fn check_sticky(&self, ordinal: Ordinal) -> Result<()> {
        match self.sticky_code(ordinal) {
            0 => Ok(()),
            code => Err(Code::from_number(code).into()),
        }
    }

    /// Remembers a sticky error on its way to the program.
    pub(crate) fn note<T>(&self, ordinal: Ordinal, result: Result<T>) -> Result<T> {
        if let Err(error) = &result {
            self.note_error(ordinal, error);
        }
        result
    }

    /// Remembers a sticky error on its way to the program, and says it on stderr. Of other errors those about GPU code are said.
    #[cold]
    pub(crate) fn note_error(&self, ordinal: Ordinal, error: &Error) {
        if !error.code.is_sticky() {
            if is_about_code(error.code) {
                // A module that nobody waited for could not be loaded: its user should read why.
                error::say_of_code(error);
            }
            return;
        }
        generation::begin_new();
        if error.code == Code::SystemNotReady {
            // Whoever noticed the loss has said why.
            for device in &self.states {
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
    pub(crate) fn note_asynchronous(&self, ordinal: Ordinal, error: Error) {
        if error.code.is_sticky() {
            self.note_error(ordinal, &error);
        } else {
            error::log(&format!("asynchronous: {error}"));
            self.of(ordinal).pending.lock().get_or_insert(error);
        }
    }

    /// Work was put on a stream; to be called after the device has it, before the program's call returns.
    #[inline]
    pub(crate) fn work_enqueued(&self, stream: &Stream) {
        self.of(stream.ordinal).work.lock().enqueued_in(stream.is_legacy());
    }

    /// The core itself put work on a device's legacy stream.
    pub(crate) fn work_of_our_own(&self, ordinal: Ordinal) {
        self.of(ordinal).work.lock().enqueued += 1;
    }

    /// How much work the device was given.
    pub(crate) fn enqueued(&self, ordinal: Ordinal) -> u64 {
        self.of(ordinal).work.lock().enqueued
    }

    /// Whether nothing that was enqueued on the device can be unfinished.
    pub(crate) fn is_idle(&self, ordinal: Ordinal) -> bool {
        self.of(ordinal).work.lock().is_idle()
    }

    /// Everything up to `until` has finished, as far as `target` covers it.
    pub(crate) fn work_finished(&self, ordinal: Ordinal, target: Target, until: u64) {
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
    pub(crate) fn wait(&self, ordinal: Ordinal, target: Target) -> Result<()> {
        let work = *self.of(ordinal).work.lock();
        if !work.is_idle() {
            let result = self.note(ordinal, self.device().synchronize_blocking(target));
            self.after_wait();
            result?;
            self.work_finished(ordinal, target, work.enqueued);
        }
        self.take_pending(ordinal)
    }

    /// Whether a target is finished. If so, what it changed in mirrored memory is visible to the host.
    pub(crate) fn is_finished(&self, ordinal: Ordinal, target: Target) -> Result<bool> {
        self.check_sticky(ordinal)?;
        let work = *self.of(ordinal).work.lock();
        if !work.is_idle() {
            if !self.note(ordinal, self.device().query(target))? {
                return Ok(false);
            }
            self.after_wait();
            self.work_finished(ordinal, target, work.enqueued);
        }
        self.take_pending(ordinal)?;
        Ok(true)
    }

    /// Reports an asynchronous error once.
    pub(crate) fn take_pending(&self, ordinal: Ordinal) -> Result<()> {
        self.check_sticky(ordinal)?;
        match self.of(ordinal).pending.lock().take() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// Waits for every device that may have unfinished work.
    pub(crate) fn wait_until_idle(&self) -> Result<()> {
        let mut result = Ok(());
        for ordinal in 0..self.count() {
            if !self.is_idle(ordinal) && self.sticky_code(ordinal) == 0 {
                result = result.and(self.wait(ordinal, Target::Device(ordinal)));
            }
        }
        result
    }

    /// A limit's value, in bytes.
    pub(crate) fn get_limit(&self, ordinal: Ordinal, limit: Limit) -> Result<u64> {
        self.info(ordinal)?;
        Ok(self.of(ordinal).limits.lock()[limit as usize].unwrap_or(match limit {
            Limit::StackSize => 1024,
            Limit::PrintfFifoSize => 1 << 20,
            Limit::MallocHeapSize => 8 << 20,
        }))
    }

    /// Sets a limit, in bytes.
    pub(crate) fn set_limit(&self, ordinal: Ordinal, limit: Limit, value: u64) -> Result<()> {
        self.info(ordinal)?;
        self.note(ordinal, self.device().set_limit(ordinal, limit, value))?;
        self.of(ordinal).limits.lock()[limit as usize] = Some(value);
        Ok(())
    }

    /// Whether kernels of `from` may use memory of `to` (`cudaDeviceCanAccessPeer`).
    pub(crate) fn can_access_peer(&self, from: Ordinal, to: Ordinal) -> Result<bool> {
        self.info(from)?;
        self.info(to)?;
        Ok(from != to && self.are_together(from, to))
    }

    /// `cudaDeviceEnablePeerAccess`, from the current device to `peer`.
    pub(crate) fn enable_peer_access(&self, from: Ordinal, peer: Ordinal) -> Result<()> {
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
    pub(crate) fn disable_peer_access(&self, from: Ordinal, peer: Ordinal) -> Result<()> {
        self.can_access_peer(from, peer)?;
        let mut peers = self.of(from).peers.lock();
        let at = peers.iter().position(|p| *p == peer).ok_or(Code::PeerAccessNotEnabled)?;
        peers.swap_remove(at);
        Ok(())
    }
}
