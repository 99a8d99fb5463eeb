//! Graphs of tensors: convolutions against sums made one by one, their gradients by what adjoint operators have in common.

mod rig;

use proptest::prelude::*;
use rgpu_device::Code;
use rgpu_libraries::{DnnGraph, DnnNode, DnnNodeKind, DnnTensor, DnnType, NO_TENSOR};
use rig::Rig;

/// Strides of a tensor whose last dimension is the fastest, or, with `channels_last`, the second one.
fn strides(dims: &[usize], channels_last: bool) -> Vec<i64> {
    let mut order: Vec<usize> = (0..dims.len()).collect();
    if channels_last {
        let channel = order.remove(1);
        order.push(channel);
    }
    let mut strides = vec![0; dims.len()];
    let mut step = 1;
    for &axis in order.iter().rev() {
        strides[axis] = step;
        step *= dims[axis] as i64;
    }
    strides
}

/// A tensor with values by their indices, in the order of the dimensions.
struct Tensor {
    dims: Vec<usize>,
    strides: Vec<i64>,
    addr: u64,
}

impl Tensor {
    fn new(rig: &Rig, dims: &[usize], channels_last: bool, values: &[f64]) -> Self {
        let strides = strides(dims, channels_last);
        let mut stored = vec![0.0f64; dims.iter().product()];
        for (i, &value) in values.iter().enumerate() {
            stored[place(dims, &strides, i)] = value;
        }
        Self { dims: dims.to_vec(), strides, addr: rig.put(&stored) }
    }

    fn described(&self) -> DnnTensor {
        DnnTensor {
            addr: self.addr,
            kind: DnnType::F64,
            dims: self.dims.iter().map(|&n| n as i64).collect(),
            strides: self.strides.clone(),
            value: None,
        }
    }

    fn values(&self, rig: &Rig) -> Vec<f64> {
        let count = self.dims.iter().product();
        let stored: Vec<f64> = rig.get(self.addr, count).unwrap();
        (0..count).map(|i| stored[place(&self.dims, &self.strides, i)]).collect()
    }
}

fn place(dims: &[usize], strides: &[i64], mut index: usize) -> usize {
    let mut at = 0;
    for axis in (0..dims.len()).rev() {
        at += index % dims[axis] * strides[axis] as usize;
        index /= dims[axis];
    }
    at
}

#[derive(Debug, Clone)]
struct Case {
    batch: usize,
    groups: usize,
    channels: usize,
    filters: usize,
    input: [usize; 2],
    window: [usize; 2],
    pre: [usize; 2],
    post: [usize; 2],
    stride: [usize; 2],
    dilation: [usize; 2],
    mirrored: bool,
    channels_last: bool,
}

fn cases() -> impl Strategy<Value = Case> {
    let pair = |range: std::ops::Range<usize>| [range.clone(), range];
    (
        (1usize..5, 1usize..3, 1usize..4, 1usize..4),
        (pair(3..9), pair(1..4), pair(0..3), pair(0..3), pair(1..4), pair(1..3)),
        any::<(bool, bool)>(),
    )
        .prop_map(
            |((batch, groups, channels, filters), (input, window, pre, post, stride, dilation), flags)| {
                Case {
                    batch,
                    groups,
                    channels,
                    filters,
                    input,
                    window,
                    pre,
                    post,
                    stride,
                    dilation,
                    mirrored: flags.0,
                    channels_last: flags.1,
                }
            },
        )
        .prop_filter("the window is larger than the input", |case| {
            (0..2).all(|i| case.padded(i) > case.dilation[i] * (case.window[i] - 1))
        })
}

impl Case {
    fn padded(&self, axis: usize) -> usize {
        self.input[axis] + self.pre[axis] + self.post[axis]
    }

    fn output(&self) -> [usize; 2] {
        [0, 1].map(|i| (self.padded(i) - self.dilation[i] * (self.window[i] - 1) - 1) / self.stride[i] + 1)
    }

    fn x(&self) -> Vec<usize> {
        vec![self.batch, self.groups * self.channels, self.input[0], self.input[1]]
    }

    fn w(&self) -> Vec<usize> {
        vec![self.groups * self.filters, self.channels, self.window[0], self.window[1]]
    }

    fn y(&self) -> Vec<usize> {
        vec![self.batch, self.groups * self.filters, self.output()[0], self.output()[1]]
    }

    fn node(&self, kind: DnnNodeKind) -> DnnNode {
        let list = |pair: [usize; 2]| pair.map(|n| n as i64).to_vec();
        DnnNode {
            kind,
            x: 0,
            w: 1,
            t: NO_TENSOR,
            y: 2,
            alpha: 2.0,
            beta: 0.0,
            mode: u32::from(!self.mirrored),
            pre: list(self.pre),
            post: list(self.post),
            stride: list(self.stride),
            dilation: list(self.dilation),
            settings: [0.0; 4],
        }
    }

