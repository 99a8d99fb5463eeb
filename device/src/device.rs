//! The trait.

use crate::telemetry::{Group, Telemetry};
use crate::tensor_map::{TENSOR_MAP_BYTES, TensorMap};
use crate::{
    AddressPlan, Code, CopySink, DeviceInfo, Done, Error, Handle, HostData, HostSource, HostTarget, Launch,
    LibraryCall, Limit, MemOp, MemoryInfo, MemoryKind, MemoryNote, MemoryToken, ModuleInfo, Ordinal,
    PreparedLaunch, Range, Region, Result, Seat,
};

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

/// What a device counts, since it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Kernel launches that were executed to their end.
    pub launches: u64,
    /// Time in nanoseconds in which at least one kernel was executing.
    pub busy_ns: u64,
}

fn not_shareable() -> Error {
    let what =
        "sharing memory with other processes (cuIpcGetMemHandle and its like) is not possible on this device";
    Error::new(Code::NotSupported, what)
}

/// A GPU, or several, as one application sees them. See the rules in the [crate's text](crate).
pub trait Device: Send + Sync {
    /// The devices, by ordinal.
    fn infos(&self) -> Vec<DeviceInfo>;

    /// Whether the device is in the process that calls it, so that copies read and write that process's ordinary memory where it
    /// lies. The answer never changes.
    fn sees_host_memory(&self) -> bool {
        false
    }

