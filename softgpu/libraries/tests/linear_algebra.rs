//! Operations on vectors and matrices beyond the plain product, against loops that follow their definitions.

mod rig;

use proptest::prelude::*;
use rgpu_libraries::{
    Activation, AddMatrices, Batch, Combination, Combine, DataType, Factoring, Factors, Fill, Gemm, Matmul,
    Matrix, MatrixVector, Pairing, RankK, RankUpdate, Reduce, Reduction, Scalar, ScaleMatrix, Side, Storage,
    Structure, SymmetricProduct, Transpose, Triangular, TriangularVector, Vector,
};
use rig::Rig;

const KIND: DataType = DataType::F64;

fn numbers(count: usize, seed: usize) -> Vec<f64> {
    (0..count).map(|i| ((i * 7 + seed * 13 + i / 3) % 11) as f64 - 5.0).collect()
}

fn matrix(addr: u64, ld: usize) -> Matrix {
    Matrix { addr, kind: KIND, ld: ld as u64, stride: 0 }
}

fn vector(addr: u64, inc: i64) -> Vector {
    Vector { addr, kind: KIND, inc, stride: 0 }
}

/// Where element `i` of `n` lies.
fn at(i: usize, n: usize, inc: i64) -> usize {
    let steps = if inc < 0 { n - 1 - i } else { i };
    steps * inc.unsigned_abs() as usize
}

fn close(got: &[f64], expected: &[f64]) {
    assert_eq!(got.len(), expected.len());
    for (i, (got, expected)) in got.iter().zip(expected).enumerate() {
        assert!((got - expected).abs() <= 1e-9 * expected.abs().max(1.0), "{i}: {got} is not {expected}");
    }
}

/// Element (i, j) of op(A), stored column by column.
fn of(a: &[f64], ld: usize, turned: bool, i: usize, j: usize) -> f64 {
    if turned { a[j + i * ld] } else { a[i + j * ld] }
}

fn op(turned: bool) -> Transpose {
    if turned { Transpose::Transposed } else { Transpose::None }
}

fn fill(upper: bool) -> Fill {
    if upper { Fill::Upper } else { Fill::Lower }
}

