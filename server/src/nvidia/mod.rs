//! The NVIDIA driver as a [`Device`].

pub mod telemetry;

use rgpu_device::{Code, Device, DeviceInfo, Error, Host, Result};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How an NVIDIA device is opened.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Config {
    /// The driver's library. Without it the machine's driver is looked for, and rgpu's own library, which
    /// poses as one, is refused.
    pub driver: Option<PathBuf>,
    /// How many of the machine's devices the application sees; all without it.
    pub devices: Option<u32>,
    /// Memory in bytes of each device that the application may use; all without it.
    pub memory: Option<u64>,
}

/// The machine's GPUs, for one application.
pub struct NvidiaDevice;

impl NvidiaDevice {
    /// Opens the driver. To be called once in a process, which then is the application's.
    pub fn open(_config: &Config, _host: Arc<dyn Host>) -> Result<Arc<dyn Device>> {
        Err(Error::new(Code::NotSupported, "The NVIDIA device is not implemented yet"))
    }
}

/// What the machine's devices are, without using any of their memory.
pub fn describe(_driver: Option<&Path>) -> Result<Vec<DeviceInfo>> {
    Err(Error::new(Code::NotSupported, "The NVIDIA device is not implemented yet"))
}
