//! What a GPU can do, in driver-API terms.
//!
//! [`Device`] is the wall between those who hold CUDA calls (the server's dispatcher, and the client
//! shim in in-process mode) and those who execute them (the software GPU, the NVIDIA driver). One
//! `Device` object serves one application and may hold several device *ordinals*.
//!
//! Rules that every implementation keeps:
//!
//! - **The caller chooses handles.** Streams, events and modules are named by [`Handle`]s that the
//!   caller picks; each kind has a name space of its own. Handles below [`FIRST_STREAM`] are the legacy
//!   default streams: handle `n` is the legacy stream of device ordinal `n`, and exists from the start.
//! - **The caller chooses addresses.** [`Device::reserve`] fixes an [`AddressPlan`]; afterwards the
//!   caller allocates inside the plan's ranges.
//! - **Enqueueing never blocks.** Work on streams is put in order and performed later. What needs to
//!   wait takes a [`Done`] callback, which is called exactly once, possibly on another thread, possibly
//!   before the call returns.
//! - **Legacy-stream ordering** is the device's duty: work in a device's legacy stream waits for all
//!   earlier work in its blocking streams, and the other way round.
//! - **Errors stick as CUDA's do.** After an error for which [`Code::is_sticky`] holds, every later
//!   call on that device ordinal reports it, until [`Device::reset`].
//! - **Bad arguments are errors, never panics**, whatever the caller passes.

mod error;
mod host_region;
mod info;
mod pacer;
pub mod telemetry;

pub use error::{Code, Error, Result};
pub use host_region::RegionCursor;
pub use info::{Attribute, DeviceInfo, FunctionInfo, GlobalInfo, GlobalKind, ModuleInfo, ParamInfo};
pub use pacer::Pacer;

/// The name of a stream, an event or a module, chosen by the caller, unique among its kind.
pub type Handle = u64;

/// A device ordinal, counted from 0 within one application.
pub type Ordinal = u32;

/// The lowest handle of a created stream; smaller ones are the devices' legacy default streams.
pub const FIRST_STREAM: Handle = 0x100;

/// Called once with the outcome of something that was waited for.
pub type Done = Box<dyn FnOnce(Result<()>) + Send>;

/// A span of addresses, `base..base + size`, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Range {
    /// First address.
    pub base: u64,
    /// Length in bytes.
    pub size: u64,
}

impl Range {
    /// Whether the `len` bytes at `addr` lie inside this range. False on overflow.
    pub fn contains(&self, addr: u64, len: u64) -> bool {
        addr >= self.base && len <= self.size && addr - self.base <= self.size - len
    }

    /// One past the last address.
    pub fn end(&self) -> u64 {
        self.base + self.size
    }

    /// Whether some address is in both.
    #[inline]
    pub fn overlaps(self, other: Range) -> bool {
        self.base < other.end() && other.base < self.end()
    }

    /// What is left of this range without `hole`: nothing, one range or two.
    pub fn without(self, hole: Range) -> Vec<Range> {
        if !self.overlaps(hole) {
            return vec![self];
        }
        let mut rest = Vec::new();
        if self.base < hole.base {
            rest.push(Range { base: self.base, size: hole.base - self.base });
        }
        if self.end() > hole.end() {
            rest.push(Range { base: hole.end(), size: self.end() - hole.end() });
        }
        rest
    }
}

/// Which addresses mean what, agreed between the application and its device.
///
/// `devices` and `shared` are disjoint parts of `whole`; the rest of `whole` belongs to the device
/// implementation (module-level variables, shared- and local-memory windows, its heap). The application
/// keeps all of `whole` reserved, so that no pointer of its own can be mistaken for a device pointer.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AddressPlan {
    /// Everything that is reserved.
    pub whole: Range,
    /// For each ordinal, where the caller may place [`MemoryKind::Device`] memory.
    pub devices: Vec<Range>,
    /// Where the caller may place [`MemoryKind::Direct`] and [`MemoryKind::Mirrored`] memory.
    pub shared: Range,
}

/// Which of several `Device`s that serve one application this is. All of them are proposed the same addresses; each uses a
/// part of its own for whatever is its alone, and all agree on where shared memory lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seat {
    /// Counted from 0.
    pub index: u32,
    /// How many there are.
    pub of: u32,
}

