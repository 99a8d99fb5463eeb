//! How fast products of matrices are through the cuBLAS door, beside the crate that computes them called directly, with as many
//! threads, in one run:
//!
//! ```text
//! RGPU_IN_PROCESS=1 RGPU_SOFT_WORKERS=2 cargo run --release -p rgpu-softlib --example gemm_speed -- target/release/librgpu.so 2
//! ```

use std::ffi::{CString, c_void};
use std::time::Instant;

use gemm::Parallelism;

/// Rows and columns.
const N: usize = 1024;
/// Runs of each, of which the best counts.
const RUNS: usize = 25;

type Status = i32;
type Product<T> = extern "C" fn(
    *mut c_void,
    i32,
    i32,
    i32,
    i32,
    i32,
    *const T,
    *const T,
    i32,
    *const T,
    i32,
    *const T,
    *mut T,
    i32,
) -> Status;

struct Library(*mut c_void);

impl Library {
    fn open(path: &str) -> Self {
        let path = CString::new(path).unwrap();
        // SAFETY: a C string.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
        assert!(!handle.is_null(), "{path:?} cannot be loaded");
        Self(handle)
    }

    /// # Safety
    /// `F` must be the type of the function.
    unsafe fn function<F: Copy>(&self, name: &str) -> F {
        let symbol = CString::new(name).unwrap();
        // SAFETY: a C string.
        let found = unsafe { libc::dlsym(self.0, symbol.as_ptr()) };
        assert!(!found.is_null(), "there is no {name}");
        // SAFETY: the caller's promise.
        unsafe { std::mem::transmute_copy(&found) }
    }
}

/// How long a run takes, in seconds.
fn time(run: &mut dyn FnMut()) -> f64 {
    let start = Instant::now();
    run();
    start.elapsed().as_secs_f64()
}

fn measure<T: Copy + From<f32> + 'static>(library: &Library, name: &str, threads: usize) {
    let bytes = N * N * size_of::<T>();
    let numbers: Vec<T> = (0..N * N).map(|i| T::from((i % 17) as f32 / 16.0)).collect();
    // SAFETY: so the public headers declare them.
    let (malloc, copy, wait, create, product) = unsafe {
        (
            library.function::<extern "C" fn(*mut *mut T, usize) -> Status>("cudaMalloc"),
            library.function::<extern "C" fn(*mut T, *const T, usize, i32) -> Status>("cudaMemcpy"),
            library.function::<extern "C" fn() -> Status>("cudaDeviceSynchronize"),
            library.function::<extern "C" fn(*mut *mut c_void) -> Status>("cublasCreate_v2"),
            library.function::<Product<T>>(name),
        )
    };
    let place = || {
        let mut place = std::ptr::null_mut();
        assert_eq!(malloc(&mut place, bytes), 0);
        assert_eq!(copy(place, numbers.as_ptr(), bytes, 1), 0);
        place
    };
    let (a, b, c) = (place(), place(), place());
    let mut handle = std::ptr::null_mut();
    assert_eq!(create(&mut handle), 0);
    let (one, zero, n) = (T::from(1.0), T::from(0.0), N as i32);
    let mut door = || {
        assert_eq!(product(handle, 0, 0, n, n, n, &one, a, n, b, n, &zero, c, n), 0);
        assert_eq!(wait(), 0);
    };
    let (x, y, mut z) = (numbers.clone(), numbers.clone(), numbers);
    let step = N as isize;
    let mut direct = || {
        // SAFETY: the vectors are such matrices.
        unsafe {
            gemm::gemm(
                N,
                N,
                N,
                z.as_mut_ptr(),
                step,
                1,
                false,
                x.as_ptr(),
                step,
                1,
                y.as_ptr(),
                step,
                1,
                zero,
                one,
                false,
                false,
                false,
                Parallelism::Rayon(threads),
            );
        }
    };
    // In turns, so that what else the machine does falls on both.
    let mut best = [f64::INFINITY; 2];
    for _ in 0..RUNS {
        best[0] = best[0].min(time(&mut door));
        best[1] = best[1].min(time(&mut direct));
    }
    let [door, direct] = best;
    let rate = |seconds: f64| 2.0 * (N as f64).powi(3) / seconds / 1e9;
    println!(
        "{name} {N}³, {threads} threads: door {:.1} GFLOP/s, crate {:.1} GFLOP/s, ratio {:.2}",
        rate(door),
        rate(direct),
        direct / door
    );
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, library, threads] = &arguments[..] else { panic!("gemm_speed LIBRGPU.SO THREADS") };
    let (library, threads) = (Library::open(library), threads.parse().unwrap());
    measure::<f32>(&library, "cublasSgemm_v2", threads);
    measure::<f64>(&library, "cublasDgemm_v2", threads);
}
