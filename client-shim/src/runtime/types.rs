//! The C types of the runtime API, with the layouts of the 12.x and 13.x headers.
//!
//! Where the two disagree there are two types, with the major version at the end of the name. Handles
//! are `usize`: a program never looks behind them.

use std::ffi::{c_char, c_int, c_uint, c_void};

use rgpu_device::texture::{ChannelKind, TexelFormat};

use crate::abi::In;
use crate::abi::types::{LaunchAttribute, StreamRef};

/// A `cudaArray_t`.
pub(crate) type ArrayRef = usize;
/// A `cudaLibrary_t`.
pub(crate) type LibraryRef = usize;

/// `cudaMemcpyKind`.
pub(crate) mod kind {
    use std::ffi::c_int;
    pub(crate) const HOST_TO_HOST: c_int = 0;
    pub(crate) const HOST_TO_DEVICE: c_int = 1;
    pub(crate) const DEVICE_TO_HOST: c_int = 2;
    pub(crate) const DEVICE_TO_DEVICE: c_int = 3;
    pub(crate) const DEFAULT: c_int = 4;
}

/// `dim3`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Dim3 {
    pub(crate) x: c_uint,
    pub(crate) y: c_uint,
    pub(crate) z: c_uint,
}

impl From<Dim3> for [u32; 3] {
    fn from(d: Dim3) -> Self {
        [d.x, d.y, d.z]
    }
}

impl From<[u32; 3]> for Dim3 {
    fn from([x, y, z]: [u32; 3]) -> Self {
        Self { x, y, z }
    }
}

/// `cudaExtent`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) depth: usize,
}

/// `cudaPos`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Pos {
    pub(crate) x: usize,
    pub(crate) y: usize,
    pub(crate) z: usize,
}

/// `cudaPitchedPtr`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct PitchedPtr {
    pub(crate) ptr: usize,
    pub(crate) pitch: usize,
    pub(crate) xsize: usize,
    pub(crate) ysize: usize,
}

/// `cudaMemcpy3DParms`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Memcpy3DParms {
    pub(crate) src_array: ArrayRef,
    pub(crate) src_pos: Pos,
    pub(crate) src_ptr: PitchedPtr,
    pub(crate) dst_array: ArrayRef,
    pub(crate) dst_pos: Pos,
    pub(crate) dst_ptr: PitchedPtr,
    pub(crate) extent: Extent,
    pub(crate) kind: c_int,
}

/// `cudaMemcpy3DPeerParms`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Memcpy3DPeerParms {
    pub(crate) src_array: ArrayRef,
    pub(crate) src_pos: Pos,
    pub(crate) src_ptr: PitchedPtr,
    pub(crate) src_device: c_int,
    pub(crate) dst_array: ArrayRef,
    pub(crate) dst_pos: Pos,
    pub(crate) dst_ptr: PitchedPtr,
    pub(crate) dst_device: c_int,
    pub(crate) extent: Extent,
}

/// `cudaChannelFormatDesc`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ChannelDesc {
    pub(crate) x: c_int,
    pub(crate) y: c_int,
    pub(crate) z: c_int,
    pub(crate) w: c_int,
    pub(crate) f: c_int,
}

impl ChannelDesc {
    /// What a texel is; `None` where CUDA has no such format, or nobody has it here.
    pub(crate) fn format(&self) -> Option<TexelFormat> {
        let bits = [self.x, self.y, self.z, self.w];
        let used = bits.iter().take_while(|&&b| b != 0).count();
        let same = bits[..used].iter().all(|&b| b == bits[0]);
        let rest = bits[used..].iter().all(|&b| b == 0);
        let kind = ChannelKind::from_number(u8::try_from(self.f).ok()?)?;
        if !same || !rest {
            return None;
        }
        TexelFormat::new(kind, u8::try_from(bits[0]).ok()?, used as u8)
    }

    /// The description of a format.
    pub(crate) fn of(format: TexelFormat) -> Self {
        let bits = |channel: u8| if channel < format.channels { format.bits.into() } else { 0 };
        Self { x: bits(0), y: bits(1), z: bits(2), w: bits(3), f: format.kind as c_int }
    }
}

