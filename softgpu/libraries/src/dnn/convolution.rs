//! Convolutions of any number of spatial dimensions, by groups: the windows of an input become the columns of a matrix, whose
//! product with the filter is the output.

use rgpu_device::Result;
use rgpu_libraries::DnnNode;

use super::Real;
use super::tensor::{List, Shape};
use crate::blas::gemm::Product;
use crate::invalid;

/// Most spatial dimensions.
const MOST: usize = 6;

/// Checks that a convolution of the input `x` with the filter `w` gives the output `y`.
pub(super) fn check(node: &DnnNode, x: &Shape, w: &Shape, y: &Shape) -> Result<()> {
    let rank = x.dims.len();
    if rank < 3 || w.dims.len() != rank || y.dims.len() != rank {
        return invalid("A convolution of tensors with different numbers of dimensions");
    }
    let spatial = rank - 2;
    let lists = [&node.pre, &node.post, &node.stride, &node.dilation];
    let limit = |list: &[i64], least: i64| list.iter().all(|&n| (least..1 << 30).contains(&n));
    if lists.iter().any(|list| list.len() != spatial)
        || !(limit(&node.pre, 0)
            && limit(&node.post, 0)
            && limit(&node.stride, 1)
            && limit(&node.dilation, 1))
    {
        return invalid("A convolution whose paddings, strides or dilations do not fit its dimensions");
    }
    let (channels, per_group, filters) = (x.dims[1], w.dims[1], w.dims[0]);
    if channels % per_group != 0 || filters % (channels / per_group) != 0 {
        return invalid(format!("A filter for {per_group} channels and a tensor of {channels}"));
    }
    if x.dims[0] != y.dims[0] || y.dims[1] != filters {
        return invalid(
            "A convolution whose output has another batch or other channels than input and filter say",
        );
    }
    for axis in 0..spatial {
        let padded = x.dims[axis + 2] as i64 + node.pre[axis] + node.post[axis];
        let window = node.dilation[axis].saturating_mul(w.dims[axis + 2] as i64 - 1) + 1;
        let steps = if padded < window { 0 } else { (padded - window) / node.stride[axis] + 1 };
        if steps != y.dims[axis + 2] as i64 {
            return invalid(format!(
                "A convolution whose output has {} elements along an axis, where {steps} follow from its input",
                y.dims[axis + 2]
            ));
        }
    }
    Ok(())
}

/// What a convolution is, apart from its numbers.
struct Form<'a> {
    node: &'a DnnNode,
    /// Lengths of input, window and output along the spatial dimensions.
    input: &'a [usize],
    window: &'a [usize],
    output: &'a [usize],
    groups: usize,
    /// Channels of the input, and filters, of one group.
    channels: usize,
    filters: usize,
    batch: usize,
}

impl<'a> Form<'a> {
    fn new(node: &'a DnnNode, x: &'a [usize], w: &'a [usize], y: &'a [usize]) -> Self {
        let groups = x[1] / w[1];
        Self {
            node,
            input: &x[2..],
            window: &w[2..],
            output: &y[2..],
            groups,
            channels: w[1],
            filters: w[0] / groups,
            batch: x[0],
        }
    }

    fn pixels(&self) -> usize {
        self.input.iter().product()
    }

    fn taps(&self) -> usize {
        self.window.iter().product()
    }

    fn positions(&self) -> usize {
        self.output.iter().product()
    }

    /// Calls `f` with column, row and pixel of each element of a window that lies inside the input, for one channel: rows are the
    /// window's elements, columns the output's positions.
    fn each(&self, mut f: impl FnMut(usize, usize, usize)) {
        let axes = self.input.len();
        let mut tap = [0usize; MOST];
        for row in 0..self.taps() {
            let mut rest = row;
            for axis in (0..axes).rev() {
                tap[axis] = rest % self.window[axis];
                rest /= self.window[axis];
            }
            // Mathematics mirrors the window.
            let of = |axis: usize| {
                let t = if self.node.mode == 0 { self.window[axis] - 1 - tap[axis] } else { tap[axis] };
                t as i64 * self.node.dilation[axis] - self.node.pre[axis]
            };
            let mut index = [0usize; MOST];
            for column in 0..self.positions() {
                let mut pixel = Some(0usize);
                for (axis, &index) in index[..axes].iter().enumerate() {
                    let at = index as i64 * self.node.stride[axis] + of(axis);
                    let inside = usize::try_from(at).ok().filter(|&at| at < self.input[axis]);
                    pixel = pixel.zip(inside).map(|(all, at)| all * self.input[axis] + at);
                }
                if let Some(pixel) = pixel {
                    f(column, row, pixel);
                }
                for axis in (0..axes).rev() {
                    index[axis] += 1;
                    if index[axis] < self.output[axis] {
                        break;
                    }
                    index[axis] = 0;
                }
            }
        }
    }

