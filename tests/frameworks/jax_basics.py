# packages: jax[cuda12] scipy
"""JAX: what XLA makes itself, and what it has libraries do."""

import jax
import jax.numpy as jnp
import numpy as np
from scipy import signal

from check import close, finish, part

random = np.random.default_rng(1)
a = random.standard_normal((33, 47)).astype("f")
b = random.standard_normal((47, 29)).astype("f")
square = a @ a.T + 50 * np.eye(33, dtype="f")
jax.config.update("jax_default_matmul_precision", "highest")


@part
def device():
    assert jax.devices()[0].platform == "gpu", jax.devices()


@part
def elementwise():
    close(jax.jit(lambda x: jnp.tanh(x) * jnp.exp(-x * x) + jnp.sin(x))(a), np.tanh(a) * np.exp(-a * a) + np.sin(a), 1e-5)


@part
def reductions():
    close(jnp.sum(a, axis=0), a.sum(axis=0), 1e-5)
    close(jax.nn.softmax(a), np.exp(a) / np.exp(a).sum(axis=-1, keepdims=True), 1e-5)


@part
def products():
    close(jnp.dot(a, b), a @ b, 1e-5)


@part
def random_numbers():
    x = np.asarray(jax.random.normal(jax.random.PRNGKey(0), (20000,)))
    assert abs(x.mean()) < 0.03 and abs(x.std() - 1) < 0.03


@part
def gradients():
    close(jax.grad(lambda x: (jnp.sin(x) ** 2).sum())(a), np.sin(2 * a), 1e-5)


@part
def convolutions():
    x = random.standard_normal((2, 3, 12, 12)).astype("f")
    w = random.standard_normal((5, 3, 3, 3)).astype("f")
    convolution = lambda x, w: jax.lax.conv_general_dilated(x, w, (1, 1), "SAME")
    expected = [[sum(signal.correlate2d(i[c], f[c], mode="same") for c in range(3)) for f in w] for i in x]
    close(jax.jit(convolution)(x, w), np.stack([np.stack(i) for i in expected]), 1e-5)
    dx, dw = jax.grad(lambda x, w: (convolution(x, w) ** 2).sum() / 2, argnums=(0, 1))(x, w)
    # The squared norm is homogeneous of degree two in either argument.
    total = float((np.asarray(convolution(x, w)) ** 2).sum())
    close((np.asarray(dx) * x).sum(), total, 1e-4)
    close((np.asarray(dw) * w).sum(), total, 1e-4)


@part
def fourier():
    got = np.asarray(jnp.fft.fft(a[:, :32]))
    expected = np.fft.fft(a[:, :32])
    close(got.real, expected.real, 1e-5)
    close(got.imag, expected.imag, 1e-5)


@part
def cholesky():
    close(jnp.linalg.cholesky(square), np.linalg.cholesky(square), 1e-5)


@part
def eigenvalues():
    close(jnp.linalg.eigh(square)[0], np.linalg.eigh(square)[0], 1e-5)


@part
def singular_values():
    close(jnp.linalg.svd(a)[1], np.linalg.svd(a)[1], 1e-5)


@part
def orthogonal():
    close(np.abs(jnp.linalg.qr(a)[1]), np.abs(np.linalg.qr(a)[1]), 1e-4)


@part
def training():
    key = jax.random.PRNGKey(1)
    x = jax.random.normal(key, (256, 8))
    y = jnp.sin(x.sum(axis=1, keepdims=True))
    w = [jax.random.normal(key, (8, 32)) / 3, jax.random.normal(key, (32, 1)) / 6]
    loss = lambda w: jnp.mean((jnp.tanh(x @ w[0]) @ w[1] - y) ** 2)
    step = jax.jit(lambda w: [p - 0.1 * g for p, g in zip(w, jax.grad(loss)(w))])
    before = float(loss(w))
    for _ in range(100):
        w = step(w)
    after = float(loss(w))
    assert after < 0.8 * before, f"the loss went from {before} to {after}"


finish()
