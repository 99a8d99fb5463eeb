//! Which build of a program or library an address belongs to.

use std::ffi::{c_int, c_void};

/// A note's type: the build id that the linker made of all that it put together.
const NT_GNU_BUILD_ID: u32 = 3;

struct Search {
    address: u64,
    found: Option<Vec<u8>>,
}

/// Bytes that are equal for two objects if their machine code is: the build id of the loaded object that an address lies in, or a
/// hash of its machine code where the linker made none. `None` where the address lies in no object.
pub(super) fn of_object_at(address: u64) -> Option<Vec<u8>> {
    let mut search = Search { address, found: None };
    // SAFETY: `look` is called with this structure, during the call alone.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut search).cast()) };
    search.found
}

unsafe extern "C" fn look(info: *mut libc::dl_phdr_info, _: usize, search: *mut c_void) -> c_int {
    // SAFETY: the loader describes an object that stays loaded during this call, and the structure is our caller's.
    let (info, search, headers) = unsafe {
        let info = &*info;
        let headers = match info.dlpi_phdr.is_null() {
            true => &[][..],
            false => std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()),
        };
        (info, &mut *search.cast::<Search>(), headers)
    };
    let inside = |header: &&libc::Elf64_Phdr| {
        let begin = info.dlpi_addr.wrapping_add(header.p_vaddr);
        search.address.wrapping_sub(begin) < header.p_memsz
    };
    if !headers.iter().any(|header| header.p_type == libc::PT_LOAD && inside(&header)) {
        return 0;
    }
    let bytes = |header: &libc::Elf64_Phdr| {
        let begin = info.dlpi_addr.wrapping_add(header.p_vaddr) as *const u8;
        // SAFETY: a segment of an object that is loaded, which is mapped for reading: notes and code are.
        unsafe { std::slice::from_raw_parts(begin, header.p_memsz as usize) }
    };
    let mut notes = headers.iter().filter(|header| header.p_type == libc::PT_NOTE).map(bytes);
    search.found = notes.find_map(build_id).or_else(|| {
        let mut hasher = blake3::Hasher::new();
        let readable = libc::PF_R | libc::PF_X;
        let code = headers.iter().filter(|h| h.p_type == libc::PT_LOAD && h.p_flags & readable == readable);
        for header in code {
            hasher.update(bytes(header));
        }
        Some(hasher.finalize().as_bytes().to_vec())
    });
    1
}

/// The build id among notes: each a length of its name, one of its contents, a type, and then these, padded to four bytes.
fn build_id(mut notes: &[u8]) -> Option<Vec<u8>> {
    loop {
        let (head, rest) = notes.split_first_chunk::<12>()?;
        let word = |at: usize| u32::from_ne_bytes(std::array::from_fn(|i| head[at + i]));
        let (name, contents) = (word(0) as usize, word(4) as usize);
        let begin = name.checked_next_multiple_of(4)?;
        let end = begin.checked_add(contents)?;
        if word(8) == NT_GNU_BUILD_ID && rest.get(..name)? == b"GNU\0" && contents >= 8 {
            return rest.get(begin..end).map(<[u8]>::to_vec);
        }
        notes = rest.get(end.checked_next_multiple_of(4)?..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_told_apart() {
        let ours = of_object_at(build_id as *const () as u64).unwrap();
        let theirs = of_object_at(libc::dl_iterate_phdr as *const () as u64).unwrap();
        assert!(ours.len() >= 8 && theirs.len() >= 8 && ours != theirs);
        assert_eq!(of_object_at(8), None);
    }

    #[test]
    fn the_build_id_is_found_behind_other_notes() {
        let note = |ty: u32, name: &[u8], contents: &[u8]| {
            let mut bytes: Vec<u8> =
                [name.len() as u32, contents.len() as u32, ty].iter().flat_map(|w| w.to_ne_bytes()).collect();
            for part in [name, contents] {
                bytes.extend_from_slice(part);
                bytes.resize(bytes.len().next_multiple_of(4), 0);
            }
            bytes
        };
        let mut notes = note(1, b"GNU\0", &[1; 5]);
        notes.extend(note(3, b"other\0", &[2; 20]));
        assert_eq!(build_id(&notes), None);
        notes.extend(note(3, b"GNU\0", &[3; 20]));
        assert_eq!(build_id(&notes), Some(vec![3; 20]));
        assert_eq!(build_id(&notes[..notes.len() - 1]), None);
    }
}
