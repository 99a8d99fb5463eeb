//! Whom NVML asks: CUDA's session where there is one, else one of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rgpu_device::telemetry::{BusyMeter, Group, Metric, Telemetry, Text};
use rgpu_device::{Code, Device, DeviceInfo};

use super::results::{Result, Return};
use crate::core::session::Session;
use crate::core::{Core, error, existing, lifecycle};

/// How many initialisations have not been undone.
static INITIALIZED: AtomicU32 = AtomicU32::new(0);
static OBSERVER: Mutex<Option<Observer>> = Mutex::new(None);

/// How long a measurement is as good as a new one, by group.
const FRESH: [Duration; 4] =
    [Duration::MAX, Duration::from_millis(50), Duration::from_millis(500), Duration::from_millis(250)];

/// A group of measurements, and when they were made.
type Kept = (Instant, Arc<Telemetry>);

/// What is known of the devices, and from whom.
struct Observer {
    /// The process that opened it: a forked child must not use its parent's connection.
    pid: u32,
    /// NVML's own session, if CUDA's is not used.
    session: Option<Session>,
    device: Arc<dyn Device>,
    infos: Arc<Vec<DeviceInfo>>,
    /// By ordinal and group.
    kept: Vec<[Option<Kept>; 4]>,
    began: Instant,
    meter: BusyMeter,
}

impl Observer {
    fn of_cuda(core: &'static Core) -> Self {
        Self::new(None, core.device().clone())
    }

    /// Opens a session of NVML's own.
    fn open() -> Result<Self> {
        if lifecycle::is_over() {
            return Err(Return::UNINITIALIZED);
        }
        let session = Session::observe().map_err(|e| {
            error::say_once(&e.message);
            Return::DRIVER_NOT_LOADED
        })?;
        let device = session.device.clone();
        Ok(Self::new(Some(session), device))
    }

    fn new(session: Option<Session>, device: Arc<dyn Device>) -> Self {
        let infos = Arc::new(device.infos());
        Self {
            pid: std::process::id(),
            session,
            device,
            kept: vec![[const { None }; 4]; infos.len()],
            infos,
            began: Instant::now(),
            meter: BusyMeter::default(),
        }
    }

    fn measure(&mut self, ordinal: u32, group: Group) -> Result<Arc<Telemetry>> {
        let slot = self.kept.get(ordinal as usize).and_then(|kept| kept[group as usize].as_ref());
        if let Some((at, telemetry)) = slot
            && at.elapsed() < FRESH[group as usize]
        {
            return Ok(telemetry.clone());
        }
        let telemetry = match self.device.telemetry(ordinal, group) {
            Ok(telemetry) => telemetry,
            Err(e) if e.code == Code::NotSupported => self.measure_here(ordinal, group)?,
            Err(e) => return Err(meaning(&e)),
        };
        let telemetry = Arc::new(telemetry);
        self.kept[ordinal as usize][group as usize] = Some((Instant::now(), telemetry.clone()));
        Ok(telemetry)
    }

    /// What can be said of a device that measures nothing itself.
    fn measure_here(&mut self, ordinal: u32, group: Group) -> Result<Telemetry> {
        let mut telemetry = Telemetry::default();
        if group == Group::Load {
            let memory = self.device.mem_info(ordinal).map_err(|e| meaning(&e))?;
            telemetry.set(Metric::MemoryTotal, 0, memory.total);
            telemetry.set(Metric::MemoryFree, 0, memory.free);
            telemetry.set(Metric::MemoryUsed, 0, memory.total.saturating_sub(memory.free));
            if self.device.sees_host_memory() {
                // It is this process's own: nobody else has a part in it.
                telemetry.set(Metric::OwnMemory, 0, memory.total.saturating_sub(memory.free));
                if self.infos.len() == 1 {
                    let now = self.began.elapsed().as_nanos() as u64;
                    let busy = self.meter.sample(now, self.device.counters().busy_ns);
                    telemetry.set(Metric::GpuUtilization, 0, busy.into());
                }
            }
        }
        Ok(telemetry)
    }

