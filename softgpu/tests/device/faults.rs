//! What a kernel does wrong is told with where it did it: kernel, block, thread, the line of the PTX text, and the line of the
//! source, with the calls that it was inlined for.

use std::time::Duration;

use rgpu_device::{Code, Device, Error, Launch};

use super::{LEGACY, MODULE, Rig, kept_code};

/// Line 1 is the version. A fault of each kind, and where the text says that it comes from.
const TEXT: &str = r#".version 8.0
.target sm_80
.address_size 64
.file 1 "/src/main.cu"
.file 2 "/src/inner.cuh"
.func (.param .b32 r) deep(.param .b32 n)
{ .reg .b32 %r<4>; .reg .pred %p;
  .loc 1 70 1
  ld.param.b32 %r1, [n];
  .loc 1 71 1
  { .param .b32 a; .param .b32 b; st.param.b32 [a], %r1; call (b), deep, (a); ld.param.b32 %r2, [b]; }
  add.u32 %r2, %r2, 1; st.param.b32 [r], %r2; ret; }
.func helper(.param .b64 at)
{ .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [at];
  .loc 2 33 5
  st.global.u32 [%rd1], 7;
  ret; }
.visible .entry k(.param .u64 at, .param .u32 what)
{ .reg .b64 %rd<4>; .reg .b32 %r<6>; .reg .pred %p<8>; .reg .f32 %f<4>; .shared .u32 counter;
  .loc 1 10 3
  ld.param.u64 %rd1, [at]; ld.param.u32 %r1, [what]; mov.u32 %r2, %tid.x;
  setp.ne.u32 %p1, %r2, 3; @%p1 ret;
  setp.eq.u32 %p1, %r1, 1; @%p1 bra STORE;
  setp.eq.u32 %p1, %r1, 2; @%p1 bra TRAP;
  setp.eq.u32 %p1, %r1, 3; @%p1 bra INLINED;
  setp.eq.u32 %p1, %r1, 4; @%p1 bra CALLED;
  setp.eq.u32 %p1, %r1, 5; @%p1 bra DEEP;
  setp.eq.u32 %p1, %r1, 6; @%p1 bra ENDLESS;
  setp.eq.u32 %p1, %r1, 7; @%p1 bra WAITING;
  setp.eq.u32 %p1, %r1, 8; @%p1 bra BEFORE;
  .loc 1 20 3
  ld.global.f32 %f1, [%rd1];
  st.global.f32 [%rd1+4], %f1;
  ret;
STORE:
  .loc 1 21 3
  st.global.u32 [%rd1+8], %r1;
  ret;
BEFORE:
  .loc 1 23 3
  ld.shared.u32 %r3, [counter+-4096]; st.global.u32 [%rd1], %r3;
  ret;
TRAP:
  .loc 1 22 3
  trap;
INLINED:
  .loc 1 50 9
  .loc 2 5 1, function_name $L__info_string0, inlined_at 1 50 9
  add.u64 %rd1, %rd1, 16;
  .loc 2 8 2, function_name $L__info_string0, inlined_at 2 5 1
  st.global.u32 [%rd1], %r1;
  ret;
CALLED:
  { .param .b64 a; st.param.b64 [a], %rd1; call helper, (a); }
  ret;
DEEP:
  { .param .b32 a; .param .b32 b; st.param.b32 [a], 1; call (b), deep, (a); ld.param.b32 %r2, [b]; }
  ret;
ENDLESS:
  .loc 1 60 3
  add.u32 %r3, %r3, 1; st.shared.u32 [counter], %r3;
  bra ENDLESS;
WAITING:
  .loc 1 61 3
  ld.volatile.global.u32 %r3, [%rd1];
  setp.eq.u32 %p2, %r3, 123456;
  @%p2 ret;
  bra WAITING; }
"#;

