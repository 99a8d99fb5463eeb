//! Handles and parameters.

use std::sync::LazyLock;

use parking_lot::Mutex;
use rgpu_libraries::Arguments;

use super::CUSOLVER;
use crate::core::registry::Registry;
use crate::libraries::math::{Out, Queue, Result, home, invalid, math, property};

/// What a handle stands for.
#[derive(Debug, Clone, Copy)]
struct Handle {
    stream: usize,
    /// `cusolverDeterministicMode_t`.
    determinism: u32,
    /// `cusolverMathMode_t`.
    math: u32,
}

static HANDLES: LazyLock<Registry<Mutex<Handle>>> = LazyLock::new(|| Registry::new("cuSOLVER handle"));
/// Parameters of any kind: what they say is how something is computed, not what.
static PARAMETERS: LazyLock<Registry<()>> = LazyLock::new(|| Registry::new("cuSOLVER parameter"));

/// An error where there is no such handle.
pub(super) fn check(handle: usize) -> Result<()> {
    HANDLES.get(handle)?;
    Ok(())
}

/// A handle's stream.
pub(super) fn queue(handle: usize) -> Result<Queue> {
    let stream = HANDLES.get(handle)?.lock().stream;
    Queue::of(stream)
}

/// Posts an operation to a handle's stream.
pub(super) fn post(handle: usize, arguments: &impl Arguments) -> Result<()> {
    queue(handle)?.post(arguments)
}

/// A number of 32 bits in device memory, once the stream has come there.
pub(super) fn number_in(queue: &Queue, from: u64) -> Result<i32> {
    Ok(home(queue, from, 1)?[0])
}

/// The same, in a handle's stream.
pub(super) fn number_at(handle: usize, from: u64) -> Result<i32> {
    number_in(&queue(handle)?, from)
}

fn create_parameters(out: Out<usize>) -> Result<()> {
    out.check()?;
    let mut raw = 0;
    PARAMETERS.insert(|handle| raw = handle);
    out.set(raw)
}

math! {
    CUSOLVER;

    fn cusolverDnCreate(out: Out<usize>) {
        out.check()?;
        CUSOLVER.version()?;
        let mut raw = 0;
        HANDLES.insert(|handle| {
            raw = handle;
            Mutex::new(Handle { stream: 0, determinism: 1, math: 1 })
        });
        out.set(raw)
    }

    fn cusolverDnDestroy(handle: usize) {
        HANDLES.remove(handle)?;
        Ok(())
    }

    fn cusolverDnSetStream(handle: usize, stream: usize) {
        HANDLES.get(handle)?.lock().stream = stream;
        Ok(())
    }

    fn cusolverDnGetStream(handle: usize, stream: Out<usize>) {
        stream.set(HANDLES.get(handle)?.lock().stream)
    }

    /// Results are the same each time whatever is asked for.
    fn cusolverDnSetDeterministicMode(handle: usize, mode: u32) {
        if !(1..=2).contains(&mode) {
            return invalid(format!("There is no cusolverDeterministicMode_t {mode}"));
        }
        HANDLES.get(handle)?.lock().determinism = mode;
        Ok(())
    }

    fn cusolverDnGetDeterministicMode(handle: usize, mode: Out<u32>) {
        mode.set(HANDLES.get(handle)?.lock().determinism)
    }

    /// Nothing is emulated, whatever is allowed.
    fn cusolverDnSetMathMode(handle: usize, mode: u32) {
        HANDLES.get(handle)?.lock().math = mode;
        Ok(())
    }

    fn cusolverDnGetMathMode(handle: usize, mode: Out<u32>) {
        mode.set(HANDLES.get(handle)?.lock().math)
    }

    fn cusolverGetVersion(version: Out<i32>) {
        version.check()?;
        version.set(CUSOLVER.version()? as i32)
    }

    fn cusolverGetProperty(which: u32, value: Out<i32>) {
        value.check()?;
        value.set(property(CUSOLVER.version()?, 1000, 100, which)?)
    }

    fn cusolverDnCreateParams(out: Out<usize>) {
        create_parameters(out)
    }

    fn cusolverDnDestroyParams(handle: usize) {
        PARAMETERS.remove(handle)?;
        Ok(())
    }

    /// There is one algorithm for each function.
    fn cusolverDnSetAdvOptions(handle: usize, _function: u32, algorithm: u32) {
        PARAMETERS.get(handle)?;
        if algorithm > 2 {
            return invalid(format!("There is no cusolverAlgMode_t {algorithm}"));
        }
        Ok(())
    }

    fn cusolverDnCreateSyevjInfo(out: Out<usize>) {
        create_parameters(out)
    }

    fn cusolverDnDestroySyevjInfo(handle: usize) {
        PARAMETERS.remove(handle)?;
        Ok(())
    }

    /// What is computed is always as precise as the type.
    fn cusolverDnXsyevjSetTolerance(handle: usize, _tolerance: f64) {
        PARAMETERS.get(handle)?;
        Ok(())
    }

    /// Nothing is swept.
    fn cusolverDnXsyevjSetMaxSweeps(handle: usize, _sweeps: i32) {
        PARAMETERS.get(handle)?;
        Ok(())
    }

    /// Values are always sorted.
    fn cusolverDnXsyevjSetSortEig(handle: usize, _sorted: i32) {
        PARAMETERS.get(handle)?;
        Ok(())
    }

    fn cusolverDnCreateGesvdjInfo(out: Out<usize>) {
        create_parameters(out)
    }

    fn cusolverDnDestroyGesvdjInfo(handle: usize) {
        PARAMETERS.remove(handle)?;
        Ok(())
    }

    /// What is computed is always as precise as the type.
    fn cusolverDnXgesvdjSetTolerance(handle: usize, _tolerance: f64) {
        PARAMETERS.get(handle)?;
        Ok(())
    }

    /// Nothing is swept.
    fn cusolverDnXgesvdjSetMaxSweeps(handle: usize, _sweeps: i32) {
        PARAMETERS.get(handle)?;
        Ok(())
    }

    /// Values are always sorted.
    fn cusolverDnXgesvdjSetSortEig(handle: usize, _sorted: i32) {
        PARAMETERS.get(handle)?;
        Ok(())
    }
}
