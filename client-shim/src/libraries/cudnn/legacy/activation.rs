//! Activations and their gradients.

use super::super::{In, Out, Result};
use super::calls;
use super::composer::{Composer, blend, ensure, function};
use super::forms::{Forms, created_and_destroyed};
use super::tensor::tensor;

/// What an activation's descriptor says.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Activation {
    mode: u32,
    nan: u32,
    coefficient: f64,
    swish: f64,
}

/// The activations by `cudnnActivationMode_t`.
mod mode {
    pub(super) const SIGMOID: u32 = 0;
    pub(super) const RELU: u32 = 1;
    pub(super) const TANH: u32 = 2;
    pub(super) const CLIPPED: u32 = 3;
    pub(super) const ELU: u32 = 4;
    pub(super) const IDENTITY: u32 = 5;
    pub(super) const SWISH: u32 = 6;
}

static ACTIVATIONS: Forms<Activation> = Forms::new("cuDNN activation descriptor");
created_and_destroyed!(ACTIVATIONS, cudnnCreateActivationDescriptor, cudnnDestroyActivationDescriptor);

/// What a descriptor says.
pub(super) fn activation(raw: usize) -> Result<Activation> {
    ACTIVATIONS.get(raw)
}

impl Activation {
    /// Whether it can follow a convolution or a normalisation: ReLU, or none.
    pub(super) fn is_simple(&self) -> bool {
        matches!(self.mode, mode::RELU | mode::IDENTITY)
    }

    /// Its value for each element.
    pub(super) fn of(&self, graph: &mut Composer, x: u32) -> u32 {
        let relu = |upper| (100, [0.0, upper, 0.0, 0.0]);
        let (function, settings) = match self.mode {
            mode::SIGMOID => (102, [0.0; 4]),
            mode::RELU => relu(f64::INFINITY),
            mode::TANH => (101, [0.0; 4]),
            mode::CLIPPED => relu(self.coefficient),
            mode::ELU => (103, [0.0, 0.0, 0.0, self.coefficient]),
            mode::SWISH => (106, [0.0, 0.0, 0.0, self.swish]),
            _ => return x,
        };
        graph.map(function, x, settings)
    }

    /// The gradient of its argument: from that of its value, `dy`, and the value, `y`; from the argument `x` where the value does not tell.
    pub(super) fn gradient(&self, graph: &mut Composer, x: u32, y: u32, dy: u32) -> u32 {
        let number = |graph: &mut Composer, value| graph.number(value, graph.dims(y).len());
        let slope = match self.mode {
            mode::SIGMOID => {
                let one = number(graph, 1.0);
                let rest = graph.combine(function::SUB, one, y);
                graph.combine(function::MUL, y, rest)
            }
            mode::RELU => {
                let zero = number(graph, 0.0);
                graph.combine(function::GREATER, y, zero)
            }
            mode::TANH => {
                let (one, square) = (number(graph, 1.0), graph.combine(function::MUL, y, y));
                graph.combine(function::SUB, one, square)
            }
            mode::CLIPPED => {
                let (zero, upper) = (number(graph, 0.0), number(graph, self.coefficient));
                let (above, below) =
                    (graph.combine(function::GREATER, y, zero), graph.combine(function::LESS, y, upper));
                graph.combine(function::MUL, above, below)
            }
            mode::ELU => {
                let (zero, scale) = (number(graph, 0.0), number(graph, self.coefficient));
                let (positive, shifted) =
                    (graph.combine(function::GREATER, y, zero), graph.combine(function::ADD, y, scale));
                let steep = graph.select(positive, dy, shifted);
                let falling = graph.combine(function::MUL, dy, steep);
                return graph.select(positive, dy, falling);
            }
            mode::SWISH => {
                // 206 is the gradient of a swish by its argument.
                let settings = [0.0, 0.0, 0.0, self.swish];
                return graph.gradient(206, dy, x, settings);
            }
            _ => return dy,
        };
        graph.combine(function::MUL, dy, slope)
    }
}

calls! {
    /// `cudnnSetActivationDescriptor`.
    fn cudnnSetActivationDescriptor(raw: usize, mode: u32, nan: u32, coefficient: f64) {
        ensure(mode <= mode::SWISH && nan <= 1)?;
        ACTIVATIONS.set(raw, Activation { mode, nan, coefficient, swish: 1.0 })
    }
    /// `cudnnGetActivationDescriptor`.
    fn cudnnGetActivationDescriptor(raw: usize, mode: Out<u32>, nan: Out<u32>, coefficient: Out<f64>) {
        let said = activation(raw)?;
        mode.set(said.mode)?;
        nan.set(said.nan)?;
        coefficient.set(said.coefficient)
    }
    /// `cudnnSetActivationDescriptorSwishBeta`.
    fn cudnnSetActivationDescriptorSwishBeta(raw: usize, beta: f64) {
        ACTIVATIONS.change(raw, Activation::default(), |said| said.swish = beta)
    }
    /// `cudnnGetActivationDescriptorSwishBeta`.
    fn cudnnGetActivationDescriptorSwishBeta(raw: usize, beta: Out<f64>) {
        beta.set(activation(raw)?.swish)
    }
    /// `cudnnActivationForward`.
    fn cudnnActivationForward(
        handle: usize, form: usize, alpha: In<u8>, x_form: usize, x: usize,
        beta: In<u8>, y_form: usize, y: usize,
    ) {
        let (activation, from, to) = (activation(form)?, tensor(x_form)?, tensor(y_form)?);
        ensure(from.dims == to.dims)?;
        let mut graph = Composer::default();
        let x = graph.given(&from, x)?;
        let value = activation.of(&mut graph, x);
        graph.store(value, blend(alpha, beta, &to)?, &to, y)?;
        graph.post(handle)
    }
    /// `cudnnActivationBackward`.
    fn cudnnActivationBackward(
        handle: usize, form: usize, alpha: In<u8>, y_form: usize, y: usize, dy_form: usize, dy: usize,
        x_form: usize, x: usize, beta: In<u8>, dx_form: usize, dx: usize,
    ) {
        let activation = activation(form)?;
        let (of_y, of_dy, of_x, of_dx) = (tensor(y_form)?, tensor(dy_form)?, tensor(x_form)?, tensor(dx_form)?);
        ensure([&of_dy, &of_x, &of_dx].iter().all(|other| other.dims == of_y.dims))?;
        let mut graph = Composer::default();
        let (y, dy) = (graph.given(&of_y, y)?, graph.given(&of_dy, dy)?);
        let x = if activation.mode == mode::SWISH { graph.given(&of_x, x)? } else { y };
        let value = activation.gradient(&mut graph, x, y, dy);
        graph.store(value, blend(alpha, beta, &of_dx)?, &of_dx, dx)?;
        graph.post(handle)
    }
}
