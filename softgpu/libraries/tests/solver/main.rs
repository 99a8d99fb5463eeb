//! Factorisations, by what they are: products of their factors, orthogonality, residuals.

mod matrices;
mod more;
#[path = "../rig/mod.rs"]
mod rig;

use matrices::*;
use proptest::prelude::*;
use rgpu_device::Code;
use rgpu_libraries::{
    Batch, Cholesky, DataType, HermitianEigen, Lu, Matrix, Qr, Svd, Task, Transpose, Vectors,
};
use rig::Rig;

fn positive(kind: DataType, n: usize, seed: u64) -> M {
    let x = random(kind, n, n, seed);
    let product = x.times(&x.adjoint());
    M::new(n, n, |i, j| product.get(i, j) + if i == j { C::from(1.0) } else { C::default() })
}

fn cholesky(kind: DataType, n: usize, upper: bool, room: usize, seed: u64) {
    let rig = Rig::shared();
    let problems: Vec<M> = (0..3).map(|p| positive(kind, n, seed + p)).collect();
    let a = put(kind, &problems.iter().collect::<Vec<_>>(), room);
    let info = infos(3);
    let factor = Cholesky { upper, n: n as u64, a: a.clone(), info, count: 3, ..Cholesky::default() };
    rig.call(&factor).unwrap();
    assert_eq!(rig.get::<i32>(info, 3).unwrap(), [0; 3]);
    let rights: Vec<M> = (0..3).map(|p| random(kind, n, 2, seed + 50 + p)).collect();
    let b = put(kind, &rights.iter().collect::<Vec<_>>(), room);
    rig.call(&Cholesky { task: Task::Solve, columns: 2, b: b.clone(), ..factor.clone() }).unwrap();
    for (p, problem) in problems.iter().enumerate() {
        let stored = get(&a, n, n, p);
        let triangle = stored.triangle(upper);
        let product =
            if upper { triangle.adjoint().times(&triangle) } else { triangle.times(&triangle.adjoint()) };
        product.is(problem, kind, "L Lᴴ");
        let strict = |m: &M| {
            M::new(
                n,
                n,
                |i, j| if (upper && i > j) || (!upper && i < j) { m.get(i, j) } else { C::default() },
            )
        };
        strict(&stored).is(&strict(problem), kind, "the other triangle stays");
        problem.times(&get(&b, n, 2, p)).is(&rights[p], kind, "A X = B");
    }
    // A list of addresses instead of a distance.
    let each = n * a.ld as usize * kind.bytes() as usize;
    let again = put(kind, &problems.iter().collect::<Vec<_>>(), room);
    let list: Vec<u64> = [2, 0, 1].iter().map(|p| again.addr + (p * each) as u64).collect();
    let scattered = Matrix { addr: rig.put(&list), ..again.clone() };
    rig.call(&Cholesky { a: scattered, batch: Batch::Pointers, ..factor.clone() }).unwrap();
    for p in 0..3 {
        assert_eq!(get(&again, n, n, p), get(&a, n, n, p));
    }
    rig.call(&Cholesky { task: Task::Form, ..factor }).unwrap();
    for (p, problem) in problems.iter().enumerate() {
        let half = get(&a, n, n, p).triangle(upper);
        let inverse =
            M::new(
                n,
                n,
                |i, j| if (i <= j) == upper || i == j { half.get(i, j) } else { half.get(j, i).conj() },
            );
        problem.times(&inverse).is(&M::one(n), kind, "A A⁻¹");
    }
}

#[test]
fn the_pivots_of_a_permutation_lead_to_its_order() {
    let rig = Rig::shared();
    for order in [vec![0, 1, 2], vec![2, 0, 1, 3], vec![3, 2, 1, 0], vec![1, 2, 3, 4, 0]] {
        let n = order.len();
        let given = M::new(n, n, |i, j| if i == order[j] { C::from(1.0) } else { C::default() });
        let (a, info, pivots) = (put(DataType::F64, &[&given], 0), infos(1), rig.put(&vec![0i32; n]));
        rig.call(&Lu { m: n as u64, n: n as u64, a, pivots, info, count: 1, ..Lu::default() }).unwrap();
        let mut rows: Vec<usize> = (0..n).collect();
        for (i, from) in rig.get::<i32>(pivots, n).unwrap().into_iter().enumerate() {
            assert!(from as usize > i, "row {i} is exchanged with {from}, which has its place already");
            rows.swap(i, from as usize - 1);
        }
        assert_eq!(rows, order);
    }
}

