//! The contract between compiled kernels (`compile`) and the executor that runs them (`exec`).
//!
//! A kernel is compiled to one machine-code function, [`RunFn`]. It runs a row of consecutive threads of
//! one block, each from where it last stopped ([`Thread::resume`]) to its next *stop*: the end of the
//! thread, a trap, or a *cut*. A cut is a place where a thread has to wait for others (a barrier, a warp
//! shuffle…) or lets others go first (a yield in a loop that may be spinning). Before a cut the thread
//! stores its live values into [`Thread::state`] and the operands of the operation into [`Thread::op`];
//! the executor carries the operation out for the threads that take part, puts results into
//! [`Thread::op`], and calls the function again. So no thread needs a stack of its own.
//!
//! # Addresses
//! All memory that a kernel may touch lies in one reserved range, the *arena*. A generic or global access
//! is confined to it by one comparison; an address outside it is replaced by [`FAULT_ADDRESS`], so that it
//! faults like a hole in the arena does; the executor's fault handler ends the kernel. Accesses to shared
//! memory add a 32-bit offset to [`Block::shared_base`], or, where a kernel can reach that of other blocks of its cluster, to
//! [`Place::shared_base`]. Behind either there are 4 GiB in which nothing is accessible but the shared memory of that cluster. A local address is a generic address. Kernel parameters lie in the arena.

pub mod counted;
pub mod device_runtime;
pub mod operands;
pub mod tensor;
pub mod texture;

/// Accesses outside the arena are redirected here; never mapped.
pub const FAULT_ADDRESS: u64 = 16;

/// No address of the processor's: what a misaligned access is redirected to where that is known when a kernel is compiled.
/// Where it is not, the bits of the address that should be zero are added at the top, which gives such numbers, too. The
/// processor reports them in a way of its own, and the executor ends the thread as for [`TRAP_MISALIGNED`].
pub const MISALIGNED_ADDRESS: u64 = 1 << 63;

/// The first and the last so many bytes of the arena are never mapped: compiled code checks only the
/// register of an address such as `[%rd1+16]`, and adds offsets below half of this unchecked.
pub const ARENA_MARGIN: u64 = 128 << 10;

/// Threads of a warp.
pub const WARP: usize = 32;

/// Most threads of a block.
pub const MAX_THREADS: usize = 1024;

/// Runs `count` consecutive threads, beginning with `*threads`, each from its `resume` to its next stop,
/// which it writes to `Thread::stop`. Threads must not be in a state of waiting. The function sets
/// `Block::cursor` to the thread it is running, and returns after all of them, or at once after one
/// that traps.
///
/// # Safety
/// `threads` must point to `count` valid [`Thread`]s whose `state` and `local_base` are as large as the
/// kernel asks, and `block` to a valid [`Block`].
pub type RunFn = unsafe extern "C" fn(threads: *mut Thread, count: u32, block: *mut Block);

/// One thread of a block. Compiled code knows the offsets of these fields (`std::mem::offset_of!`).
#[derive(Debug, Clone)]
#[repr(C)]
pub struct Thread {
    /// `%tid` in x, y, z. Set by the executor.
    pub tid: [u32; 3],
    /// `%laneid`. Set by the executor.
    pub lane: u32,
    /// Where to go on: 0 is the kernel's beginning. Reset to 0 by the executor for each new block,
    /// written by compiled code before a cut.
    pub resume: u32,
    /// Why the thread stopped: [`STOP_EXIT`], a trap (`>= STOP_TRAP`), or 1 + an index into
    /// [`Kernel::cuts`]. Written by compiled code.
    pub stop: u32,
    /// Yields are due when this is used up. Compiled code counts it down in loops that may spin
    /// and resets it itself.
    pub fuel: i32,
    /// The last error that CUDA's device runtime told the thread, a `cudaError_t`. Only the executor uses it.
    pub error: u32,
    /// Operands and results of the cut (see [`CutKind`]).
    pub op: [u64; 6],
    /// First address of the thread's local memory (16-byte aligned), [`Kernel::local_bytes`] plus the
    /// device's stack limit long.
    pub local_base: u64,
    /// One past its last address.
    pub local_end: u64,
    /// Live values across cuts, [`Kernel::state_bytes`] long, 16-byte aligned.
    pub state: *mut u8,
}

