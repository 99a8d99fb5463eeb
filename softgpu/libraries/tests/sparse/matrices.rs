//! Matrices of this side, and on a device.

use proptest::prelude::*;
use rgpu_libraries::{DataType, DenseMatrix, SparseFormat, SparseMatrix, Transpose};

use crate::rig::Rig;

/// A matrix of this side, row by row, in numbers that all types have.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct M {
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) at: Vec<f64>,
}

impl M {
    pub(crate) fn new(rows: usize, columns: usize, f: impl Fn(usize, usize) -> f64) -> Self {
        let at = (0..rows).flat_map(|i| (0..columns).map(move |j| (i, j))).map(|(i, j)| f(i, j)).collect();
        Self { rows, columns, at }
    }
    pub(crate) fn get(&self, i: usize, j: usize) -> f64 {
        self.at[i * self.columns + j]
    }
    pub(crate) fn used(&self, op: Transpose) -> Self {
        match op {
            Transpose::None | Transpose::Conjugated => self.clone(),
            _ => Self::new(self.columns, self.rows, |i, j| self.get(j, i)),
        }
    }
    pub(crate) fn times(&self, other: &Self) -> Self {
        Self::new(self.rows, other.columns, |i, j| {
            (0..self.columns).map(|k| self.get(i, k) * other.get(k, j)).sum()
        })
    }
}

pub(crate) fn random(rows: usize, columns: usize, seed: usize, zeros: usize) -> M {
    M::new(rows, columns, |i, j| {
        let x = (i * 31 + j * 17 + seed * 101) * 2_654_435_761 % 1009;
        if x % 10 < zeros { 0.0 } else { (x % 7) as f64 - 3.0 + if x % 7 == 3 { 5.0 } else { 0.0 } }
    })
}

pub(crate) fn single(kind: DataType) -> bool {
    matches!(kind, DataType::F32 | DataType::C32)
}

pub(crate) fn parts(kind: DataType) -> usize {
    if matches!(kind, DataType::C32 | DataType::C64) { 2 } else { 1 }
}

pub(crate) fn put_values(kind: DataType, values: &[f64]) -> u64 {
    let all: Vec<f64> =
        values.iter().flat_map(|&x| std::iter::once(x).chain((1..parts(kind)).map(|_| 0.0))).collect();
    let rig = Rig::shared();
    if single(kind) { rig.put(&all.iter().map(|&x| x as f32).collect::<Vec<_>>()) } else { rig.put(&all) }
}

pub(crate) fn get_values(kind: DataType, addr: u64, count: usize) -> Vec<f64> {
    let rig = Rig::shared();
    let all: Vec<f64> = if single(kind) {
        rig.get::<f32>(addr, count * parts(kind)).unwrap().into_iter().map(f64::from).collect()
    } else {
        rig.get::<f64>(addr, count * parts(kind)).unwrap()
    };
    all.chunks(parts(kind)).map(|x| x[0]).collect()
}

pub(crate) fn put_numbers(wide: bool, numbers: &[usize]) -> u64 {
    let rig = Rig::shared();
    if wide {
        rig.put(&numbers.iter().map(|&x| x as i64).collect::<Vec<_>>())
    } else {
        rig.put(&numbers.iter().map(|&x| x as i32).collect::<Vec<_>>())
    }
}

pub(crate) fn get_numbers(wide: bool, addr: u64, count: usize) -> Vec<usize> {
    let rig = Rig::shared();
    if wide {
        rig.get::<i64>(addr, count).unwrap().into_iter().map(|x| x as usize).collect()
    } else {
        rig.get::<i32>(addr, count).unwrap().into_iter().map(|x| x as usize).collect()
    }
}

pub(crate) fn put_dense(kind: DataType, m: &M, by_rows: bool, room: usize) -> DenseMatrix {
    let (lines, length) = if by_rows { (m.rows, m.columns) } else { (m.columns, m.rows) };
    let ld = length + room;
    let mut values = vec![-99.0; ld * lines];
    for (i, j) in (0..m.rows).flat_map(|i| (0..m.columns).map(move |j| (i, j))) {
        values[if by_rows { i * ld + j } else { j * ld + i }] = m.get(i, j);
    }
    let addr = put_values(kind, &values);
    DenseMatrix { addr, kind, rows: m.rows as u64, columns: m.columns as u64, ld: ld as u64, by_rows }
}

pub(crate) fn get_dense(m: &DenseMatrix) -> M {
    let (rows, columns, ld) = (m.rows as usize, m.columns as usize, m.ld as usize);
    let lines = if m.by_rows { rows } else { columns };
    let values = get_values(m.kind, m.addr, ld * lines);
    M::new(rows, columns, |i, j| values[if m.by_rows { i * ld + j } else { j * ld + i }])
}

/// How a sparse matrix is stored.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Form {
    pub(crate) format: SparseFormat,
    pub(crate) wide: (bool, bool),
    pub(crate) base: u32,
    pub(crate) kind: DataType,
}

/// Its lists: offsets, indices, values.
pub(crate) fn lists(m: &M, form: Form) -> (Vec<usize>, Vec<usize>, Vec<f64>) {
    let by_columns = form.format == SparseFormat::Csc;
    let (lines, length) = if by_columns { (m.columns, m.rows) } else { (m.rows, m.columns) };
    let base = form.base as usize;
    let (mut offsets, mut indices, mut values) = (Vec::new(), Vec::new(), Vec::new());
    for line in 0..lines {
        if form.format != SparseFormat::Coo {
            offsets.push(values.len() + base);
        }
        for other in 0..length {
            let value = if by_columns { m.get(other, line) } else { m.get(line, other) };
            if value != 0.0 {
                indices.push(other + base);
                values.push(value);
                if form.format == SparseFormat::Coo {
                    offsets.push(line + base);
                }
            }
        }
    }
    if form.format != SparseFormat::Coo {
        offsets.push(values.len() + base);
    }
    (offsets, indices, values)
}

pub(crate) fn put_sparse(m: &M, form: Form) -> SparseMatrix {
    let (offsets, indices, values) = lists(m, form);
    SparseMatrix {
        format: form.format,
        rows: m.rows as u64,
        columns: m.columns as u64,
        stored: values.len() as u64,
        offsets: put_numbers(form.wide.0, &offsets),
        indices: put_numbers(form.wide.1, &indices),
        values: put_values(form.kind, &values),
        kind: form.kind,
        wide_offsets: form.wide.0,
        wide_indices: form.wide.1,
        base: form.base,
    }
}

pub(crate) fn get_sparse(m: &SparseMatrix, offsets: usize) -> (Vec<usize>, Vec<usize>, Vec<f64>) {
    let stored = m.stored as usize;
    (
        get_numbers(m.wide_offsets, m.offsets, offsets),
        get_numbers(m.wide_indices, m.indices, stored),
        get_values(m.kind, m.values, stored),
    )
}

pub(crate) fn forms() -> impl Strategy<Value = Form> {
    let kinds = prop::sample::select(&[DataType::F32, DataType::F64, DataType::C32, DataType::C64][..]);
    (prop::sample::select(SparseFormat::ALL), any::<(bool, bool)>(), 0u32..2, kinds)
        .prop_map(|(format, wide, base, kind)| Form { format, wide, base, kind })
}

pub(crate) fn ops() -> impl Strategy<Value = Transpose> {
    prop::sample::select(&[Transpose::None, Transpose::Transposed, Transpose::Adjoint][..])
}
