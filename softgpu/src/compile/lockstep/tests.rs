//! Which kernels are changed, and where.

use super::super::op::Op;
use super::super::unit::Unit;
use crate::abi::Hold;
use rgpu_image::ptx::ast::{Operand, Statement};

/// How often the lanes of a warp have to wait for each other in each kernel of a module where the text does not say so.
fn waits(text: &str) -> Vec<(String, usize)> {
    inserted(text, |op| matches!(op, Op::Converge))
}

/// How many such operations each kernel of a module has.
fn inserted(text: &str, asked: fn(&Op) -> bool) -> Vec<(String, usize)> {
    let unit = Unit::new(rgpu_image::ptx::parse(text).unwrap()).unwrap();
    let kernel = |id: &rgpu_image::ptx::ast::FunctionId| {
        let function = &unit.module.functions[id.0 as usize];
        let counts = |statement: &&Statement| matches!(statement, Statement::Instruction(i) if asked(&unit.ops[i.form.0 as usize]));
        (function.name.clone(), function.body.iter().filter(counts).count())
    };
    unit.kernels.iter().map(kernel).collect()
}

/// A kernel with a pointer `%rd1`, the thread's number `%r1`, the lane's `%r2`, `%rd2` at the thread's element, and `%p1` in the first
/// lane.
fn kernel(body: &str) -> usize {
    waits(&text_of(body))[0].1
}

/// How often a thread of it lets others go first.
fn yields(body: &str) -> usize {
    inserted(&text_of(body), |op| matches!(op, Op::Yield))[0].1
}

fn text_of(body: &str) -> String {
    format!(
        ".version 7.8\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 a, .param .u64 b, .param .u32 n)\n{{\n\
         .reg .pred %p<9>; .reg .b32 %r<20>; .reg .b64 %rd<20>; .shared .align 4 .b8 s[256];\n\
         ld.param.u64 %rd1, [a]; ld.param.u64 %rd9, [b]; ld.param.u32 %r9, [n]; mov.u32 %r1, %tid.x; and.b32 %r2, %r1, 31;\n\
         setp.eq.u32 %p1, %r2, 0; mul.wide.u32 %rd18, %r1, 4; add.s64 %rd3, %rd9, %rd18; add.s64 %rd2, %rd1, %rd18;\n{body}\nret; }}\n"
    )
}

#[test]
fn lanes_meet_before_the_next_round_of_a_loop_in_which_some_gather() {
    let round = |predicate: &str, end: &str| {
        kernel(&format!(
            "ld.global.u32 %r4, [%rd2]; mov.u32 %r5, 0; L: shr.u32 %r6, %r4, %r5; and.b32 %r6, %r6, 1; setp.eq.u32 %p2, %r6, 0;
             @{predicate} bra M; activemask.b32 %r7; add.u32 %r8, %r8, %r7; M: add.u32 %r5, %r5, 1; setp.lt.u32 %p3, %r5, %r9;
             {end} st.global.u32 [%rd3], %r8;"
        ))
    };
    assert_eq!(round("%p2", "@%p3 bra L;"), 1);
    assert_eq!(round("%p2", ""), 0, "there is no other round");
    // All lanes go the same way.
    assert_eq!(round("%p3", "@%p3 bra L;"), 0);
}

#[test]
fn copies_that_may_overwrite_what_others_read_come_behind_them() {
    // A tile's results go out, then the next tile comes in.
    let tiles = |behind: &str, out: &str, copy: &str| {
        yields(&format!(
            "mov.u32 %r5, s; shl.b32 %r6, %r1, 4; add.s32 %r7, %r5, %r6; mov.u32 %r8, 0;
             L: {copy} cp.async.cg.shared.global [%r7], [%rd2], 16; cp.async.cg.shared.global [%r7+16], [%rd2], 16;
             cp.async.commit_group; cp.async.wait_group 0; bar.sync 0;
             ld.shared.u32 %r4, [%r7+32]; {out} {behind}
             add.u32 %r8, %r8, 1; setp.lt.u32 %p3, %r8, %r9; @%p3 bra L;"
        ))
    };
    assert_eq!(tiles("", "st.global.u32 [%rd3], %r4;", ""), 1);
    assert_eq!(tiles("", "st.u32 [%rd3], %r4;", "@%p1"), 1, "all threads wait, also those that do not copy");
    assert_eq!(tiles("bar.sync 0;", "st.global.u32 [%rd3], %r4;", ""), 0, "the program waits itself");
    assert_eq!(tiles("", "", ""), 0, "a pipeline");
}

#[test]
fn values_that_go_from_lane_to_lane_are_waited_for() {
    // The store comes before the neighbour's load; and the other way round.
    assert_eq!(
        kernel("st.global.u32 [%rd2], %r1; ld.global.u32 %r3, [%rd2+4]; st.global.u32 [%rd3], %r3;"),
        1
    );
    let both = "st.global.u32 [%rd2], %r1; ld.global.u32 %r3, [%rd2+4]; st.global.u32 [%rd2], %r3;";
    assert_eq!(kernel(both), 2);
    // An atomic operation on what another lane has stored.
    let placed = "ld.global.u32 %r4, [%rd3]; mul.wide.u32 %rd4, %r4, 4; add.s64 %rd5, %rd1, %rd4;";
    assert_eq!(kernel(&format!("st.global.u32 [%rd2], %r1; {placed} red.global.add.u32 [%rd5], 1;")), 1);
    let unlock = "membar.gl; @%p1 atom.global.and.b32 %r3, [%rd1+4], 7;";
    assert_eq!(kernel(&format!("st.relaxed.sys.global.u32 [%rd2], %r1; {unlock}")), 1);
    assert_eq!(kernel(&format!("st.global.u32 [%rd3], %r1; {unlock}")), 0, "another array");
    // What all look at before some raise it.
    let raise = "@%p1 atom.shared.add.u32 %r4, [s], 1; st.global.u32 [%rd3], %r3;";
    assert_eq!(kernel(&format!("ld.shared.u32 %r3, [s]; {raise}")), 1);
    assert_eq!(kernel(&format!("ld.shared.u32 %r3, [s+4]; {raise}")), 0, "another variable");
    // All are cleared, one is set.
    let clear = "mov.u32 %r8, %ntid.x; mov.u32 %r4, %r1; L: cvt.u64.u32 %rd4, %r4; add.s64 %rd5, %rd1, %rd4; st.global.u8 [%rd5], 0;
        add.u32 %r4, %r4, %r8; setp.lt.u32 %p2, %r4, 99; @%p2 bra L;";
    let set = |guard: &str| {
        format!("{clear} cvt.u64.u32 %rd6, %r9; add.s64 %rd7, %rd1, %rd6; {guard} st.global.u8 [%rd7], 1;")
    };
    assert_eq!(kernel(&set("@%p1")), 1);
    assert_eq!(kernel(&set("")), 0);
    // Two stores of the block's memory that overlap.
    let own = "mov.u32 %r10, s; shl.b32 %r11, %r1, 2; add.s32 %r12, %r10, %r11; st.shared.u32 [%r12], 0;";
    assert_eq!(kernel(&format!("{own} st.shared.u32 [%r12+64], %r1;")), 1);
    assert_eq!(kernel(&format!("{own} st.shared.u32 [%r12+128], %r1;")), 0, "another warp's");
    // A fence has nobody wait.
    assert_eq!(kernel("st.global.u32 [%rd2], %r1; membar.cta; ld.global.u32 %r3, [%rd2+4];"), 1);
    // One lane writes, all read.
    assert_eq!(kernel("@%p1 st.shared.u32 [s], %r1; ld.shared.u32 %r3, [s]; st.global.u32 [%rd3], %r3;"), 1);
    // A distance that is halved in a loop.
    let halves =
        "mov.u32 %r4, 16; L: mul.wide.u32 %rd4, %r4, 4; add.s64 %rd5, %rd2, %rd4; ld.global.u32 %r5, [%rd5];
        st.global.u32 [%rd2], %r5; shr.u32 %r4, %r4, 1; setp.ne.u32 %p2, %r4, 0; @%p2 bra L;";
    assert_eq!(kernel(halves), 2);
    // A partner whose number differs in a bit.
    let partner = "xor.b32 %r4, %r1, 1; mul.wide.u32 %rd4, %r4, 4; add.s64 %rd5, %rd1, %rd4;
        st.global.u32 [%rd2], %r1; ld.global.u32 %r3, [%rd5]; st.global.u32 [%rd3], %r3;";
    assert_eq!(kernel(partner), 1);
    // The lane before, and for the first one the last.
    let ring = "add.s32 %r4, %r1, -1; and.b32 %r4, %r4, 31; and.b32 %r5, %r1, -32; or.b32 %r4, %r4, %r5; mul.wide.u32 %rd4, %r4, 4;
        add.s64 %rd5, %rd1, %rd4; st.volatile.global.u32 [%rd2], %r1; ld.volatile.global.u32 %r3, [%rd5]; st.global.u32 [%rd3], %r3;";
    assert_eq!(kernel(ring), 1);
    // A place that data tell.
    let placed = "ld.global.u32 %r4, [%rd3]; mul.wide.u32 %rd4, %r4, 4; add.s64 %rd5, %rd1, %rd4;
        st.global.u32 [%rd5], %r1; ld.global.u32 %r3, [%rd2]; st.global.u32 [%rd3], %r3;";
    assert_eq!(kernel(placed), 1);
}

#[test]
fn in_the_memory_of_a_block_lanes_load_what_a_neighbour_is_to_store() {
    let own = "mov.u32 %r10, s; shl.b32 %r11, %r1, 2; add.s32 %r12, %r10, %r11;";
    let shift = |between: &str, offset: u32| {
        kernel(&format!("{own} ld.shared.u32 %r3, [%r12+{offset}]; {between} st.shared.u32 [%r12], %r3;"))
    };
    assert_eq!(shift("", 4), 1);
    assert_eq!(shift("bar.sync 0;", 4), 0);
    // The own element, and one of another part.
    assert_eq!(shift("", 0), 0);
    assert_eq!(shift("", 128), 0);
    // What comes round a loop.
    let round = |barrier: &str| {
        kernel(&format!(
            "{own} L: st.shared.u32 [%r12], %r3; {barrier} ld.shared.u32 %r3, [%r12+4]; setp.lt.u32 %p2, %r3, 9; @%p2 bra L;"
        ))
    };
    assert_eq!(round("bar.sync 0;"), 1);
    assert_eq!(round(""), 2);
}

#[test]
fn a_warp_parts_at_what_is_left_behind_its_lanes() {
    // Lanes hand on values on one of two ways: those on the other wait where the ways meet, unless all of a warp go one way.
    let waits = |number: &str| {
        kernel(&format!(
            "{number} shr.u32 %r5, %r4, 5; setp.eq.u32 %p2, %r5, 0; st.global.u32 [%rd2], %r1; @%p2 bra L; ld.global.u32 %r3, [%rd2+4];
             L: add.u32 %r6, %r3, 1; st.global.u32 [%rd3], %r6;"
        ))
    };
    assert_eq!(waits("mov.u32 %r4, %r1;"), 1);
    assert_eq!(waits("add.u32 %r4, %r1, 64;"), 1);
    assert_eq!(waits("add.u32 %r4, %r1, 16;"), 2);
    assert_eq!(waits("sub.u32 %r4, %r9, %r2;"), 2);
    assert_eq!(waits("not.b32 %r4, %r2; add.u32 %r4, %r4, %r9;"), 2);
    assert_eq!(waits("mul.lo.s32 %r4, %r1, -1640531535;"), 2);
    assert_eq!(waits("ld.global.u32 %r4, [%rd3];"), 2);
    // A quotient: a number of 96 threads.
    assert_eq!(waits("mul.hi.u32 %r4, %r1, -1431655765; shr.u32 %r4, %r4, 1;"), 1);
}