/// Where shared memory has a part that programs do not count: behind all that a block may have. Device code finds it by
/// `%reserved_smem_offset_…`; tiles of more than a warp (cooperative groups) synchronise there.
pub const RESERVED_SHARED_AT: u32 = (256 << 10) - RESERVED_SHARED_BYTES;
/// Bytes of it.
pub const RESERVED_SHARED_BYTES: u32 = 1024;

/// What the threads of a block share. Compiled code reads it.
#[derive(Debug, Clone)]
#[repr(C)]
pub struct Block {
    /// Index of the block in the grid (`%ctaid`).
    pub ctaid: [u32; 3],
    /// Blocks of the grid in x, y, z (`%nctaid`).
    pub nctaid: [u32; 3],
    /// Threads of a block in x, y, z (`%ntid`).
    pub ntid: [u32; 3],
    /// `%dynamic_smem_size`; `%total_smem_size` is this plus the kernel's static size.
    pub dynamic_shared: u32,
    /// `%smid`: which worker runs the block.
    pub smid: u32,
    /// How many multiprocessors there are (`%nsmid`).
    pub nsmid: u32,
    /// The number of the launch (`%gridid`).
    pub gridid: u64,
    /// Address of the kernel's parameter block (in the arena).
    pub params: u64,
    /// Address of shared memory (offset 0 of the shared state space).
    pub shared_base: u64,
    /// `%envreg1` (this field's low half) and `%envreg2` (its high half). Device code takes the former as the
    /// high and the latter as the low half of the address of a cooperative launch's grid workspace, whose
    /// second 32-bit word is the grid barrier; so this is that address with its halves swapped. 0 otherwise.
    pub envreg: u64,
    /// Where the block stands in its cluster.
    pub cluster: Place,
    /// The thread that is running or ran last, for messages; null where all threads of the block have ended at once.
    pub cursor: *mut Thread,
    /// The executor's own data, for helpers.
    pub executor: *mut std::ffi::c_void,
    /// How all threads have stopped that code for vectors has run, as [`Thread::stop`] says it, if they have stopped alike; else
    /// [`APART`]. Only kernels with cuts write it.
    pub together: u32,
    /// Operands and results of the running thread's operation on a texture (see [`texture`]) or bulk copy (see [`tensor`]), as
    /// [`operands::Words`]. Code for vectors has them in an [`operands::Operands`].
    pub words: [u64; operands::WORDS / 2],
}

/// [`Block::together`]: threads have stopped in several ways, or have not all run as vectors.
pub const APART: u32 = STOP_TRAP - 1;

/// The shared memory of a cluster's blocks lies in one row, that of the block of rank `n` so many bytes times `n` from its
/// beginning: so an address of 32 bits says which block's memory it is in (see [`Place`]).
pub const CLUSTER_STRIDE: u32 = 1 << CLUSTER_SHIFT;
/// The power of two that [`CLUSTER_STRIDE`] is.
pub const CLUSTER_SHIFT: u32 = 24;

/// Where a block stands in its cluster. A launch without clusters is one in clusters of one block.
///
/// Kernels that can make addresses of other blocks' shared memory (`mapa`) reach all shared memory by its offset from
/// [`Place::shared_base`]: their shared variables lie at [`Place::shared_offset`] and so on. In all others, these lie at 0 and so
/// on from [`Block::shared_base`].
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Place {
    /// Index of the cluster in the grid (`%clusterid`).
    pub id: [u32; 3],
    /// Clusters of the grid in x, y, z (`%nclusterid`).
    pub count: [u32; 3],
    /// Index of the block in the cluster (`%cluster_ctaid`).
    pub ctaid: [u32; 3],
    /// Blocks of the cluster in x, y, z (`%cluster_nctaid`).
    pub nctaid: [u32; 3],
    /// The block's number in the cluster (`%cluster_ctarank`).
    pub rank: u32,
    /// How many blocks the cluster has (`%cluster_nctarank`).
    pub blocks: u32,
    /// 1 where clusters were asked for (`%is_explicit_cluster`), else 0.
    pub explicit: u32,
    /// Where the block's own shared memory lies in that of the cluster: [`CLUSTER_STRIDE`] times the rank.
    pub shared_offset: u32,
    /// Address of the cluster's shared memory: that of the block of rank 0.
    pub shared_base: u64,
}

