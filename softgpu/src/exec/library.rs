//! Operations of mathematical libraries, carried out in stream order by the workers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use rgpu_device::{Code, Error, Ordinal, Range, Region, Result};

use super::check::Checker;
use super::contained::contained;
use super::memory::Memory;
use super::mirror::Mirror;
use super::shared::Shared;
use super::stream::Key;
use crate::library::{Operand, Plan};

/// An operation all of whose operands are the application's.
pub(super) struct LibraryWork {
    plan: Plan,
    /// Whether an operand is mirrored memory, which must not be touched directly.
    mirrored: Vec<bool>,
}

impl LibraryWork {
    /// Checks the operands. Memory that is not the application's is what it is for a kernel: [`Code::IllegalAddress`].
    pub(super) fn new(plan: Plan, memory: &Memory) -> Result<Self> {
        let mirrored = |operand: &Operand| {
            let region = Region::linear(operand.addr, operand.bytes);
            memory.place(region).map(|place| place.mirrored).map_err(|error| {
                Error::new(Code::IllegalAddress, format!("An operation of a library: {}", error.message))
            })
        };
        let mirrored = plan.operands.iter().map(mirrored).collect::<Result<_>>()?;
        Ok(Self { plan, mirrored })
    }
}

/// An operation that is being carried out.
pub(super) struct Running {
    work: LibraryWork,
    /// The stream that waits for it.
    pub(super) key: Key,
    /// The device ordinal it runs on.
    pub(super) ordinal: Ordinal,
    /// The first byte of each operand.
    pointers: Vec<*mut u8>,
    /// Copies of mirrored operands, in words so that any element is aligned.
    _copies: Vec<Vec<u128>>,
    pieces: usize,
    next: AtomicUsize,
    finished: AtomicUsize,
    error: Mutex<Option<Error>>,
}

// SAFETY: the pointers are to device memory, or to copies that live as long as they do. What may be done with either at the same time
// by several threads is the computation's to know.
unsafe impl Send for Running {}
// SAFETY: as above.
unsafe impl Sync for Running {}

impl Running {
    /// Begins an operation: mirrored operands are fetched.
    pub(super) fn begin(
        work: LibraryWork,
        (key, ordinal): (Key, Ordinal),
        mirror: &Mirror,
        threads: usize,
        checker: Option<&Checker>,
    ) -> Result<Arc<Self>> {
        let mut pointers = Vec::with_capacity(work.mirrored.len());
        let mut copies = Vec::new();
        for (operand, &mirrored) in work.plan.operands.iter().zip(&work.mirrored) {
            if !mirrored {
                pointers.push(operand.addr as *mut u8);
                continue;
            }
            let length = usize::try_from(operand.bytes).unwrap_or(usize::MAX);
            let mut copy: Vec<u128> = Vec::new();
            copy.try_reserve_exact(length.div_ceil(16)).map_err(|_| {
                let what = format!("No memory for a copy of {length} mirrored bytes");
                Error::new(Code::OutOfMemory, what)
            })?;
            copy.resize(length.div_ceil(16), 0);
            let at = copy.as_mut_ptr().cast::<u8>();
            // SAFETY: the buffer is that long, and our own.
            mirror.read(operand.addr, unsafe { std::slice::from_raw_parts_mut(at, length) })?;
            pointers.push(at);
            copies.push(copy);
        }
        if let Some(checker) = checker {
            let written = work.plan.operands.iter().filter(|operand| operand.written);
            written.for_each(|o| checker.written(Range { base: o.addr, size: o.bytes }));
        }
        let pieces = work.plan.computation.pieces(threads).max(1);
        let (next, finished) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Ok(Arc::new(Self {
            work,
            key,
            ordinal,
            pointers,
            _copies: copies,
            pieces,
            next,
            finished,
            error: Mutex::new(None),
        }))
    }

    /// How many pieces nobody has begun, roughly.
    pub(super) fn remaining(&self) -> usize {
        self.pieces.saturating_sub(self.next.load(Ordering::Relaxed))
    }

