//! What programs pass by mistake: every implemented call of both CUDA doors survives null pointers, handles of 0 and
//! memory full of zeros, and says what is wrong where nothing can be meant by them.
//!
//! The calls are made in a process of their own: some of them reset the device, and one that crashes ends it.

use std::collections::BTreeSet;
use std::process::Command;
use std::sync::atomic::AtomicU64;

use super::table::Address;
use crate::abi::signature::{Kind, Signature};
use crate::in_process::rgpu_use_in_process;
use crate::{driver, runtime};

/// Says to this test's process that it is the one that makes the calls.
const CHILD: &str = "in-this-process";
/// The words that are passed: six in registers, the others on the stack.
const REGISTERS: usize = 6;
const WORDS: usize = 24;
/// What a pointer points to.
const SCRATCH: usize = 64 << 10;

/// Where structures go that are too large for registers: the compiler's own pointer, which is never null.
static RESULT: [AtomicU64; 32] = [const { AtomicU64::new(0) }; 32];

/// Calls to which zeros mean something, by what that is.
const MEANT: &[(&str, &[&str])] = &[
    (
        "nothing is copied, filled or done",
        &[
            "cuMemcpy",
            "cuMemcpyAsync",
            "cuMemcpyDtoDAsync_v2",
            "cuMemcpyDtoD_v2",
            "cuMemcpyDtoHAsync_v2",
            "cuMemcpyDtoH_v2",
            "cuMemcpyHtoDAsync_v2",
            "cuMemcpyHtoD_v2",
            "cuMemcpyPeer",
            "cuMemcpyPeerAsync",
            "cuMemsetD16Async",
            "cuMemsetD16_v2",
            "cuMemsetD2D16Async",
            "cuMemsetD2D16_v2",
            "cuMemsetD2D32Async",
            "cuMemsetD2D32_v2",
            "cuMemsetD2D8Async",
            "cuMemsetD2D8_v2",
            "cuMemsetD32Async",
            "cuMemsetD32_v2",
            "cuMemsetD8Async",
            "cuMemsetD8_v2",
            "cuStreamBatchMemOp",
            "cuStreamBatchMemOp_v2",
            "cudaMemcpy",
            "cudaMemcpy2D",
            "cudaMemcpy2DAsync",
            "cudaMemcpyAsync",
            "cudaMemcpyPeer",
            "cudaMemcpyPeerAsync",
            "cudaMemset",
            "cudaMemset2D",
            "cudaMemset2DAsync",
            "cudaMemset3D",
            "cudaMemset3DAsync",
            "cudaMemsetAsync",
        ],
    ),
    (
        "null is nothing to be freed",
        &[
            "cuMemFreeAsync",
            "cuMemFreeHost",
            "cuMemFree_v2",
            "cudaFree",
            "cudaFreeArray",
            "cudaFreeHost",
            "cudaFreeMipmappedArray",
        ],
    ),
    (
        "0 is the current context, the default stream, and who wants no result gets none",
        &[
            "cuCtxGetStreamPriorityRange",
            "cuCtxPopCurrent",
            "cuCtxPopCurrent_v2",
            "cuCtxSynchronize",
            "cuCtxSynchronize_v2",
            "cuMemGetInfo_v2",
            "cuStreamCopyAttributes",
            "cuStreamQuery",
            "cuStreamSynchronize",
            "cudaDeviceGetStreamPriorityRange",
            "cudaDeviceSynchronize",
            "cudaStreamCopyAttributes",
            "cudaStreamQuery",
            "cudaStreamSynchronize",
            "cudaThreadSynchronize",
        ],
    ),
    (
        "0 is a device, or a value that may be set; or there is nothing to be given",
        &[
            "__cudaPushCallConfiguration",
            "cuCtxResetPersistingL2Cache",
            "cuCtxSetCacheConfig",
            "cuCtxSetCurrent",
            "cuCtxSetFlags",
            "cuCtxSetLimit",
            "cuCtxSetSharedMemConfig",
            "cuDeviceGraphMemTrim",
            "cuDevicePrimaryCtxRelease",
            "cuDevicePrimaryCtxRelease_v2",
            "cuDevicePrimaryCtxReset",
            "cuDevicePrimaryCtxReset_v2",
            "cuDevicePrimaryCtxSetFlags",
            "cuDevicePrimaryCtxSetFlags_v2",
            "cuFlushGPUDirectRDMAWrites",
            "cuInit",
            "cuProfilerStart",
            "cuProfilerStop",
            "cudaCtxResetPersistingL2Cache",
            "cudaDeviceGraphMemTrim",
            "cudaDeviceReset",
            "cudaDeviceSetCacheConfig",
            "cudaDeviceSetLimit",
            "cudaDeviceSetSharedMemConfig",
            "cudaInitDevice",
            "cudaProfilerStart",
            "cudaProfilerStop",
            "cudaSetDevice",
            "cudaSetDeviceFlags",
            "cudaSetValidDevices",
            "cudaThreadExit",
            "cudaThreadSetCacheConfig",
            "cudaThreadSetLimit",
        ],
    ),
];

/// Calls whose pointers are not followed but called, or are handles of nvcc's own code.
fn takes_functions(name: &str) -> bool {
    ["HostFunc", "AddCallback", "LogsRegisterCallback", "__cuda"].iter().any(|part| name.contains(part))
}

