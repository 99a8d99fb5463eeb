//! Graphs that a call is put together of.

use rgpu_libraries::{DnnGraph, DnnNode, DnnNodeKind, DnnTensor, DnnType, NO_TENSOR};

use super::super::handles::stream_of;
use super::super::{In, Result, Status};
use super::tensor::Tensor;
use crate::libraries::math::Queue;

/// The functions of elements that calls are put together of (`cudnnPointwiseMode_t`).
pub(super) mod function {
    pub(in super::super) const ADD: u32 = 0;
    pub(in super::super) const MUL: u32 = 1;
    pub(in super::super) const DIV: u32 = 6;
    pub(in super::super) const POW: u32 = 8;
    pub(in super::super) const SUB: u32 = 9;
    pub(in super::super) const EXP: u32 = 13;
    pub(in super::super) const LOG: u32 = 15;
    pub(in super::super) const RSQRT: u32 = 17;
    pub(in super::super) const IDENTITY: u32 = 21;
    pub(in super::super) const GREATER: u32 = 302;
    pub(in super::super) const LESS: u32 = 304;
    pub(in super::super) const SELECT: u32 = 601;
}

/// The reductions that calls are put together of (`cudnnReduceTensorOp_t`).
pub(super) mod reduction {
    pub(in super::super) const ADD: u32 = 0;
    pub(in super::super) const MAX: u32 = 3;
    pub(in super::super) const MEAN: u32 = 5;
}

/// The factors of a result, `y = alpha f(x) + beta y`.
pub(super) type Blend = (f64, f64);

/// The factors that a call points to: 64-bit numbers where the result's are, else 32-bit ones.
pub(super) fn blend(alpha: In<u8>, beta: In<u8>, of: &Tensor) -> Result<Blend> {
    Ok((factor(alpha, of)?, factor(beta, of)?))
}

/// One such factor.
pub(super) fn factor(at: In<u8>, of: &Tensor) -> Result<f64> {
    // SAFETY: by the calls' descriptions, factors of 64-bit tensors are 64-bit numbers, and all others 32-bit ones.
    unsafe {
        match of.kind {
            DnnType::F64 => at.cast::<f64>().get(),
            _ => at.cast::<f32>().get().map(f64::from),
        }
    }
}

/// A graph that grows. Values are named by their places in the list of tensors.
#[derive(Default)]
pub(super) struct Composer {
    form: DnnGraph,
}

impl Composer {
    fn push(&mut self, tensor: DnnTensor) -> u32 {
        self.form.tensors.push(tensor);
        self.form.tensors.len() as u32 - 1
    }

    /// A tensor in the device's memory.
    pub(super) fn given(&mut self, tensor: &Tensor, addr: usize) -> Result<u32> {
        if addr == 0 {
            return Err(Status::NullPointer);
        }
        let Tensor { kind, dims, strides } = tensor.clone();
        Ok(self.push(DnnTensor { addr: addr as u64, kind, dims, strides, value: None }))
    }

    /// A value that only the graph sees.
    pub(super) fn inside(&mut self, dims: Vec<i64>) -> u32 {
        let mut strides = vec![1; dims.len()];
        for axis in (1..dims.len()).rev() {
            strides[axis - 1] = strides[axis] * dims[axis];
        }
        self.push(DnnTensor { addr: 0, kind: DnnType::F32, dims, strides, value: None })
    }

    /// A number, for tensors of so many dimensions.
    pub(super) fn number(&mut self, value: f64, rank: usize) -> u32 {
        let ones = vec![1; rank];
        let (dims, strides) = (ones.clone(), ones);
        self.push(DnnTensor { addr: 0, kind: DnnType::F32, dims, strides, value: Some(value) })
    }

    /// A value's dimensions.
    pub(super) fn dims(&self, value: u32) -> Vec<i64> {
        self.form.tensors[value as usize].dims.clone()
    }

    /// Adds a node.
    pub(super) fn node(&mut self, node: DnnNode) {
        self.form.nodes.push(node);
    }

