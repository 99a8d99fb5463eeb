//! What a container gets: the library and its lease's ticket, mounted, and the environment that names them.

use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use rgpu_control::preload::{LIBRARY, PRELOAD_VARIABLE};
use rgpu_control::{LEASE_VARIABLE, files, libraries};
use serde::Serialize;

/// Where a container finds the library.
pub const LIBRARIES: &str = "/opt/rgpu/lib";
/// Where a container finds its ticket.
pub const LEASE: &str = "/opt/rgpu/lease";
/// The ticket's file.
pub const TICKET: &str = "ticket";

/// A folder of the node that is mounted read-only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// Where it is on the node.
    pub host: PathBuf,
    /// Where the container sees it.
    pub container: &'static str,
}

/// What a container gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edits {
    /// Variables of its environment.
    pub environment: Vec<(&'static str, String)>,
    /// Folders.
    pub mounts: Vec<Mount>,
}

impl Edits {
    /// For a lease whose ticket lies in the folder `lease`, with the library of the folder `library`.
    pub fn new(library: &Path, lease: &Path) -> Self {
        Self {
            environment: vec![
                (PRELOAD_VARIABLE, format!("{LIBRARIES}/{LIBRARY}")),
                (LEASE_VARIABLE, format!("{LEASE}/{TICKET}")),
            ],
            mounts: vec![
                Mount { host: library.to_owned(), container: LIBRARIES },
                Mount { host: lease.to_owned(), container: LEASE },
            ],
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct CdiSpec<'a> {
    cdi_version: &'a str,
    kind: &'a str,
    devices: [CdiDevice<'a>; 1],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct CdiDevice<'a> {
    name: &'a str,
    container_edits: CdiEdits,
}

#[derive(Serialize)]
struct CdiEdits {
    env: Vec<String>,
    mounts: Vec<CdiMount>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct CdiMount {
    host_path: PathBuf,
    container_path: &'static str,
    options: [&'static str; 5],
}

/// The kind of the CDI devices.
const CDI_KIND: &str = "rgpu.dev/claim";

/// The name by which a container runtime is told to apply a claim's edits.
pub fn cdi_name(uid: &str) -> String {
    format!("{CDI_KIND}={uid}")
}

/// The file that describes a claim's edits to container runtimes, in their folder.
pub fn cdi_file(folder: &Path, uid: &str) -> PathBuf {
    folder.join(format!("rgpu.dev-claim-{uid}.json"))
}

/// Writes a claim's description (Container Device Interface), in one step.
///
/// # Errors
/// What the system says.
pub fn write_cdi(folder: &Path, uid: &str, edits: &Edits) -> io::Result<()> {
    let mount = |mount: &Mount| CdiMount {
        host_path: mount.host.clone(),
        container_path: mount.container,
        options: ["ro", "nosuid", "nodev", "rbind", "rprivate"],
    };
    let spec = CdiSpec {
        // Names of devices may begin with a digit since this version.
        cdi_version: "0.5.0",
        kind: CDI_KIND,
        devices: [CdiDevice {
            name: uid,
            container_edits: CdiEdits {
                env: edits.environment.iter().map(|(name, value)| format!("{name}={value}")).collect(),
                mounts: edits.mounts.iter().map(mount).collect(),
            },
        }],
    };
    fs::create_dir_all(folder)?;
    files::replace(&cdi_file(folder, uid), 0o644, &serde_json::to_vec_pretty(&spec)?)
}

/// Brings the library to a folder of the node, below `base`, that is named by its contents: containers that were started with an earlier
/// library keep it. With it go links with the names under which programs look for what it replaces, for who puts them into
/// LD_LIBRARY_PATH.
///
/// # Errors
/// The library cannot be read, or not be written.
pub fn install_library(library: &Path, base: &Path) -> io::Result<PathBuf> {
    let bytes = fs::read(library).map_err(|e| {
        io::Error::new(e.kind(), format!("the library {} cannot be read: {e}", library.display()))
    })?;
    if !bytes.starts_with(b"\x7fELF") {
        return Err(io::Error::other(format!("{} is no library", library.display())));
    }
    let folder = base.join("lib").join(&blake3::hash(&bytes).to_hex()[..16]);
    if folder.join(LIBRARY).exists() {
        return Ok(folder);
    }
    let new = base.join("lib").join(format!("new-{}", std::process::id()));
    fs::create_dir_all(&new)?;
    fs::set_permissions(&new, fs::Permissions::from_mode(0o755))?;
    fs::write(new.join(LIBRARY), &bytes)?;
    fs::set_permissions(new.join(LIBRARY), fs::Permissions::from_mode(0o755))?;
    for name in libraries::links() {
        match symlink(LIBRARY, new.join(name)) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            other => other?,
        }
    }
    match fs::rename(&new, &folder) {
        // Another instance was quicker.
        Err(_) if folder.join(LIBRARY).exists() => fs::remove_dir_all(&new)?,
        other => other?,
    }
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_is_brought_once_for_each_of_its_contents() {
        let base = std::env::temp_dir().join(format!("rgpu-kubernetes-{}", std::process::id()));
        fs::create_dir_all(&base).unwrap();
        let library = base.join("built.so");
        fs::write(&library, b"\x7fELF 1").unwrap();
        let first = install_library(&library, &base).unwrap();
        assert_eq!(install_library(&library, &base).unwrap(), first);
        assert_eq!(fs::read(first.join("libcuda.so.1")).unwrap(), b"\x7fELF 1");
        fs::write(&library, b"\x7fELF 2").unwrap();
        assert_ne!(install_library(&library, &base).unwrap(), first);
        assert!(first.join(LIBRARY).exists(), "the earlier one stays");
        fs::write(&library, b"text").unwrap();
        assert!(install_library(&library, &base).unwrap_err().to_string().contains("no library"));
        let edits = Edits::new(&first, Path::new("/x"));
        write_cdi(&base.join("cdi"), "1-2", &edits).unwrap();
        let spec: serde_json::Value =
            serde_json::from_slice(&fs::read(cdi_file(&base.join("cdi"), "1-2")).unwrap()).unwrap();
        assert_eq!(spec["devices"][0]["name"], "1-2");
        assert_eq!(spec["devices"][0]["containerEdits"]["mounts"][1]["hostPath"], "/x");
        fs::remove_dir_all(base).unwrap();
    }
}
