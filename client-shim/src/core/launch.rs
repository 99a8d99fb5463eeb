//! Launching kernels.

use std::ffi::c_void;
use std::mem::MaybeUninit;

use rgpu_device::{Launch, LaunchLimits, Ordinal};

use super::error::{Code, Error, Result, invalid};
use super::module::Function;
use super::process::Core;
use super::stream::Stream;
use crate::graph::{Kernel, Op, capture};

/// How a kernel is launched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// Blocks in x, y, z.
    pub grid: [u32; 3],
    /// Threads of a block in x, y, z.
    pub block: [u32; 3],
    /// Dynamic shared memory in bytes.
    pub shared_bytes: u32,
    /// Whether all blocks must be able to wait for each other.
    pub cooperative: bool,
}

/// A kernel's arguments, as programs pass them.
#[derive(Debug, Clone, Copy)]
pub enum Params {
    /// An array of pointers to the arguments (`void **args`); null is fine for kernels without any.
    Pointers(*const *const c_void),
    /// The driver's `extra` array: pairs of a tag and a pointer.
    Extra(*const *const c_void),
}

/// Parameter blocks up to this size are put together on the stack.
const ON_STACK: usize = 4096;

impl Core {
    /// What a device can launch at most.
    pub(super) fn launch_limits(&self, ordinal: Ordinal) -> &LaunchLimits {
        &self.of(ordinal).launch_limits
    }

    /// Fails where a kernel cannot be launched like this.
    pub(super) fn check_config(&self, function: &Function, config: &Config) -> Result<()> {
        let limits = self.launch_limits(function.module.ordinal);
        limits.check_shape(function.declared(), config.grid, config.block)?;
        if config.shared_bytes > 0 {
            let room = self.max_dynamic_shared(function)?;
            if i64::from(config.shared_bytes) > i64::from(room) {
                let (name, wanted) = (&function.declared().name, config.shared_bytes);
                return Err(invalid(format!(
                    "{name} cannot be launched: {wanted} bytes of dynamic shared memory are more than {room}"
                )));
            }
        }
        Ok(())
    }

    /// Enqueues a kernel. Impossible configurations are [`Code::InvalidConfiguration`] and its like, at once.
    ///
    /// # Safety
    /// `params` must be as the kernel's signature demands, as for `cudaLaunchKernel`.
    pub unsafe fn launch(
        &self,
        function: &Function,
        stream: &Stream,
        config: &Config,
        params: Params,
    ) -> Result<()> {
        // SAFETY: passed on to the caller.
        unsafe { self.launch_as(function.raw, function, stream, config, params) }
    }

    /// As [`Core::launch`]; a graph that captures the launch tells `symbol` as what was launched.
    ///
    /// # Safety
    /// As for [`Core::launch`].
    pub(super) unsafe fn launch_as(
        &self,
        symbol: usize,
        function: &Function,
        stream: &Stream,
        config: &Config,
        params: Params,
    ) -> Result<()> {
        let ordinal = function.module.ordinal;
        if stream.ordinal != ordinal {
            return Err(Error::new(
                Code::InvalidHandle,
                "The stream belongs to another device than the kernel",
            ));
        }
        self.check_sticky(ordinal)?;
        self.check_config(function, config)?;
        if config.cooperative {
            self.check_cooperative(function, config)?;
        }
        let captured = capture::divert(stream, || {
            let function = self.functions.get(function.raw)?;
            // SAFETY: the caller's promise about `params`.
            Ok(Op::Kernel(unsafe { Kernel::new(function, symbol, *config, params) }?))
        });
        if let Some(captured) = captured {
            return captured;
        }
        let size = function.param_bytes as usize;
        let mut on_stack = [MaybeUninit::<u8>::uninit(); ON_STACK];
        let mut on_heap = Vec::new();
        let block: &mut [MaybeUninit<u8>] = if size <= ON_STACK {
            &mut on_stack[..size]
        } else {
            on_heap.resize(size, MaybeUninit::zeroed());
            &mut on_heap
        };
        // SAFETY: the caller's promise about `params`.
        let params = unsafe { pack(function, params, block) }?;
        self.before_device_work()?;
        self.enqueue_kernel(function, stream, config, params)
    }

