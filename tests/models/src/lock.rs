//! Locks that loom watches, with the few methods of `parking_lot`'s that the models' files use.
//!
//! loom's own take no part in the order of other accesses, and their `try_lock` is tried in one order alone. These are made of
//! a word, as `parking_lot`'s are: it is taken by an acquiring and given up by a releasing instruction, which are no fences, and a
//! `try_lock` that fails only looks.

use std::ops::{Deref, DerefMut};

use loom::cell::{MutPtr, UnsafeCell};
use loom::sync::atomic::AtomicBool;
use loom::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// A lock and what it guards.
#[derive(Debug)]
pub struct Mutex<T> {
    taken: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: one thread at a time has the lock, and with it the value; loom tells where that is not so.
unsafe impl<T: Send> Sync for Mutex<T> {}

/// The right to what a lock guards.
#[derive(Debug)]
pub struct MutexGuard<'a, T> {
    lock: &'a Mutex<T>,
    value: Option<MutPtr<T>>,
}

impl<T: Default> Default for Mutex<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> Mutex<T> {
    /// A lock that nobody has.
    pub fn new(value: T) -> Self {
        Self { taken: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// Waits for the lock.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        loop {
            match self.try_lock() {
                Some(guard) => return guard,
                None => loom::thread::yield_now(),
            }
        }
    }

    /// Takes the lock if nobody has it.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        if self.taken.load(Relaxed) || self.taken.compare_exchange(false, true, Acquire, Relaxed).is_err() {
            return None;
        }
        Some(MutexGuard { lock: self, value: Some(self.value.get_mut()) })
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: who has the guard has the lock.
        unsafe { self.value.as_ref().expect("it is there until it is dropped").deref() }
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: who has the guard has the lock.
        unsafe { self.value.as_ref().expect("it is there until it is dropped").deref() }
    }
}

impl<T> Drop for MutexGuard<'_, T> {
    fn drop(&mut self) {
        self.value = None;
        self.lock.taken.swap(false, Release);
    }
}
