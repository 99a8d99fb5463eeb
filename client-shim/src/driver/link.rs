//! Linking PTX at run time (`cuLink*`).
//!
//! What a link yields is an image for `cuModuleLoadData`. Here that is PTX text again, linked from the inputs.
//! Machine code can't be linked.

use std::ffi::c_void;
use std::sync::LazyLock;

use parking_lot::Mutex;

use super::module::read_file;
use super::types::*;
use super::*;
use crate::abi::{CStrArg, In, Out};
use crate::core::registry::Registry;
use crate::doors::jit::{JitLog, is_device_runtime};

/// `CU_JIT_INPUT_PTX`.
const INPUT_PTX: u32 = 1;
/// `CU_JIT_INPUT_LIBRARY`.
const INPUT_LIBRARY: u32 = 4;

/// A link under way.
struct Link {
    inputs: Mutex<Vec<String>>,
    /// The result, kept until the link is destroyed.
    image: Mutex<Option<Box<[u8]>>>,
    /// Where messages go, besides those that an input's own options send elsewhere.
    log: JitLog,
}

static LINKS: LazyLock<Registry<(usize, Link)>> = LazyLock::new(|| Registry::new("linker state"));

/// An input's text, unless it is the device runtime, which a link finds by itself.
fn input(core: &Core, kind: u32, data: &[u8], name: &str) -> Result<Option<String>> {
    Err(match kind {
        INPUT_PTX => return Ok(Some(core.check_ptx(data)?.to_string())),
        INPUT_LIBRARY if is_device_runtime(data, name) => return Ok(None),
        0 => not_implemented("linking a cubin (cuLinkAddData)"),
        2 => not_implemented("linking a fat binary (cuLinkAddData)"),
        3 => not_implemented("linking an object file (cuLinkAddData)"),
        INPUT_LIBRARY => not_implemented("linking a library (cuLinkAddData)"),
        5 => not_implemented("linking NVVM or LTO code (cuLinkAddData)"),
        _ => Error::new(Code::InvalidValue, format!("input type {kind} of cuLinkAddData does not exist")),
    })
}

fn create(count: u32, options: In<u32>, values: Out<*mut c_void>, link: Out<Opaque>) -> Result<()> {
    link.check()?;
    // SAFETY: the program says that both lists have so many, and keeps them as long as the link.
    let log = unsafe { JitLog::new(count, options, values) }?;
    let made =
        LINKS.insert(|raw| (raw, Link { inputs: Mutex::new(Vec::new()), image: Mutex::new(None), log }));
    link.set(made.0 as Opaque)
}

/// Options that an input has of its own.
struct InputOptions(u32, In<u32>, Out<*mut c_void>);

/// Adds an input. What is wrong with it goes where its own options say and where the link's do; its name, if it has one,
/// stands before that.
fn add(
    core: &Core,
    link: Opaque,
    kind: u32,
    InputOptions(count, options, values): InputOptions,
    name: &CStrArg,
    data: impl FnOnce() -> Result<Vec<u8>>,
) -> Result<()> {
    let link = LINKS.get(link as usize)?;
    // SAFETY: the program says that both lists have so many.
    let own = unsafe { JitLog::new(count, options, values) }?;
    let name = name.text().unwrap_or_default();
    let text = data().and_then(|data| input(core, kind, &data, name)).map_err(|error| match name {
        "" => error,
        name => Error::new(error.code, format!("{name}: {}", error.message)),
    });
    let text = own.tell(text);
    if text.is_err() {
        let _ = link.1.log.tell(text.clone());
    }
    link.1.inputs.lock().extend(text?);
    Ok(())
}

/// A copy of what lies in memory.
///
/// # Safety
/// `len` bytes lie at `data`, if any.
unsafe fn copy_of(data: In<u8>, len: usize) -> Result<Vec<u8>> {
    // SAFETY: the caller's promise.
    Ok(unsafe { data.bytes(len) }?.to_vec())
}

/// Joins the inputs; the result stays as long as the link.
fn complete(link: &Link) -> Result<(*mut c_void, usize)> {
    let inputs = link.inputs.lock();
    if inputs.is_empty() {
        return Err(Error::new(Code::InvalidValue, "There is nothing to be linked"));
    }
    let mut text = rgpu_image::link(&inputs)?.into_bytes();
    text.push(0);
    let mut kept = link.image.lock();
    let kept = kept.insert(text.into_boxed_slice());
    Ok((kept.as_mut_ptr().cast(), kept.len()))
}

door! {
    fn cuLinkCreate(count: u32, options: In<u32>, values: Out<*mut c_void>, link: Out<Opaque>) |core| {
        create(count, options, values, link)
    }
    fn cuLinkCreate_v2(count: u32, options: In<u32>, values: Out<*mut c_void>, link: Out<Opaque>) |core| {
        create(count, options, values, link)
    }
    fn cuLinkAddData(
        link: Opaque, kind: u32, data: In<u8>, len: usize, name: CStrArg, count: u32,
        options: In<u32>, values: Out<*mut c_void>,
    ) |core| {
        // SAFETY: the program says that so many bytes are there.
        add(core, link, kind, InputOptions(count, options, values), &name, || unsafe { copy_of(data, len) })
    }
    fn cuLinkAddData_v2(
        link: Opaque, kind: u32, data: In<u8>, len: usize, name: CStrArg, count: u32,
        options: In<u32>, values: Out<*mut c_void>,
    ) |core| {
        // SAFETY: the program says that so many bytes are there.
        add(core, link, kind, InputOptions(count, options, values), &name, || unsafe { copy_of(data, len) })
    }
    fn cuLinkAddFile(
        link: Opaque, kind: u32, path: CStrArg, count: u32, options: In<u32>, values: Out<*mut c_void>,
    ) |core| {
        add(core, link, kind, InputOptions(count, options, values), &path, || read_file(&path))
    }
    fn cuLinkAddFile_v2(
        link: Opaque, kind: u32, path: CStrArg, count: u32, options: In<u32>, values: Out<*mut c_void>,
    ) |core| {
        add(core, link, kind, InputOptions(count, options, values), &path, || read_file(&path))
    }
    fn cuLinkComplete(link: Opaque, image: Out<*mut c_void>, size: Out<usize>) |core| {
        image.check()?;
        let link = LINKS.get(link as usize)?;
        let (at, len) = link.1.log.tell(complete(&link.1))?;
        size.set_if_wanted(len);
        image.set(at)
    }
    fn cuLinkDestroy(link: Opaque) |core| {
        LINKS.remove(link as usize).map(|_| ())
    }
}
