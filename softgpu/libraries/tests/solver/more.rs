//! Symmetric matrices that are not definite, eigenvalues of any matrix, the largest singular values, bidiagonal forms, and least squares.

use proptest::prelude::*;
use rgpu_libraries::{
    Batch, Bidiagonal, DataType, Eigen, Indefinite, LargestSvd, LeastSquares, Matrix, PackTriangle, Qr,
    QrBatch, Svd, Task, Vectors,
};

use crate::kinds;
use crate::matrices::*;
use crate::rig::Rig;

fn symmetric(kind: DataType, n: usize, seed: u64, zeros: bool) -> M {
    let x = random(kind, n, n, seed);
    M::new(n, n, |i, j| if zeros && i == j { C::default() } else { x.get(i, j) + x.get(j, i) })
}

fn indefinite(kind: DataType, n: usize, (upper, wide, zeros): (bool, bool, bool), room: usize, seed: u64) {
    let rig = Rig::shared();
    let given = symmetric(kind, n, seed, zeros);
    let (a, info) = (put(kind, &[&given.triangle(upper)], room), infos(1));
    let pivots = rig.put(&vec![0i64; n]);
    let factor = Indefinite { upper, n: n as u64, a: a.clone(), pivots, wide, info, ..Indefinite::default() };
    rig.call(&factor).unwrap();
    // A matrix of one row whose element is zero has no inverse.
    let singular = zeros && n % 2 == 1;
    if singular && n == 1 {
        assert_eq!(rig.get::<i32>(info, 1).unwrap(), [1]);
        return;
    }
    assert_eq!(rig.get::<i32>(info, 1).unwrap(), [0]);
    let right = given.times(&random(kind, n, 3, seed + 1));
    let b = put(kind, &[&right], room);
    rig.call(&Indefinite { task: Task::Solve, columns: 3, b: b.clone(), ..factor.clone() }).unwrap();
    // Residuals are small as far as solutions are not large.
    let x = get(&b, n, 3, 0);
    let product = given.times(&x);
    let distance = M::new(n, 3, |i, j| product.get(i, j) - right.get(i, j)).size();
    let single = matches!(kind, DataType::F32 | DataType::C32);
    let tolerance = if single { 1e-4 } else { 1e-12 } * (1.0 + n as f64);
    assert!(distance <= tolerance * (1.0 + x.size()) * given.size(), "A X = B: {distance} {factor:?}");
    // Without exchanges, where nothing is in their way.
    let far =
        M::new(n, n, |i, j| given.get(i, j) + if i == j { C::from(4.0 * n as f64) } else { C::default() });
    let plain = put(kind, &[&far.triangle(upper)], room);
    let factor = Indefinite { pivots: 0, a: plain, ..factor };
    rig.call(&factor).unwrap();
    let right = random(kind, n, 2, seed + 2);
    let b = put(kind, &[&right], room);
    rig.call(&Indefinite { task: Task::Solve, columns: 2, b: b.clone(), ..factor }).unwrap();
    far.times(&get(&b, n, 2, 0)).is(&right, kind, "A X = B without exchanges");
}

/// A real vector of two columns is a complex one and its conjugate.
fn vectors_of(kind: DataType, stored: &M, values: &[C]) -> M {
    M::new(stored.rows, stored.columns, |i, j| {
        if complex(kind) || values[j].im == 0.0 {
            stored.get(i, j)
        } else if values[j].im > 0.0 {
            C::new(stored.get(i, j).re, stored.get(i, j + 1).re)
        } else {
            C::new(stored.get(i, j - 1).re, -stored.get(i, j).re)
        }
    })
}

