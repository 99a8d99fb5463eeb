//! A miniature executor, and kernels that it runs.

pub(super) mod runner;

use runner::Machine;

/// A module around the body of one kernel with these parameters.
fn module(params: &str, body: &str) -> String {
    format!(
        ".version 7.8\n.target sm_80\n.address_size 64\n.visible .entry k({params})\n{{\n\
         .reg .pred %p<20>; .reg .b16 %rs<40>; .reg .b32 %r<80>; .reg .b64 %rd<40>;\n\
         .reg .f32 %f<40>; .reg .f64 %fd<40>;\n{body}\n}}\n"
    )
}

#[test]
fn adds_vectors() {
    let text = module(
        ".param .u64 a, .param .u64 b, .param .u64 c, .param .u32 n",
        "ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [b]; ld.param.u64 %rd3, [c]; ld.param.u32 %r1, [n];
         mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x;
         mad.lo.s32 %r5, %r2, %r3, %r4;
         setp.ge.s32 %p1, %r5, %r1;
         @%p1 bra DONE;
         cvta.to.global.u64 %rd1, %rd1; cvta.to.global.u64 %rd2, %rd2; cvta.to.global.u64 %rd3, %rd3;
         mul.wide.s32 %rd4, %r5, 4;
         add.s64 %rd5, %rd1, %rd4; add.s64 %rd6, %rd2, %rd4; add.s64 %rd7, %rd3, %rd4;
         ld.global.f32 %f1, [%rd5]; ld.global.f32 %f2, [%rd6];
         add.f32 %f3, %f1, %f2;
         st.global.f32 [%rd7], %f3;
         DONE: ret;",
    );
    let mut machine = Machine::new(&text);
    let n = 1000usize;
    let a = machine.put(&(0..n).map(|i| i as f32).collect::<Vec<_>>());
    let b = machine.put(&(0..n).map(|i| 2.0 * i as f32).collect::<Vec<_>>());
    let c = machine.put(&vec![0f32; n]);
    machine.run(8, 128, &[a, b, c, n as u64]);
    let sums: Vec<f32> = machine.get(c, n);
    for (i, sum) in sums.into_iter().enumerate() {
        assert_eq!(sum, 3.0 * i as f32);
    }
}

#[test]
fn reverses_through_shared_memory() {
    let text = module(
        ".param .u64 a",
        ".shared .align 4 .b8 s[512];
         ld.param.u64 %rd1, [a];
         mov.u32 %r1, %tid.x; mov.u32 %r2, s;
         shl.b32 %r3, %r1, 2; add.s32 %r4, %r2, %r3;
         mul.wide.u32 %rd2, %r1, 4; add.s64 %rd3, %rd1, %rd2;
         ld.global.u32 %r5, [%rd3];
         st.shared.u32 [%r4], %r5;
         bar.sync 0;
         mov.u32 %r6, 127; sub.s32 %r7, %r6, %r1; shl.b32 %r8, %r7, 2; add.s32 %r9, %r2, %r8;
         ld.shared.u32 %r10, [%r9];
         st.global.u32 [%rd3], %r10;
         ret;",
    );
    let mut machine = Machine::new(&text);
    let a = machine.put(&(0..128u32).collect::<Vec<_>>());
    machine.run(1, 128, &[a]);
    assert_eq!(machine.get::<u32>(a, 128), (0..128u32).rev().collect::<Vec<_>>());
}

