//! The driver API's types and numbers, as far as they are used here: the 64-bit binary interface that the
//! public documentation describes.

use std::ffi::{c_int, c_uint, c_void};

/// `CUresult`; 0 is success.
pub(crate) type Status = c_int;
/// `CUdevice`.
pub(crate) type DeviceId = c_int;
/// `CUdeviceptr`.
pub(crate) type Address = u64;
/// `CUhostFn`.
pub(crate) type HostFn = unsafe extern "C" fn(*mut c_void);

macro_rules! handles {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        $($(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(transparent)]
        pub(crate) struct $name(pub *mut c_void);
        // SAFETY: the driver's handles may be used from any thread.
        unsafe impl Send for $name {}
        // SAFETY: as above.
        unsafe impl Sync for $name {}
        impl $name {
            /// None.
            pub(crate) const NULL: Self = Self(std::ptr::null_mut());
        })*
    };
}

handles! {
    /// `CUcontext`.
    Context,
    /// `CUstream`.
    Stream,
    /// `CUevent`.
    Event,
    /// `CUmodule`.
    Module,
    /// `CUfunction`.
    Function,
}

impl Stream {
    /// `CU_STREAM_LEGACY`: the legacy default stream of the current context.
    pub(crate) const LEGACY: Self = Self(std::ptr::without_provenance_mut(1));
}

/// `CUmemLocation`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct MemLocation {
    /// `CU_MEM_LOCATION_TYPE_DEVICE` is 1.
    pub kind: c_uint,
    /// The device's number.
    pub id: c_int,
}

/// `CUmemAllocationProp`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct MemAllocationProp {
    /// `CU_MEM_ALLOCATION_TYPE_PINNED` is 1.
    pub kind: c_uint,
    /// No shareable handles: 0.
    pub handle_types: c_uint,
    /// Which device's memory.
    pub location: MemLocation,
    /// Null.
    pub win32: *mut c_void,
    /// `CU_MEM_ALLOCATION_COMP_NONE` is 0.
    pub compression: u8,
    /// Not used here: always 0.
    pub gpu_direct_rdma: u8,
    /// Not used here: always 0.
    pub usage: u16,
    /// Always 0, as the driver wants it.
    pub reserved: [u8; 4],
}

impl MemAllocationProp {
    /// Plain memory of a device.
    pub(crate) fn of(device: DeviceId) -> Self {
        Self {
            kind: 1,
            handle_types: 0,
            location: MemLocation { kind: 1, id: device },
            win32: std::ptr::null_mut(),
            compression: 0,
            gpu_direct_rdma: 0,
            usage: 0,
            reserved: [0; 4],
        }
    }
}

/// `CUmemAccessDesc`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct MemAccessDesc {
    /// Which device's memory.
    pub location: MemLocation,
    /// `CU_MEM_ACCESS_FLAGS_PROT_READWRITE` is 3.
    pub flags: c_uint,
}

impl MemAccessDesc {
    /// Everything is allowed to this device.
    pub(crate) fn all(device: DeviceId) -> Self {
        Self { location: MemLocation { kind: 1, id: device }, flags: 3 }
    }
}

/// `CU_MEMORYTYPE_HOST`.
pub(crate) const HOST: c_uint = 1;
/// `CU_MEMORYTYPE_DEVICE`.
pub(crate) const DEVICE: c_uint = 2;

/// `CUDA_MEMCPY2D` (since 3.2).
#[derive(Debug, Clone, Copy)]
#[repr(C)]
#[allow(missing_docs)]
pub(crate) struct Memcpy2d {
    pub src_x: usize,
    pub src_y: usize,
    pub src_kind: c_uint,
    pub src_host: *const c_void,
    pub src_device: Address,
    pub src_array: *mut c_void,
    pub src_pitch: usize,
    pub dst_x: usize,
    pub dst_y: usize,
    pub dst_kind: c_uint,
    pub dst_host: *mut c_void,
    pub dst_device: Address,
    pub dst_array: *mut c_void,
    pub dst_pitch: usize,
    pub width: usize,
    pub height: usize,
}

