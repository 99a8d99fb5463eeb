//! Images of modules that the server may still ask for.

use super::Link;
use crate::remote::outgoing::Urgent;
use rgpu_device::Handle;

impl Link {
    /// Whatever was begun before the call that was answered is known to have an image.
    pub(in crate::remote) fn images_confirmed(&self, sequence: u64) {
        for _ in 0..self.images.confirmed(sequence) {
            self.attention_ends();
        }
    }

    /// Sends an image that the server wants. False where there is none.
    pub(in crate::remote) fn send_image(&self, module: Handle) -> bool {
        let Some(image) = self.images.take(module) else { return false };
        self.attention_ends();
        self.answer(Urgent::Image(module, image));
        true
    }
}
