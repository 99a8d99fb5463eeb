//! Launching kernels.

use std::mem::MaybeUninit;

use rgpu_device::Launch;

use crate::core::error::{Code, Error, Result, invalid};
use crate::core::graph::op::{Kernel, Op};
use crate::core::launch::Config;
use crate::core::module::Function;
use crate::core::params::Params;
use crate::core::process::Core;
use crate::core::stream::Stream;

/// Parameter blocks up to this size are put together on the stack.
const ON_STACK: usize = 4096;

impl Core {
    /// Fails where a kernel cannot be launched like this.
    pub(in crate::core) fn check_config(&self, function: &Function, config: &Config) -> Result<()> {
        let limits = self.devices.launch_limits(function.module.ordinal);
        limits.check_shape(function.declared(), config.grid, config.block)?;
        let most = self.modules.max_cluster(function);
        limits.check_cluster(function.declared(), config.grid, config.cluster, most)?;
        if config.shared_bytes > 0 {
            let room = self.modules.max_dynamic_shared(function)?;
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
    pub(crate) unsafe fn launch(
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
    pub(in crate::core) unsafe fn launch_as(
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
        self.devices.check_sticky(ordinal)?;
        let config = &self.modules.with_cluster(function, config);
        self.check_config(function, config)?;
        if config.cooperative {
            self.check_cooperative(function, config)?;
        }
        let captured = self.captures.divert(stream, || {
            let function = self.modules.registered_function(function.raw)?;
            // SAFETY: the caller's promise about `params`.
            Ok(Op::Kernel(unsafe { Kernel::new(function, symbol, *config, params) }?))
        });
        if let Some(captured) = captured {
            return captured;
        }
        if function.module.references.unsettled() {
            self.settle_references(&function.module)?;
        }
        let size = function.layout().size();
        let mut on_stack = [MaybeUninit::<u8>::uninit(); ON_STACK];
        let mut on_heap = Vec::new();
        let block: &mut [MaybeUninit<u8>] = if size <= ON_STACK {
            &mut on_stack[..size]
        } else {
            on_heap.resize(size, MaybeUninit::zeroed());
            &mut on_heap
        };
        // SAFETY: the caller's promise about `params`.
        let params = unsafe { function.layout().pack(params, block) }?;
        self.devices.before_device_work()?;
        self.enqueue_kernel(function, stream, config, params)
    }

    /// Hands a kernel to the device.
    #[inline]
    pub(in crate::core) fn enqueue_kernel(
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
            cluster: config.cluster,
            params,
        };
        if let Err(error) = self.devices.device().launch(launch) {
            self.devices.note_error(stream.ordinal, &error);
            return Err(error);
        }
        self.devices.work_enqueued(stream);
        Ok(())
    }

    #[cold]
    fn check_cooperative(&self, function: &Function, config: &Config) -> Result<()> {
        let [x, y, z] = config.block;
        let per_processor = self.occupancy_blocks(function, x * y * z, u64::from(config.shared_bytes))?;
        let limits = self.devices.launch_limits(function.module.ordinal);
        limits.check_cooperative(function.declared(), config.grid, per_processor)
    }
}
