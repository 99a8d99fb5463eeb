//! Factorisations of dense matrices by [`faer`], for the four types of elements that libraries have.
//!
//! `faer` is generic throughout, and takes minutes to compile for all of them. They are compiled here, so that a change to whoever uses them
//! does not wait for that.

pub use faer::{Mat, MatRef};

use faer::linalg::cholesky::llt::factor::LltError;
use faer::linalg::triangular_solve::{
    solve_lower_triangular_in_place, solve_unit_lower_triangular_in_place,
    solve_unit_upper_triangular_in_place, solve_upper_triangular_in_place,
};
use faer::traits::ComplexField;
use faer::{Par, Side};
use num_complex::Complex;

/// The factors of [`Dense::triangles`]: L, U, and which row of the matrix each row of their product is.
#[derive(Debug, Clone)]
pub struct Triangles<T> {
    /// L, with ones on its diagonal.
    pub lower: Mat<T>,
    /// U.
    pub upper: Mat<T>,
    /// The rows of the matrix, in the order of the product's.
    pub order: Vec<usize>,
}

/// Singular values, descending, and the left and right vectors as columns.
#[derive(Debug, Clone)]
pub struct Singular<T> {
    /// The values.
    pub values: Vec<f64>,
    /// The left vectors.
    pub left: Mat<T>,
    /// The right vectors.
    pub right: Mat<T>,
}

/// Eigenvalues of a matrix that need not be Hermitian, in real and imaginary parts, and their right vectors, if any were asked for.
#[derive(Debug, Clone)]
pub struct Spectrum {
    /// The values; of a real matrix, a value and its conjugate stand side by side, the one with a positive imaginary part first.
    pub values: Vec<(f64, f64)>,
    /// For each value its vector, whose length is not one.
    pub vectors: Vec<Vec<(f64, f64)>>,
}

/// A type of elements.
pub trait Dense:
    ComplexField
    + Copy
    + Send
    + Sync
    + std::ops::Add<Output = Self>
    + std::ops::Sub<Output = Self>
    + std::ops::Mul<Output = Self>
    + 'static
{
    /// The type of absolute values.
    type Absolute: Copy + Into<f64>;
    /// Whether there are imaginary parts.
    const COMPLEX: bool;
    /// From parts, rounded.
    fn of(re: f64, im: f64) -> Self;
    /// Real and imaginary part.
    fn parts(self) -> (f64, f64);
    /// An absolute value, rounded.
    fn absolute(value: f64) -> Self::Absolute;

    /// The conjugate.
    fn conjugate(self) -> Self {
        let (re, im) = self.parts();
        Self::of(re, -im)
    }

    /// The lower triangle whose product with its adjoint is the Hermitian matrix with this lower triangle; or which leading minor is not
    /// positive, counted from 0.
    ///
    /// # Errors
    /// The matrix is not positive definite.
    fn cholesky(lower: &Mat<Self>) -> Result<Mat<Self>, usize>;

    /// Triangles, with exchanges of rows.
    fn triangles(matrix: &Mat<Self>) -> Triangles<Self>;

    /// Replaces B by the solution of A X = B, where A is a triangle, whose diagonal is taken for ones if `unit`.
    fn solve(triangle: &Mat<Self>, upper: bool, unit: bool, b: &mut Mat<Self>);

    /// Eigenvalues, ascending, of the Hermitian matrix with this lower triangle. `None` where they are not found.
    fn eigenvalues(lower: &Mat<Self>) -> Option<Vec<f64>>;

    /// As [`Dense::eigenvalues`], and eigenvectors.
    fn eigenvectors(lower: &Mat<Self>) -> Option<(Vec<f64>, Mat<Self>)>;

    /// Singular values, descending. `None` where they are not found.
    fn singular_values(matrix: &Mat<Self>) -> Option<Vec<f64>>;

    /// As [`Dense::singular_values`], and vectors: a whole basis on each side, or as many as there are values.
    fn singular_vectors(matrix: &Mat<Self>, whole: bool) -> Option<Singular<Self>>;

    /// Eigenvalues of any square matrix, and vectors if they are wanted. `None` where they are not found.
    fn spectrum(matrix: &Mat<Self>, vectors: bool) -> Option<Spectrum>;
}

