//! Random numbers. The sequences and distributions are those of [`rgpu_random`].

use rgpu_device::Result;
use rgpu_libraries::{Distribution, Generator, Random};
use rgpu_random::{Pseudo, fill, quasi};
use rgpu_softgpu::library::{Computation, Operand, Plan};

use crate::{invalid, missing};

/// So many numbers are not worth another thread.
const SMALL: u64 = 1 << 14;

/// What [`Random`] comes to.
pub(crate) fn plan(random: Random) -> Result<Plan> {
    let quasi = matches!(random.generator, Generator::Sobol32 | Generator::Sobol64);
    if quasi && random.dimensions as usize > quasi::DIMENSIONS {
        return missing(format!("Sobol points of more than {} dimensions", quasi::DIMENSIONS));
    }
    if quasi && (random.dimensions == 0 || !random.count.is_multiple_of(random.dimensions.into())) {
        return invalid(format!("{} numbers of points with {} dimensions", random.count, random.dimensions));
    }
    let generator = match random.generator {
        Generator::Xorwow => Pseudo::Xorwow,
        Generator::Mrg32k3a => Pseudo::Mrg32k3a,
        Generator::Mt19937 => Pseudo::Mt19937,
        Generator::Philox => Pseudo::Philox,
        Generator::Sobol32 => Pseudo::Sobol32(random.dimensions),
        Generator::Sobol64 => Pseudo::Sobol64(random.dimensions),
    };
    let (a, b) = (random.a, random.b);
    let distribution = match random.distribution {
        Distribution::Bits32 => rgpu_random::Distribution::Bits32,
        Distribution::Bits64 => rgpu_random::Distribution::Bits64,
        Distribution::UniformF32 => rgpu_random::Distribution::UniformF32,
        Distribution::UniformF64 => rgpu_random::Distribution::UniformF64,
        Distribution::NormalF32 => rgpu_random::Distribution::NormalF32(a, b),
        Distribution::NormalF64 => rgpu_random::Distribution::NormalF64(a, b),
        Distribution::LogNormalF32 => rgpu_random::Distribution::LogNormalF32(a, b),
        Distribution::LogNormalF64 => rgpu_random::Distribution::LogNormalF64(a, b),
        Distribution::Poisson if a > 0.0 && a.is_finite() => rgpu_random::Distribution::Poisson(a),
        Distribution::Binomial if (0.0..=f64::from(u32::MAX)).contains(&a) && (0.0..=1.0).contains(&b) => {
            rgpu_random::Distribution::Binomial(a as u32, b)
        }
        other => return invalid(format!("A distribution {other:?} with the parameters {a} and {b}")),
    };
    let Some(bytes) = random.count.checked_mul(distribution.bytes()) else {
        return invalid("More random numbers than the address space holds");
    };
    let points = if quasi { random.count / u64::from(random.dimensions) } else { random.count };
    let operands = vec![Operand { addr: random.addr, bytes, written: true }];
    Ok(Plan { operands, computation: Box::new(Fill { random, generator, distribution, points }) })
}

struct Fill {
    random: Random,
    generator: Pseudo,
    distribution: rgpu_random::Distribution,
    points: u64,
}

impl Computation for Fill {
    fn pieces(&self, threads: usize) -> usize {
        // MT19937 cannot begin in the middle without making all that comes before.
        if self.generator == Pseudo::Mt19937 {
            return 1;
        }
        (self.random.count / SMALL).clamp(1, 2 * threads.max(1) as u64) as usize
    }

    unsafe fn run(&self, memory: &[*mut u8], piece: usize, pieces: usize) -> Result<()> {
        let (piece, pieces, count) = (piece as u128, pieces as u128, u128::from(self.random.count));
        // Normal numbers are made in pairs, so pieces begin at even places.
        let edge = |piece: u128| if piece == pieces { count } else { (count * piece / pieces) & !1 } as u64;
        let end = edge(piece + 1);
        let mut from = edge(piece);
        let size = self.distribution.bytes() as usize;
        let mut numbers = [0u8; 1 << 14];
        while from < end {
            let now = (end - from).min((numbers.len() / size) as u64);
            let numbers = &mut numbers[..now as usize * size];
            let seeded = (self.random.seed, self.random.place);
            fill(self.generator, seeded, self.distribution, (from, self.points), numbers);
            // SAFETY: the operand has room for all numbers.
            unsafe {
                let to = memory[0].add(from as usize * size);
                std::ptr::copy_nonoverlapping(numbers.as_ptr(), to, numbers.len());
            }
            from += now;
        }
        Ok(())
    }
}
