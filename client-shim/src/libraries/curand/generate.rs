//! Requests for numbers.

use rgpu_libraries::{Distribution, Generator as Kind32, Random};
use rgpu_random::{Pseudo, fill};

use super::CURAND;
use super::generator::{Generator, get};
use crate::libraries::math::{Kind, Queue, Result, fail, invalid, math};

/// The generator and the distribution of a request as they are made here.
fn on_host(generator: &Generator, request: &Random) -> (Pseudo, rgpu_random::Distribution) {
    let of = match generator.of {
        Kind32::Xorwow => Pseudo::Xorwow,
        Kind32::Mrg32k3a => Pseudo::Mrg32k3a,
        Kind32::Mt19937 => Pseudo::Mt19937,
        Kind32::Philox => Pseudo::Philox,
        Kind32::Sobol32 => Pseudo::Sobol32(generator.dimensions),
        Kind32::Sobol64 => Pseudo::Sobol64(generator.dimensions),
    };
    let (a, b) = (request.a, request.b);
    let distribution = match request.distribution {
        Distribution::Bits32 => rgpu_random::Distribution::Bits32,
        Distribution::Bits64 => rgpu_random::Distribution::Bits64,
        Distribution::UniformF32 => rgpu_random::Distribution::UniformF32,
        Distribution::UniformF64 => rgpu_random::Distribution::UniformF64,
        Distribution::NormalF32 => rgpu_random::Distribution::NormalF32(a, b),
        Distribution::NormalF64 => rgpu_random::Distribution::NormalF64(a, b),
        Distribution::LogNormalF32 => rgpu_random::Distribution::LogNormalF32(a, b),
        Distribution::LogNormalF64 => rgpu_random::Distribution::LogNormalF64(a, b),
        Distribution::Poisson => rgpu_random::Distribution::Poisson(a),
        Distribution::Binomial => rgpu_random::Distribution::Binomial(a as u32, b),
    };
    (of, distribution)
}

/// Makes numbers: in the program's memory, or on the device.
fn generate(
    handle: usize,
    out: usize,
    count: usize,
    distribution: Distribution,
    (a, b): (f64, f64),
) -> Result<()> {
    let generator = get(handle)?;
    let mut generator = generator.lock();
    let normal = matches!(
        distribution,
        Distribution::NormalF32
            | Distribution::NormalF64
            | Distribution::LogNormalF32
            | Distribution::LogNormalF64
    );
    let dimensions = generator.dimensions as usize;
    if generator.is_quasi() && !count.is_multiple_of(dimensions) {
        return fail(Kind::InvalidSize, format!("{count} is no multiple of {dimensions} dimensions"));
    }
    if !generator.is_quasi() && normal && !count.is_multiple_of(2) {
        return fail(Kind::InvalidSize, format!("Normal numbers are made in pairs, and {count} is odd"));
    }
    let wide = generator.of == Kind32::Sobol64;
    if wide && distribution == Distribution::Bits32 || !wide && distribution == Distribution::Bits64 {
        return fail(Kind::InvalidType, "The generator's words have another size");
    }
    if count == 0 {
        return Ok(());
    }
    if out == 0 {
        return invalid("There is no place for the numbers");
    }
    let request = Random {
        generator: generator.of,
        seed: generator.seed,
        place: generator.offset.wrapping_add(generator.taken),
        dimensions: generator.dimensions,
        distribution,
        a,
        b,
        addr: out as u64,
        count: count as u64,
    };
    let (of, made) = on_host(&generator, &request);
    let points = (count / dimensions) as u64;
    if generator.on_host {
        let Some(length) = count.checked_mul(made.bytes() as usize).filter(|&n| n <= isize::MAX as usize)
        else {
            return invalid("More numbers than the address space holds");
        };
        // SAFETY: by the call's description, the program has room for so many numbers there.
        let bytes = unsafe { std::slice::from_raw_parts_mut(out as *mut u8, length) };
        fill(of, (generator.seed, request.place), made, (0, points), bytes);
    } else {
        Queue::of(generator.stream)?.post(&request)?;
    }
    let taken = if generator.is_quasi() { points } else { made.words() * count as u64 };
    generator.taken = generator.taken.wrapping_add(taken);
    Ok(())
}

/// Whether a mean is one of Poisson's.
fn poisson(handle: usize, out: usize, count: usize, mean: f64) -> Result<()> {
    if !(mean > 0.0 && mean.is_finite()) {
        return invalid(format!("A Poisson distribution with mean {mean}"));
    }
    generate(handle, out, count, Distribution::Poisson, (mean, 0.0))
}

fn binomial(handle: usize, out: usize, count: usize, trials: u32, p: f64) -> Result<()> {
    if !(0.0..=1.0).contains(&p) {
        return invalid(format!("A probability of {p}"));
    }
    generate(handle, out, count, Distribution::Binomial, (trials.into(), p))
}

math! {
    CURAND;

    fn curandGenerate(handle: usize, out: usize, count: usize) {
        generate(handle, out, count, Distribution::Bits32, (0.0, 0.0))
    }

    fn curandGenerateLongLong(handle: usize, out: usize, count: usize) {
        generate(handle, out, count, Distribution::Bits64, (0.0, 0.0))
    }

    fn curandGenerateUniform(handle: usize, out: usize, count: usize) {
        generate(handle, out, count, Distribution::UniformF32, (0.0, 0.0))
    }

    fn curandGenerateUniformDouble(handle: usize, out: usize, count: usize) {
        generate(handle, out, count, Distribution::UniformF64, (0.0, 0.0))
    }

    fn curandGenerateNormal(handle: usize, out: usize, count: usize, mean: f32, deviation: f32) {
        generate(handle, out, count, Distribution::NormalF32, (mean.into(), deviation.into()))
    }

    fn curandGenerateNormalDouble(handle: usize, out: usize, count: usize, mean: f64, deviation: f64) {
        generate(handle, out, count, Distribution::NormalF64, (mean, deviation))
    }

    fn curandGenerateLogNormal(handle: usize, out: usize, count: usize, mean: f32, deviation: f32) {
        generate(handle, out, count, Distribution::LogNormalF32, (mean.into(), deviation.into()))
    }

    fn curandGenerateLogNormalDouble(handle: usize, out: usize, count: usize, mean: f64, deviation: f64) {
        generate(handle, out, count, Distribution::LogNormalF64, (mean, deviation))
    }

    fn curandGeneratePoisson(handle: usize, out: usize, count: usize, mean: f64) {
        poisson(handle, out, count, mean)
    }

    /// However the numbers are to be made, they are of the same distribution.
    fn curandGeneratePoissonMethod(handle: usize, out: usize, count: usize, mean: f64, _method: u32) {
        poisson(handle, out, count, mean)
    }

    fn curandGenerateBinomial(handle: usize, out: usize, count: usize, trials: u32, p: f64) {
        binomial(handle, out, count, trials, p)
    }

    fn curandGenerateBinomialMethod(handle: usize, out: usize, count: usize, trials: u32, p: f64, _method: u32) {
        binomial(handle, out, count, trials, p)
    }
}
