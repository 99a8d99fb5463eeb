//! A device on the bench: what cases do with it all the time.

use crate::host::{PAGE, PATIENCE};
use crate::{Open, TestHost};
use rgpu_device::{
    AddressPlan, Code, CopySink, Device, Handle, HostData, HostSource, HostTarget, Launch, MemoryKind,
    ModuleInfo, Ordinal, Region, Result, Target,
};
use std::any::Any;
use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, mpsc};

/// A device that was opened for a case, with its addresses reserved.
pub struct Subject {
    /// The device that the case works with.
    pub device: Arc<dyn Device>,
    /// What was reserved. Each ordinal has at least 32 MiB of memory.
    pub plan: AddressPlan,
    /// Whether what is wrong with a call that nobody waits for may be reported by whoever waits next.
    pub posts: bool,
    /// What is kept while the device is used, and dropped after it.
    pub guard: Box<dyn Any>,
}

/// The module of the cases' kernels.
pub(crate) const MODULE: Handle = 0x77;
/// The legacy stream of the first ordinal.
pub(crate) const LEGACY: Handle = 0;
/// A stream of the case's own.
pub(crate) const OWN: Handle = 0x1001;
/// Another one.
pub(crate) const OTHER: Handle = 0x1002;

/// The image of the cases' kernels.
pub(crate) const IMAGE: &[u8] = include_bytes!("kernels.ptx");

/// An opened device, and the program that uses it.
pub struct Bench {
    /// The device that the case works with.
    pub device: Arc<dyn Device>,
    /// What was reserved.
    pub plan: AddressPlan,
    /// The application's side, which notes what the device asks of it.
    pub host: Arc<TestHost>,
    posts: bool,
    next: AtomicU64,
    _guard: Box<dyn Any>,
}

/// The code of an error.
pub(crate) fn code<T>(result: Result<T>) -> Option<Code> {
    result.err().map(|e| e.code)
}

impl Bench {
    /// Opens a device.
    pub fn new(open: Open) -> Self {
        let host = Arc::new(TestHost::default());
        let Subject { device, plan, posts, guard } = open(host.clone());
        Self { device, plan, host, posts, next: AtomicU64::new(0), _guard: guard }
    }

    /// Where memory of an ordinal begins.
    pub fn base(&self, ordinal: Ordinal) -> u64 {
        self.plan.devices[ordinal as usize].base
    }

    /// Addresses of the first ordinal that were not used yet, for so many bytes.
    pub fn fresh(&self, bytes: u64) -> u64 {
        self.base(0) + self.next.fetch_add(bytes.next_multiple_of(PAGE) + PAGE, Relaxed)
    }

    /// Memory of the first ordinal.
    pub fn alloc(&self, bytes: u64) -> u64 {
        let addr = self.fresh(bytes);
        self.device.mem_alloc(0, addr, bytes.next_multiple_of(PAGE), MemoryKind::Device).unwrap();
        addr
    }

    /// Waits for the first ordinal.
    pub fn sync(&self) -> Result<()> {
        self.device.synchronize_blocking(Target::Device(0))
    }

    /// Copies bytes to the device, in a stream's order.
    pub fn write_in(&self, stream: Handle, dst: Region, bytes: &[u8]) -> Result<()> {
        self.device.copy_to_device(stream, dst, 0, HostData::Owned(bytes.to_vec()))
    }

    /// Copies bytes to the device.
    pub fn write(&self, addr: u64, bytes: &[u8]) {
        self.write_in(LEGACY, Region::linear(addr, bytes.len() as u64), bytes).unwrap();
    }

    /// Copies a region to the host, in a stream's order, through the call that waits; the bytes are packed.
    pub fn read_in(&self, stream: Handle, src: Region) -> Result<Vec<u8>> {
        let mut bytes = vec![0; src.bytes().filter(|n| *n <= 1 << 24).expect("a case reads little") as usize];
        let packed = packed(src, bytes.as_mut_ptr() as u64);
        // SAFETY: the bytes outlive the call, which waits.
        let target = unsafe { HostTarget::new(packed) };
        self.device.copy_from_device_blocking(stream, src, target).map(|()| bytes)
    }

    /// Copies bytes to the host.
    pub fn read(&self, addr: u64, len: u64) -> Vec<u8> {
        self.read_in(LEGACY, Region::linear(addr, len)).unwrap()
    }

