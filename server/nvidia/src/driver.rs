//! The driver's calls, with errors in rgpu's terms.

use super::sys::{
    self, Address, Context, DeviceId, Event, Function, LaunchAttribute, LaunchConfig, Module, Status, Stream,
    TensorMapBytes,
};
use super::table::Table;
use rgpu_device::tensor_map::{Shape, TENSOR_MAP_BYTES, TensorMap};
use rgpu_device::{Code, Error, MemOp, MemOpKind, Result};
use std::cell::Cell;
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Status of work that is not finished yet.
const NOT_READY: Status = 600;
/// Room for what the driver's compiler says about an image.
const LOG_BYTES: usize = 8 << 10;

static NEXT: AtomicU64 = AtomicU64::new(1);

thread_local! {
    /// Which context is current on this thread, and of which driver object.
    static CURRENT: Cell<(u64, Context)> = const { Cell::new((0, Context::NULL)) };
}

/// An opened driver.
pub(crate) struct Driver {
    table: Table,
    /// Changes when contexts do.
    id: AtomicU64,
}

/// Calls an entry point and names it in the error.
macro_rules! call {
    ($self:ident, $field:ident($($argument:expr),*)) => {{
        // SAFETY: the table's rows describe the driver's interface; arguments are valid places or handles that
        // the driver gave, or handles that it refuses.
        let status = unsafe { ($self.table.$field)($($argument),*) };
        $self.check(status, stringify!($field))
    }};
}

/// The way in which a kernel's parameter block is passed as a whole; `size` is its length.
fn parameter_block(params: &mut [u8], size: &mut usize) -> [*mut c_void; 5] {
    [
        std::ptr::without_provenance_mut(sys::LAUNCH_PARAM_BUFFER),
        params.as_mut_ptr().cast(),
        std::ptr::without_provenance_mut(sys::LAUNCH_PARAM_SIZE),
        std::ptr::from_mut(size).cast(),
        std::ptr::without_provenance_mut(sys::LAUNCH_PARAM_END),
    ]
}

impl Driver {
    /// Calls go through this table.
    pub(crate) fn new(table: Table) -> Self {
        Self { table, id: AtomicU64::new(NEXT.fetch_add(1, Relaxed)) }
    }

    fn check(&self, status: Status, what: &str) -> Result<()> {
        if status == 0 { Ok(()) } else { Err(self.error(status, what)) }
    }

    #[cold]
    fn error(&self, status: Status, what: &str) -> Error {
        let text = |get: unsafe extern "C" fn(Status, *mut *const c_char) -> Status| {
            let mut text = std::ptr::null();
            // SAFETY: the place is valid; on success the text is the driver's own, which stays.
            unsafe {
                let found = get(status, &mut text) == 0 && !text.is_null();
                found.then(|| CStr::from_ptr(text).to_string_lossy().into_owned())
            }
        };
        let name = text(self.table.get_error_name).unwrap_or_else(|| format!("error {status}"));
        let meaning = text(self.table.get_error_string).unwrap_or_default();
        let code = Code::from_number(u32::try_from(status).unwrap_or(u32::MAX));
        Error::new(code, format!("The driver's {what} failed: {name}: {meaning}"))
    }

    /// Starts the driver.
    pub(crate) fn init(&self) -> Result<()> {
        call!(self, init(0))
    }

    /// The driver's version: 13000 is 13.0.
    pub(crate) fn version(&self) -> Result<u32> {
        let mut version = 0;
        call!(self, driver_get_version(&mut version))?;
        Ok(version.max(0) as u32)
    }

    /// How many devices there are.
    pub(crate) fn device_count(&self) -> Result<u32> {
        let mut count = 0;
        call!(self, device_get_count(&mut count))?;
        Ok(count.max(0) as u32)
    }

    /// The device with this number.
    pub(crate) fn device(&self, ordinal: u32) -> Result<DeviceId> {
        let mut device = 0;
        call!(self, device_get(&mut device, ordinal as c_int))?;
        Ok(device)
    }

