//! Tensor maps: rgpu's own say what the map is to be, and the device makes of that what its kernels take.

use rgpu_device::tensor_map::{TENSOR_MAP_BYTES, TensorMap};

use crate::core::error::{Code, Error, Result, not_implemented};
use crate::core::process::Core;

impl Core {
    /// A map for the thread's device.
    pub(crate) fn tensor_map(&self, wanted: &TensorMap) -> Result<[u8; TENSOR_MAP_BYTES]> {
        let ordinal = self.get_device();
        let info = self.devices.info(ordinal)?;
        let (major, minor) = info.compute_capability;
        if major < 9 {
            return Err(Error::new(
                Code::NotSupported,
                format!(
                    "tensor maps need compute capability 9.0, and the device has {major}.{minor}; RGPU_SOFT_CC sets that of a software GPU"
                ),
            ));
        }
        // A software GPU takes what is written here: nobody has to be asked.
        if !info.accepts_cubin {
            return Ok(wanted.to_bytes());
        }
        self.devices.device().tensor_map(ordinal, &wanted.to_bytes())
    }

    /// Whether maps that were made can be read here: what is in the map of an NVIDIA GPU knows its driver alone.
    pub(crate) fn reads_tensor_maps(&self) -> Result<()> {
        let info = self.devices.info(self.get_device())?;
        if info.accepts_cubin {
            return Err(not_implemented("cuTensorMapReplaceAddress on an NVIDIA GPU"));
        }
        Ok(())
    }
}
