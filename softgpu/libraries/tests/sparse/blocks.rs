//! Matrices of dense blocks, against the same ones with all their zeros; and systems with few diagonals.

use num_complex::Complex64;
use proptest::prelude::*;
use rgpu_libraries::{
    BandSolve, BlockIncomplete, BlockMatrix, BlockProduct, BlockSolve, DataType, DenseLines, DenseMatrix,
    IncompleteTask, Scalar, SparseFormat, SparseMatrix, Transpose,
};

use crate::matrices::ops;
use crate::rig::Rig;
use crate::systems::{Square, close, get, put};

/// A matrix without some of its blocks.
#[derive(Debug, Clone)]
struct Blocks {
    size: usize,
    all: Square,
    /// Row and column of each block that is there.
    there: Vec<(usize, usize)>,
}

impl Blocks {
    /// Blocks of the diagonal are there.
    fn random(blocks: usize, size: usize, seed: usize) -> Self {
        let is_there = |i: usize, j: usize| i == j || (i * 7 + j * 5 + seed).is_multiple_of(3);
        let places = (0..blocks).flat_map(|i| (0..blocks).map(move |j| (i, j)));
        let there = places.filter(|&(i, j)| is_there(i, j)).collect();
        let all = Square::random(blocks * size, seed, 0);
        let all = all.map(|i, j| if is_there(i / size, j / size) { all.get(i, j) } else { Complex64::ZERO });
        Self { size, all, there }
    }

    /// Where the elements are in memory, in their order there.
    fn places(&self, by_columns: bool) -> Vec<(usize, usize)> {
        let size = self.size;
        let inside = move |k: usize| if by_columns { (k % size, k / size) } else { (k / size, k % size) };
        let of = |&(i, j): &(usize, usize)| {
            (0..size * size).map(move |k| (i * size + inside(k).0, j * size + inside(k).1))
        };
        self.there.iter().flat_map(of).collect()
    }

    fn put(&self, base: u32, by_columns: bool) -> BlockMatrix {
        let (rig, rows) = (Rig::shared(), self.all.n / self.size);
        let before = |row: usize| self.there.iter().filter(|(i, _)| *i < row).count();
        let offsets: Vec<i32> = (0..=rows).map(|row| before(row) as i32 + base as i32).collect();
        let indices: Vec<i32> = self.there.iter().map(|(_, j)| *j as i32 + base as i32).collect();
        let values: Vec<Complex64> =
            self.places(by_columns).iter().map(|&(i, j)| self.all.get(i, j)).collect();
        let blocks = SparseMatrix {
            format: SparseFormat::Csr,
            rows: rows as u64,
            columns: rows as u64,
            stored: self.there.len() as u64,
            offsets: rig.put(&offsets),
            indices: rig.put(&indices),
            values: put(&values),
            kind: DataType::C64,
            base,
            ..SparseMatrix::default()
        };
        BlockMatrix { blocks, size: self.size as u64, by_columns }
    }

    /// The elements that are on the device now.
    fn fetched(&self, m: &BlockMatrix) -> Square {
        let places = self.places(m.by_columns);
        let values = get(m.blocks.values, places.len());
        self.all.map(|i, j| places.iter().position(|&at| at == (i, j)).map_or(Complex64::ZERO, |k| values[k]))
    }
}

fn dense(addr: u64, rows: usize, columns: usize, ld: usize, by_rows: bool) -> DenseMatrix {
    DenseMatrix {
        addr,
        kind: DataType::C64,
        rows: rows as u64,
        columns: columns as u64,
        ld: ld as u64,
        by_rows,
    }
}

