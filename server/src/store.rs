//! Images of modules that are kept across sessions, so that they cross the wire once.
//!
//! The daemon has a directory for each *tenant*: whoever presents the server's token, or a user of this machine. An image
//! lies there in a file named by its hash. What a tenant's programs have brought is never shown to another tenant, not
//! even whether it is there.
//!
//! An application's process may open no files. It has a socket to the daemon, which opens them for it and hands it the
//! descriptors ([`Desk`](crate::desk::Desk)); reading, writing and hashing is the process's own work ([`Store`]). A file is written
//! under another name and renamed when it is whole. Whoever reads it compares its hash, and removes it where that is
//! wrong; so neither a crash nor a broken disk nor another application of the same tenant can make a program run
//! anything but what it asked for.
//!
//! When all files together are larger than allowed, those go that were used longest ago.

use crate::desk::{CREATE, Counter, KEEP, OPEN, REMOVE, Reply};
use parking_lot::{Condvar, Mutex};
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime};

/// The hash of an image.
pub type Hash = [u8; 32];

/// Images that are larger are not kept.
const MAX_IMAGE: u64 = 256 << 20;
/// A client is told of so many images, those used last.
const MAX_TOLD: usize = 4096;
/// How long an application's process stays to keep what its session has loaded last.
const FLUSH_TIME: Duration = Duration::from_secs(1);

/// The daemon's directory.
#[derive(Debug)]
pub struct ImageCache {
    root: PathBuf,
    limit: u64,
    /// Held while files are counted and removed.
    tidying: Mutex<()>,
    next: AtomicU64,
}

impl ImageCache {
    /// Uses a directory, which is made if need be, for at most `limit` bytes.
    pub fn open(root: &Path, limit: u64) -> io::Result<Self> {
        let name = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", root.display()));
        DirBuilder::new().recursive(true).mode(0o700).create(root).map_err(name)?;
        let cache = Self { root: root.to_owned(), limit, tidying: Mutex::new(()), next: AtomicU64::new(0) };
        for tenant in fs::read_dir(root).map_err(name)?.flatten() {
            for file in fs::read_dir(tenant.path()).into_iter().flatten().flatten() {
                let old = |m: fs::Metadata| m.modified().ok()?.elapsed().ok().map(|a| a.as_secs() > 3600);
                if hash_of(&file.path()).is_none() && file.metadata().ok().and_then(old) == Some(true) {
                    let _ = fs::remove_file(file.path()); // what a crash has left
                }
            }
        }
        Ok(cache)
    }

    /// A tenant's part of it.
    pub fn of_tenant(self: &Arc<Self>, tenant: &Tenant) -> io::Result<TenantImages> {
        let place = self.root.join(&tenant.0);
        DirBuilder::new().recursive(true).mode(0o700).create(&place)?;
        Ok(TenantImages { cache: self.clone(), place })
    }

    /// Removes files until they are few enough.
    fn tidy(&self) {
        let _guard = self.tidying.lock();
        let mut files: Vec<(SystemTime, u64, PathBuf)> = Vec::new();
        for tenant in fs::read_dir(&self.root).into_iter().flatten().flatten() {
            for file in fs::read_dir(tenant.path()).into_iter().flatten().flatten() {
                if let Ok(m) = file.metadata() {
                    files.push((m.modified().unwrap_or(SystemTime::UNIX_EPOCH), m.len(), file.path()));
                }
            }
        }
        let mut total: u64 = files.iter().map(|f| f.1).sum();
        files.sort();
        for (_, size, path) in files {
            if total <= self.limit {
                break;
            }
            if hash_of(&path).is_some() && fs::remove_file(&path).is_ok() {
                total -= size;
            }
        }
    }
}

/// Who images belong to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tenant(String);

impl Tenant {
    /// Everybody who knows a token.
    pub fn of_token(token: &[u8]) -> Self {
        let key = blake3::derive_key("rgpu 2026 tenants of the store of images", token);
        Self(format!("token-{}", &hex(&key)[..32]))
    }