fn lu(kind: DataType, m: usize, n: usize, wide: bool, room: usize, seed: u64) {
    let rig = Rig::shared();
    let given = random(kind, m, n, seed);
    let (a, info) = (put(kind, &[&given], room), infos(1));
    let least = m.min(n);
    let pivots = rig.put(&vec![-3i64; least]);
    let factor = Lu { m: m as u64, n: n as u64, a: a.clone(), pivots, wide, info, count: 1, ..Lu::default() };
    rig.call(&factor).unwrap();
    assert_eq!(rig.get::<i32>(info, 1).unwrap(), [0]);
    let stored = get(&a, m, n, 0);
    let lower = M::new(m, least, |i, j| match i.cmp(&j) {
        std::cmp::Ordering::Equal => C::from(1.0),
        std::cmp::Ordering::Greater => stored.get(i, j),
        std::cmp::Ordering::Less => C::default(),
    });
    // Complex numbers are compared by the sum of their parts.
    assert!(lower.at.iter().all(|x| x.norm() < 1.42), "the largest element of a column is the pivot");
    let upper = M::new(least, n, |i, j| if i <= j { stored.get(i, j) } else { C::default() });
    let swaps: Vec<i64> = if wide {
        rig.get::<u64>(pivots, least).unwrap().into_iter().map(|p| p as i64).collect()
    } else {
        rig.get::<i32>(pivots, least).unwrap().into_iter().map(i64::from).collect()
    };
    let mut order: Vec<usize> = (0..m).collect();
    swaps.iter().enumerate().for_each(|(i, &from)| order.swap(i, from as usize - 1));
    let exchanged = M::new(m, n, |i, j| given.get(order[i], j));
    lower.times(&upper).is(&exchanged, kind, "L U = P A");
    if m != n {
        return;
    }
    // Rows are compared by their residuals, in a matrix that is far from singular.
    let given = M::new(n, n, |i, j| given.get(i, j) + if i == j { C::from(n as f64) } else { C::default() });
    let a = put(kind, &[&given], room);
    let factor = Lu { a, ..factor };
    rig.call(&factor).unwrap();
    for op in [Transpose::None, Transpose::Transposed, Transpose::Adjoint] {
        let used = match op {
            Transpose::None => given.clone(),
            Transpose::Adjoint => given.adjoint(),
            _ => M::new(n, n, |i, j| given.get(j, i)),
        };
        let right = random(kind, n, 3, seed + 1);
        let b = put(kind, &[&right], room);
        rig.call(&Lu { task: Task::Solve, op, columns: 3, b: b.clone(), ..factor.clone() }).unwrap();
        used.times(&get(&b, n, 3, 0)).is(&right, kind, "op(A) X = B");
    }
    let plain = put(kind, &[&given], room);
    rig.call(&Lu { pivots: 0, a: plain.clone(), ..factor }).unwrap();
    let stored = get(&plain, n, n, 0);
    let lower = M::new(n, n, |i, j| if i == j { C::from(1.0) } else { stored.triangle(false).get(i, j) });
    lower.times(&stored.triangle(true)).is(&given, kind, "L U = A");
}