impl Seat {
    /// The only one.
    pub const ALONE: Self = Self { index: 0, of: 1 };
    /// The most that can share addresses.
    pub const MOST: u32 = 64;
    /// Parts begin at multiples of this, and have as much unused at their end.
    const GRAIN: u64 = 1 << 30;
    /// The most addresses for shared memory.
    const SHARED: u64 = 256 << 30;

    /// Whether there is no other.
    pub fn is_alone(self) -> bool {
        self.of <= 1
    }

    /// What is this seat's alone in a proposal, and where shared memory lies for all. `None` where the proposal is too
    /// small, or there is no such seat.
    pub fn parts(self, proposal: Range) -> Option<(Range, Range)> {
        if self.index >= self.of || self.of > Self::MOST {
            return None;
        }
        let end = proposal.base.checked_add(proposal.size)?;
        let base = proposal.base.checked_next_multiple_of(Self::GRAIN)?;
        let part = end.checked_sub(base)? / u64::from(self.of + 1) / Self::GRAIN * Self::GRAIN;
        if part < 4 * Self::GRAIN {
            return None;
        }
        let own = Range { base: base + u64::from(self.index + 1) * part, size: part - Self::GRAIN };
        let shared = (part - 2 * Self::GRAIN).min(Self::SHARED);
        Some((own, Range { base: base + Self::GRAIN, size: shared }))
    }
}

/// Who can see an allocation, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum MemoryKind {
    /// Only the device sees it. Placed in the ordinal's device range.
    Device = 0,
    /// Host and device run in one process and see the same bytes. Placed in the shared range.
    Direct = 1,
    /// Host and device each have a copy. Placed in the shared range. The device reads pages through
    /// [`Host::fetch`] when a kernel first touches them, and hands back what it changed through
    /// [`Device::collect_shared_writes`].
    Mirrored = 2,
}

impl TryFrom<u32> for MemoryKind {
    type Error = Error;
    fn try_from(value: u32) -> Result<Self> {
        match value {
            0 => Ok(Self::Device),
            1 => Ok(Self::Direct),
            2 => Ok(Self::Mirrored),
            _ => Err(Error::new(Code::InvalidValue, format!("memory kind {value} does not exist"))),
        }
    }
}

/// Free and total memory of a device, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MemoryInfo {
    /// Bytes not allocated.
    pub free: u64,
    /// Bytes in all.
    pub total: u64,
}

/// A box of bytes in device memory: `depth` slices of `height` rows of `width` bytes. Row `y` of slice
/// `z` starts at `addr + z * slice_pitch + y * row_pitch`. A plain run of bytes has height and depth 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Region {
    /// Address of the first byte.
    pub addr: u64,
    /// Bytes from one row to the next.
    pub row_pitch: u64,
    /// Bytes from one slice to the next.
    pub slice_pitch: u64,
    /// Bytes in a row.
    pub width: u64,
    /// Rows in a slice.
    pub height: u64,
    /// Slices.
    pub depth: u64,
}

impl Region {
    /// A plain run of `len` bytes.
    pub fn linear(addr: u64, len: u64) -> Self {
        Self { addr, row_pitch: len, slice_pitch: len, width: len, height: 1, depth: 1 }
    }

    /// How many bytes the region holds; `None` on overflow.
    pub fn bytes(&self) -> Option<u64> {
        self.width.checked_mul(self.height)?.checked_mul(self.depth)
    }

    /// How many bytes lie between the first and one past the last; `None` on overflow.
    pub fn extent(&self) -> Option<u64> {
        if self.width == 0 || self.height == 0 || self.depth == 0 {
            return Some(0);
        }
        let rows = (self.height - 1).checked_mul(self.row_pitch)?;
        let slices = (self.depth - 1).checked_mul(self.slice_pitch)?;
        rows.checked_add(slices)?.checked_add(self.width)
    }

