//! Tests of the executor through the `Device` trait, with kernels written by hand as machine code would be.

mod containment;
mod in_step;
mod kernels;
mod memory;
mod order;
mod paced;
mod threads;
mod tiers;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;

use parking_lot::Mutex;
use rgpu_device::{
    AddressPlan, Code, CopySink, Device, Error, FunctionInfo, Handle, Host, HostData, Launch, MemoryKind,
    Pacer, ParamInfo, Range, Region, Result, Target,
};

use super::modules::{Kernels, Module};
use super::{Config, SoftGpu};
use crate::abi::{Cut, CutKind, Kernel, RunFn};

/// Does something on a thread whose stack is as deep as a worker's, which compiled code counts on.
fn as_on_a_worker<T: Send + 'static>(action: impl FnOnce() -> T + Send + 'static) -> T {
    let thread = std::thread::Builder::new().stack_size(16 << 20).spawn(action);
    thread.unwrap().join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// The program's side of a test.
#[derive(Default)]
pub(super) struct TestHost {
    pub printed: Mutex<Vec<u8>>,
    pub functions: Mutex<Vec<u64>>,
    /// The host's mirrored pages, by address; missing ones cannot be fetched.
    pub pages: Mutex<HashMap<u64, Vec<u8>>>,
    pub fetched: Mutex<Vec<(u64, usize)>>,
}

impl Host for TestHost {
    fn print(&self, text: &[u8]) {
        self.printed.lock().extend_from_slice(text);
    }

    fn fetch(&self, addr: u64, buf: &mut [u8]) -> Result<()> {
        self.fetched.lock().push((addr, buf.len()));
        let pages = self.pages.lock();
        for (i, page) in buf.chunks_mut(4096).enumerate() {
            let bytes = pages.get(&(addr + i as u64 * 4096)).ok_or_else(|| Error::from(Code::NotFound))?;
            page.copy_from_slice(bytes);
        }
        Ok(())
    }

    fn host_func(&self, id: u64) {
        self.functions.lock().push(id);
    }
}

/// A kernel for tests.
#[derive(Clone, Copy)]
pub(super) struct Spec {
    pub name: &'static str,
    pub run: RunFn,
    pub cuts: &'static [(CutKind, bool, u32)],
}

struct Specs(Vec<Spec>);

impl Kernels for Specs {
    fn kernel(&self, index: u32) -> Result<Arc<Kernel>> {
        let spec = self.0[index as usize];
        Ok(Arc::new(Kernel {
            name: spec.name.into(),
            run: spec.run,
            vectors: Default::default(),
            state_bytes: 64,
            local_bytes: 256,
            static_shared: 4096,
            reserved_shared: false,
            cuts: spec.cuts.iter().map(|&(kind, legacy, line)| Cut { kind, legacy, line }).collect(),
            matrix_ops: Vec::new(),
            sites: None,
            group_ops: Vec::new(),
            code: Arc::new(()),
        }))
    }
}

pub(super) struct Rig {
    pub gpu: Arc<SoftGpu>,
    pub host: Arc<TestHost>,
    pub plan: AddressPlan,
}

pub(super) const MODULE: Handle = 1;
pub(super) const LEGACY: Handle = 0;

impl Rig {
    /// A device of 64 MiB with exact bounds and two workers, whose only module has these kernels, all with 64 bytes of
    /// parameters.
    pub(super) fn new(specs: &[Spec]) -> Self {
        let memory_bytes_per_device = 64 << 20;
        Self::with(
            specs,
            Config { memory_bytes_per_device, workers: 2, exact_bounds: true, ..Config::default() },
        )
    }

    pub(super) fn with(specs: &[Spec], config: Config) -> Self {
        Self::paced(specs, config, None)
    }

    pub(super) fn paced(specs: &[Spec], config: Config, pacer: Option<Arc<dyn Pacer>>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0x3000_0000_0000);
        let host = Arc::new(TestHost::default());
        let gpu = SoftGpu::open_paced(config, host.clone(), pacer).unwrap();
        // There are dozens of these in one process, and other things lie somewhere between.
        let size = 1 << 40;
        let mut free = (0..64).filter_map(|_| {
            let base = NEXT.fetch_add(size, Ordering::Relaxed);
            gpu.reserve(Range { base, size }).ok()
        });
        let plan = free.next().expect("some range of addresses is free");
        let functions = specs
            .iter()
            .map(|spec| FunctionInfo {
                name: spec.name.into(),
                params: vec![ParamInfo { offset: 0, size: 64 }],
                max_threads: 1024,
                static_shared: 4096,
                ..FunctionInfo::default()
            })
            .collect();
        let kernels = Box::new(Specs(specs.to_vec()));
        gpu.insert_module(MODULE, Module::new(0, functions, kernels, None));
        Self { gpu, host, plan }
    }

    /// Device memory at an offset in the first device's range.
    pub(super) fn alloc(&self, offset: u64, size: u64) -> u64 {
        let addr = self.plan.devices[0].base + offset;
        self.gpu.mem_alloc(0, addr, size, MemoryKind::Device).unwrap();
        addr
    }

    pub(super) fn try_launch(
        &self,
        stream: Handle,
        function: u32,
        grid: [u32; 3],
        block: [u32; 3],
        cooperative: bool,
        args: &[u64],
    ) -> Result<()> {
        let mut params = [0u8; 64];
        for (place, arg) in params.chunks_mut(8).zip(args) {
            place.copy_from_slice(&arg.to_le_bytes());
        }
        let params = &params;
        let module = MODULE;
        self.gpu.launch(Launch {
            stream,
            module,
            function,
            grid,
            block,
            shared_bytes: 0,
            cooperative,
            cluster: [0; 3],
            params,
        })
    }

    pub(super) fn launch(&self, stream: Handle, function: u32, grid: u32, block: u32, args: &[u64]) {
        self.try_launch(stream, function, [grid, 1, 1], [block, 1, 1], false, args).unwrap();
    }

    pub(super) fn sync(&self) -> Result<()> {
        self.gpu.synchronize_blocking(Target::Device(0))
    }

    pub(super) fn write(&self, stream: Handle, addr: u64, bytes: &[u8]) {
        let dst = Region::linear(addr, bytes.len() as u64);
        self.gpu.copy_to_device(stream, dst, 0, HostData::Owned(bytes.to_vec())).unwrap();
    }

    pub(super) fn try_read(&self, stream: Handle, addr: u64, len: usize) -> Result<Vec<u8>> {
        read(&self.gpu, stream, Region::linear(addr, len as u64), 0)
    }

    pub(super) fn read(&self, stream: Handle, addr: u64, len: usize) -> Vec<u8> {
        self.try_read(stream, addr, len).unwrap()
    }

    pub(super) fn words(&self, stream: Handle, addr: u64, count: usize) -> Vec<u32> {
        let bytes = self.read(stream, addr, count * 4);
        bytes.chunks(4).map(|b| u32::from_le_bytes(b.try_into().unwrap())).collect()
    }
}

/// Copies to the host and waits.
pub(super) fn read(gpu: &SoftGpu, stream: Handle, src: Region, host_addr: u64) -> Result<Vec<u8>> {
    struct Sink(Vec<u8>, mpsc::Sender<Result<Vec<u8>>>);
    impl CopySink for Sink {
        fn chunk(&mut self, pieces: &[&[u8]]) {
            pieces.iter().for_each(|p| self.0.extend_from_slice(p));
        }
        fn done(self: Box<Self>, result: Result<()>) {
            let Self(bytes, send) = *self;
            send.send(result.map(|()| bytes)).unwrap();
        }
    }
    let (send, receive) = mpsc::channel();
    gpu.copy_from_device(stream, src, host_addr, Box::new(Sink(Vec::new(), send)));
    receive.recv().unwrap()
}
