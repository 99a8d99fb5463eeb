//! Reading of textures: coordinates, filtering, mipmap levels.
//!
//! The rules are those of the CUDA programming guide's section on texture fetching. What it leaves open is decided so: weights have
//! eight bits of fraction and are rounded to the nearest (a half upwards), so that 1 is among them; the mixing itself is done in
//! double precision and rounded to a single once.

use rgpu_device::texture::{AddressMode, ChannelKind, Level, TextureHeader, TextureKind};

use super::format::{self, Raw};
use super::{Space, Trap};
use crate::abi::TRAP_ADDRESS;
use crate::abi::texture::{COORDINATES, Detail, Geometry, LAYER, REST};

/// How many weights there are between one texel and the next.
const WEIGHTS: f64 = 256.0;

/// From here on, all numbers are whole.
const WHOLE: f64 = (1u64 << 52) as f64;

/// What a coordinate leads to in one direction: two texels (`None`: the border) and the weight of the second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Axis {
    pub texels: [Option<u32>; 2],
    pub weight: f64,
}

/// The next whole number below, as both kinds of numbers; the integer is the nearest one that there is. [`f64::floor`] is a function call
/// where processors need not have an instruction for it.
#[inline(always)]
fn floor(x: f64) -> (f64, i64) {
    if x.abs() < WHOLE {
        let towards_zero = x as i64;
        let below = i64::from(towards_zero as f64 > x);
        return ((towards_zero - below) as f64, towards_zero - below);
    }
    (x.floor(), x.floor() as i64)
}

/// A texel's number, or the border.
#[inline(always)]
fn inside(index: i64, size: u32, mode: AddressMode) -> Option<u32> {
    let size = i64::from(size.max(1));
    if (0..size).contains(&index) {
        return Some(index as u32);
    }
    match mode {
        AddressMode::Wrap => Some(index.rem_euclid(size) as u32),
        AddressMode::Clamp | AddressMode::Mirror => Some(index.clamp(0, size - 1) as u32),
        AddressMode::Border => None,
    }
}

/// Where a coordinate leads.
#[inline(always)]
pub(super) fn axis(x: f32, size: u32, mode: AddressMode, normalized: bool, linear: bool) -> Axis {
    let x = f64::from(x);
    let (whole, number) = floor(x);
    let (x, mode) = match mode {
        AddressMode::Wrap | AddressMode::Mirror if !normalized => (x, AddressMode::Clamp),
        AddressMode::Wrap => (x - whole, mode),
        // Numbers that have no fraction because they are large are even, too.
        AddressMode::Mirror if number % 2 == 0 || x.abs() >= WHOLE => (x - whole, mode),
        AddressMode::Mirror => (1.0 - (x - whole), mode),
        _ => (x, mode),
    };
    let x = if normalized { x * f64::from(size.max(1)) } else { x };
    if !linear {
        let texel = inside(floor(x).1, size, mode);
        return Axis { texels: [texel; 2], weight: 0.0 };
    }
    let x = x - 0.5;
    let (first, number) = floor(x);
    let weight = if first.is_finite() { floor((x - first) * WEIGHTS + 0.5).0 / WEIGHTS } else { 0.0 };
    Axis { texels: [inside(number, size, mode), inside(number.saturating_add(1), size, mode)], weight }
}

/// One level of a texture.
struct Plane<'a> {
    space: Space,
    header: &'a TextureHeader,
    level: Level,
}

