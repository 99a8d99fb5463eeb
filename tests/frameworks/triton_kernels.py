# packages: torch triton numpy
"""Triton's own kernels, whose PTX it writes itself; PyTorch has the memory."""

import numpy as np
import torch
import triton
import triton.language as tl

from check import close, finish, part


@triton.jit
def softmax_kernel(out, x, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    values = tl.load(x + row * columns + at, mask=at < columns, other=-float("inf"))
    powers = tl.exp(values - tl.max(values, axis=0))
    tl.store(out + row * columns + at, powers / tl.sum(powers, axis=0), mask=at < columns)


@triton.jit
def product_kernel(a, b, c, K, M: tl.constexpr, N: tl.constexpr, STEP: tl.constexpr):
    rows, columns, inner = tl.arange(0, M), tl.arange(0, N), tl.arange(0, STEP)
    total = tl.zeros((M, N), dtype=tl.float32)
    for k in range(0, K, STEP):
        left = tl.load(a + rows[:, None] * K + (k + inner)[None, :])
        right = tl.load(b + (k + inner)[:, None] * N + columns[None, :])
        total += tl.dot(left, right)
    tl.store(c + rows[:, None] * N + columns[None, :], total)


def of(array):
    return torch.from_numpy(array).to("cuda")


random = np.random.default_rng(2)


@part
def softmax():
    x = random.standard_normal((7, 100)).astype("f")
    out = torch.empty((7, 100), device="cuda")
    softmax_kernel[(7,)](out, of(x), 100, BLOCK=128)
    close(out.cpu().numpy(), np.exp(x) / np.exp(x).sum(axis=1, keepdims=True), 1e-5)


@part
def half_products():
    a, b = random.standard_normal((32, 64)).astype("e"), random.standard_normal((64, 32)).astype("e")
    c = torch.empty((32, 32), device="cuda")
    product_kernel[(1,)](of(a), of(b), c, 64, M=32, N=32, STEP=32)
    close(c.cpu().numpy(), a.astype("f") @ b.astype("f"), 1e-3)


finish()
