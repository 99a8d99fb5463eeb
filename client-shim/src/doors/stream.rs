//! Attributes of streams, which are hints: they only need to be remembered.

use std::collections::HashMap;
use std::ffi::c_uint;

use parking_lot::Mutex;
use rgpu_device::Handle;

use crate::abi::types::{AttributeValue, launch_attribute as id};
use crate::abi::{In, Out};
use crate::core::error::invalid;
use crate::core::{Result, Stream};

/// What was set, by stream and attribute.
static ATTRIBUTES: Mutex<Option<HashMap<(Handle, c_uint), AttributeValue>>> = Mutex::new(None);

/// Whether an attribute of this number can be set for a stream.
fn check(attribute: c_uint) -> Result<()> {
    match attribute {
        id::ACCESS_POLICY_WINDOW
        | id::SYNCHRONIZATION_POLICY
        | id::PRIORITY
        | id::MEM_SYNC_DOMAIN_MAP
        | id::MEM_SYNC_DOMAIN
        | id::NVLINK_SCHEDULING => Ok(()),
        _ => Err(invalid(format!("streams have no attribute {attribute}"))),
    }
}

/// `cudaStreamGetAttribute`
pub(crate) fn get_attribute(stream: &Stream, attribute: c_uint, value: Out<AttributeValue>) -> Result<()> {
    check(attribute)?;
    let stored = ATTRIBUTES.lock().as_ref().and_then(|all| all.get(&(stream.handle, attribute)).copied());
    let default = match attribute {
        id::PRIORITY => u64::from(stream.priority as u32),
        // CU_SYNC_POLICY_AUTO.
        id::SYNCHRONIZATION_POLICY => 1,
        id::MEM_SYNC_DOMAIN_MAP => DEFAULT_DOMAIN_MAP,
        _ => 0,
    };
    value.set(stored.unwrap_or([default, 0, 0, 0, 0, 0, 0, 0]))
}

/// Domain 0 for what is local, 1 for what is remote.
pub(crate) const DEFAULT_DOMAIN_MAP: u64 = 0x0100;

/// `cudaStreamSetAttribute`
pub(crate) fn set_attribute(stream: &Stream, attribute: c_uint, value: In<AttributeValue>) -> Result<()> {
    check(attribute)?;
    let value = value.get()?;
    ATTRIBUTES.lock().get_or_insert_default().insert((stream.handle, attribute), value);
    Ok(())
}

/// `cudaStreamCopyAttributes`
pub(crate) fn copy_attributes(to: &Stream, from: &Stream) {
    let mut all = ATTRIBUTES.lock();
    let all = all.get_or_insert_default();
    let of_the_source = all.iter().filter(|(key, _)| key.0 == from.handle);
    let copied: Vec<_> = of_the_source.map(|(key, value)| ((to.handle, key.1), *value)).collect();
    all.extend(copied);
}

/// The stream is being destroyed.
pub(crate) fn forget_attributes(stream: &Stream) {
    if let Some(all) = ATTRIBUTES.lock().as_mut() {
        all.retain(|key, _| key.0 != stream.handle);
    }
}
