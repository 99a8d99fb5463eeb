//! Tensor maps, which rgpu can make for its own devices alone.

use crate::core::error::{Code, Error, Result, not_implemented};
use crate::core::process::Core;

impl Core {
    /// Whether the thread's device has tensor maps that can be made here; an error says why not.
    pub(crate) fn check_tensor_maps(&self) -> Result<()> {
        let info = self.devices.info(self.get_device())?;
        // What is in the map of an NVIDIA GPU knows its driver alone.
        if info.accepts_cubin {
            return Err(not_implemented("a tensor map on an NVIDIA GPU"));
        }
        let (major, minor) = info.compute_capability;
        if major < 9 {
            return Err(Error::new(
                Code::NotSupported,
                format!(
                    "tensor maps need compute capability 9.0, and the device has {major}.{minor}; RGPU_SOFT_CC sets that of a software GPU"
                ),
            ));
        }
        Ok(())
    }
}
