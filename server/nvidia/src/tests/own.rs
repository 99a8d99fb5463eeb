//! Operations of libraries over rgpu's own library, which stands for NVIDIA's driver and NVIDIA's libraries: what the calls compute.

use crate::find::{Library as Opened, open as open_driver};
use crate::libraries::Place;
use crate::print::Printed;
use crate::{Config, NvidiaDevice};
use rgpu_conformance::TestHost;
use rgpu_device::{Device, HostData, LibraryCall, MemoryKind, Range, Region, Target};
use rgpu_libraries::{
    Activation, Arguments, Cholesky, DataType, DenseMatrix, DnnGraph, DnnNode, DnnNodeKind, DnnTensor, Fft,
    FftLayout, Matmul, Matrix, NO_TENSOR, Scalar, SparseMatrix, SparseProduct, Svd, Vector, Vectors,
};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The library, where it was built with this test.
fn library() -> Option<PathBuf> {
    let here = std::env::current_exe().ok()?;
    let place = here.parent()?.join("librgpu.so");
    if Opened::open(&place).is_err() {
        eprintln!("SKIPPED: {} is not there; `cargo build --workspace` makes it", place.display());
        return None;
    }
    Some(place)
}

/// The device over the library, and where its memory begins. A process can have one: its addresses stay reserved.
fn open(path: PathBuf) -> (Arc<NvidiaDevice>, u64) {
    let opened = open_driver(Some(&path)).unwrap();
    let (config, own) = (Config { memory: Some(64 << 20), ..Config::default() }, Some(Place::Own(path)));
    let host = Arc::new(TestHost::default());
    let device =
        NvidiaDevice::with_table(opened.table, own, &config, host, Printed::nothing(), None).unwrap();
    // Where the library has the addresses of its own devices' memory.
    let plan = device.reserve(Range { base: 0x2000_0000_0000, size: 1 << 40 }).unwrap();
    (device, plan.devices[0].base)
}

/// A device with 2 MiB of memory, of which operations take what they need.
struct Rig {
    device: Arc<NvidiaDevice>,
    next: AtomicU64,
}

impl Rig {
    fn new(library: PathBuf) -> Self {
        let (device, base) = open(library);
        device.mem_alloc(0, base, 2 << 20, MemoryKind::Device).unwrap();
        Self { device, next: AtomicU64::new(base) }
    }

    /// Memory with these bytes.
    fn bytes(&self, bytes: Vec<u8>) -> u64 {
        let length = bytes.len() as u64;
        let addr = self.next.fetch_add(length.next_multiple_of(256), Relaxed);
        self.device.copy_to_device(0, Region::linear(addr, length), 0, HostData::Owned(bytes)).unwrap();
        addr
    }

    fn floats(&self, values: &[f32]) -> u64 {
        self.bytes(values.iter().flat_map(|value| value.to_le_bytes()).collect())
    }

    fn ints(&self, values: &[i32]) -> u64 {
        self.bytes(values.iter().flat_map(|value| value.to_le_bytes()).collect())
    }

    fn run(&self, work: &impl Arguments) {
        let (operation, params) = work.written();
        self.device.library(LibraryCall { stream: 0, operation, params: &params }).unwrap();
        self.device.synchronize_blocking(Target::Device(0)).unwrap();
    }

    fn read(&self, addr: u64, count: usize) -> Vec<f32> {
        let mut bytes = vec![0u8; count * 4];
        let region = Region::linear(bytes.as_mut_ptr() as u64, bytes.len() as u64);
        // SAFETY: the bytes outlive the call, which waits.
        let target = unsafe { rgpu_device::HostTarget::new(region) };
        self.device.copy_from_device_blocking(0, Region { addr, ..region }, target).unwrap();
        bytes.chunks_exact(4).map(|word| f32::from_le_bytes([word[0], word[1], word[2], word[3]])).collect()
    }
}

fn close(found: &[f32], expected: &[f32]) {
    let near = found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-4);
    assert!(near && found.len() == expected.len(), "{found:?} instead of {expected:?}");
}

