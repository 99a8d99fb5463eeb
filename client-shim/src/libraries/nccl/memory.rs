//! Memory that programs ask NCCL for. It is a device's like all other.

use super::comm::Comm;
use super::status::{Out, Result, invalid, nccl};
use crate::core::{PointerKind, current};

/// Fails where an operation of this communicator cannot use so many bytes there.
pub(super) fn check(comm: &Comm, what: &str, addr: usize, bytes: u64) -> Result<()> {
    if bytes == 0 {
        return Ok(());
    }
    let addr = addr as u64;
    if addr == 0 {
        return invalid(format!("{what} is null"));
    }
    if addr.checked_add(bytes).is_none() {
        return invalid(format!("{bytes} bytes at {addr:#x} are more than there are addresses"));
    }
    let info = current()?.pointer_info(addr);
    match info.kind {
        PointerKind::Unregistered => {
            invalid(format!("{what} ({addr:#x}) is ordinary host memory, not the device's"))
        }
        PointerKind::Device if info.ordinal != comm.context.ordinal => invalid(format!(
            "{what} ({addr:#x}) is memory of device {}, the communicator's is {}",
            info.ordinal, comm.context.ordinal
        )),
        _ => Ok(()),
    }
}

nccl! {
    fn ncclMemAlloc(out: Out<usize>, bytes: usize) {
        out.check()?;
        let core = current()?;
        let context = core.runtime_context()?;
        out.set(core.alloc(&context, bytes as u64)? as usize)
    }

    fn ncclMemFree(addr: usize) {
        Ok(current()?.free(addr as u64)?)
    }
}
