//! The table of the driver's entry points: each one that the device calls, described once.
//!
//! A row says under which name and version `cuGetProcAddress` finds the binary interface that is meant, which
//! exported symbol has it where `cuGetProcAddress` does not know it, and whether the device can do without.

use super::sys::*;
use rgpu_device::{Code, Error, Result};
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

/// One place where an entry point can be found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Source {
    /// The name that `cuGetProcAddress` takes.
    pub name: &'static CStr,
    /// The CUDA version (12000 is 12.0) to ask for.
    pub version: u32,
    /// The exported symbol with the same interface.
    pub symbol: &'static CStr,
}

/// What is known about an entry point.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Row {
    /// Where to find it, best first. All have the same binary interface.
    pub sources: &'static [Source],
    /// Whether nothing works without it.
    pub required: bool,
    /// What happens without it.
    pub without: &'static str,
}

impl Row {
    /// The lowest version of the driver that has it.
    pub(crate) fn since(&self) -> u32 {
        self.sources.iter().map(|s| s.version).min().unwrap_or(0)
    }

    /// The symbol that is looked for first.
    pub(crate) fn name(&self) -> &'static str {
        self.sources[0].symbol.to_str().unwrap_or("")
    }
}

/// Finds entry points: `cuGetProcAddress` by name and version, then the exported symbol.
pub(crate) trait Resolver {
    /// The address of an entry point, or null.
    fn find(&self, source: &Source) -> *const c_void;
}

macro_rules! entry_points {
    ($($need:ident $field:ident($($argument:ty),*): $($version:literal $name:literal $symbol:literal)|+
        $(; $without:literal)?;)*) => {
        /// The driver's entry points.
        #[allow(missing_docs)]
        pub(crate) struct Table { $(pub $field: entry_points!(@type $need ($($argument),*)),)* }

        /// The rows, in the table's order.
        pub(crate) const ROWS: &[Row] = &[$(Row {
            sources: &[$(Source { name: $name, version: $version, symbol: $symbol },)+],
            required: entry_points!(@required $need),
            without: concat!($($without)?),
        },)*];

        impl Table {
            /// Finds all entry points.
            ///
            /// # Safety
            /// What the resolver finds must be the driver's.
            pub(crate) unsafe fn load(resolver: &dyn Resolver) -> Result<Self> {
                let mut rows = ROWS.iter();
                let mut next = || {
                    let row = rows.next().unwrap_or(&ROWS[0]);
                    let found = row.sources.iter().map(|s| resolver.find(s)).find(|p| !p.is_null());
                    (row, found.unwrap_or(std::ptr::null()))
                };
                Ok(Self { $($field: {
                    let (row, address) = next();
                    if address.is_null() && row.required {
                        return Err(missing(row));
                    }
                    if address.is_null() {
                        tracing::debug!("The driver has no {}: {}", row.name(), row.without);
                    }
                    // SAFETY: the caller vouches for the driver, whose interface the row describes. A null
                    // address becomes `None`, and is refused above where that is not allowed.
                    unsafe { entry_points!(@cast $need address ($($argument),*)) }
                },)* })
            }
        }
    };
    (@type need ($($argument:ty),*)) => { unsafe extern "C" fn($($argument),*) -> Status };
    (@type want ($($argument:ty),*)) => { Option<unsafe extern "C" fn($($argument),*) -> Status> };
    (@required need) => { true };
    (@required want) => { false };
    (@cast need $address:ident ($($argument:ty),*)) => {
        std::mem::transmute::<*const c_void, unsafe extern "C" fn($($argument),*) -> Status>($address)
    };
    (@cast want $address:ident ($($argument:ty),*)) => {
        std::mem::transmute::<*const c_void, Option<unsafe extern "C" fn($($argument),*) -> Status>>($address)
    };
}

fn missing(row: &Row) -> Error {
    let (name, since) = (row.name(), row.since());
    let (major, minor) = (since / 1000, since % 1000 / 10);
    let text =
        format!("The driver has no {name}, which is in CUDA since {major}.{minor}; rgpu needs 12.0 or later");
    Error::new(Code::SharedObjectSymbolNotFound, text)
}

