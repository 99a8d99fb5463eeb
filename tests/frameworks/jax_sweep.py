# packages: jax[cuda12] scipy
"""JAX: the functions of `jax.numpy` and `jax.lax` in the types that they take, beside NumPy and SciPy.

A part is a group of functions in one type. They are compiled together, which is quicker; where that fails, one by one, so that the
message names those that fail.
"""

import itertools
import math

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import scipy.linalg
import scipy.signal
import scipy.special as special
from jax import lax

from check import finish, part

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_default_matmul_precision", "highest")
random = np.random.default_rng(21)

TOLERANCE = {"float16": 4e-3, "bfloat16": 3e-2, "float32": 1e-5, "float64": 1e-11, "complex64": 2e-5, "complex128": 1e-11}
FLOATS = ["float16", "bfloat16", "float32", "float64"]
COMPLEX = ["complex64", "complex128"]
SIGNED = ["int8", "int16", "int32", "int64"]
UNSIGNED = ["uint8", "uint16", "uint32", "uint64"]


def of(dtype):
    return np.dtype(getattr(ml_dtypes, dtype, dtype))


def compare(name, got, expected, tolerance):
    got, expected = np.asarray(got), np.asarray(expected)
    assert got.shape == expected.shape, f"WRONG {name}: shape {got.shape}, not {expected.shape}"
    if tolerance == 0:
        assert np.array_equal(got, expected), f"WRONG {name}: {got.ravel()[:6]}, not {expected.ravel()[:6]}"
        return
    wide = "complex128" if np.iscomplexobj(expected) else "float64"
    np.testing.assert_allclose(got.astype(wide), expected.astype(wide), tolerance, tolerance, err_msg=f"WRONG {name}")


def sweep(cases, arguments, tolerance):
    """Compares functions with oracles: `cases` has for each name a function of arrays on the device, and the result."""
    try:
        compiled = jax.jit(lambda *x: [function(*x) for function, _ in cases.values()])
        results = [np.asarray(result) for result in compiled(*arguments)]
    except Exception:
        failures = []
        for name, (function, _) in cases.items():
            try:
                np.asarray(jax.jit(function)(*arguments))
            except Exception as error:
                failures.append(f"{name}: {' '.join(str(error).split())[:150]}")
        raise AssertionError("; ".join(failures) or "all functions fail together, none alone")
    wrong = []
    for (name, (_, expected)), got in zip(cases.items(), results):
        try:
            compare(name, got, expected, tolerance(name) if callable(tolerance) else tolerance)
        except AssertionError as error:
            wrong.append(" ".join(str(error).split())[:150])
    assert not wrong, f"{len(wrong)} of {len(cases)}: " + "; ".join(wrong)


def grown(v):
    """The oracle of a loop."""
    for i in range(10):
        v = v * 1.5 + i
    return v


def on(device, function, *arguments):
    """What a function gives on another device of JAX's."""
    with jax.default_device(device):
        return np.asarray(jax.jit(function)(*(jax.device_put(a, device) for a in arguments)))


def again(values, vectors):
    """The matrix with these eigenvalues and eigenvectors."""
    return (vectors * values.astype(vectors.dtype)) @ vectors.conj().T


def named(name):
    def rename(function):
        function.__name__ = name
        return function

    return rename


def wide(x):
    """The same numbers in double precision, for oracles."""
    return x.astype("complex128" if np.iscomplexobj(x) else "float64")


def same_name(names, *arguments):
    """Functions that NumPy has by the same names, of numbers in double precision."""
    return {name: (getattr(jnp, name), getattr(np, name)(*map(wide, arguments))) for name in names.split()}


