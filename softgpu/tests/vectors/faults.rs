//! What a group of threads does wrong is told with the line where it did it, as of one thread.

use std::sync::Arc;

use rgpu_device::{Device, Launch, MemoryKind, Range, Target};
use rgpu_softgpu::compile::vector;
use rgpu_softgpu::{Config, SoftGpu};
use rgpu_test_runner::Skip;

use super::{FOLDER, Quiet, WHAT, kept_code};

/// Thread 13 accesses memory far away, at what its line calls `%rd4`; of a row behind `%rd8`, threads from 8 on may have none.
/// That row's elements are wider than all others, so that LLVM makes no instruction of its line and another one.
const TEXT: &str = r#".version 8.0
.target sm_80
.address_size 64
.file 1 "/src/main.cu"
.visible .entry k(.param .u64 at, .param .u32 what)
{ .reg .b64 %rd<9>; .reg .b32 %r<10>; .reg .pred %p<8>; .reg .f32 %f<4>; .shared .align 4 .b8 s[256];
  ld.param.u64 %rd1, [at]; ld.param.u32 %r1, [what]; mov.u32 %r2, %tid.x;
  mul.wide.u32 %rd2, %r2, 4; add.u64 %rd3, %rd1, %rd2;
  mul.lo.u32 %r3, %r2, %r2; and.b32 %r3, %r3, 31; mul.wide.u32 %rd4, %r3, 4; add.u64 %rd4, %rd1, %rd4;
  setp.eq.u32 %p1, %r2, 13; selp.b64 %rd5, 0x40000000, 0, %p1; add.u64 %rd4, %rd4, %rd5;
  add.u64 %rd6, %rd1, 0x40000000;
  setp.eq.u32 %p2, %r1, 1; @%p2 bra SCATTER;
  setp.eq.u32 %p2, %r1, 2; @%p2 bra GATHER;
  setp.eq.u32 %p2, %r1, 3; @%p2 bra SAME;
  setp.eq.u32 %p2, %r1, 4; @%p2 bra ATOMIC;
  setp.eq.u32 %p2, %r1, 5; @%p2 bra SOME;
  setp.eq.u32 %p2, %r1, 6; @%p2 bra ONE;
  setp.eq.u32 %p2, %r1, 7; @%p2 bra ANOTHER;
  mov.u32 %r6, s; shl.b32 %r7, %r2, 2; add.u32 %r8, %r6, %r7;
  setp.eq.u32 %p2, %r1, 8; @%p2 bra AROUND;
  setp.eq.u32 %p2, %r1, 9; @%p2 bra ASKEW;
  mul.wide.u32 %rd8, %r2, 8; add.u64 %rd8, %rd1, %rd8;
  .loc 1 20 3
  st.global.u64 [%rd8], %rd2;
  ret;
SCATTER:
  cvt.rn.f32.u32 %f1, %r2;
  .loc 1 21 3
  st.global.f32 [%rd4], %f1;
  ret;
GATHER:
  .loc 1 22 3
  ld.global.u32 %r4, [%rd4];
  st.global.u16 [%rd3], %r4;
  ret;
SAME:
  .loc 1 24 3
  ld.global.u32 %r4, [%rd6];
  st.global.u8 [%rd3], %r4;
  ret;
ATOMIC:
  .loc 1 26 3
  atom.global.add.u32 %r4, [%rd4], %r2;
  st.global.f32 [%rd3], %f1;
  ret;
ONE:
  .loc 1 30 3
  st.global.u32 [%rd4], %r1;
  ret;
AROUND:
  add.u32 %r8, %r8, -16;
  .loc 1 33 3
  st.shared.u32 [%r8], %r1;
  ret;
ASKEW:
  mov.u32 %r9, 0;
  .loc 1 34 3
  ld.shared.u32 %r4, [%r8];
  add.u32 %r9, %r9, %r4;
  add.u32 %r8, %r8, 2;
  bar.sync 0;
  setp.ne.u32 %p4, %r9, 1; @%p4 bra ASKEW;
  cvt.u64.u32 %rd7, %r9; st.global.u64 [%rd1], %rd7;
  ret;
ANOTHER:
  .loc 1 31 3
  st.global.u32 [%rd4], %r3;
  ret;
SOME:
  and.b32 %r5, %r2, 1; setp.eq.u32 %p3, %r5, 0; @%p3 bra OTHERS;
  .loc 1 28 3
  st.global.u32 [%rd4], %r2;
OTHERS:
  .loc 1 29 3
  st.global.f32 [%rd3+128], %f1;
  ret; }
