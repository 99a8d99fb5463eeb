//! Windows: memory of all ranks that operations may reach directly. Registering it is a hint to operations, whose results are the same without;
//! so a window here says where its memory is, and nothing else. What writes into other ranks' windows is refused.

use std::sync::LazyLock;

use super::comm;
use super::memory;
use super::status::{Out, Result, invalid, nccl};
use crate::core::registry::Registry;

/// A window of a communicator's.
struct Window {
    /// The communicator.
    comm: usize,
    /// Where the memory begins.
    addr: usize,
}

static WINDOWS: LazyLock<Registry<Window>> = LazyLock::new(|| Registry::new("NCCL window"));

/// The memory of a communicator's window.
fn memory_of(comm: usize, raw: usize) -> Result<usize> {
    match WINDOWS.get(raw) {
        Ok(window) if window.comm == comm => Ok(window.addr),
        _ => invalid("The communicator has no such window"),
    }
}

nccl! {
    fn ncclCommWindowRegister(comm: usize, addr: usize, bytes: usize, out: Out<usize>, flags: i32) {
        out.check()?;
        let of = comm::get(comm)?;
        of.check()?;
        if !(0..=3).contains(&flags) {
            return invalid(format!("There is no window with the flags {flags:#x}"));
        }
        memory::check(&of, "The window's memory", addr, bytes as u64)?;
        let mut raw = 0;
        WINDOWS.insert(|handle| {
            raw = handle;
            Window { comm, addr }
        });
        out.set(raw)
    }

    fn ncclCommWindowDeregister(comm: usize, raw: usize) {
        comm::get(comm)?;
        // No window is what NCCL gives where registering does nothing, so giving that back is no error.
        if raw == 0 {
            return Ok(());
        }
        memory_of(comm, raw)?;
        WINDOWS.remove(raw).map(drop).or_else(|_| invalid("The communicator has no such window"))
    }

    fn ncclWinGetUserPtr(comm: usize, raw: usize, out: Out<usize>) {
        comm::get(comm)?;
        out.set(memory_of(comm, raw)?)
    }
}
