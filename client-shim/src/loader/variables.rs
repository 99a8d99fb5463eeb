//! Variables of libraries that are called as the driver's functions are.
//!
//! A library that looks the driver's functions up when it runs may keep them in variables of the same names, and export these. Where
//! this library is preloaded its functions come first for the dynamic loader, and that library would take their code for its variables
//! and write to it. So such variables are made to belong to the library that has them: other libraries still find them there,
//! as they would without this one, but its own references go to nothing else.

use super::link_map::LinkMap;
use super::object_file::{ObjectFile, Variable};
use crate::{driver, runtime};

/// Names of which every library that has such variables has one.
const MARKS: [&[u8]; 3] = [b"cuInit", b"cuDriverGetVersion", b"cudaGetDeviceCount"];

/// Whether this library exports a function of that name.
fn is_ours(name: &[u8]) -> bool {
    let Ok(name) = std::str::from_utf8(name) else { return false };
    if name.starts_with("cuda") {
        return [12000, 13000].iter().any(|&version| runtime::table::find(name, version).is_some());
    }
    let plain = ["_ptds", "_ptsz"].iter().find_map(|twin| name.strip_suffix(twin)).unwrap_or(name);
    let plain = ["_v2", "_v3", "_v4"].iter().find_map(|version| plain.strip_suffix(version)).unwrap_or(plain);
    name.starts_with("cu") && driver::table::find(plain, u32::MAX, false) != Err(false)
}

/// Whether an object may have such variables: a quick look at the names alone.
pub(super) fn may_be_there(file: &ObjectFile<'_>) -> bool {
    let names = file.symbol_names(true);
    MARKS.iter().any(|mark| super::redirect::holds(names, mark))
}

/// Leaves an object's own variables to it. Depending on the C library that is before its references are resolved, or after.
pub(super) fn leave_to(map: &LinkMap, file: &ObjectFile<'_>) {
    if !may_be_there(file) {
        return;
    }
    let Some(symbols) = file.symbols(true) else { return };
    let ours = || symbols.variables().filter(|variable| is_ours(variable.name));
    if ours().next().is_none() {
        return;
    }
    // What is written to may be read-only, and this way of writing asks for no change of that.
    // SAFETY: a C string, and flags.
    let memory = unsafe { libc::open(c"/proc/self/mem".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) };
    if memory < 0 {
        return;
    }
    let write = |address: usize, bytes: &[u8]| {
        // SAFETY: live bytes; they go to the loaded object's table of symbols, or to a place that it keeps an address in.
        unsafe { libc::pwrite(memory, bytes.as_ptr().cast(), bytes.len(), address as libc::off_t) };
    };
    for Variable { index, .. } in ours() {
        if let Some(visibility) = map.visibility_of(index) {
            write(visibility, &[object::elf::STV_PROTECTED]);
        }
    }
    for (slot, name) in map.imported_functions().filter(|(_, name)| is_ours(name.to_bytes())) {
        let Some(own) = ours().find(|variable| variable.name == name.to_bytes()) else { continue };
        let address = map.bias().wrapping_add(own.address as usize);
        write(slot, &address.to_ne_bytes());
    }
    // SAFETY: opened above.
    unsafe { libc::close(memory) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_entry_points_are_known() {
        for name in ["cuInit", "cuMemAlloc_v2", "cuMemcpyHtoDAsync_v2_ptsz", "cuLaunchKernel", "cudaMalloc"] {
            assert!(is_ours(name.as_bytes()), "{name}");
        }
        for name in ["cuNoSuchThing", "cudaNothing", "curl_easy_init", "cursor", "", "malloc"] {
            assert!(!is_ours(name.as_bytes()), "{name}");
        }
    }
}
