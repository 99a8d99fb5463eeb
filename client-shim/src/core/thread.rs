//! What each thread of the program has of its own: the selected device, the stack of contexts, and a place to wait.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use super::context::Context;
use super::error::{Code, Result};
use rgpu_device::Ordinal;

thread_local! {
    static SELECTED: Cell<Ordinal> = const { Cell::new(0) };
    static STACK: RefCell<Vec<Arc<Context>>> = const { RefCell::new(Vec::new()) };
}

/// The device that `cudaSetDevice` chose last (0 at first).
pub fn selected() -> Ordinal {
    SELECTED.try_with(Cell::get).unwrap_or(0)
}

/// Chooses the device whose primary context the runtime uses where no context is current.
pub fn select(ordinal: Ordinal) {
    let _ = SELECTED.try_with(|selected| selected.set(ordinal));
}

/// The context on top of the thread's stack.
pub fn top() -> Option<Arc<Context>> {
    STACK.try_with(|stack| stack.borrow().last().cloned()).ok().flatten()
}

/// Runs `f` with the context on top of the thread's stack, without touching its reference count.
pub fn with_top<T>(f: impl FnOnce(Option<&Arc<Context>>) -> T) -> Result<T> {
    STACK.try_with(|stack| f(stack.borrow().last())).map_err(|_| Code::Deinitialized.into())
}

/// Whether it is the context on top of the thread's stack.
#[inline]
pub fn is_top(context: &Arc<Context>) -> bool {
    let is = |stack: &RefCell<Vec<Arc<Context>>>| {
        stack.try_borrow().is_ok_and(|s| s.last().is_some_and(|top| Arc::ptr_eq(top, context)))
    };
    STACK.try_with(is).unwrap_or(false)
}

/// Puts a context on the stack.
pub fn push(context: Arc<Context>) {
    let _ = STACK.try_with(|stack| stack.borrow_mut().push(context));
}

/// Takes the top context off the stack.
pub fn pop() -> Option<Arc<Context>> {
    STACK.try_with(|stack| stack.borrow_mut().pop()).ok().flatten()
}

/// Replaces the top of the stack; `None` removes it.
pub fn replace_top(context: Option<Arc<Context>>) {
    let _ = STACK.try_with(|stack| {
        let mut stack = stack.borrow_mut();
        stack.pop();
        stack.extend(context);
    });
}

/// The ordinal that the thread is working on, as far as it is known without creating anything.
pub fn ordinal_hint() -> Ordinal {
    with_top(|top| top.map(|context| context.ordinal)).ok().flatten().unwrap_or_else(selected)
}