    /// A tenant of the broker.
    pub fn of_broker(name: &str) -> Self {
        let key =
            blake3::derive_key("rgpu 2026 tenants of the broker in the store of images", name.as_bytes());
        Self(format!("tenant-{}", &hex(&key)[..32]))
    }

    /// A user of this machine.
    pub fn of_user(uid: u32) -> Self {
        Self(format!("user-{uid}"))
    }

    /// The user at the other end of a TCP connection within this machine, if it can be told.
    pub fn of_loopback(server: SocketAddr, client: SocketAddr) -> Option<Self> {
        if !client.ip().to_canonical().is_loopback() {
            return None;
        }
        let table = if client.is_ipv4() { "/proc/net/tcp" } else { "/proc/net/tcp6" };
        let uid = uid_in(&fs::read_to_string(table).ok()?, &place_in_table(client), &place_in_table(server))?;
        Some(Self::of_user(uid))
    }
}

/// An address as the kernel's table of connections writes it.
fn place_in_table(address: SocketAddr) -> String {
    let words: Vec<u32> = match address {
        SocketAddr::V4(v4) => vec![u32::from_ne_bytes(v4.ip().octets())],
        SocketAddr::V6(v6) => {
            v6.ip().octets().chunks(4).map(|c| u32::from_ne_bytes([c[0], c[1], c[2], c[3]])).collect()
        }
    };
    let words: String = words.iter().map(|w| format!("{w:08X}")).collect();
    format!("{words}:{:04X}", address.port())
}

fn uid_in(table: &str, local: &str, remote: &str) -> Option<u32> {
    table.lines().skip(1).find_map(|line| {
        let mut words = line.split_ascii_whitespace().skip(1);
        let here = words.next() == Some(local) && words.next() == Some(remote);
        // State, queues, timer and retransmissions stand between.
        if here { words.nth(4)?.parse().ok() } else { None }
    })
}

/// A file that is being written, and removed unless it is kept.
#[derive(Default)]
pub(crate) struct Unfinished(Option<PathBuf>);

impl Drop for Unfinished {
    fn drop(&mut self) {
        if let Some(path) = self.0.take() {
            let _ = fs::remove_file(path);
        }
    }
}

/// A tenant's directory.
#[derive(Debug)]
pub struct TenantImages {
    cache: Arc<ImageCache>,
    place: PathBuf,
}

impl TenantImages {
    /// The beginnings of the hashes of what is there.
    pub fn beginnings(&self) -> Vec<u64> {
        let mut found: Vec<(SystemTime, u64)> = fs::read_dir(&self.place)
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|file| {
                let hash = hash_of(&file.path())?;
                let used = file.metadata().ok()?.modified().ok()?;
                Some((used, u64::from_le_bytes(hash[..8].try_into().ok()?)))
            })
            .collect();
        found.sort_unstable_by(|a, b| b.cmp(a));
        found.truncate(MAX_TOLD);
        found.into_iter().map(|f| f.1).collect()
    }

    fn path(&self, hash: &Hash) -> PathBuf {
        self.place.join(hex(hash))
    }

    /// Answers an application's process.
    pub(crate) fn answer(&self, kind: u8, hash: &Hash, unfinished: &mut Unfinished) -> Reply {
        match kind {
            OPEN => {
                let file = OpenOptions::new()
                    .read(true)
                    .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
                    .open(self.path(hash));
                if let Ok(file) = &file {
                    let _ = file.set_modified(SystemTime::now()); // only for choosing what to remove
                }
                file.map_or(Reply::Nothing, Reply::File)
            }
            CREATE => {
                let number = self.cache.next.fetch_add(1, Relaxed);
                let path = self.place.join(format!("new-{}-{number}", std::process::id()));
                let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
                // What was begun before is removed.
                *unfinished = Unfinished(Some(path));
                file.map_or(Reply::Nothing, Reply::File)
            }
            KEEP => {
                if let Some(path) = unfinished.0.take() {
                    let small = fs::metadata(&path).is_ok_and(|m| m.len() <= self.most());
                    if !small || fs::rename(&path, self.path(hash)).is_err() {
                        let _ = fs::remove_file(&path);
                    }
                    self.cache.tidy();
                }
                Reply::Done
            }
            _ => {
                let _ = fs::remove_file(self.path(hash));
                Reply::Done
            }
        }
    }

    fn most(&self) -> u64 {
        MAX_IMAGE.min(self.cache.limit)
    }
}