    /// A device's name.
    pub(crate) fn device_name(&self, device: DeviceId) -> Result<String> {
        let mut name = [0u8; 256];
        call!(self, device_get_name(name.as_mut_ptr().cast(), name.len() as c_int - 1, device))?;
        let end = name.iter().position(|b| *b == 0).unwrap_or(0);
        Ok(String::from_utf8_lossy(&name[..end]).into_owned())
    }

    /// A device's UUID.
    pub(crate) fn device_uuid(&self, device: DeviceId) -> Result<[u8; 16]> {
        let mut uuid = [0; 16];
        call!(self, device_get_uuid(&mut uuid, device))?;
        Ok(uuid)
    }

    /// A device's memory in bytes.
    pub(crate) fn device_memory(&self, device: DeviceId) -> Result<u64> {
        let mut bytes = 0;
        call!(self, device_total_mem(&mut bytes, device))?;
        Ok(bytes as u64)
    }

    /// A device's attribute; 0 where the driver does not know it.
    pub(crate) fn device_attribute(&self, device: DeviceId, number: u32) -> i32 {
        let mut value = 0;
        match call!(self, device_get_attribute(&mut value, number as c_int, device)) {
            Ok(()) => value,
            Err(_) => 0,
        }
    }

    /// Whether a device can reach another one's memory.
    pub(crate) fn can_access_peer(&self, device: DeviceId, peer: DeviceId) -> bool {
        let mut can = 0;
        call!(self, device_can_access_peer(&mut can, device, peer)).is_ok() && can != 0
    }

    /// Lets the current context reach another one's memory. Failing leaves it as it is.
    pub(crate) fn enable_peer_access(&self, peer: Context) {
        if let Some(enable) = self.table.ctx_enable_peer_access {
            // SAFETY: the context is the driver's.
            unsafe { enable(peer, 0) };
        }
    }

    /// Takes the device's primary context.
    pub(crate) fn retain(&self, device: DeviceId) -> Result<Context> {
        let mut context = Context::NULL;
        call!(self, primary_ctx_retain(&mut context, device))?;
        Ok(context)
    }

    /// Gives the device's primary context back.
    pub(crate) fn release(&self, device: DeviceId) -> Result<()> {
        call!(self, primary_ctx_release(device))
    }

    /// Destroys everything in the device's primary context.
    pub(crate) fn reset(&self, device: DeviceId) -> Result<()> {
        let result = call!(self, primary_ctx_reset(device));
        // What is current on any thread is to be set anew.
        self.id.store(NEXT.fetch_add(1, Relaxed), Relaxed);
        result
    }

    /// Makes a context current on this thread.
    pub(crate) fn enter(&self, context: Context) -> Result<()> {
        let id = self.id.load(Relaxed);
        if CURRENT.get() == (id, context) {
            return Ok(());
        }
        call!(self, ctx_set_current(context))?;
        CURRENT.set((id, context));
        Ok(())
    }

    /// Sets a limit of the current context.
    pub(crate) fn set_limit(&self, limit: u32, value: u64) -> Result<()> {
        call!(self, ctx_set_limit(limit, value as usize))
    }

    /// Free and total memory of the current context's device.
    pub(crate) fn mem_info(&self) -> Result<(u64, u64)> {
        let (mut free, mut total) = (0, 0);
        call!(self, mem_get_info(&mut free, &mut total))?;
        Ok((free as u64, total as u64))
    }

    /// Physical memory comes in multiples of this.
    pub(crate) fn granularity(&self, device: DeviceId) -> Result<u64> {
        let prop = sys::MemAllocationProp::of(device);
        let mut bytes = 0;
        call!(self, mem_get_allocation_granularity(&mut bytes, &prop, 0))?;
        Ok(bytes as u64)
    }