for dtype in FLOATS:

    @part
    @named(f"unary_{dtype}")
    def _(dtype=dtype):
        x = (random.standard_normal(500) * 2).astype(of(dtype))
        cases = same_name(
            "abs negative sign exp exp2 expm1 sin cos tan arctan sinh cosh tanh arcsinh floor ceil rint trunc square cbrt "
            "deg2rad isnan isinf isfinite signbit sinc nan_to_num positive",
            x,
        )
        w = wide(x)
        cases |= {
            "logistic": (jax.nn.sigmoid, special.expit(w)),
            "erf": (lax.erf, special.erf(w)),
            "erfc": (lax.erfc, special.erfc(w)),
            "relu": (jax.nn.relu, np.maximum(w, 0)),
            "softplus": (jax.nn.softplus, np.log1p(np.exp(w))),
            "silu": (jax.nn.silu, w * special.expit(w)),
            "i0e": (lax.bessel_i0e, special.i0e(w)),
            "i1e": (lax.bessel_i1e, special.i1e(w)),
            "integer_pow": (lambda x: lax.integer_pow(x, 3), w**3),
        }
        # Values that are far from one lose what the type does not have: tolerances are relative as well as absolute.
        loose = {"tan": 20, "sinc": 2, "erfc": 4}
        sweep(cases, [x], lambda name: TOLERANCE[dtype] * loose.get(name, 1))

    @part
    @named(f"unary_positive_{dtype}")
    def _(dtype=dtype):
        x = random.uniform(0.1, 5, 500).astype(of(dtype))
        w = wide(x)
        cases = same_name("sqrt log log2 log10 log1p reciprocal", x)
        cases |= {
            "rsqrt": (lax.rsqrt, 1 / np.sqrt(w)),
            "lgamma": (lax.lgamma, special.gammaln(w)),
            "digamma": (lax.digamma, special.digamma(w)),
            "arccosh": (lambda x: jnp.arccosh(x + 1), np.arccosh(wide(x + x.dtype.type(1)))),
        }
        sweep(cases, [x], TOLERANCE[dtype] * 2)

    @part
    @named(f"unary_unit_{dtype}")
    def _(dtype=dtype):
        x = random.uniform(-0.9, 0.9, 500).astype(of(dtype))
        cases = same_name("arcsin arccos arctanh", x)
        cases["erf_inv"] = (lax.erf_inv, special.erfinv(wide(x)))
        sweep(cases, [x], TOLERANCE[dtype] * 2)

    @part
    @named(f"binary_{dtype}")
    def _(dtype=dtype):
        x, y = (random.standard_normal(500).astype(of(dtype)) * of(dtype).type(3) for _ in "xy")
        y[np.abs(wide(y)) < 0.1] = 1
        cases = same_name(
            "add subtract multiply divide maximum minimum hypot arctan2 copysign logaddexp fmax fmin heaviside "
            "equal not_equal less less_equal greater greater_equal fmod",
            x,
            y,
        )
        cases["power"] = (lambda x, y: jnp.power(jnp.abs(x), y / 3), np.abs(wide(x)) ** wide(y / of(dtype).type(3)))
        cases["clip"] = (lambda x, y: jnp.clip(x, -1, 1), np.clip(wide(x), -1, 1))
        cases["where"] = (lambda x, y: jnp.where(x > y, x, y), np.maximum(wide(x), wide(y)))
        cases["nextafter"] = (lambda x, y: lax.nextafter(x, y), np.nextafter(x, y).astype("d"))
        sweep(cases, [x, y], lambda name: 0 if name == "nextafter" else TOLERANCE[dtype] * (4 if name == "power" else 1))

    @part
    @named(f"reductions_{dtype}")
    def _(dtype=dtype):
        x = random.standard_normal((7, 33, 65)).astype(of(dtype))
        w, cases = wide(x), {}
        for name, axis in itertools.product("sum prod max min mean var std argmax argmin".split(), [None, 0, 1, 2, (0, 2), (1, 2)]):
            if name.startswith("arg") and isinstance(axis, tuple):
                continue
            function = lambda x, name=name, axis=axis: getattr(jnp, name)(x, axis=axis)
            # Products of many numbers in half precision are not in the type's range.
            if name == "prod" and (axis is None or of(dtype).itemsize == 2):
                continue
            cases[f"{name} of {axis}"] = (function, getattr(np, name)(w, axis=axis))
        cases["logsumexp"] = (lambda x: jax.nn.logsumexp(x, axis=-1), special.logsumexp(w, axis=-1))
        cases["softmax"] = (lambda x: jax.nn.softmax(x, axis=1), special.softmax(w, axis=1))
        sweep(cases, [x], lambda name: 0 if name.startswith("arg") else TOLERANCE[dtype] * 8)

    @part
    @named(f"scans_{dtype}")
    def _(dtype=dtype):
        x = random.integers(-2, 3, (5, 40)).astype(of(dtype))
        w = wide(x)
        cases = {}
        for axis in [0, 1]:
            cases[f"cumsum of {axis}"] = (lambda x, a=axis: jnp.cumsum(x, axis=a), np.cumsum(w, axis=axis))
            cases[f"cumprod of {axis}"] = (lambda x, a=axis: lax.cumprod(x[:, :8], a), np.cumprod(w[:, :8], axis=axis))
            cases[f"cummax of {axis}"] = (lambda x, a=axis: lax.cummax(x, a), np.maximum.accumulate(w, axis=axis))
            cases[f"cummin of {axis}"] = (lambda x, a=axis: lax.cummin(x, a), np.minimum.accumulate(w, axis=axis))
        cases["reverse"] = (lambda x: lax.cumsum(x, 1, reverse=True), np.cumsum(w[:, ::-1], axis=1)[:, ::-1])
        cases["logcumsumexp"] = (lambda x: lax.cumlogsumexp(x, 1), np.logaddexp.accumulate(w, axis=1))
        sweep(cases, [x], lambda name: TOLERANCE[dtype] * 4 if name.startswith("log") else 0)

    @part
    @named(f"products_{dtype}")
    def _(dtype=dtype):
        a, b, v = (random.standard_normal(shape).astype(of(dtype)) for shape in [(4, 20, 30), (4, 30, 17), (30,)])
        p, q, r = wide(a), wide(b), wide(v)
        cases = {
            "matrix": (lambda a, b, v: a[0] @ b[0], p[0] @ q[0]),
            "batch": (lambda a, b, v: a @ b, p @ q),
            "vector": (lambda a, b, v: a @ v, p @ r),
            "inner": (lambda a, b, v: jnp.dot(v, v), r @ r),
            "turned": (lambda a, b, v: jnp.einsum("bij,bkj->bik", a, a), p @ p.transpose(0, 2, 1)),
            "einsum": (lambda a, b, v: jnp.einsum("bij,bjk->ki", a, b), np.einsum("bij,bjk->ki", p, q)),
            "outer": (lambda a, b, v: jnp.outer(v, v), np.outer(r, r)),
            "tensordot": (lambda a, b, v: jnp.tensordot(a, b, ((0, 2), (0, 1))), np.tensordot(p, q, ((0, 2), (0, 1)))),
        }
        sweep(cases, [a, b, v], TOLERANCE[dtype] * 20)


