//! What each thread of the program has of its own: the selected device, the stack of contexts, and a place to wait.

use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::sync::Arc;

use super::context::Context;
use super::error::{Code, Result};
use rgpu_device::Ordinal;

thread_local! {
    /// What `cudaSetDevice` chose: each thread has its own, by CUDA's rules.
    static SELECTED: Cell<Ordinal> = const { Cell::new(0) };
    /// The contexts that are current, one above the other: each thread has its own stack, by CUDA's rules.
    static STACK: RefCell<Vec<Arc<Context>>> = const { RefCell::new(Vec::new()) };
}

/// What `<<<>>>` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Configuration {
    /// Blocks in x, y, z.
    pub grid: [u32; 3],
    /// Threads of a block in x, y, z.
    pub block: [u32; 3],
    /// Dynamic shared memory in bytes.
    pub shared_bytes: usize,
    /// The stream's handle.
    pub stream: usize,
}

impl Configuration {
    const NONE: Self = Self { grid: [0; 3], block: [0; 3], shared_bytes: 0, stream: 0 };
}

/// So many configurations have their places; more than one at a time is rare.
pub(crate) const NESTED: usize = 4;

/// What every launch looks at. It has no destructor, so that getting at it takes no more than its address.
pub(crate) struct Hot {
    /// How many configurations of launches there are whose arguments are still being evaluated.
    pub depth: Cell<usize>,
    /// The first of them.
    pub places: [Cell<Configuration>; NESTED],
    /// The context on top of the stack. To be compared, not followed.
    pub top: Cell<*const Context>,
    /// The launches that [`super::relaunch`] remembers.
    pub recent: Cell<*const c_void>,
}

thread_local! {
    /// The calling thread's recent launches; see [`Hot`].
    pub static HOT: Hot = const {
        Hot {
            depth: Cell::new(0),
            places: [const { Cell::new(Configuration::NONE) }; NESTED],
            top: Cell::new(std::ptr::null()),
            recent: Cell::new(std::ptr::null()),
        }
    };
}

/// The device that `cudaSetDevice` chose last (0 at first).
pub(crate) fn selected() -> Ordinal {
    SELECTED.try_with(Cell::get).unwrap_or(0)
}

/// Chooses the device whose primary context the runtime uses where no context is current.
pub(crate) fn select(ordinal: Ordinal) {
    let _ = SELECTED.try_with(|selected| selected.set(ordinal));
}

/// The context on top of the thread's stack.
pub(crate) fn top() -> Option<Arc<Context>> {
    STACK.try_with(|stack| stack.borrow().last().cloned()).ok().flatten()
}

/// Runs `f` with the context on top of the thread's stack, without touching its reference count.
pub(crate) fn with_top<T>(f: impl FnOnce(Option<&Arc<Context>>) -> T) -> Result<T> {
    STACK.try_with(|stack| f(stack.borrow().last())).map_err(|_| Code::Deinitialized.into())
}

/// Notes what is on top of the stack now.
fn note_top(stack: &[Arc<Context>]) {
    let top = stack.last().map_or(std::ptr::null(), Arc::as_ptr);
    let _ = HOT.try_with(|hot| hot.top.set(top));
}

/// Puts a context on the stack.
pub(crate) fn push(context: Arc<Context>) {
    let _ = STACK.try_with(|stack| {
        let mut stack = stack.borrow_mut();
        stack.push(context);
        note_top(&stack);
    });
}

/// Takes the top context off the stack.
pub(crate) fn pop() -> Option<Arc<Context>> {
    let popped = STACK.try_with(|stack| {
        let mut stack = stack.borrow_mut();
        let popped = stack.pop();
        note_top(&stack);
        popped
    });
    popped.ok().flatten()
}

/// Replaces the top of the stack; `None` removes it.
pub(crate) fn replace_top(context: Option<Arc<Context>>) {
    let _ = STACK.try_with(|stack| {
        let mut stack = stack.borrow_mut();
        stack.pop();
        stack.extend(context);
        note_top(&stack);
    });
}

/// The ordinal that the thread is working on, as far as it is known without creating anything.
pub(crate) fn ordinal_hint() -> Ordinal {
    with_top(|top| top.map(|context| context.ordinal)).ok().flatten().unwrap_or_else(selected)
}
