//! Models of what threads and processes do at the same time. [loom](https://docs.rs/loom) executes each in all orders that
//! the memory model allows, up to a number of preemptions; `cargo xtask loom` runs them, and `docs/models.md` says what they
//! show and what not.
//!
//! The models are of the product's own files, which are compiled into this crate once more: `#[path]` leads to them. What they
//! take from their crates' `words` modules comes from here then: words whose accesses loom watches, and sizes of which
//! a model can see the end.

#![cfg(feature = "models")]

// The client's credit takes its locks from a crate of this name: here they are loom's.
extern crate self as parking_lot;

mod device_spec;
mod ledger_models;
mod lock;
mod remote;
mod shm;
mod word;
mod words;

#[allow(dead_code, unreachable_pub, missing_docs)]
#[path = "../../../server/src/budget.rs"]
mod budget;
#[allow(dead_code, unreachable_pub, unused_imports, missing_docs)]
#[path = "../../../server/src/ledger/mod.rs"]
mod ledger;

pub use ledger_models::*;
pub use lock::{Mutex, MutexGuard};
pub use remote::*;
pub use shm::*;

/// Executes a model in all orders with at most so many preemptions.
fn explore(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let model = std::sync::Arc::new(model);
    let executions = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    word::explore(|| {
        let (model, executions) = (model.clone(), executions.clone());
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(preemptions);
        builder.max_branches = 10_000;
        builder.check(move || {
            executions.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            word::begin();
            model();
        });
    });
    println!("{} executions", executions.load(std::sync::atomic::Ordering::Relaxed));
}
