//! What `rgpu check` looks at: planted mistakes of each kind are reported with kernel, thread and source line, and kernels without
//! mistakes are not reported at all.

use rgpu_device::{Check, Code, Device, Launch, MemoryNote, Range, Region, Result};
use rgpu_softgpu::Config;

use super::{LEGACY, MODULE, Rig, kept_code};

const TEXT: &str = r#".version 8.0
.target sm_80
.address_size 64
.file 1 "/src/check.cu"
.extern .shared .align 16 .b8 dynamic[];
.global .align 4 .u32 variable = 7;
.visible .entry access(.param .u64 at, .param .u64 value) {
  .reg .b64 %rd<9>; .reg .b32 %r<9>; .reg .pred %p<4>;
  ld.param.u64 %rd1, [at]; ld.param.u64 %rd2, [value]; cvt.u32.u64 %r1, %rd2; mov.u32 %r2, %tid.x;
  setp.ne.u32 %p1, %r2, 5; @%p1 ret;
  setp.eq.u32 %p1, %r1, 0; @%p1 bra READ;
  .loc 1 10 1
  st.global.u32 [%rd1+4], %r1;
  ret;
READ:
  .loc 1 11 1
  ld.global.v2.u32 {%r3, %r4}, [%rd1];
  add.u32 %r3, %r3, %r4;
  .loc 1 12 1
  st.global.u32 [variable], %r3;
  ret; }
.visible .entry spaces(.param .u64 at, .param .u64 what) {
  .reg .b64 %rd<9>; .reg .b32 %r<9>; .reg .pred %p<4>; .reg .f32 %f<4>;
  .shared .align 4 .b8 own[64]; .local .align 8 .b8 frame[32];
  ld.param.u64 %rd1, [at]; ld.param.u64 %rd2, [what]; cvt.u32.u64 %r1, %rd2; mov.u32 %r2, %tid.x;
  mov.u32 %r3, own; mad.lo.u32 %r3, %r2, 4, %r3;
  setp.eq.u32 %p1, %r1, 1; @%p1 bra LOCAL; setp.eq.u32 %p1, %r1, 2; @%p1 bra ATOMIC;
  .loc 1 20 1
  st.shared.u32 [%r3], %r2;
  ret;
LOCAL:
  mov.u64 %rd3, frame; add.u64 %rd3, %rd3, 16777216;
  .loc 1 21 1
  st.local.u32 [%rd3], %r2;
  ret;
ATOMIC:
  .loc 1 22 1
  red.global.add.f32 [%rd1], 0f3F800000;
  ret; }
.visible .entry races(.param .u64 at, .param .u64 what) {
  .reg .b64 %rd<9>; .reg .b32 %r<9>; .reg .pred %p<4>;
  .shared .align 4 .b8 own[1024];
  ld.param.u64 %rd1, [at]; ld.param.u64 %rd2, [what]; cvt.u32.u64 %r1, %rd2; mov.u32 %r2, %tid.x;
  mov.u32 %r3, own; mad.lo.u32 %r4, %r2, 4, %r3;
  .loc 1 30 1
  st.shared.u32 [%r4], %r2;
  setp.eq.u32 %p1, %r1, 1; @%p1 bra READ;
  setp.eq.u32 %p1, %r1, 2; @%p1 bra WARP;
  bar.sync 0;
  bra READ;
WARP:
  bar.warp.sync -1;
READ:
  xor.b32 %r5, %r2, 1; mad.lo.u32 %r5, %r5, 4, %r3;
  .loc 1 31 1
  ld.shared.u32 %r6, [%r5];
  mul.wide.u32 %rd3, %r2, 4; add.u64 %rd3, %rd1, %rd3;
  st.global.u32 [%rd3], %r6;
  ret; }
.visible .entry barriers(.param .u64 at, .param .u64 what) {
  .reg .b64 %rd<9>; .reg .b32 %r<9>; .reg .pred %p<4>;
  ld.param.u64 %rd2, [what]; cvt.u32.u64 %r1, %rd2; mov.u32 %r2, %tid.x;
  setp.eq.u32 %p1, %r1, 1; @%p1 bra EXITED; setp.eq.u32 %p1, %r1, 2; @%p1 bra APART;
  setp.eq.u32 %p1, %r1, 3; @%p1 bra MASK; setp.eq.u32 %p1, %r1, 4; @%p1 bra WARPS;
  .loc 1 40 1
  bar.sync 0;
  shfl.sync.idx.b32 %r4, %r2, 0, 31, -1;
  ret;
EXITED:
  setp.gt.u32 %p2, %r2, 40; @%p2 ret;
  .loc 1 41 1
  bar.sync 0;
  ret;
WARPS:
  setp.gt.u32 %p2, %r2, 31; @%p2 ret;
  .loc 1 44 1
  bar.sync 0;
  ret;
APART:
  setp.gt.u32 %p2, %r2, 7; @%p2 bra OTHER;
  .loc 1 42 1
  bar.sync 0;
  ret;
OTHER:
  .loc 1 43 1
  bar.sync 0;
  ret;
MASK:
  setp.gt.u32 %p2, %r2, 0; @%p2 ret;
  .loc 1 45 1
  bar.warp.sync 2;
  ret; }