    /// Ends NVML's own session; but leaves it as it is in a process that has no part in it.
    fn end(self) {
        if self.pid != std::process::id() {
            std::mem::forget(self);
        } else if let Some(session) = &self.session {
            session.close();
        }
    }
}

fn meaning(error: &rgpu_device::Error) -> Return {
    error::log(&format!("NVML: {error}"));
    match error.code {
        Code::NotSupported => Return::NOT_SUPPORTED,
        Code::InvalidDevice | Code::InvalidValue => Return::INVALID_ARGUMENT,
        Code::OutOfMemory => Return::MEMORY,
        // The connection was lost, or a kernel made the device unusable.
        code if code.is_sticky() => Return::GPU_IS_LOST,
        _ => Return::UNKNOWN,
    }
}

/// Runs something with the observer that is right by now.
fn with<T>(body: impl FnOnce(&mut Observer) -> Result<T>) -> Result<T> {
    let mut place = OBSERVER.lock();
    let core = existing();
    let stale = place.as_ref().is_some_and(|observer| {
        observer.pid != std::process::id()
            || observer.session.is_some() == core.is_some()
            || core.is_some_and(|core| !Arc::ptr_eq(core.device(), &observer.device))
    });
    if stale && let Some(old) = place.take() {
        old.end();
    }
    let observer = match &mut *place {
        Some(observer) => observer,
        none => none.insert(match core {
            Some(core) => Observer::of_cuda(core),
            None => Observer::open()?,
        }),
    };
    body(observer)
}

/// Counts an initialisation. Without `devices` it succeeds where there are none, too.
pub(super) fn initialize(devices: bool) -> Result<()> {
    if devices {
        with(|_| Ok(()))?;
    }
    INITIALIZED.fetch_add(1, Ordering::SeqCst);
    Ok(())
}

/// Undoes an initialisation; with the last one NVML's own session ends.
pub(super) fn shut_down() -> Result<()> {
    let before = INITIALIZED.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1));
    match before {
        Err(_) => Err(Return::UNINITIALIZED),
        Ok(1) => {
            close();
            Ok(())
        }
        Ok(_) => Ok(()),
    }
}

fn close() {
    let Some(mut place) = OBSERVER.try_lock() else { return };
    if let Some(observer) = place.take() {
        observer.end();
    }
}

/// Runs when the library is finalised: the server needn't wonder where its client went.
extern "C" fn at_exit() {
    error::guard_value((), close);
}

#[used]
#[unsafe(link_section = ".fini_array")]
static AT_EXIT: extern "C" fn() = at_exit;

/// Fails where `nvmlInit` was not called.
pub(super) fn check_initialized() -> Result<()> {
    if INITIALIZED.load(Ordering::SeqCst) == 0 { Err(Return::UNINITIALIZED) } else { Ok(()) }
}

/// The devices, by index.
pub(super) fn infos() -> Result<Arc<Vec<DeviceInfo>>> {
    with(|observer| Ok(observer.infos.clone()))
}

/// What a device tells about itself.
pub(super) fn info(index: u32) -> Result<DeviceInfo> {
    infos()?.get(index as usize).cloned().ok_or(Return::INVALID_ARGUMENT)
}

/// A metric's value; [`Return::NOT_SUPPORTED`] where the device doesn't have it.
pub(super) fn value(index: u32, metric: Metric, of: u32) -> Result<u64> {
    measured(index, metric.group())?.get(metric, of).ok_or(Return::NOT_SUPPORTED)
}

/// A group of measurements.
pub(super) fn measured(index: u32, group: Group) -> Result<Arc<Telemetry>> {
    with(|observer| observer.measure(index, group))
}

/// A text; [`Return::NOT_SUPPORTED`] where the device doesn't have it.
pub(super) fn text(index: u32, text: Text, of: u32) -> Result<String> {
    let telemetry = measured(index, Group::Identity)?;
    telemetry.text(text, of).map(str::to_owned).ok_or(Return::NOT_SUPPORTED)
}
