//! CUDA's device runtime: what kernels call to launch other kernels, and what belongs to that.
//!
//! Programs find these functions in `libcudadevrt`; here they are the executor's. Compiled code calls one helper for all of them, with
//! the function's number and its arguments.

/// What a function of the device runtime takes and returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A number of 32 bits.
    Word,
    /// A number or an address of 64 bits.
    Long,
    /// A `dim3`: the helper gets the address of its 12 bytes.
    Dimensions,
}

/// The most arguments that one of them has.
pub const ARGUMENTS: usize = 8;

macro_rules! calls {
    ($($name:ident($($argument:ident),*) -> $result:ident;)*) => {
        /// A function of the device runtime, named as in CUDA without `cuda` and the version.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[allow(missing_docs)]
        #[repr(u32)]
        pub enum DeviceCall { $($name),* }

        impl DeviceCall {
            /// All of them; each one's number is its place.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// What it takes.
            pub fn arguments(self) -> &'static [Kind] {
                match self { $(Self::$name => &[$(Kind::$argument),*]),* }
            }

            /// What it returns.
            pub fn result(self) -> Kind {
                match self { $(Self::$name => Kind::$result),* }
            }

            fn name(self) -> &'static str {
                match self { $(Self::$name => stringify!($name)),* }
            }
        }
    };
}

calls! {
    GetParameterBufferV2(Long, Dimensions, Dimensions, Word) -> Long;
    LaunchDeviceV2(Long, Long) -> Word;
    GetLastError() -> Word;
    PeekAtLastError() -> Word;
    GetErrorString(Word) -> Long;
    GetErrorName(Word) -> Long;
    GetDeviceCount(Long) -> Word;
    GetDevice(Long) -> Word;
    DeviceGetAttribute(Long, Word, Word) -> Word;
    DeviceGetLimit(Long, Word) -> Word;
    DeviceGetCacheConfig(Long) -> Word;
    DeviceGetSharedMemConfig(Long) -> Word;
    RuntimeGetVersion(Long) -> Word;
    FuncGetAttributes(Long, Long) -> Word;
    OccupancyMaxActiveBlocksPerMultiprocessor(Long, Long, Word, Long) -> Word;
    OccupancyMaxActiveBlocksPerMultiprocessorWithFlags(Long, Long, Word, Long, Word) -> Word;
    StreamCreateWithFlags(Long, Word) -> Word;
    StreamDestroy(Long) -> Word;
    StreamWaitEvent(Long, Long, Word) -> Word;
    EventCreateWithFlags(Long, Word) -> Word;
    EventRecord(Long, Long) -> Word;
    EventRecordWithFlags(Long, Long, Word) -> Word;
    EventDestroy(Long) -> Word;
    Malloc(Long, Long) -> Word;
    Free(Long) -> Word;
    MemcpyAsync(Long, Long, Long, Word, Long) -> Word;
    Memcpy2DAsync(Long, Long, Long, Long, Long, Long, Word, Long) -> Word;
    MemsetAsync(Long, Word, Long, Long) -> Word;
    Memset2DAsync(Long, Long, Word, Long, Long, Long) -> Word;
    GraphSetConditional(Long, Word) -> Word;
}

/// What a name of the device runtime's says without CUDA's own beginning; none where it is no such name.
pub fn own_name(name: &str) -> Option<&str> {
    name.strip_prefix("__cudaCDP2").or_else(|| name.strip_prefix("cuda"))
}

impl DeviceCall {
    /// The function that device code names so. Code that was compiled for a default stream of each thread calls others by name, which
    /// do the same here: a kernel's blocks have one each.
    pub fn from_name(name: &str) -> Option<Self> {
        let name = own_name(name)?;
        let name = name.strip_suffix("_ptsz").unwrap_or(name);
        Self::ALL.iter().copied().find(|call| call.name() == name)
    }

    /// The function with this number.
    pub fn from_number(number: u64) -> Option<Self> {
        Self::ALL.get(usize::try_from(number).ok()?).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_found_by_their_names_and_numbers() {
        let launch = Some(DeviceCall::LaunchDeviceV2);
        assert_eq!(DeviceCall::from_name("__cudaCDP2LaunchDeviceV2"), launch);
        assert_eq!(DeviceCall::from_name("__cudaCDP2LaunchDeviceV2_ptsz"), launch);
        assert_eq!(DeviceCall::from_name("cudaLaunchDeviceV2"), launch);
        assert_eq!(DeviceCall::from_name("cudaDeviceSynchronize"), None);
        assert_eq!(DeviceCall::from_name("LaunchDeviceV2"), None);
        for &call in DeviceCall::ALL {
            assert_eq!(DeviceCall::from_number(call as u64), Some(call));
            assert!(call.arguments().len() <= ARGUMENTS, "{call:?}");
        }
        assert_eq!(DeviceCall::from_number(DeviceCall::ALL.len() as u64), None);
    }
}
