//! Launches like one that the thread made lately.
//!
//! Programs launch few kernels, very often. What was looked up, checked and encoded for a launch is remembered, so that
//! the next one costs no more than putting its arguments together and handing them on. Whatever may make a
//! difference begins a new [generation], in which nothing is remembered: a function, a stream
//! or a context that goes away, a sticky error, another limit, memory that is shared with the host, a capture.
//! While any of that lasts, nothing is remembered either.
//!
//! The short way stands outside of the guard at the C boundary, so nothing in it may panic.

use std::cell::RefCell;
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::sync::Arc;

use parking_lot::Mutex;
use rgpu_device::{Device, Launch, Ordinal, PreparedLaunch};
use rgpu_remote::trace;

use crate::core::context::Context;
use crate::core::error::{self, Code, Error, Result};
use crate::core::generation;
use crate::core::launch::Config;
use crate::core::module::Function;
use crate::core::params::{DenseParams, Params, SHORT};
use crate::core::process::{Core, existing};
use crate::core::registration::function_at;
use crate::core::registry::Raw;
use crate::core::stream::Stream;
use crate::core::thread;
use crate::core::work::WorkCount;

/// Through which door a launch comes: how it names its kernel.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Door {
    /// `cudaLaunchKernel`: by a host address.
    Runtime,
    /// `cuLaunchKernel`: by a function's handle.
    Driver,
}

/// How a launch looks to the program: equal keys are equal launches, but for the arguments.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Key([u64; 6]);

impl Key {
    #[inline(always)]
    fn new(door: Door, kernel: *const c_void, stream: Raw, per_thread: bool, config: &Config) -> Self {
        let ([gx, gy, gz], [bx, by, bz]) = (config.grid, config.block);
        let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let shared = pair(config.shared_bytes, u32::from(per_thread) | (door as u32) << 1);
        Self([kernel as u64, stream as u64, pair(gx, gy), pair(gz, bx), pair(by, bz), shared])
    }

    #[inline(always)]
    fn is(&self, other: &Self) -> bool {
        self.0.iter().zip(&other.0).fold(0, |different, (a, b)| different | (a ^ b)) == 0
    }

    /// Where it is remembered.
    #[inline(always)]
    fn slot(&self) -> usize {
        let [host, stream, gxy, bxgz, ..] = self.0;
        ((host >> 4) ^ (stream >> 6) ^ gxy ^ (bxgz >> 37)) as usize % RECENT
    }
}

/// A launch that this thread made.
struct Recent {
    key: Key,
    generation: u64,
    prepared: PreparedLaunch,
    /// How its parameter block is put together, where there is a faster way than the function's layout.
    dense: Option<DenseParams>,
    context: Arc<Context>,
    function: Arc<Function>,
    stream: Arc<Stream>,
    /// The core's device.
    device: *const dyn Device,
    /// What the stream's device counts work with, and whether the stream is the legacy one.
    work: *const Mutex<WorkCount>,
    legacy: bool,
}

/// How many are remembered.
const RECENT: usize = 64;

type Table = [Option<Recent>; RECENT];

/// The thread's launches. They are found by [`thread::Hot::recent`].
struct Lately(RefCell<Option<Box<Table>>>);

impl Drop for Lately {
    fn drop(&mut self) {
        let _ = thread::HOT.try_with(|hot| hot.recent.set(std::ptr::null()));
    }
}

thread_local! {
    /// Each thread looks only at its own, without a lock.
    static LATELY: Lately = const { Lately(RefCell::new(None)) };
}

/// `cudaLaunchKernel` or `cuLaunchKernel`, if this thread has made such a launch lately: the call's result.
/// `None` where it is to be made the long way.
///
/// # Safety
/// `args` must be as the kernel's signature demands.
#[inline(always)]
pub(crate) unsafe fn launch_again(
    door: Door,
    kernel: *const c_void,
    raw_stream: Raw,
    per_thread: bool,
    config: &Config,
    args: *const *const c_void,
) -> Option<u32> {
    let key = Key::new(door, kernel, raw_stream, per_thread, config);
    let (top, table) = thread::HOT.try_with(|hot| (hot.top.get(), hot.recent.get())).ok()?;
    if table.is_null() {
        return None;
    }
    // SAFETY: the table is this thread's, and lives as long as `recent` points to it. It changes only in `remember`, which
    // nothing below leads to.
    let recent = unsafe { (*table.cast::<Table>()).get_unchecked(key.slot()) }.as_ref()?;
    if !recent.key.is(&key)
        || recent.generation != generation::current()
        || top != Arc::as_ptr(&recent.context)
    {
        return None;
    }
    // Kernels without parameters need no arguments. That the core is alive need not be asked: its end began a new generation.
    if args.is_null() && !matches!(&recent.dense, Some(dense) if dense.is_empty()) {
        return None;
    }
    let mut block = [MaybeUninit::<u8>::uninit(); SHORT];
    // SAFETY: the caller's promise; only kernels whose parameters fit are remembered.
    let params = unsafe {
        match &recent.dense {
            Some(dense) => dense.gather(args, &mut block),
            None => recent.function.layout().gather(args, &mut block),
        }
    }?;
    // SAFETY: it is the living core's, which is never freed.
    if let Err(error) = unsafe { &*recent.device }.launch_prepared(&recent.prepared, params) {
        return Some(failed(door, recent.stream.ordinal, error));
    }
    // SAFETY: as above.
    unsafe { &*recent.work }.lock().enqueued_in(recent.legacy);
    Some(0)
}

