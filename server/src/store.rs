//! Images of modules that are kept across sessions, so that they cross the wire once.
//!
//! The daemon has a directory for each *tenant*: whoever presents the server's token, or a user of this machine. An image
//! lies there in a file named by its hash. What a tenant's programs have brought is never shown to another tenant, not
//! even whether it is there. What the software GPU compiles of a tenant's kernels lies in a directory beside it, in files named by what
//! the code depends on.
//!
//! An application's process may open no files. It has a socket to the daemon, which opens them for it and hands it the
//! descriptors ([`Desk`](crate::desk::Desk)); reading, writing and hashing is the process's own work ([`Store`]). A file is written
//! under another name and renamed when it is whole. Whoever reads it compares its hash, and removes it where that is
//! wrong; so neither a crash nor a broken disk nor another application of the same tenant can make a program run
//! anything but what it asked for.
//!
//! When all files together are larger than allowed, those go that were used longest ago.

use crate::desk::{CODE, CREATE, Counter, KEEP, OPEN, REMOVE, Reply};
use parking_lot::{Condvar, Mutex};
use rgpu_control::kept::{self, Cache, Folder, Name, Unfinished, hex};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

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
pub struct ImageCache(Arc<Cache>);

impl ImageCache {
    /// Uses a directory, which is made if need be, for at most `limit` bytes.
    pub fn open(root: &Path, limit: u64) -> io::Result<Self> {
        Ok(Self(Arc::new(Cache::open(root, limit)?)))
    }

    /// A tenant's part of it.
    pub fn of_tenant(&self, tenant: &Tenant) -> io::Result<TenantImages> {
        let code = self.0.folder(&format!("{}-code", tenant.0))?;
        Ok(TenantImages { images: self.0.folder(&tenant.0)?, code, most: MAX_IMAGE.min(self.0.limit()) })
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

/// A tenant's directories.
#[derive(Debug)]
pub struct TenantImages {
    images: Folder,
    /// Compiled kernels.
    code: Folder,
    /// Bytes of a file at most.
    most: u64,
}

impl TenantImages {
    /// The beginnings of the hashes of what is there.
    pub fn beginnings(&self) -> Vec<u64> {
        let names = self.images.names();
        let beginning = |hash: &Hash| u64::from_le_bytes(std::array::from_fn(|i| hash[i]));
        names.iter().take(MAX_TOLD).map(beginning).collect()
    }

    /// Answers an application's process.
    pub(crate) fn answer(&self, kind: u8, name: &Hash, unfinished: &mut Unfinished) -> Reply {
        let folder = if kind & CODE != 0 { &self.code } else { &self.images };
        match kind & !CODE {
            OPEN => match folder.open(name) {
                Ok(file) => return Reply::File(file),
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => tracing::debug!("not read: {e}"),
            },
            CREATE => {
                // What was begun before is removed.
                *unfinished = Unfinished::default();
                if let Ok((path, file)) = folder.create() {
                    *unfinished = path;
                    return Reply::File(file);
                }
            }
            KEEP => {
                folder.keep(std::mem::take(unfinished), name, self.most);
                return Reply::Done;
            }
            _ => {
                folder.remove(name);
                return Reply::Done;
            }
        }
        Reply::Nothing
    }
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
        let image = read(&mut turn.file(OPEN, hash)?);
        let whole = image.filter(|image| blake3::hash(image) == *hash);
        if whole.is_none() {
            tracing::warn!("the image {} is damaged on disk, and was removed", hex(&hash[..8]));
            turn.file(REMOVE, hash);
        }
        whole
    }

    /// The compiled kernel that was kept under this name, if it is there and whole.
    pub fn code(&self, name: &Name) -> Option<Vec<u8>> {
        let mut turn = self.counter.turn();
        let code = read(&mut turn.file(OPEN | CODE, name)?).and_then(|bytes| kept::unseal(name, bytes));
        if code.is_none() {
            tracing::debug!("the compiled kernel {} is damaged on disk, and was removed", hex(&name[..8]));
            turn.file(REMOVE | CODE, name);
        }
        code
    }

    /// Keeps a compiled kernel.
    pub fn put_code(&self, name: &Name, code: &[u8]) {
        self.write(CODE, name, &kept::seal(name, code));
    }

    /// Keeps an image, if its hash is what it is said to be.
    pub fn put(&self, hash: Hash, image: &[u8]) {
        if image.len() as u64 > MAX_IMAGE || blake3::hash(image) != hash {
            return;
        }
        self.write(0, &hash, image);
    }

    /// Writes a file of some kind.
    fn write(&self, kind: u8, name: &Name, bytes: &[u8]) {
        let mut turn = self.counter.turn();
        if let Some(mut file) = turn.file(CREATE | kind, name)
            && file.write_all(bytes).is_ok()
        {
            drop(file);
            turn.file(KEEP | kind, name);
        }
    }
}

/// All of a file, as far as it is not too large.
fn read(file: &mut File) -> Option<Vec<u8>> {
    let size = file.metadata().ok()?.len();
    let mut bytes = Vec::new();
    let all = size <= MAX_IMAGE
        && bytes.try_reserve_exact(size as usize).is_ok()
        && file.read_to_end(&mut bytes).is_ok();
    all.then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::desk::Desk;
    use crate::shelf::Shelf;
    use std::os::unix::net::UnixStream;
    use std::path::PathBuf;
    use std::time::SystemTime;

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
        let path = images.images.path(&hash(&image));
        let mut bytes = fs::read(&path).unwrap();
        bytes[77] ^= 1;
        fs::write(&path, &bytes).unwrap();
        assert_eq!(store.get(&hash(&image)), None);
        assert!(!path.exists() && images.beginnings().is_empty());
        store.put(hash(&image), &image);
        assert!(store.get(&hash(&image)).is_some());
    }

    #[test]
    fn compiled_kernels_lie_beside_images() {
        let directory = Directory::new("code");
        let cache = Arc::new(ImageCache::open(&directory.0, 1 << 20).unwrap());
        let (ours, kept) = store(&cache, &Tenant::of_user(7));
        let (theirs, _) = store(&cache, &Tenant::of_user(8));
        let name = [4; 32];
        assert_eq!(ours.code(&name), None);
        ours.put_code(&name, b"machine code");
        assert_eq!(ours.code(&name).as_deref(), Some(&b"machine code"[..]));
        assert_eq!((theirs.code(&name), ours.get(&name), kept.beginnings()), (None, None, vec![]));
        let path = kept.code.path(&name);
        let mut bytes = fs::read(&path).unwrap();
        bytes[40] ^= 1;
        fs::write(&path, bytes).unwrap();
        assert_eq!((ours.code(&name), path.exists()), (None, false));
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
            if let Ok(file) = File::open(kept.images.path(&hash(image))) {
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