#[test]
fn sums_a_warp_by_shuffles_in_a_loop() {
    let text = module(
        ".param .u64 a",
        "ld.param.u64 %rd1, [a];
         mov.u32 %r1, %tid.x; mul.wide.u32 %rd2, %r1, 4; add.s64 %rd3, %rd1, %rd2;
         ld.global.u32 %r5, [%rd3];
         mov.u32 %r6, 16;
         LOOP: shfl.sync.bfly.b32 %r7|%p1, %r5, %r6, 31, -1;
         add.s32 %r5, %r5, %r7;
         shr.u32 %r6, %r6, 1;
         setp.ne.s32 %p2, %r6, 0;
         @%p2 bra LOOP;
         st.global.u32 [%rd3], %r5;
         ret;",
    );
    let mut machine = Machine::new(&text);
    let a = machine.put(&(0..64u32).collect::<Vec<_>>());
    machine.run(1, 64, &[a]);
    let sums = machine.get::<u32>(a, 64);
    assert_eq!(sums[..32], [496; 32]);
    assert_eq!(sums[32..], [496 + 1024; 32]);
}

/// The last steps of a reduction as they were written before warps could be synchronized: each lane counts on
/// the others having come as far as itself.
#[test]
fn volatile_shared_memory_keeps_lanes_abreast() {
    let steps: String = [64, 32, 16, 8, 4]
        .map(|bytes| {
            format!(
                "ld.volatile.shared.u32 %r6, [%r4+{bytes}]; ld.volatile.shared.u32 %r7, [%r4];
                 add.s32 %r7, %r7, %r6; st.volatile.shared.u32 [%r4], %r7;\n"
            )
        })
        .concat();
    let text = module(
        ".param .u64 a",
        &format!(
            ".shared .align 4 .b8 s[256];
             ld.param.u64 %rd1, [a];
             mov.u32 %r1, %tid.x; mov.u32 %r2, s; mul.wide.u32 %rd2, %r1, 4; add.s64 %rd3, %rd1, %rd2;
             shl.b32 %r3, %r1, 2; add.s32 %r4, %r2, %r3;
             ld.global.u32 %r5, [%rd3];
             mov.u32 %r8, 0; st.volatile.shared.u32 [%r4+128], %r8; st.volatile.shared.u32 [%r4], %r5;
             {steps}
             ld.volatile.shared.u32 %r9, [s]; st.global.u32 [%rd3], %r9;
             ret;"
        ),
    );
    let mut machine = Machine::new(&text);
    let a = machine.put(&(1..=32u32).collect::<Vec<_>>());
    machine.run(1, 32, &[a]);
    assert_eq!(machine.get::<u32>(a, 32), vec![32 * 33 / 2; 32]);
}

/// All threads read a variable of the block, and the first writes it anew without a barrier between: on a
/// device the others have long read it by then.
#[test]
fn others_read_a_variable_of_the_block_before_it_is_written_anew() {
    let text = module(
        ".param .u64 a",
        ".shared .align 4 .b8 s[8];
         ld.param.u64 %rd1, [a];
         mov.u32 %r1, %tid.x; mul.wide.u32 %rd2, %r1, 4; add.s64 %rd3, %rd1, %rd2;
         setp.eq.u32 %p1, %r1, 0; mov.u32 %r2, 0; mov.u32 %r6, 5;
         @%p1 st.shared.u32 [s+4], %r6;
         bar.sync 0;
         LOOP: ld.shared.u32 %r3, [s+4];
         setp.eq.u32 %p2, %r3, 0; @%p2 bra OUT;
         add.u32 %r2, %r2, %r3;
         @!%p1 bra SKIP; sub.u32 %r6, %r6, 1; st.shared.u32 [s+4], %r6;
         SKIP: bar.sync 0; bra LOOP;
         OUT: st.global.u32 [%rd3], %r2; ret;",
    );
    let mut machine = Machine::new(&text);
    let a = machine.put(&[0u32; 64]);
    machine.run(1, 64, &[a]);
    assert_eq!(machine.get::<u32>(a, 64), vec![15; 64]);
}