for dtype in SIGNED + UNSIGNED:

    @part
    @named(f"integers_{dtype}")
    def _(dtype=dtype):
        about = np.iinfo(dtype)
        x, y = (random.integers(about.min, about.max, 400, dtype=dtype, endpoint=True) for _ in "xy")
        y >>= random.integers(0, 7, 400).astype(dtype)
        y[y == 0] = 3
        x[:3], y[:3] = [about.min, about.max, 0], 7
        shift = (np.abs(wide(y)) % about.bits).astype(dtype)
        with np.errstate(all="ignore"):
            names = "add subtract multiply floor_divide remainder bitwise_and bitwise_or bitwise_xor maximum minimum equal less greater_equal"
            cases = {name: (lambda x, y, s, f=getattr(jnp, name): f(x, y), getattr(np, name)(x, y)) for name in names.split()}
            cases |= {
                "left": (lambda x, y, s: jnp.left_shift(x, s), np.left_shift(x, shift)),
                "right": (lambda x, y, s: jnp.right_shift(x, s), np.right_shift(x, shift)),
                "right, no sign": (
                    lambda x, y, s: lax.shift_right_logical(x, s),
                    (x.view(f"u{x.itemsize}") >> shift.view(f"u{x.itemsize}")).view(dtype),
                ),
                # The least number of a type has no absolute value there, and JAX looks for its divisors for ever.
                "gcd": (lambda x, y, s: jnp.gcd(x >> 1, y >> 1), np.gcd(x >> 1, y >> 1)),
                "not": (lambda x, y, s: ~x, ~x),
                "abs": (lambda x, y, s: jnp.abs(x), np.abs(x)),
                "sign": (lambda x, y, s: jnp.sign(x), np.sign(x)),
                # NumPy counts the bits of a number without its sign.
                "popcount": (lambda x, y, s: lax.population_count(x), np.bitwise_count(x.view(f"u{x.itemsize}")).astype(dtype)),
                "clz": (
                    lambda x, y, s: lax.clz(x),
                    np.array([about.bits - (int(n) % 2**about.bits).bit_length() for n in x], dtype),
                ),
                "power": (lambda x, y, s: lax.integer_pow(x, 5), x**5),
                "sum": (lambda x, y, s: jnp.sum(x, dtype=dtype), x.sum(dtype=dtype)),
                "max": (lambda x, y, s: jnp.max(x), x.max()),
                "argmin": (lambda x, y, s: jnp.argmin(x), x.argmin()),
                "and of all": (lambda x, y, s: jnp.bitwise_and.reduce(x), np.bitwise_and.reduce(x)),
                "xor of all": (lambda x, y, s: jnp.bitwise_xor.reduce(x), np.bitwise_xor.reduce(x)),
                "cumsum": (lambda x, y, s: jnp.cumsum(x, dtype=dtype), np.cumsum(x, dtype=dtype)),
                "products": (
                    lambda x, y, s: x.reshape(20, 20) @ y.reshape(20, 20),
                    x.reshape(20, 20) @ y.reshape(20, 20),
                ),
            }
        sweep(cases, [x, y, shift], 0)


for dtype in COMPLEX:

    @part
    @named(f"complex_{dtype}")
    def _(dtype=dtype):
        x, y = ((random.standard_normal(200) + 1j * random.standard_normal(200)).astype(dtype) for _ in "xy")
        unary = "negative conj abs angle real imag exp log sqrt sin cos tan sinh cosh tanh arcsin arccos arctan arcsinh arctanh square reciprocal sign expm1 log1p"
        cases = {name: (lambda x, y, f=getattr(jnp, name): f(x), getattr(np, name)(wide(x))) for name in unary.split()}
        cases |= same_name("add subtract multiply divide power equal not_equal", x, y)
        cases["sum"] = (lambda x, y: x.sum(), wide(x).sum())
        cases["prod"] = (lambda x, y: x[:20].prod(), wide(x)[:20].prod())
        cases["mean"] = (lambda x, y: x.mean(), wide(x).mean())
        cases["cumsum"] = (lambda x, y: jnp.cumsum(x), wide(x).cumsum())
        cases["products"] = (lambda x, y: x[:100].reshape(10, 10) @ y[:100].reshape(10, 10), wide(x)[:100].reshape(10, 10) @ wide(y)[:100].reshape(10, 10))
        sweep(cases, [x, y], lambda name: TOLERANCE[dtype] * (20 if name in ("power", "prod", "tan") else 4))


