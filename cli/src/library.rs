//! Finding `librgpu.so`, and making programs find it.
//!
//! A program that is linked with a shared CUDA runtime looks for `libcudart.so.12` or `.13`, which need not be
//! installed. A directory of symbolic links to `librgpu.so` under such names, put into LD_LIBRARY_PATH,
//! answers it, and the names of other libraries of NVIDIA's that it stands in for. The directory must outlive this command, because programs open libraries late; so there is
//! one per user and library, kept.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use rgpu_control::libraries::{self, StandsIn};
pub(crate) use rgpu_control::preload::LIBRARY as FILE_NAME;
use rgpu_control::settings::{self, LIBRARY_VARIABLE};

use crate::Failure;

/// The names under which programs look for what the library replaces.
pub(crate) fn link_names() -> impl Iterator<Item = &'static str> {
    libraries::links().chain([FILE_NAME])
}

/// Modes of directories: for this user alone, and for all to read.
const OWN: u32 = 0o700;
const SHARED: u32 = 0o755;

/// The directory, among the links, of those that are for software GPUs alone.
pub(crate) const SOFTWARE: &str = "software";

/// Finds the library: where `RGPU_LIBRARY` says, else beside this command, else in `../lib` or `../lib/rgpu`.
pub(crate) fn find() -> Result<PathBuf, Failure> {
    if let Some(path) = settings::path(LIBRARY_VARIABLE) {
        return path.canonicalize().map_err(|e| {
            Failure::new(format!("{LIBRARY_VARIABLE} names {}, which cannot be used: {e}", path.display()))
        });
    }
    let directory = own_directory()
        .map_err(|e| Failure::new(format!("Cannot find out where this command is: {e}; set RGPU_LIBRARY")))?;
    if let Some(path) = find_beside(FILE_NAME) {
        return Ok(path);
    }
    Err(Failure::new(format!(
        "{FILE_NAME} is neither in {} nor in ../lib or ../lib/rgpu from there; build it (cargo build --release builds both), \
         or say where it is with RGPU_LIBRARY=/path/to/{FILE_NAME}",
        directory.display()
    )))
}

/// A file that was built or installed with this command: beside it, or in `../lib` or `../lib/rgpu` from there.
pub(crate) fn find_beside(name: &str) -> Option<PathBuf> {
    let directory = own_directory().ok()?;
    let places = ["", "../lib", "../lib/rgpu"];
    places.iter().find_map(|place| directory.join(place).join(name).canonicalize().ok())
}

/// Where this command is.
fn own_directory() -> io::Result<PathBuf> {
    let command = std::env::current_exe()?.canonicalize()?;
    Ok(command.parent().unwrap_or(Path::new("/")).to_owned())
}

/// A directory of links to the library.
#[derive(Debug)]
pub(crate) struct Links {
    directory: PathBuf,
}

impl Links {
    /// Makes the directory, or finds it made.
    pub(crate) fn create(library: &Path) -> Result<Self, Failure> {
        let command = std::env::current_exe()
            .map_err(|e| Failure::new(format!("Cannot find out where this command is: {e}")))?;
        Self::create_somewhere(library, |base| Self::create_in(base, library, &command, OWN))
    }

    /// The same for programs of a container, where library and command are at other places and users may be others: they can read it.
    pub(crate) fn for_container(library: &Path, command: &Path) -> Result<Self, Failure> {
        Self::create_somewhere(library, |base| {
            Self::create_in(&base.join("container"), library, command, SHARED)
        })
    }

    fn create_somewhere(library: &Path, create: impl Fn(&Path) -> io::Result<Self>) -> Result<Self, Failure> {
        let mut problems = Vec::new();
        for base in bases() {
            match create(&base) {
                Ok(links) => return Ok(links),
                Err(e) => problems.push(format!("{}: {e}", base.display())),
            }
        }
        Err(Failure::new(format!(
            "Found no place for the links to {}; set XDG_CACHE_HOME to a directory of yours that can be \
             written to ({})",
            library.display(),
            problems.join("; ")
        )))
    }

    /// Makes the directory where all users can read it, in one of this user's.
    pub(crate) fn create_shared(base: &Path, library: &Path) -> Result<Self, Failure> {
        let made = std::env::current_exe()
            .and_then(|command| Self::create_in(&base.join("links"), library, &command, SHARED));
        made.map_err(|e| {
            let (library, base) = (library.display(), base.display());
            Failure::new(format!("Found no place for the links to {library} in {base}: {e}"))
        })
    }

    fn create_in(base: &Path, library: &Path, command: &Path, mode: u32) -> io::Result<Self> {
        // Its name ends up in lists that are separated by these, and cannot be quoted there.
        if base.as_os_str().as_bytes().iter().any(|byte| b": ;".contains(byte)) {
            return Err(io::Error::other("its name contains a character that separates names in LD_PRELOAD"));
        }
        let directory = base.join(format!("links-{:016x}", hash_of(library)));
        make_own(base, mode)?;
        make_own(&directory, mode)?;
        for name in link_names() {
            put_link(&directory, name, library)?;
        }
        let software = directory.join(SOFTWARE);
        make_own(&software, mode)?;
        for name in libraries::files(StandsIn::ForSoftware) {
            put_link(&software, name, library)?;
        }
        make_own(&software.join("bin"), mode)?;
        for name in ["ptxas", "ptxas-blackwell"] {
            put_link(&software.join("bin"), name, command)?;
        }
        Ok(Self { directory })
    }