.visible .entry stores(.param .u64 at, .param .u64 what) {
  .reg .b64 %rd<9>; .reg .b32 %r<9>; .reg .pred %p<4>;
  .shared .align 4 .b8 flag[4];
  ld.param.u64 %rd2, [what]; cvt.u32.u64 %r1, %rd2; mov.u32 %r2, %tid.x; mov.u32 %r3, flag; mov.u32 %r4, 7;
  .loc 1 50 1
  st.shared.u32 [%r3], %r4;
  setp.eq.u32 %p1, %r2, 40; setp.eq.and.u32 %p1, %r1, 1, %p1;
  .loc 1 51 1
  @%p1 st.shared.u32 [%r3], %r2;
  bar.sync 0;
  setp.eq.u32 %p1, %r2, 63; setp.eq.and.u32 %p1, %r1, 2, %p1;
  @!%p1 st.shared.u32 [%r3], %r4;
  .loc 1 52 1
  @%p1 st.shared.u32 [%r3], %r2;
  ret; }
"#;

/// A device that looks.
struct Looking {
    rig: Rig,
}

impl Looking {
    /// The device's first 4096 bytes are one allocation, and so are 100 more at 8192.
    fn new(check: Check) -> Self {
        let rig = Rig::of(kept_code::Code::default(), Config { check: Some(check), ..Config::default() });
        rig.gpu.module_load(0, MODULE + 1, format!("{TEXT}\0").as_bytes(), &[]).unwrap();
        let looking = Self { rig };
        looking.note(0, 4096);
        looking.note(8192, 100);
        looking
    }

    fn note(&self, at: u64, size: u64) {
        let range = Range { base: self.rig.memory + at, size };
        self.tell(MemoryNote::Allocated { range, device: true });
    }

    fn tell(&self, note: MemoryNote) {
        self.rig.gpu.note_memory_blocking(note).unwrap();
    }

    fn run(&self, function: u32, threads: u32, at: u64, value: u64) -> Result<()> {
        let params: Vec<u8> = [self.rig.memory + at, value].iter().flat_map(|p| p.to_le_bytes()).collect();
        self.rig.gpu.launch(Launch {
            stream: LEGACY,
            module: MODULE + 1,
            function,
            grid: [1, 1, 1],
            block: [threads, 1, 1],
            shared_bytes: 0,
            cooperative: false,
            cluster: [0; 3],
            params: &params,
        })?;
        self.rig.sync()
    }

    fn log(&self) -> String {
        self.rig.program.found()
    }

    #[track_caller]
    fn expect(&self, parts: &[&str]) {
        let log = self.log();
        for part in parts {
            assert!(log.contains(part), "{part}\nis not in\n{log}");
        }
    }
}

const MEMORY: Check =
    Check { memory: true, initialised: false, races: false, barriers: false, leaks: false, limit: None };

#[test]
fn accesses_are_looked_at_to_the_byte() {
    let looking = Looking::new(MEMORY);
    // The last four bytes of an allocation, and what is in two variables.
    looking.run(0, 32, 8192 + 92, 9).unwrap();
    looking.run(0, 32, 8192 + 88, 0).unwrap();
    assert_eq!(looking.log(), "");
    // Four bytes behind it: others of the same page.
    let error = looking.run(0, 32, 8192 + 96, 9).unwrap_err();
    assert_eq!(error.code, Code::LaunchFailed);
    let address = format!("Address {:#x} is out of bounds", looking.rig.memory + 8292);
    let near = format!(
        "and is 1 byte after the nearest allocation at {:#x} of size 100 bytes",
        looking.rig.memory + 8192
    );
    looking.expect(&[
        "Invalid __global__ write of size 4 bytes\n    at access (PTX line 13) in /src/check.cu:10\n",
        "    by thread (5,0,0) in block (0,0,0)\n",
        &address,
        &near,
    ]);
}

#[test]
fn what_straddles_an_end_or_is_misaligned_is_wrong() {
    for (at, what) in [(8192 + 96, "is out of bounds"), (8192 + 4, "is misaligned")] {
        let looking = Looking::new(MEMORY);
        assert_eq!(looking.run(0, 32, at, 0).unwrap_err().code, Code::LaunchFailed);
        looking.expect(&["Invalid __global__ read of size 8 bytes", what, "/src/check.cu:11"]);
    }
}

#[test]
fn freed_memory_is_nobodys_and_is_not_freed_twice() {
    let looking = Looking::new(MEMORY);
    let base = looking.rig.memory + 8192;
    looking.run(0, 32, 8192, 1).unwrap();
    looking.tell(MemoryNote::Freed { base, stream: None });
    looking.tell(MemoryNote::BadFree { address: base });
    looking.tell(MemoryNote::BadFree { address: base + 1 });
    looking.expect(&["was freed before", "is not the beginning of an allocation"]);
    assert!(looking.run(0, 32, 8192, 1).is_err());
    looking.expect(&["is inside an allocation", "of size 100 bytes that was freed"]);
}

