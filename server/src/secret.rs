//! Files with secrets.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// What to say of a file with a secret that others can read or write; nothing where they cannot. (Not refused: where containers are
/// given their secrets, files are often readable by all, in a directory that is not.)
fn objection(path: &Path) -> Option<String> {
    let mode = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file)?.mode();
    let what = match mode {
        mode if mode & 0o022 != 0 => "written",
        mode if mode & 0o044 != 0 => "read",
        _ => return None,
    };
    Some(format!("the token in {0} can be {what} by others: chmod 600 {0}", path.display()))
}

/// Warns of a file with a secret that others can read or write.
pub(crate) fn warn_if_readable(path: &Path) {
    if let Some(text) = objection(path) {
        tracing::warn!("{text}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn secrets_that_others_can_reach_are_objected_to() {
        let path = std::env::temp_dir().join(format!("rgpu-secret-{}", std::process::id()));
        std::fs::write(&path, "secret").unwrap();
        let with = |mode| {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            objection(&path)
        };
        assert!(with(0o600).is_none() && with(0o400).is_none());
        assert!(
            with(0o640).unwrap().contains("read by others") && with(0o644).unwrap().contains("chmod 600")
        );
        assert!(with(0o622).unwrap().contains("written"));
        std::fs::remove_file(&path).unwrap();
        assert!(objection(&path).is_none());
    }
}
