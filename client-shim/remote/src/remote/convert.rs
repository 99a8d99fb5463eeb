//! Between the device's types and the wire's.

use rgpu_device as device;
use rgpu_protocol::{calls as wire, frame, hello, same_fields};

pub(super) fn region(r: device::Region) -> wire::Region {
    same_fields!(Region, r => wire::Region)
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
    same_fields!(Range, r => device::Range)
}

pub(super) fn wire_range(r: device::Range) -> hello::Range {
    same_fields!(Range, r => hello::Range)
}

pub(super) fn plan(p: &hello::AddressPlan) -> device::AddressPlan {
    device::AddressPlan {
        whole: range(&p.whole),
        devices: p.devices.iter().map(range).collect(),
        shared: range(&p.shared),
    }
}

pub(super) fn device_info(d: hello::DeviceInfo) -> device::DeviceInfo {
    same_fields!(DeviceInfo, d => device::DeviceInfo)
}

pub(super) fn module_info(m: wire::ModuleInfo) -> device::ModuleInfo {
    let param = |(offset, size)| device::ParamInfo { offset, size };
    let function = |mut f: wire::FunctionInfo| {
        let params = std::mem::take(&mut f.params).into_iter().map(param).collect();
        same_fields!(FunctionInfo, f => device::FunctionInfo, params: params, cluster: Default::default(), refusal: None)
    };
    let global = |g: wire::GlobalInfo| {
        let kind = device::GlobalKind::from_number(g.kind).unwrap_or_default();
        same_fields!(GlobalInfo, g => device::GlobalInfo, kind: kind)
    };
    device::ModuleInfo {
        functions: m.functions.into_iter().map(function).collect(),
        globals: m.globals.into_iter().map(global).collect(),
    }
}

pub(super) fn mem_op(op: &rgpu_device::MemOp) -> rgpu_protocol::calls::MemOp {
    rgpu_protocol::calls::MemOp { kind: op.number(), flags: op.flags(), addr: op.addr, value: op.value() }
}
