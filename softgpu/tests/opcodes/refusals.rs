//! What must not run: instructions that are not supported, and those that end a kernel.

use rgpu_device::Code;

use super::gpu::{Run, gpu};

fn module(body: &str) -> String {
    format!(
        ".version 8.6\n.target sm_90\n.address_size 64\n.visible .entry test(.param .u64 in, .param .u64 out, .param .u32 n, .param .align 16 .b8 extra[64])\n{{\n\
         .reg .b32 r<9>; .reg .b64 rd<9>; .reg .pred p<9>; .reg .f32 f<9>;\n{body}\nret;\n}}\n"
    )
}

#[test]
fn unsupported_instructions_are_refused_by_name_and_line() {
    let mut wrong = Vec::new();
    for instruction in [
        "tex.2dms.v4.f32.s32 {f1, f2, f3, f4}, [rd1, {r5, r6, r7, r8}];",
        "tex.grad.cube.v4.f32.f32 {f1, f2, f3, f4}, [rd1, {f5, f6, f7, f7}], {f1, f1, f1, f1}, {f1, f1, f1, f1};",
        "tex.2d.v2.f16x2.f32 {r1, r2}, [rd1, {f5, f6}];",
        "tex.2d.v4.f32.f32 {f1, f2, f3, f4}, [rd1, rd2, {f5, f6}];",
        "tex.2d.v4.f32.f32 {f1, f2, f3, f4}, [rd1, {f5}];",
        "tex.2d.v4.f32.f32 {f1, f2, f3}, [rd1, {f5, f6}];",
        "tex.2d.v4.f32.f32 {f1, f2, f3, f4}, [rd1];",
        "tex.2d.v4.f32.f32 {f1, f2, f3, f4}, [r1, {f5, f6}];",
        "txq.channel_order.b32 r1, [rd1];",
        "istypep.samplerref p1, rd1;",
        "suld.b.cube.b32.trap {r1}, [rd1, {r2, r2, r2, r2}];",
        "suld.b.1d.b32 {r1}, [rd1, {r2}];",
        "suld.b.1d.v4.b64.trap {rd1, rd2, rd3, rd4}, [rd1, {r2}];",
        "sured.b.xor.1d.b32.trap [rd1, {r2}], r1;",
        "mapa.shared.u64 rd1, rd2, r1;",
        "mapa.u64 rd1, rd2, rd3;",
        "barrier.cluster.sync;",
        "st.async.global.u32 [rd1], r1, [rd2];",
        "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.exch.b32 [r1], r2, [r3];",
        "multimem.red.release.gpu.global.add.u32 [rd1], r1;",
        "add.sat.f32x2 rd1, rd2, rd3;",
        "mad.rn.f32x2 rd1, rd2, rd3, rd1;",
        "wgmma.fence.sync;",
        "wgmma.mma_async.sp.sync.aligned.m64n8k16.f32.f16.f16 {f1, f2, f3, f4}, rd1, rd2, r1, 0, p1, 1, 1, 0, 0;",
        "setmaxnreg.inc.sync.aligned.u64 64;",
        "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes.multicast::cluster [r1], [rd1], r2, [r4], 3;",
        "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.multicast::cluster [r1], [r2], 16, [r4], 3;",
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile::gather4.mbarrier::complete_tx::bytes [r1], [rd1, {r2, r3, r4, r5, r6}], [r4];",
        "cp.reduce.async.bulk.global.shared::cta.bulk_group.min.f32 [rd1], [r1], r2;",
        "tensormap.replace.tile.swizzle_atomicity.global.b1024.b32 [rd1], 0;",
        "vmad.s32.u32.u32 r1, -r2, r3, -r4;",
        "vmad.u32.u32.u32.po r1, r2, r3, -r4;",
        "frobnicate.u32 r1, r2;",
        "add.u32.frob r1, r2, r3;",
        "add.rn.u32 r1, r2, r3;",
        "add.f32.ftz f1, f2;",
        "add.u32 r1, r2;",
        "add.u32 r1, r2, r3, r4;",
        "add.u8 r1, r2, r3;",
        "add.f32 rd1, rd2, rd3;",
        "mov.u32 r1, rd1;",
        "ld.global.u64 r1, [rd1];",
        "ld.global.v3.u32 {r1, r2, r3}, [rd1];",
        "ld.global.v2.u32 {r1, r2, r3}, [rd1];",
        "ld.nowhere.u32 r1, [rd1];",
        "setp.lt.and.b32 p1, r1, r2, p3;",
        "cvt.f32.s32 f1, r1;",
        "cvt.u32.f32 r1, f1;",
        "mul.s32 r1, r2, r3;",
        "shl.u32 r1, r2, r3;",
        "selp.b32 r1, r2, r3, r4;",
        "bra.nowhere r1;",
    ] {
        let text = module(&format!("mov.u32 r1, 1;\n{instruction}"));
        match gpu().launches(&text).and_then(|mut results| results.remove(0)) {
            Ok(()) => wrong.push(format!("{instruction} is accepted")),
            Err(error) if error.code == Code::InvalidPtx && error.message.contains("line 8") => {}
            Err(error) => wrong.push(format!("{instruction}: {error}")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let accepted = gpu().launches(&module("add.u32 r1, r2, r3;")).expect("it loads");
    accepted.into_iter().collect::<Result<Vec<()>, _>>().expect("what is supported is accepted");
}

/// A module of four kernels: one that has nothing special, and three that come to an instruction which cannot be
/// executed: by themselves, through a function, and through one that is called through a pointer.
fn three_of_four(instruction: &str) -> String {
    format!(
        ".version 8.6\n.target sm_90\n.address_size 64
.global .b64 table[1] = {{ by_pointer }};
.func deep() {{\n .reg .b32 r<9>; .reg .b64 rd<9>; .reg .f32 f<9>; .reg .pred p<9>;\n{instruction}\nret; }}
.func between() {{ call deep, (); ret; }}
.func by_pointer() {{ call deep, (); ret; }}
.visible .entry healthy() {{ .reg .b32 r<9>; mov.u32 r1, 1; ret; }}
.visible .entry itself() {{ .reg .b32 r<9>; .reg .b64 rd<9>; .reg .f32 f<9>; .reg .pred p<9>;
{instruction}
ret; }}
.visible .entry caller() {{ call between, (); ret; }}
.visible .entry pointing() {{ .reg .b64 t;
ld.global.u64 t, [table];
kind: .callprototype _ ();
call t, (), kind; ret; }}
.visible .entry also_healthy() {{ ret; }}\n"
    )
}

#[test]
fn a_kernel_that_cannot_be_executed_is_refused_and_the_others_run() {
    for instruction in [
        "tex.2dms.v4.f32.s32 {f1, f2, f3, f4}, [rd1, {r5, r6, r7, r8}];",
        "wgmma.mma_async.sync.aligned.m64n8k8.f32.f16.f16 {f1, f2, f3, f4}, rd1, rd2, p1, 1, 1, 0, 0;",
        "add.u32.frob r1, r2, r3;",
        "mbarrier.arrive.noComplete.expect_tx.shared.b64 rd2, [r1], r2;",
        "cp.async.bulk.tensor.1d.global.shared::cta.im2col_no_offs.bulk_group [rd1, {r2}], [r1];",
    ] {
        let name = instruction.split(' ').next().unwrap().trim_end_matches(';');
        let results = gpu().launches(&three_of_four(instruction)).expect("the module is loaded");
        let names = ["healthy", "itself", "caller", "pointing", "also_healthy"];
        let lines = [None, Some("line 13"), Some("line 7"), Some("line 7"), None];
        for ((result, kernel), line) in results.into_iter().zip(names).zip(lines) {
            let Some(line) = line else {
                result.unwrap_or_else(|error| panic!("{instruction} disturbs {kernel}: {error}"));
                continue;
            };
            let error = result.expect_err(kernel);
            assert_eq!(error.code, Code::InvalidPtx, "{error}");
            for word in [kernel, line, name] {
                assert!(error.message.contains(word), "{kernel} is refused without {word}: {error}");
            }
        }
    }
}

#[test]
fn malformed_instructions_are_refused_when_the_module_is_loaded() {
    for instruction in [
        "createpolicy.fractional.L2::evict_first.b64;",
        "createpolicy.fractional.L2::evict_first.b64 rd1, f1, f2;",
        "createpolicy.range.global.L2::evict_first.b64 rd1, [rd2], 1;",
        "createpolicy.cvt.L2.b64 rd1;",
        "prefetch.global.L1;",
        "add.u32 r1, r2;",
        "add.u32 r1, r2, r3, r4;",
        "ld.global.u32 r1, rd1;",
        "mbarrier.init.shared.b64 [r1];",
        "bar.red.popc.u32 r1, 0;",
        "bar.sync;",
        "lop3.b32 r1, r2, r3, r4, r5;",
        "fns.b32 r1, r2;",
        "vadd4.u32.u32.u32 r1, r2, r3;",
        "vadd4.u32.u32.u32 r1, r2.h0, r3, r4;",
        "vadd.u32.u32.u32 r1, r2, r3, r4;",
        "vadd.u32.u32.u32.add r1.h0, r2, r3, r4;",
        "vadd.u32.u32.u32 r1.h0, r2, r3;",
        "vadd.u32.u32.u32 r1, r2, -r3;",
        "vmad.u32.u32.u32 r1, r2, r3, r4.h0;",
        "vmad.u32.u32.u32 r1.b0, r2, r3, r4;",
        "add.u32 r1, r2.h0, r3;",
        "add.u32 r1, -r2, r3;",
        "cvt.rn.f16x2.f32 r1, f1;",
        "cp.async.ca.shared.global [r1], [rd1], r2;",
        "mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {f1, f2, f3, f4}, {r1, r2}, {r3};",
        "mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {f1, f2, f3, f4}, {r1, r2}, {r3, r4}, {f1, f2, f3, f4};",
        "mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {f1, f2, f3, f4}, {r1, r2}, {r3, r4}, {f1, f2, f3, f4}, r5, r6;",
        "brx.idx r1;",
        "membar.gl r1;",
    ] {
        let error = gpu().loads(&module(&format!("mov.u32 r1, 1;\n{instruction}"))).expect_err(instruction);
        assert_eq!(error.code, Code::InvalidPtx, "{instruction}: {error}");
        assert!(error.message.contains("line 8"), "{instruction}: {error}");
    }
}

fn run(body: &str) -> Result<Vec<u8>, rgpu_device::Error> {
    let ptx = module(body);
    let run = Run {
        ptx: &ptx,
        input: &[0; 64],
        output: &[0; 64],
        count: 1,
        extra: [0; 64],
        grid: 1,
        block: 64,
        shared: 0,
    };
    gpu().run(&run)
}

#[test]
fn traps_and_bad_addresses_end_the_kernel() {
    for (body, code) in [
        ("trap;", Code::LaunchFailed),
        ("mov.u32 r1, %tid.x; setp.eq.u32 p1, r1, 63; @p1 trap;", Code::LaunchFailed),
        ("mov.u64 rd1, 0; ld.global.u32 r1, [rd1]; st.global.u32 [rd1], r1;", Code::IllegalAddress),
        ("mov.u64 rd1, 64; st.u32 [rd1], 1;", Code::IllegalAddress),
        ("ld.param.u64 rd1, [out]; st.global.u32 [rd1+1073741824], 1;", Code::IllegalAddress),
        (
            "ld.param.u64 rd1, [out]; neg.s64 rd1, rd1; atom.global.add.u32 r1, [rd1], 1;",
            Code::IllegalAddress,
        ),
        ("mov.u64 rd1, -8; red.add.u64 [rd1], rd2;", Code::IllegalAddress),
        (".shared .b32 s[4]; mov.u32 r1, s; st.shared.u32 [r1+1073741824], r1;", Code::IllegalAddress),
        ("mov.u32 r1, -4; ld.shared.u32 r2, [r1]; st.shared.u32 [r1], r2;", Code::IllegalAddress),
    ] {
        let error = run(body).expect_err(body);
        assert_eq!(error.code, code, "{body}: {error}");
        assert!(error.message.contains("test"), "{body}: the kernel is not named in: {error}");
        run("mov.u32 r1, 1;").expect("after a reset all is well");
    }
}

#[test]
fn printf_prints() {
    let ptx = ".version 8.0\n.target sm_80\n.address_size 64
        .extern .func (.param .b32 r) vprintf (.param .b64 format, .param .b64 arguments);
        .global .align 1 .b8 format[26] = {37, 100, 32, 37, 53, 46, 50, 102, 32, 37, 115, 32, 37, 108, 108, 120, 32, 37, 99, 37, 37, 10, 0};
        .global .align 1 .b8 word[3] = {104, 105, 0};
        .visible .entry test(.param .u64 in, .param .u64 out, .param .u32 n, .param .align 16 .b8 extra[64]) {
        .local .align 8 .b8 arguments[40]; .reg .b64 a, b, c; .reg .b32 t, r; .reg .f64 d; .reg .pred p;
        mov.u32 t, %tid.x; setp.ne.u32 p, t, 2; @p bra DONE;
        mov.u64 a, arguments; cvta.local.u64 a, a; mov.u64 b, format; cvta.global.u64 b, b; mov.u64 c, word; cvta.global.u64 c, c;
        neg.s32 r, t; st.u32 [a], r; mov.f64 d, 2.71828; st.f64 [a+8], d; st.u64 [a+16], c; mov.u64 c, 0x123456789abc; st.u64 [a+24], c; mov.u32 r, 65; st.u32 [a+32], r;
        { .param .b64 x; .param .b64 y; .param .b32 z; st.param.b64 [x], b; st.param.b64 [y], a; call.uni (z), vprintf, (x, y); ld.param.b32 r, [z]; }
        ld.param.u64 c, [out]; st.global.u32 [c], r;
        DONE: ret; }";
    let run =
        Run { ptx, input: &[], output: &[0; 8], count: 1, extra: [0; 64], grid: 1, block: 32, shared: 0 };
    let mut gpu = gpu();
    gpu.printed();
    let result = gpu.run(&run).expect("it runs");
    assert_eq!(String::from_utf8_lossy(&gpu.printed()), "-2  2.72 hi 123456789abc A%\n");
    // The number of arguments.
    assert_eq!(result, [5, 0, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn old_modules_have_warp_operations_without_masks() {
    let ptx = ".version 6.0\n.target sm_60\n.address_size 64
        .visible .entry test(.param .u64 in, .param .u64 out, .param .u32 n, .param .align 16 .b8 extra[64]) {
        .reg .b32 t, r<9>; .reg .b64 o, w; .reg .pred p, q;
        mov.u32 t, %tid.x; ld.param.u64 o, [out]; mul.wide.u32 w, t, 16; add.u64 o, o, w;
        shfl.bfly.b32 r1|p, t, 1, 31; setp.gt.u32 q, t, 9; vote.ballot.b32 r2, q; vote.all.pred q, q; selp.u32 r3, 1, 0, q;
        shfl.down.b32 r4, t, 4, 0x1f;
        st.global.v4.u32 [o], {r1, r2, r3, r4}; ret; }";
    let run =
        Run { ptx, input: &[], output: &[0; 512], count: 1, extra: [0; 64], grid: 1, block: 32, shared: 0 };
    let result = gpu().run(&run).expect("it runs");
    for (lane, bytes) in (0u32..).zip(result.chunks_exact(16)) {
        let words: Vec<u32> =
            bytes.chunks_exact(4).map(|c| u32::from_le_bytes(c.try_into().unwrap())).collect();
        let down = if lane + 4 < 32 { lane + 4 } else { lane };
        assert_eq!(words, [lane ^ 1, 0xFFFF_FC00, 0, down], "lane {lane}");
    }
}
