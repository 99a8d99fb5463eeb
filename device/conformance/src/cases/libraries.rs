//! Operations of mathematical libraries.

use crate::Open;
use crate::bench::{Bench, LEGACY, OWN, code};
use crate::host::PAGE;
use rgpu_device::{Code, LibraryCall, Region, Result};
use rgpu_libraries::{Arguments, Gemm, Library, Matrix, Scalar, Transpose};

fn post(bench: &Bench, stream: u64, work: &impl Arguments) -> Result<()> {
    let (operation, params) = work.written();
    bench.device.library(LibraryCall { stream, operation, params: &params })
}

fn floats(bench: &Bench, addr: u64, values: &[f32]) {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    bench.write(addr, &bytes);
}

fn read(bench: &Bench, addr: u64, count: u64) -> Vec<f32> {
    bench.words(addr, count).into_iter().map(f32::from_bits).collect()
}

fn at(addr: u64, ld: u64) -> Matrix {
    Matrix { addr, ld, ..Matrix::default() }
}

/// `C = 2 A' B + C` with three rows of A and B, and two columns each.
fn product(a: u64, b: u64, c: u64) -> Gemm {
    Gemm {
        op_a: Transpose::Transposed,
        m: 2,
        n: 2,
        k: 3,
        alpha: Scalar::real(2.0),
        a: at(a, 3),
        b: at(b, 4),
        beta: Scalar::real(1.0),
        c: at(c, 2),
        count: 1,
        ..Gemm::default()
    }
}

/// Three matrices in one page, and what [`product`] makes of them.
fn matrices(bench: &Bench) -> ([u64; 3], [f32; 4]) {
    let page = bench.alloc(PAGE);
    let places = [page, page + 256, page + 512];
    floats(bench, places[0], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    // The fourth of each column is not B's.
    floats(bench, places[1], &[1.0, 0.0, -1.0, 99.0, 2.0, 1.0, 0.5, 99.0]);
    floats(bench, places[2], &[100.0, 200.0, 300.0, 400.0]);
    (places, [96.0, 196.0, 311.0, 432.0])
}

/// Versions are told; of libraries and devices that there are not, none.
pub fn libraries_have_versions(open: Open) {
    let bench = Bench::new(open);
    assert!(bench.device.library_version(0, Library::Blas as u32).unwrap() > 0);
    assert_eq!(code(bench.device.library_version(0, 999)), Some(Code::InvalidValue));
    assert_eq!(code(bench.device.library_version(99, Library::Blas as u32)), Some(Code::InvalidDevice));
    bench.sync().unwrap();
}

/// Products of matrices are computed, with factors of the host's and with factors in device memory.
pub fn products_are_computed(open: Open) {
    let bench = Bench::new(open);
    let ([a, b, c], expected) = matrices(&bench);
    post(&bench, LEGACY, &product(a, b, c)).unwrap();
    bench.sync().unwrap();
    assert_eq!(read(&bench, c, 4), expected);

    let factors = bench.alloc(PAGE);
    floats(&bench, factors, &[0.5, 0.0]);
    let (alpha, beta) = (Scalar::device(factors), Scalar::device(factors + 4));
    post(&bench, LEGACY, &Gemm { alpha, beta, ..product(a, b, c) }).unwrap();
    bench.sync().unwrap();
    assert_eq!(read(&bench, c, 4), [-1.0, -1.0, 2.75, 8.0]);
}

/// An operation has its place in its stream's order.
pub fn operations_keep_their_streams_order(open: Open) {
    let bench = Bench::new(open);
    bench.device.stream_create(0, OWN, false, 0).unwrap();
    let ([a, b, c], expected) = matrices(&bench);
    let copy = bench.alloc(PAGE);
    bench.sync().unwrap();
    bench.hold(OWN, 1);
    post(&bench, OWN, &product(a, b, c)).unwrap();
    bench.device.copy_on_device(OWN, Region::linear(copy, 16), Region::linear(c, 16)).unwrap();
    assert_eq!(read(&bench, c, 1), [100.0]);
    bench.release(1);
    bench.sync().unwrap();
    assert_eq!(read(&bench, copy, 4), expected);
}

/// What is no operation is refused, and the device goes on.
pub fn unknown_operations_are_refused(open: Open) {
    let bench = Bench::new(open);
    let ([a, b, c], expected) = matrices(&bench);
    let (gemm, params) = product(a, b, c).written();
    let call = |stream, operation, params| bench.device.library(LibraryCall { stream, operation, params });
    bench.refused(call(LEGACY, 99_999, &params), Code::InvalidValue);
    bench.refused(call(LEGACY, gemm, &params[1..]), Code::InvalidValue);
    bench.refused(call(0x7777, gemm, &params), Code::InvalidHandle);
    post(&bench, LEGACY, &product(a, b, c)).unwrap();
    bench.sync().unwrap();
    assert_eq!(read(&bench, c, 4), expected);
}

/// An address that is not the application's is what it is for a kernel.
pub fn wrong_addresses_stick(open: Open) {
    let bench = Bench::new(open);
    let ([a, _, c], _) = matrices(&bench);
    bench.sync().unwrap();
    let nowhere = bench.fresh(PAGE);
    // Told by the call, or by whoever waits.
    let told = post(&bench, LEGACY, &product(a, nowhere, c)).and_then(|()| bench.sync());
    assert_eq!(code(told), Some(Code::IllegalAddress));
    assert_eq!(code(bench.sync()), Some(Code::IllegalAddress));
    bench.device.reset(0).unwrap();
    bench.sync().unwrap();
}
