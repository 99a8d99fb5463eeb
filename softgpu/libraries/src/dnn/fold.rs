//! Products of matrices in batches, and reductions.

use rgpu_device::Result;
use rgpu_libraries::DnnNode;

use super::Real;
use super::tensor::{List, Shape};
use crate::{invalid, missing};

/// Checks that `y = x w` fits, where a batch of one is used for all.
pub(super) fn check_product(x: &Shape, w: &Shape, y: &Shape) -> Result<()> {
    let rank = y.dims.len();
    if rank < 2 || x.dims.len() != rank || w.dims.len() != rank {
        return invalid("A product of tensors with different numbers of dimensions");
    }
    let (a, b, c) = (&x.dims[rank - 2..], &w.dims[rank - 2..], &y.dims[rank - 2..]);
    let batches = (0..rank - 2).all(|i| [x, w].iter().all(|t| t.dims[i] == y.dims[i] || t.dims[i] == 1));
    if a[1] != b[0] || a[0] != c[0] || b[1] != c[1] || !batches {
        return invalid("A product of matrices that do not fit");
    }
    Ok(())
}

/// `y = x w`
pub(super) fn product<T: Real>(x: &List<T>, w: &List<T>, y: &mut List<T>) {
    let rank = y.dims.len();
    let (m, k, n) = (x.dims[rank - 2], x.dims[rank - 1], w.dims[rank - 1]);
    let batch: usize = y.dims[..rank - 2].iter().product();
    for problem in 0..batch {
        // The operand's problem: an index of an axis of length one is always 0.
        let of = |dims: &[usize]| {
            let (mut rest, mut at, mut step) = (problem, 0, 1);
            for axis in (0..rank - 2).rev() {
                let index = rest % y.dims[axis];
                rest /= y.dims[axis];
                at += if dims[axis] == 1 { 0 } else { index * step };
                step *= dims[axis];
            }
            at
        };
        let (a, b) = (&x.values[of(&x.dims) * m * k..], &w.values[of(&w.dims) * k * n..]);
        let out = &mut y.values[problem * m * n..][..m * n];
        for (i, row) in out.chunks_mut(n).enumerate() {
            for l in 0..k {
                let factor = a[i * k + l];
                for (sum, &b) in row.iter_mut().zip(&b[l * n..][..n]) {
                    *sum += factor * b;
                }
            }
        }
    }
}

/// How elements are put together.
#[derive(Clone, Copy)]
struct Fold {
    start: f64,
    step: fn(f64, f64) -> f64,
    end: fn(f64, usize) -> f64,
}

/// By `cudnnReduceTensorOp_t`.
fn fold(mode: u32) -> Option<Fold> {
    let of = |start: f64, step: fn(f64, f64) -> f64, end: fn(f64, usize) -> f64| Fold { start, step, end };
    Some(match mode {
        0 => of(0.0, |all, x| all + x, |all, _| all),
        1 => of(1.0, |all, x| all * x, |all, _| all),
        2 => of(f64::INFINITY, f64::min, |all, _| all),
        3 => of(f64::NEG_INFINITY, f64::max, |all, _| all),
        4 => of(0.0, |all, x| all.max(x.abs()), |all, _| all),
        5 => of(0.0, |all, x| all + x, |all, count| all / count as f64),
        6 => of(0.0, |all, x| all + x.abs(), |all, _| all),
        7 => of(0.0, |all, x| all + x * x, |all, _| all.sqrt()),
        8 => of(1.0, |all, x| if x == 0.0 { all } else { all * x }, |all, _| all),
        _ => return None,
    })
}

/// Checks that a reduction of `x` gives `y`.
pub(super) fn check_reduction(node: &DnnNode, x: &Shape, y: &Shape) -> Result<()> {
    if fold(node.mode).is_none() {
        return missing(format!("the reduction {} of tensors", node.mode));
    }
    if x.dims.len() != y.dims.len() || x.dims.iter().zip(&y.dims).any(|(x, y)| x != y && *y != 1) {
        return invalid("A reduction whose result has other dimensions than its operand");
    }
    Ok(())
}

/// Puts elements together.
pub(super) fn reduce<T: Real>(node: &DnnNode, x: &List<T>, y: &mut List<T>) -> Result<()> {
    let Some(fold) = fold(node.mode) else { return missing("this reduction of tensors") };
    let mut sums = vec![fold.start; y.values.len()];
    for (index, &value) in x.values.iter().enumerate() {
        let (mut rest, mut at, mut step) = (index, 0, 1);
        for axis in (0..x.dims.len()).rev() {
            let i = rest % x.dims[axis];
            rest /= x.dims[axis];
            at += if y.dims[axis] == 1 { 0 } else { i * step };
            step *= y.dims[axis];
        }
        sums[at] = (fold.step)(sums[at], value.wide());
    }
    let count = x.values.len() / y.values.len().max(1);
    for (y, sum) in y.values.iter_mut().zip(sums) {
        *y = T::of((fold.end)(sum, count));
    }
    Ok(())
}
