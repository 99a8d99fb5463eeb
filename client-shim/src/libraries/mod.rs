//! Doors for NVIDIA's libraries above the driver: each a folder here with a table in the [form of all doors](crate::doors::table).
//!
//! A program reaches a door in one of three ways:
//!
//! - It is linked with the library, or opens it by its file's name: `rgpu run` puts links with these names to this library
//!   first in the program's search path. The symbols have no version, so they answer those of every version.
//! - It opens NVIDIA's own file by its path, as Python packages do: [the loader](crate::loader) overwrites the functions that
//!   the file exports with jumps to the rows of the table, before anything of it runs. What no row names refuses
//!   ([`Door::unknown`]).
//! - Its symbols are looked up in all of the program's libraries, of which this one is the first.
//!
//! Which libraries there are, and when this one stands in for them, says [`rgpu_control::libraries`]. A door that is for software
//! GPUs alone passes its calls on to NVIDIA's library where the device is not one ([`real`]).
//!
//! [NVRTC](nvrtc) has no door: it does its own work, and only what it gives as the result changes.
//!
//! To add a door: the folder, an entry of [`DOORS`], and the library's row in `rgpu_control::libraries`.

pub(crate) mod cublas;
pub(crate) mod cublaslt;
mod cudnn;
pub(crate) mod cufft;
pub(crate) mod curand;
pub(crate) mod cusolver;
pub(crate) mod cusparse;
pub(crate) mod math;
mod nccl;
pub(crate) mod nvjitlink;
pub(crate) mod nvrtc;
pub(crate) mod real;

use std::ffi::{CStr, c_char};
use std::sync::atomic::{AtomicBool, Ordering};

use rgpu_control::libraries::{self, StandsIn};
use rgpu_control::settings::{IN_PROCESS_VARIABLE, SOFTWARE_TOOLS_VARIABLE};

use crate::doors::table::{Address, Row, rows_of};

/// The door for one library.
pub(crate) struct Door {
    /// The library's name in [`libraries::LIBRARIES`].
    pub(crate) name: &'static str,
    /// The library's functions, ascending by name.
    pub(crate) table: &'static [Row],
    /// How the names of its functions begin; what else a file exports (`_init`, functions of a compiler's) is left alone.
    pub(crate) prefixes: &'static [&'static str],
    /// The name of the row that an exported function is; most libraries export functions under their own names.
    pub(crate) row_name: fn(&str) -> &str,
    /// Functions that NVIDIA's file goes on to answer itself, where it is there: they need no device.
    pub(crate) kept: &'static [&'static str],
    /// What answers instead of an exported function that no row names: one that came with a newer library.
    pub(crate) unknown: Address,
}

/// The doors.
pub(crate) static DOORS: &[Door] = &[
    cublas::DOOR,
    cublaslt::DOOR,
    cudnn::DOOR,
    cufft::DOOR,
    curand::DOOR,
    cusolver::DOOR,
    cusparse::DOOR,
    nccl::DOOR,
    nvjitlink::DOOR,
];

/// The door that stands in for a file of this name in this program, and the version of CUDA that the file belongs to.
pub(crate) fn door_of(file: &CStr) -> Option<(&'static Door, u32)> {
    let (library, version) = libraries::of_file(file.to_bytes())?;
    let stands_in = match library.stands_in {
        StandsIn::Always => true,
        StandsIn::ForSoftware => for_software(),
        StandsIn::InPartForSoftware | StandsIn::Never => false,
    };
    let door = DOORS.iter().find(|door| door.name == library.name)?;
    stands_in.then_some((door, version))
}

/// Whether a file of this name is an NVRTC whose machine code is of no use in this program.
pub(crate) fn is_nvrtc(file: &CStr) -> bool {
    for_software()
        && libraries::of_file(file.to_bytes()).is_some_and(|(library, _)| library.name == nvrtc::NAME)
}

