//! Products, and one form of a matrix from another.

use proptest::prelude::*;
use rgpu_device::Code;
use rgpu_libraries::{
    DataType, DenseCount, DenseMatrix, DenseToSparse, Iota, SampledProduct, Scalar, SparseConvert,
    SparseFormat, SparseMatrix, SparseProduct, SparseSort, SparseToDense, Transpose,
};

use crate::matrices::*;
use crate::rig::Rig;

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(60) })]

    #[test]
    fn products_are_those_of_the_dense_matrices(
        form in forms(), (m, n, k) in (1usize..12, 1usize..12, 1usize..12), (op_a, op_b) in (ops(), ops()),
        rows in any::<(bool, bool)>(), room in 0usize..3, seed in 0usize..1000, (alpha, beta) in (-2i32..3, -2i32..3),
        on_device: bool,
    ) {
        let rig = Rig::shared();
        let shape = |op, rows, columns| if op == Transpose::None { (rows, columns) } else { (columns, rows) };
        let (a_shape, b_shape) = (shape(op_a, m, k), shape(op_b, k, n));
        let (a, b) = (random(a_shape.0, a_shape.1, seed, 6), random(b_shape.0, b_shape.1, seed + 1, 1));
        let c = random(m, n, seed + 2, 5);
        let scalar = |x: i32| if on_device {
            Scalar::device(put_values(form.kind, &[x.into()]))
        } else {
            Scalar::real(x.into())
        };
        let (alpha_at, beta_at) = (scalar(alpha), scalar(beta));
        let product = a.used(op_a).times(&b.used(op_b));
        let wanted = M::new(m, n, |i, j| f64::from(alpha) * product.get(i, j) + f64::from(beta) * c.get(i, j));
        let out = put_dense(form.kind, &c, rows.1, room);
        let operation = SparseProduct {
            op_a, op_b, alpha: alpha_at, beta: beta_at,
            a: put_sparse(&a, form), b: put_dense(form.kind, &b, rows.0, room), c: out.clone(),
        };
        rig.call(&operation).unwrap();
        prop_assert_eq!(get_dense(&out), wanted);

        let places = put_sparse(&c, form);
        let sampled = SampledProduct {
            op_a, op_b, alpha: alpha_at, beta: beta_at,
            a: put_dense(form.kind, &a, rows.0, room), b: put_dense(form.kind, &b, rows.1, room), c: places.clone(),
        };
        rig.call(&sampled).unwrap();
        let (_, _, got) = get_sparse(&places, 0);
        let by = |f: &dyn Fn(usize, usize) -> f64| {
            let marks = M::new(m, n, |i, j| if c.get(i, j) == 0.0 { 0.0 } else { (i * n + j + 1) as f64 });
            lists(&marks, form).2.into_iter().map(|mark| f((mark as usize - 1) / n, (mark as usize - 1) % n)).collect::<Vec<_>>()
        };
        let at_places = by(&|i, j| f64::from(alpha) * product.get(i, j) + f64::from(beta) * c.get(i, j));
        prop_assert_eq!(got, at_places);
    }

    #[test]
    fn each_form_becomes_each_other(
        form in forms(), to in forms(), (m, n) in (1usize..12, 1usize..12), by_rows: bool, room in 0usize..3,
        seed in 0usize..1000,
    ) {
        let rig = Rig::shared();
        let a = random(m, n, seed, 6);
        let sparse = put_sparse(&a, form);
        let dense = put_dense(form.kind, &M::new(m, n, |_, _| 4.0), by_rows, room);
        rig.call(&SparseToDense { a: sparse.clone(), b: dense.clone() }).unwrap();
        prop_assert_eq!(get_dense(&dense), a.clone());
        // And back.
        let (offsets, indices, values) = lists(&a, form);
        let blank = SparseMatrix {
            offsets: put_numbers(form.wide.0, &vec![77; offsets.len()]),
            indices: put_numbers(form.wide.1, &vec![77; indices.len()]),
            values: put_values(form.kind, &vec![77.0; values.len()]),
            ..sparse.clone()
        };
        let total = rig.put(&[0u64]);
        rig.call(&DenseCount { a: dense.clone(), b: SparseMatrix { stored: 0, ..blank.clone() }, total }).unwrap();
        prop_assert_eq!(rig.get::<u64>(total, 1).unwrap(), vec![values.len() as u64]);
        rig.call(&DenseToSparse { a: dense, b: blank.clone() }).unwrap();
        prop_assert_eq!(get_sparse(&blank, offsets.len()), (offsets, indices, values));
        // Another form.
        let to = Form { kind: form.kind, ..to };
        if form.format == SparseFormat::Coo && to.format == SparseFormat::Coo {
            return Ok(());
        }
        let (offsets, indices, values) = lists(&a, to);
        let other = SparseMatrix {
            format: to.format,
            offsets: put_numbers(to.wide.0, &vec![77; offsets.len()]),
            indices: put_numbers(to.wide.1, &vec![77; indices.len()]),
            values: put_values(form.kind, &vec![77.0; values.len()]),
            wide_offsets: to.wide.0,
            wide_indices: to.wide.1,
            base: to.base,
            ..sparse.clone()
        };
        rig.call(&SparseConvert { a: sparse, b: other.clone() }).unwrap();
        prop_assert_eq!(get_sparse(&other, offsets.len()), (offsets, indices, values));
    }

    #[test]
    fn places_are_sorted_with_their_permutation(places in prop::collection::vec((0i32..6, 0i32..6), 1..40), by_second: bool) {
        let rig = Rig::shared();
        let first: Vec<i32> = places.iter().map(|p| p.0).collect();
        let second: Vec<i32> = places.iter().map(|p| p.1).collect();
        let (a, b, p) = (rig.put(&first), rig.put(&second), rig.put(&vec![-1i32; places.len()]));
        rig.call(&Iota { addr: p, count: places.len() as u64 }).unwrap();
        let count = places.len() as u64;
        rig.call(&SparseSort { first: a, second: b, permutation: p, count, by_second, ..SparseSort::default() }).unwrap();
        let mut wanted: Vec<(i32, i32, i32)> = (0..).zip(&places).map(|(k, p)| (p.0, p.1, k)).collect();
        wanted.sort_by_key(|e| if by_second { (e.1, e.0, e.2) } else { (e.0, e.1, e.2) });
        let got = |addr| rig.get::<i32>(addr, places.len()).unwrap();
        let got: Vec<_> = got(a).into_iter().zip(got(b)).zip(got(p)).map(|((a, b), p)| (a, b, p)).collect();
        prop_assert_eq!(got, wanted);
    }
}