    /// Words in device memory.
    pub fn words(&self, addr: u64, count: u64) -> Vec<u32> {
        let bytes = self.read(addr, count * 4);
        bytes.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]])).collect()
    }

    /// Copies a region to the host through a sink; the outcome comes with the bytes.
    pub fn read_by_sink(&self, stream: Handle, src: Region) -> mpsc::Receiver<Result<Vec<u8>>> {
        struct Sink(Vec<u8>, mpsc::Sender<Result<Vec<u8>>>);
        impl CopySink for Sink {
            fn chunk(&mut self, pieces: &[&[u8]]) {
                pieces.iter().for_each(|piece| self.0.extend_from_slice(piece));
            }
            fn done(self: Box<Self>, result: Result<()>) {
                let Self(bytes, send) = *self;
                let _ = send.send(result.map(|()| bytes));
            }
        }
        let (send, receive) = mpsc::channel();
        self.device.copy_from_device(stream, src, 0, Box::new(Sink(Vec::new(), send)));
        receive
    }

    /// That something was refused with this code: by the call, or, where calls are posted, by the next wait.
    #[track_caller]
    pub fn refused<T: Debug>(&self, result: Result<T>, expected: Code) {
        match result {
            Err(error) => assert_eq!(error.code, expected, "{error}"),
            Ok(value) if self.posts => {
                let error = self.sync().expect_err("nobody was told of what is wrong");
                assert_eq!(error.code, expected, "{error} (the call itself said {value:?})");
            }
            Ok(value) => panic!("It was taken, and should have been refused as {expected:?}: {value:?}"),
        }
        // Once told, it is over.
        self.sync().unwrap();
    }

    /// That something was refused with this code by the call itself, whether or not calls are posted.
    #[track_caller]
    pub fn refused_at_once<T: Debug>(&self, result: Result<T>, expected: Code) {
        assert_eq!(result.expect_err("it should have been refused").code, expected);
        self.sync().unwrap();
    }

    /// As [`Bench::refused_at_once`], for answers while a stream is held.
    #[track_caller]
    pub fn refused_while_held<T: Debug>(&self, result: Result<T>, expected: Code) {
        assert_eq!(result.expect_err("it should have been refused").code, expected);
    }

    /// Loads the cases' kernels on the first ordinal.
    pub fn load(&self) -> ModuleInfo {
        self.device.module_load(0, MODULE, IMAGE, &[]).unwrap()
    }

    /// A launch of one of the cases' kernels with one block of one thread.
    pub fn launch<'a>(&self, info: &ModuleInfo, name: &str, params: &'a [u8]) -> Launch<'a> {
        let function = info.functions.iter().position(|f| f.name == name);
        Launch {
            stream: LEGACY,
            module: MODULE,
            function: function.unwrap_or_else(|| panic!("the module has no kernel {name}")) as u32,
            grid: [1; 3],
            block: [1; 3],
            shared_bytes: 0,
            cooperative: false,
            cluster: [0; 3],
            params,
        }
    }

    /// Makes a stream wait until [`Bench::release`]. To be reached by the stream before this returns.
    pub fn hold(&self, stream: Handle, id: u64) {
        self.device.host_func(stream, id).unwrap();
        self.host.wait_for_function(id);
    }

    /// Lets a stream go on.
    pub fn release(&self, id: u64) {
        self.device.host_func_done(id).unwrap();
    }

    /// Whether a target is done, as a query says.
    pub fn is_done(&self, target: Target) -> bool {
        self.device.query(target).unwrap()
    }

    /// Copies borrowed bytes, in which `shape` lies from the first byte on, by the call for callers that can wait, or by the
    /// other one.
    pub fn send(
        &self,
        stream: Handle,
        dst: Region,
        shape: Region,
        bytes: &[u8],
        blocking: bool,
    ) -> Result<()> {
        let region = Region { addr: bytes.as_ptr() as u64, ..shape };
        // What cannot be walked is to be refused before anything is read.
        assert!(region.check().is_err() || region.extent() <= Some(bytes.len() as u64), "{region:?}");
        // SAFETY: the bytes are there, and the stream is waited for before this returns.
        let source = unsafe { HostSource::new(region) };
        let sent = match blocking {
            true => self.device.copy_to_device_blocking(stream, dst, 0, source),
            false => self.device.copy_to_device(stream, dst, 0, HostData::Borrowed(source)),
        };
        let waited = self.device.synchronize_blocking(Target::Stream(stream));
        sent.and(waited)
    }

    /// Everything that mirrored memory has changed by, stored in the host's copy.
    pub fn collect(&self) -> Vec<(u64, Vec<u8>)> {
        let mut runs = Vec::new();
        self.device.collect_shared_writes(&mut |addr, bytes| runs.push((addr, bytes.to_vec())));
        runs.iter().for_each(|(addr, bytes)| self.host.store(*addr, bytes));
        runs
    }

    /// Waits for what a callback sends.
    pub fn hear<T>(&self, receive: &mpsc::Receiver<T>) -> T {
        receive.recv_timeout(PATIENCE).expect("whoever waits is told")
    }
}

/// A region of the same shape without gaps, at another address.
pub(crate) fn packed(shape: Region, addr: u64) -> Region {
    let slice_pitch = shape.width.saturating_mul(shape.height);
    Region { addr, row_pitch: shape.width, slice_pitch, ..shape }
}

/// Parameters: a pointer and a word.
pub(crate) fn pointer_and_word(pointer: u64, word: u32) -> [u8; 12] {
    let mut params = [0; 12];
    params[..8].copy_from_slice(&pointer.to_le_bytes());
    params[8..].copy_from_slice(&word.to_le_bytes());
    params
}

/// Parameters: two pointers.
pub(crate) fn pointers(first: u64, second: u64) -> [u8; 16] {
    let mut params = [0; 16];
    params[..8].copy_from_slice(&first.to_le_bytes());
    params[8..].copy_from_slice(&second.to_le_bytes());
    params
}
