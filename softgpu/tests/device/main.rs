//! The software GPU from end to end, without a client: PTX as nvcc writes it, through the `Device` trait.

mod abreast;
mod beside;
mod check;
mod clusters;
mod escapes;
mod faults;
mod grid;
mod kept;
#[path = "../kept_code/mod.rs"]
mod kept_code;
mod misaligned;
mod profile;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rgpu_device::{
    Code, Device, Finding, HostData, HostTarget, Launch, MemoryKind, ModuleInfo, Range, Region, Result,
    Target,
};
use rgpu_softgpu::{Config, SoftGpu};

const PTX: &[u8] = include_bytes!("kernels.ptx");
const MODULE: u64 = 7;
const LEGACY: u64 = 0;

#[derive(Default)]
struct Program {
    printed: Mutex<Vec<u8>>,
    /// What was found wrong with kernels.
    found: Mutex<String>,
    code: kept_code::Code,
}

impl rgpu_device::Host for Program {
    fn print(&self, text: &[u8]) {
        self.printed.lock().unwrap().extend_from_slice(text);
    }
    fn fetch(&self, _addr: u64, buf: &mut [u8]) -> Result<()> {
        buf.fill(0);
        Ok(())
    }
    fn host_func(&self, _id: u64) {}
    fn found(&self, finding: Finding<'_>) {
        let text = match finding {
            Finding::Mistake(text) | Finding::Remark(text) => format!("{text}\n"),
            Finding::Unreported(count) => format!("{count} more\n"),
        };
        self.found.lock().unwrap().push_str(&text);
    }
    fn kept_code(&self, name: &[u8; 32]) -> Option<Vec<u8>> {
        self.code.find(name)
    }
    fn keep_code(&self, name: &[u8; 32], code: &[u8]) {
        self.code.keep(name, code);
    }
}

impl Program {
    fn found(&self) -> String {
        self.found.lock().unwrap().clone()
    }
}

struct Rig {
    gpu: Arc<SoftGpu>,
    program: Arc<Program>,
    module: ModuleInfo,
    /// 1 MiB of device memory.
    memory: u64,
    managed: u64,
}

impl Rig {
    fn new() -> Self {
        Self::with(kept_code::Code::default(), true)
    }

    fn with(code: kept_code::Code, exact_bounds: bool) -> Self {
        Self::of(code, Config { exact_bounds, ..Config::default() })
    }

    /// Ends kernels that run for longer.
    fn limited(limit: Duration) -> Self {
        Self::of(kept_code::Code::default(), Config { kernel_limit: Some(limit), ..Config::default() })
    }

    fn of(code: kept_code::Code, config: Config) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0x1800_0000_0000);
        static NEXT_LARGE: AtomicU64 = AtomicU64::new(0x1000_0000_0000);
        let program = Arc::new(Program { code, ..Program::default() });
        let memory_bytes_per_device = 16 << 20;
        let workers = if config.workers == 0 { 2 } else { config.workers };
        let config = Config { memory_bytes_per_device, workers, ..config };
        let is_large = config.multiprocessors > 0 || config.workers > 2;
        let gpu = SoftGpu::open(config, program.clone()).unwrap();
        // Each block that may be resident has addresses of its own.
        let (next, size) = if is_large { (&NEXT_LARGE, 1 << 42) } else { (&NEXT, 1 << 39) };
        let base = next.fetch_add(size, Ordering::Relaxed);
        let plan = gpu.reserve(Range { base, size }).unwrap();
        let (memory, managed) = (plan.devices[0].base, plan.shared.base);
        gpu.mem_alloc(0, memory, 1 << 20, MemoryKind::Device).unwrap();
        gpu.mem_alloc(0, managed, 4096, MemoryKind::Mirrored).unwrap();
        let module = gpu.module_load(0, MODULE, PTX, &[("managed".into(), managed)]).unwrap();
        Self { gpu, program, module, memory, managed }
    }

    fn launch(&self, stream: u64, name: &str, grid: u32, block: u32, shared_bytes: u32, params: &[u8]) {
        let function = self.module.functions.iter().position(|f| f.name == name).unwrap() as u32;
        let (grid, block) = ([grid, 1, 1], [block, 1, 1]);
        let module = MODULE;
        let cooperative = false;
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
        self.gpu.launch(launch).unwrap();
    }

    fn sync(&self) -> Result<()> {
        self.gpu.synchronize_blocking(Target::Device(0))
    }

    fn write(&self, addr: u64, words: &[i32]) {
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        let dst = Region::linear(addr, bytes.len() as u64);
        self.gpu.copy_to_device(LEGACY, dst, 0, HostData::Owned(bytes)).unwrap();
    }

    fn read(&self, addr: u64, count: usize) -> Vec<i32> {
        let mut words = vec![0i32; count];
        let bytes = count as u64 * 4;
        let to = Region::linear(words.as_mut_ptr() as u64, bytes);
        // SAFETY: `words` outlives the call, which waits.
        let to = unsafe { HostTarget::new(to) };
        self.gpu.copy_from_device_blocking(LEGACY, Region::linear(addr, bytes), to).unwrap();
        words
    }

    fn printed(&self) -> String {
        String::from_utf8(self.program.printed.lock().unwrap().clone()).unwrap()
    }
}