/// `cudaResourceDesc`. That of 13.x has room and flags, which are 0, behind these.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ResourceDesc {
    /// `cudaResourceType`
    pub(crate) kind: c_int,
    /// An array, or an address.
    pub(crate) place: usize,
    /// Of memory.
    pub(crate) desc: ChannelDesc,
    /// Bytes, or a width.
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) pitch: usize,
}

/// `cudaTextureDesc`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct TextureDesc {
    pub(crate) address: [c_uint; 3],
    pub(crate) filter: c_uint,
    pub(crate) read_mode: c_uint,
    pub(crate) srgb: c_int,
    pub(crate) border: [f32; 4],
    pub(crate) normalized: c_int,
    pub(crate) max_anisotropy: c_uint,
    pub(crate) level_filter: c_uint,
    pub(crate) level_bias: f32,
    pub(crate) level_low: f32,
    pub(crate) level_high: f32,
    pub(crate) no_trilinear_optimization: c_int,
    pub(crate) seamless: c_int,
}

/// `cudaPointerAttributes` of 12.x; 13.x has 64 reserved bytes more.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct PointerAttributes12 {
    pub(crate) kind: c_int,
    pub(crate) device: c_int,
    pub(crate) device_pointer: usize,
    pub(crate) host_pointer: usize,
}

/// `cudaPointerAttributes` of 13.x.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct PointerAttributes13 {
    pub(crate) base: PointerAttributes12,
    pub(crate) reserved: [i64; 8],
}

/// `cudaFuncAttributes`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct FuncAttributes {
    pub(crate) shared_size_bytes: usize,
    pub(crate) const_size_bytes: usize,
    pub(crate) local_size_bytes: usize,
    pub(crate) max_threads_per_block: c_int,
    pub(crate) num_regs: c_int,
    pub(crate) ptx_version: c_int,
    pub(crate) binary_version: c_int,
    pub(crate) cache_mode_ca: c_int,
    pub(crate) max_dynamic_shared_size_bytes: c_int,
    pub(crate) preferred_shmem_carveout: c_int,
    pub(crate) cluster_dim_must_be_set: c_int,
    pub(crate) required_cluster: [c_int; 3],
    pub(crate) cluster_scheduling_policy: c_int,
    pub(crate) non_portable_cluster_size_allowed: c_int,
    pub(crate) reserved: [c_int; 16],
}

/// `cudaLaunchConfig_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct LaunchConfig {
    pub(crate) grid: Dim3,
    pub(crate) block: Dim3,
    pub(crate) shared_bytes: usize,
    pub(crate) stream: StreamRef,
    pub(crate) attrs: In<LaunchAttribute>,
    pub(crate) num_attrs: c_uint,
}

/// `cudaKernelNodeParams` and its V2.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct KernelNodeParams {
    pub(crate) func: *const c_void,
    pub(crate) grid: Dim3,
    pub(crate) block: Dim3,
    pub(crate) shared_bytes: c_uint,
    pub(crate) kernel_params: *mut *mut c_void,
    pub(crate) extra: *mut *mut c_void,
}

/// `cudaMemcpyNodeParams`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct MemcpyNodeParams {
    pub(crate) flags: c_int,
    pub(crate) reserved: [c_int; 3],
    pub(crate) copy: Memcpy3DParms,
}