#[test]
fn calls_functions_directly_recursively_and_through_pointers() {
    let text = ".version 7.8\n.target sm_80\n.address_size 64
        .func (.param .b32 r) fact(.param .b32 n) {
          .reg .pred %p<2>; .reg .b32 %r<8>;
          ld.param.u32 %r1, [n]; mov.u32 %r2, 1;
          setp.le.u32 %p1, %r1, 1; @%p1 bra OUT;
          sub.u32 %r3, %r1, 1;
          { .param .b32 a0; .param .b32 r0; st.param.b32 [a0], %r3;
            call.uni (r0), fact, (a0); ld.param.b32 %r4, [r0]; }
          mul.lo.u32 %r2, %r1, %r4;
          OUT: st.param.b32 [r], %r2; ret; }
        .func (.param .b32 r) twice(.param .b32 n) {
          .reg .b32 %r<4>; ld.param.u32 %r1, [n]; add.u32 %r2, %r1, %r1; st.param.b32 [r], %r2; ret; }
        .func (.param .b32 r) share(.param .b32 n) {
          .reg .b32 %r<4>; ld.param.u32 %r1, [n]; shfl.sync.idx.b32 %r2, %r1, 0, 31, -1; st.param.b32 [r], %r2; ret; }
        .global .align 8 .u64 table[2] = {fact, twice};
        .visible .entry k(.param .u64 a) {
          .reg .b32 %r<10>; .reg .b64 %rd<10>;
          ld.param.u64 %rd1, [a]; mov.u32 %r1, %tid.x; mul.wide.u32 %rd2, %r1, 4; add.s64 %rd3, %rd1, %rd2;
          and.b32 %r2, %r1, 1; mul.wide.u32 %rd4, %r2, 8; mov.u64 %rd5, table; add.s64 %rd5, %rd5, %rd4;
          ld.global.u64 %rd6, [%rd5];
          { .param .b32 a0; .param .b32 r0; st.param.b32 [a0], %r1;
            proto: .callprototype (.param .b32 _) _ (.param .b32 _);
            call (r0), %rd6, (a0), proto; ld.param.b32 %r3, [r0]; }
          { .param .b32 a0; .param .b32 r0; add.u32 %r4, %r1, 7; st.param.b32 [a0], %r4;
            call (r0), share, (a0); ld.param.b32 %r5, [r0]; }
          mad.lo.u32 %r6, %r5, 1000000, %r3;
          st.global.u32 [%rd3], %r6; ret; }";
    let mut machine = Machine::new(text);
    let a = machine.put(&[0u32; 8]);
    machine.run(1, 8, &[a]);
    let expected: Vec<u32> =
        (0..8u32).map(|i| 7_000_000 + if i % 2 == 0 { (1..=i).product::<u32>() } else { 2 * i }).collect();
    assert_eq!(machine.get::<u32>(a, 8), expected);
}

