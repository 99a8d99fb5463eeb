//! Runs kernels one thread after another, with an arena of its own, and carries out the operations at
//! cuts in the plainest way. Whatever goes wrong fails the test.

use std::collections::HashMap;

use rgpu_device::Range;

use crate::abi::{self, Block, CutKind, Kernel, ReduceOp, ShuffleMode, Thread, VoteMode, WARP};
use crate::compile::{Environment, Linked, Program};

const SIZE: usize = 64 << 20;
const SHARED: u64 = 8 << 30;

/// An arena with a program in it.
pub(in crate::compile) struct Machine {
    linked: Linked,
    arena: *mut u8,
    next: u64,
    shared: u64,
}

extern "C" fn no_printf(_: *mut Block, _: u64, _: u64) -> i32 {
    -1
}
extern "C" fn no_count(_: *mut Block, _: u64) {}
extern "C" fn no_texture(_: *mut Block, _: u64, _: u64) -> u32 {
    abi::TRAP_ADDRESS
}
extern "C" fn no_textures() {}
extern "C" fn no_malloc(_: *mut Block, _: u64) -> u64 {
    0
}
extern "C" fn no_free(_: *mut Block, _: u64) {}
extern "C" fn no_assert(_: *mut Block, _: u64, _: u64, _: u32, _: u64) {}
extern "C" fn no_runtime() -> u64 {
    0
}

extern "C" fn no_check(_: *mut Block, address: u64, _: u64) -> u64 {
    address
}
extern "C" fn no_time() -> u64 {
    42
}

impl Machine {
    /// Compiles a module.
    pub(in crate::compile) fn new(text: &str) -> Self {
        Self::looking(text, abi::Checks::default())
    }

    /// Compiles a module, with calls that look at what kernels do.
    pub(in crate::compile) fn looking(text: &str, checks: abi::Checks) -> Self {
        let module = rgpu_image::ptx::parse(text).unwrap_or_else(|e| panic!("{e}"));
        let program = Program::new(module, 80).unwrap_or_else(|e| panic!("{e}"));
        // SAFETY: a new mapping.
        let (arena, shared) = unsafe {
            let map = |size| {
                libc::mmap(
                    std::ptr::null_mut(),
                    size,
                    libc::PROT_READ | libc::PROT_WRITE,
                    libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                    -1,
                    0,
                )
            };
            (map(SIZE), map(SHARED as usize))
        };
        assert!(arena != libc::MAP_FAILED && shared != libc::MAP_FAILED);
        let mut next = arena as u64 + abi::ARENA_MARGIN;
        let mut globals = HashMap::new();
        for global in program.globals() {
            next = next.next_multiple_of(global.align.max(16));
            globals.insert(global.name.clone(), next);
            // SAFETY: the variable lies in the arena.
            unsafe { std::ptr::copy(global.bytes.as_ptr(), next as *mut u8, global.bytes.len()) };
            next += global.size;
        }
        for global in program.globals() {
            for relocation in &global.relocations {
                let value = globals[&relocation.symbol].wrapping_add(relocation.addend as u64);
                // SAFETY: as above.
                unsafe { ((globals[&global.name] + relocation.offset) as *mut u64).write_unaligned(value) };
            }
        }
        let helpers = abi::Helpers {
            vprintf: no_printf as extern "C" fn(*mut Block, u64, u64) -> i32 as usize,
            malloc: no_malloc as extern "C" fn(*mut Block, u64) -> u64 as usize,
            free: no_free as extern "C" fn(*mut Block, u64) as usize,
            assertfail: no_assert as extern "C" fn(*mut Block, u64, u64, u32, u64) as usize,
            globaltimer: no_time as extern "C" fn() -> u64 as usize,
            clock: no_time as extern "C" fn() -> u64 as usize,
            device_runtime: no_runtime as *const () as usize,
            check: no_check as extern "C" fn(*mut Block, u64, u64) -> u64 as usize,
            texture: no_texture as extern "C" fn(*mut Block, u64, u64) -> u32 as usize,
            textures: no_textures as *const () as usize,
            count: no_count as extern "C" fn(*mut Block, u64) as usize,
            tensor: no_texture as extern "C" fn(*mut Block, u64, u64) -> u32 as usize,
            tensors: no_textures as *const () as usize,
            exchange: no_textures as *const () as usize,
            exchange_by_name: no_textures as *const () as usize,
        };
        let arena_range = Range { base: arena as u64, size: SIZE as u64 };
        let linked = program.link(Environment { arena: arena_range, globals, helpers, checks });
        Self { linked, arena: arena.cast(), next, shared: shared as u64 }
    }