@part
def special_numbers():
    values = np.array([0.0, -0.0, 1, -1, np.inf, -np.inf, np.nan, 1e-42, -1e-42, 3e38, 0.5, -2.5])
    for dtype in ["float32", "float64"]:
        x, y = (a.ravel().astype(dtype) for a in np.meshgrid(values, values))
        with np.errstate(all="ignore"):
            binary = "add subtract multiply divide maximum minimum fmax fmin power arctan2 copysign equal less hypot logaddexp".split()
            unary = "exp log sqrt sin cos tanh floor ceil rint sign abs isnan isinf expm1 log1p arcsinh cbrt signbit".split()
            cases = {n: (lambda x, y, f=getattr(jnp, n): f(x, y), getattr(np, n)(x, y)) for n in binary}
            cases |= {n: (lambda x, y, f=getattr(jnp, n): f(x), getattr(np, n)(x)) for n in unary}
        sweep(cases, [x, y], TOLERANCE[dtype])


@part
def more_functions():
    a, x = random.uniform(0.2, 5, (2, 300))
    for dtype, tolerance in [("float32", 5e-5), ("float64", 1e-10)]:
        p, q = a.astype(dtype), x.astype(dtype)
        r, s = wide(p), wide(q)
        js = jax.scipy.special
        cases = {
            "gammainc": (js.gammainc, special.gammainc(r, s)),
            "gammaincc": (js.gammaincc, special.gammaincc(r, s)),
            "betainc": (lambda a, x: js.betainc(a, x, x / 6), special.betainc(r, s, wide(q / q.dtype.type(6)))),
            "zeta": (lambda a, x: js.zeta(a + 2, x), special.zeta(wide(p + p.dtype.type(2)), s)),
            "polygamma": (lambda a, x: js.polygamma(1, x), special.polygamma(1, s)),
            "xlogy": (js.xlogy, special.xlogy(r, s)),
            "entr": (lambda a, x: js.entr(x), special.entr(s)),
            "betaln": (js.betaln, special.betaln(r, s)),
            "ndtr": (lambda a, x: js.ndtr(x - 2), special.ndtr(wide(q - 2))),
            "log_ndtr": (lambda a, x: js.log_ndtr(-x), special.log_ndtr(-s)),
        }
        sweep(cases, [p, q], tolerance)


@part
def conversions():
    types = ["bool"] + SIGNED + UNSIGNED + FLOATS
    for source in types:
        whole = random.integers(0 if source in UNSIGNED + ["bool"] else -100, 2 if source == "bool" else 100, 100)
        x = whole.astype(of(source))
        if source in FLOATS:
            x = (whole + random.uniform(-0.5, 0.5, 100)).astype(of(source))
        # Numbers below zero have no place among the unsigned ones.
        cases = {}
        for target in types:
            if source in FLOATS and target in UNSIGNED:
                cases[target] = (lambda x, t=target: jnp.abs(x).astype(t), np.abs(wide(x)).astype(target))
            else:
                middle = wide(x) if target in FLOATS or source in FLOATS else x
                cases[target] = (lambda x, t=target: x.astype(t), middle.astype(of(target)))
        sweep(cases, [x], 0)


@part
def small_floats():
    names = "float8_e4m3fn float8_e5m2 float8_e4m3b11fnuz float8_e4m3fnuz float8_e5m2fnuz".split()
    x = (random.standard_normal(1000) * 4.0 ** random.integers(-8, 6, 1000)).astype("f")
    every = np.arange(256, dtype="u1")
    for name in names:
        dtype = of(name)
        expected = x.astype(dtype).view("u1")
        sweep({name: (lambda x: lax.bitcast_convert_type(x.astype(dtype), jnp.uint8), expected)}, [x], 0)
        got = np.asarray(jax.jit(lambda e: lax.bitcast_convert_type(e, dtype).astype("float32"))(every))
        np.testing.assert_array_equal(got, every.view(dtype).astype("f"), err_msg=f"WRONG {name}")


@part
def bits():
    x = random.standard_normal(64).astype("f")
    cases = {
        "to int": (lambda x: lax.bitcast_convert_type(x, jnp.int32), x.view("i4")),
        "to bytes": (lambda x: lax.bitcast_convert_type(x, jnp.uint8), x.view("u1").reshape(64, 4)),
        "reduce_precision": (lambda x: lax.reduce_precision(x, 8, 7), x.astype(ml_dtypes.bfloat16).astype("f")),
        "packbits": (lambda x: jnp.packbits(x > 0), np.packbits(x > 0)),
        "unpackbits": (lambda x: jnp.unpackbits(lax.bitcast_convert_type(x, jnp.uint8).ravel()), np.unpackbits(x.view("u1"))),
    }
    sweep(cases, [x], 0)