    /// The directory.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// The directory of further links, for a program whose device is a software GPU; laid out as a folder of CUDA's, `bin/ptxas`.
    pub(crate) fn software(&self) -> PathBuf {
        self.directory.join(SOFTWARE)
    }

    /// A path of the library that can stand in LD_PRELOAD, whatever characters its own contains.
    pub(crate) fn preloadable(&self) -> PathBuf {
        self.directory.join(FILE_NAME)
    }
}

/// Makes a link in one step, so that whoever looks finds the old one or the new one.
pub(crate) fn put_link(directory: &Path, name: &str, target: &Path) -> io::Result<()> {
    let link = directory.join(name);
    if fs::read_link(&link).is_ok_and(|found| found == target) {
        return Ok(());
    }
    let temporary = directory.join(format!(".{name}.{}", std::process::id()));
    let _ = fs::remove_file(&temporary);
    symlink(target, &temporary)?;
    fs::rename(&temporary, &link)
}

fn hash_of(path: &Path) -> u64 {
    let mut hasher = DefaultHasher::new();
    path.hash(&mut hasher);
    hasher.finish()
}

/// Where the directory may be, best first.
fn bases() -> Vec<PathBuf> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let mut bases = Vec::new();
    bases.extend(absolute("XDG_CACHE_HOME").map(|path| path.join("rgpu")));
    bases.extend(absolute("HOME").map(|path| path.join(".cache/rgpu")));
    bases.extend(absolute("XDG_RUNTIME_DIR").map(|path| path.join("rgpu")));
    bases.push(temporary_base());
    bases
}

/// A directory of this user's alone below the one for temporary files, which is to be made by [`make_private`].
pub(crate) fn temporary_base() -> PathBuf {
    std::env::temp_dir().join(format!("rgpu-{}", user()))
}

/// A directory of this user's alone for what can be made again. `None` where none can be made.
pub(crate) fn private_folder(name: &str) -> Option<PathBuf> {
    bases().into_iter().find_map(|base| {
        make_private(&base).ok()?;
        make_private(&base.join(name)).ok()?;
        Some(base.join(name))
    })
}

fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Makes a directory that only this user can change, or checks that it is one. Whoever could change it could
/// make programs load their code.
pub(crate) fn make_private(directory: &Path) -> io::Result<()> {
    make_own(directory, OWN)
}

fn make_own(directory: &Path, mode: u32) -> io::Result<()> {
    if let Some(parent) = directory.parent().filter(|parent| !parent.exists()) {
        fs::create_dir_all(parent)?;
    }
    match fs::DirBuilder::new().mode(mode).create(directory) {
        // Whatever the umask is.
        Ok(()) => fs::set_permissions(directory, fs::Permissions::from_mode(mode))?,
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
        Err(e) => return Err(e),
    }
    // The link itself, not where it leads.
    let status = fs::symlink_metadata(directory)?;
    if !status.is_dir() {
        return Err(io::Error::other(format!("{} is not a directory", directory.display())));
    }
    if status.uid() != user() || status.mode() & 0o022 != 0 {
        let text = format!("{} belongs to, or can be changed by, somebody else", directory.display());
        return Err(io::Error::other(text));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("rgpu-cli-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        path
    }

    #[test]
    fn links_lead_to_the_library_and_follow_it() {
        let base = scratch("links");
        let library = base.join("some where");
        fs::write(&library, "").unwrap();
        let links = Links::create_in(&base.join("cache"), &library, Path::new("/bin/rgpu"), OWN).unwrap();
        for name in libraries::files(StandsIn::ForSoftware) {
            assert_eq!(fs::read_link(links.software().join(name)).unwrap(), library);
        }
        for name in link_names() {
            assert_eq!(fs::read_link(links.directory().join(name)).unwrap(), library);
        }
        // A link that leads elsewhere is put right.
        fs::remove_file(links.directory().join("libcuda.so")).unwrap();
        symlink("/nowhere", links.directory().join("libcuda.so")).unwrap();
        let again = Links::create_in(&base.join("cache"), &library, Path::new("/bin/rgpu"), OWN).unwrap();
        assert_eq!(again.directory(), links.directory());
        assert_eq!(fs::read_link(links.directory().join("libcuda.so")).unwrap(), library);
        let shared = Links::create_shared(&base, &library).unwrap();
        assert_eq!(fs::metadata(shared.directory()).unwrap().mode() & 0o777, SHARED);
        fs::remove_dir_all(base).unwrap();
    }

    #[test]
    fn a_directory_that_others_can_change_is_refused() {
        let base = scratch("shared");
        let cache = base.join("cache");
        fs::create_dir(&cache).unwrap();
        fs::set_permissions(&cache, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(Links::create_in(&cache, Path::new("/lib"), Path::new("/bin/rgpu"), OWN).is_err());
        fs::set_permissions(&cache, fs::Permissions::from_mode(0o700)).unwrap();
        Links::create_in(&cache, Path::new("/lib"), Path::new("/bin/rgpu"), OWN).unwrap();
        // Nor is a link to another directory followed.
        let link = base.join("link");
        symlink(&cache, &link).unwrap();
        assert!(Links::create_in(&link, Path::new("/lib"), Path::new("/bin/rgpu"), OWN).is_err());
        fs::remove_dir_all(base).unwrap();
    }
}
