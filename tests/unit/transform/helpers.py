"""Helpers for tests of graph passes: executed docstrings, and values before and after."""

from __future__ import annotations

import inspect
import textwrap

import numpy as np

import weft.op  # noqa: F401 - the text of programs names operators
from weft.ir.expr import Call, Function
from weft.ir.module import IRModule
from weft.ir.op import Op
from weft.ir.passes import Pass, PassContext
from weft.ir.structural import assert_structural_equal
from weft.ir.text.parser import parse
from weft.ir.types import TensorType
from weft.ir.typing.infer import infer_type
from weft.ir.verify import verify_module
from weft.ir.visitor import post_order
from weft.transform.analysis.reference import evaluate


def example_of(thing) -> tuple[IRModule, IRModule]:
    """The programs before and after ``=>`` in the docstring of a pass."""
    doc = inspect.getdoc(thing)
    start = min(i for i in (doc.find("\ndef @"), doc.find("\nfn (")) if i >= 0)
    before, after = doc[start:].split("\n=>\n")
    return parse_program(before), parse_program(after)


def parse_program(text: str) -> IRModule:
    return infer_type(parse(textwrap.dedent(text)))


def check_example(pass_: Pass, ctx: PassContext | None = None) -> None:
    before, expected = example_of(type(pass_))
    after = pass_(before, ctx)
    assert_structural_equal(after, expected)
    check_values(before, after)


def random_inputs(fn: Function, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    inputs = []
    for param in fn.params:
        type_ = param.checked_type
        assert isinstance(type_, TensorType)
        values = rng.uniform(-2, 2, type_.concrete_shape)
        inputs.append(np.asarray(values, type_.dtype.numpy))
    return inputs


def check_values(before: IRModule, after: IRModule, *, seed: int = 0, rtol: float = 1e-5) -> None:
    """Both modules are well formed and compute the same."""
    verify_module(after)
    inputs = random_inputs(before["main"], seed)
    expected, got = _flat(evaluate(before, inputs)), _flat(evaluate(after, inputs))
    assert len(expected) == len(got)
    for e, g in zip(expected, got, strict=True):
        assert e.shape == g.shape
        assert e.dtype == g.dtype
        scale = max(1.0, float(np.abs(e).max(initial=0)))
        np.testing.assert_allclose(g, e, rtol=rtol, atol=rtol * scale)


def _flat(value) -> list[np.ndarray]:
    return [a for v in value for a in _flat(v)] if isinstance(value, tuple) else [value]


def op_calls(mod: IRModule) -> list[str]:
    """Names of the operators that ``main`` calls, kernels included, in order of evaluation."""
    calls = (node for node in post_order(mod["main"]) if isinstance(node, Call))
    return [call.op.name for call in calls if isinstance(call.op, Op)]


def kernels(mod: IRModule) -> list[list[str]]:
    """The operators of each kernel, in order of the calls of the kernels."""
    found = []
    for node in post_order(mod["main"]):
        if isinstance(node, Call) and isinstance(node.op, Function):
            if not node.op.attrs.get("primitive"):
                continue
            calls = (n for n in post_order(node.op.body) if isinstance(n, Call))
            found.append([c.op.name for c in calls])
    return found
