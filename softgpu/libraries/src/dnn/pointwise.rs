//! What is computed element by element. An operand's dimension of one is used for all.

use rgpu_device::Result;
use rgpu_libraries::DnnNode;

use super::Real;
use super::tensor::{List, Shape};
use crate::{gelu, invalid, missing};

/// The function of a node, of up to three operands.
type Function = fn(f64, f64, f64, &[f64; 4]) -> f64;

fn truth(value: bool) -> f64 {
    f64::from(u8::from(value))
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

fn normal(x: f64) -> f64 {
    0.5 * (1.0 + libm::erf(x * std::f64::consts::FRAC_1_SQRT_2))
}

fn density(x: f64) -> f64 {
    (-0.5 * x * x).exp() / (2.0 * std::f64::consts::PI).sqrt()
}

/// What is not a number stays so.
fn relu(x: f64, [lower, upper, slope, _]: &[f64; 4]) -> f64 {
    if x < *lower {
        lower + slope * (x - lower)
    } else if x > *upper {
        *upper
    } else {
        x
    }
}

/// The function of a `cudnnPointwiseMode_t`, and how many operands it has. Gradients have the gradient of the result first, and then
/// what the function was computed of.
fn function(mode: u32) -> Option<(usize, Function)> {
    let of = |count: usize, f: Function| Some((count, f));
    match mode {
        0 => of(2, |a, b, _, _| a + b),
        1 => of(2, |a, b, _, _| a * b),
        2 => of(2, |a, b, _, _| a.min(b)),
        3 => of(2, |a, b, _, _| a.max(b)),
        4 => of(1, |a, _, _, _| a.sqrt()),
        5 => of(2, |a, b, _, _| a + b * b),
        6 => of(2, |a, b, _, _| a / b),
        7 => of(2, |a, b, _, _| a % b),
        8 => of(2, |a, b, _, _| a.powf(b)),
        9 => of(2, |a, b, _, _| a - b),
        10 => of(1, |a, _, _, _| a.abs()),
        11 => of(1, |a, _, _, _| a.ceil()),
        12 => of(1, |a, _, _, _| a.cos()),
        13 => of(1, |a, _, _, _| a.exp()),
        14 => of(1, |a, _, _, _| a.floor()),
        15 => of(1, |a, _, _, _| a.ln()),
        16 => of(1, |a, _, _, _| -a),
        17 => of(1, |a, _, _, _| 1.0 / a.sqrt()),
        18 => of(1, |a, _, _, _| a.sin()),
        19 => of(1, |a, _, _, _| a.tan()),
        20 => of(1, |a, _, _, _| libm::erf(a)),
        21 => of(1, |a, _, _, _| a),
        22 => of(1, |a, _, _, _| 1.0 / a),
        23 => of(2, |a, b, _, _| a.atan2(b)),
        24 => of(2, |a, b, _, _| a - b * (a / b).floor()),
        100 => of(1, |a, _, _, s| relu(a, s)),
        101 => of(1, |a, _, _, _| a.tanh()),
        102 => of(1, |a, _, _, _| sigmoid(a)),
        103 => of(1, |a, _, _, s| if a > 0.0 { a } else { s[3] * a.exp_m1() }),
        104 => of(1, |a, _, _, _| a * normal(a)),
        105 => of(1, |a, _, _, s| (s[3] * a).exp().ln_1p() / s[3]),
        106 => of(1, |a, _, _, s| a * sigmoid(s[3] * a)),
        107 => of(1, |a, _, _, _| gelu::value(a)),
        200 => of(2, |d, x, _, s| {
            if x < s[0] {
                d * s[2]
            } else if x > s[1] {
                0.0
            } else {
                d
            }
        }),
        201 => of(2, |d, x, _, _| d * (1.0 - x.tanh() * x.tanh())),
        202 => of(2, |d, x, _, _| d * sigmoid(x) * (1.0 - sigmoid(x))),
        203 => of(2, |d, x, _, s| if x > 0.0 { d } else { d * s[3] * x.exp() }),
        204 => of(2, |d, x, _, _| d * (normal(x) + x * density(x))),
        205 => of(2, |d, x, _, s| d * sigmoid(s[3] * x)),
        206 => of(2, |d, x, _, s| {
            let g = sigmoid(s[3] * x);
            d * (g + s[3] * x * g * (1.0 - g))
        }),
        207 => of(2, |d, x, _, _| d * gelu::gradient(x)),
        300 => of(2, |a, b, _, _| truth(a == b)),
        301 => of(2, |a, b, _, _| truth(a != b)),
        302 => of(2, |a, b, _, _| truth(a > b)),
        303 => of(2, |a, b, _, _| truth(a >= b)),
        304 => of(2, |a, b, _, _| truth(a < b)),
        305 => of(2, |a, b, _, _| truth(a <= b)),
        400 => of(2, |a, b, _, _| truth(a != 0.0 && b != 0.0)),
        401 => of(2, |a, b, _, _| truth(a != 0.0 || b != 0.0)),
        402 => of(1, |a, _, _, _| truth(a == 0.0)),
        601 => of(3, |a, b, t, _| if t != 0.0 { a } else { b }),
        _ => None,
    }
}

/// Checks that a node's operands fit its result.
pub(super) fn check(
    node: &DnnNode,
    x: &Shape,
    w: Option<&Shape>,
    t: Option<&Shape>,
    y: &Shape,
) -> Result<()> {
    let Some((count, _)) = function(node.mode) else {
        return missing(format!("the function {} of tensors", node.mode));
    };
    if (count >= 2) != w.is_some() || (count == 3) != t.is_some() {
        return invalid(format!("The function {} of tensors has {count} operands", node.mode));
    }
    for operand in [Some(x), w, t].into_iter().flatten() {
        let fits = operand.dims.iter().zip(&y.dims).all(|(a, b)| a == b || *a == 1);
        if operand.dims.len() != y.dims.len() || !fits {
            return invalid("An operand whose dimensions are neither one nor the result's");
        }
    }
    Ok(())
}

/// Where each element of a result finds that of an operand.
struct Places {
    /// The result's dimensions, and the operand's distance along each.
    axes: Vec<(usize, usize)>,
}

impl Places {
    fn new(operand: &[usize], result: &[usize]) -> Self {
        let mut axes = Vec::new();
        let mut step = 1;
        for (&length, &of_result) in operand.iter().zip(result).rev() {
            axes.push((of_result, if length == 1 { 0 } else { step }));
            step *= length;
        }
        Self { axes }
    }

    fn of(&self, mut index: usize) -> usize {
        let mut at = 0;
        for &(length, step) in &self.axes {
            at += index % length * step;
            index /= length;
        }
        at
    }
}

/// `y = f(alpha x, beta w, t)`
pub(super) fn compute<T: Real>(
    node: &DnnNode,
    x: &List<T>,
    w: Option<&List<T>>,
    t: Option<&List<T>>,
    y: &mut List<T>,
) -> Result<()> {
    let Some((_, f)) = function(node.mode) else { return missing("this function of tensors") };
    let operand = |list: Option<&List<T>>| list.map(|list| Places::new(&list.dims, &y.dims));
    let (of_x, of_w, of_t) = (Places::new(&x.dims, &y.dims), operand(w), operand(t));
    let same = |list: &List<T>| list.dims == y.dims;
    let (x_same, w_same) = (same(x), w.is_some_and(same));
    for (index, y) in y.values.iter_mut().enumerate() {
        let value = |list: Option<&List<T>>, places: &Option<Places>, same: bool| match (list, places) {
            (Some(list), Some(places)) => list.values[if same { index } else { places.of(index) }].wide(),
            _ => 0.0,
        };
        let a = node.alpha * x.values[if x_same { index } else { of_x.of(index) }].wide();
        let b = node.beta * value(w, &of_w, w_same);
        *y = T::of(f(a, b, value(t, &of_t, false), &node.settings));
    }
    Ok(())
}