impl Plane<'_> {
    /// Where a texel lies; `None` is the border.
    #[inline(always)]
    fn address(&self, at: [Option<u32>; 3]) -> Option<u64> {
        let [Some(x), Some(y), Some(z)] = at else { return None };
        let Level { offset, row_pitch, slice_pitch, .. } = self.level;
        let addr = (self.header.base)
            .wrapping_add(offset)
            .wrapping_add(u64::from(z).wrapping_mul(slice_pitch))
            .wrapping_add(u64::from(y).wrapping_mul(row_pitch))
            .wrapping_add(u64::from(x) * u64::from(self.header.format.bytes()));
        Some(addr)
    }

    /// A texel; `None` is the border.
    fn texel(&self, at: [Option<u32>; 3]) -> Result<Option<Raw>, Trap> {
        self.address(at).map(|addr| format::read(self.space, self.header.format, addr)).transpose()
    }

    fn floats(&self, at: [Option<u32>; 3]) -> Result<[f64; 4], Trap> {
        Ok(match self.texel(at)? {
            Some(raw) => format::floats(self.header, raw),
            None => format::border_floats(self.header),
        })
    }

    fn integers(&self, at: [Option<u32>; 3]) -> Result<[u32; 4], Trap> {
        Ok(match self.texel(at)? {
            Some(raw) => format::integers(self.header, raw),
            None => format::border_integers(self.header),
        })
    }

    /// The texels around a place, mixed. Behind the first `directions` nothing has a weight but the first texel.
    fn mixed(&self, axes: &[Axis; 3], directions: usize) -> Result<[f64; 4], Trap> {
        let (space, format) = (self.space, self.header.format);
        let has_border = axes.iter().any(|axis| axis.texels.contains(&None));
        // What most textures are made of.
        if !has_border && !self.header.flags.srgb {
            match (format.kind, format.bits, format.channels) {
                (ChannelKind::Float, 32, 1) => {
                    return self.blended(axes, directions, |at| format::singles::<1>(space, at));
                }
                (ChannelKind::Float, 32, 4) => {
                    return self.blended(axes, directions, |at| format::singles::<4>(space, at));
                }
                (ChannelKind::Unsigned, 8, 1) => {
                    return self.blended(axes, directions, |at| format::parts_of_255::<1>(space, at));
                }
                (ChannelKind::Unsigned, 8, 4) => {
                    return self.blended(axes, directions, |at| format::parts_of_255::<4>(space, at));
                }
                _ => {}
            }
        }
        weigh(axes, directions, |at| self.floats(at))
    }

    /// As [`Plane::mixed`], of texels with so many channels none of which is the border.
    fn blended<const N: usize>(
        &self,
        axes: &[Axis; 3],
        directions: usize,
        texel: impl Fn(u64) -> Result<[f64; N], Trap>,
    ) -> Result<[f64; 4], Trap> {
        let sum = weigh(axes, directions, |at| texel(self.address(at).ok_or(TRAP_ADDRESS)?))?;
        // All weights together are 1.
        Ok(std::array::from_fn(
            |channel| {
                if channel < N { sum[channel] } else { f64::from(u8::from(channel == 3)) }
            },
        ))
    }
}

/// The sum of the texels around a place by their weights.
#[inline(always)]
fn weigh<const N: usize>(
    axes: &[Axis; 3],
    directions: usize,
    texel: impl Fn([Option<u32>; 3]) -> Result<[f64; N], Trap>,
) -> Result<[f64; N], Trap> {
    let mut sum = [0.0; N];
    for corner in 0..1usize << directions {
        let side = |direction: usize| corner >> direction & 1;
        let mut weight = 1.0;
        for (direction, axis) in axes.iter().enumerate().take(directions) {
            weight *= if side(direction) == 1 { axis.weight } else { 1.0 - axis.weight };
        }
        // What has no weight is not read: it may be beyond the last row, and no number.
        if weight == 0.0 {
            continue;
        }
        let texel = texel(std::array::from_fn(|d| axes[d].texels[side(d)]))?;
        for (sum, channel) in sum.iter_mut().zip(texel) {
            *sum += weight * channel;
        }
    }
    Ok(sum)
}

/// Where an instruction reads: coordinates in the texture, the slice, and whether they go from 0 to 1.
struct Place {
    coordinates: [f32; 3],
    /// How many of them there are.
    dimensions: usize,
    /// The layer, or the face.
    slice: Option<u32>,
    normalized: bool,
    address: [AddressMode; 3],
}

/// The face of a cube that a direction leads to, and where on it, from 0 to 1.
pub(super) fn face([x, y, z]: [f32; 3]) -> (u32, [f32; 2]) {
    let [ax, ay, az] = [x.abs(), y.abs(), z.abs()];
    let (face, m, s, t) = if ax >= ay && ax >= az {
        if x >= 0.0 { (0, ax, -z, -y) } else { (1, ax, z, -y) }
    } else if ay >= az {
        if y >= 0.0 { (2, ay, x, z) } else { (3, ay, x, -z) }
    } else if z >= 0.0 {
        (4, az, x, -y)
    } else {
        (5, az, -x, -y)
    };
    (face, [s, t].map(|part| (part / m + 1.0) / 2.0))
}

