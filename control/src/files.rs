//! Small files that several processes share.

use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// Writes a file with this mode, whatever the umask is, in one step: who reads it finds either the old one or the new one.
///
/// # Errors
/// What the system says.
pub fn replace(path: &Path, mode: u32, bytes: &[u8]) -> io::Result<()> {
    let new = path.with_extension(format!("new-{}", std::process::id()));
    // One that a killed process has left may have another mode.
    remove(&new)?;
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&new)?;
    file.set_permissions(Permissions::from_mode(mode))?;
    file.write_all(bytes)?;
    fs::rename(&new, path)
}

/// Removes a file; one that is not there is no error.
///
/// # Errors
/// What the system says.
pub fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_with_its_mode_and_removed_twice() {
        let path = std::env::temp_dir().join(format!("rgpu-files-{:016x}", crate::LeaseId::random().0));
        for (mode, text) in [(0o600, "one"), (0o444, "two"), (0o666, "three")] {
            replace(&path, mode, text.as_bytes()).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, mode);
        }
        remove(&path).unwrap();
        remove(&path).unwrap();
        assert!(!path.exists() && remove(Path::new("/proc/self")).is_err());
    }
}
