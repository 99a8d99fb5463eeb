//! What libLLVM would take apart when the process ends, while kernels may still be compiled in the background.
//!
//! The library keeps parts of itself in variables that are made when they are first used. Each of them is registered with the C library to be
//! taken apart at the end of the process, and what was registered last goes first: before anything that rgpu has registered when it opened the
//! library, and so without anybody waiting for a compile that is under way. So the library's calls of `__cxa_atexit` are led to a function that
//! registers nothing. The memory goes with the process.

use std::ffi::{CStr, c_char, c_int, c_void};

/// An entry of an object's dynamic section (`Elf64_Dyn`).
#[repr(C)]
struct Dynamic {
    tag: i64,
    value: u64,
}

/// An entry of a table of relocations (`Elf64_Rela`).
#[repr(C)]
struct Relocation {
    offset: u64,
    info: u64,
    addend: i64,
}

const DT_PLTRELSZ: i64 = 2;
const DT_STRTAB: i64 = 5;
const DT_SYMTAB: i64 = 6;
const DT_RELA: i64 = 7;
const DT_RELASZ: i64 = 8;
const DT_JMPREL: i64 = 23;
const R_X86_64_GLOB_DAT: u32 = 6;
const R_X86_64_JUMP_SLOT: u32 = 7;

/// What the library calls instead of `__cxa_atexit`: nothing is registered, which is no error.
extern "C" fn registers_nothing(_: *const c_void, _: *const c_void, _: *const c_void) -> c_int {
    0
}

/// Has the loaded object that a function lies in register nothing any more for the end of the process. False where its calls were not found.
pub(super) fn registers_no_more(function: *const c_void) -> bool {
    let slots = slots_of(function, c"__cxa_atexit");
    !slots.is_empty() && slots.into_iter().all(|slot| replace(slot, registers_nothing as *const () as usize))
}

/// Where the object that a function lies in keeps the addresses of another object's function, by that function's name.
fn slots_of(function: *const c_void, name: &CStr) -> Vec<usize> {
    // SAFETY: plain memory, which the call fills in.
    let mut found = unsafe { std::mem::zeroed::<libc::Dl_info>() };
    // SAFETY: the structure is ours.
    if unsafe { libc::dladdr(function, &mut found) } == 0 || found.dli_fbase.is_null() {
        return Vec::new();
    }
    let base = found.dli_fbase as usize;
    // SAFETY: an object is mapped from its header on, which says where its program headers are, in the same mapping.
    let headers = unsafe {
        let header = &*(base as *const libc::Elf64_Ehdr);
        let first = (base + header.e_phoff as usize) as *const libc::Elf64_Phdr;
        std::slice::from_raw_parts(first, header.e_phnum.into())
    };
    let Some(dynamic) = headers.iter().find(|header| header.p_type == libc::PT_DYNAMIC) else {
        return Vec::new();
    };
    let count = dynamic.p_memsz as usize / size_of::<Dynamic>();
    // SAFETY: the dynamic section of a loaded object is mapped.
    let entries =
        unsafe { std::slice::from_raw_parts((base + dynamic.p_vaddr as usize) as *const Dynamic, count) };
    let value = |tag| entries.iter().find(|entry| entry.tag == tag).map(|entry| entry.value as usize);
    // The loader turns addresses into absolute ones, except in read-only dynamic sections.
    let address = |tag| value(tag).map(|at| if at < base { at + base } else { at });
    let (Some(symbols), Some(strings)) = (address(DT_SYMTAB), address(DT_STRTAB)) else { return Vec::new() };
    let tables = [(address(DT_JMPREL), value(DT_PLTRELSZ)), (address(DT_RELA), value(DT_RELASZ))];
    let mut slots = Vec::new();
    for (at, bytes) in tables.into_iter().filter_map(|(at, bytes)| Some((at?, bytes?))) {
        // SAFETY: a table of a loaded object, which is mapped.
        let table =
            unsafe { std::slice::from_raw_parts(at as *const Relocation, bytes / size_of::<Relocation>()) };
        let of_function = |r: &&Relocation| matches!(r.info as u32, R_X86_64_GLOB_DAT | R_X86_64_JUMP_SLOT);
        for relocation in table.iter().filter(of_function) {
            let symbol = symbols + (relocation.info >> 32) as usize * size_of::<libc::Elf64_Sym>();
            // SAFETY: the relocation's symbol is in the table, and its name in the strings.
            let called = unsafe {
                let symbol = &*(symbol as *const libc::Elf64_Sym);
                CStr::from_ptr((strings + symbol.st_name as usize) as *const c_char)
            };
            if called == name {
                slots.push(base + relocation.offset as usize);
            }
        }
    }
    slots
}

/// Writes an address where an object keeps one.
fn replace(slot: usize, address: usize) -> bool {
    // SAFETY: a plain call.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
    // The slot may have been made read-only once the object was relocated.
    // SAFETY: the page is the object's, and can be read and written like its neighbours.
    let open = unsafe {
        libc::mprotect((slot & !(page - 1)) as *mut c_void, page, libc::PROT_READ | libc::PROT_WRITE) == 0
    };
    if open {
        // SAFETY: an aligned word of the object's, which its code reads in one piece.
        unsafe {
            (*(slot as *const std::sync::atomic::AtomicUsize))
                .store(address, std::sync::atomic::Ordering::SeqCst)
        };
    }
    open
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn imported_functions_are_found_by_name_and_others_are_not() {
        let here = imported_functions_are_found_by_name_and_others_are_not as *const c_void;
        let slots = slots_of(here, c"dl_iterate_phdr");
        let own = libc::dl_iterate_phdr as *const () as usize;
        // SAFETY: they are words of this program.
        assert!(slots.iter().any(|&slot| unsafe { *(slot as *const usize) } == own), "{slots:?}");
        assert_eq!(slots_of(here, c"no_such_function"), Vec::<usize>::new());
        assert_eq!(slots_of(std::ptr::null(), c"dl_iterate_phdr"), Vec::<usize>::new());
    }
}