    fn expected(&self, x: &[f64], w: &[f64]) -> Vec<f64> {
        let ([height, width], [rows, columns]) = (self.input, self.window);
        let [out_height, out_width] = self.output();
        let mut y = Vec::new();
        for n in 0..self.batch {
            for filter in 0..self.groups * self.filters {
                let first = filter / self.filters * self.channels;
                for (oy, ox) in (0..out_height).flat_map(|oy| (0..out_width).map(move |ox| (oy, ox))) {
                    let mut sum = 0.0;
                    for (c, r, s) in (0..self.channels)
                        .flat_map(|c| (0..rows).flat_map(move |r| (0..columns).map(move |s| (c, r, s))))
                    {
                        let iy = oy * self.stride[0] + r * self.dilation[0];
                        let ix = ox * self.stride[1] + s * self.dilation[1];
                        let (Some(iy), Some(ix)) = (iy.checked_sub(self.pre[0]), ix.checked_sub(self.pre[1]))
                        else {
                            continue;
                        };
                        if iy >= height || ix >= width {
                            continue;
                        }
                        let channels = self.groups * self.channels;
                        let (r, s) = if self.mirrored { (rows - 1 - r, columns - 1 - s) } else { (r, s) };
                        sum += x[((n * channels + first + c) * height + iy) * width + ix]
                            * w[((filter * self.channels + c) * rows + r) * columns + s];
                    }
                    y.push(2.0 * sum);
                }
            }
        }
        y
    }
}

fn numbers(dims: &[usize], seed: usize) -> Vec<f64> {
    (0..dims.iter().product()).map(|i: usize| ((i * 7 + seed * 13) % 11) as f64 - 5.0).collect()
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn run(rig: &Rig, node: DnnNode, tensors: [&Tensor; 3]) {
    let graph = DnnGraph { tensors: tensors.map(Tensor::described).to_vec(), nodes: vec![node] };
    rig.call(&graph).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(60) })]

    #[test]
    fn convolutions_and_their_gradients(case in cases()) {
        let rig = Rig::shared();
        let (x, w, dy) = (numbers(&case.x(), 1), numbers(&case.w(), 2), numbers(&case.y(), 3));
        let tensor = |dims: &[usize], values: &[f64]| Tensor::new(rig, dims, case.channels_last, values);
        let of = |values: &[f64]| vec![7.0; values.len()];
        let (at_x, at_w, at_dy) = (tensor(&case.x(), &x), tensor(&case.w(), &w), tensor(&case.y(), &dy));
        let (y, dx, dw) =
            (tensor(&case.y(), &of(&dy)), tensor(&case.x(), &of(&x)), tensor(&case.w(), &of(&w)));
        run(rig, case.node(DnnNodeKind::Convolution), [&at_x, &at_w, &y]);
        prop_assert_eq!(y.values(rig), case.expected(&x, &w));
        // <conv(x, w), dy> = <x, data(dy, w)> = <w, filter(x, dy)>
        run(rig, case.node(DnnNodeKind::ConvolutionData), [&at_dy, &at_w, &dx]);
        run(rig, case.node(DnnNodeKind::ConvolutionFilter), [&at_x, &at_dy, &dw]);
        let value = dot(&y.values(rig), &dy);
        prop_assert_eq!(dot(&x, &dx.values(rig)), value);
        prop_assert_eq!(dot(&w, &dw.values(rig)), value);
    }
}

#[test]
fn a_large_batch_is_shared_and_followed_by_bias_and_activation() {
    let rig = Rig::shared();
    let case = Case {
        batch: 9,
        groups: 1,
        channels: 3,
        filters: 4,
        input: [20, 20],
        window: [3, 3],
        pre: [1, 1],
        post: [1, 1],
        stride: [1, 1],
        dilation: [1, 1],
        mirrored: false,
        channels_last: true,
    };
    let (x, w) = (numbers(&case.x(), 1), numbers(&case.w(), 2));
    let bias = [1.0, -2.0, 3.0, -400.0];
    let at_bias = Tensor::new(rig, &[1, 4, 1, 1], true, &bias);
    let tensor = |dims: &[usize], values: &[f64]| Tensor::new(rig, dims, true, values);
    let (at_x, at_w, at_y) = (tensor(&case.x(), &x), tensor(&case.w(), &w), tensor(&case.y(), &[]));
    let inner = |place: &Tensor| DnnTensor { addr: 0, ..place.described() };
    let pointwise = |mode, x, w, y| DnnNode {
        kind: DnnNodeKind::Pointwise,
        x,
        w,
        t: NO_TENSOR,
        y,
        alpha: 1.0,
        beta: 1.0,
        mode,
        settings: [0.0, f64::INFINITY, 0.0, 1.0],
        ..DnnNode::default()
    };
    let graph = DnnGraph {
        tensors: vec![
            at_x.described(),
            at_w.described(),
            inner(&at_y),
            at_bias.described(),
            inner(&at_y),
            at_y.described(),
        ],
        nodes: vec![
            case.node(DnnNodeKind::Convolution),
            pointwise(0, 2, 3, 4),
            pointwise(100, 4, NO_TENSOR, 5),
        ],
    };
    rig.call(&graph).unwrap();
    let positions = 20 * 20;
    let sums = case.expected(&x, &w).into_iter().enumerate();
    let expected: Vec<f64> = sums.map(|(i, sum)| (sum + bias[i / positions % 4]).max(0.0)).collect();
    assert_eq!(at_y.values(rig), expected);
}