    /// Checks that the region can be walked: no overflow, and no rows inside one another.
    ///
    /// # Errors
    /// [`Code::InvalidValue`], with what is wrong.
    pub fn check(&self) -> Result<()> {
        let bad = |what: &str| Err(Error::new(Code::InvalidValue, format!("{what}: {self:?}")));
        let Some(bytes) = self.bytes() else { return bad("The region's size overflows") };
        let Some(extent) = self.extent() else { return bad("The region's extent overflows") };
        if self.addr.checked_add(extent).is_none() {
            return bad("The region wraps around");
        }
        if bytes == 0 {
            return Ok(());
        }
        if self.height > 1 && self.row_pitch < self.width {
            return bad("The row pitch is smaller than a row");
        }
        if self.depth > 1 {
            let slice = Region { depth: 1, ..*self }.extent().unwrap_or(u64::MAX);
            if self.slice_pitch < slice {
                return bad("The slice pitch is smaller than a slice");
            }
        }
        Ok(())
    }

    /// Whether the rows lie one after another without gaps.
    pub fn is_contiguous(&self) -> bool {
        (self.height <= 1 || self.row_pitch == self.width)
            && (self.depth <= 1 || self.slice_pitch == self.width * self.height)
    }
}

/// Where the bytes of a copy to the device come from.
pub enum HostData {
    /// The bytes themselves, rows one after another without gaps.
    Owned(Vec<u8>),
    /// Memory of this very process, strided as the region says (its `addr` is a host address). Only
    /// in-process callers use it; they promise that the memory stays valid until the copy is done.
    Borrowed(Region),
}

impl HostData {
    /// Checks that it is what a region is to be filled with; says how many bytes that are.
    #[inline]
    pub fn check(&self, dst: &Region) -> Result<u64> {
        let have = match self {
            Self::Owned(bytes) => Some(bytes.len() as u64),
            Self::Borrowed(region) => {
                region.check()?;
                region.bytes()
            }
        };
        match have {
            Some(bytes) if have == dst.bytes() => Ok(bytes),
            _ => {
                let text = format!("The copy has {have:?} bytes for {dst:?}");
                Err(Error::new(Code::InvalidValue, text))
            }
        }
    }
}

/// Receives the bytes of a copy from the device, in order.
pub trait CopySink: Send {
    /// The next bytes, as pieces to be joined. Called any number of times, before [`CopySink::done`].
    fn chunk(&mut self, pieces: &[&[u8]]);
    /// The copy is over; on failure the bytes received so far mean nothing.
    fn done(self: Box<Self>, result: Result<()>);
}

/// One kernel launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Launch<'a> {
    /// The stream it is put on.
    pub stream: Handle,
    /// The module.
    pub module: Handle,
    /// Index into [`ModuleInfo::functions`].
    pub function: u32,
    /// Blocks in x, y, z.
    pub grid: [u32; 3],
    /// Threads of a block in x, y, z.
    pub block: [u32; 3],
    /// Dynamic shared memory in bytes.
    pub shared_bytes: u32,
    /// Whether all blocks must be able to wait for each other.
    pub cooperative: bool,
    /// The parameters laid out as [`FunctionInfo::params`] says.
    pub params: &'a [u8],
}

/// A launch that an implementation has put into a form of its own, to be repeated with other parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PreparedLaunch {
    /// Whatever the implementation needs.
    pub form: [u8; 64],
}

impl PreparedLaunch {
    /// A launch as it is, without its parameters.
    pub fn plain(launch: &Launch<'_>) -> Self {
        let mut form = [0; 64];
        form[..8].copy_from_slice(&launch.stream.to_le_bytes());
        form[8..16].copy_from_slice(&launch.module.to_le_bytes());
        let [gx, gy, gz] = launch.grid;
        let [bx, by, bz] = launch.block;
        let cooperative = u32::from(launch.cooperative);
        let words = [launch.function, gx, gy, gz, bx, by, bz, launch.shared_bytes, cooperative];
        for (place, word) in form[16..].chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        Self { form }
    }

    /// What [`PreparedLaunch::plain`] made, with parameters.
    pub fn with<'a>(&self, params: &'a [u8]) -> Launch<'a> {
        let word = |at: usize| {
            let f = &self.form;
            u32::from_le_bytes([f[at], f[at + 1], f[at + 2], f[at + 3]])
        };
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        Launch {
            stream: long(0),
            module: long(8),
            function: word(16),
            grid: [word(20), word(24), word(28)],
            block: [word(32), word(36), word(40)],
            shared_bytes: word(44),
            cooperative: word(48) != 0,
            params,
        }
    }
}

