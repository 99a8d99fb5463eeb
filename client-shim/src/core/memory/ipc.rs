//! Device memory that other processes open: `cuIpcGetMemHandle`, `cuIpcOpenMemHandle` and `cuIpcCloseMemHandle`.
//!
//! What is shared are whole pages. An allocation that shares a slab with others takes its neighbours on the same pages along, as CUDA
//! says that it may.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use rgpu_device::{MemoryToken, Ordinal, Range};

use super::super::context::Context;
use super::super::device_heap::Backing;
use super::super::error::{Code, Error, Result, invalid};
use super::super::registry::Raw;
use super::super::shared::PAGE;
use super::Memory;
use super::map::{Allocation, AllocationKind};

/// `CUipcMemHandle`, and `cudaIpcMemHandle_t`.
pub(crate) type HandleBytes = [u8; 64];

/// What a handle begins with.
const MAGIC: [u8; 8] = *b"rgpuIPC1";

/// What a handle says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct MemHandle {
    token: MemoryToken,
    /// Bytes of the pages.
    span: u64,
    /// Where in them the allocation begins.
    offset: u64,
    /// Bytes of the allocation.
    size: u64,
}

impl MemHandle {
    fn to_bytes(self) -> HandleBytes {
        let mut bytes = [0; 64];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..40].copy_from_slice(&self.token.0);
        let words = [self.span, self.offset, self.size];
        bytes[40..]
            .chunks_exact_mut(8)
            .zip(words)
            .for_each(|(at, word)| at.copy_from_slice(&word.to_le_bytes()));
        bytes
    }

    fn parse(bytes: &HandleBytes) -> Result<Self> {
        let word = |from: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[from + i]));
        let (span, offset, size) = (word(40), word(48), word(56));
        let fits = offset < PAGE && size > 0 && offset.checked_add(size).is_some_and(|end| end <= span);
        if bytes[..8] != MAGIC || !fits || !span.is_multiple_of(PAGE) {
            return Err(invalid("This is no handle of another process's memory"));
        }
        let token = MemoryToken(std::array::from_fn(|i| bytes[8 + i]));
        Ok(Self { token, span, offset, size })
    }
}

/// Memory of another process that is open here.
#[derive(Debug, Clone, Copy)]
struct Opened {
    /// Where the program has it.
    addr: u64,
    /// The number of the allocation there.
    id: u64,
    /// How many times it was opened.
    times: u64,
}

/// What is shared with other processes.
#[derive(Default)]
pub(crate) struct Shared {
    /// What other processes may open, by the allocation's start.
    exported: Mutex<HashMap<u64, (Ordinal, MemHandle)>>,
    /// How many there are in `exported`, to be looked at without its lock.
    count: AtomicUsize,
    /// What is open here, by token and context.
    opened: Mutex<HashMap<(MemoryToken, Raw), Opened>>,
}

impl Memory {
    /// `cuIpcGetMemHandle`: a handle by which other processes open the allocation that an address lies in. The same allocation has
    /// the same handle every time.
    pub(crate) fn ipc_export(&self, addr: u64) -> Result<HandleBytes> {
        let no_allocation = || invalid(format!("{addr:#x} was not allocated on a device"));
        let found = self.map.find(addr).ok_or_else(no_allocation)?;
        if !matches!(found.kind, AllocationKind::Device(_)) {
            return Err(no_allocation());
        }
        let mut exported = self.ipc.exported.lock();
        if let Some((_, handle)) = exported.get(&found.base) {
            return Ok(handle.to_bytes());
        }
        let page = found.base & !(PAGE - 1);
        let span = (found.base + found.size).next_multiple_of(PAGE) - page;
        let lent = self.devices.device().export_memory(found.ordinal, Range { base: page, size: span });
        let token = self.devices.note(found.ordinal, lent)?;
        let handle = MemHandle { token, span, offset: found.base - page, size: found.size };
        exported.insert(found.base, (found.ordinal, handle));
        self.ipc.count.store(exported.len(), Ordering::Release);
        Ok(handle.to_bytes())
    }

    /// The allocation at `base` is being freed: nobody opens it any more.
    pub(super) fn ipc_withdraw(&self, base: u64) -> Result<()> {
        if self.ipc.count.load(Ordering::Acquire) == 0 {
            return Ok(());
        }
        let mut exported = self.ipc.exported.lock();
        let gone = exported.remove(&base);
        self.ipc.count.store(exported.len(), Ordering::Release);
        drop(exported);
        let Some((ordinal, handle)) = gone else { return Ok(()) };
        self.devices.note(ordinal, self.devices.device().withdraw_memory(&handle.token))
    }