    /// Reserves addresses, at the hint if the driver likes; 0 is no hint.
    pub(crate) fn address_reserve(&self, size: u64, alignment: u64, hint: Address) -> Result<Address> {
        let mut address = 0;
        call!(self, mem_address_reserve(&mut address, size as usize, alignment as usize, hint, 0))?;
        Ok(address)
    }

    /// Gives reserved addresses back.
    pub(crate) fn address_free(&self, address: Address, size: u64) -> Result<()> {
        call!(self, mem_address_free(address, size as usize))
    }

    /// Takes physical memory.
    pub(crate) fn mem_create(&self, device: DeviceId, size: u64) -> Result<u64> {
        let prop = sys::MemAllocationProp::of(device);
        let mut handle = 0;
        call!(self, mem_create(&mut handle, size as usize, &prop, 0))?;
        Ok(handle)
    }

    /// Gives physical memory back, once it is mapped nowhere.
    pub(crate) fn mem_release(&self, handle: u64) -> Result<()> {
        call!(self, mem_release(handle))
    }

    /// Maps physical memory at reserved addresses.
    pub(crate) fn mem_map(&self, address: Address, size: u64, handle: u64) -> Result<()> {
        call!(self, mem_map(address, size as usize, 0, handle, 0))
    }

    /// Undoes one whole mapping.
    pub(crate) fn mem_unmap(&self, address: Address, size: u64) -> Result<()> {
        call!(self, mem_unmap(address, size as usize))
    }

    /// Lets devices use mapped memory.
    pub(crate) fn set_access(&self, address: Address, size: u64, devices: &[DeviceId]) -> Result<()> {
        let all: Vec<_> = devices.iter().map(|&d| sys::MemAccessDesc::all(d)).collect();
        call!(self, mem_set_access(address, size as usize, all.as_ptr(), all.len()))
    }

    /// Memory of the stream's device, in the stream's order: what is enqueued from now on may use it.
    pub(crate) fn alloc_async(&self, size: u64, stream: Stream) -> Result<Address> {
        let function = self.table.mem_alloc_async.ok_or_else(|| no_function("cuMemAllocAsync"))?;
        let mut address = 0;
        // SAFETY: the place is valid.
        self.check(unsafe { function(&mut address, size as usize, stream) }, "mem_alloc_async")?;
        Ok(address)
    }

    /// Gives such memory back, in a stream's order.
    pub(crate) fn free_async(&self, address: Address, stream: Stream) -> Result<()> {
        let function = self.table.mem_free_async.ok_or_else(|| no_function("cuMemFreeAsync"))?;
        // SAFETY: the driver checks its arguments.
        self.check(unsafe { function(address, stream) }, "mem_free_async")
    }

    /// Host memory that devices reach fast.
    pub(crate) fn host_alloc(&self, size: usize) -> Result<*mut u8> {
        let mut memory = std::ptr::null_mut();
        call!(self, mem_host_alloc(&mut memory, size, sys::HOST_ALLOC_PORTABLE))?;
        Ok(memory.cast())
    }

    /// Gives it back.
    pub(crate) fn host_free(&self, memory: *mut u8) -> Result<()> {
        call!(self, mem_free_host(memory.cast()))
    }

    /// Copies host memory to a device.
    ///
    /// # Safety
    /// The source must be readable until the stream has done it.
    pub(crate) unsafe fn copy_in(
        &self,
        dst: Address,
        src: *const u8,
        size: usize,
        stream: Stream,
    ) -> Result<()> {
        call!(self, memcpy_htod_async(dst, src.cast(), size, stream))
    }

    /// Copies device memory to the host.
    ///
    /// # Safety
    /// The destination must be writable until the stream has done it.
    pub(crate) unsafe fn copy_out(
        &self,
        dst: *mut u8,
        src: Address,
        size: usize,
        stream: Stream,
    ) -> Result<()> {
        call!(self, memcpy_dtoh_async(dst.cast(), src, size, stream))
    }

