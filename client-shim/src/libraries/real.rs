//! NVIDIA's own file of a library, for what only that can do.

use std::ffi::{CStr, CString, OsStr, c_int, c_void};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI32, Ordering};

/// The thread that is opening a copy of a library; what it opens is not redirected.
static OPENING: AtomicI32 = AtomicI32::new(0);
/// How the path of such a copy begins.
const COPIES: &str = "/proc/self/fd/";

/// Whether an object that the dynamic loader has just mapped is a copy that is to be left as it is.
pub(crate) fn is_copy(path: &CStr) -> bool {
    path.to_bytes().starts_with(COPIES.as_bytes()) && OPENING.load(Ordering::Relaxed) == thread()
}

fn thread() -> c_int {
    // SAFETY: asks for a number.
    unsafe { libc::syscall(libc::SYS_gettid) as c_int }
}

/// A library that stays loaded.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Real(*mut c_void);

// SAFETY: a handle of the dynamic loader's, which may be used from any thread.
unsafe impl Send for Real {}
// SAFETY: as above.
unsafe impl Sync for Real {}

impl Real {
    /// The file of NVIDIA's whose name begins like this: the one that this process has loaded, or one where they usually lie.
    pub(crate) fn open(stem: &str) -> Option<Self> {
        let path = path_of_loaded(stem).or_else(|| path_on_disk(stem))?;
        let path = CString::new(path.into_os_string().into_vec()).ok()?;
        // SAFETY: a C string; what runs, if it is not loaded already, are the constructors of NVIDIA's library.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_LAZY | libc::RTLD_LOCAL) };
        (!handle.is_null()).then_some(Self(handle))
    }

    /// A copy of such a file whose functions are not redirected: of the one that the process has loaded, or else of one where
    /// libraries usually lie.
    pub(crate) fn copy(stem: &str) -> io::Result<Self> {
        let path = path_of_loaded(stem).or_else(|| path_on_disk(stem));
        let path = path.ok_or_else(|| {
            io::Error::other(format!("NVIDIA's {stem} is not installed where this program would find it"))
        })?;
        let name = CString::new(stem).map_err(io::Error::other)?;
        // SAFETY: a C string, and flags.
        let file = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC) };
        if file < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a fresh descriptor.
        let memory = std::fs::File::from(unsafe { OwnedFd::from_raw_fd(file) });
        io::copy(&mut std::fs::File::open(&path)?, &mut &memory)?;
        // Another file than the one it is a copy of, so the dynamic loader maps it once more.
        let name = CString::new(format!("{COPIES}{}", memory.as_raw_fd())).map_err(io::Error::other)?;
        OPENING.store(thread(), Ordering::Relaxed);
        // SAFETY: a C string; what runs are the constructors of NVIDIA's library.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_LOCAL) };
        OPENING.store(0, Ordering::Relaxed);
        if handle.is_null() {
            // SAFETY: dlopen failed in this thread, so there is a message.
            let why = unsafe { CStr::from_ptr(libc::dlerror()) }.to_string_lossy().into_owned();
            return Err(io::Error::other(format!("{} cannot be loaded once more: {why}", path.display())));
        }
        Ok(Self(handle))
    }

    /// One of its functions.
    pub(crate) fn function(self, name: &CStr) -> Option<*const ()> {
        // SAFETY: a live handle and a C string.
        let address = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        (!address.is_null()).then_some(address.cast_const().cast())
    }
}

/// The path of the loaded object whose file's name begins like this.
fn path_of_loaded(stem: &str) -> Option<PathBuf> {
    loaded().into_iter().find(|path| is_named(path, stem) && is_nvidias(path))
}

/// The paths of all loaded objects.
fn loaded() -> Vec<PathBuf> {
    unsafe extern "C" fn look(info: *mut libc::dl_phdr_info, _: usize, list: *mut c_void) -> c_int {
        // SAFETY: dl_iterate_phdr passes a live structure, and what it was given.
        let (info, list) = unsafe { (&*info, &mut *list.cast::<Vec<PathBuf>>()) };
        if !info.dlpi_name.is_null() {
            // SAFETY: the dynamic loader's own name of a loaded object.
            let name = unsafe { CStr::from_ptr(info.dlpi_name) };
            list.push(PathBuf::from(OsStr::from_bytes(name.to_bytes())));
        }
        0
    }
    let mut list: Vec<PathBuf> = Vec::new();
    // SAFETY: the function gets what it takes.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut list).cast()) };
    list
}

fn is_named(path: &Path, stem: &str) -> bool {
    path.file_name().is_some_and(|name| name.as_bytes().starts_with(stem.as_bytes()))
}

/// Whether a path does not lead to this library.
fn is_nvidias(path: &Path) -> bool {
    path.canonicalize().is_ok_and(|path| !is_named(&path, "librgpu"))
}

/// Where the system, the user, or the program's Python environment has such a file.
fn path_on_disk(stem: &str) -> Option<PathBuf> {
    let listed = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let listed: Vec<PathBuf> = std::env::split_paths(&listed).collect();
    let usual = ["/usr/local/cuda/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/opt/cuda/lib64"];
    let directories = packages().into_iter().chain(listed).chain(usual.map(PathBuf::from));
    directories.into_iter().find_map(|directory| {
        let mut paths = entries(&directory);
        paths.retain(|path| is_named(path, stem) && is_nvidias(path));
        paths.sort();
        paths.pop()
    })
}

/// Where NVIDIA's Python packages have libraries, in the environments from which this process has loaded something.
fn packages() -> Vec<PathBuf> {
    const PACKAGES: &str = "/site-packages/";
    let mut environments: Vec<PathBuf> = loaded()
        .iter()
        .filter_map(|path| path.to_str())
        .filter_map(|path| Some(PathBuf::from(&path[..path.find(PACKAGES)? + PACKAGES.len()])))
        .collect();
    environments.sort();
    environments.dedup();
    let packages = environments.iter().flat_map(|directory| entries(&directory.join("nvidia")));
    packages.map(|package| package.join("lib")).collect()
}

fn entries(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
    entries.filter_map(|entry| Some(entry.ok()?.path())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loaded_library_is_found_and_a_copy_is_another_one() {
        let loaded = Real::open("libc.so").unwrap();
        let here = loaded.function(c"free").unwrap();
        assert!(loaded.function(c"there_is_no_such_function").is_none());
        assert!(Real::open("libthereisnosuch.so").is_none());
        let why = Real::copy("libthereisnosuch.so").unwrap_err().to_string();
        assert!(why.contains("libthereisnosuch.so"), "{why}");
        let copy = Real::copy("libm.so").unwrap();
        assert_ne!(copy.function(c"cos").unwrap(), here);
        assert_ne!(Real::open("libm.so").and_then(|loaded| loaded.function(c"cos")), copy.function(c"cos"));
    }
}
