//! Tensor maps ([`rgpu_device::tensor_map`]): 128 bytes that a program hands to its kernels.

use std::ffi::c_void;

use rgpu_device::tensor_map::{
    Element, MAX_RANK, Shape, Swizzle, TENSOR_MAP_ALIGN, TENSOR_MAP_BYTES, TensorMap,
};

use super::*;
use crate::abi::{In, Out};
use crate::core::error::invalid;

/// `CUtensorMap`
type Map = [u8; TENSOR_MAP_BYTES];

/// The numbers of the types that GPUs of capability 10.0 have: elements of four and six bits.
const SMALL_ELEMENTS: std::ops::RangeInclusive<u32> = 13..=15;
/// Likewise of the ways to change places within 128 bytes by 32 or 64 bytes.
const LARGE_SWIZZLES: std::ops::RangeInclusive<u32> = 4..=6;

/// What tiled maps and those for im2col have in common.
struct Given {
    element: u32,
    rank: u32,
    address: *mut c_void,
    sizes: In<u64>,
    strides: In<u64>,
    steps: In<u32>,
    interleave: u32,
    swizzle: u32,
    promotion: u32,
    fill: u32,
}

impl Given {
    /// The map with this shape, if there can be such a one.
    fn map(&self, shape: Shape) -> Result<TensorMap> {
        let element = match Element::from_number(self.element) {
            Some(element) => element,
            None if SMALL_ELEMENTS.contains(&self.element) => {
                return Err(not_implemented("a tensor map of elements of less than a byte"));
            }
            None => return Err(invalid(format!("no tensor has elements of type {}", self.element))),
        };
        let swizzle = match Swizzle::from_number(self.swizzle) {
            Some(swizzle) => swizzle,
            None if LARGE_SWIZZLES.contains(&self.swizzle) => {
                return Err(not_implemented("a swizzle by atoms of 32 or 64 bytes"));
            }
            None => return Err(invalid(format!("there is no swizzle {}", self.swizzle))),
        };
        match self.interleave {
            0 => {}
            1 | 2 => {
                return Err(not_implemented("an interleaved tensor (CU_TENSOR_MAP_INTERLEAVE_16B, _32B)"));
            }
            other => return Err(invalid(format!("there is no interleave layout {other}"))),
        }
        if self.fill > 1 {
            return Err(invalid(format!("nothing is filled in as {} says", self.fill)));
        }
        let rank = rank(self.rank)?;
        let map = TensorMap {
            address: self.address as u64,
            rank,
            sizes: array(self.sizes, rank, 1)?,
            strides: array(self.strides, rank - 1, 0)?,
            steps: array(self.steps, rank, 1)?,
            element,
            swizzle,
            promotion: u8::try_from(self.promotion).unwrap_or(u8::MAX),
            nan: self.fill == 1,
            shape,
        };
        map.check().map_err(invalid)?;
        Ok(map)
    }
}

/// A number of dimensions.
fn rank(given: u32) -> Result<usize> {
    let rank = usize::try_from(given).unwrap_or(usize::MAX);
    let fits = (1..=MAX_RANK).contains(&rank);
    if fits { Ok(rank) } else { Err(invalid(format!("a tensor has 1 to 5 dimensions, not {given}"))) }
}

/// So many values, and another one behind them.
fn array<T: Copy, const N: usize>(given: In<T>, count: usize, other: T) -> Result<[T; N]> {
    let mut all = [other; N];
    if count > 0 {
        // SAFETY: the program promises as many values as the tensor has dimensions, which the caller counts.
        let list = unsafe { given.list(count) }?;
        all.iter_mut().zip(list).for_each(|(place, value)| *place = value);
    }
    Ok(all)
}

/// Where a map goes, which has to be aligned.
fn aligned(map: Out<Map>) -> Result<()> {
    map.check()?;
    if !(map.as_ptr() as u64).is_multiple_of(TENSOR_MAP_ALIGN) {
        return Err(invalid("a tensor map begins at a multiple of 64 bytes"));
    }
    Ok(())
}

door! {
    fn cuTensorMapEncodeTiled(
        map: Out<Map>, element: u32, rank: u32, address: *mut c_void, sizes: In<u64>, strides: In<u64>,
        tile: In<u32>, steps: In<u32>, interleave: u32, swizzle: u32, promotion: u32, fill: u32,
    ) |core| {
        aligned(map)?;
        let given = Given {
            element, rank, address, sizes, strides, steps, interleave, swizzle, promotion, fill,
        };
        let shape = Shape::Tiled { size: array(tile, self::rank(rank)?, 0)? };
        map.set(core.tensor_map(&given.map(shape)?)?)
    }
    fn cuTensorMapEncodeIm2col(
        map: Out<Map>, element: u32, rank: u32, address: *mut c_void, sizes: In<u64>, strides: In<u64>,
        lower: In<i32>, upper: In<i32>, channels: u32, pixels: u32, steps: In<u32>,
        interleave: u32, swizzle: u32, promotion: u32, fill: u32,
    ) |core| {
        aligned(map)?;
        let given = Given {
            element, rank, address, sizes, strides, steps, interleave, swizzle, promotion, fill,
        };
        let axes = self::rank(rank)?.saturating_sub(2);
        let shape =
            Shape::Im2col { lower: array(lower, axes, 0)?, upper: array(upper, axes, 0)?, channels, pixels };
        map.set(core.tensor_map(&given.map(shape)?)?)
    }
    fn cuTensorMapReplaceAddress(map: Out<Map>, address: *mut c_void) |core| {
        aligned(map)?;
        core.reads_tensor_maps()?;
        let found = TensorMap::from_bytes(&map.get()?);
        let found = found.ok_or_else(|| invalid("these bytes are no tensor map that rgpu has made"))?;
        let changed = TensorMap { address: address as u64, ..found };
        changed.check().map_err(invalid)?;
        map.set(core.tensor_map(&changed)?)
    }
}
