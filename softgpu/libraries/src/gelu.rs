//! GELU in its form with the hyperbolic tangent.

/// `sqrt(2 / pi)`.
const FACTOR: f64 = 0.797_884_560_802_865_4;
const CUBE: f64 = 0.044_715;

/// Its value.
pub(crate) fn value(x: f64) -> f64 {
    0.5 * x * (1.0 + (FACTOR * (x + CUBE * x * x * x)).tanh())
}

/// Its derivative.
pub(crate) fn gradient(x: f64) -> f64 {
    let tanh = (FACTOR * (x + CUBE * x * x * x)).tanh();
    0.5 * (1.0 + tanh) + 0.5 * x * (1.0 - tanh * tanh) * FACTOR * (1.0 + 3.0 * CUBE * x * x)
}
