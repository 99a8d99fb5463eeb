//! How a program is made to load `librgpu.so`: what is put into which lists of its environment.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The library's file name.
pub const LIBRARY: &str = "librgpu.so";
/// The list of libraries that a program loads before all others.
pub const PRELOAD_VARIABLE: &str = "LD_PRELOAD";
/// The list of directories where a program looks for libraries first.
pub const LIBRARY_PATH_VARIABLE: &str = "LD_LIBRARY_PATH";

/// Which characters end an entry of one of these lists.
pub fn separators(variable: &str) -> &'static [u8] {
    if variable == PRELOAD_VARIABLE { b": " } else { b":;" }
}

/// Puts `entry` first in a list of paths, once. `separators` end its entries, as in LD_PRELOAD, where any
/// of two does.
pub fn prepend(entry: &Path, list: Option<&OsStr>, separators: &[u8]) -> OsString {
    let mut joined = entry.as_os_str().to_owned();
    let list = list.map_or(&b""[..], OsStrExt::as_bytes);
    for item in list.split(|byte| separators.contains(byte)) {
        if !item.is_empty() && item != entry.as_os_str().as_bytes() {
            joined.push(":");
            joined.push(OsStr::from_bytes(item));
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_listed_once_and_first() {
        let entry = Path::new("/x/librgpu.so");
        let preload = separators(PRELOAD_VARIABLE);
        assert_eq!(prepend(entry, None, preload), "/x/librgpu.so");
        assert_eq!(prepend(entry, Some(OsStr::new("")), preload), "/x/librgpu.so");
        let list = OsStr::new("/a.so /x/librgpu.so:/b.so");
        assert_eq!(prepend(entry, Some(list), preload), "/x/librgpu.so:/a.so:/b.so");
        // A space is part of a name in LD_LIBRARY_PATH.
        let path = separators(LIBRARY_PATH_VARIABLE);
        assert_eq!(prepend(Path::new("/x"), Some(OsStr::new("/a b:/x")), path), "/x:/a b");
    }
}
