//! How much memory a decoder takes: one that believes a length before the bytes are there takes more than it was given.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
    static MOST: Cell<isize> = const { Cell::new(0) };
}

/// The system's allocator, which counts what each thread holds.
#[derive(Debug)]
pub struct Counting;

fn count(bytes: isize) {
    // A thread that ends is no longer counted.
    let _ = HELD.try_with(|held| {
        held.set(held.get() + bytes);
        let _ = MOST.try_with(|most| most.set(most.get().max(held.get())));
    });
}

// SAFETY: it is the system's allocator; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: passed on.
        unsafe { System.alloc(layout) }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: passed on.
        unsafe { System.alloc_zeroed(layout) }
    }
    unsafe fn dealloc(&self, address: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: passed on.
        unsafe { System.dealloc(address, layout) }
    }
    unsafe fn realloc(&self, address: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size as isize - layout.size() as isize);
        // SAFETY: passed on.
        unsafe { System.realloc(address, layout, size) }
    }
}

/// What this thread holds more at a time while `body` runs, in bytes.
pub fn most_held<T>(body: impl FnOnce() -> T) -> (T, usize) {
    let before = HELD.get();
    MOST.set(before);
    let result = body();
    (result, usize::try_from(MOST.get() - before).unwrap_or(0))
}