/// What of a square matrix is there, with large numbers on the diagonal so that equations are well posed.
fn triangle(a: &mut [f64], n: usize, ld: usize) {
    (0..n).for_each(|i| a[i + i * ld] = 20.0 + i as f64);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(24) })]

    #[test]
    fn vectors(n in 1usize..50, incs in (prop_oneof![-3i64..0, 1i64..4], prop_oneof![-3i64..0, 1i64..4])) {
        let rig = Rig::shared();
        let (incx, incy) = incs;
        let (x, y) = (numbers(n * 3, 1), numbers(n * 3, 2));
        let pair = |i: usize| (x[at(i, n, incx)], y[at(i, n, incy)]);
        let places = || (rig.put(&x), rig.put(&y));
        let combined = |what, alpha: f64, beta: f64, numbers: [f64; 5]| {
            let (ax, ay) = places();
            let (alpha, beta) = (Scalar::real(alpha), Scalar::real(beta));
            rig.call(&Combine {
                what, n: n as u64, alpha, beta, alpha_kind: KIND, beta_kind: KIND, numbers, x: vector(ax, incx),
                y: vector(ay, incy), compute: KIND, ..Combine::default()
            }).unwrap();
            (rig.get::<f64>(ax, x.len()).unwrap(), rig.get::<f64>(ay, y.len()).unwrap())
        };
        let expected = |f: &dyn Fn(f64, f64) -> (f64, f64)| {
            let (mut out_x, mut out_y) = (x.clone(), y.clone());
            for i in 0..n {
                let (a, b) = pair(i);
                (out_x[at(i, n, incx)], out_y[at(i, n, incy)]) = f(a, b);
            }
            (out_x, out_y)
        };
        let none = [0.0; 5];
        assert_eq!(combined(Combination::Axpy, 3.0, 0.0, none), expected(&|a, b| (a, 3.0 * a + b)));
        assert_eq!(combined(Combination::Scale, -2.0, 0.0, none), expected(&|a, b| (-2.0 * a, b)));
        assert_eq!(combined(Combination::Copy, 0.0, 0.0, none), expected(&|a, _| (a, a)));
        assert_eq!(combined(Combination::Swap, 0.0, 0.0, none), expected(&|a, b| (b, a)));
        assert_eq!(combined(Combination::Rotate, 2.0, 3.0, none), expected(&|a, b| (2.0 * a + 3.0 * b, 2.0 * b - 3.0 * a)));
        let full = [-1.0, 2.0, 3.0, 4.0, 5.0];
        assert_eq!(combined(Combination::RotateModified, 0.0, 0.0, full), expected(&|a, b| (2.0 * a + 4.0 * b, 3.0 * a + 5.0 * b)));
        assert_eq!(combined(Combination::RotateModified, 0.0, 0.0, [-2.0; 5]), expected(&|a, b| (a, b)));

        let reduced = |what, kind| {
            let (ax, ay) = places();
            let result = rig.alloc(16);
            rig.call(&Reduce {
                what, n: n as u64, x: vector(ax, incx), y: vector(ay, incy), result, result_kind: kind, compute: KIND,
            }).unwrap();
            result
        };
        let f = |what| rig.get::<f64>(reduced(what, KIND), 1).unwrap()[0];
        let sum = |g: &dyn Fn(f64, f64) -> f64| (0..n).map(|i| g(pair(i).0, pair(i).1)).sum::<f64>();
        assert_eq!(f(Reduction::Dot), sum(&|a, b| a * b));
        assert_eq!(f(Reduction::AbsoluteSum), sum(&|a, _| a.abs()));
        close(&[f(Reduction::Norm)], &[sum(&|a, _| a * a).sqrt()]);
        let best = |better: &dyn Fn(f64, f64) -> bool| {
            (1..n).fold(0, |best, i| if better(pair(i).0.abs(), pair(best).0.abs()) { i } else { best }) as i32 + 1
        };
        let place = |what| rig.get::<i32>(reduced(what, DataType::I32), 1).unwrap()[0];
        assert_eq!(place(Reduction::Greatest), best(&|a, b| a > b));
        assert_eq!(place(Reduction::Least), best(&|a, b| a < b));
    }

    #[test]
    fn matrices_and_vectors(
        shape in (1usize..20, 1usize..20), turned: bool, band in (0usize..4, 0usize..4), upper: bool, unit: bool,
    ) {
        let rig = Rig::shared();
        let (m, n) = shape;
        let ld = m.max(n) + 1;
        let a = numbers(ld * n.max(m), 1);
        let longest = m.max(n);
        let (x, y) = (numbers(longest, 2), numbers(longest, 3));
        let product = |work: MatrixVector, columns_of_a: &[f64]| {
            let out = rig.put(&y);
            let (a, x) = (rig.put(columns_of_a), rig.put(&x));
            rig.call(&MatrixVector {
                a: matrix(a, work.a.ld as usize), x: vector(x, 1), y: vector(out, 1), alpha: Scalar::real(2.0),
                beta: Scalar::real(-1.0), scalar: KIND, compute: KIND, count: 1, ..work
            }).unwrap();
            rig.get::<f64>(out, longest).unwrap()
        };
        let expected = |rows: usize, columns: usize, element: &dyn Fn(usize, usize) -> f64| {
            let mut out = y.clone();
            for i in 0..rows {
                out[i] = 2.0 * (0..columns).map(|j| element(i, j) * x[j]).sum::<f64>() - y[i];
            }
            out
        };
        let (rows, columns) = if turned { (n, m) } else { (m, n) };
        let general = MatrixVector { op: op(turned), m: m as u64, n: n as u64, a: matrix(0, ld), ..MatrixVector::default() };
        assert_eq!(product(general.clone(), &a), expected(rows, columns, &|i, j| of(&a, ld, turned, i, j)));

        let (lower, above) = band;
        let height = lower + above + 2;
        let stored = numbers(height * n, 4);
        let in_band = |i: usize, j: usize| if i <= j + lower && j <= i + above { stored[above + i - j + j * height] } else { 0.0 };
        let banded = MatrixVector {
            storage: Storage::Band, lower: lower as u64, upper: above as u64, a: matrix(0, height), ..general
        };
        assert_eq!(product(banded, &stored), expected(rows, columns, &|i, j| if turned { in_band(j, i) } else { in_band(i, j) }));

        // Square ones: symmetric in all three forms, and triangular.
        let there = |i: usize, j: usize| if upper { i <= j } else { i >= j };
        let mirrored = |i: usize, j: usize| if there(i, j) { a[i + j * ld] } else { a[j + i * ld] };
        let square = MatrixVector {
            structure: Structure::Symmetric, fill: fill(upper), m: n as u64, n: n as u64, a: matrix(0, ld), ..MatrixVector::default()
        };
        assert_eq!(product(square.clone(), &a), expected(n, n, &mirrored));
        let mut packed = Vec::new();
        for j in 0..n {
            packed.extend((0..n).filter(|i| there(*i, j)).map(|i| a[i + j * ld]));
        }
        let in_packed = MatrixVector { storage: Storage::Packed, ..square.clone() };
        assert_eq!(product(in_packed, &packed), expected(n, n, &mirrored));
        let mut diagonals = vec![0.0; (lower + 1) * n];
        for j in 0..n {
            for i in (0..n).filter(|i| there(*i, j) && i.abs_diff(j) <= lower) {
                let row = if upper { lower + i - j } else { i - j };
                diagonals[row + j * (lower + 1)] = a[i + j * ld];
            }
        }
        let in_diagonals = MatrixVector {
            storage: Storage::Band, lower: lower as u64, upper: lower as u64, a: matrix(0, lower + 1), ..square
        };
        let near = |i: usize, j: usize| if i.abs_diff(j) <= lower { mirrored(i, j) } else { 0.0 };
        assert_eq!(product(in_diagonals, &diagonals), expected(n, n, &near));

        let mut t = a.clone();
        triangle(&mut t, n, ld);
        let element = |i: usize, j: usize| match (i == j && unit, if turned { (j, i) } else { (i, j) }) {
            (true, _) => 1.0,
            (false, (i, j)) if there(i, j) => t[i + j * ld],
            _ => 0.0,
        };
        let work = TriangularVector {
            op: op(turned), fill: fill(upper), unit, n: n as u64, a: matrix(rig.put(&t), ld), compute: KIND,
            ..TriangularVector::default()
        };
        let place = rig.put(&x);
        let multiplied: Vec<f64> = (0..n).map(|i| (0..n).map(|j| element(i, j) * x[j]).sum()).collect();
        rig.call(&TriangularVector { x: vector(place, 1), ..work.clone() }).unwrap();
        close(&rig.get::<f64>(place, n).unwrap(), &multiplied);
        if !unit {
            rig.call(&TriangularVector { x: vector(place, 1), solve: true, ..work }).unwrap();
            close(&rig.get::<f64>(place, n).unwrap(), &x[..n]);
        }

        let updated = |structure, twice| {
            let place = rig.put(&a);
            rig.call(&RankUpdate {
                structure, twice, fill: fill(upper), m: n as u64, n: n as u64, alpha: Scalar::real(3.0),
                x: vector(rig.put(&x), 1), y: vector(rig.put(&y), 1), a: matrix(place, ld), scalar: KIND, compute: KIND,
                ..RankUpdate::default()
            }).unwrap();
            rig.get::<f64>(place, a.len()).unwrap()
        };
        let mut expected_update = a.clone();
        for (i, j) in (0..n).flat_map(|i| (0..n).map(move |j| (i, j))).filter(|(i, j)| there(*i, *j)) {
            expected_update[i + j * ld] += 3.0 * (x[i] * y[j] + y[i] * x[j]);
        }
        assert_eq!(updated(Structure::Symmetric, true), expected_update);
        let mut expected_update = a.clone();
        for (i, j) in (0..n).flat_map(|i| (0..n).map(move |j| (i, j))) {
            expected_update[i + j * ld] += 3.0 * x[i] * y[j];
        }
        assert_eq!(updated(Structure::General, false), expected_update);
    }

    #[test]
    fn matrices_with_structure(
        shape in (1usize..70, 1usize..40, 0usize..20), right: bool, upper: bool, turned: bool, unit: bool,
    ) {
        let rig = Rig::shared();
        let (m, n, k) = shape;
        let square = if right { n } else { m };
        let ld = m.max(n).max(k) + 2;
        let (a, b, c) = (numbers(ld * ld, 1), numbers(ld * ld, 2), numbers(ld * ld, 3));
        let there = |i: usize, j: usize| if upper { i <= j } else { i >= j };
        let side = if right { Side::Right } else { Side::Left };
        let scalars = (Scalar::real(2.0), Scalar::real(-1.0));
        let place = rig.put(&c);
        rig.call(&SymmetricProduct {
            side, structure: Structure::Symmetric, fill: fill(upper), m: m as u64, n: n as u64, alpha: scalars.0,
            a: matrix(rig.put(&a), ld), b: matrix(rig.put(&b), ld), beta: scalars.1, c: matrix(place, ld), compute: KIND,
        }).unwrap();
        let mirrored = |i: usize, j: usize| if there(i, j) { a[i + j * ld] } else { a[j + i * ld] };
        let mut expected = c.clone();
        for (i, j) in (0..m).flat_map(|i| (0..n).map(move |j| (i, j))) {
            let sum: f64 = (0..square)
                .map(|l| if right { b[i + l * ld] * mirrored(l, j) } else { mirrored(i, l) * b[l + j * ld] })
                .sum();
            expected[i + j * ld] = 2.0 * sum - c[i + j * ld];
        }
        close(&rig.get::<f64>(place, c.len()).unwrap(), &expected);

        for pairing in [Pairing::Own, Pairing::Both, Pairing::One] {
            let place = rig.put(&c);
            rig.call(&RankK {
                structure: Structure::Symmetric, pairing, fill: fill(upper), op: op(turned), n: n as u64, k: k as u64,
                alpha: scalars.0, a: matrix(rig.put(&a), ld), b: matrix(rig.put(&b), ld), beta: scalars.1,
                c: matrix(place, ld), alpha_kind: KIND, beta_kind: KIND, compute: KIND,
            }).unwrap();
            let mut expected = c.clone();
            for (i, j) in (0..n).flat_map(|i| (0..n).map(move |j| (i, j))).filter(|(i, j)| there(*i, *j)) {
                let sum: f64 = (0..k)
                    .map(|l| {
                        let get = |of_matrix: &[f64], i| of(of_matrix, ld, turned, i, l);
                        match pairing {
                            Pairing::Own => get(&a, i) * get(&a, j),
                            Pairing::One => get(&a, i) * get(&b, j),
                            Pairing::Both => get(&a, i) * get(&b, j) + get(&b, i) * get(&a, j),
                        }
                    })
                    .sum();
                expected[i + j * ld] = 2.0 * sum - c[i + j * ld];
            }
            close(&rig.get::<f64>(place, c.len()).unwrap(), &expected);
        }

        // Multiplying by a triangular matrix, and solving again.
        let mut t: Vec<f64> = a.iter().map(|x| x / 8.0).collect();
        triangle(&mut t, square, ld);
        let element = |i: usize, j: usize| match (i == j && unit, if turned { (j, i) } else { (i, j) }) {
            (true, _) => 1.0,
            (false, (i, j)) if there(i, j) => t[i + j * ld],
            _ => 0.0,
        };
        let work = Triangular {
            side, fill: fill(upper), op: op(turned), unit, m: m as u64, n: n as u64, alpha: scalars.0,
            a: matrix(rig.put(&t), ld), compute: KIND, count: 1, ..Triangular::default()
        };
        let (from, to) = (rig.put(&b), rig.put(&c));
        rig.call(&Triangular { b: matrix(from, ld), c: matrix(to, ld), ..work.clone() }).unwrap();
        let mut expected = c.clone();
        for (i, j) in (0..m).flat_map(|i| (0..n).map(move |j| (i, j))) {
            let sum: f64 = (0..square)
                .map(|l| if right { b[i + l * ld] * element(l, j) } else { element(i, l) * b[l + j * ld] })
                .sum();
            expected[i + j * ld] = 2.0 * sum;
        }
        close(&rig.get::<f64>(to, c.len()).unwrap(), &expected);
        if !unit {
            let half = Triangular { solve: true, alpha: Scalar::real(0.5), ..work };
            rig.call(&Triangular { b: matrix(to, ld), c: matrix(to, ld), ..half }).unwrap();
            let back = rig.get::<f64>(to, c.len()).unwrap();
            for (i, j) in (0..m).flat_map(|i| (0..n).map(move |j| (i, j))) {
                close(&[back[i + j * ld]], &[b[i + j * ld]]);
            }
        }

        let place = rig.put(&c);
        rig.call(&AddMatrices {
            op_a: op(turned), op_b: op(!turned), m: m as u64, n: n as u64, alpha: scalars.0, a: matrix(rig.put(&a), ld),
            beta: scalars.1, b: matrix(rig.put(&b), ld), c: matrix(place, ld), scalar: KIND, compute: KIND, count: 1,
        }).unwrap();
        let mut expected = c.clone();
        for (i, j) in (0..m).flat_map(|i| (0..n).map(move |j| (i, j))) {
            expected[i + j * ld] = 2.0 * of(&a, ld, turned, i, j) - of(&b, ld, !turned, i, j);
        }
        assert_eq!(rig.get::<f64>(place, c.len()).unwrap(), expected);

        let place = rig.put(&c);
        let x = numbers(square, 5);
        rig.call(&ScaleMatrix {
            side, m: m as u64, n: n as u64, a: matrix(rig.put(&a), ld), x: vector(rig.put(&x), 1), c: matrix(place, ld), compute: KIND,
        }).unwrap();
        let mut expected = c.clone();
        for (i, j) in (0..m).flat_map(|i| (0..n).map(move |j| (i, j))) {
            expected[i + j * ld] = x[if right { j } else { i }] * a[i + j * ld];
        }
        assert_eq!(rig.get::<f64>(place, c.len()).unwrap(), expected);
    }

    #[test]
    fn products_with_epilogues(shape in (1usize..40, 1usize..30, 1usize..20), by_column: bool, count in 1usize..3) {
        let rig = Rig::shared();
        let (m, n, k) = shape;
        let (a, b, c) = (numbers(m * k * count, 1), numbers(k * n * count, 2), numbers(m * n * count, 3));
        let bias = numbers(m.max(n), 4);
        let layout = |addr, ld: usize, columns: usize| Matrix { stride: (ld * columns) as i64, ..matrix(addr, ld) };
        for activation in [Activation::None, Activation::Relu, Activation::Gelu] {
            let d = rig.alloc(m * n * count * 8);
            let kept = rig.alloc(m * n * count * 8);
            let keeps = activation == Activation::Gelu;
            rig.call(&Matmul {
                m: m as u64, n: n as u64, k: k as u64, alpha: Scalar::real(0.25), a: layout(rig.put(&a), m, k),
                b: layout(rig.put(&b), k, n), beta: Scalar::real(1.0), c: layout(rig.put(&c), m, n), d: layout(d, m, n),
                scalar: KIND, compute: KIND, bias: vector(rig.put(&bias), 1), by_column, activation,
                kept: if keeps { layout(kept, m, n) } else { Matrix::default() }, count: count as u64, ..Matmul::default()
            }).unwrap();
            let (mut expected, mut before) = (Vec::new(), Vec::new());
            for p in 0..count {
                for j in 0..n {
                    for i in 0..m {
                        let sum: f64 = (0..k).map(|l| a[p * m * k + i + l * m] * b[p * k * n + l + j * k]).sum();
                        let x = 0.25 * sum + c[p * m * n + i + j * m] + bias[if by_column { j } else { i }];
                        before.push(x);
                        expected.push(match activation {
                            Activation::Relu => x.max(0.0),
                            Activation::Gelu => {
                                0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3))).tanh())
                            }
                            _ => x,
                        });
                    }
                }
            }
            close(&rig.get::<f64>(d, expected.len()).unwrap(), &expected);
            if keeps {
                close(&rig.get::<f64>(kept, before.len()).unwrap(), &before);
            }
        }
    }

    #[test]
    fn factors_of_many_matrices(n in 1usize..60, columns in 1usize..5, count in 1usize..4, turned: bool) {
        let rig = Rig::shared();
        let matrices: Vec<Vec<f64>> = (0..count)
            .map(|p| {
                let mut a = numbers(n * n, p + 1);
                // The largest numbers are off the diagonal, so that rows have to be exchanged.
                (0..n).for_each(|i| a[(i + 1) % n + i * n] += 30.0);
                a
            })
            .collect();
        let xs: Vec<Vec<f64>> = (0..count).map(|p| numbers(n * columns, p + 7)).collect();
        let sides = matrices.iter().zip(&xs).map(|(a, x)| {
            let mut b = Vec::new();
            for j in 0..columns {
                b.extend((0..n).map(|i| (0..n).map(|l| of(a, n, turned, i, l) * x[l + j * n]).sum::<f64>()));
            }
            b
        });
        let a: Vec<u64> = matrices.iter().map(|a| rig.put(a)).collect();
        let b: Vec<u64> = sides.map(|b| rig.put(&b)).collect();
        let inverse: Vec<u64> = (0..count).map(|_| rig.alloc(n * n * 8)).collect();
        let (pivots, info) = (rig.alloc(n * count * 4), rig.alloc(count * 4));
        let work = Factors {
            n: n as u64, columns: columns as u64, a: matrix(rig.put(&a), n), b: matrix(rig.put(&b), n), pivots, info,
            compute: KIND, count: count as u64, ..Factors::default()
        };
        rig.call(&work).unwrap();
        rig.call(&Factors { what: Factoring::Solve, op: op(turned), ..work.clone() }).unwrap();
        rig.call(&Factors { what: Factoring::Invert, b: matrix(rig.put(&inverse), n), ..work }).unwrap();
        assert_eq!(rig.get::<i32>(info, count).unwrap(), vec![0; count]);
        for p in 0..count {
            let got = rig.get::<f64>(b[p], n * columns).unwrap();
            for (got, expected) in got.iter().zip(&xs[p]) {
                assert!((got - expected).abs() < 1e-6, "{got} is not {expected}");
            }
            let inverse = rig.get::<f64>(inverse[p], n * n).unwrap();
            for (i, j) in (0..n).flat_map(|i| (0..n).map(move |j| (i, j))) {
                let sum: f64 = (0..n).map(|l| matrices[p][i + l * n] * inverse[l + j * n]).sum();
                assert!((sum - f64::from(i == j)).abs() < 1e-6, "{i} {j}: {sum}");
            }
        }
    }
}

