//! The one [`Core`] of a process: when it comes to life, and how it ends ([`lifecycle`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};

use parking_lot::Mutex;
use rgpu_device::Device;

use super::contexts::Contexts;
use super::devices::Devices;
use super::error::{self, Code, Error, Result};
use super::graph::captures::Captures;
use super::graph::memory::GraphAllocations;
use super::graph::store::GraphStore;
use super::library::Libraries;
use super::lifecycle::{self, Stage};
use super::memory::Memory;
use super::module::Modules;
use super::session::{self, Session};
use super::streams::Streams;
use super::transfer::Landings;
use super::virtual_memory::VirtualMemory;

/// The process's core, once it is alive. It is never freed: the program's threads may be in it until the process ends.
static CORE: AtomicPtr<Core> = AtomicPtr::new(std::ptr::null_mut());
/// Held while the core is opened; why that failed, if it did.
static BIRTH: Mutex<Option<Error>> = Mutex::new(None);

/// Everything that lives from the first CUDA call to the end of the process: an owner for each kind of thing. What concerns
/// several of them is in [`super::calls`].
pub(crate) struct Core {
    pub(super) devices: Arc<Devices>,
    pub(super) contexts: Contexts,
    pub(super) streams: Streams,
    pub(super) memory: Arc<Memory>,
    pub(super) virtual_memory: VirtualMemory,
    pub(super) landings: Landings,
    pub(super) modules: Arc<Modules>,
    pub(super) libraries: Libraries,
    pub(super) graphs: Arc<GraphStore>,
    pub(super) captures: Captures,
    pub(crate) graph_allocations: Arc<GraphAllocations>,
}

/// The process's core; the first call creates it from the environment.
///
/// Fails with [`Code::NoDevice`] where the environment names no device (said once on stderr), with the error of
/// connecting (remembered), with [`Code::NotInitialized`] in a child forked after the first CUDA call, and with
/// [`Code::Deinitialized`] once the process is ending.
pub(crate) fn current() -> Result<&'static Core> {
    match existing() {
        Some(core) => Ok(core),
        None => open(),
    }
}

#[cold]
fn open() -> Result<&'static Core> {
    lifecycle::check_not_past()?;
    let mut failure = BIRTH.lock();
    if lifecycle::stage() == Stage::Unborn {
        match Core::open() {
            Ok(core) => {
                CORE.store(Box::into_raw(Box::new(core)), Ordering::Release);
                // SAFETY: registers a plain function; it stays loaded as this library does.
                unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
                lifecycle::enter(Stage::Alive);
            }
            Err(error) => {
                error::say_once(&error.message);
                *failure = Some(error);
                lifecycle::enter(Stage::Failed);
            }
        }
    }
    match &*failure {
        Some(error) => Err(error.clone()),
        None => existing().ok_or_else(|| Error::new(Code::Deinitialized, "The process is ending")),
    }
}

/// The core if it is alive; creates nothing.
#[inline]
pub(crate) fn existing() -> Option<&'static Core> {
    // SAFETY: the pointer is set before the stage becomes Alive, and what it points to is never freed.
    lifecycle::is_alive().then(|| unsafe { &*CORE.load(Ordering::Acquire) })
}

/// Has the core use a software GPU in this process, whatever the environment says. Fails with
/// [`Code::IllegalState`] where a server is in use already, with [`Code::NotSupported`] where this library was built without
/// a software GPU, and as [`current`] does in a forked child and at the process's end.
pub(crate) fn use_in_process() -> Result<()> {
    let mut failure = BIRTH.lock();
    match lifecycle::stage() {
        Stage::Alive if existing().is_some_and(|core| core.devices.sees_host_memory()) => Ok(()),
        Stage::Alive => {
            Err(Error::new(Code::IllegalState, "A server's GPU is in use in this process already"))
        }
        Stage::Orphan | Stage::Over => lifecycle::check_not_past(),
        Stage::Unborn | Stage::Failed => {
            session::choose_in_process().inspect_err(|error| error::say_once(&error.message))?;
            // What the environment asked for may have failed; this is something else.
            *failure = None;
            lifecycle::enter(Stage::Unborn);
            Ok(())
        }
    }
}

/// Runs in a child after fork: what the parent has stays the parent's.
unsafe extern "C" fn in_child() {
    lifecycle::leave_alive(Stage::Orphan);
    rgpu_remote::trace::abandon();
}

/// Runs when the library is finalised, after the destructors of the program and of its other libraries.
extern "C" fn at_exit() {
    if !lifecycle::leave_alive(Stage::Over) {
        return;
    }
    // SAFETY: the core was alive until now, and is never freed.
    let core = unsafe { &*CORE.load(Ordering::Acquire) };
    error::guard_value((), || core.devices.close());
    error::guard_value((), rgpu_remote::trace::close);
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
        let devices = Arc::new(Devices::new(session)?);
        let memory = Arc::new(Memory::new(devices.clone()));
        let modules = Arc::new(Modules::new(devices.clone(), memory.clone()));
        let graphs = Arc::new(GraphStore::default());
        Ok(Self {
            contexts: Contexts::new(devices.clone()),
            streams: Streams::new(devices.clone()),
            virtual_memory: VirtualMemory::new(devices.clone(), memory.clone()),
            landings: Landings::default(),
            libraries: Libraries::new(devices.clone(), memory.clone(), modules.clone()),
            captures: Captures::new(graphs.clone()),
            graph_allocations: Arc::new(GraphAllocations::new(memory.clone())),
            devices,
            memory,
            modules,
            graphs,
        })
    }

    /// What executes the calls.
    pub(crate) fn device(&self) -> &Arc<dyn Device> {
        self.devices.device()
    }
}
