//! `wgmma`: products of matrices that are laid out in shared memory as the PTX manual draws them, in every type and layout. Small
//! integers as elements make every product and sum exact.

use std::fmt::Write;

use super::gpu::{Run, gpu};
use super::values::Random;

/// An integer of at most 15 (or any of eight bits) as an element of a type.
fn encode(ty: &str, value: i64) -> Vec<u8> {
    let single = (value as f32).to_bits();
    // A small number that has an exponent in any format: as a single, with fewer bits of exponent and of mantissa.
    let narrow = |bias: u32, mantissa: u32| {
        let sign = single >> 31;
        if value == 0 {
            0
        } else {
            sign << 31
                | ((single >> 23 & 0xff) - 127 + bias) << mantissa
                | (single & 0x7f_ffff) >> (23 - mantissa)
        }
    };
    match ty {
        "f16" => {
            let bits = narrow(15, 10);
            ((bits >> 16 & 0x8000 | bits & 0x7fff) as u16).to_le_bytes().to_vec()
        }
        "bf16" => ((single >> 16) as u16).to_le_bytes().to_vec(),
        "f32" | "tf32" => single.to_le_bytes().to_vec(),
        "e4m3" | "e5m2" => {
            let bits = if ty == "e4m3" { narrow(7, 3) } else { narrow(15, 2) };
            vec![(bits >> 24 & 0x80 | bits & 0x7f) as u8]
        }
        "s32" => (value as i32).to_le_bytes().to_vec(),
        _ => vec![value as u8],
    }
}

/// A kind of product: types of d, a and b, and how many places there are along k.
const KINDS: &[([&str; 3], usize)] = &[
    (["f32", "f16", "f16"], 16),
    (["f16", "f16", "f16"], 16),
    (["f32", "bf16", "bf16"], 16),
    (["f32", "tf32", "tf32"], 8),
    (["f32", "e4m3", "e4m3"], 32),
    (["f32", "e4m3", "e5m2"], 32),
    (["f32", "e5m2", "e4m3"], 32),
    (["f32", "e5m2", "e5m2"], 32),
    (["f16", "e4m3", "e4m3"], 32),
    (["f16", "e5m2", "e5m2"], 32),
    (["s32", "s8", "s8"], 32),
    (["s32", "s8", "u8"], 32),
    (["s32", "u8", "s8"], 32),
    (["s32", "u8", "u8"], 32),
];

const COLUMNS: [usize; 6] = [8, 24, 64, 96, 128, 256];

/// Of a product where half of the first matrix is not there, K is twice as large.
fn opcode(([d, a, b], k): &([&str; 3], usize), n: usize, satfinite: bool, sparse: bool) -> String {
    let sat = if satfinite { ".satfinite" } else { "" };
    let (how, k) = if sparse { (".sp", 2 * k) } else { ("", *k) };
    format!("wgmma.mma_async{how}.sync.aligned.m64n{n}k{k}{sat}.{d}.{a}.{b}")
}

/// The opcodes that the tests of this file execute.
pub(crate) fn opcodes() -> Vec<String> {
    let mut all: Vec<String> =
        ["fence", "commit_group", "wait_group"].map(|what| format!("wgmma.{what}.sync.aligned")).to_vec();
    for kind in KINDS {
        for n in COLUMNS {
            for sparse in [false, true] {
                all.push(opcode(kind, n, false, sparse));
                if kind.0[0] == "s32" {
                    all.push(opcode(kind, n, true, sparse));
                }
            }
        }
    }
    all.extend(["inc", "dec"].map(|what| format!("setmaxnreg.{what}.sync.aligned.u32")));
    all
}

/// A matrix in shared memory: its bytes, and what describes it, without where it begins.
struct Layout {
    bytes: Vec<u8>,
    start: usize,
    leading: usize,
    stride: usize,
    swizzle: u64,
}

/// Where 16 bytes of a row lie that is swizzled within `span` bytes.
fn swizzled(row: usize, part: usize, span: usize) -> usize {
    match span {
        128 => part ^ row % 8,
        64 => part ^ row / 2 % 4,
        32 => part ^ row / 4 % 2,
        _ => part,
    }
}

