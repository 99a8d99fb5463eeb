//! Systems of equations with sparse matrices, and their factorisations.

use num_complex::Complex64;
use proptest::prelude::*;
use rgpu_libraries::{
    DataType, DenseMatrix, IncompleteTask, Scalar, SparseFormat, SparseIncomplete, SparseMatrix, SparseSolve,
    SparseSystem, Transpose,
};

use crate::matrices::ops;
use crate::rig::Rig;

/// A matrix of complex numbers, row by row.
#[derive(Debug, Clone)]
pub(crate) struct Square {
    pub(crate) n: usize,
    pub(crate) at: Vec<Complex64>,
}

impl Square {
    /// Random elements, some of which are zeros; those of the diagonal are large.
    pub(crate) fn random(n: usize, seed: usize, zeros: usize) -> Self {
        let number = |i: usize, j: usize, part: usize| {
            let x = (i * 31 + j * 17 + part * 7 + seed * 101) * 2_654_435_761 % 1009;
            if (x / 7 + j) % 10 < zeros { 0.0 } else { x as f64 / 504.5 - 1.0 }
        };
        let at = (0..n * n).map(|k| (k / n, k % n)).map(|(i, j)| {
            let large = if i == j { n as f64 + 1.0 } else { 0.0 };
            Complex64::new(
                number(i, j, 0) + large,
                if number(i, j, 0) == 0.0 { 0.0 } else { number(i, j, 1) },
            )
        });
        Self { n, at: at.collect() }
    }

    pub(crate) fn get(&self, i: usize, j: usize) -> Complex64 {
        self.at[i * self.n + j]
    }

    pub(crate) fn map(&self, f: impl Fn(usize, usize) -> Complex64) -> Self {
        let at = (0..self.n * self.n).map(|k| f(k / self.n, k % self.n)).collect();
        Self { n: self.n, at }
    }

    pub(crate) fn used(&self, op: Transpose) -> Self {
        match op {
            Transpose::None => self.clone(),
            Transpose::Conjugated => self.map(|i, j| self.get(i, j).conj()),
            Transpose::Transposed => self.map(|i, j| self.get(j, i)),
            Transpose::Adjoint => self.map(|i, j| self.get(j, i).conj()),
        }
    }

    pub(crate) fn times(&self, x: &[Complex64]) -> Vec<Complex64> {
        (0..self.n).map(|i| (0..self.n).map(|j| self.get(i, j) * x[j]).sum()).collect()
    }

    /// A Hermitian matrix that is positive definite.
    pub(crate) fn positive(&self) -> Self {
        self.map(|i, j| {
            if i == j { Complex64::from(4.0 * self.n as f64) } else { self.get(i, j) + self.get(j, i).conj() }
        })
    }

    /// The matrix on the device, by rows, and its values there.
    fn put(&self, base: u32) -> SparseMatrix {
        let rig = Rig::shared();
        let (mut offsets, mut indices, mut values) = (vec![base as i32], Vec::new(), Vec::new());
        for i in 0..self.n {
            for j in (0..self.n).filter(|&j| self.get(i, j) != Complex64::ZERO) {
                indices.push(j as i32 + base as i32);
                values.extend([self.get(i, j).re, self.get(i, j).im]);
            }
            offsets.push(indices.len() as i32 + base as i32);
        }
        SparseMatrix {
            format: SparseFormat::Csr,
            rows: self.n as u64,
            columns: self.n as u64,
            stored: indices.len() as u64,
            offsets: rig.put(&offsets),
            indices: rig.put(&indices),
            values: rig.put(&values),
            kind: DataType::C64,
            base,
            ..SparseMatrix::default()
        }
    }

    /// Another matrix's elements, where this one has any, from the device.
    fn fetched(&self, m: &SparseMatrix) -> Self {
        let mut values = get(m.values, m.stored as usize).into_iter();
        let at = self.at.iter().map(|x| if *x == Complex64::ZERO { *x } else { values.next().unwrap() });
        Self { n: self.n, at: at.collect() }
    }
}

pub(crate) fn put(values: &[Complex64]) -> u64 {
    Rig::shared().put(&values.iter().flat_map(|x| [x.re, x.im]).collect::<Vec<f64>>())
}

