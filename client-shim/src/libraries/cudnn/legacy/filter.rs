//! Descriptors of filters.

use super::super::{In, Out, Result, Status};
use super::calls;
use super::forms::{Forms, created_and_destroyed, give, lengths};
use super::tensor::Tensor;

/// A filter's descriptor: outputs, inputs for each group, and the window; with its `cudnnTensorFormat_t`.
type Filter = (Tensor, u32);

static FILTERS: Forms<Filter> = Forms::new("cuDNN filter descriptor");
created_and_destroyed!(FILTERS, cudnnCreateFilterDescriptor, cudnnDestroyFilterDescriptor);

/// The tensor that a filter is.
pub(super) fn filter(raw: usize) -> Result<Tensor> {
    Ok(FILTERS.get(raw)?.0)
}

fn set(raw: usize, kind: u32, format: u32, dims: Vec<i64>) -> Result<()> {
    FILTERS.set(raw, (Tensor::packed(kind, format, dims)?, format))
}

calls! {
    /// `cudnnSetFilter4dDescriptor`.
    fn cudnnSetFilter4dDescriptor(raw: usize, kind: u32, format: u32, k: i32, c: i32, h: i32, w: i32) {
        set(raw, kind, format, [k, c, h, w].map(i64::from).to_vec())
    }
    /// `cudnnGetFilter4dDescriptor`.
    fn cudnnGetFilter4dDescriptor(
        raw: usize, kind: Out<u32>, format: Out<u32>, k: Out<i32>, c: Out<i32>, h: Out<i32>, w: Out<i32>,
    ) {
        let (filter, of) = FILTERS.get(raw)?;
        if filter.dims.len() != 4 {
            return Err(Status::BadParam);
        }
        kind.set(filter.kind as u32)?;
        format.set(of)?;
        [k, c, h, w].into_iter().zip(filter.dims).try_for_each(|(out, value)| out.set(value as i32))
    }
    /// `cudnnSetFilterNdDescriptor`.
    fn cudnnSetFilterNdDescriptor(raw: usize, kind: u32, format: u32, count: i32, dims: In<i32>) {
        // SAFETY: by the call's description, so many are there.
        set(raw, kind, format, unsafe { lengths(dims, count) }?)
    }
    /// `cudnnGetFilterNdDescriptor`.
    fn cudnnGetFilterNdDescriptor(
        raw: usize, wanted: i32, kind: Out<u32>, format: Out<u32>, count: Out<i32>, dims: Out<i32>,
    ) {
        let (filter, of) = FILTERS.get(raw)?;
        kind.set(filter.kind as u32)?;
        format.set(of)?;
        count.set(filter.dims.len() as i32)?;
        let wanted = usize::try_from(wanted).map_err(|_| Status::BadParam)?;
        // SAFETY: by the call's description, there is room for as many as are wanted.
        unsafe { give(&filter.dims, wanted, dims) }
    }
    /// `cudnnGetFilterSizeInBytes`.
    fn cudnnGetFilterSizeInBytes(raw: usize, size: Out<usize>) {
        let filter = filter(raw)?;
        size.set(filter.count() as usize * filter.kind.bytes() as usize)
    }
}
