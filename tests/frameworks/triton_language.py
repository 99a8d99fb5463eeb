# packages: torch triton numpy
"""Triton's language: each construct in the types that it takes, beside NumPy."""

import ctypes
import linecache
import os
import subprocess
import sys
import tempfile

import numpy as np
import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice

from check import finish, part

SIGNED = ["int8", "int16", "int32", "int64"]
UNSIGNED = ["uint8", "uint16", "uint32", "uint64"]
FLOATS = ["float16", "bfloat16", "float32", "float64"]
# How far a result may be from the true one, relative to it.
TOLERANCE = {"float16": 2e-3, "bfloat16": 2e-2, "float32": 4e-6, "float64": 1e-12}
random = np.random.default_rng(11)


def to(array, dtype=None):
    """An array of NumPy's on the device, in a type that NumPy may not have."""
    tensor = torch.from_numpy(np.ascontiguousarray(array))
    return (tensor if dtype is None else tensor.to(getattr(torch, dtype))).to("cuda")


def empty(shape, dtype):
    return torch.empty(shape, dtype=getattr(torch, dtype), device="cuda")


def back(tensor):
    """A tensor as NumPy's array."""
    tensor = tensor.cpu()
    return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()


def rounded(array, dtype):
    """What numbers become in a type, as numbers of double precision."""
    return torch.from_numpy(np.asarray(array, "d")).to(getattr(torch, dtype)).double().numpy()


def same(name, got, expected):
    assert np.array_equal(got, expected), f"WRONG {name}: {got.ravel()[:8]}, not {np.asarray(expected).ravel()[:8]}"


def near(name, got, expected, tolerance):
    np.testing.assert_allclose(got.astype("d"), expected, rtol=tolerance, atol=tolerance, err_msg=f"WRONG {name}")


def made(source, **names):
    """A kernel of a text. Triton reads a function's source, which has to lie in a file, or in the cache of lines."""
    file = f"<kernel {len(linecache.cache)}>"
    linecache.cache[file] = (len(source), None, source.splitlines(True), file)
    space = {"triton": triton, "tl": tl, "libdevice": libdevice, "__name__": "made", **names}
    exec(compile(source, file, "exec"), space)
    return space["kernel"]


def elementwise(expressions, count):
    """A kernel that computes expressions of `a` and `b`, each into a row of `out`."""
    lines = [
        "@triton.jit",
        "def kernel(x, y, out, n, B: tl.constexpr):",
        "    i = tl.program_id(0) * B + tl.arange(0, B)",
        "    a = tl.load(x + i, mask=i < n, other=1)",
        "    b = tl.load(y + i, mask=i < n, other=1)",
    ]
    for row, expression in enumerate(expressions):
        lines.append(f"    tl.store(out + {row} * n + i, {expression}, mask=i < n)")
    kernel = made("\n".join(lines) + "\n")

    def run(x, y, dtype):
        out = empty((len(expressions), count), dtype)
        kernel[(triton.cdiv(count, 128),)](x, y, out, count, B=128)
        return back(out)

    return run


def fail():
    """What the part `assertions` starts: an assertion that does not hold is an error of the next call that waits."""
    source = """
@triton.jit
def kernel(x):
    tl.device_assert(tl.load(x + tl.arange(0, 4)) < 3, "less than three")
"""
    try:
        made(source)[(1,)](to(np.arange(4, dtype="i4")))
        torch.cuda.synchronize()
    except RuntimeError:
        status = 7
    else:
        status = 0
    # The kernel's message goes through the C library, and the device is of no use any more.
    ctypes.CDLL(None).fflush(None)
    os._exit(status)


if "--assert" in sys.argv:
    fail()


def named(name):
    """Gives a part, made in a loop, its name."""

    def rename(function):
        function.__name__ = name
        return function

    return rename


def integers(dtype, count):
    """Integers of all sizes, the greatest and least ones among them, and divisors that are not zero."""
    about = np.iinfo(dtype)
    a = random.integers(about.min, about.max, count, dtype=dtype, endpoint=True)
    a[:4] = [about.min, about.max, 0, 1]
    b = random.integers(about.min, about.max, count, dtype=dtype, endpoint=True) >> random.integers(0, 7, count).astype(dtype)
    b[b == 0] = 3
    b[:4] = 5
    return a, b


