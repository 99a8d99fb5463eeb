//! The libraries themselves.

/// A mathematical library, by the number that stands on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Library {
    /// cuBLAS: products of matrices and vectors.
    Blas = 1,
    /// cuBLASLt: products of matrices with what is done to them before they are stored.
    BlasLt = 2,
    /// cuFFT: Fourier transforms.
    Fft = 3,
    /// cuRAND: random numbers.
    Rand = 4,
    /// cuSOLVER: factorisations and eigenvalues.
    Solver = 5,
    /// cuSPARSE: sparse matrices.
    Sparse = 6,
    /// cuDNN: layers of neural networks.
    Dnn = 7,
}

impl Library {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::Blas, Self::BlasLt, Self::Fft, Self::Rand, Self::Solver, Self::Sparse, Self::Dnn];

    /// The library of this number.
    pub fn from_number(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|library| *library as u32 == number)
    }

    /// What NVIDIA calls it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Blas => "cuBLAS",
            Self::BlasLt => "cuBLASLt",
            Self::Fft => "cuFFT",
            Self::Rand => "cuRAND",
            Self::Solver => "cuSOLVER",
            Self::Sparse => "cuSPARSE",
            Self::Dnn => "cuDNN",
        }
    }
}
