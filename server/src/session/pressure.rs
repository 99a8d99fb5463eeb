//! Back-pressure: how much undone work is taken in.

use parking_lot::{Condvar, Mutex};
use rgpu_device::{Device, Handle, Target};
use rgpu_protocol::numbers::NumberMap;
use std::sync::Arc;

/// More undone calls than this, and reading stops. Clients do not let it come to that.
const MAX_CALLS: u64 = 36 << 10;
const _: () = assert!(rgpu_protocol::SESSION_CALLS + 4 * PARCEL_CALLS <= MAX_CALLS);
/// More undone bulk bytes than this, and reading stops. Clients do not let it come to that.
const MAX_BYTES: u64 = 64 << 20;
const _: () = assert!(rgpu_protocol::BULK_WINDOW + 4 * PARCEL_BYTES <= MAX_BYTES);
/// A stream's work is accounted for in parcels of so many calls …
const PARCEL_CALLS: u64 = 256;
/// … or bytes.
const PARCEL_BYTES: u64 = 4 << 20;

#[derive(Default)]
struct Undone {
    calls: u64,
    bytes: u64,
    /// Host functions and fetches that the client has not answered: work may be waiting for those, so
    /// reading must go on.
    unanswered: u64,
    over: bool,
}

/// Counts undone work. Shared by the reader and the device's threads.
#[derive(Default)]
pub(super) struct Pressure {
    undone: Mutex<Undone>,
    changed: Condvar,
}

impl Pressure {
    /// The client owes an answer.
    pub(super) fn unanswered(&self) {
        self.undone.lock().unanswered += 1;
        self.changed.notify_all();
    }

    /// The client has given one.
    pub(super) fn answered(&self) {
        let mut undone = self.undone.lock();
        undone.unanswered = undone.unanswered.saturating_sub(1);
    }

    /// The session is over; nobody waits any more.
    pub(super) fn end(&self) {
        self.undone.lock().over = true;
        self.changed.notify_all();
    }
}

/// The reader's side of it.
#[derive(Default)]
pub(super) struct Intake {
    pressure: Arc<Pressure>,
    /// Work of each stream that has not been put into a parcel.
    loose: NumberMap<Handle, (u64, u64)>,
}

impl Intake {
    pub(super) fn new(pressure: Arc<Pressure>) -> Self {
        Self { pressure, loose: NumberMap::default() }
    }

    /// A call that carries `bytes` was put on a stream. Waits while there is too much undone.
    pub(super) fn took(&mut self, device: &Arc<dyn Device>, stream: Handle, bytes: u64) {
        let loose = self.loose.entry(stream).or_default();
        loose.0 += 1;
        loose.1 += bytes;
        if loose.0 < PARCEL_CALLS && loose.1 < PARCEL_BYTES {
            return;
        }
        self.close(device, stream, || {});
        self.wait();
    }

    fn wait(&self) {
        let mut undone = self.pressure.undone.lock();
        while (undone.calls > MAX_CALLS || undone.bytes > MAX_BYTES) && undone.unanswered == 0 && !undone.over
        {
            self.pressure.changed.wait(&mut undone);
        }
    }

    /// Calls `then` when all is over that was put on the stream before. The parcel ends here, so that none has calls from
    /// before a mark of the client's and from behind it, and the client's count is never smaller than this one. Waits while
    /// there is too much undone: marks are calls, too.
    pub(super) fn mark(
        &mut self,
        device: &Arc<dyn Device>,
        stream: Handle,
        then: impl FnOnce() + Send + 'static,
    ) {
        if let Some(loose) = self.loose.get_mut(&stream) {
            loose.0 += 1;
        }
        self.close(device, stream, then);
        self.wait();
    }

    fn close(&mut self, device: &Arc<dyn Device>, stream: Handle, then: impl FnOnce() + Send + 'static) {
        let (calls, bytes) = self.loose.get_mut(&stream).map(std::mem::take).unwrap_or_default();
        {
            let mut undone = self.pressure.undone.lock();
            undone.calls += calls;
            undone.bytes += bytes;
        }
        let pressure = self.pressure.clone();
        let done = move |_| {
            {
                let mut undone = pressure.undone.lock();
                undone.calls -= calls;
                undone.bytes -= bytes;
                pressure.changed.notify_all();
            }
            then();
        };
        device.synchronize(Target::Stream(stream), Box::new(done));
    }

    /// A stream is about to be destroyed. What it has to do still counts.
    pub(super) fn forget(&mut self, device: &Arc<dyn Device>, stream: Handle) {
        if self.loose.get(&stream).is_some_and(|loose| *loose != (0, 0)) {
            self.close(device, stream, || {});
        }
        self.loose.remove(&stream);
    }
}