/// Products of matrices.
fn product(x: &Square, y: &Square) -> Square {
    x.map(|i, j| (0..x.n).map(|k| x.get(i, k) * y.get(k, j)).sum())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(60) })]

    #[test]
    fn blocks_are_multiplied_and_solved_with(
        (blocks, size, columns, seed) in (1usize..5, 1usize..4, 1usize..4, 0usize..1000), op in ops(),
        (upper, unit, by_columns, by_rows) in any::<(bool, bool, bool, bool)>(), base in 0u32..2,
    ) {
        let rig = Rig::shared();
        let a = Blocks::random(blocks, size, seed);
        let (m, n) = (a.put(base, by_columns), a.all.n);
        let right = Square::random(n.max(columns), seed + 1, 1);
        let ld = if by_rows { columns } else { n } + 1;
        let lines = if by_rows { n } else { columns };
        let mut stored = vec![Complex64::ONE; lines * ld];
        let at = |i: usize, j: usize| if by_rows { i * ld + j } else { j * ld + i };
        for (i, j) in (0..n).flat_map(|i| (0..columns).map(move |j| (i, j))) {
            stored[at(i, j)] = right.get(i, j);
        }
        let (b, c) = (dense(put(&stored), n, columns, ld, by_rows), dense(put(&stored), n, columns, ld, by_rows));
        let (alpha, beta) = (Complex64::new(2.0, -1.0), Complex64::new(0.5, 1.0));
        rig.call(&BlockProduct {
            op_a: op, alpha: Scalar::complex(alpha.re, alpha.im), a: m.clone(), b: b.clone(),
            beta: Scalar::complex(beta.re, beta.im), c: c.clone(), ..BlockProduct::default()
        }).unwrap();
        let found = get(c.addr, stored.len());
        for j in 0..columns {
            let column: Vec<Complex64> = (0..n).map(|i| right.get(i, j)).collect();
            let wanted: Vec<_> =
                a.all.used(op).times(&column).iter().zip(&column).map(|(x, y)| alpha * x + beta * y).collect();
            let found: Vec<_> = (0..n).map(|i| found[at(i, j)]).collect();
            prop_assert!(close(&found, &wanted));
        }
        let position = rig.put(&[77i32]);
        let solve = BlockSolve {
            op, upper, unit, alpha: Scalar::complex(alpha.re, alpha.im), a: m, b, c: c.clone(), position,
            ..BlockSolve::default()
        };
        rig.call(&BlockSolve { analyses: true, ..solve.clone() }).unwrap();
        prop_assert_eq!(rig.get::<i32>(position, 1).unwrap(), vec![-1]);
        rig.call(&solve).unwrap();
        prop_assert_eq!(rig.get::<i32>(position, 1).unwrap(), vec![-1]);
        let triangle = a.all.map(|i, j| match (i == j, (j > i) == upper) {
            (true, _) if unit => Complex64::ONE,
            (true, _) | (_, true) => a.all.get(i, j),
            _ => Complex64::ZERO,
        });
        let found = get(c.addr, stored.len());
        for j in 0..columns {
            let x: Vec<Complex64> = (0..n).map(|i| found[at(i, j)]).collect();
            let wanted: Vec<_> = (0..n).map(|i| alpha * right.get(i, j)).collect();
            let size = x.iter().fold(1.0, |size: f64, x| size.max(x.norm()));
            let left = triangle.used(op).times(&x);
            prop_assert!(left.iter().zip(&wanted).all(|(a, b)| (a - b).norm() <= 1e-11 * size));
        }
    }

    #[test]
    fn factors_of_blocks_are_right_where_the_matrix_has_blocks(
        (blocks, size, seed) in (1usize..5, 1usize..4, 0usize..1000), by_columns: bool, base in 0u32..2,
    ) {
        let rig = Rig::shared();
        let a = Blocks::random(blocks, size, seed);
        let (m, position) = (a.put(base, by_columns), rig.put(&[77i32]));
        let work = BlockIncomplete { task: IncompleteTask::Analyse, a: m.clone(), position, ..BlockIncomplete::default() };
        rig.call(&work).unwrap();
        prop_assert_eq!(rig.get::<i32>(position, 1).unwrap(), vec![-1]);
        rig.call(&BlockIncomplete { task: IncompleteTask::Lu, ..work }).unwrap();
        prop_assert_eq!(rig.get::<i32>(position, 1).unwrap(), vec![-1]);
        let factors = a.fetched(&m);
        let lower = factors.map(|i, j| if i == j { Complex64::ONE } else if i > j { factors.get(i, j) } else { Complex64::ZERO });
        let upper = factors.map(|i, j| if i <= j { factors.get(i, j) } else { Complex64::ZERO });
        let at_places = |of: &Square, lower_only: bool| -> Vec<Complex64> {
            let places = a.places(false).into_iter().filter(|(i, j)| !lower_only || i >= j);
            places.map(|(i, j)| of.get(i, j)).collect()
        };
        prop_assert!(close(&at_places(&product(&lower, &upper), false), &at_places(&a.all, false)));
        // A Hermitian matrix, whose blocks above the diagonal are where those below are.
        let there: Vec<_> = a.there.iter().flat_map(|&(i, j)| [(i, j), (j, i)]).collect();
        let is_there = |i: usize, j: usize| there.contains(&(i / size, j / size));
        let positive = a.all.positive();
        let all = positive.map(|i, j| if is_there(i, j) { positive.get(i, j) } else { Complex64::ZERO });
        let mut there: Vec<_> = there.clone();
        there.sort_unstable();
        there.dedup();
        let a = Blocks { size, all, there };
        let m = a.put(base, by_columns);
        rig.call(&BlockIncomplete { task: IncompleteTask::Cholesky, a: m.clone(), position, ..BlockIncomplete::default() }).unwrap();
        prop_assert_eq!(rig.get::<i32>(position, 1).unwrap(), vec![-1]);
        let factors = a.fetched(&m);
        let lower = factors.map(|i, j| if i >= j { factors.get(i, j) } else { Complex64::ZERO });
        let found = product(&lower, &lower.used(Transpose::Adjoint));
        let places: Vec<_> = a.places(false).into_iter().filter(|(i, j)| i >= j).collect();
        let of = |of: &Square| places.iter().map(|&(i, j)| of.get(i, j)).collect::<Vec<_>>();
        prop_assert!(close(&of(&found), &of(&a.all)));
    }

    #[test]
    fn bands_are_solved(
        (n, count, below, seed) in (3usize..9, 1usize..4, 1usize..3, 0usize..1000),
        form in 0usize..3, zeros: bool,
    ) {
        let rig = Rig::shared();
        // One matrix with many right sides; matrices one behind the other; or side by side.
        let (step, stride, stride_x) = [(1, 0, n + 1), (1, n + 2, n + 2), (count, 1, 1)][form];
        let matrices: Vec<Square> = (0..count).map(|system| {
            let x = Square::random(n, seed + if form == 0 { 0 } else { system }, 0);
            // With zeros on the diagonal, of as many rows as can be exchanged in pairs.
            let diagonal = |i: usize| if zeros && n % 2 == 0 { Complex64::ZERO } else { x.get(i, i) };
            x.map(|i, j| if i == j { diagonal(i) } else if i.abs_diff(j) <= below { x.get(i, j) } else { Complex64::ZERO })
        }).collect();
        let wanted = |system: usize| -> Vec<Complex64> {
            (0..n).map(|i| Complex64::new(i as f64 - 2.0, system as f64)).collect()
        };
        let list = |offset: isize| {
            let mut all = vec![Complex64::new(99.0, 0.0); (count - 1) * stride + (n - 1) * step + 1];
            for (system, a) in matrices.iter().enumerate() {
                for i in 0..n {
                    let j = i.checked_add_signed(offset).filter(|&j| j < n);
                    // What is beyond the matrix is not looked at.
                    all[system * stride + i * step] = j.map_or(Complex64::new(f64::NAN, 7.0), |j| a.get(i, j));
                }
            }
            put(&all)
        };
        let mut right = vec![Complex64::ONE; (count - 1) * stride_x + (n - 1) * step + 1];
        for (system, a) in matrices.iter().enumerate() {
            for (i, y) in a.times(&wanted(system)).into_iter().enumerate() {
                right[system * stride_x + i * step] = y;
            }
        }
        let x = put(&right);
        let five = below == 2;
        rig.call(&BandSolve {
            kind: DataType::C64, n: n as u64, count: count as u64, step: step as u64, stride: stride as u64,
            stride_x: stride_x as u64, lowest: if five { list(-2) } else { 0 }, lower: list(-1), diagonal: list(0),
            upper: list(1), highest: if five { list(2) } else { 0 }, x,
        }).unwrap();
        let found = get(x, right.len());
        for (system, a) in matrices.iter().enumerate() {
            let x: Vec<_> = (0..n).map(|i| found[system * stride_x + i * step]).collect();
            let (left, right) = (a.times(&x), a.times(&wanted(system)));
            let size = x.iter().fold(1.0, |size: f64, x| size.max(x.norm())) * n as f64;
            prop_assert!(left.iter().zip(&right).all(|(a, b)| (a - b).norm() <= 1e-11 * size), "{x:?}");
        }
    }

    #[test]
    fn what_is_not_zero_is_counted(
        (rows, columns, seed) in (1usize..9, 1usize..9, 0usize..1000), (by_columns, wanted) in any::<(bool, bool)>(),
    ) {
        let rig = Rig::shared();
        let a = Square::random(rows.max(columns), seed, 5);
        let ld = rows + 1;
        let mut stored = vec![Complex64::ONE; ld * columns];
        for (i, j) in (0..rows).flat_map(|i| (0..columns).map(move |j| (i, j))) {
            stored[j * ld + i] = a.get(i, j);
        }
        let lines = if by_columns { columns } else { rows };
        let (per_line, total) = (rig.put(&vec![77i32; lines]), rig.put(&[77i32]));
        rig.call(&DenseLines {
            a: dense(put(&stored), rows, columns, ld, false), by_columns, per_line, total: if wanted { total } else { 0 },
        }).unwrap();
        let count = |line: usize| {
            let of = |k: usize| if by_columns { a.get(k, line) } else { a.get(line, k) };
            (0..if by_columns { rows } else { columns }).filter(|&k| of(k) != Complex64::ZERO).count() as i32
        };
        let counts: Vec<i32> = (0..lines).map(count).collect();
        prop_assert_eq!(rig.get::<i32>(per_line, lines).unwrap(), counts.clone());
        let sum = if wanted { counts.iter().sum() } else { 77 };
        prop_assert_eq!(rig.get::<i32>(total, 1).unwrap(), vec![sum]);
    }
}

