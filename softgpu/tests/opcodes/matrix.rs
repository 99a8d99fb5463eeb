//! Matrix instructions. Small integers as elements make every product and sum exact, in whatever order.

use std::fmt::Write;

use super::case::{Case, Class, Want};
use super::gpu::{Run, gpu};
use super::values::{Domain, Random};

/// Writes an integer as an element of a type.
fn encode(ty: &str, value: i64) -> Vec<u8> {
    let f32_bits = (value as f32).to_bits();
    match ty {
        "f16" => (super::oracle::Format::F16.integer(value.into(), "rn") as u16).to_le_bytes().to_vec(),
        "bf16" => ((f32_bits >> 16) as u16).to_le_bytes().to_vec(),
        "f32" | "tf32" => f32_bits.to_le_bytes().to_vec(),
        // No more than three bits are set one behind the other, which numbers of 8 bits have room for.
        "e5m2" => vec![(super::oracle::Format::F16.integer(value.into(), "rn") >> 8) as u8],
        "e4m3" => vec![eighth(value)],
        "f64" => (value as f64).to_bits().to_le_bytes().to_vec(),
        "s32" => (value as i32).to_le_bytes().to_vec(),
        _ => vec![value as u8],
    }
}

/// A small integer with four bits of exponent and three of mantissa.
fn eighth(value: i64) -> u8 {
    let size = value.unsigned_abs();
    let Some(exponent) = size.checked_ilog2() else { return 0 };
    let mantissa = (size << 3 >> exponent) & 7;
    u8::from(value < 0) << 7 | (exponent as u8 + 7) << 3 | mantissa as u8
}

/// How many bits an element takes.
fn bits(ty: &str) -> usize {
    match ty {
        "b1" => 1,
        "s4" | "u4" => 4,
        _ => 8 * encode(ty, 0).len(),
    }
}

/// Elements one after another, the first ones in the low bits.
fn pack(ty: &str, values: impl Iterator<Item = i64>) -> Vec<u8> {
    let bits = bits(ty);
    if bits >= 8 {
        return values.flat_map(|value| encode(ty, value)).collect();
    }
    let values: Vec<u8> = values.map(|value| value as u8 & ((1 << bits) - 1)).collect();
    values.chunks(8 / bits).map(|byte| byte.iter().rev().fold(0, |all, value| all << bits | value)).collect()
}

/// How elements are multiplied, as the opcode says it.
fn products(ty: &str) -> &'static [&'static str] {
    if ty == "b1" { &[".xor.popc", ".and.popc"] } else { &[""] }
}

/// A matrix of small integers.
struct Matrix {
    columns: usize,
    elements: Vec<i64>,
}

impl Matrix {
    fn random(rows: usize, columns: usize, ty: &str, random: &mut Random) -> Self {
        let mut element = || match ty {
            "s8" => random.below(256) as i64 - 128,
            "u8" => random.below(256) as i64,
            "s4" => random.below(16) as i64 - 8,
            "u4" => random.below(16) as i64,
            "b1" => random.below(2) as i64,
            _ => random.below(9) as i64 - 4,
        };
        Self { columns, elements: (0..rows * columns).map(|_| element()).collect() }
    }

    fn at(&self, row: usize, column: usize) -> i64 {
        self.elements[row * self.columns + column]
    }

    /// `self * b + c`
    fn multiply(&self, b: &Self, c: &Self, product: &str) -> Self {
        let product = |a: i64, b: i64| if product == ".xor.popc" { a ^ b } else { a * b };
        let rows = self.elements.len() / self.columns;
        let element = |i: usize| {
            let (row, column) = (i / b.columns, i % b.columns);
            c.at(row, column)
                + (0..self.columns).map(|k| product(self.at(row, k), b.at(k, column))).sum::<i64>()
        };
        Self { columns: b.columns, elements: (0..rows * b.columns).map(element).collect() }
    }

    /// In memory, by rows or columns, with some bytes between them.
    fn bytes(&self, ty: &str, by_rows: bool, stride: usize) -> Vec<u8> {
        let rows = self.elements.len() / self.columns;
        let (outer, inner) = if by_rows { (rows, self.columns) } else { (self.columns, rows) };
        let element = |o: usize, i: usize| match (i < inner, by_rows) {
            (false, _) => 0,
            (true, true) => self.at(o, i),
            (true, false) => self.at(i, o),
        };
        pack(ty, (0..outer).flat_map(|o| (0..stride).map(move |i| element(o, i))))
    }
}

fn registers(name: &str, count: usize) -> String {
    let all: Vec<String> = (0..count).map(|n| format!("{name}{n}")).collect();
    format!("{{{}}}", all.join(", "))
}

