//! What makes Python programs believe that there is a GPU.
//!
//! JAX asks, before it asks the driver, whether the file `/dev/nvidiactl` exists, which NVIDIA's kernel module makes; without it, it
//! computes on the processor and says nothing. There is no setting for that, and no other place to make the file. So in Python's
//! interpreter, and nowhere else, `stat` of this one name finds a device file where there is none. Nothing can be opened under it.
//!
//! The interpreter's own slots for these functions are overwritten, when the program starts: no other library notices.

use std::ffi::{CStr, c_char, c_int};

use super::link_map::LinkMap;

/// The file that programs look for.
const LOOKED_FOR: &CStr = c"/dev/nvidiactl";
/// What they find instead: a device file, too.
const FOUND: &CStr = c"/dev/null";

extern "C" fn stat(path: *const c_char, place: *mut libc::stat64) -> c_int {
    // SAFETY: the arguments are the interpreter's, for the function that it means to call.
    let result = unsafe { libc::stat64(path, place) };
    if is_missing(result, path) {
        // SAFETY: as above, with a name of ours.
        return unsafe { libc::stat64(FOUND.as_ptr(), place) };
    }
    result
}

extern "C" fn fstatat(
    directory: c_int,
    path: *const c_char,
    place: *mut libc::stat64,
    flags: c_int,
) -> c_int {
    // SAFETY: the arguments are the interpreter's, for the function that it means to call.
    let result = unsafe { libc::fstatat64(directory, path, place, flags) };
    if is_missing(result, path) {
        // SAFETY: as above, with a name of ours.
        return unsafe { libc::fstatat64(directory, FOUND.as_ptr(), place, flags) };
    }
    result
}

fn is_missing(result: c_int, path: *const c_char) -> bool {
    // SAFETY: errno is always there; a call that failed with ENOENT has read the path as a C string.
    result != 0 && unsafe { *libc::__errno_location() == libc::ENOENT && CStr::from_ptr(path) == LOOKED_FOR }
}

/// What is called instead of a function of the C library.
fn instead_of(name: &[u8]) -> Option<usize> {
    match name {
        b"stat" | b"stat64" => Some(stat as *const () as usize),
        b"fstatat" | b"fstatat64" => Some(fstatat as *const () as usize),
        _ => None,
    }
}

/// Overwrites the slots of an object that has just been relocated, if it is Python's interpreter.
pub(super) fn show_to(map: &LinkMap) {
    if !super::machine::CAN_REDIRECT || !is_python(map) {
        return;
    }
    // The slots may be read-only by now, and this way of writing asks for no change of that.
    // SAFETY: a C string, and flags.
    let memory = unsafe { libc::open(c"/proc/self/mem".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) };
    if memory < 0 {
        return;
    }
    for (slot, name) in map.imported_functions() {
        let Some(target) = instead_of(name.to_bytes()) else { continue };
        let bytes = target.to_ne_bytes();
        // SAFETY: eight live bytes; they go to where the dynamic loader keeps the address of a function of this type.
        unsafe { libc::pwrite(memory, bytes.as_ptr().cast(), bytes.len(), slot as libc::off_t) };
    }
    // SAFETY: opened above.
    unsafe { libc::close(memory) };
}

/// Whether an object is Python's interpreter: the library, or the program that has it inside.
fn is_python(map: &LinkMap) -> bool {
    if !map.is_program() {
        return map.soname().is_some_and(|name| name.to_bytes().starts_with(b"libpython3"));
    }
    let mut path = [0u8; 4096];
    // SAFETY: a C string, and a buffer of this length.
    let length = unsafe { libc::readlink(c"/proc/self/exe".as_ptr(), path.as_mut_ptr().cast(), path.len()) };
    let path = usize::try_from(length).ok().and_then(|length| path.get(..length)).unwrap_or_default();
    path.rsplit(|byte| *byte == b'/').next().is_some_and(|name| name.starts_with(b"python"))
}