#[test]
fn a_thread_lets_others_read_what_it_writes_at_an_address_that_was_computed() {
    let of_warp = "mov.u32 %r10, s; shr.u32 %r11, %r1, 5; shl.b32 %r11, %r11, 2; add.s32 %r12, %r10, %r11;";
    let read = "ld.shared.u32 %r3, [s]; st.global.u32 [%rd2], %r3;";
    assert_eq!(yields(&format!("{of_warp} {read} @%p1 st.shared.u32 [%r12], %r9;")), 1);
    assert_eq!(yields(&format!("{of_warp} {read} bar.sync 0; @%p1 st.shared.u32 [%r12], %r9;")), 0);
    // Each warp's own, another variable, and a part that lies at a given distance.
    let own = "ld.shared.u32 %r3, [%r12]; add.u32 %r3, %r3, 1; st.shared.u32 [%r12], %r3;";
    assert_eq!(yields(&format!("{of_warp} @!%p1 bra L; {own} L: bar.sync 0;")), 0);
    // What all lanes of a warp read there, before one of them writes it, or some one to which data lead.
    let all = "ld.shared.u32 %r3, [%r12]; st.global.u32 [%rd2], %r3;";
    assert_eq!(yields(&format!("{of_warp} {all} @%p1 st.shared.u32 [%r12], %r9;")), 1);
    assert_eq!(yields(&format!("{of_warp} {all} bar.warp.sync -1; @%p1 st.shared.u32 [%r12], %r9;")), 0);
    let told = "ld.global.u32 %r4, [%rd3]; shl.b32 %r4, %r4, 2; add.s32 %r5, %r12, %r4;";
    assert_eq!(yields(&format!("{of_warp} {told} {all} st.shared.u32 [%r5], %r9;")), 1);
    assert_eq!(yields(&format!("{of_warp} {told} {all} bar.warp.sync -1; st.shared.u32 [%r5], %r9;")), 0);
    let other = ".shared .align 4 .b8 other[64]; mov.u32 %r13, other; add.s32 %r14, %r13, %r11;";
    assert_eq!(yields(&format!("{of_warp} {other} {read} @%p1 st.shared.u32 [%r14], %r9;")), 0);
    let part = "shl.b32 %r13, %r9, 2; add.s32 %r14, %r12, %r13;";
    assert_eq!(yields(&format!("{of_warp} {part} {read} @%p1 st.shared.u32 [%r14], %r9;")), 0);
    // All elements in turn, then the own one; and one thread alone that makes a list of sums.
    let all = "mov.u32 %r4, 0; L: shl.b32 %r5, %r4, 2; add.s32 %r6, %r10, %r5; ld.shared.u32 %r7, [%r6]; add.u32 %r8, %r8, %r7;
        add.u32 %r4, %r4, 1; setp.lt.u32 %p2, %r4, 32; @%p2 bra L;";
    let own = "shl.b32 %r13, %r1, 2; add.s32 %r14, %r10, %r13; st.shared.u32 [%r14], %r8;";
    assert_eq!(yields(&format!("{of_warp} {all} {own}")), 1);
    assert_eq!(yields(&format!("{of_warp} {all} bar.sync 0; {own}")), 0);
    let list = "mov.u32 %r4, 0; L: shl.b32 %r5, %r4, 2; add.s32 %r6, %r10, %r5; ld.shared.u32 %r7, [%r6]; add.u32 %r8, %r8, %r7;
        st.shared.u32 [%r6], %r8; add.u32 %r4, %r4, 1; setp.lt.u32 %p2, %r4, 32; @%p2 bra L;";
    assert_eq!(yields(&format!("{of_warp} setp.ne.u32 %p3, %r1, 0; @%p3 bra M; {list} M: bar.sync 0;")), 0);
}

#[test]
fn a_thread_lets_others_read_first_unless_only_it_has_read() {
    let sum = "ld.shared.u32 %r3, [s]; add.u32 %r3, %r3, 1; st.shared.u32 [s], %r3;";
    let behind = |asks: &str, sum: &str| format!("{asks} @%p2 bra L; {sum} L: bar.sync 0;");
    // All threads, those of a number or more, and the first lane of each warp.
    assert_eq!(yields(sum), 1);
    assert_eq!(yields(&behind("setp.ge.u32 %p2, %r1, 5;", sum)), 1);
    assert_eq!(yields(&behind("setp.ne.u32 %p2, %r2, 0;", sum)), 1);
    // One thread, behind a branch and by a guard.
    assert_eq!(yields(&behind("setp.ne.u32 %p2, %r1, 0;", sum)), 0);
    let guarded = "setp.eq.u32 %p2, %r1, 0; @%p2 ld.shared.u32 %r3, [s]; @%p2 st.shared.u32 [s], %r3;";
    assert_eq!(yields(guarded), 0);
    assert_eq!(
        yields("setp.eq.u32 %p2, %r1, 0; @!%p2 ld.shared.u32 %r3, [s]; @!%p2 st.shared.u32 [s], %r3;"),
        1
    );
    // What all have read some raise, by an atomic operation.
    let raise = "setp.gt.u32 %p2, %r3, 5; @%p2 red.shared.add.u32 [s], 1;";
    assert_eq!(yields(&format!("ld.shared.u32 %r3, [s]; {raise}")), 1);
    assert_eq!(yields(&format!("ld.shared.u32 %r3, [s]; bar.sync 0; {raise}")), 0);
    // Everybody but one; who takes the branch; blocks of several rows; what all have read before, or one only before a branch.
    assert_eq!(yields(&behind("setp.eq.u32 %p2, %r1, 0;", sum)), 1);
    assert_eq!(yields(&format!("setp.eq.u32 %p2, %r1, 0; @%p2 bra L; ret; L: {sum}")), 0);
    assert_eq!(yields(&format!("mov.u32 %r8, %tid.y; {}", behind("setp.ne.u32 %p2, %r1, 0;", sum))), 1);
    assert_eq!(yields(&format!("ld.shared.u32 %r4, [s]; {}", behind("setp.ne.u32 %p2, %r1, 0;", sum))), 1);
    let store = "st.shared.u32 [s], %r3;";
    let apart = format!("{guarded} setp.ne.u32 %p5, %r1, 1; @%p5 bra L; {store} L: bar.sync 0;");
    assert_eq!(yields(&apart), 0);
    // A place that is named by an address that was computed.
    let by_address = "mov.u32 %r4, s; cvt.u64.u32 %rd4, %r4; cvta.shared.u64 %rd5, %rd4; ld.u32 %r3, [%rd5]; mov.u32 %r6, s;";
    assert_eq!(yields(&format!("{by_address} add.u32 %r3, %r3, 1; st.shared.u32 [%r6], %r3;")), 1);
    assert_eq!(yields(&format!("{by_address} add.u32 %r3, %r3, 1; st.shared.u32 [%r6+4], %r3;")), 0);
    // Whose turn it is, also behind another branch; not where that is a thread's own.
    let turns = |turn: &str, more: &str| {
        yields(&format!(
            "mov.u32 %r7, 0; {turn} T: setp.ne.u32 %p2, %r7, %r1; @%p2 bra L; {more} {sum} L: bar.sync 0; add.u32 %r7, %r7, 1; setp.lt.u32 %p3, %r7, 64; @%p3 bra T;"
        ))
    };
    assert_eq!(turns("", ""), 0);
    assert_eq!(turns("", "setp.eq.u32 %p4, %r7, 0; @%p4 bra L;"), 0);
    assert_eq!(turns("and.b32 %r7, %r1, 3;", ""), 1);
    let read_by_one = "setp.eq.u32 %p4, %r1, 0; @%p4 ld.shared.u32 %r3, [s];";
    assert_eq!(yields(&format!("{read_by_one} {}", behind("setp.ne.u32 %p2, %r1, 1;", store))), 1);
}

#[test]
fn threads_that_clear_let_others_clear_before_results_are_stored() {
    let base = "mov.u32 %r10, s; shl.b32 %r11, %r1, 2; add.s32 %r12, %r10, %r11; ld.global.u32 %r3, [%rd2]; shl.b32 %r4, %r3, 2;
        add.s32 %r13, %r10, %r4; shr.u32 %r5, %r1, 5; shl.b32 %r6, %r5, 2; add.s32 %r14, %r10, %r6; shl.b32 %r7, %r5, 7;";
    let clears = |clear: &str, then: &str| {
        yields(&format!("{base} {clear} {then} bar.sync 0; ld.shared.u32 %r15, [s+252];"))
    };
    let clear = "st.shared.u32 [%r12], 0;";
    let told = "st.shared.u32 [%r13], %r3;";
    assert_eq!(clears(clear, told), 1);
    assert_eq!(clears(clear, "atom.shared.add.u32 %r9, [%r13], 1;"), 1);
    assert_eq!(clears(clear, "@%p1 st.shared.u32 [%r14], %r3;"), 1);
    assert_eq!(clears("mov.u32 %r8, 7; st.shared.u32 [%r12], %r8;", told), 1);
    assert_eq!(clears("st.shared.u32 [%r12], %r9;", told), 1, "a parameter");
    // Two arrays' worth, and a loop: they wait once, behind all of it.
    assert_eq!(clears("st.shared.u32 [%r12], 0; st.shared.u32 [%r12+128], 0;", told), 1);
    let loops = "L: st.shared.u32 [%r12], 0; add.s32 %r12, %r12, 512; add.s32 %r1, %r1, 128; setp.lt.u32 %p2, %r1, 256; @%p2 bra L;";
    assert_eq!(clears(loops, told), 1);
    // Nothing is cleared, or a barrier is between; the own element, and the same value once more.
    assert_eq!(clears("st.shared.u32 [%r12], %r3;", told), 0);
    assert_eq!(clears("st.shared.u32 [%r12], 0; bar.sync 0;", told), 0);
    assert_eq!(clears(clear, "st.shared.u32 [%r12], %r3;"), 0);
    assert_eq!(clears(clear, "st.shared.u32 [%r13], 0;"), 0);
    assert_eq!(clears(told, clear), 0);
    // Another array, a part at a given distance, and each warp's own part.
    let other = ".shared .align 4 .b8 other[64]; mov.u32 %r17, other; add.s32 %r18, %r17, %r4;";
    assert_eq!(clears(clear, &format!("{other} st.shared.u32 [%r18], %r3;")), 0);
    assert_eq!(clears(clear, "add.s32 %r18, %r13, %r9; st.shared.u32 [%r18], %r3;"), 0);
    let own =
        "add.s32 %r18, %r10, %r7; shl.b32 %r16, %r2, 2; add.s32 %r19, %r18, %r16; st.shared.u32 [%r19], 0;";
    assert_eq!(clears(own, "add.s32 %r18, %r18, %r4; st.shared.u32 [%r18], %r3;"), 0);
}

#[test]
fn threads_that_read_their_neighbours_elements_let_others_read_before_these_change() {
    let base = "mov.u32 %r10, s; shl.b32 %r11, %r1, 2; add.s32 %r12, %r10, %r11; ld.global.u32 %r3, [%rd2];";
    let reads = |body: &str| yields(&format!("{base} st.shared.u32 [%r12], %r3; {body} bar.sync 0;"));
    let (read, store) =
        ("ld.shared.u32 %r4, [%r12+4]; st.global.u32 [%rd3], %r4;", "st.shared.u32 [%r12], %r9;");
    assert_eq!(reads(&format!("bar.sync 0; {read} {store}")), 1);
    assert_eq!(reads(&format!("bar.sync 0; {read} ld.shared.u32 %r5, [%r12+-4]; {store}")), 1);
    let window =
        format!("L: {store} bar.sync 0; {read} add.u32 %r9, %r9, 1; setp.lt.u32 %p2, %r9, 9; @%p2 bra L;");
    assert_eq!(reads(&window), 1);
    // A barrier between, or none before: a warp then has its own; only some read, as where one warp is left.
    assert_eq!(reads(&format!("bar.sync 0; {read} bar.sync 0; {store}")), 0);
    assert_eq!(reads(&format!("{read} {store}")), 0);
    assert_eq!(reads(&format!("bar.sync 0; setp.gt.u32 %p2, %r1, 31; @%p2 bra L; {read} {store} L:")), 0);
    // The own element, one of another part of the array, and another array.
    assert_eq!(reads(&format!("bar.sync 0; ld.shared.u32 %r4, [%r12]; {store}")), 0);
    assert_eq!(reads(&format!("bar.sync 0; ld.shared.u32 %r4, [%r12+128]; {store}")), 0);
    let other = ".shared .align 4 .b8 other[64]; mov.u32 %r17, other; add.s32 %r18, %r17, %r11;";
    assert_eq!(reads(&format!("{other} bar.sync 0; {read} st.shared.u32 [%r18], %r9;")), 0);
}

#[test]
fn tiles_are_read_by_all_before_the_next_one_comes() {
    // Each thread stores an element, and reads another one's behind a barrier.
    let tiles = |read: &str, out: &str, end: &str| {
        yields(&format!(
            "mov.u32 %r10, s; shl.b32 %r11, %r1, 2; add.s32 %r12, %r10, %r11; sub.s32 %r13, %r10, %r11; mov.u32 %r8, 0;
             L: ld.global.u32 %r3, [%rd2]; st.shared.u32 [%r12], %r3; bar.sync 0; {read} {out} {end}
             add.u32 %r8, %r8, 1; setp.lt.u32 %p3, %r8, %r9; @%p3 bra L;"
        ))
    };
    let (backwards, out) = ("ld.shared.u32 %r4, [%r13+252];", "st.global.u32 [%rd3], %r4;");
    assert_eq!(tiles(backwards, out, ""), 1);
    assert_eq!(tiles(backwards, out, "bar.sync 0;"), 0, "the program waits itself");
    assert_eq!(tiles(backwards, out, "bar.warp.sync -1;"), 0, "a tile of the warp");
    assert_eq!(tiles(backwards, "", ""), 0, "nothing takes long between");
    assert_eq!(tiles("ld.shared.u32 %r4, [%r12];", out, ""), 0, "the own element");
    let other = "mad.lo.u32 %r14, %r9, 128, %r13; ld.shared.u32 %r4, [%r14];";
    assert_eq!(tiles(other, out, ""), 0, "another part of the memory");
}