fn fault(rig: &Rig, what: u32, at: u64) -> Error {
    rig.gpu.reset(0).unwrap();
    rig.gpu.mem_alloc(0, rig.memory, 1 << 20, rgpu_device::MemoryKind::Device).unwrap();
    rig.gpu.module_load(0, MODULE + 1, format!("{TEXT}\0").as_bytes(), &[]).unwrap();
    let mut params = at.to_le_bytes().to_vec();
    params.extend(what.to_le_bytes());
    let launch = Launch {
        stream: LEGACY,
        module: MODULE + 1,
        function: 0,
        grid: [1, 1, 1],
        block: [32, 1, 1],
        shared_bytes: 0,
        cooperative: false,
        cluster: [0; 3],
        params: &params,
    };
    rig.gpu.launch(launch).unwrap();
    rig.sync().unwrap_err()
}

fn line_of(text: &str) -> usize {
    TEXT.lines().position(|line| line.trim() == text).unwrap() + 1
}

fn expect(error: &Error, code: Code, line: &str, source: &str) {
    assert_eq!(error.code, code, "{error}");
    let place =
        format!("in kernel k, block (0, 0, 0), thread (3, 0, 0), PTX line {} ({source})", line_of(line));
    assert!(error.message.ends_with(&place), "{}\n{place}", error.message);
}

#[test]
fn faults_name_the_line_of_the_source() {
    let folder = kept_code::Folder::new("faults");
    let rig = Rig::with(kept_code::Code::of(&folder), true);
    let beyond = rig.memory + (1 << 20);
    let error = fault(&rig, 0, beyond);
    assert_eq!(rig.program.code.found(), 0);
    expect(&error, Code::IllegalAddress, "ld.global.f32 %f1, [%rd1];", "/src/main.cu:20");
    assert!(error.message.starts_with("Illegal address (read of 0x"), "{error}");
    let error = fault(&rig, 0, beyond - 4);
    expect(&error, Code::IllegalAddress, "st.global.f32 [%rd1+4], %f1;", "/src/main.cu:20");
    assert!(error.message.starts_with("Illegal address (write to 0x"), "{error}");
    let error = fault(&rig, 1, rig.memory + 1);
    expect(&error, Code::MisalignedAddress, "st.global.u32 [%rd1+8], %r1;", "/src/main.cu:21");
    expect(&fault(&rig, 1, 0), Code::IllegalAddress, "st.global.u32 [%rd1+8], %r1;", "/src/main.cu:21");
    expect(&fault(&rig, 2, rig.memory), Code::LaunchFailed, "trap;", "/src/main.cu:22");
    let inlined = "/src/inner.cuh:8, inlined at /src/inner.cuh:5, inlined at /src/main.cu:50";
    expect(&fault(&rig, 3, beyond), Code::IllegalAddress, "st.global.u32 [%rd1], %r1;", inlined);
    // A constant address that is none of shared memory is a fault where a thread comes to it, and only there.
    let before = "ld.shared.u32 %r3, [counter+-4096]; st.global.u32 [%rd1], %r3;";
    expect(&fault(&rig, 8, rig.memory), Code::IllegalAddress, before, "/src/main.cu:23");
    let error = fault(&rig, 4, beyond);
    expect(&error, Code::IllegalAddress, "st.global.u32 [%rd1], 7;", "/src/inner.cuh:33");
    let error = fault(&rig, 5, beyond);
    assert_eq!(error.code, Code::HardwareStackError);
    assert!(error.message.contains("thread (3, 0, 0), PTX line"), "{error}");
    // From the second on, the machine code was one that had been kept, with its lines.
    assert!(rig.program.code.found() > 5);
}

#[test]
fn kernels_that_do_not_end_are_ended_and_say_where_they_were() {
    let limit = Duration::from_millis(200);
    let rig = Rig::limited(limit);
    let error = fault(&rig, 6, rig.memory);
    assert_eq!(error.code, Code::LaunchTimeout);
    assert!(error.message.contains("200ms") && error.message.contains("/src/main.cu:60"), "{error}");
    let error = fault(&rig, 7, rig.memory);
    assert_eq!(error.code, Code::LaunchTimeout);
    assert!(error.message.contains("/src/main.cu:61"), "{error}");
    assert_eq!(rig.gpu.mem_info(0).unwrap_err().code, Code::LaunchTimeout);
    // The device can be used again.
    let error = fault(&rig, 2, rig.memory);
    expect(&error, Code::LaunchFailed, "trap;", "/src/main.cu:22");
}
