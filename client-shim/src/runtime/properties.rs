//! `cudaDeviceProp` from what a device tells about itself.

use std::ffi::{c_char, c_int, c_uint};

use rgpu_device::DeviceInfo;

use super::types::{DeviceProp12, DeviceProp13};

/// Fills the fields that both layouts have. The numbers are those of `CUdevice_attribute`.
macro_rules! fill_common {
    ($prop:ident, $info:ident) => {{
        let a = |n: u32| -> c_int { $info.attribute(n) };
        let u = |n: u32| -> c_uint { $info.attribute(n) as c_uint };
        let s = |n: u32| -> usize { $info.attribute(n).max(0) as usize };
        for (to, from) in $prop.name.iter_mut().take(255).zip($info.name.bytes()) {
            *to = from as c_char;
        }
        $prop.uuid = $info.uuid;
        $prop.totalGlobalMem = $info.total_memory as usize;
        $prop.sharedMemPerBlock = s(8);
        $prop.regsPerBlock = a(12);
        $prop.warpSize = a(10);
        $prop.memPitch = s(11);
        $prop.maxThreadsPerBlock = a(1);
        $prop.maxThreadsDim = [a(2), a(3), a(4)];
        $prop.maxGridSize = [a(5), a(6), a(7)];
        $prop.totalConstMem = s(9);
        $prop.major = $info.compute_capability.0 as c_int;
        $prop.minor = $info.compute_capability.1 as c_int;
        $prop.textureAlignment = s(14);
        $prop.texturePitchAlignment = s(51);
        $prop.multiProcessorCount = a(16);
        $prop.integrated = a(18);
        $prop.canMapHostMemory = a(19);
        $prop.maxTexture1D = a(21);
        $prop.maxTexture1DMipmap = a(77);
        $prop.maxTexture2D = [a(22), a(23)];
        $prop.maxTexture2DMipmap = [a(73), a(74)];
        $prop.maxTexture2DLinear = [a(70), a(71), a(72)];
        $prop.maxTexture2DGather = [a(45), a(46)];
        $prop.maxTexture3D = [a(24), a(25), a(26)];
        $prop.maxTexture3DAlt = [a(47), a(48), a(49)];
        $prop.maxTextureCubemap = a(52);
        $prop.maxTexture1DLayered = [a(42), a(43)];
        $prop.maxTexture2DLayered = [a(27), a(28), a(29)];
        $prop.maxTextureCubemapLayered = [a(53), a(54)];
        $prop.maxSurface1D = a(55);
        $prop.maxSurface2D = [a(56), a(57)];
        $prop.maxSurface3D = [a(58), a(59), a(60)];
        $prop.maxSurface1DLayered = [a(61), a(62)];
        $prop.maxSurface2DLayered = [a(63), a(64), a(65)];
        $prop.maxSurfaceCubemap = a(66);
        $prop.maxSurfaceCubemapLayered = [a(67), a(68)];
        $prop.surfaceAlignment = s(30);
        $prop.concurrentKernels = a(31);
        $prop.ECCEnabled = a(32);
        $prop.pciBusID = a(33);
        $prop.pciDeviceID = a(34);
        $prop.pciDomainID = a(50);
        $prop.tccDriver = a(35);
        $prop.asyncEngineCount = a(40);
        $prop.unifiedAddressing = a(41);
        $prop.memoryBusWidth = a(37);
        $prop.l2CacheSize = a(38);
        $prop.persistingL2CacheMaxSize = a(108);
        $prop.maxThreadsPerMultiProcessor = a(39);
        $prop.streamPrioritiesSupported = a(78);
        $prop.globalL1CacheSupported = a(79);
        $prop.localL1CacheSupported = a(80);
        $prop.sharedMemPerMultiprocessor = s(81);
        $prop.regsPerMultiprocessor = a(82);
        $prop.managedMemory = a(83);
        $prop.isMultiGpuBoard = a(84);
        $prop.multiGpuBoardGroupID = a(85);
        $prop.hostNativeAtomicSupported = a(86);
        $prop.pageableMemoryAccess = a(88);
        $prop.concurrentManagedAccess = a(89);
        $prop.computePreemptionSupported = a(90);
        $prop.canUseHostPointerForRegisteredMem = a(91);
        $prop.cooperativeLaunch = a(95);
        $prop.sharedMemPerBlockOptin = s(97);
        $prop.pageableMemoryAccessUsesHostPageTables = a(100);
        $prop.directManagedMemAccessFromHost = a(101);
        $prop.maxBlocksPerMultiProcessor = a(106);
        $prop.accessPolicyMaxWindowSize = a(109);
        $prop.reservedSharedMemPerBlock = s(111);
        $prop.hostRegisterSupported = a(99);
        $prop.sparseCudaArraySupported = a(112);
        $prop.hostRegisterReadOnlySupported = a(113);
        $prop.timelineSemaphoreInteropSupported = a(114);
        $prop.memoryPoolsSupported = a(115);
        $prop.gpuDirectRDMASupported = a(116);
        $prop.gpuDirectRDMAFlushWritesOptions = u(117);
        $prop.gpuDirectRDMAWritesOrdering = a(118);
        $prop.memoryPoolSupportedHandleTypes = u(119);
        $prop.deferredMappingCudaArraySupported = a(121);
        $prop.ipcEventSupported = a(125);
        $prop.clusterLaunch = a(120);
        $prop.unifiedFunctionPointers = a(129);
    }};
}

