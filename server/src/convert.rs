//! Between the device's types and the wire's.

use rgpu_device as device;
use rgpu_protocol::calls::{self as wire, Call};
use rgpu_protocol::{frame, hello, same_fields};

pub(crate) fn region(r: &wire::Region) -> device::Region {
    same_fields!(Region, r => device::Region)
}

pub(crate) fn mem_op(op: &wire::MemOp) -> device::Result<device::MemOp> {
    device::MemOp::new(op.kind, op.addr, op.value, op.flags)
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
    same_fields!(Range, r => hello::Range)
}

pub(crate) fn plan(p: &device::AddressPlan) -> hello::AddressPlan {
    hello::AddressPlan {
        whole: range(&p.whole),
        devices: p.devices.iter().map(range).collect(),
        shared: range(&p.shared),
    }
}

pub(crate) fn device_info(d: device::DeviceInfo) -> hello::DeviceInfo {
    same_fields!(DeviceInfo, d => hello::DeviceInfo)
}

pub(crate) fn described(d: hello::DeviceInfo) -> device::DeviceInfo {
    same_fields!(DeviceInfo, d => device::DeviceInfo)
}

/// What a client is told of a module. One that speaks `minor` and may ask for refusals is told that there are some.
pub(crate) fn module_info(m: device::ModuleInfo, minor: u16) -> wire::ModuleInfo {
    let function = |mut f: device::FunctionInfo| {
        let params = std::mem::take(&mut f.params).into_iter().map(|p| (p.offset, p.size)).collect();
        if f.refusal.is_some() && minor >= wire::RefusalsAsk::SINCE {
            f.max_threads = 0;
        }
        same_fields!(FunctionInfo, f => wire::FunctionInfo, params: params)
    };
    let global = |g: device::GlobalInfo| {
        let kind = g.kind as u32;
        same_fields!(GlobalInfo, g => wire::GlobalInfo, kind: kind)
    };
    wire::ModuleInfo {
        functions: m.functions.into_iter().map(function).collect(),
        globals: m.globals.into_iter().map(global).collect(),
    }
}
