//! Matrices of this side, and on a device.

use num_complex::Complex;
use rgpu_libraries::{DataType, Matrix};

use crate::rig::Rig;

pub(crate) type C = Complex<f64>;

/// A matrix on this side, column by column.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct M {
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) at: Vec<C>,
}

impl M {
    pub(crate) fn new(rows: usize, columns: usize, f: impl Fn(usize, usize) -> C) -> Self {
        let at = (0..columns).flat_map(|j| (0..rows).map(move |i| (i, j))).map(|(i, j)| f(i, j)).collect();
        Self { rows, columns, at }
    }
    pub(crate) fn get(&self, i: usize, j: usize) -> C {
        self.at[i + j * self.rows]
    }
    pub(crate) fn one(n: usize) -> Self {
        Self::new(n, n, |i, j| C::from(f64::from(u8::from(i == j))))
    }
    pub(crate) fn adjoint(&self) -> Self {
        Self::new(self.columns, self.rows, |i, j| self.get(j, i).conj())
    }
    pub(crate) fn times(&self, other: &Self) -> Self {
        assert_eq!(self.columns, other.rows);
        Self::new(self.rows, other.columns, |i, j| {
            (0..self.columns).map(|k| self.get(i, k) * other.get(k, j)).sum()
        })
    }
    pub(crate) fn part(&self, rows: usize, columns: usize) -> Self {
        Self::new(rows, columns, |i, j| self.get(i, j))
    }
    pub(crate) fn triangle(&self, upper: bool) -> Self {
        Self::new(self.rows, self.columns, |i, j| {
            if (upper && i <= j) || (!upper && i >= j) { self.get(i, j) } else { C::default() }
        })
    }
    pub(crate) fn size(&self) -> f64 {
        self.at.iter().map(|x| x.norm_sqr()).sum::<f64>().sqrt()
    }
    pub(crate) fn is(&self, other: &Self, kind: DataType, what: &str) {
        let single = matches!(kind, DataType::F32 | DataType::C32);
        let tolerance = if single { 2e-5 } else { 1e-12 } * (1.0 + self.rows as f64);
        let distance = M::new(self.rows, self.columns, |i, j| self.get(i, j) - other.get(i, j)).size();
        assert!(
            distance <= tolerance * (1.0 + other.size()),
            "{what}: {distance} {kind:?}\n{self:?}\n{other:?}"
        );
    }
}

pub(crate) fn complex(kind: DataType) -> bool {
    matches!(kind, DataType::C32 | DataType::C64)
}

/// Numbers that have nothing to do with each other.
pub(crate) fn random(kind: DataType, rows: usize, columns: usize, seed: u64) -> M {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        f64::from((state >> 40) as f32 / (1 << 23) as f32 - 1.0)
    };
    let mut numbers: Vec<C> = Vec::new();
    for _ in 0..rows * columns {
        let (re, im) = (next(), next());
        numbers.push(C::new(re, if complex(kind) { im } else { 0.0 }));
    }
    M { rows, columns, at: numbers }
}

pub(crate) fn raw(kind: DataType, numbers: &[C]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for x in numbers {
        let parts = if complex(kind) { vec![x.re, x.im] } else { vec![x.re] };
        for part in parts {
            match kind {
                DataType::F32 | DataType::C32 => bytes.extend((part as f32).to_le_bytes()),
                _ => bytes.extend(part.to_le_bytes()),
            }
        }
    }
    bytes
}

pub(crate) fn cooked(kind: DataType, bytes: &[u8]) -> Vec<C> {
    let reals: Vec<f64> = match kind {
        DataType::F32 | DataType::C32 => {
            bytes.chunks(4).map(|b| f32::from_le_bytes(b.try_into().unwrap()).into()).collect()
        }
        _ => bytes.chunks(8).map(|b| f64::from_le_bytes(b.try_into().unwrap())).collect(),
    };
    if complex(kind) {
        reals.chunks(2).map(|p| C::new(p[0], p[1])).collect()
    } else {
        reals.into_iter().map(C::from).collect()
    }
}

/// Matrices in device memory with room between their columns.
pub(crate) fn put(kind: DataType, matrices: &[&M], room: usize) -> Matrix {
    let (rows, columns) = (matrices[0].rows, matrices[0].columns);
    let ld = rows.max(1) + room;
    let mut numbers = Vec::new();
    for m in matrices {
        numbers.extend(M::new(ld, columns, |i, j| if i < rows { m.get(i, j) } else { C::from(-9.0) }).at);
    }
    let addr = Rig::shared().put(&raw(kind, &numbers));
    Matrix { addr, kind, ld: ld as u64, stride: (ld * columns) as i64 }
}

pub(crate) fn get(matrix: &Matrix, rows: usize, columns: usize, problem: usize) -> M {
    let ld = matrix.ld as usize;
    let bytes = matrix.kind.bytes();
    let addr = matrix.addr + problem as u64 * matrix.stride as u64 * bytes;
    let numbers = cooked(matrix.kind, &Rig::shared().get::<u8>(addr, ld * columns * bytes as usize).unwrap());
    for (i, x) in numbers.iter().enumerate() {
        assert!(i % ld < rows || *x == C::from(-9.0), "room between columns was written");
    }
    M::new(rows, columns, |i, j| numbers[i + j * ld])
}

pub(crate) fn reals(kind: DataType, addr: u64, count: usize) -> Vec<f64> {
    let rig = Rig::shared();
    match kind {
        DataType::F32 | DataType::C32 => {
            rig.get::<f32>(addr, count).unwrap().into_iter().map(f64::from).collect()
        }
        _ => rig.get::<f64>(addr, count).unwrap(),
    }
}

pub(crate) fn infos(count: usize) -> u64 {
    Rig::shared().put(&vec![-7i32; count])
}