for dtype in ["int8", "uint16", "int32", "uint64", "float16", "bfloat16", "float32", "float64"]:

    @part
    @named(f"sorting_{dtype}")
    def _(dtype=dtype):
        x = random.integers(0, 60, (6, 129)).astype(of(dtype))
        w = wide(x)
        cases = {
            "sort": (lambda x: jnp.sort(x, axis=1), np.sort(w, axis=1)),
            "sort of columns": (lambda x: jnp.sort(x, axis=0), np.sort(w, axis=0)),
            "argsort": (lambda x: jnp.argsort(x, axis=1, stable=True), np.argsort(w, axis=1, kind="stable")),
            "downwards": (lambda x: jnp.sort(x, axis=1, descending=True), np.sort(w, axis=1)[:, ::-1]),
            "of all": (lambda x: jnp.sort(x, axis=None), np.sort(w, axis=None)),
            "top": (lambda x: lax.top_k(x, 5)[0], np.sort(w, axis=1)[:, :-6:-1]),
            "two keys": (lambda x: jnp.lexsort((x[0], x[1])), np.lexsort((w[0], w[1]))),
            "searchsorted": (lambda x: jnp.searchsorted(jnp.sort(x[0]), x[1]), np.searchsorted(np.sort(w[0]), w[1])),
            "median": (lambda x: jnp.median(x.astype("float64"), axis=1), np.median(w, axis=1)),
            "percentile": (lambda x: jnp.percentile(x.astype("float64"), 30, axis=1), np.percentile(w, 30, axis=1)),
        }
        if dtype == "int8":
            # A row of bytes is sorted by a kernel that XLA brings along as machine code.
            del cases["of all"], cases["searchsorted"]
        sweep(cases, [x], lambda name: 1e-12 if name in ("median", "percentile") else 0)


@part
def sorting_of_much():
    x = random.integers(0, 1 << 31, 20000).astype("int32")
    y = random.standard_normal(20000).astype("f")
    sweep({"keys": (jnp.sort, np.sort(x)), "order": (jnp.argsort, np.argsort(x, kind="stable"))}, [x], 0)
    sweep({"floats": (jnp.sort, np.sort(y)), "unique": (lambda y: jnp.unique(jnp.round(y), size=5), np.unique(np.round(y))[:5])}, [y], 0)


for dtype in ["bool", "int8", "uint16", "int32", "int64", "float16", "bfloat16", "float32", "float64", "complex64", "complex128"]:

    @part
    @named(f"shapes_{dtype}")
    def _(dtype=dtype):
        x = random.integers(0, 2 if dtype == "bool" else 100, (6, 7, 8)).astype(of(dtype))
        i = random.integers(0, 6, 9)
        at = random.integers(0, 7, (6, 3, 8))
        zero = np.zeros((), of(dtype))
        padded = np.pad(x, ((1, 2), (0, 3), (2, 0)))
        spread = np.zeros((11, 7, 8), of(dtype))
        spread[::2] = x
        cases = {
            "transpose": (lambda x: x.transpose(2, 0, 1), x.transpose(2, 0, 1)),
            "swap": (lambda x: jnp.swapaxes(x, 0, 1), x.swapaxes(0, 1)),
            "reshape": (lambda x: x.reshape(21, 16), x.reshape(21, 16)),
            "concatenate": (lambda x: jnp.concatenate([x, x[:2], x]), np.concatenate([x, x[:2], x])),
            "stack": (lambda x: jnp.stack([x, x], axis=1), np.stack([x, x], axis=1)),
            "pad": (lambda x: jnp.pad(x, ((1, 2), (0, 3), (2, 0))), padded),
            "spread": (lambda x: lax.pad(x, zero, ((0, 0, 1), (0, 0, 0), (0, 0, 0))), spread),
            "cut": (lambda x: lax.pad(x, zero, ((-1, -2, 0), (0, 0, 0), (0, -3, 0))), x[1:-2, :, :-3]),
            "steps": (lambda x: x[::2, 1::3, ::-1], x[::2, 1::3, ::-1]),
            "take": (lambda x: jnp.take(x, i, axis=0), np.take(x, i, axis=0)),
            "along": (lambda x: jnp.take_along_axis(x, at, axis=1), np.take_along_axis(x, at, axis=1)),
            "points": (lambda x: x[i, i, i], x[i, i, i]),
            "roll": (lambda x: jnp.roll(x, (2, -3), (0, 2)), np.roll(x, (2, -3), (0, 2))),
            "flip": (lambda x: jnp.flip(x, 1), np.flip(x, 1)),
            "tile": (lambda x: jnp.tile(x, (2, 1, 3)), np.tile(x, (2, 1, 3))),
            "repeat": (lambda x: jnp.repeat(x, 3, axis=1), np.repeat(x, 3, axis=1)),
            "tril": (lambda x: jnp.tril(x[0], 1), np.tril(x[0], 1)),
            "triu": (lambda x: jnp.triu(x[0], -1), np.triu(x[0], -1)),
            "diagonal": (lambda x: jnp.diagonal(x[0]), np.diagonal(x[0])),
            "diag": (lambda x: jnp.diag(x[0, 0]), np.diag(x[0, 0])),
            "rot90": (lambda x: jnp.rot90(x), np.rot90(x)),
            "dynamic": (lambda x: lax.dynamic_slice(x, (i[0], 9, 1), (2, 3, 4)), x[min(i[0], 4) :][:2, 4:7, 1:5]),
            "where": (lambda x: jnp.where(x[0] == x[1], x[2], x[3]), np.where(x[0] == x[1], x[2], x[3])),
            "any": (lambda x: jnp.any(x, axis=1), np.any(x, axis=1)),
            "all": (lambda x: jnp.all(x, axis=2), np.all(x, axis=2)),
            "count": (lambda x: jnp.count_nonzero(x, axis=0), np.count_nonzero(x, axis=0)),
            "nonzero": (lambda x: jnp.nonzero(x[0, 0], size=8, fill_value=-1)[0], np.append(np.nonzero(x[0, 0])[0], [-1] * 8)[:8]),
        }
        sweep(cases, [x], 0)


