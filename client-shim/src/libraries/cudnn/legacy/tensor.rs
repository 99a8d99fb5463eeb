//! Descriptors of tensors.

use rgpu_libraries::DnnType;

use super::super::{In, Out, Result, Status};
use super::forms::{Forms, created_and_destroyed, give, lengths};
use super::{calls, not_written, type_of};

/// What a tensor's descriptor says.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Tensor {
    /// Its elements' type.
    pub(super) kind: DnnType,
    /// Its dimensions: batch, channels, and those of space.
    pub(super) dims: Vec<i64>,
    /// Elements from one to the next of each dimension.
    pub(super) strides: Vec<i64>,
}

/// Strides without gaps: batch, channels, space (`cudnnTensorFormat_t` 0), or batch, space, channels (1).
pub(super) fn packed(format: u32, dims: &[i64]) -> Result<Vec<i64>> {
    let mut order: Vec<usize> = (0..dims.len()).collect();
    match format {
        0 => {}
        1 if dims.len() > 1 => {
            let channel = order.remove(1);
            order.push(channel);
        }
        1 => {}
        2 => return Err(not_written("tensors whose elements are vectors")),
        _ => return Err(Status::BadParam),
    }
    let mut strides = vec![0; dims.len()];
    let mut step = 1i64;
    for &axis in order.iter().rev() {
        strides[axis] = step;
        step = step.checked_mul(dims[axis]).ok_or(Status::BadParam)?;
    }
    Ok(strides)
}

impl Tensor {
    /// A tensor, checked.
    pub(super) fn new(kind: u32, dims: Vec<i64>, strides: Vec<i64>) -> Result<Self> {
        let kind = type_of(kind)?;
        if dims.is_empty() || dims.iter().any(|&n| n < 1) || strides.iter().any(|&n| n < 0) {
            return Err(Status::BadParam);
        }
        Ok(Self { kind, dims, strides })
    }

    /// One without gaps.
    pub(super) fn packed(kind: u32, format: u32, dims: Vec<i64>) -> Result<Self> {
        if dims.iter().any(|&n| n < 1) {
            return Err(Status::BadParam);
        }
        let strides = packed(format, &dims)?;
        Self::new(kind, dims, strides)
    }

    /// How many elements it has.
    pub(super) fn count(&self) -> i64 {
        self.dims.iter().product()
    }

    /// Bytes from its first element to its last one's end.
    fn bytes(&self) -> Option<usize> {
        let mut axes = self.dims.iter().zip(&self.strides);
        let last = axes.try_fold(0i64, |all, (n, stride)| all.checked_add((n - 1).checked_mul(*stride)?));
        usize::try_from(last?.checked_add(1)?.checked_mul(self.kind.bytes() as i64)?).ok()
    }

    /// The type of the parameters of a normalisation of such tensors.
    fn of_statistics(&self) -> DnnType {
        if self.kind == DnnType::F64 { DnnType::F64 } else { DnnType::F32 }
    }
}

static TENSORS: Forms<Tensor> = Forms::new("cuDNN tensor descriptor");
created_and_destroyed!(TENSORS, cudnnCreateTensorDescriptor, cudnnDestroyTensorDescriptor);

/// What a descriptor says.
pub(super) fn tensor(raw: usize) -> Result<Tensor> {
    TENSORS.get(raw)
}

/// Says what a descriptor describes.
pub(super) fn set_tensor(raw: usize, value: Tensor) -> Result<()> {
    TENSORS.set(raw, value)
}