/// The arguments of a call in the registers and on the stack, as C passes them.
fn words(signature: &Signature, mut pointer: impl FnMut() -> usize) -> [usize; WORDS] {
    let (mut registers, mut stack) = (Vec::new(), Vec::new());
    if matches!(signature.result, Kind::Structure(bytes) if bytes > 16) {
        registers.push(RESULT.as_ptr() as usize);
    }
    for argument in signature.arguments {
        let values = match argument {
            Kind::Void | Kind::Float(_) => vec![],
            Kind::Pointer => vec![pointer()],
            Kind::Integer(_) => vec![0],
            Kind::Structure(bytes) => vec![0; bytes.div_ceil(8)],
        };
        let by_register = values.len() <= 2 && registers.len() + values.len() <= REGISTERS;
        if by_register { registers.extend(values) } else { stack.extend(values) }
    }
    let mut words = [0; WORDS];
    words[..registers.len()].copy_from_slice(&registers);
    words[REGISTERS..REGISTERS + stack.len()].copy_from_slice(&stack);
    words
}

/// Calls a function with words for arguments.
fn call(Address(function): Address, w: [usize; WORDS]) -> u32 {
    type Words = extern "C" fn(
        usize,
        usize,
        usize,
        usize,
        usize,
        usize,
        usize,
        usize,
        usize,
        usize,
        usize,
        usize,
        usize,
        usize,
        usize,
        usize,
        usize,
        usize,
        usize,
        usize,
        usize,
        usize,
        usize,
        usize,
    ) -> u32;
    // SAFETY: an entry point finds its arguments in the first of them, and leaves the others alone.
    let function = unsafe { std::mem::transmute::<*const (), Words>(function) };
    function(
        w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7], w[8], w[9], w[10], w[11], w[12], w[13], w[14], w[15],
        w[16], w[17], w[18], w[19], w[20], w[21], w[22], w[23],
    )
}

/// Memory full of zeros, a piece of it for each pointer.
struct Scratch(Vec<Vec<u64>>);

impl Scratch {
    fn new() -> Self {
        Self((0..WORDS).map(|_| vec![0; SCRATCH / size_of::<u64>()]).collect())
    }

    /// Zeros again; where the pieces are.
    fn addresses(&mut self) -> Vec<usize> {
        self.0
            .iter_mut()
            .map(|piece| {
                piece.fill(0);
                piece.as_mut_ptr() as usize
            })
            .collect()
    }
}

/// Makes the device's primary context current, whatever the last call has done.
fn make_current() {
    let mut context = 0_usize;
    let symbol = |name: &str| driver::table::TABLE.iter().find(|row| row.symbol == name).unwrap().address;
    let mut words = [0; WORDS];
    assert_eq!(call(symbol("cuInit"), words), 0);
    words[0] = &raw mut context as usize;
    assert_eq!(call(symbol("cuDevicePrimaryCtxRetain"), words), 0);
    words[0] = context;
    assert_eq!(call(symbol("cuCtxSetCurrent"), words), 0);
}

/// Makes all calls with nothing; those that were content with it are returned.
fn make_calls() -> BTreeSet<&'static str> {
    assert_eq!(rgpu_use_in_process(), 0);
    let mut content = BTreeSet::new();
    let mut scratch = Scratch::new();
    let rows = driver::table::TABLE.iter().chain(runtime::table::TABLE);
    for (row, signature) in rows.filter_map(|row| Some((row, row.signature?))) {
        let code = |what: &str, words| {
            make_current();
            eprintln!("{} {what}", row.symbol);
            call(row.address, words)
        };
        if code("with nothing", words(&signature, || 0)) == 0
            && signature.result == Kind::Integer(4)
            && !row.name.ends_with("LastError")
        {
            content.insert(row.symbol);
        }
        if takes_functions(row.name) {
            continue;
        }
        let pointers = signature.arguments.iter().filter(|kind| **kind == Kind::Pointer).count();
        // All pointers lead to zeros, then all but one.
        for null in 0..=pointers {
            let addresses = scratch.addresses();
            let mut next = addresses.iter().enumerate();
            let pointer = || next.next().map_or(0, |(i, at)| if i + 1 == null { 0 } else { *at });
            code(&format!("with zeros, null pointer {null}"), words(&signature, pointer));
        }
    }
    content
}

#[test]
fn no_call_of_the_cuda_doors_crashes_on_nothing() {
    if std::env::args().any(|argument| argument == CHILD) {
        let content = make_calls();
        let meant: BTreeSet<&str> = MEANT.iter().flat_map(|(_, names)| *names).copied().collect();
        assert_eq!(content, meant, "calls that were content with nothing, and those that may be");
        return;
    }
    let name = std::thread::current().name().unwrap().to_owned();
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &name, CHILD, "--nocapture", "--test-threads=1"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let last: Vec<&str> = said.lines().rev().take(30).collect();
    assert!(output.status.success(), "{}: the last lines, backwards:\n{}", output.status, last.join("\n"));
    // A process that made no calls would have nothing to say.
    assert!(said.lines().filter(|line| line.ends_with(" with nothing")).count() > 500, "{}", last.join("\n"));
}
