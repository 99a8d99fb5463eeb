//! Between the device's types and the wire's.

use rgpu_device as device;
use rgpu_protocol::{calls as wire, frame, hello};

pub(super) fn region(r: device::Region) -> wire::Region {
    let device::Region { addr, row_pitch, slice_pitch, width, height, depth } = r;
    wire::Region { addr, row_pitch, slice_pitch, width, height, depth }
}

pub(super) fn target(t: device::Target) -> wire::Target {
    match t {
        device::Target::Device(o) => wire::Target { kind: wire::Target::DEVICE, id: o.into() },
        device::Target::Stream(h) => wire::Target { kind: wire::Target::STREAM, id: h },
        device::Target::Event(h) => wire::Target { kind: wire::Target::EVENT, id: h },
    }
}

pub(super) fn error(f: &frame::Failure) -> device::Error {
    device::Error::new(device::Code::from_number(f.code), f.message.clone())
}

pub(super) fn range(r: &hello::Range) -> device::Range {
    device::Range { base: r.base, size: r.size }
}

pub(super) fn wire_range(r: device::Range) -> hello::Range {
    hello::Range { base: r.base, size: r.size }
}

pub(super) fn plan(p: &hello::AddressPlan) -> device::AddressPlan {
    device::AddressPlan {
        whole: range(&p.whole),
        devices: p.devices.iter().map(range).collect(),
        shared: range(&p.shared),
    }
}

pub(super) fn device_info(d: hello::DeviceInfo) -> device::DeviceInfo {
    device::DeviceInfo {
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

pub(super) fn module_info(m: wire::ModuleInfo) -> device::ModuleInfo {
    let function = |f: wire::FunctionInfo| device::FunctionInfo {
        name: f.name,
        params: f.params.into_iter().map(|(offset, size)| device::ParamInfo { offset, size }).collect(),
        max_threads: f.max_threads,
        registers: f.registers,
        static_shared: f.static_shared,
        local_bytes: f.local_bytes,
        const_bytes: f.const_bytes,
        ptx_version: f.ptx_version,
        binary_version: f.binary_version,
        required_block: f.required_block,
    };
    let global = |g: wire::GlobalInfo| device::GlobalInfo {
        name: g.name,
        addr: g.addr,
        size: g.size,
        kind: match g.kind {
            1 => device::GlobalKind::Constant,
            2 => device::GlobalKind::Managed,
            _ => device::GlobalKind::Global,
        },
    };
    device::ModuleInfo {
        functions: m.functions.into_iter().map(function).collect(),
        globals: m.globals.into_iter().map(global).collect(),
    }
}
