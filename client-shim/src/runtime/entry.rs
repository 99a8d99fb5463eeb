//! What every entry point of the runtime does around its work.

use std::ffi::c_int;
use std::sync::Arc;

use crate::core::error::{guard_runtime, not_implemented};
use crate::core::{Context, Core, Result, Stream};

/// Runs the body of an entry point: catches panics, keeps the last error, and leaves `errno` as it was.
pub(super) fn call(name: &'static str, body: impl FnOnce() -> Result<()>) -> c_int {
    // SAFETY: the address is valid in every thread.
    let errno = unsafe { *libc::__errno_location() };
    let code = guard_runtime(name, body);
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
    code as c_int
}

/// What an entry point answers that exists and is not implemented.
pub(super) fn not_supported(symbol: &'static str) -> u32 {
    call(symbol, || Err(not_implemented(symbol))) as u32
}

/// Defines entry points: C functions that return an error code, whose body is a [`Result`]-returning block.
/// The literal after `as` is the name in messages and statistics.
macro_rules! api {
    ($(
        $(#[$doc:meta])*
        fn $name:ident $(<const $pt:ident>)? as $cuda:literal ($($arg:ident: $type:ty),* $(,)?) $body:block
    )*) => {
        $crate::abi::c_functions! {$(
            $(#[$doc])*
            fn $name $(<const $pt>)? ($($arg: $type),*) -> ::std::ffi::c_int {
                $crate::runtime::entry::call($cuda, move || $body)
            }
        )*}
    };
}
pub(super) use api;

/// The core and the context that this thread's runtime calls work in.
pub(super) fn enter() -> Result<(&'static Core, Arc<Context>)> {
    let core = crate::core::current()?;
    Ok((core, core.runtime_context()?))
}

/// As [`enter`], with the stream that the program named.
pub(super) fn enter_stream(
    raw: usize,
    per_thread: bool,
) -> Result<(&'static Core, Arc<Context>, Arc<Stream>)> {
    let (core, context) = enter()?;
    let stream = core.stream(&context, raw, per_thread)?;
    Ok((core, context, stream))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::Code;

    #[test]
    fn errno_survives_a_call() {
        // SAFETY: the address is valid in every thread.
        let errno = || unsafe { &mut *libc::__errno_location() };
        *errno() = 77;
        let code = call("a call", || {
            *errno() = 1;
            Err(Code::InvalidValue.into())
        });
        assert_eq!((code, *errno()), (1, 77));
    }
}
