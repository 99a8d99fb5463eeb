//! Linking PTX at run time (`cuLink*`).
//!
//! What a link yields is an image for `cuModuleLoadData`. Here that is PTX text again, linked from the inputs.
//! Machine code can't be linked.

use std::ffi::c_void;
use std::sync::LazyLock;

use parking_lot::Mutex;

use super::module::{JitLog, read_file};
use super::types::*;
use super::*;
use crate::abi::{CStrArg, In, Out};
use crate::core::registry::Registry;

/// `CU_JIT_INPUT_PTX`.
const INPUT_PTX: u32 = 1;

/// A link under way.
struct Link {
    inputs: Mutex<Vec<String>>,
    /// The result, kept until the link is destroyed.
    image: Mutex<Option<Box<[u8]>>>,
}

static LINKS: LazyLock<Registry<(usize, Link)>> = LazyLock::new(|| Registry::new("linker state"));

fn add(link: Opaque, kind: u32, data: &[u8]) -> Result<()> {
    let link = LINKS.get(link as usize)?;
    if kind != INPUT_PTX {
        return Err(not_implemented(match kind {
            0 => "linking a cubin (cuLinkAddData)",
            2 => "linking a fat binary (cuLinkAddData)",
            3 => "linking an object file (cuLinkAddData)",
            4 => "linking a library (cuLinkAddData)",
            _ => "linking this kind of input (cuLinkAddData)",
        }));
    }
    let data = data.split(|&byte| byte == 0).next().unwrap_or_default();
    let text = std::str::from_utf8(data)
        .map_err(|_| Error::new(Code::InvalidPtx, "The PTX that was given to be linked is not text"))?;
    link.1.inputs.lock().push(text.to_string());
    Ok(())
}

fn create(count: u32, options: In<u32>, values: Out<*mut c_void>, link: Out<Opaque>) -> Result<()> {
    // SAFETY: the program says that both lists have so many.
    unsafe { JitLog::new(count, options, values) }.tell(Ok(()))?;
    let made = LINKS.insert(|raw| (raw, Link { inputs: Mutex::new(Vec::new()), image: Mutex::new(None) }));
    link.set(made.0 as Opaque)
}

/// Adds what lies in memory.
///
/// # Safety
/// `len` bytes lie at `data`, if any.
unsafe fn add_data(link: Opaque, kind: u32, data: In<u8>, len: usize) -> Result<()> {
    // SAFETY: the caller's promise.
    add(link, kind, unsafe { data.bytes(len) }?)
}

door! {
    fn cuLinkCreate(count: u32, options: In<u32>, values: Out<*mut c_void>, link: Out<Opaque>) |core| {
        create(count, options, values, link)
    }
    fn cuLinkCreate_v2(count: u32, options: In<u32>, values: Out<*mut c_void>, link: Out<Opaque>) |core| {
        create(count, options, values, link)
    }
    fn cuLinkAddData(
        link: Opaque, kind: u32, data: In<u8>, len: usize, _name: CStrArg, _count: u32,
        _options: In<u32>, _values: Out<*mut c_void>,
    ) |core| {
        // SAFETY: the program says that so many bytes are there.
        unsafe { add_data(link, kind, data, len) }
    }
    fn cuLinkAddData_v2(
        link: Opaque, kind: u32, data: In<u8>, len: usize, _name: CStrArg, _count: u32,
        _options: In<u32>, _values: Out<*mut c_void>,
    ) |core| {
        // SAFETY: the program says that so many bytes are there.
        unsafe { add_data(link, kind, data, len) }
    }
    fn cuLinkAddFile(
        link: Opaque, kind: u32, path: CStrArg, _count: u32, _options: In<u32>, _values: Out<*mut c_void>,
    ) |core| {
        add(link, kind, &read_file(&path)?)
    }
    fn cuLinkAddFile_v2(
        link: Opaque, kind: u32, path: CStrArg, _count: u32, _options: In<u32>, _values: Out<*mut c_void>,
    ) |core| {
        add(link, kind, &read_file(&path)?)
    }
    fn cuLinkComplete(link: Opaque, image: Out<*mut c_void>, size: Out<usize>) |core| {
        let link = LINKS.get(link as usize)?;
        let mut text = rgpu_image::link(&link.1.inputs.lock())?.into_bytes();
        text.push(0);
        let mut kept = link.1.image.lock();
        let kept = kept.insert(text.into_boxed_slice());
        image.set(kept.as_mut_ptr().cast())?;
        size.set_if_wanted(kept.len());
        Ok(())
    }
    fn cuLinkDestroy(link: Opaque) |core| {
        LINKS.remove(link as usize).map(|_| ())
    }
}
