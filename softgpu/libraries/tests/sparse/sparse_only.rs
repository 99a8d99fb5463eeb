//! What has sparse matrices alone, and sparse vectors.

use proptest::prelude::*;
use rgpu_device::Code;
use rgpu_libraries::{
    DataType, DenseMatrix, Scalar, SparseCompress, SparseFormat, SparseMatrix, SparseMultiply, SparseSum,
    SparseVector, SparseVectors, VectorTask,
};

use crate::matrices::*;
use crate::rig::Rig;

/// A matrix by rows without elements, whose rows are not known yet.
fn blank(rows: usize, columns: usize, form: Form) -> SparseMatrix {
    SparseMatrix {
        format: SparseFormat::Csr,
        rows: rows as u64,
        columns: columns as u64,
        offsets: put_numbers(form.wide.0, &vec![77; rows + 1]),
        kind: form.kind,
        wide_offsets: form.wide.0,
        wide_indices: form.wide.1,
        base: form.base,
        ..SparseMatrix::default()
    }
}

/// The same with room for so many elements.
fn with_room(m: SparseMatrix, form: Form, stored: usize) -> SparseMatrix {
    let (indices, values) =
        (put_numbers(form.wide.1, &vec![77; stored]), put_values(form.kind, &vec![77.0; stored]));
    SparseMatrix { stored: stored as u64, indices, values, ..m }
}

/// Ones where a matrix has elements.
fn marks(m: &M) -> M {
    M::new(m.rows, m.columns, |i, j| if m.get(i, j) == 0.0 { 0.0 } else { 1.0 })
}

/// The values of a matrix where another one has elements, row by row.
fn values_at(m: &M, places: &M) -> Vec<f64> {
    let all = m.at.iter().zip(&places.at);
    all.filter(|(_, place)| **place != 0.0).map(|(value, _)| *value).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(60) })]

    #[test]
    fn a_sum_has_the_elements_of_both(
        forms in (forms(), forms(), forms()), (m, n) in (1usize..12, 1usize..12), seed in 0usize..1000,
        (alpha, beta) in (-2i32..3, -2i32..3), on_device: bool,
    ) {
        let rig = Rig::shared();
        let to = Form { format: SparseFormat::Csr, ..forms.2 };
        let (of_a, of_b) = (Form { kind: to.kind, ..forms.0 }, Form { kind: to.kind, ..forms.1 });
        let (a, b) = (random(m, n, seed, 7), random(m, n, seed + 1, 7));
        let places = M::new(m, n, |i, j| marks(&a).get(i, j) + marks(&b).get(i, j));
        let wanted = M::new(m, n, |i, j| f64::from(alpha) * a.get(i, j) + f64::from(beta) * b.get(i, j));
        let (offsets, indices, _) = lists(&places, to);
        let scalar = |x: i32| match on_device {
            true => Scalar::device(put_values(to.kind, &[x.into()])),
            false => Scalar::real(x.into()),
        };
        let total = rig.put(&[-1i32]);
        let c = blank(m, n, to);
        let sum = SparseSum {
            counts: true, alpha: scalar(alpha), a: put_sparse(&a, of_a), beta: scalar(beta),
            b: put_sparse(&b, of_b), c: c.clone(), total,
        };
        rig.call(&sum).unwrap();
        prop_assert_eq!(rig.get::<i32>(total, 1).unwrap(), vec![indices.len() as i32]);
        // How many there are, the second step reads from the offsets.
        let c = SparseMatrix { stored: 0, ..with_room(c, to, indices.len()) };
        rig.call(&SparseSum { counts: false, total: 0, c: c.clone(), ..sum }).unwrap();
        let c = SparseMatrix { stored: indices.len() as u64, ..c };
        prop_assert_eq!(get_sparse(&c, m + 1), (offsets, indices, values_at(&wanted, &places)));
    }

    #[test]
    fn a_product_has_the_elements_that_any_path_leads_to(
        forms in (forms(), forms(), forms()), (m, n, k) in (1usize..12, 1usize..12, 1usize..12),
        seed in 0usize..1000, alpha in -2i32..3,
    ) {
        let rig = Rig::shared();
        let to = Form { format: SparseFormat::Csr, ..forms.2 };
        let (of_a, of_b) = (Form { kind: to.kind, ..forms.0 }, Form { kind: to.kind, ..forms.1 });
        let (a, b) = (random(m, k, seed, 7), random(k, n, seed + 1, 7));
        let (places, product) = (marks(&a).times(&marks(&b)), a.times(&b));
        let wanted = M::new(m, n, |i, j| f64::from(alpha) * product.get(i, j));
        let (offsets, indices, _) = lists(&places, to);
        let total = rig.put(&[-1i64]);
        let c = blank(m, n, to);
        let multiply = SparseMultiply {
            counts: true, alpha: Scalar::real(alpha.into()), a: put_sparse(&a, of_a), b: put_sparse(&b, of_b),
            c: c.clone(), total,
        };
        rig.call(&multiply).unwrap();
        prop_assert_eq!(rig.get::<i64>(total, 1).unwrap(), vec![indices.len() as i64]);
        let c = with_room(c, to, indices.len());
        rig.call(&SparseMultiply { counts: false, total: 0, c: c.clone(), ..multiply }).unwrap();
        prop_assert_eq!(get_sparse(&c, m + 1), (offsets, indices, values_at(&wanted, &places)));
    }

    #[test]
    fn small_elements_go(
        form in forms(), (m, n) in (1usize..12, 1usize..12), seed in 0usize..1000, tolerance in 0i32..5,
    ) {
        let rig = Rig::shared();
        let form = Form { format: SparseFormat::Csr, ..form };
        let a = random(m, n, seed, 5);
        let tolerance = f64::from(tolerance);
        let left = M::new(m, n, |i, j| if a.get(i, j).abs() > tolerance { a.get(i, j) } else { 0.0 });
        let (offsets, indices, values) = lists(&left, form);
        let (per_row, total) = (rig.put(&vec![-1i32; m]), rig.put(&[-1i32]));
        let a = put_sparse(&a, form);
        let b = blank(m, n, form);
        // To count, no columns are needed.
        let counted = SparseMatrix { indices: 0, ..a.clone() };
        let compress = SparseCompress { counts: true, tolerance, a: counted, per_row, b: b.clone(), total };
        rig.call(&compress).unwrap();
        prop_assert_eq!(rig.get::<i32>(total, 1).unwrap(), vec![values.len() as i32]);
        let kept: Vec<i32> = offsets.windows(2).map(|w| (w[1] - w[0]) as i32).collect();
        prop_assert_eq!(rig.get::<i32>(per_row, m).unwrap(), kept);
        let b = SparseMatrix { stored: 0, ..with_room(b, form, values.len()) };
        rig.call(&SparseCompress { counts: false, a, b: b.clone(), ..compress }).unwrap();
        let b = SparseMatrix { stored: values.len() as u64, ..b };
        prop_assert_eq!(get_sparse(&b, m + 1), (offsets, indices, values));
    }

    #[test]
    fn sparse_vectors_meet_dense_ones(
        size in 1usize..20, form in forms(), seed in 0usize..1000, (alpha, beta) in (-2i32..3, -2i32..3),
        task in prop::sample::select(VectorTask::ALL),
    ) {
        let rig = Rig::shared();
        let (sparse, dense) = (random(1, size, seed, 5), random(size, 1, seed + 1, 2));
        let (_, indices, values) = lists(&sparse, Form { format: SparseFormat::Csr, ..form });
        let x = SparseVector {
            size: size as u64,
            stored: values.len() as u64,
            indices: put_numbers(form.wide.1, &indices),
            values: put_values(form.kind, &values),
            kind: form.kind,
            wide: form.wide.1,
            base: form.base,
        };
        let y = put_dense(form.kind, &dense, false, 0);
        let result = put_values(form.kind, &[77.0]);
        let (a, b) = (f64::from(alpha), f64::from(beta));
        rig.call(&SparseVectors {
            task, alpha: Scalar::real(a), beta: Scalar::real(b), conjugates: false, x: x.clone(), y: y.clone(), result,
        }).unwrap();
        let (mut to_x, mut to_y) = (values.clone(), dense.at.clone());
        if task == VectorTask::Add {
            to_y.iter_mut().for_each(|y| *y *= b);
        }
        let mut dot = 0.0;
        for (k, &index) in indices.iter().enumerate() {
            let at = index - form.base as usize;
            match task {
                VectorTask::Gather => to_x[k] = dense.at[at],
                VectorTask::Scatter => to_y[at] = values[k],
                VectorTask::Add => to_y[at] += a * values[k],
                VectorTask::Dot => dot += values[k] * dense.at[at],
                VectorTask::Rotate => {
                    to_x[k] = a * values[k] + b * dense.at[at];
                    to_y[at] = a * dense.at[at] - b * values[k];
                }
            }
        }
        prop_assert_eq!(get_values(form.kind, x.values, values.len()), to_x);
        prop_assert_eq!(get_dense(&y).at, to_y);
        let wanted = if task == VectorTask::Dot { dot } else { 77.0 };
        prop_assert_eq!(get_values(form.kind, result, 1), vec![wanted]);
    }
}

