//! Linking, and what comes of it.

use std::ffi::{c_char, c_uint};

use super::{Failure, Input, Out, Result, State, link, lto};

/// Links what was added.
fn complete(state: &mut State) -> Result<()> {
    if state.inputs.is_empty() {
        return Err(state.fail(Failure::InvalidInput, "nothing was added to the link"));
    }
    let inputs = std::mem::take(&mut state.inputs);
    let (mut texts, mut intermediate) = (Vec::new(), Vec::new());
    for input in &inputs {
        match input {
            Input::Ptx(text) => texts.push(text.clone()),
            Input::Lto(bytes, name) => intermediate.push((bytes.as_slice(), name.as_str())),
        }
    }
    if !intermediate.is_empty() {
        match lto::ptx_of(&intermediate, &state.options) {
            Ok(text) => texts.push(text),
            Err(line) => {
                state.inputs = inputs;
                return Err(state.fail(Failure::NvvmCompile, &line));
            }
        }
    }
    match rgpu_image::link(&texts) {
        Ok(text) => {
            let mut bytes = text.into_bytes();
            bytes.push(0);
            state.linked = Some(bytes);
            Ok(())
        }
        Err(error) => {
            state.inputs = inputs;
            Err(state.fail(Failure::Finalize, &error.message))
        }
    }
}

/// How much room a log takes: none, or its text and a NUL.
fn log_size(log: &str) -> usize {
    if log.is_empty() { 0 } else { log.len() + 1 }
}

/// What was linked, where the program asks for what it has ordered.
fn linked(state: &State, ptx: bool) -> Result<&[u8]> {
    let wanted = state.options.ptx == ptx;
    state.linked.as_deref().filter(|_| wanted).ok_or(Failure::InvalidInput)
}

/// Copies bytes to where the program has made room for them.
///
/// # Safety
/// There is room for all of them.
unsafe fn copy_out(bytes: &[u8], place: Out<u8>) -> Result<()> {
    place.check()?;
    // SAFETY: not null, and the caller's promise.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), place.as_ptr(), bytes.len()) };
    Ok(())
}

nvjitlink! {
    /// `nvJitLinkComplete`.
    fn nvJitLinkComplete(handle: usize) {
        complete(&mut link(handle)?.state.lock())
    }

    /// `nvJitLinkGetLinkedCubinSize`.
    fn nvJitLinkGetLinkedCubinSize(handle: usize, size: Out<usize>) {
        size.set(linked(&link(handle)?.state.lock(), false)?.len())
    }
    /// `nvJitLinkGetLinkedCubin`.
    fn nvJitLinkGetLinkedCubin(handle: usize, cubin: Out<u8>) {
        // SAFETY: the program has asked for the size.
        unsafe { copy_out(linked(&link(handle)?.state.lock(), false)?, cubin) }
    }

    /// `nvJitLinkGetLinkedPtxSize`.
    fn nvJitLinkGetLinkedPtxSize(handle: usize, size: Out<usize>) {
        size.set(linked(&link(handle)?.state.lock(), true)?.len())
    }
    /// `nvJitLinkGetLinkedPtx`.
    fn nvJitLinkGetLinkedPtx(handle: usize, ptx: Out<u8>) {
        // SAFETY: the program has asked for the size.
        unsafe { copy_out(linked(&link(handle)?.state.lock(), true)?, ptx) }
    }

    /// `nvJitLinkGetErrorLogSize`.
    fn nvJitLinkGetErrorLogSize(handle: usize, size: Out<usize>) {
        size.set(log_size(&link(handle)?.state.lock().errors))
    }
    /// `nvJitLinkGetErrorLog`.
    fn nvJitLinkGetErrorLog(handle: usize, log: Out<c_char>) {
        let link = link(handle)?;
        let state = link.state.lock();
        log.check()?;
        if state.errors.is_empty() {
            return Ok(());
        }
        // SAFETY: the program has asked for the size.
        unsafe { log.set_text(log_size(&state.errors), &state.errors) }
    }

    /// `nvJitLinkGetInfoLogSize`: there is nothing to tell of a link without machine code.
    fn nvJitLinkGetInfoLogSize(handle: usize, size: Out<usize>) {
        link(handle)?;
        size.set(0)
    }
    /// `nvJitLinkGetInfoLog`.
    fn nvJitLinkGetInfoLog(handle: usize, log: Out<c_char>) {
        link(handle)?;
        log.check()
    }

    /// `nvJitLinkVersion`: that of the driver whose calls are answered.
    fn nvJitLinkVersion(major: Out<c_uint>, minor: Out<c_uint>) {
        major.set(crate::doors::CUDA_VERSION / 1000)?;
        minor.set(crate::doors::CUDA_VERSION % 1000 / 10)
    }
}
