//! LTO-IR, which NVIDIA's own library makes PTX of.

use std::ffi::{CStr, CString, c_char, c_void};
use std::sync::OnceLock;

use super::STEM;
use super::options::Options;
use crate::libraries::real::Real;

type Handle = *mut c_void;
type Create = unsafe extern "C" fn(*mut Handle, u32, *const *const c_char) -> u32;
type Add = unsafe extern "C" fn(Handle, u32, *const c_void, usize, *const c_char) -> u32;
type Do = unsafe extern "C" fn(Handle) -> u32;
type Get<T> = unsafe extern "C" fn(Handle, *mut T) -> u32;
type Destroy = unsafe extern "C" fn(*mut Handle) -> u32;

/// `NVJITLINK_INPUT_LTOIR`.
const LTO: u32 = 3;

/// NVIDIA's functions.
struct Library {
    create: Create,
    add: Add,
    complete: Do,
    ptx_size: Get<usize>,
    ptx: Get<u8>,
    log_size: Get<usize>,
    log: Get<u8>,
    destroy: Destroy,
}

impl Library {
    fn load() -> Result<Self, String> {
        let real = Real::copy(STEM).map_err(|error| {
            format!(
                "LTO-IR needs NVIDIA's nvJitLink, which makes PTX of it: {error} (pip install nvidia-nvjitlink, or compile to PTX)"
            )
        })?;
        let find = |name: &CStr| {
            real.function(name).ok_or_else(|| format!("NVIDIA's {STEM} has no {}", name.to_string_lossy()))
        };
        /// # Safety
        /// `T` must be the type of the function.
        unsafe fn typed<T>(function: *const ()) -> T {
            assert_eq!(size_of::<T>(), size_of::<*const ()>());
            // SAFETY: the caller's promise.
            unsafe { std::mem::transmute_copy(&function) }
        }
        // SAFETY: so the public header declares them.
        unsafe {
            Ok(Self {
                create: typed(find(c"nvJitLinkCreate")?),
                add: typed(find(c"nvJitLinkAddData")?),
                complete: typed(find(c"nvJitLinkComplete")?),
                ptx_size: typed(find(c"nvJitLinkGetLinkedPtxSize")?),
                ptx: typed(find(c"nvJitLinkGetLinkedPtx")?),
                log_size: typed(find(c"nvJitLinkGetErrorLogSize")?),
                log: typed(find(c"nvJitLinkGetErrorLog")?),
                destroy: typed(find(c"nvJitLinkDestroy")?),
            })
        }
    }
}

/// A link by NVIDIA's library.
struct Linking<'l>(&'l Library, Handle);

impl Drop for Linking<'_> {
    fn drop(&mut self) {
        // SAFETY: a handle that the library gave, not used any more.
        unsafe { (self.0.destroy)(&mut self.1) };
    }
}

impl Linking<'_> {
    fn bytes(&self, size: Get<usize>, get: Get<u8>) -> Vec<u8> {
        let mut length = 0;
        // SAFETY: a live handle and a live variable.
        if unsafe { size(self.1, &mut length) } != 0 {
            return Vec::new();
        }
        let mut bytes = vec![0; length + 1];
        // SAFETY: as much room as the library has asked for.
        let failed = unsafe { get(self.1, bytes.as_mut_ptr()) } != 0;
        bytes.truncate(bytes.iter().position(|byte| *byte == 0).unwrap_or(length));
        if failed { Vec::new() } else { bytes }
    }

    /// What went wrong.
    fn why(&self, what: &str, code: u32) -> String {
        let log = self.bytes(self.0.log_size, self.0.log);
        format!("NVIDIA's nvJitLink, {what}: error {code}: {}", String::from_utf8_lossy(&log).trim_end())
    }
}

/// Links LTO-IR, and makes PTX of it; or says why not.
pub(super) fn ptx_of(inputs: &[(&[u8], &str)], options: &Options) -> Result<String, String> {
    static LIBRARY: OnceLock<Result<Library, String>> = OnceLock::new();
    let library = LIBRARY.get_or_init(Library::load).as_ref().map_err(Clone::clone)?;
    let mut given: Vec<&str> = options.all.iter().map(String::as_str).collect();
    for needed in ["-lto", "-ptx"] {
        if !given.contains(&needed) {
            given.push(needed);
        }
    }
    let texts: Vec<CString> = given.iter().filter_map(|option| CString::new(*option).ok()).collect();
    let pointers: Vec<_> = texts.iter().map(|text| text.as_ptr()).collect();
    let mut handle = std::ptr::null_mut();
    // SAFETY: a live variable, and a list of so many C strings.
    let code = unsafe { (library.create)(&mut handle, pointers.len() as u32, pointers.as_ptr()) };
    if handle.is_null() {
        return Err(format!("NVIDIA's nvJitLink cannot begin a link: error {code}"));
    }
    let link = Linking(library, handle);
    if code != 0 {
        return Err(link.why("beginning", code));
    }
    for (bytes, name) in inputs {
        let text = CString::new(*name).unwrap_or_default();
        // SAFETY: a live handle, so many bytes, and a C string.
        let code = unsafe { (library.add)(link.1, LTO, bytes.as_ptr().cast(), bytes.len(), text.as_ptr()) };
        if code != 0 {
            return Err(link.why(name, code));
        }
    }
    // SAFETY: a live handle.
    let code = unsafe { (library.complete)(link.1) };
    if code != 0 {
        return Err(link.why("linking", code));
    }
    let text = link.bytes(library.ptx_size, library.ptx);
    match String::from_utf8(text) {
        Ok(text) if !text.is_empty() => Ok(text),
        _ => Err(link.why("asked for the PTX", 0)),
    }
}