/// What a synchronisation waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// All work of a device ordinal.
    Device(Ordinal),
    /// All earlier work of a stream.
    Stream(Handle),
    /// The most recent record of an event (done if it was never recorded).
    Event(Handle),
}

/// A configurable limit of a device (`CUlimit`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Limit {
    /// Stack of a device thread, in bytes.
    StackSize = 0,
    /// Buffer of the kernels' printf, in bytes.
    PrintfFifoSize = 1,
    /// Heap of the kernels' malloc, in bytes.
    MallocHeapSize = 2,
}

impl TryFrom<u32> for Limit {
    type Error = Error;
    fn try_from(value: u32) -> Result<Self> {
        match value {
            0 => Ok(Self::StackSize),
            1 => Ok(Self::PrintfFifoSize),
            2 => Ok(Self::MallocHeapSize),
            _ => Err(Error::new(Code::UnsupportedLimit, format!("limit {value} is not supported"))),
        }
    }
}

/// What a device counts, since it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Kernel launches that were executed to their end.
    pub launches: u64,
    /// Time in nanoseconds in which at least one kernel was executing.
    pub busy_ns: u64,
}

/// What a device asks of the application's side.
pub trait Host: Send + Sync {
    /// Text that kernels printed, to go to the program's standard output. Called before the
    /// completion of the kernel is reported.
    fn print(&self, text: &[u8]);

    /// Reads the host's current bytes of [`MemoryKind::Mirrored`] memory. `addr` and `buf` are page
    /// aligned. May block. An error makes the access an illegal address.
    fn fetch(&self, addr: u64, buf: &mut [u8]) -> Result<()>;

    /// A stream has reached the host function `id`. The stream goes on when
    /// [`Device::host_func_done`] is called with it. Must not block.
    fn host_func(&self, id: u64);
}

/// A GPU, or several, as one application sees them. See the module's rules.
pub trait Device: Send + Sync {
    /// The devices, by ordinal.
    fn infos(&self) -> Vec<DeviceInfo>;

    /// Whether the device and the memory of the process that calls it are one: a kernel can be given the address of memory
    /// that both see ([`MemoryKind::Direct`]), and nothing needs to be mirrored. Otherwise memory that the host and the
    /// device share has a copy on either side ([`MemoryKind::Mirrored`]), and `Direct` memory is [`Code::NotSupported`].
    /// The answer never changes.
    fn sees_host_memory(&self) -> bool {
        false
    }

    /// Reserves addresses inside `proposal` and says how they are used. Fails with
    /// [`Code::MapFailed`] where the range is not free in this process, and the caller proposes
    /// another one. To be called once with success before anything below.
    fn reserve(&self, proposal: Range) -> Result<AddressPlan>;

    /// [`Device::reserve`] for one of several that serve the application: everything but the shared range lies in the part of
    /// the proposal that is the [`Seat`]'s alone, and the shared range is as the seat says.
    fn reserve_seat(&self, proposal: Range, seat: Seat) -> Result<AddressPlan> {
        if seat.is_alone() {
            return self.reserve(proposal);
        }
        Err(Error::new(Code::NotSupported, "This device cannot serve a program together with others"))
    }

    /// Memory files behind the ordinals' ranges of device memory, by ordinal, where there are such for all of them: a
    /// byte's offset in the file is its offset in the range, and the file's size, which is fixed, is the range's. Another
    /// process of the machine can map the same memory. To be called after [`Device::reserve`].
    fn memory_files(&self) -> Vec<std::os::fd::RawFd> {
        Vec::new()
    }

    /// Backs `size` bytes at `addr` (both multiples of the 4 KiB page) with memory, zeroed unless it takes
    /// the place of memory whose release is still pending. Ordered after earlier [`Device::mem_free`]s: work
    /// that is enqueued from now on waits for what the old memory's release waits for. (Shared memory in
    /// such a place makes the call itself wait.) [`Code::OutOfMemory`] when the device is full;
    /// [`Code::InvalidValue`] when the place is outside its range or taken.
    fn mem_alloc(&self, ordinal: Ordinal, addr: u64, size: u64, kind: MemoryKind) -> Result<()>;

