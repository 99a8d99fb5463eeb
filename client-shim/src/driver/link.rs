//! Linking PTX at run time (`cuLink*`).
//!
//! What a link yields is an image for `cuModuleLoadData`. Here that is PTX text again: the inputs joined
//! under one header. Machine code can't be linked.

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

/// The version that a `.version` line names.
fn version(line: &str) -> Option<(u32, u32)> {
    let (major, minor) = line.trim().strip_prefix(".version")?.trim().split_once('.')?;
    Some((major.parse().ok()?, minor.trim().parse().ok()?))
}

/// Joins PTX texts under one header: the highest version, the first target and address size.
fn join(inputs: &[String]) -> String {
    if let [only] = inputs {
        return only.clone();
    }
    let lines = || inputs.iter().flat_map(|text| text.lines());
    let is_header = |line: &str, word: &str| line.trim_start().starts_with(word);
    let mut joined = String::new();
    if let Some((major, minor)) = lines().filter_map(version).max() {
        joined += &format!(".version {major}.{minor}\n");
    }
    for word in [".target", ".address_size"] {
        if let Some(line) = lines().find(|line| is_header(line, word)) {
            joined += line;
            joined += "\n";
        }
    }
    for line in lines() {
        if ![".version", ".target", ".address_size"].iter().any(|word| is_header(line, word)) {
            joined += line;
            joined += "\n";
        }
    }
    joined
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
        let mut text = join(&link.1.inputs.lock()).into_bytes();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_are_joined_under_one_header() {
        let one = ".version 8.0\n.target sm_80\n.address_size 64\n.extern .func f();\n".to_string();
        let two = ".version 9.0\n.target sm_80\n.address_size 64\n.visible .func f() { ret; }\n".to_string();
        let joined = join(&[one.clone(), two]);
        assert_eq!(joined.matches(".version").count(), 1);
        assert!(joined.starts_with(".version 9.0\n.target sm_80\n.address_size 64\n"));
        assert!(joined.contains(".extern .func f") && joined.contains(".visible .func f"));
        assert_eq!(join(std::slice::from_ref(&one)), one);
    }
}
