//! What a cell computes at one step, and its gradient. Gates stand one behind the other, `h` numbers each.

use crate::dnn::Real;

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// The output of a simple cell.
pub(super) fn simple<T: Real>(relu: bool, sum: T) -> T {
    let sum = sum.wide();
    // What is not a number stays that.
    T::of(if !relu {
        sum.tanh()
    } else if sum < 0.0 {
        0.0
    } else {
        sum
    })
}

/// The gradient of its argument, from its output and the gradient of that.
pub(super) fn simple_gradient<T: Real>(relu: bool, output: T, gradient: T) -> T {
    let (y, dy) = (output.wide(), gradient.wide());
    T::of(if relu { if y > 0.0 { dy } else { 0.0 } } else { dy * (1.0 - y * y) })
}

/// A step of an LSTM: from the sums of the four gates and the cell before, the gates, the cell, and the output before it is projected.
pub(super) fn lstm<T: Real>(h: usize, sums: &[T], cell: &[T], kept: &mut [T]) {
    for k in 0..h {
        let gate = |number: usize| sums[number * h + k].wide();
        let (i, f, g, o) = (sigmoid(gate(0)), sigmoid(gate(1)), gate(2).tanh(), sigmoid(gate(3)));
        let c = T::of(f * cell[k].wide() + i * g);
        let m = o * c.wide().tanh();
        for (number, value) in [i, f, g, o, c.wide(), m].into_iter().enumerate() {
            kept[number * h + k] = T::of(value);
        }
    }
}

/// The gradients of the four gates' sums, from what was kept, the cell before and the gradient of the output; `dc` is the gradient of the cell, and becomes
/// that of the cell before.
pub(super) fn lstm_gradient<T: Real>(
    h: usize,
    kept: &[T],
    cell: &[T],
    dm: &[T],
    dc: &mut [T],
    sums: &mut [T],
) {
    for k in 0..h {
        let of = |number: usize| kept[number * h + k].wide();
        let (i, f, g, o, tanh) = (of(0), of(1), of(2), of(3), of(4).tanh());
        let dm = dm[k].wide();
        let d = dc[k].wide() + dm * o * (1.0 - tanh * tanh);
        let gates = [
            d * g * i * (1.0 - i),
            d * cell[k].wide() * f * (1.0 - f),
            d * i * (1.0 - g * g),
            dm * tanh * o * (1.0 - o),
        ];
        for (number, value) in gates.into_iter().enumerate() {
            sums[number * h + k] = T::of(value);
        }
        dc[k] = T::of(d * f);
    }
}

/// A step of a GRU: from the sums with the input (and, of the first two gates, with the state), the sum of the third gate with the state alone, and
/// the state before, the gates and that sum, and the state.
pub(super) fn gru<T: Real>(h: usize, sums: &[T], of_state: &[T], kept: &mut [T], state: &mut [T]) {
    for k in 0..h {
        let (r, z) = (sigmoid(sums[k].wide()), sigmoid(sums[h + k].wide()));
        let q = of_state[k].wide();
        let n = (sums[2 * h + k].wide() + r * q).tanh();
        for (number, value) in [r, z, n, q].into_iter().enumerate() {
            kept[number * h + k] = T::of(value);
        }
        state[k] = T::of((1.0 - z) * n + z * state[k].wide());
    }
}

/// The gradients of the three gates' sums and of the third one's with the state, from what was kept, the state before and the gradient of the output,
/// which becomes the part of the gradient of the state before that comes from there directly.
pub(super) fn gru_gradient<T: Real>(h: usize, kept: &[T], before: &[T], dh: &mut [T], sums: &mut [T]) {
    for k in 0..h {
        let of = |number: usize| kept[number * h + k].wide();
        let (r, z, n, q, d) = (of(0), of(1), of(2), of(3), dh[k].wide());
        let dn = d * (1.0 - z) * (1.0 - n * n);
        let dz = d * (before[k].wide() - n) * z * (1.0 - z);
        let dr = dn * q * r * (1.0 - r);
        for (number, value) in [dr, dz, dn, dn * r].into_iter().enumerate() {
            sums[number * h + k] = T::of(value);
        }
        dh[k] = T::of(d * z);
    }
}