#[test]
fn problems_of_a_batch_are_found_by_their_addresses() {
    let rig = Rig::new();
    let (n, count) = (5, 7);
    let all: Vec<Vec<f64>> = (0..3 * count).map(|p| numbers(n * n, p)).collect();
    let places: Vec<u64> = all.iter().map(|a| rig.put(a)).collect();
    let list = |from: usize| matrix(rig.put(&places[from * count..(from + 1) * count]), n);
    let of_batch = Gemm {
        m: n as u64,
        n: n as u64,
        k: n as u64,
        alpha: Scalar::real(1.0),
        a: list(0),
        b: list(1),
        c: list(2),
        compute: KIND,
        batch: Batch::Pointers,
        count: count as u64,
        ..Gemm::default()
    };
    rig.call(&of_batch).unwrap();
    for p in 0..count {
        let (a, b) = (&all[p], &all[count + p]);
        let expected: Vec<f64> =
            (0..n * n).map(|at| (0..n).map(|l| a[at % n + l * n] * b[l + at / n * n]).sum()).collect();
        assert_eq!(rig.get::<f64>(places[2 * count + p], n * n).unwrap(), expected);
    }
    // An address that is nobody's is found only when the array is read: then it is what it is for a kernel.
    let mut wrong = places[..count].to_vec();
    wrong[3] = 8;
    rig.call(&Gemm { a: matrix(rig.put(&wrong), n), ..of_batch }).unwrap();
    let error = rig.get::<f64>(places[0], 1).unwrap_err();
    assert_eq!(error.code, rgpu_device::Code::IllegalAddress);
}
