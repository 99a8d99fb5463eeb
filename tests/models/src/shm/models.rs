//! Models of the ring of bytes in shared memory, and of going to sleep over it.

use std::io::IoSlice;
use std::sync::Arc;

use loom::sync::atomic::Ordering::SeqCst;
use loom::sync::{Condvar, Mutex};
use loom::thread;

use super::ring::{INDEX_BYTES, READER, Ring, look_after_word};
use super::words::{AtomicU32, Byte, CAPACITY};
use crate::explore;

/// The memory of a ring's indices, which is the same in all executions.
struct Memory(Vec<u128>);

impl Memory {
    fn new() -> Arc<Self> {
        Arc::new(Self(vec![0; (INDEX_BYTES + 128) / 16]))
    }
}

/// What two processes share.
struct Shared {
    indices: Arc<Memory>,
    bytes: Vec<Byte>,
    /// What the system keeps of those who sleep on a word.
    asleep: Mutex<()>,
    woken: Condvar,
    futex: AtomicU32,
}

// SAFETY: the indices are atomics, and the bytes are what is to be watched.
unsafe impl Sync for Shared {}
// SAFETY: likewise.
unsafe impl Send for Shared {}

impl Shared {
    fn new(indices: &Arc<Memory>) -> Arc<Self> {
        Arc::new(Self {
            indices: indices.clone(),
            bytes: (0..CAPACITY).map(|_| Byte::new(0)).collect(),
            asleep: Mutex::new(()),
            woken: Condvar::new(),
            futex: AtomicU32::new(0),
        })
    }

    /// One side's view.
    fn ring(&self) -> Ring {
        let base = self.indices.0.as_ptr().cast::<u8>();
        // SAFETY: large enough, aligned, and dropped after the threads have ended. The bytes are cells.
        unsafe { Ring::new(base.add(base.align_offset(128)).cast_mut(), self.bytes.as_ptr().cast_mut()) }
    }

    /// As the system does it: whether to sleep is decided while nobody can wake.
    fn sleep(&self, seen: u32) {
        let guard = self.asleep.lock().expect("a model that panics is over");
        if self.futex.load(SeqCst) == seen {
            // Nothing else wakes: where a wake-up is lost, loom finds a deadlock.
            drop(self.woken.wait(guard));
        }
    }

    fn wake(&self) {
        self.futex.fetch_add(1, SeqCst);
        drop(self.asleep.lock());
        self.woken.notify_all();
    }

    /// Sleeps until a look finds something, as the product's `Shm::sleep` does.
    fn sleep_until(&self, leave: impl Fn(), look: impl Fn() -> bool) {
        while !look() {
            let seen = self.futex.load(SeqCst);
            if look_after_word(&leave, &look) {
                return;
            }
            self.sleep(seen);
        }
    }
}

fn write(ring: &Ring, bytes: &[u8], publish: impl FnMut()) -> usize {
    ring.write(&[IoSlice::new(bytes)], publish).expect("the indices are right")
}

fn read(ring: &Ring, to: &mut [u8]) -> usize {
    // SAFETY: the destination is ours and as long as we say.
    unsafe { ring.read(to.as_mut_ptr(), to.len()) }.expect("the indices are right")
}

/// Three bytes go through a ring of two: they come out as they went in, and no byte is written while it is read.
pub fn bytes_come_out_as_they_went_in() {
    let memory = Memory::new();
    explore(4, move || {
        let shared = Shared::new(&memory);
        let sender = shared.clone();
        let writer = thread::spawn(move || {
            let ring = sender.ring();
            let (bytes, mut sent) = ([1, 2, 3], 0);
            while sent < bytes.len() {
                match write(&ring, &bytes[sent..], || {}) {
                    0 => thread::yield_now(),
                    n => sent += n,
                }
            }
        });
        let ring = shared.ring();
        let (mut got, mut count) = ([0; 3], 0);
        while count < got.len() {
            match read(&ring, &mut got[count..]) {
                0 => thread::yield_now(),
                n => count += n,
            }
        }
        writer.join().expect("it does not panic");
        assert_eq!(got, [1, 2, 3]);
    });
}

/// A reader goes to sleep while something is written: it is woken, or does not sleep.
pub fn a_reader_that_sleeps_is_woken() {
    let memory = Memory::new();
    explore(4, move || {
        let shared = Shared::new(&memory);
        let sender = shared.clone();
        let writer = thread::spawn(move || {
            let ring = sender.ring();
            write(&ring, &[7], || {
                if ring.take_readers() & READER != 0 {
                    sender.wake();
                }
            });
        });
        let ring = shared.ring();
        let there = || ring.available().expect("the indices are right") > 0;
        shared.sleep_until(|| ring.leave_reader(READER), there);
        let mut got = [0];
        assert_eq!((read(&ring, &mut got), got), (1, [7]));
        writer.join().expect("it does not panic");
    });
}

/// A writer goes to sleep over a full ring while that is read: it is woken, or does not sleep.
pub fn a_writer_that_sleeps_is_woken() {
    let memory = Memory::new();
    explore(4, move || {
        let shared = Shared::new(&memory);
        let receiver = shared.clone();
        let full = shared.ring();
        assert_eq!(write(&full, &[1, 2], || {}), CAPACITY);
        let reader = thread::spawn(move || {
            let ring = receiver.ring();
            let mut got = [0; 2];
            assert_eq!(read(&ring, &mut got), 2);
            if ring.take_writer() {
                receiver.wake();
            }
            got
        });
        let room = || full.room().expect("the indices are right") > 0;
        shared.sleep_until(|| full.leave_writer(), room);
        assert!(write(&full, &[3], || {}) == 1);
        assert_eq!(reader.join().expect("it does not panic"), [1, 2]);
    });
}
