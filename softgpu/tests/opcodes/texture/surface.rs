//! Surfaces: each access of bytes, texels and atomic operations, inside and outside.

use super::*;

/// Where a surface is accessed: the byte, or `None` where nothing is.
fn surface_at(
    texture: &Texture,
    dimensions: usize,
    outside: &str,
    row: &[u32; WORDS],
    bytes: i64,
) -> Option<usize> {
    let header = &texture.header;
    let width = i64::from(header.size[0] * header.format.bytes());
    let number = |n: usize| i64::from(row[n] as i32);
    let mut at = [number(0), 0, 0];
    at[1] = if dimensions > 1 { number(1) } else { 0 };
    at[2] = if header.kind.has_layers() {
        number(3)
    } else if dimensions > 2 {
        number(2)
    } else {
        0
    };
    let most = [width - bytes, i64::from(header.size[1].max(1)) - 1, i64::from(header.size[2].max(1)) - 1];
    for d in 0..3 {
        if at[d] < 0 || at[d] > most[d] {
            if outside == "zero" {
                return None;
            }
            at[d] = if at[d] < 0 {
                0
            } else {
                most[d] / if d == 0 { bytes } else { 1 } * if d == 0 { bytes } else { 1 }
            };
        }
    }
    let slice = at[2] as u64 * header.slice_pitch + at[1] as u64 * header.row_pitch;
    Some(slice as usize + at[0] as usize)
}

#[test]
fn surfaces_are_read_and_written() {
    let mut random = Random(7);
    let format = TexelFormat::new(ChannelKind::Unsigned, 32, 4).unwrap();
    for (geometry, kind, size, dimensions) in shapes().into_iter().take(5) {
        let mut texture = Texture::new(kind, size, format, 1, &mut random);
        texture.header.flags.surface = true;
        let place = coordinates(geometry, dimensions);
        for outside in ["trap", "clamp", "zero"] {
            for (data, element, count) in [
                ("b8", 1, 1),
                ("b16", 2, 1),
                ("b32", 4, 1),
                ("b64", 8, 1),
                ("v2.b32", 4, 2),
                ("v2.b64", 8, 2),
                ("v4.b8", 1, 4),
                ("v4.b16", 2, 4),
                ("v4.b32", 4, 4),
            ] {
                let bytes = (element * count) as i64;
                let mut rows = Vec::new();
                for _ in 0..24 {
                    let mut row: [u32; WORDS] = std::array::from_fn(|_| random.bits() as u32);
                    let reach = |size: u32, random: &mut Random| match outside {
                        "trap" => (random.bits() % u64::from(size.max(1))) as i64,
                        _ => (random.bits() % (3 * u64::from(size) + 3)) as i64 - i64::from(size),
                    };
                    row[0] = (reach(size[0] * 16 / bytes as u32, &mut random) * bytes) as u32;
                    row[1] = reach(size[1], &mut random) as u32;
                    row[2] = reach(size[2], &mut random) as u32;
                    row[3] = reach(size[2], &mut random) as u32;
                    rows.push(row);
                }
                let registers = |names: [&str; 4]| format!("{{{}}}", names[..count].join(", "));
                let (load, store) = match element {
                    8 => (
                        "mov.b64 {q0, q1}, l0; mov.b64 {q2, q3}, l1;".to_owned(),
                        "mov.b64 l0, {w4, w5}; mov.b64 l1, {w6, w7};".to_owned(),
                    ),
                    1 | 2 => (
                        (0..count).map(|n| format!("cvt.u32.u16 q{n}, s{n};")).collect(),
                        (0..count).map(|n| format!("cvt.u16.u32 s{n}, w{};", n + 4)).collect(),
                    ),
                    _ => (String::new(), String::new()),
                };
                let names = match element {
                    8 => ["l0", "l1", "", ""],
                    1 | 2 => ["s0", "s1", "s2", "s3"],
                    _ => ["q0", "q1", "q2", "q3"],
                };
                let clear = if element == 8 { "mov.u64 l0, 0; mov.u64 l1, 0;" } else { "" };
                let instruction = format!(
                    "{clear} suld.b.{geometry}.{data}.{outside} {}, [{{h}}, {{{place}}}]; {load}",
                    registers(names)
                );
                let (results, unchanged) = execute(&texture, &instruction, &rows).unwrap();
                assert!(unchanged == texture.texels);
                for (row, got) in rows.iter().zip(&results) {
                    let mut want = [0u8; 16];
                    if let Some(at) = surface_at(&texture, dimensions, outside, row, bytes) {
                        let found = &texture.texels[at..at + bytes as usize];
                        match element {
                            1 | 2 => found.chunks(element).enumerate().for_each(|(n, bytes)| {
                                want[n * 4..n * 4 + element].copy_from_slice(bytes);
                            }),
                            _ => want[..found.len()].copy_from_slice(found),
                        }
                    }
                    let got: Vec<u8> = got.iter().flat_map(|word| word.to_le_bytes()).collect();
                    assert_eq!(got, want, "{instruction} {row:?}");
                }
                // One row after the other: places may be the same.
                let names = if element == 4 { ["w4", "w5", "w6", "w7"] } else { names };
                let instruction = format!(
                    "{store} sust.b.{geometry}.{data}.{outside} [{{h}}, {{{place}}}], {};",
                    registers(names)
                );
                for row in rows.iter().take(4) {
                    let (_, texels) = execute(&texture, &instruction, &[*row]).unwrap();
                    let mut want = texture.texels.clone();
                    if let Some(at) = surface_at(&texture, dimensions, outside, row, bytes) {
                        let given: Vec<u8> = match element {
                            8 => row[4..4 + 2 * count].iter().flat_map(|w| w.to_le_bytes()).collect(),
                            _ => row[4..4 + count]
                                .iter()
                                .flat_map(|w| w.to_le_bytes()[..element].to_vec())
                                .collect(),
                        };
                        want[at..at + given.len()].copy_from_slice(&given);
                    }
                    assert!(texels == want, "{instruction} {row:?}");
                }
            }
        }
    }
}

