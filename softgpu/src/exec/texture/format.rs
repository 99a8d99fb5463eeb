//! Texels: what bits in memory mean, and what an instruction gets of them.

use rgpu_device::texture::{ChannelKind, TexelFormat, TextureHeader};

use super::{Space, Trap};

/// The channels of a texel as they lie in memory, each in the low bits of a word.
pub(super) type Raw = [u32; 4];

/// Reads the channels of the texel at an address.
pub(super) fn read(space: Space, format: TexelFormat, addr: u64) -> Result<Raw, Trap> {
    let mut raw = [0; 4];
    let step = u64::from(format.bits / 8);
    // A texel of eight bytes or less is read at once.
    match format.bytes() {
        1 => raw[0] = u32::from(space.get::<u8>(addr)?),
        2 | 4 | 8 if format.bits < 32 || format.channels < 2 => {
            let all = match format.bytes() {
                2 => u64::from(space.get::<u16>(addr)?),
                4 => u64::from(space.get::<u32>(addr)?),
                _ => space.get::<u64>(addr)?,
            };
            let mask = u32::MAX >> (32 - u32::from(format.bits));
            for (index, channel) in raw.iter_mut().enumerate().take(format.channels.into()) {
                *channel = (all >> (index as u32 * u32::from(format.bits))) as u32 & mask;
            }
        }
        _ => {
            for (index, channel) in raw.iter_mut().enumerate().take(format.channels.into()) {
                *channel = space.get::<u32>(addr.wrapping_add(index as u64 * step))?;
            }
        }
    }
    Ok(raw)
}

/// Writes the channels of a texel.
pub(super) fn write(space: Space, format: TexelFormat, addr: u64, raw: Raw) -> Result<(), Trap> {
    let step = u64::from(format.bits / 8);
    for (index, &channel) in raw.iter().enumerate().take(format.channels.into()) {
        let addr = addr.wrapping_add(index as u64 * step);
        match format.bits {
            8 => space.put(addr, channel as u8)?,
            16 => space.put(addr, channel as u16)?,
            _ => space.put(addr, channel)?,
        }
    }
    Ok(())
}

/// Whether reading yields floating-point numbers.
pub(super) fn is_float(header: &TextureHeader) -> bool {
    header.format.kind == ChannelKind::Float || header.flags.as_float
}

/// A channel that is an integer, as 32 bits.
fn extended(format: TexelFormat, raw: u32) -> u32 {
    match (format.kind, format.bits) {
        (ChannelKind::Signed, 8) => raw as i8 as i32 as u32,
        (ChannelKind::Signed, 16) => raw as i16 as i32 as u32,
        _ => raw,
    }
}

/// What reads that yield integers get. Channels that there are not are 0, the last one 1.
pub(super) fn integers(header: &TextureHeader, raw: Raw) -> [u32; 4] {
    std::array::from_fn(|index| {
        if index < usize::from(header.format.channels) {
            extended(header.format, raw[index])
        } else {
            u32::from(index == 3)
        }
    })
}

/// What reads that yield floating-point numbers get, before anything is mixed.
pub(super) fn floats(header: &TextureHeader, raw: Raw) -> [f64; 4] {
    let format = header.format;
    std::array::from_fn(|index| {
        if index >= usize::from(format.channels) {
            return if index == 3 { 1.0 } else { 0.0 };
        }
        let bits = raw[index];
        match (format.kind, format.bits) {
            (ChannelKind::Float, 16) => f64::from(from_half(bits as u16)),
            (ChannelKind::Float, _) => f64::from(f32::from_bits(bits)),
            (ChannelKind::Unsigned, width) => {
                let most = f64::from(u32::MAX >> (32 - u32::from(width)));
                let value = f64::from(bits) / most;
                if header.flags.srgb && width == 8 && index < 3 { linear_of_srgb(value) } else { value }
            }
            (ChannelKind::Signed, width) => {
                let most = f64::from(i32::MAX >> (32 - u32::from(width)));
                (f64::from(extended(format, bits) as i32) / most).max(-1.0)
            }
        }
    })
}