impl Place {
    /// That of a block without a cluster.
    pub fn alone(ctaid: [u32; 3], nctaid: [u32; 3], shared_base: u64) -> Self {
        let (ones, zeros) = ([1; 3], [0; 3]);
        Self {
            id: ctaid,
            count: nctaid,
            ctaid: zeros,
            nctaid: ones,
            rank: 0,
            blocks: 1,
            explicit: 0,
            shared_offset: 0,
            shared_base,
        }
    }
}

/// [`Thread::stop`]: the thread has ended.
pub const STOP_EXIT: u32 = 0;
/// [`Thread::stop`]: values from here on are traps.
pub const STOP_TRAP: u32 = 0xFFFF_0000;
/// Where in [`Thread::op`] a barrier says whether all threads of a warp have to come to it together, in kernels whose barriers
/// are looked at.
pub const BARRIER_ALIGNED: usize = 4;
/// Where in [`Thread::op`] a thread that traps leaves the line of the PTX text.
pub const TRAP_LINE: usize = 5;
/// The `trap` instruction (and `brkpt`).
pub const TRAP_INSTRUCTION: u32 = STOP_TRAP;
/// `__assertfail` was called; the message has been printed by the helper.
pub const TRAP_ASSERT: u32 = STOP_TRAP + 1;
/// The thread's local memory is exhausted (call depth).
pub const TRAP_STACK: u32 = STOP_TRAP + 2;
/// An indirect call through something that is no function of the module.
pub const TRAP_BAD_CALL: u32 = STOP_TRAP + 3;
/// A misaligned address.
pub const TRAP_MISALIGNED: u32 = STOP_TRAP + 4;
/// An address that a helper found to be invalid.
pub const TRAP_ADDRESS: u32 = STOP_TRAP + 5;
/// No tensor map, or one that does not fit the instruction.
pub const TRAP_TENSOR_MAP: u32 = STOP_TRAP + 6;

/// What the helper `vprintf` returns where format, arguments or a string lie in no memory of the device. The thread traps
/// with [`TRAP_ADDRESS`] then, as a GPU does.
pub const PRINTF_BAD_ADDRESS: i32 = -2;

/// How a shuffle finds its source lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum ShuffleMode {
    Up,
    Down,
    Butterfly,
    Index,
}

/// What a vote computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum VoteMode {
    All,
    Any,
    Uniform,
    Ballot,
}

/// What a reduction over a warp or a barrier computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum ReduceOp {
    Add,
    MinS32,
    MaxS32,
    MinU32,
    MaxU32,
    And,
    Or,
    Xor,
    Popc,
    PredicateAnd,
    PredicateOr,
}

