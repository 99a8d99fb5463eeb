//! A ring of bytes in memory that two processes share.
//!
//! One side writes, the other reads. Each keeps its own index to itself and publishes it; what the other has
//! published is read once and believed only within the ring's bounds, so that a hostile peer can garble the
//! bytes it sends, and nothing else.

use super::words::{self, AtomicU32, AtomicU64, Byte, CAPACITY, STEP, fence};
use std::io;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};

/// Somebody sleeps until there is something: the thread that reads.
pub(super) const READER: u32 = 1;
/// Somebody sleeps until there is something: a thread that reads where nobody else does.
pub(super) const WATCHER: u32 = 2;

/// On cache lines of its own (two, which processors fetch together).
#[repr(C, align(128))]
struct Line<T>(T);

/// The shared indices. Both count bytes since the beginning.
#[repr(C)]
pub(super) struct Indices {
    /// Bytes written.
    written: Line<AtomicU64>,
    /// Bytes read.
    read: Line<AtomicU64>,
    /// [`READER`] and [`WATCHER`].
    readers_asleep: Line2,
    /// Whether the writer sleeps until there is room.
    writer_asleep: Line2,
    /// Keeps the rest where peers of earlier builds look for it.
    _unused: Line2,
    /// Where the threads of the writer's side sleep, whatever they wait for: a [futex](super::futex::Futex).
    pub writer_futex: Line2,
}

/// A word on a line of its own.
#[repr(C, align(128))]
pub(super) struct Line2(pub AtomicU32);

/// Bytes that a ring's indices take, with room for more.
pub(super) const INDEX_BYTES: usize = 1024;
const _: () = assert!(size_of::<Indices>() <= INDEX_BYTES);

fn broken() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the peer has broken the ring's indices")
}

/// One side's view of a ring.
pub(super) struct Ring {
    indices: *const Indices,
    bytes: *mut Byte,
    /// Our own index; for the reader bytes read, for the writer bytes written.
    own: AtomicU64,
    /// The peer's index as last seen.
    seen: AtomicU64,
}

// SAFETY: the pointers lead to a mapping that outlives the ring; each side's methods are called by one thread at a time
// (those that move bytes), or only look at atomics.
unsafe impl Send for Ring {}
// SAFETY: likewise.
unsafe impl Sync for Ring {}

impl Ring {
    /// A view of a ring whose indices and bytes lie at the given places.
    ///
    /// # Safety
    /// `indices` leads to [`INDEX_BYTES`], `bytes` to [`CAPACITY`] bytes of a shared mapping that outlives the
    /// ring; `indices` is aligned to 128 bytes.
    pub(super) unsafe fn new(indices: *mut u8, bytes: *mut Byte) -> Self {
        Self { indices: indices.cast(), bytes, own: AtomicU64::new(0), seen: AtomicU64::new(0) }
    }

    /// The shared indices.
    pub(super) fn indices(&self) -> &Indices {
        // SAFETY: valid as `new`'s caller promises, and made of atomics.
        unsafe { &*self.indices }
    }

    /// Bytes that can be written, as of now.
    pub(super) fn room(&self) -> io::Result<usize> {
        let own = self.own.load(Relaxed);
        let read = self.indices().read.0.load(Acquire);
        match own.checked_sub(read) {
            Some(used) if used <= CAPACITY as u64 => {
                self.seen.store(read, Relaxed);
                Ok(CAPACITY - used as usize)
            }
            _ => Err(broken()),
        }
    }

    /// Bytes that can be read, as of now.
    pub(super) fn available(&self) -> io::Result<usize> {
        let own = self.own.load(Relaxed);
        let written = self.indices().written.0.load(Acquire);
        match written.checked_sub(own) {
            Some(there) if there <= CAPACITY as u64 => Ok(there as usize),
            _ => Err(broken()),
        }
    }

    /// Writes some of the pieces; says how many bytes, 0 where there is no room. `publish` is called after each
    /// publication.
    pub(super) fn write(&self, pieces: &[io::IoSlice<'_>], mut publish: impl FnMut()) -> io::Result<usize> {
        let mut own = self.own.load(Relaxed);
        let total: usize = pieces.iter().map(|p| p.len()).sum();
        let mut room = CAPACITY - (own - self.seen.load(Relaxed)) as usize;
        if room < total {
            room = self.room()?;
        }
        let (mut sent, mut unpublished) = (0, 0);
        'all: for piece in pieces {
            let mut left: &[u8] = piece;
            while !left.is_empty() {
                if room == 0 {
                    break 'all;
                }
                let at = own as usize % CAPACITY;
                let n = left.len().min(room).min(CAPACITY - at).min(STEP);
                // SAFETY: `at + n` is at most the ring's size.
                unsafe { words::put(left.as_ptr(), self.bytes.add(at), n) };
                own += n as u64;
                (room, sent, unpublished) = (room - n, sent + n, unpublished + n);
                left = &left[n..];
                if unpublished >= STEP {
                    self.publish_written(own);
                    publish();
                    unpublished = 0;
                }
            }
        }
        if unpublished > 0 {
            self.publish_written(own);
            publish();
        }
        Ok(sent)
    }

    fn publish_written(&self, own: u64) {
        self.own.store(own, Relaxed);
        self.indices().written.0.store(own, Release);
        // Before the look at who sleeps: whoever goes to sleep looks at the index after saying so.
        fence(SeqCst);
    }

