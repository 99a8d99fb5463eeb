//! Bulk copies and tensor maps: each opcode is executed on maps that lie in its input, and compared with a walk over the tensor's
//! elements, one by one. Programs in CUDA do the same with random tensors (`tests/programs/tensor_copies.cu`).

use std::fmt::Write;

use rgpu_device::tensor_map::{Element, Shape, Swizzle, TENSOR_MAP_BYTES, TensorMap};
use rgpu_device::{Code, Error};

use super::gpu::{Run, gpu};

const REDUCES: [&str; 8] = ["add", "min", "max", "inc", "dec", "and", "or", "xor"];

/// Where the tensor begins in the input, and how many bytes it has.
const TENSOR: usize = 256;
const TENSOR_BYTES: usize = 4096;
/// Bytes of shared memory that a kernel hands out.
const SHARED: usize = 4096;
/// Numbers of a bulk copy.
const BULK: [(&str, &str); 12] = [
    ("add", "u32"),
    ("add", "s32"),
    ("add", "u64"),
    ("min", "u32"),
    ("max", "s32"),
    ("min", "s64"),
    ("max", "u64"),
    ("inc", "u32"),
    ("dec", "u32"),
    ("and", "b32"),
    ("or", "b64"),
    ("xor", "b32"),
];

fn load(rank: usize, im2col: bool) -> String {
    let mode = if im2col { "im2col" } else { "tile" };
    format!("cp.async.bulk.tensor.{rank}d.shared::cluster.global.{mode}.mbarrier::complete_tx::bytes")
}

/// The same into the shared memory of several blocks.
fn multicast(load: &str) -> String {
    format!("{load}.multicast::cluster")
}

fn store(rank: usize, im2col: bool) -> String {
    let mode = if im2col { "im2col_no_offs" } else { "tile" };
    format!("cp.async.bulk.tensor.{rank}d.global.shared::cta.{mode}.bulk_group")
}

fn reduce(rank: usize, op: &str) -> String {
    format!("cp.reduce.async.bulk.tensor.{rank}d.global.shared::cta.{op}.tile.bulk_group")
}

/// Every opcode that a test here executes.
pub(crate) fn opcodes() -> Vec<String> {
    let mut all = Vec::new();
    for rank in 1..=5 {
        all.extend([
            load(rank, false),
            store(rank, false),
            reduce(rank, "add"),
            multicast(&load(rank, false)),
        ]);
        all.push(format!("cp.async.bulk.prefetch.tensor.{rank}d.L2.global.tile"));
        if rank >= 3 {
            all.extend([load(rank, true), store(rank, true), multicast(&load(rank, true))]);
        }
    }
    all.extend(REDUCES.map(|op| reduce(2, op)));
    all.push("cp.async.bulk.global.shared::cta.bulk_group".into());
    all.extend(BULK.map(|(op, ty)| format!("cp.reduce.async.bulk.global.shared::cta.bulk_group.{op}.{ty}")));
    all.push("cp.async.bulk.prefetch.L2.global".into());
    for space in ["global", "shared::cta"] {
        all.extend(FIELDS.map(|(field, ..)| replacing(field, space)));
    }
    all.push(COPY_MAP.into());
    all.push("fence.proxy.tensormap::generic.acquire.gpu".into());
    all.push("fence.proxy.tensormap::generic.release.gpu".into());
    all.push("prefetch.tensormap".into());
    all
}

const COPY_MAP: &str =
    "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned";

/// The fields that make the map of [`map`] of zeros: name, operands.
const FIELDS: [(&str, &[&str]); 10] = [
    ("global_address", &["tensor"]),
    ("rank", &["1"]),
    ("box_dim", &["0, 8", "1, 3"]),
    ("global_dim", &["0, 20", "1, 9"]),
    ("global_stride", &["0, 96"]),
    ("element_stride", &["0, 1", "1, 2"]),
    ("elemtype", &["3"]),
    ("interleave_layout", &["0"]),
    ("swizzle_mode", &["1"]),
    ("fill_mode", &["0"]),
];

fn replacing(field: &str, space: &str) -> String {
    let bits = if matches!(field, "global_address" | "global_stride") { 64 } else { 32 };
    format!("tensormap.replace.tile.{field}.{space}.b1024.b{bits}")
}

