//! Spatial transformers: places by affine maps, and bilinear reading of images there.

use rgpu_libraries::{DnnSpatial, DnnSpatialTask, DnnTensor, DnnType};

use super::super::handles::stream_of;
use super::super::{In, Out, Result, Status};
use super::composer::{ensure, factor};
use super::forms::{Forms, created_and_destroyed, lengths};
use super::tensor::{Tensor, packed, tensor};
use super::{calls, not_written, type_of};
use crate::libraries::math::Queue;

/// What a transformer's descriptor says: the elements' type, and the dimensions of what it gives.
#[derive(Debug, Clone)]
struct Transformer {
    kind: DnnType,
    dims: Vec<i64>,
}

static TRANSFORMERS: Forms<Transformer> = Forms::new("cuDNN spatial transformer descriptor");
created_and_destroyed!(
    TRANSFORMERS,
    cudnnCreateSpatialTransformerDescriptor,
    cudnnDestroySpatialTransformerDescriptor
);

/// A tensor in the device's memory.
fn given(of: &Tensor, addr: usize) -> Result<DnnTensor> {
    if addr == 0 {
        return Err(Status::NullPointer);
    }
    let Tensor { kind, dims, strides } = of.clone();
    Ok(DnnTensor { addr: addr as u64, kind, dims, strides, value: None })
}

impl Transformer {
    /// A tensor without gaps in the device's memory.
    fn given(&self, dims: Vec<i64>, addr: usize) -> Result<DnnTensor> {
        given(&Tensor { kind: self.kind, strides: packed(0, &dims)?, dims }, addr)
    }

    /// The affine maps.
    fn maps(&self, addr: usize) -> Result<DnnTensor> {
        self.given(vec![self.dims[0], 2, 3], addr)
    }

    /// The places.
    fn places(&self, addr: usize) -> Result<DnnTensor> {
        self.given(vec![self.dims[0], self.dims[2], self.dims[3], 2], addr)
    }

    /// An error where images do not fit.
    fn check(&self, x: &Tensor, y: &Tensor) -> Result<()> {
        ensure(x.kind == self.kind && y.kind == self.kind && y.dims == self.dims)?;
        ensure(x.dims.len() == 4 && x.dims[..2] == y.dims[..2])
    }
}

fn post(handle: usize, work: &DnnSpatial) -> Result<()> {
    Ok(Queue::of(stream_of(handle)?)?.post(work)?)
}

calls! {
    /// `cudnnSetSpatialTransformerNdDescriptor`.
    fn cudnnSetSpatialTransformerNdDescriptor(raw: usize, sampler: u32, kind: u32, count: i32, dims: In<i32>) {
        ensure(sampler == 0)?;
        // SAFETY: by the call's description, so many are there.
        let dims = unsafe { lengths(dims, count) }?;
        let kind = type_of(kind)?;
        ensure(matches!(kind, DnnType::F32 | DnnType::F64 | DnnType::F16 | DnnType::Bf16))?;
        if dims.len() != 4 {
            return Err(not_written("spatial transformers of other than two dimensions"));
        }
        ensure(dims.iter().all(|&n| n > 0))?;
        TRANSFORMERS.set(raw, Transformer { kind, dims })
    }
    /// `cudnnSpatialTfGridGeneratorForward`.
    fn cudnnSpatialTfGridGeneratorForward(handle: usize, raw: usize, theta: usize, grid: usize) {
        let said = TRANSFORMERS.get(raw)?;
        let (theta, grid) = (said.maps(theta)?, said.places(grid)?);
        post(handle, &DnnSpatial { task: DnnSpatialTask::Grid, theta, grid, ..DnnSpatial::default() })
    }
    /// `cudnnSpatialTfGridGeneratorBackward`.
    fn cudnnSpatialTfGridGeneratorBackward(handle: usize, raw: usize, dgrid: usize, dtheta: usize) {
        let said = TRANSFORMERS.get(raw)?;
        let (theta, grid) = (said.maps(dtheta)?, said.places(dgrid)?);
        post(handle, &DnnSpatial { task: DnnSpatialTask::GridBackward, theta, grid, ..DnnSpatial::default() })
    }
    /// `cudnnSpatialTfSamplerForward`.
    fn cudnnSpatialTfSamplerForward(
        handle: usize, raw: usize, alpha: In<u8>, x_form: usize, x: usize, grid: usize, beta: In<u8>, y_form: usize,
        y: usize,
    ) {
        let (said, of_x, of_y) = (TRANSFORMERS.get(raw)?, tensor(x_form)?, tensor(y_form)?);
        said.check(&of_x, &of_y)?;
        post(handle, &DnnSpatial {
            task: DnnSpatialTask::Sample,
            grid: said.places(grid)?,
            x: given(&of_x, x)?,
            y: given(&of_y, y)?,
            alpha: factor(alpha, &of_y)?,
            beta: factor(beta, &of_y)?,
            ..DnnSpatial::default()
        })
    }
    /// `cudnnSpatialTfSamplerBackward`.
    fn cudnnSpatialTfSamplerBackward(
        handle: usize, raw: usize, alpha: In<u8>, x_form: usize, x: usize, beta: In<u8>, dx_form: usize, dx: usize,
        alpha_grid: In<u8>, dy_form: usize, dy: usize, grid: usize, beta_grid: In<u8>, dgrid: usize,
    ) {
        let said = TRANSFORMERS.get(raw)?;
        let (of_x, of_dx, of_dy) = (tensor(x_form)?, tensor(dx_form)?, tensor(dy_form)?);
        said.check(&of_x, &of_dy)?;
        said.check(&of_dx, &of_dy)?;
        ensure(of_dx.dims == of_x.dims)?;
        post(handle, &DnnSpatial {
            task: DnnSpatialTask::SampleBackward,
            grid: said.places(grid)?,
            x: given(&of_x, x)?,
            y: given(&of_dy, dy)?,
            dx: given(&of_dx, dx)?,
            dgrid: said.places(dgrid)?,
            alpha: factor(alpha, &of_dx)?,
            beta: factor(beta, &of_dx)?,
            alpha_grid: factor(alpha_grid, &of_dx)?,
            beta_grid: factor(beta_grid, &of_dx)?,
            ..DnnSpatial::default()
        })
    }
}