/// Lays a matrix out along k or across it; `element` gets its row (column, of the second matrix) and its place along k.
fn lay_out(
    rows: usize,
    k: usize,
    bytes: usize,
    across: bool,
    span: usize,
    random: &mut Random,
    element: impl Fn(usize, usize) -> Vec<u8>,
) -> Layout {
    let swizzle = match span {
        128 => 1,
        64 => 2,
        32 => 3,
        _ => 0,
    };
    let mut memory: Vec<u8> = (0..48 << 10).map(|_| random.bits() as u8).collect();
    // With a pattern that is wider than what one instruction takes, it takes any part of that.
    let along = k * bytes;
    let begins = if span > along && !across { random.below(span / along) * along / 16 } else { 0 };
    let (leading, stride) = match (span, across) {
        // Blocks of 8 by 16 bytes, those along the one direction behind each other, with something between.
        (16, _) => (128 + 16 * random.below(3), 1024),
        (_, false) => (16, 8 * span),
        (_, true) => (span * k + 1024, 8 * span),
    };
    for row in 0..rows {
        for at in 0..k {
            let value = element(row, at);
            let (outer, inner) = if across { (at, row * bytes) } else { (row, at * bytes) };
            let (part, within) = (inner / 16, inner % 16);
            let place = match (span, across) {
                (16, false) => row / 8 * stride + part * leading + row % 8 * 16,
                (16, true) => part * stride + at / 8 * leading + at % 8 * 16,
                (_, false) => outer * span + swizzled(outer, part + begins, span) * 16,
                (_, true) => {
                    part / (span / 16) * leading
                        + outer * span
                        + swizzled(outer, part % (span / 16), span) * 16
                }
            };
            memory[place + within..place + within + bytes].copy_from_slice(&value);
        }
    }
    Layout { bytes: memory, start: begins * 16, leading, stride, swizzle }
}

/// Which elements of each row of the first matrix are there: for each of `k` of these its place among twice as many, and for each thread the
/// metadata, in which chance puts other words where the selector does not lead.
fn choose(ty: &str, k: usize, selector: usize, random: &mut Random) -> (Vec<usize>, Vec<u32>) {
    let bytes = encode(ty, 0).len();
    let (chunk, kept) = if ty == "tf32" { (2, 1) } else { (4, 2) };
    let mut metadata: Vec<u32> = (0..128).map(|_| random.bits() as u32).collect();
    let mut places = vec![0; 64 * k];
    for row in 0..64 {
        for n in 0..k / kept {
            let first = random.below(4);
            let pair = match ty {
                "tf32" => [first & 2, first & 2 | 1],
                _ => [first, (first + 1 + random.below(3)) % 4],
            };
            // A lane's word is for two rows, 16 bits each, or for one.
            let (lane, shift) = if bytes > 1 {
                (2 * selector + n / 4, 4 * (n % 4) + row % 16 / 8 * 16)
            } else {
                (n / 8 * 2 + row % 16 / 8, 4 * (n % 8))
            };
            let word = &mut metadata[row / 16 * 32 + row % 8 * 4 + lane];
            *word = *word & !(15 << shift) | ((pair[0] | pair[1] << 2) as u32) << shift;
            for i in 0..kept {
                let inside = if ty == "tf32" { pair[0] / 2 } else { pair[i] };
                places[row * k + n * kept + i] = n * chunk + inside;
            }
        }
    }
    (places, metadata)
}

