# packages: cupy-cuda12x[ctk] numpy
"""CuPy: kernels that it compiles itself, and what it has libraries do."""

import cupy
import numpy as np

from check import close, finish, part

random = np.random.default_rng(5)
a = random.standard_normal((30, 40))
square = a @ a.T + 30 * np.eye(30)


@part
def elementwise():
    close(cupy.asnumpy(cupy.sin(cupy.asarray(a)) ** 2 + 1), np.sin(a) ** 2 + 1, 1e-12)


@part
def reductions():
    close(cupy.asnumpy(cupy.asarray(a).sum(axis=0)), a.sum(axis=0), 1e-12)
    close(float(cupy.asarray(a).max()), a.max(), 0)


@part
def raw_kernel():
    kernel = cupy.RawKernel(
        'extern "C" __global__ void twice(const double* x, double* y, int n)'
        "{ int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = 2 * x[i]; }",
        "twice",
    )
    x = cupy.asarray(a.ravel())
    y = cupy.empty_like(x)
    kernel((10,), (128,), (x, y, x.size))
    close(cupy.asnumpy(y), 2 * a.ravel(), 0)


@part
def products():
    close(cupy.asnumpy(cupy.asarray(a) @ cupy.asarray(a.T)), a @ a.T, 1e-12)


@part
def fourier():
    close(cupy.asnumpy(cupy.abs(cupy.fft.fft(cupy.asarray(a)))), np.abs(np.fft.fft(a)), 1e-12)


@part
def solving():
    close(cupy.asnumpy(cupy.linalg.solve(cupy.asarray(square), cupy.asarray(a))), np.linalg.solve(square, a), 1e-10)
    close(cupy.asnumpy(cupy.linalg.cholesky(cupy.asarray(square))), np.linalg.cholesky(square), 1e-10)
    close(cupy.asnumpy(cupy.linalg.eigvalsh(cupy.asarray(square))), np.linalg.eigvalsh(square), 1e-10)
    close(cupy.asnumpy(cupy.linalg.svd(cupy.asarray(a), compute_uv=False)), np.linalg.svd(a, compute_uv=False), 1e-10)


@part
def random_numbers():
    x = cupy.asnumpy(cupy.random.rand(50000))
    assert 0 <= x.min() and x.max() <= 1 and abs(x.mean() - 0.5) < 0.01


finish()