for dtype in ["uint8", "int16", "int32", "uint32", "int64", "float16", "bfloat16", "float32", "float64", "complex64"]:

    @part
    @named(f"scatter_{dtype}")
    def _(dtype=dtype):
        x = random.integers(1, 4, 30).astype(of(dtype))
        i = random.integers(0, 30, 20)
        u = random.integers(1, 3, 20).astype(of(dtype))

        def expected(operation):
            result = x.astype("complex128" if dtype == "complex64" else "float64")
            operation.at(result, i, u.astype(result.dtype))
            return result.astype(of(dtype))

        only = np.unique(i)
        put = x.copy()
        put[only] = u[: only.size]
        cases = {
            "add": (lambda x, u: x.at[i].add(u), expected(np.add)),
            "subtract": (lambda x, u: x.at[i].add(-u), expected(np.subtract) if dtype not in ("uint8", "uint32") else None),
            "multiply": (lambda x, u: x.at[i].multiply(u), expected(np.multiply)),
            "max": (lambda x, u: x.at[i].max(u), expected(np.maximum)) if dtype != "complex64" else None,
            "min": (lambda x, u: x.at[i].min(u), expected(np.minimum)) if dtype != "complex64" else None,
            "set": (lambda x, u: x.at[only].set(u[: only.size]), put),
            "outside": (lambda x, u: x.at[i + 1000].add(u, mode="drop"), x),
            "segment_sum": (
                lambda x, u: jax.ops.segment_sum(x, jnp.arange(30) % 4, 4),
                np.array([x[k::4].sum() for k in range(4)]).astype(of(dtype)),
            ),
        }
        sweep({name: case for name, case in cases.items() if case and case[1] is not None}, [x, u], 0)


@part
def histograms():
    x = random.integers(0, 20, 3000)
    y = random.standard_normal(3000).astype("f")
    sweep({"bincount": (lambda x: jnp.bincount(x, length=20), np.bincount(x, minlength=20))}, [x], 0)
    sweep({"histogram": (lambda y: jnp.histogram(y, 17, (-3.0, 3.0))[0], np.histogram(y, 17, (-3, 3))[0])}, [y], 0)