    /// Whether [`MemoryKind::Direct`] memory is possible: memory that is one for the device and the process that calls it, so that
    /// running kernels and threads of the host see each other's writes and atomic operations at once. So it is where they are one
    /// process, and where two processes of one machine map the same file. The answer never changes.
    fn shares_memory(&self) -> bool {
        self.sees_host_memory()
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

    /// The memory file behind [`MemoryKind::Direct`] memory, where there is one: a byte's offset in the file is its offset in the
    /// shared range, and the file's size, which is fixed, is the range's. Another process of the machine that maps it at the same
    /// addresses has the same memory. Whoever frees such memory has its pages removed from the file, so that it is zero when it is
    /// allocated anew. To be called after [`Device::reserve`].
    fn shared_file(&self) -> Option<std::os::fd::RawFd> {
        None
    }

    /// Backs `size` bytes at `addr` (both multiples of the 4 KiB page) with memory, zeroed unless it takes
    /// the place of memory whose release is still pending. Ordered after earlier [`Device::mem_free`]s: work
    /// that is enqueued from now on waits for what the old memory's release waits for. (Shared memory in
    /// such a place makes the call itself wait.) [`Code::OutOfMemory`] when the device is full;
    /// [`Code::InvalidValue`] when the place is outside its range or taken; [`Code::NotSupported`] for `Direct` memory where
    /// [`Device::shares_memory`] says that there can be none.
    fn mem_alloc(&self, ordinal: Ordinal, addr: u64, size: u64, kind: MemoryKind) -> Result<()>;

    /// Releases the allocation that starts at `addr`: after all earlier work of the device, or, given
    /// a stream, after all earlier work of that stream.
    fn mem_free(&self, ordinal: Ordinal, addr: u64, stream: Option<Handle>) -> Result<()>;

    /// Free and total memory.
    fn mem_info(&self, ordinal: Ordinal) -> Result<MemoryInfo>;

    /// The tensor map that the device's kernels take for what one of rgpu's says ([`tensor_map`](crate::tensor_map)).
    /// [`Code::InvalidValue`] where these bytes are no map, or the device makes none of it.
    fn tensor_map(&self, ordinal: Ordinal, map: &[u8; TENSOR_MAP_BYTES]) -> Result<[u8; TENSOR_MAP_BYTES]> {
        let _ = ordinal;
        match TensorMap::from_bytes(map) {
            Some(_) => Ok(*map),
            None => Err(Error::new(Code::InvalidValue, "these bytes are no tensor map")),
        }
    }

    /// Lets other processes that this device's side trusts as much as this one (those of the same user, or of a server's same tenant)
    /// open whole pages of one allocation of device memory, until that is withdrawn or this process has gone.
    /// [`Code::InvalidValue`] where they are not of one allocation.
    fn export_memory(&self, ordinal: Ordinal, range: Range) -> Result<MemoryToken> {
        let _ = (ordinal, range);
        Err(not_shareable())
    }

    /// Nobody can open any more what the token stands for. Who has it open keeps it.
    fn withdraw_memory(&self, token: &MemoryToken) -> Result<()> {
        let _ = token;
        Err(not_shareable())
    }

    /// Places memory that another process exports at addresses in the ordinal's range, as many as that has bytes. It is released
    /// by [`Device::mem_free`]. [`Code::InvalidValue`] where nobody exports such memory to this process.
    fn import_memory(&self, ordinal: Ordinal, place: Range, token: &MemoryToken) -> Result<()> {
        let _ = (ordinal, place, token);
        Err(not_shareable())
    }

    /// Where whole pages of one allocation of device memory are: in which of [`Device::memory_files`], and from which offset on.
    /// For who brings processes together.
    fn lend_memory(&self, ordinal: Ordinal, range: Range) -> Result<(std::os::fd::RawFd, u64)> {
        let _ = (ordinal, range);
        Err(not_shareable())
    }

    /// [`Device::import_memory`] of a part of another process's memory file, from an offset on.
    fn borrow_memory(
        &self,
        ordinal: Ordinal,
        place: Range,
        file: std::os::fd::OwnedFd,
        offset: u64,
    ) -> Result<()> {
        let _ = (ordinal, place, file, offset);
        Err(not_shareable())
    }

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
        src: HostSource,
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
    /// reported to the sink alone. The bytes of two copies of a stream come in order; that they are done may be told the other way round.
    fn copy_from_device(&self, stream: Handle, src: Region, host_addr: u64, sink: Box<dyn CopySink>);

    /// Copies device memory into host memory, in stream order: like [`Device::copy_from_device`], for
    /// callers who know where the bytes go. `dst` and `src` have equal width, height and depth. An implementation may read
    /// its transport straight into place.
    fn copy_from_device_into(&self, stream: Handle, src: Region, dst: HostTarget, done: Done) {
        if let Err(error) = dst.region().check_copy(&src) {
            return done(Err(error));
        }
        let addr = dst.region().addr;
        self.copy_from_device(stream, src, addr, dst.sink(done));
    }

    /// [`Device::copy_from_device_into`], and waits for it. Prefer it to waiting by other means: an
    /// implementation behind a transport does the reading on the waiting thread.
    fn copy_from_device_blocking(&self, stream: Handle, src: Region, dst: HostTarget) -> Result<()> {
        let (send, receive) = std::sync::mpsc::sync_channel(1);
        let done = Box::new(move |result| drop(send.send(result)));
        self.copy_from_device_into(stream, src, dst, done);
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

    /// Enqueues an operation of a mathematical library. Arguments that cannot be read, or that no call of the library could
    /// have, are [`Code::InvalidValue`]; addresses that are not the application's are an error of the work, as a kernel's are.
    fn library(&self, call: LibraryCall<'_>) -> Result<()> {
        let what = format!("This device has no mathematical libraries (operation {})", call.operation);
        Err(Error::new(Code::NotSupported, what))
    }

    /// Has a stream carry out operations on words of memory, one after another: at most [`MemOp::MOST`], of device memory and of
    /// memory that host and device see as one ([`MemoryKind::Direct`]). Mirrored memory is refused as
    /// [`Code::NotSupported`], because what one side writes there the other does not see in time; where a word is in no
    /// allocation, or a stream does not exist, nothing is put on the stream.
    fn mem_ops(&self, stream: Handle, ops: &[MemOp]) -> Result<()> {
        let _ = (stream, ops);
        let what =
            "a stream's memory operation (cuStreamWaitValue and its like) is not possible on this device";
        Err(Error::new(Code::NotSupported, what))
    }

    /// The version of the mathematical library of this number, as that library numbers its versions. An error says why there
    /// is none.
    fn library_version(&self, ordinal: Ordinal, library: u32) -> Result<u32> {
        let _ = (ordinal, library);
        Err(Error::new(Code::NotSupported, "This device has no mathematical libraries"))
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

    /// Makes the stream call [`crate::Host::host_func`] with `id` and wait for its end.
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

    /// Whether the device looks at what kernels do, and wants to be [told](Device::note_memory) of the program's memory.
    fn wants_memory_notes(&self) -> bool {
        false
    }

    /// The program's memory changes; see [`MemoryNote`]. `done` is called when the device has taken note: where something is freed
    /// at once, and at the program's end, when the work before is finished.
    fn note_memory(&self, _note: MemoryNote, done: Done) {
        done(Ok(()));
    }

    /// [`Device::note_memory`], waiting for it. Prefer it, as with [`Device::synchronize_blocking`].
    fn note_memory_blocking(&self, note: MemoryNote) -> Result<()> {
        let (send, receive) = std::sync::mpsc::sync_channel(1);
        self.note_memory(note, Box::new(move |result| drop(send.send(result))));
        receive.recv().unwrap_or_else(|_| Err(Error::from(Code::Unknown)))
    }

    /// What was counted.
    fn counters(&self) -> Counters;

    /// What can be measured or told of a device beyond [`Device::infos`], for monitoring programs. What is not
    /// listed in the result is not known. Implementations that have nothing to tell leave this as it is.
    fn telemetry(&self, ordinal: Ordinal, group: Group) -> Result<Telemetry> {
        let _ = (ordinal, group);
        Err(Error::new(Code::NotSupported, "This device measures nothing"))
    }
}
