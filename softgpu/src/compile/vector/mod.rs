//! The second tier: a kernel for [`LANES`] consecutive threads at a time, as LLVM's vector code.
//!
//! It is made of what the first tier was made of, after that was verified: each instruction of Cranelift's does for each lane what it
//! did for a thread, so that each lane's addresses are the confined ones. No arithmetic is changed on the way. A kernel in which
//! something is not translated stays in the first tier, and so does every kernel where the machine has no libLLVM.
//!
//! `flow` orders the blocks, `shape` finds out what is the same in all lanes and where lanes may be apart, `translate`, `compute` and
//! `effects` write LLVM's text, and `llvm` has the machine's libLLVM compile it.

mod compute;
mod effects;
mod flow;
mod llvm;
mod shape;
mod translate;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use cranelift_codegen::ir;

use crate::abi::{RunFn, Vectors};

/// Threads at a time.
pub(crate) const LANES: usize = 8;

/// The environment variable that says when kernels are compiled for vectors of threads.
pub const VARIABLE: &str = "RGPU_VECTORS";

/// Whether this process cannot open libraries.
static CLOSED: AtomicBool = AtomicBool::new(false);

/// From now on no kernel is compiled for vectors of threads: a confined process cannot open a library.
pub(crate) fn close() {
    CLOSED.store(true, Ordering::Relaxed);
}

/// Whether kernels are compiled for vectors of threads, when they are first launched.
pub(super) fn wanted() -> bool {
    static WANTED: OnceLock<bool> = OnceLock::new();
    if CLOSED.load(Ordering::Relaxed) {
        return false;
    }
    *WANTED.get_or_init(|| std::env::var(VARIABLE).is_ok_and(|value| value == "first") && possible().is_ok())
}

/// Whether what LLVM is given and makes, and why a kernel stays in the first tier, is shown: for who works on this.
const SHOWS: bool = false;

/// Says what keeps a kernel in the first tier, for who works on it.
pub(super) fn say(kernel: &str, why: &str) {
    if SHOWS {
        eprintln!("{kernel} stays in the first tier: {why}");
    }
}

/// Whether this machine can run such code, and why not.
pub fn possible() -> Result<(), String> {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma") {
        return llvm::available();
    }
    Err("the processor has no vectors of 256 bits".into())
}

static KERNELS: AtomicU64 = AtomicU64::new(0);

/// How many kernels this process has compiled for vectors of threads.
pub fn kernels() -> u64 {
    KERNELS.load(Ordering::Relaxed)
}

/// Compiles a verified kernel, whose threads have so many bytes of state, for vectors of threads, or says what keeps it in the first tier.
pub(super) fn compile(func: &ir::Function, state_bytes: u32) -> Result<Vectors, String> {
    if SHOWS {
        eprintln!("{}", func.display());
    }
    let flow = flow::Flow::new(func)?;
    let shapes = shape::Shapes::new(func, &flow, state_bytes)?;
    let text = translate::Translator::translate(func, &flow, &shapes, &llvm::processor()?)?;
    if SHOWS {
        eprintln!("{text}");
    }
    let compiled = llvm::compile(&text)?;
    // SAFETY: the translator gives the function the signature of `RunFn`.
    let run = unsafe { std::mem::transmute::<usize, RunFn>(compiled.address) };
    KERNELS.fetch_add(1, Ordering::Relaxed);
    Ok(Vectors { run, lanes: LANES, code: std::sync::Arc::new(compiled) })
}