#[test]
fn lanes_wait_behind_a_branch_in_which_some_take_what_is_volatile() {
    let row = |end: &str| {
        kernel(&format!(
            "mov.u32 %r10, s; shl.b32 %r11, %r1, 2; add.s32 %r12, %r10, %r11; mov.u32 %r5, 0; L: st.volatile.shared.u32 [%r12], %r5;
             @!%p1 bra M; ld.volatile.shared.u32 %r3, [%r12+4]; st.global.u32 [%rd2], %r3; M: add.u32 %r5, %r5, 1; {end}"
        ))
    };
    let next = "setp.lt.u32 %p3, %r5, %r9; @%p3 bra L;";
    // Before the store in the loop, before the load, and where the ways meet.
    assert_eq!(row(&format!("st.global.u32 [%rd3], %r5; {next}")), 3);
    assert_eq!(row(&format!("bar.sync 0; {next}")), 2, "all wait there");
    assert_eq!(row("st.global.u32 [%rd3], %r5;"), 2, "nothing volatile comes then");
}

#[test]
fn the_size_of_a_warp_is_a_number() {
    let tree = "mov.u32 %r4, WARP_SZ; shl.b32 %r5, %r4, 1; and.b32 %r6, %r5, -4; mov.u32 %r10, s; shl.b32 %r11, %r1, 2; add.s32 %r12, %r10, %r11;
        add.s32 %r13, %r12, %r6; ld.shared.u32 %r3, [%r13]; ld.shared.u32 %r14, [%r12]; add.u32 %r3, %r3, %r14; st.shared.u32 [%r12], %r3;
        ld.shared.u32 %r14, [%r12+4]; st.global.u32 [%rd2], %r14;";
    assert_eq!(kernel(tree), kernel(&tree.replace("and.b32 %r6, %r5, -4", "mov.u32 %r6, 64")));
    assert_ne!(kernel(tree), kernel(&tree.replace("and.b32 %r6, %r5, -4", "and.b32 %r6, %r9, -4")));
}

#[test]
fn a_lanes_own_element_may_be_where_data_lead_another() {
    let base = "mov.u32 %r10, s; shl.b32 %r11, %r1, 2; add.s32 %r12, %r10, %r11; ld.global.u32 %r4, [%rd3]; shl.b32 %r5, %r4, 2; add.s32 %r13, %r10, %r5;";
    let own = "ld.shared.u32 %r3, [%r12]; xor.b32 %r3, %r3, 1; st.shared.u32 [%r12], %r3;";
    // Before the load, behind it, and before the store.
    assert_eq!(kernel(&format!("{base} st.shared.u32 [%r13], %r1; {own}")), 3);
    assert_eq!(kernel(&format!("{base} st.shared.u32 [%r13], %r1; bar.warp.sync -1; {own}")), 0);
    // Elements of another part of the memory, and a place to which data lead as well.
    assert_eq!(kernel(&format!("{base} st.shared.u32 [%r13+1024], %r1; {own}")), 0);
    let told = "ld.shared.u32 %r3, [%r13+8]; xor.b32 %r3, %r3, 1; st.shared.u32 [%r13+8], %r3;";
    assert_eq!(kernel(&format!("{base} st.shared.u32 [%r13], %r1; {told}")), 0);
}

#[test]
fn what_others_have_is_fetched_before_they_store_there() {
    let base = "mov.u32 %r10, s; shl.b32 %r11, %r1, 2; add.s32 %r12, %r10, %r11; xor.b32 %r4, %r2, 8; shl.b32 %r5, %r4, 2; add.s32 %r13, %r10, %r5;
        ld.global.u32 %r6, [%rd3]; shl.b32 %r7, %r6, 2; add.s32 %r14, %r10, %r7; bar.sync 0;";
    let after = |body: &str| kernel(&format!("{base} {body}"));
    let own = "st.shared.u32 [%r12], %r3;";
    // A partner's element, and one that data tell.
    assert_eq!(after(&format!("ld.shared.u32 %r3, [%r13]; {own}")), 1);
    assert_eq!(after(&format!("ld.shared.u32 %r3, [%r14]; {own}")), 1);
    assert_eq!(after(&format!("ld.shared.u32 %r3, [%r14]; bar.warp.sync -1; {own}")), 0);
    // The own element of a warp's part, as a compiler has it.
    let part = "shl.b32 %r15, %r1, 2; and.b32 %r16, %r15, 124; add.s32 %r17, %r10, %r16;";
    assert_eq!(after(&format!("{part} ld.shared.u32 %r3, [%r14]; st.shared.u32 [%r17], %r3;")), 1);
    assert_eq!(after("ld.shared.u32 %r3, [%r14+512]; st.shared.u32 [%r12], %r3;"), 0, "another part");
    // Two elements that one lane exchanges, and what only some lanes fetch.
    let both = "ld.shared.u32 %r3, [%r13]; ld.shared.u32 %r8, [%r12]; st.shared.u32 [%r12], %r3; st.shared.u32 [%r13], %r8;";
    assert_eq!(after(both), 0);
    assert_eq!(after(&format!("@%p1 ld.shared.u32 %r3, [%r13]; {own}")), 0);
    // Own elements that go where their numbers say; not where only some lanes store.
    assert_eq!(after("ld.shared.u32 %r3, [%r12]; st.shared.u32 [%r13], %r3;"), 1);
    assert_eq!(after("ld.shared.u32 %r3, [%r12]; bar.warp.sync -1; st.shared.u32 [%r13], %r3;"), 0);
    assert_eq!(after("ld.shared.u32 %r3, [%r12]; @%p1 st.shared.u32 [%r13], %r3;"), 0);
    // All are cleared, and some set; and the other way round.
    assert_eq!(after("st.shared.u32 [%r12], 0; st.shared.u32 [%r14], 1;"), 1);
    assert_eq!(after("st.shared.u32 [%r14], 1; st.shared.u32 [%r12], 0;"), 1);
    assert_eq!(after("st.shared.u32 [%r12], 0; st.shared.u32 [%r14+512], 1;"), 0);
    // One element for every eight lanes, where others have stored; in another part of the memory; and the own one.
    let few = "st.shared.u32 [%r12], %r3; and.b32 %r15, %r1, -9; setp.ne.s32 %p1, %r15, 0; @%p1 bra OVER; and.b32 %r16, %r1, -8; add.s32 %r17, %r10, %r16;";
    assert_eq!(after(&format!("{few} st.shared.u32 [%r17+64], %r6; OVER:")), 1);
    assert_eq!(after(&format!("{few} st.shared.u32 [%r17+512], %r6; OVER:")), 0);
    assert_eq!(after(&format!("{few} st.shared.u32 [%r12], %r6; OVER:")), 0);
    assert_eq!(
        after(&format!(
            "{few} shr.u32 %r8, %r1, 3; shl.b32 %r18, %r8, 2; add.s32 %r19, %r12, %r18; st.shared.u32 [%r19], %r6; OVER:"
        )),
        1
    );
    assert_eq!(after(&format!("{few} st.shared.v2.u32 [%r17+64], {{%r6, %r6}}; OVER:")), 1);
}

#[test]
fn what_each_lane_has_for_itself_is_not_waited_for() {
    let free = [
        // The own element, another array, a barrier, a shuffle or what takes a lock between, the loads that are constant.
        "st.global.u32 [%rd2], %r1; ld.global.u32 %r3, [%rd2]; st.global.u32 [%rd2], %r3;",
        "st.global.u32 [%rd2], %r1; ld.global.u32 %r3, [%rd3+4]; st.global.u32 [%rd2], %r3;",
        "st.global.u32 [%rd2], %r1; bar.sync 0; ld.global.u32 %r3, [%rd2+4];",
        "st.global.u32 [%rd2], %r1; bar.warp.sync -1; ld.global.u32 %r3, [%rd2+4];",
        "st.global.u32 [%rd2], %r1; atom.global.cas.b32 %r4, [%rd3], 0, 1; ld.global.u32 %r3, [%rd2+4];",
        "st.global.u32 [%rd2], %r1; ld.global.nc.u32 %r3, [%rd2+4];",
        // No store before a load.
        "ld.global.u32 %r3, [%rd2+4]; st.global.u32 [%rd2], %r3;",
        // Elements with a free place behind every 32, by shifting and by dividing: two of them, exchanged.
        "mul.lo.u32 %r3, %r1, %r9; shr.u32 %r4, %r3, 5; add.s32 %r5, %r4, %r3; mul.wide.u32 %rd4, %r5, 4; add.s64 %rd5, %rd1, %rd4;
         add.s32 %r6, %r3, %r9; shr.s32 %r7, %r6, 31; shr.u32 %r8, %r7, 27; add.s32 %r10, %r6, %r8; shr.s32 %r11, %r10, 5;
         add.s32 %r12, %r6, %r11; mul.wide.u32 %rd6, %r12, 4; add.s64 %rd7, %rd1, %rd6; ld.global.u32 %r13, [%rd5];
         ld.global.u32 %r14, [%rd7]; st.global.u32 [%rd5], %r14; ld.global.u32 %r15, [%rd7]; add.u32 %r16, %r15, %r13;
         st.global.u32 [%rd7], %r16;",
        // The same in a step of a sum by a tree, as a compiler makes it: one of two neighbours is loaded, stored, and the other one loaded.
        "shl.b32 %r3, %r1, 1; shr.s32 %r4, %r1, 4; add.s32 %r5, %r4, %r3; add.s32 %r6, %r3, 1; shr.s32 %r7, %r6, 5; add.s32 %r8, %r7, %r6;
         mul.wide.s32 %rd4, %r5, 4; add.s64 %rd5, %rd1, %rd4; mul.wide.s32 %rd6, %r8, 4; add.s64 %rd7, %rd1, %rd6;
         ld.global.u32 %r10, [%rd5]; ld.global.u32 %r11, [%rd7]; st.global.u32 [%rd5], %r11; ld.global.u32 %r12, [%rd7];
         add.u32 %r13, %r12, %r10; st.global.u32 [%rd7], %r13;",
        // Structures of 16 bytes, and a distance that is given.
        "mul.wide.u32 %rd4, %r1, 16; add.s64 %rd5, %rd1, %rd4; st.global.u32 [%rd5], %r1; ld.global.u32 %r3, [%rd5+4];",
        "mul.wide.u32 %rd4, %r9, 4; add.s64 %rd5, %rd2, %rd4; st.global.u32 [%rd2], %r1; ld.global.u32 %r3, [%rd5];",
        // A loop over all elements with a stride, in place; and one over the elements of a row of the lane's own.
        "L: ld.global.u32 %r3, [%rd2]; add.u32 %r3, %r3, 1; st.global.u32 [%rd2], %r3; mul.wide.u32 %rd4, %r9, 4;
         add.s64 %rd2, %rd2, %rd4; add.u32 %r1, %r1, %r9; setp.lt.u32 %p2, %r1, 1000; @%p2 bra L;",
        "mul.lo.u32 %r4, %r1, %r9; mov.u32 %r5, 1; L: add.u32 %r6, %r4, %r5; mul.wide.u32 %rd4, %r6, 4; add.s64 %rd5, %rd1, %rd4;
         ld.global.u32 %r3, [%rd5+-4]; st.global.u32 [%rd5], %r3; add.u32 %r5, %r5, 1; setp.lt.u32 %p2, %r5, %r9; @%p2 bra L;",
        // A column of the lane's own in which data tell the place.
        "ld.global.u32 %r3, [%rd3]; mad.lo.u32 %r4, %r3, 1024, %r1; mul.wide.u32 %rd4, %r4, 4; add.s64 %rd5, %rd1, %rd4;
         ld.global.u32 %r5, [%rd5]; st.global.u32 [%rd5], %r5; ld.global.u32 %r6, [%rd3+4]; mad.lo.u32 %r7, %r6, 1024, %r1;
         mul.wide.u32 %rd6, %r7, 4; add.s64 %rd7, %rd1, %rd6; ld.global.u32 %r8, [%rd7]; st.global.u32 [%rd3], %r8;",
    ];
    for body in free {
        assert_eq!(kernel(body), 0, "{body}");
    }
}

#[test]
fn kernels_as_a_compiler_makes_them_stay_as_they_are_unless_they_count_on_it() {
    let changed = |text: &str| {
        let changed = waits(text).into_iter().filter_map(|(name, count)| (count > 0).then_some(name));
        changed.collect::<std::collections::BTreeSet<String>>().into_iter().collect::<Vec<_>>()
    };
    let expected = [
        "announced",
        "asked",
        "asked_behind_loops",
        "boxes",
        "butterfly",
        "cleared",
        "compact",
        "fenced",
        "fetched",
        "gathered",
        "hashed",
        "late",
        "led",
        "odd_even",
        "packet",
        "pipe",
        "pool",
        "produce",
        "raised",
        "released",
        "rounds",
        "scan",
        "scattered",
        "shift",
        "stacked",
        "summed",
        "taken",
        "tree",
        "uneven",
        "volatile_tree",
        "voted",
        "walked",
        "windows",
    ];
    assert_eq!(changed(include_str!("../../../tests/device/abreast.ptx")), expected);
    // The same source, with its functions as they stand there. In one more its lanes wait until all are through with a loop.
    let mut unoptimized = changed(include_str!("../../../tests/device/abreast_unoptimized.ptx"));
    unoptimized.retain(|name| name != "wiped");
    assert_eq!(unoptimized, expected);
    let others = waits(include_str!("../../../tests/device/kernels.ptx"));
    assert!(others.len() > 3 && others.iter().all(|(_, count)| *count == 0), "{others:?}");
}

