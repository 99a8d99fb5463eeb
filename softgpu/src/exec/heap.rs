//! The heap behind the kernels' `malloc` and `free`.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;
use rgpu_device::{Code, Error, Range, Result};

use super::arena::Arena;

/// What CUDA's heap is large by default.
const DEFAULT_LIMIT: u64 = 8 << 20;
const ALIGN: u64 = 16;

#[derive(Default)]
struct HeapState {
    limit: u64,
    /// How much of the range is mapped, which is all that is handed out.
    open: u64,
    /// Free pieces by offset; neighbours are always merged.
    free: BTreeMap<u64, u64>,
    /// Texts that were asked for, and where they are.
    texts: HashMap<&'static str, u64>,
    /// Pieces in use by offset: their size, and how much of it was asked for.
    used: BTreeMap<u64, (u64, u64)>,
}

/// One device's heap. The bookkeeping is out of the kernels' reach.
pub(super) struct Heap {
    arena: Arc<Arena>,
    range: Range,
    state: Mutex<HeapState>,
}

impl Heap {
    /// An empty heap in a part of the arena.
    pub(super) fn new(arena: Arc<Arena>, range: Range) -> Self {
        Self { arena, range, state: Mutex::new(HeapState { limit: DEFAULT_LIMIT, ..HeapState::default() }) }
    }

    /// Sets its size. A heap that is in use keeps what it has.
    pub(super) fn set_limit(&self, bytes: u64) -> Result<()> {
        if bytes > self.range.size {
            return Err(Error::new(
                Code::InvalidValue,
                format!("A kernel heap of {bytes} bytes is more than the device has"),
            ));
        }
        self.state.lock().limit = bytes;
        Ok(())
    }

    /// Allocates; 0 when there is no room.
    pub(super) fn malloc(&self, bytes: u64) -> u64 {
        let Some(size) = bytes.max(1).checked_next_multiple_of(ALIGN) else { return 0 };
        let mut state = self.state.lock();
        if state.open < state.limit {
            let open = state.limit & !4095;
            let part = Range { base: self.range.base + state.open, size: open - state.open };
            if part.size > 0 {
                if self.arena.map_plain(part).is_err() {
                    return 0;
                }
                let offset = state.open;
                state.open = open;
                give(&mut state.free, offset, part.size);
            }
        }
        let Some((&offset, &room)) = state.free.iter().find(|(_, room)| **room >= size) else { return 0 };
        state.free.remove(&offset);
        if room > size {
            state.free.insert(offset + size, room - size);
        }
        state.used.insert(offset, (size, bytes));
        self.range.base + offset
    }

    /// Its size.
    pub(super) fn limit(&self) -> u64 {
        self.state.lock().limit
    }

    /// Where a text is, which `write` puts there with a zero behind it when it is first asked for; 0 when there is no room.
    pub(super) fn text(&self, text: &'static str, write: impl FnOnce(u64, &[u8]) -> bool) -> u64 {
        if let Some(&address) = self.state.lock().texts.get(text) {
            return address;
        }
        let mut bytes = text.as_bytes().to_vec();
        bytes.push(0);
        let address = self.malloc(bytes.len() as u64);
        if address == 0 || !write(address, &bytes) {
            return 0;
        }
        *self.state.lock().texts.entry(text).or_insert(address)
    }

    /// Frees what `malloc` returned; anything else is ignored, and false is returned.
    pub(super) fn free(&self, addr: u64) -> bool {
        let mut state = self.state.lock();
        let Some(offset) = addr.checked_sub(self.range.base) else { return false };
        let Some((size, _)) = state.used.remove(&offset) else { return false };
        give(&mut state.free, offset, size);
        true
    }

    /// Whether so many bytes lie in a piece that is in use.
    pub(super) fn contains(&self, addr: u64, len: u64) -> bool {
        let Some(at) = addr.checked_sub(self.range.base) else { return false };
        let state = self.state.lock();
        let found = state.used.range(..=at).next_back();
        found.is_some_and(|(&offset, &(_, asked))| at - offset <= asked && len <= asked - (at - offset))
    }

    /// Forgets everything.
    pub(super) fn reset(&self) {
        let mut state = self.state.lock();
        if state.open > 0 {
            self.arena.unmap(Range { base: self.range.base, size: state.open });
        }
        *state = HeapState { limit: DEFAULT_LIMIT, ..HeapState::default() };
    }
}

fn give(free: &mut BTreeMap<u64, u64>, mut offset: u64, mut size: u64) {
    if let Some(next) = free.remove(&(offset + size)) {
        size += next;
    }
    if let Some((&before, &room)) = free.range(..offset).next_back()
        && before + room == offset
    {
        offset = before;
        size += room;
    }
    free.insert(offset, size);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_merged_again() {
        let proposal = Range { base: 0x2100_0000_0000, size: 1 << 42 };
        let arena = Arc::new(Arena::reserve(proposal, 1, 1 << 20, 1).unwrap());
        let heap = Heap::new(arena.clone(), arena.heaps[0]);
        heap.set_limit(1 << 16).unwrap();
        let pieces: Vec<u64> = (0..64).map(|_| heap.malloc(1000)).collect();
        assert!(pieces.iter().all(|&p| p != 0 && p % ALIGN == 0));
        assert_eq!(heap.malloc(4096), 0, "full");
        for &p in pieces.iter().step_by(2).chain(pieces.iter().skip(1).step_by(2)) {
            assert!(heap.free(p));
        }
        assert!(!heap.free(pieces[0]) && !heap.free(1));
        assert_eq!(heap.malloc(1 << 16), arena.heaps[0].base);
        assert!(heap.set_limit(u64::MAX).is_err());
    }
}
