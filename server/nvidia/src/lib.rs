//! The machine's NVIDIA driver as a [`Device`]: GPUs that are really there.
//!
//! ```text
//! callers ──> Queue ──> submitting thread ──> driver's streams
//!    │                        │  events            │
//!    │                        v                    v
//!    └─ answers <──── waiting thread <──── events reached
//! ```
//!
//! Callers check what they are asked against tables, and put it in order; they never wait for the driver's
//! queues. One thread gives work to the driver in that order, so that order across streams is kept; another one
//! watches events and completes what is waited for. The driver is opened at run time ([`find`]), through a
//! table in which each of its entry points is described once ([`table`]).

mod addresses;
mod core;
mod device;
mod driver;
mod find;
mod image;
mod info;
mod libraries;
mod memory;
mod meter;
mod mig;
mod mirror;
mod modules;
#[cfg(test)]
mod page;
mod print;
mod staging;
mod submit;
mod sys;
mod table;
mod telemetry;
#[cfg(test)]
mod tests;
mod transfer;
mod wait;

use self::core::{Core, Gpu, HandleTables};
use self::driver::Driver;
pub use self::find::is_own;
use self::libraries::{Libraries, Place};
pub use self::mig::parse_uuid;
use self::print::Printed;
use self::table::Table;
use self::telemetry::FILE as NVML;
pub use self::telemetry::Nvml;
use parking_lot::Mutex;
use rgpu_device::{Code, Device, DeviceInfo, Error, Host, LaunchLimits, Ordinal, Pacer, Result};
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, OnceLock};

/// The lowest version of the driver that is supported.
pub const MIN_VERSION: u32 = 12000;

/// How an NVIDIA device is opened.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Config {
    /// The driver's library. Without it the machine's driver is looked for, and rgpu's own library, which
    /// poses as one, is refused.
    pub driver: Option<PathBuf>,
    /// Which of the machine's devices the application sees, in this order; all without it.
    pub devices: Option<Vec<u32>>,
    /// Memory in bytes of each device that the application may use; all without it.
    pub memory: Option<u64>,
    /// Folders in which mathematical libraries are looked for before the usual ones.
    pub libraries: Vec<PathBuf>,
    /// The UUIDs that the devices must have, where the process was to be shown certain ones; none where any will do.
    pub expected: Vec<[u8; 16]>,
}

/// The machine's GPUs, for one application.
pub struct NvidiaDevice {
    core: Arc<Core>,
    /// What measures them; absent in tests with a driver of their own.
    nvml: OnceLock<telemetry::Nvml>,
}

impl NvidiaDevice {
    /// Opens the driver. To be called once in a process, which then is the application's: its standard output
    /// is taken over, because the driver writes there what kernels print.
    pub fn open(
        config: &Config,
        host: Arc<dyn Host>,
        pacer: Option<Arc<dyn Pacer>>,
    ) -> Result<Arc<dyn Device>> {
        let opened = find::open(config.driver.as_deref())?;
        let own = opened.is_own.then(|| Place::Own(opened.path.clone()));
        let device = Self::with_table(opened.table, own, config, host, Printed::capture(), pacer)?;
        let uuids = device.core.gpus.iter().map(|gpu| gpu.info.uuid).collect();
        let _ = device.nvml.set(telemetry::Nvml::beside(&opened.path, opened.is_own, uuids));
        Ok(device)
    }

    /// With a driver that is there already, and the mathematical libraries of a place; of the machine's, where none
    /// is given. rgpu's own library hands out memory that is zero.
    fn with_table(
        table: Table,
        libraries: Option<Place>,
        config: &Config,
        host: Arc<dyn Host>,
        printed: Printed,
        pacer: Option<Arc<dyn Pacer>>,
    ) -> Result<Arc<Self>> {
        let driver = Arc::new(Driver::new(table));
        let infos = info::describe_all(&driver, config)?;
        let fresh_is_zero = matches!(libraries, Some(Place::Own(_)));
        let version = driver.version()?;
        let place = libraries.unwrap_or_else(|| Place::Machine(config.libraries.clone(), version));
        let mut gpus = Vec::new();
        let mut devices = Vec::new();
        for (device, info) in infos {
            let belongings = Mutex::new(submit::open_context(&driver, device)?);
            devices.push(device);
            gpus.push(Gpu {
                device,
                belongings,
                limits: LaunchLimits::new(&info),
                errors: Mutex::default(),
                generation: AtomicU64::new(0),
                may_have_printed: AtomicBool::new(false),
                launches: Mutex::default(),
                meter: Mutex::default(),
                info,
            });
        }
        let reach = |home| {
            let reaches = |&other: &_| other == home || driver.can_access_peer(other, home);
            (home, devices.iter().copied().filter(reaches).collect())
        };
        let pieces = memory::Pieces::new(driver.clone(), devices.iter().map(|&d| reach(d)).collect());
        // Module-level variables are not mapped by hand, so contexts are told of each other as well.
        for from in &gpus {
            for to in gpus.iter().filter(|to| to.device != from.device) {
                if driver.can_access_peer(from.device, to.device) {
                    driver.enter(from.belongings.lock().context)?;
                    driver.enable_peer_access(to.belongings.lock().context);
                }
            }
        }
        let state = HandleTables {
            streams: HashMap::new(),
            events: HashMap::new(),
            modules: HashMap::new(),
            loading: HashSet::new(),
            destroyed: Vec::new(),
            table: None,
        };
        let core = Arc::new(Core {
            driver,
            libraries: Libraries::new(place),
            host,
            gpus,
            state: Mutex::new(state),
            released: Default::default(),
            pieces: Mutex::new(pieces),
            queue: Default::default(),
            waits: Default::default(),
            mirror: mirror::Mirror::new(),
            printed,
            fresh_is_zero,
            orphans: Mutex::default(),
            unsubmitted: AtomicU64::new(0),
            next: AtomicU64::new(1),
            copies_out: Arc::default(),
            pacer,
            functions: Mutex::default(),
            unloads: Mutex::default(),
            function_returned: Default::default(),
        });
        for ordinal in 0..core.gpus.len() as Ordinal {
            let legacy = submit::legacy_stream(&core, ordinal);
            core.state.lock().streams.insert(u64::from(ordinal), legacy);
        }
        let spawn = |name: &str, body: Box<dyn FnOnce() + Send>| {
            let spawned = std::thread::Builder::new().name(name.into()).spawn(body);
            spawned
                .map(drop)
                .map_err(|e| Error::new(Code::OperatingSystem, format!("Cannot start a thread: {e}")))
        };
        let submitter = submit::Submitter::new(core.clone());
        spawn("submit", Box::new(move || submitter.run()))?;
        let waiting = core.clone();
        spawn("wait", Box::new(move || wait::run(&waiting)))?;
        Ok(Arc::new(Self { core, nvml: OnceLock::new() }))
    }
}