#[test]
fn lanes_that_have_a_part_of_an_array_each_do_not_wait() {
    // Elements from `first` on are added up in place, one after another.
    let sums = |first: &str| {
        kernel(&format!(
            "{first} mov.u32 %r5, 0;\n$L: mul.wide.u32 %rd4, %r4, 4; add.s64 %rd5, %rd1, %rd4; ld.global.u32 %r6, [%rd5];\n\
             st.global.u32 [%rd5], %r5; add.s32 %r5, %r5, %r6; ld.global.u32 %r6, [%rd5+4]; st.global.u32 [%rd5+4], %r5;\n\
             add.s32 %r5, %r5, %r6; add.s32 %r4, %r4, 2; setp.lt.u32 %p2, %r4, %r9; @%p2 bra $L;"
        ))
    };
    assert_eq!(sums("mul.lo.s32 %r3, %r1, %r9; min.u32 %r4, %r3, %r9;"), 0, "the parts' size is given");
    assert_eq!(sums("shl.b32 %r3, %r1, 6; min.u32 %r4, %r3, %r9;"), 0, "parts of 64");
    assert!(sums("add.s32 %r3, %r1, 1; min.u32 %r4, %r3, %r9;") > 0, "the neighbour's, but at the edge");
    assert!(sums("xor.b32 %r3, %r1, 1; min.u32 %r4, %r3, %r9;") > 0, "another lane's");
}

/// How often lanes wait in a kernel that hands its pointer to the function `f`, which may be given with others; and how many calls it is left with.
fn calling(functions: &str, between: &str) -> [usize; 2] {
    let text = text_of(&format!(
        "{{ .param .b64 p; st.param.b64 [p], %rd2; call f, (p); }} {between} st.global.u32 [%rd3], %r1;"
    ));
    let text = text.replacen(".visible", &format!("{functions}\n.visible"), 1);
    [|op: &Op| matches!(op, Op::Converge), |op: &Op| matches!(op, Op::Call)]
        .map(|asked| inserted(&text, asked)[0].1)
}

/// A function with a pointer `a` and a number `v`.
fn function(name: &str, body: &str) -> String {
    format!(
        ".func {name}(.param .b64 p) {{ .reg .b64 a; .reg .b32 v; .reg .pred q; ld.param.u64 a, [p]; {body} ret; }}\n"
    )
}

#[test]
fn what_functions_do_counts_as_if_it_stood_in_the_kernel() {
    let exchange = "mov.u32 v, %tid.x; st.u32 [a], v; ld.u32 v, [a+4];";
    assert_eq!(calling(&function("f", exchange), ""), [1, 0]);
    // Part of it.
    let load = "ld.u32 %r3, [%rd2+4];";
    assert_eq!(calling(&function("f", "st.u32 [a], 1;"), load), [1, 0]);
    assert_eq!(calling(&function("f", "st.u32 [a], 1;"), "ld.u32 %r3, [%rd2];"), [0, 1], "the lane's own");
    // By way of another one.
    let pass = |to: &str| format!("{{ .param .b64 b; st.param.b64 [b], a; call {to}, (b); }}");
    let two = function("g", exchange) + &function("f", &pass("g"));
    assert_eq!(calling(&two, ""), [1, 0]);
    // What has nothing to do with it, and is long, stays a function.
    let long = ".func (.param .b32 r) h(.param .b32 x) { .reg .b32 v; ld.param.u32 v, [x]; ".to_owned()
        + &"add.u32 v, v, 1;".repeat(80)
        + "st.param.b32 [r], v; ret; }\n";
    let both = long
        + &function(
            "f",
            &format!("{{ .param .b32 x; .param .b32 r; st.param.b32 [x], 1; call (r), h, (x); }} {exchange}"),
        );
    assert_eq!(calling(&both, ""), [1, 1]);
    // So does one that calls itself, and what would make the kernel too large.
    let declared = ".func f(.param .b64 p);\n";
    let recursive = declared.to_owned() + &function("f", &format!("{exchange} {}", pass("f")));
    assert_eq!(calling(&recursive, ""), [0, 1]);
    let large = function("f", &(exchange.to_owned() + &"add.u32 v, v, 1;".repeat(1 << 14)));
    assert_eq!(calling(&large, ""), [0, 1]);
}

#[test]
fn chains_of_functions_end_in_no_fault() {
    let pass = |to: usize| format!("{{ .param .b64 b; st.param.b64 [b], a; call f{to}, (b); }}");
    let exchange = "mov.u32 v, %tid.x; st.u32 [a], v; ld.u32 v, [a+4];";
    let chain = |count: usize, each: usize| {
        let mut text = function("f0", exchange);
        (1..count).for_each(|n| text += &function(&format!("f{n}"), &pass(n - 1).repeat(each)));
        text + &function("f", &pass(count - 1))
    };
    assert_eq!(calling(&chain(20, 1), ""), [1, 0]);
    // Longer than functions are put into each other, and so many ways that all together would never end.
    assert_eq!(calling(&chain(5000, 1), ""), [0, 1]);
    assert_eq!(calling(&chain(40, 2), ""), [0, 1]);
}

/// The labels and branches of the kernel of a text, and where its lanes wait, in order.
fn arranged(body: &str) -> Vec<String> {
    let unit = Unit::new(rgpu_image::ptx::parse(&text_of(body)).unwrap()).unwrap();
    let function = &unit.module.functions[unit.kernels[0].0 as usize];
    let told = |statement: &Statement| match statement {
        Statement::Label(label) => Some(format!("{}:", label.0)),
        Statement::Instruction(i) => match (&unit.ops[i.form.0 as usize], i.operands.first()) {
            (Op::Converge, _) => Some("wait".to_owned()),
            (Op::Bra, Some(Operand::Label(label))) => Some(format!("to {}", label.0)),
            (Op::Ret, _) => Some("end".to_owned()),
            _ => None,
        },
    };
    function.body.iter().filter_map(told).collect()
}

#[test]
fn where_lanes_wait_ways_come_before_the_place_where_they_meet() {
    // M is where they meet behind the first lane's way, which stands behind it. H is label 0, M is 1, and E is 2.
    let loops = |load: &str, way: &str| {
        arranged(&format!(
            "bra H; M: add.u32 %r5, %r5, 1; H: {load} setp.gt.u32 %p2, %r6, %r9; @%p2 bra E; @!%p1 bra M; {way} bra M; E:"
        ))
    };
    let counts = "ld.volatile.shared.u32 %r7, [s]; add.u32 %r7, %r7, 1; st.volatile.shared.u32 [s], %r7;";
    let text = loops("ld.volatile.shared.u32 %r6, [s];", counts);
    let place = |what: &str| text.iter().position(|told| told == what).unwrap();
    // Behind the way of the first lane the others wait, and then all begin another turn.
    assert!(place("1:") > place("0:"), "{text:?}");
    assert_eq!(text[place("1:") + 1..place("2:")], ["wait", "to 0"], "{text:?}");
    // Nothing waits, and all stands as it did.
    let text = loops("ld.global.u32 %r6, [%rd9];", "add.u32 %r8, %r8, 1;");
    assert_eq!(text, ["to 0", "1:", "0:", "to 2", "to 1", "to 1", "2:", "end"]);
}

#[test]
fn kernels_with_many_loops_and_ways_out_of_them_are_looked_at_soon() {
    let volatile = "ld.volatile.shared.u32 %r7, [s]; st.volatile.shared.u32 [s], %r7;";
    let many = |f: &dyn Fn(usize) -> String, count: usize| (0..count).map(f).collect::<String>();
    // Two ends of each turn, ten thousand times.
    let loops = many(&|n| format!("L{n}: @%p1 bra L{n}; @%p2 bra L{n};\n"), 10_000);
    kernel(&format!("{volatile} {loops} {volatile}"));
    // One loop with as many ways out.
    let ways = many(&|n| format!("@%p2 bra E{n};\n"), 5_000);
    let ends = many(&|n| format!("E{n}: add.u32 %r5, %r5, 1;\n"), 5_000);
    kernel(&format!("{volatile} L: {ways} {volatile} @%p1 bra L; {ends}"));
}

#[test]
fn all_have_changed_a_volatile_number_before_one_reads_it() {
    let read = "ld.volatile.shared.u32 %r3, [s]; st.global.u32 [%rd3], %r3;";
    assert_eq!(kernel(&format!("atom.shared.add.u32 %r4, [s], 1; {read}")), 1);
    assert_eq!(kernel(&format!("atom.shared.add.u32 %r4, [s], 1; bar.sync 0; {read}")), 0);
}

#[test]
fn all_have_stored_as_volatile_before_one_loads_as_if_it_were_not() {
    let base = "mov.u32 %r10, s; shl.b32 %r11, %r2, 2; add.s32 %r12, %r10, %r11; xor.b32 %r13, %r2, 1; shl.b32 %r13, %r13, 2;
        add.s32 %r14, %r10, %r13;";
    let waits = |store: &str, between: &str, load: &str| {
        let (store, load) = (format!("{store} [%r12], %r9;"), format!("{load} %r3, [%r14];"));
        kernel(&format!("{base} {store} {between} {load} st.global.u32 [%rd2], %r3;"))
    };
    for store in ["st.volatile.shared.u32", "st.shared.u32"] {
        for load in ["ld.volatile.shared.u32", "ld.shared.u32"] {
            assert_eq!(waits(store, "", load), 1, "{store} {load}");
            assert_eq!(waits(store, "bar.warp.sync -1;", load), 0, "{store} {load}");
        }
    }
}

#[test]
fn a_place_that_each_warp_has_is_one_for_its_lanes_however_it_is_computed() {
    let store = |place: &str| {
        kernel(&format!(
            "{place} mov.u32 %r5, s; add.u32 %r6, %r5, %r4; @%p1 st.shared.u32 [%r6], %r1; ld.shared.u32 %r3, [%r6]; st.global.u32 [%rd3], %r3;"
        ))
    };
    assert_eq!(store("shr.u32 %r7, %r1, 5; shl.b32 %r4, %r7, 2;"), 1);
    assert_eq!(store("shr.u32 %r7, %r1, 3; and.b32 %r4, %r7, 536870908;"), 1);
    assert_eq!(store("shl.b32 %r7, %r1, 2; and.b32 %r4, %r7, -4;"), 0, "one for each lane");
    assert_eq!(store("shr.u32 %r7, %r1, 2; and.b32 %r4, %r7, 536870908;"), 0, "two for each warp");
}

#[test]
fn elements_that_move_from_turn_to_turn_are_another_lanes_next() {
    // Pairs of elements, which begin with an even one in one turn and with an odd one in the next.
    let pairs = |distance: &str| {
        kernel(&format!(
            "mov.u32 %r4, 0; L: {distance} shl.b32 %r6, %r2, 1; add.s32 %r7, %r6, %r5; mul.wide.s32 %rd4, %r7, 4; add.s64 %rd5, %rd1, %rd4;
             ld.global.u32 %r8, [%rd5+4]; st.global.u32 [%rd5], %r8; add.u32 %r4, %r4, 1; setp.lt.u32 %p2, %r4, %r9; @%p2 bra L;"
        ))
    };
    assert!(pairs("and.b32 %r5, %r4, 1;") > 0);
    assert_eq!(pairs("mov.u32 %r5, 0;"), 0, "always the same pair");
    assert_eq!(pairs("and.b32 %r10, %r4, 1; shl.b32 %r5, %r10, 7;"), 0, "one buffer or the other");
    // Behind a loop that ends where it begins, what was stored in it.
    let cleared = "mov.u32 %r4, %r1; H: setp.ge.s32 %p2, %r4, %r9; @%p2 bra E; mul.wide.s32 %rd4, %r4, 4; add.s64 %rd5, %rd1, %rd4;
        st.global.u32 [%rd5], 0; add.s32 %r4, %r4, 32; bra H; E: ld.global.u32 %r5, [%rd3]; mul.wide.s32 %rd6, %r5, 4;
        add.s64 %rd7, %rd1, %rd6; red.global.add.u32 [%rd7], 1;";
    assert_eq!(kernel(cleared), 1);
}

#[test]
fn addresses_of_whatever_numbers_end_in_no_fault() {
    let numbers = ["-9223372036854775808", "9223372036854775807", "4611686018427387904", "-1"];
    for (a, b) in numbers.iter().flat_map(|a| numbers.iter().map(move |b| (a, b))) {
        kernel(&format!(
            "mul.lo.s64 %rd4, %rd2, {a}; add.s64 %rd5, %rd4, {b}; and.b64 %rd6, %rd5, {a}; add.s64 %rd6, %rd6, %rd4;
             cvt.u64.u32 %rd7, %r2; mad.lo.s64 %rd8, %rd7, {a}, %rd1; add.s64 %rd10, %rd8, {b};
             L: st.global.u32 [%rd4], %r1; ld.global.u32 %r3, [%rd5]; st.global.u32 [%rd6], %r1; st.global.u32 [%rd8], %r1;
             ld.global.u32 %r3, [%rd10]; mad.lo.s64 %rd4, %rd4, {b}, {a}; setp.ne.u32 %p2, %r3, 0; @%p2 bra L;"
        ));
    }
}

