//! Words of memory that streams, kernels and the program's threads hand to each other while work is under way.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::*;

const NOT_READY: u32 = 600;

/// A kernel that waits for each odd number in a word of memory, and puts the next even one there.
const PING_PONG: &str = "
.version 7.0
.target sm_70
.address_size 64
.visible .entry answer(.param .u64 at, .param .u32 rounds)
{
    .reg .b32 %r<5>;
    .reg .b64 %rd<2>;
    .reg .pred %p<3>;
    ld.param.u64 %rd1, [at];
    ld.param.u32 %r1, [rounds];
    mov.u32 %r2, 1;
again:
    ld.acquire.sys.global.u32 %r3, [%rd1];
    setp.ne.u32 %p1, %r3, %r2;
    @%p1 bra again;
    atom.global.sys.add.u32 %r4, [%rd1], 1;
    add.u32 %r2, %r2, 2;
    sub.u32 %r1, %r1, 1;
    setp.ne.u32 %p2, %r1, 0;
    @%p2 bra again;
    ret;
}
\0";

type Stream = Handle;
type Write32 = unsafe extern "C" fn(Stream, u64, u32, u32) -> u32;
type Write64 = unsafe extern "C" fn(Stream, u64, u64, u32) -> u32;
type Batch = unsafe extern "C" fn(Stream, u32, *const [u64; 6], u32) -> u32;

fn stream(library: &Library) -> Stream {
    let mut stream = std::ptr::null_mut();
    // SAFETY: the type of the function of this name. 1 is a stream that waits for no other.
    assert_eq!(unsafe { library.symbol::<GetFor<Handle, u32>>("cuStreamCreate")(&mut stream, 1) }, 0);
    stream
}

/// Pinned and managed memory of a page.
fn shared_memory(library: &Library) -> [u64; 2] {
    let (mut pinned, mut managed) = (0, 0);
    // SAFETY: these are the types of the functions of these names.
    unsafe {
        type HostAlloc = unsafe extern "C" fn(*mut u64, usize, u32) -> u32;
        assert_eq!(library.symbol::<HostAlloc>("cuMemHostAlloc")(&mut pinned, 4096, 2), 0);
        assert_eq!(library.symbol::<HostAlloc>("cuMemAllocManaged")(&mut managed, 4096, 1), 0);
    }
    [pinned, managed]
}

#[test]
fn a_running_kernel_and_the_host_hand_a_counter_back_and_forth() {
    const ROUNDS: u32 = 1000;
    let library = library();
    let (mut module, mut function) = (std::ptr::null_mut(), std::ptr::null_mut());
    type GetFunction = unsafe extern "C" fn(*mut Handle, Handle, *const c_char) -> u32;
    type Launch = unsafe extern "C" fn(
        Handle,
        u32,
        u32,
        u32,
        u32,
        u32,
        u32,
        u32,
        Stream,
        *mut *mut c_void,
        *mut *mut c_void,
    ) -> u32;
    // SAFETY: these are the types of the functions of these names, and the arguments are those of the kernel.
    unsafe {
        let attribute = |number| {
            let mut value = -1;
            let get: unsafe extern "C" fn(*mut i32, u32, i32) -> u32 = library.symbol("cuDeviceGetAttribute");
            assert_eq!(get(&mut value, number, 0), 0);
            value
        };
        // Atomic operations on host memory, concurrent access to managed memory; but not to pageable memory.
        assert_eq!((attribute(86), attribute(89), attribute(88)), (1, 1, 0));
        assert_eq!(
            library.symbol::<GetFor<Handle, *const u8>>("cuModuleLoadData")(&mut module, PING_PONG.as_ptr()),
            0
        );
        assert_eq!(
            library.symbol::<GetFunction>("cuModuleGetFunction")(&mut function, module, c"answer".as_ptr()),
            0
        );
        for at in shared_memory(library) {
            let word = &*(at as *const AtomicU32);
            let (mut at, mut rounds, stream) = (at, ROUNDS, stream(library));
            let mut arguments = [(&raw mut at).cast(), (&raw mut rounds).cast()];
            let launch: Launch = library.symbol("cuLaunchKernel");
            let none = std::ptr::null_mut();
            assert_eq!(launch(function, 1, 1, 1, 1, 1, 1, 0, stream, arguments.as_mut_ptr(), none), 0);
            for round in 0..ROUNDS {
                // An atomic addition on this side, as the kernel's on its own.
                assert_eq!(word.fetch_add(1, Ordering::SeqCst), 2 * round);
                while word.load(Ordering::SeqCst) != 2 * round + 2 {
                    std::thread::yield_now();
                }
            }
            assert_eq!(library.symbol::<With<Handle>>("cuStreamSynchronize")(stream), 0);
        }
    }
}