    /// Releases the allocation that starts at `addr`: after all earlier work of the device, or, given
    /// a stream, after all earlier work of that stream.
    fn mem_free(&self, ordinal: Ordinal, addr: u64, stream: Option<Handle>) -> Result<()>;

    /// Free and total memory.
    fn mem_info(&self, ordinal: Ordinal) -> Result<MemoryInfo>;

    /// Fills a region (width in bytes) with the low `element` (1, 2 or 4) bytes of `value`.
    fn memset(&self, stream: Handle, region: Region, value: u32, element: u32) -> Result<()>;

    /// Copies host bytes into device memory, in stream order. `host_addr` is where the bytes came from
    /// in the host's address space: bytes of mirrored memory that the device has changed since, in
    /// stream order, replace those that were sent. Mirrored memory is meant to be one run there, whatever
    /// `dst` looks like.
    fn copy_to_device(&self, stream: Handle, dst: Region, host_addr: u64, data: HostData) -> Result<()>;

    /// [`Device::copy_to_device`] of this very process's memory, for callers who can wait for all earlier work of the stream:
    /// an implementation may do so where that makes the copy faster. The memory is read before this returns, unless the
    /// implementation's [`Device::copy_to_device`] reads it later.
    fn copy_to_device_blocking(
        &self,
        stream: Handle,
        dst: Region,
        host_addr: u64,
        src: Region,
    ) -> Result<()> {
        self.copy_to_device(stream, dst, host_addr, HostData::Borrowed(src))
    }

    /// Makes room for a copy to the device whose bytes are on their way: where nothing is left to be done before it, and
    /// `dst` is memory that this process may write at its addresses, the stream waits, true is returned, the caller
    /// writes and then calls [`Device::written_in_place`] with the same `id`, which is used for nothing else. False where
    /// the bytes must be handed over instead.
    fn write_in_place(&self, stream: Handle, dst: Region, id: u64) -> bool {
        let _ = (stream, dst, id);
        false
    }

    /// The bytes of [`Device::write_in_place`], which came from `host_addr`, are in place: the stream goes on.
    fn written_in_place(&self, dst: Region, host_addr: u64, id: u64) {
        let _ = (dst, host_addr, id);
    }

    /// Copies device memory to the host, in stream order. `host_addr` is where the bytes go in the
    /// host's address space, one run if it is mirrored memory; then the device's copy follows. Errors are
    /// reported to the sink alone.
    fn copy_from_device(&self, stream: Handle, src: Region, host_addr: u64, sink: Box<dyn CopySink>);

    /// Copies device memory into host memory, in stream order: like [`Device::copy_from_device`], for
    /// callers who know where the bytes go. `dst.addr` is a host address; `dst` and `src` have equal
    /// width, height and depth. An implementation may read its transport straight into place.
    ///
    /// # Safety
    /// The destination must stay writable until `done` is called.
    unsafe fn copy_from_device_into(&self, stream: Handle, src: Region, dst: Region, done: Done) {
        // SAFETY: passed on to the caller.
        let sink = unsafe { host_region::RegionSink::new(dst, done) };
        self.copy_from_device(stream, src, dst.addr, Box::new(sink));
    }

    /// [`Device::copy_from_device_into`], and waits for it. Prefer it to waiting by other means: an
    /// implementation behind a transport does the reading on the waiting thread.
    ///
    /// # Safety
    /// The destination must be writable.
    unsafe fn copy_from_device_blocking(&self, stream: Handle, src: Region, dst: Region) -> Result<()> {
        let (send, receive) = std::sync::mpsc::sync_channel(1);
        let done = Box::new(move |result| drop(send.send(result)));
        // SAFETY: the destination outlives the wait below.
        unsafe { self.copy_from_device_into(stream, src, dst, done) };
        receive.recv().unwrap_or_else(|_| Err(Error::from(Code::Unknown)))
    }

    /// Copies between two regions of equal width, height and depth, on any ordinals. Overlapping is
    /// undefined, but confined.
    fn copy_on_device(&self, stream: Handle, dst: Region, src: Region) -> Result<()>;

    /// Loads a module from an image: a fat binary (container), PTX text, or a cubin. `managed` gives
    /// the addresses of `.attribute(.managed)` variables by name, already allocated in the shared
    /// range; the device writes their initial values there.
    fn module_load(
        &self,
        ordinal: Ordinal,
        module: Handle,
        image: &[u8],
        managed: &[(String, u64)],
    ) -> Result<ModuleInfo>;

