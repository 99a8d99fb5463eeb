//! A software GPU to run test kernels on, through the same trait as everybody else; or, where `RGPU_TEST_DRIVER` names the driver of
//! one, a real GPU, which holds the models of these tests to what hardware computes.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use rgpu_conformance::hardware::{Hardware, Shape};
use rgpu_device::{
    Device, Error, HostData, HostTarget, Launch, MemoryKind, Ordinal, Range, Region, Result, Target,
};
use rgpu_softgpu::{Config, SoftGpu};

/// Keeps what kernels print.
#[derive(Default)]
struct Printed(Mutex<Vec<u8>>);

impl rgpu_device::Host for Printed {
    fn print(&self, text: &[u8]) {
        self.0.lock().unwrap().extend_from_slice(text);
    }
    fn fetch(&self, addr: u64, _buf: &mut [u8]) -> Result<()> {
        Err(Error::new(rgpu_device::Code::IllegalAddress, format!("nothing is mirrored at {addr:#x}")))
    }
    fn host_func(&self, _id: u64) {}
}

/// The GPU and where its memory is.
pub(crate) struct Gpu {
    device: Arc<SoftGpu>,
    memory: Range,
    printed: Arc<Printed>,
    next_module: u64,
    hardware: Option<Hardware>,
}

const ORDINAL: Ordinal = 0;
const STREAM: u64 = 0;
const PAGE: u64 = 4096;

/// The one GPU of this process. One test uses it at a time.
pub(crate) fn gpu() -> MutexGuard<'static, Gpu> {
    static GPU: OnceLock<Mutex<Gpu>> = OnceLock::new();
    let gpu = GPU.get_or_init(|| {
        let printed = Arc::new(Printed::default());
        // New enough for every opcode.
        let config =
            Config { memory_bytes_per_device: 1 << 30, compute_capability: (9, 0), ..Config::default() };
        let device = SoftGpu::open(config, printed.clone()).expect("the software GPU opens");
        let reserve =
            |n: u64| device.reserve(Range { base: 0x1000_0000_0000 + (n << 42), size: 4 << 40 }).ok();
        let plan = (0..16).find_map(reserve).expect("some range of addresses is free");
        let hardware = Hardware::asked();
        Mutex::new(Gpu { device, memory: plan.devices[0], printed, next_module: 1, hardware })
    });
    gpu.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// What to launch.
pub(crate) struct Run<'a> {
    /// The module's text; its first kernel is run.
    pub ptx: &'a str,
    /// Contents of the input buffer.
    pub input: &'a [u8],
    /// Contents of the output buffer before the launch.
    pub output: &'a [u8],
    /// Number of elements, the kernel's third parameter.
    pub count: u32,
    /// The fourth parameter.
    pub extra: [u8; 64],
    /// Blocks and threads.
    pub grid: u32,
    /// Threads of a block.
    pub block: u32,
    /// Dynamic shared memory.
    pub shared: u32,
}

impl Run<'_> {
    /// The kernel's parameters.
    fn params(&self, input: u64, output: u64) -> Vec<u8> {
        let mut params = Vec::new();
        params.extend_from_slice(&input.to_le_bytes());
        params.extend_from_slice(&output.to_le_bytes());
        params.extend_from_slice(&self.count.to_le_bytes());
        params.resize(32, 0);
        params.extend_from_slice(&self.extra);
        params
    }
}

fn whole_pages(bytes: usize) -> u64 {
    (bytes.max(1) as u64).next_multiple_of(PAGE)
}

/// The name of a module's first kernel.
fn first_kernel(ptx: &str) -> &str {
    let rest = ptx.split_once(".entry ").map_or("", |(_, rest)| rest).trim_start();
    rest.split(|c: char| !c.is_alphanumeric() && !"_$".contains(c)).next().unwrap_or_default()
}