calls! {
    /// `cudnnSetTensor4dDescriptor`.
    fn cudnnSetTensor4dDescriptor(raw: usize, format: u32, kind: u32, n: i32, c: i32, h: i32, w: i32) {
        TENSORS.set(raw, Tensor::packed(kind, format, [n, c, h, w].map(i64::from).to_vec())?)
    }
    /// `cudnnSetTensor4dDescriptorEx`.
    fn cudnnSetTensor4dDescriptorEx(
        raw: usize, kind: u32, n: i32, c: i32, h: i32, w: i32,
        n_stride: i32, c_stride: i32, h_stride: i32, w_stride: i32,
    ) {
        let dims = [n, c, h, w].map(i64::from).to_vec();
        let strides = [n_stride, c_stride, h_stride, w_stride].map(i64::from).to_vec();
        TENSORS.set(raw, Tensor::new(kind, dims, strides)?)
    }
    /// `cudnnGetTensor4dDescriptor`.
    fn cudnnGetTensor4dDescriptor(
        raw: usize, kind: Out<u32>, n: Out<i32>, c: Out<i32>, h: Out<i32>, w: Out<i32>,
        n_stride: Out<i32>, c_stride: Out<i32>, h_stride: Out<i32>, w_stride: Out<i32>,
    ) {
        let tensor = tensor(raw)?;
        if tensor.dims.len() != 4 {
            return Err(Status::BadParam);
        }
        kind.set(tensor.kind as u32)?;
        for (out, value) in [n, c, h, w].into_iter().zip(&tensor.dims) {
            out.set(*value as i32)?;
        }
        for (out, value) in [n_stride, c_stride, h_stride, w_stride].into_iter().zip(&tensor.strides) {
            out.set(*value as i32)?;
        }
        Ok(())
    }
    /// `cudnnSetTensorNdDescriptor`.
    fn cudnnSetTensorNdDescriptor(raw: usize, kind: u32, count: i32, dims: In<i32>, strides: In<i32>) {
        // SAFETY: by the call's description, so many are there.
        let (dims, strides) = unsafe { (lengths(dims, count)?, lengths(strides, count)?) };
        TENSORS.set(raw, Tensor::new(kind, dims, strides)?)
    }
    /// `cudnnSetTensorNdDescriptorEx`.
    fn cudnnSetTensorNdDescriptorEx(raw: usize, format: u32, kind: u32, count: i32, dims: In<i32>) {
        // SAFETY: by the call's description, so many are there.
        let dims = unsafe { lengths(dims, count) }?;
        TENSORS.set(raw, Tensor::packed(kind, format, dims)?)
    }
    /// `cudnnGetTensorNdDescriptor`.
    fn cudnnGetTensorNdDescriptor(
        raw: usize, wanted: i32, kind: Out<u32>, count: Out<i32>, dims: Out<i32>, strides: Out<i32>,
    ) {
        let tensor = tensor(raw)?;
        kind.set(tensor.kind as u32)?;
        count.set(tensor.dims.len() as i32)?;
        let wanted = usize::try_from(wanted).map_err(|_| Status::BadParam)?;
        // SAFETY: by the call's description, there is room for as many as are wanted.
        unsafe {
            give(&tensor.dims, wanted, dims)?;
            give(&tensor.strides, wanted, strides)
        }
    }
    /// `cudnnGetTensorSizeInBytes`.
    fn cudnnGetTensorSizeInBytes(raw: usize, size: Out<usize>) {
        size.set(tensor(raw)?.bytes().ok_or(Status::BadParam)?)
    }
    /// `cudnnDeriveBNTensorDescriptor`: the tensor of a batch normalisation's parameters.
    fn cudnnDeriveBNTensorDescriptor(derived: usize, raw: usize, mode: u32) {
        let x = tensor(raw)?;
        let dims = statistics(&x, mode)?;
        let strides = packed(0, &dims)?;
        TENSORS.set(derived, Tensor { kind: x.of_statistics(), dims, strides })
    }
}

/// The dimensions of a batch normalisation's statistics: by `cudnnBatchNormMode_t` one for each element of an example, or one for each channel.
pub(super) fn statistics(x: &Tensor, mode: u32) -> Result<Vec<i64>> {
    let keep = |axis: usize| match mode {
        0 => Ok(axis > 0),
        1 | 2 => Ok(axis == 1),
        _ => Err(Status::BadParam),
    };
    x.dims.iter().enumerate().map(|(axis, &n)| Ok(if keep(axis)? { n } else { 1 })).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_have_strides() {
        assert_eq!(packed(0, &[2, 3, 4, 5]), Ok(vec![60, 20, 5, 1]));
        assert_eq!(packed(1, &[2, 3, 4, 5]), Ok(vec![60, 1, 15, 3]));
        assert_eq!(packed(2, &[2, 4, 4, 5]), Err(Status::NotSupported));
        assert_eq!(packed(9, &[2, 4, 4, 5]), Err(Status::BadParam));
    }

    #[test]
    fn descriptors_say_what_they_were_told() {
        let mut raw = 0;
        let (mut kind, mut count, mut dims, mut strides, mut size) = (9, 0, [0; 4], [0; 4], 0);
        // SAFETY: the variables outlive the calls.
        unsafe {
            assert_eq!(cudnnCreateTensorDescriptor(Out::new(&raw mut raw)), 0);
            assert_eq!(cudnnGetTensorSizeInBytes(raw, Out::new(&raw mut size)), Status::BadParam as u32);
            assert_eq!(cudnnSetTensor4dDescriptor(raw, 1, 0, 2, 3, 0, 5), Status::BadParam as u32);
            assert_eq!(cudnnSetTensor4dDescriptor(raw, 1, 0, 2, 3, 4, 5), 0);
            let asked = cudnnGetTensorNdDescriptor(
                raw,
                4,
                Out::new(&raw mut kind),
                Out::new(&raw mut count),
                Out::new(dims.as_mut_ptr()),
                Out::new(strides.as_mut_ptr()),
            );
            assert_eq!((asked, kind, count), (0, 0, 4));
            assert_eq!(cudnnGetTensorSizeInBytes(raw, Out::new(&raw mut size)), 0);
        }
        assert_eq!((dims, strides, size), ([2, 3, 4, 5], [60, 1, 15, 3], 480));
        assert_eq!(cudnnDestroyTensorDescriptor(raw), 0);
        assert_eq!(cudnnDestroyTensorDescriptor(raw), Status::BadParam as u32);
    }

    #[test]
    fn statistics_are_of_channels_or_elements() {
        let x = Tensor::packed(0, 0, vec![8, 3, 4, 5]).unwrap();
        assert_eq!(statistics(&x, 0), Ok(vec![1, 3, 4, 5]));
        assert_eq!(statistics(&x, 1), Ok(vec![1, 3, 1, 1]));
        assert_eq!(statistics(&x, 3), Err(Status::BadParam));
    }
}
