//! The driver API's own C types, as its public header lays them out on 64-bit Linux.

use std::ffi::c_void;

use crate::abi::types::{LaunchAttribute, MemLocation};
use crate::abi::{In, KernelArguments};
use crate::core::mem_op::RawMemOp;

/// `CUdevice`.
pub(crate) type Device = i32;
/// `CUdeviceptr`.
pub(crate) type DevicePtr = u64;
/// `CUcontext`, `CUmodule`, `CUstream` and all other opaque handles.
pub(crate) type Opaque = *mut c_void;

/// `CUuuid`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Uuid(pub(crate) [u8; 16]);

/// `CUdevprop`, of the deprecated `cuDeviceGetProperties`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct DevProp {
    pub(crate) max_threads_per_block: i32,
    pub(crate) max_threads_dim: [i32; 3],
    pub(crate) max_grid_size: [i32; 3],
    pub(crate) shared_mem_per_block: i32,
    pub(crate) total_constant_memory: i32,
    pub(crate) simd_width: i32,
    pub(crate) mem_pitch: i32,
    pub(crate) regs_per_block: i32,
    pub(crate) clock_rate: i32,
    pub(crate) texture_align: i32,
}

/// `CUmemorytype`: host memory.
pub(crate) const MEMORYTYPE_HOST: u32 = 1;
/// `CUmemorytype`: device memory.
pub(crate) const MEMORYTYPE_DEVICE: u32 = 2;
/// `CUmemorytype`: an array.
pub(crate) const MEMORYTYPE_ARRAY: u32 = 3;
/// `CUmemorytype`: whatever the address says.
pub(crate) const MEMORYTYPE_UNIFIED: u32 = 4;

/// `CUDA_MEMCPY2D`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Memcpy2d {
    pub(crate) src_x_in_bytes: usize,
    pub(crate) src_y: usize,
    pub(crate) src_memory_type: u32,
    pub(crate) src_host: *const c_void,
    pub(crate) src_device: DevicePtr,
    pub(crate) src_array: Opaque,
    pub(crate) src_pitch: usize,
    pub(crate) dst_x_in_bytes: usize,
    pub(crate) dst_y: usize,
    pub(crate) dst_memory_type: u32,
    pub(crate) dst_host: *mut c_void,
    pub(crate) dst_device: DevicePtr,
    pub(crate) dst_array: Opaque,
    pub(crate) dst_pitch: usize,
    pub(crate) width_in_bytes: usize,
    pub(crate) height: usize,
}

/// `CUDA_MEMCPY3D`. `CUDA_MEMCPY3D_PEER` has contexts in the places of the two reserved fields.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Memcpy3d {
    pub(crate) src_x_in_bytes: usize,
    pub(crate) src_y: usize,
    pub(crate) src_z: usize,
    pub(crate) src_lod: usize,
    pub(crate) src_memory_type: u32,
    pub(crate) src_host: *const c_void,
    pub(crate) src_device: DevicePtr,
    pub(crate) src_array: Opaque,
    pub(crate) src_reserved: Opaque,
    pub(crate) src_pitch: usize,
    pub(crate) src_height: usize,
    pub(crate) dst_x_in_bytes: usize,
    pub(crate) dst_y: usize,
    pub(crate) dst_z: usize,
    pub(crate) dst_lod: usize,
    pub(crate) dst_memory_type: u32,
    pub(crate) dst_host: *mut c_void,
    pub(crate) dst_device: DevicePtr,
    pub(crate) dst_array: Opaque,
    pub(crate) dst_reserved: Opaque,
    pub(crate) dst_pitch: usize,
    pub(crate) dst_height: usize,
    pub(crate) width_in_bytes: usize,
    pub(crate) height: usize,
    pub(crate) depth: usize,
}

/// `CUctxCreateParams`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct CtxCreateParams {
    pub(crate) affinities: Opaque,
    pub(crate) affinity_count: i32,
    pub(crate) cig: Opaque,
}