    /// Copies on devices.
    pub(crate) fn copy(&self, dst: Address, src: Address, size: u64, stream: Stream) -> Result<()> {
        call!(self, memcpy_dtod_async(dst, src, size as usize, stream))
    }

    /// Copies from one device to another.
    pub(crate) fn copy_peer(
        &self,
        dst: (Address, Context),
        src: (Address, Context),
        size: u64,
        stream: Stream,
    ) -> Result<()> {
        call!(self, memcpy_peer_async(dst.0, dst.1, src.0, src.1, size as usize, stream))
    }

    /// Copies rows.
    ///
    /// # Safety
    /// As for [`Driver::copy_in`] and [`Driver::copy_out`], where a side is on the host.
    pub(crate) unsafe fn copy_2d(&self, copy: &sys::Memcpy2d, stream: Stream) -> Result<()> {
        call!(self, memcpy_2d_async(copy, stream))
    }

    /// Fills `count` elements of 1, 2 or 4 bytes.
    pub(crate) fn fill(
        &self,
        dst: Address,
        value: u32,
        element: u32,
        count: u64,
        stream: Stream,
    ) -> Result<()> {
        let count = count as usize;
        match element {
            1 => call!(self, memset_d8_async(dst, value as u8, count, stream)),
            2 => call!(self, memset_d16_async(dst, value as u16, count, stream)),
            _ => call!(self, memset_d32_async(dst, value, count, stream)),
        }
    }

    /// Fills rows of `width` elements.
    pub(crate) fn fill_2d(
        &self,
        (dst, pitch): (Address, u64),
        value: u32,
        element: u32,
        (width, height): (u64, u64),
        stream: Stream,
    ) -> Result<()> {
        let (pitch, width, height) = (pitch as usize, width as usize, height as usize);
        match element {
            1 => call!(self, memset_d2d8_async(dst, pitch, value as u8, width, height, stream)),
            2 => call!(self, memset_d2d16_async(dst, pitch, value as u16, width, height, stream)),
            _ => call!(self, memset_d2d32_async(dst, pitch, value, width, height, stream)),
        }
    }

    /// Loads a module into the current context. The image must end in a NUL.
    pub(crate) fn module_load(&self, image: &[u64]) -> Result<Module> {
        let mut log = vec![0u8; LOG_BYTES];
        let options: [c_uint; 2] = [sys::JIT_ERROR_LOG, sys::JIT_ERROR_LOG_SIZE];
        let values: [*mut c_void; 2] =
            [log.as_mut_ptr().cast(), std::ptr::without_provenance_mut(LOG_BYTES - 1)];
        let mut module = Module::NULL;
        let image = image.as_ptr().cast::<c_void>();
        let loaded =
            call!(self, module_load_data_ex(&mut module, image, 2, options.as_ptr(), values.as_ptr()));
        loaded.map_err(|e| {
            let end = log.iter().position(|b| *b == 0).unwrap_or(0);
            match String::from_utf8_lossy(&log[..end]).trim() {
                "" => e,
                log => Error::new(e.code, format!("{}: {log}", e.message)),
            }
        })?;
        Ok(module)
    }

    /// Unloads a module.
    pub(crate) fn module_unload(&self, module: Module) -> Result<()> {
        call!(self, module_unload(module))
    }

    /// The names of a module's kernels, where the driver can tell.
    pub(crate) fn module_functions(&self, module: Module) -> Option<Vec<(String, Function)>> {
        let table = &self.table;
        let (count_of, enumerate) = (table.module_get_function_count?, table.module_enumerate_functions?);
        let (name_of, load) = (table.func_get_name?, table.func_load?);
        let mut count = 0;
        // SAFETY: the place is valid, and the module the driver's.
        if unsafe { count_of(&mut count, module) } != 0 {
            return None;
        }
        let mut functions = vec![Function::NULL; count as usize];
        // SAFETY: there is room for so many.
        if count > 0 && unsafe { enumerate(functions.as_mut_ptr(), count, module) } != 0 {
            return None;
        }
        let mut named = Vec::with_capacity(functions.len());
        for function in functions {
            let mut name = std::ptr::null();
            // SAFETY: the place is valid; the text is the driver's own and stays as long as the module.
            unsafe {
                // Where the driver loads functions when they are first used, which is its default, this one has no attributes before.
                if load(function) != 0 || name_of(&mut name, function) != 0 || name.is_null() {
                    return None;
                }
                named.push((CStr::from_ptr(name).to_string_lossy().into_owned(), function));
            }
        }
        Some(named)
    }