impl Drop for NvidiaDevice {
    fn drop(&mut self) {
        self.core.enqueue(0, None, self::core::Op::Stop);
        self.core.waits.stop();
    }
}

/// What measures the devices with these UUIDs. Opens no device.
pub fn nvml(driver: Option<&Path>, uuids: Vec<[u8; 16]>) -> Result<Nvml> {
    let opened = find::open(driver)?;
    Ok(Nvml::beside(&opened.path, opened.is_own, uuids))
}

/// What the machine's devices are, and what measures them, without using any of their memory.
pub fn observe(config: &Config) -> Result<(Vec<DeviceInfo>, Nvml)> {
    let opened = find::open(config.driver.as_deref())?;
    let driver = Driver::new(opened.table);
    let infos: Vec<_> = info::describe_all(&driver, config)?.into_iter().map(|(_, info)| info).collect();
    let nvml = Nvml::beside(&opened.path, opened.is_own, infos.iter().map(|info| info.uuid).collect());
    Ok((infos, nvml))
}

/// A device that a process has looked at.
#[derive(Debug, Clone, PartialEq)]
pub struct Seen {
    /// What it is.
    pub info: DeviceInfo,
    /// Memory that was free while the process had its context on it; `None` where it got none.
    pub free: Option<u64>,
    /// Its name for `CUDA_VISIBLE_DEVICES`; empty where every process is shown all devices.
    pub name: String,
    /// Whether kernels can follow pointers into memory that the process has made without the driver (HMM, or ATS):
    /// into all of its memory, then.
    pub follows_host_pointers: bool,
}

/// What a process has found out.
pub enum Looked {
    /// All devices.
    Devices(Vec<Seen>),
    /// It cannot be shown all of them: these are their names, and which of them another process can be shown together.
    Apart(Vec<String>, Vec<Vec<usize>>),
}

/// Looks what devices this process could use, as far as the driver shows them to it, where `visible` is what it was
/// told to show. The driver stays loaded, and memory in use: a process that should not have that asks another one.
pub fn look(driver: Option<&Path>, visible: Option<&str>) -> Result<Looked> {
    let opened = find::open(driver)?;
    // Where our own library stands in for the driver, nothing is partitioned.
    let library = if opened.is_own { None } else { mig::Library::open(&opened.path.with_file_name(NVML)) };
    let entries = library.and_then(|library| mig::list(&library));
    let names = match entries {
        None => None,
        Some(entries) => {
            let chosen = mig::choose(&entries, visible).map_err(|text| Error::new(Code::NoDevice, text))?;
            let names: Vec<String> = chosen.iter().map(|entry| entry.name.clone()).collect();
            let groups = mig::groups(&chosen);
            if groups.is_empty() {
                let text = "The machine's GPUs are partitioned (MIG), and there is no instance to use";
                return Err(Error::new(Code::NoDevice, text));
            }
            if groups.len() > 1 || visible != Some(&names.join(",")) {
                for entry in &chosen {
                    if let (Some(parent), Some(size)) = (&entry.parent, &entry.attributes) {
                        tracing::debug!(
                            "{} of {parent}: {} slices of the GPU, {} of them compute, {} multiprocessors, {} MiB",
                            entry.name,
                            size.gpu_slices,
                            size.compute_slices,
                            size.multiprocessors,
                            size.memory_mib
                        );
                    }
                }
                return Ok(Looked::Apart(names, groups));
            }
            Some(names)
        }
    };
    let driver = Arc::new(Driver::new(opened.table));
    Ok(Looked::Devices(see(&driver, names)?))
}

/// Describes what the driver shows this process, which is to be what has these names.
fn see(driver: &Driver, names: Option<Vec<String>>) -> Result<Vec<Seen>> {
    let expected = names.iter().flatten().filter_map(|name| mig::parse_uuid(name)).collect();
    let infos = info::describe_all(driver, &Config { expected, ..Config::default() })?;
    let mut names = names.into_iter().flatten();
    let seen = infos.into_iter().map(|(device, info)| {
        let free =
            driver.retain(device).and_then(|context| driver.enter(context)).and_then(|()| driver.mem_info());
        let free = free.inspect_err(|e| tracing::warn!("{}: {}", info.name, e.message));
        Seen {
            info,
            free: free.ok().map(|(free, _)| free),
            name: names.next().unwrap_or_default(),
            follows_host_pointers: info::follows_host_pointers(driver, device),
        }
    });
    Ok(seen.collect())
}