fn spectrum(kind: DataType, n: usize, apart: bool, room: usize, seed: u64) {
    let rig = Rig::shared();
    let given = random(kind, n, n, seed);
    let (a, info) = (put(kind, &[&given], room), infos(1));
    let vectors = put(kind, &[&given], room);
    let values = rig.put(&vec![0u8; 16 * n]);
    let apart = apart && !complex(kind);
    let eigen = Eigen { n: n as u64, a: a.clone(), values, apart, vectors: vectors.clone(), info };
    rig.call(&eigen).unwrap();
    assert_eq!(rig.get::<i32>(info, 1).unwrap(), [0]);
    let values_now = || {
        let parts = reals(kind, values, 2 * n);
        let of = |i: usize| if apart { (i, n + i) } else { (2 * i, 2 * i + 1) };
        (0..n).map(|i| C::new(parts[of(i).0], parts[of(i).1])).collect::<Vec<_>>()
    };
    let found = values_now();
    let v = vectors_of(kind, &get(&vectors, n, n, 0), &found);
    let scaled = M::new(n, n, |i, j| v.get(i, j) * found[j]);
    given.times(&v).is(&scaled, kind, "A V = V W");
    for j in 0..n {
        let length: f64 = (0..n).map(|i| v.get(i, j).norm_sqr()).sum();
        assert!((length - 1.0).abs() < 1e-4, "a vector of the length {length}");
    }
    // Without vectors the values are the same, maybe in another order; so their sums of powers are.
    rig.call(&Eigen { vectors: Matrix::default(), ..eigen }).unwrap();
    let again = values_now();
    for power in 1..4 {
        let sum = |all: &[C]| all.iter().map(|x| x.powi(power)).sum::<C>();
        let size: f64 = found.iter().map(|x| x.norm().powi(power)).sum();
        assert!((sum(&found) - sum(&again)).norm() < 1e-3 * (1.0 + size));
    }
    let trace: C = (0..n).map(|i| given.get(i, i)).sum();
    assert!((trace - found.iter().sum::<C>()).norm() < 1e-3 * (1.0 + n as f64));
}

fn largest(kind: DataType, (m, n, rank): (usize, usize, usize), room: usize, seed: u64) {
    let rig = Rig::shared();
    let problems: Vec<M> = (0..2).map(|p| random(kind, m, n, seed + p)).collect();
    let a = put(kind, &problems.iter().collect::<Vec<_>>(), room);
    let blank = |rows| put(kind, &[&M::new(rows, rank.max(1), |_, _| C::default()); 2], room);
    let (u, v, info) = (blank(m), blank(n), infos(2));
    let stride = n + 1;
    let values = rig.put(&vec![0u8; 8 * 2 * stride]);
    let residuals = rig.put(&[9.0f64; 2]);
    let all = rig.put(&vec![0u8; 8 * 2 * n]);
    rig.call(&LargestSvd {
        m: m as u64,
        n: n as u64,
        rank: rank as u64,
        a: a.clone(),
        values,
        stride: stride as u64,
        u: u.clone(),
        v: v.clone(),
        residuals,
        info,
        count: 2,
    })
    .unwrap();
    assert_eq!(rig.get::<i32>(info, 2).unwrap(), [0; 2]);
    rig.call(&Svd {
        m: m as u64,
        n: n as u64,
        a,
        values: all,
        left: Vectors::None,
        right: Vectors::None,
        info,
        count: 2,
        ..Svd::default()
    })
    .unwrap();
    let (found, all) = (reals(kind, values, 2 * stride), reals(kind, all, 2 * n));
    for (p, problem) in problems.iter().enumerate() {
        let (some, all) = (&found[p * stride..][..rank], &all[p * n..][..n]);
        assert!(some.iter().zip(all).all(|(a, b)| (a - b).abs() < 1e-4 * (1.0 + b)), "{some:?} {all:?}");
        if rank == 0 {
            continue;
        }
        let (u, v) = (get(&u, m, rank, p), get(&v, n, rank, p));
        u.adjoint().times(&u).is(&M::one(rank), kind, "Uᴴ U");
        v.adjoint().times(&v).is(&M::one(rank), kind, "Vᴴ V");
        let scaled = M::new(m, rank, |i, j| u.get(i, j) * some[j]);
        problem.times(&v).is(&scaled, kind, "A V = U S");
        let missing: f64 = all[rank..].iter().map(|s| s * s).sum::<f64>().sqrt();
        let said = rig.get::<f64>(residuals, 2).unwrap()[p];
        assert!((said - missing).abs() < 1e-3 * (1.0 + missing), "{said} instead of {missing}");
    }
}

