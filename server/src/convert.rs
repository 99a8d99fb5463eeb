//! Between the device's types and the wire's.

use rgpu_device as device;
use rgpu_protocol::{calls as wire, frame, hello};

pub(crate) fn region(r: &wire::Region) -> device::Region {
    let &wire::Region { addr, row_pitch, slice_pitch, width, height, depth } = r;
    device::Region { addr, row_pitch, slice_pitch, width, height, depth }
}

pub(crate) fn target(t: &wire::Target) -> device::Result<device::Target> {
    match t.kind {
        wire::Target::DEVICE => match u32::try_from(t.id) {
            Ok(ordinal) => Ok(device::Target::Device(ordinal)),
            Err(_) => Err(device::Error::new(device::Code::InvalidDevice, "There is no such device")),
        },
        wire::Target::STREAM => Ok(device::Target::Stream(t.id)),
        wire::Target::EVENT => Ok(device::Target::Event(t.id)),
        kind => {
            let text = format!("A target of kind {kind} does not exist");
            Err(device::Error::new(device::Code::InvalidValue, text))
        }
    }
}

pub(crate) fn failure(e: &device::Error, ordinal: u32) -> frame::Failure {
    frame::Failure::new(e.code as u32, ordinal, &e.message)
}

pub(crate) fn range(r: &device::Range) -> hello::Range {
    hello::Range { base: r.base, size: r.size }
}

pub(crate) fn plan(p: &device::AddressPlan) -> hello::AddressPlan {
    hello::AddressPlan {
        whole: range(&p.whole),
        devices: p.devices.iter().map(range).collect(),
        shared: range(&p.shared),
    }
}

pub(crate) fn device_info(d: device::DeviceInfo) -> hello::DeviceInfo {
    hello::DeviceInfo {
        name: d.name,
        uuid: d.uuid,
        total_memory: d.total_memory,
        compute_capability: d.compute_capability,
        driver_version: d.driver_version,
        accepts_ptx: d.accepts_ptx,
        accepts_cubin: d.accepts_cubin,
        attributes: d.attributes,
    }
}

pub(crate) fn module_info(m: device::ModuleInfo) -> wire::ModuleInfo {
    let function = |f: device::FunctionInfo| wire::FunctionInfo {
        name: f.name,
        params: f.params.into_iter().map(|p| (p.offset, p.size)).collect(),
        max_threads: f.max_threads,
        registers: f.registers,
        static_shared: f.static_shared,
        local_bytes: f.local_bytes,
        const_bytes: f.const_bytes,
        ptx_version: f.ptx_version,
        binary_version: f.binary_version,
        required_block: f.required_block,
    };
    let global = |g: device::GlobalInfo| wire::GlobalInfo {
        name: g.name,
        addr: g.addr,
        size: g.size,
        kind: g.kind as u32,
    };
    wire::ModuleInfo {
        functions: m.functions.into_iter().map(function).collect(),
        globals: m.globals.into_iter().map(global).collect(),
    }
}