#[test]
fn a_place_outside_of_a_vector_is_an_error_and_touches_nothing() {
    for index in [-1i32, 3, i32::MAX] {
        let rig = Rig::new();
        let y = rig.put(&[5.0f64; 3]);
        let x = SparseVector {
            size: 3,
            stored: 2,
            indices: rig.put(&[0, index]),
            values: rig.put(&[1.0f64; 2]),
            kind: DataType::F64,
            ..SparseVector::default()
        };
        let y = DenseMatrix { addr: y, kind: DataType::F64, rows: 3, columns: 1, ld: 3, by_rows: false };
        let scatter = SparseVectors { task: VectorTask::Scatter, x, y, ..SparseVectors::default() };
        rig.call(&scatter).unwrap();
        assert_eq!(rig.get::<f64>(scatter.y.addr, 3).unwrap_err().code, Code::IllegalAddress, "{index}");
    }
}

#[test]
fn a_result_that_does_not_fit_is_an_error() {
    let form = Form { format: SparseFormat::Csr, wide: (false, false), base: 0, kind: DataType::F64 };
    let rig = Rig::new();
    let place = |values: &[f64]| rig.put(values);
    let a = SparseMatrix {
        rows: 2,
        columns: 2,
        stored: 2,
        offsets: rig.put(&[0i32, 1, 2]),
        indices: rig.put(&[0i32, 1]),
        values: place(&[1.0, 2.0]),
        kind: form.kind,
        ..SparseMatrix::default()
    };
    let c = SparseMatrix { stored: 1, offsets: rig.put(&[0i32; 3]), ..a.clone() };
    let product =
        SparseMultiply { alpha: Scalar::real(1.0), a: a.clone(), b: a, c, ..SparseMultiply::default() };
    rig.call(&product).unwrap();
    assert_eq!(rig.get::<i32>(product.c.offsets, 3).unwrap_err().code, Code::InvalidValue);
}
