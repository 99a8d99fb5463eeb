//! What a graph's node does.

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::sync::Arc;

use parking_lot::Mutex;
use rgpu_device::{Ordinal, Region};

use super::condition::Conditional;
use crate::abi::types::AttributeValue;
use crate::core::context::Context;
use crate::core::error::{Result, invalid};
use crate::core::event::Event;
use crate::core::launch::Config;
use crate::core::lifecycle;
use crate::core::mem_op::RawMemOp;
use crate::core::memory::Memory;
use crate::core::module::Function;
use crate::core::params::Params;
use crate::core::registry::{NumberMap, Raw};
use crate::core::transfer::{CopyBox, Direction};

/// The kinds of nodes, numbered as `cudaGraphNodeType`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NodeKind {
    /// Launches a kernel.
    Kernel = 0,
    /// Copies memory.
    Memcpy = 1,
    /// Fills memory.
    Memset = 2,
    /// Calls a function of the program's.
    Host = 3,
    /// Does what a child graph does.
    Graph = 4,
    /// Does nothing.
    Empty = 5,
    /// Waits for an event.
    WaitEvent = 6,
    /// Records an event.
    EventRecord = 7,
    /// Allocates memory.
    MemAlloc = 10,
    /// Frees memory.
    MemFree = 11,
    /// Writes words of memory, or waits for them.
    BatchMemOp = 12,
    /// Does what graphs do, as a condition says.
    Conditional = 13,
}

/// A function of the program's with its argument.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HostCall {
    /// The program's function.
    pub function: unsafe extern "C" fn(*mut c_void),
    /// What the function is called with.
    pub data: *mut c_void,
}

// SAFETY: CUDA calls the function on a thread of its own as well; the program knows.
unsafe impl Send for HostCall {}
// SAFETY: as above.
unsafe impl Sync for HostCall {}

impl HostCall {
    /// Calls the function, on the calling thread.
    pub(crate) fn call(self) {
        // SAFETY: the program gave both, to be called so.
        unsafe { (self.function)(self.data) }
    }
}

/// A kernel with its arguments.
#[derive(Clone)]
pub(crate) struct Kernel {
    /// The kernel, as loaded on its device.
    pub function: Arc<Function>,
    /// What the program calls it: a host address, or the function's handle.
    pub symbol: usize,
    /// How it is launched.
    pub config: Config,
    /// The parameter block, as the device gets it.
    pub params: Arc<Vec<u8>>,
    /// Attributes that are hints, as the program set them: they only need to be remembered.
    pub hints: Vec<(u32, AttributeValue)>,
}

impl Kernel {
    /// Reads the arguments, which are not looked at again.
    ///
    /// # Safety
    /// `params` must be as the kernel's signature demands, as for `cudaLaunchKernel`.
    pub(crate) unsafe fn new(
        function: Arc<Function>,
        symbol: usize,
        config: Config,
        params: Params,
    ) -> Result<Self> {
        let params = {
            let mut block = vec![MaybeUninit::uninit(); function.layout().size()];
            // SAFETY: the caller's promise; the block has the layout's size.
            Arc::new(unsafe { function.layout().pack(params, &mut block) }?.to_vec())
        };
        Ok(Self { function, symbol, config, params, hints: Vec::new() })
    }

    /// Takes over what another kernel's attributes say: parameters say nothing about them.
    pub(crate) fn take_attributes(&mut self, other: &Self) {
        self.config.cooperative = other.config.cooperative;
        self.config.cluster = other.config.cluster;
        self.hints.clone_from(&other.hints);
    }
}

/// A kernel node's arguments as its program sees them: copies, and pointers to them. They stay where they are as long as
/// the node does what it does with the same kernel, because programs ask once and set parameters often.
pub(crate) struct ShownArguments {
    function: Raw,
    /// Words, so that arguments are aligned.
    values: Vec<u64>,
    pointers: Vec<usize>,
}

impl ShownArguments {
    /// Copies of a kernel's arguments.
    pub(crate) fn new(kernel: &Kernel) -> Self {
        let values = vec![0; kernel.params.len().div_ceil(size_of::<u64>())];
        let mut shown = Self { function: kernel.function.raw, values, pointers: Vec::new() };
        shown.write(kernel);
        shown
    }

    /// Shows a kernel's arguments from now on, in the same place if it is the same kernel.
    pub(crate) fn update(&mut self, kernel: &Kernel) {
        if self.function == kernel.function.raw {
            self.write(kernel);
        } else {
            *self = Self::new(kernel);
        }
    }

