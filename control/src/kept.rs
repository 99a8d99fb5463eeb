//! Files that are kept from one process to the next: in folders of one directory, each named by 32 bytes, removed when all
//! together are larger than allowed, those first that were used longest ago.
//!
//! Directories are their user's alone. A file is written under another name and renamed when it is whole, so that who reads it
//! finds all of it or nothing. What another user owns or may write is not read.
//!
//! Files whose names say what they belong to, and not what is in them, begin with a hash of both ([`Folder::read`]).

use rustix::fs::OFlags;
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

/// What a file is named by.
pub type Name = [u8; 32];

/// How long a file may take to be written.
const UNFINISHED_TIME: Duration = Duration::from_secs(3600);
/// Bytes before the contents of a file that [`seal`] makes.
const SEAL: usize = 32;

/// A directory of folders of files.
#[derive(Debug)]
pub struct Cache {
    root: PathBuf,
    limit: u64,
    /// Held while files are counted and removed.
    tidying: Mutex<()>,
    /// How many bytes may be kept before files are counted again.
    room: AtomicU64,
    next: AtomicU64,
}

impl Cache {
    /// Uses a directory, which is made if need be, for at most `limit` bytes. Other processes that use it may add an eighth each.
    ///
    /// # Errors
    /// What the system says; [`io::ErrorKind::PermissionDenied`] for a directory that another user owns or may write.
    pub fn open(root: &Path, limit: u64) -> io::Result<Self> {
        let name = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", root.display()));
        own_directory(root).map_err(name)?;
        // The first file that comes has all others counted; who only reads need not look at them.
        let (room, next) = (AtomicU64::new(0), AtomicU64::new(0));
        Ok(Self { root: root.to_owned(), limit, tidying: Mutex::new(()), room, next })
    }

    /// One of its folders, which is made if need be.
    ///
    /// # Errors
    /// Those of [`Cache::open`].
    pub fn folder(self: &Arc<Self>, name: &str) -> io::Result<Folder> {
        let place = self.root.join(name);
        own_directory(&place)?;
        Ok(Folder { cache: self.clone(), place })
    }

    /// Bytes that all files together may have.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// So many bytes have come: removes files until they are few enough, where they could be too many.
    fn added(&self, bytes: u64) {
        if self.room.fetch_update(Relaxed, Relaxed, |room| room.checked_sub(bytes)).is_ok() {
            return;
        }
        let _guard = self.tidying.lock().unwrap_or_else(PoisonError::into_inner);
        let mut files: Vec<(SystemTime, u64, PathBuf)> = Vec::new();
        for folder in fs::read_dir(&self.root).into_iter().flatten().flatten() {
            for file in fs::read_dir(folder.path()).into_iter().flatten().flatten() {
                if let Ok(m) = file.metadata() {
                    files.push((m.modified().unwrap_or(SystemTime::UNIX_EPOCH), m.len(), file.path()));
                }
            }
        }
        let mut total: u64 = files.iter().map(|f| f.1).sum();
        files.sort();
        for (used, size, path) in files {
            // What has no name yet is being written, or was when its process ended.
            let stays = match name_of(&path) {
                Some(_) => total <= self.limit,
                None => used.elapsed().is_ok_and(|age| age < UNFINISHED_TIME),
            };
            if !stays && fs::remove_file(&path).is_ok() {
                total -= size;
            }
        }
        self.room.store(self.limit.saturating_sub(total).min(self.limit / 8), Relaxed);
    }
}

/// A file that is being written, and removed unless it is kept.
#[derive(Debug, Default)]
pub struct Unfinished(Option<PathBuf>);

impl Drop for Unfinished {
    fn drop(&mut self) {
        if let Some(path) = self.0.take() {
            let _ = fs::remove_file(path);
        }
    }
}

/// A folder of files.
#[derive(Debug)]
pub struct Folder {
    cache: Arc<Cache>,
    place: PathBuf,
}

impl Folder {
    /// The names of the files, those used last first.
    pub fn names(&self) -> Vec<Name> {
        let files = fs::read_dir(&self.place).into_iter().flatten().flatten();
        let mut found: Vec<(SystemTime, Name)> = files
            .filter_map(|file| Some((file.metadata().ok()?.modified().ok()?, name_of(&file.path())?)))
            .collect();
        found.sort_unstable_by(|a, b| b.cmp(a));
        found.into_iter().map(|(_, name)| name).collect()
    }

