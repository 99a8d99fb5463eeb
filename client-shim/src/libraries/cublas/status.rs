//! What calls of cuBLAS and cuBLASLt return.

use std::ffi::{CStr, c_char};

use rgpu_remote::trace;

use crate::abi::{self, NotUtf8, NullPointer, c_functions};
use crate::core::{Code, Error, error};

/// How a call fails (`cublasStatus_t`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::libraries) struct Failure {
    /// What the program sees.
    pub(in crate::libraries) status: Status,
    /// What a person reads.
    pub(in crate::libraries) why: String,
}

pub(in crate::libraries) type Result<T> = std::result::Result<T, Failure>;
/// A place for a result, with cuBLAS's error for null.
pub(in crate::libraries) type Out<T> = abi::Out<T, Failure>;
/// A value that the caller points to, with cuBLAS's error for null.
pub(in crate::libraries) type In<T> = abi::In<T, Failure>;

macro_rules! statuses {
    ($($name:ident = $number:literal $symbol:literal $text:literal,)*) => {
        /// `cublasStatus_t`.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[allow(missing_docs)]
        pub(in crate::libraries) enum Status { $($name = $number,)* }

        impl Status {
            fn texts(number: u32) -> (&'static CStr, &'static CStr) {
                match number { $($number => ($symbol, $text),)* _ => (c"CUBLAS_STATUS_UNKNOWN", c"an unknown status") }
            }
        }
    };
}

#[allow(dead_code, reason = "all of `cublasStatus_t`, of which not everything is ever returned")]
mod statuses {
    use super::*;
    statuses! {
        Success = 0 c"CUBLAS_STATUS_SUCCESS" c"the operation completed successfully",
        NotInitialized = 1 c"CUBLAS_STATUS_NOT_INITIALIZED" c"the library was not initialized",
        AllocFailed = 3 c"CUBLAS_STATUS_ALLOC_FAILED" c"the resource allocation failed",
        InvalidValue = 7 c"CUBLAS_STATUS_INVALID_VALUE" c"an unsupported value or parameter was passed to the function",
        ArchMismatch = 8 c"CUBLAS_STATUS_ARCH_MISMATCH" c"the function requires a feature absent from the device architecture",
        MappingError = 11 c"CUBLAS_STATUS_MAPPING_ERROR" c"an access to GPU memory space failed",
        ExecutionFailed = 13 c"CUBLAS_STATUS_EXECUTION_FAILED" c"the GPU program failed to execute",
        InternalError = 14 c"CUBLAS_STATUS_INTERNAL_ERROR" c"an internal operation failed",
        NotSupported = 15 c"CUBLAS_STATUS_NOT_SUPPORTED" c"the functionality requested is not supported",
        LicenseError = 16 c"CUBLAS_STATUS_LICENSE_ERROR" c"the functionality requested requires a license",
    }
    impl Status {
        pub(super) fn name(number: u32) -> &'static CStr {
            Self::texts(number).0
        }
        pub(super) fn text(number: u32) -> &'static CStr {
            Self::texts(number).1
        }
    }
}
pub(in crate::libraries) use statuses::Status;

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let status = match error.code {
            Code::InvalidValue => Status::InvalidValue,
            Code::OutOfMemory => Status::AllocFailed,
            Code::NotSupported => Status::NotSupported,
            Code::NotInitialized | Code::Deinitialized | Code::NoDevice => Status::NotInitialized,
            _ => Status::ExecutionFailed,
        };
        Self { status, why: error.to_string() }
    }
}

impl From<NullPointer> for Failure {
    fn from(error: NullPointer) -> Self {
        Error::from(error).into()
    }
}

impl From<NotUtf8> for Failure {
    fn from(error: NotUtf8) -> Self {
        Error::from(error).into()
    }
}

/// An argument that makes no sense.
pub(in crate::libraries) fn invalid<T>(why: impl Into<String>) -> Result<T> {
    Err(Failure { status: Status::InvalidValue, why: why.into() })
}

/// Something that nobody has implemented; said once on stderr.
pub(in crate::libraries) fn unsupported<T>(what: &str) -> Result<T> {
    error::say_once(&format!("{what} is not implemented; the program gets CUBLAS_STATUS_NOT_SUPPORTED"));
    Err(Failure { status: Status::NotSupported, why: format!("{what} is not implemented") })
}

/// Runs the body of an exported function: catches panics and logs failures.
pub(in crate::libraries) fn guard(name: &'static str, body: impl FnOnce() -> Result<()>) -> u32 {
    let start = trace::start();
    let panicked = || Err(Failure { status: Status::InternalError, why: "it panicked".into() });
    let status = match error::guard_value(panicked(), body) {
        Ok(()) => 0,
        Err(failure) => {
            let name_of = Status::name(failure.status as u32).to_string_lossy();
            error::log(&format!("{name}: {name_of}: {}", failure.why));
            failure.status as u32
        }
    };
    if start != 0 {
        trace::api(name, start, status);
    }
    status
}

/// What a function answers that exists and is not implemented.
pub(in crate::libraries) fn refuse(symbol: &'static str) -> u32 {
    guard(symbol, || unsupported(symbol))
}

c_functions! {
    /// `cublasGetStatusName`
    fn get_status_name(status: u32) -> *const c_char {
        Status::name(status).as_ptr()
    }

    /// `cublasGetStatusString`
    fn get_status_string(status: u32) -> *const c_char {
        Status::text(status).as_ptr()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_devices_become_statuses() {
        let of = |code: Code| Failure::from(Error::from(code)).status;
        assert_eq!(of(Code::InvalidValue), Status::InvalidValue);
        assert_eq!(of(Code::OutOfMemory), Status::AllocFailed);
        assert_eq!(of(Code::NotSupported), Status::NotSupported);
        assert_eq!(of(Code::IllegalAddress), Status::ExecutionFailed);
        assert_eq!(guard("a call", || panic!("boom")), Status::InternalError as u32);
    }
}
