//! The living contexts: one primary context per device, and those that programs create with `cuCtxCreate`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use parking_lot::Mutex;
use rgpu_device::{Handle, Ordinal};

use super::context::Context;
use super::devices::Devices;
use super::error::{Code, Error, Result};
use super::registry::{Raw, Registry};
use super::stream::{Stream, StreamKind};
use super::thread;

/// A device's primary context.
#[derive(Default)]
struct Primary {
    context: Option<Arc<Context>>,
    /// `cuDevicePrimaryCtxRetain`s without their release.
    retained: u32,
    /// Whether the runtime door keeps it alive.
    by_runtime: bool,
    flags: u32,
}

/// The living contexts, and which of them is current in the calling thread.
pub(super) struct Contexts {
    devices: Arc<Devices>,
    contexts: Registry<Context>,
    /// The devices' primary contexts, by ordinal.
    primaries: Vec<Mutex<Primary>>,
}

impl Contexts {
    /// There are no contexts yet, on any device.
    pub(super) fn new(devices: Arc<Devices>) -> Self {
        let primaries = (0..devices.count()).map(|_| Mutex::default()).collect();
        Self { devices, contexts: Registry::new("context"), primaries }
    }

    fn new_context(&self, ordinal: Ordinal, primary: bool, flags: u32) -> Arc<Context> {
        self.contexts.insert(|raw| Context {
            raw,
            ordinal,
            primary,
            flags: AtomicU32::new(flags),
            alive: AtomicBool::new(true),
            legacy: Arc::new(Stream {
                raw: 0,
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
        self.devices.info(ordinal)?;
        let mut primary = self.primaries[ordinal as usize].lock();
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
    pub(super) fn runtime_context(&self) -> Result<Arc<Context>> {
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
        self.devices.check_sticky(context.ordinal)?;
        Ok(context)
    }

    /// The thread's current context; [`Code::InvalidContext`] where there is none, [`Code::ContextIsDestroyed`] where it
    /// was destroyed. Fails with the sticky error of the device.
    pub(super) fn driver_context(&self) -> Result<Arc<Context>> {
        match thread::top() {
            Some(context) if context.is_alive() => {
                self.devices.check_sticky(context.ordinal)?;
                Ok(context)
            }
            Some(_) => Err(destroyed()),
            None => Err(Error::new(Code::InvalidContext, "No context is current in this thread")),
        }
    }

    /// For driver calls that want no current context: what [`Self::driver_context`] finds wrong with one that there is.
    pub(super) fn check_current(&self) -> Result<()> {
        if self.context_current_raw() == 0 { Ok(()) } else { self.driver_context().map(drop) }
    }

    /// `cudaSetDevice`: makes the device's primary context the thread's current one.
    pub(super) fn set_device(&self, ordinal: Ordinal) -> Result<()> {
        let context = self.primary_retain_quietly(ordinal)?;
        thread::select(ordinal);
        thread::replace_top(Some(context));
        Ok(())
    }

    /// `cudaGetDevice`: the ordinal of the thread's current context, or else the selected one.
    pub(super) fn get_device(&self) -> Ordinal {
        thread::ordinal_hint()
    }

    /// `cuDevicePrimaryCtxRetain`.
    pub(super) fn primary_retain(&self, ordinal: Ordinal) -> Result<Arc<Context>> {
        self.primary(ordinal, |primary| primary.retained += 1)
    }

    /// `cuDevicePrimaryCtxRelease`: the context that is to be destroyed now, if this was the last release.
    pub(super) fn primary_release(&self, ordinal: Ordinal) -> Result<Option<Arc<Context>>> {
        self.devices.info(ordinal)?;
        let mut primary = self.primaries[ordinal as usize].lock();
        if primary.retained == 0 {
            return Err(Error::new(Code::InvalidContext, "The primary context is not retained"));
        }
        primary.retained -= 1;
        Ok(if primary.retained == 0 && !primary.by_runtime { primary.context.take() } else { None })
    }

    /// `cuDevicePrimaryCtxGetState`: its flags, and whether it is active.
    pub(super) fn primary_state(&self, ordinal: Ordinal) -> Result<(u32, bool)> {
        self.devices.info(ordinal)?;
        let primary = self.primaries[ordinal as usize].lock();
        Ok((primary.flags, primary.context.as_ref().is_some_and(|context| context.is_alive())))
    }

    /// `cuDevicePrimaryCtxSetFlags`, `cudaSetDeviceFlags`.
    pub(super) fn primary_set_flags(&self, ordinal: Ordinal, flags: u32) -> Result<()> {
        self.devices.info(ordinal)?;
        let mut primary = self.primaries[ordinal as usize].lock();
        primary.flags = flags;
        if let Some(context) = &primary.context {
            context.flags.store(flags, Ordering::Relaxed);
        }
        Ok(())
    }

    /// `cuCtxCreate`: the new context becomes current.
    pub(super) fn context_create(&self, ordinal: Ordinal, flags: u32) -> Result<Arc<Context>> {
        self.devices.info(ordinal)?;
        self.devices.check_sticky(ordinal)?;
        let context = self.new_context(ordinal, false, flags);
        thread::push(context.clone());
        Ok(context)
    }

    /// The context behind a handle; [`Code::InvalidContext`] for others.
    pub(super) fn context(&self, raw: Raw) -> Result<Arc<Context>> {
        self.contexts.get(raw).map_err(|error| Error::new(Code::InvalidContext, error.message))
    }

    /// `cuCtxSetCurrent`: replaces the top of the thread's stack; 0 pops it.
    pub(super) fn context_set_current(&self, raw: Raw) -> Result<()> {
        let context = if raw == 0 { None } else { Some(self.context(raw)?) };
        if let Some(context) = &context {
            thread::select(context.ordinal);
        }
        thread::replace_top(context);
        Ok(())
    }

    /// `cuCtxPushCurrent`.
    pub(super) fn context_push(&self, raw: Raw) -> Result<()> {
        thread::push(self.context(raw)?);
        Ok(())
    }

    /// `cuCtxPopCurrent`: the context that was popped; [`Code::InvalidContext`] where there is none.
    pub(super) fn context_pop(&self) -> Result<Arc<Context>> {
        thread::pop().ok_or_else(|| Error::new(Code::InvalidContext, "No context is current in this thread"))
    }

    /// `cuCtxGetCurrent`: the handle of the thread's current context, 0 if none.
    pub(super) fn context_current_raw(&self) -> Raw {
        thread::with_top(|top| top.map_or(0, |context| context.raw)).unwrap_or(0)
    }

    /// The context that owns what the program asks for on behalf of another: that one if it lives, else the device's primary
    /// context.
    pub(super) fn living_or_primary(&self, raw: Raw, ordinal: Ordinal) -> Result<Raw> {
        let context = self.context(raw).or_else(|_| self.primary_retain_quietly(ordinal))?;
        Ok(context.raw)
    }

    /// The thread's current context if it lives, else the primary context of the selected device.
    pub(super) fn current_or_primary(&self) -> Result<Arc<Context>> {
        match thread::top().filter(|context| context.is_alive()) {
            Some(context) => Ok(context),
            None => self.primary_retain_quietly(thread::selected()),
        }
    }

    /// A context is being destroyed: it is no longer alive, and its handle stands for nothing.
    pub(super) fn forget(&self, context: &Context) {
        context.end();
        let _ = self.contexts.remove(context.raw);
    }

    /// A device is about to be reset: the handles of its contexts, which the caller has to [end](Context::end), stand for
    /// nothing any more.
    pub(super) fn take_all_on(&self, ordinal: Ordinal) -> Vec<Arc<Context>> {
        let gone = self.contexts.remove_where(|context| context.ordinal == ordinal);
        self.primaries[ordinal as usize].lock().context = None;
        gone
    }

    /// Whether there is a context on a device.
    pub(super) fn any_on(&self, ordinal: Ordinal) -> bool {
        !self.contexts.filter(|context| context.ordinal == ordinal).is_empty()
    }
}

fn destroyed() -> Error {
    Error::new(Code::ContextIsDestroyed, "The thread's current context was destroyed")
}