#[test]
fn surfaces_are_reduced_and_formatted() {
    let mut random = Random(8);
    let words = TexelFormat::new(ChannelKind::Unsigned, 32, 2).unwrap();
    let small = TexelFormat::new(ChannelKind::Signed, 8, 4).unwrap();
    for (geometry, kind, size, dimensions) in shapes().into_iter().take(5) {
        let place = coordinates(geometry, dimensions);
        let mut texture = Texture::new(kind, size, words, 1, &mut random);
        texture.header.flags.surface = true;
        for outside in ["trap", "clamp", "zero"] {
            for (op, ty) in [
                ("add", "u32"),
                ("add", "u64"),
                ("min", "s32"),
                ("max", "u32"),
                ("and", "b32"),
                ("or", "b32"),
                ("max", "s64"),
            ] {
                let bytes = if ty.ends_with("64") { 8 } else { 4 };
                let mut row: [u32; WORDS] = std::array::from_fn(|_| random.bits() as u32);
                let beyond = u32::from(outside != "trap");
                row[..4].copy_from_slice(&[8, size[1].saturating_sub(1) + beyond, 3, 2 + 3 * beyond]);
                let value = if bytes == 8 { "l0" } else { "w4" };
                let instruction = format!(
                    "mov.b64 l0, {{w4, w5}}; sured.b.{op}.{geometry}.{ty}.{outside} [{{h}}, {{{place}}}], {value}; bar.sync 0;"
                );
                // A whole block does it, and then the first thread looks.
                let (_, texels) = execute(&texture, &instruction, &[row; 64]).unwrap();
                let mut want = texture.texels.clone();
                if let Some(at) = surface_at(&texture, dimensions, outside, &row, bytes) {
                    let place = &mut want[at..at + bytes as usize];
                    let mut old = [0; 8];
                    old[..place.len()].copy_from_slice(place);
                    let (a, b) = (u64::from_le_bytes(old), u64::from(row[4]) | u64::from(row[5]) << 32);
                    let new = match (op, ty) {
                        ("add", _) => a.wrapping_add(b.wrapping_mul(64)),
                        ("min", _) => (a as i32).min(b as i32) as u64,
                        ("max", "u32") => u64::from((a as u32).max(b as u32)),
                        ("max", _) => (a as i64).max(b as i64) as u64,
                        ("and", _) => a & b,
                        _ => a | b,
                    };
                    place.copy_from_slice(&new.to_le_bytes()[..place.len()]);
                }
                assert!(texels == want, "{instruction}");
            }
            let mut texture = Texture::new(kind, size, small, 1, &mut random);
            texture.header.flags.surface = true;
            for (data, count) in [("b32", 1), ("v2.b32", 2), ("v4.b32", 4)] {
                let mut row = [0; WORDS];
                row[0] = 5;
                row[4..8].copy_from_slice(&[-1000i32 as u32, 77, 1000, -3i32 as u32]);
                let registers = ["w4", "w5", "w6", "w7"][..count].join(", ");
                let instruction =
                    format!("sust.p.{geometry}.{data}.{outside} [{{h}}, {{{place}}}], {{{registers}}};");
                let (_, texels) = execute(&texture, &instruction, &[row]).unwrap();
                let mut want = texture.texels.clone();
                let stored = [-128i8, 77, 127, -3].map(|n| n as u8);
                for channel in 0..4 {
                    want[20 + channel] = if channel < count { stored[channel] } else { 0 };
                }
                assert!(texels == want, "{instruction}");
            }
        }
    }
}