    /// A kernel of a module.
    pub(crate) fn function(&self, module: Module, name: &str) -> Result<Function> {
        let name = c_name(name)?;
        let mut function = Function::NULL;
        call!(self, module_get_function(&mut function, module, name.as_ptr()))?;
        Ok(function)
    }

    /// A variable of a module: its address and size.
    pub(crate) fn global(&self, module: Module, name: &str) -> Result<(Address, u64)> {
        let name = c_name(name)?;
        let (mut address, mut size) = (0, 0);
        call!(self, module_get_global(&mut address, &mut size, module, name.as_ptr()))?;
        Ok((address, size as u64))
    }

    /// A kernel's parameters as offsets and sizes, where the driver can tell.
    pub(crate) fn function_params(&self, function: Function) -> Option<Vec<(u32, u32)>> {
        let get = self.table.func_get_param_info?;
        let mut params = Vec::new();
        loop {
            let (mut offset, mut size) = (0, 0);
            // SAFETY: the places are valid.
            match unsafe { get(function, params.len(), &mut offset, &mut size) } {
                0 => params.push((offset as u32, size as u32)),
                // The index is past the last parameter.
                1 => return Some(params),
                _ => return None,
            }
        }
    }

    /// An attribute of a kernel.
    pub(crate) fn function_attribute(&self, function: Function, attribute: c_int) -> Result<u32> {
        let mut value = 0;
        call!(self, func_get_attribute(&mut value, attribute, function))?;
        Ok(value.max(0) as u32)
    }

    /// Sets an attribute of a kernel.
    pub(crate) fn set_function_attribute(
        &self,
        function: Function,
        attribute: c_int,
        value: u32,
    ) -> Result<()> {
        call!(self, func_set_attribute(function, attribute, value as c_int))
    }

    /// Launches a kernel with its parameter block.
    pub(crate) fn launch(
        &self,
        function: Function,
        grid: [u32; 3],
        block: [u32; 3],
        shared: u32,
        stream: Stream,
        params: &mut [u8],
    ) -> Result<()> {
        let mut size = params.len();
        let extra = parameter_block(params, &mut size);
        let ([gx, gy, gz], [bx, by, bz]) = (grid, block);
        let none = std::ptr::null();
        let extra = if size == 0 { none } else { extra.as_ptr() };
        call!(self, launch_kernel(function, gx, gy, gz, bx, by, bz, shared, stream, none, extra))
    }

