//! Sums, products and reductions of tensors.

use rgpu_libraries::DnnType;

use super::super::{In, Out, Result, Status};
use super::composer::{Composer, blend, ensure, factor, function, spreads_over};
use super::forms::{Forms, created_and_destroyed};
use super::tensor::{Tensor, tensor};
use super::{calls, not_written};

/// What is computed of two tensors: `cudnnOpTensorOp_t`, its type and what it does with NaN.
type OpTensor = [u32; 3];
/// A reduction: `cudnnReduceTensorOp_t`, its type, what it does with NaN, whether places are wanted, and their type.
type ReduceTensor = [u32; 5];

static OPERATIONS: Forms<OpTensor> = Forms::new("cuDNN operation descriptor");
static REDUCTIONS: Forms<ReduceTensor> = Forms::new("cuDNN reduction descriptor");
created_and_destroyed!(OPERATIONS, cudnnCreateOpTensorDescriptor, cudnnDestroyOpTensorDescriptor);
created_and_destroyed!(REDUCTIONS, cudnnCreateReduceTensorDescriptor, cudnnDestroyReduceTensorDescriptor);

/// `c = alpha a + beta c`, where a dimension of one of `a` goes with any of `c`.
fn add(
    handle: usize,
    (alpha, beta): (In<u8>, In<u8>),
    (a, a_addr): (&Tensor, usize),
    (c, c_addr): (&Tensor, usize),
) -> Result<()> {
    ensure(spreads_over(a, c))?;
    let mut graph = Composer::default();
    let value = graph.given(a, a_addr)?;
    graph.store(value, blend(alpha, beta, c)?, c, c_addr)?;
    graph.post(handle)
}

