//! Atomics that loom watches, for memory that begins as zeros, and is used again in the next execution.
//!
//! loom's own have to be made, anew in each execution and before the threads that share them, and cannot be mapped. One of
//! these that lies in zeroed memory is noted when it is first touched; then all executions begin again, and from then on each of them
//! begins by making it.
//!
//! loom takes accesses of sequential consistency for acquiring and releasing ones alone. With [`consistent`] words a store, or a
//! change, is followed by a fence where it is to be consistent, as compilers for x86-64 do it; so it shows where such a store is
//! weakened, and not where such a load is. [`fenced`] words are as loom has them.

use std::cell::{Cell, RefCell, UnsafeCell};
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use loom::sync::atomic::Ordering::{self, SeqCst};

/// A word in zeroed memory, and what makes it.
struct Noted {
    word: *const (),
    make: fn(*const ()),
}

thread_local! {
    /// Of the model that this thread of the system explores, whose threads are all its own.
    static NOTED: RefCell<Vec<Noted>> = const { RefCell::new(Vec::new()) };
    /// Whether a word has been noted since executions began, so that they have to begin again.
    static INCOMPLETE: Cell<bool> = const { Cell::new(false) };
}

/// Explores a model, from the beginning whenever it has touched a word that was not known.
pub(crate) fn explore(check: impl Fn()) {
    NOTED.take();
    loop {
        INCOMPLETE.set(false);
        match catch_unwind(AssertUnwindSafe(&check)) {
            Ok(()) => return,
            Err(_) if INCOMPLETE.get() => {}
            Err(why) => resume_unwind(why),
        }
    }
}

/// An execution begins: all words in zeroed memory are 0.
pub(crate) fn begin() {
    NOTED.with_borrow(|noted| noted.iter().for_each(|noted| (noted.make)(noted.word)));
}

/// A word: what loom knows it by, or null in zeroed memory that nobody has touched.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Word<V, A, K> {
    made: UnsafeCell<*mut A>,
    kind: PhantomData<(V, K)>,
}

// SAFETY: all of loom's threads of an execution run on one thread of the system, in turns that end only at accesses of loom's
// own atomics; so nobody else is inside `get` meanwhile. Executions of different tests share no words.
unsafe impl<V, A, K> Sync for Word<V, A, K> {}
// SAFETY: likewise.
unsafe impl<V, A, K> Send for Word<V, A, K> {}

impl<V, A, K> Word<V, A, K> {
    fn of(atomic: A) -> Self {
        Self { made: UnsafeCell::new(Box::into_raw(Box::new(atomic))), kind: PhantomData }
    }

    /// loom's atomic in this execution. What other executions had is left behind: it belongs to what loom has thrown away.
    fn get(&self, make: fn(*const ())) -> &A {
        // SAFETY: see above; the place is null or leads to a box that is never given back.
        if let Some(atomic) = unsafe { (*self.made.get()).as_ref() } {
            return atomic;
        }
        let word = std::ptr::from_ref(self).cast();
        NOTED.with_borrow_mut(|noted| noted.push(Noted { word, make }));
        INCOMPLETE.set(true);
        resume_unwind(Box::new("a word that was not known"));
    }
}

/// What follows a change of a word.
fn fence_after(order: Ordering) {
    if order == SeqCst {
        loom::sync::atomic::fence(SeqCst);
    }
}

/// For words whose users put fences themselves where they need them.
fn nothing_after(_: Ordering) {}

macro_rules! words {
    ($after:ident, $($name:ident: $value:ty),*) => {$(
        pub(crate) type $name = super::Word<$value, loom::sync::atomic::$name, Kind>;

        #[allow(dead_code)]
        impl $name {
            pub(crate) fn new(initial: $value) -> Self {
                Self::of(loom::sync::atomic::$name::new(initial))
            }

            /// Makes a word that was noted.
            fn make(word: *const ()) {
                // SAFETY: it was noted as a word of this type, in memory that is mapped until the model was explored; and no
                // thread but this one is there yet.
                unsafe { *(*word.cast::<Self>()).made.get() = Self::new(Default::default()).made.into_inner() };
            }

            fn word(&self) -> &loom::sync::atomic::$name {
                self.get(Self::make)
            }

            pub(crate) fn load(&self, order: Ordering) -> $value {
                self.word().load(if order == SeqCst { Ordering::Acquire } else { order })
            }

            pub(crate) fn store(&self, value: $value, order: Ordering) {
                self.word().store(value, if order == SeqCst { Ordering::Release } else { order });
                $after(order);
            }

            pub(crate) fn swap(&self, value: $value, order: Ordering) -> $value {
                let before = self.word().swap(value, order);
                $after(order);
                before
            }
        }
    )*};
}

macro_rules! numbers {
    ($after:ident, $($name:ident: $value:ty),*) => {
        words!($after, $($name: $value),*);
        $(
            impl Default for $name {
                fn default() -> Self {
                    Self::new(0)
                }
            }

            #[allow(dead_code)]
            impl $name {
                numbers!(@change $after, $value, fetch_add, fetch_sub, fetch_or, fetch_max);

                pub(crate) fn compare_exchange(
                    &self,
                    current: $value,
                    new: $value,
                    success: Ordering,
                    failure: Ordering,
                ) -> Result<$value, $value> {
                    let result = self.word().compare_exchange(current, new, success, failure);
                    $after(success);
                    result
                }

                pub(crate) fn fetch_update(
                    &self,
                    set: Ordering,
                    fetch: Ordering,
                    change: impl FnMut($value) -> Option<$value>,
                ) -> Result<$value, $value> {
                    let result = self.word().fetch_update(set, fetch, change);
                    $after(set);
                    result
                }
            }
        )*
    };
    (@change $after:ident, $value:ty, $($what:ident),*) => {$(
        pub(crate) fn $what(&self, value: $value, order: Ordering) -> $value {
            let before = self.word().$what(value, order);
            $after(order);
            before
        }
    )*};
}

/// Words that rely on sequentially consistent accesses.
pub(crate) mod consistent {
    use super::{Ordering, SeqCst, fence_after};

    /// Tells these words from the others.
    #[derive(Debug)]
    pub(crate) struct Kind;

    numbers!(fence_after, AtomicU8: u8, AtomicU32: u32, AtomicU64: u64);
    words!(fence_after, AtomicBool: bool);
}

/// Words that rely on fences.
pub(crate) mod fenced {
    use super::{Ordering, SeqCst, nothing_after};

    /// Tells these words from the others.
    #[derive(Debug)]
    pub(crate) struct Kind;

    numbers!(nothing_after, AtomicU32: u32, AtomicU64: u64);
}