    /// Reads up to `length` bytes to `to`; says how many, 0 where there are none.
    ///
    /// # Safety
    /// The destination is writable.
    pub(super) unsafe fn read(&self, to: *mut u8, length: usize) -> io::Result<usize> {
        let own = self.own.load(Relaxed);
        let n = self.available()?.min(length);
        if n == 0 {
            return Ok(0);
        }
        let at = own as usize % CAPACITY;
        let first = n.min(CAPACITY - at);
        // SAFETY: both parts lie inside the ring; the caller vouches for the destination.
        unsafe {
            words::get(self.bytes.add(at), to, first);
            words::get(self.bytes, to.add(first), n - first);
        }
        let own = own + n as u64;
        self.own.store(own, Relaxed);
        self.indices().read.0.store(own, Release);
        fence(SeqCst);
        Ok(n)
    }

    /// Whether a writer that sleeps should be woken: there is room for much, so that it is not woken for little.
    pub(super) fn has_much_room(&self) -> bool {
        self.available().map_or(true, |there| there <= CAPACITY / 2)
    }

    /// The writer takes the word of readers that sleep, [`READER`] and [`WATCHER`]: it has to wake them.
    #[inline(always)]
    pub(super) fn take_readers(&self) -> u32 {
        let asleep = &self.indices().readers_asleep.0;
        if asleep.load(Relaxed) == 0 { 0 } else { asleep.swap(0, SeqCst) }
    }

    /// The reader takes the word of a writer that sleeps, where there is much room again: it has to wake it.
    #[inline(always)]
    pub(super) fn take_writer(&self) -> bool {
        let asleep = &self.indices().writer_asleep.0;
        asleep.load(Relaxed) != 0 && self.has_much_room() && asleep.swap(0, SeqCst) != 0
    }

    /// A reader leaves word that it is about to sleep.
    pub(super) fn leave_reader(&self, who: u32) {
        self.indices().readers_asleep.0.fetch_or(who, SeqCst);
    }

    /// The writer leaves word that it is about to sleep.
    pub(super) fn leave_writer(&self) {
        self.indices().writer_asleep.0.store(1, SeqCst);
    }
}

/// What somebody finds who has left word: a look that comes before the word could miss what is published between the two,
/// and nobody would wake the sleeper for it.
pub(super) fn look_after_word<T>(leave: impl FnOnce(), look: impl FnOnce() -> T) -> T {
    leave();
    fence(SeqCst);
    look()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    pub(super) struct Memory(Vec<u128>);

    impl Memory {
        pub(super) fn new() -> Self {
            Self(vec![0; (128 + INDEX_BYTES + CAPACITY) / 16])
        }

        fn ring(&mut self) -> Ring {
            let base = self.0.as_mut_ptr().cast::<u8>();
            // SAFETY: the memory is large enough, and lives as long as the tests use the ring.
            unsafe {
                let base = base.add(base.align_offset(128));
                Ring::new(base, base.add(INDEX_BYTES))
            }
        }
    }

    fn write(ring: &Ring, bytes: &[u8]) -> usize {
        ring.write(&[io::IoSlice::new(bytes)], || {}).unwrap()
    }

    fn read(ring: &Ring, most: usize) -> Vec<u8> {
        let mut to = vec![0; most];
        // SAFETY: the destination is that large.
        let n = unsafe { ring.read(to.as_mut_ptr(), most) }.unwrap();
        to.truncate(n);
        to
    }

    #[test]
    fn a_full_ring_takes_no_more() {
        let mut memory = Memory::new();
        let (writer, reader) = (memory.ring(), memory.ring());
        let bytes = vec![1; CAPACITY + 5];
        assert_eq!(write(&writer, &bytes), CAPACITY);
        assert_eq!(write(&writer, &bytes), 0);
        assert!(!reader.has_much_room());
        assert_eq!(read(&reader, 10).len(), 10);
        assert_eq!(write(&writer, &bytes), 10);
        assert_eq!(read(&reader, 2 * CAPACITY).len(), CAPACITY);
        assert!(read(&reader, 1).is_empty() && reader.has_much_room());
    }

    #[test]
    fn impossible_indices_are_an_error() {
        for wrong in [u64::MAX, CAPACITY as u64 + 1, 1 << 63] {
            let mut memory = Memory::new();
            let (writer, reader) = (memory.ring(), memory.ring());
            writer.indices().written.0.store(wrong, SeqCst);
            assert_eq!(reader.available().unwrap_err().kind(), io::ErrorKind::InvalidData);
            writer.indices().read.0.store(wrong, SeqCst);
            assert_eq!(writer.room().unwrap_err().kind(), io::ErrorKind::InvalidData);
        }
        // An index that goes back.
        let mut memory = Memory::new();
        let (writer, reader) = (memory.ring(), memory.ring());
        write(&writer, b"abc");
        read(&reader, 3);
        writer.indices().written.0.store(1, SeqCst);
        assert!(reader.available().is_err());
    }

    proptest! {
        #[test]
        fn bytes_come_out_as_they_went_in(steps in proptest::collection::vec((0usize..200_000, 0usize..200_000), 1..40)) {
            let mut memory = Memory::new();
            let (writer, reader) = (memory.ring(), memory.ring());
            let (mut next, mut expected) = (0u32, 0u32);
            let byte = |n: &mut u32| { *n = n.wrapping_add(1); (*n % 251) as u8 };
            for (put, get) in steps {
                let before = next;
                let bytes: Vec<u8> = (0..put).map(|_| byte(&mut next)).collect();
                let (a, b) = bytes.split_at(put / 3);
                let n = writer.write(&[io::IoSlice::new(a), io::IoSlice::new(b)], || {}).unwrap();
                next = before + n as u32;
                for got in read(&reader, get) {
                    prop_assert_eq!(got, byte(&mut expected));
                }
            }
        }
    }
}
