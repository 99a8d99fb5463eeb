//! Batches of copies, and of what is said about managed memory: `cudaMemcpyBatchAsync` and its like, since CUDA 12.8.

use std::ffi::c_uint;
use std::sync::Arc;

use rgpu_device::Range;

use super::hints;
use crate::abi::types::MemLocation;
use crate::abi::{In, Out};
use crate::core::array::{Array, array};
use crate::core::error::invalid;
use crate::core::{CopyBox, CopySide, Core, Direction, Result, Stream, Wait};

/// `cudaMemcpyAttributes`, `CUmemcpyAttributes`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct CopyAttributes {
    /// `cudaMemcpySrcAccessOrder`: when the source may be read.
    order: c_uint,
    /// Where managed memory of either side had better be: a hint.
    _from: MemLocation,
    _to: MemLocation,
    /// Hints.
    _flags: c_uint,
}

#[cfg(test)]
impl CopyAttributes {
    /// No hints.
    pub(crate) fn of(order: c_uint) -> Self {
        Self { order, _from: MemLocation::default(), _to: MemLocation::default(), _flags: 0 }
    }
}

/// Whether the call waits for a copy whose source may be read at these times (`cudaMemcpySrcAccessOrder`).
fn wait_of(order: c_uint) -> Result<Wait> {
    match order {
        // In stream order, or whenever.
        1 | 3 => Ok(Wait::Async),
        // During the call: the source is the program's again when it returns.
        2 => Ok(Wait::Sync),
        _ => Err(invalid("a copy does not say when its source may be read")),
    }
}

/// Where the program wants to be told which member of a batch could not be; the largest number is none of them.
#[derive(Clone, Copy)]
struct Failed(Option<Out<usize>>);

impl Failed {
    /// So far, no member has failed.
    fn of(place: Option<Out<usize>>) -> Self {
        let failed = Self(place);
        failed.tell(usize::MAX);
        failed
    }

    fn tell(self, member: usize) {
        self.0.iter().for_each(|place| place.set_if_wanted(member));
    }

    /// Tells of the first member that is refused.
    fn each<T>(self, count: usize, mut member: impl FnMut(usize) -> Result<T>) -> Result<Vec<T>> {
        (0..count).map(|at| member(at).inspect_err(|_| self.tell(at))).collect()
    }
}

/// Copies as a program lists them: addresses to and from, and bytes.
pub(crate) type Lists = (In<u64>, In<u64>, In<usize>);

/// What applies to the members of a batch: the values, the first member that each is for, and how many they are.
pub(crate) type Shared<T> = (In<T>, In<usize>, usize);

/// For each of `count` members which of the values applies to it.
///
/// # Safety
/// The lists must be as long as is said.
unsafe fn spread<T: Copy>((values, firsts, number): Shared<T>, count: usize) -> Result<Vec<T>> {
    if number == 0 || number > count {
        return Err(invalid(format!("{number} entries apply to a batch of {count}")));
    }
    // SAFETY: the caller's promise.
    let (values, firsts) = unsafe { (values.list(number)?, firsts.list(number)?) };
    if firsts[0] != 0 || !firsts.is_sorted_by(|a, b| a < b) || firsts[number - 1] >= count {
        return Err(invalid("the indices of a batch begin with 0, rise, and are of its members"));
    }
    Ok((0..count).map(|member| values[firsts.partition_point(|first| *first <= member) - 1]).collect())
}

fn check_stream(stream: &Stream) -> Result<()> {
    if stream.is_legacy() { Err(invalid("a batch is not for the legacy default stream")) } else { Ok(()) }
}

/// Copies between addresses, one after the other. `failed` is told which member could not be, or the largest number where that is
/// not what went wrong.
///
/// # Safety
/// The lists must be as long as is said, and the memory what they say.
pub(crate) unsafe fn copies(
    core: &Core,
    stream: &Stream,
    (to, from, bytes): Lists,
    count: usize,
    attributes: Shared<CopyAttributes>,
    failed: Option<Out<usize>>,
) -> Result<()> {
    let failed = Failed::of(failed);
    check_stream(stream)?;
    // SAFETY: the caller's promise.
    let (to, from, bytes) = unsafe { (to.list(count)?, from.list(count)?, bytes.list(count)?) };
    // SAFETY: as above.
    let attributes = unsafe { spread(attributes, count) }?;
    let waits = failed.each(count, |member| wait_of(attributes[member].order))?;
    let copy = |at: usize| core.copy(stream, to[at], from[at], bytes[at] as u64, Direction::Infer, waits[at]);
    failed.each(count, copy).map(drop)
}

