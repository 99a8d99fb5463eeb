//! NVML's return codes.

use std::ffi::CStr;

/// What an NVML call returns when it fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Return(pub u32);

/// The result of answering a call.
pub(super) type Result<T> = std::result::Result<T, Return>;

macro_rules! returns {
    ($($name:ident = $value:literal $text:literal,)*) => {
        #[expect(dead_code, reason = "all of `nvmlReturn_t`, of which not everything is ever returned")]
        impl Return { $(pub(super) const $name: Self = Self($value);)* }

        impl Return {
            /// What `nvmlErrorString` says.
            pub(super) fn text(self) -> &'static CStr {
                match self.0 { $($value => $text,)* _ => c"Unknown Error" }
            }
        }
    };
}

returns! {
    SUCCESS = 0 c"Success",
    UNINITIALIZED = 1 c"Uninitialized",
    INVALID_ARGUMENT = 2 c"Invalid Argument",
    NOT_SUPPORTED = 3 c"Not Supported",
    NO_PERMISSION = 4 c"Insufficient Permissions",
    ALREADY_INITIALIZED = 5 c"Already Initialized",
    NOT_FOUND = 6 c"Not Found",
    INSUFFICIENT_SIZE = 7 c"Insufficient Size",
    INSUFFICIENT_POWER = 8 c"Insufficient External Power",
    DRIVER_NOT_LOADED = 9 c"Driver Not Loaded",
    TIMEOUT = 10 c"Timeout",
    IRQ_ISSUE = 11 c"Interrupt Request Issue",
    LIBRARY_NOT_FOUND = 12 c"NVML Shared Library Not Found",
    FUNCTION_NOT_FOUND = 13 c"Function Not Found",
    CORRUPTED_INFOROM = 14 c"Corrupted infoROM",
    GPU_IS_LOST = 15 c"GPU is lost",
    RESET_REQUIRED = 16 c"GPU requires reset",
    OPERATING_SYSTEM = 17 c"GPU access blocked by the operating system",
    LIB_RM_VERSION_MISMATCH = 18 c"Driver/library version mismatch",
    IN_USE = 19 c"In use by another client",
    MEMORY = 20 c"Insufficient Memory",
    NO_DATA = 21 c"No data",
    VGPU_ECC_NOT_SUPPORTED = 22 c"vGPU operation not supported with ECC enabled",
    INSUFFICIENT_RESOURCES = 23 c"Insufficient Resources",
    FREQ_NOT_SUPPORTED = 24 c"Requested frequency not supported",
    ARGUMENT_VERSION_MISMATCH = 25 c"Argument version mismatch",
    DEPRECATED = 26 c"Deprecated",
    NOT_READY = 27 c"Not Ready",
    GPU_NOT_FOUND = 28 c"No GPUs found",
    INVALID_STATE = 29 c"Invalid state",
    UNKNOWN = 999 c"Unknown Error",
}