#[test]
fn a_sum_through_shuffles_barriers_and_atomics_is_right() {
    let rig = Rig::new();
    let input: Vec<i32> = (0..100_000).map(|i| i % 11 - 5).collect();
    let expected: i32 = input.iter().zip([1, 2, 3, 4].iter().cycle()).map(|(v, w)| v * w).sum();
    let out = rig.memory + (512 << 10);
    rig.write(rig.memory, &input);
    for (grid, block) in [(1, 32), (7, 96), (64, 1024)] {
        rig.write(out, &[0]);
        let mut params = rig.memory.to_le_bytes().to_vec();
        params.extend(out.to_le_bytes());
        params.extend((input.len() as u64).to_le_bytes());
        rig.launch(LEGACY, "weighted_sum", grid, block, block / 32 * 4, &params);
        assert_eq!(rig.read(out, 1), [expected], "{grid} blocks of {block}");
    }
}

/// Each block finds the reserved part of shared memory zero, where no variable is, and threads share it.
#[test]
fn reserved_shared_memory_is_each_blocks_own_and_begins_with_zeros() {
    const TEXT: &[u8] = b".version 8.0\n.target sm_80\n.address_size 64\n
        .extern .shared .align 16 .b8 dynamic[];
        .visible .entry reserved(.param .u64 out)
        {
            .reg .b32 %r<12>; .reg .b64 %rd<4>; .reg .pred %p<2>;
            mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x;
            mov.u32 %r4, %reserved_smem_offset_1;
            mad.lo.u32 %r5, %r1, 4, %r4;
            ld.shared.u32 %r6, [%r5];
            bar.sync 0;
            add.u32 %r7, %r1, 1000;
            add.u32 %r7, %r7, %r6;
            st.shared.u32 [%r5], %r7;
            mov.u32 %r11, dynamic;
            mad.lo.u32 %r11, %r1, 4, %r11;
            st.shared.u32 [%r11], 77;
            bar.sync 0;
            xor.b32 %r8, %r1, 1;
            mad.lo.u32 %r8, %r8, 4, %r4;
            ld.shared.u32 %r9, [%r8];
            mad.lo.u32 %r10, %r2, %r3, %r1;
            ld.param.u64 %rd1, [out];
            cvta.to.global.u64 %rd1, %rd1;
            mul.wide.u32 %rd2, %r10, 4;
            add.u64 %rd1, %rd1, %rd2;
            st.global.u32 [%rd1], %r9;
            ret;
        }\0";
    let rig = Rig::new();
    rig.gpu.module_load(0, MODULE + 1, TEXT, &[]).unwrap();
    let (blocks, threads) = (40, 64);
    let params = rig.memory.to_le_bytes();
    let launch = Launch {
        stream: LEGACY,
        module: MODULE + 1,
        function: 0,
        grid: [blocks, 1, 1],
        block: [threads, 1, 1],
        shared_bytes: 40 << 10,
        cooperative: false,
        cluster: [0; 3],
        params: &params,
    };
    rig.gpu.launch(launch).unwrap();
    let expected: Vec<i32> =
        (0..blocks * threads).map(|i| 1000 + ((i as i32 % threads as i32) ^ 1)).collect();
    assert_eq!(rig.read(rig.memory, expected.len()), expected);
}

