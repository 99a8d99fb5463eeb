//! What is added to a link.

use rgpu_image::ImageKind;

use super::{CStrArg, Failure, In, Input, Result, State, link};
use crate::doors::jit::is_device_runtime;

/// `nvJitLinkInputType`.
mod kind {
    pub(super) const CUBIN: u32 = 1;
    pub(super) const PTX: u32 = 2;
    pub(super) const LTO: u32 = 3;
    pub(super) const FATBIN: u32 = 4;
    pub(super) const OBJECT: u32 = 5;
    pub(super) const LIBRARY: u32 = 6;
    pub(super) const ANY: u32 = 10;
}

/// Adds bytes of a kind; `name` is for messages.
fn add(state: &mut State, kind: u32, bytes: &[u8], name: &str) -> Result<()> {
    match (kind, rgpu_image::sniff(bytes)) {
        // A "cubin" that is text was made by this door.
        (kind::PTX | kind::CUBIN | kind::ANY, Some(ImageKind::Ptx)) => add_ptx(state, bytes, name),
        (kind::FATBIN | kind::ANY, Some(ImageKind::Container)) => {
            match rgpu_image::ptx_for(bytes, state.options.architecture) {
                Ok(text) => add_ptx(state, text.as_bytes(), name),
                Err(error) => Err(state.fail(Failure::InvalidInput, &format!("{name}: {}", error.message))),
            }
        }
        (kind::LTO, _) => {
            state.inputs.push(Input::Lto(bytes.to_vec(), name.to_owned()));
            Ok(())
        }
        (kind::CUBIN | kind::ANY, Some(ImageKind::Cubin)) => {
            let line = format!("{name} is machine code, which a software GPU cannot run: link PTX instead");
            Err(state.fail(Failure::InvalidInput, &line))
        }
        // The device runtime is machine code in NVIDIA's library; a software GPU has its own.
        (kind::LIBRARY | kind::ANY, _) if is_device_runtime(bytes, name) => {
            state.inputs.push(Input::Ptx(rgpu_image::DEVICE_RUNTIME.to_owned()));
            Ok(())
        }
        (kind::OBJECT | kind::LIBRARY, _) => {
            let line = format!(
                "{name} is an object file or library, which cannot be linked for a software GPU: link its PTX"
            );
            Err(state.fail(Failure::InvalidInput, &line))
        }
        (kind::PTX, _) => {
            Err(state
                .fail(Failure::PtxCompile, &format!("{name} is no PTX: it does not begin with .version")))
        }
        (kind::CUBIN | kind::FATBIN | kind::ANY, _) => {
            Err(state.fail(Failure::UnrecognizedInput, &format!("{name} is of an unknown kind")))
        }
        (other, _) => {
            Err(state
                .fail(Failure::InvalidInput, &format!("{name} is of the kind {other}, which is unknown")))
        }
    }
}

/// Adds PTX text, which is read at once, as NVIDIA's library compiles it at once.
fn add_ptx(state: &mut State, bytes: &[u8], name: &str) -> Result<()> {
    let bytes = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    let Ok(text) = std::str::from_utf8(bytes) else {
        return Err(state.fail(Failure::PtxCompile, &format!("{name} is no text")));
    };
    if let Err(error) = rgpu_image::ptx::parse(text) {
        return Err(state.fail(Failure::PtxCompile, &format!("{name}: {}", error.message)));
    }
    state.inputs.push(Input::Ptx(text.to_owned()));
    Ok(())
}

/// What the program calls an input; it need not say.
fn name_of(name: &CStrArg) -> String {
    name.text().map_or_else(|_| "an input without a name".to_owned(), str::to_owned)
}

nvjitlink! {
    /// `nvJitLinkAddData`.
    fn nvJitLinkAddData(handle: usize, kind: u32, data: In<u8>, size: usize, name: CStrArg) {
        let link = link(handle)?;
        // SAFETY: the program says that so many bytes are there.
        let bytes = unsafe { data.bytes(size) }?;
        add(&mut link.state.lock(), kind, bytes, &name_of(&name))
    }

    /// `nvJitLinkAddFile`.
    fn nvJitLinkAddFile(handle: usize, kind: u32, path: CStrArg) {
        let link = link(handle)?;
        let path = path.text()?;
        let state = &mut link.state.lock();
        match std::fs::read(path) {
            Ok(bytes) => add(state, kind, &bytes, path),
            Err(error) => Err(state.fail(Failure::InvalidInput, &format!("Can't read {path}: {error}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_device_runtime_is_our_own_and_other_libraries_are_refused() {
        let mut state = State::default();
        let archive = b"!<arch>\nwhatever";
        assert_eq!(add(&mut state, kind::LIBRARY, archive, "/usr/lib/libcudadevrt.a"), Ok(()));
        assert!(matches!(&state.inputs[..], [Input::Ptx(text)] if text.contains("cudaCGSynchronize")));
        assert_eq!(add(&mut state, kind::LIBRARY, archive, "libother.a"), Err(Failure::InvalidInput));
        assert!(state.errors.contains("libother.a is an object file or library"));
    }
}