/// A tensor of so many dimensions, in whole numbers of 32 bits.
fn map(rank: usize, address: u64) -> TensorMap {
    if rank == 2 {
        return TensorMap {
            address,
            rank,
            sizes: [20, 9, 1, 1, 1],
            strides: [96, 0, 0, 0],
            steps: [1, 2, 1, 1, 1],
            element: Element::S32,
            swizzle: Swizzle::B32,
            promotion: 0,
            nan: false,
            shape: Shape::Tiled { size: [8, 5, 1, 1, 1] },
        };
    }
    TensorMap {
        address,
        rank,
        sizes: [7, 4, 3, 3, 2],
        strides: [32, 128, 400, 1200],
        steps: [1, 1, 2, 1, 1],
        element: Element::S32,
        swizzle: Swizzle::None,
        promotion: 0,
        nan: false,
        shape: Shape::Tiled { size: [8, 3, 3, 2, 2] },
    }
}

/// The same tensor as pixels.
fn pixels(rank: usize, address: u64) -> TensorMap {
    let shape = Shape::Im2col { lower: [-1, 0, -1], upper: [0, -1, 1], channels: 4, pixels: 21 };
    TensorMap { shape, ..map(rank, address) }
}

const AT: [i32; 5] = [2, -1, 1, -1, 1];
const PIXEL: [i32; 5] = [1, 0, 0, -1, 1];
const DISTANCE: [i64; 3] = [2, 1, 0];

/// Goes over all elements of a box: where each lies in shared memory, and in the tensor's bytes if it is one.
fn walk(map: &TensorMap, distance: [i64; 3], mut tell: impl FnMut(usize, Option<usize>)) {
    let rank = map.rank;
    let mut element = |index: usize, at: &[i64]| {
        let inside = (0..rank).all(|d| at[d] >= 0 && at[d] < map.sizes[d] as i64);
        let offset = (1..rank).map(|d| at[d] * map.strides[d - 1] as i64).sum::<i64>() + at[0] * 4;
        let mut place = index * 4;
        if map.swizzle == Swizzle::B32 && place / 128 % 2 == 1 {
            place ^= 16;
        }
        tell(place, inside.then_some(offset as usize));
    };
    match map.shape {
        Shape::Tiled { size } => {
            let taken: Vec<i64> = (0..rank)
                .map(|d| (i64::from(size[d]) + i64::from(map.steps[d]) - 1) / i64::from(map.steps[d]))
                .collect();
            for index in 0..taken.iter().product::<i64>() {
                let mut rest = index;
                let at: Vec<i64> = (0..rank)
                    .map(|d| {
                        let here = rest % taken[d];
                        rest /= taken[d];
                        i64::from(AT[d]) + here * i64::from(map.steps[d])
                    })
                    .collect();
                element(index as usize, &at);
            }
        }
        Shape::Im2col { lower, upper, channels, pixels } => {
            // All pixels of the box in all images, from the one that is named.
            let axes = rank - 2;
            let mut at: Vec<i64> = start(rank).iter().map(|&at| at.into()).collect();
            for pixel in 0..pixels as usize {
                for channel in 0..channels as usize {
                    let mut here = at.clone();
                    here[0] += channel as i64;
                    (0..axes).for_each(|axis| here[axis + 1] += distance[axis]);
                    element(pixel * channels as usize + channel, &here);
                }
                let mut axis = 0;
                loop {
                    if axis == axes {
                        at[rank - 1] += 1;
                        break;
                    }
                    at[axis + 1] += i64::from(map.steps[axis + 1]);
                    if at[axis + 1] <= map.sizes[axis + 1] as i64 - 1 + i64::from(upper[axis]) {
                        break;
                    }
                    at[axis + 1] = lower[axis].into();
                    axis += 1;
                }
            }
        }
    }
}

/// Where pixels begin: the last coordinate is the image's.
fn start(rank: usize) -> Vec<i32> {
    let mut at = PIXEL[..rank].to_vec();
    at[rank - 1] = 0;
    at
}

fn number(index: usize) -> u32 {
    (index as u32).wrapping_mul(2_654_435_761) ^ 0x8000_0000
}

/// The input: a map, and a tensor.
fn input(map: &TensorMap) -> Vec<u8> {
    let mut input = map.to_bytes().to_vec();
    input.resize(TENSOR, 0);
    input.extend((0..TENSOR_BYTES / 4).flat_map(|index| number(index).to_le_bytes()));
    input
}

