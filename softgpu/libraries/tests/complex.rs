//! Hermitian matrices and adjoints, against loops that follow their definitions.

mod rig;

use num_complex::Complex64;
use rgpu_libraries::{
    DataType, Fill, Matrix, MatrixVector, Pairing, RankK, RankUpdate, Reduce, Reduction, Scalar, Side,
    Structure, SymmetricProduct, Transpose, Triangular, Vector,
};
use rig::Rig;

const KIND: DataType = DataType::C64;
const N: usize = 13;

/// Small whole numbers, so that every sum is exact.
fn numbers(count: usize, seed: usize) -> Vec<Complex64> {
    let part = |i: usize| ((i * 7 + seed * 5 + i / 4) % 9) as f64 - 4.0;
    (0..count).map(|i| Complex64::new(part(i), part(3 * i + 1))).collect()
}

fn put(rig: &Rig, values: &[Complex64]) -> u64 {
    rig.put(&values.iter().flat_map(|value| [value.re, value.im]).collect::<Vec<f64>>())
}

fn get(rig: &Rig, addr: u64, count: usize) -> Vec<Complex64> {
    let parts = rig.get::<f64>(addr, 2 * count).unwrap();
    parts.chunks(2).map(|parts| Complex64::new(parts[0], parts[1])).collect()
}

fn matrix(addr: u64) -> Matrix {
    Matrix { addr, kind: KIND, ld: N as u64, stride: 0 }
}

fn vector(addr: u64) -> Vector {
    Vector { addr, kind: KIND, inc: 1, stride: 0 }
}

fn pairs() -> impl Iterator<Item = (usize, usize)> {
    (0..N).flat_map(|i| (0..N).map(move |j| (i, j)))
}

/// The Hermitian matrix of which one part is there.
fn hermitian(a: &[Complex64], upper: bool, i: usize, j: usize) -> Complex64 {
    match (i == j, (i < j) == upper) {
        (true, _) => a[i + j * N].re.into(),
        (false, true) => a[i + j * N],
        (false, false) => a[j + i * N].conj(),
    }
}

#[test]
fn products_with_hermitian_matrices() {
    let rig = Rig::shared();
    let (a, b, c) = (numbers(N * N, 1), numbers(N * N, 2), numbers(N * N, 3));
    let (alpha, beta) = (Complex64::new(2.0, 1.0), Complex64::new(0.0, -1.0));
    let scalar = |value: Complex64| Scalar::complex(value.re, value.im);
    for upper in [false, true] {
        let fill = if upper { Fill::Upper } else { Fill::Lower };
        let place = put(rig, &c);
        rig.call(&MatrixVector {
            structure: Structure::Hermitian,
            fill,
            m: N as u64,
            n: N as u64,
            alpha: scalar(alpha),
            a: matrix(put(rig, &a)),
            x: vector(put(rig, &b)),
            beta: scalar(beta),
            y: vector(place),
            scalar: KIND,
            compute: KIND,
            count: 1,
            ..MatrixVector::default()
        })
        .unwrap();
        let sum = |i: usize, x: &dyn Fn(usize) -> Complex64| -> Complex64 {
            (0..N).map(|l| hermitian(&a, upper, i, l) * x(l)).sum()
        };
        let expected: Vec<_> = (0..N).map(|i| alpha * sum(i, &|l| b[l]) + beta * c[i]).collect();
        assert_eq!(get(rig, place, N), expected, "{upper}");

        for side in [Side::Left, Side::Right] {
            let place = put(rig, &c);
            rig.call(&SymmetricProduct {
                side,
                structure: Structure::Hermitian,
                fill,
                m: N as u64,
                n: N as u64,
                alpha: scalar(alpha),
                a: matrix(put(rig, &a)),
                b: matrix(put(rig, &b)),
                beta: scalar(beta),
                c: matrix(place),
                compute: KIND,
            })
            .unwrap();
            let mut expected = c.clone();
            for (i, j) in pairs() {
                let sum: Complex64 = (0..N)
                    .map(|l| match side {
                        Side::Left => hermitian(&a, upper, i, l) * b[l + j * N],
                        Side::Right => b[i + l * N] * hermitian(&a, upper, l, j),
                    })
                    .sum();
                expected[i + j * N] = alpha * sum + beta * c[i + j * N];
            }
            assert_eq!(get(rig, place, N * N), expected, "{upper} {side:?}");
        }
    }
}

