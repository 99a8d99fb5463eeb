//! Pooling: windows become their greatest element or their mean.

use rgpu_device::Result;
use rgpu_libraries::DnnNode;

use super::Real;
use super::tensor::{List, Shape};
use crate::{invalid, missing};

/// Checks that a pooling of `x` gives `y`.
pub(super) fn check(node: &DnnNode, x: &Shape, y: &Shape) -> Result<()> {
    let spatial = x.dims.len().saturating_sub(2);
    let lists = [&node.pre, &node.stride, &node.dilation];
    let sane =
        lists.iter().all(|list| list.len() == spatial && list.iter().all(|&n| (0..1 << 30).contains(&n)));
    if node.mode > 3 {
        return missing(format!("the pooling {}", node.mode));
    }
    if spatial == 0 || x.dims.len() != y.dims.len() || x.dims[..2] != y.dims[..2] || !sane {
        return invalid("A pooling whose window does not fit its tensors");
    }
    if node.stride.contains(&0) || node.dilation.contains(&0) {
        return invalid("A pooling without a window, or that does not move");
    }
    Ok(())
}

/// Checks a pooling's gradient: `x` and `w` are the pooling's input and output, `t` is the gradient of its output.
pub(super) fn check_backward(
    node: &DnnNode,
    x: &Shape,
    w: &Shape,
    t: Option<&Shape>,
    y: &Shape,
) -> Result<()> {
    check(node, x, w)?;
    if t.is_none_or(|t| t.dims != w.dims) || y.dims != x.dims {
        return invalid("A pooling's gradient whose tensors are not like the pooling's");
    }
    Ok(())
}

/// Calls `f` with each element of an output and the pixels of its window that lie inside the input; the last argument is by how
/// many a mean divides.
fn windows(node: &DnnNode, input: &[usize], output: &[usize], mut f: impl FnMut(usize, &[usize], usize)) {
    let axes = input.len();
    let positions: usize = output.iter().product();
    let mut inside = Vec::new();
    for position in 0..positions {
        let (mut rest, mut from) = (position, vec![0i64; axes]);
        for axis in (0..axes).rev() {
            from[axis] = (rest % output[axis]) as i64 * node.stride[axis] - node.pre[axis];
            rest /= output[axis];
        }
        inside.clear();
        inside.push(0);
        for axis in 0..axes {
            let to = (from[axis] + node.dilation[axis]).min(input[axis] as i64);
            let along = from[axis].max(0)..to;
            inside = inside
                .iter()
                .flat_map(|&before| along.clone().map(move |at| before * input[axis] + at as usize))
                .collect();
        }
        let whole = node.dilation.iter().product::<i64>() as usize;
        // Mode 1 counts the padding.
        f(position, &inside, if node.mode == 1 { whole } else { inside.len().max(1) });
    }
}

/// `y = alpha pool(x) + beta y`
pub(super) fn forward<T: Real>(node: &DnnNode, x: &List<T>, y: &mut List<T>) {
    let (input, output) = (x.dims[2..].to_vec(), y.dims[2..].to_vec());
    let (pixels, positions) = (input.iter().product::<usize>(), output.iter().product::<usize>());
    let means = matches!(node.mode, 1 | 2);
    windows(node, &input, &output, |position, inside, count| {
        for plane in 0..x.dims[0] * x.dims[1] {
            let values = inside.iter().map(|&pixel| x.values[plane * pixels + pixel].wide());
            let pooled = if means {
                values.sum::<f64>() / count as f64
            } else {
                values.fold(
                    f64::NEG_INFINITY,
                    |most, value| if value > most || value.is_nan() { value } else { most },
                )
            };
            let y = &mut y.values[plane * positions + position];
            let before = if node.beta == 0.0 { 0.0 } else { node.beta * y.wide() };
            *y = T::of(node.alpha * pooled + before);
        }
    });
}

/// The gradient of the input `x`, from that of the output `y`.
pub(super) fn backward<T: Real>(
    node: &DnnNode,
    x: &List<T>,
    y: &List<T>,
    dy: Option<&List<T>>,
    dx: &mut List<T>,
) {
    let Some(dy) = dy else { return };
    let (input, output) = (x.dims[2..].to_vec(), y.dims[2..].to_vec());
    let (pixels, positions) = (input.iter().product::<usize>(), output.iter().product::<usize>());
    let means = matches!(node.mode, 1 | 2);
    let beta = T::of(node.beta);
    dx.values.iter_mut().for_each(|value| *value = *value * beta);
    windows(node, &input, &output, |position, inside, count| {
        for plane in 0..x.dims[0] * x.dims[1] {
            let gradient = node.alpha * dy.values[plane * positions + position].wide();
            if means {
                let share = T::of(gradient / count as f64);
                inside.iter().for_each(|&pixel| dx.values[plane * pixels + pixel] += share);
                continue;
            }
            // The first of the greatest ones.
            let greatest = y.values[plane * positions + position];
            let first = inside.iter().find(|&&pixel| x.values[plane * pixels + pixel] == greatest);
            if let Some(&pixel) = first {
                dx.values[plane * pixels + pixel] += T::of(gradient);
            }
        }
    });
}
