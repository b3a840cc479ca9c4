"""Elementary functions: accuracy in units in the last place, and every special value."""

import math
from collections.abc import Callable

import numpy as np
import pytest

from weft.ir.dtype import DType
from weft.tir.eval import evaluate_expr
from weft.tir.expr import Call, Var
from weft.tir.transform.lower_intrinsics import decompose

Reference = Callable[[np.ndarray], np.ndarray]


def run(name: str, *arguments: np.ndarray) -> np.ndarray:
    """The polynomial of ``name`` over all elements as the lanes of one vector."""
    dtype = DType.of(arguments[0].dtype).vector(arguments[0].size)
    variables = [Var(f"x{i}", dtype) for i in range(len(arguments))]
    body = decompose(Call(dtype, name, tuple(variables)))
    return np.asarray(evaluate_expr(body, dict(zip(variables, arguments, strict=True))))


def ulps(found: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """Distance in units in the last place of the exact value (of longer precision)."""
    kind = found.dtype.type
    with np.errstate(all="ignore"):
        rounded = exact.astype(kind)
        error = np.abs(found.astype(np.longdouble) - exact.astype(np.longdouble))
        unit = np.spacing(np.abs(rounded)).astype(np.longdouble)
        distance = error / unit
    same = (found == rounded) | (np.isnan(found) & np.isnan(rounded))
    return np.where(same, 0, distance).astype(np.float64)


def erf_long(x: np.ndarray) -> np.ndarray:
    return np.vectorize(math.erf, otypes=[np.float64])(x.astype(np.float64))


def sigmoid_long(x: np.ndarray) -> np.ndarray:
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1, e) / (1 + e)


FUNCTIONS: dict[str, Reference] = {
    "exp": np.exp,
    "log": np.log,
    "tanh": np.tanh,
    "erf": erf_long,
    "sigmoid": sigmoid_long,
    "sin": np.sin,
    "cos": np.cos,
    "rsqrt": lambda x: 1 / np.sqrt(x),
}
RANGES = {"exp": 110.0, "tanh": 12.0, "erf": 7.0, "sigmoid": 110.0, "sin": 1e5, "cos": 1e5}
RANGES_64 = {**RANGES, "exp": 750.0, "sigmoid": 750.0}


