//! Batch normalisation: in training, by a mean and a variance that are computed, and in use, by such as are given.

use rgpu_libraries::DnnType;

use super::super::handles::stream_of;
use super::super::{In, Out, Result, Status};
use super::activation::{Activation, activation};
use super::calls;
use super::composer::{Blend, Composer, blend, ensure, function, reduction};
use super::tensor::{Tensor, statistics, tensor};

/// What follows the normalisation (`cudnnBatchNormOps_t`): nothing, an activation, or a sum and an activation.
#[derive(Clone, Copy)]
enum Then {
    Nothing,
    Activation(Activation),
    SumAndActivation(Activation, usize, usize),
}

/// By its number; `z` is the descriptor and the address of what is added, or of where its gradient goes.
fn then(number: u32, form: usize, z: (usize, usize)) -> Result<Then> {
    let simple = || {
        let activation = activation(form)?;
        if activation.is_simple() { Ok(activation) } else { Err(Status::NotSupported) }
    };
    match number {
        0 => Ok(Then::Nothing),
        1 => Ok(Then::Activation(simple()?)),
        2 => Ok(Then::SumAndActivation(simple()?, z.0, z.1)),
        _ => Err(Status::BadParam),
    }
}

/// The parameters' descriptor, which has to fit.
fn parameters(x: &Tensor, form: usize, mode: u32) -> Result<Tensor> {
    let parameters = tensor(form)?;
    ensure(
        parameters.dims == statistics(x, mode)? && matches!(parameters.kind, DnnType::F32 | DnnType::F64),
    )?;
    Ok(parameters)
}

/// `(x - mean) / sqrt(variance + epsilon)`
fn normalised(graph: &mut Composer, x: u32, mean: u32, variance: u32, epsilon: f64) -> (u32, u32) {
    let rank = graph.dims(x).len();
    let distance = graph.combine(function::SUB, x, mean);
    let epsilon = graph.number(epsilon, rank);
    let sum = graph.combine(function::ADD, variance, epsilon);
    let inverse = graph.map(function::RSQRT, sum, [0.0; 4]);
    (graph.combine(function::MUL, distance, inverse), inverse)
}

/// Mean and variance over all that has the same parameters.
fn moments(graph: &mut Composer, x: u32, dims: &[i64]) -> (u32, u32) {
    let mean = graph.reduce(reduction::MEAN, x, dims);
    let distance = graph.combine(function::SUB, x, mean);
    let square = graph.combine(function::MUL, distance, distance);
    (mean, graph.reduce(reduction::MEAN, square, dims))
}

/// What one set of parameters is for: so many elements.
fn population(x: &Tensor, parameters: &Tensor) -> f64 {
    x.count() as f64 / parameters.count() as f64
}

/// Where training leaves what it found.
struct Results {
    factor: f64,
    running: [usize; 2],
    saved: [usize; 2],
    epsilon: f64,
}

struct Training {
    mode: u32,
    then: Then,
    blend: (In<u8>, In<u8>),
    x: (usize, usize),
    y: (usize, usize),
    parameters: usize,
    scale: usize,
    bias: usize,
}

impl Training {
    fn run(self, handle: usize, results: &Results) -> Result<()> {
        let (of_x, of_y) = (tensor(self.x.0)?, tensor(self.y.0)?);
        let of_parameters = parameters(&of_x, self.parameters, self.mode)?;
        ensure(of_x.dims == of_y.dims && results.epsilon >= 0.0 && (0.0..=1.0).contains(&results.factor))?;
        let mut graph = Composer::default();
        let x = graph.given(&of_x, self.x.1)?;
        let (mean, variance) = moments(&mut graph, x, &of_parameters.dims);
        let (value, inverse) = normalised(&mut graph, x, mean, variance, results.epsilon);
        let (scale, bias) =
            (graph.given(&of_parameters, self.scale)?, graph.given(&of_parameters, self.bias)?);
        let value = graph.combine(function::MUL, value, scale);
        let mut value = graph.combine(function::ADD, value, bias);
        if let Then::SumAndActivation(_, form, z) = self.then {
            let of_z = tensor(form)?;
            ensure(of_z.dims == of_x.dims)?;
            let z = graph.given(&of_z, z)?;
            value = graph.combine(function::ADD, value, z);
        }
        if let Then::Activation(activation) | Then::SumAndActivation(activation, ..) = self.then {
            value = activation.of(&mut graph, value);
        }
        graph.store(value, blend(self.blend.0, self.blend.1, &of_y)?, &of_y, self.y.1)?;
        // The variance that is kept is that of what the batch is a sample of.
        let population = population(&of_x, &of_parameters);
        let unbiased = if population > 1.0 { population / (population - 1.0) } else { 1.0 };
        let (old, new) = (1.0 - results.factor, results.factor);
        let kept: [(u32, Blend, usize); 4] = [
            (mean, (new, old), results.running[0]),
            (variance, (new * unbiased, old), results.running[1]),
            (mean, (1.0, 0.0), results.saved[0]),
            (inverse, (1.0, 0.0), results.saved[1]),
        ];
        for (value, blend, addr) in kept.into_iter().filter(|&(.., addr)| addr != 0) {
            graph.store(value, blend, &of_parameters, addr)?;
        }
        graph.post(handle)
    }
}

