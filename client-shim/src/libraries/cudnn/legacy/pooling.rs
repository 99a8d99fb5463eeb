//! Pooling: windows become their greatest element or their mean.

use rgpu_libraries::{DnnNode, DnnNodeKind, NO_TENSOR};

use super::super::{In, Out, Result, Status};
use super::calls;
use super::composer::{Composer, blend, ensure};
use super::forms::{Forms, created_and_destroyed, give, lengths};
use super::tensor::{Tensor, tensor};

/// What a pooling's descriptor says.
#[derive(Debug, Clone)]
struct Pooling {
    mode: u32,
    nan: u32,
    window: Vec<i64>,
    padding: Vec<i64>,
    stride: Vec<i64>,
}

static POOLINGS: Forms<Pooling> = Forms::new("cuDNN pooling descriptor");
created_and_destroyed!(POOLINGS, cudnnCreatePoolingDescriptor, cudnnDestroyPoolingDescriptor);

impl Pooling {
    fn checked(self) -> Result<Self> {
        let positive = |list: &[i64]| list.iter().all(|&n| n > 0);
        let paddings =
            self.padding.iter().zip(&self.window).all(|(&padding, &window)| (0..window).contains(&padding));
        ensure(
            self.mode <= 3 && self.nan <= 1 && positive(&self.window) && positive(&self.stride) && paddings,
        )?;
        Ok(self)
    }

    /// The dimensions of what a tensor becomes.
    fn output(&self, x: &Tensor) -> Result<Vec<i64>> {
        ensure(x.dims.len() == self.window.len() + 2)?;
        let mut dims = x.dims.clone();
        for (axis, n) in dims[2..].iter_mut().enumerate() {
            let room = *n + 2 * self.padding[axis] - self.window[axis];
            ensure(room >= 0)?;
            *n = 1 + room / self.stride[axis];
        }
        Ok(dims)
    }

    fn node(&self, kind: DnnNodeKind, (alpha, beta): (f64, f64)) -> DnnNode {
        let (pre, stride, dilation) = (self.padding.clone(), self.stride.clone(), self.window.clone());
        let (w, t, mode) = (NO_TENSOR, NO_TENSOR, self.mode);
        DnnNode { kind, w, t, alpha, beta, mode, pre, stride, dilation, ..DnnNode::default() }
    }
}