/// A kind of `wmma`: shape, types of d, a, b and c, and how many registers a, b, c and d take.
type Wmma = ((usize, usize, usize), [&'static str; 4], [usize; 4]);

const WMMA: &[Wmma] = &[
    ((16, 16, 16), ["f32", "f16", "f16", "f32"], [8, 8, 8, 8]),
    ((16, 16, 16), ["f16", "f16", "f16", "f16"], [8, 8, 4, 4]),
    ((16, 16, 16), ["f32", "f16", "f16", "f16"], [8, 8, 4, 8]),
    ((16, 16, 16), ["f16", "f16", "f16", "f32"], [8, 8, 8, 4]),
    ((32, 8, 16), ["f32", "f16", "f16", "f32"], [8, 8, 8, 8]),
    ((8, 32, 16), ["f32", "f16", "f16", "f32"], [8, 8, 8, 8]),
    ((16, 16, 16), ["f32", "bf16", "bf16", "f32"], [4, 4, 8, 8]),
    ((32, 8, 16), ["f32", "bf16", "bf16", "f32"], [8, 2, 8, 8]),
    ((8, 32, 16), ["f32", "bf16", "bf16", "f32"], [2, 8, 8, 8]),
    ((16, 16, 8), ["f32", "tf32", "tf32", "f32"], [4, 4, 8, 8]),
    ((16, 16, 16), ["s32", "s8", "s8", "s32"], [2, 2, 8, 8]),
    ((16, 16, 16), ["s32", "u8", "u8", "s32"], [2, 2, 8, 8]),
    ((32, 8, 16), ["s32", "s8", "s8", "s32"], [4, 1, 8, 8]),
    ((8, 32, 16), ["s32", "s8", "s8", "s32"], [1, 4, 8, 8]),
    ((8, 8, 4), ["f64", "f64", "f64", "f64"], [1, 1, 2, 2]),
    ((8, 8, 32), ["s32", "s4", "s4", "s32"], [1, 1, 2, 2]),
    ((8, 8, 32), ["s32", "u4", "u4", "s32"], [1, 1, 2, 2]),
    ((8, 8, 128), ["s32", "b1", "b1", "s32"], [1, 1, 2, 2]),
];

/// The opcodes of one `wmma` with given layouts, space and product.
fn wmma_opcodes(kind: &Wmma, by_rows: [bool; 4], space: &str, product: &str) -> [String; 5] {
    let ((m, n, k), [d, a, b, c], _) = kind;
    let layout = by_rows.map(|rows| if rows { "row" } else { "col" });
    let shape = format!("m{m}n{n}k{k}");
    // The types of factors are not written for f16.
    let types = if *a == "f16" { format!("{d}.{c}") } else { format!("{d}.{a}.{b}.{c}") };
    [
        format!("wmma.load.a.sync.aligned.{}.{shape}{space}.{a}", layout[0]),
        format!("wmma.load.b.sync.aligned.{}.{shape}{space}.{b}", layout[1]),
        format!("wmma.load.c.sync.aligned.{}.{shape}{space}.{c}", layout[2]),
        format!("wmma.mma{product}.sync.aligned.{}.{}.{shape}.{types}", layout[0], layout[1]),
        format!("wmma.store.d.sync.aligned.{}.{shape}{space}.{d}", layout[3]),
    ]
}

fn wmma(kind: &Wmma, by_rows: [bool; 4], space: &str, product: &str) {
    let ((m, n, k), [dt, at, bt, ct], counts) = *kind;
    let mut random = Random((m * 31 + n * 7 + k) as u64);
    let (a, b) = (Matrix::random(m, k, at, &mut random), Matrix::random(k, n, bt, &mut random));
    let c = Matrix::random(m, n, ct, &mut random);
    let d = a.multiply(&b, &c, product);
    // Where elements are less than a byte, rows begin with whole blocks of 16 bytes.
    let more = if bits(at) < 8 { 128 / bits(at) } else { 16 };
    let stride = |rows: usize, columns: usize, by_rows: bool| more + if by_rows { columns } else { rows };
    let strides = [
        stride(m, k, by_rows[0]),
        stride(k, n, by_rows[1]),
        stride(m, n, by_rows[2]),
        stride(m, n, by_rows[3]),
    ];
    let parts = [
        a.bytes(at, by_rows[0], strides[0]),
        b.bytes(bt, by_rows[1], strides[1]),
        c.bytes(ct, by_rows[2], strides[2]),
    ];
    let result = d.bytes(dt, by_rows[3], strides[3]);
    let opcodes = wmma_opcodes(kind, by_rows, space, product);
    let register = |ty: &str| match ty {
        "f32" => ".f32",
        "f64" => ".f64",
        _ => ".b32",
    };
    let mut body = String::new();
    for (name, ty, count) in
        [("a", at, counts[0]), ("b", bt, counts[1]), ("c", ct, counts[2]), ("d", dt, counts[3])]
    {
        writeln!(body, ".reg {} {name}<{count}>;", register(ty)).unwrap();
    }
    let shared = space == ".shared";
    let total: usize = parts.iter().map(Vec::len).sum();
    if shared {
        // The three matrices, and behind them room for the fourth.
        writeln!(
            body,
            ".reg .b32 s; mov.u32 s, place; .reg .b32 w, e; .reg .b64 f; .reg .pred more; mov.u32 w, %tid.x; shl.b32 w, w, 2;
             FILL: cvt.u64.u32 f, w; add.u64 f, pin, f; ld.global.u32 e, [f]; add.u32 s, s, w; st.shared.u32 [s], e; sub.u32 s, s, w; add.u32 w, w, 128; setp.lt.u32 more, w, {total}; @more bra FILL;
             bar.sync 0;"
        )
        .unwrap();
    }
    let base = if shared { "s" } else { "pin" };
    let mut offset = 0;
    for (index, name) in ["a", "b", "c"].into_iter().enumerate() {
        let all = registers(name, counts[index]);
        writeln!(body, "{} {all}, [{base}+{offset}], {};", opcodes[index], strides[index]).unwrap();
        offset += parts[index].len();
    }
    let [ra, rb, rc, rd] =
        [("a", 0), ("b", 1), ("c", 2), ("d", 3)].map(|(name, i)| registers(name, counts[i]));
    writeln!(body, "{} {rd}, {ra}, {rb}, {rc};", opcodes[3]).unwrap();
    if shared {
        writeln!(
            body,
            "{} [s+{total}], {rd}, {}; bar.sync 0; mov.u32 w, %tid.x; shl.b32 w, w, 2;
             COPY: cvt.u64.u32 f, w; add.u64 f, pout, f; add.u32 s, s, w; ld.shared.u32 e, [s+{total}]; sub.u32 s, s, w; st.global.u32 [f], e; add.u32 w, w, 128; setp.lt.u32 more, w, {}; @more bra COPY;",
            opcodes[4], strides[3], result.len()
        )
        .unwrap();
    } else {
        writeln!(body, "{} [pout], {rd}, {};", opcodes[4], strides[3]).unwrap();
    }
    let prelude = format!(".shared .align 32 .b8 place[{}];", total + result.len());
    // Between rows nothing is written.
    let written = Matrix { columns: d.columns, elements: vec![1; m * n] }.bytes(dt, by_rows[3], strides[3]);
    let width = bits(dt) / 8;
    let got = launch(&prelude, &body, &parts.concat(), result.len());
    for (index, (got, want)) in got.chunks(width).zip(result.chunks(width)).enumerate() {
        let inside = written[index * width..][..width].iter().any(|b| *b != 0);
        assert!(!inside || got == want, "{}: element {index} is {got:x?}, not {want:x?}", opcodes[3]);
        assert!(inside || shared || got.iter().all(|b| *b == 0), "{}: byte beyond a row", opcodes[4]);
    }
}

/// Runs one warp.
/// What most kernels are for.
const OLDER: &str = ".version 8.6\n.target sm_80";

fn launch(prelude: &str, body: &str, input: &[u8], output: usize) -> Vec<u8> {
    launch_for(OLDER, prelude, body, input, output)
}

fn launch_for(target: &str, prelude: &str, body: &str, input: &[u8], output: usize) -> Vec<u8> {
    let ptx = format!(
        "{target}\n.address_size 64\n{prelude}\n\
         .visible .entry test(.param .u64 in, .param .u64 out, .param .u32 n, .param .align 16 .b8 extra[64]) {{\n\
         .reg .b64 pin, pout; ld.param.u64 pin, [in]; ld.param.u64 pout, [out];\n{body}\nret; }}\n"
    );
    let output = vec![0; output];
    let run =
        Run { ptx: &ptx, input, output: &output, count: 1, extra: [0; 64], grid: 1, block: 32, shared: 0 };
    match gpu().run(&run) {
        Ok(output) => output,
        Err(error) => panic!("{error}\n{ptx}"),
    }
}

const ROW: bool = true;
const COLUMN: bool = false;
const LAYOUTS: [[bool; 4]; 4] = [
    [ROW, COLUMN, ROW, ROW],
    [ROW, COLUMN, COLUMN, COLUMN],
    [COLUMN, ROW, COLUMN, ROW],
    [ROW, ROW, ROW, COLUMN],
];

/// What is executed: kinds, layouts, spaces, products. Doubles and tf32 in all layouts, too; of less than a byte there is only one for
/// each factor.
fn wmma_runs() -> Vec<(&'static Wmma, [bool; 4], &'static str, &'static str)> {
    let mut runs = Vec::new();
    for kind in WMMA {
        let ty = kind.1[1];
        for by_rows in LAYOUTS.iter().filter(|l| bits(ty) >= 8 || l[..2] == [ROW, COLUMN]) {
            for space in ["", ".global", ".shared"] {
                runs.extend(products(ty).iter().map(|product| (kind, *by_rows, space, *product)));
            }
        }
    }
    runs
}

#[test]
fn wmma_multiplies_matrices() {
    for (kind, by_rows, space, product) in wmma_runs() {
        wmma(kind, by_rows, space, product);
    }
}

/// A kind of `mma`: shape, types of d, a, b, c. Where the elements of a fragment are follows from the
/// element's number, the lane's group (`lane / 4`) and its place in the group (`lane % 4`).
type Mma = ((usize, usize, usize), [&'static str; 4]);

const MMA: &[Mma] = &[
    ((16, 8, 8), ["f32", "f16", "f16", "f32"]),
    ((16, 8, 8), ["f16", "f16", "f16", "f16"]),
    ((16, 8, 16), ["f32", "f16", "f16", "f32"]),
    ((16, 8, 16), ["f16", "f16", "f16", "f16"]),
    ((16, 8, 8), ["f32", "bf16", "bf16", "f32"]),
    ((16, 8, 16), ["f32", "bf16", "bf16", "f32"]),
    ((16, 8, 4), ["f32", "tf32", "tf32", "f32"]),
    ((16, 8, 8), ["f32", "tf32", "tf32", "f32"]),
    ((8, 8, 4), ["f64", "f64", "f64", "f64"]),
    ((8, 8, 16), ["s32", "s8", "s8", "s32"]),
    ((16, 8, 16), ["s32", "s8", "s8", "s32"]),
    ((16, 8, 16), ["s32", "u8", "s8", "s32"]),
    ((16, 8, 32), ["s32", "s8", "s8", "s32"]),
    ((16, 8, 32), ["s32", "u8", "u8", "s32"]),
    ((8, 8, 32), ["s32", "s4", "s4", "s32"]),
    ((8, 8, 32), ["s32", "u4", "s4", "s32"]),
    ((16, 8, 32), ["s32", "s4", "u4", "s32"]),
    ((16, 8, 64), ["s32", "u4", "u4", "s32"]),
    ((16, 8, 64), ["s32", "s4", "s4", "s32"]),
    ((8, 8, 128), ["s32", "b1", "b1", "s32"]),
    ((16, 8, 128), ["s32", "b1", "b1", "s32"]),
    ((16, 8, 256), ["s32", "b1", "b1", "s32"]),
    ((16, 8, 16), ["f32", "e4m3", "e5m2", "f32"]),
    ((16, 8, 16), ["f16", "e5m2", "e5m2", "f16"]),
    ((16, 8, 32), ["f32", "e4m3", "e4m3", "f32"]),
    ((16, 8, 32), ["f32", "e5m2", "e4m3", "f32"]),
    ((16, 8, 32), ["f16", "e4m3", "e5m2", "f16"]),
];

/// A kind of `mma.sp`: K, types of d, a, b, c, and how many lanes of each four have metadata.
type Sparse = (usize, [&'static str; 4], usize);

const SPARSE: &[Sparse] = &[
    (16, ["f32", "f16", "f16", "f32"], 1),
    (16, ["f16", "f16", "f16", "f16"], 1),
    (32, ["f32", "f16", "f16", "f32"], 2),
    (32, ["f16", "f16", "f16", "f16"], 2),
    (16, ["f32", "bf16", "bf16", "f32"], 1),
    (32, ["f32", "bf16", "bf16", "f32"], 2),
    (8, ["f32", "tf32", "tf32", "f32"], 1),
    (16, ["f32", "tf32", "tf32", "f32"], 2),
    (32, ["s32", "s8", "s8", "s32"], 2),
    (32, ["s32", "u8", "s8", "s32"], 2),
    (64, ["s32", "s8", "u8", "s32"], 4),
    (64, ["s32", "u8", "u8", "s32"], 4),
    (64, ["f32", "e4m3", "e5m2", "f32"], 4),
    (64, ["f16", "e5m2", "e4m3", "f16"], 4),
    (64, ["s32", "s4", "s4", "s32"], 2),
    (64, ["s32", "u4", "s4", "s32"], 2),
    (128, ["s32", "s4", "u4", "s32"], 4),
    (128, ["s32", "u4", "u4", "s32"], 4),
];

/// Products of which a warp makes four: types of d, a, b, c.
const QUAD_PAIRS: [[&str; 4]; 3] =
    [["f32", "f16", "f16", "f32"], ["f16", "f16", "f16", "f16"], ["f32", "f16", "f16", "f16"]];

/// How many elements along k stand together in a register.
fn together(ty: &str) -> usize {
    (32 / bits(ty)).max(1)
}

/// Row and column of element `i` of the left factor. Registers go down the rows first (8 further), then
/// along k.
fn place_a(m: usize, ty: &str, group: usize, place: usize, i: usize) -> (usize, usize) {
    let t = together(ty);
    let register = i / t;
    let halves = m / 8;
    (group + 8 * (register % halves), place * t + i % t + 4 * t * (register / halves))
}

/// Of the right factor: along k only.
fn place_b(ty: &str, group: usize, place: usize, i: usize) -> (usize, usize) {
    let t = together(ty);
    (place * t + i % t + 4 * t * (i / t), group)
}

/// Of the sum: pairs.
fn place_c(group: usize, place: usize, i: usize) -> (usize, usize) {
    (group + 8 * (i / 2), place * 2 + i % 2)
}

/// What a lane has of a matrix, of which `place` tells the row and column of each of its elements.
fn fragment(
    matrix: &Matrix,
    ty: &str,
    place: impl Fn(usize, usize, usize) -> (usize, usize),
    lane: usize,
) -> Vec<u8> {
    let elements = (0..matrix.elements.len() / 32).map(|i| place(lane / 4, lane % 4, i));
    pack(ty, elements.map(|(row, column)| matrix.at(row, column)))
}

fn mma_opcode(((m, n, k), [d, a, b, c]): &Mma, product: &str) -> String {
    format!("mma.sync.aligned.m{m}n{n}k{k}.row.col.{d}.{a}.{b}.{c}{product}")
}

fn mma(kind: &Mma, product: &str) {
    let ((m, n, k), [dt, at, bt, ct]) = *kind;
    let mut random = Random((m * 31 + n * 7 + k + at.len()) as u64);
    let (a, b) = (Matrix::random(m, k, at, &mut random), Matrix::random(k, n, bt, &mut random));
    let c = Matrix::random(m, n, ct, &mut random);
    let d = a.multiply(&b, &c, product);
    let words = |ty: &str, elements: usize| elements / 32 * bits(ty) / if ty == "f64" { 64 } else { 32 };
    let counts = [words(at, m * k), words(bt, k * n), words(ct, m * n), words(dt, m * n)];
    // Each lane's fragments, one after another.
    let (mut input, mut output) = (Vec::new(), Vec::new());
    for lane in 0..32 {
        input.extend(fragment(&a, at, |g, p, i| place_a(m, at, g, p, i), lane));
        input.extend(fragment(&b, bt, |g, p, i| place_b(bt, g, p, i), lane));
        input.extend(fragment(&c, ct, place_c, lane));
        output.extend(fragment(&d, dt, place_c, lane));
    }
    run_mma(&mma_opcode(kind, product), kind.1, counts, None, &input, &output);
}

fn sparse_opcode((k, [d, a, b, c], _): &Sparse, ordered: bool) -> String {
    let how = if ordered { "sp::ordered_metadata" } else { "sp" };
    format!("mma.{how}.sync.aligned.m16n8k{k}.row.col.{d}.{a}.{b}.{c}")
}

/// Multiplies a matrix of which half of the elements are there: which, chance tells, in each chunk anew.
fn sparse(kind: &Sparse, selector: usize, ordered: bool) {
    let (k, [dt, at, bt, ct], lanes) = *kind;
    let mut random = Random((k + at.len() * 7 + selector * 3 + usize::from(ordered)) as u64);
    let (there, b) = (Matrix::random(16, k / 2, at, &mut random), Matrix::random(k, 8, bt, &mut random));
    let c = Matrix::random(16, 8, ct, &mut random);
    // The whole matrix, and the metadata: 16 bits for each row of a lane's two where elements have at least 16 bits, and else 32 of one.
    let mut whole = Matrix { columns: k, elements: vec![0; 16 * k] };
    let mut metadata = [0u32; 32];
    let (chunk, kept) = match at {
        "tf32" => (2, 1),
        "s4" | "u4" => (8, 4),
        _ => (4, 2),
    };
    for row in 0..16 {
        for n in 0..k / chunk {
            let pair = if at == "tf32" {
                let one = random.below(2);
                [2 * one, 2 * one + 1]
            } else {
                let first = random.below(4);
                let second = (first + 1 + random.below(3)) % 4;
                if ordered { [first.min(second), first.max(second)] } else { [first, second] }
            };
            let bits = (pair[0] | pair[1] << 2) as u32;
            let (lane, shift) = if bits_of_metadata_are_halves(at) {
                (n / 4, 4 * (n % 4) + 16 * (row / 8))
            } else {
                (n / 8 * 2 + row / 8, 4 * (n % 8))
            };
            metadata[row % 8 * 4 + selector * lanes + lane] |= bits << shift;
            for i in 0..kept {
                let column = match at {
                    "tf32" => pair[0] / 2,
                    "s4" | "u4" => 2 * pair[i / 2] + i % 2,
                    _ => pair[i],
                };
                whole.elements[row * k + n * chunk + column] = there.at(row, n * kept + i);
            }
        }
    }
    let d = whole.multiply(&b, &c, "");
    let words = |ty: &str, elements: usize| elements / 32 * bits(ty) / 32;
    let counts = [words(at, 16 * k / 2), words(bt, k * 8), words(ct, 16 * 8), words(dt, 16 * 8)];
    let (mut input, mut output) = (Vec::new(), Vec::new());
    for (lane, word) in metadata.iter().enumerate() {
        input.extend(fragment(&there, at, |g, p, i| place_a(16, at, g, p, i), lane));
        input.extend(fragment(&b, bt, |g, p, i| place_b(bt, g, p, i), lane));
        input.extend(fragment(&c, ct, place_c, lane));
        input.extend(word.to_le_bytes());
        output.extend(fragment(&d, dt, place_c, lane));
    }
    run_mma(&sparse_opcode(kind, ordered), kind.1, counts, Some(selector), &input, &output);
}

/// Whether a word of metadata is for two rows.
fn bits_of_metadata_are_halves(ty: &str) -> bool {
    bits(ty) >= 16
}

fn sparse_runs() -> impl Iterator<Item = (&'static Sparse, usize, bool)> {
    let selectors = |kind: &'static Sparse| (0..4 / kind.2).map(move |selector| (kind, selector));
    SPARSE.iter().flat_map(selectors).flat_map(|(kind, selector)| [false, true].map(|o| (kind, selector, o)))
}

#[test]
fn what_is_not_there_of_a_matrix_is_zero() {
    sparse_runs().for_each(|(kind, selector, ordered)| sparse(kind, selector, ordered));
}

/// Has a warp multiply fragments of so many words, which lie one lane's behind the other's, as those of what comes of them do.
/// With a selector each lane has a word of metadata behind its fragments.
fn run_mma(
    opcode: &str,
    [dt, at, bt, ct]: [&str; 4],
    counts: [usize; 4],
    selector: Option<usize>,
    input: &[u8],
    output: &[u8],
) {
    let each = input.len() / 32;
    let mut body = format!(
        ".reg .b32 lane; .reg .b64 o; mov.u32 lane, %laneid; mul.wide.u32 o, lane, {each}; add.u64 pin, pin, o; mul.wide.u32 o, lane, {}; add.u64 pout, pout, o;\n",
        output.len() / 32
    );
    let bytes = if at == "f64" { 8 } else { 4 };
    let mut offset = 0;
    for (name, ty, count) in
        [("a", at, counts[0]), ("b", bt, counts[1]), ("c", ct, counts[2]), ("d", dt, counts[3])]
    {
        let register = match ty {
            "f32" => ".f32",
            "f64" => ".f64",
            _ => ".b32",
        };
        writeln!(body, ".reg {register} {name}<{count}>;").unwrap();
        for index in (0..count).filter(|_| name != "d") {
            writeln!(body, "ld.global.b{} {name}{index}, [pin+{offset}];", 8 * bytes).unwrap();
            offset += bytes;
        }
    }
    let [ra, rb, rc, rd] =
        [("a", 0), ("b", 1), ("c", 2), ("d", 3)].map(|(name, i)| registers(name, counts[i]));
    let metadata = match selector {
        Some(selector) => {
            writeln!(body, ".reg .b32 e; ld.global.b32 e, [pin+{offset}];").unwrap();
            format!(", e, {selector:#x}")
        }
        None => String::new(),
    };
    writeln!(body, "{opcode} {rd}, {ra}, {rb}, {rc}{metadata};").unwrap();
    for index in 0..counts[3] {
        writeln!(body, "st.global.b{} [pout+{}], d{index};", 8 * bytes, index * bytes).unwrap();
    }
    let got = launch_for(
        if bits(at) == 8 || selector.is_some() { ".version 8.7\n.target sm_89" } else { OLDER },
        "",
        &body,
        input,
        output.len(),
    );
    assert_eq!(got, output, "{opcode}");
}

fn mma_runs() -> Vec<(&'static Mma, &'static str)> {
    MMA.iter().flat_map(|kind| products(kind.1[1]).iter().map(move |product| (kind, *product))).collect()
}

#[test]
fn mma_multiplies_fragments() {
    mma_runs().into_iter().for_each(|(kind, product)| mma(kind, product));
}

/// Lane and element of a fragment, among the eight lanes of a product: four, and four that stand 16 further.
type Place = (usize, usize);

/// Where the manual has the elements of the factors, by rows or by columns, and of sums.
fn place_in_pair(matrix: char, ty: &str, by_rows: bool, line: usize, i: usize) -> Place {
    let (quarter, half) = (line % 4, line / 4);
    match (matrix, by_rows, ty) {
        ('a', true, _) => (line, i),
        ('a', false, _) => (i + 4 * half, quarter),
        ('b', true, _) => (quarter, i + 4 * half),
        ('b', false, _) => (i, line),
        (_, _, "f16") => (line, i),
        _ => ((line & 1) + (i & 2) + 4 * half, (i & 4) + (quarter & 2) + (i & 1)),
    }
}

fn quad_pair_opcode([d, a, b, c]: [&str; 4], by_rows: [bool; 2]) -> String {
    let [ra, rb] = by_rows.map(|rows| if rows { "row" } else { "col" });
    format!("mma.sync.aligned.m8n8k4.{ra}.{rb}.{d}.{a}.{b}.{c}")
}

fn quad_pair_runs() -> Vec<([&'static str; 4], [bool; 2])> {
    let layouts = [[ROW, COLUMN], [ROW, ROW], [COLUMN, ROW], [COLUMN, COLUMN]];
    QUAD_PAIRS.iter().flat_map(|types| layouts.map(|by_rows| (*types, by_rows))).collect()
}

#[test]
fn mma_multiplies_four_fragments_by_eight_lanes_each() {
    for (types, by_rows) in quad_pair_runs() {
        let [dt, at, bt, ct] = types;
        let mut random = Random(77);
        let products: Vec<[Matrix; 4]> = (0..4)
            .map(|_| {
                let (a, b) = (Matrix::random(8, 4, at, &mut random), Matrix::random(4, 8, bt, &mut random));
                let c = Matrix::random(8, 8, ct, &mut random);
                let d = a.multiply(&b, &c, "");
                [a, b, c, d]
            })
            .collect();
        let (mut input, mut output) = (Vec::new(), Vec::new());
        for lane in 0..32 {
            let [a, b, c, d] = &products[lane / 4 % 4];
            let line = lane % 4 + 4 * (lane / 16);
            let fragment = |to: &mut Vec<u8>, matrix: &Matrix, name, ty: &str, rows, count| {
                let places = (0..count).map(|i| place_in_pair(name, ty, rows, line, i));
                to.extend(pack(ty, places.map(|(row, column)| matrix.at(row, column))));
            };
            fragment(&mut input, a, 'a', at, by_rows[0], 4);
            fragment(&mut input, b, 'b', bt, by_rows[1], 4);
            fragment(&mut input, c, 'c', ct, true, 8);
            fragment(&mut output, d, 'd', dt, true, 8);
        }
        let words = |ty: &str| bits(ty) * 8 / 32;
        run_mma(
            &quad_pair_opcode(types, by_rows),
            types,
            [2, 2, words(ct), words(dt)],
            None,
            &input,
            &output,
        );
    }
}

/// Moving 8×8 matrices of 16-bit elements between shared memory and fragments.
pub(crate) fn cases() -> Vec<Case> {
    let mut all = Vec::new();
    let half = |row: &[u64], column: usize| row[column / 4] >> (16 * (column % 4)) & 0xFFFF;
    for count in [1usize, 2, 4] {
        for transposed in [false, true] {
            let trans = if transposed { ".trans" } else { "" };
            for space in [".shared", ".shared::cta"] {
                let opcode = format!("ldmatrix.sync.aligned.m8n8.x{count}{trans}{space}.b16");
                let destination: Vec<String> = (0..count).map(|n| format!("d{n}")).collect();
                // Each lane's operands are one row; the row whose address it gives is another lane's, so
                // that lanes beyond those that count point somewhere, too.
                let body = format!(
                    ".shared .align 16 .b8 place[2048]; .reg .b32 at; mul.lo.u32 at, tid, 16; mov.u32 scratch, place; add.u32 at, at, scratch;
                     st.shared.v2.u64 [at], {{a0, a1}}; bar.warp.sync -1; {opcode} {{{}}}, [at];",
                    destination.join(", ")
                );
                let ins = [(Class::B64, Domain::Int(64)); 2];
                all.push(Case::group(&opcode, &body, &ins, &vec![Class::B32; count], 32, move |rows| {
                    (0..32)
                        .map(|lane| {
                            let (group, place) = (lane / 4, lane % 4 * 2);
                            let element = |matrix: usize, n: usize| {
                                let (row, column) =
                                    if transposed { (place + n, group) } else { (group, place + n) };
                                half(&rows[matrix * 8 + row], column)
                            };
                            (0..count).map(|m| Want::Bits(element(m, 0) | element(m, 1) << 16)).collect()
                        })
                        .collect()
                }));
            }
        }
    }
    for count in [1usize, 2, 4] {
        for (trans, space) in [("", ".shared"), (".trans", ".shared"), ("", ".shared::cta"), (".trans", "")] {
            let opcode = format!("stmatrix.sync.aligned.m8n8.x{count}{trans}{space}.b16");
            let source: Vec<String> = (0..count).map(|n| format!("a{n}")).collect();
            // Rows are written in the opposite order; each lane reads the one of its number.
            let to = if space.is_empty() { "where" } else { "at" };
            let body = format!(
                ".shared .align 16 .b8 place[2048]; .reg .b32 at; .reg .b64 where; xor.b32 at, tid, 7; mul.lo.u32 at, at, 16; mov.u32 scratch, place;
                 add.u32 at, at, scratch; cvt.u64.u32 where, at; cvta.shared.u64 where, where; mov.b64 d0, 5; st.shared.v2.u64 [at], {{d0, d0}};
                 bar.warp.sync -1; {opcode} [{to}], {{{}}}; bar.warp.sync -1;
                 mul.lo.u32 at, tid, 16; add.u32 at, at, scratch; ld.shared.v2.u64 {{d0, d1}}, [at];",
                source.join(", ")
            );
            let ins = vec![(Class::B32, Domain::Int(32)); count];
            let case = Case::group(&opcode, &body, &ins, &[Class::B64; 2], 32, move |lanes| {
                let element = |matrix: usize, row: usize, column: usize| {
                    let (row, column) = if trans.is_empty() { (row, column) } else { (column, row) };
                    lanes[row * 4 + column / 2][matrix] >> (16 * (column % 2)) & 0xFFFF
                };
                (0..32)
                    .map(|lane| {
                        let (matrix, row) = (lane / 8, lane % 8 ^ 7);
                        if matrix >= count {
                            return vec![Want::Bits(5); 2];
                        }
                        let half = |first: usize| {
                            (0..4usize).map(|n| element(matrix, row, first + n) << (16 * n)).sum()
                        };
                        vec![Want::Bits(half(0)), Want::Bits(half(4))]
                    })
                    .collect()
            });
            all.push(case.target("sm_90"));
        }
    }
    // Numbers among what products are added to, as FlashInfer's sums of rows have them: sixteen times one times one.
    let opcode = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32";
    let body = format!(
        ".reg .b32 ones; .reg .f32 c, d, e, f, g; mov.b32 ones, 0x3c003c00; cvt.rn.f32.u32 c, a0;
         {opcode} {{d, e, f, g}}, {{ones, ones, ones, ones}}, {{ones, ones}}, {{c, 0., 0f3f800000, 2.5}};
         cvt.rzi.u32.f32 d0, d; cvt.rzi.u32.f32 d1, e; cvt.rzi.u32.f32 d2, f; mul.f32 g, g, 0f40000000; cvt.rzi.u32.f32 d3, g;"
    );
    all.push(Case::group(opcode, &body, &[(Class::B32, Domain::Below(1000))], &[Class::B32; 4], 32, |a| {
        a.iter().map(|lane| [lane[0] + 16, 16, 17, 37].map(Want::Bits).to_vec()).collect()
    }));
    let opcode = "movmatrix.sync.aligned.m8n8.trans.b16";
    let body = format!("{opcode} d0, a0;");
    all.push(Case::group(opcode, &body, &[(Class::B32, Domain::Int(32))], &[Class::B32], 32, |a| {
        let element = |row: usize, column: usize| a[row * 4 + column / 2][0] >> (16 * (column % 2)) & 0xFFFF;
        (0..32)
            .map(|lane| {
                let (row, column) = (lane / 4, lane % 4 * 2);
                vec![Want::Bits(element(column, row) | element(column + 1, row) << 16)]
            })
            .collect()
    }));
    all
}

/// The opcodes that the tests of this file execute, besides those of the cases.
pub(crate) fn opcodes() -> Vec<String> {
    let wmma =
        wmma_runs().into_iter().flat_map(|(kind, by_rows, space, p)| wmma_opcodes(kind, by_rows, space, p));
    let pairs = quad_pair_runs().into_iter().map(|(types, by_rows)| quad_pair_opcode(types, by_rows));
    let mma = mma_runs().into_iter().map(|(kind, product)| mma_opcode(kind, product));
    let sparse = sparse_runs().map(|(kind, _, ordered)| sparse_opcode(kind, ordered));
    wmma.chain(mma).chain(pairs).chain(sparse).collect()
}

#[test]
fn matrices_are_moved() {
    super::case::run_all(cases());
}
