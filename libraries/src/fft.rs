//! Operations of cuFFT.

use rgpu_wire::records;

use crate::types::numbered;

numbered! {
    /// What a transform is from and to.
    Transform, "kind of a transform" {
        /// Complex numbers to complex numbers, with `exp(-2πi…)`.
        #[default]
        Forward = 0,
        /// Complex numbers to complex numbers, with `exp(+2πi…)`, not divided by their number.
        Inverse = 1,
        /// Real numbers to the half of their spectrum that says everything.
        RealToComplex = 2,
        /// Such a half to real numbers, not divided by their number.
        ComplexToReal = 3,
    }
}

records! {
    /// Where the numbers of a batch of transforms lie. Number `(x, y, z)` of problem `b` lies
    /// `b * distance + ((x * pitch[1] + y) * pitch[2] + z) * stride` elements behind the first one.
    FftLayout {
        /// Address of the first problem's first element.
        addr: u64,
        /// Elements of each dimension in memory, those of the last one at the end; the first is not used.
        pitch: [u64; 3],
        /// Elements from one number to the next of the last dimension.
        stride: u64,
        /// Elements from one problem to the next.
        distance: u64,
    }
    /// A batch of Fourier transforms of one to three dimensions.
    Fft {
        /// From what to what.
        transform: Transform,
        /// Whether numbers have 64 bits instead of 32.
        double: bool,
        /// The real numbers' or complex numbers' count in each dimension; those that are not there are the first ones, with 1.
        n: [u64; 3],
        /// What is transformed.
        input: FftLayout,
        /// Where the result goes.
        output: FftLayout,
        /// How many transforms there are.
        count: u64,
    }
}
