//! The executor: memory, streams, and the workers that run blocks.

use std::sync::Arc;

use rgpu_device::{Host, Result};

/// How a software GPU is to look and what it may use.
#[derive(Debug, Clone)]
pub struct Config {
    /// How many device ordinals there are.
    pub devices: u32,
    /// Memory of each, in bytes.
    pub memory_bytes_per_device: u64,
    /// Worker threads; 0 means one for each core.
    pub workers: usize,
    /// Compute capability, major and minor.
    pub compute_capability: (u32, u32),
    /// The devices' name.
    pub name: String,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            devices: 1,
            memory_bytes_per_device: 4 << 30,
            workers: 0,
            compute_capability: (8, 0),
            name: "rgpu software GPU".into(),
        }
    }
}

/// A software GPU for one application.
pub struct SoftGpu {}

impl SoftGpu {
    /// Opens a software GPU. It starts no threads and takes no memory worth mentioning yet.
    pub fn open(_config: Config, _host: Arc<dyn Host>) -> Result<Arc<SoftGpu>> {
        Err(rgpu_device::Error::new(rgpu_device::Code::NotSupported, "The executor is not there yet"))
    }
}
