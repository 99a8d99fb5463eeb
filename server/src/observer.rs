//! The device of a session that only looks: what the devices are, and what is measured of them. It opens no context
//! and has no memory, so that a monitoring program costs the GPU nothing.

use crate::app::{nvidia_config, software_config};
use crate::device_spec::{DeviceKind, DeviceSpec};
use crate::{convert, inventory};
use rgpu_device::telemetry::{Group, Telemetry};
use rgpu_device::tensor_map::TENSOR_MAP_BYTES;
use rgpu_device::{
    AddressPlan, Code, CopySink, Counters, Device, DeviceInfo, Done, Error, Handle, HostData, Launch, Limit,
    MemoryInfo, MemoryKind, ModuleInfo, Ordinal, Range, Region, Result, Target,
};
use rgpu_nvidia as nvidia;

/// Devices that are looked at.
pub(crate) struct Observed {
    infos: Vec<DeviceInfo>,
    nvml: Option<nvidia::Nvml>,
}

impl Observed {
    /// Those that applications get.
    pub(crate) fn open(spec: &DeviceSpec) -> Result<Self> {
        if spec.kind == DeviceKind::Nvidia && spec.visible.len() > 1 {
            // One process may not be shown all of them.
            let failed = |e: inventory::InventoryError| Error::new(Code::NoDevice, e.to_string());
            let infos = inventory::nvidia_devices(spec.driver.as_deref()).map_err(failed)?;
            let infos: Vec<DeviceInfo> = infos.into_iter().map(convert::described).collect();
            let uuids = infos.iter().map(|info| info.uuid).collect();
            let nvml = nvidia::nvml(spec.driver.as_deref(), uuids)?;
            return Ok(Self { infos, nvml: Some(nvml) });
        }
        if spec.kind == DeviceKind::Nvidia {
            let (infos, nvml) = nvidia::observe(&nvidia_config(spec))?;
            return Ok(Self { infos, nvml: Some(nvml) });
        }
        Ok(Self { infos: rgpu_softgpu::describe(&software_config(spec)), nvml: None })
    }
}

fn refuse<T>() -> Result<T> {
    Err(Error::new(Code::NotSupported, "This session only looks at the devices"))
}

impl Device for Observed {
    fn infos(&self) -> Vec<DeviceInfo> {
        self.infos.clone()
    }

    /// No addresses at all.
    fn reserve(&self, _proposal: Range) -> Result<AddressPlan> {
        Ok(AddressPlan { devices: vec![Range::default(); self.infos.len()], ..AddressPlan::default() })
    }

    fn telemetry(&self, ordinal: Ordinal, group: Group) -> Result<Telemetry> {
        match &self.nvml {
            Some(nvml) => nvml.read(ordinal, group),
            None => refuse(),
        }
    }

    fn mem_alloc(&self, _: Ordinal, _: u64, _: u64, _: MemoryKind) -> Result<()> {
        refuse()
    }

    fn mem_free(&self, _: Ordinal, _: u64, _: Option<Handle>) -> Result<()> {
        refuse()
    }

    fn mem_info(&self, _: Ordinal) -> Result<MemoryInfo> {
        refuse()
    }

    fn tensor_map(&self, _: Ordinal, _: &[u8; TENSOR_MAP_BYTES]) -> Result<[u8; TENSOR_MAP_BYTES]> {
        refuse()
    }

    fn memset(&self, _: Handle, _: Region, _: u32, _: u32) -> Result<()> {
        refuse()
    }

    fn copy_to_device(&self, _: Handle, _: Region, _: u64, _: HostData) -> Result<()> {
        refuse()
    }

    fn copy_from_device(&self, _: Handle, _: Region, _: u64, sink: Box<dyn CopySink>) {
        sink.done(refuse());
    }

    fn copy_on_device(&self, _: Handle, _: Region, _: Region) -> Result<()> {
        refuse()
    }

    fn module_load(&self, _: Ordinal, _: Handle, _: &[u8], _: &[(String, u64)]) -> Result<ModuleInfo> {
        refuse()
    }

    fn module_unload(&self, _: Handle) -> Result<()> {
        refuse()
    }

    fn launch(&self, _: Launch<'_>) -> Result<()> {
        refuse()
    }

    fn stream_create(&self, _: Ordinal, _: Handle, _: bool, _: i32) -> Result<()> {
        refuse()
    }

    fn stream_destroy(&self, _: Handle) -> Result<()> {
        refuse()
    }

    fn stream_wait_event(&self, _: Handle, _: Handle) -> Result<()> {
        refuse()
    }

    fn fence(&self, _: Handle) -> Result<()> {
        refuse()
    }

    fn event_create(&self, _: Ordinal, _: Handle, _: bool) -> Result<()> {
        refuse()
    }

    fn event_destroy(&self, _: Handle) -> Result<()> {
        refuse()
    }

    fn event_record(&self, _: Handle, _: Handle) -> Result<()> {
        refuse()
    }

    fn event_elapsed(&self, _: Handle, _: Handle) -> Result<f32> {
        refuse()
    }

    fn synchronize(&self, _: Target, done: Done) {
        done(refuse());
    }

    fn query(&self, _: Target) -> Result<bool> {
        refuse()
    }

    fn host_func(&self, _: Handle, _: u64) -> Result<()> {
        refuse()
    }

    fn host_func_done(&self, _: u64) -> Result<()> {
        refuse()
    }

    fn invalidate_shared(&self) -> Result<()> {
        refuse()
    }

    fn collect_shared_writes(&self, _: &mut dyn FnMut(u64, &[u8])) {}

    fn set_limit(&self, _: Ordinal, _: Limit, _: u64) -> Result<()> {
        refuse()
    }

    fn reset(&self, _: Ordinal) -> Result<()> {
        refuse()
    }

    fn counters(&self) -> Counters {
        Counters::default()
    }
}