    /// Whether it is worth calling others for.
    pub(super) fn is_shared(&self) -> bool {
        self.pieces > 1
    }

    /// Does a piece that nobody has begun. `None` where there is none; else whether it was the last to end.
    pub(super) fn work(&self) -> Option<bool> {
        let piece = self.next.fetch_add(1, Ordering::Relaxed);
        if piece >= self.pieces {
            return None;
        }
        if self.error.lock().is_none() {
            let computation = &*self.work.plan.computation;
            // SAFETY: device memory was checked, and stays mapped until the work that was enqueued before its release is done;
            // copies are as long as their operands.
            let done = contained(|| unsafe { computation.run(&self.pointers, piece, self.pieces) });
            if let Err(error) = done {
                self.error.lock().get_or_insert(error);
            }
        }
        Some(self.finished.fetch_add(1, Ordering::AcqRel) + 1 == self.pieces)
    }

    /// After the last piece: mirrored operands go back. What is to be done next, if anything.
    pub(super) fn end(&self, mirror: &Mirror) -> Result<Option<Plan>> {
        if let Some(error) = self.error.lock().take() {
            return Err(error);
        }
        let operands = self.work.plan.operands.iter().zip(&self.work.mirrored).zip(&self.pointers);
        for ((operand, &mirrored), &at) in operands {
            if mirrored && operand.written {
                // SAFETY: the copy is as long as the operand, and nobody computes with it any more.
                let bytes = unsafe { std::slice::from_raw_parts(at, operand.bytes as usize) };
                mirror.write(operand.addr, bytes)?;
            }
        }
        // SAFETY: as in `work`.
        contained(|| unsafe { self.work.plan.computation.then(&self.pointers) })
    }
}

impl Shared {
    /// Begins an operation whose turn it is: its pieces can be picked from now on, and are the caller's to do.
    pub(super) fn begin_library(self: &Arc<Self>, key: Key, work: LibraryWork) -> Option<Arc<Running>> {
        let ordinal = {
            let mut state = self.lock();
            state.computation_begins();
            state.streams.ordinal_of_key(key)
        };
        self.begin_or_end(work, (key, ordinal))
    }

    /// All pieces of an operation are done: it ends, or another one takes its place, whose pieces are the caller's to do.
    pub(super) fn library_done(self: &Arc<Self>, running: &Arc<Running>) -> Option<Arc<Running>> {
        self.lock().computing.retain(|other| !Arc::ptr_eq(other, running));
        let at = (running.key, running.ordinal);
        let next = self.runtime().and_then(|runtime| running.end(&runtime.mirror)).and_then(|plan| {
            let Some(plan) = plan else { return Ok(None) };
            match &self.lock().memory {
                Some(memory) => LibraryWork::new(plan, memory).map(Some),
                None => Err(Error::from(Code::NotInitialized)),
            }
        });
        match next {
            Ok(Some(work)) => self.begin_or_end(work, at),
            Ok(None) => self.library_ended(at, Ok(())),
            Err(error) => self.library_ended(at, Err(error)),
        }
    }

    fn begin_or_end(self: &Arc<Self>, work: LibraryWork, at: (Key, Ordinal)) -> Option<Arc<Running>> {
        let checker = self.checker.as_deref();
        let begun = self
            .runtime()
            .and_then(|runtime| Running::begin(work, at, &runtime.mirror, self.workers, checker));
        match begun {
            Ok(running) => {
                if running.is_shared() {
                    let mut state = self.lock();
                    state.computing.push(running.clone());
                    self.call_workers(&mut state);
                }
                Some(running)
            }
            Err(error) => self.library_ended(at, Err(error)),
        }
    }

    fn library_ended(
        self: &Arc<Self>,
        (key, ordinal): (Key, Ordinal),
        result: Result<()>,
    ) -> Option<Arc<Running>> {
        self.lock().computation_ends(result.is_ok());
        if let (Ok(()), Some(governor)) = (&result, &self.governor) {
            governor.launched(ordinal);
        }
        self.complete(key, result, None, false);
        None
    }
}