fn coordinates(map: &TensorMap) -> String {
    let at = match map.shape {
        Shape::Tiled { .. } => AT[..map.rank].to_vec(),
        Shape::Im2col { .. } => start(map.rank),
    };
    let all: Vec<String> = at.iter().map(i32::to_string).collect();
    format!("{{{}}}", all.join(", "))
}

/// Runs one thread; what it leaves in the first bytes of shared memory and in the tensor.
fn run(body: &str, input: &[u8]) -> Result<(Vec<u8>, Vec<u8>), Error> {
    let ptx = format!(
        ".version 8.6\n.target sm_90a\n.address_size 64\n\
         .visible .entry test(.param .u64 in, .param .u64 out, .param .u32 n, .param .align 16 .b8 extra[64]) {{\n\
         .shared .align 128 .b8 tile[{SHARED}]; .shared .align 128 .b8 made[128]; .shared .b64 barrier;
         .reg .b64 map, tensor, pout, from, to; .reg .b32 i, w, at, bar; .reg .pred more, done;
         ld.param.u64 map, [in]; ld.param.u64 pout, [out]; add.u64 tensor, map, {TENSOR}; mov.u32 bar, barrier;
         mov.u32 i, 0;
         fill: mov.u32 at, tile; add.u32 at, at, i; mad.lo.u32 w, i, 7, 1; st.shared.u32 [at], w;
         add.u32 i, i, 4; setp.lt.u32 more, i, {SHARED}; @more bra fill;
         mov.u32 at, tile; mbarrier.init.shared.b64 [bar], 1;
         {body}
         mov.u32 i, 0;
         hand: mov.u32 at, tile; add.u32 at, at, i; ld.shared.u32 w, [at]; cvt.u64.u32 to, i; add.u64 to, pout, to; st.global.u32 [to], w;
         add.u32 i, i, 4; setp.lt.u32 more, i, {SHARED}; @more bra hand;
         mov.u32 i, 0;
         back: cvt.u64.u32 to, i; add.u64 from, tensor, to; add.u64 to, pout, to; ld.global.u32 w, [from]; st.global.u32 [to+{SHARED}], w;
         add.u32 i, i, 4; setp.lt.u32 more, i, {TENSOR_BYTES}; @more bra back;
         ret; }}\n"
    );
    let output = vec![0; SHARED + TENSOR_BYTES];
    let run =
        Run { ptx: &ptx, input, output: &output, count: 1, extra: [0; 64], grid: 1, block: 1, shared: 0 };
    let mut out = gpu().run(&run)?;
    let tensor = out.split_off(SHARED);
    Ok((out, tensor))
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(std::array::from_fn(|i| bytes[at + i]))
}

/// What is in shared memory before.
fn filled(at: usize) -> u32 {
    at as u32 * 7 + 1
}

const WAIT: &str = "
    again: mbarrier.test_wait.parity.shared.b64 done, [bar], 0;
    @done bra over; bra again;
    over:";

fn loads(map: &TensorMap, prelude: &str, named: &str, several: bool) {
    let im2col = matches!(map.shape, Shape::Im2col { .. });
    let opcode = load(map.rank, im2col);
    let distances: Vec<String> = DISTANCE[..map.rank.saturating_sub(2)].iter().map(i64::to_string).collect();
    let distances = if im2col { format!(", {{{}}}", distances.join(", ")) } else { String::new() };
    let mut count = 0;
    walk(map, DISTANCE, |_, _| count += 1);
    let at = coordinates(map);
    // A launch without clusters is one in clusters of one block.
    let one = match several {
        false => format!("{opcode} [at], [{named}, {at}], [bar]{distances};"),
        true => format!("{} [at], [{named}, {at}], [bar]{distances}, 1;", multicast(&opcode)),
    };
    let body = format!(
        "{prelude}
         prefetch.tensormap [{named}]; cp.async.bulk.prefetch.tensor.{rank}d.L2.global.tile [{named}, {tile}];
         mbarrier.arrive.expect_tx.shared.b64 _, [bar], {bytes};
         {one}{WAIT}",
        rank = map.rank,
        tile = at,
        bytes = count * 4,
    );
    let (shared, _) = run(&body, &input(map)).unwrap_or_else(|error| panic!("{opcode}: {error}"));
    let mut expected: Vec<u32> = (0..SHARED / 4).map(|index| filled(index * 4)).collect();
    walk(map, DISTANCE, |place, from| expected[place / 4] = from.map_or(0, |at| number(at / 4)));
    let got: Vec<u32> = (0..SHARED / 4).map(|index| word(&shared, index * 4)).collect();
    assert_eq!(got, expected, "{opcode}");
}

