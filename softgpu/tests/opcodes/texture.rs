//! Textures and surfaces: each opcode is executed on headers and texels that lie in its input, and compared with a
//! formulation of the CUDA programming guide's rules in double precision that goes one dimension after the other.

mod reference;
mod surface;

use rgpu_device::texture::{
    AddressMode, ChannelKind, Level, TEXTURE_HEADER_BYTES, TexelFormat, TextureFlags, TextureHeader,
    TextureKind,
};
use rgpu_device::{Code, Error};

use super::gpu::{Run, gpu};
use super::values::Random;

/// Every opcode that a test here executes.
pub(crate) fn opcodes() -> Vec<String> {
    let mut all = Vec::new();
    for geometry in ["1d", "2d", "3d", "a1d", "a2d", "cube", "acube"] {
        all.push(format!("tex.{geometry}.v4.f32.f32"));
        all.push(format!("tex.level.{geometry}.v4.f32.f32"));
    }
    for geometry in ["1d", "2d", "3d", "a1d", "a2d"] {
        all.push(format!("tex.grad.{geometry}.v4.f32.f32"));
        all.extend(["u32", "s32"].map(|ty| format!("tex.{geometry}.v4.{ty}.f32")));
        all.extend(["u32", "s32", "f32"].map(|ty| format!("tex.{geometry}.v4.{ty}.s32")));
        for outside in ["trap", "clamp", "zero"] {
            for data in ["b8", "b16", "b32", "b64", "v2.b32", "v2.b64", "v4.b8", "v4.b16", "v4.b32"] {
                all.push(format!("suld.b.{geometry}.{data}.{outside}"));
                all.push(format!("sust.b.{geometry}.{data}.{outside}"));
            }
            all.extend(["b32", "v2.b32", "v4.b32"].map(|data| format!("sust.p.{geometry}.{data}.{outside}")));
            for op in ["add.u32", "add.u64", "min.s32", "max.u32", "and.b32", "or.b32", "max.s64"] {
                let (op, ty) = op.split_once('.').unwrap();
                all.push(format!("sured.b.{op}.{geometry}.{ty}.{outside}"));
            }
        }
    }
    for geometry in ["2d", "a2d", "cube", "acube"] {
        all.extend(["r", "g", "b", "a"].map(|channel| format!("tld4.{channel}.{geometry}.v4.f32.f32")));
    }
    for query in QUERIES {
        all.push(format!("txq.{}.b32", query.0));
    }
    all.extend(["width", "height", "depth"].map(|field| format!("txq.level.{field}.b32")));
    all.extend(["width", "height", "depth", "array_size"].map(|field| format!("suq.{field}.b32")));
    all.extend(["texref", "surfref"].map(|what| format!("istypep.{what}")));
    all
}

const QUERIES: [(&str, u32); 6] = [
    ("width", 13),
    ("height", 6),
    ("depth", 5),
    ("array_size", 0),
    ("num_mipmap_levels", 3),
    ("normalized_coords", 1),
];

/// Where texels begin in the input.
const TEXELS: usize = 512;
/// Words that a thread gets, and that it gives back.
const WORDS: usize = 12;

/// A texture with its texels.
#[derive(Clone)]
struct Texture {
    header: TextureHeader,
    texels: Vec<u8>,
}

impl Texture {
    fn new(kind: TextureKind, size: [u32; 3], format: TexelFormat, levels: u32, random: &mut Random) -> Self {
        let first = Level::first(size, format.bytes()).unwrap();
        let header = TextureHeader {
            base: 0,
            row_pitch: first.row_pitch,
            slice_pitch: first.slice_pitch,
            size,
            levels,
            kind,
            format,
            flags: TextureFlags::default(),
            address: [AddressMode::Clamp; 3],
            border: [0; 4],
            level_bias: 0.0,
            level_low: 0.0,
            level_high: 31.0,
        };
        let last = header.level(levels - 1).unwrap();
        let bytes = (last.offset + last.bytes().unwrap()) as usize;
        let mut texels = Vec::with_capacity(bytes);
        while texels.len() < bytes {
            let word = match (format.kind, format.bits) {
                // Numbers without NaN among them.
                (ChannelKind::Float, 32) => ((random.bits() % 2000) as f32 / 8.0 - 100.0).to_bits(),
                (ChannelKind::Float, _) => (random.bits() as u32) & 0xbbff_bbff,
                _ => random.bits() as u32,
            };
            texels.extend(word.to_le_bytes());
        }
        Self { header, texels }
    }