    /// The driver's tensor map for what one of rgpu's says.
    pub(crate) fn tensor_map(&self, wanted: &TensorMap) -> Result<[u8; TENSOR_MAP_BYTES]> {
        let missing = || {
            Error::new(
                Code::NotSupported,
                "The driver has no cuTensorMapEncode*, which are in CUDA since 12.0",
            )
        };
        let mut made = TensorMapBytes([0; TENSOR_MAP_BYTES]);
        let (element, rank, no_interleave) = (wanted.element as c_uint, wanted.rank as c_uint, 0);
        let (sizes, strides, steps) = (wanted.sizes.as_ptr(), wanted.strides.as_ptr(), wanted.steps.as_ptr());
        let (swizzle, promotion) = (wanted.swizzle as c_uint, c_uint::from(wanted.promotion));
        let fill = c_uint::from(wanted.nan);
        let (name, status) = match wanted.shape {
            Shape::Tiled { size } => {
                let encode = self.table.tensor_map_tiled.ok_or_else(missing)?;
                // SAFETY: the arrays have room for the largest number of dimensions, and the map is aligned.
                let status = unsafe {
                    encode(
                        &mut made,
                        element,
                        rank,
                        wanted.address,
                        sizes,
                        strides,
                        size.as_ptr(),
                        steps,
                        no_interleave,
                        swizzle,
                        promotion,
                        fill,
                    )
                };
                ("cuTensorMapEncodeTiled", status)
            }
            Shape::Im2col { lower, upper, channels, pixels } => {
                let encode = self.table.tensor_map_im2col.ok_or_else(missing)?;
                // SAFETY: as above.
                let status = unsafe {
                    encode(
                        &mut made,
                        element,
                        rank,
                        wanted.address,
                        sizes,
                        strides,
                        lower.as_ptr(),
                        upper.as_ptr(),
                        channels,
                        pixels,
                        steps,
                        no_interleave,
                        swizzle,
                        promotion,
                        fill,
                    )
                };
                ("cuTensorMapEncodeIm2col", status)
            }
        };
        self.check(status, name)?;
        Ok(made.0)
    }

    /// Launches a kernel in clusters of so many blocks in x, y, z, with its parameter block.
    pub(crate) fn launch_in_clusters(
        &self,
        function: Function,
        (grid, block, cluster): ([u32; 3], [u32; 3], [u32; 3]),
        cooperative: bool,
        shared: u32,
        stream: Stream,
        params: &mut [u8],
    ) -> Result<()> {
        let Some(launch) = self.table.launch_kernel_ex else {
            let text = "The driver has no cuLaunchKernelEx, which is in CUDA since 11.8";
            return Err(Error::new(Code::NotSupported, text));
        };
        let attributes = [
            LaunchAttribute::new(LaunchAttribute::CLUSTER_DIMENSION, &cluster),
            LaunchAttribute::new(LaunchAttribute::COOPERATIVE, &[1]),
        ];
        let attributes = &attributes[..1 + usize::from(cooperative)];
        let config = LaunchConfig {
            grid,
            block,
            shared_bytes: shared,
            stream,
            attributes: attributes.as_ptr(),
            count: attributes.len() as c_uint,
        };
        let mut size = params.len();
        let extra = parameter_block(params, &mut size);
        let none = std::ptr::null();
        let extra = if size == 0 { none } else { extra.as_ptr() };
        // SAFETY: as for the other entry points; the configuration has as many attributes as it says.
        let status = unsafe { launch(&config, function, none, extra) };
        self.check(status, "cuLaunchKernelEx")
    }

    /// Launches a kernel whose blocks may wait for each other; `params` point into its parameter block.
    pub(crate) fn launch_cooperative(
        &self,
        function: Function,
        grid: [u32; 3],
        block: [u32; 3],
        shared: u32,
        stream: Stream,
        params: &[*mut c_void],
    ) -> Result<()> {
        let ([gx, gy, gz], [bx, by, bz]) = (grid, block);
        let params = params.as_ptr();
        call!(self, launch_cooperative_kernel(function, gx, gy, gz, bx, by, bz, shared, stream, params))
    }

    /// How many blocks of a kernel a multiprocessor can hold.
    pub(crate) fn occupancy(&self, function: Function, threads: u32, shared: u32) -> Result<u32> {
        let mut blocks = 0;
        call!(self, occupancy(&mut blocks, function, threads as c_int, shared as usize))?;
        Ok(blocks.max(0) as u32)
    }

    /// Makes a stream call a function.
    ///
    /// # Safety
    /// The function must be ready for its argument, on another thread.
    pub(crate) unsafe fn host_func(
        &self,
        stream: Stream,
        call: sys::HostFn,
        argument: *mut c_void,
    ) -> Result<()> {
        call!(self, launch_host_func(stream, call, argument))
    }

