# packages: drjit numpy
"""Dr.Jit, which writes PTX itself: arrays indexed by registers, calls through tables of functions, sums over blocks and atomics."""

import drjit
import drjit.cuda as gpu
import numpy as np

from check import close, finish, part

random = np.random.default_rng(8)
COUNT = 5000


def numbers(count=COUNT):
    return random.random(count).astype(np.float32)


@part
def functions():
    x = numbers() * 0.9 + 0.05
    for name in ["sin", "cos", "exp", "log", "sqrt", "tanh", "cbrt", "floor"]:
        close(getattr(drjit, name)(gpu.Float(x)).numpy(), getattr(np, name)(x.astype(np.float64)), 3e-6)


@part
def reductions():
    for count in (1, 33, 1024, 100003):
        x = numbers(count)
        close(drjit.sum(gpu.Float(x)).numpy(), [x.sum(dtype=np.float64)], 1e-5)
        close(drjit.max(gpu.Float(x)).numpy(), [x.max()], 0)
        close(drjit.cumsum(gpu.Float(x)).numpy(), np.cumsum(x, dtype=np.float64), 1e-5)
    x = numbers(6400)
    for size in (2, 32, 100, 640):
        close(drjit.block_sum(gpu.Float(x), size).numpy(), x.reshape(-1, size).sum(1), 1e-5)


@part
def functions_that_numbers_choose():
    which, x = random.integers(0, 4, COUNT).astype(np.uint32), numbers()
    functions = [lambda v: v + 1, lambda v: v * v, lambda v: drjit.sin(v), lambda v: -v]
    for mode in ("symbolic", "evaluated"):
        got = drjit.switch(gpu.UInt(which), functions, gpu.Float(x), mode=mode).numpy()
        close(got, np.choose(which, [x + 1, x * x, np.sin(x), -x]), 1e-6)


@part
def arrays_of_a_thread():
    @drjit.syntax
    def mixed():
        row, i = drjit.alloc_local(gpu.UInt, 10, value=gpu.UInt(0)), gpu.UInt(0)
        x = drjit.arange(gpu.UInt, COUNT)
        while i < 10:
            row[(i * 3) % 10] = x + i
            i += 1
        total, i = gpu.UInt(0), gpu.UInt(0)
        while i < 10:
            total += row[i] * (i + 1)
            i += 1
        return total

    x = np.arange(COUNT)
    close(mixed().numpy(), sum((x + i) * (i * 3 % 10 + 1) for i in range(10)), 0)


@part
def loops():
    @drjit.syntax
    def steps(i):
        count = drjit.zeros(gpu.UInt, drjit.width(i))
        while i != 1:
            if (i & 1) == 0:
                i = i >> 1
            else:
                i = 3 * i + 1
            count += 1
        return count

    def collatz(k):
        count = 0
        while k != 1:
            k, count = (k // 2 if k % 2 == 0 else 3 * k + 1), count + 1
        return count

    close(steps(drjit.arange(gpu.UInt, 2000) + 1).numpy(), [collatz(k) for k in range(1, 2001)], 0)


@part
def sums_where_numbers_lead():
    place, x = random.integers(0, 37, COUNT).astype(np.uint32), numbers()
    for mode in (drjit.ReduceMode.Direct, drjit.ReduceMode.Local):
        sums = drjit.zeros(gpu.Float, 37)
        drjit.scatter_reduce(drjit.ReduceOp.Add, sums, gpu.Float(x), gpu.UInt(place), mode=mode)
        expected = np.zeros(37)
        np.add.at(expected, place, x)
        close(sums.numpy(), expected, 1e-5)


finish()