#[test]
fn threads_wait_in_functions_that_are_called_through_pointers() {
    let text = ".version 7.8\n.target sm_80\n.address_size 64
        .func (.param .b32 r) share(.param .b32 n) {
          .reg .b32 %r<4>; ld.param.u32 %r1, [n]; shfl.sync.idx.b32 %r2, %r1, 3, 31, -1; st.param.b32 [r], %r2; ret; }
        .func (.param .b32 r) twice(.param .b32 n) {
          .reg .b32 %r<4>; ld.param.u32 %r1, [n]; add.u32 %r2, %r1, %r1; st.param.b32 [r], %r2; ret; }
        .func (.param .b64 r) last(.param .b64 n) {
          .shared .b64 place; .reg .pred %p<2>; .reg .b32 %r<4>; .reg .b64 %rd<4>; ld.param.u64 %rd1, [n];
          mov.u32 %r1, %tid.x; setp.eq.u32 %p1, %r1, 7; bar.sync 0; @%p1 st.shared.u64 [place], %rd1; bar.sync 0;
          ld.shared.u64 %rd2, [place]; st.param.b64 [r], %rd2; ret; }
        .global .align 8 .u64 inner[1] = {last};
        .func (.param .b32 r) outer(.param .b32 n) {
          .reg .b32 %r<4>; .reg .b64 %rd<4>; ld.param.u32 %r1, [n]; cvt.u64.u32 %rd1, %r1; ld.global.u64 %rd2, [inner];
          { .param .b64 a0; .param .b64 r0; st.param.b64 [a0], %rd1;
            proto: .callprototype (.param .b64 _) _ (.param .b64 _);
            call (r0), %rd2, (a0), proto; ld.param.b64 %rd3, [r0]; }
          cvt.u32.u64 %r2, %rd3; st.param.b32 [r], %r2; ret; }
        .global .align 8 .u64 table[3] = {share, twice, outer};
        .visible .entry k(.param .u64 a, .param .u64 which) {
          .reg .pred %p<2>; .reg .b32 %r<10>; .reg .b64 %rd<10>;
          ld.param.u64 %rd1, [a]; mov.u32 %r1, %tid.x; mul.wide.u32 %rd2, %r1, 4; add.s64 %rd3, %rd1, %rd2;
          ld.param.u64 %rd4, [which]; mad.lo.u64 %rd5, %rd4, 8, table; ld.global.u64 %rd6, [%rd5];
          setp.ne.u64 %p1, %rd4, 9; mov.u32 %r3, 5;
          { .param .b32 a0; .param .b32 r0; st.param.b32 [a0], %r1;
            proto: .callprototype (.param .b32 _) _ (.param .b32 _);
            @%p1 call (r0), %rd6, (a0), proto; ld.param.b32 %r3, [r0]; }
          st.global.u32 [%rd3], %r3; ret; }";
    let mut machine = Machine::new(text);
    for (which, expected) in [(0, [3; 8]), (1, std::array::from_fn(|i| 2 * i as u32)), (2, [7; 8])] {
        let a = machine.put(&[0u32; 8]);
        machine.run(1, 8, &[a, which]);
        assert_eq!(machine.get::<u32>(a, 8), expected, "function {which}");
    }
}

#[test]
fn waits_for_another_thread_without_barriers() {
    // Thread 0 waits for thread 1 by reading, thread 1 counts up to 1000 by atomics.
    let text = module(
        ".param .u64 a",
        "ld.param.u64 %rd1, [a]; mov.u32 %r1, %tid.x;
         setp.ne.u32 %p1, %r1, 0; @%p1 bra COUNT;
         WAIT: ld.volatile.global.u32 %r2, [%rd1]; setp.lt.u32 %p2, %r2, 1000; @%p2 bra WAIT;
         st.global.u32 [%rd1+4], %r2; ret;
         COUNT: mov.u32 %r3, 0;
         NEXT: atom.global.add.u32 %r4, [%rd1], 1; add.u32 %r3, %r3, 1; setp.lt.u32 %p3, %r3, 1000; @%p3 bra NEXT; ret;",
    );
    let mut machine = Machine::new(&text);
    let a = machine.put(&[0u32; 2]);
    machine.run(1, 2, &[a]);
    assert_eq!(machine.get::<u32>(a, 2), [1000, 1000]);
}

#[test]
fn addresses_that_were_added_up_in_many_steps_are_known_to_be_confined() {
    // As a compiler makes them of an unrolled loop over an array whose stride it does not know.
    let steps: String = (0..40)
        .map(|_| "add.s64 %rd1, %rd1, %rd2; ld.f64 %fd1, [%rd1]; ld.f64 %fd2, [%rd1+8]; add.f64 %fd3, %fd3, %fd1; add.f64 %fd3, %fd3, %fd2;\n")
        .collect();
    let text = module(
        ".param .u64 a, .param .u64 n, .param .u64 b",
        &format!(
            "ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [n]; ld.param.u64 %rd3, [b]; mov.f64 %fd3, 0d0000000000000000;
             {steps} st.global.f64 [%rd3], %fd3; ret;"
        ),
    );
    let mut machine = Machine::new(&text);
    let a = machine.put(&(0..123).map(f64::from).collect::<Vec<_>>());
    let b = machine.put(&[0f64]);
    machine.run(1, 1, &[a, 24, b]);
    let expected: u32 = (1..=40).map(|step| 3 * step + 3 * step + 1).sum();
    assert_eq!(machine.get::<f64>(b, 1), [f64::from(expected)]);
}

