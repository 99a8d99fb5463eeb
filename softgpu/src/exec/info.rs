//! What the software GPU says about itself.

use rgpu_device::{Attribute, DeviceInfo};

use super::Config;

/// The CUDA version whose driver it behaves as.
const DRIVER_VERSION: u32 = 13000;
/// Blocks that one of so many workers holds at most, not counting those of a cooperative launch. Each has a
/// window of shared memory with 4 GiB of guard, and address space is finite.
pub fn resident_blocks(workers: u64) -> u64 {
    (224 / workers.max(1)).clamp(1, 16)
}
/// Threads per multiprocessor, which bounds cooperative launches.
pub const RESIDENT_THREADS: u64 = 2048;
/// Most threads of a block.
pub const MAX_THREADS: u64 = 1024;

/// Most shared memory of one block in bytes, when asked for.
pub fn shared_optin(compute_capability: (u32, u32)) -> u64 {
    match compute_capability {
        (9.., _) => 227 << 10,
        (8, 0 | 7) => 163 << 10,
        (8, _) => 99 << 10,
        (7, 5) => 64 << 10,
        (7, _) => 96 << 10,
        _ => 48 << 10,
    }
}

/// The description of device `ordinal`.
pub fn describe(config: &Config, workers: usize, ordinal: u32) -> DeviceInfo {
    let number = config.numbers.get(ordinal as usize).copied().unwrap_or(ordinal);
    let mut uuid = *b"rgpu-software-00";
    uuid[14] = b'0' + (number / 10 % 10) as u8;
    uuid[15] = b'0' + (number % 10) as u8;
    DeviceInfo {
        name: config.name.clone(),
        uuid,
        total_memory: config.memory_bytes_per_device,
        compute_capability: config.compute_capability,
        driver_version: DRIVER_VERSION,
        accepts_ptx: true,
        accepts_cubin: false,
        attributes: attributes(config, workers, number),
    }
}