#[test]
fn updates_of_hermitian_matrices() {
    let rig = Rig::shared();
    let (a, b, c) = (numbers(N * N, 1), numbers(N * N, 2), numbers(N * N, 3));
    let alpha = Complex64::new(2.0, 1.0);
    for upper in [false, true] {
        let fill = if upper { Fill::Upper } else { Fill::Lower };
        let there = |i: usize, j: usize| if upper { i <= j } else { i >= j };
        let place = put(rig, &c);
        rig.call(&RankUpdate {
            structure: Structure::Hermitian,
            twice: true,
            fill,
            m: N as u64,
            n: N as u64,
            alpha: Scalar::complex(alpha.re, alpha.im),
            x: vector(put(rig, &a)),
            y: vector(put(rig, &b)),
            a: matrix(place),
            scalar: KIND,
            compute: KIND,
            ..RankUpdate::default()
        })
        .unwrap();
        let mut expected = c.clone();
        for (i, j) in pairs().filter(|(i, j)| there(*i, *j)) {
            let value = c[i + j * N] + alpha * a[i] * b[j].conj() + alpha.conj() * b[i] * a[j].conj();
            expected[i + j * N] = if i == j { value.re.into() } else { value };
        }
        assert_eq!(get(rig, place, N * N), expected, "{upper}");

        for (op, pairing) in [(Transpose::None, Pairing::Own), (Transpose::Adjoint, Pairing::Both)] {
            let place = put(rig, &c);
            let factor = if pairing == Pairing::Own { Complex64::from(2.0) } else { alpha };
            rig.call(&RankK {
                structure: Structure::Hermitian,
                pairing,
                fill,
                op,
                n: N as u64,
                k: 5,
                alpha: Scalar::complex(factor.re, factor.im),
                a: matrix(put(rig, &a)),
                b: matrix(put(rig, &b)),
                beta: Scalar::real(3.0),
                c: matrix(place),
                alpha_kind: KIND,
                beta_kind: DataType::F64,
                compute: KIND,
            })
            .unwrap();
            let of = |m: &[Complex64], i: usize, l: usize| {
                if op == Transpose::None { m[i + l * N] } else { m[l + i * N].conj() }
            };
            let mut expected = c.clone();
            for (i, j) in pairs().filter(|(i, j)| there(*i, *j)) {
                let sum: Complex64 = (0..5)
                    .map(|l| match pairing {
                        Pairing::Own => factor * of(&a, i, l) * of(&a, j, l).conj(),
                        _ => {
                            factor * of(&a, i, l) * of(&b, j, l).conj()
                                + factor.conj() * of(&b, i, l) * of(&a, j, l).conj()
                        }
                    })
                    .sum();
                let value = sum + 3.0 * c[i + j * N];
                expected[i + j * N] = if i == j { value.re.into() } else { value };
            }
            assert_eq!(get(rig, place, N * N), expected, "{upper} {op:?}");
        }
    }
}

#[test]
fn adjoints_of_triangles_and_conjugated_products() {
    let rig = Rig::shared();
    let (mut a, b) = (numbers(N * N, 1), numbers(N * N, 2));
    (0..N).for_each(|i| a[i + i * N] = Complex64::new(40.0, 3.0));
    let place = rig.alloc(N * N * 16);
    let work = Triangular {
        fill: Fill::Upper,
        op: Transpose::Adjoint,
        m: N as u64,
        n: N as u64,
        alpha: Scalar::real(1.0),
        a: matrix(put(rig, &a)),
        b: matrix(put(rig, &b)),
        c: matrix(place),
        compute: KIND,
        count: 1,
        ..Triangular::default()
    };
    rig.call(&work).unwrap();
    let mut expected = vec![Complex64::default(); N * N];
    for (i, j) in pairs() {
        expected[i + j * N] = (0..=i).map(|l| a[l + i * N].conj() * b[l + j * N]).sum();
    }
    assert_eq!(get(rig, place, N * N), expected);
    rig.call(&Triangular { solve: true, b: matrix(place), ..work }).unwrap();
    for (got, expected) in get(rig, place, N * N).into_iter().zip(&b) {
        assert!((got - expected).norm() < 1e-9, "{got} is not {expected}");
    }

    let result = rig.alloc(16);
    for (what, conjugated) in [(Reduction::Dot, false), (Reduction::DotConjugated, true)] {
        let (x, y) = (vector(put(rig, &a)), vector(put(rig, &b)));
        rig.call(&Reduce { what, n: N as u64, x, y, result, result_kind: KIND, compute: KIND }).unwrap();
        let expected: Complex64 = (0..N).map(|i| if conjugated { a[i].conj() } else { a[i] } * b[i]).sum();
        assert_eq!(get(rig, result, 1), [expected]);
    }
}
