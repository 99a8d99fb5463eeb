//! What the software GPU says about itself.

use rgpu_device::{Attribute, DeviceInfo, attribute};

use super::Config;

/// The CUDA version whose driver it behaves as.
const DRIVER_VERSION: u32 = 13000;
/// Blocks that one of so many multiprocessors holds at most. Each has a window of shared memory with 4 GiB of guard, and address space
/// is finite.
pub(super) fn resident_blocks(multiprocessors: u64) -> u64 {
    (224 / multiprocessors.max(1)).clamp(1, 16)
}

/// Blocks that one of so many workers holds at most, not counting those of a cooperative launch: all together, what so many
/// multiprocessors hold.
pub(super) fn blocks_of_a_worker(workers: u64, multiprocessors: u64) -> u64 {
    let all = resident_blocks(multiprocessors) * multiprocessors;
    resident_blocks(workers).max(all.div_ceil(workers.max(1)))
}

/// Threads per multiprocessor, which bounds cooperative launches.
pub(super) const RESIDENT_THREADS: u64 = 2048;

/// Most shared memory of one block in bytes, when asked for.
pub(super) fn shared_optin(compute_capability: (u32, u32)) -> u64 {
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
pub(super) fn describe(config: &Config, workers: usize, ordinal: u32) -> DeviceInfo {
    let number = config.numbers.get(ordinal as usize).copied().unwrap_or(ordinal);
    let mut uuid = *b"rgpu-software-00";
    if config.identity != 0 {
        uuid[4..12].copy_from_slice(&config.identity.to_be_bytes());
    }
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
        attributes: attributes(config, config.multiprocessor_count(workers), number),
    }
}