/// `CUlaunchConfig`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct LaunchConfig {
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared_mem_bytes: u32,
    pub(crate) stream: Opaque,
    pub(crate) attrs: In<LaunchAttribute>,
    pub(crate) num_attrs: u32,
}

/// `CUDA_KERNEL_NODE_PARAMS_v1`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct KernelNodeParamsV1 {
    pub(crate) function: Opaque,
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared_mem_bytes: u32,
    pub(crate) parameters: KernelArguments,
    pub(crate) extra: KernelArguments,
}

impl Default for KernelNodeParamsV1 {
    fn default() -> Self {
        Self {
            function: std::ptr::null_mut(),
            grid: [0; 3],
            block: [0; 3],
            shared_mem_bytes: 0,
            parameters: KernelArguments::NONE,
            extra: KernelArguments::NONE,
        }
    }
}

/// `CUDA_KERNEL_NODE_PARAMS_v2` and `_v3`: what `_v1` has, and a kernel and a context.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct KernelNodeParams {
    pub(crate) first: KernelNodeParamsV1,
    pub(crate) kernel: Opaque,
    pub(crate) context: Opaque,
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
pub(crate) struct MemcpyNodeParams {
    pub(crate) flags: i32,
    pub(crate) reserved: i32,
    pub(crate) context: Opaque,
    pub(crate) copy: Memcpy3d,
}

/// `CUDA_BATCH_MEM_OP_NODE_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct BatchMemOpNodeParams {
    pub(crate) context: Opaque,
    pub(crate) count: u32,
    pub(crate) list: In<RawMemOp>,
    pub(crate) flags: u32,
}

/// `CUmemAllocationProp`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct MemAllocationProp {
    pub(crate) kind: u32,
    pub(crate) handle_types: u32,
    pub(crate) location: MemLocation,
    pub(crate) win32_handle_meta_data: usize,
    pub(crate) compression: u8,
    pub(crate) gpu_direct_rdma: u8,
    pub(crate) usage: u16,
    pub(crate) reserved: [u8; 4],
}

/// `CUDA_ARRAY_DESCRIPTOR`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ArrayDescriptor {
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) format: u32,
    pub(crate) channels: u32,
}

/// `CUDA_ARRAY3D_DESCRIPTOR`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Array3dDescriptor {
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) depth: usize,
    pub(crate) format: u32,
    pub(crate) channels: u32,
    pub(crate) flags: u32,
}

/// `CUDA_RESOURCE_DESC`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct ResourceDesc {
    /// `CUresourcetype`
    pub(crate) kind: u32,
    /// An array, or an address.
    pub(crate) place: u64,
    pub(crate) format: u32,
    pub(crate) channels: u32,
    /// Bytes, or a width.
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) pitch: usize,
    pub(crate) reserved: [u64; 11],
    pub(crate) flags: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_are_those_of_the_header() {
        assert_eq!((size_of::<ArrayDescriptor>(), size_of::<Array3dDescriptor>()), (24, 40));
        assert_eq!((size_of::<ResourceDesc>(), std::mem::offset_of!(ResourceDesc, flags)), (144, 136));
        assert_eq!(size_of::<Memcpy2d>(), 128);
        assert_eq!(size_of::<Memcpy3d>(), 200);
        assert_eq!(size_of::<LaunchConfig>(), 56);
        assert_eq!(std::mem::offset_of!(LaunchConfig, stream), 32);
        assert_eq!(size_of::<DevProp>(), 56);
        assert_eq!(size_of::<CtxCreateParams>(), 24);
        assert_eq!(std::mem::offset_of!(CtxCreateParams, cig), 16);
        assert_eq!((size_of::<KernelNodeParamsV1>(), size_of::<KernelNodeParams>()), (56, 72));
        assert_eq!(size_of::<MemcpyNodeParams>(), 216);
        assert_eq!(size_of::<MemAllocationProp>(), 32);
        assert_eq!((size_of::<BatchMemOpNodeParams>(), size_of::<RawMemOp>()), (32, 48));
    }
}
