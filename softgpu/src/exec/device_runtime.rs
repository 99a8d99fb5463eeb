//! CUDA's device runtime: what kernels launch, and when it runs.
//!
//! Since CUDA 12 a kernel cannot wait for what it has launched. So nothing that a grid launches has to begin before the grid's
//! own blocks have ended, and here nothing does: a grid's launches, copies and fills are noted in the order in which its threads make
//! them, and carried out one after another when its last block has ended, each with all that it launches in turn. What was put into
//! the stream for tail launches comes behind all of that. The stream of the grid that the program itself launched goes on after the last of
//! them. Streams and events of a kernel's own then have nothing left to order.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use parking_lot::{MappedMutexGuard, MutexGuard};
use rgpu_device::{Code, DeviceInfo, Error, Launch, LaunchLimits, Result, attribute};

use super::Config;
use super::block::Context;
use super::fault::Guard;
use super::grid::Grid;
use super::heap::Heap;
use super::helpers::{Careful, with};
use super::info::{RESIDENT_THREADS, describe};
use super::launch::LaunchWork;
use super::printf::Memory;
use crate::abi::Block;
use crate::abi::device_runtime::{ARGUMENTS, DeviceCall};

/// How many launches, copies and fills may wait behind one grid. A GPU has room for 2,048 unless a program asks for more; programs that
/// do not ask find more here, and what would fill the machine's memory ends all the same.
const MOST_PENDING: usize = 1 << 18;
/// `cudaStreamTailLaunch`.
const TAIL_LAUNCH: u64 = 3;
/// `cudaStreamFireAndForget`.
const FIRE_AND_FORGET: u64 = 4;
/// The first handle of a stream or an event that a kernel makes.
const FIRST_HANDLE: u64 = 0x100;
/// Bytes that are copied or filled at once.
const CHUNK: usize = 256 << 10;
/// The CUDA version that `cudaRuntimeGetVersion` tells.
const RUNTIME_VERSION: u32 = 13000;

/// `cudaError_t`, as far as the device runtime returns it.
mod status {
    pub(super) const SUCCESS: u32 = 0;
    pub(super) const INVALID_VALUE: u32 = 1;
    pub(super) const MEMORY_ALLOCATION: u32 = 2;
    pub(super) const LAUNCH_PENDING_COUNT_EXCEEDED: u32 = 69;
    pub(super) const INVALID_DEVICE_FUNCTION: u32 = 98;
    pub(super) const INVALID_DEVICE: u32 = 101;
    pub(super) const INVALID_RESOURCE_HANDLE: u32 = 400;
    pub(super) const NOT_SUPPORTED: u32 = 801;

    /// Names and descriptions.
    pub(super) const TEXTS: [(u32, &str, &str); 11] = [
        (SUCCESS, "cudaSuccess", "no error"),
        (INVALID_VALUE, "cudaErrorInvalidValue", "invalid argument"),
        (MEMORY_ALLOCATION, "cudaErrorMemoryAllocation", "out of memory"),
        (9, "cudaErrorInvalidConfiguration", "invalid configuration argument"),
        (
            LAUNCH_PENDING_COUNT_EXCEEDED,
            "cudaErrorLaunchPendingCountExceeded",
            "launch would exceed cudaLimitDevRuntimePendingLaunchCount",
        ),
        (INVALID_DEVICE_FUNCTION, "cudaErrorInvalidDeviceFunction", "invalid device function"),
        (INVALID_DEVICE, "cudaErrorInvalidDevice", "invalid device ordinal"),
        (218, "cudaErrorInvalidPtx", "a PTX JIT compilation failed"),
        (INVALID_RESOURCE_HANDLE, "cudaErrorInvalidResourceHandle", "invalid resource handle"),
        (701, "cudaErrorLaunchOutOfResources", "too many resources requested for launch"),
        (NOT_SUPPORTED, "cudaErrorNotSupported", "operation not supported"),
    ];
}

/// Something that a grid has left to do for when it has ended.
pub(super) enum Descendant {
    /// A kernel.
    Launch(Box<LaunchWork>),
    /// Rows to be copied.
    Copy {
        /// Where to.
        to: Rows,
        /// Where from.
        from: Rows,
    },
    /// Rows to be filled with a byte.
    Fill {
        /// Where.
        to: Rows,
        /// With what.
        value: u8,
    },
}

/// Bytes in device memory.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rows {
    base: u64,
    pitch: u64,
    width: u64,
    height: u64,
}

