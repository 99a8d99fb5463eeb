//! Operations of cuDNN: graphs over tensors.
//!
//! A graph's tensors are read into lists without gaps, in 32-bit floating point or, where some tensor needs it, in 64; nodes go from list to
//! list; what is not the graph's own goes back. Where all nodes treat the problems of a batch alike, workers share these.

mod convolution;
pub(crate) mod ctc;
mod fold;
mod pointwise;
mod pooling;
pub(crate) mod recurrent;
pub(crate) mod spatial;
mod tensor;

use std::marker::PhantomData;

use rgpu_device::Result;
use rgpu_libraries::{DnnGraph, DnnNode, DnnNodeKind, DnnType, NO_TENSOR};
use rgpu_softgpu::library::{Computation, Operand, Plan};

use crate::invalid;
use crate::number::Number;
use tensor::{List, Shape};

/// A type that graphs are computed in.
pub(crate) trait Real: Number + Default + std::ops::AddAssign {
    /// As a 64-bit number.
    fn wide(self) -> f64;
    /// From a 64-bit number, rounded.
    fn of(value: f64) -> Self;
}

impl Real for f32 {
    fn wide(self) -> f64 {
        f64::from(self)
    }
    fn of(value: f64) -> Self {
        value as f32
    }
}

impl Real for f64 {
    fn wide(self) -> f64 {
        self
    }
    fn of(value: f64) -> Self {
        value
    }
}

/// So many elements of the largest tensor are not worth another thread.
const SMALL: usize = 1 << 12;

/// What [`DnnGraph`] comes to.
pub(crate) fn plan(graph: DnnGraph) -> Result<Plan> {
    let shapes: Vec<Shape> = graph.tensors.iter().map(Shape::new).collect::<Result<_>>()?;
    let mut written = vec![false; shapes.len()];
    for node in &graph.nodes {
        let place = |index: u32, wanted: bool| match shapes.get(index as usize) {
            Some(shape) => Ok(Some(shape)),
            None if !wanted && index == NO_TENSOR => Ok(None),
            None => invalid("A node of a graph names a tensor that the graph does not have"),
        };
        let (Some(x), Some(y)) = (place(node.x, true)?, place(node.y, true)?) else {
            return invalid("A node without operand or result");
        };
        let (w, t) = (place(node.w, false)?, place(node.t, false)?);
        match (node.kind, w) {
            (DnnNodeKind::Convolution, Some(w)) => convolution::check(node, x, w, y)?,
            (DnnNodeKind::ConvolutionData, Some(w)) => convolution::check(node, y, w, x)?,
            (DnnNodeKind::ConvolutionFilter, Some(w)) => convolution::check(node, x, y, w)?,
            (DnnNodeKind::Pointwise, w) => pointwise::check(node, x, w, t, y)?,
            (DnnNodeKind::Matmul, Some(w)) => fold::check_product(x, w, y)?,
            (DnnNodeKind::Reduction, _) => fold::check_reduction(node, x, y)?,
            (DnnNodeKind::Pooling, _) => pooling::check(node, x, y)?,
            (DnnNodeKind::PoolingBackward, Some(w)) => pooling::check_backward(node, x, w, t, y)?,
            (kind, None) => return invalid(format!("A {kind:?} has no second operand")),
        }
        written[node.y as usize] = true;
    }
    let operands = graph.tensors.iter().zip(&shapes).zip(&written);
    let operands = operands.map(|((tensor, shape), &written)| Operand {
        addr: tensor.addr,
        bytes: if tensor.addr == 0 { 0 } else { shape.extent },
        written,
    });
    let operands = operands.collect();
    let wide = graph.tensors.iter().any(|t| matches!(t.kind, DnnType::F64 | DnnType::I32 | DnnType::I64));
    let (shared, largest) = (shared_batch(&graph, &shapes), shapes.iter().map(Shape::count).max());
    let batch = shared.filter(|_| largest.unwrap_or(0) > SMALL);
    let computation: Box<dyn Computation> = if wide {
        Box::new(Graph::<f64> { graph, shapes, written, batch, of: PhantomData })
    } else {
        Box::new(Graph::<f32> { graph, shapes, written, batch, of: PhantomData })
    };
    Ok(Plan { operands, computation })
}

/// The length of the first dimension, where every node does the same for each index of it and for no two together.
fn shared_batch(graph: &DnnGraph, shapes: &[Shape]) -> Option<usize> {
    let first = |index: u32| shapes.get(index as usize).and_then(|shape| shape.dims.first()).copied();
    let mut batch = None;
    for node in &graph.nodes {
        let parts: &[u32] = match node.kind {
            DnnNodeKind::Convolution | DnnNodeKind::ConvolutionData | DnnNodeKind::Pooling => {
                &[node.x, node.y]
            }
            DnnNodeKind::Pointwise | DnnNodeKind::PoolingBackward => &[node.x, node.w, node.t, node.y],
            _ => return None,
        };
        for length in parts.iter().filter_map(|&index| first(index)).filter(|&length| length != 1) {
            if *batch.get_or_insert(length) != length {
                return None;
            }
        }
        // What a node writes is each worker's own only where it has that dimension.
        if first(node.y) == Some(1) {
            return None;
        }
    }
    batch.filter(|&length| length > 1)
}

