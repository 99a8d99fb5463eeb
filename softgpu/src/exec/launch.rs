//! Checking launches, and turning one into a [`Grid`] when its turn has come.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use rgpu_device::{Code, Error, FunctionInfo, Host, Launch, LaunchLimits, MAX_CLUSTER, Ordinal, Result};
use smallvec::SmallVec;

use super::arena::{CLUSTER_LOCAL, LOCAL, PARAM_BYTES};
use super::check::Checker;
use super::device_runtime::{About, Descendant, Launches};
use super::grid::{Grid, GridSpec};
use super::heap::Heap;
use super::info;
use super::modules::Module;

/// The stack of a device thread where the program does not say otherwise, in bytes.
pub(super) const STACK: u64 = 1024;
/// The largest stack of a device thread, in bytes.
pub(super) const MAX_STACK: u64 = 512 << 10;

/// A launch that waits for its turn.
pub(super) struct LaunchWork {
    /// The module that the kernel is from.
    pub module: Arc<Module>,
    function: u32,
    grid: [u32; 3],
    block: [u32; 3],
    cluster: Option<[u32; 3]>,
    shared_bytes: u32,
    /// Whether all blocks must be able to wait for each other.
    pub cooperative: bool,
    stack: u64,
    params: SmallVec<[u8; 64]>,
}

/// What a launch is given when its turn has come.
pub(super) struct Site {
    /// The key of its stream.
    pub stream: u64,
    /// The ordinal of the device that executes it.
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
    /// What is known of the devices.
    pub about: Arc<About>,
    /// What comes behind it before its stream goes on.
    pub behind: VecDeque<Descendant>,
    /// What to say where the kernel has run for too long, if there is a limit.
    pub too_long: Option<Arc<str>>,
    /// What looks at the kernel, if anything does.
    pub checker: Option<Arc<Checker>>,
}

/// Bytes of local memory from one thread to the next: the kernel's own, and a stack twice as large as asked
/// for, because frames are larger than a GPU's. An odd number of cache lines, so that the same variable of
/// neighbouring threads does not fall into the same few sets of the cache.
fn local_stride(own: u32, stack: u64) -> u64 {
    let lines = (u64::from(own) + (2 * stack).min(MAX_STACK)).div_ceil(64);
    (lines | 1) * 64
}

impl LaunchWork {
    /// Checks a launch.
    pub(super) fn new(
        launch: &Launch<'_>,
        module: Arc<Module>,
        stack: u64,
        limits: &LaunchLimits,
    ) -> Result<Self> {
        let Some(function) = module.functions.get(launch.function as usize) else {
            return Err(Error::new(
                Code::InvalidHandle,
                format!("The module has no kernel number {}", launch.function),
            ));
        };
        let bytes = limits.check(function, launch)?;
        let cluster = limits.check_cluster(function, launch.grid, launch.cluster, MAX_CLUSTER)?;
        if launch.cooperative {
            limits.check_cooperative(function, launch.grid, resident_blocks(launch, function, limits))?;
        }
        Ok(Self {
            function: launch.function,
            grid: launch.grid,
            block: launch.block,
            cluster,
            shared_bytes: launch.shared_bytes,
            cooperative: launch.cooperative,
            stack,
            params: SmallVec::from_slice(&launch.params[..bytes]),
            module,
        })
    }

    /// Makes the kernel ready to run.
    pub(super) fn start(self, site: Site) -> Result<Arc<Grid>> {
        let kernel = self.module.kernel(self.function)?;
        let threads: u64 = self.block.iter().map(|&n| u64::from(n)).product();
        let local = local_stride(kernel.local_bytes, self.stack);
        let together = self.cluster.is_some_and(|sides| sides != [1; 3]);
        if threads * local > if together { CLUSTER_LOCAL } else { LOCAL } {
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
        // SAFETY: the slot is this launch's alone, and mapped; the rules of launches bound the parameters.
        unsafe {
            std::ptr::copy_nonoverlapping(self.params.as_ptr(), addr as *mut u8, self.params.len());
            if workspace != 0 {
                std::ptr::write_bytes(workspace as *mut u8, 0, 64);
            }
        }
        let Self { module, function, grid, block, cluster, shared_bytes, cooperative, stack, .. } = self;
        Ok(Arc::new(Grid::new(GridSpec {
            about: site.about,
            stack,
            launches: Mutex::new(Launches::before(site.behind)),
            kernel,
            stream: site.stream,
            ordinal: site.ordinal,
            priority: site.priority,
            id: site.id,
            grid,
            block,
            cluster,
            dynamic_shared: shared_bytes,
            local_stride: local,
            params: site.params,
            workspace,
            cooperative,
            heap: site.heap,
            host: site.host,
            origin: (module, function),
            too_long: site.too_long,
            checker: site.checker,
        })))
    }
}

/// How many blocks like a launch's one multiprocessor can hold at once.
fn resident_blocks(launch: &Launch<'_>, function: &FunctionInfo, limits: &LaunchLimits) -> u32 {
    let threads: u64 = launch.block.iter().map(|&n| u64::from(n)).product();
    let shared = u64::from(function.static_shared) + u64::from(launch.shared_bytes);
    let by_threads = info::RESIDENT_THREADS / threads.next_multiple_of(32);
    let by_shared = (u64::from(limits.shared_per_block_optin) + 1024) / (shared + 1024);
    info::resident_blocks(limits.multiprocessors.into()).min(by_threads).min(by_shared) as u32
}