/// `CU_STREAM_NON_BLOCKING`.
pub(crate) const STREAM_NON_BLOCKING: c_uint = 1;
/// `CU_EVENT_DISABLE_TIMING`.
pub(crate) const EVENT_DISABLE_TIMING: c_uint = 2;
/// `CU_MEMHOSTALLOC_PORTABLE`.
pub(crate) const HOST_ALLOC_PORTABLE: c_uint = 1;

/// `CU_LAUNCH_PARAM_END`, `…_BUFFER_POINTER` and `…_BUFFER_SIZE`.
pub(crate) const LAUNCH_PARAM_END: usize = 0;
/// See [`LAUNCH_PARAM_END`].
pub(crate) const LAUNCH_PARAM_BUFFER: usize = 1;
/// See [`LAUNCH_PARAM_END`].
pub(crate) const LAUNCH_PARAM_SIZE: usize = 2;

/// `CU_JIT_ERROR_LOG_BUFFER`.
pub(crate) const JIT_ERROR_LOG: c_uint = 5;
/// `CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES`.
pub(crate) const JIT_ERROR_LOG_SIZE: c_uint = 6;

/// Numbers of `CUfunction_attribute`.
pub(crate) mod function_attribute {
    #![allow(missing_docs)]
    use std::ffi::c_int;
    pub(crate) const MAX_THREADS: c_int = 0;
    pub(crate) const STATIC_SHARED: c_int = 1;
    pub(crate) const CONST_BYTES: c_int = 2;
    pub(crate) const LOCAL_BYTES: c_int = 3;
    pub(crate) const REGISTERS: c_int = 4;
    pub(crate) const PTX_VERSION: c_int = 5;
    pub(crate) const BINARY_VERSION: c_int = 6;
    pub(crate) const MAX_DYNAMIC_SHARED: c_int = 8;
    pub(crate) const CLUSTER_SIZE_MUST_BE_SET: c_int = 10;
    pub(crate) const REQUIRED_CLUSTER_WIDTH: c_int = 11;
    pub(crate) const NON_PORTABLE_CLUSTER_SIZE_ALLOWED: c_int = 14;
}

/// `CUlaunchAttribute`; the value is a union of 64 bytes.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct LaunchAttribute {
    pub(crate) id: c_uint,
    pub(crate) pad: u32,
    pub(crate) value: [u32; 16],
}

impl LaunchAttribute {
    /// `CU_LAUNCH_ATTRIBUTE_COOPERATIVE` and `CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION`.
    pub(crate) const COOPERATIVE: c_uint = 2;
    pub(crate) const CLUSTER_DIMENSION: c_uint = 4;

    /// An attribute whose value begins with these words.
    pub(crate) fn new(id: c_uint, words: &[u32]) -> Self {
        let mut value = [0; 16];
        value[..words.len()].copy_from_slice(words);
        Self { id, pad: 0, value }
    }
}

/// `CUlaunchConfig`.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct LaunchConfig {
    pub(crate) grid: [c_uint; 3],
    pub(crate) block: [c_uint; 3],
    pub(crate) shared_bytes: c_uint,
    pub(crate) stream: Stream,
    pub(crate) attributes: *const LaunchAttribute,
    pub(crate) count: c_uint,
}

/// `CUtensorMap`, where the driver writes it.
#[repr(C, align(64))]
pub(crate) struct TensorMapBytes(pub(crate) [u8; 128]);

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::{offset_of, size_of};

    #[test]
    fn layouts_are_those_of_the_public_header() {
        assert_eq!((size_of::<MemAllocationProp>(), size_of::<MemAccessDesc>()), (32, 12));
        assert_eq!((size_of::<LaunchAttribute>(), size_of::<LaunchConfig>()), (72, 56));
        assert_eq!(offset_of!(MemAllocationProp, win32), 16);
        assert_eq!(offset_of!(MemAllocationProp, compression), 24);
        assert_eq!(size_of::<Memcpy2d>(), 128);
        assert_eq!((offset_of!(Memcpy2d, src_host), offset_of!(Memcpy2d, src_pitch)), (24, 48));
        assert_eq!((offset_of!(Memcpy2d, dst_kind), offset_of!(Memcpy2d, dst_host)), (72, 80));
        assert_eq!((offset_of!(Memcpy2d, width), offset_of!(Memcpy2d, height)), (112, 120));
    }
}
