//! The cuDNN door: handles, and the [backend](backend) API, by which frameworks put graphs of operations together, and the [calls](legacy) from before it. XLA makes a
//! handle for each device and gives up without one, also where it has no convolution to compute. All else says its name and
//! is refused.

#![allow(non_snake_case)]

mod backend;
mod handles;
mod legacy;
mod table;

use super::Door;
use super::math::{Failure, Kind};
use crate::abi::NullPointer;
use crate::core::error;
use crate::doors::table::Address;

/// The door. Where NVIDIA's file is there, it tells its own version, which needs no device.
pub(super) const DOOR: Door = Door {
    name: "cudnn",
    table: table::TABLE,
    prefixes: &["cudnn"],
    row_name: |function| function,
    kept: &["cudnnGetVersion", "cudnnGetCudartVersion", "cudnnGetProperty", "cudnnGetErrorString"],
    unknown: Address(unknown as *const ()),
};

/// What a call returns when it fails (`cudnnStatus_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
enum Status {
    NotInitialized = 1001,
    BadParam = 2000,
    NullPointer = 2002,
    NotFinalized = 2004,
    NotSupported = 3000,
    Internal = 4000,
    Execution = 5000,
}

impl From<Failure> for Status {
    fn from(failure: Failure) -> Self {
        error::log(&format!("cuDNN: {}", failure.message));
        match failure.kind {
            Kind::NotInitialized => Self::NotInitialized,
            Kind::InvalidHandle | Kind::InvalidValue | Kind::InvalidSize | Kind::InvalidType => {
                Self::BadParam
            }
            Kind::NotSupported => Self::NotSupported,
            Kind::Internal => Self::Internal,
            Kind::OutOfMemory | Kind::Execution | Kind::ZeroPivot => Self::Execution,
        }
    }
}

impl From<NullPointer> for Status {
    fn from(_: NullPointer) -> Self {
        Self::NullPointer
    }
}

type Result<T> = std::result::Result<T, Status>;
type In<T> = crate::abi::In<T, Status>;
type Out<T> = crate::abi::Out<T, Status>;

/// Runs the body of an exported function: catches panics and logs failures.
fn guard(name: &'static str, body: impl FnOnce() -> Result<()>) -> u32 {
    match error::guard_value(Err(Status::Internal), body) {
        Ok(()) => 0,
        Err(status) => {
            let message = format!("{name}: {status:?} (cuDNN status {})", status as u32);
            error::log(&message);
            handles::keep_error(message);
            status as u32
        }
    }
}

/// What a function answers that exists and is not implemented.
fn refuse(name: &'static str) -> u32 {
    guard(name, || {
        error::say_once(&format!("{name} is not implemented; the program gets the status \"not supported\""));
        Err(Status::NotSupported)
    })
}

extern "C" fn unknown() -> u32 {
    refuse("a function of cuDNN that rgpu does not know")
}