calls! {
    /// `cudnnSetPooling2dDescriptor`.
    fn cudnnSetPooling2dDescriptor(
        raw: usize, mode: u32, nan: u32, height: i32, width: i32, down: i32, right: i32, step_down: i32, step_right: i32,
    ) {
        let pair = |a: i32, b: i32| vec![i64::from(a), i64::from(b)];
        let (window, padding, stride) = (pair(height, width), pair(down, right), pair(step_down, step_right));
        POOLINGS.set(raw, Pooling { mode, nan, window, padding, stride }.checked()?)
    }
    /// `cudnnGetPooling2dDescriptor`.
    fn cudnnGetPooling2dDescriptor(
        raw: usize, mode: Out<u32>, nan: Out<u32>, height: Out<i32>, width: Out<i32>, down: Out<i32>, right: Out<i32>,
        step_down: Out<i32>, step_right: Out<i32>,
    ) {
        let said = POOLINGS.get(raw)?;
        ensure(said.window.len() == 2)?;
        mode.set(said.mode)?;
        nan.set(said.nan)?;
        let numbers = said.window.iter().chain(&said.padding).chain(&said.stride);
        let outs = [height, width, down, right, step_down, step_right];
        outs.into_iter().zip(numbers).try_for_each(|(out, &value)| out.set(value as i32))
    }
    /// `cudnnSetPoolingNdDescriptor`.
    fn cudnnSetPoolingNdDescriptor(
        raw: usize, mode: u32, nan: u32, count: i32, window: In<i32>, padding: In<i32>, stride: In<i32>,
    ) {
        // SAFETY: by the call's description, so many are there.
        let (window, padding, stride) =
            unsafe { (lengths(window, count)?, lengths(padding, count)?, lengths(stride, count)?) };
        POOLINGS.set(raw, Pooling { mode, nan, window, padding, stride }.checked()?)
    }
    /// `cudnnGetPoolingNdDescriptor`.
    fn cudnnGetPoolingNdDescriptor(
        raw: usize, wanted: i32, mode: Out<u32>, nan: Out<u32>, count: Out<i32>,
        window: Out<i32>, padding: Out<i32>, stride: Out<i32>,
    ) {
        let said = POOLINGS.get(raw)?;
        mode.set(said.mode)?;
        nan.set(said.nan)?;
        count.set(said.window.len() as i32)?;
        let wanted = usize::try_from(wanted).map_err(|_| Status::BadParam)?;
        // SAFETY: by the call's description, there is room for as many as are wanted.
        unsafe {
            give(&said.window, wanted, window)?;
            give(&said.padding, wanted, padding)?;
            give(&said.stride, wanted, stride)
        }
    }
    /// `cudnnGetPooling2dForwardOutputDim`.
    fn cudnnGetPooling2dForwardOutputDim(
        raw: usize, x_form: usize, n: Out<i32>, c: Out<i32>, h: Out<i32>, w: Out<i32>,
    ) {
        let dims = POOLINGS.get(raw)?.output(&tensor(x_form)?)?;
        ensure(dims.len() == 4)?;
        [n, c, h, w].into_iter().zip(dims).try_for_each(|(out, value)| out.set(value as i32))
    }
    /// `cudnnGetPoolingNdForwardOutputDim`.
    fn cudnnGetPoolingNdForwardOutputDim(raw: usize, x_form: usize, count: i32, dims: Out<i32>) {
        let of_y = POOLINGS.get(raw)?.output(&tensor(x_form)?)?;
        ensure(usize::try_from(count).is_ok_and(|count| count == of_y.len()))?;
        // SAFETY: by the call's description, there is room for so many.
        unsafe { give(&of_y, of_y.len(), dims) }
    }
    /// `cudnnPoolingForward`.
    fn cudnnPoolingForward(
        handle: usize, raw: usize, alpha: In<u8>, x_form: usize, x: usize, beta: In<u8>, y_form: usize, y: usize,
    ) {
        let (pooling, from, to) = (POOLINGS.get(raw)?, tensor(x_form)?, tensor(y_form)?);
        ensure(pooling.output(&from)? == to.dims)?;
        let mut graph = Composer::default();
        let node = pooling.node(DnnNodeKind::Pooling, blend(alpha, beta, &to)?);
        let (x, y) = (graph.given(&from, x)?, graph.given(&to, y)?);
        graph.node(DnnNode { x, y, ..node });
        graph.post(handle)
    }
    /// `cudnnPoolingBackward`.
    fn cudnnPoolingBackward(
        handle: usize, raw: usize, alpha: In<u8>, y_form: usize, y: usize, dy_form: usize, dy: usize,
        x_form: usize, x: usize, beta: In<u8>, dx_form: usize, dx: usize,
    ) {
        let pooling = POOLINGS.get(raw)?;
        let (of_y, of_dy, of_x, of_dx) = (tensor(y_form)?, tensor(dy_form)?, tensor(x_form)?, tensor(dx_form)?);
        ensure(pooling.output(&of_x)? == of_y.dims && of_dy.dims == of_y.dims && of_dx.dims == of_x.dims)?;
        let mut graph = Composer::default();
        let node = pooling.node(DnnNodeKind::PoolingBackward, blend(alpha, beta, &of_dx)?);
        let (input, output) = (graph.given(&of_x, x)?, graph.given(&of_y, y)?);
        let (gradient, result) = (graph.given(&of_dy, dy)?, graph.given(&of_dx, dx)?);
        graph.node(DnnNode { x: input, w: output, t: gradient, y: result, ..node });
        graph.post(handle)
    }
}