#[test]
fn pooling_and_its_gradient() {
    let rig = Rig::shared();
    let x = Tensor::new(rig, &[1, 1, 4, 4], false, &(0..16).map(f64::from).collect::<Vec<_>>());
    let y = Tensor::new(rig, &[1, 1, 2, 2], false, &[]);
    let node = |kind, mode| DnnNode {
        kind,
        x: 0,
        w: if kind == DnnNodeKind::Pooling { NO_TENSOR } else { 1 },
        t: if kind == DnnNodeKind::Pooling { NO_TENSOR } else { 2 },
        y: if kind == DnnNodeKind::Pooling { 1 } else { 3 },
        alpha: 1.0,
        mode,
        pre: vec![0, 0],
        post: vec![0, 0],
        stride: vec![2, 2],
        dilation: vec![2, 2],
        ..DnnNode::default()
    };
    let pool = |mode| {
        let graph = DnnGraph {
            tensors: vec![x.described(), y.described()],
            nodes: vec![node(DnnNodeKind::Pooling, mode)],
        };
        rig.call(&graph).unwrap();
        y.values(rig)
    };
    assert_eq!(pool(1), [2.5, 4.5, 10.5, 12.5]);
    assert_eq!(pool(0), [5.0, 7.0, 13.0, 15.0]);
    let dy = Tensor::new(rig, &[1, 1, 2, 2], false, &[1.0, 2.0, 3.0, 4.0]);
    let dx = Tensor::new(rig, &[1, 1, 4, 4], false, &[9.0; 16]);
    let graph = DnnGraph {
        tensors: vec![x.described(), y.described(), dy.described(), dx.described()],
        nodes: vec![node(DnnNodeKind::PoolingBackward, 0)],
    };
    rig.call(&graph).unwrap();
    let mut expected = vec![0.0; 16];
    for (pixel, gradient) in [(5, 1.0), (7, 2.0), (13, 3.0), (15, 4.0)] {
        expected[pixel] = gradient;
    }
    assert_eq!(dx.values(rig), expected);
}

#[test]
fn graphs_that_make_no_sense_are_refused() {
    let rig = Rig::shared();
    let x = Tensor::new(rig, &[2, 3, 4, 4], false, &[]);
    let w = Tensor::new(rig, &[5, 3, 3, 3], false, &[]);
    let y = Tensor::new(rig, &[2, 5, 2, 2], false, &[]);
    let good = DnnNode {
        x: 0,
        w: 1,
        t: NO_TENSOR,
        y: 2,
        alpha: 1.0,
        mode: 1,
        pre: vec![0, 0],
        post: vec![0, 0],
        stride: vec![1, 1],
        dilation: vec![1, 1],
        ..DnnNode::default()
    };
    let tensors = vec![x.described(), w.described(), y.described()];
    let call = |node: DnnNode, tensors: &[DnnTensor]| {
        rig.call(&DnnGraph { tensors: tensors.to_vec(), nodes: vec![node] })
    };
    call(good.clone(), &tensors).unwrap();
    for bad in [
        DnnNode { x: 9, ..good.clone() },
        DnnNode { w: NO_TENSOR, ..good.clone() },
        DnnNode { stride: vec![0, 1], ..good.clone() },
        DnnNode { dilation: vec![i64::MAX, 1], ..good.clone() },
        DnnNode { pre: vec![1], ..good.clone() },
        DnnNode { w: 0, ..good.clone() },
    ] {
        assert_eq!(call(bad.clone(), &tensors).unwrap_err().code, Code::InvalidValue, "{bad:?}");
    }
    let mut long = tensors.clone();
    long[0].strides = vec![i64::MAX; 4];
    assert_eq!(call(good.clone(), &long).unwrap_err().code, Code::InvalidValue);
    let unknown = DnnNode { kind: DnnNodeKind::Pointwise, mode: 999, w: NO_TENSOR, ..good };
    assert_eq!(call(unknown, &tensors).unwrap_err().code, Code::NotSupported);
}