/// A graph that is computed in `T`.
struct Graph<T> {
    graph: DnnGraph,
    shapes: Vec<Shape>,
    written: Vec<bool>,
    /// The length of the first dimension, where workers can share it.
    batch: Option<usize>,
    of: PhantomData<fn(T)>,
}

impl<T: Real> Graph<T> {
    /// Which part of a tensor a piece sees.
    fn part(&self, index: usize, rows: Option<(usize, usize)>) -> Shape {
        let is_filter = self.graph.nodes.iter().any(|node| {
            let convolves = matches!(node.kind, DnnNodeKind::Convolution | DnnNodeKind::ConvolutionData);
            convolves && node.w as usize == index
        });
        match rows {
            Some((from, to)) if !is_filter && self.shapes[index].dims.first() != Some(&1) => {
                self.shapes[index].rows(from, to)
            }
            _ => self.shapes[index].clone(),
        }
    }

    fn node(&self, node: &DnnNode, lists: &mut [Option<List<T>>], reads_result: bool) -> Result<()> {
        let mut y = lists[node.y as usize].take();
        let list = |index: u32| lists.get(index as usize).and_then(Option::as_ref);
        let (Some(x), Some(result)) = (list(node.x), &mut y) else {
            return invalid("A node of a graph comes before the one that makes its operand");
        };
        let (w, t) = (list(node.w), list(node.t));
        if (node.w != NO_TENSOR && w.is_none()) || (node.t != NO_TENSOR && t.is_none()) {
            return invalid("A node of a graph comes before the one that makes its operand");
        }
        if !reads_result {
            result.values.fill(T::ZERO);
        }
        match (node.kind, w) {
            (DnnNodeKind::Convolution, Some(w)) => convolution::forward(node, x, w, result),
            (DnnNodeKind::ConvolutionData, Some(w)) => convolution::data(node, x, w, result),
            (DnnNodeKind::ConvolutionFilter, Some(w)) => convolution::filter(node, x, w, result),
            (DnnNodeKind::Pointwise, w) => pointwise::compute(node, x, w, t, result)?,
            (DnnNodeKind::Matmul, Some(w)) => fold::product(x, w, result),
            (DnnNodeKind::Reduction, _) => fold::reduce(node, x, result)?,
            (DnnNodeKind::Pooling, _) => pooling::forward(node, x, result),
            (DnnNodeKind::PoolingBackward, Some(w)) => pooling::backward(node, x, w, t, result),
            (kind, None) => return invalid(format!("A {kind:?} has no second operand")),
        }
        lists[node.y as usize] = y;
        Ok(())
    }
}

/// Whether a node's result counts before the node is done.
fn adds(node: &DnnNode) -> bool {
    let may = !matches!(node.kind, DnnNodeKind::Pointwise | DnnNodeKind::Matmul | DnnNodeKind::Reduction);
    may && node.beta != 0.0
}

impl<T: Real> Computation for Graph<T> {
    fn pieces(&self, threads: usize) -> usize {
        if threads < 2 { 1 } else { self.batch.map_or(1, |batch| batch.min(2 * threads)) }
    }

    unsafe fn run(&self, memory: &[*mut u8], piece: usize, pieces: usize) -> Result<()> {
        let batch = self.batch.filter(|_| pieces > 1);
        let rows = batch.map(|batch| (batch * piece / pieces, batch * (piece + 1) / pieces));
        let parts: Vec<Shape> = (0..self.shapes.len()).map(|index| self.part(index, rows)).collect();
        let mut lists: Vec<Option<List<T>>> = Vec::new();
        lists.resize_with(parts.len(), || None);
        let mut made = vec![false; parts.len()];
        for node in &self.graph.nodes {
            let before = [node.x, node.w, node.t].into_iter().filter(|&index| index != NO_TENSOR);
            let before = before.chain(adds(node).then_some(node.y));
            for index in before.map(|index| index as usize) {
                let tensor = &self.graph.tensors[index];
                if made[index] || lists[index].is_some() {
                    continue;
                }
                if let Some(value) = tensor.value {
                    lists[index] = Some(List::filled(&parts[index], T::of(value)));
                } else if tensor.addr != 0 {
                    // SAFETY: the operand is as long as the tensor, of which this is a part.
                    lists[index] = Some(unsafe { List::read(tensor.kind, &parts[index], memory[index]) });
                }
            }
            let y = node.y as usize;
            let reads_result = adds(node) && lists[y].is_some();
            if lists[y].is_none() {
                lists[y] = Some(List::filled(&parts[y], T::ZERO));
            }
            self.node(node, &mut lists, reads_result)?;
            made[y] = true;
        }
        for (index, list) in lists.iter().enumerate().filter(|(index, _)| self.written[*index]) {
            let tensor = &self.graph.tensors[index];
            if let (Some(list), true) = (list, tensor.addr != 0) {
                // SAFETY: as above; no other piece writes this part.
                unsafe { list.write(tensor.kind, &parts[index], memory[index]) };
            }
        }
        Ok(())
    }
}