/// The architecture that a module is for: 90 for `sm_90a`.
fn architecture(ptx: &str) -> u32 {
    let rest = ptx.split_once(".target sm_").map_or("", |(_, rest)| rest);
    rest.split(|c: char| !c.is_ascii_digit()).next().and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// Runs a kernel on a GPU of NVIDIA's.
fn run_on(gpu: &mut Hardware, run: &Run<'_>) -> std::result::Result<Vec<u8>, String> {
    let place = (whole_pages(run.input.len()) + PAGE) as usize;
    let shape = Shape { grid: [run.grid, 1, 1], block: [run.block, 1, 1], shared: run.shared };
    let kernel = gpu.load(run.ptx, first_kernel(run.ptx))?;
    gpu.write(0, run.input)?;
    gpu.write(place, run.output)?;
    let mut result = vec![0; run.output.len()];
    let params = run.params(gpu.memory(), gpu.memory() + place as u64);
    let ended = gpu.launch(&kernel, shape, &params).and_then(|()| gpu.read(place, &mut result));
    match ended {
        Ok(()) => gpu.unload(kernel).map(|()| result),
        Err(why) => gpu.reset().and(Err(why)),
    }
}

impl Gpu {
    /// What has been printed since the last time.
    pub(crate) fn printed(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.printed.0.lock().unwrap())
    }

    /// Where [`Run::input`] lies when a kernel runs.
    pub(crate) fn input_address(&self) -> u64 {
        self.hardware.as_ref().map_or(self.memory.base, Hardware::memory)
    }

    /// Whether the device loads a module.
    pub(crate) fn loads(&mut self, ptx: &str) -> Result<()> {
        let module = self.next_module;
        self.next_module += 1;
        self.device.module_load(ORDINAL, module, ptx.as_bytes(), &[])?;
        self.device.module_unload(module)
    }

    /// Whether the device loads a module and lets each of its kernels run with one thread, all parameters being 0:
    /// the errors of loading it, or those of the launches.
    pub(crate) fn launches(&mut self, ptx: &str) -> Result<Vec<Result<()>>> {
        let module = self.next_module;
        self.next_module += 1;
        let info = self.device.module_load(ORDINAL, module, ptx.as_bytes(), &[])?;
        let mut results = Vec::new();
        for (function, info) in (0..).zip(&info.functions) {
            let params = vec![0; info.param_bytes() as usize];
            let (stream, grid, block) = (STREAM, [1, 1, 1], [1, 1, 1]);
            let (shared_bytes, cooperative, params) = (0, false, &params[..]);
            let launch = Launch {
                stream,
                module,
                function,
                grid,
                block,
                shared_bytes,
                cooperative,
                cluster: [0; 3],
                params,
            };
            let launched = self.device.launch(launch);
            results.push(launched.and_then(|()| self.device.synchronize_blocking(Target::Device(ORDINAL))));
        }
        self.device.module_unload(module)?;
        Ok(results)
    }

    /// Runs a kernel and returns the output buffer.
    pub(crate) fn run(&mut self, run: &Run<'_>) -> Result<Vec<u8>> {
        // What is too new for the hardware can be asked of the software GPU alone.
        let able =
            |hardware: &&mut Hardware| hardware.capability().is_ok_and(|it| it >= architecture(run.ptx));
        if let Some(hardware) = self.hardware.as_mut().filter(able) {
            return run_on(hardware, run)
                .map_err(|why| Error::new(rgpu_device::Code::LaunchFailed, format!("the GPU: {why}")));
        }
        self.run_bound(run, &[])
    }

    /// As [`Gpu::run`] on the software GPU, with these bytes in variables of the module.
    pub(crate) fn run_bound(&mut self, run: &Run<'_>, variables: &[(&str, Vec<u8>)]) -> Result<Vec<u8>> {
        let result = self.try_run(run, variables);
        if result.is_err() {
            self.device.reset(ORDINAL)?;
        }
        result
    }

    fn try_run(&mut self, run: &Run<'_>, variables: &[(&str, Vec<u8>)]) -> Result<Vec<u8>> {
        let module = self.next_module;
        self.next_module += 1;
        let info = self.device.module_load(ORDINAL, module, run.ptx.as_bytes(), &[])?;
        for (name, bytes) in variables {
            let found =
                info.globals.iter().find(|global| global.name == *name).expect("a variable of the module");
            let region = Region::linear(found.addr, bytes.len() as u64);
            self.device.copy_to_device(STREAM, region, 0, HostData::Owned(bytes.clone()))?;
        }
        let (input, input_size) = (self.memory.base, whole_pages(run.input.len()));
        let (output, output_size) = (input + input_size + PAGE, whole_pages(run.output.len()));
        self.device.mem_alloc(ORDINAL, input, input_size, MemoryKind::Device)?;
        self.device.mem_alloc(ORDINAL, output, output_size, MemoryKind::Device)?;
        for (addr, bytes) in [(input, run.input), (output, run.output)] {
            let region = Region::linear(addr, bytes.len() as u64);
            self.device.copy_to_device(STREAM, region, 0, HostData::Owned(bytes.to_vec()))?;
        }
        let params = run.params(input, output);
        self.device.launch(Launch {
            stream: STREAM,
            module,
            function: 0,
            grid: [run.grid, 1, 1],
            block: [run.block, 1, 1],
            shared_bytes: run.shared,
            cooperative: false,
            cluster: [0; 3],
            params: &params,
        })?;
        let mut result = vec![0u8; run.output.len()];
        let source = Region::linear(output, result.len() as u64);
        let target = Region::linear(result.as_mut_ptr() as u64, result.len() as u64);
        // SAFETY: `result` is as long as the region says and outlives the wait.
        let target = unsafe { HostTarget::new(target) };
        self.device.copy_from_device_blocking(STREAM, source, target)?;
        self.device.synchronize_blocking(Target::Device(ORDINAL))?;
        self.device.mem_free(ORDINAL, input, None)?;
        self.device.mem_free(ORDINAL, output, None)?;
        self.device.module_unload(module)?;
        Ok(result)
    }
}