fn stores(map: &TensorMap, opcode: &str, combine: impl Fn(u32, u32) -> u32) {
    let body = format!(
        "{opcode} [map, {}], [at]; cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 0;",
        coordinates(map)
    );
    let (_, tensor) = run(&body, &input(map)).unwrap_or_else(|error| panic!("{opcode}: {error}"));
    let mut expected: Vec<u32> = (0..TENSOR_BYTES / 4).map(number).collect();
    walk(map, [0; 3], |place, to| {
        if let Some(to) = to {
            expected[to / 4] = combine(expected[to / 4], filled(place));
        }
    });
    let got: Vec<u32> = (0..TENSOR_BYTES / 4).map(|index| word(&tensor, index * 4)).collect();
    assert_eq!(got, expected, "{opcode}");
}

fn address() -> u64 {
    gpu().input_address() + TENSOR as u64
}

#[test]
fn boxes_are_loaded_and_stored() {
    let address = address();
    for rank in 1..=5 {
        let tiled = map(rank, address);
        loads(&tiled, "", "map", false);
        loads(&tiled, "", "map", true);
        stores(&tiled, &store(rank, false), |_, new| new);
        stores(&tiled, &reduce(rank, "add"), u32::wrapping_add);
        if rank >= 3 {
            loads(&pixels(rank, address), "", "map", false);
            loads(&pixels(rank, address), "", "map", true);
            stores(&pixels(rank, address), &store(rank, true), |_, new| new);
        }
    }
}

#[test]
fn boxes_are_combined_with_what_is_there() {
    let address = address();
    for op in REDUCES {
        let unsigned = matches!(op, "inc" | "dec" | "and" | "or" | "xor");
        let element = if unsigned { Element::U32 } else { Element::S32 };
        let signed = TensorMap { element, ..map(2, address) };
        stores(&signed, &reduce(2, op), |old, new| match op {
            "add" => old.wrapping_add(new),
            "min" => (old as i32).min(new as i32) as u32,
            "max" => (old as i32).max(new as i32) as u32,
            "inc" => {
                if old >= new {
                    0
                } else {
                    old + 1
                }
            }
            "dec" => {
                if old == 0 || old > new {
                    new
                } else {
                    old - 1
                }
            }
            "and" => old & new,
            "or" => old | new,
            _ => old ^ new,
        });
    }
}

#[test]
fn bytes_are_copied_and_combined() {
    let zeros = map(1, address());
    for (op, ty) in [("", "")].into_iter().chain(BULK) {
        let opcode = match op {
            "" => "cp.async.bulk.global.shared::cta.bulk_group".to_owned(),
            _ => format!("cp.reduce.async.bulk.global.shared::cta.bulk_group.{op}.{ty}"),
        };
        let body = format!(
            "{opcode} [tensor+32], [at], 64; cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;
             cp.async.bulk.prefetch.L2.global [tensor], 64;"
        );
        let (_, tensor) = run(&body, &input(&zeros)).unwrap_or_else(|error| panic!("{opcode}: {error}"));
        let wide = ty.ends_with("64");
        let value = |at: usize, old: bool| {
            let word = |at: usize| u64::from(if old { number(at / 4) } else { filled(at - 32) });
            if wide { word(at) | word(at + 4) << 32 } else { word(at) }
        };
        for at in (32..96).step_by(if wide { 8 } else { 4 }) {
            let (old, new) = (value(at, true), value(at, false));
            let sign = |bits: u64| if wide { bits as i64 } else { i64::from(bits as i32) };
            let expected = match (op, &ty[..1.min(ty.len())]) {
                ("", _) => new,
                ("add", _) => old.wrapping_add(new),
                ("min", "s") => sign(old).min(sign(new)) as u64,
                ("max", "s") => sign(old).max(sign(new)) as u64,
                ("min", _) => old.min(new),
                ("max", _) => old.max(new),
                ("inc", _) => {
                    if old >= new {
                        0
                    } else {
                        old + 1
                    }
                }
                ("dec", _) => {
                    if old == 0 || old > new {
                        new
                    } else {
                        old - 1
                    }
                }
                ("and", _) => old & new,
                ("or", _) => old | new,
                _ => old ^ new,
            };
            let got =
                u64::from(word(&tensor, at)) | if wide { u64::from(word(&tensor, at + 4)) << 32 } else { 0 };
            assert_eq!(got, if wide { expected } else { expected & 0xffff_ffff }, "{opcode} at {at}");
        }
        assert_eq!((word(&tensor, 28), word(&tensor, 96)), (number(7), number(24)), "{opcode}");
    }
}

