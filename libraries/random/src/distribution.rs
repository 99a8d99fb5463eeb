//! What numbers are made of words.

use crate::Words;
use crate::mrg32k3a::Mrg32k3a;
use crate::mt19937::Mt19937;
use crate::philox::Philox;
use crate::poisson::Discrete;
use crate::quasi::Sobol;
use crate::xorwow::Xorwow;

/// A generator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pseudo {
    /// XORWOW.
    Xorwow,
    /// MRG32k3a.
    Mrg32k3a,
    /// MT19937.
    Mt19937,
    /// Philox4x32-10.
    Philox,
    /// Sobol points of so many dimensions, with 32 bits for each number.
    Sobol32(u32),
    /// Sobol points of so many dimensions, with 64 bits for each number.
    Sobol64(u32),
}

/// What is wanted, with its parameters.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Distribution {
    /// Words of 32 bits.
    Bits32,
    /// Words of 64 bits.
    Bits64,
    /// From 0 (never) to 1 (possibly).
    UniformF32,
    /// From 0 (never) to 1 (possibly).
    UniformF64,
    /// Mean and standard deviation.
    NormalF32(f64, f64),
    /// Mean and standard deviation.
    NormalF64(f64, f64),
    /// Mean and standard deviation of the logarithms.
    LogNormalF32(f64, f64),
    /// Mean and standard deviation of the logarithms.
    LogNormalF64(f64, f64),
    /// Poisson's, of this mean, as words.
    Poisson(f64),
    /// How many of so many trials succeed, each with this probability, as words.
    Binomial(u32, f64),
}

impl Distribution {
    /// Bytes of a number.
    pub fn bytes(self) -> u64 {
        match self {
            Self::Bits32
            | Self::UniformF32
            | Self::NormalF32(..)
            | Self::LogNormalF32(..)
            | Self::Poisson(_)
            | Self::Binomial(..) => 4,
            Self::Bits64 | Self::UniformF64 | Self::NormalF64(..) | Self::LogNormalF64(..) => 8,
        }
    }

    /// How many words of a sequence a number takes.
    pub fn words(self) -> u64 {
        match self {
            Self::Bits32 | Self::UniformF32 | Self::NormalF32(..) | Self::LogNormalF32(..) => 1,
            _ => 2,
        }
    }
}

/// More than 0, at most 1.
fn uniform_f32(word: u32) -> f32 {
    (word as f32).mul_add(1.0 / 4_294_967_296.0, 0.5 / 4_294_967_296.0)
}

/// More than 0, at most 1.
fn uniform_f64(word: u64) -> f64 {
    ((word >> 11) as f64 + 1.0) / 9_007_199_254_740_992.0
}

fn word64(words: &mut impl Words) -> u64 {
    let low = u64::from(words.next());
    u64::from(words.next()) << 32 | low
}

/// Two independent normal numbers of two uniform ones (Box and Muller).
fn normal_pair(u: f64, v: f64) -> [f64; 2] {
    let radius = (-2.0 * u.ln()).sqrt();
    let (sin, cos) = (std::f64::consts::TAU * v).sin_cos();
    [radius * sin, radius * cos]
}

/// Fills `bytes` with the numbers `first..` of a request. The request's first number is made of the words from `place` on; of
/// quasirandom generators, of the points from `place` on, of which there are `points`: all numbers of the first dimension come first.
/// `first` is even, since normal numbers are made in pairs.
pub fn fill(
    generator: Pseudo,
    (seed, place): (u64, u64),
    distribution: Distribution,
    (first, points): (u64, u64),
    bytes: &mut [u8],
) {
    let at = place.wrapping_add(first.wrapping_mul(distribution.words()));
    match generator {
        Pseudo::Xorwow => fill_words::<Xorwow>(seed, at, distribution, bytes),
        Pseudo::Mrg32k3a => fill_words::<Mrg32k3a>(seed, at, distribution, bytes),
        Pseudo::Mt19937 => fill_words::<Mt19937>(seed, at, distribution, bytes),
        Pseudo::Philox => fill_words::<Philox>(seed, at, distribution, bytes),
        Pseudo::Sobol32(_) => fill_points(false, place, distribution, (first, points), bytes),
        Pseudo::Sobol64(_) => fill_points(true, place, distribution, (first, points), bytes),
    }
}