#[test]
fn places_outside_of_a_matrix_are_errors_and_touch_nothing() {
    let form = Form { format: SparseFormat::Csr, wide: (false, false), base: 0, kind: DataType::F64 };
    for (offsets, indices) in [
        ([0i32, 2, 3], [0i32, 9, 1]),
        ([0, 9, 3], [0, 1, 1]),
        ([0, -1, 3], [0, 1, 1]),
        ([0, 3, 2], [0, 1, 1]),
        ([0, 2, 3], [0, -1, 1]),
    ] {
        let rig = Rig::new();
        let a = SparseMatrix {
            format: form.format,
            rows: 2,
            columns: 2,
            stored: 3,
            offsets: rig.put(&offsets),
            indices: rig.put(&indices),
            values: rig.put(&[1.0f64; 3]),
            kind: form.kind,
            ..SparseMatrix::default()
        };
        let dense =
            |addr| DenseMatrix { addr, kind: DataType::F64, rows: 2, columns: 1, ld: 2, by_rows: false };
        let (b, c) = (rig.put(&[1.0f64; 2]), rig.put(&[5.0f64; 2]));
        let product = SparseProduct {
            alpha: Scalar::real(1.0),
            a: a.clone(),
            b: dense(b),
            c: dense(c),
            ..SparseProduct::default()
        };
        let none = SparseMatrix { offsets: 0, ..a };
        assert_eq!(
            rig.call(&SparseProduct { a: none, ..product.clone() }).unwrap_err().code,
            Code::InvalidValue
        );
        rig.call(&product).unwrap();
        assert_eq!(rig.get::<f64>(c, 2).unwrap_err().code, Code::IllegalAddress, "{offsets:?} {indices:?}");
    }
}