/// Numbers of `CUdevice_attribute`, ascending. What is left out is 0: not there, not supported.
fn attributes(config: &Config, workers: usize, number: u32) -> Vec<Attribute> {
    let (major, minor) = config.compute_capability;
    let optin = shared_optin(config.compute_capability) as i32;
    let list = [
        (1, MAX_THREADS as i32),                       // MAX_THREADS_PER_BLOCK
        (2, 1024),                                     // MAX_BLOCK_DIM_X
        (3, 1024),                                     // MAX_BLOCK_DIM_Y
        (4, 64),                                       // MAX_BLOCK_DIM_Z
        (5, i32::MAX),                                 // MAX_GRID_DIM_X
        (6, 65535),                                    // MAX_GRID_DIM_Y
        (7, 65535),                                    // MAX_GRID_DIM_Z
        (8, 48 << 10),                                 // MAX_SHARED_MEMORY_PER_BLOCK
        (9, 64 << 10),                                 // TOTAL_CONSTANT_MEMORY
        (10, 32),                                      // WARP_SIZE
        (11, i32::MAX),                                // MAX_PITCH
        (12, 65536),                                   // MAX_REGISTERS_PER_BLOCK
        (13, 1_410_000),                               // CLOCK_RATE
        (14, 512),                                     // TEXTURE_ALIGNMENT
        (15, 1),                                       // GPU_OVERLAP
        (16, workers as i32),                          // MULTIPROCESSOR_COUNT
        (19, 1),                                       // CAN_MAP_HOST_MEMORY
        (21, 131_072),                                 // MAXIMUM_TEXTURE1D_WIDTH
        (22, 131_072),                                 // MAXIMUM_TEXTURE2D_WIDTH
        (23, 65536),                                   // MAXIMUM_TEXTURE2D_HEIGHT
        (24, 16384),                                   // MAXIMUM_TEXTURE3D_WIDTH
        (25, 16384),                                   // MAXIMUM_TEXTURE3D_HEIGHT
        (26, 16384),                                   // MAXIMUM_TEXTURE3D_DEPTH
        (27, 32768),                                   // MAXIMUM_TEXTURE2D_LAYERED_WIDTH
        (28, 32768),                                   // MAXIMUM_TEXTURE2D_LAYERED_HEIGHT
        (29, 2048),                                    // MAXIMUM_TEXTURE2D_LAYERED_LAYERS
        (30, 512),                                     // SURFACE_ALIGNMENT
        (31, 1),                                       // CONCURRENT_KERNELS
        (33, number as i32 + 1),                       // PCI_BUS_ID
        (36, 1_215_000),                               // MEMORY_CLOCK_RATE
        (37, 5120),                                    // GLOBAL_MEMORY_BUS_WIDTH
        (38, 40 << 20),                                // L2_CACHE_SIZE
        (39, RESIDENT_THREADS as i32),                 // MAX_THREADS_PER_MULTIPROCESSOR
        (40, 3),                                       // ASYNC_ENGINE_COUNT
        (41, 1),                                       // UNIFIED_ADDRESSING
        (42, 32768),                                   // MAXIMUM_TEXTURE1D_LAYERED_WIDTH
        (43, 2048),                                    // MAXIMUM_TEXTURE1D_LAYERED_LAYERS
        (45, 32768),                                   // MAXIMUM_TEXTURE2D_GATHER_WIDTH
        (46, 32768),                                   // MAXIMUM_TEXTURE2D_GATHER_HEIGHT
        (47, 8192),                                    // MAXIMUM_TEXTURE3D_WIDTH_ALTERNATE
        (48, 8192),                                    // MAXIMUM_TEXTURE3D_HEIGHT_ALTERNATE
        (49, 32768),                                   // MAXIMUM_TEXTURE3D_DEPTH_ALTERNATE
        (51, 32),                                      // TEXTURE_PITCH_ALIGNMENT
        (52, 32768),                                   // MAXIMUM_TEXTURECUBEMAP_WIDTH
        (53, 32768),                                   // MAXIMUM_TEXTURECUBEMAP_LAYERED_WIDTH
        (54, 2046),                                    // MAXIMUM_TEXTURECUBEMAP_LAYERED_LAYERS
        (55, 32768),                                   // MAXIMUM_SURFACE1D_WIDTH
        (56, 131_072),                                 // MAXIMUM_SURFACE2D_WIDTH
        (57, 65536),                                   // MAXIMUM_SURFACE2D_HEIGHT
        (58, 16384),                                   // MAXIMUM_SURFACE3D_WIDTH
        (59, 16384),                                   // MAXIMUM_SURFACE3D_HEIGHT
        (60, 16384),                                   // MAXIMUM_SURFACE3D_DEPTH
        (61, 32768),                                   // MAXIMUM_SURFACE1D_LAYERED_WIDTH
        (62, 2048),                                    // MAXIMUM_SURFACE1D_LAYERED_LAYERS
        (63, 32768),                                   // MAXIMUM_SURFACE2D_LAYERED_WIDTH
        (64, 32768),                                   // MAXIMUM_SURFACE2D_LAYERED_HEIGHT
        (65, 2048),                                    // MAXIMUM_SURFACE2D_LAYERED_LAYERS
        (66, 32768),                                   // MAXIMUM_SURFACECUBEMAP_WIDTH
        (67, 32768),                                   // MAXIMUM_SURFACECUBEMAP_LAYERED_WIDTH
        (68, 2046),                                    // MAXIMUM_SURFACECUBEMAP_LAYERED_LAYERS
        (69, 1 << 28),                                 // MAXIMUM_TEXTURE1D_LINEAR_WIDTH
        (70, 131_072),                                 // MAXIMUM_TEXTURE2D_LINEAR_WIDTH
        (71, 65000),                                   // MAXIMUM_TEXTURE2D_LINEAR_HEIGHT
        (72, 2_097_120),                               // MAXIMUM_TEXTURE2D_LINEAR_PITCH
        (73, 32768),                                   // MAXIMUM_TEXTURE2D_MIPMAPPED_WIDTH
        (74, 32768),                                   // MAXIMUM_TEXTURE2D_MIPMAPPED_HEIGHT
        (75, major as i32),                            // COMPUTE_CAPABILITY_MAJOR
        (76, minor as i32),                            // COMPUTE_CAPABILITY_MINOR
        (77, 32768),                                   // MAXIMUM_TEXTURE1D_MIPMAPPED_WIDTH
        (78, 1),                                       // STREAM_PRIORITIES_SUPPORTED
        (79, 1),                                       // GLOBAL_L1_CACHE_SUPPORTED
        (80, 1),                                       // LOCAL_L1_CACHE_SUPPORTED
        (81, optin + 1024),                            // MAX_SHARED_MEMORY_PER_MULTIPROCESSOR
        (82, 65536),                                   // MAX_REGISTERS_PER_MULTIPROCESSOR
        (83, 1),                                       // MANAGED_MEMORY
        (87, 2),                                       // SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO
        (90, 1),                                       // COMPUTE_PREEMPTION_SUPPORTED
        (95, 1),                                       // COOPERATIVE_LAUNCH
        (97, optin),                                   // MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
        (99, 1),                                       // HOST_REGISTER_SUPPORTED
        (102, 1),                                      // VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
        (106, resident_blocks(workers as u64) as i32), // MAX_BLOCKS_PER_MULTIPROCESSOR
        (111, 1024),                                   // RESERVED_SHARED_MEMORY_PER_BLOCK
        (115, 1),                                      // MEMORY_POOLS_SUPPORTED
    ];
    list.to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_can_be_looked_up() {
        let info = describe(&Config::default(), 3, 1);
        assert!(info.attributes.windows(2).all(|w| w[0].0 < w[1].0));
        assert_eq!((info.attribute(16), info.attribute(75), info.attribute(88)), (3, 8, 0));
        assert!(shared_optin((9, 0)) <= u64::from(crate::abi::RESERVED_SHARED_AT));
        assert_eq!(u64::from(crate::abi::RESERVED_SHARED_AT + 1024), super::super::arena::WINDOW);
        assert_eq!((resident_blocks(2), resident_blocks(64), resident_blocks(1024)), (16, 3, 1));
    }
}