pub(crate) fn get(addr: u64, count: usize) -> Vec<Complex64> {
    let all = Rig::shared().get::<f64>(addr, 2 * count).unwrap();
    all.chunks(2).map(|x| Complex64::new(x[0], x[1])).collect()
}

pub(crate) fn close(a: &[Complex64], b: &[Complex64]) -> bool {
    let size = b.iter().fold(1.0, |size: f64, x| size.max(x.norm()));
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a - b).norm() <= 1e-11 * size)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(60) })]

    #[test]
    fn triangles_are_solved(
        n in 1usize..12, columns in 1usize..4, seed in 0usize..1000, (op_a, op_b) in (ops(), ops()),
        (upper, unit, by_rows) in any::<(bool, bool, bool)>(), base in 0u32..2,
    ) {
        let rig = Rig::shared();
        let a = Square::random(n, seed, 5);
        // What is stored of the other triangle does not count, and neither does the diagonal where it is of ones.
        let triangle = a.map(|i, j| match (i == j, (j > i) == upper) {
            (true, _) if unit => Complex64::ONE,
            (true, _) | (_, true) => a.get(i, j),
            _ => Complex64::ZERO,
        });
        let (alpha, b) = (Complex64::new(2.0, -1.0), Square::random(n.max(columns), seed + 1, 1));
        // op(B) is n x columns; B is stored by rows or by columns.
        let turned = op_b != Transpose::None;
        let (rows_b, columns_b) = if turned { (columns, n) } else { (n, columns) };
        let ld = if by_rows { columns_b } else { rows_b };
        let mut stored = vec![Complex64::ZERO; rows_b * columns_b];
        for (i, j) in (0..rows_b).flat_map(|i| (0..columns_b).map(move |j| (i, j))) {
            stored[if by_rows { i * ld + j } else { j * ld + i }] = b.get(i, j);
        }
        let dense = |addr, rows: usize, columns: usize, ld: usize, by_rows| DenseMatrix {
            addr, kind: DataType::C64, rows: rows as u64, columns: columns as u64, ld: ld as u64, by_rows,
        };
        let c = put(&vec![Complex64::ONE; n * columns]);
        rig.call(&SparseSolve {
            op_a, op_b, upper, unit, alpha: Scalar::complex(alpha.re, alpha.im), a: a.put(base),
            b: dense(put(&stored), rows_b, columns_b, ld, by_rows), c: dense(c, n, columns, n, false),
        }).unwrap();
        let x = get(c, n * columns);
        let of_b = b.used(op_b);
        for column in 0..columns {
            let right: Vec<_> = (0..n).map(|i| alpha * of_b.get(i, column)).collect();
            let product = triangle.used(op_a).times(&x[column * n..(column + 1) * n]);
            // Triangles of ones may be far from well conditioned; so large solutions may leave more.
            let size = x.iter().fold(1.0, |size: f64, x| size.max(x.norm()));
            prop_assert!(product.iter().zip(&right).all(|(a, b)| (a - b).norm() <= 1e-11 * size));
        }
    }

    #[test]
    fn systems_are_solved(
        n in 1usize..14, seed in 0usize..1000, base in 0u32..2, positive: bool, exchange in 0usize..14,
    ) {
        let rig = Rig::shared();
        let a = Square::random(n, seed, 6);
        // Rows in another order, so that the diagonal is nothing special.
        let a = if positive { a.positive() } else { a.map(|i, j| a.get((i + exchange) % n, j)) };
        let wanted: Vec<_> = (0..n).map(|i| Complex64::new(i as f64 - 2.0, 1.0)).collect();
        let (x, singular) = (put(&vec![Complex64::ZERO; n]), rig.put(&[77i32]));
        let b = put(&a.times(&wanted));
        rig.call(&SparseSystem { a: a.put(base), b, x, positive, tolerance: 0.0, singular }).unwrap();
        prop_assert!(close(&get(x, n), &wanted));
        prop_assert_eq!(rig.get::<i32>(singular, 1).unwrap(), vec![-1]);
        // A row that is another one's double.
        let twice = a.map(|i, j| if i + 1 == n && n > 1 { 2.0 * a.get(0, j) } else { a.get(i, j) });
        if n > 1 && !positive {
            let a = twice.put(base);
            rig.call(&SparseSystem { a, b, x, positive, tolerance: 1e-9, singular }).unwrap();
            prop_assert_ne!(rig.get::<i32>(singular, 1).unwrap(), vec![-1]);
        }
    }

    #[test]
    fn incomplete_factors_are_right_where_the_matrix_has_elements(
        n in 1usize..12, seed in 0usize..1000, base in 0u32..2,
    ) {
        let rig = Rig::shared();
        let a = Square::random(n, seed, 6);
        let position = rig.put(&[77i32]);
        let m = a.put(base);
        let work = SparseIncomplete { task: IncompleteTask::Analyse, a: m.clone(), position };
        rig.call(&work).unwrap();
        prop_assert_eq!(rig.get::<i32>(position, 1).unwrap(), vec![-1]);
        rig.call(&SparseIncomplete { task: IncompleteTask::Lu, ..work.clone() }).unwrap();
        prop_assert_eq!(rig.get::<i32>(position, 1).unwrap(), vec![-1]);
        let factors = a.fetched(&m);
        let lower = factors.map(|i, j| if i == j { Complex64::ONE } else if i > j { factors.get(i, j) } else { Complex64::ZERO });
        let upper = factors.map(|i, j| if i <= j { factors.get(i, j) } else { Complex64::ZERO });
        let at_places = |product: &Square, lower_only: bool| {
            let all = product.at.iter().zip(&a.at).enumerate();
            let kept = |k: usize| !lower_only || k / n >= k % n;
            all.filter(|(k, (_, of))| **of != Complex64::ZERO && kept(*k)).map(|(_, (x, _))| *x).collect::<Vec<_>>()
        };
        let product = |x: &Square, y: &Square| x.map(|i, j| (0..n).map(|k| x.get(i, k) * y.get(k, j)).sum());
        prop_assert!(close(&at_places(&product(&lower, &upper), false), &at_places(&a, false)));

        let a = a.positive();
        let m = a.put(base);
        rig.call(&SparseIncomplete { task: IncompleteTask::Cholesky, a: m.clone(), position }).unwrap();
        prop_assert_eq!(rig.get::<i32>(position, 1).unwrap(), vec![-1]);
        let factors = a.fetched(&m);
        let lower = factors.map(|i, j| if i >= j { factors.get(i, j) } else { Complex64::ZERO });
        let product = product(&lower, &lower.used(Transpose::Adjoint));
        let places = |of: &Square| {
            let kept = |k: &usize| k / n >= k % n && a.at[*k] != Complex64::ZERO;
            (0..n * n).filter(kept).map(|k| of.at[k]).collect::<Vec<_>>()
        };
        prop_assert!(close(&places(&product), &places(&a)));
    }
}