#[test]
fn variables_print_and_managed_memory_work() {
    let rig = Rig::new();
    rig.launch(LEGACY, "greet", 1, 3, 0, &4i32.to_le_bytes());
    rig.sync().unwrap();
    assert_eq!(rig.printed(), "thread 0: 6.00\nthread 1: 6.00\nthread 2: 6.00\n");
    let counter = rig.module.globals.iter().find(|g| g.name == "counter").unwrap();
    assert_eq!(rig.read(counter.addr, 1), [9]);
    // The initial values are the device's changes, and so is what the kernel did.
    let mut host = [0u8; 16];
    rig.gpu.collect_shared_writes(&mut |addr, bytes| {
        let at = (addr - rig.managed) as usize;
        host[at..at + bytes.len()].copy_from_slice(bytes);
    });
    let words: Vec<i32> = host.chunks(4).map(|b| i32::from_le_bytes(b.try_into().unwrap())).collect();
    assert_eq!(words, [10, 24, 30, 40]);
    rig.launch(LEGACY, "borrow", 1, 64, 0, &rig.memory.to_le_bytes());
    assert_eq!(rig.read(rig.memory, 64), (1..=64).collect::<Vec<i32>>());
}

#[test]
fn an_assertion_prints_as_in_cuda_and_sticks() {
    let rig = Rig::new();
    rig.launch(LEGACY, "insist", 1, 1, 0, &3i32.to_le_bytes());
    rig.sync().unwrap();
    rig.launch(LEGACY, "insist", 1, 1, 0, &4i32.to_le_bytes());
    assert_eq!(rig.sync().unwrap_err().code, Code::Assert);
    let printed = rig.printed();
    assert!(printed.starts_with("kernels.cu:"), "{printed}");
    assert!(
        printed.ends_with("void insist(int): block: [0,0,0], thread: [0,0,0] Assertion `x == 3` failed.\n"),
        "{printed}"
    );
    assert_eq!(rig.gpu.mem_info(0).unwrap_err().code, Code::Assert);
}

#[test]
fn a_copy_in_another_stream_reaches_a_kernel_that_spins() {
    let rig = Rig::new();
    rig.gpu.stream_create(0, 0x100, false, 0).unwrap();
    rig.write(rig.memory, &[0]);
    rig.sync().unwrap();
    // More blocks than workers, all of them spinning.
    rig.launch(LEGACY, "spin", 20, 64, 0, &rig.memory.to_le_bytes());
    rig.gpu.memset(0x100, Region::linear(rig.memory, 4), 1, 4).unwrap();
    rig.sync().unwrap();
    rig.write(rig.memory, &[0]);
    rig.launch(LEGACY, "spin", 20, 64, 0, &rig.memory.to_le_bytes());
    rig.gpu.reset(0).unwrap();
    rig.sync().unwrap();
    assert_eq!(rig.gpu.counters().launches, 1);
}

#[test]
fn modules_come_and_go() {
    let rig = Rig::new();
    let again = rig.gpu.module_load(0, 8, PTX, &[("managed".into(), rig.managed)]).unwrap();
    let address = |m: &ModuleInfo| m.globals.iter().find(|g| g.name == "counter").unwrap().addr;
    assert_ne!(address(&again), address(&rig.module));
    rig.gpu.module_unload(8).unwrap();
    assert_eq!(rig.gpu.module_unload(8).unwrap_err().code, Code::InvalidHandle);
    let gone = rig.gpu.memset(LEGACY, Region::linear(address(&again), 4), 0, 4);
    assert_eq!(gone.unwrap_err().code, Code::InvalidValue);
    assert_eq!(rig.read(address(&rig.module), 1), [5]);
    let code = |image: &[u8]| rig.gpu.module_load(0, 9, image, &[]).unwrap_err().code;
    assert_eq!(code(PTX), Code::InvalidValue, "no address for the managed variable");
    assert_eq!(code(b"no image"), Code::InvalidImage);
    assert_eq!(code(b".version 8.0\n.target sm_80\n.address_size 64\nnonsense"), Code::InvalidPtx);
}
