//! A kernel's parameters: how programs pass them, and how they are put together for the device.

use std::ffi::c_void;
use std::mem::MaybeUninit;

use rgpu_device::ParamInfo;

use super::error::{Result, invalid};

/// A kernel's arguments, as programs pass them.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Params {
    /// An array of pointers to the arguments (`void **args`); null is fine for kernels without any.
    Pointers(*const *const c_void),
    /// The driver's `extra` array: pairs of a tag and a pointer.
    Extra(*const *const c_void),
}

/// How the parameter block of one kernel is put together.
pub(crate) struct ParamLayout {
    params: Vec<ParamInfo>,
    size: usize,
    /// Whether there are bytes between the parameters.
    gaps: bool,
}

impl ParamLayout {
    /// The layout of a kernel with these parameters, which ascend.
    pub(crate) fn new(params: &[ParamInfo]) -> Self {
        let ends = params.iter().map(|p| (p.offset + p.size) as usize);
        let gaps =
            std::iter::once(0).chain(ends.clone()).zip(params).any(|(end, p)| p.offset as usize != end);
        Self { params: params.to_vec(), size: ends.max().unwrap_or(0), gaps }
    }

    /// Bytes of the parameter block.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// A faster way for the same, where there is one.
    pub(crate) fn dense(&self) -> Option<DenseParams> {
        DenseParams::new(&self.params)
    }

    /// Puts the parameter block together at the start of `block`. `None` where an argument is null, or `block` shorter than
    /// [`ParamLayout::size`].
    ///
    /// # Safety
    /// `args` must point to as many pointers as the kernel has parameters, and each but a null one to an argument.
    #[inline(always)]
    pub(crate) unsafe fn gather<'b>(
        &self,
        args: *const *const c_void,
        block: &'b mut [MaybeUninit<u8>],
    ) -> Option<&'b [u8]> {
        if self.size > block.len() {
            return None;
        }
        let out = block.as_mut_ptr().cast::<u8>();
        if self.gaps {
            // SAFETY: the block has room for that.
            unsafe { out.write_bytes(0, self.size) };
        }
        let mut next = args;
        for param in &self.params {
            // SAFETY: the caller passes a pointer for every parameter, to so many bytes; `size` is the largest end of any
            // parameter, so all lie in the block.
            unsafe {
                let from = (*next).cast::<u8>();
                next = next.add(1);
                if from.is_null() {
                    return None;
                }
                let to = out.add(param.offset as usize);
                // The common sizes take no call.
                match param.size {
                    8 => to.cast::<u64>().write_unaligned(from.cast::<u64>().read_unaligned()),
                    4 => to.cast::<u32>().write_unaligned(from.cast::<u32>().read_unaligned()),
                    size => std::ptr::copy_nonoverlapping(from, to, size as usize),
                }
            }
        }
        // SAFETY: every byte up to `size` belongs to a parameter, or was zeroed.
        Some(unsafe { std::slice::from_raw_parts(out, self.size) })
    }

    /// Puts the parameter block together at the start of `block`, however the arguments are passed. Arguments that are
    /// missing or null are an invalid value.
    ///
    /// # Safety
    /// `params` must be as the kernel's signature demands; `block` must have room for [`ParamLayout::size`] bytes.
    #[inline]
    pub(crate) unsafe fn pack<'b>(
        &self,
        params: Params,
        block: &'b mut [MaybeUninit<u8>],
    ) -> Result<&'b [u8]> {
        let extra = match params {
            Params::Pointers(pointers) => {
                if pointers.is_null() && !self.params.is_empty() {
                    return Err(invalid("The kernel has parameters, but no arguments were passed"));
                }
                // SAFETY: the caller's promise.
                return unsafe { self.gather(pointers, block) }.ok_or_else(|| {
                    // SAFETY: there is a pointer for every parameter.
                    let null = |i: &usize| unsafe { (*pointers.add(*i)).is_null() };
                    let which = (0..self.params.len()).find(null).unwrap_or(0);
                    invalid(format!("Argument {which} is null"))
                });
            }
            Params::Extra(extra) => extra,
        };
        // SAFETY: the caller's promise.
        let (from, len) = unsafe { packed_by_program(extra) }?;
        let size = self.size;
        if size > 0 && (from.is_null() || len < size) {
            return Err(invalid(format!("The kernel's parameters need {size} bytes, {len} were passed")));
        }
        let out = block.as_mut_ptr().cast::<u8>();
        if size > 0 {
            // SAFETY: the program passed `len` bytes, which are at least `size`, and the block has room for them.
            unsafe { std::ptr::copy_nonoverlapping(from, out, size) };
        }
        // SAFETY: so many bytes were written.
        Ok(unsafe { std::slice::from_raw_parts(out, size) })
    }
}

/// Where a program's own parameter block lies, and how long it is: from the driver's `extra` array.
///
/// # Safety
/// `extra` must be null, or an array of pairs of a tag and a pointer which ends with the tag 0.
unsafe fn packed_by_program(mut extra: *const *const c_void) -> Result<(*const u8, usize)> {
    let (mut from, mut len) = (std::ptr::null::<u8>(), 0);
    while !extra.is_null() {
        // SAFETY: the array is made of pairs and ends with the tag 0.
        let (tag, value) = unsafe { (*extra as usize, *extra.add(1)) };
        match tag {
            0 => break,
            1 => from = value.cast(),
            // SAFETY: the tag says that a size_t lies there.
            2 => len = unsafe { value.cast::<usize>().read_unaligned() },
            _ => return Err(invalid(format!("{tag} is no tag of a kernel's extra parameters"))),
        }
        // SAFETY: this pair was not the last.
        extra = unsafe { extra.add(2) };
    }
    Ok((from, len))
}