impl Door {
    /// What answers instead of a function that a file of the library, of this version, exports.
    pub(crate) fn target(&self, function: &str, version: u32) -> Option<Address> {
        if self.kept.contains(&function) || !self.prefixes.iter().any(|prefix| function.starts_with(prefix)) {
            return None;
        }
        let rows = rows_of(self.table, (self.row_name)(function));
        Some(rows.iter().find(|row| row.is_in(version)).map_or(self.unknown, |row| row.address))
    }
}

/// Whether the program's device is known to be a software GPU.
static FOR_SOFTWARE: AtomicBool = AtomicBool::new(false);

/// Whether the program's device is known to be a software GPU. It has to be known before the first call, because libraries are
/// redirected when they are loaded: so it is said by the environment.
pub(crate) fn for_software() -> bool {
    FOR_SOFTWARE.load(Ordering::Relaxed)
}

/// Reads what the environment says, without anything of the C library, which need not be initialised yet.
///
/// # Safety
/// `environment` is null or a list of C strings that ends in null, as a constructor gets it.
pub(crate) unsafe fn read_environment(environment: *const *const c_char) {
    let mut software = None;
    let mut in_process = false;
    let mut next = environment;
    // SAFETY: the caller's promise.
    while let Some(entry) = unsafe { next.as_ref() }.filter(|entry| !entry.is_null()) {
        // SAFETY: as above.
        let entry = unsafe { CStr::from_ptr(*entry) }.to_bytes();
        if let Some(value) = value_of(entry, SOFTWARE_TOOLS_VARIABLE) {
            software = Some(value != b"0").filter(|_| !value.is_empty());
        } else if let Some(value) = value_of(entry, IN_PROCESS_VARIABLE) {
            in_process = !value.is_empty() && value != b"0";
        }
        // SAFETY: not at the end yet.
        next = unsafe { next.add(1) };
    }
    FOR_SOFTWARE.store(software.unwrap_or(in_process), Ordering::Relaxed);
}

fn value_of<'e>(entry: &'e [u8], name: &str) -> Option<&'e [u8]> {
    entry.strip_prefix(name.as_bytes())?.strip_prefix(b"=")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doors_are_listed_and_their_tables_sorted() {
        for door in DOORS {
            let library = libraries::LIBRARIES.iter().find(|library| library.name == door.name);
            let library = library.unwrap_or_else(|| panic!("{} is not in the list", door.name));
            assert!(
                matches!(library.stands_in, StandsIn::Always | StandsIn::ForSoftware),
                "{} has a door that nobody reaches",
                door.name
            );
            for row in door.table {
                assert!(door.prefixes.iter().any(|prefix| row.name.starts_with(prefix)), "{}", row.name);
            }
            assert!(
                door.table.windows(2).all(|w| (w[0].name, w[0].since) < (w[1].name, w[1].since)),
                "{}",
                door.name
            );
        }
        for library in &libraries::LIBRARIES {
            let whole = matches!(library.stands_in, StandsIn::Always | StandsIn::ForSoftware);
            assert_eq!(whole, DOORS.iter().any(|door| door.name == library.name), "{}", library.name);
        }
    }

    #[test]
    fn the_environment_says_what_the_device_is() {
        let read = |entries: &[&CStr]| {
            let mut list: Vec<_> = entries.iter().map(|entry| entry.as_ptr()).collect();
            list.push(std::ptr::null());
            // SAFETY: a list of C strings that ends in null.
            unsafe { read_environment(list.as_ptr()) };
            for_software()
        };
        assert!(!read(&[]));
        assert!(read(&[c"A=1", c"RGPU_IN_PROCESS=1"]));
        assert!(!read(&[c"RGPU_IN_PROCESS=0"]));
        assert!(!read(&[c"RGPU_IN_PROCESS=1", c"RGPU_SOFTWARE_TOOLS=0"]));
        assert!(read(&[c"RGPU_SOFTWARE_TOOLS=1", c"RGPU_SERVER=a:1"]));
        assert!(!read(&[c"RGPU_SOFTWARE_TOOLSX=1", c"RGPU_SOFTWARE_TOOLS="]));
    }
}