fn place(header: &TextureHeader, geometry: Geometry, words: &[u32]) -> Place {
    let word = |index: usize| f32::from_bits(words[COORDINATES + index]);
    let slices = header.size[2].max(1);
    let layer = words[LAYER];
    if geometry.is_cube() {
        let (face, [s, t]) = face([word(0), word(1), word(2)]);
        let cube = if geometry.has_layer() { layer.min((slices / 6).saturating_sub(1)) } else { 0 };
        return Place {
            coordinates: [s, t, 0.0],
            dimensions: 2,
            slice: Some(cube.saturating_mul(6).saturating_add(face).min(slices - 1)),
            normalized: true,
            address: [AddressMode::Clamp; 3],
        };
    }
    let dimensions = geometry.dimensions();
    Place {
        coordinates: std::array::from_fn(|index| if index < dimensions { word(index) } else { 0.0 }),
        dimensions,
        slice: geometry.has_layer().then(|| layer.min(slices - 1)),
        normalized: header.flags.normalized,
        address: header.address,
    }
}

impl Place {
    fn axes(&self, size: [u32; 3], linear: bool) -> [Axis; 3] {
        std::array::from_fn(|index| {
            if index < self.dimensions {
                let (x, mode) = (self.coordinates[index], self.address[index]);
                return axis(x, size[index], mode, self.normalized, linear);
            }
            let only = if index == 2 { self.slice.unwrap_or(0) } else { 0 };
            Axis { texels: [Some(only); 2], weight: 0.0 }
        })
    }
}

/// The level of detail that coordinates ask for which change so much from one pixel to the next.
fn level_of_gradient(header: &TextureHeader, place: &Place, words: &[u32]) -> f64 {
    let length = |from: usize| {
        let squares = (0..place.dimensions).map(|index| {
            let change = f64::from(f32::from_bits(words[from + index]));
            let size = if place.normalized { f64::from(header.size[index].max(1)) } else { 1.0 };
            (change * size).powi(2)
        });
        squares.sum::<f64>().sqrt()
    };
    length(REST).max(length(REST + 3)).log2()
}

/// The levels that are mixed, and the weight of the second.
pub(super) fn levels(header: &TextureHeader, asked: f64) -> ([u32; 2], f64) {
    let last = header.levels.saturating_sub(1).min(31);
    if last == 0 {
        return ([0; 2], 0.0);
    }
    let asked = (asked + f64::from(header.level_bias))
        .max(f64::from(header.level_low))
        .min(f64::from(header.level_high))
        .max(0.0)
        .min(f64::from(last));
    if !header.flags.linear_levels {
        return ([((asked + 0.5).floor() as u32).min(last); 2], 0.0);
    }
    let first = asked.floor();
    let weight = ((asked - first) * WEIGHTS + 0.5).floor() / WEIGHTS;
    ([first as u32, (first as u32 + 1).min(last)], weight)
}

/// Linear memory with texels of 32 bits, of which instructions get the very bits: most of what is read so.
pub(super) struct Plain {
    base: u64,
    size: u32,
    /// What the last of four channels is.
    one: u32,
}

impl Plain {
    /// A texture's, if it is such a one.
    #[inline(always)]
    pub(super) fn of(header: &TextureHeader) -> Option<Self> {
        let (format, flags) = (header.format, header.flags);
        let is_float = format.kind == ChannelKind::Float;
        let is_plain = header.kind == TextureKind::Linear && (format.bits, format.channels) == (32, 1);
        let one = if is_float { 1f32.to_bits() } else { 1 };
        (is_plain && !flags.surface && (is_float || !flags.as_float)).then_some(Self {
            base: header.base,
            size: header.size[0],
            one,
        })
    }

    /// The texel whose number is a word with a sign; zeros where there is none.
    #[inline(always)]
    pub(super) fn texel(&self, space: Space, word: u32) -> Result<[u32; 4], Trap> {
        if word as i32 >= 0 && word < self.size {
            return Ok([space.get(self.base.wrapping_add(u64::from(word) * 4))?, 0, 0, self.one]);
        }
        Ok([0; 4])
    }
}

