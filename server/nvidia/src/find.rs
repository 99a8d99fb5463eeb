//! Finding and opening the machine's driver.
//!
//! rgpu's own library poses as the driver (its SONAME is `libcuda.so.1`), so the driver is opened by its full
//! path, and what was opened is looked at: rgpu's library is refused, unless it was named explicitly. Then it
//! is told to serve this process with its software GPU.

use super::table::{Resolver, Source, Table};
use rgpu_device::{Code, Error, Result};
use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

const FILE: &str = "libcuda.so.1";

/// Where distributions and NVIDIA's installer put the driver.
pub(crate) const FOLDERS: &[&str] = &[
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/lib/x86_64-linux-gnu",
    "/lib64",
    "/usr/lib",
    "/usr/local/nvidia/lib64",
    "/usr/lib/wsl/lib",
    "/run/opengl-driver/lib",
];

/// The symbol by which rgpu's own library is known, and which makes it serve the process it is in.
pub(crate) const IN_PROCESS: &CStr = c"rgpu_use_in_process";

/// An opened driver.
pub(crate) struct Opened {
    /// Its entry points.
    pub table: Table,
    /// Where it was found.
    pub path: PathBuf,
    /// Whether it is rgpu's own library, serving this process with its software GPU.
    pub is_own: bool,
}

/// Opens the driver: the one that was named, or else the machine's.
pub(crate) fn open(driver: Option<&Path>) -> Result<Opened> {
    if let Some(path) = driver {
        if !path.is_absolute() {
            let text = format!("The driver {} is not named by its full path", path.display());
            return Err(Error::new(Code::SharedObjectInitFailed, text));
        }
        let library = Library::open(path)?;
        return load(library, path, true);
    }
    let cache = std::fs::read("/etc/ld.so.cache").unwrap_or_default();
    let mut passed = Vec::new();
    for path in candidates(&cache, FILE, FOLDERS.iter().map(PathBuf::from)) {
        if !path.exists() {
            continue;
        }
        match Library::open(&path).and_then(|library| load(library, &path, false)) {
            Ok(opened) => return Ok(opened),
            Err(e) => passed.push(e.message),
        }
    }
    let mut text = format!(
        "No NVIDIA driver ({FILE}) was found in the loader's cache or in {}; name it with --driver PATH",
        FOLDERS.join(", ")
    );
    if !passed.is_empty() {
        text = format!("{text}. Passed over: {}", passed.join("; "));
    }
    Err(Error::new(Code::NoDevice, text))
}

fn load(library: Library, path: &Path, named: bool) -> Result<Opened> {
    let own = library.symbol(IN_PROCESS);
    if !own.is_null() {
        if !named {
            let text = format!("{} is rgpu's own library", path.display());
            return Err(Error::new(Code::SharedObjectInitFailed, text));
        }
        // SAFETY: rgpu's own library exports it with this interface.
        let use_in_process = unsafe { std::mem::transmute::<*const c_void, extern "C" fn() -> c_int>(own) };
        let status = use_in_process();
        if status != 0 {
            let text = format!("rgpu's library {} refused to serve in process: {status}", path.display());
            return Err(Error::new(Code::SharedObjectInitFailed, text));
        }
    }
    let resolver = Symbols::new(&library);
    // SAFETY: the library is what the caller named as the driver, or has the driver's name in a folder of the
    // system's libraries.
    let table = unsafe { Table::load(&resolver) }
        .map_err(|e| Error::new(e.code, format!("{}: {}", path.display(), e.message)))?;
    // A driver has threads and exit handlers of its own: it stays for good.
    std::mem::forget(library);
    Ok(Opened { table, path: path.to_owned(), is_own: !own.is_null() })
}

/// Whether a library that was named as the driver is rgpu's own, whose GPU is the process that loads it.
pub fn is_own(driver: &Path) -> bool {
    Library::open(driver).is_ok_and(|library| !library.symbol(IN_PROCESS).is_null())
}

/// A shared library.
pub(crate) struct Library(*mut c_void);

impl Library {
    /// Opens the library that is named by its full path.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let fail = |why: &str| {
            let text = format!("{} cannot be opened: {why}", path.display());
            Err(Error::new(Code::SharedObjectInitFailed, text))
        };
        let Ok(name) = CString::new(path.as_os_str().as_bytes()) else { return fail("its name has a NUL") };
        // SAFETY: the name ends in NUL. The library's constructors run; that is what opening it means.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if handle.is_null() {
            // SAFETY: after a failure it is a valid text.
            let why = unsafe {
                let text = libc::dlerror();
                if text.is_null() { "unknown".into() } else { CStr::from_ptr(text).to_string_lossy() }
            };
            return fail(&why);
        }
        Ok(Self(handle))
    }

    /// The address of a symbol, or null.
    pub(crate) fn symbol(&self, name: &CStr) -> *const c_void {
        // SAFETY: the library is open and the name ends in NUL.
        unsafe { libc::dlsym(self.0, name.as_ptr()) }
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        // SAFETY: it was opened by `open`, and nothing of it is in use.
        unsafe { libc::dlclose(self.0) };
    }
}

type GetProcAddress = unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_int, u64, *mut c_int) -> c_int;

struct Symbols<'a> {
    library: &'a Library,
    /// `cuGetProcAddress` with the interface that it has since 12.0.
    get: Option<GetProcAddress>,
}