    /// `f(a)` for each element; the settings are an activation's.
    pub(super) fn map(&mut self, f: u32, a: u32, settings: [f64; 4]) -> u32 {
        let y = self.inside(self.dims(a));
        let (w, t) = (NO_TENSOR, NO_TENSOR);
        let (kind, alpha) = (DnnNodeKind::Pointwise, 1.0);
        self.node(DnnNode { kind, x: a, w, t, y, alpha, mode: f, settings, ..DnnNode::default() });
        y
    }

    /// `f(a, b)` for each element, where a dimension of one goes with any other.
    pub(super) fn combine(&mut self, f: u32, a: u32, b: u32) -> u32 {
        self.scaled(f, (a, 1.0), (b, 1.0))
    }

    /// `f(alpha a, beta b)` for each element.
    pub(super) fn scaled(&mut self, f: u32, (a, alpha): (u32, f64), (b, beta): (u32, f64)) -> u32 {
        let dims = self.dims(a).into_iter().zip(self.dims(b)).map(|(a, b)| a.max(b)).collect();
        let y = self.inside(dims);
        let kind = DnnNodeKind::Pointwise;
        self.node(DnnNode { kind, x: a, w: b, t: NO_TENSOR, y, alpha, beta, mode: f, ..DnnNode::default() });
        y
    }

    /// The gradient of an activation's argument `x` from that of its value.
    pub(super) fn gradient(&mut self, f: u32, dy: u32, x: u32, settings: [f64; 4]) -> u32 {
        let y = self.inside(self.dims(dy));
        let (kind, t) = (DnnNodeKind::Pointwise, NO_TENSOR);
        let (alpha, beta) = (1.0, 1.0);
        self.node(DnnNode { kind, x: dy, w: x, t, y, alpha, beta, mode: f, settings, ..DnnNode::default() });
        y
    }

    /// `a` where `condition` is not zero, else `b`.
    pub(super) fn select(&mut self, condition: u32, a: u32, b: u32) -> u32 {
        let y = self.inside(self.dims(a));
        let (kind, mode) = (DnnNodeKind::Pointwise, function::SELECT);
        let (alpha, beta) = (1.0, 1.0);
        self.node(DnnNode { kind, x: a, w: b, t: condition, y, alpha, beta, mode, ..DnnNode::default() });
        y
    }

    /// Puts together what has the same place but for dimensions that are one in `dims`.
    pub(super) fn reduce(&mut self, how: u32, a: u32, dims: &[i64]) -> u32 {
        let y = self.inside(dims.to_vec());
        self.reduce_to(how, a, y);
        y
    }

    fn reduce_to(&mut self, how: u32, a: u32, y: u32) {
        let (w, t) = (NO_TENSOR, NO_TENSOR);
        let (kind, alpha) = (DnnNodeKind::Reduction, 1.0);
        self.node(DnnNode { kind, x: a, w, t, y, alpha, mode: how, ..DnnNode::default() });
    }

    /// `y = alpha value + beta y`, which does not read `y` where `beta` is zero.
    pub(super) fn store(
        &mut self,
        value: u32,
        (alpha, beta): Blend,
        tensor: &Tensor,
        addr: usize,
    ) -> Result<()> {
        let y = self.given(tensor, addr)?;
        let (mode, w) = if beta == 0.0 {
            (function::IDENTITY, NO_TENSOR)
        } else {
            (function::ADD, self.given(tensor, addr)?)
        };
        let kind = DnnNodeKind::Pointwise;
        self.node(DnnNode { kind, x: value, w, t: NO_TENSOR, y, alpha, beta, mode, ..DnnNode::default() });
        Ok(())
    }

    /// Posts the graph to a handle's stream.
    pub(super) fn post(&self, handle: usize) -> Result<()> {
        Ok(Queue::of(stream_of(handle)?)?.post(&self.form)?)
    }
}

/// Whether a tensor's dimensions are another's, or one.
pub(super) fn spreads_over(small: &Tensor, large: &Tensor) -> bool {
    small.dims.len() == large.dims.len() && small.dims.iter().zip(&large.dims).all(|(a, b)| a == b || *a == 1)
}

/// Refuses tensors that do not fit.
pub(super) fn ensure(fits: bool) -> Result<()> {
    if fits { Ok(()) } else { Err(Status::BadParam) }
}
