//! Contexts: one primary context per device, and those that programs create with `cuCtxCreate`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32};

use super::error::{Result, not_implemented};
use super::process::Core;
use super::registry::Raw;
use super::stream::Stream;
use rgpu_device::Ordinal;

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

impl Core {
    /// The context that a runtime call works in: the thread's current one, or else the selected device's primary
    /// context, which thereby becomes current. Fails with the sticky error of the device.
    pub fn runtime_context(&self) -> Result<Arc<Context>> {
        Err(not_implemented("runtime_context"))
    }

    /// The thread's current context; [`super::Code::InvalidContext`] where there is none or where it was destroyed.
    /// Fails with the sticky error of the device.
    pub fn driver_context(&self) -> Result<Arc<Context>> {
        Err(not_implemented("driver_context"))
    }

    /// `cudaSetDevice`: makes the device's primary context the thread's current one. Activates nothing yet.
    pub fn set_device(&self, ordinal: Ordinal) -> Result<()> {
        let _ = ordinal;
        Err(not_implemented("set_device"))
    }

    /// `cudaGetDevice`: the ordinal of the thread's current context, or else the selected one.
    pub fn get_device(&self) -> Ordinal {
        super::thread::ordinal_hint()
    }

    /// `cuDevicePrimaryCtxRetain`.
    pub fn primary_retain(&self, ordinal: Ordinal) -> Result<Arc<Context>> {
        let _ = ordinal;
        Err(not_implemented("primary_retain"))
    }

    /// `cuDevicePrimaryCtxRelease`: the last release resets the context.
    pub fn primary_release(&self, ordinal: Ordinal) -> Result<()> {
        let _ = ordinal;
        Err(not_implemented("primary_release"))
    }

    /// `cuDevicePrimaryCtxGetState`: its flags, and whether it is active.
    pub fn primary_state(&self, ordinal: Ordinal) -> Result<(u32, bool)> {
        let _ = ordinal;
        Err(not_implemented("primary_state"))
    }

    /// `cuDevicePrimaryCtxSetFlags`, `cudaSetDeviceFlags`.
    pub fn primary_set_flags(&self, ordinal: Ordinal, flags: u32) -> Result<()> {
        let _ = (ordinal, flags);
        Err(not_implemented("primary_set_flags"))
    }

    /// `cudaDeviceReset`, `cuDevicePrimaryCtxReset`: destroys everything on the device and clears its sticky error.
    pub fn device_reset(&self, ordinal: Ordinal) -> Result<()> {
        let _ = ordinal;
        Err(not_implemented("device_reset"))
    }

    /// `cuCtxCreate`: the new context becomes current.
    pub fn context_create(&self, ordinal: Ordinal, flags: u32) -> Result<Arc<Context>> {
        let _ = (ordinal, flags);
        Err(not_implemented("context_create"))
    }

    /// `cuCtxDestroy`: destroys what the context owns; if it is the thread's current one, it is popped.
    pub fn context_destroy(&self, raw: Raw) -> Result<()> {
        let _ = raw;
        Err(not_implemented("context_destroy"))
    }

    /// The context behind a handle; [`super::Code::InvalidContext`] for others.
    pub fn context(&self, raw: Raw) -> Result<Arc<Context>> {
        let _ = raw;
        Err(not_implemented("context"))
    }

    /// `cuCtxSetCurrent`: replaces the top of the thread's stack; 0 pops it.
    pub fn context_set_current(&self, raw: Raw) -> Result<()> {
        let _ = raw;
        Err(not_implemented("context_set_current"))
    }

    /// `cuCtxPushCurrent`.
    pub fn context_push(&self, raw: Raw) -> Result<()> {
        let _ = raw;
        Err(not_implemented("context_push"))
    }

    /// `cuCtxPopCurrent`: the context that was popped; [`super::Code::InvalidContext`] where there is none.
    pub fn context_pop(&self) -> Result<Arc<Context>> {
        Err(not_implemented("context_pop"))
    }

    /// `cuCtxGetCurrent`: the handle of the thread's current context, 0 if none.
    pub fn context_current_raw(&self) -> Raw {
        super::thread::with_top(|top| top.map_or(0, |context| context.raw)).unwrap_or(0)
    }
}