/// A texel named by whole numbers.
fn fetch(space: Space, header: &TextureHeader, geometry: Geometry, words: &[u32]) -> Result<[u32; 4], Trap> {
    let plane = Plane { space, header, level: header.first_level() };
    let number = |index: usize| i64::from(words[COORDINATES + index] as i32);
    if header.kind == TextureKind::Linear {
        if let Some(plain) = Plain::of(header) {
            return plain.texel(space, words[COORDINATES]);
        }
        let x = number(0);
        if !(0..i64::from(header.size[0])).contains(&x) {
            return Ok([0; 4]);
        }
        return result(&plane, [Some(x as u32), Some(0), Some(0)]);
    }
    let slice = geometry.has_layer().then(|| words[LAYER].min(header.size[2].max(1) - 1));
    let at = std::array::from_fn(|index| {
        if index < geometry.dimensions() {
            let mode = match header.address[index] {
                AddressMode::Border => AddressMode::Border,
                _ => AddressMode::Clamp,
            };
            return inside(number(index), header.size[index], mode);
        }
        Some(if index == 2 { slice.unwrap_or(0) } else { 0 })
    });
    result(&plane, at)
}

/// One texel as the instruction gets it.
fn result(plane: &Plane<'_>, at: [Option<u32>; 3]) -> Result<[u32; 4], Trap> {
    let format = plane.header.format;
    if format.kind == ChannelKind::Float
        && format.bits == 32
        && let Some(raw) = plane.texel(at)?
    {
        let one = 1f32.to_bits();
        let missing = |channel: usize| if channel == 3 { one } else { 0 };
        let channels = usize::from(format.channels);
        return Ok(std::array::from_fn(|n| if n < channels { raw[n] } else { missing(n) }));
    }
    if format::is_float(plane.header) {
        return Ok(plane.floats(at)?.map(|value| (value as f32).to_bits()));
    }
    plane.integers(at)
}

fn is_texture(header: &TextureHeader) -> Result<(), Trap> {
    if header.flags.surface { Err(TRAP_ADDRESS) } else { Ok(()) }
}

/// `tex`
pub(super) fn sample(
    space: Space,
    header: &TextureHeader,
    geometry: Geometry,
    detail: Detail,
    whole: bool,
    words: &[u32],
) -> Result<[u32; 4], Trap> {
    is_texture(header)?;
    if whole {
        return fetch(space, header, geometry, words);
    }
    if header.kind == TextureKind::Linear {
        // Linear memory has neither filters nor modes: the texel that the coordinate lies in.
        let x = f32::from_bits(words[COORDINATES]).floor();
        let x = if x >= 0.0 && x < i32::MAX as f32 { x as u32 } else { u32::MAX };
        return fetch(space, header, geometry, &[x, 0, 0, 0]);
    }
    let place = place(header, geometry, words);
    let asked = match detail {
        Detail::Base => 0.0,
        Detail::Level => f64::from(f32::from_bits(words[REST])),
        Detail::Gradient => level_of_gradient(header, &place, words),
    };
    let ([first, second], weight) = levels(header, asked);
    let plane = |number: u32| -> Result<Plane<'_>, Trap> {
        let level = header.level(number).ok_or(TRAP_ADDRESS)?;
        Ok(Plane { space, header, level })
    };
    let near = plane(first)?;
    if !format::is_float(header) {
        let axes = place.axes(near.level.size, false);
        return near.integers(axes.map(|axis| axis.texels[0]));
    }
    let linear = header.flags.linear;
    let directions = if linear { place.dimensions } else { 0 };
    let mut value = near.mixed(&place.axes(near.level.size, linear), directions)?;
    if weight > 0.0 && second != first {
        let far = plane(second)?;
        let other = far.mixed(&place.axes(far.level.size, linear), directions)?;
        for (value, other) in value.iter_mut().zip(other) {
            *value = *value * (1.0 - weight) + other * weight;
        }
    }
    Ok(value.map(|value| (value as f32).to_bits()))
}

/// `tld4`: the four texels are named from the lower left one against the clock.
pub(super) fn gather(
    space: Space,
    header: &TextureHeader,
    geometry: Geometry,
    channel: u8,
    words: &[u32],
) -> Result<[u32; 4], Trap> {
    is_texture(header)?;
    let place = place(header, geometry, words);
    let plane = Plane { space, header, level: header.first_level() };
    let [x, y, z] = place.axes(header.size, true);
    let mut found = [0; 4];
    for (found, (i, j)) in found.iter_mut().zip([(0, 1), (1, 1), (1, 0), (0, 0)]) {
        let texel = result(&plane, [x.texels[i], y.texels[j], z.texels[0]])?;
        *found = texel[usize::from(channel & 3)];
    }
    Ok(found)
}