    /// Begins to load a module without `.managed` variables, and does not wait, where waiting is worth saving; false where
    /// [`Device::module_load`] is to be used instead. With `unproven`, the image may be one that was never loaded before,
    /// and whose failure is reported by whatever uses the module; otherwise it is known to be good. Kernels of such a
    /// module must be given numbers before they are launched.
    fn module_begin(&self, ordinal: Ordinal, module: Handle, image: &[u8], unproven: bool) -> Result<bool> {
        let _ = (ordinal, module, image, unproven);
        Ok(false)
    }

    /// Gives a kernel of a module that was begun the number by which [`Launch::function`] names it.
    fn module_function(&self, module: Handle, number: u32, name: &str) -> Result<()> {
        let _ = (module, number, name);
        Err(Error::from(Code::NotSupported))
    }

    /// What is in a module that was begun. Waits until it is loaded.
    fn module_info(&self, module: Handle) -> Result<ModuleInfo> {
        let _ = module;
        Err(Error::from(Code::NotSupported))
    }

    /// Unloads a module after all work that uses it.
    fn module_unload(&self, module: Handle) -> Result<()>;

    /// Enqueues a kernel. Refuses impossible configurations at once.
    fn launch(&self, launch: Launch<'_>) -> Result<()>;

    /// Prepares a launch that was possible just now to be repeated by [`Device::launch_prepared`]; its parameters tell only
    /// how long those will be. `None` where it cannot be repeated.
    fn prepare_launch(&self, launch: Launch<'_>) -> Option<PreparedLaunch> {
        Some(PreparedLaunch::plain(&launch))
    }

    /// Enqueues a launch that this device has prepared, with these parameters.
    fn launch_prepared(&self, prepared: &PreparedLaunch, params: &[u8]) -> Result<()> {
        self.launch(prepared.with(params))
    }

    /// Creates a stream; `blocking` ones are ordered with the legacy stream. Lower `priority` numbers
    /// are more urgent.
    fn stream_create(&self, ordinal: Ordinal, stream: Handle, blocking: bool, priority: i32) -> Result<()>;

    /// Destroys a stream once its work is done.
    fn stream_destroy(&self, stream: Handle) -> Result<()>;

    /// Makes later work of a stream wait for the most recent record of an event.
    fn stream_wait_event(&self, stream: Handle, event: Handle) -> Result<()>;

    /// Makes all work that is enqueued from now on, on whatever stream, wait for all earlier work of this
    /// one. So a call that a program sees as blocking (a copy from the host) need not be waited for.
    fn fence(&self, stream: Handle) -> Result<()>;

    /// Creates an event; without `timing` it keeps no time.
    fn event_create(&self, ordinal: Ordinal, event: Handle, timing: bool) -> Result<()>;

    /// Destroys an event; work that waits for it still does.
    fn event_destroy(&self, event: Handle) -> Result<()>;

    /// Records an event in a stream.
    fn event_record(&self, event: Handle, stream: Handle) -> Result<()>;

    /// Milliseconds between two recorded events. [`Code::NotReady`] while either is pending,
    /// [`Code::InvalidHandle`] where one was never recorded or keeps no time.
    fn event_elapsed(&self, start: Handle, end: Handle) -> Result<f32>;

    /// Calls `done` when everything that the target covers is finished.
    fn synchronize(&self, target: Target, done: Done);

    /// Waits until everything that the target covers is finished. Prefer it to waiting for
    /// [`Device::synchronize`] by other means: an implementation behind a transport does the reading
    /// on the waiting thread.
    fn synchronize_blocking(&self, target: Target) -> Result<()> {
        let (send, receive) = std::sync::mpsc::sync_channel(1);
        self.synchronize(target, Box::new(move |result| drop(send.send(result))));
        receive.recv().unwrap_or_else(|_| Err(Error::from(Code::Unknown)))
    }

    /// Whether everything that the target covers is finished.
    fn query(&self, target: Target) -> Result<bool>;

    /// Makes the stream call [`Host::host_func`] with `id` and wait for its end.
    fn host_func(&self, stream: Handle, id: u64) -> Result<()>;

    /// The host function `id` has returned.
    fn host_func_done(&self, id: u64) -> Result<()>;

    /// The host may have changed its mirrored memory: the device fetches it anew when next touched by
    /// work that is enqueued after this call.
    fn invalidate_shared(&self) -> Result<()>;

    /// Hands out every run of bytes in mirrored memory that the device has changed since the last
    /// call, and marks it as agreed.
    fn collect_shared_writes(&self, sink: &mut dyn FnMut(u64, &[u8]));

    /// Sets a limit.
    fn set_limit(&self, ordinal: Ordinal, limit: Limit, value: u64) -> Result<()>;

    /// Abandons all work of a device ordinal, destroys everything on it, and clears its error.
    fn reset(&self, ordinal: Ordinal) -> Result<()>;

    /// What was counted.
    fn counters(&self) -> Counters;

    /// What can be measured or told of a device beyond [`Device::infos`], for monitoring programs. What is not
    /// listed in the result is not known. Implementations that have nothing to tell leave this as it is.
    fn telemetry(&self, ordinal: Ordinal, group: telemetry::Group) -> Result<telemetry::Telemetry> {
        let _ = (ordinal, group);
        Err(Error::new(Code::NotSupported, "This device measures nothing"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seats_share_a_proposal() {
        let proposal = Range { base: (7 << 40) + 4096, size: 1 << 40 };
        let parts: Vec<_> = (0..3).map(|index| Seat { index, of: 3 }.parts(proposal).unwrap()).collect();
        let mut all = vec![parts[0].1];
        for (own, shared) in parts {
            assert_eq!(shared, all[0]);
            assert!(all.iter().all(|other| own.base >= other.end() || other.base >= own.end()));
            assert!(own.size > 200 << 30 && proposal.contains(own.base, own.size));
            all.push(own);
        }
        assert_eq!(Seat { index: 3, of: 3 }.parts(proposal), None);
        assert_eq!(Seat { index: 0, of: 3 }.parts(Range { size: 8 << 30, ..proposal }), None);
        let wraps = Range { base: u64::MAX - 4096, size: 1 << 40 };
        assert_eq!(Seat { index: 0, of: 3 }.parts(wraps), None);
    }

    #[test]
    fn prepared_launches_are_repeated_with_other_parameters() {
        let launch = Launch {
            stream: 1 << 40 | 3,
            module: u64::MAX - 1,
            function: 7,
            grid: [1, 2, 3],
            block: [4, 5, u32::MAX],
            shared_bytes: 9,
            cooperative: true,
            params: &[1, 2],
        };
        assert_eq!(PreparedLaunch::plain(&launch).with(&[3]), Launch { params: &[3], ..launch });
    }

    #[test]
    fn what_is_left_of_a_range_is_what_is_in_no_hole() {
        let range = |base, end| Range { base, size: end - base };
        let whole = range(10, 20);
        for base in 5..25 {
            for end in base + 1..26 {
                let hole = range(base, end);
                let left = whole.without(hole);
                let inside = |at: u64| left.iter().filter(|part| part.contains(at, 1)).count();
                for at in 0..30 {
                    let expected = whole.contains(at, 1) && !hole.contains(at, 1);
                    assert_eq!(inside(at), usize::from(expected), "{at} of {hole:?}: {left:?}");
                }
                assert!(left.iter().all(|part| part.size > 0), "{left:?}");
                assert_eq!(
                    whole.overlaps(hole),
                    (5..25).any(|at| whole.contains(at, 1) && hole.contains(at, 1))
                );
            }
        }
    }

    #[test]
    fn a_copy_has_as_many_bytes_as_its_region() {
        let of = |width| Region::linear(64, width);
        assert_eq!(HostData::Owned(vec![0; 5]).check(&of(5)), Ok(5));
        assert_eq!(HostData::Borrowed(of(7)).check(&of(7)), Ok(7));
        for data in [HostData::Owned(vec![0; 4]), HostData::Borrowed(of(6))] {
            let error = data.check(&of(5)).unwrap_err();
            assert!(error.code == Code::InvalidValue && error.message.contains("bytes for"), "{error:?}");
        }
        let endless = Region { width: u64::MAX, height: 3, ..of(1) };
        assert!(HostData::Borrowed(of(5)).check(&endless).is_err());
    }
}
