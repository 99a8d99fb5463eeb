# packages: mlx[cuda12] numpy
"""MLX: functions, products, convolutions, gradients, kernels of one's own, and a small network that is trained."""

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optimizers
import numpy as np

from check import close, finish, part

random = np.random.default_rng(9)


def numbers(*shape):
    return random.standard_normal(shape).astype(np.float32)


@part
def device():
    assert mx.default_device().type == mx.gpu, mx.default_device()


@part
def functions_and_reductions():
    x = numbers(300, 40)
    close(np.array(mx.tanh(mx.array(x))), np.tanh(x), 1e-6)
    close(np.array(mx.softmax(mx.array(x), axis=-1).sum(axis=-1)), np.ones(300), 1e-6)
    close(np.array(mx.cumsum(mx.array(x), axis=0)), np.cumsum(x, axis=0), 1e-5)
    close(np.array(mx.sort(mx.array(x), axis=1)), np.sort(x, axis=1), 0)


@part
def products():
    a, b, c = numbers(70, 33), numbers(33, 50), numbers(70, 50)
    close(np.array(mx.array(a) @ mx.array(b)), a @ b, 1e-5)
    close(np.array(mx.addmm(mx.array(c), mx.array(a), mx.array(b))), a @ b + c, 1e-5)


@part
def transforms():
    x = numbers(5, 64)
    close(np.array(mx.fft.irfft(mx.fft.rfft(mx.array(x)))), x, 1e-5)
    close(np.abs(np.array(mx.fft.rfft(mx.array(x)))), np.abs(np.fft.rfft(x)), 1e-5)


@part
def convolutions():
    x, w = numbers(2, 9, 10, 3), numbers(4, 3, 3, 3)
    expected = np.zeros((2, 7, 8, 4))
    for i in range(7):
        for j in range(8):
            expected[:, i, j] = np.einsum("nhwc,ohwc->no", x[:, i : i + 3, j : j + 3], w)
    close(np.array(mx.conv2d(mx.array(x), mx.array(w))), expected, 1e-5)


@part
def training():
    x = numbers(256, 8)
    y = np.sin(x.sum(axis=1, keepdims=True))
    model = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 1))
    loss = lambda model, x, y: nn.losses.mse_loss(model(x), y)
    step, optimizer = nn.value_and_grad(model, loss), optimizers.Adam(learning_rate=1e-2)
    losses = []
    for _ in range(60):
        value, gradients = step(model, mx.array(x), mx.array(y))
        optimizer.update(model, gradients)
        mx.eval(model.parameters(), optimizer.state)
        losses.append(value.item())
    assert losses[-1] < losses[0] / 4, (losses[0], losses[-1])


finish()
