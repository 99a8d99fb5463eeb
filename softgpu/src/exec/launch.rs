//! Checking launches, and turning one into a [`Grid`] when its turn has come.

use std::sync::Arc;

use rgpu_device::{Code, Error, FunctionInfo, Host, Launch, Ordinal, Result};

use super::arena::{LOCAL, PARAM_BYTES};
use super::grid::{Grid, GridSpec};
use super::heap::Heap;
use super::info;
use super::modules::Module;

/// The largest stack of a device thread, in bytes.
pub const MAX_STACK: u64 = 512 << 10;

/// A launch that waits for its turn.
pub struct LaunchWork {
    module: Arc<Module>,
    function: u32,
    grid: [u32; 3],
    block: [u32; 3],
    shared_bytes: u32,
    /// Whether all blocks must be able to wait for each other.
    pub cooperative: bool,
    stack: u64,
    params: Box<[u8]>,
}

/// Where a launch runs.
pub struct Site {
    /// The key of its stream.
    pub stream: u64,
    /// The ordinal.
    pub ordinal: Ordinal,
    /// The stream's priority.
    pub priority: i32,
    /// The parameter slot that it got, and its address.
    pub params: (u64, u64),
    /// The number of the launch.
    pub id: u64,
    /// The kernels' heap.
    pub heap: Arc<Heap>,
    /// Where printed text goes.
    pub host: Arc<dyn Host>,
}

/// What the device can hold.
#[derive(Debug, Clone, Copy)]
pub struct Capacity {
    /// Workers.
    pub workers: u64,
    /// Compute capability.
    pub compute_capability: (u32, u32),
}

/// Bytes of local memory from one thread to the next: the kernel's own, and a stack twice as large as asked
/// for, because frames are larger than a GPU's. An odd number of cache lines, so that the same variable of
/// neighbouring threads does not fall into the same few sets of the cache.
fn local_stride(own: u32, stack: u64) -> u64 {
    let lines = (u64::from(own) + (2 * stack).min(MAX_STACK)).div_ceil(64);
    (lines | 1) * 64
}

fn configuration(what: String) -> Error {
    Error::new(Code::InvalidConfiguration, what)
}

impl LaunchWork {
    /// Checks a launch.
    pub fn new(launch: &Launch<'_>, module: Arc<Module>, stack: u64, capacity: Capacity) -> Result<Self> {
        let Some(function) = module.functions.get(launch.function as usize) else {
            return Err(Error::new(
                Code::NotFound,
                format!("The module has no function number {}", launch.function),
            ));
        };
        if let Some(refusal) = module.refusal(launch.function) {
            return Err(refusal.clone());
        }
        check(launch, function, capacity)?;
        Ok(Self {
            function: launch.function,
            grid: launch.grid,
            block: launch.block,
            shared_bytes: launch.shared_bytes,
            cooperative: launch.cooperative,
            stack,
            params: launch.params.into(),
            module,
        })
    }

    /// Makes the kernel ready to run.
    pub fn start(self, site: Site) -> Result<Grid> {
        let kernel = self.module.kernel(self.function)?;
        let threads: u64 = self.block.iter().map(|&n| u64::from(n)).product();
        let local = local_stride(kernel.local_bytes, self.stack);
        if threads * local > LOCAL {
            return Err(Error::new(
                Code::LaunchOutOfResources,
                format!(
                    "Kernel {} needs {local} bytes of local memory in each of {threads} threads",
                    kernel.name
                ),
            ));
        }
        let addr = site.params.1;
        let workspace = if self.cooperative { addr + PARAM_BYTES } else { 0 };
        // SAFETY: the slot is this launch's alone, and mapped; `check` has bounded the parameters.
        unsafe {
            std::ptr::copy_nonoverlapping(self.params.as_ptr(), addr as *mut u8, self.params.len());
            if workspace != 0 {
                std::ptr::write_bytes(workspace as *mut u8, 0, 64);
            }
        }
        Ok(Grid::new(GridSpec {
            kernel,
            stream: site.stream,
            ordinal: site.ordinal,
            priority: site.priority,
            id: site.id,
            grid: self.grid,
            block: self.block,
            dynamic_shared: self.shared_bytes,
            local_stride: local,
            params: site.params,
            workspace,
            cooperative: self.cooperative,
            heap: site.heap,
            host: site.host,
            origin: (self.module, self.function),
        }))
    }
}

fn check(launch: &Launch<'_>, function: &FunctionInfo, capacity: Capacity) -> Result<()> {
    let name = &function.name;
    let [gx, gy, gz] = launch.grid;
    let [bx, by, bz] = launch.block;
    if gx == 0 || gy == 0 || gz == 0 || gx > i32::MAX as u32 || gy > 65535 || gz > 65535 {
        return Err(configuration(format!("Kernel {name} cannot have {gx} x {gy} x {gz} blocks")));
    }
    let threads = u64::from(bx) * u64::from(by) * u64::from(bz);
    if threads == 0 || bx > 1024 || by > 1024 || bz > 64 || threads > info::MAX_THREADS {
        return Err(configuration(format!("Kernel {name} cannot have blocks of {bx} x {by} x {bz} threads")));
    }
    if function.max_threads != 0 && threads > u64::from(function.max_threads) {
        return Err(Error::new(
            Code::LaunchOutOfResources,
            format!("Kernel {name} has at most {} threads in a block, not {threads}", function.max_threads),
        ));
    }
    if function.required_block != [0; 3] && function.required_block.map(|n| n.max(1)) != launch.block {
        return Err(configuration(format!(
            "Kernel {name} wants blocks of {:?} threads, not {:?}",
            function.required_block, launch.block
        )));
    }
    let shared = u64::from(function.static_shared).next_multiple_of(16) + u64::from(launch.shared_bytes);
    let most = info::shared_optin(capacity.compute_capability);
    if shared > most {
        return Err(Error::new(
            Code::InvalidValue,
            format!("Kernel {name} cannot have {shared} bytes of shared memory, only {most}"),
        ));
    }
    let wanted = u64::from(function.param_bytes());
    if (launch.params.len() as u64) < wanted || launch.params.len() as u64 > PARAM_BYTES {
        return Err(Error::new(
            Code::InvalidValue,
            format!("Kernel {name} has {wanted} bytes of parameters, not {}", launch.params.len()),
        ));
    }
    if launch.cooperative {
        let by_threads = info::RESIDENT_THREADS / threads.next_multiple_of(32);
        let by_shared = (most + 1024) / (shared + 1024);
        let fit = capacity.workers * info::resident_blocks(capacity.workers).min(by_threads).min(by_shared);
        let blocks = u64::from(gx) * u64::from(gy) * u64::from(gz);
        if blocks > fit {
            return Err(Error::new(
                Code::CooperativeLaunchTooLarge,
                format!("The {blocks} blocks of kernel {name} cannot all run at once, only {fit}"),
            ));
        }
    }
    Ok(())
}
