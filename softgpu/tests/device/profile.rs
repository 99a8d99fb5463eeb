//! What is counted of kernels is what follows from their texts, exactly, and they compute what they compute otherwise.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use rgpu_device::{Device, Launch, MemoryNote};
use rgpu_softgpu::{Config, Profile};

use super::{LEGACY, MODULE, Rig, kept_code};

const TEXT: &str = r#".version 8.0
.target sm_80
.address_size 64
.visible .entry clean(.param .u64 at) {
  .reg .b64 %rd<9>; .reg .b32 %r<9>; .reg .pred %p<4>;
  ld.param.u64 %rd1, [at];
  mov.u32 %r1, %tid.x;
  mul.wide.u32 %rd2, %r1, 4; add.u64 %rd3, %rd1, %rd2;
  ld.global.u32 %r2, [%rd3];
  add.u32 %r2, %r2, 1;
  st.global.u32 [%rd3+4096], %r2;
  ret; }
.visible .entry strided(.param .u64 at) {
  .reg .b64 %rd<9>; .reg .b32 %r<9>; .reg .pred %p<4>;
  ld.param.u64 %rd1, [at]; mov.u32 %r1, %tid.x;
  mul.wide.u32 %rd2, %r1, 128; add.u64 %rd3, %rd1, %rd2;
  ld.global.u32 %r2, [%rd3];
  ld.global.u32 %r3, [%rd1];
  red.global.add.u32 [%rd3], 1;
  ret; }
.visible .entry divergent(.param .u64 at) {
  .reg .b64 %rd<9>; .reg .b32 %r<9>; .reg .pred %p<4>; .shared .align 4 .b8 own[4096];
  ld.param.u64 %rd1, [at]; mov.u32 %r1, %tid.x; and.b32 %r2, %r1, 1; setp.eq.u32 %p1, %r2, 1;
  @%p1 bra ODD;
  add.u32 %r3, %r1, 1;
  bra DONE;
ODD:
  add.u32 %r3, %r1, 2;
DONE:
  mov.u32 %r4, 0;
LOOP:
  add.u32 %r4, %r4, 1;
  setp.le.u32 %p2, %r4, %r1;
  @%p2 bra LOOP;
  setp.gt.u32 %p3, %r1, 7; @%p3 ret;
  mov.u32 %r5, own; mad.lo.u32 %r5, %r1, 128, %r5;
  st.shared.u32 [%r5], %r4;
  ret; }
.visible .entry alternating(.param .u64 at) {
  .reg .b64 %rd<9>; .reg .b32 %r<9>; .reg .pred %p<4>;
  mov.u32 %r1, %tid.x; mov.u32 %r2, 0; mov.u32 %r4, 0;
TURN:
  xor.b32 %r3, %r1, %r2; and.b32 %r3, %r3, 1; setp.eq.u32 %p1, %r3, 1;
  @%p1 bra SKIP;
  add.u32 %r4, %r4, 1;
SKIP:
  add.u32 %r2, %r2, 1; setp.lt.u32 %p2, %r2, 10;
  @%p2 bra TURN;
  ret; }
.func (.param .b32 out) twice(.param .b32 v) {
  .reg .b32 %q<3>;
  ld.param.u32 %q1, [v];
  add.u32 %q2, %q1, %q1;
  st.param.b32 [out], %q2; ret; }
.visible .entry calls(.param .u64 at) {
  .reg .b64 %rd<9>; .reg .b32 %r<9>; .reg .pred %p<4>;
  ld.param.u64 %rd1, [at]; mov.u32 %r1, %tid.x; setp.gt.u32 %p1, %r1, 9;
  @%p1 bra OTHER;
  { .param .b32 a; .param .b32 b; st.param.b32 [a], %r1; call (b), twice, (a); ld.param.b32 %r2, [b]; }
  bra END;
OTHER:
  { .param .b32 a; .param .b32 b; st.param.b32 [a], %r1; call (b), twice, (a); ld.param.b32 %r2, [b]; }
END:
  { .param .b32 a; .param .b32 b; st.param.b32 [a], %r2; call (b), twice, (a); ld.param.b32 %r2, [b]; }
  ret; }