#[test]
fn missing_and_zero_pivots_are_told() {
    let rig = Rig::shared();
    let position = rig.put(&[77i32]);
    let told = |at: &[f64], task, base| {
        let a = Square { n: 2, at: at.iter().map(|&x| Complex64::from(x)).collect() };
        rig.call(&SparseIncomplete { task, a: a.put(base), position }).unwrap();
        rig.get::<i32>(position, 1).unwrap()[0]
    };
    assert_eq!(told(&[1.0, 1.0, 1.0, 0.0], IncompleteTask::Analyse, 0), 1);
    assert_eq!(told(&[1.0, 1.0, 1.0, 0.0], IncompleteTask::Analyse, 1), 2);
    assert_eq!(told(&[1.0, 1.0, 1.0, 1.0], IncompleteTask::Lu, 0), 1);
    assert_eq!(told(&[1.0, 2.0, 2.0, 1.0], IncompleteTask::Cholesky, 0), 1);
    assert_eq!(told(&[-1.0, 0.0, 0.0, 1.0], IncompleteTask::Cholesky, 0), 0);
    let singular = rig.put(&[77i32]);
    let a = Square { n: 2, at: [1.0, 2.0, 2.0, 1.0].map(Complex64::from).to_vec() }.put(0);
    let (b, x) = (put(&[Complex64::ONE; 2]), put(&[Complex64::ONE; 2]));
    rig.call(&SparseSystem { a, b, x, positive: true, tolerance: 0.0, singular }).unwrap();
    assert_eq!(rig.get::<i32>(singular, 1).unwrap(), [1]);
}