impl Rows {
    fn new(base: u64, pitch: u64, width: u64, height: u64) -> Option<Self> {
        let rows = Self { base, pitch, width, height };
        // All addresses are numbers, so that going through them needs no more checks.
        let last = height.saturating_sub(1).checked_mul(pitch)?.checked_add(width)?;
        base.checked_add(last)?;
        (height <= 1 || width <= pitch).then_some(rows)
    }

    fn row(&self, index: u64) -> u64 {
        self.base + index * self.pitch
    }

    /// The most bytes of a piece.
    fn piece(&self) -> usize {
        CHUNK.min(self.width as usize)
    }

    /// Goes through all rows piece by piece: the row's index, where in it the piece begins, and its bytes.
    fn pieces(&self, mut each: impl FnMut(u64, u64, usize) -> Result<()>) -> Result<()> {
        for row in 0..self.height {
            for at in (0..self.width).step_by(CHUNK) {
                each(row, at, CHUNK.min((self.width - at) as usize))?;
            }
        }
        Ok(())
    }
}

/// What is set up for a launch whose arguments are being written.
struct Prepared {
    function: u32,
    grid: [u32; 3],
    block: [u32; 3],
    shared_bytes: u32,
    bytes: u32,
}

/// What a grid launches, and its streams and events. Most grids launch nothing, and have none.
#[derive(Default)]
pub(super) struct Launches {
    prepared: BTreeMap<u64, Prepared>,
    ordinary: Vec<Descendant>,
    tail: Vec<Descendant>,
    /// What comes behind the grid before its stream goes on, where it is itself one of another grid's launches.
    behind: VecDeque<Descendant>,
    handles: BTreeSet<u64>,
    made: u64,
}

impl Launches {
    /// Those of a grid behind which others come, if any do.
    pub(super) fn before(behind: VecDeque<Descendant>) -> Option<Box<Self>> {
        (!behind.is_empty()).then(|| Box::new(Self { behind, ..Self::default() }))
    }

    /// What is left to do, in its order, now that the grid has ended. Frees the arguments of what was never launched.
    pub(super) fn finish(self, heap: &Heap) -> VecDeque<Descendant> {
        for &buffer in self.prepared.keys() {
            heap.free(buffer);
        }
        let mut left = self.behind;
        for descendant in self.ordinary.into_iter().chain(self.tail).rev() {
            left.push_front(descendant);
        }
        left
    }

    fn make_handle(&mut self) -> u64 {
        let handle = FIRST_HANDLE + self.made;
        self.made += 1;
        self.handles.insert(handle);
        handle
    }

    fn knows_stream(&self, stream: u64) -> bool {
        stream <= FIRE_AND_FORGET || self.handles.contains(&stream)
    }

    fn push(&mut self, stream: u64, descendant: Descendant) -> Answer {
        if !self.knows_stream(stream) {
            return Err(status::INVALID_RESOURCE_HANDLE);
        }
        if self.ordinary.len() + self.tail.len() >= MOST_PENDING {
            return Err(status::LAUNCH_PENDING_COUNT_EXCEEDED);
        }
        if stream == TAIL_LAUNCH { &mut self.tail } else { &mut self.ordinary }.push(descendant);
        Ok(())
    }
}

/// What is known of the devices, for kernels' questions and everybody's launches.
pub(super) struct About {
    /// What can be launched at most.
    pub limits: LaunchLimits,
    /// The devices.
    pub devices: Box<[DeviceInfo]>,
}

impl About {
    /// What is known of the devices of an application that so many workers execute.
    pub(super) fn new(config: &Config, workers: usize) -> Self {
        let devices: Box<[_]> =
            (0..config.devices).map(|ordinal| describe(config, workers, ordinal)).collect();
        Self { limits: LaunchLimits::new(&devices[0]), devices }
    }
}

/// What is left to do behind a grid that has ended.
pub(super) struct Descent {
    /// The stream of the first grid.
    pub stream: u64,
    /// The device's ordinal.
    pub ordinal: u32,
    /// The stream's priority.
    pub priority: i32,
    /// The parameter slot, which all of them use in turn.
    pub slot: u64,
    /// What is left.
    pub rest: VecDeque<Descendant>,
}

impl Descendant {
    /// Carries out a copy or a fill; a launch is given back.
    pub(super) fn carry_out(
        self,
        guard: &mut Guard,
        arena: rgpu_device::Range,
    ) -> Result<Option<Box<LaunchWork>>> {
        let mut memory = Careful { guard, arena };
        match self {
            Self::Launch(launch) => return Ok(Some(launch)),
            Self::Copy { to, from } => {
                let mut buffer = vec![0; to.piece()];
                to.pieces(|row, at, length| {
                    let buffer = &mut buffer[..length];
                    memory.read(from.row(row) + at, buffer).ok_or_else(|| bad(from))?;
                    memory.write(to.row(row) + at, buffer).ok_or_else(|| bad(to))
                })?;
            }
            Self::Fill { to, value } => {
                let buffer = vec![value; to.piece()];
                to.pieces(|row, at, length| {
                    memory.write(to.row(row) + at, &buffer[..length]).ok_or_else(|| bad(to))
                })?;
            }
        }
        Ok(None)
    }
}