    /// Compiles a kernel without running it.
    pub(super) fn compile(&self, index: u32) -> std::sync::Arc<Kernel> {
        self.try_compile(index).unwrap_or_else(|e| panic!("{e}"))
    }

    /// Compiles a kernel, or says why it is none.
    pub(in crate::compile) fn try_compile(&self, index: u32) -> rgpu_device::Result<std::sync::Arc<Kernel>> {
        self.linked.kernel(index)
    }

    fn take(&mut self, bytes: u64) -> u64 {
        let at = self.next.next_multiple_of(256);
        self.next = at + bytes;
        assert!(self.next < self.arena as u64 + SIZE as u64 - abi::ARENA_MARGIN);
        at
    }

    /// Copies values into the arena.
    pub(super) fn put<T: Copy>(&mut self, values: &[T]) -> u64 {
        let at = self.take(size_of_val(values) as u64);
        // SAFETY: there is room.
        unsafe { std::ptr::copy(values.as_ptr(), at as *mut T, values.len()) };
        at
    }

    /// Copies values out of the arena.
    pub(super) fn get<T: Copy>(&self, at: u64, count: usize) -> Vec<T> {
        // SAFETY: tests read what they have put.
        (0..count).map(|i| unsafe { (at as *const T).add(i).read() }).collect()
    }

    /// Runs kernel 0, whose parameters all take 8 bytes or come last.
    pub(super) fn run(&mut self, blocks: u32, threads: u32, params: &[u64]) {
        let bytes: Vec<u8> = params.iter().flat_map(|p| p.to_le_bytes()).collect();
        self.launch(0, blocks, threads, &bytes, 1024);
    }

    /// Runs a kernel.
    pub(super) fn launch(&mut self, index: u32, blocks: u32, threads: u32, params: &[u8], dynamic: u32) {
        let kernel = self.compile(index);
        let params = self.put(params);
        let local = u64::from(kernel.local_bytes).next_multiple_of(16) + 16384;
        let locals = self.take(local * u64::from(threads));
        let mut states = vec![0u128; (kernel.state_bytes as usize / 16 + 1) * threads as usize];
        for ctaid in 0..blocks {
            let mut block = Block {
                ctaid: [ctaid, 0, 0],
                nctaid: [blocks, 1, 1],
                ntid: [threads, 1, 1],
                dynamic_shared: dynamic,
                smid: 0,
                nsmid: 1,
                gridid: 1,
                params,
                shared_base: self.shared,
                envreg: 0,
                cluster: abi::Place::alone([ctaid, 0, 0], [blocks, 1, 1], self.shared),
                cursor: std::ptr::null_mut(),
                executor: std::ptr::null_mut(),
                together: abi::APART,
                words: [0; 6],
            };
            let stride = kernel.state_bytes as usize / 16 + 1;
            let mut row: Vec<Thread> = (0..threads)
                .map(|t| Thread {
                    tid: [t, 0, 0],
                    lane: t % 32,
                    resume: 0,
                    stop: 0,
                    fuel: 100,
                    error: 0,
                    op: [0; 6],
                    local_base: locals + local * u64::from(t),
                    local_end: locals + local * u64::from(t + 1),
                    state: states[t as usize * stride..].as_mut_ptr().cast(),
                })
                .collect();
            run_block(&kernel, &mut row, &mut block);
        }
    }
}

/// Runs all threads to their ends.
fn run_block(kernel: &Kernel, threads: &mut [Thread], block: &mut Block) {
    let mut alive: Vec<usize> = (0..threads.len()).collect();
    let mut ready = alive.clone();
    while !alive.is_empty() {
        assert!(!ready.is_empty(), "deadlock");
        for &index in &ready {
            // SAFETY: the thread and the block are as large as the kernel says.
            unsafe { (kernel.run)(&mut threads[index], 1, block) };
            assert!(threads[index].stop < abi::STOP_TRAP, "trap {:#x}", threads[index].stop);
        }
        alive.retain(|&index| threads[index].stop != abi::STOP_EXIT);
        ready = proceed(kernel, threads, &alive);
    }
}