#[test]
fn adding_to_something_gives_lanes_no_order() {
    let add = "red.global.add.u32 [%rd9], 1;";
    assert_eq!(kernel(&format!("st.global.u32 [%rd2], %r1; {add} ld.global.u32 %r3, [%rd2+4];")), 1);
    // A table is squeezed in place: all have read before one of them stores.
    let squeeze = |between: &str| {
        kernel(&format!(
            "mov.u32 %r3, s; shl.b32 %r4, %r1, 2; add.u32 %r5, %r4, %r3; ld.shared.u32 %r10, [%r5]; {between}
             shl.b32 %r7, %r6, 2; add.u32 %r8, %r7, %r3; st.shared.u32 [%r8], %r10;"
        ))
    };
    assert_eq!(squeeze("atom.global.add.u32 %r6, [%rd9], 1;"), 1);
    assert_eq!(squeeze("atom.global.add.u32 %r6, [%rd9], 1; bar.sync 0;"), 0);
    assert_eq!(squeeze("atom.global.cas.b32 %r6, [%rd9], 0, 1;"), 0);
}

#[test]
fn all_have_read_before_elements_are_turned_round() {
    let turned = |between: &str| {
        kernel(&format!(
            "mov.u32 %r3, s; mad.lo.u32 %r4, %r1, 4, %r3; sub.u32 %r5, 31, %r1; mad.lo.u32 %r6, %r5, 4, %r3; ld.shared.u32 %r7, [%r6]; {between}
             st.shared.u32 [%r4], %r7;"
        ))
    };
    assert_eq!(turned(""), 1);
    assert_eq!(turned("bar.warp.sync -1;"), 0);
}

#[test]
fn a_distance_that_is_halved_leads_to_other_rows_and_one_in_the_row_does_not() {
    let sum = |lanes: u32, distance: u32| {
        kernel(&format!(
            "mov.u32 %r3, s; mad.lo.u32 %r4, %r1, {lanes}, %r3; mov.u32 %r5, 16; L: mad.lo.u32 %r6, %r5, {distance}, %r4; ld.shared.u32 %r7, [%r6];
             ld.shared.u32 %r8, [%r4]; add.u32 %r10, %r8, %r7; st.shared.u32 [%r4], %r10; shr.u32 %r5, %r5, 1; setp.ne.u32 %p2, %r5, 0; @%p2 bra L;"
        ))
    };
    for row in [1, 4, 8] {
        assert!(sum(4 * row, 4 * row) > 0, "rows of {row}");
    }
    assert_eq!(sum(64, 4), 0, "elements of the lane's own row");
}

#[test]
fn a_fraction_of_a_given_number_is_a_distance_and_the_number_itself_leads_to_another_array() {
    // `s[t] += s[t + distance]` behind a store of all elements.
    let step = |distance: &str, between: &str| {
        kernel(&format!(
            "mov.u32 %r3, s; shl.b32 %r4, %r1, 2; add.u32 %r5, %r3, %r4; st.shared.u32 [%r5], %r9; {distance} shl.b32 %r7, %r6, 2; add.u32 %r8, %r5, %r7; {between}
             ld.shared.u32 %r10, [%r8]; st.global.u32 [%rd2], %r10;"
        ))
    };
    for half in [
        "mov.u32 %r11, %ntid.x; shr.u32 %r6, %r11, 1;",
        "div.u32 %r6, %r9, 3;",
        "shr.u32 %r11, %r9, 1; min.u32 %r6, %r11, 32;",
        "ld.global.u32 %r11, [%rd9]; shr.u32 %r6, %r11, 2;",
        // Laid out, the first distance is the number.
        "mov.u32 %r6, %r9; shr.u32 %r11, %r9, 1; shr.u32 %r12, %r9, 2; add.u32 %r13, %r11, %r12; st.global.u32 [%rd2], %r13;",
    ] {
        assert_eq!(step(half, ""), 1, "{half}");
        assert_eq!(step(half, "bar.warp.sync -1;"), 0, "{half}");
    }
    for whole in [
        "mov.u32 %r6, %ntid.x;",
        "mov.u32 %r6, %r9;",
        "mul.lo.u32 %r6, %r9, 3;",
        "ld.global.u32 %r6, [%rd9];",
    ] {
        assert_eq!(step(whole, ""), 0, "{whole}");
    }
}

#[test]
fn so_many_rows_on_are_other_lanes_elements_where_a_warp_has_several() {
    let below = |row: &str, distance: &str| {
        kernel(&format!(
            "mov.u32 %r3, s; mov.u32 %r4, %ntid.x; mad.lo.u32 %r5, {row}, %r4, %r1; shl.b32 %r6, %r5, 2; add.u32 %r7, %r6, %r3; st.shared.u32 [%r7], %r9;
             mul.lo.u32 %r8, {distance}; shl.b32 %r10, %r8, 2; add.u32 %r11, %r10, %r7; ld.shared.u32 %r12, [%r11]; st.global.u32 [%rd2], %r12;"
        ))
    };
    assert_eq!(below("%tid.y", "%r4, 1"), 1);
    assert_eq!(below("%tid.y", "%r4, 2"), 1);
    assert_eq!(below("%tid.y", "%r4, %r9"), 1);
    assert_eq!(below("%ctaid.y", "%r4, 1"), 0, "one row for all threads");
    assert_eq!(below("%tid.y", "%r9, 3"), 0, "another array");
}

#[test]
fn a_lanes_number_times_what_is_doubled_is_another_lanes_in_the_next_turn() {
    // `s[2 * d * t] += s[2 * d * t + d]`
    let sums = |step: &str| {
        kernel(&format!(
            "mov.u32 %r3, s; mov.u32 %r4, 1; L: shl.b32 %r5, %r4, 1; mul.lo.u32 %r6, %r5, %r1; add.u32 %r7, %r6, %r4; shl.b32 %r8, %r7, 2; add.u32 %r10, %r8, %r3;
             shl.b32 %r11, %r6, 2; add.u32 %r12, %r11, %r3; ld.shared.u32 %r13, [%r12]; ld.shared.u32 %r14, [%r10]; add.u32 %r15, %r13, %r14; st.shared.u32 [%r12], %r15;
             {step} setp.lt.u32 %p2, %r4, 64; @%p2 bra L;"
        ))
    };
    // Before its own element, before the other one, and behind both.
    assert_eq!(sums("mov.u32 %r4, %r5;"), 2);
}

#[test]
fn all_have_looked_before_one_acts_for_several() {
    // Ranks among equal digits: who has the digit looks at its counter, and the first of them raises it.
    let rank = |who: &str, change: &str| {
        kernel(&format!(
            "ld.global.u32 %r10, [%rd3]; {who} shl.b32 %r11, %r10, 2; mov.u32 %r4, s; add.u32 %r3, %r11, %r4; ld.shared.u32 %r6, [%r3];
             and.b32 %r8, %r5, 1; setp.eq.u32 %p2, %r8, 0; add.u32 %r12, %r6, %r5; @%p2 {change} st.global.u32 [%rd2], %r6;"
        ))
    };
    let asked = "match.any.sync.b32 %r5, %r10, -1;";
    assert_eq!(rank(asked, "st.shared.u32 [%r3], %r12;"), 1);
    assert_eq!(rank(asked, "red.shared.add.u32 [%r3], %r5;"), 1);
    assert_eq!(rank("mov.u32 %r5, %r10;", "st.shared.u32 [%r3], %r12;"), 0, "nobody asks");
}

#[test]
fn what_lanes_have_counted_is_there_when_they_read_it() {
    let count = |what: &str, between: &str| {
        kernel(&format!(
            "ld.global.u32 %r10, [%rd3]; shl.b32 %r11, %r10, 2; mov.u32 %r4, s; add.u32 %r3, %r11, %r4; {what} {between}
             shl.b32 %r5, %r2, 2; add.u32 %r8, %r5, %r4; ld.shared.u32 %r6, [%r8]; st.global.u32 [%rd2], %r6;"
        ))
    };
    for what in ["red.shared.add.u32 [%r3], 1;", "atom.shared.exch.b32 %r7, [%r3], 1;"] {
        assert_eq!(count(what, ""), 1, "{what}");
        assert_eq!(count(what, "bar.warp.sync -1;"), 0, "{what}");
    }
    // At places that random numbers of their own tell.
    let random = |how: &str| {
        count(
            &format!(
                "{how} shr.u32 %r13, %r12, 24; shl.b32 %r14, %r13, 2; add.u32 %r15, %r14, %r4; red.shared.add.u32 [%r15], 1;"
            ),
            "",
        )
    };
    assert_eq!(random("mad.lo.u32 %r12, %r1, 1664525, 1013904223;"), 1);
    assert_eq!(random("shl.b32 %r12, %r1, 2;"), 0, "one place for a warp");
}

#[test]
fn elements_beside_are_read_before_others_are_renewed() {
    let step = |to: &str, between: &str| {
        yields(&format!(
            "mov.u32 %r3, s; shl.b32 %r8, %r1, 2; add.u32 %r4, %r8, %r3; bar.sync 0; setp.gt.u32 %p2, %r1, 0;
             add.u32 %r10, %r1, -17; selp.b32 %r11, %r10, %r1, %p2; shl.b32 %r12, %r11, 2; add.u32 %r5, %r12, %r3;
             ld.shared.u32 %r6, [%r5]; {between} st.shared.u32 [{to}], %r6;"
        ))
    };
    assert_eq!(step("%r4", ""), 1);
    assert_eq!(step("%r4", "bar.sync 0;"), 0);
    assert_eq!(step("%r5", ""), 0, "what the thread has read itself");
    assert_eq!(step("s", ""), 0, "one place for all");
}

#[test]
fn elements_that_all_warps_have_are_read_before_one_warp_renews_them() {
    let renews = |number: &str, condition: &str| {
        yields(&format!(
            "mov.u32 %r3, s; {number} shl.b32 %r8, %r5, 2; add.u32 %r4, %r8, %r3; bar.sync 0; ld.shared.u32 %r6, [%r4]; ld.shared.u32 %r7, [%r4+128];
             {condition} @%p2 bra M; add.u32 %r10, %r6, %r7; st.shared.u32 [%r4], %r10; M:"
        ))
    };
    let lane = "and.b32 %r5, %r1, 31;";
    assert_eq!(renews(lane, "shr.u32 %r11, %r1, 5; setp.ne.u32 %p2, %r11, 0;"), 1);
    assert_eq!(renews("mov.u32 %r5, %r1;", "mov.u32 %r11, %tid.y; setp.ne.u32 %p2, %r11, 0;"), 1);
    assert_eq!(renews("mov.u32 %r5, %r1;", "setp.ge.u32 %p2, %r1, %r9;"), 0, "each thread's own");
    assert_eq!(renews(lane, "setp.ne.u32 %p2, %r9, 0;"), 0, "all warps or none");
}

#[test]
fn what_no_other_lane_has_stored_is_not_waited_for() {
    let element = "mov.u32 %r3, s; shl.b32 %r8, %r1, 2; add.u32 %r4, %r8, %r3;";
    // The border of a tile: `s[t + 1] = t; if (t == at) s[place] = n`
    let one = |at: u32, place: u32| {
        let border = format!("setp.ne.u32 %p2, %r1, {at}; @%p2 bra M; st.shared.u32 [s+{place}], %r9; M:");
        kernel(&format!("{element} st.shared.u32 [%r4+4], %r1; {border}"))
    };
    assert_eq!(one(0, 0), 0);
    assert_eq!(one(15, 4 * 17), 0);
    assert_eq!(one(0, 4 * 5), 1, "another lane's element");
    // `s[t + 4] = t; if (t < below) s[t] = n`
    let some = |below: u32| {
        let border = format!("setp.ge.u32 %p2, %r1, {below}; @%p2 bra M; st.shared.u32 [%r4], %r9; M:");
        kernel(&format!("{element} st.shared.u32 [%r4+16], %r1; {border}"))
    };
    assert_eq!(some(4), 0);
    assert_eq!(some(8), 1);
    // The last ones of a row of 16: `s[t + 2] = t; if (t >= from) s[t + 4] = n`
    let last = |condition: &str| {
        kernel(&format!(
            "{element} st.shared.u32 [%r4+8], %r1; setp.{condition}; @%p2 bra M; st.shared.u32 [%r4+16], %r9; M:"
        ))
    };
    assert_eq!(last("lt.u32 %p2, %r1, 14"), 0);
    assert_eq!(last("le.u32 %p2, %r1, 13"), 0);
    assert_eq!(last("ge.u32 %p2, %r1, 14"), 1, "the first ones");
    assert_eq!(last("lt.u32 %p2, %r1, 4"), 1);
    // A sum in a tree: `if (t < below) s[t] += s[t + 16]`
    let tree = |below: u32| {
        kernel(&format!(
            "{element} bar.sync 0; setp.gt.u32 %p2, %r1, {}; @%p2 bra M; ld.shared.u32 %r5, [%r4]; ld.shared.u32 %r6, [%r4+64];
             add.u32 %r7, %r5, %r6; st.shared.u32 [%r4], %r7; M:",
            below - 1
        ))
    };
    assert_eq!(tree(16), 0);
    assert_eq!(tree(32), 1);
}

