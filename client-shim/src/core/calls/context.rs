//! Contexts: which one is current, and what goes with one that is destroyed or reset.

use std::sync::Arc;

use rgpu_device::{Ordinal, Target};

use super::forward;
use crate::core::context::Context;
use crate::core::error::{Code, Error, Result, log};
use crate::core::process::Core;
use crate::core::registry::Raw;
use crate::core::thread;

forward! { contexts:
    /// The context that a runtime call works in: the thread's current one, or else the selected device's primary
    /// context, which thereby becomes current. Fails with the sticky error of the device.
    fn runtime_context(&self) -> Result<Arc<Context>>;
    /// The thread's current context; [`Code::InvalidContext`] where there is none, [`Code::ContextIsDestroyed`] where it
    /// was destroyed. Fails with the sticky error of the device.
    fn driver_context(&self) -> Result<Arc<Context>>;
    /// For driver calls that want no current context: what [`Self::driver_context`] finds wrong with one that there is.
    fn check_current(&self) -> Result<()>;
    /// `cudaSetDevice`: makes the device's primary context the thread's current one.
    fn set_device(&self, ordinal: Ordinal) -> Result<()>;
    /// `cudaGetDevice`: the ordinal of the thread's current context, or else the selected one.
    fn get_device(&self) -> Ordinal;
    /// `cuDevicePrimaryCtxRetain`.
    fn primary_retain(&self, ordinal: Ordinal) -> Result<Arc<Context>>;
    /// `cuDevicePrimaryCtxGetState`: its flags, and whether it is active.
    fn primary_state(&self, ordinal: Ordinal) -> Result<(u32, bool)>;
    /// `cuDevicePrimaryCtxSetFlags`, `cudaSetDeviceFlags`.
    fn primary_set_flags(&self, ordinal: Ordinal, flags: u32) -> Result<()>;
    /// `cuCtxCreate`: the new context becomes current.
    fn context_create(&self, ordinal: Ordinal, flags: u32) -> Result<Arc<Context>>;
    /// The context behind a handle; [`Code::InvalidContext`] for others.
    fn context(&self, raw: Raw) -> Result<Arc<Context>>;
    /// `cuCtxSetCurrent`: replaces the top of the thread's stack; 0 pops it.
    fn context_set_current(&self, raw: Raw) -> Result<()>;
    /// `cuCtxPushCurrent`.
    fn context_push(&self, raw: Raw) -> Result<()>;
    /// `cuCtxPopCurrent`: the context that was popped; [`Code::InvalidContext`] where there is none.
    fn context_pop(&self) -> Result<Arc<Context>>;
    /// `cuCtxGetCurrent`: the handle of the thread's current context, 0 if none.
    fn context_current_raw(&self) -> Raw;
}

impl Core {
    /// `cuDevicePrimaryCtxRelease`: the last release resets the context.
    pub(crate) fn primary_release(&self, ordinal: Ordinal) -> Result<()> {
        let last = self.contexts.primary_release(ordinal)?;
        last.map_or(Ok(()), |context| self.tear_down(&context))
    }

    /// `cudaDeviceReset`, `cuDevicePrimaryCtxReset`: lets the device finish (so that what kernels print is seen),
    /// destroys everything on it and clears its sticky error.
    pub(crate) fn device_reset(&self, ordinal: Ordinal) -> Result<()> {
        self.devices.info(ordinal)?;
        let gone = self.contexts.take_all_on(ordinal);
        if gone.is_empty() {
            return Ok(());
        }
        if self.devices.sticky_code(ordinal) == 0
            && let Err(error) = self.devices.wait(ordinal, Target::Device(ordinal))
        {
            log(&format!("while resetting device {ordinal}: {error}"));
        }
        gone.iter().for_each(|context| context.end());
        self.reset_device(ordinal)
    }

    fn reset_device(&self, ordinal: Ordinal) -> Result<()> {
        let result = self.devices.device().reset(ordinal);
        self.streams.forget(ordinal);
        self.modules.forget(ordinal);
        self.libraries.forget_loaded(|module| module.ordinal == ordinal);
        self.virtual_memory.forget(ordinal);
        self.memory.forget(ordinal);
        self.graph_allocations.forget(ordinal);
        self.devices.forget(ordinal, result.is_ok());
        match result {
            Err(error) if error.code.is_sticky() && error.code != Code::SystemNotReady => {
                self.devices.give_up(ordinal);
                Ok(())
            }
            result => self.devices.note(ordinal, result),
        }
    }

    /// Destroys what a context owns, and the context.
    fn tear_down(&self, context: &Context) -> Result<()> {
        let (ordinal, raw) = (context.ordinal, context.raw);
        self.contexts.forget(context);
        if self.devices.sticky_code(ordinal) != 0 {
            // The error belongs to the contexts of this device; with the last of them it goes.
            return if self.contexts.any_on(ordinal) { Ok(()) } else { self.reset_device(ordinal) };
        }
        let mut result = self.devices.wait(ordinal, Target::Device(ordinal));
        result = result.and(self.streams.destroy_all_of(raw));
        result = result.and(self.modules.unload_all_of(raw));
        self.libraries.forget_loaded(|module| module.context == raw);
        result = result.and(self.memory.free_all_of(raw));
        self.devices.note(ordinal, result)
    }

    /// `cuCtxDestroy`: destroys what the context owns; if it is the thread's current one, it is popped. Primary contexts
    /// are refused.
    pub(crate) fn context_destroy(&self, raw: Raw) -> Result<()> {
        let context = self.contexts.context(raw)?;
        if context.primary {
            return Err(Error::new(Code::InvalidContext, "A primary context is released, not destroyed"));
        }
        if self.contexts.context_current_raw() == raw {
            thread::pop();
        }
        self.tear_down(&context)
    }
}