@part
def control_flow():
    x = random.standard_normal((50, 8)).astype("f")
    w = wide(x)

    def collatz(n):
        step = lambda s: (jnp.where(s[0] % 2 == 0, s[0] // 2, 3 * s[0] + 1), s[1] + 1)
        return lax.while_loop(lambda s: s[0] != 1, step, (n, 0))[1]

    running = np.zeros_like(w)
    for t in range(50):
        running[t] = (running[t - 1] if t else 0) * 0.5 + w[t]
    cases = {
        "while": (lambda x: jax.vmap(collatz)(jnp.array([27, 97, 6, 1])), np.array([111, 118, 8, 0])),
        "fori": (lambda x: lax.fori_loop(0, 10, lambda i, v: v * 1.5 + i, x[0]), grown(w[0])),
        "scan": (lambda x: lax.scan(lambda c, v: (c * 0.5 + v, c * 0.5 + v), jnp.zeros(8, "f"), x)[1], running),
        "cond": (lambda x: lax.cond(x[0, 0] > 0, jnp.sin, jnp.cos, x), np.sin(w) if x[0, 0] > 0 else np.cos(w)),
        "switch": (lambda x: lax.switch(2, [jnp.sin, jnp.cos, jnp.tanh], x), np.tanh(w)),
        "map": (lambda x: lax.map(lambda r: r @ r, x), (w * w).sum(1)),
        "associative": (
            lambda x: lax.associative_scan(lambda p, q: (p[0] * q[0], p[1] * q[0] + q[1]), (jnp.full_like(x, 0.5), x))[1],
            running,
        ),
    }
    sweep(cases, [x], 1e-5)


def naive(x, w, stride, padding, dilation, groups):
    """A convolution as it is defined, in double precision."""
    x = np.pad(wide(x), ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    w = wide(w)
    size = (w.shape[2] - 1) * dilation + 1
    rows, columns = ((n - size) // stride + 1 for n in x.shape[2:])
    out = np.zeros((x.shape[0], w.shape[0], rows, columns))
    each_in, each_out = x.shape[1] // groups, w.shape[0] // groups
    for o, r, c in itertools.product(range(w.shape[0]), range(rows), range(columns)):
        first = o // each_out * each_in
        piece = x[:, first : first + each_in, r * stride :, c * stride :][:, :, : size : dilation, : size : dilation]
        out[:, o, r, c] = (piece * w[o]).sum(axis=(1, 2, 3))
    return out


@part
def convolutions():
    for dtype in ["float16", "float32", "float64"]:
        for stride, padding, dilation, groups in [(1, 0, 1, 1), (2, 1, 1, 1), (1, 2, 2, 1), (1, 1, 1, 2), (1, 1, 1, 4)]:
            x = random.standard_normal((2, 4, 9, 9)).astype(dtype)
            w = random.standard_normal((8, 4 // groups, 3, 3)).astype(dtype)
            options = dict(window_strides=(stride,) * 2, padding=((padding,) * 2,) * 2, rhs_dilation=(dilation,) * 2, feature_group_count=groups)
            name = f"{dtype}, {stride} {padding} {dilation} {groups}"
            function = lambda x, w: lax.conv_general_dilated(x, w, **options)
            sweep({name: (function, naive(x, w, stride, padding, dilation, groups))}, [x, w], TOLERANCE[dtype] * 20)


@part
def windows():
    x = random.standard_normal((2, 12, 12)).astype("f")
    w = wide(x)
    pools = w.reshape(2, 6, 2, 6, 2)
    view = np.lib.stride_tricks.sliding_window_view(w, (3, 3), axis=(1, 2))
    window = lambda x, start, f, size, stride: lax.reduce_window(x, np.float32(start), f, (1, size, size), (1, stride, stride), "VALID")
    cases = {
        "max": (lambda x: window(x, -np.inf, lax.max, 2, 2), pools.max(axis=(2, 4))),
        "sum": (lambda x: window(x, 0, lax.add, 3, 1), view.sum(axis=(3, 4))),
        "min": (lambda x: window(x, np.inf, lax.min, 3, 1), view.min(axis=(3, 4))),
        "gradient of max": (
            jax.grad(lambda x: window(x, -np.inf, lax.max, 2, 2).sum()),
            (pools == pools.max(axis=(2, 4), keepdims=True)).reshape(2, 12, 12),
        ),
    }
    sweep(cases, [x], 1e-5)


@part
def fourier():
    for n in [8, 15, 31, 64, 100]:
        for real, whole in [("float32", "complex64"), ("float64", "complex128")]:
            x = random.standard_normal((3, n)).astype(real)
            z = (x + 1j * x[::-1] ** 2).astype(whole)
            w, tolerance = wide(z), TOLERANCE[whole] * 20
            cases = {
                "fft": (lambda z, x: jnp.fft.fft(z), np.fft.fft(w)),
                "ifft": (lambda z, x: jnp.fft.ifft(z), np.fft.ifft(w)),
                "rfft": (lambda z, x: jnp.fft.rfft(x), np.fft.rfft(wide(x))),
                "irfft": (lambda z, x: jnp.fft.irfft(z, n), np.fft.irfft(w, n)),
                "fft2": (lambda z, x: jnp.fft.fft2(z), np.fft.fft2(w)),
                "rfft2": (lambda z, x: jnp.fft.rfft2(x), np.fft.rfft2(wide(x))),
                "shift": (lambda z, x: jnp.fft.fftshift(z), np.fft.fftshift(w)),
            }
            sweep({f"{name} of {n}": case for name, case in cases.items()}, [z, x], tolerance)


@part
def linear_algebra():
    """One matrix at a time: for several, jaxlib has a kernel of its own, which is machine code."""
    for dtype in ["float32", "float64", "complex64", "complex128"]:
        a = random.standard_normal((12, 12))
        if dtype.startswith("complex"):
            a = a + 1j * random.standard_normal((12, 12))
        a = a.astype(dtype)
        w = wide(a)
        positive = (w @ w.conj().T + 12 * np.eye(12)).astype(dtype)
        p = wide(positive)
        lower = np.linalg.cholesky(p)
        tolerance = TOLERANCE[dtype] * 50
        cases = {
            "cholesky": (lambda a, p: jnp.linalg.cholesky(p), lower),
            "eigenvalues": (lambda a, p: jnp.linalg.eigvalsh(p), np.linalg.eigvalsh(p)),
            "singular values": (lambda a, p: jnp.linalg.svd(a, compute_uv=False), np.linalg.svd(w, compute_uv=False)),
            "triangular": (
                lambda a, p: lax.linalg.triangular_solve(jnp.linalg.cholesky(p), a, left_side=True, lower=True),
                scipy.linalg.solve_triangular(lower, w, lower=True),
            ),
            "cho_solve": (
                lambda a, p: jax.scipy.linalg.cho_solve((jnp.linalg.cholesky(p), True), a),
                np.linalg.solve(p, w),
            ),
            "norm": (lambda a, p: jnp.linalg.norm(a), np.linalg.norm(w)),
            "power": (lambda a, p: jnp.linalg.matrix_power(a, 3), np.linalg.matrix_power(w, 3)),
            "kron": (lambda a, p: jnp.kron(a[:3], p[:2]), np.kron(w[:3], p[:2])),
            "from qr": (lambda a, p: jnp.matmul(*jnp.linalg.qr(a)), w),
            "from eigh": (lambda a, p: again(*jnp.linalg.eigh(p)), p),
        }
        sweep(cases, [a, positive], lambda name: tolerance * (20 if name in ("power", "from eigh", "kron") else 1))


@part
def random_numbers():
    """JAX says that the same key gives the same numbers on every device; its processor is the oracle."""
    functions = {
        "bits": lambda k: jax.random.bits(k, (1000,)),
        "uniform": lambda k: jax.random.uniform(k, (1000,)),
        "normal": lambda k: jax.random.normal(k, (1000,), "float64"),
        "randint": lambda k: jax.random.randint(k, (1000,), -50, 1000),
        "permutation": lambda k: jax.random.permutation(k, 500),
        "choice": lambda k: jax.random.choice(k, 100, (50,), replace=False),
        "bernoulli": lambda k: jax.random.bernoulli(k, 0.3, (1000,)),
        "exponential": lambda k: jax.random.exponential(k, (1000,), "float64"),
        "gamma": lambda k: jax.random.gamma(k, 2.5, (200,), "float64"),
        "poisson": lambda k: jax.random.poisson(k, 4.0, (200,)),
        "categorical": lambda k: jax.random.categorical(k, jnp.arange(6.0), shape=(300,)),
        "fold": lambda k: jax.random.bits(jax.random.fold_in(jax.random.split(k)[1], 7), (100,)),
    }
    key = np.array([12, 345], "uint32")
    processor = jax.devices("cpu")[0]
    expected = {name: on(processor, f, key) for name, f in functions.items()}
    sweep({name: (f, expected[name]) for name, f in functions.items()}, [key], lambda name: 1e-6 if expected[name].dtype.kind == "f" else 0)


@part
def gradients():
    """Derivatives beside those that are known."""
    x = random.uniform(0.3, 2, 100)
    each = lambda f: lambda x: jax.vmap(jax.grad(f))(x)
    cases = {
        "tanh": (each(jnp.tanh), 1 / np.cosh(x) ** 2),
        "erf": (each(lax.erf), 2 / math.sqrt(math.pi) * np.exp(-x * x)),
        "lgamma": (each(lax.lgamma), special.digamma(x)),
        "power": (each(lambda x: x**2.5), 2.5 * x**1.5),
        "logsumexp": (jax.grad(jax.nn.logsumexp), special.softmax(x)),
        "sort": (jax.grad(lambda x: (jnp.sort(x) * jnp.arange(100)).sum()), np.argsort(np.argsort(x)).astype("d")),
        "cumprod": (jax.grad(lambda x: jnp.cumprod(x[:10])[-1]), np.append(x[:10].prod() / x[:10], np.zeros(90))),
        "second": (each(jax.grad(jnp.sin)), -np.sin(x)),
        "jacobian": (lambda x: jax.jacobian(lambda v: v * v.sum())(x[:4]), np.eye(4) * x[:4].sum() + x[:4][:, None]),
        "hessian": (lambda x: jax.hessian(lambda v: (v**3).sum())(x[:4]), np.diag(6 * x[:4])),
    }
    sweep(cases, [x], 1e-9)


@part
def donation_and_callbacks():
    x = random.standard_normal(1000).astype("f")
    kept = jax.device_put(x)
    got = jax.jit(lambda x: x * 2, donate_argnums=0)(kept)
    compare("donated", got, x * 2, 1e-6)
    called = jax.jit(lambda x: jax.pure_callback(lambda x: np.cumsum(x), jax.ShapeDtypeStruct((1000,), "float32"), x) + 1)
    compare("pure_callback", called(x), np.cumsum(x) + 1, 1e-5)


finish()
