//! What a graph's node does.

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::sync::Arc;

use rgpu_device::Region;

use super::condition::Conditional;
use super::memory::GraphAllocation;
use crate::abi::types::AttributeValue;
use crate::core::error::Result;
use crate::core::event::Event;
use crate::core::launch::Config;
use crate::core::mem_op::RawMemOp;
use crate::core::module::Function;
use crate::core::params::Params;
use crate::core::registry::Raw;
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