/// The operation at a cut. `op[n]` are [`Thread::op`]; "→" are results. For operations of a warp, `op[3]`
/// is the member mask (`u32`); with [`Cut::legacy`] (the forms without `.sync`) it is not set, and
/// whichever lanes have arrived take part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CutKind {
    /// `bar.sync`/`barrier.sync`: `op[0]` barrier number, `op[1]` thread count (0: the whole block).
    Barrier,
    /// `bar.arrive`: likewise; the thread does not wait.
    BarrierArrive,
    /// `bar.red`: likewise, `op[2]` predicate (0 or 1) → `op[0]`.
    BarrierReduce(ReduceOp),
    /// `shfl`: `op[0]` value (32 bits), `op[1]` operand b, `op[2]` operand c → `op[0]` value, `op[1]`
    /// predicate.
    Shuffle(ShuffleMode),
    /// `vote`: `op[0]` predicate → `op[0]` predicate or ballot.
    Vote(VoteMode),
    /// `match.any`: `op[0]` value → `op[0]` mask.
    MatchAny,
    /// `match.all`: `op[0]` value → `op[0]` mask, `op[1]` predicate.
    MatchAll,
    /// `redux.sync`: `op[0]` value → `op[0]`.
    Redux(ReduceOp),
    /// `bar.warp.sync`.
    WarpSync,
    /// `activemask`: → `op[0]`, the lanes that stopped here together.
    ActiveMask,
    /// `elect.sync`: → `op[0]` leader lane, `op[1]` predicate (1 in the leader).
    Elect,
    /// Nothing but letting other threads, warps, blocks and kernels run.
    Yield,
    /// Likewise, but other blocks of the grid go first, too.
    GridYield(Hold),
    /// `barrier.cluster.arrive`: the thread does not wait.
    ClusterArrive,
    /// `barrier.cluster.wait`: until all threads of the cluster have arrived that have not ended.
    ClusterWait,
    /// `mma`/`wmma.mma`: an operation on matrix fragments that all lanes of a warp hold. `index`
    /// chooses from [`Kernel::matrix_ops`]; fragments lie in `state` where that says.
    Matrix(u16),
    /// `wgmma.mma_async`: an operation that four warps carry out together, on fragments that their lanes hold and matrices in
    /// shared memory. The number chooses from [`Kernel::group_ops`]; fragments lie in `state` where that says. `op[0]` and
    /// `op[1]` describe the matrices, and `op[2]` says whether the product is added to what is there.
    Group(u16),
}

impl CutKind {
    /// Whether a thread stops there for nothing but to let others go first.
    pub fn yields(self) -> bool {
        matches!(self, Self::Yield | Self::GridYield(_))
    }
}

/// For how long a block lets other blocks of its grid go first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hold {
    /// Until all have come to their ends, or to such a place.
    ToTheEnd,
    /// Until all that have begun have gone on, as far as they come.
    ForATurn,
}

/// A place where threads stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cut {
    /// What happens there.
    pub kind: CutKind,
    /// Whether it is a warp operation of the old form, without `.sync` and mask.
    pub legacy: bool,
    /// Line of the PTX text.
    pub line: u32,
}

/// An operation on matrix fragments: called with the 32 threads' state pointers.
pub type MatrixFn = Box<dyn Fn(&[*mut u8; WARP]) + Send + Sync>;

/// Threads that run at once in code for vectors of threads: a group. Its first thread's number is a multiple of that. There is code for
/// groups of these sizes. With values of 32 bits, a group of the first fills one of the processor's vectors of 256 bits; the last is a whole warp.
pub const WIDTHS: [usize; 3] = [8, 16, WARP];
/// The place of a size of groups in [`WIDTHS`].
#[inline]
pub fn width_index(lanes: usize) -> usize {
    WIDTHS.iter().position(|width| *width == lanes).unwrap_or(0)
}

/// The most threads of a group.
pub const MOST_LANES: usize = WARP;

/// Where a group keeps what its threads leave at a cut, field by field: in code for vectors, this stands for the threads' own fields of
/// the same names. Smaller groups use the first of [`MOST_LANES`] places. The places of [`Vectors::cells`] follow, which stand for the threads' states.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
pub struct Row {
    /// [`Thread::resume`]
    pub resume: [u32; MOST_LANES],
    /// [`Thread::stop`]
    pub stop: [u32; MOST_LANES],
    /// The first of [`Thread::op`]. The others stay in the threads.
    pub op: [[u64; MOST_LANES]; ROW_OPERANDS],
}

/// How many operands of a cut a group's row has.
pub const ROW_OPERANDS: usize = 4;

impl Row {
    /// How many bytes behind the state of a group's first thread the group's row lies, where groups have so many threads.
    pub fn offset(state_bytes: u32, lanes: usize) -> usize {
        state_stride(state_bytes) * lanes
    }

