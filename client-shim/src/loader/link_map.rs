//! The dynamic loader's list of objects, as `<link.h>` describes it.

use std::ffi::{CStr, c_char, c_int, c_void};

/// One loaded object (`struct link_map`).
#[repr(C)]
pub(super) struct LinkMap {
    addr: usize,
    name: *const c_char,
    dynamic: *const Dynamic,
    next: *const LinkMap,
    prev: *const LinkMap,
}

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

/// The size of `Elf64_Sym`.
const SYMBOL_BYTES: usize = 24;

const DT_NULL: i64 = 0;
const DT_NEEDED: i64 = 1;
const DT_STRTAB: i64 = 5;
const DT_SYMTAB: i64 = 6;
const DT_SONAME: i64 = 14;

impl LinkMap {
    /// What to add to a virtual address in the file to get the address in memory.
    pub(super) fn bias(&self) -> usize {
        self.addr
    }

    /// The path that it was loaded from; empty for the program itself.
    pub(super) fn name(&self) -> &CStr {
        if self.name.is_null() {
            return c"";
        }
        // SAFETY: the dynamic loader keeps the name as a C string as long as the object is in the list.
        unsafe { CStr::from_ptr(self.name) }
    }

    /// Whether this is the program itself.
    pub(super) fn is_program(&self) -> bool {
        self.prev.is_null() && self.name().is_empty()
    }

    fn dynamic(&self) -> impl Iterator<Item = &Dynamic> {
        let mut next = self.dynamic;
        std::iter::from_fn(move || {
            if next.is_null() {
                return None;
            }
            // SAFETY: the dynamic section of a loaded object is mapped, and ends in DT_NULL.
            let entry = unsafe { &*next };
            if entry.tag == DT_NULL {
                return None;
            }
            // SAFETY: not at the end yet.
            next = unsafe { next.add(1) };
            Some(entry)
        })
    }

    /// The strings that entries of the dynamic section with the tag given name.
    fn strings(&self, tag: i64) -> impl Iterator<Item = &CStr> {
        let table = self.dynamic().find(|entry| entry.tag == DT_STRTAB).map(|entry| entry.value as usize);
        self.dynamic().filter(move |entry| entry.tag == tag).filter_map(move |entry| {
            // glibc turns the table's address into an absolute one, except in read-only dynamic sections.
            let table = table.map(|t| if t < self.addr { t + self.addr } else { t })?;
            // SAFETY: the string table of a loaded object is mapped, and the entry's value is an offset of a
            // string in it.
            Some(unsafe { CStr::from_ptr((table + entry.value as usize) as *const c_char) })
        })
    }

    /// Whether one of the libraries that it is linked with is a shared CUDA runtime.
    pub(super) fn needs_shared_runtime(&self) -> bool {
        self.strings(DT_NEEDED).any(|name| name.to_bytes().starts_with(b"libcudart.so"))
    }

    /// Whether it is a shared CUDA runtime.
    pub(super) fn is_shared_runtime(&self) -> bool {
        self.strings(DT_SONAME).any(|name| name.to_bytes().starts_with(b"libcudart.so."))
    }

    /// Where the table of symbols says who may see the one at an index (`st_other`).
    pub(super) fn visibility_of(&self, index: usize) -> Option<usize> {
        const OTHER: usize = 5;
        let table = self.dynamic().find(|entry| entry.tag == DT_SYMTAB)?.value as usize;
        let table = if table < self.addr { table + self.addr } else { table };
        index.checked_mul(SYMBOL_BYTES)?.checked_add(table + OTHER)
    }

    /// The functions that the object calls in others: where it keeps their addresses, and their names. For an object that is
    /// relocated.
    pub(super) fn imported_functions(&self) -> impl Iterator<Item = (usize, &CStr)> {
        const DT_PLTRELSZ: i64 = 2;
        const DT_RELA: i64 = 7;
        const DT_RELASZ: i64 = 8;
        const DT_JMPREL: i64 = 23;
        let value = |tag| self.dynamic().find(|entry| entry.tag == tag).map(|entry| entry.value as usize);
        let address = move |tag| value(tag).map(|at| if at < self.addr { at + self.addr } else { at });
        let (symbols, strings) = (address(DT_SYMTAB), address(DT_STRTAB));
        let tables = [(address(DT_JMPREL), value(DT_PLTRELSZ)), (address(DT_RELA), value(DT_RELASZ))];
        let entries = tables.into_iter().flat_map(|(start, bytes)| {
            let (start, bytes) = (start.unwrap_or(0), if start.is_some() { bytes.unwrap_or(0) } else { 0 });
            (0..bytes / size_of::<Relocation>()).map(move |i| start + i * size_of::<Relocation>())
        });
        entries.filter_map(move |entry| {
            // SAFETY: an entry of a table of a loaded object, which is mapped.
            let relocation = unsafe { &*(entry as *const Relocation) };
            if !matches!(
                relocation.info as u32,
                object::elf::R_X86_64_JUMP_SLOT | object::elf::R_X86_64_GLOB_DAT
            ) {
                return None;
            }
            let symbol = symbols? + (relocation.info >> 32) as usize * SYMBOL_BYTES;
            // SAFETY: the relocation's symbol is in the table, and begins with its name's offset in the strings.
            let name = unsafe {
                CStr::from_ptr((strings? + (symbol as *const u32).read() as usize) as *const c_char)
            };
            Some((self.addr + relocation.offset as usize, name))
        })
    }