    fn write(&mut self, kernel: &Kernel) {
        let base = self.values.as_mut_ptr();
        // SAFETY: a kernel's block always has its layout's size, for which the words were made.
        unsafe { base.cast::<u8>().copy_from_nonoverlapping(kernel.params.as_ptr(), kernel.params.len()) };
        let places = kernel.function.declared().params.iter().map(|p| base as usize + p.offset as usize);
        // The program may have put pointers of its own into the list.
        if self.pointers.is_empty() {
            self.pointers.extend(places);
        } else {
            self.pointers.iter_mut().zip(places).for_each(|(pointer, place)| *pointer = place);
        }
    }

    /// Where the list of pointers is.
    pub(crate) fn list(&self) -> *const usize {
        self.pointers.as_ptr()
    }
}

/// An operation of a mathematical library, on whatever stream the graph is launched in.
#[derive(Debug, Clone)]
pub(crate) struct LibraryWork {
    /// Which operation.
    pub operation: u32,
    /// Its arguments, as the device gets them.
    pub params: Arc<[u8]>,
}

/// Memory that a node has allocated.
struct Kept {
    bytes: u64,
    ordinal: Ordinal,
    /// Whether some node still stands for it.
    owned: bool,
    /// Whether a launch has allocated it, and nobody has freed it since.
    live: bool,
}

/// Who frees memory that the program, or a graph, no longer wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Freeing {
    /// It is kept for the next launch of its graph.
    Kept,
    /// Its graph is gone: it is to be freed as any other memory.
    Left,
    /// No graph has allocated it.
    Foreign,
}

/// Bytes of an ordinal, as `cudaGraphMemAttributeType` numbers them: what launches have allocated now and at most, and what is kept for that
/// now and at most.
type Marks = [u64; 4];

/// What graphs have allocated.
#[derive(Default)]
struct Allocations {
    /// By address.
    kept: NumberMap<u64, Kept>,
    marks: NumberMap<Ordinal, Marks>,
}

impl Allocations {
    /// `which` 0 is what is used, 2 what is kept.
    fn more(&mut self, ordinal: Ordinal, which: usize, bytes: u64) {
        let marks = self.marks.entry(ordinal).or_default();
        marks[which] += bytes;
        marks[which + 1] = marks[which + 1].max(marks[which]);
    }

    fn less(&mut self, ordinal: Ordinal, which: usize, bytes: u64) {
        if let Some(marks) = self.marks.get_mut(&ordinal) {
            marks[which] -= bytes;
        }
    }

    /// Changes whether memory is used. False where it was so before, or nobody knows it.
    fn set_live(&mut self, addr: u64, live: bool) -> bool {
        let Some(kept) = self.kept.get_mut(&addr).filter(|kept| kept.live != live) else { return false };
        kept.live = live;
        let (ordinal, bytes) = (kept.ordinal, kept.bytes);
        if live {
            self.more(ordinal, 0, bytes)
        } else {
            self.less(ordinal, 0, bytes)
        }
        true
    }

    /// It is to be freed by whoever asks.
    fn give_up(&mut self, addr: u64) {
        if let Some(kept) = self.kept.remove(&addr) {
            self.less(kept.ordinal, 2, kept.bytes);
        }
    }
}

/// What graphs have allocated, and who may free it.
///
/// A node's memory is there, at one address, as long as the node is. A launch allocates it and a free frees it only in name: CUDA wants a graph
/// not to be launched again before that. What is not freed when the last node goes stays until the program frees it.
pub(crate) struct GraphAllocations {
    memory: Arc<Memory>,
    all: Mutex<Allocations>,
}

impl GraphAllocations {
    /// No graph has allocated anything yet; what they will is taken from `memory`.
    pub(crate) fn new(memory: Arc<Memory>) -> Self {
        Self { memory, all: Mutex::default() }
    }

    /// Bytes of an ordinal, numbered as `cudaGraphMemAttributeType`.
    pub(crate) fn marks(&self, ordinal: Ordinal) -> [u64; 4] {
        self.all.lock().marks.get(&ordinal).copied().unwrap_or_default()
    }

    /// The most that was used (1) or kept (3) is from now on what is.
    pub(crate) fn reset_mark(&self, ordinal: Ordinal, which: usize) {
        if let Some(marks) = self.all.lock().marks.get_mut(&ordinal) {
            marks[which] = marks[which - 1];
        }
    }

    /// The device was reset: all that was on it is gone.
    pub(crate) fn forget(&self, ordinal: Ordinal) {
        let mut all = self.all.lock();
        all.kept.retain(|_, kept| kept.ordinal != ordinal);
        all.marks.remove(&ordinal);
    }

    /// Allocates memory for a node.
    pub(crate) fn allocate(self: &Arc<Self>, context: &Context, bytes: u64) -> Result<Arc<GraphAllocation>> {
        if bytes == 0 {
            return Err(invalid("a graph cannot allocate nothing"));
        }
        let (addr, ordinal) = (self.memory.alloc(context, bytes)?, context.ordinal);
        let mut all = self.all.lock();
        all.kept.insert(addr, Kept { bytes, ordinal, owned: true, live: false });
        all.more(ordinal, 2, bytes);
        Ok(Arc::new(GraphAllocation { addr, bytes, ordinal, owner: self.clone() }))
    }