/// One side of a copy of a box: `cudaMemcpy3DOperand`, `CUmemcpy3DOperand`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Operand {
    kind: c_uint,
    /// A pointer: its address, elements in a row, rows in a layer, and a hint. An array: its handle, and the first element by
    /// column, row and layer.
    words: [usize; 4],
}

/// `cudaMemcpy3DBatchOp`, `CUDA_MEMCPY3D_BATCH_OP`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct BoxCopy {
    from: Operand,
    to: Operand,
    /// Elements in a row, rows, layers.
    extent: [usize; 3],
    order: c_uint,
    /// Hints.
    _flags: c_uint,
}

impl Operand {
    fn array(&self) -> Result<Option<Arc<Array>>> {
        match self.kind {
            1 => Ok(None),
            2 => array(self.words[0]).map(Some),
            other => Err(invalid(format!("a side of a copy is of kind {other}, which does not exist"))),
        }
    }

    /// Where the side lies, of a copy whose elements have so many bytes.
    fn side(&self, array: Option<&Array>, extent: [usize; 3], element: usize) -> Result<CopySide> {
        let bytes = |n: usize| n.checked_mul(element).ok_or_else(|| invalid("a copy is too large"));
        let [width, height, depth] = extent;
        let [base, a, b, c] = self.words;
        if let Some(array) = array {
            return array.place((bytes(a)?, b, c), (bytes(width)?, height, depth));
        }
        let or_packed = |given: usize, least: usize, what: &str| match given {
            0 => Ok(least),
            given if given >= least => Ok(given),
            given => Err(invalid(format!("{what} of {given} is less than the copy's {least}"))),
        };
        let row = bytes(or_packed(a, width, "a row length")?)? as u64;
        let rows = or_packed(b, height, "a layer height")? as u64;
        let slice_pitch = row.checked_mul(rows).ok_or_else(|| invalid("a copy is too large"))?;
        Ok(CopySide { addr: base as u64, row_pitch: row, slice_pitch })
    }
}

impl BoxCopy {
    fn what(&self) -> Result<CopyBox> {
        if self.extent.contains(&0) {
            return Err(invalid("a copy of a batch is empty"));
        }
        let (from, to) = (self.from.array()?, self.to.array()?);
        let element = match (&from, &to) {
            (Some(from), Some(to)) if from.element() != to.element() => {
                return Err(invalid("the arrays' elements have different sizes"));
            }
            (Some(array), _) | (_, Some(array)) => array.element(),
            (None, None) => 1,
        };
        let [width, height, depth] = self.extent;
        Ok(CopyBox {
            src: self.from.side(from.as_deref(), self.extent, element)?,
            dst: self.to.side(to.as_deref(), self.extent, element)?,
            width: (width as u64).saturating_mul(element as u64),
            height: height as u64,
            depth: depth as u64,
        })
    }
}

/// `cudaMemcpy3DBatchAsync`: copies of boxes, one after the other, once all are found to be right. `failed` is as for [`copies`].
///
/// # Safety
/// The list must have `count` members, and the memory must be what they say.
pub(crate) unsafe fn boxes(
    core: &Core,
    stream: &Stream,
    list: In<BoxCopy>,
    count: usize,
    flags: u64,
    failed: Option<Out<usize>>,
) -> Result<()> {
    let failed = Failed::of(failed);
    check_stream(stream)?;
    if flags != 0 || count == 0 {
        return Err(invalid("the flags of a batch are not 0, or it is empty"));
    }
    // SAFETY: the caller's promise.
    let list = unsafe { list.list(count)? };
    let plans = failed.each(count, |at| Ok((list[at].what()?, wait_of(list[at].order)?)))?;
    let copy = |at: usize| core.copy_box(stream, &plans[at].0, Direction::Infer, plans[at].1);
    failed.each(count, copy).map(drop)
}