/// Puts the values of a real matrix that are each other's conjugates side by side, the one with a positive imaginary part first.
fn side_by_side(found: &mut Spectrum) {
    let (values, vectors) = (std::mem::take(&mut found.values), std::mem::take(&mut found.vectors));
    for (at, &(re, im)) in values.iter().enumerate().filter(|(_, (_, im))| *im >= 0.0) {
        found.values.push((re, im));
        let vector = vectors.get(at);
        found.vectors.extend(vector.cloned());
        if im > 0.0 {
            found.values.push((re, -im));
            found.vectors.extend(vector.map(|of| of.iter().map(|&(re, im)| (re, -im)).collect()));
        }
    }
}

macro_rules! dense {
    ($($absolute:ident $t:ty, $complex:literal, $of:expr, $parts:expr;)*) => {$(
        impl Dense for $t {
            type Absolute = $absolute;
            const COMPLEX: bool = $complex;

            fn of(re: f64, im: f64) -> Self {
                $of(re as $absolute, im as $absolute)
            }

            fn parts(self) -> (f64, f64) {
                $parts(self)
            }

            fn absolute(value: f64) -> $absolute {
                value as $absolute
            }

            fn cholesky(lower: &Mat<Self>) -> Result<Mat<Self>, usize> {
                match lower.llt(Side::Lower) {
                    Ok(factored) => Ok(factored.L().to_owned()),
                    Err(LltError::NonPositivePivot { index }) => Err(index),
                }
            }

            fn triangles(matrix: &Mat<Self>) -> Triangles<Self> {
                let factored = matrix.partial_piv_lu();
                Triangles {
                    lower: factored.L().to_owned(),
                    upper: factored.U().to_owned(),
                    order: factored.P().arrays().0.to_vec(),
                }
            }

            fn solve(triangle: &Mat<Self>, upper: bool, unit: bool, b: &mut Mat<Self>) {
                let (triangle, b) = (triangle.as_ref(), b.as_mut());
                match (upper, unit) {
                    (false, false) => solve_lower_triangular_in_place(triangle, b, Par::Seq),
                    (false, true) => solve_unit_lower_triangular_in_place(triangle, b, Par::Seq),
                    (true, false) => solve_upper_triangular_in_place(triangle, b, Par::Seq),
                    (true, true) => solve_unit_upper_triangular_in_place(triangle, b, Par::Seq),
                }
            }

            fn eigenvalues(lower: &Mat<Self>) -> Option<Vec<f64>> {
                let found = lower.self_adjoint_eigenvalues(Side::Lower).ok()?;
                Some(found.into_iter().map(f64::from).collect())
            }

            fn eigenvectors(lower: &Mat<Self>) -> Option<(Vec<f64>, Mat<Self>)> {
                let found = lower.self_adjoint_eigen(Side::Lower).ok()?;
                let values = found.S().column_vector().iter().map(|value| value.parts().0).collect();
                Some((values, found.U().to_owned()))
            }

            fn singular_values(matrix: &Mat<Self>) -> Option<Vec<f64>> {
                let found = matrix.singular_values().ok()?;
                Some(found.into_iter().map(f64::from).collect())
            }

            fn singular_vectors(matrix: &Mat<Self>, whole: bool) -> Option<Singular<Self>> {
                let found = if whole { matrix.svd() } else { matrix.thin_svd() }.ok()?;
                let values = found.S().column_vector().iter().map(|value| value.parts().0).collect();
                Some(Singular { values, left: found.U().to_owned(), right: found.V().to_owned() })
            }

            fn spectrum(matrix: &Mat<Self>, vectors: bool) -> Option<Spectrum> {
                let parts = |x: &Complex<$absolute>| (f64::from(x.re), f64::from(x.im));
                let mut found = if vectors {
                    let found = matrix.eigen().ok()?;
                    let columns = found.U().col_iter().map(|column| column.iter().map(parts).collect());
                    let values = found.S().column_vector().iter().map(parts).collect();
                    Spectrum { values, vectors: columns.collect() }
                } else {
                    Spectrum { values: matrix.eigenvalues().ok()?.iter().map(parts).collect(), vectors: Vec::new() }
                };
                if !$complex {
                    side_by_side(&mut found);
                }
                Some(found)
            }
        }
    )*};
}
dense! {
    f32 f32, false, |re, _| re, |x| (f64::from(x), 0.0);
    f64 f64, false, |re, _| re, |x| (x, 0.0);
    f32 Complex<f32>, true, Complex::new, |x: Self| (x.re.into(), x.im.into());
    f64 Complex<f64>, true, Complex::new, |x: Self| (x.re, x.im);
}
