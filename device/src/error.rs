//! Errors, in CUDA's own numbers.

/// The result of a device call.
pub type Result<T> = std::result::Result<T, Error>;

/// A CUDA error with what happened in words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message} (CUDA error {}, {code:?})", *.code as u32)]
pub struct Error {
    /// What a CUDA program sees.
    pub code: Code,
    /// What a person reads: what happened, where, and what to do.
    pub message: String,
}

impl Error {
    /// An error with its explanation.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

impl From<Code> for Error {
    fn from(code: Code) -> Self {
        Self { code, message: format!("{code:?}") }
    }
}

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $value:literal,)*) => {
        /// Error codes: the numbers of `CUresult`, which `cudaError_t` shares since CUDA 10.1, and
        /// those that `cudaError_t` has alone (see [`Code::driver`]).
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u32)]
        #[allow(missing_docs)]
        pub enum Code { $($(#[$doc])* $name = $value,)* }

        impl Code {
            /// The code with this number; an unknown number becomes [`Code::Unknown`].
            pub fn from_number(number: u32) -> Self {
                match number { $($value => Self::$name,)* _ => Self::Unknown }
            }
        }
    };
}

codes! {
    InvalidValue = 1,
    OutOfMemory = 2,
    NotInitialized = 3,
    Deinitialized = 4,
    /// The runtime API alone knows it.
    InvalidConfiguration = 9,
    /// The runtime API alone knows it.
    InvalidPitchValue = 12,
    /// The runtime API alone knows it.
    InvalidSymbol = 13,
    /// The runtime API alone knows it.
    InvalidChannelDescriptor = 20,
    /// The runtime API alone knows it.
    InvalidMemcpyDirection = 21,
    /// The runtime API alone knows it.
    InvalidFilterSetting = 26,
    /// After a reset that could not mend a device.
    DevicesUnavailable = 46,
    /// The runtime API alone knows it.
    MissingConfiguration = 52,
    /// The runtime API alone knows it.
    InvalidDeviceFunction = 98,
    NoDevice = 100,
    InvalidDevice = 101,
    InvalidImage = 200,
    InvalidContext = 201,
    MapFailed = 205,
    NoBinaryForGpu = 209,
    UnsupportedLimit = 215,
    PeerAccessUnsupported = 217,
    InvalidPtx = 218,
    UnsupportedPtxVersion = 222,
    InvalidSource = 300,
    FileNotFound = 301,
    SharedObjectSymbolNotFound = 302,
    SharedObjectInitFailed = 303,
    OperatingSystem = 304,
    InvalidHandle = 400,
    IllegalState = 401,
    LossyQuery = 402,
    NotFound = 500,
    NotReady = 600,
    IllegalAddress = 700,
    LaunchOutOfResources = 701,
    LaunchTimeout = 702,
    PeerAccessAlreadyEnabled = 704,
    PeerAccessNotEnabled = 705,
    PrimaryContextActive = 708,
    ContextIsDestroyed = 709,
    Assert = 710,
    HostMemoryAlreadyRegistered = 712,
    HostMemoryNotRegistered = 713,
    HardwareStackError = 714,
    IllegalInstruction = 715,
    MisalignedAddress = 716,
    InvalidAddressSpace = 717,
    InvalidPc = 718,
    LaunchFailed = 719,
    CooperativeLaunchTooLarge = 720,
    NotPermitted = 800,
    NotSupported = 801,
    SystemNotReady = 802,
    StreamCaptureUnsupported = 900,
    StreamCaptureInvalidated = 901,
    StreamCaptureMerge = 902,
    StreamCaptureUnmatched = 903,
    StreamCaptureUnjoined = 904,
    StreamCaptureIsolation = 905,
    StreamCaptureImplicit = 906,
    CapturedEvent = 907,
    StreamCaptureWrongThread = 908,
    Timeout = 909,
    GraphExecUpdateFailure = 910,
    InvalidClusterSize = 912,
    Unknown = 999,
}

impl Code {
    /// The code in the driver API's numbers: those that only the runtime API has are translated.
    pub fn driver(self) -> Self {
        match self {
            Self::InvalidConfiguration
            | Self::InvalidPitchValue
            | Self::InvalidMemcpyDirection
            | Self::InvalidChannelDescriptor
            | Self::InvalidFilterSetting
            | Self::MissingConfiguration => Self::InvalidValue,
            Self::InvalidSymbol | Self::InvalidDeviceFunction => Self::NotFound,
            other => other,
        }
    }

    /// Whether CUDA keeps reporting this error until the context is gone: whatever a kernel did wrong
    /// while running, and the loss of the device itself.
    pub fn is_sticky(self) -> bool {
        matches!(
            self,
            Self::IllegalAddress
                | Self::LaunchTimeout
                | Self::Assert
                | Self::HardwareStackError
                | Self::IllegalInstruction
                | Self::MisalignedAddress
                | Self::InvalidAddressSpace
                | Self::InvalidPc
                | Self::LaunchFailed
                | Self::ContextIsDestroyed
                | Self::SystemNotReady
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_map_back() {
        assert_eq!(Code::from_number(700), Code::IllegalAddress);
        assert_eq!(Code::from_number(31337), Code::Unknown);
        assert!(Code::IllegalAddress.is_sticky() && !Code::InvalidValue.is_sticky());
    }
}