def samples(name: str, kind: type, count: int = 40000) -> np.ndarray:
    """Values spread evenly over the interesting range, and over all exponents."""
    seeded = np.random.default_rng(7)
    limit = (RANGES if kind is np.float32 else RANGES_64).get(name, 100.0)
    info = np.finfo(kind)
    exponents = seeded.uniform(math.log2(info.smallest_subnormal), math.log2(limit), count // 2)
    parts = [seeded.uniform(-limit, limit, count // 2), np.exp2(exponents)]
    parts.append(-parts[1])
    if name in ("log", "rsqrt"):
        wide = seeded.uniform(math.log2(info.smallest_subnormal), math.log2(info.max), count // 2)
        parts = [np.exp2(wide), seeded.uniform(0.5, 2.0, count // 2)]
    return np.concatenate(parts).astype(kind)


@pytest.mark.sample(0.4)
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_within_two_ulps(name: str, kind: type) -> None:
    # Evaluating exact sums of products in float64 takes long.
    is_slow = kind is np.float64 or name in ("sin", "cos")
    x = samples(name, kind, 1500 if is_slow else 40000)
    with np.errstate(all="ignore"):
        exact = FUNCTIONS[name](x.astype(np.longdouble))
    error = ulps(run(name, x), exact)
    worst = int(np.argmax(error))
    # The float64 reference of erf is itself off by half a unit.
    assert error[worst] <= 2.0, f"{name}({x[worst]!r}) is off by {error[worst]} ulp"


INF, NAN = math.inf, math.nan
SPECIAL: dict[str, list[tuple[float, float]]] = {
    "exp": [(-INF, 0.0), (INF, INF), (0.0, 1.0), (-0.0, 1.0), (1000.0, INF), (-1000.0, 0.0)],
    "log": [(0.0, -INF), (-0.0, -INF), (-1.0, NAN), (INF, INF), (-INF, NAN), (1.0, 0.0)],
    "tanh": [(INF, 1.0), (-INF, -1.0), (-0.0, -0.0), (50.0, 1.0)],
    "erf": [(INF, 1.0), (-INF, -1.0), (-0.0, -0.0), (30.0, 1.0)],
    "sigmoid": [(INF, 1.0), (-INF, 0.0), (0.0, 0.5)],
    "sin": [(INF, NAN), (0.0, 0.0), (-0.0, -0.0)],
    "cos": [(-INF, NAN), (0.0, 1.0)],
    "rsqrt": [(0.0, INF), (INF, 0.0), (-1.0, NAN)],
}


# The ends of intervals that have polynomials of their own, and the values next to them.
EDGES = np.array([m * 2.0**e for e in range(-6, 4) for m in (1.0, 1.5)], np.float32)


@pytest.mark.parametrize("name", ["exp", "tanh", "erf", "sigmoid", "log", "sin", "cos"])
def test_every_exponent_and_the_ends_of_intervals(name: str) -> None:
    stride = 799_999 if name in ("sin", "cos") else 99_991
    patterns = np.arange(0, 1 << 32, stride, dtype=np.uint32).view(np.float32)
    near = (EDGES.view(np.int32)[:, None] + np.arange(-3, 4)).astype(np.int32).view(np.float32)
    x = np.concatenate([patterns, near.ravel(), -near.ravel()])
    with np.errstate(all="ignore"):
        exact = FUNCTIONS[name](x.astype(np.longdouble))
    error = ulps(run(name, x), exact)
    worst = int(np.argmax(error))
    assert error[worst] <= 2.0, f"{name}({x[worst]!r}) is off by {error[worst]} ulp"


@pytest.mark.parametrize("name", SPECIAL)
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_special_values(name: str, kind: type) -> None:
    x = np.array([x for x, _ in SPECIAL[name]] + [NAN], kind)
    expected = np.array([y for _, y in SPECIAL[name]] + [NAN], kind)
    found = run(name, x)
    np.testing.assert_array_equal(found, expected)
    real = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(found[real]), np.signbit(expected[real]))


def pow_arguments(kind: type, count: int) -> tuple[np.ndarray, np.ndarray]:
    seeded = np.random.default_rng(11)
    largest = 126.0 if kind is np.float32 else 1020.0
    base = np.exp2(seeded.uniform(-largest, largest, count)).astype(kind)
    near = seeded.uniform(0.5, 2.0, count).astype(kind)
    x = np.concatenate([base, near])
    with np.errstate(divide="ignore"):
        reach = largest / np.maximum(np.abs(np.log2(x.astype(np.float64))), 1e-3)
    return x, (seeded.uniform(-1, 1, 2 * count) * reach).astype(kind)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_pow_within_four_ulps(kind: type) -> None:
    x, y = pow_arguments(kind, 20000 if kind is np.float32 else 800)
    with np.errstate(all="ignore"):
        exact = np.power(x.astype(np.longdouble), y.astype(np.longdouble))
    error = ulps(run("pow", x, y), exact)
    worst = int(np.argmax(error))
    assert error[worst] <= 4.0, f"pow({x[worst]!r}, {y[worst]!r}) is off by {error[worst]} ulp"


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_pow_special_values(kind: type) -> None:
    values = [0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5, 3.0, -3.0, 2.5, -2.5, INF, -INF, NAN,
              1e30, -1e30, 1e-40]  # fmt: skip
    x, y = (a.ravel().astype(kind) for a in np.meshgrid(values, values))
    with np.errstate(all="ignore"):
        expected = np.power(x, y)
    found = run("pow", x, y)
    both = np.isnan(found) & np.isnan(expected)
    with np.errstate(all="ignore"):
        close = np.isclose(found, expected, rtol=1e-6, atol=0)
    bad = ~(both | (close & (np.signbit(found) == np.signbit(expected))))
    assert not bad.any(), list(zip(x[bad], y[bad], found[bad], expected[bad], strict=True))


def test_narrow_floats_go_through_float32() -> None:
    x = np.linspace(-4, 4, 33).astype(np.float16)
    np.testing.assert_array_equal(run("exp", x), np.exp(x.astype(np.float64)).astype(np.float16))


def test_scalars_too() -> None:
    x = Var("x", DType.of("float32"))
    value = evaluate_expr(decompose(Call(x.dtype, "tanh", (x,))), {x: np.float32(0.3)})
    assert value == pytest.approx(math.tanh(0.3), rel=2e-7)