#[cold]
fn failed(door: Door, ordinal: Ordinal, error: Error) -> u32 {
    if let Some(core) = existing() {
        core.devices.note_error(ordinal, &error);
    }
    match door {
        Door::Runtime => error::guard_runtime("cudaLaunchKernel", || Err(error)),
        Door::Driver => error::guard_driver("cuLaunchKernel", || Err(error)),
    }
}

/// Remembers a launch.
fn remember(recent: Recent) {
    let _ = LATELY.try_with(|lately| {
        let Ok(mut table) = lately.0.try_borrow_mut() else { return };
        let table = table.get_or_insert_with(|| Box::new([const { None }; RECENT]));
        let at = recent.key.slot();
        table[at] = Some(recent);
        let table: *const Table = &raw const **table;
        let _ = thread::HOT.try_with(|hot| hot.recent.set(table.cast()));
    });
}

impl Core {
    /// `cudaLaunchKernel` of what a host address stands for.
    ///
    /// # Safety
    /// `args` must be as the kernel's signature demands.
    pub(crate) unsafe fn launch_symbol(
        &self,
        host: *const c_void,
        raw_stream: Raw,
        per_thread: bool,
        config: &Config,
        args: *const *const c_void,
    ) -> Result<()> {
        let generation = generation::current();
        let context = self.runtime_context()?;
        let stream = self.stream(&context, raw_stream, per_thread)?;
        let function = self.function_for(&context, host).map_err(|error| match error.code {
            // An address for which nothing is registered is taken for a kernel's handle.
            Code::InvalidDeviceFunction if function_at(host as usize).is_none() => {
                Error::new(Code::InvalidHandle, error.message)
            }
            _ => error,
        })?;
        // SAFETY: passed on to the caller.
        unsafe { self.launch_as(host as usize, &function, &stream, config, Params::Pointers(args)) }?;
        let key = Key::new(Door::Runtime, host, raw_stream, per_thread, config);
        self.remember_launch(key, generation, context, stream, function, config);
        Ok(())
    }

    /// `cuLaunchKernel`.
    ///
    /// # Safety
    /// `params` must be as the kernel's signature demands.
    pub(crate) unsafe fn launch_function(
        &self,
        raw_function: Raw,
        raw_stream: Raw,
        per_thread: bool,
        config: &Config,
        params: Params,
    ) -> Result<()> {
        let generation = generation::current();
        let context = self.stream_context(raw_stream)?;
        let function = self.function(&context, raw_function)?;
        let stream = self.stream(&context, raw_stream, per_thread)?;
        // SAFETY: passed on to the caller.
        unsafe { self.launch(&function, &stream, config, params) }?;
        if !config.cooperative && matches!(params, Params::Pointers(_)) {
            let kernel = raw_function as *const c_void;
            let key = Key::new(Door::Driver, kernel, raw_stream, per_thread, config);
            self.remember_launch(key, generation, context, stream, function, config);
        }
        Ok(())
    }

    /// Remembers a launch that was found possible, unless something lasts that makes it different each time.
    fn remember_launch(
        &self,
        key: Key,
        generation: u64,
        context: Arc<Context>,
        stream: Arc<Stream>,
        function: Arc<Function>,
        config: &Config,
    ) {
        let size = function.layout().size();
        let lasting = stream.context != context.raw
            || size > SHORT
            || self.devices.sticky_code(stream.ordinal) != 0
            || self.devices.shared().any()
            || self.captures.is_any()
            || trace::is_on()
            // What keys do not tell.
            || config.cooperative
            || config.cluster != [0; 3];
        if lasting {
            return;
        }
        let launch = Launch {
            stream: stream.handle,
            module: function.module.handle,
            function: function.index,
            grid: config.grid,
            block: config.block,
            shared_bytes: config.shared_bytes,
            cooperative: config.cooperative,
            cluster: self.modules.with_cluster(&function, config).cluster,
            params: &[0; SHORT][..size],
        };
        if let Some(prepared) = self.devices.device().prepare_launch(launch) {
            let dense = function.layout().dense();
            let work = std::ptr::from_ref(self.devices.work(stream.ordinal));
            let legacy = stream.is_legacy();
            let device = Arc::as_ptr(self.devices.device());
            remember(Recent {
                key,
                generation,
                prepared,
                dense,
                context,
                function,
                stream,
                device,
                work,
                legacy,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_tell_all_differences() {
        let config = Config {
            grid: [1, 2, 3],
            block: [4, 5, 6],
            shared_bytes: 7,
            cooperative: false,
            cluster: [0; 3],
        };
        let at = |n: usize| n as *const c_void;
        let new = |kernel, stream, per_thread, config: &Config| {
            Key::new(Door::Runtime, kernel, stream, per_thread, config)
        };
        let key = new(at(64), 0, false, &config);
        assert!(key.is(&new(at(64), 0, false, &config)));
        assert!(!key.is(&new(at(80), 0, false, &config)) && !key.is(&new(at(64), 1, false, &config)));
        assert!(!key.is(&new(at(64), 0, true, &config)));
        assert!(!key.is(&Key::new(Door::Driver, at(64), 0, false, &config)));
        for i in 0..3 {
            let (mut other, mut another) = (config, config);
            other.grid[i] += 1;
            another.block[i] += 1;
            assert!(!key.is(&new(at(64), 0, false, &other)));
            assert!(!key.is(&new(at(64), 0, false, &another)));
        }
        assert!(!key.is(&new(at(64), 0, false, &Config { shared_bytes: 8, ..config })));
    }
}
