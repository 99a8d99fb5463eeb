//! The executor: memory, streams, and the workers that run blocks.
//!
//! Calls come in through [`SoftGpu`], which checks them against tables that are in the order of the calls
//! (`memory`, `stream`, `modules`), and put work on streams. Workers (`worker`) take work whose turn has
//! come: copies (`transfer`) and kernels (`launch`, `grid`), whose blocks (`block`) they run in slots of the
//! arena (`slot`, `arena`). A fault of a kernel ends in `fault`, which turns it into an error or, in mirrored
//! memory (`mirror`), into a fetch from the host, or beside allocations (`nearby`) into memory of nobody's.

mod arch;
mod arena;
mod barrier;
mod block;
mod check;
mod contained;
mod count;
mod device;
mod device_runtime;
mod fault;
mod governor;
mod grid;
mod heap;
mod helpers;
mod info;
mod launch;
mod lending;
mod library;
mod look;
mod memory;
mod mirror;
mod modules;
mod nearby;
mod operands;
mod printf;
mod rounds;
mod shared;
mod slot;
mod space;
mod stream;
mod tensor;
#[cfg(test)]
mod tests;
mod texture;
mod tiers;
mod transfer;
mod warp;
mod watchdog;
mod words;
mod worker;

use std::sync::Arc;
use std::time::Duration;

use rgpu_device::{Check, Code, Error, Host, Pacer, Result};

use crate::library::Libraries;
pub use count::Profile;
use shared::Shared;

/// How a software GPU is to look and what it may use.
#[derive(Debug, Clone)]
pub struct Config {
    /// How many device ordinals there are.
    pub devices: u32,
    /// Which of the machine's software GPUs they are, by ordinal: what they are told apart by. Without it, the first ones.
    pub numbers: Vec<u32>,
    /// What tells this machine's software GPUs apart from others', in their UUIDs and on the bus; 0 for none.
    pub identity: u64,
    /// Memory of each, in bytes.
    pub memory_bytes_per_device: u64,
    /// Worker threads; 0 means one for each core.
    pub workers: usize,
    /// How many multiprocessors each says it has, up to [`MOST_MULTIPROCESSORS`]; 0 means one for each worker. Some programs want more
    /// than the machine has cores; blocks are executed by the workers all the same.
    pub multiprocessors: u32,
    /// Compute capability, major and minor.
    pub compute_capability: (u32, u32),
    /// The devices' name.
    pub name: String,
    /// Whether the process is this library's own, where nobody else handles signals: a program's may have put handlers of
    /// its own in front of the executor's since the last kernel.
    pub own_process: bool,
    /// Whether an access to a page of 4 KiB beside an allocation is an error. A GPU looks at pages of 2 MiB; so it is here without this,
    /// where such an access reaches memory of nobody's ([`nearby`]).
    pub exact_bounds: bool,
    /// How long a kernel may run: one that runs for longer ends with [`Code::LaunchTimeout`]. Without it, for ever.
    pub kernel_limit: Option<Duration>,
    /// What is looked at while kernels run, if anything is.
    pub check: Option<Check>,
    /// Whether it is counted what kernels do, where nothing is looked at.
    pub profile: Option<Profile>,
    /// The mathematical libraries that it has.
    pub libraries: Option<&'static dyn Libraries>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            devices: 1,
            numbers: Vec::new(),
            identity: 0,
            memory_bytes_per_device: 4 << 30,
            workers: 0,
            multiprocessors: 0,
            compute_capability: (8, 0),
            name: "rgpu software GPU".into(),
            own_process: false,
            exact_bounds: false,
            kernel_limit: None,
            check: None,
            profile: None,
            libraries: None,
        }
    }
}

/// The most multiprocessors that a software GPU says it has: a cooperative launch may have a block on each, which live at once.
pub const MOST_MULTIPROCESSORS: u32 = 224;

impl Config {
    /// How many workers that makes.
    fn worker_count(&self) -> usize {
        let workers = match self.workers {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            n => n,
        };
        workers.min(1024)
    }

    /// How many multiprocessors are told of, where there are so many workers.
    fn multiprocessor_count(&self, workers: usize) -> usize {
        if self.multiprocessors == 0 { workers } else { self.multiprocessors as usize }
    }
}

/// What software GPUs of this configuration say about themselves, without opening any.
pub fn describe(config: &Config) -> Vec<rgpu_device::DeviceInfo> {
    let workers = config.worker_count();
    (0..config.devices).map(|ordinal| info::describe(config, workers, ordinal)).collect()
}

/// A software GPU for one application: a [`rgpu_device::Device`]. Its workers end when it is dropped.
pub struct SoftGpu {
    shared: Arc<Shared>,
}

impl SoftGpu {
    /// Opens a software GPU. It starts no threads and takes no memory worth mentioning yet.
    ///
    /// # Errors
    /// [`Code::InvalidValue`] for a configuration that makes no sense.
    pub fn open(config: Config, host: Arc<dyn Host>) -> Result<Arc<SoftGpu>> {
        Self::open_paced(config, host, None)
    }

    /// [`SoftGpu::open`], with something that says how much of its time the device may use. What its workers use is told to
    /// the pacer, and they are held back as it says.
    ///
    /// # Errors
    /// Those of [`SoftGpu::open`]; [`Code::OperatingSystem`] where no thread can be started.
    pub fn open_paced(
        config: Config,
        host: Arc<dyn Host>,
        pacer: Option<Arc<dyn Pacer>>,
    ) -> Result<Arc<SoftGpu>> {
        if config.own_process {
            crate::compile::vector::close();
        }
        if config.devices == 0 || config.devices > 64 {
            return Err(Error::new(
                Code::InvalidValue,
                format!("There can be 1 to 64 devices, not {}", config.devices),
            ));
        }
        if !(1..=16).contains(&config.compute_capability.0) || config.compute_capability.1 > 9 {
            return Err(Error::new(
                Code::InvalidValue,
                format!("There is no compute capability {:?}", config.compute_capability),
            ));
        }
        if config.multiprocessors > MOST_MULTIPROCESSORS {
            let text = format!(
                "There can be 1 to {MOST_MULTIPROCESSORS} multiprocessors, not {}",
                config.multiprocessors
            );
            return Err(Error::new(Code::InvalidValue, text));
        }
        let workers = config.worker_count();
        let config = Config { memory_bytes_per_device: config.memory_bytes_per_device & !4095, ..config };
        let governor = pacer.map(|pacer| governor::Governor::start(pacer, config.devices, workers));
        let profiler = match &config.check {
            None => config.profile.as_ref().map(count::Profiler::new).transpose()?,
            Some(_) => None,
        };
        let mut shared = Shared::new(config, workers, host, governor.transpose()?);
        shared.profiler = profiler;
        let shared = Arc::new(shared);
        if let Some(watchdog) = &shared.watchdog {
            watchdog.start(&shared)?;
        }
        Ok(Arc::new(SoftGpu { shared }))
    }
}

impl Drop for SoftGpu {
    fn drop(&mut self) {
        self.shared.stop();
    }
}
