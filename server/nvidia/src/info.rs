//! What the driver tells about its devices, as far as it is true for a program elsewhere.

use super::Config;
use super::driver::Driver;
use super::memory::PIECE;
use super::sys::DeviceId;
use rgpu_device::{Attribute, Code, DeviceInfo, Error, Result, attribute};

/// The newest CUDA whose calls are offered to programs.
const NEWEST: u32 = 13000;

/// Attributes of things that need the program and the GPU on one machine, or that are not forwarded. They are
/// told as 0: not there.
const NOT_FORWARDED: &[u32] = &[
    attribute::INTEGRATED,
    attribute::HOST_NATIVE_ATOMIC_SUPPORTED,
    attribute::PAGEABLE_MEMORY_ACCESS,
    attribute::CONCURRENT_MANAGED_ACCESS,
    attribute::CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM,
    attribute::COOPERATIVE_MULTI_DEVICE_LAUNCH,
    attribute::CAN_FLUSH_REMOTE_WRITES,
    attribute::PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES,
    attribute::DIRECT_MANAGED_MEM_ACCESS_FROM_HOST,
    attribute::HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
    attribute::HANDLE_TYPE_WIN32_HANDLE_SUPPORTED,
    attribute::HANDLE_TYPE_WIN32_KMT_HANDLE_SUPPORTED,
    attribute::GENERIC_COMPRESSION_SUPPORTED,
    attribute::MAX_PERSISTING_L2_CACHE_SIZE,
    attribute::MAX_ACCESS_POLICY_WINDOW_SIZE,
    attribute::GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED,
    attribute::SPARSE_CUDA_ARRAY_SUPPORTED,
    attribute::READ_ONLY_HOST_REGISTER_SUPPORTED,
    attribute::TIMELINE_SEMAPHORE_INTEROP_SUPPORTED,
    attribute::GPU_DIRECT_RDMA_SUPPORTED,
    attribute::GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS,
    attribute::GPU_DIRECT_RDMA_WRITES_ORDERING,
    attribute::MEMPOOL_SUPPORTED_HANDLE_TYPES,
    attribute::DEFERRED_MAPPING_CUDA_ARRAY_SUPPORTED,
    attribute::DMA_BUF_SUPPORTED,
    attribute::IPC_EVENT_SUPPORTED,
    attribute::MEM_SYNC_DOMAIN_COUNT,
    attribute::HANDLE_TYPE_FABRIC_SUPPORTED,
    attribute::UNIFIED_FUNCTION_POINTERS,
    attribute::NUMA_CONFIG,
    attribute::NUMA_ID,
    attribute::MULTICAST_SUPPORTED,
    attribute::HOST_NUMA_ID,
    attribute::D3D12_CIG_SUPPORTED,
    attribute::MEM_DECOMPRESS_ALGORITHM_MASK,
    attribute::MEM_DECOMPRESS_MAXIMUM_LENGTH,
    attribute::VULKAN_CIG_SUPPORTED,
    attribute::HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
    attribute::HOST_NUMA_MEMORY_POOLS_SUPPORTED,
    attribute::HOST_NUMA_MULTINODE_IPC_SUPPORTED,
    attribute::HOST_MEMORY_POOLS_SUPPORTED,
    attribute::HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
    attribute::HOST_ALLOC_DMA_BUF_SUPPORTED,
    attribute::ONLY_PARTIAL_HOST_NATIVE_ATOMIC_SUPPORTED,
];

/// Starts the driver and describes its devices.
pub(crate) fn describe_all(driver: &Driver, config: &Config) -> Result<Vec<(DeviceId, DeviceInfo)>> {
    driver.init()?;
    let version = driver.version()?;
    if version < super::MIN_VERSION {
        let text = format!(
            "The NVIDIA driver is for CUDA {}.{}; 12.0 is the oldest that is supported",
            version / 1000,
            version % 1000 / 10
        );
        return Err(Error::new(Code::SystemNotReady, text));
    }
    let there = driver.device_count()?;
    let expected = &config.expected;
    if !expected.is_empty() && there as usize != expected.len() {
        let text = format!("CUDA shows this process {there} devices where it was to show {}", expected.len());
        return Err(Error::new(Code::NoDevice, text));
    }
    let numbers = config.devices.clone().unwrap_or_else(|| (0..there).collect());
    if numbers.is_empty() || numbers.iter().any(|number| *number >= there) {
        let text = format!("There are {there} NVIDIA devices, not those with the numbers {numbers:?}");
        return Err(Error::new(Code::NoDevice, text));
    }
    numbers
        .into_iter()
        .map(|number| {
            let device = driver.device(number)?;
            let info = describe(driver, device, version, config.memory)?;
            if let Some(uuid) = expected.get(number as usize).filter(|uuid| **uuid != info.uuid) {
                let text = format!(
                    "CUDA shows this process the device {:02x?} ({}) as number {number} where it was to show {uuid:02x?}",
                    info.uuid, info.name
                );
                return Err(Error::new(Code::NoDevice, text));
            }
            Ok((device, info))
        })
        .collect()
}

fn describe(driver: &Driver, device: DeviceId, version: u32, limit: Option<u64>) -> Result<DeviceInfo> {
    let name = driver.device_name(device)?;
    for (number, what) in [
        (attribute::UNIFIED_ADDRESSING, "unified addressing"),
        (attribute::VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, "virtual memory calls"),
    ] {
        if driver.device_attribute(device, number) == 0 {
            let text = format!("{name} has no {what}, which rgpu needs");
            return Err(Error::new(Code::NotSupported, text));
        }
    }
    let granularity = driver.granularity(device)?;
    if granularity == 0 || !PIECE.is_multiple_of(granularity) {
        let text = format!("{name} maps memory in pieces of {granularity} bytes, which is not supported");
        return Err(Error::new(Code::NotSupported, text));
    }
    let memory = driver.device_memory(device)?;
    let number = |number| driver.device_attribute(device, number);
    let attributes: Vec<Attribute> = (1..=attribute::LAST)
        .filter(|number| !NOT_FORWARDED.contains(number))
        .map(|n| (n, number(n)))
        .filter(|(_, value)| *value != 0)
        .collect();
    Ok(DeviceInfo {
        name,
        uuid: driver.device_uuid(device)?,
        total_memory: limit.map_or(memory, |limit| limit.min(memory)) / 4096 * 4096,
        compute_capability: (
            number(attribute::COMPUTE_CAPABILITY_MAJOR).max(0) as u32,
            number(attribute::COMPUTE_CAPABILITY_MINOR).max(0) as u32,
        ),
        driver_version: version.min(NEWEST),
        accepts_ptx: true,
        accepts_cubin: true,
        attributes,
    })
}

/// Whether kernels on a device can follow pointers into memory that the driver has not made.
pub(crate) fn follows_host_pointers(driver: &Driver, device: DeviceId) -> bool {
    [attribute::PAGEABLE_MEMORY_ACCESS, attribute::PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES]
        .into_iter()
        .any(|number| driver.device_attribute(device, number) != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lists_of_attributes_ascend() {
        assert!(NOT_FORWARDED.windows(2).all(|w| w[0] < w[1]));
        assert!(NOT_FORWARDED.last() <= Some(&attribute::LAST));
    }
}