/// Carries out what can be; returns the threads that go on. Warp operations need all living lanes of the
/// warp at the same cut, barriers all living threads.
fn proceed(kernel: &Kernel, threads: &mut [Thread], alive: &[usize]) -> Vec<usize> {
    let mut ready = Vec::new();
    let cut_of = |thread: &Thread| kernel.cuts[thread.stop as usize - 1];
    for &index in alive {
        if cut_of(&threads[index]).kind.yields() {
            ready.push(index);
        }
    }
    let is_barrier = |kind| matches!(kind, CutKind::Barrier | CutKind::BarrierReduce(_));
    if !alive.is_empty() && alive.iter().all(|&i| is_barrier(cut_of(&threads[i]).kind)) {
        let predicates: Vec<u64> = alive.iter().map(|&i| threads[i].op[2]).collect();
        for &index in alive {
            threads[index].op[0] = match cut_of(&threads[index]).kind {
                CutKind::BarrierReduce(ReduceOp::Popc) => predicates.iter().sum(),
                CutKind::BarrierReduce(ReduceOp::PredicateAnd) => {
                    u64::from(predicates.iter().all(|&p| p != 0))
                }
                CutKind::BarrierReduce(ReduceOp::PredicateOr) => {
                    u64::from(predicates.iter().any(|&p| p != 0))
                }
                _ => 0,
            };
        }
        return alive.to_vec();
    }
    for warp in 0..threads.len().div_ceil(WARP) {
        let lanes: Vec<usize> = alive.iter().copied().filter(|i| i / WARP == warp).collect();
        let Some(&first) = lanes.first() else { continue };
        let stop = threads[first].stop;
        let kind = cut_of(&threads[first]).kind;
        if is_barrier(kind) || kind.yields() || lanes.iter().any(|&i| threads[i].stop != stop) {
            continue;
        }
        warp_operation(kernel, kind, threads, &lanes);
        ready.extend(lanes);
    }
    ready
}

fn warp_operation(kernel: &Kernel, kind: CutKind, threads: &mut [Thread], lanes: &[usize]) {
    let ops: HashMap<usize, [u64; 6]> = lanes.iter().map(|&i| (i % WARP, threads[i].op)).collect();
    let mask = lanes.iter().fold(0u64, |mask, i| mask | 1 << (i % WARP));
    if let CutKind::Matrix(index) = kind {
        let mut states = [std::ptr::null_mut(); WARP];
        lanes.iter().for_each(|&i| states[i % WARP] = threads[i].state);
        return kernel.matrix_ops[index as usize](&states);
    }
    for &index in lanes {
        let lane = (index % WARP) as u64;
        let own = ops[&(lane as usize)];
        let op = &mut threads[index].op;
        match kind {
            CutKind::Shuffle(mode) => {
                let (b, c) = (own[1] & 31, own[2]);
                let (clamp, segment) = (c & 31, c >> 8 & 31);
                let max = lane & segment | clamp & !segment;
                let min = lane & segment;
                let (source, inside) = match mode {
                    ShuffleMode::Up => (lane.wrapping_sub(b), lane as i64 - b as i64 >= max as i64),
                    ShuffleMode::Down => (lane + b, lane + b <= max),
                    ShuffleMode::Butterfly => (lane ^ b, lane ^ b <= max),
                    ShuffleMode::Index => (min | b & !segment, min | b & !segment <= max),
                };
                let source = if inside { source } else { lane };
                op[0] = ops.get(&(source as usize)).map_or(0, |o| o[0]);
                op[1] = u64::from(inside);
            }
            CutKind::Vote(mode) => {
                let ballot = ops.iter().fold(0u64, |b, (lane, o)| b | (o[0] & 1) << lane);
                op[0] = match mode {
                    VoteMode::All => u64::from(ballot == mask),
                    VoteMode::Any => u64::from(ballot != 0),
                    VoteMode::Uniform => u64::from(ballot == mask || ballot == 0),
                    VoteMode::Ballot => ballot,
                };
            }
            CutKind::MatchAny => {
                op[0] = ops.iter().filter(|(_, o)| o[0] == own[0]).fold(0, |m, (lane, _)| m | 1 << lane);
            }
            CutKind::Redux(ReduceOp::Add) => op[0] = ops.values().map(|o| o[0]).sum::<u64>() & 0xffff_ffff,
            CutKind::Redux(ReduceOp::MaxS32) => {
                op[0] = ops.values().map(|o| o[0] as i32).max().unwrap_or(0) as u32 as u64;
            }
            CutKind::ActiveMask => op[0] = mask,
            CutKind::WarpSync => {}
            other => panic!("the test's executor does not know {other:?}"),
        }
    }
}
