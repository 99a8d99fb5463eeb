//! Products of matrices, against sums made one by one.

mod rig;

use proptest::prelude::*;
use rgpu_device::Code;
use rgpu_libraries::{DataType, Gemm, Matrix, Scalar, Transpose};
use rig::Rig;

fn matrix(addr: u64, kind: DataType, ld: usize, stride: usize) -> Matrix {
    Matrix { addr, kind, ld: ld as u64, stride: stride as i64 }
}

/// A problem with numbers that are exact in all types.
#[derive(Debug, Clone)]
struct Problem {
    shape: (usize, usize, usize),
    turned: (bool, bool),
    count: usize,
    room: usize,
    factors: (i32, i32),
}

fn problems() -> impl Strategy<Value = Problem> {
    ((0usize..40, 0usize..40, 0usize..40), any::<(bool, bool)>(), 1usize..5, 0usize..3, (-2i32..3, -2i32..3))
        .prop_map(|(shape, turned, count, room, factors)| Problem { shape, turned, count, room, factors })
}

fn numbers(count: usize, seed: usize) -> Vec<f64> {
    (0..count).map(|i| ((i * 7 + seed * 13) % 11) as f64 - 5.0).collect()
}

impl Problem {
    /// Lengths of a problem's A, B and C, and their leading dimensions.
    fn layout(&self) -> [(usize, usize); 3] {
        let (m, n, k) = self.shape;
        let of = |rows: usize, columns: usize| {
            let ld = rows.max(1) + self.room;
            (ld, ld * columns)
        };
        let a = if self.turned.0 { of(k, m) } else { of(m, k) };
        let b = if self.turned.1 { of(n, k) } else { of(k, n) };
        [a, b, of(m, n)]
    }

    fn expected(&self, a: &[f64], b: &[f64], c: &[f64]) -> Vec<f64> {
        let ((m, n, k), [(lda, sa), (ldb, sb), (ldc, sc)]) = (self.shape, self.layout());
        let mut out = c.to_vec();
        for p in 0..self.count {
            for (i, j) in (0..m).flat_map(|i| (0..n).map(move |j| (i, j))) {
                let sum: f64 = (0..k)
                    .map(|l| {
                        let a = if self.turned.0 { a[p * sa + l + i * lda] } else { a[p * sa + i + l * lda] };
                        let b = if self.turned.1 { b[p * sb + j + l * ldb] } else { b[p * sb + l + j * ldb] };
                        a * b
                    })
                    .sum();
                let at = p * sc + i + j * ldc;
                out[at] = f64::from(self.factors.0) * sum + f64::from(self.factors.1) * c[at];
            }
        }
        out
    }

    fn check<T: rig::Plain + Default>(&self, kind: DataType, to: fn(f64) -> T, from: fn(T) -> f64) {
        let rig = Rig::shared();
        let [(lda, sa), (ldb, sb), (ldc, sc)] = self.layout();
        let (a, b) = (numbers(sa * self.count, 1), numbers(sb * self.count, 2));
        let c = numbers(sc * self.count, 3);
        let put = |values: &[f64]| rig.put(&values.iter().map(|&v| to(v)).collect::<Vec<T>>());
        let out = put(&c);
        let op = |turned| if turned { Transpose::Transposed } else { Transpose::None };
        let gemm = Gemm {
            op_a: op(self.turned.0),
            op_b: op(self.turned.1),
            m: self.shape.0 as u64,
            n: self.shape.1 as u64,
            k: self.shape.2 as u64,
            alpha: Scalar::real(self.factors.0.into()),
            a: matrix(put(&a), kind, lda, sa),
            b: matrix(put(&b), kind, ldb, sb),
            beta: Scalar::real(self.factors.1.into()),
            c: matrix(out, kind, ldc, sc),
            compute: if kind == DataType::F64 { kind } else { DataType::F32 },
            count: self.count as u64,
            ..Gemm::default()
        };
        rig.call(&gemm).unwrap();
        let got: Vec<f64> = rig.get::<T>(out, c.len()).unwrap().into_iter().map(from).collect();
        assert_eq!(got, self.expected(&a, &b, &c), "{self:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(40) })]

    #[test]
    fn products_are_sums_of_products(problem in problems()) {
        problem.check::<f32>(DataType::F32, |v| v as f32, f64::from);
        problem.check::<f64>(DataType::F64, |v| v, |v| v);
    }
}

#[test]
fn a_large_product_is_made_in_pieces_by_all_workers() {
    let problem =
        Problem { shape: (300, 200, 100), turned: (true, false), count: 1, room: 1, factors: (2, -1) };
    problem.check::<f64>(DataType::F64, |v| v, |v| v);
}

#[test]
fn memory_of_nobody_is_an_illegal_address() {
    let rig = Rig::new();
    let addr = rig.put(&[1.0f32; 16]);
    let small = |addr| matrix(addr, DataType::F32, 4, 16);
    let gemm = Gemm {
        m: 4,
        n: 4,
        k: 4,
        a: small(addr),
        b: small(addr),
        c: small(addr + (1 << 30)),
        count: 1,
        ..Gemm::default()
    };
    assert_eq!(rig.call(&gemm).unwrap_err().code, Code::IllegalAddress);
    assert_eq!(rig.get::<f32>(addr, 16).unwrap_err().code, Code::IllegalAddress);
}

#[test]
fn arguments_that_make_no_sense_are_refused() {
    let rig = Rig::new();
    let addr = rig.put(&[1.0f32; 16]);
    let good = Gemm {
        m: 4,
        n: 4,
        k: 4,
        a: matrix(addr, DataType::F32, 4, 16),
        b: matrix(addr, DataType::F32, 4, 16),
        c: matrix(addr, DataType::F32, 4, 16),
        count: 1,
        ..Gemm::default()
    };
    rig.call(&good).unwrap();
    let refused = |gemm: Gemm| assert_eq!(rig.call(&gemm).unwrap_err().code, Code::InvalidValue, "{gemm:?}");
    refused(Gemm { a: matrix(addr, DataType::F32, 3, 16), ..good.clone() });
    refused(Gemm { a: matrix(addr, DataType::F64, 4, 16), ..good.clone() });
    refused(Gemm { m: u64::MAX, c: matrix(addr, DataType::F32, usize::MAX, 0), ..good.clone() });
    let far = Matrix { stride: i64::MAX, ..good.c.clone() };
    refused(Gemm { c: far, count: u64::MAX, ..good });
}
