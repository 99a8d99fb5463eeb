//! Linking PTX at run time (`cuLink*`).
//!
//! What a link yields is an image for `cuModuleLoadData`. Here that is PTX text again, linked from the inputs.
//! Machine code can't be linked.

use super::module::{JitLog, read_file};
use super::types::*;
use super::*;
use crate::core::registry::Registry;
use parking_lot::Mutex;
use std::sync::LazyLock;

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

fn create(count: u32, options: *const u32, values: *mut *mut c_void, link: *mut Opaque) -> Result<()> {
    JitLog::new(count, options, values).tell(Ok(()))?;
    let made = LINKS.insert(|raw| (raw, Link { inputs: Mutex::new(Vec::new()), image: Mutex::new(None) }));
    set(link, made.0 as Opaque)
}

/// The bytes that a caller describes by a pointer and a length.
fn bytes<'a>(data: *const c_void, len: usize) -> Result<&'a [u8]> {
    if data.is_null() {
        return Err(Error::new(Code::InvalidValue, "the data to be linked are null"));
    }
    // SAFETY: the caller says that `len` bytes are there.
    Ok(unsafe { std::slice::from_raw_parts(data.cast(), len) })
}

door! {
    fn cuLinkCreate(count: u32, options: *const u32, values: *mut *mut c_void, link: *mut Opaque) |core| {
        create(count, options, values, link)
    }
    fn cuLinkCreate_v2(count: u32, options: *const u32, values: *mut *mut c_void, link: *mut Opaque) |core| {
        create(count, options, values, link)
    }
    fn cuLinkAddData(
        link: Opaque, kind: u32, data: *const c_void, len: usize, _name: *const c_char, _count: u32,
        _options: *const u32, _values: *mut *mut c_void,
    ) |core| {
        add(link, kind, bytes(data, len)?)
    }
    fn cuLinkAddData_v2(
        link: Opaque, kind: u32, data: *const c_void, len: usize, _name: *const c_char, _count: u32,
        _options: *const u32, _values: *mut *mut c_void,
    ) |core| {
        add(link, kind, bytes(data, len)?)
    }
    fn cuLinkAddFile(
        link: Opaque, kind: u32, path: *const c_char, _count: u32, _options: *const u32, _values: *mut *mut c_void,
    ) |core| {
        add(link, kind, &read_file(path)?)
    }
    fn cuLinkAddFile_v2(
        link: Opaque, kind: u32, path: *const c_char, _count: u32, _options: *const u32, _values: *mut *mut c_void,
    ) |core| {
        add(link, kind, &read_file(path)?)
    }
    fn cuLinkComplete(link: Opaque, image: *mut *mut c_void, size: *mut usize) |core| {
        let link = LINKS.get(link as usize)?;
        let mut text = rgpu_image::link(&link.1.inputs.lock())?.into_bytes();
        text.push(0);
        let mut kept = link.1.image.lock();
        let kept = kept.insert(text.into_boxed_slice());
        set(image, kept.as_mut_ptr().cast())?;
        set_if_wanted(size, kept.len());
        Ok(())
    }
    fn cuLinkDestroy(link: Opaque) |core| {
        LINKS.remove(link as usize).map(|_| ())
    }
}