#[test]
fn refuses_what_it_does_not_know() {
    let text = module("", "tex.2dms.v4.f32.s32 {%f1,%f2,%f3,%f4}, [%rd1, {%r1}];\n ret;");
    let module = rgpu_image::ptx::parse(&text).unwrap();
    let program = super::Program::new(module, 80).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(program.functions()[0].name, "k");
    let refusal = program.functions()[0].refusal.clone();
    let helpers = crate::abi::Helpers {
        vprintf: 0,
        malloc: 0,
        free: 0,
        assertfail: 0,
        globaltimer: 0,
        clock: 0,
        device_runtime: 0,
        check: 0,
        texture: 0,
        textures: 0,
        count: 0,
        tensor: 0,
        tensors: 0,
        exchange: 0,
        exchange_by_name: 0,
    };
    let arena = rgpu_device::Range { base: 1 << 40, size: 1 << 40 };
    let linked = program.link(super::Environment {
        arena,
        globals: Default::default(),
        helpers,
        checks: Default::default(),
    });
    let error = linked.kernel(0).err().unwrap();
    assert_eq!(refusal.as_ref(), Some(&error));
    assert_eq!(error.code, rgpu_device::Code::InvalidPtx);
    assert!(
        error.message.contains("tex.2dms.v4.f32.s32") && error.message.contains("line 8"),
        "{}",
        error.message
    );
}

#[test]
fn barrier_objects_hold_threads_back_phase_by_phase() {
    let text = module(
        ".param .u64 a",
        ".shared .align 8 .b8 b[8]; .shared .align 4 .b8 s[128];
         ld.param.u64 %rd1, [a]; mov.u32 %r1, %tid.x; mov.u32 %r2, b; mov.u32 %r3, s;
         shl.b32 %r4, %r1, 2; add.s32 %r5, %r3, %r4; mul.wide.u32 %rd2, %r1, 4; add.s64 %rd3, %rd1, %rd2;
         setp.ne.u32 %p1, %r1, 0; @%p1 bra READY;
         mbarrier.init.shared.b64 [%r2], 32;
         READY: bar.sync 0;
         mov.u32 %r6, 0; mov.u32 %r12, 0;
         ROUND: add.u32 %r7, %r1, %r6; st.shared.u32 [%r5], %r7;
         mbarrier.arrive.shared.b64 %rd4, [%r2];
         W1: mbarrier.test_wait.shared.b64 %p2, [%r2], %rd4; @!%p2 bra W1;
         xor.b32 %r8, %r4, 4; add.s32 %r9, %r3, %r8; ld.shared.u32 %r10, [%r9];
         mad.lo.u32 %r12, %r12, 3, %r10;
         mbarrier.arrive.shared.b64 %rd4, [%r2], 1;
         W2: mbarrier.test_wait.parity.shared.b64 %p3, [%r2], 1; @!%p3 bra W2;
         add.u32 %r6, %r6, 1; setp.lt.u32 %p4, %r6, 5; @%p4 bra ROUND;
         mbarrier.pending_count.b64 %r11, %rd4; mbarrier.inval.shared.b64 [%r2];
         setp.gt.u32 %p5, %r11, 32; @%p5 trap;
         st.global.u32 [%rd3], %r12; ret;",
    );
    let mut machine = Machine::new(&text);
    let a = machine.put(&[0u32; 32]);
    machine.run(1, 32, &[a]);
    let expected: Vec<u32> =
        (0..32u32).map(|t| (0..5).fold(0, |sum, round| sum * 3 + (t ^ 1) + round)).collect();
    assert_eq!(machine.get::<u32>(a, 32), expected);
}
