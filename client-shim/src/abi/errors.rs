//! Error numbers, their names and what they mean in words. The two APIs share numbers and words, and each has names of
//! its own.

use std::ffi::{CStr, c_int};

macro_rules! errors {
    ($($number:literal $name:literal $text:literal,)*) => {
        /// Number, name and description of every `cudaError_t` that the 12.x and 13.x headers define, ascending.
        const ERRORS: &[(c_int, &CStr, &CStr)] = &[$(($number, $name, $text),)*];
    };
}

macro_rules! driver_names {
    ($($number:literal $name:literal,)*) => {
        /// The name of a `CUresult`.
        pub(crate) fn driver_name(error: u32) -> Option<&'static CStr> {
            Some(match error {
                $($number => $name,)*
                _ => return None,
            })
        }
    };
}

/// What is said of numbers that mean nothing.
const UNKNOWN: &CStr = c"unrecognized error code";

fn find(error: c_int) -> Option<&'static (c_int, &'static CStr, &'static CStr)> {
    ERRORS.binary_search_by_key(&error, |e| e.0).ok().map(|i| &ERRORS[i])
}

/// The name of a `cudaError_t`.
pub(crate) fn runtime_name(error: c_int) -> &'static CStr {
    find(error).map_or(UNKNOWN, |e| e.1)
}

/// What a `cudaError_t` or `CUresult` means.
pub(crate) fn text(error: c_int) -> &'static CStr {
    find(error).map_or(UNKNOWN, |e| e.2)
}

