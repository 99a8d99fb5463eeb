//! The driver door: cu*.
//!
//! Each entry point is one row of the [`table`] and one function of a [`door!`] list: its arguments, and what it asks
//! of [`crate::core`].

#![allow(non_snake_case)]

/// Defines entry points. `fn name(arguments) |core| { body }`: the body returns `Result<()>`. With `<const PT>` there
/// are two, of which the second (`PT`) takes stream 0 for the calling thread's own.
macro_rules! door {
    ($(
        $(#[$meta:meta])*
        fn $name:ident $(<const $pt:ident>)? ($($arg:ident: $type:ty),* $(,)?) |$core:ident| $body:block
    )*) => {
        $crate::abi::c_functions! {$(
            $(#[$meta])*
            fn $name $(<const $pt>)? ($($arg: $type),*) -> u32 {
                $crate::core::error::guard_driver(stringify!($name), move || {
                    let $core = $crate::driver::core()?;
                    let _ = $core;
                    $body
                })
            }
        )*}
    };
}

mod capture;
mod context;
mod copy;
mod device;
mod graph;
mod info;
mod ipc;
mod launch;
mod link;
mod logs;
mod mem_op;
mod memory;
mod module;
mod pool;
mod proc_address;
mod reference;
mod stream;
pub(crate) mod table;
mod tensor_map;
mod texture;
mod types;
mod virtual_memory;

use std::sync::atomic::{AtomicBool, Ordering};

use crate::core::error::{Code, Error, Result, guard_driver, guard_value, not_implemented};
use crate::core::{Core, current, existing};
use types::Device;

pub(crate) use proc_address::proc_address;

/// Set by `cuInit`.
static INITIALIZED: AtomicBool = AtomicBool::new(false);

/// Creates the core, if nobody has; from then on entry points may be called.
fn initialize() -> Result<()> {
    current()?;
    INITIALIZED.store(true, Ordering::Relaxed);
    Ok(())
}

/// The core, for a function that needs `cuInit` to have been called (by the program, or by the runtime
/// door on its behalf).
fn core() -> Result<&'static Core> {
    if !INITIALIZED.load(Ordering::Relaxed) && existing().is_none() {
        return Err(Error::new(Code::NotInitialized, "cuInit has not been called"));
    }
    current()
}

/// What an entry point answers that exists and is not implemented.
fn not_supported(symbol: &'static str) -> u32 {
    guard_driver(symbol, || Err(not_implemented(symbol)))
}

/// A device ordinal argument.
fn ordinal(core: &Core, device: Device) -> Result<u32> {
    crate::doors::ordinal(core, device)
}

/// Runs a callback of the program, which must not unwind into ours.
fn callback(body: impl FnOnce()) {
    guard_value((), body);
}