/// Numbers of `CUdevice_attribute`, ascending. What is left out is 0: not there, not supported.
fn attributes(config: &Config, multiprocessors: usize, number: u32) -> Vec<Attribute> {
    let (major, minor) = config.compute_capability;
    let optin = shared_optin(config.compute_capability) as i32;
    let list = [
        (attribute::MAX_THREADS_PER_BLOCK, crate::abi::MAX_THREADS as i32),
        (attribute::MAX_BLOCK_DIM_X, 1024),
        (attribute::MAX_BLOCK_DIM_Y, 1024),
        (attribute::MAX_BLOCK_DIM_Z, 64),
        (attribute::MAX_GRID_DIM_X, i32::MAX),
        (attribute::MAX_GRID_DIM_Y, 65535),
        (attribute::MAX_GRID_DIM_Z, 65535),
        (attribute::MAX_SHARED_MEMORY_PER_BLOCK, 48 << 10),
        (attribute::TOTAL_CONSTANT_MEMORY, 64 << 10),
        (attribute::WARP_SIZE, 32),
        (attribute::MAX_PITCH, i32::MAX),
        (attribute::MAX_REGISTERS_PER_BLOCK, 65536),
        (attribute::CLOCK_RATE, 1_410_000),
        (attribute::TEXTURE_ALIGNMENT, 512),
        (attribute::GPU_OVERLAP, 1),
        (attribute::MULTIPROCESSOR_COUNT, multiprocessors as i32),
        (attribute::CAN_MAP_HOST_MEMORY, 1),
        (attribute::MAXIMUM_TEXTURE1D_WIDTH, 131_072),
        (attribute::MAXIMUM_TEXTURE2D_WIDTH, 131_072),
        (attribute::MAXIMUM_TEXTURE2D_HEIGHT, 65536),
        (attribute::MAXIMUM_TEXTURE3D_WIDTH, 16384),
        (attribute::MAXIMUM_TEXTURE3D_HEIGHT, 16384),
        (attribute::MAXIMUM_TEXTURE3D_DEPTH, 16384),
        (attribute::MAXIMUM_TEXTURE2D_LAYERED_WIDTH, 32768),
        (attribute::MAXIMUM_TEXTURE2D_LAYERED_HEIGHT, 32768),
        (attribute::MAXIMUM_TEXTURE2D_LAYERED_LAYERS, 2048),
        (attribute::SURFACE_ALIGNMENT, 512),
        (attribute::CONCURRENT_KERNELS, 1),
        (attribute::PCI_BUS_ID, number as i32 + 1),
        (attribute::MEMORY_CLOCK_RATE, 1_215_000),
        (attribute::GLOBAL_MEMORY_BUS_WIDTH, 5120),
        (attribute::L2_CACHE_SIZE, 40 << 20),
        (attribute::MAX_THREADS_PER_MULTIPROCESSOR, RESIDENT_THREADS as i32),
        (attribute::ASYNC_ENGINE_COUNT, 3),
        (attribute::UNIFIED_ADDRESSING, 1),
        (attribute::MAXIMUM_TEXTURE1D_LAYERED_WIDTH, 32768),
        (attribute::MAXIMUM_TEXTURE1D_LAYERED_LAYERS, 2048),
        (attribute::CAN_TEX2D_GATHER, 1),
        (attribute::MAXIMUM_TEXTURE2D_GATHER_WIDTH, 32768),
        (attribute::MAXIMUM_TEXTURE2D_GATHER_HEIGHT, 32768),
        (attribute::MAXIMUM_TEXTURE3D_WIDTH_ALTERNATE, 8192),
        (attribute::MAXIMUM_TEXTURE3D_HEIGHT_ALTERNATE, 8192),
        (attribute::MAXIMUM_TEXTURE3D_DEPTH_ALTERNATE, 32768),
        // Programs on several servers find these in the upper part.
        (attribute::PCI_DOMAIN_ID, (config.identity % 256) as i32),
        (attribute::TEXTURE_PITCH_ALIGNMENT, 32),
        (attribute::MAXIMUM_TEXTURECUBEMAP_WIDTH, 32768),
        (attribute::MAXIMUM_TEXTURECUBEMAP_LAYERED_WIDTH, 32768),
        (attribute::MAXIMUM_TEXTURECUBEMAP_LAYERED_LAYERS, 2046),
        (attribute::MAXIMUM_SURFACE1D_WIDTH, 32768),
        (attribute::MAXIMUM_SURFACE2D_WIDTH, 131_072),
        (attribute::MAXIMUM_SURFACE2D_HEIGHT, 65536),
        (attribute::MAXIMUM_SURFACE3D_WIDTH, 16384),
        (attribute::MAXIMUM_SURFACE3D_HEIGHT, 16384),
        (attribute::MAXIMUM_SURFACE3D_DEPTH, 16384),
        (attribute::MAXIMUM_SURFACE1D_LAYERED_WIDTH, 32768),
        (attribute::MAXIMUM_SURFACE1D_LAYERED_LAYERS, 2048),
        (attribute::MAXIMUM_SURFACE2D_LAYERED_WIDTH, 32768),
        (attribute::MAXIMUM_SURFACE2D_LAYERED_HEIGHT, 32768),
        (attribute::MAXIMUM_SURFACE2D_LAYERED_LAYERS, 2048),
        (attribute::MAXIMUM_SURFACECUBEMAP_WIDTH, 32768),
        (attribute::MAXIMUM_SURFACECUBEMAP_LAYERED_WIDTH, 32768),
        (attribute::MAXIMUM_SURFACECUBEMAP_LAYERED_LAYERS, 2046),
        (attribute::MAXIMUM_TEXTURE1D_LINEAR_WIDTH, 1 << 28),
        (attribute::MAXIMUM_TEXTURE2D_LINEAR_WIDTH, 131_072),
        (attribute::MAXIMUM_TEXTURE2D_LINEAR_HEIGHT, 65000),
        (attribute::MAXIMUM_TEXTURE2D_LINEAR_PITCH, 2_097_120),
        (attribute::MAXIMUM_TEXTURE2D_MIPMAPPED_WIDTH, 32768),
        (attribute::MAXIMUM_TEXTURE2D_MIPMAPPED_HEIGHT, 32768),
        (attribute::COMPUTE_CAPABILITY_MAJOR, major as i32),
        (attribute::COMPUTE_CAPABILITY_MINOR, minor as i32),
        (attribute::MAXIMUM_TEXTURE1D_MIPMAPPED_WIDTH, 32768),
        (attribute::STREAM_PRIORITIES_SUPPORTED, 1),
        (attribute::GLOBAL_L1_CACHE_SUPPORTED, 1),
        (attribute::LOCAL_L1_CACHE_SUPPORTED, 1),
        (attribute::MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, optin + 1024),
        (attribute::MAX_REGISTERS_PER_MULTIPROCESSOR, 65536),
        (attribute::MANAGED_MEMORY, 1),
        (attribute::SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO, 2),
        (attribute::COMPUTE_PREEMPTION_SUPPORTED, 1),
        (attribute::CAN_USE_STREAM_MEM_OPS_V1, 1),
        (attribute::CAN_USE_64_BIT_STREAM_MEM_OPS_V1, 1),
        (attribute::CAN_USE_STREAM_WAIT_VALUE_NOR_V1, 1),
        (attribute::COOPERATIVE_LAUNCH, 1),
        (attribute::MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, optin),
        (attribute::HOST_REGISTER_SUPPORTED, 1),
        (attribute::VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1),
        (attribute::MAX_BLOCKS_PER_MULTIPROCESSOR, resident_blocks(multiprocessors as u64) as i32),
        (attribute::RESERVED_SHARED_MEMORY_PER_BLOCK, 1024),
        (attribute::MEMORY_POOLS_SUPPORTED, 1),
        (attribute::CLUSTER_LAUNCH, (major >= 9).into()),
        (attribute::CAN_USE_64_BIT_STREAM_MEM_OPS, 1),
        (attribute::CAN_USE_STREAM_WAIT_VALUE_NOR, 1),
        (attribute::IPC_EVENT_SUPPORTED, 1),
    ];
    list.to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn multiprocessors_are_as_many_as_was_said() {
        let config = Config { multiprocessors: 108, ..Config::default() };
        let told = describe(&config, 2, 0);
        assert_eq!(told.attribute(attribute::MULTIPROCESSOR_COUNT), 108);
        // All that may be resident together is what the executor has room for.
        assert_eq!(told.attribute(attribute::MAX_BLOCKS_PER_MULTIPROCESSOR), 2);
        let told = describe(&Config::default(), 2, 0);
        assert_eq!(told.attribute(attribute::MULTIPROCESSOR_COUNT), 2);
    }

    #[test]
    fn attributes_can_be_looked_up() {
        let info = describe(&Config::default(), 3, 1);
        assert!(info.attributes.windows(2).all(|w| w[0].0 < w[1].0));
        assert_eq!(
            (
                info.attribute(attribute::MULTIPROCESSOR_COUNT),
                info.attribute(attribute::COMPUTE_CAPABILITY_MAJOR),
                info.attribute(attribute::PAGEABLE_MEMORY_ACCESS)
            ),
            (3, 8, 0)
        );
        assert!(shared_optin((9, 0)) <= u64::from(crate::abi::RESERVED_SHARED_AT));
        assert_eq!(u64::from(crate::abi::RESERVED_SHARED_AT + 1024), super::super::arena::WINDOW);
        assert_eq!((resident_blocks(2), resident_blocks(64), resident_blocks(1024)), (16, 3, 1));
        // As many workers as multiprocessors; fewer; more.
        assert_eq!((blocks_of_a_worker(2, 2), blocks_of_a_worker(64, 64)), (16, 3));
        assert_eq!(
            (blocks_of_a_worker(2, 16), blocks_of_a_worker(2, 108), blocks_of_a_worker(1, 224)),
            (112, 108, 224)
        );
        assert_eq!((blocks_of_a_worker(64, 2), blocks_of_a_worker(64, 108)), (3, 4));
    }
}