    /// The windows of some channels as a matrix, row by row: a row for each channel and element of the window, a column for each position.
    fn unfold<T: Real>(&self, x: &[T], matrix: &mut [T]) {
        matrix.fill(T::ZERO);
        let (taps, positions, pixels) = (self.taps(), self.positions(), self.pixels());
        self.each(|column, row, pixel| {
            for channel in 0..self.channels {
                matrix[(channel * taps + row) * positions + column] = x[channel * pixels + pixel];
            }
        });
    }

    /// Adds such a matrix to the pixels that it came from.
    fn fold<T: Real>(&self, matrix: &[T], x: &mut [T]) {
        let (taps, positions, pixels) = (self.taps(), self.positions(), self.pixels());
        self.each(|column, row, pixel| {
            for channel in 0..self.channels {
                x[channel * pixels + pixel] += matrix[(channel * taps + row) * positions + column];
            }
        });
    }
}

/// A matrix: its numbers, the distance between rows, and that between columns.
type Matrix<'m, T> = (&'m [T], isize, isize);

/// `c = alpha a b + beta c`, row by row; the shape is (rows of a, columns of b, columns of a).
fn multiply<T: Real>(
    (m, n, k): (usize, usize, usize),
    c: &mut [T],
    (a, a_rows, a_columns): Matrix<'_, T>,
    (b, b_rows, b_columns): Matrix<'_, T>,
    (alpha, beta): (T, T),
) {
    debug_assert!(c.len() >= m * n && a.len() >= m * k && b.len() >= k * n);
    // A product stores column by column: it is of the other matrices, turned.
    let (turned_a, turned_b) =
        ((b.as_ptr(), b_columns, b_rows, false), (a.as_ptr(), a_columns, a_rows, false));
    let product =
        Product { shape: (n, m, k), c: (c.as_mut_ptr(), n as isize), a: turned_a, b: turned_b, alpha, beta };
    // SAFETY: the slices are as long as the matrices.
    unsafe { product.compute() };
}

/// `y = alpha conv(x, w) + beta y`
pub(super) fn forward<T: Real>(node: &DnnNode, x: &List<T>, w: &List<T>, y: &mut List<T>) {
    let dims = y.dims.clone();
    let form = Form::new(node, &x.dims, &w.dims, &dims);
    let (rows, positions) = (form.channels * form.taps(), form.positions());
    let mut matrix = vec![T::ZERO; rows * positions];
    let (x_size, y_size) = (form.channels * form.pixels(), form.filters * positions);
    let factors = (T::of(node.alpha), T::of(node.beta));
    for part in 0..form.batch * form.groups {
        form.unfold(&x.values[part * x_size..][..x_size], &mut matrix);
        let filter = &w.values[part % form.groups * form.filters * rows..];
        let out = &mut y.values[part * y_size..][..y_size];
        let (a, b) = ((filter, rows as isize, 1), (&matrix[..], positions as isize, 1));
        multiply((form.filters, positions, rows), out, a, b, factors);
    }
}

/// The gradient `dx` of the input, from that of the output.
pub(super) fn data<T: Real>(node: &DnnNode, dy: &List<T>, w: &List<T>, dx: &mut List<T>) {
    let dims = dx.dims.clone();
    let form = Form::new(node, &dims, &w.dims, &dy.dims);
    let (rows, positions) = (form.channels * form.taps(), form.positions());
    let mut matrix = vec![T::ZERO; rows * positions];
    let (x_size, y_size) = (form.channels * form.pixels(), form.filters * positions);
    let beta = T::of(node.beta);
    for part in 0..form.batch * form.groups {
        let filter = &w.values[part % form.groups * form.filters * rows..];
        let gradient = &dy.values[part * y_size..][..y_size];
        let (a, b) = ((filter, 1, rows as isize), (gradient, positions as isize, 1));
        multiply((rows, positions, form.filters), &mut matrix, a, b, (T::of(node.alpha), T::ZERO));
        let out = &mut dx.values[part * x_size..][..x_size];
        out.iter_mut().for_each(|value| *value = *value * beta);
        form.fold(&matrix, out);
    }
}

/// The gradient `dw` of the filter, from the input and the gradient of the output.
pub(super) fn filter<T: Real>(node: &DnnNode, x: &List<T>, dy: &List<T>, dw: &mut List<T>) {
    let dims = dw.dims.clone();
    let form = Form::new(node, &x.dims, &dims, &dy.dims);
    let (rows, positions) = (form.channels * form.taps(), form.positions());
    let mut matrix = vec![T::ZERO; rows * positions];
    let (x_size, y_size) = (form.channels * form.pixels(), form.filters * positions);
    for part in 0..form.batch * form.groups {
        form.unfold(&x.values[part * x_size..][..x_size], &mut matrix);
        let gradient = &dy.values[part * y_size..][..y_size];
        let at = part % form.groups * form.filters * rows;
        let out = &mut dw.values[at..][..form.filters * rows];
        // Each problem of the batch adds to what the ones before have made.
        let beta = if part < form.groups { T::of(node.beta) } else { T::of(1.0) };
        let (a, b) = ((gradient, positions as isize, 1), (&matrix[..], 1, positions as isize));
        multiply((form.filters, rows, positions), out, a, b, (T::of(node.alpha), beta));
    }
}
