# packages: numba-cuda[cu12] numpy
"""numba-cuda: kernels, shared memory and barriers, atomics, and reductions."""

import numpy as np
from numba import cuda, float32

from check import close, finish, part


@cuda.jit
def add(a, b, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = a[i] + b[i]


@cuda.jit
def turn(x, out):
    tile = cuda.shared.array((16, 17), float32)
    i, j = cuda.threadIdx.x, cuda.threadIdx.y
    tile[i, j] = x[i, j]
    cuda.syncthreads()
    out[i, j] = tile[j, i]


@cuda.jit
def count(x, bins):
    i = cuda.grid(1)
    if i < x.size:
        cuda.atomic.add(bins, x[i], 1)


@cuda.reduce
def total(a, b):
    return a + b


random = np.random.default_rng(4)


@part
def kernels():
    a, b = random.standard_normal(1000).astype("f"), random.standard_normal(1000).astype("f")
    out = cuda.device_array(1000, dtype=np.float32)
    add[8, 128](cuda.to_device(a), cuda.to_device(b), out)
    close(out.copy_to_host(), a + b, 1e-6)


@part
def shared_memory():
    x = random.standard_normal((16, 16)).astype("f")
    out = cuda.device_array((16, 16), dtype=np.float32)
    turn[1, (16, 16)](cuda.to_device(x), out)
    close(out.copy_to_host(), x.T, 0)


@part
def atomics():
    x = random.integers(0, 10, 5000)
    bins = cuda.to_device(np.zeros(10, dtype=np.int64))
    count[40, 128](cuda.to_device(x), bins)
    close(bins.copy_to_host(), np.bincount(x, minlength=10), 0)


@part
def reductions():
    x = np.arange(2000, dtype=np.float64)
    close(total(cuda.to_device(x)), x.sum(), 1e-12)


finish()