    /// Hands a kernel to the device.
    #[inline]
    pub(super) fn enqueue_kernel(
        &self,
        function: &Function,
        stream: &Stream,
        config: &Config,
        params: &[u8],
    ) -> Result<()> {
        let launch = Launch {
            stream: stream.handle,
            module: function.module.handle,
            function: function.index,
            grid: config.grid,
            block: config.block,
            shared_bytes: config.shared_bytes,
            cooperative: config.cooperative,
            params,
        };
        if let Err(error) = self.device.launch(launch) {
            self.note_error(stream.ordinal, &error);
            return Err(error);
        }
        self.work_enqueued(stream);
        Ok(())
    }

    #[cold]
    fn check_cooperative(&self, function: &Function, config: &Config) -> Result<()> {
        let [x, y, z] = config.block;
        let per_processor = self.occupancy_blocks(function, x * y * z, u64::from(config.shared_bytes))?;
        let limits = self.launch_limits(function.module.ordinal);
        limits.check_cooperative(function.declared(), config.grid, per_processor)
    }
}

/// Puts the parameter block together.
///
/// # Safety
/// `params` must be as the kernel's signature demands.
#[inline]
pub(crate) unsafe fn pack<'a>(
    function: &Function,
    params: Params,
    block: &'a mut [MaybeUninit<u8>],
) -> Result<&'a [u8]> {
    let size = block.len();
    let out = block.as_mut_ptr().cast::<u8>();
    match params {
        Params::Pointers(pointers) => {
            let infos = &function.declared().params;
            if pointers.is_null() && !infos.is_empty() {
                return Err(invalid("The kernel has parameters, but no arguments were passed"));
            }
            let mut end = 0;
            for (i, param) in infos.iter().enumerate() {
                let (offset, len) = (param.offset as usize, param.size as usize);
                // SAFETY: the caller passes a pointer for every parameter.
                let from = unsafe { *pointers.add(i) };
                if from.is_null() {
                    return Err(invalid(format!("Argument {i} is null")));
                }
                // SAFETY: `size` is the largest end of any parameter; the caller's argument is `len` bytes long. What
                // lies between parameters is filled with zeroes.
                unsafe {
                    if offset > end {
                        out.add(end).write_bytes(0, offset - end);
                    }
                    let (from, to) = (from.cast::<u8>(), out.add(offset));
                    // The common sizes take no call.
                    match len {
                        8 => to.cast::<u64>().write_unaligned(from.cast::<u64>().read_unaligned()),
                        4 => to.cast::<u32>().write_unaligned(from.cast::<u32>().read_unaligned()),
                        _ => std::ptr::copy_nonoverlapping(from, to, len),
                    }
                }
                end = end.max(offset + len);
            }
        }
        Params::Extra(mut extra) => {
            let (mut from, mut len) = (std::ptr::null::<u8>(), 0);
            while !extra.is_null() {
                // SAFETY: the array is made of pairs and ends with the tag 0.
                let (tag, value) = unsafe { (*extra as usize, *extra.add(1)) };
                match tag {
                    0 => break,
                    1 => from = value.cast(),
                    // SAFETY: the tag says that a size_t lies there.
                    2 => len = unsafe { value.cast::<usize>().read_unaligned() },
                    _ => return Err(invalid(format!("{tag} is no tag of a kernel's extra parameters"))),
                }
                // SAFETY: this pair was not the last.
                extra = unsafe { extra.add(2) };
            }
            if size > 0 && (from.is_null() || len < size) {
                return Err(invalid(format!("The kernel's parameters need {size} bytes, {len} were passed")));
            }
            if size > 0 {
                // SAFETY: the program passed `len` bytes, which are at least `size`.
                unsafe { std::ptr::copy_nonoverlapping(from, out, size) };
            }
        }
    }
    // SAFETY: every byte up to `size` was written above: parameters ascend, and gaps were filled.
    Ok(unsafe { std::slice::from_raw_parts(out, size) })
}