/// Longer parameter blocks are not [`DenseParams`].
pub(super) const SHORT: usize = 256;

/// How a parameter block is put together that consists of arguments of four and eight bytes without gaps, as most do: it
/// needs no look at the list of parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DenseParams {
    count: usize,
    /// A bit for each that has eight bytes, the first lowest.
    wide: u64,
    size: usize,
}

impl DenseParams {
    fn new(params: &[ParamInfo]) -> Option<Self> {
        let mut dense = Self { count: params.len(), wide: 0, size: 0 };
        for (i, param) in params.iter().enumerate() {
            let fits = i < 64 && param.offset as usize == dense.size && matches!(param.size, 4 | 8);
            if !fits || dense.size + 8 > SHORT {
                return None;
            }
            dense.wide |= u64::from(param.size == 8) << i;
            dense.size += param.size as usize;
        }
        Some(dense)
    }

    /// Whether the kernel has no parameters.
    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Puts the parameter block together. `None` where an argument is null.
    ///
    /// # Safety
    /// `args` must point to as many pointers as the kernel has parameters, and each but a null one to an argument.
    #[inline(always)]
    pub(crate) unsafe fn gather<'b>(
        &self,
        args: *const *const c_void,
        block: &'b mut [MaybeUninit<u8>; SHORT],
    ) -> Option<&'b [u8]> {
        let start = block.as_mut_ptr().cast::<u8>();
        let (mut to, mut wide) = (start, self.wide);
        for i in 0..self.count {
            // SAFETY: the caller passes a pointer for every parameter, to so many bytes; all of them lie in the block.
            unsafe {
                let from = *args.add(i);
                if from.is_null() {
                    return None;
                }
                if wide & 1 != 0 {
                    to.cast::<u64>().write_unaligned(from.cast::<u64>().read_unaligned());
                    to = to.add(8);
                } else {
                    to.cast::<u32>().write_unaligned(from.cast::<u32>().read_unaligned());
                    to = to.add(4);
                }
            }
            wide >>= 1;
        }
        // SAFETY: so many bytes were written.
        Some(unsafe { std::slice::from_raw_parts(start, self.size) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn params(list: &[(u32, u32)]) -> Vec<ParamInfo> {
        list.iter().map(|&(offset, size)| ParamInfo { offset, size }).collect()
    }

    #[test]
    fn plans_put_blocks_together() {
        let plan = DenseParams::new(&params(&[(0, 8), (8, 4), (12, 4), (16, 8)])).unwrap();
        let (a, b, c, d) = (1u64 << 40, 2u32, 3u32, u64::MAX);
        let args: [*const c_void; 4] =
            [(&raw const a).cast(), (&raw const b).cast(), (&raw const c).cast(), (&raw const d).cast()];
        let mut block = [MaybeUninit::uninit(); SHORT];
        // SAFETY: there are four pointers, to values of these sizes.
        let packed = unsafe { plan.gather(args.as_ptr(), &mut block) }.unwrap();
        let expected = [&a.to_le_bytes()[..], &b.to_le_bytes(), &c.to_le_bytes(), &d.to_le_bytes()].concat();
        assert_eq!(packed, expected);
        let null: [*const c_void; 4] = [std::ptr::null(); 4];
        // SAFETY: null pointers are not followed.
        assert_eq!(unsafe { plan.gather(null.as_ptr(), &mut block) }, None);
        // Gaps, other sizes, too many.
        assert_eq!(DenseParams::new(&params(&[(0, 4), (8, 8)])), None);
        assert_eq!(DenseParams::new(&params(&[(0, 1)])), None);
        let many: Vec<(u32, u32)> = (0..33).map(|i| (8 * i, 8)).collect();
        assert_eq!(DenseParams::new(&params(&many)), None);
        assert_eq!(DenseParams::new(&[]).map(|p| p.size), Some(0));
    }

    #[test]
    fn gaps_are_zeroed_and_null_arguments_named() {
        let layout = ParamLayout::new(&params(&[(0, 1), (4, 4), (8, 3)]));
        assert_eq!((layout.size(), layout.dense()), (11, None));
        let (a, b, c) = (7u8, 0x0403_0201u32, [9u8, 8, 7]);
        let mut args: [*const c_void; 3] =
            [(&raw const a).cast(), (&raw const b).cast(), (&raw const c).cast()];
        let mut block = [MaybeUninit::new(0xEE); 16];
        // SAFETY: there are three pointers, to values of these sizes.
        let packed = unsafe { layout.pack(Params::Pointers(args.as_ptr()), &mut block) }.unwrap();
        assert_eq!(packed, [7, 0, 0, 0, 1, 2, 3, 4, 9, 8, 7]);
        args[1] = std::ptr::null();
        // SAFETY: null pointers are not followed.
        let refused = unsafe { layout.pack(Params::Pointers(args.as_ptr()), &mut block) }.unwrap_err();
        assert!(refused.message.contains("Argument 1"), "{}", refused.message);
        // Neither are tags that mean nothing, nor is a block that is too short.
        let (bytes, size) = ([0u8; 10], 10usize);
        let extra = [
            std::ptr::without_provenance(1),
            bytes.as_ptr().cast(),
            std::ptr::without_provenance(2),
            (&raw const size).cast(),
            std::ptr::null(),
        ];
        // SAFETY: the array is made of pairs and ends with the tag 0.
        let short = unsafe { layout.pack(Params::Extra(extra.as_ptr()), &mut block) }.unwrap_err();
        assert!(short.message.contains("need 11 bytes, 10"), "{}", short.message);
        let unknown = [std::ptr::without_provenance(3), std::ptr::null(), std::ptr::null()];
        // SAFETY: as above.
        assert!(unsafe { layout.pack(Params::Extra(unknown.as_ptr()), &mut block) }.is_err());
    }
}