errors! {
    0 c"cudaSuccess" c"no error",
    1 c"cudaErrorInvalidValue" c"invalid argument",
    2 c"cudaErrorMemoryAllocation" c"out of memory",
    3 c"cudaErrorInitializationError" c"initialization error",
    4 c"cudaErrorCudartUnloading" c"driver shutting down",
    5 c"cudaErrorProfilerDisabled" c"profiler disabled while using external profiling tool",
    6 c"cudaErrorProfilerNotInitialized" c"profiler not initialized: call cudaProfilerInitialize()",
    7 c"cudaErrorProfilerAlreadyStarted" c"profiler already started",
    8 c"cudaErrorProfilerAlreadyStopped" c"profiler already stopped",
    9 c"cudaErrorInvalidConfiguration" c"invalid configuration argument",
    12 c"cudaErrorInvalidPitchValue" c"invalid pitch argument",
    13 c"cudaErrorInvalidSymbol" c"invalid device symbol",
    16 c"cudaErrorInvalidHostPointer" c"invalid host pointer",
    17 c"cudaErrorInvalidDevicePointer" c"invalid device pointer",
    18 c"cudaErrorInvalidTexture" c"invalid texture reference",
    19 c"cudaErrorInvalidTextureBinding" c"texture is not bound to a pointer",
    20 c"cudaErrorInvalidChannelDescriptor" c"invalid channel descriptor",
    21 c"cudaErrorInvalidMemcpyDirection" c"invalid copy direction for memcpy",
    22 c"cudaErrorAddressOfConstant" c"cannot take address of constant symbol",
    23 c"cudaErrorTextureFetchFailed" c"fetch from texture failed",
    24 c"cudaErrorTextureNotBound" c"cannot fetch from a texture that is not bound",
    25 c"cudaErrorSynchronizationError" c"incorrect use of __syncthreads()",
    26 c"cudaErrorInvalidFilterSetting" c"linear filtering not supported for non-float type",
    27 c"cudaErrorInvalidNormSetting" c"read as normalized float not supported for 32-bit non float type",
    28 c"cudaErrorMixedDeviceExecution" c"device emulation mode and device execution mode cannot be mixed",
    31 c"cudaErrorNotYetImplemented" c"feature not yet implemented",
    32 c"cudaErrorMemoryValueTooLarge" c"memory size or pointer value too large to fit in 32 bit",
    34 c"cudaErrorStubLibrary" c"CUDA driver is a stub library",
    35 c"cudaErrorInsufficientDriver" c"CUDA driver version is insufficient for CUDA runtime version",
    36 c"cudaErrorCallRequiresNewerDriver" c"API call is not supported in the installed CUDA driver",
    37 c"cudaErrorInvalidSurface" c"invalid surface reference",
    43 c"cudaErrorDuplicateVariableName" c"duplicate global variable looked up by string name",
    44 c"cudaErrorDuplicateTextureName" c"duplicate texture looked up by string name",
    45 c"cudaErrorDuplicateSurfaceName" c"duplicate surface looked up by string name",
    46 c"cudaErrorDevicesUnavailable" c"CUDA-capable device(s) is/are busy or unavailable",
    49 c"cudaErrorIncompatibleDriverContext" c"incompatible driver context",
    52 c"cudaErrorMissingConfiguration" c"__global__ function call is not configured",
    53 c"cudaErrorPriorLaunchFailure" c"unspecified launch failure in prior launch",
    65 c"cudaErrorLaunchMaxDepthExceeded" c"launch would exceed maximum depth of nested launches",
    66 c"cudaErrorLaunchFileScopedTex" c"launch failed because kernel uses unsupported file-scoped textures (texture objects are supported)",
    67 c"cudaErrorLaunchFileScopedSurf" c"launch failed because kernel uses unsupported file-scoped surfaces (surface objects are supported)",
    68 c"cudaErrorSyncDepthExceeded" c"cudaDeviceSynchronize failed because caller's grid depth exceeds cudaLimitDevRuntimeSyncDepth",
    69 c"cudaErrorLaunchPendingCountExceeded" c"launch failed because launch would exceed cudaLimitDevRuntimePendingLaunchCount",
    98 c"cudaErrorInvalidDeviceFunction" c"invalid device function",
    100 c"cudaErrorNoDevice" c"no CUDA-capable device is detected",
    101 c"cudaErrorInvalidDevice" c"invalid device ordinal",
    102 c"cudaErrorDeviceNotLicensed" c"device doesn't have valid Grid license",
    103 c"cudaErrorSoftwareValidityNotEstablished" c"integrity checks failed",
    127 c"cudaErrorStartupFailure" c"startup failure in cuda runtime",
    200 c"cudaErrorInvalidKernelImage" c"device kernel image is invalid",
    201 c"cudaErrorDeviceUninitialized" c"invalid device context",
    205 c"cudaErrorMapBufferObjectFailed" c"mapping of buffer object failed",
    206 c"cudaErrorUnmapBufferObjectFailed" c"unmapping of buffer object failed",
    207 c"cudaErrorArrayIsMapped" c"array is mapped",
    208 c"cudaErrorAlreadyMapped" c"resource already mapped",
    209 c"cudaErrorNoKernelImageForDevice" c"no kernel image is available for execution on the device",
    210 c"cudaErrorAlreadyAcquired" c"resource already acquired",
    211 c"cudaErrorNotMapped" c"resource not mapped",
    212 c"cudaErrorNotMappedAsArray" c"resource not mapped as array",
    213 c"cudaErrorNotMappedAsPointer" c"resource not mapped as pointer",
    214 c"cudaErrorECCUncorrectable" c"uncorrectable ECC error encountered",
    215 c"cudaErrorUnsupportedLimit" c"limit is not supported on this architecture",
    216 c"cudaErrorDeviceAlreadyInUse" c"exclusive-thread device already in use by a different thread",
    217 c"cudaErrorPeerAccessUnsupported" c"peer access is not supported between these two devices",
    218 c"cudaErrorInvalidPtx" c"a PTX JIT compilation failed",
    219 c"cudaErrorInvalidGraphicsContext" c"invalid OpenGL or DirectX context",
    220 c"cudaErrorNvlinkUncorrectable" c"uncorrectable NVLink error detected during the execution",
    221 c"cudaErrorJitCompilerNotFound" c"PTX JIT compiler library not found",
    222 c"cudaErrorUnsupportedPtxVersion" c"the provided PTX was compiled with an unsupported toolchain.",
    223 c"cudaErrorJitCompilationDisabled" c"PTX JIT compilation was disabled",
    224 c"cudaErrorUnsupportedExecAffinity" c"the provided execution affinity is not supported",
    225 c"cudaErrorUnsupportedDevSideSync" c"the provided PTX contains unsupported call to cudaDeviceSynchronize",
    226 c"cudaErrorContained" c"the device took an exception that was contained",
    300 c"cudaErrorInvalidSource" c"device kernel image is invalid",
    301 c"cudaErrorFileNotFound" c"file not found",
    302 c"cudaErrorSharedObjectSymbolNotFound" c"shared object symbol not found",
    303 c"cudaErrorSharedObjectInitFailed" c"shared object initialization failed",
    304 c"cudaErrorOperatingSystem" c"OS call failed or operation not supported on this OS",
    400 c"cudaErrorInvalidResourceHandle" c"invalid resource handle",
    401 c"cudaErrorIllegalState" c"the operation cannot be performed in the present state",
    402 c"cudaErrorLossyQuery" c"attempted introspection would be semantically lossy",
    500 c"cudaErrorSymbolNotFound" c"named symbol not found",
    600 c"cudaErrorNotReady" c"device not ready",
    700 c"cudaErrorIllegalAddress" c"an illegal memory access was encountered",
    701 c"cudaErrorLaunchOutOfResources" c"too many resources requested for launch",
    702 c"cudaErrorLaunchTimeout" c"the launch timed out and was terminated",
    703 c"cudaErrorLaunchIncompatibleTexturing" c"launch uses incompatible texturing mode",
    704 c"cudaErrorPeerAccessAlreadyEnabled" c"peer access is already enabled",
    705 c"cudaErrorPeerAccessNotEnabled" c"peer access has not been enabled",
    708 c"cudaErrorSetOnActiveProcess" c"cannot set while device is active in this process",
    709 c"cudaErrorContextIsDestroyed" c"context is destroyed",
    710 c"cudaErrorAssert" c"device-side assert triggered",
    711 c"cudaErrorTooManyPeers" c"peer mapping resources exhausted",
    712 c"cudaErrorHostMemoryAlreadyRegistered" c"part or all of the requested memory range is already mapped",
    713 c"cudaErrorHostMemoryNotRegistered" c"pointer does not correspond to a registered memory region",
    714 c"cudaErrorHardwareStackError" c"hardware stack error",
    715 c"cudaErrorIllegalInstruction" c"an illegal instruction was encountered",
    716 c"cudaErrorMisalignedAddress" c"misaligned address",
    717 c"cudaErrorInvalidAddressSpace" c"operation not supported on global/shared address space",
    718 c"cudaErrorInvalidPc" c"invalid program counter",
    719 c"cudaErrorLaunchFailure" c"unspecified launch failure",
    720 c"cudaErrorCooperativeLaunchTooLarge" c"too many blocks in cooperative launch",
    721 c"cudaErrorTensorMemoryLeak" c"a kernel left tensor memory allocated when it ended",
    800 c"cudaErrorNotPermitted" c"operation not permitted",
    801 c"cudaErrorNotSupported" c"operation not supported",
    802 c"cudaErrorSystemNotReady" c"system not yet initialized",
    803 c"cudaErrorSystemDriverMismatch" c"system has unsupported display driver / cuda driver combination",
    804 c"cudaErrorCompatNotSupportedOnDevice" c"forward compatibility was attempted on non supported HW",
    805 c"cudaErrorMpsConnectionFailed" c"MPS client failed to connect to the MPS control daemon or the MPS server",
    806 c"cudaErrorMpsRpcFailure" c"the remote procedural call between the MPS server and the MPS client failed",
    807 c"cudaErrorMpsServerNotReady" c"MPS server is not ready to accept new MPS client requests",
    808 c"cudaErrorMpsMaxClientsReached" c"the hardware resources required to create MPS client have been exhausted",
    809 c"cudaErrorMpsMaxConnectionsReached" c"the hardware resources required to support device connections have been exhausted",
    810 c"cudaErrorMpsClientTerminated" c"the MPS client has been terminated by the server",
    811 c"cudaErrorCdpNotSupported" c"the program is using CUDA dynamic parallelism, which the configuration does not support",
    812 c"cudaErrorCdpVersionMismatch" c"the program mixes versions of CUDA dynamic parallelism",
    900 c"cudaErrorStreamCaptureUnsupported" c"operation not permitted when stream is capturing",
    901 c"cudaErrorStreamCaptureInvalidated" c"operation failed due to a previous error during capture",
    902 c"cudaErrorStreamCaptureMerge" c"operation would result in a merge of separate capture sequences",
    903 c"cudaErrorStreamCaptureUnmatched" c"capture was not ended in the same stream as it began",
    904 c"cudaErrorStreamCaptureUnjoined" c"capturing stream has unjoined work",
    905 c"cudaErrorStreamCaptureIsolation" c"dependency created on uncaptured work in another stream",
    906 c"cudaErrorStreamCaptureImplicit" c"operation would make the legacy stream depend on a capturing blocking stream",
    907 c"cudaErrorCapturedEvent" c"operation not permitted on an event last recorded in a capturing stream",
    908 c"cudaErrorStreamCaptureWrongThread" c"attempt to terminate a thread-local capture sequence from another thread",
    909 c"cudaErrorTimeout" c"wait operation timed out",
    910 c"cudaErrorGraphExecUpdateFailure" c"the graph update was not performed because it included changes which violated constraints specific to instantiated graph update",
    911 c"cudaErrorExternalDevice" c"an async error has occurred in external entity outside of CUDA",
    912 c"cudaErrorInvalidClusterSize" c"a kernel launch error has occurred due to cluster misconfiguration",
    913 c"cudaErrorFunctionNotLoaded" c"the function handle was not loaded when an operation required it",
    914 c"cudaErrorInvalidResourceType" c"the resource has a type that the operation does not take",
    915 c"cudaErrorInvalidResourceConfiguration" c"the resources are insufficient or do not suit the operation",
    999 c"cudaErrorUnknown" c"unknown error",
    10000 c"cudaErrorApiFailureBase" c"api failure base",
}