    /// A channel as it lies in memory.
    fn bits(&self, level: u32, [x, y, z]: [u32; 3], channel: usize) -> u32 {
        let format = self.header.format;
        let level = self.header.level(level).unwrap();
        let at = level.offset + u64::from(z) * level.slice_pitch + u64::from(y) * level.row_pitch;
        let at = at as usize + (x * format.bytes()) as usize + channel * usize::from(format.bits / 8);
        let mut bytes = [0; 4];
        let width = usize::from(format.bits / 8);
        bytes[..width].copy_from_slice(&self.texels[at..at + width]);
        u32::from_le_bytes(bytes)
    }

    /// A channel as a number; those that there are not are 0, 0, 0, 1.
    fn number(&self, level: u32, at: [i64; 3], channel: usize) -> f64 {
        let header = &self.header;
        let size = header.level(level).unwrap().size.map(|n| i64::from(n.max(1)));
        let mut inside = [0u32; 3];
        for d in 0..3 {
            let n = size[d];
            let layer = d == 2 && header.kind.has_layers();
            let mode = match header.address[d] {
                _ if layer => AddressMode::Clamp,
                AddressMode::Wrap | AddressMode::Mirror if !header.flags.normalized => AddressMode::Clamp,
                mode => mode,
            };
            inside[d] = match mode {
                AddressMode::Wrap => ((at[d] % n + n) % n) as u32,
                AddressMode::Border if at[d] < 0 || at[d] >= n => {
                    return f64::from(f32::from_bits(header.border[channel]));
                }
                _ => at[d].max(0).min(n - 1) as u32,
            };
        }
        let format = header.format;
        if channel >= usize::from(format.channels) {
            return if channel == 3 { 1.0 } else { 0.0 };
        }
        let bits = self.bits(level, inside, channel);
        let signed = ((bits << (32 - format.bits)) as i32 >> (32 - format.bits)) as f64;
        let most = 2f64.powi(i32::from(format.bits));
        match (format.kind, format.bits, header.flags.as_float) {
            (ChannelKind::Float, 32, _) => f64::from(f32::from_bits(bits)),
            (ChannelKind::Float, ..) => {
                let (sign, e, m) = (bits >> 15, (bits >> 10 & 31) as i32, f64::from(bits & 1023));
                let value = if e == 0 { m * 2f64.powi(-24) } else { (1024.0 + m) * 2f64.powi(e - 25) };
                if sign == 1 { -value } else { value }
            }
            (ChannelKind::Unsigned, _, false) => f64::from(bits),
            (ChannelKind::Unsigned, _, true) => f64::from(bits) / (most - 1.0),
            (ChannelKind::Signed, _, false) => signed,
            (ChannelKind::Signed, _, true) => (signed / (most / 2.0 - 1.0)).max(-1.0),
        }
    }

    /// Reads at coordinates in texels of a level, one direction after the other, from the last one.
    fn filtered(&self, level: u32, x: &[f64], at: [i64; 3], channel: usize) -> f64 {
        let Some((&last, rest)) = x.split_last() else { return self.number(level, at, channel) };
        let with = |index: f64| {
            let mut at = at;
            at[rest.len()] = index as i64;
            self.filtered(level, rest, at, channel)
        };
        if !self.header.flags.linear {
            return with(last.floor());
        }
        let shifted = last - 0.5;
        let weight = ((shifted - shifted.floor()) * 256.0 + 0.5).floor() / 256.0;
        let (a, b) = (with(shifted.floor()), with(shifted.floor() + 1.0));
        // A border of infinities is none of ours.
        a * (1.0 - weight) + b * weight
    }

