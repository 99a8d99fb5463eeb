//! What the device is told of the program's memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::Mutex;
use rgpu_device::{Device, Done, MemoryNote, Region, Target};

use super::super::SoftGpu;

impl SoftGpu {
    /// The program's memory changes. What is freed may be used by what is still enqueued: it is free, and `done` is called, afterwards.
    pub(in super::super) fn take_note(&self, note: MemoryNote, done: Done) {
        if let (Some(profiler), MemoryNote::End) = (self.shared.profiler.clone(), &note) {
            return self.after_all(move || {
                profiler.end();
                done(Ok(()));
            });
        }
        let Some(checker) = self.shared.checker.clone() else { return done(Ok(())) };
        match note {
            MemoryNote::Allocated { range, device } => {
                let backed = || {
                    let mut state = self.shared.lock();
                    let memory = state.memory.as_mut();
                    memory.is_some_and(|memory| memory.place(Region::linear(range.base, range.size)).is_ok())
                };
                checker.allocated(range, device, backed);
                done(Ok(()));
            }
            MemoryNote::Freed { base, stream } => {
                let Some(number) = checker.number(base) else { return done(Ok(())) };
                match stream {
                    Some(stream) => {
                        let free = Box::new(move |_| checker.free_later(base, number));
                        self.synchronize(Target::Stream(stream), free);
                        done(Ok(()));
                    }
                    None => self.after_all(move || {
                        checker.free_later(base, number);
                        done(Ok(()));
                    }),
                }
            }
            MemoryNote::BadFree { address } => {
                checker.freed_wrongly(address);
                done(Ok(()));
            }
            MemoryNote::End => self.after_all(move || {
                checker.end();
                done(Ok(()));
            }),
        }
    }

    /// Calls something when all devices have done what was enqueued before. Their errors are told by other calls.
    fn after_all(&self, then: impl FnOnce() + Send + 'static) {
        let devices = self.shared.config.devices;
        let left = Arc::new((AtomicU32::new(devices), Mutex::new(Some(then))));
        for ordinal in 0..devices {
            let left = left.clone();
            let ended = Box::new(move |_| {
                if left.0.fetch_sub(1, Ordering::AcqRel) == 1 {
                    let then = left.1.lock().take();
                    if let Some(then) = then {
                        then();
                    }
                }
            });
            self.synchronize(Target::Device(ordinal), ended);
        }
    }
}