def truncated(a, b):
    """C's quotient, which NumPy rounds down."""
    quotient = np.asarray([abs(int(p)) // abs(int(q)) * (1 if (p < 0) == (q < 0) else -1) for p, q in zip(a, b)], object)
    return quotient.astype(a.dtype)


for dtype in SIGNED + UNSIGNED:

    @part
    @named(f"integers_{dtype}")
    def _(dtype=dtype):
        count = 300
        a, b = integers(dtype, count)
        bits = np.iinfo(dtype).bits
        shift = (b & (bits - 1)).astype(dtype)
        with np.errstate(all="ignore"):
            quotient = truncated(a, b)
            cases = {
                "a + b": a + b,
                "a - b": a - b,
                "a * b": a * b,
                "a // b": quotient,
                "a % b": a - quotient * b,
                "a & b": a & b,
                "a | b": a | b,
                "a ^ b": a ^ b,
                "~a": ~a,
                f"a << (b & {bits - 1})": a << shift,
                f"a >> (b & {bits - 1})": a >> shift,
                "tl.maximum(a, b)": np.maximum(a, b),
                "tl.minimum(a, b)": np.minimum(a, b),
                "tl.where(a > b, a, b + 1)": np.where(a > b, a, b + np.ones_like(b)),
                "(a < b)": a < b,
                "(a <= b)": a <= b,
                "(a == b) | (a != a)": a == b,
                "tl.abs(a)": np.abs(a),
            }
        got = elementwise(list(cases), count)(to(a), to(b), dtype)
        for row, (name, expected) in enumerate(cases.items()):
            same(name, got[row], expected.astype(dtype))


@part
def high_products():
    for dtype in ["uint32", "uint64"]:
        a, b = integers(dtype, 200)
        expected = [int(p) * int(q) >> np.iinfo(dtype).bits for p, q in zip(a, b)]
        same("umulhi", elementwise(["tl.umulhi(a, b)"], 200)(to(a), to(b), dtype)[0], np.asarray(expected, dtype))


for dtype in FLOATS:

    @part
    @named(f"floats_{dtype}")
    def _(dtype=dtype):
        count = 300
        a, b = (rounded(random.standard_normal(count) * 4, dtype) for _ in "ab")
        b[b == 0] = 1
        wide = "a" if dtype == "float64" else "a.to(tl.float32)"
        positive = f"(tl.abs({wide}) + 0.25)"
        p = np.abs(a) + 0.25
        erf = np.vectorize(__import__("math").erf)
        cases = {
            "a + b": a + b,
            "a - b": a - b,
            "a * b": a * b,
            "a / b": a / b,
            "-a": -a,
            "tl.abs(a)": np.abs(a),
            "tl.fma(a, b, a)": a * b + a,
            "tl.maximum(a, b)": np.maximum(a, b),
            "tl.minimum(a, b)": np.minimum(a, b),
            "tl.clamp(a, -1.0, 1.5)": np.clip(a, -1, 1.5),
            f"tl.floor({wide})": np.floor(a),
            f"tl.ceil({wide})": np.ceil(a),
            f"tl.exp({wide})": np.exp(a),
            f"tl.exp2({wide})": np.exp2(a),
            f"tl.log{positive}": np.log(p),
            f"tl.log2{positive}": np.log2(p),
            f"tl.sqrt{positive}": np.sqrt(p),
            f"tl.rsqrt{positive}": 1 / np.sqrt(p),
            f"tl.sin({wide})": np.sin(a),
            f"tl.cos({wide})": np.cos(a),
            f"tl.erf({wide})": erf(a),
            f"tl.sigmoid({wide})": 1 / (1 + np.exp(-a)),
            "tl.where(a > b, a, b)": np.where(a > b, a, b),
            "(a < b)": a < b,
            "(a >= b)": a >= b,
        }
        got = elementwise(list(cases), count)(to(a, dtype), to(b, dtype), dtype)
        for row, (name, expected) in enumerate(cases.items()):
            near(name, got[row], expected, TOLERANCE[dtype])


@part
def exact_quotients_and_roots():
    a, b = (random.standard_normal(500).astype("f") for _ in "ab")
    got = elementwise(["tl.div_rn(a, b)", "tl.sqrt_rn(tl.abs(a))"], 500)(to(a), to(b), "float32")
    same("div_rn", got[0], a / b)
    same("sqrt_rn", got[1], np.sqrt(np.abs(a)))


@part
def special_numbers():
    values = np.array([0.0, -0.0, 1, -1, np.inf, -np.inf, np.nan, 1e-42, -1e-42, 3e38], "f")
    a, b = (x.ravel().copy() for x in np.meshgrid(values, values))
    expressions = ["a + b", "a * b", "tl.maximum(a, b)", "tl.minimum(a, b)", "tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)", "(a < b)", "(a != b)", "tl.abs(a)"]
    with np.errstate(all="ignore"):
        expected = [a + b, a * b, np.fmax(a, b), np.fmin(a, b), np.maximum(a, b), a < b, a != b, np.abs(a)]
    got = elementwise(expressions, a.size)(to(a), to(b), "float32")
    for row, name in enumerate(expressions):
        np.testing.assert_array_equal(got[row], expected[row].astype("f"), err_msg=f"WRONG {name}")


for dtype in ["float32", "float64"]:

    @part
    @named(f"libdevice_{dtype}")
    def _(dtype=dtype):
        import math

        a, b = rounded(random.uniform(-3, 3, 256), dtype), rounded(random.uniform(0.1, 3, 256), dtype)
        u = "(a / 3.1)"
        each = np.vectorize
        cases = {
            "libdevice.tan(a)": np.tan(a),
            "libdevice.tanh(a)": np.tanh(a),
            "libdevice.sinh(a)": np.sinh(a),
            "libdevice.cosh(a)": np.cosh(a),
            f"libdevice.asin{u}": np.arcsin(a / 3.1),
            f"libdevice.acos{u}": np.arccos(a / 3.1),
            "libdevice.atan(a)": np.arctan(a),
            "libdevice.asinh(a)": np.arcsinh(a),
            "libdevice.acosh(b + 1)": np.arccosh(b + 1),
            f"libdevice.atanh{u}": np.arctanh(a / 3.1),
            "libdevice.atan2(a, b)": np.arctan2(a, b),
            "libdevice.pow(b, a)": b**a,
            "libdevice.hypot(a, b)": np.hypot(a, b),
            "libdevice.fmod(a, b)": np.fmod(a, b),
            "libdevice.remainder(a, b)": each(math.remainder)(a, b),
            "libdevice.cbrt(a)": np.cbrt(a),
            "libdevice.expm1(a)": np.expm1(a),
            "libdevice.log1p(b)": np.log1p(b),
            "libdevice.log10(b)": np.log10(b),
            "libdevice.exp10(a)": 10.0**a,
            "libdevice.lgamma(b)": each(math.lgamma)(b),
            "libdevice.tgamma(b)": each(math.gamma)(b),
            "libdevice.erfc(a)": each(math.erfc)(a),
            "libdevice.rint(a * 2)": np.rint(a * 2),
            "libdevice.trunc(a)": np.trunc(a),
            "libdevice.round(a)": np.copysign(np.floor(np.abs(a) + 0.5), a),
            "libdevice.copysign(b, a)": np.copysign(b, a),
            "libdevice.fdim(a, b)": np.maximum(a - b, 0),
            "libdevice.rcbrt(b)": 1 / np.cbrt(b),
            "libdevice.sinpi(a)": np.sin(np.pi * a),
            "libdevice.normcdf(a)": each(lambda x: 0.5 * math.erfc(-x / math.sqrt(2)))(a),
        }
        got = elementwise(list(cases), 256)(to(a, dtype), to(b, dtype), dtype)
        for row, (name, expected) in enumerate(cases.items()):
            near(name, got[row], expected, 2e-5 if dtype == "float32" else 1e-11)


@part
def conversions():
    types = SIGNED + UNSIGNED + FLOATS
    for source in types:
        a = random.integers(0 if source in UNSIGNED else -100, 100, 128).astype("d")
        if source in FLOATS:
            a = rounded(a + random.uniform(-0.5, 0.5, 128), source)
        for target in types:
            # Numbers below zero have no place among the unsigned ones.
            x = np.abs(a) if source in FLOATS and target in UNSIGNED else a
            got = elementwise([f"a.to(tl.{target})"], 128)(to(x, source), to(x, source), target)[0]
            whole = np.trunc(x).astype("int64").astype(target) if target not in FLOATS else None
            same(f"{source} to {target}", got.astype("d"), rounded(x, target) if whole is None else whole.astype("d"))


@part
def roundings_to_half_precision():
    x = np.concatenate([random.standard_normal(1000) * 10.0 ** random.integers(-9, 6, 1000), [65519, 65520, 1e9, -1e9]]).astype("f")
    got = elementwise(["a.to(tl.float16)"], x.size)(to(x), to(x), "float16")[0]
    with np.errstate(all="ignore"):
        same("float16", got, x.astype("e"))
    bits = x.view("u4").astype("u8")
    nearest = ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype("u2")
    kernel = elementwise(["a.to(tl.bfloat16).to(tl.int16, bitcast=True)"], x.size)
    same("bfloat16", kernel(to(x), to(x), "int16")[0].view("u2"), nearest)


@part
def eight_bit_floats():
    every = np.arange(256, dtype="u1")
    kernel = elementwise(["a.to(tl.float8e5, bitcast=True).to(tl.float32)"], 256)
    expected = torch.from_numpy(every).view(torch.float8_e5m2).float().numpy()
    np.testing.assert_array_equal(kernel(to(every), to(every), "float32")[0], expected, err_msg="WRONG float8e5")
    x = random.standard_normal(256).astype("f")
    kernel = elementwise(["a.to(tl.float8e5).to(tl.uint8, bitcast=True)"], 256)
    same("to float8e5", kernel(to(x), to(x), "uint8")[0], torch.from_numpy(x).to(torch.float8_e5m2).view(torch.uint8).numpy())


def tile(expressions, rows, columns, warps=4):
    """A kernel that computes expressions of a matrix `a`, each stored by a statement of its own."""
    lines = ["@triton.jit", "def kernel(x, out, M: tl.constexpr, N: tl.constexpr):"]
    lines += ["    r = tl.arange(0, M)", "    c = tl.arange(0, N)", "    a = tl.load(x + r[:, None] * N + c[None, :])"]
    lines += ["    " + line for line in expressions]
    kernel = made("\n".join(lines) + "\n", plus=plus, recurrence=recurrence)

    def run(x, out):
        kernel[(1,)](x, out, M=rows, N=columns, num_warps=warps)
        return back(out)

    return run


@triton.jit
def plus(a, b):
    return a + b


@triton.jit
def recurrence(a, b, c, d):
    return a * c, b * c + d


REDUCTIONS = {"sum": np.sum, "max": np.max, "min": np.min, "argmax": np.argmax, "argmin": np.argmin}
for dtype in SIGNED + ["uint32"] + FLOATS:

    @part
    @named(f"reductions_{dtype}")
    def _(dtype=dtype):
        for warps in [1, 4, 8]:
            # Sums of such numbers are exact in every type.
            x = rounded(random.integers(0, 3, (32, 64)), dtype)
            x[random.integers(0, 32, 5), random.integers(0, 64, 5)] = 3
            for axis, at in [(0, "c"), (1, "r")]:
                for name, oracle in REDUCTIONS.items():
                    size = x.shape[1 - axis]
                    target = "int32" if name.startswith("arg") else "float64" if dtype in FLOATS else "int64"
                    lines = [f"tl.store(out + {at}, tl.{name}(a, axis={axis}))"]
                    got = tile(lines, 32, 64, warps)(to(x, dtype), empty(size, target))
                    same(f"{name} of axis {axis}", got.astype("d"), oracle(x, axis=axis).astype("d"))


@part
def reductions_of_all_kinds():
    x = random.integers(0, 1 << 30, (16, 128)).astype("int32")
    xor = np.bitwise_xor.reduce(x, axis=1)
    same("xor_sum", tile(["tl.store(out + r, tl.xor_sum(a, axis=1))"], 16, 128)(to(x), empty(16, "int32")), xor)
    own = tile(["tl.store(out + r, tl.reduce(a, 1, plus))"], 16, 128)(to(x), empty(16, "int32"))
    same("reduce", own, x.sum(axis=1, dtype="int32"))
    both = ["v, i = tl.max(a, axis=1, return_indices=True)", "tl.store(out + r, v)", "tl.store(out + M + r, i)"]
    got = tile(both, 16, 128)(to(x), empty((2, 16), "int32"))
    same("max with indices", got, np.stack([x.max(axis=1), x.argmax(axis=1)]))
    same("all", tile(["tl.store(out, tl.max(a))"], 16, 128)(to(x), empty(1, "int32")), [x.max()])


@part
def scans():
    x = random.integers(1, 4, (16, 64)).astype("int64")
    for axis in [0, 1]:
        for reverse in [False, True]:
            for name, oracle in [("cumsum", np.cumsum), ("cumprod", np.cumprod)]:
                line = f"tl.store(out + r[:, None] * N + c[None, :], tl.{name}(a, axis={axis}, reverse={reverse}))"
                got = tile([line], 16, 64)(to(x), empty(x.shape, "int64"))
                turned = np.flip(x, axis) if reverse else x
                expected = oracle(turned, axis=axis)
                same(f"{name}, axis {axis}", got, np.flip(expected, axis) if reverse else expected)
    f = random.standard_normal((8, 128)).astype("f")
    lines = ["p, q = tl.associative_scan((a * 0 + 0.5, a), 1, recurrence)", "tl.store(out + r[:, None] * N + c[None, :], q)"]
    got = tile(lines, 8, 128)(to(f), empty(f.shape, "float32"))
    expected = np.zeros((8, 128))
    expected[:, 0] = f[:, 0]
    for column in range(1, 128):
        expected[:, column] = expected[:, column - 1] / 2 + f[:, column]
    near("associative_scan", got, expected, 1e-5)


@part
def sorting():
    for dtype in ["int32", "uint8", "float32", "int64"]:
        x = random.integers(0, 200, (8, 64)).astype(dtype)
        for descending in [False, True]:
            line = f"tl.store(out + r[:, None] * N + c[None, :], tl.sort(a, descending={descending}))"
            got = tile([line], 8, 64)(to(x), empty(x.shape, dtype))
            expected = np.sort(x, axis=1)
            same(f"sort of {dtype}", got, expected[:, ::-1] if descending else expected)
    x = random.standard_normal((8, 64)).astype("f")
    line = "tl.store(out + r[:, None] * 8 + tl.arange(0, 8)[None, :], tl.topk(a, 8))"
    same("topk", tile([line], 8, 64)(to(x), empty((8, 8), "float32")), np.sort(x, axis=1)[:, ::-1][:, :8])
    line = "tl.store(out + r[:, None] * N + c[None, :], tl.flip(a, 1))"
    same("flip", tile([line], 8, 64)(to(x), empty(x.shape, "float32")), x[:, ::-1])


@part
def histograms():
    x = random.integers(0, 32, (1, 1024)).astype("int32")
    line = "tl.store(out + tl.arange(0, 32), tl.histogram(tl.reshape(a, (N,)), 32))"
    same("histogram", tile([line], 1, 1024)(to(x), empty(32, "int32")), np.bincount(x[0], minlength=32))


@part
def shapes():
    x = random.integers(0, 1000, (16, 32)).astype("int32")
    flat = "tl.arange(0, 512)"
    cases = {
        "tl.trans(a)": x.T,
        "tl.permute(a, (1, 0))": x.T,
        "tl.reshape(a, (8, 64))": x,
        "tl.permute(tl.reshape(a, (4, 4, 32)), (1, 2, 0))": x.reshape(4, 4, 32).transpose(1, 2, 0),
        "tl.expand_dims(a, 1)": x,
        "tl.broadcast_to(tl.sum(a, axis=1)[:, None], (16, 32))": np.broadcast_to(x.sum(1)[:, None], (16, 32)),
    }
    for name, expected in cases.items():
        got = tile([f"tl.store(out + {flat}, tl.reshape({name}, (512,)))"], 16, 32)(to(x), empty(512, "int32"))
        same(name, got, expected.ravel())
    lines = ["j = tl.join(a, a + 1)", f"tl.store(out + tl.arange(0, 1024), tl.reshape(j, (1024,)))"]
    same("join", tile(lines, 16, 32)(to(x), empty(1024, "int32")), np.stack([x, x + 1], axis=-1).ravel())
    lines = ["p, q = tl.split(tl.reshape(a, (16, 16, 2)))", "tl.store(out + tl.arange(0, 256), tl.reshape(p - q, (256,)))"]
    same("split", tile(lines, 16, 32)(to(x), empty(256, "int32")), (x[:, ::2] - x[:, 1::2]).ravel())
    lines = ["p = tl.interleave(a, -a)", "tl.store(out + tl.arange(0, 1024), tl.reshape(p, (1024,)))"]
    same("interleave", tile(lines, 16, 32)(to(x), empty(1024, "int32")), np.stack([x, -x], axis=-1).ravel())
    lines = ["g = tl.gather(a, (c[None, :] * 7 + r[:, None]) % N, axis=1)", f"tl.store(out + {flat}, tl.reshape(g, (512,)))"]
    at = (np.arange(32)[None, :] * 7 + np.arange(16)[:, None]) % 32
    same("gather", tile(lines, 16, 32)(to(x), empty(512, "int32")), np.take_along_axis(x, at, axis=1).ravel())


@triton.jit
def dot_kernel(x, y, out, K: tl.constexpr, M: tl.constexpr, N: tl.constexpr, PRECISION: tl.constexpr, TURNED: tl.constexpr):
    r, c, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    a = tl.load(x + r[:, None] * K + k[None, :])
    if TURNED:
        b = tl.trans(tl.load(y + c[:, None] * K + k[None, :]))
    else:
        b = tl.load(y + k[:, None] * N + c[None, :])
    tl.store(out + r[:, None] * N + c[None, :], tl.dot(a, b, input_precision=PRECISION, out_dtype=out.dtype.element_ty))


for dtype, precision, tolerance in [
    ("float16", "ieee", 1e-5),
    ("bfloat16", "ieee", 1e-5),
    ("float32", "ieee", 1e-5),
    ("float32", "tf32", 3e-3),
    ("float32", "tf32x3", 1e-5),
    ("float64", "ieee", 1e-12),
    ("int8", "ieee", 0),
]:

    @part
    @named(f"dot_{dtype}_{precision}")
    def _(dtype=dtype, precision=precision, tolerance=tolerance):
        target = {"int8": "int32", "float64": "float64"}.get(dtype, "float32")
        for m, n, k, warps in [(16, 16, 32, 1), (64, 32, 64, 4), (128, 64, 32, 8)]:
            numbers = random.integers(-128, 128, (2, 128, 128)) if dtype == "int8" else random.standard_normal((2, 128, 128))
            a, b = rounded(numbers[0, :m, :k], dtype), rounded(numbers[1, :k, :n], dtype)
            for turned in [False, True]:
                out = empty((m, n), target)
                second = to(b.T if turned else b, dtype)
                dot_kernel[(1,)](to(a, dtype), second, out, k, m, n, precision, turned, num_warps=warps)
                expected = a @ b
                near(f"{m}x{n}x{k}", back(out) / np.abs(expected).max(), expected / np.abs(expected).max(), tolerance)


@triton.jit
def matmul_kernel(x, y, out, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        a = tl.load(x + rows[:, None] * K + k[None, :], mask=(rows[:, None] < M) & (k[None, :] < K), other=0.0)
        b = tl.load(y + k[:, None] * N + columns[None, :], mask=(k[:, None] < K) & (columns[None, :] < N), other=0.0)
        total = tl.dot(a, b, total)
    inside = (rows[:, None] < M) & (columns[None, :] < N)
    tl.store(out + rows[:, None] * N + columns[None, :], total, mask=inside)


@part
def pipelined_products():
    for m, n, k in [(128, 128, 256), (100, 72, 200)]:
        a, b = (rounded(random.standard_normal(shape), "float16") for shape in [(m, k), (k, n)])
        for stages in [1, 2, 4]:
            out = empty((m, n), "float32")
            grid = (triton.cdiv(m, 64), triton.cdiv(n, 64))
            matmul_kernel[grid](to(a, "float16"), to(b, "float16"), out, m, n, k, 64, 64, 32, num_stages=stages)
            near(f"{stages} stages", back(out) / 50, a @ b / 50, 1e-5)


@part
def batched_dot():
    source = """
@triton.jit
def kernel(x, y, out, B: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    i, r, c, k = tl.arange(0, B), tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    a = tl.load(x + i[:, None, None] * M * K + r[None, :, None] * K + k[None, None, :])
    b = tl.load(y + i[:, None, None] * K * N + k[None, :, None] * N + c[None, None, :])
    tl.store(out + i[:, None, None] * M * N + r[None, :, None] * N + c[None, None, :], tl.dot(a, b))
"""
    a, b = (rounded(random.standard_normal(shape), "float16") for shape in [(4, 16, 32), (4, 32, 16)])
    out = empty((4, 16, 16), "float32")
    made(source)[(1,)](to(a, "float16"), to(b, "float16"), out, 4, 16, 16, 32)
    near("dot", back(out), a @ b, 1e-4)


ATOMICS = {
    "add": (lambda x: x.sum(), ["int32", "uint32", "int64", "uint64", "float16", "bfloat16", "float32", "float64"]),
    "max": (lambda x: x.max(), ["int32", "uint32", "int64", "uint64", "float32", "float64"]),
    "min": (lambda x: x.min(), ["int32", "uint32", "int64", "uint64", "float32", "float64"]),
    "and": (np.bitwise_and.reduce, ["int32", "uint32", "int64", "uint64"]),
    "or": (np.bitwise_or.reduce, ["int32", "uint32", "int64", "uint64"]),
    "xor": (np.bitwise_xor.reduce, ["int32", "uint32", "int64", "uint64"]),
}
for operation, (oracle, types) in ATOMICS.items():

    @part
    @named(f"atomic_{operation}")
    def _(operation=operation, oracle=oracle, types=types):
        source = f"""
@triton.jit
def kernel(x, out, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x + i, mask=i < n, other=0)
    tl.atomic_{operation}(out + i % 4, v, mask=i < n)
"""
        for dtype in types:
            if dtype in FLOATS:
                # Sums of a few whole numbers are exact in any order, and in every type.
                x = random.integers(-2, 3, 500).astype("d")
            else:
                x, _ = integers(dtype, 500)
            start = x[:4].copy()
            out = to(start, dtype)
            made(source)[(4,)](to(x, dtype), out, 500, B=128)
            with np.errstate(all="ignore"):
                columns = [oracle(np.append(x[j::4], start[j])) for j in range(4)]
            same(dtype, back(out), np.array(columns).astype("d" if dtype in FLOATS else dtype))


@part
def atomic_exchanges():
    source = """
@triton.jit
def kernel(lock, out, seen, n):
    while tl.atomic_cas(lock, 0, 1, sem="acquire") == 1:
        pass
    tl.store(out, tl.load(out, volatile=True) + 1)
    tl.store(seen + tl.atomic_add(lock + 1, 1), 1)
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0, sem="release")
"""
    lock, out, seen = to(np.zeros(2, "i4")), to(np.zeros(1, "i4")), to(np.zeros(64, "i4"))
    made(source)[(64,)](lock, out, seen, 64)
    same("under a lock", back(out), [64])
    same("what atomic_add returns", back(seen), np.ones(64, "i4"))
    same("the lock", back(lock), [0, 64])


@part
def masks():
    source = """
@triton.jit
def kernel(x, out, n, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(out + i, tl.load(x + i, mask=(i < n) & (i % 3 != 1), other=-7.0), mask=i % 5 != 2)
"""
    x = random.standard_normal(100).astype("f")
    for n in [0, 1, 31, 32, 33, 100]:
        out = to(np.full(128, 5, "f"))
        made(source)[(1,)](to(x), out, n, B=128)
        i = np.arange(128)
        loaded = np.where((i < n) & (i % 3 != 1), np.append(x, np.zeros(28, "f")), np.float32(-7))
        same(f"{n} of 128", back(out), np.where(i % 5 != 2, loaded, np.float32(5)))


@part
def tensor_descriptors():
    source = """
@triton.jit
def kernel(x, out, M, N, B: tl.constexpr):
    source = tl.make_tensor_descriptor(x, shape=[M, N], strides=[N, 1], block_shape=[B, B])
    target = tl.make_tensor_descriptor(out, shape=[M, N], strides=[N, 1], block_shape=[B, B])
    at = [tl.program_id(0) * B, tl.program_id(1) * B]
    target.store(at, source.load(at) * 2)
"""
    x = random.standard_normal((40, 52)).astype("f")
    out = empty(x.shape, "float32")
    triton.set_allocator(lambda size, alignment, stream: torch.empty(size, dtype=torch.int8, device="cuda"))
    made(source)[(3, 4)](to(x), out, 40, 52, B=16)
    same("doubled", back(out), x * 2)


@part
def block_pointers():
    source = """
@triton.jit
def kernel(x, out, M, N, B: tl.constexpr):
    at = (tl.program_id(0) * B, 0)
    source = tl.make_block_ptr(x, (M, N), (N, 1), at, (B, B), (1, 0))
    total = tl.zeros((B,), tl.float32)
    for start in range(0, N, B):
        total += tl.sum(tl.load(source, boundary_check=(0, 1), padding_option="zero"), axis=1)
        source = tl.advance(source, (0, B))
    target = tl.make_block_ptr(out, (M,), (1,), (tl.program_id(0) * B,), (B,), (0,))
    tl.store(target, total, boundary_check=(0,))
"""
    if not hasattr(tl, "advance"):
        return  # newer versions have tensor descriptors alone
    x = random.standard_normal((40, 52)).astype("f")
    out = empty(40, "float32")
    made(source)[(3,)](to(x), out, 40, 52, B=16)
    near("sums of rows", back(out), x.sum(axis=1, dtype="d"), 1e-5)


@triton.jit
def collatz(n):
    steps = 0
    while n != 1:
        if n % 2 == 0:
            n = n // 2
        else:
            n = 3 * n + 1
        steps += 1
    return steps


@part
def control_flow():
    source = """
@triton.jit
def kernel(x, out, n, TIMES: tl.constexpr):
    at = tl.program_id(0)
    if at >= n:
        return
    value = collatz(tl.load(x + at))
    for _ in tl.static_range(TIMES):
        value += 2
    for i in range(at):
        value += i
    tl.store(out + at, value)
"""

    def steps(n):
        count = 0
        while n != 1:
            n, count = (n // 2 if n % 2 == 0 else 3 * n + 1), count + 1
        return count

    x = random.integers(1, 1000, 40).astype("i4")
    out = to(np.zeros(64, "i4"))
    made(source, collatz=collatz)[(64,)](to(x), out, 40, TIMES=3)
    expected = [steps(int(n)) + 6 + i * (i - 1) // 2 for i, n in enumerate(x)]
    same("steps", back(out), expected + [0] * 24)


def philox(seed, counters):
    """The first word of Philox 4x32 with ten rounds."""
    c = [counters.astype("u8"), *(np.zeros(counters.shape, "u8") for _ in range(3))]
    key, mask = [seed & 0xFFFFFFFF, seed >> 32], 0xFFFFFFFF
    for _ in range(10):
        p, q = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(q >> 32) ^ c[1] ^ np.uint64(key[0]), q & mask, (p >> 32) ^ c[3] ^ np.uint64(key[1]), p & mask]
        key = [(key[0] + 0x9E3779B9) & mask, (key[1] + 0xBB67AE85) & mask]
    return c[0].astype("u4")


@part
def random_numbers():
    i = np.zeros(1024, "i4")
    run = elementwise(["tl.randint(1234, i)"], 1024)
    same("randint", run(to(i), to(i), "int32")[0].view("u4"), philox(1234, np.arange(1024)))
    u = elementwise(["tl.rand(5, i)", "tl.randn(5, i)"], 20000)
    i = np.zeros(20000, "f")
    uniform, normal = u(to(i), to(i), "float32")
    assert 0 <= uniform.min() and uniform.max() < 1 and abs(uniform.mean() - 0.5) < 0.01, "WRONG rand"
    assert abs(normal.mean()) < 0.03 and abs(normal.std() - 1) < 0.03, "WRONG randn"


@part
def inline_assembly():
    expression = 'tl.inline_asm_elementwise("lop3.b32 $0, $1, $2, 0, 0x3c;", "=r,r,r", [a, b], dtype=tl.int32, is_pure=True, pack=1)'
    a, b = integers("int32", 200)
    same("lop3", elementwise([expression], 200)(to(a), to(b), "int32")[0], a ^ b)


@part
def printing():
    source = """
@triton.jit
def kernel(x):
    tl.device_print("seen", tl.load(x + tl.arange(0, 4)))
"""
    with tempfile.TemporaryFile() as file:
        kept = os.dup(1)
        os.dup2(file.fileno(), 1)
        try:
            made(source)[(1,)](to(np.array([10, 20, 30, 40], "i4")), num_warps=1)
            torch.cuda.synchronize()
        finally:
            os.dup2(kept, 1)
        file.seek(0)
        text = file.read().decode()
    assert all(f"seen: {n}" in text for n in [10, 20, 30, 40]), f"WRONG {text[:200]!r}"


@part
def assertions():
    ended = subprocess.run(
        [sys.executable, __file__, "--assert"],
        env={**os.environ, "TRITON_DEBUG": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
    )
    assert ended.returncode == 7, f"{ended.returncode}: {ended.stdout[-300:]}"
    assert "less than three" in ended.stdout, ended.stdout[-300:]


@part
def autotuning():
    tuned = triton.autotune([triton.Config({"B": 64}), triton.Config({"B": 128}, num_warps=2)], key=["n"])
    source = """
@tuned
@triton.jit
def kernel(x, out, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out + i, tl.load(x + i, mask=i < n) + 1, mask=i < n)
"""
    x = random.standard_normal(300).astype("f")
    out = empty(300, "float32")
    made(source, tuned=tuned)[lambda meta: (triton.cdiv(300, meta["B"]),)](to(x), out, 300)
    same("plus one", back(out), x + 1)


@part
def layer_norm():
    source = """
@triton.jit
def kernel(x, w, b, out, N, B: tl.constexpr):
    c = tl.arange(0, B)
    a = tl.load(x + tl.program_id(0) * N + c, mask=c < N, other=0.0).to(tl.float32)
    mean = tl.sum(a, axis=0) / N
    centred = tl.where(c < N, a - mean, 0.0)
    scale = 1 / tl.sqrt(tl.sum(centred * centred, axis=0) / N + 1e-5)
    y = centred * scale * tl.load(w + c, mask=c < N) + tl.load(b + c, mask=c < N)
    tl.store(out + tl.program_id(0) * N + c, y, mask=c < N)
"""
    for dtype, tolerance in [("float32", 1e-5), ("float16", 4e-3), ("bfloat16", 3e-2)]:
        x, w, b = (rounded(random.standard_normal(shape), dtype) for shape in [(9, 200), (200,), (200,)])
        out = empty((9, 200), dtype)
        made(source)[(9,)](to(x, dtype), to(w, dtype), to(b, dtype), out, 200, B=256)
        centred = x - x.mean(axis=1, keepdims=True)
        expected = centred / np.sqrt(x.var(axis=1, keepdims=True) + 1e-5) * w + b
        near(dtype, back(out), expected, tolerance)


@triton.jit
def attention_kernel(q, k, v, out, T, scale, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, CAUSAL: tl.constexpr):
    rows, d = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, D)
    base = tl.program_id(1) * T * D
    query = tl.load(q + base + rows[:, None] * D + d[None, :], mask=rows[:, None] < T, other=0.0)
    greatest = tl.full((BM,), -float("inf"), tl.float32)
    weight = tl.zeros((BM,), tl.float32)
    total = tl.zeros((BM, D), tl.float32)
    end = tl.minimum(T, (tl.program_id(0) + 1) * BM) if CAUSAL else T
    for start in range(0, end, BN):
        columns = start + tl.arange(0, BN)
        keys = tl.load(k + base + columns[:, None] * D + d[None, :], mask=columns[:, None] < T, other=0.0)
        scores = tl.dot(query, tl.trans(keys)) * scale
        allowed = columns[None, :] < T
        if CAUSAL:
            allowed = allowed & (columns[None, :] <= rows[:, None])
        scores = tl.where(allowed, scores, -float("inf"))
        now = tl.maximum(greatest, tl.max(scores, axis=1))
        powers = tl.exp(scores - now[:, None])
        shrink = tl.exp(greatest - now)
        values = tl.load(v + base + columns[:, None] * D + d[None, :], mask=columns[:, None] < T, other=0.0)
        total = total * shrink[:, None] + tl.dot(powers.to(values.dtype), values)
        weight = weight * shrink + tl.sum(powers, axis=1)
        greatest = now
    tl.store(out + base + rows[:, None] * D + d[None, :], total / weight[:, None], mask=rows[:, None] < T)


@part
def attention():
    heads, length, width = 3, 100, 32
    for dtype, tolerance in [("float16", 4e-3), ("bfloat16", 3e-2)]:
        for causal in [False, True]:
            q, k, v = (rounded(random.standard_normal((heads, length, width)), dtype) for _ in "qkv")
            out = empty((heads, length, width), "float32")
            grid = (triton.cdiv(length, 64), heads)
            attention_kernel[grid](*(to(x, dtype) for x in (q, k, v)), out, length, width**-0.5, width, 64, 32, causal)
            scores = q @ k.transpose(0, 2, 1) * width**-0.5
            if causal:
                scores = np.where(np.tri(length, dtype=bool), scores, -np.inf)
            powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
            near(f"{dtype}, causal {causal}", back(out), powers / powers.sum(axis=-1, keepdims=True) @ v, tolerance)


finish()
