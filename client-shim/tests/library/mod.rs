//! `librgpu.so` as a program sees that has loaded it.

use std::ffi::{CString, c_void};
use std::path::PathBuf;

/// The library, which stays loaded.
pub(crate) struct Library(*mut c_void);

impl Library {
    /// Loads what cargo has built beside this test.
    pub(crate) fn load() -> Self {
        let path: PathBuf = std::env::current_exe().unwrap().parent().unwrap().join("librgpu.so");
        let name = CString::new(path.to_str().unwrap()).unwrap();
        // SAFETY: the name ends in NUL; the library is ours.
        let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        assert!(!library.is_null(), "{} cannot be loaded", path.display());
        Self(library)
    }

    /// Finds an entry point.
    ///
    /// # Safety
    /// `T` must be the type of the function of this name.
    pub(crate) unsafe fn symbol<T>(&self, name: &str) -> T {
        let text = CString::new(name).unwrap();
        // SAFETY: the library is open and the name ends in NUL.
        let found = unsafe { libc::dlsym(self.0, text.as_ptr()) };
        assert!(!found.is_null(), "there is no {name}");
        assert_eq!(size_of::<T>(), size_of::<*mut c_void>());
        // SAFETY: the caller's promise.
        unsafe { std::mem::transmute_copy(&found) }
    }
}