    /// Reads a level at what an instruction is given.
    fn sampled(&self, level: u32, coordinates: &[f32], layer: u32, channel: usize) -> f64 {
        let header = &self.header;
        let size = header.level(level).unwrap().size;
        let slices = size[2].max(1);
        let (coordinates, slice) = match header.kind {
            TextureKind::Cube | TextureKind::Cubes => {
                let (face, place) = face(coordinates);
                let cube = if header.kind == TextureKind::Cubes { layer.min(slices / 6 - 1) } else { 0 };
                (place, cube * 6 + face)
            }
            _ => (coordinates.to_vec(), if header.kind.has_layers() { layer.min(slices - 1) } else { 0 }),
        };
        let x: Vec<f64> = (0..coordinates.len())
            .map(|d| {
                let (x, n) = (f64::from(coordinates[d]), f64::from(size[d].max(1)));
                match (header.flags.normalized, header.address[d]) {
                    (false, _) => x,
                    (true, AddressMode::Wrap) => (x - x.floor()) * n,
                    (true, AddressMode::Mirror) => {
                        let double = x.rem_euclid(2.0);
                        (if double >= 1.0 { 2.0 - double } else { double }) * n
                    }
                    (true, _) => x * n,
                }
            })
            .collect();
        self.filtered(level, &x, [0, 0, i64::from(slice)], channel)
    }
}

/// The face that a direction leads to, and where on it: the programming guide's table.
fn face(v: &[f32]) -> (u32, Vec<f32>) {
    let [x, y, z] = [v[0], v[1], v[2]];
    let (axis, sign) = if x.abs() >= y.abs() && x.abs() >= z.abs() {
        (0, x)
    } else if y.abs() >= z.abs() {
        (1, y)
    } else {
        (2, z)
    };
    let (m, s, t) = match (axis, sign >= 0.0) {
        (0, true) => (x, -z, -y),
        (0, false) => (-x, z, -y),
        (1, true) => (y, x, z),
        (1, false) => (-y, x, -z),
        (_, true) => (z, x, -y),
        (_, false) => (-z, -x, -y),
    };
    (axis * 2 + u32::from(sign < 0.0), vec![(s / m + 1.0) / 2.0, (t / m + 1.0) / 2.0])
}

/// Executes an instruction with `{h}` for the object, once for each row of words `w0`…; results are `q0`…, or 64 bits each in
/// `l0`…; and what the texels are afterwards.
fn execute(
    texture: &Texture,
    instruction: &str,
    rows: &[[u32; WORDS]],
) -> Result<(Vec<[u32; 4]>, Vec<u8>), Error> {
    let rows_at = (TEXELS + texture.texels.len()).next_multiple_of(16);
    let mut gpu = gpu();
    let base = gpu.input_address();
    let header = TextureHeader { base: base + TEXELS as u64, ..texture.header };
    let mut input = vec![0; rows_at + rows.len() * WORDS * 4];
    input[..TEXTURE_HEADER_BYTES].copy_from_slice(&header.to_bytes());
    input[TEXELS..TEXELS + texture.texels.len()].copy_from_slice(&texture.texels);
    for (place, word) in input[rows_at..].chunks_exact_mut(4).zip(rows.iter().flatten()) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    let loads: String = (0..WORDS).map(|n| format!("ld.global.b32 w{n}, [rd2+{}];\n", n * 4)).collect();
    let texels = texture.texels.len();
    let ptx = format!(
        ".version 8.6\n.target sm_90\n.address_size 64\n\
         .visible .entry test(.param .u64 in, .param .u64 out, .param .u32 n, .param .align 16 .b8 extra[64])\n{{\n\
         .reg .b32 w<12>; .reg .b32 q<4>; .reg .b64 l<2>; .reg .b16 s<4>; .reg .b64 rd<9>; .reg .pred p<3>; .reg .b32 t<4>;\n\
         mov.u32 t1, %ctaid.x; mov.u32 t2, %tid.x; mad.lo.u32 t1, t1, 64, t2; ld.param.u32 t2, [n];\n\
         ld.param.u64 rd1, [in]; mul.wide.u32 rd2, t1, {}; add.u64 rd2, rd2, rd1; add.u64 rd2, rd2, {rows_at};\n\
         setp.ge.u32 p1, t1, t2; @p1 ret;\n{loads}\
         mov.u32 q0, 0; mov.u32 q1, 0; mov.u32 q2, 0; mov.u32 q3, 0;\n{}\n\
         ld.param.u64 rd3, [out]; mul.wide.u32 rd4, t1, 16; add.u64 rd4, rd4, rd3;\n\
         st.global.v4.b32 [rd4], {{q0, q1, q2, q3}};\n\
         setp.ne.u32 p1, t1, 0; @p1 ret;\n\
         mov.u32 t1, 0;\nAGAIN: add.u64 rd5, rd1, {TEXELS}; cvt.u64.u32 rd6, t1; add.u64 rd5, rd5, rd6;\n\
         ld.global.b32 t3, [rd5]; mul.wide.u32 rd4, t2, 16; add.u64 rd4, rd4, rd3; add.u64 rd4, rd4, rd6; st.global.b32 [rd4], t3;\n\
         add.u32 t1, t1, 4; setp.lt.u32 p1, t1, {texels}; @p1 bra AGAIN;\nret;\n}}\n",
        WORDS * 4,
        instruction.replace("{h}", "rd1"),
    );
    let output = vec![0; rows.len() * 16 + texels];
    let run = Run {
        ptx: &ptx,
        input: &input,
        output: &output,
        count: rows.len() as u32,
        extra: [0; 64],
        grid: rows.len().div_ceil(64) as u32,
        block: 64,
        shared: 0,
    };
    let output = gpu.run(&run)?;
    let (results, texels) = output.split_at(rows.len() * 16);
    let word = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().unwrap());
    let results =
        results.chunks_exact(16).map(|row| std::array::from_fn(|i| word(&row[i * 4..i * 4 + 4]))).collect();
    Ok((results, texels.to_vec()))
}