    /// Where the file of this name lies, or would.
    pub fn path(&self, name: &Name) -> PathBuf {
        self.place.join(hex(name))
    }

    /// Opens a file for reading.
    ///
    /// # Errors
    /// What the system says; [`io::ErrorKind::PermissionDenied`] where another user owns it or may write it.
    pub fn open(&self, name: &Name) -> io::Result<File> {
        let path = self.path(name);
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let file = OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(&path)?;
        let found = file.metadata()?;
        if !found.is_file() || !is_ours(&found) {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                format!("{}: {FOREIGN}", path.display()),
            ));
        }
        let _ = file.set_modified(SystemTime::now()); // only for choosing what to remove
        Ok(file)
    }

    /// A new file, to be [kept](Folder::keep) when it is written.
    ///
    /// # Errors
    /// What the system says.
    pub fn create(&self) -> io::Result<(Unfinished, File)> {
        let number = self.cache.next.fetch_add(1, Relaxed);
        let path = self.place.join(format!("new-{}-{number}", std::process::id()));
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        Ok((Unfinished(Some(path)), file))
    }

    /// Gives a file its name, in place of one that has it, unless it has more than `most` bytes.
    pub fn keep(&self, mut file: Unfinished, name: &Name, most: u64) {
        let Some(path) = file.0.take() else { return };
        let size = fs::metadata(&path).map_or(u64::MAX, |m| m.len());
        if size > most.min(self.cache.limit) || fs::rename(&path, self.path(name)).is_err() {
            let _ = fs::remove_file(&path);
            return;
        }
        self.cache.added(size);
    }

    /// Removes a file, if there is one.
    pub fn remove(&self, name: &Name) {
        let _ = fs::remove_file(self.path(name));
    }

    /// The contents of a [sealed](seal) file; `None` where there is none.
    ///
    /// # Errors
    /// What the system says; [`io::ErrorKind::InvalidData`] for a file that is damaged.
    pub fn read(&self, name: &Name) -> io::Result<Option<Vec<u8>>> {
        let mut file = match self.open(name) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let damaged = || {
            io::Error::new(io::ErrorKind::InvalidData, format!("{} is damaged", self.path(name).display()))
        };
        unseal(name, bytes).ok_or_else(damaged).map(Some)
    }

    /// Writes a [sealed](seal) file with these contents.
    ///
    /// # Errors
    /// What the system says.
    pub fn write(&self, name: &Name, contents: &[u8]) -> io::Result<()> {
        let (unfinished, mut file) = self.create()?;
        file.write_all(&seal(name, contents))?;
        drop(file);
        self.keep(unfinished, name, u64::MAX);
        Ok(())
    }
}

/// Contents behind a hash of them and of the name that they are kept under.
pub fn seal(name: &Name, contents: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(SEAL + contents.len());
    bytes.extend_from_slice(blake3::keyed_hash(name, contents).as_bytes());
    bytes.extend_from_slice(contents);
    bytes
}

/// The contents of what [`seal`] has made for this name; `None` where it is anything else.
pub fn unseal(name: &Name, mut bytes: Vec<u8>) -> Option<Vec<u8>> {
    let (hash, contents) = bytes.split_first_chunk::<SEAL>()?;
    if blake3::keyed_hash(name, contents) != *hash {
        return None;
    }
    bytes.drain(..SEAL);
    Some(bytes)
}

const FOREIGN: &str = "another user owns it or may write it";

/// Whether something is this user's, and nobody else's to write.
fn is_ours(found: &Metadata) -> bool {
    found.uid() == rustix::process::geteuid().as_raw() && found.mode() & 0o022 == 0
}

/// Makes a directory for this user alone, or makes sure that one is this user's.
fn own_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    let ours = is_ours(&fs::metadata(path)?);
    if ours { Ok(()) } else { Err(io::Error::new(io::ErrorKind::PermissionDenied, FOREIGN)) }
}

/// The name that a file has.
fn name_of(path: &Path) -> Option<Name> {
    let text = path.file_name()?.to_str()?;
    if text.len() != 64 || !text.is_ascii() {
        return None;
    }
    let mut name = [0; 32];
    for (i, byte) in name.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * i..2 * i + 2], 16).ok()?;
    }
    Some(name)
}