#[test]
fn shared_and_local_memory_and_atomics_are_looked_at() {
    for (what, threads, parts) in [
        (0, 17, ["Invalid __shared__ write of size 4 bytes", "Address 0x40 is out of bounds", "check.cu:20"]),
        (1, 1, ["Invalid __local__ write of size 4 bytes", "is out of bounds", "check.cu:21"]),
        (2, 1, ["Invalid __global__ atomic of size 4 bytes", "is out of bounds", "check.cu:22"]),
    ] {
        let looking = Looking::new(MEMORY);
        assert!(looking.run(1, threads, 4096, what).is_err());
        looking.expect(&parts);
        assert_eq!(looking.log().matches("Invalid").count(), 1);
    }
    let looking = Looking::new(MEMORY);
    looking.run(1, 16, 0, 0).unwrap();
    looking.run(1, 16, 0, 2).unwrap();
    assert_eq!(looking.log(), "");
}

#[test]
fn each_thread_is_reported_up_to_the_limit() {
    let looking = Looking::new(Check { limit: Some(3), ..MEMORY });
    assert!(looking.run(1, 26, 0, 0).is_err());
    assert_eq!(looking.log().matches("Invalid __shared__").count(), 3);
    // Told when the kernel's end is.
    looking.expect(&["7 more\n"]);
}

#[test]
fn what_nothing_was_written_to_is_reported_when_it_is_read() {
    let looking = Looking::new(Check { memory: false, initialised: true, ..MEMORY });
    looking.run(0, 32, 8192, 0).unwrap();
    looking.expect(&[
        "Uninitialized __global__ memory read of size 8 bytes",
        "check.cu:11",
        "by thread (5,0,0)",
    ]);
    let before = looking.log().len();
    // Half by a copy, half by a kernel.
    looking.rig.write(looking.rig.memory + 8192, &[1]);
    looking.run(0, 32, 8192, 3).unwrap();
    looking.run(0, 32, 8192, 0).unwrap();
    looking.rig.gpu.memset(LEGACY, Region::linear(looking.rig.memory, 8), 0, 4).unwrap();
    looking.run(0, 32, 0, 0).unwrap();
    assert_eq!(looking.log().len(), before);
    looking.run(0, 32, 8, 0).unwrap();
    assert!(looking.log().len() > before);
}

#[test]
fn races_are_between_threads_that_did_not_wait_for_each_other() {
    let races = Check { memory: false, races: true, ..MEMORY };
    let looking = Looking::new(races);
    looking.run(2, 256, 0, 0).unwrap();
    looking.run(2, 256, 0, 2).unwrap();
    assert_eq!(looking.log(), "");
    looking.run(2, 256, 0, 1).unwrap();
    looking.expect(&[
        "Error: Race reported between",
        "in /src/check.cu:30",
        "in /src/check.cu:31",
        "[128 hazards]",
        "in block (0,0,0) at shared address 0x",
    ]);
}

#[test]
fn stores_race_only_if_they_leave_different_values() {
    let looking = Looking::new(Check { memory: false, races: true, ..MEMORY });
    // All threads store 7 to one place, and then a few something else.
    looking.run(4, 64, 0, 0).unwrap();
    assert_eq!(looking.log(), "");
    looking.run(4, 64, 0, 1).unwrap();
    looking.expect(&[
        "Error: Race reported between Write access",
        "and Write access",
        "check.cu:51",
        "[1 hazard]",
    ]);
    // The last thread's store is the last access of all.
    looking.run(4, 64, 0, 2).unwrap();
    looking.expect(&["check.cu:52"]);
}

#[test]
fn barriers_that_not_all_come_to_are_reported() {
    let barriers = Check { memory: false, barriers: true, ..MEMORY };
    let looking = Looking::new(barriers);
    looking.run(3, 64, 0, 0).unwrap();
    assert_eq!(looking.log(), "");
    for (what, threads, parts) in [
        (1, 64, ["Divergent thread(s) in warp", "check.cu:41"]),
        (4, 64, ["Divergent thread(s) in block", "check.cu:44"]),
        (2, 32, ["Divergent thread(s) in warp", "check.cu:4"]),
        (3, 32, ["Invalid arguments: the mask 0x00000002 does not name the thread itself", "check.cu:45"]),
    ] {
        let looking = Looking::new(barriers);
        let _ = looking.run(3, threads, 0, what);
        looking.expect(&["Barrier error detected."]);
        looking.expect(&parts);
    }
}

#[test]
fn what_is_left_at_the_end_is_told() {
    let looking = Looking::new(Check { leaks: true, ..MEMORY });
    let base = looking.rig.memory;
    looking.tell(MemoryNote::Freed { base, stream: None });
    looking.tell(MemoryNote::End);
    looking.expect(&["Leaked 100 bytes at 0x", "LEAK SUMMARY: 100 bytes leaked in 1 allocation\n"]);
}