#[test]
fn elements_of_threads_that_are_computed_are_read_before_all_are_renewed() {
    // `v = s[f(t)]; s[t] = v`
    let renews = |other: &str, own: &str, between: &str| {
        yields(&format!(
            "mov.u32 %r3, s; mov.u32 %r14, %tid.y; bar.sync 0; {other} shl.b32 %r8, %r5, 2; add.u32 %r4, %r8, %r3; ld.shared.u32 %r6, [%r4];
             {own} shl.b32 %r10, %r7, 2; add.u32 %r11, %r10, %r3; {between} st.shared.u32 [%r11], %r6;"
        ))
    };
    let (ring, number) = ("add.u32 %r12, %r1, 1; rem.u32 %r5, %r12, %r9;", "mov.u32 %r7, %r1;");
    assert_eq!(renews(ring, number, ""), 1);
    assert_eq!(renews(ring, number, "bar.sync 0;"), 0);
    assert_eq!(renews("xor.b32 %r5, %r1, 40;", number, ""), 1);
    let in_bytes = "shl.b32 %r12, %r1, 2; sub.u32 %r13, %r12, %r9; and.b32 %r15, %r13, 252; add.u32 %r16, %r15, %r3; ld.shared.u32 %r17, [%r16]; mov.u32 %r5, %r1;";
    assert_eq!(renews(in_bytes, number, ""), 1);
    assert_eq!(renews(ring, "add.u32 %r7, %r1, 64;", ""), 0, "another array");
    assert_eq!(
        renews(ring, number, "setp.lt.u32 %p2, %r1, %r9; @%p2"),
        0,
        "some may be what others do not read"
    );
    let tile = |x: &str, y: &str, result: &str| format!("mad.lo.u32 {result}, {x}, 16, {y};");
    let [across, own] = [("%r1", "%r14", "%r5"), ("%r14", "%r1", "%r7")].map(|(x, y, to)| tile(x, y, to));
    assert_eq!(renews(&across, &own, ""), 1);
    assert_eq!(renews(&tile("%r14", "%r1", "%r5"), &own, ""), 0);
}

#[test]
fn elements_at_a_doubled_distance_are_read_before_others_are_renewed() {
    // `if (t >= d) s[t] += s[t - d]`, where the condition and the element may be others.
    let turn = |condition: &str, other: &str, between: &str| {
        yields(&format!(
            "mov.u32 %r3, s; shl.b32 %r8, %r1, 2; add.u32 %r4, %r8, %r3; mov.u32 %r5, 1;
             L: bar.sync 0; {condition} @%p2 bra M; {other}.u32 %r6, %r1, %r5; shl.b32 %r10, %r6, 2; add.u32 %r11, %r10, %r3;
             ld.shared.u32 %r12, [%r4]; ld.shared.u32 %r13, [%r11]; add.u32 %r14, %r12, %r13; {between} st.shared.u32 [%r4], %r14;
             M: shl.b32 %r5, %r5, 1; setp.lt.u32 %p3, %r5, %r9; @%p3 bra L;"
        ))
    };
    let below = "setp.lt.u32 %p2, %r1, %r5;";
    assert_eq!(turn(below, "sub", ""), 1);
    assert_eq!(turn(below, "sub", "bar.sync 0;"), 0);
    assert_eq!(turn("add.u32 %r7, %r1, %r5; setp.ge.u32 %p2, %r7, %r9;", "add", ""), 1, "from the other end");
    let both = "setp.lt.u32 %p5, %r1, %r5; setp.ge.u32 %p4, %r1, %r9; or.pred %p2, %p5, %p4;";
    assert_eq!(turn(both, "sub", ""), 1);
    assert_eq!(turn("setp.ge.u32 %p2, %r1, %r5;", "add", ""), 0, "a tree");
    assert_eq!(turn("setp.lt.u32 %p2, %r1, 60;", "sub", ""), 0);
    assert_eq!(turn("setp.lt.u32 %p2, %r9, 60;", "sub", ""), 1, "all threads");
    // A turn of a loop that is unrolled.
    let unrolled = |condition: &str, other: i32| {
        yields(&format!(
            "mov.u32 %r3, s; shl.b32 %r8, %r1, 2; add.u32 %r4, %r8, %r3; bar.sync 0; setp.{condition}; @%p2 bra M;
             ld.shared.u32 %r12, [%r4]; ld.shared.u32 %r13, [%r4+{other}]; add.u32 %r14, %r12, %r13; st.shared.u32 [%r4], %r14; M:"
        ))
    };
    assert_eq!(unrolled("lt.u32 %p2, %r1, 64", -256), 1);
    assert_eq!(unrolled("gt.u32 %p2, 64, %r1", -256), 1);
    assert_eq!(unrolled("le.u32 %p2, %r1, 63", -256), 1);
    assert_eq!(unrolled("eq.u32 %p2, %r1, 0", -4), 1);
    assert_eq!(unrolled("ne.u32 %p2, %r1, 0", -4), 0);
    assert_eq!(unrolled("lt.u32 %p2, %r1, 32", -256), 0);
    assert_eq!(unrolled("gt.u32 %p2, %r1, 63", 256), 0, "a tree");
    assert_eq!(unrolled("gt.u32 %p2, %r1, 63", -256), 0, "those that do not store are read");
}

#[test]
fn variables_on_the_stack_are_not_counted() {
    // As built for a debugger: every variable is in memory, and nothing says in which.
    let debugged = |stack: &str| {
        let variable = format!("st.u32 [{stack}+4], %r1; ld.u32 %r7, [{stack}+4];").repeat(800);
        let body = format!(
            "mov.u32 %r3, s; shl.b32 %r8, %r1, 2; add.u32 %r4, %r8, %r3; xor.b32 %r11, %r8, 16; add.u32 %r5, %r11, %r3; {variable}
             st.shared.u32 [%r4], %r1; ld.shared.u32 %r6, [%r5]; st.global.u32 [%rd2], %r6;"
        );
        let stack = ".local .align 8 .b8 depot[16]; mov.u64 %rd4, depot; cvta.local.u64 %rd5, %rd4; add.u64 %rd6, %rd5, 8;";
        waits(&text_of(&body).replace("ld.param.u64 %rd1, [a];", &format!("{stack} ld.param.u64 %rd1, [a];")))
            [0]
        .1
    };
    assert_eq!(debugged("%rd5"), 1);
    assert_eq!(debugged("%rd6"), 1);
    assert_eq!(debugged("%rd9"), 0, "too many accesses to memory of all");
}

#[test]
fn two_variables_that_take_turns_are_one() {
    let step = |first: &str, swap: &str| {
        kernel(&format!(
            ".shared .align 4 .b8 q[256]; shl.b32 %r8, %r1, 2; xor.b32 %r11, %r8, 16; mov.u32 %r3, s; mov.u32 %r4, {first}; mov.u32 %r5, 0;
             L: add.u32 %r6, %r3, %r11; ld.shared.u32 %r7, [%r6]; add.u32 %r10, %r4, %r8; st.shared.u32 [%r10], %r7;
             {swap} add.u32 %r5, %r5, 1; setp.lt.u32 %p2, %r5, %r9; @%p2 bra L;"
        ))
    };
    let swap = "mov.u32 %r12, %r3; mov.u32 %r3, %r4; mov.u32 %r4, %r12;";
    assert!(step("q", swap) > 0);
    assert_eq!(step("q", ""), 0, "two arrays for good");
    assert_eq!(step("q", &format!("{swap} bar.warp.sync -1;")), 0);
    assert!(step("q", "selp.b32 %r3, %r4, %r3, %p1;") > 0);
}

#[test]
fn lanes_of_one_warp_may_be_in_several_rows_of_a_block() {
    let row = |row: &str, load: &str| {
        kernel(&format!(
            "mov.u32 %r3, s; mov.u32 %r4, {row}; shl.b32 %r5, %r1, 2; add.u32 %r6, %r5, %r3; shl.b32 %r7, %r4, 5; add.u32 %r8, %r6, %r7;
             {load} shl.b32 %r12, %r11, 5; add.u32 %r13, %r6, %r12; st.shared.u32 [%r8], %r1; ld.shared.u32 %r14, [%r13]; st.global.u32 [%rd2], %r14;"
        ))
    };
    let next = "add.u32 %r10, %r4, 1; and.b32 %r11, %r10, 3;";
    assert_eq!(row("%tid.y", next), 1);
    assert_eq!(row("%tid.z", next), 1);
    assert_eq!(row("%ctaid.y", next), 0, "one for all threads");
    assert_eq!(row("%tid.y", "mov.u32 %r11, %r4;"), 0, "its own element");
    // Rows and columns change places.
    let turned = |first: &str, then: &str| {
        kernel(&format!(
            "mov.u32 %r3, s; mov.u32 %r4, %tid.y; shl.b32 %r5, %r1, 2; shl.b32 %r6, %r4, 5; add.u32 %r7, %r5, %r6; add.u32 %r8, %r7, %r3;
             shl.b32 %r10, %r1, 4; shl.b32 %r11, %r4, 2; add.u32 %r12, %r10, %r11; add.u32 %r13, %r12, %r3;
             st.shared.u32 [{first}], %r1; ld.shared.u32 %r14, [{then}]; st.global.u32 [%rd2], %r14;"
        ))
    };
    assert_eq!((turned("%r13", "%r8"), turned("%r8", "%r13"), turned("%r8", "%r8")), (1, 1, 0));
    // All have been cleared before.
    assert_eq!(turned("%r8], 0; st.shared.u32 [%r13", "%r8"), 2);
}

#[test]
fn numbers_that_are_given_turn_a_row() {
    // The element that lies so far to the right in the warp's, which begin at a given place.
    let turned = |remainder: &str| {
        kernel(&format!(
            "mov.u32 %r3, s; add.u32 %r4, %r1, %r9; shl.b32 %r5, %r4, 2; add.u32 %r6, %r3, %r5; ld.param.u32 %r7, [b]; add.u32 %r8, %r1, %r7;
             {remainder} add.u32 %r14, %r13, %r9; shl.b32 %r15, %r14, 2; add.u32 %r16, %r3, %r15;
             st.shared.u32 [%r6], %r1; ld.shared.u32 %r17, [%r16]; st.global.u32 [%rd2], %r17;"
        ))
    };
    let signed = |number: &str| {
        format!(
            "shr.s32 %r10, {number}, 31; shr.u32 %r11, %r10, 27; add.s32 %r12, {number}, %r11; and.b32 %r18, %r12, 1073741792;
             sub.s32 %r13, {number}, %r18;"
        )
    };
    assert_eq!(turned("and.b32 %r13, %r8, 31;"), 1);
    assert_eq!(turned(&signed("%r8")), 1);
    assert_eq!(turned(&signed("%r1")), 0, "its own element");
    assert_eq!(turned("add.u32 %r13, %r1, 0;"), 0, "its own element");
    assert_eq!(turned("brev.b32 %r12, %r1; shr.u32 %r13, %r12, 27;"), 1);
}

#[test]
fn pointers_in_local_memory_lead_to_shared_memory() {
    // The pointer is loaded anew for each access.
    let through = |stores: &str, load: &str| {
        let again = load.replace("%rd10", "%rd16").replace("%rd15", "%rd17");
        let body = format!(
            ".local .align 8 .b8 depot[64]; mov.u64 %rd4, depot; cvta.local.u64 %rd5, %rd4; mov.u32 %r3, s; cvt.u64.u32 %rd6, %r3;
             cvta.shared.u64 %rd7, %rd6; {stores} {load} add.s64 %rd11, %rd10, %rd18; add.u32 %r4, %r1, 1; and.b32 %r5, %r4, 31;
             mul.wide.u32 %rd12, %r5, 4; {again} add.s64 %rd13, %rd16, %rd12;"
        );
        let access = |kind: &str| {
            kernel(&format!(
                "{body} st{kind}.u32 [%rd11], %r1; ld{kind}.u32 %r6, [%rd13]; st.global.u32 [%rd2], %r6;"
            ))
        };
        (access(""), access(".volatile"))
    };
    let one = "st.local.u64 [%rd4+8], %rd7;";
    assert_eq!(through(one, "ld.u64 %rd10, [%rd5+8];"), (1, 1));
    // The pointer is a member of an object, and that one's address is kept as well.
    let object = format!("{one} add.u64 %rd14, %rd5, 8; st.u64 [%rd5+16], %rd14;");
    assert_eq!(through(&object, "ld.u64 %rd15, [%rd5+16]; ld.u64 %rd10, [%rd15];"), (1, 1));
    // One or another.
    let chosen = format!("{one} @%p1 st.local.u64 [%rd4+8], %rd7;");
    assert_eq!(through(&chosen, "ld.u64 %rd10, [%rd5+8];"), (1, 1));
    // Behind an array of numbers.
    let numbers = "mul.wide.u32 %rd14, %r9, 8; add.s64 %rd15, %rd5, %rd14; st.u64 [%rd15], %rd14;";
    assert_eq!(through(&format!("{one} {numbers}"), "ld.u64 %rd10, [%rd5+8];"), (1, 1));
    // An element of an array, which may be any.
    let any = "mul.wide.u32 %rd14, %r9, 8; add.s64 %rd15, %rd5, %rd14; st.u64 [%rd15], %rd1;";
    assert_eq!(through(&format!("{one} {any}"), "ld.u64 %rd10, [%rd5+8];"), (0, 0));
    assert_eq!(through("st.local.u32 [%rd4+8], %r1;", "ld.u64 %rd10, [%rd5+8];"), (0, 0), "of other bytes");
}