#[test]
fn wrong_pivots_of_blocks_are_told_and_small_ones_replaced() {
    let rig = Rig::shared();
    let position = rig.put(&[77i32]);
    let numbers = |at: [f64; 16]| Square { n: 4, at: at.map(Complex64::from).to_vec() };
    let all = vec![(0, 0), (0, 1), (1, 0), (1, 1)];
    // The second block of the diagonal is what the first one leaves nothing of.
    let a = numbers([1.0, 0.0, 1.0, 0.0, 0.0, 1.0, 0.0, 1.0, 1.0, 0.0, 1.0, 0.0, 0.0, 1.0, 0.0, 1.0]);
    let a = Blocks { size: 2, all: a, there: all };
    let m = a.put(1, false);
    let work =
        BlockIncomplete { task: IncompleteTask::Lu, a: m.clone(), position, ..BlockIncomplete::default() };
    rig.call(&work).unwrap();
    assert_eq!(rig.get::<i32>(position, 1).unwrap(), [2]);
    let (m, tolerance, boost) = (a.put(1, false), Scalar::real(1e-3), Scalar::real(0.25));
    rig.call(&BlockIncomplete { a: m.clone(), boosts: true, tolerance, boost, ..work.clone() }).unwrap();
    assert_eq!(rig.get::<i32>(position, 1).unwrap(), [-1]);
    let factors = a.fetched(&m);
    assert_eq!([2, 3].map(|i| factors.get(i, i)), [Complex64::from(0.25); 2]);
    // Without the second block of the diagonal.
    let without = Blocks { there: vec![(0, 0), (0, 1), (1, 0)], ..a };
    let m = without.put(0, true);
    rig.call(&BlockIncomplete { task: IncompleteTask::Analyse, a: m.clone(), ..work }).unwrap();
    assert_eq!(rig.get::<i32>(position, 1).unwrap(), [1]);
    let b = dense(put(&[Complex64::ONE; 4]), 4, 1, 4, false);
    let solve = BlockSolve { analyses: true, a: m, b: b.clone(), c: b, position, ..BlockSolve::default() };
    rig.call(&solve).unwrap();
    assert_eq!(rig.get::<i32>(position, 1).unwrap(), [1]);
    rig.call(&BlockSolve { unit: true, ..solve }).unwrap();
    assert_eq!(rig.get::<i32>(position, 1).unwrap(), [-1]);
}