/// The product of reflections whose vectors are the columns of a matrix, from these rows on.
fn product(vectors: &M, tau: &[C], first: usize) -> M {
    let n = vectors.rows;
    let mut all = M::one(n);
    for (k, tau) in tau.iter().enumerate().take(vectors.columns) {
        let v = M::new(n, 1, |i, _| match i.cmp(&(k + first)) {
            std::cmp::Ordering::Less => C::default(),
            std::cmp::Ordering::Equal => C::from(1.0),
            std::cmp::Ordering::Greater => vectors.get(i, k),
        });
        let square = v.times(&v.adjoint());
        let one = M::one(n);
        let h = M::new(n, n, |i, j| one.get(i, j) - tau * square.get(i, j));
        all = if k + first < n { all.times(&h) } else { all };
    }
    all
}

fn bidiagonal(kind: DataType, m: usize, n: usize, room: usize, seed: u64) {
    let rig = Rig::shared();
    let (given, least) = (random(kind, m, n, seed), m.min(n));
    let (a, info) = (put(kind, &[&given], room), infos(1));
    let list = |bytes: u64| rig.put(&vec![0u8; least * bytes as usize]);
    let (diagonal, beside, tau_q, tau_p) = (list(8), list(8), list(16), list(16));
    rig.call(&Bidiagonal { m: m as u64, n: n as u64, a: a.clone(), diagonal, beside, tau_q, tau_p, info })
        .unwrap();
    assert_eq!(rig.get::<i32>(info, 1).unwrap(), [0]);
    let stored = get(&a, m, n, 0);
    let (d, e) = (reals(kind, diagonal, least), reals(kind, beside, least - 1));
    let factors = |addr| cooked(kind, &rig.get::<u8>(addr, least * kind.bytes() as usize).unwrap());
    let upper = m >= n;
    let (q, p) = (
        product(&stored, &factors(tau_q), if upper { 0 } else { 1 }),
        product(&stored.adjoint(), &factors(tau_p), if upper { 1 } else { 0 }),
    );
    let b = M::new(m, n, |i, j| {
        let (i, j) = if upper { (i, j) } else { (j, i) };
        C::from(if i == j {
            d[i]
        } else if j == i + 1 {
            e[i]
        } else {
            0.0
        })
    });
    q.times(&q.adjoint()).is(&M::one(m), kind, "Q Qᴴ");
    q.times(&b).times(&p.adjoint()).is(&given, kind, "Q B Pᴴ");
    // The diagonals are stored in the matrix, too.
    let diagonals =
        M::new(m, n, |i, j| if b.get(i, j) == C::default() { C::default() } else { stored.get(i, j) });
    diagonals.is(&b, kind, "the diagonals in the matrix");
}

