"""Running one model in weft, onnxruntime and the reference evaluator, and holding them together."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import GraphProto, ModelProto, NodeProto, ValueInfoProto, helper, shape_inference
from onnx.reference import ReferenceEvaluator

import weft
from tests.onnxruntime_peer import run_onnxruntime
from weft.support.errors import InternalError, WeftError

Arrays = list[np.ndarray]
# Rounding of one operation, by the name of the dtype.
ROUNDING = {"float64": 1e-14, "float32": 6e-7, "float16": 1e-3, "bfloat16": 8e-3}
SLACK = 40.0
# A compilation of a few nodes that takes longer never ends for larger models.
SLOW_SECONDS = 60.0


def element_type(dtype: np.dtype) -> int:
    return helper.np_dtype_to_tensor_dtype(dtype)


def is_float(array: np.ndarray) -> bool:
    return array.dtype.kind == "f" or array.dtype == ml_dtypes.bfloat16


def typed_value(name: str, array: np.ndarray) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, element_type(array.dtype), array.shape)


@dataclass(frozen=True)
class Outcome:
    """What one implementation made of a model: arrays, or why there are none."""

    arrays: Arrays | None
    error: str = ""


def outcome_of_onnxruntime(model: ModelProto, feeds: Mapping[str, np.ndarray]) -> Outcome:
    if any(a.dtype.name == "bfloat16" for a in feeds.values()):
        return Outcome(None, "feeds of bfloat16")
    try:
        results = run_onnxruntime(model, feeds, optimized=False)
        return Outcome([np.asarray(a) for a in results])
    except Exception as error:  # noqa: BLE001 - its errors share no base class
        return Outcome(None, str(error))


def run_reference(model: ModelProto, feeds: Mapping[str, np.ndarray]) -> Outcome:
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            results = ReferenceEvaluator(model).run(None, dict(feeds))
            return Outcome([np.asarray(a) for a in results])
    except Exception as error:  # noqa: BLE001 - it raises anything
        return Outcome(None, str(error))


def run_weft(model: ModelProto, feeds: Mapping[str, np.ndarray], level: int) -> Outcome:
    """Errors of weft's own kind are refusals; anything else raises."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", weft.FallbackWarning)
        return _run_weft(model, feeds, level)


def _run_weft(model: ModelProto, feeds: Mapping[str, np.ndarray], level: int) -> Outcome:
    start = time.process_time()
    try:
        compiled = weft.compile(model, opt_level=level)
    except WeftError as error:
        if isinstance(error, InternalError):
            raise
        return Outcome(None, str(error))
    took = time.process_time() - start
    if took > SLOW_SECONDS:
        raise TimeoutError(f"compiling took {took:.1f} s of CPU time")
    result = compiled(*(feeds[v.name] for v in model.graph.input))
    return Outcome(list(result) if isinstance(result, tuple) else [result])


def finished(graph: GraphProto, opset: int) -> ModelProto:
    imports = [helper.make_opsetid("", opset)]
    if any(n.domain for n in graph.node):
        imports.append(helper.make_opsetid("com.microsoft", 1))
    version = min(helper.find_min_ir_version_for(imports[:1]), 10)
    return helper.make_model(graph, opset_imports=imports, ir_version=max(version, 4))


def single_model(
    node: NodeProto, feeds: Mapping[str, np.ndarray], opset: int, results: Arrays | None = None
) -> ModelProto:
    """The node alone; ``results`` say the types of its outputs."""
    outputs = [helper.make_empty_tensor_value_info(n) for n in node.output]
    if results is not None:
        outputs = [typed_value(n, a) for n, a in zip(node.output, results, strict=True)]
    graph = helper.make_graph([node], "one", [typed_value(n, a) for n, a in feeds.items()], outputs)
    return finished(graph, opset)


def run_node(node: NodeProto, feeds: Mapping[str, np.ndarray], opset: int) -> Arrays | None:
    """The node alone under the reference evaluator; ``None`` where it is refused or mistyped."""
    model = single_model(node, feeds, opset)
    try:
        onnx.checker.check_node(node, _context(model))
        inferred = shape_inference.infer_shapes(model, strict_mode=True).graph.output
    except Exception:  # noqa: BLE001 - its errors share no base class
        return None
    arrays = run_reference(model, feeds).arrays
    for array, value in zip(arrays or (), inferred, strict=arrays is not None):
        declared = value.type.tensor_type.elem_type
        if array.dtype == object or (declared and declared != element_type(array.dtype)):
            return None
    return arrays


def _context(model: ModelProto) -> Any:
    context = onnx.checker.C.CheckerContext()
    context.ir_version = model.ir_version
    context.opset_imports = {o.domain: o.version for o in model.opset_import}
    return context


def _wide(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float64)


def differing(actual: np.ndarray, expected: np.ndarray, noise: np.ndarray | float = 0.0) -> str:
    """What is different beyond rounding and ``noise``; nothing where all is well."""
    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        return f"{actual.dtype}{list(actual.shape)} for {expected.dtype}{list(expected.shape)}"
    if not is_float(expected):
        wrong = actual != expected
        if np.any(noise):
            wrong &= np.abs(_wide(actual) - _wide(expected)) > noise
    else:
        wrong = _differs(_wide(actual), _wide(expected), ROUNDING[expected.dtype.name], noise)
    if not wrong.any():
        return ""
    place = tuple(int(i) for i in np.argwhere(wrong)[0])
    return (f"{int(wrong.sum())} of {wrong.size} elements, at {place}: "
            f"{actual[place]!r} for {expected[place]!r}")


def _differs(
    actual: np.ndarray, expected: np.ndarray, rounding: float, noise: np.ndarray | float
) -> np.ndarray:
    finite = np.isfinite(expected) & np.isfinite(actual)
    with np.errstate(all="ignore"):
        scale = np.abs(expected[np.isfinite(expected)]).max(initial=1e-30)
        bound = SLACK * rounding * np.maximum(np.abs(expected), 1e-2 * scale) + 8 * noise
        far = np.abs(actual - expected) > bound
        same = (actual == expected) | (np.isnan(actual) & np.isnan(expected))
    return np.where(finite, far, ~same & np.isfinite(noise + np.zeros_like(actual)))


def all_differing(
    actual: Sequence[np.ndarray], peers: Sequence[Arrays], noise: Arrays | None = None
) -> str:
    """The outputs on which ``actual`` differs from every peer; nothing where there is none."""
    found = []
    for i, array in enumerate(actual):
        moved = noise[i] if noise is not None else 0.0
        texts = [differing(array, p[i], moved) for p in peers]
        if texts and all(texts):
            found.append(f"output {i}: {' | '.join(texts)}")
    return "; ".join(found)