fn bad(rows: Rows) -> Error {
    Error::new(
        Code::IllegalAddress,
        format!(
            "A kernel asked for a copy or fill of {} bytes at {:#x}, of which not all are the device's memory",
            rows.width.saturating_mul(rows.height),
            rows.base
        ),
    )
}

/// The helper of all functions of the device runtime.
#[allow(clippy::too_many_arguments)] // an ABI: one register or place on the stack for each
pub(super) extern "C" fn call(
    block: *mut Block,
    call: u64,
    a: u64,
    b: u64,
    c: u64,
    d: u64,
    e: u64,
    f: u64,
    g: u64,
    h: u64,
) -> u64 {
    // SAFETY: called by compiled code with its own block, whose cursor is its running thread, if any.
    unsafe {
        let before = (*block).cursor.as_ref().map_or(0, |thread| thread.error);
        let mut errors = Errors { last: before };
        let result = with(block, |context, guard| {
            let memory = Careful { guard, arena: context.arena };
            context.told.set(true);
            match DeviceCall::from_number(call) {
                Some(call) => Caller { context, memory }.answer(call, [a, b, c, d, e, f, g, h], &mut errors),
                None => u64::from(errors.note(status::NOT_SUPPORTED)),
            }
        });
        if let Some(thread) = (*block).cursor.as_mut() {
            thread.error = errors.last;
        }
        result
    }
}

/// The calling thread's last error.
struct Errors {
    last: u32,
}

impl Errors {
    fn note(&mut self, status: u32) -> u32 {
        if status != status::SUCCESS {
            self.last = status;
        }
        status
    }
}

/// A thread that calls.
struct Caller<'a> {
    context: &'a Context,
    memory: Careful<'a>,
}

type Answer = std::result::Result<(), u32>;