#[test]
fn kernels_make_maps() {
    // Of zeros in global memory, and of zeros in shared memory, from where it is copied.
    let shape = Shape::Tiled { size: [8, 3, 1, 1, 1] };
    let wanted = TensorMap { shape, ..map(2, address()) };
    for space in ["global", "shared::cta"] {
        let at = if space == "global" { "from" } else { "made" };
        let mut prelude = String::from("add.u64 from, map, 128; mov.u32 i, 0;\n");
        prelude.push_str("zero: mov.u32 at, made; add.u32 at, at, i; st.shared.u32 [at], 0; add.u32 i, i, 4; setp.lt.u32 more, i, 128; @more bra zero;\n mov.u32 at, tile;\n");
        for (field, operands) in FIELDS {
            for given in operands {
                writeln!(prelude, "{} [{at}], {given};", replacing(field, space)).unwrap();
            }
        }
        if space != "global" {
            writeln!(prelude, "{COPY_MAP} [from], [made], 128;").unwrap();
        }
        prelude.push_str("fence.proxy.tensormap::generic.release.gpu; fence.proxy.tensormap::generic.acquire.gpu [from], 128;");
        loads(&wanted, &prelude, "from", false);
    }
}

#[test]
fn what_is_no_map_ends_the_kernel() {
    let good = map(2, address());
    let error = |map: &TensorMap, body: &str| run(body, &input(map)).expect_err(body);
    let load = load(2, false);
    for (body, code) in [
        (format!("{load} [at], [map+64, {{0, 0}}], [bar];"), Code::IllegalInstruction),
        (format!("{load} [at], [map+16, {{0, 0}}], [bar];"), Code::MisalignedAddress),
        (format!("{load} [at+64], [map, {{0, 0}}], [bar];"), Code::MisalignedAddress),
        (format!("mov.b64 from, 0; {load} [at], [from, {{0, 0}}], [bar];"), Code::IllegalAddress),
        (format!("mov.u32 at, 0x7fffff80; {load} [at], [map, {{0, 0}}], [bar];"), Code::IllegalAddress),
        (load.replace("2d", "1d") + " [at], [map, {0}], [bar];", Code::IllegalInstruction),
        (
            "cp.async.bulk.global.shared::cta.bulk_group [tensor+8], [at], 16;".to_owned(),
            Code::MisalignedAddress,
        ),
        (
            "cp.async.bulk.global.shared::cta.bulk_group [tensor], [at], 24;".to_owned(),
            Code::MisalignedAddress,
        ),
        ("cp.async.bulk.global.shared::cta.bulk_group [0], [at], 16;".to_owned(), Code::IllegalAddress),
        ("tensormap.replace.tile.rank.global.b1024.b32 [map+8], 1;".to_owned(), Code::MisalignedAddress),
    ] {
        assert_eq!(error(&good, &body).code, code, "{body}");
    }
    let nowhere = TensorMap { address: 4096, ..good };
    let body = format!("{load} [at], [map, {{0, 0}}], [bar];");
    assert_eq!(error(&nowhere, &body).code, Code::IllegalAddress);
    let bytes = TensorMap { element: Element::U8, shape: Shape::Tiled { size: [32, 1, 1, 1, 1] }, ..good };
    assert_eq!(
        error(&bytes, &format!("{} [map, {{0, 0}}], [at];", reduce(2, "add"))).code,
        Code::IllegalInstruction
    );
    const { assert!(TENSOR_MAP_BYTES == 128) };
}
