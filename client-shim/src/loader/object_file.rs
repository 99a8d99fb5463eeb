//! Read-only views of the files that objects were loaded from.

use std::ffi::CStr;

use object::LittleEndian;
use object::elf::{self, FileHeader64};
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader, SectionTable, Sym};

type Header = FileHeader64<LittleEndian>;
const ENDIAN: LittleEndian = LittleEndian;

/// A file mapped into memory.
pub(super) struct Mapping {
    start: *mut libc::c_void,
    length: usize,
}

impl Mapping {
    /// Maps a whole file. Only the pages that are read will cost memory, and only while the mapping lives.
    pub(super) fn open(path: &CStr) -> Option<Self> {
        // SAFETY: a C string, and flags.
        let file = unsafe { libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) };
        if file < 0 {
            return None;
        }
        // SAFETY: all zeroes is a valid `stat`.
        let mut status: libc::stat = unsafe { std::mem::zeroed() };
        // SAFETY: an open descriptor and a live variable.
        let known = unsafe { libc::fstat(file, &mut status) } == 0;
        let length = usize::try_from(status.st_size).unwrap_or(0);
        let regular = known && status.st_mode & libc::S_IFMT == libc::S_IFREG && length > 0;
        let start = if regular {
            // SAFETY: a new mapping, somewhere free.
            unsafe { libc::mmap(std::ptr::null_mut(), length, libc::PROT_READ, libc::MAP_PRIVATE, file, 0) }
        } else {
            libc::MAP_FAILED
        };
        // SAFETY: opened above, and not used again.
        unsafe { libc::close(file) };
        (start != libc::MAP_FAILED).then_some(Self { start, length })
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: mapped readable for `length` bytes until `self` is dropped.
        unsafe { std::slice::from_raw_parts(self.start.cast(), self.length) }
    }

    /// The file as an ELF object of this machine; `None` if it isn't one, or has no sections.
    pub(super) fn parse(&self) -> Option<ObjectFile<'_>> {
        ObjectFile::parse(self.bytes())
    }
}

impl<'a> ObjectFile<'a> {
    /// These bytes as an ELF object of this machine; `None` if they aren't one, or have no sections.
    pub(super) fn parse(bytes: &'a [u8]) -> Option<Self> {
        let header = Header::parse(bytes).ok()?;
        if !header.is_little_endian() || header.e_machine(ENDIAN) != super::machine::ELF_MACHINE {
            return None;
        }
        let sections = header.sections(ENDIAN, bytes).ok()?;
        Some(Self { bytes, header, sections })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `open` with this length.
        unsafe { libc::munmap(self.start, self.length) };
    }
}

/// An ELF object.
pub(super) struct ObjectFile<'a> {
    bytes: &'a [u8],
    header: &'a Header,
    sections: SectionTable<'a, Header>,
}

/// A symbol table with its names.
pub(super) struct Symbols<'a> {
    table: object::read::elf::SymbolTable<'a, Header>,
}

/// A function that an object defines.
#[derive(Debug, Clone, Copy)]
pub(super) struct Function<'a> {
    /// The symbol's name, without its version.
    pub name: &'a [u8],
    /// Its virtual address.
    pub address: u64,
    /// How long it is, in bytes.
    pub size: u64,
}

impl<'a> ObjectFile<'a> {
    /// Whether it has a section that only holds device code.
    pub(super) fn has_device_code(&self) -> bool {
        self.sections.iter().any(|section| {
            self.sections.section_name(ENDIAN, section).is_ok_and(|name| name == b".nv_fatbin")
                && section.sh_size(ENDIAN) > 0
        })
    }

    /// The symbols for the dynamic loader, or all of them; `None` where there are none.
    pub(super) fn symbols(&self, dynamic: bool) -> Option<Symbols<'a>> {
        let kind = if dynamic { elf::SHT_DYNSYM } else { elf::SHT_SYMTAB };
        let table = self.sections.symbols(ENDIAN, self.bytes, kind).ok()?;
        if table.is_empty() {
            return None;
        }
        Some(Symbols { table })
    }

    /// The bytes of the names of all symbols that [`Self::symbols`] gives, to be searched quickly.
    pub(super) fn symbol_names(&self, dynamic: bool) -> &'a [u8] {
        let kind = if dynamic { elf::SHT_DYNSYM } else { elf::SHT_SYMTAB };
        let Some(table) = self.sections.iter().find(|s| s.sh_type(ENDIAN) == kind) else { return &[] };
        let link = object::SectionIndex(table.sh_link(ENDIAN) as usize);
        let Ok(strings) = self.sections.section(link) else { return &[] };
        strings.data(ENDIAN, self.bytes).unwrap_or(&[])
    }

    /// The executable segments: virtual address, and the bytes in the file.
    pub(super) fn code(&self) -> impl Iterator<Item = (u64, &'a [u8])> {
        let segments = self.header.program_headers(ENDIAN, self.bytes).unwrap_or(&[]);
        segments.iter().filter_map(|segment| {
            let executable =
                segment.p_type(ENDIAN) == elf::PT_LOAD && segment.p_flags(ENDIAN) & elf::PF_X != 0;
            let bytes = segment.data(ENDIAN, self.bytes).ok()?;
            executable.then_some((segment.p_vaddr(ENDIAN), bytes))
        })
    }

    /// The file's bytes at a virtual address inside an executable segment, to the segment's end.
    pub(super) fn code_at(&self, address: u64) -> Option<&'a [u8]> {
        self.code().find_map(|(start, bytes)| {
            let offset = usize::try_from(address.checked_sub(start)?).ok()?;
            bytes.get(offset..).filter(|rest| !rest.is_empty())
        })
    }
}

/// A variable that an object defines.
#[derive(Debug, Clone, Copy)]
pub(super) struct Variable<'a> {
    /// The symbol's name, without its version.
    pub name: &'a [u8],
    /// Its virtual address.
    pub address: u64,
    /// The symbol's place in the table.
    pub index: usize,
}

impl<'a> Symbols<'a> {
    /// The variables defined here.
    pub(super) fn variables(&self) -> impl Iterator<Item = Variable<'a>> {
        let strings = self.table.strings();
        self.table.symbols().iter().enumerate().filter_map(move |(index, symbol)| {
            if symbol.st_type() != elf::STT_OBJECT || symbol.is_undefined(ENDIAN) {
                return None;
            }
            let name = symbol.name(ENDIAN, strings).ok()?;
            Some(Variable { name, address: symbol.st_value(ENDIAN), index })
        })
    }

    /// The functions defined here.
    pub(super) fn functions(&self) -> impl Iterator<Item = Function<'a>> {
        let strings = self.table.strings();
        self.table.symbols().iter().filter_map(move |symbol| {
            if symbol.st_type() != elf::STT_FUNC || symbol.is_undefined(ENDIAN) {
                return None;
            }
            let name = symbol.name(ENDIAN, strings).ok()?;
            Some(Function { name, address: symbol.st_value(ENDIAN), size: symbol.st_size(ENDIAN) })
        })
    }
}