impl Caller<'_> {
    fn grid(&self) -> &Grid {
        &self.context.grid
    }

    /// What the grid launches, from now on if there was nothing yet.
    fn launches(&self) -> MappedMutexGuard<'_, Launches> {
        let launches = self.context.grid.launches.lock();
        MutexGuard::map(launches, |launches| &mut **launches.get_or_insert_default())
    }

    fn write(&mut self, to: u64, bytes: &[u8]) -> Answer {
        self.memory.write(to, bytes).ok_or(status::INVALID_VALUE)
    }

    fn write_word(&mut self, to: u64, value: u32) -> Answer {
        self.write(to, &value.to_le_bytes())
    }

    fn dimensions(&mut self, at: u64) -> Option<[u32; 3]> {
        let mut bytes = [0; 12];
        self.memory.read(at, &mut bytes)?;
        let word = |i: usize| u32::from_le_bytes(std::array::from_fn(|byte| bytes[4 * i + byte]));
        Some([word(0), word(1), word(2)])
    }

    fn answer(&mut self, call: DeviceCall, a: [u64; ARGUMENTS], errors: &mut Errors) -> u64 {
        let word = |i: usize| a[i] as u32;
        let outcome = match call {
            DeviceCall::GetParameterBufferV2 => {
                return match self.parameter_buffer(a[0], a[1], a[2], word(3)) {
                    Ok(address) => address,
                    Err(status) => {
                        errors.note(status);
                        0
                    }
                };
            }
            DeviceCall::GetLastError => return u64::from(std::mem::take(&mut errors.last)),
            DeviceCall::PeekAtLastError => return u64::from(errors.last),
            DeviceCall::GetErrorName => return self.text(word(0), |(_, name, _)| name),
            DeviceCall::GetErrorString => return self.text(word(0), |(_, _, text)| text),
            DeviceCall::LaunchDeviceV2 => self.launch(a[0], a[1]),
            DeviceCall::GetDeviceCount => {
                let count = self.grid().about.devices.len() as u32;
                self.write_word(a[0], count)
            }
            DeviceCall::GetDevice => {
                let ordinal = self.grid().ordinal;
                self.write_word(a[0], ordinal)
            }
            DeviceCall::DeviceGetAttribute => {
                let value = self.grid().about.devices.get(a[2] as u32 as usize).map(|d| d.attribute(word(1)));
                match value {
                    Some(value) => self.write_word(a[0], value as u32),
                    None => Err(status::INVALID_DEVICE),
                }
            }
            DeviceCall::DeviceGetLimit => self.limit(a[0], word(1)),
            // cudaFuncCachePreferNone, cudaSharedMemBankSizeDefault
            DeviceCall::DeviceGetCacheConfig | DeviceCall::DeviceGetSharedMemConfig => {
                self.write_word(a[0], 0)
            }
            DeviceCall::RuntimeGetVersion => self.write_word(a[0], RUNTIME_VERSION),
            DeviceCall::FuncGetAttributes => self.attributes(a[0], a[1]),
            DeviceCall::OccupancyMaxActiveBlocksPerMultiprocessor
            | DeviceCall::OccupancyMaxActiveBlocksPerMultiprocessorWithFlags => {
                self.occupancy(a[0], a[1], word(2), a[3])
            }
            // A kernel's streams cannot wait for its NULL stream: the flag has to say so.
            DeviceCall::StreamCreateWithFlags if word(1) != 1 => Err(status::INVALID_VALUE),
            // Nor can its events keep time.
            DeviceCall::EventCreateWithFlags if word(1) & 2 == 0 => Err(status::INVALID_VALUE),
            DeviceCall::StreamCreateWithFlags | DeviceCall::EventCreateWithFlags => {
                let handle = self.launches().make_handle();
                self.write(a[0], &handle.to_le_bytes())
            }
            DeviceCall::StreamDestroy | DeviceCall::EventDestroy => {
                let known = self.launches().handles.remove(&a[0]);
                if known { Ok(()) } else { Err(status::INVALID_VALUE) }
            }
            DeviceCall::StreamWaitEvent => self.both(a[0], a[1]),
            DeviceCall::EventRecord | DeviceCall::EventRecordWithFlags => self.both(a[1], a[0]),
            DeviceCall::Malloc => {
                let address = if a[1] == 0 { 0 } else { self.grid().heap.malloc(a[1]) };
                match address {
                    0 if a[1] != 0 => Err(status::MEMORY_ALLOCATION),
                    address => self.write(a[0], &address.to_le_bytes()),
                }
            }
            DeviceCall::Free => {
                if a[0] == 0 || self.grid().heap.free(a[0]) {
                    Ok(())
                } else {
                    Err(status::INVALID_VALUE)
                }
            }
            DeviceCall::MemcpyAsync => self.copy((a[0], a[2]), (a[1], a[2]), (a[2], 1), word(3), a[4]),
            DeviceCall::Memcpy2DAsync => self.copy((a[0], a[1]), (a[2], a[3]), (a[4], a[5]), word(6), a[7]),
            DeviceCall::MemsetAsync => self.fill((a[0], a[2]), word(1), (a[2], 1), a[3]),
            DeviceCall::Memset2DAsync => self.fill((a[0], a[1]), word(2), (a[3], a[4]), a[5]),
            // A condition's handle is where it lies. Programs are told nothing of how that went.
            DeviceCall::GraphSetConditional => self.write_word(a[0], word(1)),
        };
        u64::from(errors.note(outcome.err().unwrap_or(status::SUCCESS)))
    }

    fn parameter_buffer(
        &mut self,
        function: u64,
        grid: u64,
        block: u64,
        shared_bytes: u32,
    ) -> std::result::Result<u64, u32> {
        let grid = self.dimensions(grid).ok_or(status::INVALID_VALUE)?;
        let block = self.dimensions(block).ok_or(status::INVALID_VALUE)?;
        let module = &self.context.grid.origin.0;
        let (function, info) = module.kernel_at(function).ok_or(status::INVALID_DEVICE_FUNCTION)?;
        let bytes = info.param_bytes();
        let address = self.grid().heap.malloc(u64::from(bytes).max(8));
        if address == 0 {
            return Err(status::MEMORY_ALLOCATION);
        }
        let prepared = Prepared { function, grid, block, shared_bytes, bytes };
        self.launches().prepared.insert(address, prepared);
        Ok(address)
    }

    fn launch(&mut self, buffer: u64, stream: u64) -> Answer {
        let prepared = self.launches().prepared.remove(&buffer).ok_or(status::INVALID_VALUE)?;
        let mut params = vec![0; prepared.bytes as usize];
        let read = self.memory.read(buffer, &mut params);
        self.grid().heap.free(buffer);
        read.ok_or(status::INVALID_VALUE)?;
        let launch = Launch {
            stream: 0,
            module: 0,
            function: prepared.function,
            grid: prepared.grid,
            block: prepared.block,
            shared_bytes: prepared.shared_bytes,
            cooperative: false,
            cluster: [0; 3],
            params: &params,
        };
        let grid = self.grid();
        let work = LaunchWork::new(&launch, grid.origin.0.clone(), grid.stack, &grid.about.limits);
        let work = work.map_err(|error| match error.code {
            Code::InvalidPtx => {
                // There is nobody else who could say why.
                grid.print(format!("rgpu: {}\n", error.message).as_bytes());
                error.code as u32
            }
            code => code as u32,
        })?;
        self.launches().push(stream, Descendant::Launch(Box::new(work)))
    }

    fn both(&mut self, stream: u64, event: u64) -> Answer {
        let launches = self.launches();
        let known = launches.knows_stream(stream) && launches.handles.contains(&event);
        if known { Ok(()) } else { Err(status::INVALID_RESOURCE_HANDLE) }
    }

    fn copy(
        &mut self,
        to: (u64, u64),
        from: (u64, u64),
        (width, height): (u64, u64),
        kind: u32,
        stream: u64,
    ) -> Answer {
        // cudaMemcpyDeviceToDevice, cudaMemcpyDefault: a kernel has no other memory.
        if !matches!(kind, 3 | 4) {
            return Err(status::INVALID_VALUE);
        }
        let rows = |(base, pitch)| Rows::new(base, pitch, width, height).ok_or(status::INVALID_VALUE);
        let copy = Descendant::Copy { to: rows(to)?, from: rows(from)? };
        self.launches().push(stream, copy)
    }

    fn fill(&mut self, to: (u64, u64), value: u32, (width, height): (u64, u64), stream: u64) -> Answer {
        let to = Rows::new(to.0, to.1, width, height).ok_or(status::INVALID_VALUE)?;
        self.launches().push(stream, Descendant::Fill { to, value: value as u8 })
    }

    fn limit(&mut self, to: u64, limit: u32) -> Answer {
        let value = match limit {
            0 => self.grid().stack,        // cudaLimitStackSize
            4 => MOST_PENDING as u64,      // cudaLimitDevRuntimePendingLaunchCount
            2 => self.grid().heap.limit(), // cudaLimitMallocHeapSize
            _ => return Err(status::NOT_SUPPORTED),
        };
        self.write(to, &value.to_le_bytes())
    }

    /// `cudaFuncAttributes`: three `size_t`, then `int`s.
    fn attributes(&mut self, to: u64, function: u64) -> Answer {
        let grid = self.context.grid.clone();
        let (_, info) = grid.origin.0.kernel_at(function).ok_or(status::INVALID_DEVICE_FUNCTION)?;
        let sizes = [info.static_shared, info.const_bytes, info.local_bytes];
        let dynamic = grid.about.limits.shared_per_block.saturating_sub(info.static_shared);
        let numbers =
            [info.max_threads, info.registers, info.ptx_version, info.binary_version, 0, dynamic, u32::MAX];
        let mut bytes: Vec<u8> = sizes.iter().flat_map(|&size| u64::from(size).to_le_bytes()).collect();
        bytes.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
        self.write(to, &bytes)
    }

    fn occupancy(&mut self, to: u64, function: u64, threads: u32, shared_bytes: u64) -> Answer {
        let grid = self.context.grid.clone();
        let (_, info) = grid.origin.0.kernel_at(function).ok_or(status::INVALID_DEVICE_FUNCTION)?;
        if threads == 0 {
            return Err(status::INVALID_VALUE);
        }
        let device = &grid.about.devices[grid.ordinal as usize];
        let shared = u64::from(info.static_shared).saturating_add(shared_bytes);
        let all_shared = device.attribute(attribute::MAX_SHARED_MEMORY_PER_MULTIPROCESSOR).max(0) as u64;
        let by_threads = RESIDENT_THREADS / u64::from(threads).next_multiple_of(32);
        let by_shared = all_shared / (shared.saturating_add(1024));
        let most = device.attribute(attribute::MAX_BLOCKS_PER_MULTIPROCESSOR).max(1) as u64;
        let fits = threads <= info.max_threads;
        self.write_word(to, if fits { by_threads.min(by_shared).min(most) as u32 } else { 0 })
    }

    /// The address of a text about an error, in the kernels' heap for good; 0 where that is full.
    fn text(
        &mut self,
        status: u32,
        which: impl Fn((u32, &'static str, &'static str)) -> &'static str,
    ) -> u64 {
        let known = status::TEXTS.into_iter().find(|row| row.0 == status);
        let text = which(known.unwrap_or((status, "unrecognized error code", "unrecognized error code")));
        let heap = self.context.grid.heap.clone();
        heap.text(text, |address, bytes| self.memory.write(address, bytes).is_some())
    }
}
