"""Elementary functions and activations stay within a few units over the whole range of a type.

Near 0, where differences cancel, at the ends of their domains, and far out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft

FUNCTIONS: dict[str, tuple[Callable[..., Any], float]] = {
    "log1p": (np.log1p, 3), "expm1": (np.expm1, 3), "sinh": (np.sinh, 3), "cosh": (np.cosh, 3),
    "tanh": (np.tanh, 2), "asinh": (np.arcsinh, 3), "acosh": (np.arccosh, 3),
    "atanh": (np.arctanh, 3), "asin": (np.arcsin, 5), "acos": (np.arccos, 5),
    "atan": (np.arctan, 4), "exp": (np.exp, 2), "log": (np.log, 2),
}
# Of Selu: ONNX gives them to the digits of float32, torch to those of float64.
ALPHA, GAMMA = 1.67326319217681884765625, 1.05070102214813232421875
TORCH_ALPHA, TORCH_GAMMA = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946


def _softplus(x: np.ndarray) -> np.ndarray:
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def _below(x: np.ndarray, alpha: float) -> np.ndarray:
    return np.where(x < 0, alpha * np.expm1(np.minimum(x, 0)), x)


ACTIVATIONS: dict[str, tuple[Callable[..., Any], str]] = {
    "Softplus": (_softplus, "softplus"),
    "Mish": (lambda x: x * np.tanh(_softplus(x)), "mish"),
    "Elu": (lambda x: _below(x, 1.0), "elu"),
    "Selu": (lambda x: GAMMA * _below(x, ALPHA), "selu"),
    "Celu": (lambda x: _below(x, 1.0), "celu"),
}


def _arguments(dtype: str) -> np.ndarray:
    """All exponents, those around 1 most often, numbers near 1, and the ends."""
    rng = np.random.default_rng(5)
    info = np.finfo(dtype)
    exponents = np.concatenate([
        rng.uniform(np.log2(info.smallest_normal), np.log2(info.max), 3000),
        rng.uniform(-info.nmant, 7, 3000)])
    parts = [rng.choice([-1, 1], 6000) * np.exp2(exponents),
             1 + rng.choice([-1, 1], 1000) * np.exp2(rng.uniform(-info.nmant, 0, 1000)),
             [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, info.max, info.min, 16.7, -16.7]]
    return np.concatenate(parts).astype(dtype)


def _assert_close(name: str, x: np.ndarray, found: Any, exact: np.ndarray, limit: float) -> None:
    found, expected = np.asarray(found), exact.astype(x.dtype)
    special = ~np.isfinite(expected) | ~np.isfinite(found)
    np.testing.assert_array_equal(found[special], expected[special], err_msg=name)
    # Below the smallest normal number digits get lost on the way.
    unit = np.maximum(np.spacing(np.abs(expected)), np.finfo(x.dtype).smallest_normal * 2.0**-12)
    error = np.abs(found.astype(np.longdouble) - exact) / unit.astype(np.longdouble)
    error[special] = 0
    worst = int(np.argmax(error))
    assert error[worst] <= limit, f"{name}({x[worst]!r}) is off by {error[worst]} units"


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_functions_over_their_whole_range(dtype: str) -> None:
    x = _arguments(dtype)
    calls = ", ".join(f"{name}(%x)" for name in FUNCTIONS)
    found = weft.compile(weft.parse(f"def @main(%x: Tensor[({len(x)},), {dtype}]) {{ ({calls}) }}"))
    with np.errstate(all="ignore"):
        for (name, (exact, limit)), values in zip(FUNCTIONS.items(), found(x), strict=True):
            _assert_close(name, x, values, exact(x.astype(np.longdouble)), limit)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_onnx_activations_over_their_whole_range(dtype: str) -> None:
    onnx = pytest.importorskip("onnx")
    x = _arguments(dtype)
    kind = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    # The opset's Celu is one of float32, Mish a function of others.
    names = [n for n in ACTIVATIONS if dtype == "float32" or n != "Celu"]
    value = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node(n, ["x"], [n]) for n in names], "activations",
        [value("x", kind, [len(x)])], [value(n, kind, [len(x)]) for n in names])
    opset = onnx.helper.make_opsetid("", 18)
    found = weft.compile(onnx.helper.make_model(graph, opset_imports=[opset], ir_version=9))(x)
    _check_activations({n: ACTIVATIONS[n][0] for n in names}, x, found)


def _check_activations(
    functions: dict[str, Callable[..., Any]], x: np.ndarray, found: Any
) -> None:
    with np.errstate(all="ignore"):
        for (name, function), values in zip(functions.items(), found, strict=True):
            exact = function(x.astype(np.longdouble))
            # At minus infinity Mish is a product of zero and infinity.
            kept = np.isfinite(x) | (name != "Mish")
            _assert_close(name, x[kept], np.asarray(values)[kept], exact[kept], 6)


@pytest.mark.torch
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_torch_activations_over_their_whole_range(dtype: str) -> None:
    torch = pytest.importorskip("torch")
    x = _arguments(dtype)
    x = x[np.isfinite(x)]
    names = list(ACTIVATIONS)
    functions = [getattr(torch.nn.functional, ACTIVATIONS[n][1]) for n in names]

    def every(t: Any) -> list[Any]:
        # torch's own softplus is x itself above its threshold of 20, to the last digit but one.
        return [f(t, threshold=40) if f is torch.nn.functional.softplus else f(t)
                for f in functions]

    found = torch.compile(every, backend="weft")(torch.from_numpy(x))
    exact = {n: ACTIVATIONS[n][0] for n in names}
    exact["Selu"] = lambda x: TORCH_GAMMA * _below(x, TORCH_ALPHA)
    _check_activations(exact, x, [t.numpy() for t in found])