driver_names! {
    0 c"CUDA_SUCCESS",
    1 c"CUDA_ERROR_INVALID_VALUE",
    2 c"CUDA_ERROR_OUT_OF_MEMORY",
    3 c"CUDA_ERROR_NOT_INITIALIZED",
    4 c"CUDA_ERROR_DEINITIALIZED",
    5 c"CUDA_ERROR_PROFILER_DISABLED",
    6 c"CUDA_ERROR_PROFILER_NOT_INITIALIZED",
    7 c"CUDA_ERROR_PROFILER_ALREADY_STARTED",
    8 c"CUDA_ERROR_PROFILER_ALREADY_STOPPED",
    34 c"CUDA_ERROR_STUB_LIBRARY",
    36 c"CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER",
    46 c"CUDA_ERROR_DEVICE_UNAVAILABLE",
    100 c"CUDA_ERROR_NO_DEVICE",
    101 c"CUDA_ERROR_INVALID_DEVICE",
    102 c"CUDA_ERROR_DEVICE_NOT_LICENSED",
    200 c"CUDA_ERROR_INVALID_IMAGE",
    201 c"CUDA_ERROR_INVALID_CONTEXT",
    202 c"CUDA_ERROR_CONTEXT_ALREADY_CURRENT",
    205 c"CUDA_ERROR_MAP_FAILED",
    206 c"CUDA_ERROR_UNMAP_FAILED",
    207 c"CUDA_ERROR_ARRAY_IS_MAPPED",
    208 c"CUDA_ERROR_ALREADY_MAPPED",
    209 c"CUDA_ERROR_NO_BINARY_FOR_GPU",
    210 c"CUDA_ERROR_ALREADY_ACQUIRED",
    211 c"CUDA_ERROR_NOT_MAPPED",
    212 c"CUDA_ERROR_NOT_MAPPED_AS_ARRAY",
    213 c"CUDA_ERROR_NOT_MAPPED_AS_POINTER",
    214 c"CUDA_ERROR_ECC_UNCORRECTABLE",
    215 c"CUDA_ERROR_UNSUPPORTED_LIMIT",
    216 c"CUDA_ERROR_CONTEXT_ALREADY_IN_USE",
    217 c"CUDA_ERROR_PEER_ACCESS_UNSUPPORTED",
    218 c"CUDA_ERROR_INVALID_PTX",
    219 c"CUDA_ERROR_INVALID_GRAPHICS_CONTEXT",
    220 c"CUDA_ERROR_NVLINK_UNCORRECTABLE",
    221 c"CUDA_ERROR_JIT_COMPILER_NOT_FOUND",
    222 c"CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
    223 c"CUDA_ERROR_JIT_COMPILATION_DISABLED",
    224 c"CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY",
    225 c"CUDA_ERROR_UNSUPPORTED_DEVSIDE_SYNC",
    226 c"CUDA_ERROR_CONTAINED",
    300 c"CUDA_ERROR_INVALID_SOURCE",
    301 c"CUDA_ERROR_FILE_NOT_FOUND",
    302 c"CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND",
    303 c"CUDA_ERROR_SHARED_OBJECT_INIT_FAILED",
    304 c"CUDA_ERROR_OPERATING_SYSTEM",
    400 c"CUDA_ERROR_INVALID_HANDLE",
    401 c"CUDA_ERROR_ILLEGAL_STATE",
    402 c"CUDA_ERROR_LOSSY_QUERY",
    500 c"CUDA_ERROR_NOT_FOUND",
    600 c"CUDA_ERROR_NOT_READY",
    700 c"CUDA_ERROR_ILLEGAL_ADDRESS",
    701 c"CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES",
    702 c"CUDA_ERROR_LAUNCH_TIMEOUT",
    703 c"CUDA_ERROR_LAUNCH_INCOMPATIBLE_TEXTURING",
    704 c"CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED",
    705 c"CUDA_ERROR_PEER_ACCESS_NOT_ENABLED",
    708 c"CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE",
    709 c"CUDA_ERROR_CONTEXT_IS_DESTROYED",
    710 c"CUDA_ERROR_ASSERT",
    711 c"CUDA_ERROR_TOO_MANY_PEERS",
    712 c"CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED",
    713 c"CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED",
    714 c"CUDA_ERROR_HARDWARE_STACK_ERROR",
    715 c"CUDA_ERROR_ILLEGAL_INSTRUCTION",
    716 c"CUDA_ERROR_MISALIGNED_ADDRESS",
    717 c"CUDA_ERROR_INVALID_ADDRESS_SPACE",
    718 c"CUDA_ERROR_INVALID_PC",
    719 c"CUDA_ERROR_LAUNCH_FAILED",
    720 c"CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE",
    721 c"CUDA_ERROR_TENSOR_MEMORY_LEAK",
    800 c"CUDA_ERROR_NOT_PERMITTED",
    801 c"CUDA_ERROR_NOT_SUPPORTED",
    802 c"CUDA_ERROR_SYSTEM_NOT_READY",
    803 c"CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
    804 c"CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE",
    805 c"CUDA_ERROR_MPS_CONNECTION_FAILED",
    806 c"CUDA_ERROR_MPS_RPC_FAILURE",
    807 c"CUDA_ERROR_MPS_SERVER_NOT_READY",
    808 c"CUDA_ERROR_MPS_MAX_CLIENTS_REACHED",
    809 c"CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED",
    810 c"CUDA_ERROR_MPS_CLIENT_TERMINATED",
    811 c"CUDA_ERROR_CDP_NOT_SUPPORTED",
    812 c"CUDA_ERROR_CDP_VERSION_MISMATCH",
    900 c"CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
    901 c"CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
    902 c"CUDA_ERROR_STREAM_CAPTURE_MERGE",
    903 c"CUDA_ERROR_STREAM_CAPTURE_UNMATCHED",
    904 c"CUDA_ERROR_STREAM_CAPTURE_UNJOINED",
    905 c"CUDA_ERROR_STREAM_CAPTURE_ISOLATION",
    906 c"CUDA_ERROR_STREAM_CAPTURE_IMPLICIT",
    907 c"CUDA_ERROR_CAPTURED_EVENT",
    908 c"CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD",
    909 c"CUDA_ERROR_TIMEOUT",
    910 c"CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE",
    911 c"CUDA_ERROR_EXTERNAL_DEVICE",
    912 c"CUDA_ERROR_INVALID_CLUSTER_SIZE",
    913 c"CUDA_ERROR_FUNCTION_NOT_LOADED",
    914 c"CUDA_ERROR_INVALID_RESOURCE_TYPE",
    915 c"CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION",
    916 c"CUDA_ERROR_KEY_ROTATION",
    999 c"CUDA_ERROR_UNKNOWN",
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_texts() {
        assert!(ERRORS.windows(2).all(|w| w[0].0 < w[1].0));
        assert_eq!(runtime_name(98), c"cudaErrorInvalidDeviceFunction");
        assert_eq!(text(700), c"an illegal memory access was encountered");
        assert_eq!(text(31337), c"unrecognized error code");
        assert_eq!(runtime_name(-1), c"unrecognized error code");
        assert_eq!(driver_name(700), Some(c"CUDA_ERROR_ILLEGAL_ADDRESS"));
        assert_eq!(driver_name(31337), None);
    }
}