/// The fields that `cudaDeviceProp` has in every version, up to and with `totalConstMem`; 12.x has
/// its clock rate where 13.x has padding.
macro_rules! device_prop {
    ($(#[$doc:meta])* $name:ident {
        clock: [$($clock:tt)*], overlap: [$($overlap:tt)*], timeout: [$($timeout:tt)*],
        mode: [$($mode:tt)*], linear: [$($linear:tt)*], memory_clock: [$($memory_clock:tt)*],
        ratio: [$($ratio:tt)*], multi_device: [$($multi:tt)*], tail: [$($tail:tt)*]
    }) => {
        $(#[$doc])*
        #[repr(C)]
        #[derive(Clone, Copy)]
        #[allow(non_snake_case)]
        pub(crate) struct $name {
            pub(crate) name: [c_char; 256],
            pub(crate) uuid: [u8; 16],
            pub(crate) luid: [u8; 8],
            pub(crate) luidDeviceNodeMask: c_uint,
            pub(crate) totalGlobalMem: usize,
            pub(crate) sharedMemPerBlock: usize,
            pub(crate) regsPerBlock: c_int,
            pub(crate) warpSize: c_int,
            pub(crate) memPitch: usize,
            pub(crate) maxThreadsPerBlock: c_int,
            pub(crate) maxThreadsDim: [c_int; 3],
            pub(crate) maxGridSize: [c_int; 3],
            $($clock)*
            pub(crate) totalConstMem: usize,
            pub(crate) major: c_int,
            pub(crate) minor: c_int,
            pub(crate) textureAlignment: usize,
            pub(crate) texturePitchAlignment: usize,
            $($overlap)*
            pub(crate) multiProcessorCount: c_int,
            $($timeout)*
            pub(crate) integrated: c_int,
            pub(crate) canMapHostMemory: c_int,
            $($mode)*
            pub(crate) maxTexture1D: c_int,
            pub(crate) maxTexture1DMipmap: c_int,
            $($linear)*
            pub(crate) maxTexture2D: [c_int; 2],
            pub(crate) maxTexture2DMipmap: [c_int; 2],
            pub(crate) maxTexture2DLinear: [c_int; 3],
            pub(crate) maxTexture2DGather: [c_int; 2],
            pub(crate) maxTexture3D: [c_int; 3],
            pub(crate) maxTexture3DAlt: [c_int; 3],
            pub(crate) maxTextureCubemap: c_int,
            pub(crate) maxTexture1DLayered: [c_int; 2],
            pub(crate) maxTexture2DLayered: [c_int; 3],
            pub(crate) maxTextureCubemapLayered: [c_int; 2],
            pub(crate) maxSurface1D: c_int,
            pub(crate) maxSurface2D: [c_int; 2],
            pub(crate) maxSurface3D: [c_int; 3],
            pub(crate) maxSurface1DLayered: [c_int; 2],
            pub(crate) maxSurface2DLayered: [c_int; 3],
            pub(crate) maxSurfaceCubemap: c_int,
            pub(crate) maxSurfaceCubemapLayered: [c_int; 2],
            pub(crate) surfaceAlignment: usize,
            pub(crate) concurrentKernels: c_int,
            pub(crate) ECCEnabled: c_int,
            pub(crate) pciBusID: c_int,
            pub(crate) pciDeviceID: c_int,
            pub(crate) pciDomainID: c_int,
            pub(crate) tccDriver: c_int,
            pub(crate) asyncEngineCount: c_int,
            pub(crate) unifiedAddressing: c_int,
            $($memory_clock)*
            pub(crate) memoryBusWidth: c_int,
            pub(crate) l2CacheSize: c_int,
            pub(crate) persistingL2CacheMaxSize: c_int,
            pub(crate) maxThreadsPerMultiProcessor: c_int,
            pub(crate) streamPrioritiesSupported: c_int,
            pub(crate) globalL1CacheSupported: c_int,
            pub(crate) localL1CacheSupported: c_int,
            pub(crate) sharedMemPerMultiprocessor: usize,
            pub(crate) regsPerMultiprocessor: c_int,
            pub(crate) managedMemory: c_int,
            pub(crate) isMultiGpuBoard: c_int,
            pub(crate) multiGpuBoardGroupID: c_int,
            pub(crate) hostNativeAtomicSupported: c_int,
            $($ratio)*
            pub(crate) pageableMemoryAccess: c_int,
            pub(crate) concurrentManagedAccess: c_int,
            pub(crate) computePreemptionSupported: c_int,
            pub(crate) canUseHostPointerForRegisteredMem: c_int,
            pub(crate) cooperativeLaunch: c_int,
            $($multi)*
            pub(crate) sharedMemPerBlockOptin: usize,
            pub(crate) pageableMemoryAccessUsesHostPageTables: c_int,
            pub(crate) directManagedMemAccessFromHost: c_int,
            pub(crate) maxBlocksPerMultiProcessor: c_int,
            pub(crate) accessPolicyMaxWindowSize: c_int,
            pub(crate) reservedSharedMemPerBlock: usize,
            pub(crate) hostRegisterSupported: c_int,
            pub(crate) sparseCudaArraySupported: c_int,
            pub(crate) hostRegisterReadOnlySupported: c_int,
            pub(crate) timelineSemaphoreInteropSupported: c_int,
            pub(crate) memoryPoolsSupported: c_int,
            pub(crate) gpuDirectRDMASupported: c_int,
            pub(crate) gpuDirectRDMAFlushWritesOptions: c_uint,
            pub(crate) gpuDirectRDMAWritesOrdering: c_int,
            pub(crate) memoryPoolSupportedHandleTypes: c_uint,
            pub(crate) deferredMappingCudaArraySupported: c_int,
            pub(crate) ipcEventSupported: c_int,
            pub(crate) clusterLaunch: c_int,
            pub(crate) unifiedFunctionPointers: c_int,
            $($tail)*
        }
    };
}

device_prop! {
    /// `cudaDeviceProp` of 12.x.
    DeviceProp12 {
        clock: [pub(crate) clockRate: c_int,],
        overlap: [pub(crate) deviceOverlap: c_int,],
        timeout: [pub(crate) kernelExecTimeoutEnabled: c_int,],
        mode: [pub(crate) computeMode: c_int,],
        linear: [pub(crate) maxTexture1DLinear: c_int,],
        memory_clock: [pub(crate) memoryClockRate: c_int,],
        ratio: [pub(crate) singleToDoublePrecisionPerfRatio: c_int,],
        multi_device: [pub(crate) cooperativeMultiDeviceLaunch: c_int,],
        tail: [pub(crate) reserved: [c_int; 63],]
    }
}

device_prop! {
    /// `cudaDeviceProp` of 13.x.
    DeviceProp13 {
        clock: [], overlap: [], timeout: [], mode: [], linear: [], memory_clock: [], ratio: [],
        multi_device: [],
        tail: [
            pub(crate) deviceNumaConfig: c_int,
            pub(crate) deviceNumaId: c_int,
            pub(crate) mpsEnabled: c_int,
            pub(crate) hostNumaId: c_int,
            pub(crate) gpuPciDeviceID: c_uint,
            pub(crate) gpuPciSubsystemID: c_uint,
            pub(crate) hostNumaMultinodeIpcSupported: c_int,
            pub(crate) reserved: [c_int; 56],
        ]
    }
}

/// How much of [`DeviceProp12`] the 11.x layout has, which the unversioned
/// `cudaGetDeviceProperties` of libcudart.so.12 still fills.
pub(crate) const DEVICE_PROP_11_BYTES: usize = std::mem::offset_of!(DeviceProp12, hostRegisterSupported);

/// How much of [`FuncAttributes`] the 11.x layout has, up to 11.8.
pub(crate) const FUNC_ATTRIBUTES_11_BYTES: usize =
    std::mem::offset_of!(FuncAttributes, cluster_dim_must_be_set);

#[cfg(test)]
crate::abi::signature::structures!(Dim3, Extent, PitchedPtr, ChannelDesc);

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::{offset_of, size_of};

    macro_rules! layout {
        ($type:ident, $size:literal, $($field:ident = $offset:literal),*) => {
            assert_eq!(size_of::<$type>(), $size, stringify!($type));
            $(assert_eq!(offset_of!($type, $field), $offset, concat!(stringify!($type), ".", stringify!($field)));)*
        };
    }

    // The numbers were printed by C programs compiled against the headers of 12.9 and 13.0.
    #[test]
    fn device_properties_have_the_layouts_of_the_headers() {
        layout!(
            DeviceProp13,
            1008,
            uuid = 256,
            luidDeviceNodeMask = 280,
            totalGlobalMem = 288,
            memPitch = 312,
            maxGridSize = 336,
            totalConstMem = 352,
            textureAlignment = 368,
            multiProcessorCount = 384,
            integrated = 388,
            maxTexture1D = 396,
            maxTexture2D = 404,
            maxTextureCubemap = 464,
            surfaceAlignment = 552,
            concurrentKernels = 560,
            unifiedAddressing = 588,
            memoryBusWidth = 592,
            sharedMemPerMultiprocessor = 624,
            hostNativeAtomicSupported = 648,
            cooperativeLaunch = 668,
            sharedMemPerBlockOptin = 672,
            reservedSharedMemPerBlock = 696,
            hostRegisterSupported = 704,
            memoryPoolSupportedHandleTypes = 736,
            clusterLaunch = 748,
            unifiedFunctionPointers = 752
        );
        layout!(
            DeviceProp12,
            1032,
            uuid = 256,
            luidDeviceNodeMask = 280,
            totalGlobalMem = 288,
            memPitch = 312,
            maxGridSize = 336,
            totalConstMem = 352,
            textureAlignment = 368,
            multiProcessorCount = 388,
            integrated = 396,
            maxTexture1D = 408,
            maxTexture2D = 420,
            maxTextureCubemap = 480,
            surfaceAlignment = 568,
            concurrentKernels = 576,
            unifiedAddressing = 604,
            memoryBusWidth = 612,
            sharedMemPerMultiprocessor = 640,
            hostNativeAtomicSupported = 664,
            cooperativeLaunch = 688,
            sharedMemPerBlockOptin = 696,
            reservedSharedMemPerBlock = 720,
            hostRegisterSupported = 728,
            memoryPoolSupportedHandleTypes = 760,
            clusterLaunch = 772,
            unifiedFunctionPointers = 776
        );
    }

    #[test]
    fn other_types_have_the_layouts_of_the_headers() {
        layout!(ResourceDesc, 64, place = 8, desc = 16, width = 40, height = 48, pitch = 56);
        layout!(TextureDesc, 72, border = 24, normalized = 40, level_bias = 52, seamless = 68);
        layout!(PointerAttributes12, 24, kind = 0, device = 4, device_pointer = 8, host_pointer = 16);
        layout!(PointerAttributes13, 88, base = 0);
        layout!(
            FuncAttributes,
            144,
            max_threads_per_block = 24,
            max_dynamic_shared_size_bytes = 44,
            preferred_shmem_carveout = 48,
            cluster_dim_must_be_set = 52,
            required_cluster = 56,
            cluster_scheduling_policy = 68,
            non_portable_cluster_size_allowed = 72
        );
        layout!(
            Memcpy3DParms,
            160,
            src_array = 0,
            src_pos = 8,
            src_ptr = 32,
            dst_array = 64,
            dst_pos = 72,
            dst_ptr = 96,
            extent = 128,
            kind = 152
        );
        layout!(
            Memcpy3DPeerParms,
            168,
            src_device = 64,
            dst_array = 72,
            dst_pos = 80,
            dst_ptr = 104,
            dst_device = 136,
            extent = 144
        );
        layout!(
            LaunchConfig,
            56,
            grid = 0,
            block = 12,
            shared_bytes = 24,
            stream = 32,
            attrs = 40,
            num_attrs = 48
        );
        layout!(
            KernelNodeParams,
            56,
            func = 0,
            grid = 8,
            block = 20,
            shared_bytes = 32,
            kernel_params = 40,
            extra = 48
        );
        layout!(MemcpyNodeParams, 176, flags = 0, copy = 16);
        layout!(ChannelDesc, 20, x = 0, f = 16);
    }

    #[test]
    fn channel_formats() {
        let desc = |x, y, z, w, f| ChannelDesc { x, y, z, w, f }.format().map(|format| format.bytes());
        assert_eq!(desc(32, 0, 0, 0, 2), Some(4));
        assert_eq!(desc(8, 8, 8, 8, 1), Some(4));
        assert_eq!(desc(32, 32, 32, 0, 2), None);
        assert_eq!(desc(0, 0, 0, 0, 0), None);
        assert_eq!(desc(32, 16, 0, 0, 0), None);
    }
}