struct Backward {
    mode: u32,
    then: Then,
    /// The factors of the data's gradient, and of the parameters'.
    blends: [In<u8>; 4],
    x: (usize, usize),
    y: (usize, usize),
    dy: (usize, usize),
    dx: (usize, usize),
    parameters: usize,
    scale: usize,
    d_scale: usize,
    d_bias: usize,
    epsilon: f64,
    saved: [usize; 2],
}

impl Backward {
    fn run(self, handle: usize) -> Result<()> {
        let (of_x, of_dy, of_dx) = (tensor(self.x.0)?, tensor(self.dy.0)?, tensor(self.dx.0)?);
        let parameters = parameters(&of_x, self.parameters, self.mode)?;
        ensure(of_x.dims == of_dy.dims && of_x.dims == of_dx.dims)?;
        let saved = self.saved.iter().filter(|&&addr| addr != 0).count();
        ensure(saved != 1)?;
        let mut graph = Composer::default();
        let (x, mut dy) = (graph.given(&of_x, self.x.1)?, graph.given(&of_dy, self.dy.1)?);
        if let Then::Activation(activation) | Then::SumAndActivation(activation, ..) = self.then {
            let of_y = tensor(self.y.0)?;
            ensure(of_y.dims == of_x.dims)?;
            let y = graph.given(&of_y, self.y.1)?;
            dy = activation.gradient(&mut graph, y, y, dy);
        }
        let (value, inverse) = if saved == 2 {
            let mean = graph.given(&parameters, self.saved[0])?;
            let inverse = graph.given(&parameters, self.saved[1])?;
            let distance = graph.combine(function::SUB, x, mean);
            (graph.combine(function::MUL, distance, inverse), inverse)
        } else {
            let (mean, variance) = moments(&mut graph, x, &parameters.dims);
            normalised(&mut graph, x, mean, variance, self.epsilon)
        };
        let d_bias = graph.reduce(reduction::ADD, dy, &parameters.dims);
        let product = graph.combine(function::MUL, dy, value);
        let d_scale = graph.reduce(reduction::ADD, product, &parameters.dims);
        // dx = scale / deviation * (dy - mean(dy) - value * mean(dy value))
        let share = 1.0 / population(&of_x, &parameters);
        let rest = graph.scaled(function::SUB, (dy, 1.0), (d_bias, share));
        let along = graph.scaled(function::MUL, (value, 1.0), (d_scale, share));
        let rest = graph.combine(function::SUB, rest, along);
        let scale = graph.given(&parameters, self.scale)?;
        let slope = graph.combine(function::MUL, scale, inverse);
        let dx = graph.combine(function::MUL, rest, slope);
        let [alpha, beta, alpha_parameters, beta_parameters] = self.blends;
        graph.store(dx, blend(alpha, beta, &of_dx)?, &of_dx, self.dx.1)?;
        let of_parameters = blend(alpha_parameters, beta_parameters, &parameters)?;
        graph.store(d_scale, of_parameters, &parameters, self.d_scale)?;
        graph.store(d_bias, of_parameters, &parameters, self.d_bias)?;
        if let Then::SumAndActivation(_, form, dz) = self.then {
            let of_dz = tensor(form)?;
            ensure(of_dz.dims == of_x.dims)?;
            graph.store(dy, (1.0, 0.0), &of_dz, dz)?;
        }
        graph.post(handle)
    }
}

