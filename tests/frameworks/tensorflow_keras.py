# packages: tensorflow[and-cuda] numpy
"""TensorFlow and Keras: element-wise functions, products, reductions, convolutions and pooling with their gradients, small trainings."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf
from check import close, finish, part

rng = np.random.default_rng(0)


def values(*shape):
    return rng.normal(size=shape).astype(np.float32)


@part
def device():
    assert tf.config.list_physical_devices("GPU"), "there is no GPU"


@part
def elementwise():
    a, b = values(7, 33), values(7, 33)
    with tf.device("/GPU:0"):
        x, y = tf.constant(a), tf.constant(b)
        close(x * y + x - y, a * b + a - b, 1e-5)
        close(tf.exp(x) / (1 + tf.abs(y)), np.exp(a) / (1 + np.abs(b)), 1e-5)
        close(tf.nn.relu(x), np.maximum(a, 0), 1e-5)
        close(tf.tanh(x), np.tanh(a), 1e-5)


@part
def reductions():
    a = values(5, 64)
    with tf.device("/GPU:0"):
        x = tf.constant(a)
        close(tf.reduce_sum(x, 1), a.sum(1), 1e-4)
        close(tf.reduce_max(x), a.max(), 1e-5)
        close(tf.reduce_mean(x, 0), a.mean(0), 1e-5)
        e = np.exp(a - a.max(1, keepdims=True))
        close(tf.nn.softmax(x), e / e.sum(1, keepdims=True), 1e-5)


@part
def products():
    a, b = values(4, 31, 17), values(4, 17, 23)
    with tf.device("/GPU:0"):
        close(tf.matmul(a[0], b[0]), a[0] @ b[0], 1e-4)
        close(tf.matmul(a, b), a @ b, 1e-4)


def windows(x, height, width):
    return np.lib.stride_tricks.sliding_window_view(x, (height, width), axis=(1, 2))


@part
def convolution():
    x, w = values(2, 9, 8, 3), values(3, 3, 3, 5)
    expected = np.einsum("nhwcij,ijck->nhwk", windows(x, 3, 3), w)
    with tf.device("/GPU:0"):
        kernel = tf.Variable(w)
        with tf.GradientTape() as tape:
            y = tf.nn.conv2d(tf.constant(x), kernel, 1, "VALID")
            loss = tf.reduce_sum(y * y)
        close(y, expected, 1e-4)
        gradient = np.einsum("nhwcij,nhwk->ijck", windows(x, 3, 3), 2 * expected)
        close(tape.gradient(loss, kernel), gradient, 1e-3)


@part
def pooling():
    x = values(2, 8, 8, 3)
    blocks = x.reshape(2, 4, 2, 4, 2, 3)
    with tf.device("/GPU:0"):
        variable = tf.Variable(x)
        with tf.GradientTape() as tape:
            y = tf.nn.max_pool2d(variable, 2, 2, "VALID")
            loss = tf.reduce_sum(y)
        close(y, blocks.max((2, 4)), 1e-5)
        close(tf.nn.avg_pool2d(variable, 2, 2, "VALID"), blocks.mean((2, 4)), 1e-5)
        most = blocks.max((2, 4), keepdims=True)
        close(tape.gradient(loss, variable), (blocks == most).astype(np.float32).reshape(x.shape), 1e-5)


@part
def batch_normalisation():
    x = values(8, 4, 4, 6)
    with tf.device("/GPU:0"):
        y, mean, _ = tf.compat.v1.nn.fused_batch_norm(x, np.ones(6, np.float32), np.zeros(6, np.float32))
        flat = x.reshape(-1, 6)
        close(mean, flat.mean(0), 1e-4)
        close(tf.reshape(y, [-1, 6]), (flat - flat.mean(0)) / np.sqrt(flat.var(0) + 1e-3), 1e-3)


@part
def dense_training():
    x = values(256, 16)
    labels = (x[:, :4].sum(1) > 0).astype(np.int32)
    layers = [tf.keras.layers.Dense(32, activation="relu"), tf.keras.layers.Dense(2)]
    model = tf.keras.Sequential([tf.keras.Input((16,)), *layers])
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(tf.keras.optimizers.SGD(0.5), loss, metrics=["accuracy"])
    history = model.fit(x, labels, batch_size=64, epochs=8, verbose=0).history
    assert history["accuracy"][-1] > 0.9 > history["accuracy"][0], history["accuracy"]


@part
def convolutional_training():
    x = values(64, 8, 8, 1)
    labels = (x[:, :4].sum((1, 2, 3)) > x[:, 4:].sum((1, 2, 3))).astype(np.int32)
    layers = [
        tf.keras.layers.Conv2D(8, 3, activation="relu"),
        tf.keras.layers.BatchNormalization(),
        tf.keras.layers.MaxPooling2D(2),
        tf.keras.layers.Flatten(),
        tf.keras.layers.Dense(2),
    ]
    model = tf.keras.Sequential([tf.keras.Input((8, 8, 1)), *layers])
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(tf.keras.optimizers.Adam(0.02), loss, metrics=["accuracy"])
    history = model.fit(x, labels, batch_size=32, epochs=12, verbose=0).history
    assert history["loss"][-1] < 0.5 * history["loss"][0], history["loss"]


finish()
