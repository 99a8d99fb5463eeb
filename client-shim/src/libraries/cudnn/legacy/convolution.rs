//! Convolutions and their gradients.

use rgpu_libraries::{DnnNode, DnnNodeKind, NO_TENSOR};

use super::super::{In, Out, Result, Status};
use super::activation::activation;
use super::calls;
use super::composer::{Composer, blend, ensure, factor, function, reduction, spreads_over};
use super::filter::filter;
use super::forms::{Forms, created_and_destroyed, give, lengths};
use super::tensor::{Tensor, tensor};

/// What a convolution's descriptor says.
#[derive(Debug, Clone)]
pub(super) struct Convolution {
    padding: Vec<i64>,
    stride: Vec<i64>,
    dilation: Vec<i64>,
    mode: u32,
    kind: u32,
    groups: i32,
    math: u32,
    reorder: u32,
}

impl Convolution {
    fn new(lists: [Vec<i64>; 3], mode: u32, kind: u32) -> Result<Self> {
        let [padding, stride, dilation] = lists;
        let steps = stride.iter().chain(&dilation).all(|&n| n > 0);
        ensure(steps && padding.iter().all(|&n| n >= 0) && mode <= 1)?;
        super::type_of(kind)?;
        Ok(Self { padding, stride, dilation, mode, kind, groups: 1, math: 0, reorder: 0 })
    }

    /// The dimensions of what `x` becomes by the filter `w`.
    pub(super) fn output(&self, x: &Tensor, w: &Tensor) -> Result<Vec<i64>> {
        let rank = self.padding.len() + 2;
        ensure(x.dims.len() == rank && w.dims.len() == rank)?;
        let groups = i64::from(self.groups);
        ensure(w.dims[1].checked_mul(groups) == Some(x.dims[1]) && w.dims[0] % groups == 0)?;
        let mut dims = x.dims.clone();
        dims[1] = w.dims[0];
        for axis in 0..rank - 2 {
            let window = (w.dims[axis + 2] - 1).checked_mul(self.dilation[axis]).ok_or(Status::BadParam)? + 1;
            let room = x.dims[axis + 2] + 2 * self.padding[axis] - window;
            ensure(room >= 0)?;
            dims[axis + 2] = 1 + room / self.stride[axis];
        }
        Ok(dims)
    }

    /// Refuses tensors that do not fit.
    pub(super) fn check(&self, x: &Tensor, w: &Tensor, y: &Tensor) -> Result<()> {
        ensure(self.output(x, w)? == y.dims)
    }

    /// What mathematics the program allows.
    pub(super) fn math(&self) -> u32 {
        self.math
    }

    fn node(&self, kind: DnnNodeKind, [x, w, y]: [u32; 3], (alpha, beta): (f64, f64)) -> DnnNode {
        let (pre, stride, dilation) = (self.padding.clone(), self.stride.clone(), self.dilation.clone());
        let (post, t, mode, settings) = (pre.clone(), NO_TENSOR, self.mode, [0.0; 4]);
        DnnNode { kind, x, w, t, y, alpha, beta, mode, pre, post, stride, dilation, settings }
    }
}

static CONVOLUTIONS: Forms<Convolution> = Forms::new("cuDNN convolution descriptor");
created_and_destroyed!(CONVOLUTIONS, cudnnCreateConvolutionDescriptor, cudnnDestroyConvolutionDescriptor);

/// What a descriptor says.
pub(super) fn convolution(raw: usize) -> Result<Convolution> {
    CONVOLUTIONS.get(raw)
}

/// A descriptor that has had nothing but its groups or its mathematics set.
fn unset() -> Convolution {
    let (padding, stride, dilation) = (Vec::new(), Vec::new(), Vec::new());
    Convolution { padding, stride, dilation, mode: 0, kind: 0, groups: 1, math: 0, reorder: 0 }
}