    /// The name that the object gives itself.
    pub(super) fn soname(&self) -> Option<&CStr> {
        self.strings(DT_SONAME).next()
    }

    /// Whether it is the C library.
    fn is_c_library(&self) -> bool {
        self.strings(DT_SONAME).any(|name| name.to_bytes().starts_with(b"libc.so."))
    }
}

/// What debuggers read (`struct r_debug_extended`).
#[repr(C)]
pub(super) struct Debug {
    version: c_int,
    map: *const LinkMap,
    breakpoint: usize,
    state: c_int,
    base: usize,
    /// Only there from version 2 on.
    next: *const Debug,
}

/// What the dynamic loader is doing to a list of objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ListState {
    /// The list is whole.
    Consistent,
    /// Objects are being added.
    Adding,
    /// Objects are being removed.
    Removing,
}

impl Debug {
    /// The first object.
    pub(super) fn map(&self) -> *const LinkMap {
        // SAFETY: a live reference; the field changes under the dynamic loader's hands.
        unsafe { (&raw const self.map).read_volatile() }
    }

    /// The function that the dynamic loader calls at each change of `state`.
    pub(super) fn breakpoint(&self) -> usize {
        self.breakpoint
    }

    /// What the dynamic loader is doing.
    pub(super) fn state(&self) -> ListState {
        // SAFETY: a live reference; the field changes under the dynamic loader's hands.
        match unsafe { (&raw const self.state).read_volatile() } {
            0 => ListState::Consistent,
            1 => ListState::Adding,
            _ => ListState::Removing,
        }
    }
}

unsafe extern "C" {
    static _r_debug: Debug;
}

/// The dynamic loader's debugging interface.
pub(super) fn debug() -> Option<&'static Debug> {
    // SAFETY: the dynamic loader's own variable, there for the life of the process; `next` is read only where
    // the version says that it exists.
    let debug = unsafe { &_r_debug };
    (debug.version >= 1 && !debug.map().is_null()).then_some(debug)
}

/// The lists of all namespaces (dlmopen has its own).
pub(super) fn namespaces(first: &'static Debug) -> impl Iterator<Item = &'static Debug> {
    let mut next = std::ptr::from_ref(first);
    std::iter::from_fn(move || {
        // SAFETY: null, or one of the dynamic loader's own structures, which it never frees.
        let debug = unsafe { next.as_ref()? };
        next = if debug.version >= 2 { debug.next } else { std::ptr::null() };
        Some(debug)
    })
}

/// The objects from `first` on.
pub(super) fn iterate(first: *const LinkMap) -> impl Iterator<Item = &'static LinkMap> {
    let mut next = first;
    std::iter::from_fn(move || {
        // SAFETY: null, or an object that stays in the list as long as nothing unloads it; all callers run
        // before the program has a second thread or with the dynamic loader's lock held.
        let map = unsafe { next.as_ref()? };
        next = map.next;
        Some(map)
    })
}

/// The object that holds this very code: this library, or a test that has it linked in.
pub(super) fn own() -> Option<&'static LinkMap> {
    let mut info = libc::Dl_info {
        dli_fname: std::ptr::null(),
        dli_fbase: std::ptr::null_mut(),
        dli_sname: std::ptr::null(),
        dli_saddr: std::ptr::null_mut(),
    };
    let mut map: *mut c_void = std::ptr::null_mut();
    const RTLD_DL_LINKMAP: c_int = 2;
    // SAFETY: the pointers are to live variables of the right types.
    let found = unsafe { dladdr1(own as *const c_void, &mut info, &mut map, RTLD_DL_LINKMAP) };
    if found == 0 {
        return None;
    }
    // SAFETY: dladdr1 found the object, which stays loaded while its code runs.
    unsafe { map.cast::<LinkMap>().as_ref() }
}

unsafe extern "C" {
    fn dladdr1(addr: *const c_void, info: *mut libc::Dl_info, extra: *mut *mut c_void, flags: c_int)
    -> c_int;
}

/// Whether `own` was there when the program started: preloaded libraries, and those that the program is
/// linked with, come before the C library in the list; what is opened later comes after it.
pub(super) fn precedes_c_library(debug: &'static Debug, own: &LinkMap) -> bool {
    for map in iterate(debug.map()) {
        if std::ptr::eq(map, own) {
            return true;
        }
        if map.is_c_library() {
            return false;
        }
    }
    false
}