/// The hash that a file is named by.
fn hash_of(path: &Path) -> Option<Hash> {
    let name = path.file_name()?.to_str()?;
    if name.len() != 64 || !name.is_ascii() {
        return None;
    }
    let mut hash = [0; 32];
    for (i, byte) in hash.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&name[2 * i..2 * i + 2], 16).ok()?;
    }
    Some(hash)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// An application's way to its tenant's images.
#[derive(Debug)]
pub struct Store {
    counter: Arc<Counter>,
    /// How many images are about to be kept.
    keeping: Mutex<usize>,
    kept: Condvar,
}

/// An image is about to be kept, as long as this exists.
#[derive(Debug)]
pub struct Keeping(Arc<Store>);

impl Drop for Keeping {
    fn drop(&mut self) {
        *self.0.keeping.lock() -= 1;
        self.0.kept.notify_all();
    }
}

impl Store {
    /// The daemon hands files out over this counter.
    pub fn new(counter: Arc<Counter>) -> Self {
        Self { counter, keeping: Mutex::new(0), kept: Condvar::new() }
    }

    /// Announces an image that is not kept yet.
    pub fn keeping(self: &Arc<Self>) -> Keeping {
        *self.keeping.lock() += 1;
        Keeping(self.clone())
    }

    /// Waits until what was announced is kept, but not for long.
    pub fn finish(&self) {
        let end = Instant::now() + FLUSH_TIME;
        let mut keeping = self.keeping.lock();
        while *keeping > 0 && !self.kept.wait_until(&mut keeping, end).timed_out() {}
    }

    /// The image with this hash, if it is there and whole.
    pub fn get(&self, hash: &Hash) -> Option<Vec<u8>> {
        let mut turn = self.counter.turn();
        let mut file = turn.file(OPEN, hash)?;
        let size = file.metadata().ok()?.len();
        let mut image = Vec::new();
        let whole = size <= MAX_IMAGE
            && image.try_reserve_exact(size as usize).is_ok()
            && file.read_to_end(&mut image).is_ok()
            && blake3::hash(&image) == *hash;
        if !whole {
            tracing::warn!("the image {} is damaged on disk, and was removed", hex(&hash[..8]));
            turn.file(REMOVE, hash);
            return None;
        }
        Some(image)
    }