/// Sets all but what has functions of its own.
fn set(raw: usize, lists: [Vec<i64>; 3], mode: u32, kind: u32) -> Result<()> {
    let new = Convolution::new(lists, mode, kind)?;
    CONVOLUTIONS.change(raw, unset(), |said| {
        let Convolution { groups, math, reorder, .. } = *said;
        *said = Convolution { groups, math, reorder, ..new };
    })
}

calls! {
    /// `cudnnSetConvolutionMathType`. All products are computed in the type asked for, or a wider one.
    fn cudnnSetConvolutionMathType(raw: usize, math: u32) {
        ensure(math <= 3)?;
        CONVOLUTIONS.change(raw, unset(), |said| said.math = math)
    }
    /// `cudnnGetConvolutionMathType`.
    fn cudnnGetConvolutionMathType(raw: usize, math: Out<u32>) {
        math.set(convolution(raw)?.math)
    }
    /// `cudnnSetConvolutionGroupCount`.
    fn cudnnSetConvolutionGroupCount(raw: usize, groups: i32) {
        ensure(groups > 0)?;
        CONVOLUTIONS.change(raw, unset(), |said| said.groups = groups)
    }
    /// `cudnnGetConvolutionGroupCount`.
    fn cudnnGetConvolutionGroupCount(raw: usize, groups: Out<i32>) {
        groups.set(convolution(raw)?.groups)
    }
    /// `cudnnSetConvolutionReorderType`: of tensors whose elements are vectors.
    fn cudnnSetConvolutionReorderType(raw: usize, reorder: u32) {
        ensure(reorder <= 1)?;
        CONVOLUTIONS.change(raw, unset(), |said| said.reorder = reorder)
    }
    /// `cudnnGetConvolutionReorderType`.
    fn cudnnGetConvolutionReorderType(raw: usize, reorder: Out<u32>) {
        reorder.set(convolution(raw)?.reorder)
    }
    /// `cudnnSetConvolution2dDescriptor`.
    fn cudnnSetConvolution2dDescriptor(
        raw: usize, pad_h: i32, pad_w: i32, u: i32, v: i32, dilation_h: i32, dilation_w: i32, mode: u32, kind: u32,
    ) {
        let pair = |a: i32, b: i32| vec![i64::from(a), i64::from(b)];
        set(raw, [pair(pad_h, pad_w), pair(u, v), pair(dilation_h, dilation_w)], mode, kind)
    }
    /// `cudnnGetConvolution2dDescriptor`.
    fn cudnnGetConvolution2dDescriptor(
        raw: usize, pad_h: Out<i32>, pad_w: Out<i32>, u: Out<i32>, v: Out<i32>,
        dilation_h: Out<i32>, dilation_w: Out<i32>, mode: Out<u32>, kind: Out<u32>,
    ) {
        let said = convolution(raw)?;
        ensure(said.padding.len() == 2)?;
        let numbers = said.padding.iter().chain(&said.stride).chain(&said.dilation);
        let outs = [pad_h, pad_w, u, v, dilation_h, dilation_w];
        outs.into_iter().zip(numbers).try_for_each(|(out, &value)| out.set(value as i32))?;
        mode.set(said.mode)?;
        kind.set(said.kind)
    }
    /// `cudnnSetConvolutionNdDescriptor`.
    fn cudnnSetConvolutionNdDescriptor(
        raw: usize, count: i32, padding: In<i32>, stride: In<i32>, dilation: In<i32>, mode: u32, kind: u32,
    ) {
        // SAFETY: by the call's description, so many are there.
        let lists = unsafe { [lengths(padding, count)?, lengths(stride, count)?, lengths(dilation, count)?] };
        set(raw, lists, mode, kind)
    }
    /// `cudnnGetConvolutionNdDescriptor`.
    fn cudnnGetConvolutionNdDescriptor(
        raw: usize, wanted: i32, count: Out<i32>, padding: Out<i32>, stride: Out<i32>, dilation: Out<i32>,
        mode: Out<u32>, kind: Out<u32>,
    ) {
        let said = convolution(raw)?;
        count.set(said.padding.len() as i32)?;
        let wanted = usize::try_from(wanted).map_err(|_| Status::BadParam)?;
        // SAFETY: by the call's description, there is room for as many as are wanted.
        unsafe {
            give(&said.padding, wanted, padding)?;
            give(&said.stride, wanted, stride)?;
            give(&said.dilation, wanted, dilation)?;
        }
        mode.set(said.mode)?;
        kind.set(said.kind)
    }
    /// `cudnnGetConvolution2dForwardOutputDim`.
    fn cudnnGetConvolution2dForwardOutputDim(
        raw: usize, x_form: usize, w_form: usize, n: Out<i32>, c: Out<i32>, h: Out<i32>, w: Out<i32>,
    ) {
        let dims = convolution(raw)?.output(&tensor(x_form)?, &filter(w_form)?)?;
        ensure(dims.len() == 4)?;
        [n, c, h, w].into_iter().zip(dims).try_for_each(|(out, value)| out.set(value as i32))
    }
    /// `cudnnGetConvolutionNdForwardOutputDim`.
    fn cudnnGetConvolutionNdForwardOutputDim(raw: usize, x_form: usize, w_form: usize, count: i32, out: Out<i32>) {
        let dims = convolution(raw)?.output(&tensor(x_form)?, &filter(w_form)?)?;
        ensure(usize::try_from(count).is_ok_and(|count| count == dims.len()))?;
        // SAFETY: by the call's description, there is room for so many.
        unsafe { give(&dims, dims.len(), out) }
    }
    /// `cudnnConvolutionForward`.
    fn cudnnConvolutionForward(
        handle: usize, alpha: In<u8>, x_form: usize, x: usize, w_form: usize, w: usize, form: usize, _algorithm: u32,
        _space: usize, _space_size: usize, beta: In<u8>, y_form: usize, y: usize,
    ) {
        let (form, of_x, of_w, of_y) = (convolution(form)?, tensor(x_form)?, filter(w_form)?, tensor(y_form)?);
        form.check(&of_x, &of_w, &of_y)?;
        let mut graph = Composer::default();
        let operands = [graph.given(&of_x, x)?, graph.given(&of_w, w)?, graph.given(&of_y, y)?];
        graph.node(form.node(DnnNodeKind::Convolution, operands, blend(alpha, beta, &of_y)?));
        graph.post(handle)
    }
    /// `cudnnConvolutionBackwardData`.
    fn cudnnConvolutionBackwardData(
        handle: usize, alpha: In<u8>, w_form: usize, w: usize, dy_form: usize, dy: usize, form: usize, _algorithm: u32,
        _space: usize, _space_size: usize, beta: In<u8>, dx_form: usize, dx: usize,
    ) {
        let (form, of_w, of_dy, of_dx) = (convolution(form)?, filter(w_form)?, tensor(dy_form)?, tensor(dx_form)?);
        form.check(&of_dx, &of_w, &of_dy)?;
        let mut graph = Composer::default();
        let operands = [graph.given(&of_dy, dy)?, graph.given(&of_w, w)?, graph.given(&of_dx, dx)?];
        graph.node(form.node(DnnNodeKind::ConvolutionData, operands, blend(alpha, beta, &of_dx)?));
        graph.post(handle)
    }
    /// `cudnnConvolutionBackwardFilter`.
    fn cudnnConvolutionBackwardFilter(
        handle: usize, alpha: In<u8>, x_form: usize, x: usize, dy_form: usize, dy: usize, form: usize, _algorithm: u32,
        _space: usize, _space_size: usize, beta: In<u8>, dw_form: usize, dw: usize,
    ) {
        let (form, of_x, of_dy, of_dw) = (convolution(form)?, tensor(x_form)?, tensor(dy_form)?, filter(dw_form)?);
        form.check(&of_x, &of_dw, &of_dy)?;
        let mut graph = Composer::default();
        let operands = [graph.given(&of_x, x)?, graph.given(&of_dy, dy)?, graph.given(&of_dw, dw)?];
        graph.node(form.node(DnnNodeKind::ConvolutionFilter, operands, blend(alpha, beta, &of_dw)?));
        graph.post(handle)
    }
    /// `cudnnConvolutionBackwardBias`: the sums over all that a bias was added to.
    fn cudnnConvolutionBackwardBias(
        handle: usize, alpha: In<u8>, dy_form: usize, dy: usize, beta: In<u8>, db_form: usize, db: usize,
    ) {
        let (of_dy, of_db) = (tensor(dy_form)?, tensor(db_form)?);
        ensure(spreads_over(&of_db, &of_dy))?;
        let mut graph = Composer::default();
        let dy = graph.given(&of_dy, dy)?;
        let sums = graph.reduce(reduction::ADD, dy, &of_db.dims);
        graph.store(sums, blend(alpha, beta, &of_db)?, &of_db, db)?;
        graph.post(handle)
    }
    /// `cudnnConvolutionBiasActivationForward`: `y = f(alpha conv(x, w) + alpha2 z + bias)`.
    fn cudnnConvolutionBiasActivationForward(
        handle: usize, alpha: In<u8>, x_form: usize, x: usize, w_form: usize, w: usize, form: usize, _algorithm: u32,
        _space: usize, _space_size: usize, alpha2: In<u8>, z_form: usize, z: usize, bias_form: usize, bias: usize,
        activation_form: usize, y_form: usize, y: usize,
    ) {
        let (form, of_x, of_w, of_y) = (convolution(form)?, tensor(x_form)?, filter(w_form)?, tensor(y_form)?);
        let (of_bias, activation) = (tensor(bias_form)?, activation(activation_form)?);
        form.check(&of_x, &of_w, &of_y)?;
        ensure(spreads_over(&of_bias, &of_y) && activation.is_simple())?;
        let (alpha, alpha2) = (factor(alpha, &of_y)?, factor(alpha2, &of_y)?);
        let mut graph = Composer::default();
        let mut value = graph.inside(of_y.dims.clone());
        let operands = [graph.given(&of_x, x)?, graph.given(&of_w, w)?, value];
        graph.node(form.node(DnnNodeKind::Convolution, operands, (alpha, 0.0)));
        if alpha2 != 0.0 {
            let of_z = tensor(z_form)?;
            ensure(of_z.dims == of_y.dims)?;
            let z = graph.given(&of_z, z)?;
            value = graph.scaled(function::ADD, (value, 1.0), (z, alpha2));
        }
        let bias = graph.given(&of_bias, bias)?;
        value = graph.combine(function::ADD, value, bias);
        value = activation.of(&mut graph, value);
        graph.store(value, (1.0, 0.0), &of_y, y)?;
        graph.post(handle)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_have_dimensions() {
        let two = |a, b| vec![a, b];
        let form = Convolution::new([two(1, 2), two(2, 1), two(1, 2)], 1, 0).unwrap();
        let x = Tensor::packed(0, 0, vec![2, 4, 9, 9]).unwrap();
        let w = Tensor::packed(0, 0, vec![6, 4, 3, 3]).unwrap();
        assert_eq!(form.output(&x, &w), Ok(vec![2, 6, 5, 9]));
        let grouped = Convolution { groups: 2, ..form };
        assert_eq!(grouped.output(&x, &w), Err(Status::BadParam));
        let w = Tensor::packed(0, 0, vec![6, 2, 3, 3]).unwrap();
        assert_eq!(grouped.output(&x, &w), Ok(vec![2, 6, 5, 9]));
        let large = Tensor::packed(0, 0, vec![6, 2, 30, 3]).unwrap();
        assert_eq!(grouped.output(&x, &large), Err(Status::BadParam));
    }
}