    /// How many bytes a group's states, row and cells take.
    pub fn group_bytes(state_bytes: u32, lanes: usize) -> usize {
        2 * Self::offset(state_bytes, lanes) + size_of::<Self>()
    }
}

/// From the state of a thread to that of the next one of its group, in bytes.
pub fn state_stride(state_bytes: u32) -> usize {
    state_bytes.next_multiple_of(16) as usize
}

/// A value of the threads' states, as code for vectors keeps it: as many times [`Cell::offset`] behind the row as a group has threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cell {
    /// Where it is in a thread's state.
    pub offset: u32,
    /// How many bytes it has: 1, 2, 4 or 8.
    pub bytes: u32,
    /// If only the first lane's value is kept: by how much it goes up from lane to lane.
    pub step: Option<i64>,
}

/// Threads of four warps that follow each other.
pub const GROUP: usize = 4 * WARP;

/// What an operation of four warps works on.
pub struct GroupWork<'a> {
    /// The threads' state pointers.
    pub states: &'a [*mut u8; GROUP],
    /// Where the block's shared memory begins, and how many bytes of it may be accessed.
    pub shared: (*const u8, u32),
    /// What describes the matrices there.
    pub descriptors: [u64; 2],
    /// Whether the product is added to what is there.
    pub adds: bool,
}