impl<'a> Symbols<'a> {
    fn new(library: &'a Library) -> Self {
        let get = library.symbol(c"cuGetProcAddress_v2");
        // SAFETY: the symbol has this interface in every driver that exports it; null becomes `None`.
        let get = unsafe { std::mem::transmute::<*const c_void, Option<GetProcAddress>>(get) };
        Self { library, get }
    }
}

impl Resolver for Symbols<'_> {
    fn find(&self, source: &Source) -> *const c_void {
        let mut found = std::ptr::null_mut();
        let mut status = 0;
        if let Some(get) = self.get {
            // SAFETY: the name ends in NUL, and both places are valid.
            let result =
                unsafe { get(source.name.as_ptr(), &mut found, source.version as c_int, 0, &mut status) };
            if result == 0 && status == 0 && !found.is_null() {
                return found;
            }
        }
        self.library.symbol(source.symbol)
    }
}

/// Where a library may be, by the loader's cache and in folders, each place once.
pub(crate) fn candidates(cache: &[u8], file: &str, folders: impl Iterator<Item = PathBuf>) -> Vec<PathBuf> {
    let mut all = in_cache(cache, file);
    all.extend(folders.map(|folder| folder.join(file)));
    let mut seen = Vec::new();
    all.retain(|path| {
        // Most folders are links to each other.
        let real = path.canonicalize().unwrap_or_else(|_| path.clone());
        let fresh = !seen.contains(&real);
        seen.push(real);
        fresh
    });
    all
}

/// A library's places in the loader's cache (`/etc/ld.so.cache`): a header of 48 bytes, entries of 24 bytes
/// (flags, offset of the name, offset of the path, …), and the texts.
fn in_cache(cache: &[u8], file: &str) -> Vec<PathBuf> {
    const MAGIC: &[u8] = b"glibc-ld.so.cache1.1";
    // Caches for older loaders begin with a part in another format.
    let Some(start) = cache.windows(MAGIC.len()).position(|w| w == MAGIC) else { return Vec::new() };
    let cache = &cache[start..];
    let number = |at: usize| -> Option<usize> {
        let bytes = cache.get(at..at.checked_add(4)?)?;
        Some(u32::from_ne_bytes(bytes.try_into().ok()?) as usize)
    };
    let text = |at: usize| {
        let rest = cache.get(at..)?;
        Some(&rest[..rest.iter().position(|b| *b == 0)?])
    };
    let wanted = if cfg!(target_arch = "x86_64") { 0x0303 } else { 0x0a03 };
    let mut found = Vec::new();
    for i in 0..number(20).unwrap_or(0) {
        let entry = 48 + i * 24;
        let (Some(flags), Some(name), Some(path)) = (number(entry), number(entry + 4), number(entry + 8))
        else {
            break;
        };
        if flags & 0xffff == wanted
            && text(name) == Some(file.as_bytes())
            && let Some(path) = text(path)
        {
            found.push(PathBuf::from(OsStr::from_bytes(path)));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A cache with these entries: flags, name, path.
    fn cache(entries: &[(u32, &str, &str)]) -> Vec<u8> {
        let mut texts = Vec::new();
        let mut table = Vec::new();
        let base = 48 + entries.len() * 24;
        for (flags, name, path) in entries {
            table.extend_from_slice(&flags.to_ne_bytes());
            for text in [name, path] {
                table.extend_from_slice(&((base + texts.len()) as u32).to_ne_bytes());
                texts.extend_from_slice(text.as_bytes());
                texts.push(0);
            }
            table.extend_from_slice(&[0; 12]);
        }
        let mut all = b"glibc-ld.so.cache1.1".to_vec();
        all.extend_from_slice(&(entries.len() as u32).to_ne_bytes());
        all.resize(48, 0);
        all.extend(table);
        all.extend(texts);
        all
    }

    #[test]
    fn the_loaders_cache_is_read() {
        let wanted = if cfg!(target_arch = "x86_64") { 0x0303 } else { 0x0a03 };
        let bytes = cache(&[
            (wanted, "libc.so.6", "/lib/libc.so.6"),
            (0x0003, FILE, "/usr/lib32/libcuda.so.1"),
            (wanted, FILE, "/opt/driver/libcuda.so.1"),
        ]);
        assert_eq!(in_cache(&bytes, FILE), [Path::new("/opt/driver/libcuda.so.1")]);
        let mut old = b"ld.so-1.7.0 and something".to_vec();
        old.extend_from_slice(&bytes);
        assert_eq!(in_cache(&old, FILE).len(), 1);
        // Damaged caches are no reason to fail.
        for cut in 0..bytes.len() {
            in_cache(&bytes[..cut], FILE);
        }
        assert!(in_cache(b"", FILE).is_empty());
    }

    #[test]
    fn what_cannot_be_opened_is_named() {
        for wrong in ["/nonexistent/libcuda.so.1", "libcuda.so.1"] {
            let error = open(Some(Path::new(wrong))).err().unwrap();
            assert_eq!(error.code, Code::SharedObjectInitFailed);
            assert!(error.message.contains(wrong), "{error}");
        }
        // A library, but no driver.
        let libc = ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/libc.so.6", "/usr/lib/libc.so.6"];
        if let Some(path) = libc.iter().map(Path::new).find(|p| p.exists()) {
            let error = open(Some(path)).err().unwrap();
            assert_eq!(error.code, Code::SharedObjectSymbolNotFound);
            assert!(error.message.contains("cuInit"), "{error}");
        }
    }
}
