//! Contexts: one primary context per device, and those that programs create with `cuCtxCreate`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use rgpu_device::{Handle, Ordinal, Target};

use super::error::{Code, Error, Result, log};
use super::process::Core;
use super::registry::Raw;
use super::stream::{Stream, StreamKind};
use super::thread;

/// A context. It owns the streams, events, modules and allocations made in it.
pub struct Context {
    /// The program's handle.
    pub raw: Raw,
    /// The device.
    pub ordinal: Ordinal,
    /// Whether it is the device's primary context.
    pub primary: bool,
    /// Scheduling and other flags, as given.
    pub flags: AtomicU32,
    /// Cleared when it is destroyed or reset.
    pub alive: AtomicBool,
    /// Its legacy default stream.
    pub legacy: Arc<Stream>,
}

impl Context {
    /// Whether it was neither destroyed nor reset.
    pub fn is_alive(&self) -> bool {
        self.alive.load(Ordering::Acquire)
    }
}

/// A device's primary context.
#[derive(Default)]
pub(super) struct Primary {
    context: Option<Arc<Context>>,
    /// `cuDevicePrimaryCtxRetain`s without their release.
    retained: u32,
    /// Whether the runtime door keeps it alive.
    by_runtime: bool,
    flags: u32,
}

impl Core {
    fn new_context(&self, ordinal: Ordinal, primary: bool, flags: u32) -> Arc<Context> {
        self.contexts.insert(|raw| Context {
            raw,
            ordinal,
            primary,
            flags: AtomicU32::new(flags),
            alive: AtomicBool::new(true),
            legacy: Arc::new(Stream {
                raw: 0,
                key: 0,
                handle: Handle::from(ordinal),
                ordinal,
                context: raw,
                kind: StreamKind::Legacy,
                flags: 0,
                priority: 0,
                id: 1,
            }),
        })
    }

    /// The living primary context, made if need be.
    fn primary(&self, ordinal: Ordinal, keep: impl FnOnce(&mut Primary)) -> Result<Arc<Context>> {
        self.device_info(ordinal)?;
        let mut primary = self.of(ordinal).primary.lock();
        keep(&mut primary);
        if let Some(context) = primary.context.as_ref().filter(|c| c.is_alive()) {
            return Ok(context.clone());
        }
        let context = self.new_context(ordinal, true, primary.flags);
        primary.context = Some(context.clone());
        Ok(context)
    }

    /// The primary context as the runtime uses it.
    pub(super) fn primary_retain_quietly(&self, ordinal: Ordinal) -> Result<Arc<Context>> {
        self.primary(ordinal, |primary| primary.by_runtime = true)
    }

    /// The context that a runtime call works in: the thread's current one, or else the selected device's primary
    /// context, which thereby becomes current. Fails with the sticky error of the device.
    pub fn runtime_context(&self) -> Result<Arc<Context>> {
        let context = match thread::top() {
            Some(context) if context.is_alive() => context,
            Some(context) if !context.primary => return Err(destroyed()),
            stale => {
                let ordinal = stale.map_or_else(thread::selected, |context| context.ordinal);
                let context = self.primary_retain_quietly(ordinal)?;
                thread::replace_top(Some(context.clone()));
                context
            }
        };
        self.check_sticky(context.ordinal)?;
        Ok(context)
    }

    /// The thread's current context; [`Code::InvalidContext`] where there is none, [`Code::ContextIsDestroyed`] where it
    /// was destroyed. Fails with the sticky error of the device.
    pub fn driver_context(&self) -> Result<Arc<Context>> {
        match thread::top() {
            Some(context) if context.is_alive() => {
                self.check_sticky(context.ordinal)?;
                Ok(context)
            }
            Some(_) => Err(destroyed()),
            None => Err(Error::new(Code::InvalidContext, "No context is current in this thread")),
        }
    }

    /// `cudaSetDevice`: makes the device's primary context the thread's current one.
    pub fn set_device(&self, ordinal: Ordinal) -> Result<()> {
        let context = self.primary_retain_quietly(ordinal)?;
        thread::select(ordinal);
        thread::replace_top(Some(context));
        Ok(())
    }

    /// `cudaGetDevice`: the ordinal of the thread's current context, or else the selected one.
    pub fn get_device(&self) -> Ordinal {
        thread::ordinal_hint()
    }

    /// `cuDevicePrimaryCtxRetain`.
    pub fn primary_retain(&self, ordinal: Ordinal) -> Result<Arc<Context>> {
        self.primary(ordinal, |primary| primary.retained += 1)
    }

    /// `cuDevicePrimaryCtxRelease`: the last release resets the context.
    pub fn primary_release(&self, ordinal: Ordinal) -> Result<()> {
        self.device_info(ordinal)?;
        let last = {
            let mut primary = self.of(ordinal).primary.lock();
            if primary.retained == 0 {
                return Err(Error::new(Code::InvalidContext, "The primary context is not retained"));
            }
            primary.retained -= 1;
            if primary.retained == 0 && !primary.by_runtime { primary.context.take() } else { None }
        };
        last.map_or(Ok(()), |context| self.tear_down(&context))
    }

    /// `cuDevicePrimaryCtxGetState`: its flags, and whether it is active.
    pub fn primary_state(&self, ordinal: Ordinal) -> Result<(u32, bool)> {
        self.device_info(ordinal)?;
        let primary = self.of(ordinal).primary.lock();
        Ok((primary.flags, primary.context.as_ref().is_some_and(|context| context.is_alive())))
    }