#[test]
fn a_pointer_to_one_array_or_another_is_one() {
    let chosen = |second: &str| {
        kernel(&format!(
            ".shared .align 4 .b8 q[256]; mov.u32 %r3, s; add.u32 %r4, %r3, %r9; {second} mov.u32 %r6, %r4; @%p1 mov.u32 %r6, %r5;
             shl.b32 %r7, %r1, 2; add.u32 %r8, %r6, %r7; add.u32 %r10, %r1, 1; and.b32 %r11, %r10, 31; shl.b32 %r12, %r11, 2; add.u32 %r13, %r6, %r12;
             st.u32 [%r8], %r1; ld.u32 %r14, [%r13]; st.global.u32 [%rd2], %r14;"
        ))
    };
    assert_eq!(chosen("mov.u32 %r15, q; add.u32 %r5, %r15, %r9;"), 1);
    assert_eq!(chosen("ld.global.u32 %r5, [%rd3];"), 1);
    assert_eq!(chosen("mul.lo.u32 %r5, %r9, %r9;"), 0, "no address");
}

#[test]
fn a_block_is_done_when_all_its_threads_are() {
    let done = |before: &str, between: &str, raise: &str| {
        yields(&format!("{before} {between} setp.ne.u32 %p2, %r1, 0; @%p2 bra END; {raise} END:"))
    };
    let (store, raise) = ("st.global.u32 [%rd2], %r2;", "atom.global.inc.u32 %r3, [%rd9], %r9;");
    assert_eq!(done(store, "", raise), 1);
    assert_eq!(done("@%p1 red.global.add.u32 [%rd1], %r2;", "membar.gl;", raise), 1);
    assert_eq!(done(store, "bar.warp.sync -1;", raise), 1, "other warps may be behind");
    assert_eq!(done(store, "bar.sync 0;", raise), 0);
    assert_eq!(done("", "", &format!("{store} {raise}")), 0, "what that thread has stored itself");
    assert_eq!(done(store, "", "atom.global.add.u32 %r3, [%rd9], 1;"), 0, "any number");
    assert_eq!(done(store, "", "atom.global.inc.u32 %r3, [%rd3], %r9;"), 0, "one of each thread");
    assert_eq!(yields(&format!("{store} {raise}")), 0, "all threads raise it");
    assert_eq!(yields(&format!("{store} setp.eq.u32 %p2, %r1, 0; @%p2 {raise}")), 1);
}

#[test]
fn one_lanes_element_is_among_all_of_them() {
    let one = |number: &str| {
        kernel(&format!(
            "mov.u32 %r3, s; shl.b32 %r4, %r1, 2; add.u32 %r5, %r3, %r4; {number} add.u32 %r7, %r3, %r6;
             st.shared.u32 [%r5], %r1; ld.shared.u32 %r8, [%r7]; st.global.u32 [%rd2], %r8;"
        ))
    };
    assert_eq!(one("shl.b32 %r6, %r9, 2;"), 1);
    assert_eq!(one("shl.b32 %r6, %r9, 5;"), 0, "another part");
    assert_eq!(one("shl.b32 %r10, %r9, 2; add.u32 %r6, %r10, 128;"), 0, "another part");
}

#[test]
fn what_a_warp_accesses_as_one_comes_between_what_its_lanes_do() {
    let registers = "shl.b32 %r3, %r1, 2; mov.u32 %r4, s; add.u32 %r5, %r4, %r3; mul.lo.u32 %r6, %r2, 16; add.u32 %r7, %r4, %r6;";
    let body = |text: &str| kernel(&format!("{registers} {text}"));
    let (store, load) = ("st.shared.u32 [%r5], %r1;", "ld.shared.u32 %r8, [%r7]; st.global.u32 [%rd2], %r8;");
    let rows = "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r9}, [%r7]; st.global.u32 [%rd2], %r9;";
    assert_eq!(body(&format!("{store} {rows}")), 1);
    assert_eq!(body(&format!("{store} bar.warp.sync -1; {rows}")), 0);
    assert_eq!(body(&format!("{store} {rows} {rows}")), 1, "they have met");
    assert_eq!(body(rows), 0);
    assert_eq!(body(&format!("L: {rows} {store} setp.lt.u32 %p2, %r9, 5; @%p2 bra L;")), 1);
    assert_eq!(body(&format!("L: {rows} {store} bar.sync 0; setp.lt.u32 %p2, %r9, 5; @%p2 bra L;")), 0);
    let put = "stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r7], {%r1};";
    assert_eq!(body(&format!("{put} {load}")), 1);
    assert_eq!(body(&format!("{put} {put} {load}")), 1, "behind the last one");
    assert_eq!(body(&format!("{put} bar.sync 0; {load}")), 0);
    assert_eq!(body(put), 0);
    let all = "{%r10, %r11, %r12, %r13, %r14, %r15, %r16, %r17}";
    let get = format!("wmma.load.c.sync.aligned.row.m16n16k16.shared.f32 {all}, [%r4];");
    let put = format!("wmma.store.d.sync.aligned.row.m16n16k16.shared.f32 [%r4], {all};");
    assert_eq!(body(&format!("{put} {load}")), 1);
    assert_eq!(body(&format!("{store} {get} st.global.u32 [%rd2], %r10;")), 1);
    assert_eq!(body(&format!("{get} {put}")), 1, "all have loaded");
    assert_eq!(body(&format!("{get} bar.warp.sync -1; {put}")), 0);
    assert_eq!(body(&format!("{load} {put}")), 1);
    let elsewhere = put.replace(".shared", ".global").replace("[%r4]", "[%rd9]");
    assert_eq!(body(&format!("{elsewhere} {load}")), 0, "other memory");
}

#[test]
fn copies_in_the_background_are_a_lanes_stores() {
    let copy = |text: &str| {
        kernel(&format!(
            "shl.b32 %r3, %r2, 4; mov.u32 %r4, s; add.u32 %r5, %r4, %r3; shl.b32 %r6, %r2, 2; add.u32 %r7, %r4, %r6;
             cp.async.cg.shared.global [%r5], [%rd1], 16; cp.async.commit_group; {text}"
        ))
    };
    let waits = "cp.async.wait_group 0;";
    let others = "ld.shared.u32 %r8, [%r7+128]; st.global.u32 [%rd2], %r8;";
    assert_eq!(copy(&format!("{waits} {others}")), 1);
    assert_eq!(copy(&format!("{waits} bar.warp.sync -1; {others}")), 0);
    assert_eq!(
        copy(&format!("{waits} ld.shared.u32 %r8, [%r5+4]; st.global.u32 [%rd2], %r8;")),
        0,
        "its own"
    );
    let rows = "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r9}, [%r5]; st.global.u32 [%rd2], %r9;";
    assert_eq!(copy(&format!("{waits} {rows}")), 1);
    assert_eq!(copy(rows), 0, "what is not waited for is for another turn");
}

#[test]
fn data_lead_a_lane_to_anothers_element_but_not_out_of_its_column() {
    let led = |factor: &str, lane: &str| {
        kernel(&format!(
            "mov.u32 %r3, s; {lane} add.u32 %r5, %r3, %r4; ld.global.u32 %r6, [%rd3]; {factor} add.u32 %r8, %r5, %r7;
             st.shared.u32 [%r5], %r1; ld.shared.u32 %r9, [%r8]; st.global.u32 [%rd2], %r9;"
        ))
    };
    let by_four = "shl.b32 %r4, %r2, 2;";
    assert_eq!(led("shl.b32 %r7, %r6, 2;", by_four), 1);
    assert_eq!(led("popc.b32 %r10, %r6; shl.b32 %r7, %r10, 2;", by_four), 1);
    assert_eq!(led("shl.b32 %r7, %r6, 7;", by_four), 0, "a row of the lane's column");
    assert_eq!(led("and.b32 %r10, %r6, 1; shl.b32 %r7, %r10, 1;", by_four), 0, "a part of the element");
    assert_eq!(led("shl.b32 %r7, %r6, 2;", "shl.b32 %r4, %r2, 5;"), 0, "one of the lane's own elements");
}

#[test]
fn elements_for_all_are_read_before_others_are_renewed() {
    let store = "st.global.u32 [%rd2], %r4;";
    // The scan of Kogge and Stone in memory of all blocks; without a barrier it is a warp's, whose lanes wait for each other.
    let scan = |barrier: &str| {
        yields(&format!(
            "mov.u32 %r5, 1; L: {barrier} setp.lt.s32 %p2, %r1, %r5; @%p2 bra M; sub.s32 %r6, %r1, %r5; mul.wide.s32 %rd4, %r6, 4; add.s64 %rd5, %rd1, %rd4;
             ld.global.u32 %r4, [%rd5]; ld.global.u32 %r7, [%rd2]; add.u32 %r4, %r4, %r7; {store}
             M: shl.b32 %r5, %r5, 1; setp.lt.s32 %p3, %r5, %r9; @%p3 bra L;"
        ))
    };
    assert_eq!((scan("bar.sync 0;"), scan("")), (1, 0));
    // Led there by numbers, from back to front, and all by the first of the row or another one.
    let gather = "ld.global.u32 %r5, [%rd3]; mul.wide.s32 %rd4, %r5, 4; add.s64 %rd5, %rd1, %rd4; ld.global.u32 %r4, [%rd5];";
    let back = "not.b32 %r5, %r1; add.s32 %r6, %r9, %r5; mul.wide.s32 %rd4, %r6, 4; add.s64 %rd5, %rd1, %rd4; ld.global.u32 %r4, [%rd5];";
    let first = "ld.global.u32 %r4, [%rd1];";
    let pivot = "mul.wide.s32 %rd4, %r9, 4; add.s64 %rd5, %rd1, %rd4; ld.global.u32 %r4, [%rd5];";
    for read in [gather, back, first, pivot] {
        assert_eq!(yields(&format!("{read} {store}")), 1, "{read}");
        // To another array, or behind a barrier.
        assert_eq!(yields(&format!("{read} st.global.u32 [%rd3], %r4;")), 0, "{read}");
        assert_eq!(yields(&format!("{read} bar.sync 0; {store}")), 0, "{read}");
    }
    // Some of them, as where each changes places with another one; and their own elements.
    for read in [gather, back] {
        assert_eq!(yields(&format!("setp.gt.s32 %p2, %r1, 15; @%p2 bra E; {read} {store} E:")), 0, "{read}");
    }
    assert_eq!(yields(&format!("ld.global.u32 %r4, [%rd2]; {store}")), 0);
    // One reads and stores.
    assert_eq!(yields(&format!("setp.ne.s32 %p2, %r1, 0; @%p2 bra E; {first} {store} E:")), 0);
}

#[test]
fn all_lanes_load_one_element_of_a_row_behind_their_own() {
    let base = "mov.u32 %r10, s; shl.b32 %r11, %r1, 2; add.s32 %r12, %r10, %r11; st.shared.u32 [%r12], %r1;";
    let total = |place: &str| kernel(&format!("{base} {place} st.global.u32 [%rd2], %r4;"));
    // The last one of the warp's, as a compiler has `s[w * 32 + 31]`, with the warp's number, and one that is told.
    assert_eq!(
        total("and.b32 %r13, %r11, -128; add.s32 %r14, %r10, %r13; ld.shared.u32 %r4, [%r14+124];"),
        1
    );
    assert_eq!(
        total("shr.u32 %r15, %r1, 5; mad.lo.u32 %r14, %r15, 128, %r10; ld.shared.u32 %r4, [%r14+124];"),
        1
    );
    assert_eq!(total("mad.lo.u32 %r14, %r9, 4, %r10; ld.shared.u32 %r4, [%r14+-4];"), 1);
    // Another part of the memory, one place of each warp, and behind a wait.
    assert_eq!(
        total("and.b32 %r13, %r11, -128; add.s32 %r14, %r10, %r13; ld.shared.u32 %r4, [%r14+1024];"),
        0
    );
    assert_eq!(
        total("shr.u32 %r15, %r1, 5; mad.lo.u32 %r14, %r15, 4, %r10; ld.shared.u32 %r4, [%r14+1024];"),
        0
    );
    assert_eq!(total("bar.warp.sync -1; mad.lo.u32 %r14, %r9, 4, %r10; ld.shared.u32 %r4, [%r14+-4];"), 0);
}

/// How often a thread of a kernel lets all other blocks go first: `%r10` is its number in the grid, and `%rd5` at its element of the first array.
fn lets_blocks_go_first(body: &str) -> usize {
    let own = "mov.u32 %r11, %ctaid.x; mov.u32 %r12, %ntid.x; mad.lo.s32 %r10, %r11, %r12, %r1; mul.wide.s32 %rd4, %r10, 4; add.s64 %rd5, %rd1, %rd4;";
    inserted(&text_of(&format!("{own}\n{body}")), |op| matches!(op, Op::GridYield { hold: Hold::ToTheEnd }))
        [0]
    .1
}