/// `cudaMemPrefetchBatchAsync`: hints, which are checked. `cudaMemDiscardAndPrefetchBatchAsync`: what was there may be lost, and
/// stays.
///
/// # Safety
/// The lists must be as long as is said.
pub(crate) unsafe fn prefetches(
    core: &Core,
    stream: &Stream,
    (addresses, bytes): (In<u64>, In<usize>),
    count: usize,
    places: Shared<MemLocation>,
    flags: u64,
) -> Result<()> {
    // SAFETY: the caller's promise.
    let ranges = unsafe { ranges(core, stream, (addresses, bytes), count, flags) }?;
    // SAFETY: as above.
    let places = unsafe { spread(places, count) }?;
    ranges.into_iter().zip(places).try_for_each(|(range, place)| hints::prefetch_range(core, range, place))
}

/// `cudaMemDiscardBatchAsync`: what is there may be lost, and stays.
///
/// # Safety
/// The lists must be as long as is said.
pub(crate) unsafe fn discards(
    core: &Core,
    stream: &Stream,
    lists: (In<u64>, In<usize>),
    count: usize,
    flags: u64,
) -> Result<()> {
    // SAFETY: the caller's promise.
    unsafe { ranges(core, stream, lists, count, flags) }.map(drop)
}

/// The ranges of managed memory that a batch is about.
///
/// # Safety
/// The lists must be as long as is said.
unsafe fn ranges(
    core: &Core,
    stream: &Stream,
    (addresses, bytes): (In<u64>, In<usize>),
    count: usize,
    flags: u64,
) -> Result<Vec<Range>> {
    check_stream(stream)?;
    if flags != 0 || count == 0 {
        return Err(invalid("the flags of a batch are not 0, or it is empty"));
    }
    // SAFETY: the caller's promise.
    let (addresses, bytes) = unsafe { (addresses.list(count)?, bytes.list(count)?) };
    let range = |(addr, bytes): (u64, usize)| hints::managed(core, addr, bytes as u64);
    addresses.into_iter().zip(bytes).map(range).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boxes_are_laid_out_as_in_cudas_headers() {
        assert_eq!(size_of::<Operand>(), 40);
        assert_eq!(std::mem::offset_of!(Operand, words), 8);
        assert_eq!(size_of::<BoxCopy>(), 112);
        assert_eq!(std::mem::offset_of!(BoxCopy, order), 104);
    }

    #[test]
    fn lengths_of_zero_are_packed_and_short_ones_refused() {
        let of = |row: usize, rows: usize| {
            let pointer = Operand { kind: 1, words: [4096, row, rows, 0] };
            pointer.side(None, [10, 4, 2], 1).ok().map(|side| (side.row_pitch, side.slice_pitch))
        };
        assert_eq!(of(0, 0), Some((10, 40)));
        assert_eq!(of(16, 0), Some((16, 64)));
        assert_eq!(of(16, 5), Some((16, 80)));
        assert_eq!((of(9, 0), of(0, 3)), (None, None));
        assert!(Operand { kind: 3, words: [0; 4] }.array().is_err());
    }

    #[test]
    fn values_apply_up_to_the_next_ones() {
        let of = |values: &[u32], firsts: &[usize], count: usize| {
            // SAFETY: the lists are as long as each other.
            unsafe { spread((In::new(values.as_ptr()), In::new(firsts.as_ptr()), values.len()), count) }.ok()
        };
        assert_eq!(of(&[7, 8, 9], &[0, 2, 3], 5), Some(vec![7, 7, 8, 9, 9]));
        assert_eq!(of(&[7], &[0], 2), Some(vec![7, 7]));
        for (firsts, count) in [(vec![1], 2), (vec![0, 0], 2), (vec![0, 2], 2), (vec![], 2), (vec![0, 1], 1)]
        {
            assert_eq!(of(&vec![1; firsts.len()], &firsts, count), None, "{firsts:?} of {count}");
        }
    }
}