calls! {
    /// `cudnnBatchNormalizationForwardInference`.
    fn cudnnBatchNormalizationForwardInference(
        handle: usize, mode: u32, alpha: In<u8>, beta: In<u8>, x_form: usize, x: usize, y_form: usize, y: usize,
        form: usize, scale: usize, bias: usize, mean: usize, variance: usize, epsilon: f64,
    ) {
        let (of_x, of_y) = (tensor(x_form)?, tensor(y_form)?);
        let parameters = parameters(&of_x, form, mode)?;
        ensure(of_x.dims == of_y.dims && epsilon >= 0.0)?;
        let mut graph = Composer::default();
        let x = graph.given(&of_x, x)?;
        let (mean, variance) = (graph.given(&parameters, mean)?, graph.given(&parameters, variance)?);
        let (value, _) = normalised(&mut graph, x, mean, variance, epsilon);
        let (scale, bias) = (graph.given(&parameters, scale)?, graph.given(&parameters, bias)?);
        let value = graph.combine(function::MUL, value, scale);
        let value = graph.combine(function::ADD, value, bias);
        graph.store(value, blend(alpha, beta, &of_y)?, &of_y, y)?;
        graph.post(handle)
    }
    /// `cudnnBatchNormalizationForwardTraining`.
    fn cudnnBatchNormalizationForwardTraining(
        handle: usize, mode: u32, alpha: In<u8>, beta: In<u8>, x_form: usize, x: usize, y_form: usize, y: usize,
        form: usize, scale: usize, bias: usize, factor: f64, running_mean: usize, running_variance: usize,
        epsilon: f64, saved_mean: usize, saved_inverse: usize,
    ) {
        let results =
            Results { factor, running: [running_mean, running_variance], saved: [saved_mean, saved_inverse], epsilon };
        let (x, y, then) = ((x_form, x), (y_form, y), Then::Nothing);
        Training { mode, then, blend: (alpha, beta), x, y, parameters: form, scale, bias }.run(handle, &results)
    }
    /// `cudnnBatchNormalizationForwardTrainingEx`.
    fn cudnnBatchNormalizationForwardTrainingEx(
        handle: usize, mode: u32, operations: u32, alpha: In<u8>, beta: In<u8>, x_form: usize, x: usize,
        z_form: usize, z: usize, y_form: usize, y: usize, form: usize, scale: usize, bias: usize, factor: f64,
        running_mean: usize, running_variance: usize, epsilon: f64, saved_mean: usize, saved_inverse: usize,
        activation_form: usize, _space: usize, _space_size: usize, _kept: usize, _kept_size: usize,
    ) {
        let results =
            Results { factor, running: [running_mean, running_variance], saved: [saved_mean, saved_inverse], epsilon };
        let (x, y, then) = ((x_form, x), (y_form, y), then(operations, activation_form, (z_form, z))?);
        Training { mode, then, blend: (alpha, beta), x, y, parameters: form, scale, bias }.run(handle, &results)
    }
    /// `cudnnBatchNormalizationBackward`.
    fn cudnnBatchNormalizationBackward(
        handle: usize, mode: u32, alpha: In<u8>, beta: In<u8>, alpha_parameters: In<u8>, beta_parameters: In<u8>,
        x_form: usize, x: usize, dy_form: usize, dy: usize, dx_form: usize, dx: usize, form: usize, scale: usize,
        d_scale: usize, d_bias: usize, epsilon: f64, saved_mean: usize, saved_inverse: usize,
    ) {
        let (x, dy, dx) = ((x_form, x), (dy_form, dy), (dx_form, dx));
        let (blends, saved) = ([alpha, beta, alpha_parameters, beta_parameters], [saved_mean, saved_inverse]);
        let (then, y, parameters) = (Then::Nothing, (0, 0), form);
        Backward { mode, then, blends, x, y, dy, dx, parameters, scale, d_scale, d_bias, epsilon, saved }.run(handle)
    }
    /// `cudnnBatchNormalizationBackwardEx`.
    fn cudnnBatchNormalizationBackwardEx(
        handle: usize, mode: u32, operations: u32, alpha: In<u8>, beta: In<u8>, alpha_parameters: In<u8>,
        beta_parameters: In<u8>, x_form: usize, x: usize, y_form: usize, y: usize, dy_form: usize, dy: usize,
        dz_form: usize, dz: usize, dx_form: usize, dx: usize, form: usize, scale: usize, _bias: usize,
        d_scale: usize, d_bias: usize, epsilon: f64, saved_mean: usize, saved_inverse: usize,
        activation_form: usize, _space: usize, _space_size: usize, _kept: usize, _kept_size: usize,
    ) {
        let (x, y, dy, dx) = ((x_form, x), (y_form, y), (dy_form, dy), (dx_form, dx));
        let (blends, saved) = ([alpha, beta, alpha_parameters, beta_parameters], [saved_mean, saved_inverse]);
        let (then, parameters) = (then(operations, activation_form, (dz_form, dz))?, form);
        Backward { mode, then, blends, x, y, dy, dx, parameters, scale, d_scale, d_bias, epsilon, saved }.run(handle)
    }
    /// `cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize`.
    fn cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(
        handle: usize, _mode: u32, _operations: u32, _x: usize, _z: usize, _y: usize, _form: usize,
        _activation: usize, size: Out<usize>,
    ) {
        stream_of(handle)?;
        size.set(0)
    }
    /// `cudnnGetBatchNormalizationBackwardExWorkspaceSize`.
    fn cudnnGetBatchNormalizationBackwardExWorkspaceSize(
        handle: usize, _mode: u32, _operations: u32, _x: usize, _y: usize, _dy: usize, _dz: usize, _dx: usize,
        _form: usize, _activation: usize, size: Out<usize>,
    ) {
        stream_of(handle)?;
        size.set(0)
    }
    /// `cudnnGetBatchNormalizationTrainingExReserveSpaceSize`.
    fn cudnnGetBatchNormalizationTrainingExReserveSpaceSize(
        handle: usize, _mode: u32, _operations: u32, _activation: usize, _x: usize, size: Out<usize>,
    ) {
        stream_of(handle)?;
        size.set(0)
    }
}
