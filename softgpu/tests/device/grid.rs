//! The barrier of a grid, as programs link it that have it from CUDA's device runtime.

use rgpu_device::{Code, Device, Launch};
use rgpu_softgpu::Config;

use super::{LEGACY, Rig, kept_code};

const MODULE: u64 = 8;

/// Each block adds one to its own word before the barrier, and stores the sum of all words behind it; three times.
const TEXT: &str = ".version 8.0\n.target sm_80\n.address_size 64\n
    .extern .func (.param .b64 a) cudaCGGetIntrinsicHandle (.param .b32 b);
    .extern .func (.param .b32 a) cudaCGSynchronize (.param .b64 b, .param .b32 c);
    .visible .entry sums(.param .u64 memory)
    {
        .reg .b32 %r<20>; .reg .b64 %rd<10>; .reg .pred %p<4>;
        .param .b64 handle; .param .b32 scope; .param .b32 status; .param .b32 flags;
        ld.param.u64 %rd1, [memory];
        mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mov.u32 %r3, %nctaid.x;
        st.param.b32 [scope], 1;
        call (handle), cudaCGGetIntrinsicHandle, (scope);
        ld.param.b64 %rd2, [handle];
        mad.wide.u32 %rd3, %r2, 4, %rd1;
        mov.u32 %r4, 0;
    ROUND:
        setp.ne.u32 %p1, %r1, 0; @%p1 bra BEFORE;
        ld.volatile.global.u32 %r5, [%rd3]; add.u32 %r5, %r5, 1; st.volatile.global.u32 [%rd3], %r5;
    BEFORE:
        st.param.b64 [handle], %rd2; st.param.b32 [flags], 0;
        call (status), cudaCGSynchronize, (handle, flags);
        ld.param.b32 %r6, [status]; setp.ne.u32 %p2, %r6, 0; @%p2 bra WRONG;
        mov.u32 %r7, 0; mov.u32 %r8, 0; mov.u64 %rd4, %rd1;
    NEXT:
        ld.volatile.global.u32 %r9, [%rd4]; add.u32 %r7, %r7, %r9; add.u64 %rd4, %rd4, 4;
        add.u32 %r8, %r8, 1; setp.lt.u32 %p3, %r8, %r3; @%p3 bra NEXT;
        mad.lo.u32 %r10, %r4, %r3, %r2; mul.wide.u32 %rd5, %r10, 4; add.u64 %rd5, %rd5, %rd1;
        @!%p1 st.global.u32 [%rd5+1024], %r7;
        call (status), cudaCGSynchronize, (handle, flags);
        add.u32 %r4, %r4, 1; setp.lt.u32 %p3, %r4, 3; @%p3 bra ROUND;
        ret;
    WRONG:
        st.global.u32 [%rd3+1024], 4000;
        ret;
    }";

/// A launch of blocks of 64 threads.
fn launch(stream: u64, function: u32, blocks: u32, cooperative: bool, params: &[u8]) -> Launch<'_> {
    Launch {
        stream,
        module: MODULE,
        function,
        grid: [blocks, 1, 1],
        block: [64, 1, 1],
        shared_bytes: 0,
        cooperative,
        cluster: [0; 3],
        params,
    }
}

#[test]
fn blocks_of_a_cooperative_grid_wait_for_one_another() {
    let rig = Rig::new();
    let text = rgpu_image::link(&[TEXT, rgpu_image::DEVICE_RUNTIME]).unwrap();
    rig.gpu.module_load(0, MODULE, text.as_bytes(), &[]).unwrap();
    let params = rig.memory.to_le_bytes();
    let launch = launch(LEGACY, 0, 6, true, &params);
    rig.write(rig.memory, &[0; 1024]);
    rig.gpu.launch(launch).unwrap();
    let sums: Vec<i32> = [6, 12, 18].into_iter().flat_map(|sum| [sum; 6]).collect();
    assert_eq!(rig.read(rig.memory + 1024, 18), sums);
    // Nobody can wait where blocks do not run together.
    rig.gpu.launch(Launch { cooperative: false, ..launch }).unwrap();
    assert_eq!(rig.read(rig.memory + 1024, 6), [4000; 6]);
}

