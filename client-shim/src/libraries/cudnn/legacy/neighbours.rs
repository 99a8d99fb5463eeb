//! Local response normalisation: each element is divided by a power of the sum of its neighbours' squares, along the channels.

use rgpu_libraries::{DnnNode, DnnNodeKind, NO_TENSOR};

use super::super::{In, Out, Result};
use super::calls;
use super::composer::{Composer, blend, ensure, function};
use super::forms::{Forms, created_and_destroyed};
use super::tensor::{Tensor, tensor};

/// What a normalisation's descriptor says: neighbours, alpha, beta and k.
type Neighbours = (u32, [f64; 3]);

static NEIGHBOURS: Forms<Neighbours> = Forms::new("cuDNN LRN descriptor");
created_and_destroyed!(NEIGHBOURS, cudnnCreateLRNDescriptor, cudnnDestroyLRNDescriptor);

/// A tensor whose channels are a dimension of space, along which windows can move.
fn turned(mut tensor: Tensor) -> Result<Tensor> {
    ensure((2..8).contains(&tensor.dims.len()))?;
    tensor.dims.insert(1, 1);
    tensor.strides.insert(1, 0);
    Ok(tensor)
}

/// A window over the channels, whose mean counts what is outside as zero.
fn window(kind: DnnNodeKind, neighbours: u32, rank: usize) -> DnnNode {
    let along = |first: i64, others: i64| {
        let mut list = vec![others; rank - 2];
        list[0] = first;
        list
    };
    let width = i64::from(neighbours);
    DnnNode {
        kind,
        w: NO_TENSOR,
        t: NO_TENSOR,
        alpha: 1.0,
        mode: 1,
        pre: along((width - 1) / 2, 0),
        stride: along(1, 1),
        dilation: along(width, 1),
        ..DnnNode::default()
    }
}

/// `k + alpha mean(x x)` in each window, and that to the power of `-beta`.
fn scales(graph: &mut Composer, (neighbours, [alpha, beta, k]): Neighbours, x: u32) -> (u32, u32) {
    let squares = graph.combine(function::MUL, x, x);
    let dims = graph.dims(x);
    let rank = dims.len();
    let means = graph.inside(dims);
    graph.node(DnnNode { x: squares, y: means, ..window(DnnNodeKind::Pooling, neighbours, rank) });
    let (k, power) = (graph.number(k, rank), graph.number(-beta, rank));
    let scale = graph.scaled(function::ADD, (means, alpha), (k, 1.0));
    (scale, graph.combine(function::POW, scale, power))
}

calls! {
    /// `cudnnSetLRNDescriptor`.
    fn cudnnSetLRNDescriptor(raw: usize, neighbours: u32, alpha: f64, beta: f64, k: f64) {
        ensure((1..=16).contains(&neighbours) && k >= 1e-5 && beta >= 0.01)?;
        NEIGHBOURS.set(raw, (neighbours, [alpha, beta, k]))
    }
    /// `cudnnGetLRNDescriptor`.
    fn cudnnGetLRNDescriptor(raw: usize, neighbours: Out<u32>, alpha: Out<f64>, beta: Out<f64>, k: Out<f64>) {
        let (count, numbers) = NEIGHBOURS.get(raw)?;
        neighbours.set(count)?;
        [alpha, beta, k].into_iter().zip(numbers).try_for_each(|(out, value)| out.set(value))
    }
    /// `cudnnLRNCrossChannelForward`: `y = x (k + alpha / n * sum(x x))^-beta`.
    fn cudnnLRNCrossChannelForward(
        handle: usize, raw: usize, mode: u32, alpha: In<u8>, x_form: usize, x: usize,
        beta: In<u8>, y_form: usize, y: usize,
    ) {
        let (form, from, to) = (NEIGHBOURS.get(raw)?, tensor(x_form)?, tensor(y_form)?);
        ensure(mode == 0 && from.dims == to.dims)?;
        let mut graph = Composer::default();
        let x = graph.given(&turned(from)?, x)?;
        let (_, power) = scales(&mut graph, form, x);
        let value = graph.combine(function::MUL, x, power);
        graph.store(value, blend(alpha, beta, &to)?, &turned(to)?, y)?;
        graph.post(handle)
    }
    /// `cudnnLRNCrossChannelBackward`.
    fn cudnnLRNCrossChannelBackward(
        handle: usize, raw: usize, mode: u32, alpha: In<u8>, y_form: usize, y: usize, dy_form: usize, dy: usize,
        x_form: usize, x: usize, beta: In<u8>, dx_form: usize, dx: usize,
    ) {
        let form = NEIGHBOURS.get(raw)?;
        let (of_y, of_dy, of_x, of_dx) = (tensor(y_form)?, tensor(dy_form)?, tensor(x_form)?, tensor(dx_form)?);
        ensure(mode == 0 && [&of_dy, &of_x, &of_dx].iter().all(|other| other.dims == of_y.dims))?;
        let mut graph = Composer::default();
        let (x, y) = (graph.given(&turned(of_x)?, x)?, graph.given(&turned(of_y)?, y)?);
        let dy = graph.given(&turned(of_dy)?, dy)?;
        let (scale, power) = scales(&mut graph, form, x);
        let direct = graph.combine(function::MUL, dy, power);
        // What an element does to its neighbours by the sums that it is in.
        let shares = graph.combine(function::MUL, dy, y);
        let shares = graph.combine(function::DIV, shares, scale);
        let dims = graph.dims(x);
        let rank = dims.len();
        let spread = graph.inside(dims);
        let back = window(DnnNodeKind::PoolingBackward, form.0, rank);
        graph.node(DnnNode { x, w: y, t: shares, y: spread, ..back });
        let (_, [a, b, _]) = form;
        let indirect = graph.scaled(function::MUL, (x, 2.0 * a * b), (spread, 1.0));
        let value = graph.combine(function::SUB, direct, indirect);
        graph.store(value, blend(alpha, beta, &of_dx)?, &turned(of_dx)?, dx)?;
        graph.post(handle)
    }
}