.visible .entry waits(.param .u64 at) {
  .reg .b64 %rd<9>; .reg .b32 %r<9>; .reg .pred %p<4>;
  mov.u32 %r1, 0;
AGAIN:
  bar.sync 0;
  add.u32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, 3;
  @%p1 bra AGAIN;
  ret; }
"#;

struct Counting {
    rig: Rig,
    folder: PathBuf,
}

impl Drop for Counting {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Counting {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("rgpu-profile-test-{}-{}", std::process::id(), NEXT.fetch_add(1, Relaxed));
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir(&folder).unwrap();
        let profile = Some(Profile { folder: folder.clone() });
        let rig = Rig::of(kept_code::Code::default(), Config { profile, ..Config::default() });
        rig.gpu.module_load(0, MODULE + 1, format!("{TEXT}\0").as_bytes(), &[]).unwrap();
        Self { rig, folder }
    }

    fn run(&self, function: u32, blocks: u32, threads: u32) {
        let launch = Launch {
            stream: LEGACY,
            module: MODULE + 1,
            function,
            grid: [blocks, 1, 1],
            block: [threads, 1, 1],
            shared_bytes: 0,
            cooperative: false,
            cluster: [0; 3],
            params: &self.rig.memory.to_le_bytes(),
        };
        self.rig.gpu.launch(launch).unwrap();
        self.rig.sync().unwrap();
    }

    /// What is written down at the end.
    fn end(&self) -> String {
        self.rig.gpu.note_memory_blocking(MemoryNote::End).unwrap();
        let files: Vec<_> =
            std::fs::read_dir(&self.folder).unwrap().map(|file| file.unwrap().path()).collect();
        let [file] = &files[..] else { panic!("{files:?}") };
        assert_eq!(file.extension().unwrap(), "json");
        std::fs::read_to_string(file).unwrap()
    }
}

/// The number of the line that begins with this, the `nth` of them.
fn line_of(text: &str, nth: usize) -> usize {
    let mut lines = TEXT.lines().enumerate().filter(|(_, line)| line.trim().starts_with(text));
    lines.nth(nth).unwrap().0 + 1
}

/// What was counted of a line: threads, warps, branches, those that diverged, and what it says of memory.
fn counted(report: &str, line: usize) -> ([u64; 4], String) {
    let (_, rest) = report
        .split_once(&format!("{{\"ptx_line\":{line},\"source\":[],"))
        .unwrap_or_else(|| panic!("line {line} is not in {report}"));
    let rest = rest.split_once("{\"ptx_line\"").map_or(rest, |(line, _)| line);
    let number = |name: &str| {
        let (_, value) = rest.split_once(&format!("\"{name}\":")).unwrap();
        value.split([',', '}']).next().unwrap().parse().unwrap()
    };
    let memory = ["\"global\"", "\"shared\"", "\"local\""].iter().find_map(|name| rest.find(name));
    let memory = memory.map_or("", |at| rest[at..].split_once("}").unwrap().0);
    (["thread_instructions", "warp_instructions", "branches", "diverged"].map(number), memory.into())
}

/// What is said of accesses: threads', warps', transactions, and bytes read, written and changed.
fn accesses(memory: &str, n: [u64; 6]) -> String {
    let [accesses, requests, transactions, read, written, atomic] = n;
    format!(
        "\"{memory}\":{{\"accesses\":{accesses},\"requests\":{requests},\"transactions\":{transactions},\"read\":{read},\"written\":{written},\"atomic\":{atomic}"
    )
}

