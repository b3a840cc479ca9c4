"""Small ONNX models for the converter tests, and their values by two other implementations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from tests.onnxruntime_peer import run_onnxruntime
from weft.frontend.onnx import from_onnx
from weft.transform.analysis.reference import evaluate


def make_model(
    nodes: Sequence[NodeProto],
    inputs: Mapping[str, tuple[Sequence[Any], int]],
    outputs: Sequence[str],
    *,
    constants: Mapping[str, np.ndarray] | None = None,
    opset: int = 17,
    output_type: int | None = None,
    domains: Sequence[str] = (),
) -> ModelProto:
    """A model; ONNX infers the types of outputs unless ``output_type`` says them.

    Nodes may be of ``domains`` besides ONNX's own.
    """
    graph = helper.make_graph(
        list(nodes),
        "test",
        [helper.make_tensor_value_info(n, t, s) for n, (s, t) in inputs.items()],
        [helper.make_tensor_value_info(o, output_type or TensorProto.FLOAT, None) for o in outputs],
        [numpy_helper.from_array(a, n) for n, a in (constants or {}).items()],
    )
    if output_type is None:
        _infer_output_types(graph, opset)
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, 1) for d in domains)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8 if opset < 19 else 10)


def _infer_output_types(graph: onnx.GraphProto, opset: int) -> None:
    """Element types by ONNX's own inference."""
    bare = onnx.GraphProto()
    bare.CopyFrom(graph)
    for output in bare.output:
        output.type.Clear()
    model = helper.make_model(bare, opset_imports=[helper.make_opsetid("", opset)])
    inferred = onnx.shape_inference.infer_shapes(model)
    for output, found in zip(graph.output, inferred.graph.output, strict=True):
        output.type.tensor_type.elem_type = found.type.tensor_type.elem_type


def single(
    op: str,
    arrays: Sequence[np.ndarray | None],
    *,
    opset: int = 17,
    constant: Sequence[int] = (),
    outputs: int = 1,
    **attrs: Any,
) -> tuple[ModelProto, dict[str, np.ndarray]]:
    """A model of one node and its feeds; inputs listed in ``constant`` become initializers."""
    names = ["" if a is None else f"x{i}" for i, a in enumerate(arrays)]
    given = {n: a for n, a in zip(names, arrays, strict=True) if a is not None}
    fixed = {f"x{i}": arrays[i] for i in constant}
    fed = {n: a for n, a in given.items() if n not in fixed}
    results = [f"y{i}" for i in range(outputs)]
    node = helper.make_node(op, names, results, name=f"{op}_0", **attrs)
    inputs = {n: (a.shape, helper.np_dtype_to_tensor_dtype(a.dtype)) for n, a in fed.items()}
    return make_model([node], inputs, results, constants=fixed, opset=opset), fed


def run_weft(model: ModelProto, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """The imported module under the reference interpreter."""
    module = from_onnx(model)
    result = evaluate(module, [feeds[n] for n in module.attrs["input_names"]])
    return list(result) if isinstance(result, tuple) else [result]


def assert_agrees(
    model: ModelProto, feeds: Mapping[str, np.ndarray], *, rtol: float = 1e-4, atol: float = 1e-5
) -> None:
    """weft and onnxruntime give the same shapes, dtypes and values."""
    expected = run_onnxruntime(model, feeds)
    actual = run_weft(model, feeds)
    assert len(actual) == len(expected)
    for a, e in zip(actual, expected, strict=True):
        assert a.shape == np.shape(e)
        assert a.dtype == np.asarray(e).dtype
        np.testing.assert_allclose(a, e, rtol=rtol, atol=atol)
