//! What programs describe products with. Each descriptor lies in memory of the program's, or in memory that it has asked for, and
//! begins with a number that says what it is.

use std::mem::offset_of;

use crate::abi::c_functions;
use crate::libraries::cublas::status::{In, Out, Result, guard, invalid};

/// A kind of descriptor.
pub(super) trait Descriptor: Copy + 'static {
    /// What it begins with.
    const MAGIC: u32;
    /// What it is called in messages.
    const WHAT: &'static str;
    /// Where an attribute lies in it, and how long it is.
    fn place(attribute: u32) -> Option<(usize, usize)>;
    /// What it begins with now.
    fn magic(&mut self) -> &mut u32;
}

/// A descriptor that the program passed.
pub(super) fn read<D: Descriptor>(place: *const D) -> Result<D> {
    if place.is_null() || !(place as usize).is_multiple_of(8) {
        return invalid(format!("{place:?} is no {}", D::WHAT));
    }
    // SAFETY: the program says that a descriptor lies there.
    let mut found = unsafe { place.read() };
    if *found.magic() == D::MAGIC { Ok(found) } else { invalid(format!("{place:?} is no {}", D::WHAT)) }
}

/// Puts a descriptor into memory of so many bytes.
fn init<D: Descriptor>(place: *mut D, size: usize, value: D) -> Result<()> {
    if place.is_null() || size < size_of::<D>() {
        return invalid(format!("there is no room for a {}", D::WHAT));
    }
    // SAFETY: the program says that so much room is there.
    unsafe { place.write_unaligned(value) };
    Ok(())
}

fn create<D: Descriptor>(place: Out<*mut D>, value: D) -> Result<()> {
    place.check()?;
    place.set(Box::into_raw(Box::new(value)))
}

/// Destroys one. Of none there is nothing to be destroyed: MLX does so with what it has not made.
fn destroy<D: Descriptor>(place: *mut D) -> Result<()> {
    if place.is_null() {
        return Ok(());
    }
    read(place)?;
    // SAFETY: the program says that it has this from `create`, and uses it no more.
    let mut gone = unsafe { Box::from_raw(place) };
    *gone.magic() = 0;
    Ok(())
}

pub(super) fn set<D: Descriptor>(to: *mut D, attribute: u32, value: In<u8>, size: usize) -> Result<()> {
    read(to)?;
    let Some((offset, length)) = D::place(attribute) else {
        return invalid(format!("a {} has no attribute {attribute}", D::WHAT));
    };
    if size != length {
        return invalid(format!("attribute {attribute} of a {} has {length} bytes, not {size}", D::WHAT));
    }
    // SAFETY: the program says that so many bytes are there.
    let bytes = unsafe { value.bytes(size) }?;
    // SAFETY: the attribute lies inside the descriptor, which consists of plain numbers.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to.cast::<u8>().add(offset), length) };
    Ok(())
}

pub(super) fn get<D: Descriptor>(
    from: *const D,
    attribute: u32,
    value: Out<u8>,
    size: usize,
    written: Out<usize>,
) -> Result<()> {
    read(from)?;
    let Some((offset, length)) = D::place(attribute) else {
        return invalid(format!("a {} has no attribute {attribute}", D::WHAT));
    };
    if size == 0 {
        return written.set(length);
    }
    value.check()?;
    if size < length {
        return invalid(format!("attribute {attribute} of a {} has {length} bytes, not {size}", D::WHAT));
    }
    // SAFETY: the attribute lies inside the descriptor, and the program has room for it.
    unsafe { std::ptr::copy_nonoverlapping(from.cast::<u8>().add(offset), value.as_ptr(), length) };
    written.set_if_wanted(length);
    Ok(())
}

macro_rules! descriptors {
    ($($(#[$doc:meta])* $name:ident $magic:literal $what:literal {
        $($attribute:literal $field:ident: $type:ty,)*
    })*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, Default)]
        #[repr(C)]
        pub(super) struct $name {
            magic: u32,
            $(pub(super) $field: $type,)*
        }

        impl Descriptor for $name {
            const MAGIC: u32 = $magic;
            const WHAT: &'static str = $what;
            fn place(attribute: u32) -> Option<(usize, usize)> {
                match attribute {
                    $($attribute => Some((offset_of!(Self, $field), size_of::<$type>())),)*
                    _ => None,
                }
            }
            fn magic(&mut self) -> &mut u32 {
                &mut self.magic
            }
        }
    )*};
}