    /// Nothing of a device is there any more.
    pub(super) fn ipc_forget(&self, ordinal: Ordinal) {
        let mut exported = self.ipc.exported.lock();
        exported.retain(|_, (owner, handle)| {
            let gone = *owner == ordinal;
            if gone {
                // The device was reset; whatever it says of this is not the program's business.
                let _ = self.devices.device().withdraw_memory(&handle.token);
            }
            !gone
        });
        self.ipc.count.store(exported.len(), Ordering::Release);
    }

    /// `cuIpcOpenMemHandle`: makes another process's memory accessible to the context's device. Opened again, it is at the same
    /// address, and has to be closed as many times.
    pub(crate) fn ipc_open(&self, context: &Context, bytes: &HandleBytes) -> Result<u64> {
        let handle = MemHandle::parse(bytes)?;
        if self.ipc.exported.lock().values().any(|(_, own)| own.token == handle.token) {
            let text = "This process's own memory cannot be opened by its handle: use the address";
            return Err(Error::new(Code::InvalidContext, text));
        }
        let mut opened = self.ipc.opened.lock();
        let key = (handle.token, context.raw);
        if let Some(open) = opened.get_mut(&key) {
            if self.map.find(open.addr).is_some_and(|a| a.id == open.id) {
                open.times += 1;
                return Ok(open.addr);
            }
            opened.remove(&key);
        }
        let ordinal = context.ordinal;
        let exhausted = || Error::new(Code::OutOfMemory, "The device's address range is exhausted");
        let page = self.devices.heap(ordinal).take_addresses(handle.span).ok_or_else(exhausted)?;
        let place = Range { base: page, size: handle.span };
        let imported = self.devices.device().import_memory(ordinal, place, &handle.token);
        if let Err(error) = self.devices.note(ordinal, imported) {
            self.devices.heap(ordinal).return_addresses(page, handle.span);
            return Err(error);
        }
        let (addr, id) = (page + handle.offset, self.map.new_id());
        self.add(Allocation {
            base: addr,
            size: handle.size,
            kept: handle.span,
            kind: AllocationKind::Imported,
            ordinal,
            context: context.raw,
            id,
            flags: 0,
        });
        opened.insert(key, Opened { addr, id, times: 1 });
        Ok(addr)
    }

    /// `cuIpcCloseMemHandle`.
    pub(crate) fn ipc_close(&self, addr: u64) -> Result<()> {
        let mut opened = self.ipc.opened.lock();
        let found = self.map.find(addr).filter(|a| a.kind == AllocationKind::Imported && a.base == addr);
        let key = found.and_then(|a| opened.iter().find(|(_, open)| open.id == a.id).map(|(key, _)| *key));
        let (Some(allocation), Some(key)) = (found, key) else {
            return Err(invalid(format!("{addr:#x} is no memory of another process that is open")));
        };
        if let Some(open) = opened.get_mut(&key) {
            open.times -= 1;
            if open.times > 0 {
                return Ok(());
            }
        }
        opened.remove(&key);
        match self.map.remove_if(addr, |a| a.id == allocation.id) {
            Some(allocation) => self.release(&allocation, None),
            None => Ok(()),
        }
    }

    /// Takes the pages of an imported allocation away, once the device has done what uses them.
    pub(super) fn release_imported(&self, a: &Allocation) -> Result<()> {
        let page = a.base & !(PAGE - 1);
        let until = self.devices.enqueued(a.ordinal);
        self.devices.note(a.ordinal, self.devices.device().mem_free(a.ordinal, page, None))?;
        self.devices.heap(a.ordinal).freed(page, a.kept, Backing::Own, until, None);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_come_back_and_garbage_is_none() {
        let handle = MemHandle { token: MemoryToken([7; 32]), span: 8192, offset: 512, size: 5000 };
        assert_eq!(MemHandle::parse(&handle.to_bytes()), Ok(handle));
        let bad = |change: fn(&mut MemHandle)| {
            let mut other = handle;
            change(&mut other);
            MemHandle::parse(&other.to_bytes()).unwrap_err().code
        };
        assert_eq!(bad(|h| h.span = 5000), Code::InvalidValue);
        assert_eq!(bad(|h| h.offset = 4096), Code::InvalidValue);
        assert_eq!(bad(|h| h.size = 8000), Code::InvalidValue);
        assert_eq!(bad(|h| h.size = 0), Code::InvalidValue);
        assert_eq!(bad(|h| h.size = u64::MAX), Code::InvalidValue);
        assert!(MemHandle::parse(&[0; 64]).is_err() && MemHandle::parse(&[0xff; 64]).is_err());
    }
}
