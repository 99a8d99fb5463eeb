# packages: torch triton numpy
"""PyTorch around its own kernels, which are machine code: memory, streams, events, products by cuBLAS, and torch.compile."""

import os

os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")

import numpy as np
import torch

from check import close, finish, part

random = np.random.default_rng(3)
a, b = random.standard_normal((24, 40)).astype("f"), random.standard_normal((40, 16)).astype("f")
on = lambda array: torch.from_numpy(array).to("cuda")


@part
def copies():
    x = on(a)
    close(x.cpu(), a, 0)
    pinned = torch.empty(a.shape, pin_memory=True)
    pinned.copy_(x, non_blocking=True)
    torch.cuda.synchronize()
    close(pinned, a, 0)


@part
def streams_and_events():
    stream, start, end = torch.cuda.Stream(), torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    with torch.cuda.stream(stream):
        start.record()
        c = on(a) @ on(b)
        end.record()
    end.synchronize()
    assert start.elapsed_time(end) >= 0
    close(c.cpu(), a @ b, 1e-5)


@part
def products():
    close((on(a) @ on(b)).cpu(), a @ b, 1e-5)
    wide = torch.bmm(on(np.stack([a, a])), on(np.stack([b, 2 * b])))
    close(wide.cpu(), np.stack([a @ b, 2 * a @ b]), 1e-5)
    close((on(a.astype("d")) @ on(b.astype("d"))).cpu(), a.astype("d") @ b.astype("d"), 1e-12)
    half = on(a.astype("e")) @ on(b.astype("e"))
    close(half.cpu().float(), a @ b, 5e-3)


@part
def linear():
    bias = random.standard_normal(16).astype("f")
    got = torch.nn.functional.linear(on(a), on(np.ascontiguousarray(b.T)), on(bias))
    close(got.cpu(), a @ b + bias, 1e-5)


@part
def compiled():
    function = torch.compile(lambda x: torch.softmax(x * 2, dim=-1))
    expected = np.exp(2 * a - 2 * a.max(axis=1, keepdims=True))
    close(function(on(a)).cpu(), expected / expected.sum(axis=1, keepdims=True), 1e-5)


finish()