fn least_squares(
    kind: DataType,
    (m, n): (usize, usize),
    (apart, keeps): (bool, bool),
    room: usize,
    seed: u64,
) {
    let rig = Rig::shared();
    let given: Vec<M> = (0..2).map(|p| random(kind, m, n, seed + p)).collect();
    let rights: Vec<M> = (0..2).map(|p| random(kind, m, 3, seed + 10 + p)).collect();
    let (a, b, info) = (
        put(kind, &given.iter().collect::<Vec<_>>(), room),
        put(kind, &rights.iter().collect::<Vec<_>>(), room),
        infos(2),
    );
    let x = if apart { put(kind, &[&M::new(n, 3, |_, _| C::default()); 2], room) } else { Matrix::default() };
    let work = LeastSquares {
        m: m as u64,
        n: n as u64,
        columns: 3,
        a: a.clone(),
        keeps,
        b: b.clone(),
        x: x.clone(),
        info,
        batch: Batch::Strided,
        count: 2,
    };
    rig.call(&work).unwrap();
    assert_eq!(rig.get::<i32>(info, 2).unwrap(), [0; 2]);
    for p in 0..2 {
        let found = if apart { get(&x, n, 3, p) } else { get(&b, m, 3, p).part(n, 3) };
        let product = given[p].times(&found);
        let left = M::new(m, 3, |i, j| rights[p].get(i, j) - product.get(i, j));
        // What is left has nothing in common with the columns.
        let common = given[p].adjoint().times(&left);
        let single = matches!(kind, DataType::F32 | DataType::C32);
        let tolerance = if single { 1e-4 } else { 1e-12 } * (1.0 + m as f64) * (1.0 + found.size());
        assert!(common.size() <= tolerance * (1.0 + given[p].size()), "{}", common.size());
        if apart {
            assert_eq!(get(&b, m, 3, p), rights[p], "B stays");
        }
        if keeps {
            let qr = put(kind, &[&given[p]], room);
            let tau = rig.put(&vec![0u8; n * kind.bytes() as usize]);
            let (rows, columns) = (m as u64, n as u64);
            rig.call(&Qr { m: rows, n: columns, k: columns, a: qr.clone(), tau, ..Qr::default() }).unwrap();
            assert_eq!(get(&a, m, n, p), get(&qr, m, n, 0));
            // The same of matrices anywhere.
            let again = put(kind, &[&given[p]], room);
            let tau_again = rig.put(&vec![0u8; n * kind.bytes() as usize]);
            let lists = Matrix { addr: rig.put(&[again.addr]), ..again.clone() };
            rig.call(&QrBatch { m: rows, n: columns, a: lists, tau: rig.put(&[tau_again]), count: 1 })
                .unwrap();
            assert_eq!(get(&again, m, n, 0), get(&qr, m, n, 0));
            let bytes = n * kind.bytes() as usize;
            assert_eq!(rig.get::<u8>(tau_again, bytes).unwrap(), rig.get::<u8>(tau, bytes).unwrap());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(40) })]

    #[test]
    fn symmetric_systems(kind in kinds(), n in 1usize..14, flags: (bool, bool, bool), room in 0usize..3, seed in 1u64..10_000) {
        indefinite(kind, n, flags, room, seed);
    }

    #[test]
    fn eigenvalues_of_any_matrix(kind in kinds(), n in 1usize..12, apart: bool, room in 0usize..3, seed in 1u64..10_000) {
        spectrum(kind, n, apart, room, seed);
    }

    #[test]
    fn largest_singular_values(kind in kinds(), n in 1usize..9, more in 0usize..5, less in 0usize..9, room in 0usize..3, seed in 1u64..10_000) {
        largest(kind, (n + more, n, n.saturating_sub(less)), room, seed);
    }

    #[test]
    fn bidiagonal_forms(kind in kinds(), m in 1usize..10, n in 1usize..10, room in 0usize..3, seed in 1u64..10_000) {
        bidiagonal(kind, m, n, room, seed);
    }

    #[test]
    fn least_squares_of_batches(kind in kinds(), n in 1usize..8, more in 0usize..5, flags: (bool, bool), room in 0usize..3, seed in 1u64..10_000) {
        least_squares(kind, (n + more, n), flags, room, seed);
    }

    #[test]
    fn triangles_are_packed(kind in kinds(), n in 1usize..9, upper: bool, room in 0usize..3, seed in 1u64..10_000) {
        let rig = Rig::shared();
        let (given, count) = (random(kind, n, n, seed), n * (n + 1) / 2);
        let (a, each) = (put(kind, &[&given], room), kind.bytes() as usize);
        let packed = rig.put(&vec![0u8; count * each]);
        let work = PackTriangle { packs: true, upper, n: n as u64, a, packed };
        rig.call(&work).unwrap();
        let wanted: Vec<C> = (0..n)
            .flat_map(|j| if upper { 0..j + 1 } else { j..n }.map(move |i| (i, j)))
            .map(|(i, j)| given.get(i, j))
            .collect();
        prop_assert_eq!(cooked(kind, &rig.get::<u8>(packed, count * each).unwrap()), wanted);
        let other = random(kind, n, n, seed + 1);
        let b = put(kind, &[&other], room);
        rig.call(&PackTriangle { packs: false, a: b.clone(), ..work }).unwrap();
        let there = |i: usize, j: usize| if upper { i <= j } else { i >= j };
        let wanted = M::new(n, n, |i, j| if there(i, j) { given.get(i, j) } else { other.get(i, j) });
        prop_assert_eq!(get(&b, n, n, 0), wanted);
    }
}