/// Has so many blocks wait for one another, in the first launch on a device of its own.
fn wait_for_one_another(blocks: u32, config: Config) {
    let rig = Rig::of(kept_code::Code::default(), config);
    let text = rgpu_image::link(&[TEXT, rgpu_image::DEVICE_RUNTIME]).unwrap();
    rig.gpu.module_load(0, MODULE, text.as_bytes(), &[]).unwrap();
    rig.write(rig.memory, &vec![0; blocks as usize]);
    rig.gpu.launch(launch(LEGACY, 0, blocks, true, &rig.memory.to_le_bytes())).unwrap();
    let sums: Vec<i32> =
        [1, 2, 3].into_iter().flat_map(|round| vec![(round * blocks) as i32; blocks as usize]).collect();
    assert_eq!(rig.read(rig.memory + 1024, sums.len()), sums);
}

#[test]
fn as_many_blocks_wait_for_one_another_as_all_multiprocessors_hold() {
    wait_for_one_another(224, Config { multiprocessors: 16, ..Config::default() });
}

#[test]
fn one_launch_calls_as_many_workers_as_it_has_work_for() {
    // Four workers hold these blocks, and fewer do not.
    wait_for_one_another(64, Config { workers: 4, ..Config::default() });
}

/// Threads that wait for a word and then count themselves, and one that sets the word.
const FLAG: &str = ".version 8.0\n.target sm_80\n.address_size 64\n
    .visible .entry waits(.param .u64 memory)
    {
        .reg .b32 %r<3>; .reg .b64 %rd<2>; .reg .pred %p<2>;
        ld.param.u64 %rd1, [memory];
    AGAIN:
        ld.volatile.global.u32 %r1, [%rd1]; setp.eq.u32 %p1, %r1, 0; @%p1 bra AGAIN;
        atom.global.add.u32 %r2, [%rd1+4], 1;
        ret;
    }
    .visible .entry sets(.param .u64 memory)
    {
        .reg .b64 %rd<2>;
        ld.param.u64 %rd1, [memory];
        st.volatile.global.u32 [%rd1], 1;
        ret;
    }\0";

#[test]
fn a_kernel_comes_to_its_turn_while_as_many_blocks_wait_as_there_is_room_for() {
    let rig = Rig::new();
    rig.gpu.module_load(0, MODULE, FLAG.as_bytes(), &[]).unwrap();
    rig.write(rig.memory, &[0; 2]);
    rig.sync().unwrap();
    for (stream, function, blocks) in [(0x100, 0, 40), (0x200, 1, 1)] {
        rig.gpu.stream_create(0, stream, false, 0).unwrap();
        rig.gpu.launch(launch(stream, function, blocks, false, &rig.memory.to_le_bytes())).unwrap();
    }
    rig.sync().unwrap();
    assert_eq!(rig.read(rig.memory, 2), [1, 40 * 64]);
}

/// A kernel that launches a graph, which no kernel can here, and one that does not; between them a function that nobody has.
const MISSING: &str = ".version 8.0\n.target sm_80\n.address_size 64\n
    .extern .func (.param .b32 r) cudaGraphLaunch (.param .b64 graph, .param .b64 stream);
    .visible .entry launches(.param .u64 memory)
    {
        .param .b32 r; .param .b64 graph; .param .b64 stream; .reg .b64 %rd<2>;
        ld.param.u64 %rd1, [memory];
        st.param.b64 [graph], %rd1; st.param.b64 [stream], %rd1;
        call (r), cudaGraphLaunch, (graph, stream);
        ret;
    }
    .visible .entry stores(.param .u64 memory)
    {
        .reg .b64 %rd<2>;
        ld.param.u64 %rd1, [memory];
        st.global.u32 [%rd1], 7;
        ret;
    }\0";

#[test]
fn a_missing_function_of_the_device_runtime_costs_a_module_only_the_kernels_that_call_it() {
    let rig = Rig::new();
    rig.gpu.module_load(0, MODULE, MISSING.as_bytes(), &[]).unwrap();
    let params = rig.memory.to_le_bytes();
    let launch = |function| {
        rig.gpu.launch(Launch {
            stream: LEGACY,
            module: MODULE,
            function,
            grid: [1; 3],
            block: [1; 3],
            shared_bytes: 0,
            cooperative: false,
            cluster: [0; 3],
            params: &params,
        })
    };
    launch(1).unwrap();
    rig.sync().unwrap();
    let error = launch(0).and_then(|()| rig.sync()).unwrap_err();
    assert_eq!(error.code, Code::InvalidPtx, "{error}");
    assert!(error.message.contains("'cudaGraphLaunch'"), "{error}");
    // A function of the program's own that is nowhere is an error of the whole module.
    let text = MISSING.replace("cudaGraphLaunch", "nowhere");
    let error = rig.gpu.module_load(0, MODULE + 1, text.as_bytes(), &[]).unwrap_err();
    assert_eq!(error.code, Code::InvalidPtx, "{error}");
}
