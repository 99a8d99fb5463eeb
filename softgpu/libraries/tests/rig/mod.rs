//! A software GPU with libraries, and matrices on it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;

use rgpu_device::{
    AddressPlan, Device, Handle, Host, HostData, HostTarget, LibraryCall, MemoryKind, Range, Region, Result,
    Target,
};
use rgpu_libraries::Arguments;
use rgpu_softgpu::{Config, SoftGpu};

/// The stream that every device has.
pub(crate) const LEGACY: Handle = 0;

struct Nobody;

impl Host for Nobody {
    fn print(&self, _: &[u8]) {}
    fn fetch(&self, _: u64, _: &mut [u8]) -> Result<()> {
        Ok(())
    }
    fn host_func(&self, _: u64) {}
}

/// A device of 256 MiB.
pub(crate) struct Rig {
    pub(crate) gpu: Arc<SoftGpu>,
    plan: AddressPlan,
    next: AtomicU64,
}

/// Plain numbers, as they lie in memory.
pub(crate) trait Plain: Copy {}
impl Plain for u8 {}
impl Plain for i8 {}
impl Plain for u16 {}
impl Plain for i32 {}
impl Plain for i64 {}
impl Plain for u32 {}
impl Plain for u64 {}
impl Plain for f32 {}
impl Plain for f64 {}

impl Rig {
    pub(crate) fn new() -> Self {
        Self::with_workers(2)
    }

    /// One device for all cases of a test that breaks nothing.
    #[allow(dead_code, reason = "not all tests have cases")]
    pub(crate) fn shared() -> &'static Self {
        static SHARED: std::sync::OnceLock<Rig> = std::sync::OnceLock::new();
        SHARED.get_or_init(Self::new)
    }

    pub(crate) fn with_workers(workers: usize) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0x3000_0000_0000);
        let config = Config {
            memory_bytes_per_device: 256 << 20,
            workers,
            libraries: Some(rgpu_softlib::LIBRARIES),
            ..Config::default()
        };
        let gpu = SoftGpu::open(config, Arc::new(Nobody)).unwrap();
        let base = NEXT.fetch_add(1 << 40, Ordering::Relaxed);
        let plan = gpu.reserve(Range { base, size: 1 << 40 }).unwrap();
        Self { gpu, plan, next: AtomicU64::new(0) }
    }

    /// Device memory of so many bytes, with a hole behind it.
    pub(crate) fn alloc(&self, bytes: usize) -> u64 {
        let size = (bytes.max(1) as u64).next_multiple_of(4096);
        let addr = self.plan.devices[0].base + self.next.fetch_add(size + 4096, Ordering::Relaxed);
        self.gpu.mem_alloc(0, addr, size, MemoryKind::Device).unwrap();
        addr
    }

    /// Device memory with these numbers.
    pub(crate) fn put<T: Plain>(&self, values: &[T]) -> u64 {
        let bytes = std::mem::size_of_val(values);
        let addr = self.alloc(bytes);
        // SAFETY: plain numbers have no gaps.
        let data = unsafe { std::slice::from_raw_parts(values.as_ptr().cast::<u8>(), bytes) }.to_vec();
        self.gpu
            .copy_to_device(LEGACY, Region::linear(addr, bytes as u64), 0, HostData::Owned(data))
            .unwrap();
        addr
    }

    /// The numbers at an address, once all work is done.
    pub(crate) fn get<T: Plain + Default>(&self, addr: u64, count: usize) -> Result<Vec<T>> {
        let mut values = vec![T::default(); count];
        let bytes = std::mem::size_of_val(&values[..]) as u64;
        // SAFETY: the vector lives until the copy is over, and any bytes are such numbers.
        let target = unsafe { HostTarget::new(Region::linear(values.as_mut_ptr() as u64, bytes)) };
        let (send, receive) = mpsc::channel();
        let done = Box::new(move |result| send.send(result).unwrap());
        self.gpu.copy_from_device_into(LEGACY, Region::linear(addr, bytes), target, done);
        receive.recv().unwrap()?;
        self.gpu.synchronize_blocking(Target::Device(0))?;
        Ok(values)
    }

    /// Enqueues an operation.
    pub(crate) fn call(&self, arguments: &impl Arguments) -> Result<()> {
        let (operation, params) = arguments.written();
        self.gpu.library(LibraryCall { stream: LEGACY, operation, params: &params })
    }
}

/// Numbers between -1 and 1 that look random.
#[allow(dead_code, reason = "not all tests need them")]
pub(crate) fn numbers(count: usize, seed: u64) -> Vec<f64> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    };
    std::iter::repeat_with(next).take(count).collect()
}

/// A failure where numbers are farther from what they should be than the tolerance, absolute and relative, allows.
#[allow(dead_code, reason = "not all tests need it")]
pub(crate) fn close(found: &[f64], wanted: &[f64], tolerance: f64) -> proptest::test_runner::TestCaseResult {
    proptest::prop_assert_eq!(found.len(), wanted.len());
    for (i, (a, b)) in found.iter().zip(wanted).enumerate() {
        let near = (a - b).abs() <= tolerance * (1.0 + b.abs());
        proptest::prop_assert!(near, "element {}: {} instead of {}", i, a, b);
    }
    Ok(())
}
