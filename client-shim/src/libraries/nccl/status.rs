//! What calls of NCCL return.

use std::cell::RefCell;
use std::ffi::{CStr, c_char};

use rgpu_remote::trace;

use crate::abi::{self, NullPointer, c_functions};
use crate::core::{Code, Error, error};

/// So much of a message `ncclGetLastError` tells.
const MESSAGE: usize = 1024;

/// `ncclResult_t`, but for success.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Status {
    UnhandledCudaError = 1,
    SystemError = 2,
    InternalError = 3,
    InvalidArgument = 4,
    InvalidUsage = 5,
    RemoteError = 6,
    InProgress = 7,
    Timeout = 8,
}

/// How a call fails.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure {
    /// What the program sees.
    pub(super) status: Status,
    /// What a person reads.
    pub(super) why: String,
}

pub(super) type Result<T> = std::result::Result<T, Failure>;
/// A place for a result.
pub(super) type Out<T> = abi::Out<T, Failure>;
/// A value that the caller points to.
pub(super) type In<T> = abi::In<T, Failure>;

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let status = match error.code {
            Code::InvalidValue | Code::InvalidDevice | Code::InvalidHandle => Status::InvalidArgument,
            _ => Status::UnhandledCudaError,
        };
        Self { status, why: error.to_string() }
    }
}

impl From<NullPointer> for Failure {
    fn from(error: NullPointer) -> Self {
        Error::from(error).into()
    }
}

impl From<rgpu_collectives::Failure> for Failure {
    fn from(failure: rgpu_collectives::Failure) -> Self {
        use rgpu_collectives::Failure as F;
        let status = match failure {
            F::Late(_) => Status::Timeout,
            F::Lost(_) => Status::RemoteError,
            F::Disagreement(_) | F::Refused(_) => Status::InvalidUsage,
            F::Stopped | F::System(_) => Status::SystemError,
            F::Memory(_) => Status::UnhandledCudaError,
            F::Invalid(_) => Status::InvalidArgument,
        };
        Self { status, why: failure.to_string() }
    }
}

/// A failure of this kind.
pub(super) fn fail<T>(status: Status, why: impl Into<String>) -> Result<T> {
    Err(Failure { status, why: why.into() })
}

/// An argument makes no sense.
pub(super) fn invalid<T>(why: impl Into<String>) -> Result<T> {
    fail(Status::InvalidArgument, why)
}

/// Something that nobody has written: it is said once on stderr.
pub(super) fn missing<T>(what: &str) -> Result<T> {
    error::say_once(&format!("{what} is not implemented; the program gets ncclInvalidUsage"));
    fail(Status::InvalidUsage, format!("{what} is not implemented"))
}

thread_local! {
    /// Why the thread's last call that failed did so: the program asks with the next call.
    static LAST: RefCell<String> = const { RefCell::new(String::new()) };
    /// What the program was told, which it may read until it asks again.
    static TOLD: RefCell<[u8; MESSAGE]> = const { RefCell::new([0; MESSAGE]) };
}

/// Why the thread's last call that failed did so; empty where none has.
pub(super) fn last() -> String {
    LAST.try_with(|last| last.borrow().clone()).unwrap_or_default()
}

/// A message where the program can read it until the thread asks for another.
pub(super) fn told(message: &str) -> *const c_char {
    let told = TOLD.try_with(|told| {
        let bytes = &message.as_bytes()[..message.len().min(MESSAGE - 1)];
        let mut place = told.borrow_mut();
        place.fill(0);
        place[..bytes.len()].copy_from_slice(bytes);
        place.as_ptr().cast()
    });
    told.unwrap_or(c"".as_ptr())
}

/// Runs the body of an exported function: catches panics, logs and remembers failures, and leaves `errno` as it was.
pub(super) fn guard(name: &'static str, body: impl FnOnce() -> Result<()>) -> u32 {
    let start = trace::start();
    // SAFETY: the address is valid in every thread.
    let errno = unsafe { *libc::__errno_location() };
    let broken = Err(Failure { status: Status::InternalError, why: "an internal error".into() });
    let status = match error::guard_value(broken, body) {
        Ok(()) => 0,
        Err(Failure { status: Status::InProgress, .. }) => Status::InProgress as u32,
        Err(failure) => {
            error::log(&format!("{name}: {:?}: {}", failure.status, failure.why));
            let _ = LAST.try_with(|last| *last.borrow_mut() = format!("{name}: {}", failure.why));
            failure.status as u32
        }
    };
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
    if start != 0 {
        trace::api(name, start, status);
    }
    status
}

/// What a function answers that exists and is not implemented.
pub(super) fn refuse(symbol: &'static str) -> u32 {
    guard(symbol, || missing(symbol))
}

/// Defines entry points: C functions that return an `ncclResult_t`, whose body is a [`Result`]-returning block.
macro_rules! nccl {
    ($(
        $(#[$meta:meta])*
        fn $name:ident ($($arg:ident: $ty:ty),* $(,)?) $body:block
    )*) => {
        $crate::abi::c_functions! {$(
            $(#[$meta])*
            #[allow(clippy::too_many_arguments, reason = "so the call is declared")]
            fn $name($($arg: $ty),*) -> u32 {
                $crate::libraries::nccl::status::guard(stringify!($name), move || $body)
            }
        )*}
    };
}
pub(super) use nccl;

fn text(status: u32) -> &'static CStr {
    match status {
        0 => c"no error",
        1 => c"unhandled cuda error",
        2 => c"unhandled system error",
        3 => c"internal error",
        4 => c"invalid argument",
        5 => c"invalid usage",
        6 => c"remote process exited or there was a network error",
        7 => c"operation in progress",
        8 => c"the time for it is over",
        _ => c"unknown result code",
    }
}

c_functions! {
    fn ncclGetErrorString(status: u32) -> *const c_char {
        text(status).as_ptr()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_become_statuses_and_are_remembered() {
        assert_eq!(guard("a call", || panic!("boom")), Status::InternalError as u32);
        assert_eq!(guard("a call", || fail(Status::InProgress, "")), 7);
        assert_eq!(guard("a call", || invalid("the rank is wrong")), 4);
        assert_eq!(last(), "a call: the rank is wrong");
        // SAFETY: a string of this thread's.
        let read = unsafe { CStr::from_ptr(told(&"x".repeat(3000))) };
        assert_eq!(read.to_bytes().len(), MESSAGE - 1);
        let lost = Failure::from(rgpu_collectives::Failure::Lost("gone".into()));
        assert_eq!(lost, Failure { status: Status::RemoteError, why: "gone".into() });
    }
}
