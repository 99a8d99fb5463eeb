//! What a graph's node does.

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::sync::Arc;

use parking_lot::Mutex;
use rgpu_device::Region;

use crate::core::error::invalid;
use crate::core::launch::pack;
use crate::core::registry::{NumberMap, Raw};
use crate::core::{Config, Context, CopyBox, Core, Direction, Event, Function, Params, Result, Stream, Wait};

/// The tags of the driver's `extra` array.
const BUFFER_POINTER: usize = 1;
const BUFFER_SIZE: usize = 2;

/// The kinds of nodes, numbered as `cudaGraphNodeType`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum NodeKind {
    Kernel = 0,
    Memcpy = 1,
    Memset = 2,
    Host = 3,
    Graph = 4,
    Empty = 5,
    WaitEvent = 6,
    EventRecord = 7,
    MemAlloc = 10,
    MemFree = 11,
}

/// A function of the program's with its argument.
#[derive(Debug, Clone, Copy)]
pub struct HostCall {
    /// The function.
    pub function: unsafe extern "C" fn(*mut c_void),
    /// Its argument.
    pub data: *mut c_void,
}

// SAFETY: CUDA calls the function on a thread of its own as well; the program knows.
unsafe impl Send for HostCall {}
// SAFETY: as above.
unsafe impl Sync for HostCall {}

impl HostCall {
    /// Calls it.
    pub fn call(self) {
        // SAFETY: the program gave both, to be called so.
        unsafe { (self.function)(self.data) }
    }
}

/// A kernel with its arguments.
#[derive(Clone)]
pub struct Kernel {
    /// The kernel.
    pub function: Arc<Function>,
    /// What the program calls it.
    pub symbol: usize,
    /// How it is launched.
    pub config: Config,
    /// The parameter block.
    pub params: Arc<Vec<u8>>,
    /// Where each parameter lies in it, for a program that asks for them.
    pub pointers: Arc<Vec<usize>>,
}

impl Kernel {
    /// Reads the arguments, which are not looked at again.
    ///
    /// # Safety
    /// `params` must be as the kernel's signature demands, as for `cudaLaunchKernel`.
    pub unsafe fn new(
        function: Arc<Function>,
        symbol: usize,
        config: Config,
        params: Params,
    ) -> Result<Self> {
        let params = {
            let mut block = vec![MaybeUninit::uninit(); function.declared().param_bytes() as usize];
            // SAFETY: the caller's promise.
            Arc::new(unsafe { pack(&function, params, &mut block) }?.to_vec())
        };
        let base = params.as_ptr() as usize;
        let pointers =
            Arc::new(function.declared().params.iter().map(|p| base + p.offset as usize).collect());
        Ok(Self { function, symbol, config, params, pointers })
    }
}

/// Addresses that graphs allocated and nobody has freed yet, and how much there is.
static ALLOCATIONS: Mutex<Option<NumberMap<u64, u64>>> = Mutex::new(None);

/// Bytes that graphs have allocated.
pub fn allocated_bytes() -> u64 {
    ALLOCATIONS.lock().as_ref().map_or(0, |a| a.values().sum())
}

/// The program has freed an address: no graph will.
pub fn forget_allocation(addr: u64) {
    if let Some(allocations) = ALLOCATIONS.lock().as_mut() {
        allocations.remove(&addr);
    }
}

/// Memory that a graph allocates. Its address is fixed when the node is made, so the memory is there from
/// then on, until the program frees it or nothing refers to the node any more.
pub struct GraphAllocation {
    /// Where it is.
    pub addr: u64,
    /// How much was asked for.
    pub bytes: u64,
    /// The device.
    pub ordinal: u32,
}

impl GraphAllocation {
    /// Allocates.
    pub fn new(core: &Core, context: &Arc<Context>, bytes: u64) -> Result<Arc<Self>> {
        if bytes == 0 {
            return Err(invalid("a graph cannot allocate nothing"));
        }
        let addr = core.alloc(context, bytes)?;
        ALLOCATIONS.lock().get_or_insert_default().insert(addr, bytes);
        Ok(Arc::new(Self { addr, bytes, ordinal: context.ordinal }))
    }
}

impl Drop for GraphAllocation {
    fn drop(&mut self) {
        let ours = ALLOCATIONS.lock().as_mut().is_some_and(|a| a.remove(&self.addr).is_some());
        if ours && let Some(core) = crate::core::existing() {
            // At worst the device is lost, and the memory with it.
            let _ = core.free(self.addr);
        }
    }
}

/// What a node does.
#[derive(Clone)]
pub enum Op {
    /// Nothing: a place to wait.
    Empty,
    /// A kernel.
    Kernel(Kernel),
    /// A copy.
    Copy(CopyBox, Direction),
    /// A fill with the low bytes (1, 2 or 4) of a value.
    Fill(Region, u32, u32),
    /// A function of the program's.
    Host(HostCall),
    /// Recording an event.
    Record(Arc<Event>),
    /// Waiting for an event.
    Wait(Arc<Event>),
    /// Allocating memory.
    Alloc(Arc<GraphAllocation>),
    /// Freeing an address that a graph allocated.
    Free(u64),
    /// A graph.
    Child(Raw),
}

impl Op {
    /// Its kind.
    pub fn kind(&self) -> NodeKind {
        match self {
            Self::Empty => NodeKind::Empty,
            Self::Kernel(_) => NodeKind::Kernel,
            Self::Copy(..) => NodeKind::Memcpy,
            Self::Fill(..) => NodeKind::Memset,
            Self::Host(_) => NodeKind::Host,
            Self::Record(_) => NodeKind::EventRecord,
            Self::Wait(_) => NodeKind::WaitEvent,
            Self::Alloc(_) => NodeKind::MemAlloc,
            Self::Free(_) => NodeKind::MemFree,
            Self::Child(_) => NodeKind::Graph,
        }
    }

    /// Puts the work on a stream.
    pub fn run(&self, core: &Core, stream: &Stream) -> Result<()> {
        match self {
            Self::Kernel(kernel) => {
                let len = kernel.params.len();
                let extra: [*const c_void; 5] = [
                    BUFFER_POINTER as *const c_void,
                    kernel.params.as_ptr().cast(),
                    BUFFER_SIZE as *const c_void,
                    (&raw const len).cast(),
                    std::ptr::null(),
                ];
                // SAFETY: the block was laid out for this kernel, and `extra` is as the driver has it.
                unsafe {
                    core.launch(&kernel.function, stream, &kernel.config, Params::Extra(extra.as_ptr()))
                }
            }
            Self::Copy(what, direction) => core.copy_box(stream, what, *direction, Wait::Async),
            Self::Fill(region, value, element) => core.fill(stream, *region, *value, *element, Wait::Async),
            Self::Host(call) => {
                let call = *call;
                core.host_function(stream, true, Box::new(move |_| call.call()))
            }
            Self::Record(event) => core.event_record(event, stream),
            Self::Wait(event) => core.stream_wait_event(stream, event),
            // The memory is there as long as the node is; children were flattened.
            Self::Empty | Self::Alloc(_) | Self::Free(_) | Self::Child(_) => Ok(()),
        }
    }
}
