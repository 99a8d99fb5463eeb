//! Devices: what they tell about themselves, their limits, peers, and waiting for all of one's work.

use rgpu_device::{DeviceInfo, Limit, Ordinal, Target};

use super::forward;
use crate::core::error::{Error, Result};
use crate::core::process::Core;

forward! { devices:
    /// A limit's value (`cudaDeviceGetLimit`), in bytes.
    fn get_limit(&self, ordinal: Ordinal, limit: Limit) -> Result<u64>;
    /// Sets a limit (`cudaDeviceSetLimit`), in bytes.
    fn set_limit(&self, ordinal: Ordinal, limit: Limit, value: u64) -> Result<()>;
    /// Whether kernels of `from` may use memory of `to` (`cudaDeviceCanAccessPeer`).
    fn can_access_peer(&self, from: Ordinal, to: Ordinal) -> Result<bool>;
    /// `cudaDeviceEnablePeerAccess`, from the current device to `peer`.
    fn enable_peer_access(&self, from: Ordinal, peer: Ordinal) -> Result<()>;
    /// `cudaDeviceDisablePeerAccess`.
    fn disable_peer_access(&self, from: Ordinal, peer: Ordinal) -> Result<()>;
}

impl Core {
    /// How many devices there are.
    pub(crate) fn device_count(&self) -> u32 {
        self.devices.count()
    }

    /// What a device tells about itself; [`Code::InvalidDevice`](crate::core::Code::InvalidDevice) where there is
    /// none of this number.
    pub(crate) fn device_info(&self, ordinal: Ordinal) -> Result<&DeviceInfo> {
        self.devices.info(ordinal)
    }

    /// Remembers the failure of something that the program has not waited for: who next waits for the device hears of
    /// it.
    pub(crate) fn note_asynchronous(&self, ordinal: Ordinal, error: Error) {
        self.devices.note_asynchronous(ordinal, error);
    }

    /// Waits for all work of the device (`cudaDeviceSynchronize`, `cuCtxSynchronize`).
    pub(crate) fn device_synchronize(&self, ordinal: Ordinal) -> Result<()> {
        self.captures.refuse_any()?;
        self.devices.info(ordinal)?;
        self.devices.check_sticky(ordinal)?;
        self.devices.wait(ordinal, Target::Device(ordinal))
    }
}