descriptors! {
    /// A matrix (`cublasLtMatrixLayoutOpaque_t`); each attribute behind its number.
    Layout 0x5247_4c01 "matrix layout" {
        0 kind: u32,
        1 order: u32,
        5 count: i32,
        2 rows: u64,
        3 columns: u64,
        4 ld: i64,
        6 stride: i64,
        7 plane: i64,
        8 batch_mode: u32,
    }
    /// A product (`cublasLtMatmulDescOpaque_t`).
    Product 0x5247_4c02 "description of a product" {
        0 compute: u32,
        1 scale: u32,
        2 pointer_mode: u32,
        3 op_a: u32,
        4 op_b: u32,
        5 op_c: u32,
        6 fill: u32,
        7 epilogue: u32,
        15 multiprocessors: i32,
        8 bias: u64,
        10 bias_stride: i64,
        11 aux: u64,
        12 aux_ld: i64,
        13 aux_stride: i64,
        14 alpha_stride: i64,
        17 scale_a: u64,
        18 scale_b: u64,
        19 scale_c: u64,
        20 scale_d: u64,
        21 amax: u64,
        23 aux_scale: u64,
        24 aux_amax: u64,
        22 aux_kind: i32,
        26 bias_kind: i32,
        31 mode_a: i32,
        32 mode_b: i32,
        33 mode_c: i32,
        34 mode_d: i32,
        35 mode_aux: i32,
        25 fast_sums: i8,
    }
    /// What is wanted of an algorithm (`cublasLtMatmulPreferenceOpaque_t`).
    Preference 0x5247_4c03 "preference" {
        0 search_mode: u32,
        1 workspace: u64,
        12 implementations: u64,
        3 reductions: u32,
        5 alignment_a: u32,
        6 alignment_b: u32,
        7 alignment_c: u32,
        8 alignment_d: u32,
        9 waves: f32,
    }
    /// A copy of a matrix in another form (`cublasLtMatrixTransformDescOpaque_t`).
    Transform 0x5247_4c04 "description of a transform" {
        0 scale: u32,
        1 pointer_mode: u32,
        2 op_a: u32,
        3 op_b: u32,
    }
    /// An algorithm (`cublasLtMatmulAlgo_t`), which there is one of.
    Algorithm 0x5247_4c05 "algorithm" {
        0 id: i32,
        1 tile: u32,
        2 split: i32,
        3 reduction: u32,
        4 swizzle: u32,
        5 custom: u32,
        6 stages: u32,
        7 inner: u16,
        8 cluster: u16,
    }
}

// Descriptors lie in the structures of the public header of CUDA 12.0, which are the smallest.
const _: () = {
    assert!(size_of::<Layout>() <= 64 && size_of::<Product>() <= 184 && size_of::<Preference>() <= 64);
    assert!(size_of::<Transform>() <= 64 && size_of::<Algorithm>() <= 64);
};

impl Layout {
    fn new(kind: u32, rows: u64, columns: u64, ld: i64) -> Self {
        Self { magic: Self::MAGIC, kind, rows, columns, ld, count: 1, ..Self::default() }
    }
}

impl Product {
    fn new(compute: u32, scale: u32) -> Self {
        let (fill, epilogue) = (2, 1);
        Self {
            magic: Self::MAGIC,
            compute,
            scale,
            fill,
            epilogue,
            aux_kind: -1,
            bias_kind: -1,
            ..Self::default()
        }
    }
}

impl Preference {
    fn new() -> Self {
        let least = 256;
        Self {
            magic: Self::MAGIC,
            reductions: 7,
            implementations: u64::MAX,
            alignment_a: least,
            alignment_b: least,
            alignment_c: least,
            alignment_d: least,
            ..Self::default()
        }
    }
}

impl Transform {
    fn new(scale: u32) -> Self {
        Self { magic: Self::MAGIC, scale, ..Self::default() }
    }
}

impl Algorithm {
    /// The one that there is.
    pub(super) fn only() -> Self {
        Self { magic: Self::MAGIC, split: 1, ..Self::default() }
    }
}

macro_rules! functions {
    ($($d:ident $init:ident $create:ident $destroy:ident $set:ident $get:ident ($($arg:ident: $type:ty),*);)*) => {
        c_functions! {$(
            /// `cublasLt…Init_internal`
            fn $init(place: *mut $d, size: usize $(, $arg: $type)*) -> u32 {
                guard(stringify!($init), move || init(place, size, $d::new($($arg),*)))
            }
            /// `cublasLt…Create`
            fn $create(place: Out<*mut $d> $(, $arg: $type)*) -> u32 {
                guard(stringify!($create), move || create(place, $d::new($($arg),*)))
            }
            /// `cublasLt…Destroy`
            fn $destroy(place: *mut $d) -> u32 {
                guard(stringify!($destroy), move || destroy(place))
            }
            /// `cublasLt…SetAttribute`
            fn $set(place: *mut $d, attribute: u32, value: In<u8>, size: usize) -> u32 {
                guard(stringify!($set), move || set(place, attribute, value, size))
            }
            /// `cublasLt…GetAttribute`
            fn $get(place: *const $d, attribute: u32, value: Out<u8>, size: usize, written: Out<usize>) -> u32 {
                guard(stringify!($get), move || get(place, attribute, value, size, written))
            }
        )*}
    };
}

functions! {
    Layout layout_init layout_create layout_destroy layout_set layout_get (kind: u32, rows: u64, columns: u64, ld: i64);
    Product product_init product_create product_destroy product_set product_get (compute: u32, scale: u32);
    Preference preference_init preference_create preference_destroy preference_set preference_get ();
    Transform transform_init transform_create transform_destroy transform_set transform_get (scale: u32);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_come_back_and_strangers_are_refused() {
        let mut layout = Layout::new(0, 3, 4, 3);
        let stride = 12i64.to_ne_bytes();
        // SAFETY: the bytes are there.
        let value = unsafe { In::new(stride.as_ptr()) };
        assert_eq!(set(&mut layout, 6, value, 8), Ok(()));
        assert_eq!(layout.stride, 12);
        assert!(set(&mut layout, 6, value, 4).is_err() && set(&mut layout, 99, value, 8).is_err());
        let (mut back, mut written) = ([0u8; 8], 0usize);
        // SAFETY: there is room.
        let (place, length) = unsafe { (Out::new(back.as_mut_ptr()), Out::new(&mut written)) };
        assert_eq!(get(&layout, 2, place, 8, length), Ok(()));
        assert_eq!((u64::from_ne_bytes(back), written), (3, 8));
        assert!(read((&raw const layout).cast::<Product>()).is_err());
        assert!(read(std::ptr::null::<Layout>()).is_err());
        layout.magic = 0;
        assert!(read(&layout).is_err());
    }
}
