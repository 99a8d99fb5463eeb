//! The driver API's own C types, as its public header lays them out on 64-bit Linux.

use std::ffi::c_void;

/// `CUdevice`.
pub type Device = i32;
/// `CUdeviceptr`.
pub type DevicePtr = u64;
/// `CUcontext`, `CUmodule`, `CUstream` and all other opaque handles.
pub type Opaque = *mut c_void;

/// `CUuuid`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Uuid(pub [u8; 16]);

/// `CUdevprop`, of the deprecated `cuDeviceGetProperties`.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(missing_docs)]
pub struct DevProp {
    pub max_threads_per_block: i32,
    pub max_threads_dim: [i32; 3],
    pub max_grid_size: [i32; 3],
    pub shared_mem_per_block: i32,
    pub total_constant_memory: i32,
    pub simd_width: i32,
    pub mem_pitch: i32,
    pub regs_per_block: i32,
    pub clock_rate: i32,
    pub texture_align: i32,
}

/// `CUmemorytype`: host memory.
pub const MEMORYTYPE_HOST: u32 = 1;
/// `CUmemorytype`: device memory.
pub const MEMORYTYPE_DEVICE: u32 = 2;
/// `CUmemorytype`: an array.
pub const MEMORYTYPE_ARRAY: u32 = 3;
/// `CUmemorytype`: whatever the address says.
pub const MEMORYTYPE_UNIFIED: u32 = 4;

/// `CUDA_MEMCPY2D`.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(missing_docs)]
pub struct Memcpy2d {
    pub src_x_in_bytes: usize,
    pub src_y: usize,
    pub src_memory_type: u32,
    pub src_host: *const c_void,
    pub src_device: DevicePtr,
    pub src_array: Opaque,
    pub src_pitch: usize,
    pub dst_x_in_bytes: usize,
    pub dst_y: usize,
    pub dst_memory_type: u32,
    pub dst_host: *mut c_void,
    pub dst_device: DevicePtr,
    pub dst_array: Opaque,
    pub dst_pitch: usize,
    pub width_in_bytes: usize,
    pub height: usize,
}

/// `CUDA_MEMCPY3D`. `CUDA_MEMCPY3D_PEER` has contexts in the places of the two reserved fields.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(missing_docs)]
pub struct Memcpy3d {
    pub src_x_in_bytes: usize,
    pub src_y: usize,
    pub src_z: usize,
    pub src_lod: usize,
    pub src_memory_type: u32,
    pub src_host: *const c_void,
    pub src_device: DevicePtr,
    pub src_array: Opaque,
    pub src_reserved: Opaque,
    pub src_pitch: usize,
    pub src_height: usize,
    pub dst_x_in_bytes: usize,
    pub dst_y: usize,
    pub dst_z: usize,
    pub dst_lod: usize,
    pub dst_memory_type: u32,
    pub dst_host: *mut c_void,
    pub dst_device: DevicePtr,
    pub dst_array: Opaque,
    pub dst_reserved: Opaque,
    pub dst_pitch: usize,
    pub dst_height: usize,
    pub width_in_bytes: usize,
    pub height: usize,
    pub depth: usize,
}

/// `CUlaunchAttribute`: an id and 64 bytes of value.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(missing_docs)]
pub struct LaunchAttribute {
    pub id: u32,
    pub pad: u32,
    pub value: [u64; 8],
}

/// `CU_LAUNCH_ATTRIBUTE_COOPERATIVE`.
pub const LAUNCH_ATTRIBUTE_COOPERATIVE: u32 = 2;
/// `CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION`.
pub const LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION: u32 = 4;

/// `CUlaunchConfig`.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(missing_docs)]
pub struct LaunchConfig {
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub shared_mem_bytes: u32,
    pub stream: Opaque,
    pub attrs: *const LaunchAttribute,
    pub num_attrs: u32,
}

/// `CUDA_KERNEL_NODE_PARAMS_v1`.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(missing_docs)]
pub struct KernelNodeParamsV1 {
    pub function: Opaque,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub shared_mem_bytes: u32,
    pub parameters: *const *const c_void,
    pub extra: *const *const c_void,
}

impl Default for KernelNodeParamsV1 {
    fn default() -> Self {
        Self {
            function: std::ptr::null_mut(),
            grid: [0; 3],
            block: [0; 3],
            shared_mem_bytes: 0,
            parameters: std::ptr::null(),
            extra: std::ptr::null(),
        }
    }
}

/// `CUDA_KERNEL_NODE_PARAMS_v2` and `_v3`: what `_v1` has, and a kernel and a context.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(missing_docs)]
pub struct KernelNodeParams {
    pub first: KernelNodeParamsV1,
    pub kernel: Opaque,
    pub context: Opaque,
}

impl Default for KernelNodeParams {
    fn default() -> Self {
        let null = std::ptr::null_mut();
        Self { first: KernelNodeParamsV1::default(), kernel: null, context: null }
    }
}

/// `CUDA_MEMCPY_NODE_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(missing_docs)]
pub struct MemcpyNodeParams {
    pub flags: i32,
    pub reserved: i32,
    pub context: Opaque,
    pub copy: Memcpy3d,
}

/// `CUmemLocation`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
#[allow(missing_docs)]
pub struct MemLocation {
    pub kind: u32,
    pub id: i32,
}

/// `CUmemAllocationProp`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
#[allow(missing_docs)]
pub struct MemAllocationProp {
    pub kind: u32,
    pub handle_types: u32,
    pub location: MemLocation,
    pub win32_handle_meta_data: usize,
    pub compression: u8,
    pub gpu_direct_rdma: u8,
    pub usage: u16,
    pub reserved: [u8; 4],
}

/// `CUmemAccessDesc`.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(missing_docs)]
pub struct MemAccessDesc {
    pub location: MemLocation,
    pub flags: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_are_those_of_the_header() {
        assert_eq!(size_of::<Memcpy2d>(), 128);
        assert_eq!(size_of::<Memcpy3d>(), 200);
        assert_eq!(size_of::<LaunchAttribute>(), 72);
        assert_eq!(size_of::<LaunchConfig>(), 56);
        assert_eq!(std::mem::offset_of!(LaunchConfig, stream), 32);
        assert_eq!(size_of::<DevProp>(), 56);
        assert_eq!((size_of::<KernelNodeParamsV1>(), size_of::<KernelNodeParams>()), (56, 72));
        assert_eq!(size_of::<MemcpyNodeParams>(), 216);
        assert_eq!((size_of::<MemAllocationProp>(), size_of::<MemAccessDesc>()), (32, 12));
    }
}
