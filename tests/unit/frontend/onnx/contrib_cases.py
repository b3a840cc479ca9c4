"""Models of one operator of ONNX Runtime, and their values by ONNX Runtime and by weft."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx import ModelProto, helper, numpy_helper

import weft
from tests.onnxruntime_peer import run_onnxruntime
from weft.frontend.onnx import from_onnx
from weft.transform.analysis.reference import evaluate

DOMAIN = "com.microsoft"
Arrays = Sequence[np.ndarray | None]
TOLERANCE = {"float32": 2e-5, "float16": 4e-3}


def contrib_model(op: str, arrays: Arrays, *, outputs: Sequence[str] = ("y",),
                  constant: Sequence[int] = (), domain: str = DOMAIN, model_opset: int = 17,
                  shapes: Mapping[int, Sequence[Any]] | None = None,
                  **attrs: Any) -> tuple[ModelProto, dict[str, np.ndarray]]:
    """One node and its feeds; inputs listed in ``constant`` become initializers.

    ``shapes`` declares other shapes of inputs, such as ("batch", 4); an output with the name ""
    is left out, and one that ends in ":int32" has that element type.
    """
    names = ["" if a is None else f"x{i}" for i, a in enumerate(arrays)]
    given = {n: a for n, a in zip(names, arrays, strict=True) if a is not None}
    fixed = [f"x{i}" for i in constant]
    real = next(a.dtype for a in arrays if a is not None and a.dtype.kind == "f")
    declared = {f"x{i}": s for i, s in (shapes or {}).items()}
    results = [o.partition(":")[::2] for o in outputs]
    graph = helper.make_graph(
        [helper.make_node(op, names, [n for n, _ in results], domain=domain, **attrs)], "one",
        [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype),
                                       declared.get(n, a.shape))
         for n, a in given.items() if n not in fixed],
        [helper.make_tensor_value_info(
            n, helper.np_dtype_to_tensor_dtype(np.dtype(kind or real)), None)
         for n, kind in results if n],
        [numpy_helper.from_array(given[n], n) for n in fixed if n in given],
    )
    imports = [helper.make_opsetid("", model_opset), helper.make_opsetid(DOMAIN, 1)]
    model = helper.make_model(graph, opset_imports=imports,
                              ir_version=9 if model_opset < 23 else 11)
    return model, {n: a for n, a in given.items() if n not in fixed}


def run_weft(model: ModelProto, feeds: Mapping[str, np.ndarray], *, compiled: bool = False,
             ) -> list[np.ndarray]:
    """The reference interpreter's values, or those of the compiled module."""
    if compiled:
        return weft.compile(model).run(None, feeds)
    module = from_onnx(model)
    result = evaluate(module, [feeds[n] for n in module.attrs["input_names"]])
    return list(result) if isinstance(result, tuple) else [result]


def assert_same(actual: Sequence[np.ndarray], expected: Sequence[np.ndarray],
                tolerance: float | None = None) -> None:
    """Equal shapes and dtypes, and close values."""
    assert len(actual) == len(expected)
    for a, e in zip(actual, expected, strict=True):
        assert (a.shape, a.dtype) == (e.shape, e.dtype)
        bound = tolerance or TOLERANCE.get(a.dtype.name, 0)
        wide = np.float64 if a.dtype.kind == "f" else a.dtype
        np.testing.assert_allclose(a.astype(wide), e.astype(wide), rtol=bound, atol=bound)


def assert_agrees(op: str, arrays: Arrays, *, compiled: bool = False,
                  tolerance: float | None = None, **rest: Any) -> None:
    """weft and ONNX Runtime give the same outputs."""
    model, feeds = contrib_model(op, arrays, **rest)
    assert_same(run_weft(model, feeds, compiled=compiled),
                run_onnxruntime(model, feeds, optimized=False),
                tolerance)


def some(*shape: int, dtype: str = "float32", seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng([seed, *shape])
    return rng.uniform(-1, 1, shape).astype(dtype)
