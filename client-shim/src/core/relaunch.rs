//! Launches like one that the thread made lately.
//!
//! Programs launch few kernels, very often. What was looked up and checked for a launch is remembered, so that the
//! next one in the same stream costs no more than putting its arguments together and handing them on. Whatever may
//! make a difference (a function, a stream or a context that goes away, another limit) begins a new
//! [generation](fatbin::forget_functions), in which nothing is remembered.

use std::cell::RefCell;
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::sync::Arc;

use super::context::Context;
use super::error::Result;
use super::fatbin;
use super::launch::{Config, Params, pack};
use super::module::Function;
use super::process::Core;
use super::registry::Raw;
use super::stream::Stream;
use super::thread;
use crate::graph::capture;

/// A launch that this thread made.
struct Recent {
    generation: u64,
    host: usize,
    raw_stream: Raw,
    per_thread: bool,
    context: Arc<Context>,
    function: Arc<Function>,
    stream: Arc<Stream>,
    /// A way in which it was launched, so that it is possible.
    config: Config,
}

/// How many are remembered.
const RECENT: usize = 32;
/// Longer parameter blocks are put together elsewhere.
const SHORT: usize = 512;

thread_local! {
    static LATELY: RefCell<[Option<Recent>; RECENT]> = const { RefCell::new([const { None }; RECENT]) };
}

fn slot(host: usize, stream: Raw) -> usize {
    (host >> 4 ^ host >> 9 ^ stream >> 6) % RECENT
}

impl Core {
    /// `cudaLaunchKernel` of what a host address stands for.
    ///
    /// # Safety
    /// `args` must be as the kernel's signature demands.
    #[inline]
    pub unsafe fn launch_symbol(
        &self,
        host: *const c_void,
        raw_stream: Raw,
        per_thread: bool,
        config: &Config,
        args: *const *const c_void,
    ) -> Result<()> {
        let again = LATELY.try_with(|lately| {
            let mut lately = lately.try_borrow_mut().ok()?;
            let recent = lately[slot(host as usize, raw_stream)].as_mut()?;
            let same = recent.host == host as usize
                && recent.raw_stream == raw_stream
                && recent.per_thread == per_thread
                && recent.generation == fatbin::generation();
            if !same {
                return None;
            }
            // SAFETY: passed on to the caller.
            unsafe { self.relaunch(recent, config, args) }
        });
        match again {
            Ok(Some(result)) => result,
            // SAFETY: passed on to the caller.
            _ => unsafe { self.launch_first(host, raw_stream, per_thread, config, args) },
        }
    }

    /// `None` where there is more to it.
    ///
    /// # Safety
    /// As for [`Core::launch_symbol`].
    #[inline]
    unsafe fn relaunch(
        &self,
        recent: &mut Recent,
        config: &Config,
        args: *const *const c_void,
    ) -> Option<Result<()>> {
        let function = &*recent.function;
        let size = function.param_bytes as usize;
        let current = thread::with_top(|top| top.is_some_and(|top| Arc::ptr_eq(top, &recent.context)));
        if !current.is_ok_and(|current| current)
            || !recent.context.is_alive()
            || self.sticky_code(recent.stream.ordinal) != 0
            || capture::is_any()
            || self.shared.any()
            || size > SHORT
        {
            return None;
        }
        if recent.config != *config {
            if config.cooperative || self.check_config(function, config).is_err() {
                return None;
            }
            recent.config = *config;
        }
        let mut block = [MaybeUninit::<u8>::uninit(); SHORT];
        // SAFETY: the caller's promise about `args`.
        Some(match unsafe { pack(function, Params::Pointers(args), &mut block[..size]) } {
            Ok(params) => self.enqueue_kernel(function, &recent.stream, config, params),
            Err(error) => Err(error),
        })
    }

    /// # Safety
    /// As for [`Core::launch_symbol`].
    #[cold]
    unsafe fn launch_first(
        &self,
        host: *const c_void,
        raw_stream: Raw,
        per_thread: bool,
        config: &Config,
        args: *const *const c_void,
    ) -> Result<()> {
        let generation = fatbin::generation();
        let context = self.runtime_context()?;
        let stream = self.stream(&context, raw_stream, per_thread)?;
        let function = self.function_for(&context, host)?;
        // SAFETY: passed on to the caller.
        unsafe { self.launch(&function, &stream, config, Params::Pointers(args)) }?;
        if !config.cooperative && stream.context == context.raw {
            let host = host as usize;
            let recent = Recent {
                generation,
                host,
                raw_stream,
                per_thread,
                context,
                function,
                stream,
                config: *config,
            };
            let _ = LATELY.try_with(|lately| {
                if let Ok(mut lately) = lately.try_borrow_mut() {
                    lately[slot(host, raw_stream)] = Some(recent);
                }
            });
        }
        Ok(())
    }
}