    /// Creates a stream in the current context.
    pub(crate) fn stream_create(&self, blocking: bool, priority: i32) -> Result<Stream> {
        let flags = if blocking { 0 } else { sys::STREAM_NON_BLOCKING };
        let mut stream = Stream::NULL;
        call!(self, stream_create(&mut stream, flags, priority))?;
        Ok(stream)
    }

    /// Destroys a stream once its work is done.
    pub(crate) fn stream_destroy(&self, stream: Stream) -> Result<()> {
        call!(self, stream_destroy(stream))
    }

    /// Makes a stream wait for an event.
    pub(crate) fn stream_wait(&self, stream: Stream, event: Event) -> Result<()> {
        call!(self, stream_wait_event(stream, event, 0))
    }

    /// Has a stream carry out operations on words of memory.
    pub(crate) fn batch_mem_op(&self, stream: Stream, ops: &[MemOp]) -> Result<()> {
        let Some(batch) = self.table.stream_batch_mem_op else {
            let text = "The driver has no cuStreamBatchMemOp, which is in CUDA since 11.7";
            return Err(Error::new(Code::NotSupported, text));
        };
        // `CUstreamBatchMemOpParams`: the operation, the address, the value, the flags, and what is of no use here.
        let raw = |op: &MemOp| {
            let (number, flags) = (u64::from(op.number()), u64::from(op.flags()));
            match op.kind() {
                MemOpKind::Barrier => [number, flags, 0, 0, 0, 0],
                _ => [number, op.addr, op.value(), flags, 0, 0],
            }
        };
        let mut list: Vec<[u64; 6]> = ops.iter().map(raw).collect();
        // SAFETY: as for the other entry points; the list is as long as is said.
        let status = unsafe { batch(stream, list.len() as c_uint, list.as_mut_ptr(), 0) };
        self.check(status, "cuStreamBatchMemOp")
    }

    /// Waits for a stream.
    pub(crate) fn stream_synchronize(&self, stream: Stream) -> Result<()> {
        call!(self, stream_synchronize(stream))
    }

    /// Whether a stream's work is done.
    pub(crate) fn stream_is_done(&self, stream: Stream) -> Result<bool> {
        // SAFETY: as in `call!`.
        match unsafe { (self.table.stream_query)(stream) } {
            NOT_READY => Ok(false),
            status => self.check(status, "stream_query").map(|()| true),
        }
    }

    /// Creates an event in the current context.
    pub(crate) fn event_create(&self, timing: bool) -> Result<Event> {
        let flags = if timing { 0 } else { sys::EVENT_DISABLE_TIMING };
        let mut event = Event::NULL;
        call!(self, event_create(&mut event, flags))?;
        Ok(event)
    }

    /// Records an event in a stream.
    pub(crate) fn event_record(&self, event: Event, stream: Stream) -> Result<()> {
        call!(self, event_record(event, stream))
    }

    /// Whether what an event was recorded after is done.
    pub(crate) fn event_is_done(&self, event: Event) -> Result<bool> {
        // SAFETY: as in `call!`.
        match unsafe { (self.table.event_query)(event) } {
            NOT_READY => Ok(false),
            status => self.check(status, "event_query").map(|()| true),
        }
    }

    /// Waits for an event.
    pub(crate) fn event_synchronize(&self, event: Event) -> Result<()> {
        call!(self, event_synchronize(event))
    }

    /// Milliseconds between two events.
    pub(crate) fn event_elapsed(&self, start: Event, end: Event) -> Result<f32> {
        let mut time = 0.0;
        call!(self, event_elapsed_time(&mut time, start, end))?;
        Ok(time)
    }
}

fn no_function(name: &str) -> Error {
    Error::new(Code::NotSupported, format!("The driver has no {name}"))
}

fn c_name(name: &str) -> Result<CString> {
    CString::new(name).map_err(|_| Error::new(Code::InvalidValue, "A name must not contain a NUL"))
}