calls! {
    /// `cudnnAddTensor`.
    fn cudnnAddTensor(
        handle: usize, alpha: In<u8>, a_form: usize, a: usize, beta: In<u8>, c_form: usize, c: usize,
    ) {
        add(handle, (alpha, beta), (&tensor(a_form)?, a), (&tensor(c_form)?, c))
    }
    /// `cudnnTransformTensor`: the same elements in another order or type.
    fn cudnnTransformTensor(
        handle: usize, alpha: In<u8>, x_form: usize, x: usize, beta: In<u8>, y_form: usize, y: usize,
    ) {
        let (from, to) = (tensor(x_form)?, tensor(y_form)?);
        ensure(from.dims == to.dims)?;
        add(handle, (alpha, beta), (&from, x), (&to, y))
    }
    /// `cudnnSetTensor`: every element becomes a number, which is of the tensor's type.
    fn cudnnSetTensor(handle: usize, form: usize, y: usize, value: In<u8>) {
        let to = tensor(form)?;
        let value = element(value, to.kind)?;
        let mut graph = Composer::default();
        let number = graph.number(value, to.dims.len());
        graph.store(number, (1.0, 0.0), &to, y)?;
        graph.post(handle)
    }
    /// `cudnnScaleTensor`.
    fn cudnnScaleTensor(handle: usize, form: usize, y: usize, alpha: In<u8>) {
        let to = tensor(form)?;
        let alpha = factor(alpha, &to)?;
        let mut graph = Composer::default();
        let value = graph.given(&to, y)?;
        graph.store(value, (alpha, 0.0), &to, y)?;
        graph.post(handle)
    }
    /// `cudnnSetOpTensorDescriptor`.
    fn cudnnSetOpTensorDescriptor(raw: usize, operation: u32, kind: u32, nan: u32) {
        ensure(operation <= 5 && nan <= 1)?;
        OPERATIONS.set(raw, [operation, kind, nan])
    }
    /// `cudnnGetOpTensorDescriptor`.
    fn cudnnGetOpTensorDescriptor(raw: usize, operation: Out<u32>, kind: Out<u32>, nan: Out<u32>) {
        let said = OPERATIONS.get(raw)?;
        [operation, kind, nan].into_iter().zip(said).try_for_each(|(out, value)| out.set(value))
    }
    /// `cudnnOpTensor`: `c = f(alpha a, alpha2 b) + beta c`.
    fn cudnnOpTensor(
        handle: usize, operation: usize, alpha: In<u8>, a_form: usize, a: usize,
        alpha2: In<u8>, b_form: usize, b: usize, beta: In<u8>, c_form: usize, c: usize,
    ) {
        let [operation, ..] = OPERATIONS.get(operation)?;
        let (of_a, of_c) = (tensor(a_form)?, tensor(c_form)?);
        ensure(spreads_over(&of_a, &of_c))?;
        let (alpha, beta) = blend(alpha, beta, &of_c)?;
        let mut graph = Composer::default();
        let left = graph.given(&of_a, a)?;
        let value = match operation {
            // One operand: its root, or what is missing to one.
            4 => {
                let one = graph.number(1.0, of_a.dims.len());
                let scaled = graph.scaled(function::MUL, (left, alpha), (one, 1.0));
                graph.map(operation, scaled, [0.0; 4])
            }
            5 => {
                let one = graph.number(1.0, of_a.dims.len());
                graph.scaled(function::SUB, (one, 1.0), (left, alpha))
            }
            // Sum, product, least and greatest have the same numbers among the functions of elements.
            _ => {
                let of_b = tensor(b_form)?;
                ensure(spreads_over(&of_b, &of_c))?;
                let alpha2 = factor(alpha2, &of_c)?;
                let right = graph.given(&of_b, b)?;
                graph.scaled(operation, (left, alpha), (right, alpha2))
            }
        };
        graph.store(value, (1.0, beta), &of_c, c)?;
        graph.post(handle)
    }
    /// `cudnnSetReduceTensorDescriptor`.
    fn cudnnSetReduceTensorDescriptor(
        raw: usize, operation: u32, kind: u32, nan: u32, places: u32, place_kind: u32,
    ) {
        ensure(operation <= 8 && nan <= 1 && places <= 1 && place_kind <= 3)?;
        REDUCTIONS.set(raw, [operation, kind, nan, places, place_kind])
    }
    /// `cudnnGetReduceTensorDescriptor`.
    fn cudnnGetReduceTensorDescriptor(
        raw: usize, operation: Out<u32>, kind: Out<u32>, nan: Out<u32>, places: Out<u32>, place_kind: Out<u32>,
    ) {
        let said = REDUCTIONS.get(raw)?;
        let outs = [operation, kind, nan, places, place_kind];
        outs.into_iter().zip(said).try_for_each(|(out, value)| out.set(value))
    }
    /// `cudnnGetReductionIndicesSize`.
    fn cudnnGetReductionIndicesSize(handle: usize, raw: usize, _a: usize, c: usize, size: Out<usize>) {
        super::super::handles::stream_of(handle)?;
        let [_, _, _, places, kind] = REDUCTIONS.get(raw)?;
        let bytes = [4, 8, 2, 1][kind as usize & 3];
        size.set(if places == 0 { 0 } else { tensor(c)?.count() as usize * bytes })
    }
    /// `cudnnGetReductionWorkspaceSize`.
    fn cudnnGetReductionWorkspaceSize(handle: usize, raw: usize, _a: usize, _c: usize, size: Out<usize>) {
        super::super::handles::stream_of(handle)?;
        REDUCTIONS.get(raw)?;
        size.set(0)
    }
    /// `cudnnReduceTensor`: `c = alpha reduce(a) + beta c`.
    fn cudnnReduceTensor(
        handle: usize, raw: usize, _indices: usize, _indices_size: usize, _space: usize, _space_size: usize,
        alpha: In<u8>, a_form: usize, a: usize, beta: In<u8>, c_form: usize, c: usize,
    ) {
        let [operation, _, _, places, _] = REDUCTIONS.get(raw)?;
        if places != 0 {
            return Err(not_written("the places of a reduction's results"));
        }
        let (of_a, of_c) = (tensor(a_form)?, tensor(c_form)?);
        ensure(spreads_over(&of_c, &of_a))?;
        let mut graph = Composer::default();
        let value = graph.given(&of_a, a)?;
        let value = graph.reduce(operation, value, &of_c.dims);
        graph.store(value, blend(alpha, beta, &of_c)?, &of_c, c)?;
        graph.post(handle)
    }
}

/// A number of a tensor's type.
fn element(at: In<u8>, kind: DnnType) -> Result<f64> {
    if at.is_null() {
        return Err(Status::NullPointer);
    }
    // SAFETY: by the call's description, an element of the tensor's type is there.
    unsafe { super::super::backend::value(kind, at.as_ptr() as i64) }
}
