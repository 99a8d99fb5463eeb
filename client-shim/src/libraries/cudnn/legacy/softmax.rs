//! Softmax and its gradient.

use super::super::{In, Result, Status};
use super::calls;
use super::composer::{Composer, blend, ensure, function, reduction};
use super::tensor::{Tensor, tensor};

/// `cudnnSoftmaxAlgorithm_t`: the logarithm of the probabilities.
const LOG: u32 = 2;

/// What one distribution is over: by `cudnnSoftmaxMode_t` a whole example, or the channels of one place.
fn over(x: &Tensor, mode: u32) -> Result<Vec<i64>> {
    let one = |axis: usize| match mode {
        0 => Ok(axis > 0),
        1 => Ok(axis == 1),
        _ => Err(Status::BadParam),
    };
    x.dims.iter().enumerate().map(|(axis, &n)| Ok(if one(axis)? { 1 } else { n })).collect()
}

calls! {
    /// `cudnnSoftmaxForward`. What is fast is exact, too: the greatest element is subtracted first.
    fn cudnnSoftmaxForward(
        handle: usize, algorithm: u32, mode: u32, alpha: In<u8>, x_form: usize, x: usize,
        beta: In<u8>, y_form: usize, y: usize,
    ) {
        let (from, to) = (tensor(x_form)?, tensor(y_form)?);
        ensure(from.dims == to.dims && algorithm <= LOG)?;
        let sums = over(&from, mode)?;
        let mut graph = Composer::default();
        let x = graph.given(&from, x)?;
        let greatest = graph.reduce(reduction::MAX, x, &sums);
        let shifted = graph.combine(function::SUB, x, greatest);
        let powers = graph.map(function::EXP, shifted, [0.0; 4]);
        let sum = graph.reduce(reduction::ADD, powers, &sums);
        let value = if algorithm == LOG {
            let sum = graph.map(function::LOG, sum, [0.0; 4]);
            graph.combine(function::SUB, shifted, sum)
        } else {
            graph.combine(function::DIV, powers, sum)
        };
        graph.store(value, blend(alpha, beta, &to)?, &to, y)?;
        graph.post(handle)
    }
    /// `cudnnSoftmaxBackward`.
    fn cudnnSoftmaxBackward(
        handle: usize, algorithm: u32, mode: u32, alpha: In<u8>, y_form: usize, y: usize,
        dy_form: usize, dy: usize, beta: In<u8>, dx_form: usize, dx: usize,
    ) {
        let (of_y, of_dy, of_dx) = (tensor(y_form)?, tensor(dy_form)?, tensor(dx_form)?);
        ensure(of_y.dims == of_dy.dims && of_y.dims == of_dx.dims && algorithm <= LOG)?;
        let sums = over(&of_y, mode)?;
        let mut graph = Composer::default();
        let (y, dy) = (graph.given(&of_y, y)?, graph.given(&of_dy, dy)?);
        let value = if algorithm == LOG {
            let (sum, probabilities) = (graph.reduce(reduction::ADD, dy, &sums), graph.map(function::EXP, y, [0.0; 4]));
            let shares = graph.combine(function::MUL, probabilities, sum);
            graph.combine(function::SUB, dy, shares)
        } else {
            let product = graph.combine(function::MUL, y, dy);
            let sum = graph.reduce(reduction::ADD, product, &sums);
            let rest = graph.combine(function::SUB, dy, sum);
            graph.combine(function::MUL, y, rest)
        };
        graph.store(value, blend(alpha, beta, &of_dx)?, &of_dx, dx)?;
        graph.post(handle)
    }
}
