//! Where the server's own libraries are.

use super::table::Functions;
use crate::find::{IN_PROCESS, Library as Opened, candidates};
use rgpu_control::libraries::LIBRARIES;
use rgpu_device::{Code, Error, Result};
use std::ffi::CString;
use std::path::{Path, PathBuf};

/// Where distributions and NVIDIA's installer put libraries.
const FOLDERS: &[&str] = &[
    "/usr/local/cuda/lib64",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib64",
    "/opt/cuda/lib64",
    "/usr/local/nvidia/lib64",
    "/usr/lib",
];

/// Where Python keeps packages, among them those in which NVIDIA's libraries come.
const PYTHON: &[&str] = &["/usr/lib", "/usr/local/lib"];

/// Where the libraries' functions are found.
#[derive(Debug, Clone)]
pub(crate) enum Place {
    /// On the machine: first in these folders, and in the folders `*/lib` of each. No files of a later version of
    /// CUDA than the driver's, such as 12040, are taken.
    Machine(Vec<PathBuf>, u32),
    /// In rgpu's own library, which serves this process in the driver's place: it has the functions, too.
    Own(PathBuf),
    /// Where a test says.
    #[cfg(test)]
    Test(fn(&str) -> *const std::ffi::c_void),
}

/// The folders in a folder, in the order of their names.
fn inside(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut folders: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
    folders.sort();
    folders
}

/// Folders of NVIDIA's Python packages.
fn packages() -> Vec<PathBuf> {
    let home = std::env::var_os("HOME").map(|home| Path::new(&home).join(".local/lib"));
    let roots = PYTHON.iter().map(PathBuf::from).chain(home);
    let pythons = roots.flat_map(|root| inside(&root)).filter(|folder| {
        folder.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"python3"))
    });
    let packages =
        pythons.flat_map(|python| ["site-packages/nvidia", "dist-packages/nvidia"].map(|f| python.join(f)));
    packages.flat_map(|package| inside(&package)).map(|library| library.join("lib")).collect()
}

/// Where files may be, best first, beside those in the loader's cache.
fn folders(named: &[PathBuf]) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let mut first = Vec::new();
    for folder in named {
        first.push(folder.clone());
        first.extend(inside(folder).into_iter().map(|library| library.join("lib")));
    }
    let path = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    first.extend(std::env::split_paths(&path).filter(|folder| folder.is_absolute()));
    let mut others: Vec<PathBuf> = FOLDERS.iter().map(PathBuf::from).collect();
    others.extend(packages());
    (first, others)
}

/// The files that a library may be, newest first, as far as a driver of that version of CUDA can serve them.
pub(super) fn files(name: &str, version: u32) -> Vec<&'static str> {
    let library = LIBRARIES.iter().find(|library| library.name == name);
    let mut files: Vec<_> = library.map(|library| library.files.to_vec()).unwrap_or_default();
    files.retain(|(_, cuda)| cuda / 1000 <= version / 1000);
    files.sort_by_key(|(_, cuda)| std::cmp::Reverse(*cuda));
    files.into_iter().map(|(file, _)| file).collect()
}

/// Opens a library's file; what it needs is opened first, because it may lie elsewhere than the file expects it.
fn open(name: &str, needs: &[&str], named: &[PathBuf], version: u32) -> Result<(Opened, PathBuf)> {
    for need in needs {
        if let Ok((opened, _)) = open(need, &[], named, version) {
            std::mem::forget(opened);
        }
    }
    let (first, others) = folders(named);
    let cache = std::fs::read("/etc/ld.so.cache").unwrap_or_default();
    let wanted = files(name, version);
    let mut passed = Vec::new();
    for file in &wanted {
        let named = first.iter().map(|folder| folder.join(file));
        let places = named.chain(candidates(&cache, file, others.iter().cloned()));
        for path in places.filter(|path| path.exists()) {
            match Opened::open(&path) {
                Ok(opened) if opened.symbol(IN_PROCESS).is_null() => return Ok((opened, path)),
                Ok(_) => passed.push(format!("{} is rgpu's own library", path.display())),
                Err(e) => passed.push(e.message),
            }
        }
    }
    let mut text = format!(
        "The server has no {name}: {} was looked for in --libraries, LD_LIBRARY_PATH, the loader's cache, \
         {} and Python's packages",
        wanted.join(" or "),
        FOLDERS.join(", ")
    );
    if !passed.is_empty() {
        text = format!("{text}. Passed over: {}", passed.join("; "));
    }
    Err(Error::new(Code::NotSupported, text))
}

impl Place {
    /// Finds a library's functions. The library stays for good: it has threads and exit handlers of its own.
    pub(super) fn load<T: Functions>(&self, name: &str, needs: &[&str]) -> Result<T> {
        let opened = match self {
            Self::Machine(folders, version) => {
                let (opened, path) = open(name, needs, folders, *version)?;
                tracing::info!("{name} is {}", path.display());
                opened
            }
            Self::Own(path) => Opened::open(path)?,
            #[cfg(test)]
            // SAFETY: the test's functions have the interfaces.
            Self::Test(find) => return Ok(unsafe { T::load(find) }),
        };
        let find =
            |symbol: &str| CString::new(symbol).map_or(std::ptr::null(), |symbol| opened.symbol(&symbol));
        // SAFETY: the library has its SONAME in a folder of the system's or the administrator's, or is rgpu's own,
        // whose functions have the same interfaces.
        let table = unsafe { T::load(&find) };
        for row in T::ROWS {
            for missing in row.names.iter().filter(|name| find(name).is_null()) {
                tracing::debug!("{name} on this machine has no {missing}");
            }
        }
        std::mem::forget(opened);
        Ok(table)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_of_no_later_cuda_than_the_driver() {
        assert_eq!(files("cublas", 12_040), ["libcublas.so.12"]);
        assert_eq!(files("cublas", 13_000), ["libcublas.so.13", "libcublas.so.12"]);
        assert_eq!(files("cudnn", 13_000), ["libcudnn.so.9"]);
        assert!(files("nothing", 13_000).is_empty());
    }

    #[test]
    fn what_is_not_there_is_named_with_where_it_was_looked_for() {
        let empty = std::env::temp_dir().join(format!("rgpu-no-libraries-{}", std::process::id()));
        let folder = empty.join("x/lib");
        std::fs::create_dir_all(&folder).unwrap();
        // A file that is no library is passed over, and named.
        std::fs::write(folder.join("libcurand.so.10"), b"no library").unwrap();
        let error = open("curand", &[], std::slice::from_ref(&empty), 12_000).map(|(_, path)| path);
        std::fs::remove_dir_all(&empty).unwrap();
        if let Err(error) = error {
            assert_eq!(error.code, Code::NotSupported);
            assert!(error.message.contains("libcurand.so.10 was looked for"), "{error}");
            assert!(error.message.contains("x/lib/libcurand.so.10 cannot be opened"), "{error}");
        }
    }
}
