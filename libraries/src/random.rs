//! Operations of cuRAND.

use rgpu_wire::records;

use crate::types::numbered;

numbered! {
    /// Where numbers come from.
    Generator, "generator" {
        /// XORWOW.
        #[default]
        Xorwow = 0,
        /// MRG32k3a.
        Mrg32k3a = 1,
        /// MT19937.
        Mt19937 = 2,
        /// Philox4x32-10.
        Philox = 3,
        /// Sobol's points with 32 bits.
        Sobol32 = 4,
        /// Sobol's points with 64 bits.
        Sobol64 = 5,
    }
    /// What numbers are made.
    Distribution, "distribution" {
        /// Words of 32 bits.
        #[default]
        Bits32 = 0,
        /// Words of 64 bits.
        Bits64 = 1,
        /// More than 0, at most 1, 32 bits.
        UniformF32 = 2,
        /// More than 0, at most 1, 64 bits.
        UniformF64 = 3,
        /// Normal numbers of mean `a` and standard deviation `b`, 32 bits.
        NormalF32 = 4,
        /// As before, 64 bits.
        NormalF64 = 5,
        /// Numbers whose logarithms are such, 32 bits.
        LogNormalF32 = 6,
        /// As before, 64 bits.
        LogNormalF64 = 7,
        /// Poisson's distribution of mean `a`, words of 32 bits.
        Poisson = 8,
        /// How many of `a` trials succeed, each with probability `b`, words of 32 bits.
        Binomial = 9,
    }
}

records! {
    /// Fills memory with random numbers: a part of the sequence that generator and seed determine.
    Random {
        /// Where they come from.
        generator: Generator,
        /// The seed; a quasirandom generator has none.
        seed: u64,
        /// The first number's place in the sequence, in words of 32 bits; of a quasirandom generator, the first point's number.
        place: u64,
        /// The dimensions of a quasirandom generator's points. All numbers of the first dimension come first.
        dimensions: u32,
        /// What they are.
        distribution: Distribution,
        /// The distribution's first parameter.
        a: f64,
        /// Its second parameter.
        b: f64,
        /// Where they go.
        addr: u64,
        /// How many there are; of a quasirandom generator, a multiple of the dimensions.
        count: u64,
    }
}
