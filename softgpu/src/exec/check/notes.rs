//! What the device is told of the program's memory.

use rgpu_device::{Device, MemoryNote, Target};

use super::super::SoftGpu;

impl SoftGpu {
    /// The program's memory changes. Where what is still enqueued may use it, this waits.
    pub(in super::super) fn take_note(&self, note: MemoryNote) {
        let Some(checker) = &self.shared.checker else { return };
        match note {
            MemoryNote::Freed { stream: None, .. } => {
                self.wait_for_all();
                checker.note(note);
            }
            MemoryNote::Freed { base, stream: Some(stream) } => {
                let Some(number) = checker.number(base) else { return };
                let checker = checker.clone();
                self.synchronize(Target::Stream(stream), Box::new(move |_| checker.free_later(base, number)));
            }
            MemoryNote::End => {
                self.wait_for_all();
                checker.note(note);
            }
            note => checker.note(note),
        }
    }

    fn wait_for_all(&self) {
        for ordinal in 0..self.shared.config.devices {
            // An error of the device is told by other calls.
            let _ = self.synchronize_blocking(Target::Device(ordinal));
        }
    }
}