/// An operation of four warps; [`TRAP_ADDRESS`] where a matrix does not lie in shared memory.
pub type GroupFn = Box<dyn Fn(&GroupWork<'_>) -> Result<(), u32> + Send + Sync>;

/// A kernel's machine code that runs several threads at once.
pub struct Vectors {
    /// Runs a row of threads, as [`Kernel::run`] does, but [`Vectors::lanes`] at a time. `count` has to be a multiple of that, and each group of
    /// threads has to go on in one place, to lie in one row of the block (with one
    /// `%tid.y` and `%tid.z` and consecutive `%tid.x`), and to be consecutive lanes of a warp. Their states follow each other at
    /// [`state_stride`], and a [`Row`] lies behind them. Kernels with cuts leave there what other
    /// kernels leave in the threads. Where a thread traps or faults, others of its group may have gone on.
    pub run: RunFn,
    /// Threads of a group: one of [`WIDTHS`].
    pub lanes: usize,
    /// What it keeps of the states.
    pub cells: Vec<Cell>,
    /// Whether it goes through barriers and operations of warps by itself, as far as it can. Where all threads of a block are run (whole warps, if
    /// there are operations of warps), and [`Block::together`] says how they have stopped, it does not look into their rows for where they go on.
    pub phases: bool,
    /// As [`Kernel::local_bytes`]; more where functions that the other code calls are part of it.
    pub local_bytes: u32,
    /// Keeps the machine code alive, and says where it comes from.
    pub code: std::sync::Arc<dyn Origins>,
}

/// A compiled kernel.
pub struct Kernel {
    /// The kernel's name, as the module spells it.
    pub name: String,
    /// The machine code.
    pub run: RunFn,
    /// The kernel for vectors of threads, as soon as there is one, by the place of their size in [`WIDTHS`].
    pub vectors: [std::sync::OnceLock<Vectors>; WIDTHS.len()],
    /// Bytes of [`Thread::state`] per thread.
    pub state_bytes: u32,
    /// Bytes of local memory per thread that the kernel's own frame needs (calls come on top).
    pub local_bytes: u32,
    /// Bytes of static shared memory; dynamic shared memory begins after them (aligned to 16).
    pub static_shared: u32,
    /// Whether it uses reserved shared memory, which is zero when a block begins.
    pub reserved_shared: bool,
    /// Its cuts; [`Thread::stop`] is 1 + an index here.
    pub cuts: Vec<Cut>,
    /// Its operations on matrix fragments.
    pub matrix_ops: Vec<MatrixFn>,
    /// What is counted in it, where it is compiled for that.
    pub sites: Option<counted::Sites>,
    /// Its operations of four warps.
    pub group_ops: Vec<GroupFn>,
    /// Keeps the machine code alive, and knows which lines it comes from.
    pub code: std::sync::Arc<dyn Origins>,
}

impl Kernel {
    /// There is code for vectors of threads now, if there has been none for groups of that size.
    pub fn add_vectors(&self, vectors: Vectors) {
        let _ = self.vectors[width_index(vectors.lanes)].set(vectors);
    }

    /// Whether there is code for vectors of threads.
    pub fn has_vectors(&self) -> bool {
        self.vectors.iter().any(|vectors| vectors.get().is_some())
    }

    /// The kernel for groups of so many threads, if there is one.
    #[inline]
    pub fn vectors_of(&self, lanes: usize) -> Option<&Vectors> {
        self.vectors[width_index(lanes)].get().filter(|vectors| vectors.lanes == lanes)
    }

    /// The line of the PTX text that the instruction at an address was compiled from, and for how many threads at once: 1, or the size of a group. Code
    /// for groups may have instructions of several lines, and so of none; `near` is for those beside which a line is good enough.
    pub fn line_at(&self, address: u64, near: bool) -> (Option<u32>, usize) {
        let mut groups = self.vectors.iter().filter_map(|vectors| vectors.get());
        match groups.find(|vectors| vectors.code.contains(address)) {
            Some(vectors) if near => (vectors.code.line_at(address), vectors.lanes),
            Some(vectors) => (vectors.code.line_exactly_at(address), vectors.lanes),
            None => (self.code.line_at(address), 1),
        }
    }
}

/// Where machine code comes from, for messages.
pub trait Origins: Send + Sync {
    /// Whether an address is one of the machine code's.
    fn contains(&self, address: u64) -> bool;

    /// The line of the PTX text that the instruction at an address was compiled from, or one beside it.
    fn line_at(&self, address: u64) -> Option<u32>;

    /// The line of the PTX text that the very instruction at an address was compiled from, if there is one line.
    fn line_exactly_at(&self, address: u64) -> Option<u32>;

    /// The line of the program's source that a line of the PTX text comes from, and the calls that it was inlined for, in words.
    fn source(&self, line: u32) -> Option<String>;

    /// The same, one after the other: the line, and then those of the calls that it was inlined for, the innermost first.
    fn chain(&self, line: u32) -> Vec<String>;
}

/// For machine code of which nothing is known.
impl Origins for () {
    fn contains(&self, _address: u64) -> bool {
        false
    }

    fn line_at(&self, _address: u64) -> Option<u32> {
        None
    }

    fn line_exactly_at(&self, _address: u64) -> Option<u32> {
        None
    }

    fn source(&self, _line: u32) -> Option<String> {
        None
    }

    fn chain(&self, _line: u32) -> Vec<String> {
        Vec::new()
    }
}

/// Addresses of the executor's functions that compiled code calls, all `extern "C"`. A helper that finds
/// a bad address returns with the trap code set as its result says; it never faults.
#[derive(Debug, Clone, Copy)]
pub struct Helpers {
    /// `fn(block: *mut Block, format: u64, args: u64) -> i32`: `vprintf`; both are generic addresses. The result is as in
    /// CUDA, or [`PRINTF_BAD_ADDRESS`].
    pub vprintf: usize,
    /// `fn(block: *mut Block, bytes: u64) -> u64`: the kernel's `malloc`, 0 when its heap is full.
    pub malloc: usize,
    /// `fn(block: *mut Block, addr: u64)`: the kernel's `free`.
    pub free: usize,
    /// `fn(block: *mut Block, message: u64, file: u64, line: u32, function: u64)`: prints the failed
    /// assertion; the compiled code then traps with [`TRAP_ASSERT`].
    pub assertfail: usize,
    /// `fn() -> u64`: nanoseconds, for `%globaltimer`.
    pub globaltimer: usize,
    /// `fn() -> u64`: a cycle counter, for `%clock` and `%clock64`.
    pub clock: usize,
    /// `fn(block: *mut Block, call: u64, arguments: u64 × 8) -> u64`: a function of [`device_runtime`].
    pub device_runtime: usize,
    /// `fn(block: *mut Block, address: u64, what: u64) -> u64`: looks at an access before it is made, in kernels that are compiled
    /// with [`Checks`]. `address` is generic, and `what` is an [`Access`]. The result is the address to access instead, which is
    /// confined as any other.
    pub check: usize,
    /// `fn(block: *mut Block, handle: u64, operation: u64) -> u32`: an operation on a texture or surface object
    /// ([`texture::TextureOp`]), with operands and results in [`Block::words`]. 0, or the trap that the running thread ends with.
    pub texture: usize,
    /// `fn(block: *mut Block, first: *mut Thread, lanes: u64, operation: u64, operands: *mut Operands)`: the same for those threads of a
    /// group that are bits of `lanes`, one after another, with everything in `operands` ([`operands::Operands`]).
    pub textures: usize,
    /// `fn(block: *mut Block, what: u64)`: a thread comes to a region, in kernels that are compiled to be counted
    /// ([`counted::Event`]).
    pub count: usize,
    /// `fn(block: *mut Block, address: u64, operation: u64) -> u32`: a bulk copy or an operation on a tensor map
    /// ([`tensor::TensorOp`]), with operands and results in [`Block::words`]. 0, or the trap that the running thread ends with.
    pub tensor: usize,
    /// As [`Helpers::textures`] is for textures.
    pub tensors: usize,
    /// `fn(block: *mut Block, first: *mut Thread, count: u32, cut: u32)`: all warps among so many threads, which are no other than whole
    /// warps, have come to one operation with a mask of all lanes, or all threads of the block to one reduction; operands and results are in
    /// their [`Row`]s.
    pub exchange: usize,
    /// `fn(block: *mut Block, first: *mut Thread, cut: u32, waiting: u32) -> u32`: these lanes of a warp have come to one operation, with masks of their
    /// own in their [`Row`]s. The lanes for which it was made, which are whole groups; none where some do not name each other.
    pub exchange_by_name: usize,
}

/// What is looked at while kernels run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Checks {
    /// Every access to memory that is not known to be right.
    pub memory: bool,
    /// Every access to shared memory.
    pub shared: bool,
    /// Barriers and operations of warps.
    pub sync: bool,
    /// What runs how often, and every access, to be counted.
    pub counts: bool,
}