fn qr(kind: DataType, m: usize, n: usize, room: usize, seed: u64) {
    let rig = Rig::shared();
    let given = random(kind, m, n, seed);
    let k = m.min(n);
    let (a, info) = (put(kind, &[&given], room), infos(1));
    let tau = rig.put(&vec![0u8; k.max(1) * kind.bytes() as usize]);
    let factor = Qr { m: m as u64, n: n as u64, k: k as u64, a: a.clone(), tau, info, ..Qr::default() };
    rig.call(&factor).unwrap();
    let stored = get(&a, m, n, 0);
    let r = M::new(m, n, |i, j| if i <= j { stored.get(i, j) } else { C::default() });
    assert!((0..k).all(|i| r.get(i, i).im == 0.0), "the diagonal is real");
    // Q by multiplying.
    let c = put(kind, &[&M::one(m)], room);
    let apply = Qr { task: Task::Apply, n: m as u64, c: c.clone(), ..factor.clone() };
    rig.call(&apply).unwrap();
    let q = get(&c, m, m, 0);
    q.adjoint().times(&q).is(&M::one(m), kind, "Qᴴ Q");
    q.times(&r).is(&given, kind, "Q R = A");
    for (right, op) in [(false, Transpose::Adjoint), (true, Transpose::None), (true, Transpose::Adjoint)] {
        let by = if right { random(kind, 4, m, seed + 1) } else { random(kind, m, 4, seed + 1) };
        let c = put(kind, &[&by], room);
        let shape = (by.rows as u64, by.columns as u64);
        rig.call(&Qr { right, op, m: shape.0, n: shape.1, c: c.clone(), ..apply.clone() }).unwrap();
        let used = if op == Transpose::None { q.clone() } else { q.adjoint() };
        let wanted = if right { by.times(&used) } else { used.times(&by) };
        get(&c, by.rows, by.columns, 0).is(&wanted, kind, "products with Q");
    }
    if m >= n {
        rig.call(&Qr { task: Task::Form, ..factor }).unwrap();
        get(&a, m, n, 0).is(&q.part(m, n), kind, "the first columns of Q");
    }
    assert_eq!(rig.get::<i32>(info, 1).unwrap(), [0]);
}

fn eigen(kind: DataType, n: usize, upper: bool, room: usize, seed: u64) {
    let rig = Rig::shared();
    let problems: Vec<M> = (0..2)
        .map(|p| {
            let x = random(kind, n, n, seed + p);
            M::new(n, n, |i, j| x.get(i, j) + x.get(j, i).conj())
        })
        .collect();
    let spoilt: Vec<M> = problems.iter().map(|m| m.triangle(upper)).collect();
    let (a, info) = (put(kind, &spoilt.iter().collect::<Vec<_>>(), room), infos(2));
    let values = rig.put(&vec![0u8; 2 * n.max(1) * 8]);
    let eigen = HermitianEigen { vectors: true, upper, n: n as u64, a: a.clone(), values, info, count: 2 };
    rig.call(&eigen).unwrap();
    assert_eq!(rig.get::<i32>(info, 2).unwrap(), [0; 2]);
    let found = reals(kind, values, 2 * n);
    for (p, problem) in problems.iter().enumerate() {
        let (w, v) = (&found[p * n..][..n], get(&a, n, n, p));
        assert!(w.windows(2).all(|w| w[0] <= w[1]), "{w:?}");
        v.adjoint().times(&v).is(&M::one(n), kind, "Vᴴ V");
        let scaled = M::new(n, n, |i, j| v.get(i, j) * w[j]);
        problem.times(&v).is(&scaled, kind, "A V = V W");
    }
    let a = put(kind, &spoilt.iter().collect::<Vec<_>>(), room);
    rig.call(&HermitianEigen { vectors: false, a, ..eigen }).unwrap();
    for (alone, with) in reals(kind, values, 2 * n).into_iter().zip(found) {
        assert!((alone - with).abs() < 1e-4 * (1.0 + with.abs()), "{alone} {with}");
    }
}

fn svd(kind: DataType, m: usize, n: usize, wanted: Vectors, adjoint: bool, room: usize, seed: u64) {
    let rig = Rig::shared();
    let least = m.min(n);
    let problems: Vec<M> = (0..2).map(|p| random(kind, m, n, seed + p)).collect();
    let (a, info) = (put(kind, &problems.iter().collect::<Vec<_>>(), room), infos(2));
    let values = rig.put(&vec![0u8; 2 * least.max(1) * 8]);
    let (left, right) = match wanted {
        Vectors::None => (0, 0),
        Vectors::Thin => (least, least),
        Vectors::All => (m, n),
    };
    let blank = |rows, columns| {
        let m = M::new(rows, columns, |_, _| C::default());
        put(kind, &[&m, &m], room)
    };
    let u = blank(m, left);
    let v = if adjoint { blank(right, n) } else { blank(n, right) };
    let svd = Svd {
        m: m as u64,
        n: n as u64,
        a,
        values,
        left: wanted,
        u: u.clone(),
        right: wanted,
        v: v.clone(),
        adjoint,
        info,
        count: 2,
    };
    rig.call(&svd).unwrap();
    assert_eq!(rig.get::<i32>(info, 2).unwrap(), [0; 2]);
    let found = reals(kind, values, 2 * least);
    for (p, problem) in problems.iter().enumerate() {
        let s = &found[p * least..][..least];
        assert!(s.windows(2).all(|s| s[0] >= s[1]) && s.iter().all(|&s| s >= 0.0), "{s:?}");
        let sum: f64 = s.iter().map(|s| s * s).sum();
        assert!((sum.sqrt() - problem.size()).abs() < 1e-4 * (1.0 + problem.size()));
        if wanted == Vectors::None {
            continue;
        }
        let u = get(&u, m, left, p);
        let v = if adjoint { get(&v, right, n, p) } else { get(&v, n, right, p).adjoint() };
        u.adjoint().times(&u).is(&M::one(left), kind, "Uᴴ U");
        v.times(&v.adjoint()).is(&M::one(right), kind, "Vᴴ V");
        let scaled = M::new(m, least, |i, j| u.get(i, j) * s[j]);
        let v = v.part(least, n);
        scaled.times(&v).is(problem, kind, "U S Vᴴ = A");
    }
}