/// The channels of a texel of single-precision numbers.
pub(super) fn singles<const N: usize>(space: Space, addr: u64) -> Result<[f64; N], Trap> {
    let addr = space.check(addr, 4 * N as u64)?;
    let mut channels = [0.0; N];
    for (index, channel) in channels.iter_mut().enumerate() {
        *channel = f64::from(f32::from_bits(space.get(addr + 4 * index as u64)?));
    }
    Ok(channels)
}

/// The channels of a texel of one byte or four, each as a number from 0 to 1.
pub(super) fn parts_of_255<const N: usize>(space: Space, addr: u64) -> Result<[f64; N], Trap> {
    static PARTS: [f64; 256] = {
        let mut parts = [0.0; 256];
        let mut byte = 0;
        while byte < parts.len() {
            parts[byte] = byte as f64 / 255.0;
            byte += 1;
        }
        parts
    };
    const { assert!(N == 1 || N == 4) };
    let raw = if N == 1 { u32::from(space.get::<u8>(addr)?) } else { space.get::<u32>(addr)? };
    Ok(std::array::from_fn(|index| PARTS[usize::from(raw.to_le_bytes()[index])]))
}

/// The border's colour, for reads that yield floating-point numbers.
pub(super) fn border_floats(header: &TextureHeader) -> [f64; 4] {
    header.border.map(|bits| f64::from(f32::from_bits(bits)))
}

/// The border's colour, for reads that yield integers.
pub(super) fn border_integers(header: &TextureHeader) -> [u32; 4] {
    header.border.map(|bits| {
        let value = f32::from_bits(bits);
        if header.format.kind == ChannelKind::Unsigned { value as u32 } else { value as i32 as u32 }
    })
}

/// What a surface of this format stores of words that are channels.
pub(super) fn stored(format: TexelFormat, words: [u32; 4]) -> Raw {
    words.map(|word| match (format.kind, format.bits) {
        (ChannelKind::Float, 16) => u32::from(to_half(f32::from_bits(word))),
        (ChannelKind::Signed, bits @ (8 | 16)) => {
            let most = i32::MAX >> (32 - u32::from(bits));
            (word as i32).clamp(-most - 1, most) as u32
        }
        (ChannelKind::Unsigned, bits @ (8 | 16)) => word.min(u32::MAX >> (32 - u32::from(bits))),
        _ => word,
    })
}

fn linear_of_srgb(value: f64) -> f64 {
    if value <= 0.04045 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
}

/// A half as a single, which holds it exactly.
pub(super) fn from_half(half: u16) -> f32 {
    let sign = u32::from(half >> 15) << 31;
    let (exponent, mantissa) = (u32::from(half >> 10 & 31), u32::from(half & 1023));
    match exponent {
        0 => {
            // 2^-24 for each.
            let magnitude = mantissa as f32 * f32::from_bits((127 - 24) << 23);
            f32::from_bits(sign | magnitude.to_bits())
        }
        31 => f32::from_bits(sign | 0x7f80_0000 | mantissa << 13),
        _ => f32::from_bits(sign | (exponent + 112) << 23 | mantissa << 13),
    }
}

/// The half nearest to a single; of two, the even one.
pub(super) fn to_half(value: f32) -> u16 {
    let bits = value.to_bits();
    let sign = (bits >> 16 & 0x8000) as u16;
    let magnitude = bits & 0x7fff_ffff;
    if magnitude > 0x7f80_0000 {
        return sign | 0x7fff;
    }
    // 65520 and more is nearest to infinity.
    if magnitude >= 0x477f_f000 {
        return sign | 0x7c00;
    }
    let exponent = (magnitude >> 23) as i32 - 127;
    // How many bits of the mantissa are lost, and what the exponent's field is.
    let (kept, lost) = if exponent >= -14 {
        (magnitude - (112 << 23), 13)
    } else {
        ((magnitude & 0x7f_ffff) | 0x80_0000, (13 - 14 - exponent).min(25) as u32)
    };
    let (half, rest) = (kept >> lost, kept & ((1 << lost) - 1));
    let middle = 1 << (lost - 1);
    let up = rest > middle || rest == middle && half & 1 == 1;
    sign | (half + u32::from(up)) as u16
}