/// What LAPACK's `dsytrf` gives for a matrix, in both forms: factors row by row, and pivots.
#[test]
fn symmetric_factors_are_stored_as_lapack_stores_them() {
    let rig = Rig::shared();
    let rows = [
        [0.0, 2.0, -1.0, 3.0, 1.0],
        [2.0, 0.0, 4.0, -2.0, 0.5],
        [-1.0, 4.0, 1e-3, 1.0, 2.0],
        [3.0, -2.0, 1.0, 0.0, -1.0],
        [1.0, 0.5, 2.0, -1.0, 1.0],
    ];
    let third = 1.0 / 3.0;
    let lower = [
        [0.0, 0.0, 0.0, 0.0, 0.0],
        [3.0, 0.0, 0.0, 0.0, 0.0],
        [third, -third, 2.6666666666666665, 0.0, 0.0],
        [-2.0 * third, 2.0 * third, 1.0, -1.9990000000000003, 0.0],
        [-third, third, 0.6874999999999999, 0.2501250625312654, 0.5313125312656328],
    ];
    let upper = [
        [-0.39900000000000047, 1.2, 0.6, -0.6, 1.0],
        [0.0, 0.65, -0.3, 0.3, 0.5],
        [0.0, 0.0, -1.0, 4.0, 2.0],
        [0.0, 0.0, 0.0, -1.0, -1.0],
        [0.0, 0.0, 0.0, 0.0, 1.0],
    ];
    let matrix = |rows: &[[f64; 5]; 5]| M::new(5, 5, |i, j| C::from(rows[i][j]));
    for (is_upper, factors, pivots) in [(false, lower, [-4, -4, 4, 4, 5]), (true, upper, [-1, -1, -1, -1, 5])]
    {
        let (a, at, info) = (put(DataType::F64, &[&matrix(&rows)], 1), rig.put(&[0i32; 5]), infos(1));
        rig.call(&Indefinite {
            upper: is_upper,
            n: 5,
            a: a.clone(),
            pivots: at,
            info,
            ..Indefinite::default()
        })
        .unwrap();
        get(&a, 5, 5, 0).triangle(is_upper).is(&matrix(&factors), DataType::F64, "factors");
        assert_eq!(rig.get::<i32>(at, 5).unwrap(), pivots);
        assert_eq!(rig.get::<i32>(info, 1).unwrap(), [0]);
    }
}

#[test]
fn columns_that_depend_on_each_other_are_told() {
    let rig = Rig::shared();
    let column = [3.0, 4.0, 0.0];
    let given = M::new(3, 2, |i, _| C::from(column[i]));
    let right = M::new(3, 1, |_, _| C::from(1.0));
    let (a, info) = (put(DataType::F64, &[&given], 0), infos(1));
    let (b, x) =
        (put(DataType::F64, &[&right], 0), put(DataType::F64, &[&M::new(2, 1, |_, _| C::from(7.0))], 0));
    let work = LeastSquares {
        m: 3,
        n: 2,
        columns: 1,
        a,
        b,
        x: x.clone(),
        info,
        count: 1,
        ..LeastSquares::default()
    };
    rig.call(&work).unwrap();
    assert_eq!(rig.get::<i32>(info, 1).unwrap(), [2]);
    assert_eq!(get(&x, 2, 1, 0), M::new(2, 1, |_, _| C::from(7.0)), "there is no solution");
    let zero = M::new(3, 3, |_, _| C::default());
    let a = put(DataType::F64, &[&zero], 0);
    let pivots = rig.put(&[0i32; 3]);
    rig.call(&Indefinite { n: 3, a, pivots, info, ..Indefinite::default() }).unwrap();
    assert_eq!(rig.get::<i32>(info, 1).unwrap(), [1]);
}
