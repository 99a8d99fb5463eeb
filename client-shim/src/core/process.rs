//! The one [`Core`] of a process: when it comes to life, and how it ends.

use super::error::{Code, Error, Result, not_implemented};
use rgpu_device::{DeviceInfo, Limit, Ordinal};

/// Everything that lives from the first CUDA call to the end of the process.
pub struct Core {
    _private: (),
}

/// The process's core; the first call creates it from the environment.
///
/// Fails with [`Code::NoDevice`] where the environment names no device (said once on stderr), with the error of
/// connecting (remembered), with [`Code::NotInitialized`] in a child forked after the first CUDA call, and with
/// [`Code::Deinitialized`] once the process is ending.
pub fn current() -> Result<&'static Core> {
    Err(Error::new(Code::NoDevice, "not implemented yet"))
}

/// The core if it is alive; creates nothing.
pub fn existing() -> Option<&'static Core> {
    None
}

/// For the guards: a call begins.
pub fn call_started() -> u64 {
    0
}

/// For the guards: it ends.
pub fn call_ended(name: &'static str, started: u64) {
    let _ = (name, started);
}

impl Core {
    /// The number of the sticky error of a device, 0 if it has none.
    pub fn sticky_code(&self, ordinal: Ordinal) -> u32 {
        let _ = ordinal;
        0
    }

    /// How many devices there are.
    pub fn device_count(&self) -> u32 {
        0
    }

    /// What a device tells about itself; [`Code::InvalidDevice`] where there is none of this number.
    pub fn device_info(&self, ordinal: Ordinal) -> Result<&DeviceInfo> {
        let _ = ordinal;
        Err(not_implemented("device_info"))
    }

    /// A limit's value.
    pub fn get_limit(&self, ordinal: Ordinal, limit: Limit) -> Result<u64> {
        let _ = (ordinal, limit);
        Err(not_implemented("get_limit"))
    }

    /// Sets a limit.
    pub fn set_limit(&self, ordinal: Ordinal, limit: Limit, value: u64) -> Result<()> {
        let _ = (ordinal, limit, value);
        Err(not_implemented("set_limit"))
    }

    /// Whether kernels of `from` may use memory of `to` (`cudaDeviceCanAccessPeer`).
    pub fn can_access_peer(&self, from: Ordinal, to: Ordinal) -> Result<bool> {
        let _ = (from, to);
        Err(not_implemented("can_access_peer"))
    }

    /// `cudaDeviceEnablePeerAccess`, from the current device to `peer`.
    pub fn enable_peer_access(&self, from: Ordinal, peer: Ordinal) -> Result<()> {
        let _ = (from, peer);
        Err(not_implemented("enable_peer_access"))
    }

    /// `cudaDeviceDisablePeerAccess`.
    pub fn disable_peer_access(&self, from: Ordinal, peer: Ordinal) -> Result<()> {
        let _ = (from, peer);
        Err(not_implemented("disable_peer_access"))
    }
}