fn float() -> TexelFormat {
    TexelFormat::new(ChannelKind::Float, 32, 1).unwrap()
}

/// The geometries, with textures of each.
fn shapes() -> [(&'static str, TextureKind, [u32; 3], usize); 7] {
    use TextureKind::*;
    [
        ("1d", Line, [13, 0, 0], 1),
        ("2d", Plane, [13, 6, 0], 2),
        ("3d", Volume, [13, 6, 5], 3),
        ("a1d", Lines, [13, 0, 5], 1),
        ("a2d", Planes, [13, 6, 5], 2),
        ("cube", Cube, [6, 6, 6], 3),
        ("acube", Cubes, [6, 6, 18], 3),
    ]
}

/// How coordinates are written: the layer is `w3`.
fn coordinates(geometry: &str, dimensions: usize) -> String {
    let mut parts: Vec<String> = (0..dimensions).map(|n| format!("w{n}")).collect();
    if geometry.starts_with('a') {
        parts.insert(0, "w3".to_owned());
    }
    if parts.len() == 3 {
        parts.push(parts[2].clone());
    }
    parts.join(", ")
}

/// Rows of coordinates near a texture of this size, and layers near its own.
fn places(normalized: bool, size: [u32; 3], random: &mut Random) -> Vec<[u32; WORDS]> {
    let mut rows = Vec::new();
    for n in 0..300 {
        let mut row = [0; WORDS];
        for d in 0..3 {
            let most = f64::from(size[d].max(1));
            // Also places in the middle of texels and between them.
            let x = match n % 3 {
                0 => (random.bits() % 64) as f64 / 2.0 - 8.0,
                _ => ((random.bits() % 100_000) as f64 / 100_000.0 * 3.0 - 1.0) * most,
            };
            row[d] = (if normalized { x / most } else { x } as f32).to_bits();
        }
        row[3] = [0, 1, 2, 3, 4, 5, 7, u32::MAX][n % 8];
        rows.push(row);
    }
    rows
}

fn close(got: u32, want: f64, what: &str) {
    let got = f64::from(f32::from_bits(got));
    assert!((got - want).abs() <= want.abs() * 1e-6 + 1e-6, "{what}: {got} instead of {want}");
}

#[test]
fn textures_are_filtered_as_the_guide_says() {
    let mut random = Random(1);
    for (geometry, kind, size, dimensions) in shapes() {
        let mut texture = Texture::new(kind, size, float(), 1, &mut random);
        texture.header.border = [2.5f32.to_bits(), 0, 0, 0];
        for variant in 0..16 {
            let mode = AddressMode::from_number(variant % 4).unwrap();
            let cube = geometry.ends_with("cube");
            texture.header.flags.linear = variant & 4 != 0;
            texture.header.flags.normalized = variant & 8 != 0 || cube;
            texture.header.address = if cube { [AddressMode::Clamp; 3] } else { [mode; 3] };
            let rows = places(texture.header.flags.normalized, size, &mut random);
            let instruction = format!(
                "tex.{geometry}.v4.f32.f32 {{q0, q1, q2, q3}}, [{{h}}, {{{}}}];",
                coordinates(geometry, dimensions)
            );
            let (results, _) = execute(&texture, &instruction, &rows).unwrap();
            for (row, got) in rows.iter().zip(results) {
                let x: Vec<f32> = row[..dimensions].iter().map(|&w| f32::from_bits(w)).collect();
                let want = texture.sampled(0, &x, row[3], 0);
                close(got[0], want, &format!("{geometry} {:?} at {x:?}", texture.header));
            }
        }
    }
}

#[test]
fn formats_are_read_as_numbers() {
    let mut random = Random(2);
    for (kind, bits, channels) in [
        (ChannelKind::Unsigned, 8, 4),
        (ChannelKind::Signed, 8, 2),
        (ChannelKind::Unsigned, 16, 1),
        (ChannelKind::Signed, 16, 4),
        (ChannelKind::Unsigned, 8, 1),
        (ChannelKind::Float, 16, 4),
        (ChannelKind::Float, 16, 2),
        (ChannelKind::Float, 32, 2),
        (ChannelKind::Float, 32, 4),
        (ChannelKind::Unsigned, 32, 4),
        (ChannelKind::Signed, 32, 2),
        (ChannelKind::Signed, 32, 1),
    ] {
        let format = TexelFormat::new(kind, bits, channels).unwrap();
        let (geometry, shape, size, dimensions) = shapes()[random.bits() as usize % 5];
        let mut texture = Texture::new(shape, size, format, 1, &mut random);
        for as_float in [false, true] {
            texture.header.flags.as_float = as_float && kind != ChannelKind::Float && bits < 32;
            let is_float = kind == ChannelKind::Float || texture.header.flags.as_float;
            texture.header.flags.linear = is_float;
            let rows = places(false, size, &mut random);
            let ty = match kind {
                _ if is_float => "f32",
                ChannelKind::Unsigned => "u32",
                _ => "s32",
            };
            for all in ["1d", "2d", "3d", "a1d", "a2d"] {
                // Every form is executed; the texture's own is compared.
                let dimensions = if all == geometry { dimensions } else { 3.min(all.len()) };
                let own = shapes().iter().find(|shape| shape.0 == all).unwrap().3;
                let place = coordinates(all, if all == geometry { dimensions } else { own });
                let instruction = format!("tex.{all}.v4.{ty}.f32 {{q0, q1, q2, q3}}, [{{h}}, {{{place}}}];");
                let (results, _) = execute(&texture, &instruction, &rows).unwrap();
                if all != geometry {
                    continue;
                }
                for (row, got) in rows.iter().zip(results) {
                    let x: Vec<f32> = row[..dimensions].iter().map(|&w| f32::from_bits(w)).collect();
                    for (channel, got) in got.into_iter().enumerate() {
                        let want = texture.sampled(0, &x, row[3], channel);
                        let what = format!("{ty} channel {channel} of {format:?} in {geometry} at {x:?}");
                        match ty {
                            "f32" => close(got, want, &what),
                            "u32" => assert_eq!(f64::from(got), want, "{what}"),
                            _ => assert_eq!(f64::from(got as i32), want, "{what}"),
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn whole_numbers_name_texels() {
    let mut random = Random(3);
    let mut linear = Texture::new(TextureKind::Linear, [100, 0, 0], float(), 1, &mut random);
    let numbers: Vec<i32> = (-20..140).chain([i32::MIN, i32::MAX]).collect();
    let rows: Vec<[u32; WORDS]> =
        numbers.iter().map(|&n| std::array::from_fn(|i| if i == 3 { 2 } else { n as u32 })).collect();
    for ty in ["f32", "s32", "u32"] {
        let instruction = format!("tex.1d.v4.{ty}.s32 {{q0, q1, q2, q3}}, [{{h}}, {{w0}}];");
        let (results, _) = execute(&linear, &instruction, &rows).unwrap();
        for (&n, got) in numbers.iter().zip(results) {
            let inside = (0..100).contains(&n);
            assert_eq!(got[0], if inside { linear.bits(0, [n as u32, 0, 0], 0) } else { 0 }, "{n}");
        }
        for (geometry, kind, size, dimensions) in shapes().into_iter().take(5) {
            let texture = Texture::new(kind, size, float(), 1, &mut random);
            let place = coordinates(geometry, dimensions);
            let instruction = format!("tex.{geometry}.v4.{ty}.s32 {{q0, q1, q2, q3}}, [{{h}}, {{{place}}}];");
            let (results, _) = execute(&texture, &instruction, &rows).unwrap();
            for (&n, got) in numbers.iter().zip(results) {
                let at = std::array::from_fn(|d| match d {
                    _ if d < dimensions => n.clamp(0, size[d] as i32 - 1) as u32,
                    2 if kind.has_layers() => 2,
                    _ => 0,
                });
                assert_eq!(got[0], texture.bits(0, at, 0), "{geometry} {n}");
            }
        }
    }
    linear.header.flags.surface = true;
    let instruction = "tex.1d.v4.f32.s32 {q0, q1, q2, q3}, [{h}, {w0}];";
    let error = execute(&linear, instruction, &rows).unwrap_err();
    assert_eq!(error.code, Code::IllegalAddress, "a surface is no texture");
}

#[test]
fn mipmap_levels_are_chosen_and_mixed() {
    let mut random = Random(4);
    for (geometry, kind, size, dimensions) in shapes() {
        let mut texture = Texture::new(kind, size, float(), 3, &mut random);
        texture.header.flags.normalized = true;
        texture.header.flags.linear = true;
        texture.header.level_bias = 0.25;
        texture.header.level_high = 1.75;
        for mixed in [false, true] {
            texture.header.flags.linear_levels = mixed;
            let mut rows = places(true, size, &mut random);
            for row in &mut rows {
                row[4] = ((random.bits() % 500) as f32 / 100.0 - 0.997).to_bits();
                // The same level in another way: so many texels from one pixel to the next.
                let step = f32::from_bits(row[4]).exp2();
                row[5] = (step / size[0] as f32).to_bits();
            }
            let place = coordinates(geometry, dimensions);
            let zero = ["0f00000000"; 4];
            let count = if dimensions == 3 { 4 } else { dimensions };
            let across = [&["w5"], &zero[1..count]].concat().join(", ");
            let mut forms = vec![format!(
                "tex.level.{geometry}.v4.f32.f32 {{q0, q1, q2, q3}}, [{{h}}, {{{place}}}], w4;"
            )];
            if !geometry.ends_with("cube") {
                forms.push(format!(
                    "tex.grad.{geometry}.v4.f32.f32 {{q0, q1, q2, q3}}, [{{h}}, {{{place}}}], {{{across}}}, {{{}}};",
                    zero[..count].join(", ")
                ));
            }
            for instruction in forms {
                let (results, _) = execute(&texture, &instruction, &rows).unwrap();
                let mut wrong = 0;
                for (row, got) in rows.iter().zip(&results) {
                    let x: Vec<f32> = row[..dimensions].iter().map(|&w| f32::from_bits(w)).collect();
                    let level = (f64::from(f32::from_bits(row[4])) + 0.25).clamp(0.0, 1.75);
                    let at = |level: f64| texture.sampled(level as u32, &x, row[3], 0);
                    let want = if mixed {
                        let weight = ((level - level.floor()) * 256.0 + 0.5).floor() / 256.0;
                        at(level.floor()) * (1.0 - weight) + at(level.floor() + 1.0) * weight
                    } else {
                        at((level + 0.5).floor())
                    };
                    let got = f64::from(f32::from_bits(got[0]));
                    wrong += u32::from((got - want).abs() > want.abs() * 1e-5 + 1e-5);
                }
                // The logarithm of a rounded power may be on the other side of a weight's edge.
                let allowed = if instruction.contains("grad") { 3 } else { 0 };
                assert!(wrong <= allowed, "{wrong} are wrong: {instruction} {mixed}");
            }
        }
    }
}

#[test]
fn four_texels_are_gathered() {
    let mut random = Random(5);
    let format = TexelFormat::new(ChannelKind::Float, 32, 4).unwrap();
    for (geometry, kind, size, dimensions) in shapes() {
        if !["2d", "a2d", "cube", "acube"].contains(&geometry) {
            continue;
        }
        let cube = geometry.ends_with("cube");
        let mut texture = Texture::new(kind, size, format, 1, &mut random);
        texture.header.flags.normalized = cube;
        for (channel, name) in ["r", "g", "b", "a"].into_iter().enumerate() {
            let rows = places(cube, size, &mut random);
            let place = coordinates(geometry, dimensions);
            let instruction =
                format!("tld4.{name}.{geometry}.v4.f32.f32 {{q0, q1, q2, q3}}, [{{h}}, {{{place}}}];");
            let (results, _) = execute(&texture, &instruction, &rows).unwrap();
            for (row, got) in rows.iter().zip(results) {
                let x: Vec<f32> = row[..dimensions].iter().map(|&w| f32::from_bits(w)).collect();
                let slices = size[2].max(1);
                let (x, slice) = match cube {
                    true => {
                        let (face, place) = face(&x);
                        let cube = if geometry == "cube" { 0 } else { row[3].min(slices / 6 - 1) };
                        (place.iter().map(|&x| f64::from(x) * 6.0).collect::<Vec<_>>(), cube * 6 + face)
                    }
                    false => (
                        x.iter().map(|&x| f64::from(x)).collect(),
                        if geometry == "2d" { 0 } else { row[3].min(slices - 1) },
                    ),
                };
                let first = [0, 1].map(|d| (x[d] - 0.5).floor() as i64);
                let corners = [(0, 1), (1, 1), (1, 0), (0, 0)];
                let want = corners.map(|(i, j)| {
                    (texture.number(0, [first[0] + i, first[1] + j, slice.into()], channel) as f32).to_bits()
                });
                assert_eq!(got, want, "{geometry} {name} at {x:?}");
            }
        }
    }
}

#[test]
fn objects_are_asked_about_themselves() {
    let mut random = Random(6);
    let mut texture = Texture::new(TextureKind::Volume, [13, 6, 5], float(), 3, &mut random);
    texture.header.flags.normalized = true;
    let ask = |texture: &Texture, instruction: &str, word: u32| {
        let row = [word; WORDS];
        execute(texture, instruction, &[row]).unwrap().0[0][0]
    };
    for (query, want) in QUERIES {
        assert_eq!(ask(&texture, &format!("txq.{query}.b32 q0, [{{h}}];"), 0), want, "{query}");
    }
    for (level, want) in [(0, [13, 6, 5]), (1, [6, 3, 2]), (2, [3, 1, 1]), (3, [0, 0, 0]), (u32::MAX, [0; 3])]
    {
        let got = ["width", "height", "depth"]
            .map(|field| ask(&texture, &format!("txq.level.{field}.b32 q0, [{{h}}], w0;"), level));
        assert_eq!(got, want, "level {level}");
    }
    for (kind, layers) in [(TextureKind::Planes, 18), (TextureKind::Cubes, 3), (TextureKind::Cube, 0)] {
        let texture = Texture::new(kind, [6, 6, 18], float(), 1, &mut random);
        assert_eq!(ask(&texture, "txq.array_size.b32 q0, [{h}];", 0), layers);
        assert_eq!(ask(&texture, "txq.depth.b32 q0, [{h}];", 0), 0);
    }
    for surface in [false, true] {
        texture.header.flags.surface = surface;
        for (what, want) in [("texref", !surface), ("surfref", surface)] {
            let is = |handle: &str| format!("istypep.{what} p1, {handle}; selp.u32 q0, 1, 0, p1;");
            assert_eq!(ask(&texture, &is("rd1"), 0), u32::from(want));
            assert_eq!(ask(&texture, &is("rd3"), 0), 0, "an undefined register is no object");
        }
    }
    for (field, want) in [("width", 13), ("height", 6), ("depth", 5), ("array_size", 0)] {
        assert_eq!(ask(&texture, &format!("suq.{field}.b32 q0, [{{h}}];"), 0), want, "{field}");
    }
}