#[test]
fn clean_and_strided_accesses() {
    let counting = Counting::new();
    let values: Vec<i32> = (0..80).map(|n| n * 3).collect();
    counting.rig.write(counting.rig.memory, &values);
    // Two launches of two blocks of two warps and a half.
    counting.run(0, 2, 80);
    counting.run(0, 2, 80);
    let plus: Vec<i32> = values.iter().map(|n| n + 1).collect();
    assert_eq!(counting.rig.read(counting.rig.memory + 4096, 80), plus);
    counting.run(1, 1, 32);
    let report = counting.end();
    assert_eq!(report.matches("\"took_ns\"").count(), 3);
    let of = |text, nth| counted(&report, line_of(text, nth));
    assert_eq!(of("mov.u32 %r1, %tid.x;", 0).0, [320, 12, 0, 0]);
    assert_eq!(of("mul.wide.u32 %rd2, %r1, 4;", 0).0, [640, 24, 0, 0], "two instructions");
    // Of three warps in a block, two move 128 bytes each and one 64.
    let read = accesses("global", [320, 12, 40, 1280, 0, 0]);
    assert_eq!(of("ld.global.u32 %r2, [%rd3]", 0), ([320, 12, 0, 0], read));
    let written = accesses("global", [320, 12, 40, 0, 1280, 0]);
    assert_eq!(of("st.global", 0), ([320, 12, 0, 0], written));
    // A sector for each lane, and one for all of them.
    assert_eq!(of("ld.global.u32 %r2, [%rd3]", 1).1, accesses("global", [32, 1, 32, 128, 0, 0]));
    assert_eq!(of("ld.global.u32 %r3", 0).1, accesses("global", [32, 1, 1, 128, 0, 0]));
    assert_eq!(of("red.global", 0).1, accesses("global", [32, 1, 32, 0, 0, 128]));
}

#[test]
fn lanes_that_part() {
    let counting = Counting::new();
    counting.run(2, 1, 32);
    counting.run(3, 1, 32);
    let report = counting.end();
    let of = |text, nth| counted(&report, line_of(text, nth));
    assert_eq!(of("@%p1 bra ODD", 0).0, [32, 1, 1, 1]);
    assert_eq!(of("add.u32 %r3, %r1, 1", 0).0, [16, 1, 0, 0]);
    assert_eq!(of("add.u32 %r3, %r1, 2", 0).0, [16, 1, 0, 0]);
    assert_eq!(of("mov.u32 %r4, 0", 0).0, [32, 1, 0, 0], "lanes come together again");
    // Lane n makes n + 1 turns; in all but the last one a lane leaves and others go on.
    assert_eq!(of("add.u32 %r4, %r4, 1", 0).0, [528, 32, 0, 0]);
    assert_eq!(of("@%p2 bra LOOP", 0).0, [528, 32, 32, 31]);
    assert_eq!(of("setp.gt.u32 %p3", 0).0, [64, 2, 1, 1], "lanes end");
    // Eight lanes write words of one bank.
    assert_eq!(of("st.shared", 0), ([8, 1, 0, 0], accesses("shared", [8, 1, 8, 0, 32, 0])));
    // Even and odd lanes take turns to skip a line: in each of ten turns half of them come to it.
    assert_eq!(of("@%p1 bra SKIP", 0).0, [320, 10, 10, 10]);
    assert_eq!(of("add.u32 %r4, %r4, 1", 1).0, [160, 10, 0, 0]);
    assert_eq!(of("@%p2 bra TURN", 0).0, [320, 10, 10, 0]);
}

#[test]
fn calls_and_barriers() {
    let counting = Counting::new();
    counting.run(4, 1, 32);
    counting.run(5, 1, 64);
    let report = counting.end();
    let of = |text, nth| counted(&report, line_of(text, nth));
    // Called by ten lanes, by the other ones, and by all.
    assert_eq!(of("add.u32 %q2, %q1, %q1", 0).0, [64, 3, 0, 0]);
    assert_eq!(of("@%p1 bra OTHER", 0).0, [32, 1, 1, 1]);
    assert_eq!(of("bar.sync 0;", 0).0, [192, 6, 0, 0]);
    assert_eq!(of("@%p1 bra AGAIN", 0).0, [192, 6, 6, 0]);
}

#[test]
fn a_device_without_kernels_says_so() {
    let counting = Counting::new();
    let report = counting.end();
    assert!(report.contains("\"kernels\":[],\"launches\":[]"), "{report}");
}