#[test]
fn streams_write_words_and_wait_for_them() {
    let library = library();
    let (first, second, stuck) = (stream(library), stream(library), stream(library));
    let mut device = 0_u64;
    // SAFETY: these are the types of the functions of these names; addresses are of memory of a page.
    unsafe {
        assert_eq!(library.symbol::<GetFor<u64, usize>>("cuMemAlloc_v2")(&mut device, 4096), 0);
        let fill: unsafe extern "C" fn(u64, u8, usize) -> u32 = library.symbol("cuMemsetD8_v2");
        let wait: Write32 = library.symbol("cuStreamWaitValue32_v2");
        let wait_64: Write64 = library.symbol("cuStreamWaitValue64_v2");
        let write: Write32 = library.symbol("cuStreamWriteValue32_v2");
        let write_64: Write64 = library.symbol("cuStreamWriteValue64_v2");
        let batch: Batch = library.symbol("cuStreamBatchMemOp_v2");
        let synchronize: With<Handle> = library.symbol("cuStreamSynchronize");
        let query: With<Handle> = library.symbol("cuStreamQuery");
        let [pinned, managed] = shared_memory(library);
        for at in [device, pinned, managed] {
            assert_eq!(fill(at, 0, 4096), 0);
            // A stream that waits for ever holds up no other.
            assert_eq!(wait(stuck, at + 64, 1, 1), 0);
            // The first waits for the second, by a word of four bytes and by one of eight, and answers.
            assert_eq!(wait(first, at, 5, 0), 0);
            assert_eq!(wait_64(first, at + 8, 1 << 40, 2), 0);
            assert_eq!(write(first, at + 4, 77, 0), 0);
            assert_eq!(query(first), NOT_READY);
            let ops = [
                [2, at, 6, 0, 0, 0],
                [6, 0, 0, 0, 0, 0],
                [5, at + 8, 3 << 40, 0, 0, 0],
                [1, at + 4, 77, 1 << 30 | 1, 0, 0],
            ];
            assert_eq!(batch(second, 4, ops.as_ptr(), 0), 0);
            assert_eq!((synchronize(first), synchronize(second)), (0, 0));
            let copy: CopyOut = library.symbol("cuMemcpyDtoH_v2");
            let mut words = [0_u32; 4];
            // The copy would wait for the stuck stream if that were ordered with others.
            assert_eq!(copy(words.as_mut_ptr().cast(), at, 16), 0);
            assert_eq!(words, [6, 77, 0, 3 << 8]);
            assert_eq!(query(stuck), NOT_READY);
            assert_eq!(write_64(second, at + 64, 1, 0), 0);
            assert_eq!(synchronize(stuck), 0);
        }
        // The host's own threads answer as well.
        let word = &*((pinned + 128) as *const AtomicU64);
        assert_eq!((wait_64(first, pinned + 128, 9, 0), write_64(first, pinned + 136, 10, 0)), (0, 0));
        assert_eq!(query(first), NOT_READY);
        word.store(9, Ordering::SeqCst);
        assert_eq!(synchronize(first), 0);
        assert_eq!((*((pinned + 136) as *const AtomicU64)).load(Ordering::SeqCst), 10);

        let ordinary = 0_u64;
        assert_eq!(write_64(first, &raw const ordinary as u64, 1, 0), INVALID_VALUE);
        assert_eq!(
            (wait(first, device + 2, 0, 0), wait(first, device, 0, 4)),
            (INVALID_VALUE, INVALID_VALUE)
        );
        assert_eq!((wait(first, 0, 0, 0), wait(first, device + 4096, 0, 0)), (INVALID_VALUE, INVALID_VALUE));
        assert_eq!(batch(first, 1, [8, device, 0, 0, 0, 0].as_ptr().cast(), 0), NOT_SUPPORTED);
        assert_eq!((batch(first, 1, std::ptr::null(), 0), batch(first, 257, std::ptr::null(), 0)), (1, 1));
    }
}