pub(crate) fn kinds() -> impl Strategy<Value = DataType> {
    prop::sample::select(&[DataType::F32, DataType::F64, DataType::C32, DataType::C64][..])
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(40) })]

    #[test]
    fn cholesky_factors(kind in kinds(), n in 1usize..24, upper: bool, room in 0usize..3, seed in 1u64..10_000) {
        cholesky(kind, n, upper, room, seed);
    }

    #[test]
    fn triangles(kind in kinds(), m in 1usize..20, n in 1usize..20, square: bool, wide: bool, room in 0usize..3, seed in 1u64..10_000) {
        lu(kind, m, if square { m } else { n }, wide, room, seed);
    }

    #[test]
    fn reflections(kind in kinds(), m in 1usize..20, n in 1usize..20, room in 0usize..3, seed in 1u64..10_000) {
        qr(kind, m, n, room, seed);
    }

    #[test]
    fn eigenvalues(kind in kinds(), n in 1usize..20, upper: bool, room in 0usize..3, seed in 1u64..10_000) {
        eigen(kind, n, upper, room, seed);
    }

    #[test]
    fn singular_values(kind in kinds(), m in 1usize..20, n in 1usize..20, wanted in prop::sample::select(Vectors::ALL), adjoint: bool, room in 0usize..3, seed in 1u64..10_000) {
        svd(kind, m, n, wanted, adjoint, room, seed);
    }
}

#[test]
fn what_cannot_be_factored_says_where() {
    let rig = Rig::new();
    let info = rig.put(&[-1i32; 2]);
    let addr = rig.put(&[4.0f64, 2.0, 2.0, 1.0 - 3.0, 1.0, 0.0, 0.0, 1.0]);
    let a = Matrix { addr, kind: DataType::F64, ld: 2, stride: 4 };
    rig.call(&Cholesky { n: 2, a: a.clone(), info, count: 2, ..Cholesky::default() }).unwrap();
    assert_eq!(rig.get::<i32>(info, 2).unwrap(), [2, 0]);
    let addr = rig.put(&[1.0f64, 2.0, 2.0, 4.0]);
    let a = Matrix { addr, ..a };
    let pivots = rig.put(&[0i32; 2]);
    let lu = Lu { m: 2, n: 2, a: a.clone(), pivots, info, count: 1, ..Lu::default() };
    rig.call(&lu).unwrap();
    assert_eq!(rig.get::<i32>(info, 1).unwrap(), [2]);
    let pivots = rig.put(&[9i32, 9]);
    rig.call(&Lu { task: Task::Solve, columns: 1, b: a.clone(), pivots, ..lu.clone() }).unwrap();
    assert_eq!(rig.get::<i32>(info, 1).unwrap_err().code, Code::InvalidValue);
    let refused = |lu: Lu, code| assert_eq!(rig.call(&lu).unwrap_err().code, code, "{lu:?}");
    let rig = Rig::new();
    let _ = rig;
    refused(Lu { a: Matrix { kind: DataType::I8, ..a.clone() }, ..lu.clone() }, Code::NotSupported);
    refused(Lu { m: 1 << 40, n: 1 << 40, a: Matrix { ld: 1 << 40, ..a }, ..lu }, Code::InvalidValue);
}