impl From<&DeviceInfo> for DeviceProp12 {
    fn from(info: &DeviceInfo) -> Self {
        // SAFETY: the struct has numbers only, for which zeros are values.
        let mut prop: Self = unsafe { std::mem::zeroed() };
        fill_common!(prop, info);
        prop.clockRate = info.attribute(13);
        prop.deviceOverlap = info.attribute(15);
        prop.kernelExecTimeoutEnabled = info.attribute(17);
        prop.computeMode = info.attribute(20);
        prop.maxTexture1DLinear = info.attribute(69);
        prop.memoryClockRate = info.attribute(36);
        prop.singleToDoublePrecisionPerfRatio = info.attribute(87);
        prop.cooperativeMultiDeviceLaunch = info.attribute(96);
        prop
    }
}

impl From<&DeviceInfo> for DeviceProp13 {
    fn from(info: &DeviceInfo) -> Self {
        // SAFETY: the struct has numbers only, for which zeros are values.
        let mut prop: Self = unsafe { std::mem::zeroed() };
        fill_common!(prop, info);
        prop.deviceNumaConfig = info.attribute(130);
        prop.deviceNumaId = info.attribute(131);
        prop.mpsEnabled = info.attribute(133);
        prop.hostNumaId = info.attribute(134);
        prop.gpuPciDeviceID = info.attribute(139) as c_uint;
        prop.gpuPciSubsystemID = info.attribute(140) as c_uint;
        prop.hostNumaMultinodeIpcSupported = info.attribute(143);
        prop
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_layouts_tell_the_same() {
        let info = DeviceInfo {
            name: "a device".into(),
            total_memory: 1 << 40,
            compute_capability: (8, 6),
            attributes: (1..150).map(|n| (n, 1000 + n as i32)).collect(),
            ..DeviceInfo::default()
        };
        let (old, new) = (DeviceProp12::from(&info), DeviceProp13::from(&info));
        assert_eq!((old.name[2], old.name[8]), (b'd' as c_char, 0));
        assert_eq!((old.totalGlobalMem, new.totalGlobalMem), (1 << 40, 1 << 40));
        assert_eq!((old.major, new.minor, old.warpSize, new.warpSize), (8, 6, 1010, 1010));
        assert_eq!(
            (old.clockRate, old.memoryClockRate, old.cooperativeMultiDeviceLaunch),
            (1013, 1036, 1096)
        );
        assert_eq!(
            (new.hostNumaId, new.unifiedFunctionPointers, old.unifiedFunctionPointers),
            (1134, 1129, 1129)
        );
    }
}