impl Checks {
    /// Whether accesses are looked at.
    pub fn of_accesses(self) -> bool {
        self.memory || self.shared || self.counts
    }

    /// The same as a number, 0 for none.
    pub fn bits(self) -> u64 {
        u64::from(self.memory)
            | u64::from(self.shared) << 1
            | u64::from(self.sync) << 2
            | u64::from(self.counts) << 3
    }
}

/// What an access does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum AccessKind {
    /// It reads.
    Read,
    /// It writes.
    Write,
    /// It does both at once.
    Atomic,
    /// It is an operation on a barrier that is an object in memory.
    Barrier,
}

/// An access, as compiled code describes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access {
    /// What it does.
    pub kind: AccessKind,
    /// Whether it says how it is ordered: a load or a store that is relaxed, acquires or releases, an atomic operation that acquires or
    /// releases.
    pub ordered: bool,
    /// How many bytes, a power of two.
    pub size: u32,
    /// The line of the PTX text; in kernels that are counted, the access's number among [`counted::Sites::accesses`].
    pub line: u32,
}

impl Access {
    /// As one number.
    pub fn pack(self) -> u64 {
        let kind = self.kind as u64 | u64::from(self.ordered) << 2;
        u64::from(self.size & 0xffff) | kind << 16 | u64::from(self.line) << 32
    }

    /// What [`Access::pack`] has made a number of.
    pub fn unpack(number: u64) -> Self {
        let kind = match number >> 16 & 3 {
            0 => AccessKind::Read,
            1 => AccessKind::Write,
            2 => AccessKind::Atomic,
            _ => AccessKind::Barrier,
        };
        let ordered = number >> 18 & 1 != 0;
        Self { kind, ordered, size: (number & 0xffff) as u32, line: (number >> 32) as u32 }
    }
}