/// `CUDA_BATCH_MEM_OP_NODE_PARAMS`.
#[repr(C)]
struct NodeParams {
    context: Handle,
    count: u32,
    ops: *const [u64; 6],
    flags: u32,
}

#[test]
fn operations_on_words_are_nodes_of_graphs() {
    let library = library();
    let mut current = std::ptr::null_mut();
    let [at, _] = shared_memory(library);
    let word = |index: u64| {
        // SAFETY: memory of a page, which stays.
        unsafe { &*((at + 4 * index) as *const AtomicU32) }
    };
    // SAFETY: these are the types of the functions of these names.
    unsafe {
        assert_eq!(library.symbol::<With<*mut Handle>>("cuCtxGetCurrent")(&mut current), 0);
        let (mut graph, mut node, mut exec) =
            (std::ptr::null_mut(), std::ptr::null_mut(), std::ptr::null_mut());
        // What is captured becomes a node like one that is made by hand.
        let stream = stream(library);
        let begin: unsafe extern "C" fn(Handle, i32) -> u32 = library.symbol("cuStreamBeginCapture_v2");
        assert_eq!(begin(stream, 1), 0);
        assert_eq!(library.symbol::<Write32>("cuStreamWriteValue32_v2")(stream, at, 1, 0), 0);
        let end: unsafe extern "C" fn(Handle, *mut Handle) -> u32 = library.symbol("cuStreamEndCapture");
        assert_eq!(end(stream, &mut graph), 0);
        let mut ops = [[2, at + 4, 2, 0, 0, 0], [1, at + 8, 3, 1, 0, 0], [2, at + 12, 4, 0, 0, 0]];
        let params = NodeParams { context: current, count: 3, ops: ops.as_ptr(), flags: 0 };
        type Add = unsafe extern "C" fn(*mut Handle, Handle, *const Handle, usize, *const NodeParams) -> u32;
        let add: Add = library.symbol("cuGraphAddBatchMemOpNode");
        assert_eq!(add(&mut node, graph, std::ptr::null(), 0, &params), 0);
        let mut kind = -1;
        let kind_of: unsafe extern "C" fn(Handle, *mut i32) -> u32 = library.symbol("cuGraphNodeGetType");
        assert_eq!((kind_of(node, &mut kind), kind), (0, 12));
        let mut got = NodeParams { context: std::ptr::null_mut(), count: 0, ops: std::ptr::null(), flags: 9 };
        let get: unsafe extern "C" fn(Handle, *mut NodeParams) -> u32 =
            library.symbol("cuGraphBatchMemOpNodeGetParams");
        assert_eq!(get(node, &mut got), 0);
        assert_eq!((std::slice::from_raw_parts(got.ops, got.count as usize), got.flags), (&ops[..], 0));

        type Instantiate = unsafe extern "C" fn(*mut Handle, Handle, u64) -> u32;
        assert_eq!(library.symbol::<Instantiate>("cuGraphInstantiateWithFlags")(&mut exec, graph, 0), 0);
        ops[2][2] = 5;
        let set: unsafe extern "C" fn(Handle, Handle, *const NodeParams) -> u32 =
            library.symbol("cuGraphExecBatchMemOpNodeSetParams");
        assert_eq!(set(exec, node, &params), 0);
        ops[2][0] = 77;
        assert_eq!((set(exec, node, &params), ops[2][0]), (INVALID_VALUE, 77));
        let launch: unsafe extern "C" fn(Handle, Handle) -> u32 = library.symbol("cuGraphLaunch");
        assert_eq!(launch(exec, stream), 0);
        assert_eq!(library.symbol::<With<Handle>>("cuStreamQuery")(stream), NOT_READY);
        word(2).store(3, Ordering::SeqCst);
        assert_eq!(library.symbol::<With<Handle>>("cuStreamSynchronize")(stream), 0);
        assert_eq!([0, 1, 2, 3].map(|index| word(index).load(Ordering::SeqCst)), [1, 2, 3, 5]);
    }
}
