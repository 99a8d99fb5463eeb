//! What need not be asked, or not sent: streams that are [quiet](crate::remote::quiet), and device memory that lies
//! [in this process](crate::remote::direct) too.

use super::Link;
use crate::remote::direct::DirectMemory;
use crate::remote::errors::Errors;
use crate::remote::outgoing::Out;
use rgpu_device::{FIRST_STREAM, Handle, Ordinal, Region, RegionCursor, Result, Target};

/// The device that a stream belongs to that has no other.
fn alone(errors: &Errors, stream: Handle) -> Option<Ordinal> {
    let ordinal = (stream < FIRST_STREAM).then_some(stream as Ordinal)?;
    errors.has_no_streams(ordinal).then_some(ordinal)
}

impl Link {
    /// An answer has said that a target has done all the work that there was.
    pub(in crate::remote) fn is_done(&self, target: Target, work: u64) {
        let mut out = self.out.lock();
        if out.work() != work {
            return;
        }
        out.quiet.note(work, target);
        if let Target::Stream(stream) = target
            && let Some(ordinal) = alone(&self.errors, stream)
        {
            out.quiet.note(work, Target::Device(ordinal));
        }
    }

    fn is_quiet_now(&self, out: &Out, target: Target) -> bool {
        let work = out.work();
        out.quiet.is(work, target)
            || matches!(target, Target::Stream(stream) if self.errors.ordinal_of(stream).is_some_and(
                |ordinal| out.quiet.is(work, Target::Device(ordinal))
            ))
    }

    /// Whether a target is known to have done everything, and nothing else is to be learned by asking.
    pub(in crate::remote) fn is_quiet(&self, target: Target) -> bool {
        !self.is_over() && !self.needs_attention() && self.is_quiet_now(&self.out.lock(), target)
    }

    /// Copies from memory of a device that lies in this process, if its stream is quiet. False where it is not, or where
    /// device and host may disagree about memory that both have.
    ///
    /// # Safety
    /// Both are one run of the same length. The one is readable, the other writable.
    pub(in crate::remote) unsafe fn copy_quietly(&self, stream: Handle, to: Region, from: Region) -> bool {
        if self.is_over() {
            return false;
        }
        // Nobody can put anything on the stream meanwhile.
        let out = self.out.lock();
        if !self.is_quiet_now(&out, Target::Stream(stream)) || !self.shared_writes.lock().is_empty() {
            return false;
        }
        // SAFETY: as the caller promises. They may overlap where the program says so.
        unsafe { std::ptr::copy(from.addr as *const u8, to.addr as *mut u8, from.width as usize) };
        true
    }

    /// Copies to the first region from the second when the stream has got there. With `now`, only if nothing is to be waited
    /// for; false where there was, or where device and host disagree about mirrored memory, and nothing was copied. With
    /// `mirrored`, what is written is the host's copy of such memory, which the device is told to look at anew before the
    /// stream goes on.
    ///
    /// # Safety
    /// The one is writable, the other readable.
    pub(in crate::remote) unsafe fn copy_directly(
        &self,
        memory: &DirectMemory,
        stream: Handle,
        (to, from): (Region, Region),
        now: bool,
        mirrored: bool,
    ) -> Result<bool> {
        let id = memory.id();
        if !self.hold(stream, id, now)? {
            return Ok(false);
        }
        let held = Held { link: self, id };
        if !self.shared_writes.lock().is_empty() {
            return Ok(false);
        }
        let (mut source, mut target) = (RegionCursor::new(from), RegionCursor::new(to));
        while let (Some((src, src_run)), Some((dst, dst_run))) = (source.run(), target.run()) {
            let run = src_run.min(dst_run);
            // SAFETY: as the caller promises. They may overlap where the program says so.
            unsafe { std::ptr::copy(src as *const u8, dst as *mut u8, run as usize) };
            source.advance(run);
            target.advance(run);
        }
        if mirrored {
            self.invalidate_shared()?;
        }
        drop(held);
        Ok(true)
    }
}

/// A stream that waits for us. Goes on when dropped.
struct Held<'a> {
    link: &'a Link,
    id: u64,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        // Failing means that the session is over.
        let _ = self.link.release(self.id).and_then(|()| self.link.flush());
    }
}