    /// Whether a launch has allocated it, and nobody has freed it since.
    pub(crate) fn is_live(&self, addr: u64) -> bool {
        self.all.lock().kept.get(&addr).is_some_and(|kept| kept.live)
    }

    /// A launch allocates it.
    pub(crate) fn begin(&self, addr: u64) {
        self.all.lock().set_live(addr, true);
    }

    /// The program or a graph frees it.
    ///
    /// # Errors
    /// `InvalidValue` where no launch has allocated it, or it was freed since.
    pub(crate) fn end(&self, addr: u64) -> Result<Freeing> {
        let mut all = self.all.lock();
        let Some(kept) = all.kept.get(&addr) else { return Ok(Freeing::Foreign) };
        let owned = kept.owned;
        if !all.set_live(addr, false) {
            return Err(invalid(
                "a graph's memory is freed that no launch has allocated since it was last freed",
            ));
        }
        if owned {
            return Ok(Freeing::Kept);
        }
        all.give_up(addr);
        Ok(Freeing::Left)
    }
}

/// Memory that a graph allocates, at an address that is fixed when the node is made.
pub(crate) struct GraphAllocation {
    /// The device address where it starts.
    pub addr: u64,
    /// Bytes, as asked for.
    pub bytes: u64,
    /// The ordinal of the device it is on.
    pub ordinal: Ordinal,
    owner: Arc<GraphAllocations>,
}

impl Drop for GraphAllocation {
    fn drop(&mut self) {
        let mut all = self.owner.all.lock();
        match all.kept.get_mut(&self.addr) {
            // The device was reset since.
            None => return,
            Some(kept) if kept.live => return kept.owned = false,
            Some(_) => all.give_up(self.addr),
        }
        drop(all);
        // When the process is ending, or in a forked child, the device is no longer this process's to call.
        if lifecycle::is_usable() {
            // At worst the device is lost, and the memory with it.
            let _ = self.owner.memory.free(self.addr);
        }
    }
}

/// What a node does.
#[derive(Clone)]
pub(crate) enum Op {
    /// Nothing: a place to wait.
    Empty,
    /// A kernel launch.
    Kernel(Kernel),
    /// An operation of a mathematical library.
    Library(LibraryWork),
    /// A copy of a box, with what the program said about its direction.
    Copy(CopyBox, Direction),
    /// A fill with the low bytes (1, 2 or 4) of a value.
    Fill(Region, u32, u32),
    /// A function of the program's.
    Host(HostCall),
    /// Operations on words of memory, as the program described them.
    MemOps(Arc<[RawMemOp]>),
    /// Recording an event in the stream that the graph is launched in.
    Record(Arc<Event>),
    /// Waiting for an event.
    Wait(Arc<Event>),
    /// Allocating memory.
    Alloc(Arc<GraphAllocation>),
    /// Freeing an address that a graph allocated.
    Free(u64),
    /// A child graph, by its handle.
    Child(Raw),
    /// What graphs do, as a condition says.
    Conditional(Arc<Conditional>),
}

impl Op {
    /// The graphs that belong to the node.
    pub(crate) fn graphs(&self) -> &[Raw] {
        match self {
            Self::Child(child) => std::slice::from_ref(child),
            Self::Conditional(conditional) => &conditional.graphs,
            _ => &[],
        }
    }

    /// The same work; of a kernel, with the attributes of the kernel that was there before.
    pub(crate) fn with_attributes_of(mut self, before: &Self) -> Self {
        if let (Self::Kernel(kernel), Self::Kernel(before)) = (&mut self, before) {
            kernel.take_attributes(before);
        }
        self
    }

    /// What kind of node does this.
    pub(crate) fn kind(&self) -> NodeKind {
        match self {
            Self::Empty => NodeKind::Empty,
            // A library's work is kernels, of which nobody can say more.
            Self::Kernel(_) | Self::Library(_) => NodeKind::Kernel,
            Self::Copy(..) => NodeKind::Memcpy,
            Self::Fill(..) => NodeKind::Memset,
            Self::Host(_) => NodeKind::Host,
            Self::MemOps(_) => NodeKind::BatchMemOp,
            Self::Record(_) => NodeKind::EventRecord,
            Self::Wait(_) => NodeKind::WaitEvent,
            Self::Alloc(_) => NodeKind::MemAlloc,
            Self::Free(_) => NodeKind::MemFree,
            Self::Child(_) => NodeKind::Graph,
            Self::Conditional(_) => NodeKind::Conditional,
        }
    }
}
