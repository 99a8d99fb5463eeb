//! Boxes of tensors: which rows of elements they are made of, and how these get into shared memory and out of it.

use rgpu_device::tensor_map::{Element, MAX_RANK, Shape, TensorMap};

use super::{Reach, Words};
use crate::abi::tensor::{BulkReduce, COORDINATES, DISTANCES, SHARED};
use crate::abi::{TRAP_MISALIGNED, TRAP_TENSOR_MAP};
use crate::exec::space::Trap;

/// Bytes of the longest row: 256 elements.
const ROW: usize = 256 * 8;
/// Boxes begin in shared memory at multiples of so many bytes.
const BOX_ALIGN: u32 = 128;

/// The part of a row of a box that is there: how many of its elements are not, and how many are, and the first one's address.
struct Part {
    skipped: usize,
    count: usize,
    address: u64,
}

/// Goes through the rows of a box.
struct Rows<'a> {
    map: &'a TensorMap,
    /// The element in the first dimension, and the place of the row that comes next in the others.
    at: [i64; MAX_RANK],
    /// Where the box begins.
    origin: [i64; MAX_RANK],
    /// How many rows of the box lie behind in each dimension.
    done: [u32; MAX_RANK],
    /// What is added to where a pixel is.
    distance: [i64; 3],
}

impl<'a> Rows<'a> {
    fn new(map: &'a TensorMap, words: &Words, distance: [i64; 3]) -> Self {
        let origin =
            std::array::from_fn(|d| if d < map.rank { i64::from(words[COORDINATES + d] as i32) } else { 0 });
        Self { map, at: origin, origin, done: [0; MAX_RANK], distance }
    }

    /// How many there are.
    fn count(map: &TensorMap) -> u64 {
        match map.shape {
            // At most 256 in each of four dimensions.
            Shape::Tiled { .. } => (1..map.rank).map(|d| u64::from(map.taken(d))).product(),
            Shape::Im2col { pixels, .. } => pixels.into(),
        }
    }

    /// What is there of the next row.
    fn next(&mut self) -> Option<Part> {
        let part = self.part();
        self.advance();
        part
    }

    fn part(&self) -> Option<Part> {
        let map = self.map;
        let im2col = matches!(map.shape, Shape::Im2col { .. });
        let mut address = map.address;
        for d in 1..map.rank {
            let pixel = im2col && d < map.rank - 1;
            let at = self.at[d] + if pixel { self.distance[d - 1] } else { 0 };
            let at = u64::try_from(at).ok().filter(|&at| at < map.sizes[d])?;
            address = address.wrapping_add(at.wrapping_mul(map.strides[d - 1]));
        }
        let size = map.element.bytes();
        let (first, length) = (self.at[0], i64::from(map.row_bytes() / size));
        let from = (-first).clamp(0, length);
        let to = (map.sizes[0] as i64 - first).clamp(from, length);
        let offset = ((first + from) as u64).wrapping_mul(size.into());
        (from < to).then_some(Part {
            skipped: from as usize,
            count: (to - from) as usize,
            address: address.wrapping_add(offset),
        })
    }

    fn advance(&mut self) {
        let map = self.map;
        let Shape::Im2col { lower, upper, .. } = map.shape else {
            for d in 1..map.rank {
                self.done[d] += 1;
                self.at[d] += i64::from(map.steps[d]);
                if self.done[d] < map.taken(d) {
                    return;
                }
                (self.done[d], self.at[d]) = (0, self.origin[d]);
            }
            return;
        };
        let images = map.rank - 1;
        for d in 1..images {
            self.at[d] += i64::from(map.steps[d]);
            if self.at[d] < map.sizes[d] as i64 + i64::from(upper[d - 1]) {
                return;
            }
            self.at[d] = lower[d - 1].into();
        }
        self.at[images] += 1;
    }
}

/// What is read where there is no element.
fn nothing(map: &TensorMap) -> u64 {
    match map.element {
        _ if !map.nan => 0,
        Element::F16 | Element::Bf16 => 0x7fff,
        Element::F64 => i64::MAX as u64,
        _ => 0x7fff_ffff,
    }
}

/// An element of 32 bits as it is loaded.
fn loaded(element: Element, bits: u32) -> u32 {
    let (flushes, rounds) = match element {
        Element::F32Ftz => (true, false),
        Element::Tf32 => (false, true),
        Element::Tf32Ftz => (true, true),
        _ => return bits,
    };
    let exponent = bits >> 23 & 0xff;
    if flushes && exponent == 0 {
        return bits & 1 << 31;
    }
    // To the nearest number with ten bits of mantissa; of two, the larger one.
    if rounds && exponent != 0xff { (bits + 0x1000) & !0x1fff } else { bits }
}