"#;

/// The line of the source of each fault, and the thread.
const FAULTS: [(u32, u32); 10] = [
    (20, 8),
    (21, 13),
    (22, 13),
    (24, 0),
    (26, 13),
    (28, 13),
    (30, 13),
    (31, 13),
    // Of a row in the block's memory that begins before it, the first thread's element; and of one that is not aligned in the second turn of a loop.
    (33, 0),
    (34, 0),
];
/// Of these, LLVM may make one instruction of two lines, which are not told then.
const ALIKE: std::ops::Range<usize> = 6..8;

/// In a process that the test starts: says what each fault is told as.
pub(super) fn tell() {
    let config =
        Config { memory_bytes_per_device: 64 << 20, workers: 1, exact_bounds: true, ..Config::default() };
    let code = std::env::var_os(FOLDER).map(kept_code::Code::of).unwrap_or_default();
    let gpu: Arc<SoftGpu> = SoftGpu::open(config, Arc::new(Quiet { code })).unwrap();
    let plan = gpu.reserve(Range { base: 0x1800_0000_0000, size: 1 << 40 }).unwrap();
    let (memory, size) = (plan.devices[0].base, 1u64 << 20);
    for what in 0..FAULTS.len() as u32 {
        gpu.reset(0).unwrap();
        gpu.mem_alloc(0, memory, size, MemoryKind::Device).unwrap();
        gpu.module_load(0, 7, format!("{TEXT}\0").as_bytes(), &[]).unwrap();
        let at = if what == 0 { memory + size - 64 } else { memory };
        let mut params = at.to_le_bytes().to_vec();
        params.extend(what.to_le_bytes());
        let launch = Launch {
            stream: 0,
            module: 7,
            function: 0,
            grid: [1; 3],
            block: [32, 1, 1],
            shared_bytes: 0,
            cooperative: false,
            cluster: [0; 3],
            params: &params,
        };
        gpu.launch(launch).unwrap();
        println!("\nfault {}", gpu.synchronize_blocking(Target::Device(0)).unwrap_err().message);
    }
}

/// What a process in this tier says.
fn told(tier: &str, folder: &kept_code::Folder) -> Vec<String> {
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    let command = command.env(FOLDER, folder.as_ref()).env(WHAT, "faults").env(vector::VARIABLE, tier);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().filter_map(|line| line.strip_prefix("fault ")).map(str::to_owned).collect()
}

pub(super) fn are_told_with_their_lines() -> anyhow::Result<()> {
    vector::possible().map_err(Skip)?;
    let folder = kept_code::Folder::new("vectors-faults");
    // What is kept has its lines, too.
    let tiers = [("first", 8), ("wide", 16), ("warp", 32)];
    for (tier, lanes) in std::iter::once(("off", 1)).chain(tiers.into_iter().flat_map(|tier| [tier; 2])) {
        let told = told(tier, &folder);
        assert_eq!(told.len(), FAULTS.len(), "{tier}: {told:?}");
        for (number, (message, (line, thread))) in told.iter().zip(FAULTS).enumerate() {
            let first = thread / lanes * lanes;
            let who = match lanes {
                1 => format!("thread ({thread}, 0, 0)"),
                _ => format!("one of the threads ({first}, 0, 0) to ({}, 0, 0)", first + lanes - 1),
            };
            let place = format!(" in kernel k, block (0, 0, 0), {who}");
            let (_, place) =
                message.split_once(&place).unwrap_or_else(|| panic!("{tier}: {message}\n{place}"));
            let source = format!(" (/src/main.cu:{line})");
            let right = place.starts_with(", PTX line ") && place.ends_with(&source);
            let unknown = lanes > 1 && ALIKE.contains(&number) && place.is_empty();
            assert!(right || unknown, "{tier}: {message}{source}");
        }
    }
    Ok(())
}