#[test]
fn one_who_adds_up_what_all_blocks_have_stored_lets_them_go_first() {
    let store = "ld.global.u32 %r4, [%rd5]; shr.u32 %r4, %r4, 1; st.global.u32 [%rd5], %r4; bar.sync 0;";
    let sum = "mov.u64 %rd6, %rd1; mov.u32 %r5, 0; mov.u32 %r6, 0; L: ld.global.u32 %r7, [%rd6]; add.u32 %r6, %r6, %r7; add.s64 %rd6, %rd6, 4;
        add.u32 %r5, %r5, 1; setp.lt.u32 %p3, %r5, %r9; @%p3 bra L; st.global.u32 [%rd9], %r6;";
    let first = "setp.ne.s32 %p2, %r10, 0; @%p2 bra E;";
    assert_eq!(lets_blocks_go_first(&format!("{store} {first} {sum} E:")), 1);
    // All threads of the first block, and both conditions in one.
    assert_eq!(lets_blocks_go_first(&format!("{store} setp.ne.u32 %p2, %r11, 0; @%p2 bra E; {sum} E:")), 1);
    let both = "setp.eq.u32 %p2, %r11, 0; setp.eq.u32 %p4, %r1, 0; and.pred %p5, %p2, %p4; @!%p5 bra E;";
    assert_eq!(lets_blocks_go_first(&format!("{store} {both} {sum} E:")), 1);
    let both = "or.b32 %r13, %r11, %r1; setp.ne.u32 %p2, %r13, 0; @%p2 bra E;";
    assert_eq!(lets_blocks_go_first(&format!("{store} {both} {sum} E:")), 1);
    // All threads do it, or one of each block; another array is read, or nothing was stored before.
    assert_eq!(lets_blocks_go_first(&format!("{store} {sum}")), 0);
    assert_eq!(lets_blocks_go_first(&format!("{store} setp.ne.u32 %p2, %r1, 0; @%p2 bra E; {sum} E:")), 0);
    let other = sum.replace("mov.u64 %rd6, %rd1", "mov.u64 %rd6, %rd9");
    assert_eq!(lets_blocks_go_first(&format!("{store} {first} {other} E:")), 0);
    assert_eq!(lets_blocks_go_first(&format!("{first} {sum} E: {store}")), 0);
    // All blocks store to the same elements.
    let same = store.replace("%rd5", "%rd2");
    assert_eq!(lets_blocks_go_first(&format!("{same} {first} {sum} E:")), 0);
    // The blocks wait for each other.
    let counts = "atom.global.add.u32 %r8, [%rd9], 1; W: ld.volatile.global.u32 %r8, [%rd9]; setp.lt.u32 %p6, %r8, 4; @%p6 bra W;";
    assert_eq!(lets_blocks_go_first(&format!("{store} {counts} {first} {sum} E:")), 0);
    // One of several blocks.
    let some = "and.b32 %r13, %r11, 1; setp.ne.u32 %p2, %r13, 0; @%p2 bra E;";
    assert_eq!(lets_blocks_go_first(&format!("{store} {some} {sum} E:")), 0);
}

/// How often a thread of a kernel lets all other blocks have a turn.
fn turns(body: &str) -> usize {
    inserted(&text_of(body), |op| matches!(op, Op::GridYield { hold: Hold::ForATurn }))[0].1
}

#[test]
fn others_look_at_a_number_that_they_wait_for_before_it_is_raised() {
    let raise = "atom.global.add.u32 %r4, [%rd1], 1;";
    let wait = "W: ld.volatile.global.u32 %r5, [%rd1]; setp.ne.u32 %p2, %r5, %r9; @%p2 bra W;";
    let first = "setp.ne.u32 %p3, %r1, 0; @%p3 bra E;";
    assert_eq!(turns(&format!("bar.sync 0; {first} {raise} {wait} E: bar.sync 0;")), 1);
    // Round and round, without a result, and by some; looked at by adding nothing.
    let red = raise.replace("atom.global.add.u32 %r4,", "@!%p3 red.global.add.u32");
    assert_eq!(
        turns(&format!("L: bar.sync 0; {red} {first} {wait} E: bar.sync 0; add.u32 %r9, %r9, 4; bra L;")),
        1
    );
    let add = wait.replace("ld.volatile.global.u32 %r5, [%rd1]", "atom.global.add.u32 %r5, [%rd1], 0");
    assert_eq!(turns(&format!("{first} {raise} {add} E:")), 1);
    // For a number that is large enough one can come late.
    assert_eq!(turns(&format!("{first} {raise} {} E:", wait.replace("setp.ne", "setp.lt"))), 0);
    // Another number, one that nobody waits for, and one that is raised by who has waited for it: whose turn it is.
    assert_eq!(turns(&format!("{first} {} {wait} E:", raise.replace("%rd1", "%rd9"))), 0);
    assert_eq!(
        turns(&format!("{first} {raise} ld.volatile.global.u32 %r5, [%rd1]; setp.ne.u32 %p2, %r5, %r9; E:")),
        0
    );
    assert_eq!(turns(&format!("{first} atom.global.add.u32 %r9, [%rd9], 1; {wait} {raise} E:")), 0);
    // A lock.
    let lock = "W: atom.global.cas.b32 %r5, [%rd1], 0, 1; setp.ne.u32 %p2, %r5, 0; @%p2 bra W; atom.global.exch.b32 %r5, [%rd1], 0;";
    assert_eq!(turns(&format!("{raise} {lock}")), 0);
}

/// A loop in which threads store to every so many-th element of an array as there are threads in a block.
const FILL: &str =
    "mov.u32 %r8, %ntid.x; mov.u32 %r4, %r1; F: mul.wide.u32 %rd4, %r4, 4; add.s64 %rd5, %rd1, %rd4;
    st.global.u32 [%rd5], %r9; add.u32 %r4, %r4, %r8; setp.lt.u32 %p2, %r4, 999; @%p2 bra F;";

#[test]
fn threads_go_through_what_all_have_filled_when_all_are_through() {
    // Columns of rows that are as long as a parameter says.
    let read = |pointer: &str, step: &str| {
        format!(
            "mov.u32 %r5, %r1; mov.u32 %r6, 0; L: mul.wide.u32 %rd6, %r5, 4; add.s64 %rd7, {pointer}, %rd6; ld.global.u32 %r7, [%rd7];
             add.u32 %r6, %r6, %r7; add.u32 %r5, %r5, {step}; setp.lt.u32 %p3, %r5, 999; @%p3 bra L; st.global.u32 [%rd3], %r6;"
        )
    };
    assert_eq!(yields(&format!("{FILL} {}", read("%rd1", "%r9"))), 1);
    assert_eq!(yields(&format!("{FILL} {}", read("%rd1", "1"))), 1);
    // Elements of its own, once where the loop goes on in larger steps; another array; and behind a barrier.
    assert_eq!(yields(&format!("{FILL} {}", read("%rd1", "%r8"))), 0);
    let unrolled = FILL.replace(
        "add.u32 %r4, %r4, %r8;",
        "mul.wide.u32 %rd10, %r8, 4; add.s64 %rd11, %rd5, %rd10; st.global.u32 [%rd11], %r9; shl.b32 %r11, %r8, 1; add.u32 %r4, %r4, %r11;",
    );
    assert_eq!(yields(&format!("{unrolled} {}", read("%rd1", "%r8"))), 0);
    assert_eq!(yields(&format!("{unrolled} {}", read("%rd1", "1"))), 1);
    assert_eq!(yields(&format!("{FILL} {}", read("%rd9", "%r9"))), 0);
    assert_eq!(yields(&format!("{FILL} bar.sync 0; {}", read("%rd1", "%r9"))), 0);
    // Where both are done in each turn of one loop, a thread deals with its own element there.
    let one = FILL.replace("add.u32 %r4, %r4, %r8", "ld.global.u32 %r7, [%rd1]; add.u32 %r4, %r4, %r8");
    assert_eq!(yields(&one), 0);
}

#[test]
fn one_thread_marks_what_all_have_cleared_when_all_are_through() {
    let mark = |element: &str| {
        format!(
            "{FILL} setp.ne.u32 %p4, %r1, 0; @%p4 bra E; setp.eq.u32 %p5, %r9, 0; @%p5 bra M; st.global.u32 [%rd3], 1;
             M: mul.wide.u32 %rd6, {element}, 4; add.s64 %rd7, %rd1, %rd6; st.global.u32 [%rd7], 1; E: bar.sync 0;"
        )
    };
    assert_eq!(yields(&mark("%r9")), 1);
    assert_eq!(yields(&mark("0")), 0, "its own element");
    assert_eq!(yields(&mark("%r9").replace("%rd7, %rd1", "%rd7, %rd9")), 0, "another array");
    assert_eq!(
        yields(&mark("%r9").replace("setp.ne.u32 %p4, %r1, 0;", "bar.sync 0; setp.ne.u32 %p4, %r1, 0;")),
        0
    );
    assert_eq!(yields(&mark("%r9").replace("@%p4 bra E;", "")), 0, "all do");
}

#[test]
fn a_pipeline_that_runs_dry_is_still_one() {
    // One thread less in each turn takes what its neighbour had.
    let turn = |asked: &str, neighbour: &str| {
        yields(&format!(
            "mov.u32 %r10, s; shl.b32 %r11, %r1, 2; add.s32 %r12, %r10, %r11; mov.u32 %r5, 0;
             L: bar.sync 0; {asked} ld.shared.u32 %r4, [%r12+{neighbour}]; add.u32 %r4, %r4, 1; st.shared.u32 [%r12], %r4;
             M: add.u32 %r5, %r5, 1; setp.lt.u32 %p3, %r5, %r9; @%p3 bra L;"
        ))
    };
    assert_eq!(turn("setp.le.u32 %p2, %r1, %r5; @%p2 bra M;", "-4"), 1);
    assert_eq!(turn("setp.eq.u32 %p2, %r1, 0; @%p2 bra M;", "-4"), 1);
    // What lies behind the last one that does so is not changed.
    assert_eq!(turn("setp.ge.u32 %p2, %r1, %r5; @%p2 bra M;", "4"), 0);
}

#[test]
fn arrays_that_a_kernel_finds_in_constant_memory_are_told_apart() {
    let text = |second: i64| {
        text_of(&format!(
            "ld.const.u64 %rd4, [c+8]; cvta.to.global.u64 %rd8, %rd4; add.s64 %rd5, %rd8, %rd18; st.global.u32 [%rd5], %r1;
             ld.const.u64 %rd6, [c+{second}]; cvta.to.global.u64 %rd10, %rd6; add.s64 %rd7, %rd10, %rd18; ld.global.u32 %r4, [%rd7+4];
             st.global.u32 [%rd3], %r4;"
        ))
        .replace(".visible .entry", ".const .align 8 .b8 c[64];\n.visible .entry")
    };
    assert_eq!(waits(&text(8))[0].1, 1);
    assert_eq!(waits(&text(16))[0].1, 0);
}

#[test]
fn a_networks_lanes_have_two_elements_each() {
    // A step of a sorting network: the element 2 t - (t & (d - 1)), and the one behind it by d.
    let step = |mask: u32, distance: u32| {
        kernel(&format!(
            "mov.u32 %r10, s; shl.b32 %r11, %r1, 1; and.b32 %r12, %r1, {mask}; sub.u32 %r13, %r11, %r12; shl.b32 %r14, %r13, 2; add.s32 %r15, %r10, %r14;
             bar.sync 0; ld.shared.u32 %r4, [%r15+{}]; ld.shared.u32 %r5, [%r15]; setp.gt.u32 %p2, %r5, %r4; @%p2 bra L;
             st.shared.u32 [%r15], %r4; st.shared.u32 [%r15+{}], %r5; L: bar.sync 0; ld.shared.u32 %r6, [%r15]; st.global.u32 [%rd3], %r6;",
            4 * distance,
            4 * distance
        ))
    };
    for (mask, distance) in [(0, 1), (1, 2), (3, 4), (7, 8), (15, 16)] {
        assert_eq!(step(mask, distance), 0, "{distance}");
    }
    // Where they meet, they wait.
    assert_ne!(step(1, 4), 0);
    assert_ne!(step(7, 4), 0);
}

#[test]
fn lanes_look_through_the_row_of_their_warp_when_all_have_stored_there() {
    let row = |begin: &str, wait: &str| {
        kernel(&format!(
            "mov.u32 %r10, s; shl.b32 %r11, %r1, 3; add.s32 %r12, %r10, %r11; st.shared.v2.u32 [%r12], {{%r1, %r9}}; {wait}
             shr.u32 %r13, %r1, 5; {begin} add.s32 %r16, %r10, %r15; mov.u32 %r14, %r16; mov.u32 %r6, 0;
             L: ld.shared.v2.u32 {{%r7, %r8}}, [%r14]; add.u32 %r6, %r6, %r7; add.s32 %r14, %r14, 8; setp.lt.u32 %p3, %r6, %r9; @%p3 bra L;
             st.global.u32 [%rd3], %r6;"
        ))
    };
    assert_ne!(row("shl.b32 %r15, %r13, 8;", ""), 0);
    // Rows that are a multiple of a warp and some more.
    assert_ne!(row("mul.lo.u32 %r15, %r13, 264;", ""), 0);
    assert_eq!(row("shl.b32 %r15, %r13, 8;", "bar.warp.sync -1;"), 0);
    // A table behind the rows, of which each warp has a part.
    assert_eq!(row("shl.b32 %r17, %r13, 8; add.s32 %r15, %r17, 4096;", ""), 0);
}
