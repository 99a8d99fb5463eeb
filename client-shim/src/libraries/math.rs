//! What the doors of mathematical libraries share: how a call is guarded, how failures become a library's own status, handles, and
//! how an operation is posted.
//!
//! A library's objects (handles, plans, descriptors) live here in the client. What computes something is one operation, posted in the order
//! of its stream; nothing waits but where the caller gets a number of the host's.

use std::sync::Arc;

use rgpu_libraries::{Arguments, Library};

use crate::abi::{self, NullPointer};
use crate::core::error::{self, Code, Error};
use crate::core::{Core, Direction, Stream, Wait, current};

/// What kind of failure the caller is told of. Each library has numbers of its own for these.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The library cannot be used here.
    NotInitialized,
    /// There is no memory.
    OutOfMemory,
    /// A handle, plan or descriptor is none, or is not ready.
    InvalidHandle,
    /// An argument makes no sense.
    InvalidValue,
    /// A size makes no sense.
    InvalidSize,
    /// A type does not fit.
    InvalidType,
    /// The device could not do it.
    Execution,
    /// A pivot is zero.
    ZeroPivot,
    /// The library is at fault.
    Internal,
    /// Nobody has written it.
    NotSupported,
}

/// A failure, with its explanation for the log.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    /// What kind of failure.
    pub(crate) kind: Kind,
    /// What happened.
    pub(crate) message: String,
}

/// The result of a library's call.
pub(crate) type Result<T> = std::result::Result<T, Failure>;
/// A place for a result.
pub(crate) type Out<T> = abi::Out<T, Failure>;
/// A value that the caller points to.
pub(crate) type In<T> = abi::In<T, Failure>;

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let kind = match error.code {
            Code::OutOfMemory => Kind::OutOfMemory,
            Code::InvalidValue => Kind::InvalidValue,
            Code::InvalidHandle => Kind::InvalidHandle,
            Code::NotSupported => Kind::NotSupported,
            Code::NotInitialized | Code::NoDevice | Code::Deinitialized => Kind::NotInitialized,
            _ => Kind::Execution,
        };
        Self { kind, message: error.to_string() }
    }
}

impl From<NullPointer> for Failure {
    fn from(null: NullPointer) -> Self {
        Self { kind: Kind::InvalidValue, ..Error::from(null).into() }
    }
}

/// A failure of this kind.
pub(crate) fn fail<T>(kind: Kind, message: impl Into<String>) -> Result<T> {
    Err(Failure { kind, message: message.into() })
}

/// An argument makes no sense.
pub(crate) fn invalid<T>(message: impl Into<String>) -> Result<T> {
    fail(Kind::InvalidValue, message)
}

/// Something that a call could be asked for and that nobody has written: it is said once on stderr.
pub(crate) fn missing<T>(what: &str) -> Result<T> {
    Err(error::not_implemented(what).into())
}

/// What one library calls things.
pub(crate) struct Names {
    /// The library.
    pub(crate) library: Library,
    /// Its number for a failure.
    pub(crate) number: fn(Kind) -> u32,
}

impl Names {
    /// Runs the body of an exported function: catches panics, logs failures, and leaves `errno` as it was.
    pub(crate) fn call(&self, name: &'static str, body: impl FnOnce() -> Result<()>) -> u32 {
        // SAFETY: the address is valid in every thread.
        let errno = unsafe { *libc::__errno_location() };
        let broken = Err(Failure { kind: Kind::Internal, message: "an internal error".into() });
        let number = match error::guard_value(broken, body) {
            Ok(()) => 0,
            Err(failure) => {
                let number = (self.number)(failure.kind);
                error::log(&format!("{name}: {} ({} status {number})", failure.message, self.library.name()));
                number
            }
        };
        // SAFETY: as above.
        unsafe { *libc::__errno_location() = errno };
        number
    }

    /// What a function answers that exists and is not implemented; it is named once on stderr.
    pub(crate) fn refuse(&self, symbol: &'static str) -> u32 {
        self.call(symbol, || missing(symbol))
    }

    /// The library's version at the current device; a failure, said once on stderr, where the device's side has none.
    pub(crate) fn version(&self) -> Result<u32> {
        let core = current()?;
        let context = core.runtime_context()?;
        core.math_version(context.ordinal, self.library as u32).map_err(|error| {
            error::say_once(&format!("{} cannot be used: {}", self.library.name(), error.message));
            Failure { kind: Kind::NotInitialized, message: error.message }
        })
    }
}

/// Defines a library's entry points: C functions that return its status, whose body is a [`Result`]-returning block.
macro_rules! math {
    ($names:path; $(
        $(#[$meta:meta])*
        fn $name:ident ($($arg:ident: $ty:ty),* $(,)?) $body:block
    )*) => {
        $crate::abi::c_functions! {$(
            $(#[$meta])*
            #[allow(clippy::too_many_arguments)]
            fn $name($($arg: $ty),*) -> u32 {
                $names.call(stringify!($name), move || $body)
            }
        )*}
    };
}
pub(crate) use math;

/// A stream, to post operations to.
pub(crate) struct Queue {
    /// The core.
    pub(crate) core: &'static Core,
    /// The stream.
    pub(crate) stream: Arc<Stream>,
}

impl Queue {
    /// The stream of this handle, in the thread's context.
    pub(crate) fn of(raw: usize) -> Result<Self> {
        let core = current()?;
        let context = core.runtime_context()?;
        Ok(Self { core, stream: core.stream(&context, raw, false)? })
    }

    /// Posts an operation, or adds it to the graph that the stream is captured into.
    pub(crate) fn post(&self, arguments: &impl Arguments) -> Result<()> {
        let (operation, params) = arguments.written();
        Ok(self.core.compute(&self.stream, operation, &params)?)
    }
}

/// The three numbers of a version that is written as `10000 major + 1000 minor + patch` or `1000 major + 100 minor + patch`, by
/// `libraryPropertyType`.
pub(crate) fn property(version: u32, per_major: u32, per_minor: u32, which: u32) -> Result<i32> {
    let number = match which {
        0 => version / per_major,
        1 => version % per_major / per_minor,
        2 => version % per_minor,
        _ => return invalid(format!("There is no property {which} of a library")),
    };
    Ok(number as i32)
}

/// Copies from device memory to the program's, once the stream has come there.
pub(crate) fn copy_home(queue: &Queue, to: usize, from: u64, bytes: u64) -> Result<()> {
    Ok(queue.core.copy(&queue.stream, to as u64, from, bytes, Direction::DeviceToHost, Wait::Sync)?)
}

/// Numbers at a device address, once the stream has come there.
pub(crate) fn home<T: Number>(queue: &Queue, from: u64, count: usize) -> Result<Vec<T>> {
    let mut numbers = vec![T::default(); count];
    if count > 0 {
        copy_home(queue, numbers.as_mut_ptr() as usize, from, size_of_val(&numbers[..]) as u64)?;
    }
    Ok(std::hint::black_box(numbers))
}

/// Integers that any bytes are.
pub(crate) trait Number: Default + Clone + Copy {}
impl Number for i32 {}
impl Number for i64 {}