fn fill_words<W: Words>(seed: u64, at: u64, distribution: Distribution, bytes: &mut [u8]) {
    let mut w = W::at(seed, at);
    let size = distribution.bytes() as usize;
    let count = (bytes.len() / size) as u64;
    let numbers = bytes.chunks_exact_mut(size);
    let f32_pairs = |w: &mut W, bytes: &mut [u8], f: &dyn Fn(f64) -> f32| {
        for pair in bytes.chunks_mut(8) {
            let (u, v) = (uniform_f32(w.next()), uniform_f32(w.next()));
            let normal = normal_pair(u.into(), v.into());
            pair.chunks_exact_mut(4).zip(normal).for_each(|(to, x)| to.copy_from_slice(&f(x).to_le_bytes()));
        }
    };
    let f64_pairs = |w: &mut W, bytes: &mut [u8], f: &dyn Fn(f64) -> f64| {
        for pair in bytes.chunks_mut(16) {
            let (u, v) = (uniform_f64(word64(w)), uniform_f64(word64(w)));
            let normal = normal_pair(u, v);
            pair.chunks_exact_mut(8).zip(normal).for_each(|(to, x)| to.copy_from_slice(&f(x).to_le_bytes()));
        }
    };
    let discrete = |w: &mut W, bytes: &mut [u8], of: &Discrete| {
        for to in bytes.chunks_exact_mut(4) {
            to.copy_from_slice(&of.at(uniform_f64(word64(w))).to_le_bytes());
        }
    };
    match distribution {
        Distribution::Bits32 => numbers.for_each(|to| to.copy_from_slice(&w.next().to_le_bytes())),
        Distribution::Bits64 => numbers.for_each(|to| to.copy_from_slice(&word64(&mut w).to_le_bytes())),
        Distribution::UniformF32 => {
            numbers.for_each(|to| to.copy_from_slice(&uniform_f32(w.next()).to_le_bytes()));
        }
        Distribution::UniformF64 => {
            numbers.for_each(|to| to.copy_from_slice(&uniform_f64(word64(&mut w)).to_le_bytes()));
        }
        Distribution::NormalF32(mean, dev) => f32_pairs(&mut w, bytes, &|x| (mean + dev * x) as f32),
        Distribution::NormalF64(mean, dev) => f64_pairs(&mut w, bytes, &|x| mean + dev * x),
        Distribution::LogNormalF32(mean, dev) => f32_pairs(&mut w, bytes, &|x| (mean + dev * x).exp() as f32),
        Distribution::LogNormalF64(mean, dev) => f64_pairs(&mut w, bytes, &|x| (mean + dev * x).exp()),
        Distribution::Poisson(mean) => discrete(&mut w, bytes, &Discrete::poisson(mean)),
        Distribution::Binomial(n, p) => discrete(&mut w, bytes, &Discrete::binomial(n, p)),
    }
    w.leave(seed, at.wrapping_add(count.wrapping_mul(distribution.words())));
}

fn fill_points(
    wide: bool,
    place: u64,
    distribution: Distribution,
    (first, points): (u64, u64),
    bytes: &mut [u8],
) {
    let discrete = match distribution {
        Distribution::Poisson(mean) => Some(Discrete::poisson(mean)),
        Distribution::Binomial(n, p) => Some(Discrete::binomial(n, p)),
        _ => None,
    };
    let mut sobol: Option<(u64, Sobol)> = None;
    for (number, to) in (first..).zip(bytes.chunks_exact_mut(distribution.bytes() as usize)) {
        let (dimension, point) = (number / points.max(1), place.wrapping_add(number % points.max(1)));
        if sobol.as_ref().is_none_or(|(of, _)| *of != dimension) {
            sobol = Some((dimension, Sobol::new(dimension as usize)));
        }
        let Some((_, sobol)) = &sobol else { continue };
        let word = if wide { sobol.word64(point) } else { u64::from(sobol.word32(point)) << 32 };
        let uniform = if wide { uniform_f64(word) } else { f64::from(uniform_f32((word >> 32) as u32)) };
        // In the middle of what a number stands for, so that neither end is reached.
        let inside = if wide {
            ((word >> 12) as f64 + 0.5) / 4_503_599_627_370_496.0
        } else {
            ((word >> 32) as f64 + 0.5) / 4_294_967_296.0
        };
        let normal = || crate::quasi::normal_at(inside);
        match distribution {
            Distribution::Bits32 => to.copy_from_slice(&((word >> 32) as u32).to_le_bytes()),
            Distribution::Bits64 => to.copy_from_slice(&word.to_le_bytes()),
            Distribution::UniformF32 => to.copy_from_slice(&(uniform as f32).to_le_bytes()),
            Distribution::UniformF64 => to.copy_from_slice(&uniform.to_le_bytes()),
            Distribution::NormalF32(m, d) => to.copy_from_slice(&((m + d * normal()) as f32).to_le_bytes()),
            Distribution::NormalF64(m, d) => to.copy_from_slice(&(m + d * normal()).to_le_bytes()),
            Distribution::LogNormalF32(m, d) => {
                to.copy_from_slice(&((m + d * normal()).exp() as f32).to_le_bytes());
            }
            Distribution::LogNormalF64(m, d) => to.copy_from_slice(&(m + d * normal()).exp().to_le_bytes()),
            Distribution::Poisson(_) | Distribution::Binomial(..) => {
                let number = discrete.as_ref().map_or(0, |of| of.at(inside));
                to.copy_from_slice(&number.to_le_bytes());
            }
        }
    }
}