    /// `cuDevicePrimaryCtxSetFlags`, `cudaSetDeviceFlags`.
    pub fn primary_set_flags(&self, ordinal: Ordinal, flags: u32) -> Result<()> {
        self.device_info(ordinal)?;
        let mut primary = self.of(ordinal).primary.lock();
        primary.flags = flags;
        if let Some(context) = &primary.context {
            context.flags.store(flags, Ordering::Relaxed);
        }
        Ok(())
    }

    /// `cudaDeviceReset`, `cuDevicePrimaryCtxReset`: lets the device finish (so that what kernels print is seen),
    /// destroys everything on it and clears its sticky error.
    pub fn device_reset(&self, ordinal: Ordinal) -> Result<()> {
        self.device_info(ordinal)?;
        let mine = self.contexts.remove_where(|context| context.ordinal == ordinal);
        self.of(ordinal).primary.lock().context = None;
        if mine.is_empty() {
            return Ok(());
        }
        if self.sticky_code(ordinal) == 0
            && let Err(error) = self.wait(ordinal, Target::Device(ordinal))
        {
            log(&format!("while resetting device {ordinal}: {error}"));
        }
        for context in mine {
            context.alive.store(false, Ordering::Release);
            super::fatbin::forget_functions();
        }
        self.reset_device(ordinal)
    }

    fn reset_device(&self, ordinal: Ordinal) -> Result<()> {
        let result = self.device.reset(ordinal);
        self.streams.remove_where(|stream| stream.ordinal == ordinal);
        self.events.remove_where(|event| event.ordinal == ordinal);
        self.functions.remove_where(|function| function.module.ordinal == ordinal);
        for module in self.modules.remove_where(|module| module.ordinal == ordinal) {
            self.forget_module(&module);
        }
        self.forget_loaded(|module| module.ordinal == ordinal);
        self.forget_memory(ordinal);
        let device = self.of(ordinal);
        *device.pending.lock() = None;
        *device.limits.lock() = [None; 3];
        device.peers.lock().clear();
        if result.is_ok() {
            device.sticky.store(0, Ordering::Relaxed);
        }
        self.note(ordinal, result)
    }

    /// Destroys what a context owns, and the context.
    fn tear_down(&self, context: &Arc<Context>) -> Result<()> {
        let ordinal = context.ordinal;
        context.alive.store(false, Ordering::Release);
        super::fatbin::forget_functions();
        let _ = self.contexts.remove(context.raw);
        if self.sticky_code(ordinal) != 0 {
            // The error belongs to the contexts of this device; with the last of them it goes.
            return if self.contexts.filter(|other| other.ordinal == ordinal).is_empty() {
                self.reset_device(ordinal)
            } else {
                Ok(())
            };
        }
        let raw = context.raw;
        let mut result = self.wait(ordinal, Target::Device(ordinal));
        for stream in self.streams.remove_where(|stream| stream.context == raw) {
            result = result.and(self.device.stream_destroy(stream.handle));
        }
        for event in self.events.remove_where(|event| event.context == raw) {
            result = result.and(self.device.event_destroy(event.handle));
        }
        self.functions.remove_where(|function| function.module.context == raw);
        for module in self.modules.remove_where(|module| module.context == raw) {
            self.forget_module(&module);
            result = result.and(self.device.module_unload(module.handle));
        }
        self.forget_loaded(|module| module.context == raw);
        result = result.and(self.free_all_of(raw));
        self.note(ordinal, result)
    }

    /// `cuCtxCreate`: the new context becomes current.
    pub fn context_create(&self, ordinal: Ordinal, flags: u32) -> Result<Arc<Context>> {
        self.device_info(ordinal)?;
        self.check_sticky(ordinal)?;
        let context = self.new_context(ordinal, false, flags);
        thread::push(context.clone());
        Ok(context)
    }

    /// `cuCtxDestroy`: destroys what the context owns; if it is the thread's current one, it is popped. Primary contexts
    /// are refused.
    pub fn context_destroy(&self, raw: Raw) -> Result<()> {
        let context = self.context(raw)?;
        if context.primary {
            return Err(Error::new(Code::InvalidContext, "A primary context is released, not destroyed"));
        }
        if self.context_current_raw() == raw {
            thread::pop();
        }
        self.tear_down(&context)
    }

    /// The context behind a handle; [`Code::InvalidContext`] for others.
    pub fn context(&self, raw: Raw) -> Result<Arc<Context>> {
        self.contexts.get(raw).map_err(|error| Error::new(Code::InvalidContext, error.message))
    }

    /// `cuCtxSetCurrent`: replaces the top of the thread's stack; 0 pops it.
    pub fn context_set_current(&self, raw: Raw) -> Result<()> {
        let context = if raw == 0 { None } else { Some(self.context(raw)?) };
        if let Some(context) = &context {
            thread::select(context.ordinal);
        }
        thread::replace_top(context);
        Ok(())
    }

    /// `cuCtxPushCurrent`.
    pub fn context_push(&self, raw: Raw) -> Result<()> {
        thread::push(self.context(raw)?);
        Ok(())
    }

    /// `cuCtxPopCurrent`: the context that was popped; [`Code::InvalidContext`] where there is none.
    pub fn context_pop(&self) -> Result<Arc<Context>> {
        thread::pop().ok_or_else(|| Error::new(Code::InvalidContext, "No context is current in this thread"))
    }

    /// `cuCtxGetCurrent`: the handle of the thread's current context, 0 if none.
    pub fn context_current_raw(&self) -> Raw {
        thread::with_top(|top| top.map_or(0, |context| context.raw)).unwrap_or(0)
    }
}

fn destroyed() -> Error {
    Error::new(Code::ContextIsDestroyed, "The thread's current context was destroyed")
}
