//! The calls from before the backend API that are still there in cuDNN 9: descriptors of tensors, filters and what is done with them, and
//! one function for each thing that is done.
//!
//! Descriptors live here. Each call that computes is put together as a small [graph](composer) of the operations that the backend
//! API's graphs have, too, and is posted as one operation. There is one algorithm, which needs no workspace.

mod activation;
mod algorithm;
mod batch_norm;
mod composer;
mod convolution;
mod ctc;
mod dropout;
mod elementwise;
mod filter;
mod forms;
mod neighbours;
mod pooling;
mod recurrent;
mod sequences;
mod softmax;
mod spatial;
mod tensor;

pub(super) use activation::*;
pub(super) use algorithm::*;
pub(super) use batch_norm::*;
pub(super) use convolution::*;
pub(super) use ctc::*;
pub(super) use dropout::*;
pub(super) use elementwise::*;
pub(super) use filter::*;
pub(super) use neighbours::*;
pub(super) use pooling::*;
pub(super) use recurrent::*;
pub(super) use sequences::*;
pub(super) use softmax::*;
pub(super) use spatial::*;
pub(super) use tensor::*;

use rgpu_libraries::DnnType;

use super::{Result, Status};
use crate::core::error;

/// A call's body, and what the program is told of it.
macro_rules! calls {
    ($(
        $(#[$meta:meta])*
        fn $name:ident ($($arg:ident: $ty:ty),* $(,)?) $body:block
    )*) => {
        $crate::abi::c_functions! {$(
            $(#[$meta])*
            #[allow(clippy::too_many_arguments)]
            fn $name($($arg: $ty),*) -> u32 {
                super::super::guard(stringify!($name), move || $body)
            }
        )*}
    };
}
use calls;

/// A type of elements that is understood.
fn type_of(number: u32) -> Result<DnnType> {
    DnnType::from_number(number).ok_or_else(|| not_written(&format!("tensors of the type {number}")))
}

/// Something that exists in cuDNN and that nobody has written: it is said once on stderr.
fn not_written(what: &str) -> Status {
    error::say_once(&format!(
        "cuDNN: {what} are not implemented; the program gets the status \"not supported\""
    ));
    Status::NotSupported
}