#[test]
fn every_library_computes() {
    let Some(library) = library() else { return };
    let rig = Rig::new(library);
    let at = |addr, ld| Matrix { addr, ld, ..Matrix::default() };

    // A product with a bias for each row, of which what is negative becomes zero.
    let (a, b, d) =
        (rig.floats(&[1.0, 2.0, 3.0, 4.0]), rig.floats(&[1.0, 0.0, 0.0, -1.0]), rig.floats(&[0.0; 4]));
    let bias = Vector { addr: rig.floats(&[10.0, -1.5]), inc: 1, ..Vector::default() };
    let product = Matmul {
        m: 2,
        n: 2,
        k: 2,
        alpha: Scalar::real(1.0),
        a: at(a, 2),
        b: at(b, 2),
        c: at(d, 2),
        d: at(d, 2),
        bias,
        activation: Activation::Relu,
        count: 1,
        ..Matmul::default()
    };
    rig.run(&product);
    close(&rig.read(d, 4), &[11.0, 0.5, 7.0, 0.0]);
    // The same by rows: A and B have changed places, and the bias goes along the columns of D'.
    let by_rows = Matmul { a: at(b, 2), b: at(a, 2), by_column: true, ..product };
    rig.run(&by_rows);
    close(&rig.read(d, 4), &[11.0, 8.0, 1.5, 0.0]);

    // The transform of an impulse.
    let (from, to) = (rig.floats(&[1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]), rig.floats(&[9.0; 8]));
    let layout = |addr| FftLayout { addr, pitch: [1, 1, 4], stride: 1, distance: 4 };
    rig.run(&Fft { n: [1, 1, 4], input: layout(from), output: layout(to), count: 1, ..Fft::default() });
    close(&rig.read(to, 8), &[1.0, 0.0, 1.0, 0.0, 1.0, 0.0, 1.0, 0.0]);

    // Factors of a matrix, and a singular value of a row.
    let (matrix, info) = (rig.floats(&[4.0, 2.0, 2.0, 5.0]), rig.ints(&[7]));
    rig.run(&Cholesky { n: 2, a: at(matrix, 2), info, count: 1, ..Cholesky::default() });
    let factor = rig.read(matrix, 4);
    close(&[factor[0], factor[1], factor[3]], &[2.0, 1.0, 2.0]);
    close(&rig.read(info, 1), &[0.0]);
    let (column, value) = (rig.floats(&[3.0, 4.0]), rig.floats(&[0.0]));
    let (left, right) = (Vectors::None, Vectors::None);
    rig.run(&Svd {
        m: 2,
        n: 1,
        a: at(column, 2),
        values: value,
        left,
        right,
        adjoint: true,
        info,
        count: 1,
        ..Svd::default()
    });
    close(&rig.read(value, 1), &[5.0]);

    // [[1, 0], [2, 3]] times a vector.
    let a = SparseMatrix {
        rows: 2,
        columns: 2,
        stored: 3,
        offsets: rig.ints(&[0, 1, 3]),
        indices: rig.ints(&[0, 0, 1]),
        values: rig.floats(&[1.0, 2.0, 3.0]),
        ..SparseMatrix::default()
    };
    let vector = |addr| DenseMatrix { addr, rows: 2, columns: 1, ld: 2, kind: DataType::F32, by_rows: false };
    let (x, y) = (vector(rig.floats(&[5.0, 7.0])), vector(rig.floats(&[1.0, 1.0])));
    let place = y.addr;
    let (alpha, beta) = (Scalar::real(1.0), Scalar::real(10.0));
    rig.run(&SparseProduct { alpha, a, b: x, beta, c: y, ..SparseProduct::default() });
    close(&rig.read(place, 2), &[15.0, 41.0]);

    // The element-wise maximum with zero, by cuDNN.
    let tensor =
        |addr| DnnTensor { addr, dims: vec![1, 1, 2, 2], strides: vec![4, 4, 2, 1], ..DnnTensor::default() };
    let (x, y) = (rig.floats(&[-1.0, 2.0, -3.0, 4.0]), rig.floats(&[9.0; 4]));
    let relu = DnnNode {
        kind: DnnNodeKind::Pointwise,
        x: 0,
        w: NO_TENSOR,
        t: NO_TENSOR,
        y: 1,
        alpha: 1.0,
        beta: 1.0,
        mode: 100,
        settings: [0.0, f64::INFINITY, 0.0, 1.0],
        ..DnnNode::default()
    };
    let graph = DnnGraph { tensors: vec![tensor(x), tensor(y)], nodes: vec![relu] };
    for _ in 0..2 {
        rig.run(&graph);
        close(&rig.read(y, 4), &[0.0, 2.0, 0.0, 4.0]);
    }
}