entry_points! {
    need init(c_uint): 2000 c"cuInit" c"cuInit";
    need driver_get_version(*mut c_int): 2020 c"cuDriverGetVersion" c"cuDriverGetVersion";
    need get_error_name(Status, *mut *const c_char): 6000 c"cuGetErrorName" c"cuGetErrorName";
    need get_error_string(Status, *mut *const c_char): 6000 c"cuGetErrorString" c"cuGetErrorString";

    need device_get_count(*mut c_int): 2000 c"cuDeviceGetCount" c"cuDeviceGetCount";
    need device_get(*mut DeviceId, c_int): 2000 c"cuDeviceGet" c"cuDeviceGet";
    need device_get_name(*mut c_char, c_int, DeviceId): 2000 c"cuDeviceGetName" c"cuDeviceGetName";
    need device_get_uuid(*mut [u8; 16], DeviceId):
        11040 c"cuDeviceGetUuid" c"cuDeviceGetUuid_v2" | 9020 c"cuDeviceGetUuid" c"cuDeviceGetUuid";
    need device_total_mem(*mut usize, DeviceId): 3020 c"cuDeviceTotalMem" c"cuDeviceTotalMem_v2";
    need device_get_attribute(*mut c_int, c_int, DeviceId):
        2000 c"cuDeviceGetAttribute" c"cuDeviceGetAttribute";
    need device_can_access_peer(*mut c_int, DeviceId, DeviceId):
        4000 c"cuDeviceCanAccessPeer" c"cuDeviceCanAccessPeer";

    need primary_ctx_retain(*mut Context, DeviceId):
        7000 c"cuDevicePrimaryCtxRetain" c"cuDevicePrimaryCtxRetain";
    need primary_ctx_release(DeviceId): 11000 c"cuDevicePrimaryCtxRelease" c"cuDevicePrimaryCtxRelease_v2";
    need primary_ctx_reset(DeviceId): 11000 c"cuDevicePrimaryCtxReset" c"cuDevicePrimaryCtxReset_v2";
    need ctx_set_current(Context): 4000 c"cuCtxSetCurrent" c"cuCtxSetCurrent";
    need ctx_set_limit(c_uint, usize): 3010 c"cuCtxSetLimit" c"cuCtxSetLimit";
    want ctx_enable_peer_access(Context, c_uint):
        4000 c"cuCtxEnablePeerAccess" c"cuCtxEnablePeerAccess"
        ; "module-level variables of one device cannot be reached from another";

    need mem_get_info(*mut usize, *mut usize): 3020 c"cuMemGetInfo" c"cuMemGetInfo_v2";
    need mem_get_allocation_granularity(*mut usize, *const MemAllocationProp, c_uint):
        10020 c"cuMemGetAllocationGranularity" c"cuMemGetAllocationGranularity";
    need mem_address_reserve(*mut Address, usize, usize, Address, u64):
        10020 c"cuMemAddressReserve" c"cuMemAddressReserve";
    need mem_address_free(Address, usize): 10020 c"cuMemAddressFree" c"cuMemAddressFree";
    need mem_create(*mut u64, usize, *const MemAllocationProp, u64): 10020 c"cuMemCreate" c"cuMemCreate";
    need mem_release(u64): 10020 c"cuMemRelease" c"cuMemRelease";
    need mem_map(Address, usize, usize, u64, u64): 10020 c"cuMemMap" c"cuMemMap";
    need mem_unmap(Address, usize): 10020 c"cuMemUnmap" c"cuMemUnmap";
    need mem_set_access(Address, usize, *const MemAccessDesc, usize):
        10020 c"cuMemSetAccess" c"cuMemSetAccess";
    want mem_alloc_async(*mut Address, usize, Stream): 11020 c"cuMemAllocAsync" c"cuMemAllocAsync"
        ; "operations of mathematical libraries that need memory to work in are refused";
    want mem_free_async(Address, Stream): 11020 c"cuMemFreeAsync" c"cuMemFreeAsync"
        ; "operations of mathematical libraries that need memory to work in are refused";
    need mem_host_alloc(*mut *mut c_void, usize, c_uint): 2020 c"cuMemHostAlloc" c"cuMemHostAlloc";
    need mem_free_host(*mut c_void): 2000 c"cuMemFreeHost" c"cuMemFreeHost";

    need memcpy_htod_async(Address, *const c_void, usize, Stream):
        3020 c"cuMemcpyHtoDAsync" c"cuMemcpyHtoDAsync_v2";
    need memcpy_dtoh_async(*mut c_void, Address, usize, Stream):
        3020 c"cuMemcpyDtoHAsync" c"cuMemcpyDtoHAsync_v2";
    need memcpy_dtod_async(Address, Address, usize, Stream):
        3020 c"cuMemcpyDtoDAsync" c"cuMemcpyDtoDAsync_v2";
    need memcpy_peer_async(Address, Context, Address, Context, usize, Stream):
        4000 c"cuMemcpyPeerAsync" c"cuMemcpyPeerAsync";
    need memcpy_2d_async(*const Memcpy2d, Stream): 3020 c"cuMemcpy2DAsync" c"cuMemcpy2DAsync_v2";
    need memset_d8_async(Address, u8, usize, Stream): 3020 c"cuMemsetD8Async" c"cuMemsetD8Async";
    need memset_d16_async(Address, u16, usize, Stream): 3020 c"cuMemsetD16Async" c"cuMemsetD16Async";
    need memset_d32_async(Address, u32, usize, Stream): 3020 c"cuMemsetD32Async" c"cuMemsetD32Async";
    need memset_d2d8_async(Address, usize, u8, usize, usize, Stream):
        3020 c"cuMemsetD2D8Async" c"cuMemsetD2D8Async";
    need memset_d2d16_async(Address, usize, u16, usize, usize, Stream):
        3020 c"cuMemsetD2D16Async" c"cuMemsetD2D16Async";
    need memset_d2d32_async(Address, usize, u32, usize, usize, Stream):
        3020 c"cuMemsetD2D32Async" c"cuMemsetD2D32Async";

    need module_load_data_ex(*mut Module, *const c_void, c_uint, *const c_uint, *const *mut c_void):
        2010 c"cuModuleLoadDataEx" c"cuModuleLoadDataEx";
    need module_unload(Module): 2000 c"cuModuleUnload" c"cuModuleUnload";
    need module_get_function(*mut Function, Module, *const c_char):
        2000 c"cuModuleGetFunction" c"cuModuleGetFunction";
    need module_get_global(*mut Address, *mut usize, Module, *const c_char):
        3020 c"cuModuleGetGlobal" c"cuModuleGetGlobal_v2";
    want module_get_function_count(*mut c_uint, Module):
        12040 c"cuModuleGetFunctionCount" c"cuModuleGetFunctionCount"
        ; "kernels' names are read from the image";
    want module_enumerate_functions(*mut Function, c_uint, Module):
        12040 c"cuModuleEnumerateFunctions" c"cuModuleEnumerateFunctions"
        ; "kernels' names are read from the image";
    want func_get_name(*mut *const c_char, Function): 12030 c"cuFuncGetName" c"cuFuncGetName"
        ; "kernels' names are read from the image";
    want func_load(Function): 12040 c"cuFuncLoad" c"cuFuncLoad"
        ; "kernels' names are read from the image";
    want func_get_param_info(Function, usize, *mut usize, *mut usize):
        12040 c"cuFuncGetParamInfo" c"cuFuncGetParamInfo"
        ; "parameters are read from the image (PTX, or a cubin's `.nv.info` section)";
    need func_get_attribute(*mut c_int, c_int, Function): 2020 c"cuFuncGetAttribute" c"cuFuncGetAttribute";
    need func_set_attribute(Function, c_int, c_int): 9000 c"cuFuncSetAttribute" c"cuFuncSetAttribute";
    need launch_kernel(
        Function, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Stream, *const *mut c_void,
        *const *mut c_void
    ): 4000 c"cuLaunchKernel" c"cuLaunchKernel";
    need launch_cooperative_kernel(
        Function, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Stream, *const *mut c_void
    ): 9000 c"cuLaunchCooperativeKernel" c"cuLaunchCooperativeKernel";
    want launch_kernel_ex(*const LaunchConfig, Function, *const *mut c_void, *const *mut c_void):
        11080 c"cuLaunchKernelEx" c"cuLaunchKernelEx"
        ; "there are no launches in clusters of blocks";
    want tensor_map_tiled(
        *mut TensorMapBytes, c_uint, c_uint, Address, *const u64, *const u64, *const c_uint, *const c_uint, c_uint, c_uint, c_uint,
        c_uint
    ): 12000 c"cuTensorMapEncodeTiled" c"cuTensorMapEncodeTiled"
        ; "there are no tensor maps";
    want tensor_map_im2col(
        *mut TensorMapBytes, c_uint, c_uint, Address, *const u64, *const u64, *const c_int, *const c_int, c_uint, c_uint,
        *const c_uint, c_uint, c_uint, c_uint, c_uint
    ): 12000 c"cuTensorMapEncodeIm2col" c"cuTensorMapEncodeIm2col"
        ; "there are no tensor maps for convolutions";
    need occupancy(*mut c_int, Function, c_int, usize):
        6050 c"cuOccupancyMaxActiveBlocksPerMultiprocessor" c"cuOccupancyMaxActiveBlocksPerMultiprocessor";
    need launch_host_func(Stream, HostFn, *mut c_void): 10000 c"cuLaunchHostFunc" c"cuLaunchHostFunc";

    need stream_create(*mut Stream, c_uint, c_int):
        5050 c"cuStreamCreateWithPriority" c"cuStreamCreateWithPriority";
    need stream_destroy(Stream): 4000 c"cuStreamDestroy" c"cuStreamDestroy_v2";
    need stream_wait_event(Stream, Event, c_uint): 3020 c"cuStreamWaitEvent" c"cuStreamWaitEvent";
    want stream_batch_mem_op(Stream, c_uint, *mut [u64; 6], c_uint):
        11070 c"cuStreamBatchMemOp" c"cuStreamBatchMemOp_v2"
        ; "streams' memory operations are refused";
    need stream_synchronize(Stream): 2000 c"cuStreamSynchronize" c"cuStreamSynchronize";
    need stream_query(Stream): 2000 c"cuStreamQuery" c"cuStreamQuery";
    need event_create(*mut Event, c_uint): 2000 c"cuEventCreate" c"cuEventCreate";
    need event_record(Event, Stream): 2000 c"cuEventRecord" c"cuEventRecord";
    need event_query(Event): 2000 c"cuEventQuery" c"cuEventQuery";
    need event_synchronize(Event): 2000 c"cuEventSynchronize" c"cuEventSynchronize";
    need event_elapsed_time(*mut f32, Event, Event):
        12080 c"cuEventElapsedTime" c"cuEventElapsedTime_v2" | 2000 c"cuEventElapsedTime" c"cuEventElapsedTime";
}
