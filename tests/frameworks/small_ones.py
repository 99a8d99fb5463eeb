# packages: tinygrad taichi numpy
"""tinygrad, which compiles by NVRTC, and Taichi, which writes PTX."""

import os

os.environ["DEV"] = "CUDA"

import numpy as np

from check import close, finish, part

random = np.random.default_rng(6)


@part
def tinygrad_products():
    from tinygrad import Tensor

    a, b = random.standard_normal((20, 30)).astype("f"), random.standard_normal((30, 10)).astype("f")
    close((Tensor(a) @ Tensor(b)).numpy(), a @ b, 1e-5)


@part
def taichi_fields():
    import taichi

    taichi.init(arch=taichi.cuda, log_level=taichi.ERROR)
    assert taichi.cfg.arch == taichi.cuda, taichi.cfg.arch
    x = taichi.field(dtype=taichi.f32, shape=1000)

    @taichi.kernel
    def fill():
        for i in x:
            x[i] = taichi.sin(i * 0.1)

    fill()
    close(x.to_numpy(), np.sin(np.arange(1000) * 0.1), 1e-5)


finish()