/// Bytes as hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    struct Directory(PathBuf);

    impl Directory {
        fn new() -> Self {
            Self(std::env::temp_dir().join(format!("rgpu-kept-{:016x}", crate::LeaseId::random().0)))
        }

        fn folder(&self, limit: u64) -> Folder {
            Arc::new(Cache::open(&self.0, limit).unwrap()).folder("code").unwrap()
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn mode(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn what_is_written_is_read_under_its_name_alone() {
        let directory = Directory::new();
        let folder = directory.folder(1 << 20);
        let (name, other) = ([1; 32], [2; 32]);
        assert_eq!(folder.read(&name).unwrap(), None);
        folder.write(&name, b"contents").unwrap();
        assert_eq!(folder.read(&name).unwrap().as_deref(), Some(&b"contents"[..]));
        assert_eq!((folder.names(), fs::read_dir(&folder.place).unwrap().count()), (vec![name], 1));
        fs::copy(folder.path(&name), folder.path(&other)).unwrap();
        assert_eq!(folder.read(&other).unwrap_err().kind(), io::ErrorKind::InvalidData);
        for path in [&directory.0, &folder.place] {
            assert_eq!(fs::metadata(path).unwrap().mode() & 0o777, 0o700);
        }
    }

    #[test]
    fn what_is_damaged_or_can_be_anothers_is_refused() {
        let directory = Directory::new();
        let folder = directory.folder(1 << 20);
        let name = [3; 32];
        let kind = || folder.read(&name).unwrap_err().kind();
        folder.write(&name, b"contents").unwrap();
        let whole = fs::read(folder.path(&name)).unwrap();
        for damage in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[damage] ^= 1;
            fs::write(folder.path(&name), &bytes).unwrap();
            assert_eq!(kind(), io::ErrorKind::InvalidData, "byte {damage}");
        }
        for length in [0, 31, 32, whole.len() - 1] {
            fs::write(folder.path(&name), &whole[..length]).unwrap();
            assert_eq!(kind(), io::ErrorKind::InvalidData, "{length} bytes");
        }
        folder.write(&name, b"contents").unwrap();
        assert!(folder.read(&name).unwrap().is_some());
        mode(&folder.path(&name), 0o620);
        assert_eq!(kind(), io::ErrorKind::PermissionDenied);
        folder.write(&name, b"again").unwrap();
        assert_eq!(folder.read(&name).unwrap().as_deref(), Some(&b"again"[..]));
        fs::remove_file(folder.path(&name)).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", folder.path(&name)).unwrap();
        assert!(folder.read(&name).is_err());
        // Only root can make a file somebody else's.
        if rustix::process::geteuid().is_root() {
            folder.write(&name, b"theirs").unwrap();
            std::os::unix::fs::chown(folder.path(&name), Some(1), None).unwrap();
            assert_eq!(kind(), io::ErrorKind::PermissionDenied);
        }
        mode(&directory.0, 0o777);
        assert_eq!(Cache::open(&directory.0, 1).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    }

    #[test]
    fn what_was_used_longest_ago_goes_first() {
        let directory = Directory::new();
        let folder = directory.folder(10_000);
        for i in 0..20u8 {
            folder.write(&[i; 32], &[i; 968]).unwrap();
            let file = File::open(folder.path(&[i; 32])).unwrap();
            file.set_modified(SystemTime::now() - Duration::from_secs(1000 - 10 * u64::from(i))).unwrap();
            assert!(folder.names().len() <= 10);
        }
        let left: Vec<u8> = folder.names().iter().map(|name| name[0]).collect();
        assert_eq!(left, (10..20).rev().collect::<Vec<u8>>());
        // What a process left that has ended, and what another is writing.
        let (left, writing) = (folder.place.join("new-1-0"), folder.place.join("new-2-0"));
        let old = File::create(&left).unwrap();
        old.set_modified(SystemTime::now() - 2 * UNFINISHED_TIME).unwrap();
        fs::write(&writing, b"half").unwrap();
        directory.folder(10_000).write(&[98; 32], &[0; 968]).unwrap();
        assert_eq!((left.exists(), writing.exists()), (false, true));
        let names = folder.names();
        folder.write(&[99; 32], &[0; 20_000]).unwrap();
        assert_eq!(folder.names(), names, "what is larger than all may be is not kept");
    }
}