    /// Keeps an image, if its hash is what it is said to be.
    pub fn put(&self, hash: Hash, image: &[u8]) {
        if image.len() as u64 > MAX_IMAGE || blake3::hash(image) != hash {
            return;
        }
        let mut turn = self.counter.turn();
        if let Some(mut file) = turn.file(CREATE, &hash)
            && file.write_all(image).is_ok()
        {
            drop(file);
            turn.file(KEEP, &hash);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::desk::Desk;
    use crate::shelf::Shelf;
    use std::fs::File;
    use std::os::unix::net::UnixStream;

    struct Directory(PathBuf);

    impl Directory {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("rgpu-store-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            Self(path)
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    /// A store with the daemon's side in a thread.
    fn store(cache: &Arc<ImageCache>, tenant: &Tenant) -> (Store, TenantImages) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let images = Some(cache.of_tenant(tenant).unwrap());
        let desk = Desk { images, member: Arc::new(Shelf::default()).member(tenant.clone()) };
        std::thread::spawn(move || desk.serve(&theirs));
        let counter = Counter::new(ours.into()).unwrap();
        (Store::new(counter), cache.of_tenant(tenant).unwrap())
    }

    fn hash(image: &[u8]) -> Hash {
        *blake3::hash(image).as_bytes()
    }

    #[test]
    fn images_come_back_to_their_tenant_alone() {
        let directory = Directory::new("tenants");
        let cache = Arc::new(ImageCache::open(&directory.0, 1 << 20).unwrap());
        let (ours, images) = store(&cache, &Tenant::of_user(7));
        let (theirs, other) = store(&cache, &Tenant::of_token(b"secret"));
        let image = vec![5u8; 100_000];
        assert_eq!(ours.get(&hash(&image)), None);
        ours.put(hash(&image), &image);
        assert_eq!(ours.get(&hash(&image)).as_deref(), Some(&image[..]));
        assert_eq!(images.beginnings(), [u64::from_le_bytes(hash(&image)[..8].try_into().unwrap())]);
        assert_eq!((theirs.get(&hash(&image)), other.beginnings()), (None, vec![]));
        // Under a hash that is not its own nothing is kept.
        ours.put([1; 32], &image);
        assert_eq!(ours.get(&[1; 32]), None);
    }

    #[test]
    fn what_is_damaged_is_removed() {
        let directory = Directory::new("damaged");
        let cache = Arc::new(ImageCache::open(&directory.0, 1 << 20).unwrap());
        let (store, images) = store(&cache, &Tenant::of_user(7));
        let image = vec![9u8; 5000];
        store.put(hash(&image), &image);
        let path = images.path(&hash(&image));
        let mut bytes = fs::read(&path).unwrap();
        bytes[77] ^= 1;
        fs::write(&path, &bytes).unwrap();
        assert_eq!(store.get(&hash(&image)), None);
        assert!(!path.exists() && images.beginnings().is_empty());
        store.put(hash(&image), &image);
        assert!(store.get(&hash(&image)).is_some());
    }

    #[test]
    fn what_was_used_longest_ago_goes_first() {
        let directory = Directory::new("bounded");
        let cache = Arc::new(ImageCache::open(&directory.0, 250_000).unwrap());
        let (store, kept) = store(&cache, &Tenant::of_user(7));
        let images: Vec<Vec<u8>> = (0..3).map(|i| vec![i; 100_000]).collect();
        for (i, image) in images.iter().enumerate() {
            store.put(hash(image), image);
            let age = Duration::from_secs(1000 - 100 * i as u64);
            if let Ok(file) = File::open(kept.path(&hash(image))) {
                file.set_modified(SystemTime::now() - age).unwrap();
            }
        }
        assert_eq!(store.get(&hash(&images[0])), None);
        assert!(store.get(&hash(&images[1])).is_some() && store.get(&hash(&images[2])).is_some());
        // What is larger than everything may be is not kept.
        let large = vec![8u8; 300_000];
        store.put(hash(&large), &large);
        assert_eq!(store.get(&hash(&large)), None);
    }

    #[test]
    fn users_are_found_in_the_kernels_table() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid\n\
             0: 0100007F:1B9E 0100007F:C001 01 00000000:00000000 00:00000000 00000000     0        0 1 1\n\
             1: 0100007F:C001 0100007F:1B9E 01 00000000:00000000 00:00000000 00000000  1000        0 2 1\n";
        let (server, client) = ("127.0.0.1:7070".parse().unwrap(), "127.0.0.1:49153".parse().unwrap());
        assert_eq!(place_in_table(server), "0100007F:1B9E");
        assert_eq!(uid_in(table, &place_in_table(client), &place_in_table(server)), Some(1000));
        assert_eq!(uid_in(table, &place_in_table(client), &place_in_table(client)), None);
        assert_eq!(Tenant::of_loopback(server, "10.1.2.3:5".parse().unwrap()), None);
        // A real connection is this test's own user's.
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let found = Tenant::of_loopback(stream.peer_addr().unwrap(), stream.local_addr().unwrap());
        // SAFETY: plain system call.
        assert_eq!(found, Some(Tenant::of_user(unsafe { libc::geteuid() })));
    }
}