#[test]
fn what_is_outside_or_misaligned_or_no_object_ends_the_kernel() {
    let mut random = Random(9);
    let mut surface = Texture::new(TextureKind::Plane, [13, 6, 0], float(), 1, &mut random);
    surface.header.flags.surface = true;
    let far = Texture {
        header: TextureHeader { row_pitch: 1 << 40, flags: TextureFlags::default(), ..surface.header },
        texels: surface.texels.clone(),
    };
    for (texture, instruction, code) in [
        (&surface, "suld.b.2d.b32.trap {q0}, [{h}, {52, 0}];", Code::IllegalAddress),
        (&surface, "suld.b.2d.b32.trap {q0}, [{h}, {0, 6}];", Code::IllegalAddress),
        (&surface, "sust.b.2d.b32.trap [{h}, {-4, 0}], {q0};", Code::IllegalAddress),
        (&surface, "suld.b.2d.b32.zero {q0}, [{h}, {2, 0}];", Code::MisalignedAddress),
        (&surface, "tex.2d.v4.f32.f32 {q0, q1, q2, q3}, [{h}, {w0, w1}];", Code::IllegalAddress),
        (&far, "tex.2d.v4.f32.f32 {q0, q1, q2, q3}, [{h}, {0f41000000, 0f41000000}];", Code::IllegalAddress),
        (&far, "sust.b.2d.b32.trap [{h}, {0, 0}], {q0};", Code::IllegalAddress),
        (&far, "mov.u64 rd1, 0; txq.width.b32 q0, [rd1];", Code::IllegalAddress),
        (&far, "add.u64 rd1, rd1, 8; txq.width.b32 q0, [rd1];", Code::IllegalAddress),
    ] {
        let error = execute(texture, instruction, &[[0; WORDS]]).expect_err(instruction);
        assert_eq!(error.code, code, "{instruction}: {error}");
    }
    // What is outside is not touched where that is asked for.
    let (results, _) =
        execute(&surface, "mov.u32 q0, 7; suld.b.2d.b32.zero {q0}, [{h}, {52, 0}];", &[[0; WORDS]]).unwrap();
    assert_eq!(results[0][0], 0);
}