impl Reach<'_> {
    /// Checks that a map is one for the instruction, and where the box lies in shared memory.
    fn fits(&self, map: &TensorMap, rank: usize, im2col: bool, at: u32) -> Result<(), Trap> {
        if map.rank != rank || matches!(map.shape, Shape::Im2col { .. }) != im2col {
            return Err(TRAP_TENSOR_MAP);
        }
        if !at.is_multiple_of(BOX_ALIGN) {
            return Err(TRAP_MISALIGNED);
        }
        let bytes = Rows::count(map) * u64::from(map.row_pitch());
        self.shared(at, bytes).map(|_| ())
    }

    /// Copies a row between a buffer and shared memory, 16 bytes at a time, each to its place.
    fn each_part(
        &self,
        map: &TensorMap,
        at: u32,
        row: &mut [u8],
        copy: impl Fn(&Self, u64, &mut [u8]) -> Result<(), Trap>,
    ) -> Result<(), Trap> {
        for (index, part) in row.chunks_exact_mut(16).enumerate() {
            let place = map.swizzle.place(at + index as u32 * 16);
            copy(self, self.shared(place, 16)?, part)?;
        }
        Ok(())
    }

    /// Loads a box into shared memory; how many bytes were loaded.
    pub(super) fn load(
        &self,
        map: &TensorMap,
        rank: usize,
        im2col: bool,
        words: &Words,
    ) -> Result<u32, Trap> {
        let at = words[SHARED];
        self.fits(map, rank, im2col, at)?;
        let distance = std::array::from_fn(|axis| i64::from(words[DISTANCES + axis] as u16));
        let (size, bytes) = (map.element.bytes(), map.row_bytes() as usize);
        let nothing = nothing(map).to_le_bytes();
        let mut rows = Rows::new(map, words, distance);
        let count = Rows::count(map) as u32;
        let mut buffer = [0u8; ROW];
        let row = &mut buffer[..bytes];
        for index in 0..count {
            let part = rows.next();
            if part.as_ref().is_none_or(|part| part.count * (size as usize) < bytes) {
                row.chunks_exact_mut(size as usize)
                    .for_each(|e| e.copy_from_slice(&nothing[..size as usize]));
            }
            if let Some(Part { skipped, count, address }) = part {
                let inside = skipped * size as usize..(skipped + count) * size as usize;
                self.read(address, &mut row[inside.clone()], size)?;
                if matches!(map.element, Element::F32Ftz | Element::Tf32 | Element::Tf32Ftz) {
                    for bits in row[inside].as_chunks_mut::<4>().0 {
                        *bits = loaded(map.element, u32::from_le_bytes(*bits)).to_le_bytes();
                    }
                }
            }
            self.each_part(map, at + index * map.row_pitch(), row, |reach, to, part| {
                reach.write(to, part, 8)
            })?;
        }
        Ok(count * bytes as u32)
    }

    /// Stores a box from shared memory, or combines it with what is there.
    pub(super) fn store(
        &self,
        map: &TensorMap,
        rank: usize,
        im2col: bool,
        reduce: Option<BulkReduce>,
        words: &Words,
    ) -> Result<(), Trap> {
        let at = words[SHARED];
        self.fits(map, rank, im2col, at)?;
        let reduce = match reduce {
            None => None,
            Some(op) => {
                let number = super::reduce::number(map.element).filter(|number| number.allows(op));
                Some((op, number.ok_or(TRAP_TENSOR_MAP)?))
            }
        };
        let size = map.element.bytes();
        let mut rows = Rows::new(map, words, [0; 3]);
        let mut buffer = [0u8; ROW];
        let row = &mut buffer[..map.row_bytes() as usize];
        for index in 0..Rows::count(map) as u32 {
            let Some(Part { skipped, count, address }) = rows.next() else { continue };
            self.each_part(map, at + index * map.row_pitch(), row, |reach, from, part| {
                reach.read(from, part, 8)
            })?;
            let inside = &row[skipped * size as usize..(skipped + count) * size as usize];
            match reduce {
                None => self.write(address, inside, size)?,
                Some((op, number)) => self.combine(address, inside, op, number)?,
            }
        }
        Ok(())
    }
}