fn product(kind: &([&str; 3], usize), n: usize, is_sparse: bool, random: &mut Random) {
    let ([dt, at, bt], k) = *kind;
    // Places along k of the second matrix.
    let depth = if is_sparse { 2 * k } else { k };
    let integer = dt == "s32";
    let number = |ty: &str, random: &mut Random| match ty {
        "s8" => random.below(256) as i64 - 128,
        "u8" => random.below(256) as i64,
        "s32" if random.below(4) == 0 => [i64::from(i32::MAX), i64::from(i32::MIN)][random.below(2)],
        _ => random.below(9) as i64 - 4,
    };
    let bytes = encode(at, 0).len();
    let a: Vec<i64> = (0..64 * k).map(|_| number(at, random)).collect();
    let b: Vec<i64> = (0..depth * n).map(|_| number(bt, random)).collect();
    let c: Vec<i64> = (0..64 * n).map(|_| number(dt, random)).collect();
    let wide = matches!(at, "f16" | "bf16");
    let in_registers = random.below(3) == 0;
    let (across_a, across_b) = (wide && !in_registers && random.below(2) == 0, wide && random.below(2) == 0);
    let selector = if bytes > 1 { random.below(2) } else { 0 };
    let (places, metadata) = match is_sparse {
        true => choose(at, k, selector, random),
        false => ((0..64).flat_map(|_| 0..k).collect(), vec![0; 128]),
    };
    // Across k, whole patterns have to fit; along it, what one instruction takes.
    let span = |rows: usize, k: usize, across: bool, random: &mut Random| {
        let span = [16, 32, 64, 128][random.below(4)];
        let fits = if across { (rows * bytes).is_multiple_of(span) } else { k * bytes <= span };
        if fits { span } else { 16 }
    };
    let (span_a, span_b) = (span(64, k, across_a, random), span(n, depth, across_b, random));
    let of_a = lay_out(64, k, bytes, across_a, span_a, random, |row, i| encode(at, a[row * k + i]));
    let of_b = lay_out(n, depth, bytes, across_b, span_b, random, |column, i| encode(bt, b[i * n + column]));
    let (adds, satfinite) = (random.below(3) > 0, integer && random.below(2) == 0);
    let signs = [random.below(2) * 2, random.below(2) * 2].map(|sign| 1 - sign as i64);
    let sign = if integer { 1 } else { signs[0] * signs[1] };

    // Registers of each thread: of the product, two numbers to a register where they are halves; of a, four.
    let per_word = if dt == "f16" { 2 } else { 1 };
    let place = |thread: usize, i: usize| {
        let (warp, lane) = (thread / 32, thread % 32);
        (warp * 16 + lane / 4 + i / 2 % 2 * 8, i / 4 * 8 + lane % 4 * 2 + i % 2)
    };
    let mut input: Vec<u8> = of_a.bytes.iter().chain(&of_b.bytes).copied().collect();
    let mut output = Vec::new();
    let words = n / 2 / per_word;
    for (thread, told) in metadata.iter().enumerate() {
        let (warp, lane) = (thread / 32, thread % 32);
        for i in 0..n / 2 {
            let (row, column) = place(thread, i);
            let old = c[row * n + column];
            input.extend(encode(dt, old));
            let own = row * k..(row + 1) * k;
            let sum: i64 = own.map(|i| a[i] * b[places[i] * n + column]).sum();
            let sum = if adds { old } else { 0 } + sign * sum;
            let sum = if satfinite { sum.clamp(i32::MIN.into(), i32::MAX.into()) } else { sum };
            output.extend(encode(dt, sum));
        }
        let run = 4 / bytes;
        for register in 0..4 {
            for i in 0..run {
                let row = warp * 16 + lane / 4 + register % 2 * 8;
                let along = register / 2 * 4 * run + lane % 4 * run + i;
                input.extend(encode(at, a[row * k + along]));
            }
        }
        input.extend(told.to_le_bytes());
    }
    let size = of_a.bytes.len();
    let opcode = opcode(kind, n, satfinite, is_sparse);
    let register = if dt == "f32" { ".f32" } else { ".b32" };
    let describe = |layout: &Layout, base: usize| {
        let begin = (base + layout.start) as u64 >> 4;
        begin | (layout.leading as u64 >> 4) << 16 | (layout.stride as u64 >> 4) << 32 | layout.swizzle << 62
    };
    let each = (words + 5) * 4;
    let mut body = format!(
        ".reg .b32 tid, i, w; .reg .b64 from, o, da, db; .reg .pred more, adds; .reg {register} d<{words}>; .reg .b32 a<4>, e;
         mov.u32 tid, %tid.x; shl.b32 i, tid, 2;
         again: cvt.u64.u32 o, i; add.u64 from, pin, o; ld.global.u32 w, [from]; st.shared.u32 [i], w;
         add.u32 i, i, 512; setp.lt.u32 more, i, {both}; @more bra again;
         mul.wide.u32 o, tid, {each}; add.u64 from, pin, o; mul.wide.u32 o, tid, {out}; add.u64 pout, pout, o;
         fence.proxy.async; bar.sync 0;
         setmaxnreg.dec.sync.aligned.u32 24; setmaxnreg.inc.sync.aligned.u32 240;
         mov.b64 da, {a:#x}; mov.b64 db, {b:#x}; setp.eq.u32 adds, 1, {adds};\n",
        both = 2 * size,
        out = words * 4,
        a = describe(&of_a, 0),
        b = describe(&of_b, size),
        adds = u32::from(adds),
    );
    for index in 0..words {
        writeln!(body, "ld.global.b32 d{index}, [from+{}];", 2 * size + index * 4).unwrap();
    }
    for index in 0..4 {
        writeln!(body, "ld.global.b32 a{index}, [from+{}];", 2 * size + (words + index) * 4).unwrap();
    }
    writeln!(body, "ld.global.b32 e, [from+{}];", 2 * size + (words + 4) * 4).unwrap();
    let list = |name: &str, count: usize| {
        let all: Vec<String> = (0..count).map(|n| format!("{name}{n}")).collect();
        format!("{{{}}}", all.join(", "))
    };
    let first = if in_registers { list("a", 4) } else { "da".to_owned() };
    let told = if is_sparse { format!(", e, {selector}") } else { String::new() };
    let mut rest = if integer { String::new() } else { format!(", {}, {}", signs[0], signs[1]) };
    if wide {
        if !in_registers {
            write!(rest, ", {}", u32::from(across_a)).unwrap();
        }
        write!(rest, ", {}", u32::from(across_b)).unwrap();
    }
    writeln!(
        body,
        "wgmma.fence.sync.aligned; {opcode} {}, {first}, db{told}, adds{rest}; wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;",
        list("d", words)
    )
    .unwrap();
    for index in 0..words {
        writeln!(body, "st.global.b32 [pout+{}], d{index};", index * 4).unwrap();
    }
    let got = launch(&body, &input, output.len(), 2 * size as u32)
        .unwrap_or_else(|error| panic!("{opcode}: {error}\n{body}"));
    assert!(
        got == output,
        "{opcode}: selector {selector}, registers {in_registers}, across {across_a} {across_b}, patterns {span_a} {span_b}, adds {adds}, {signs:?}"
    );
}

fn launch(body: &str, input: &[u8], output: usize, shared: u32) -> rgpu_device::Result<Vec<u8>> {
    let ptx = format!(
        ".version 8.6\n.target sm_90a\n.address_size 64\n\
         .visible .entry test(.param .u64 in, .param .u64 out, .param .u32 n, .param .align 16 .b8 extra[64]) {{\n\
         .reg .b64 pin, pout; ld.param.u64 pin, [in]; ld.param.u64 pout, [out];\n{body}\nret; }}\n"
    );
    let output = vec![0; output];
    gpu().run(&Run {
        ptx: &ptx,
        input,
        output: &output,
        count: 1,
        extra: [0; 64],
        grid: 1,
        block: 128,
        shared,
    })
}

#[test]
fn four_warps_multiply_matrices() {
    let mut random = Random(90);
    for kind in KINDS {
        for n in COLUMNS {
            for _ in 0..if n <= 64 { 8 } else { 2 } {
                product(kind, n, false, &mut random);
            }
            for _ in 0..if n <= 64 { 5 } else { 1 } {
                product(kind, n, true, &mut random);
            }
        }
    }
}

/// What one thread does in a kernel of 128, with some registers.
fn refused(instructions: &str) -> rgpu_device::Error {
    let body = format!(
        ".reg .b64 da, db; .reg .f32 d<4>; .reg .pred p; .reg .b32 t;\n\
         mov.b64 da, 0; mov.b64 db, 0; setp.eq.u32 p, 1, 1; mov.u32 t, %tid.x;\n\
         mov.f32 d0, 0f00000000; mov.f32 d1, d0; mov.f32 d2, d0; mov.f32 d3, d0;\n{instructions}"
    );
    launch(&body, &[0; 16], 16, 1024).expect_err(instructions)
}

#[test]
fn what_is_wrong_with_a_product_is_said() {
    let multiply =
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {d0, d1, d2, d3}, da, db, p, 1, 1, 0, 0;";
    let sparse =
        multiply.replace("mma_async", "mma_async.sp").replace("k16", "k32").replace("db, p", "db, t, 1, p");
    // Beyond the window of shared memory.
    let outside = refused(&format!("mov.b64 db, 0x3fff; {multiply}"));
    assert!(outside.message.contains("out of the block's shared memory"), "{outside}");
    let far = refused(&format!("mov.b64 da, 0x3fff00000000; {multiply}"));
    assert!(far.message.contains("out of the block's shared memory"), "{far}");
    // A warp that does not come.
    let alone = refused(&format!("setp.lt.u32 p, t, 32; @p ret; {multiply}"));
    assert!(alone.message.contains("Deadlock"), "{alone}");
    for (wrong, why) in [
        (multiply.replace(", 1, 1, 0, 0", ", 1, 2, 0, 0"), "1 or -1"),
        (multiply.replace(", 1, 1, 0, 0", ", 1, 1, 2, 0"), "0 or 1"),
        (multiply.replace(", 1, 1, 0, 0", ", 1, 1, 0"), "8 operands"),
        (multiply.replace("d0, d1, d2, d3", "d0, d1, d2"), "wrong number of registers"),
        (multiply.replace("m64n8k16", "m64n12k16"), "wgmma"),
        (multiply.replace("mma_async", "mma_async.sp"), "wgmma"),
        (sparse.replace("t, 1, p", "t, 2, p"), "selector"),
        (sparse.replace("t, 1, p", "t, t, p"), "wgmma"),
        (sparse.replace("n8k32", "n8k16"), "wgmma"),
    ] {
        let error = refused(&wrong);
        assert!(error.message.contains(why), "{wrong}: {error}");
    }
}
