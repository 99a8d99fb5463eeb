//! Operations of mathematical libraries, carried out by the server's own libraries: cuBLAS, cuFFT and their like.
//!
//! ```text
//! Device::library ──> queue ──> submitting thread ──> Bench::run ──> cublasGemmEx, … on the driver's stream
//! ```
//!
//! A library is opened when somebody first asks for it, by its full path ([`find`]), through a table of the functions
//! that are called ([`table`]). An operation becomes the call that a program would have made, with lengths of 64 bits
//! where the library takes such, on the driver's stream of the operation's stream. Handles and plans belong to a
//! stream ([`bench`]). What a library does not do as it is asked for is refused by name.

mod bench;
mod blas;
mod blas_lt;
mod dnn;
mod fft;
mod find;
mod rand;
mod solver;
mod sparse;
mod table;
#[cfg(test)]
mod tests;
mod values;

pub(crate) use bench::Bench;
pub(crate) use find::Place;
use rgpu_device::{Code, Error, Result};
use rgpu_libraries::Library;
use std::sync::OnceLock;
#[cfg(test)]
pub(crate) use table::{Address, Factor, Object, Status};

/// A library that was looked for once.
type Loaded<T> = OnceLock<Result<T>>;

/// The server's libraries.
pub(crate) struct Libraries {
    place: Place,
    blas: Loaded<blas::Table>,
    blas_lt: Loaded<blas_lt::Table>,
    fft: Loaded<fft::Table>,
    rand: Loaded<rand::Table>,
    solver: Loaded<solver::Table>,
    sparse: Loaded<sparse::Table>,
    dnn: Loaded<dnn::Table>,
}

/// What one library needs of the others.
macro_rules! tables {
    ($($field:ident $name:literal needs [$($need:literal),*];)*) => {
        impl Libraries {
            $(
                #[doc = concat!("The functions of ", $name, ".")]
                fn $field(&self) -> Result<&$field::Table> {
                    let load = || self.place.load($name, &[$($need),*]);
                    self.$field.get_or_init(load).as_ref().map_err(Clone::clone)
                }
            )*
        }

        /// Every table's rows, by the library's name.
        #[cfg(test)]
        pub(crate) const TABLES: &[(&str, &[table::Row])] =
            &[$(($name, <$field::Table as table::Functions>::ROWS)),*];
    };
}

tables! {
    blas "cublas" needs ["cublaslt"];
    blas_lt "cublaslt" needs [];
    fft "cufft" needs [];
    rand "curand" needs [];
    solver "cusolver" needs ["cublaslt", "cublas", "nvjitlink", "cusparse"];
    sparse "cusparse" needs ["nvjitlink"];
    dnn "cudnn" needs ["cublaslt", "cublas"];
}

impl Libraries {
    /// None is opened yet.
    pub(crate) fn new(place: Place) -> Self {
        Self {
            place,
            blas: Loaded::new(),
            blas_lt: Loaded::new(),
            fft: Loaded::new(),
            rand: Loaded::new(),
            solver: Loaded::new(),
            sparse: Loaded::new(),
            dnn: Loaded::new(),
        }
    }

    /// The version of a library, as that numbers its versions.
    pub(crate) fn version(&self, number: u32) -> Result<u32> {
        match Library::from_number(number) {
            Some(Library::Blas) => blas::version(self.blas()?),
            Some(Library::BlasLt) => blas_lt::version(self.blas_lt()?),
            Some(Library::Fft) => fft::version(self.fft()?),
            Some(Library::Rand) => rand::version(self.rand()?),
            Some(Library::Solver) => solver::version(self.solver()?),
            Some(Library::Sparse) => sparse::version(self.sparse()?),
            Some(Library::Dnn) => dnn::version(self.dnn()?),
            None => Err(Error::new(Code::InvalidValue, format!("There is no library number {number}"))),
        }
    }
}
