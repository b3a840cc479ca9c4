"""What a type checker sees of the public names; ``test_public.py`` runs the checker on this file.

``assert_type`` does nothing when the file runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, assert_type

import numpy as np

import weft
from weft import te
from weft.compiler.opcheck import OperatorReport
from weft.ir import Case, Op, Rule
from weft.ir.python.from_python import PythonFunction
from weft.runtime import TensorSpec
from weft.support.insertion import Insertion


class SquareAttrs(weft.Attrs):
    axis: int = weft.attr(-1, "the axis")


def report(op: Op) -> str:
    found = weft.opcheck(op)
    assert_type(found, OperatorReport)
    assert_type(weft.op_case((3, 5)), Case)
    return str(found)


def run(path: str, x: np.ndarray) -> tuple[TensorSpec, ...]:
    module = weft.compile(path, target="cpu", opt_level=2)
    assert_type(module, weft.Executable)
    assert_type(module.run(None, {"x": x}), list[np.ndarray])
    assert_type(module.as_text("tir"), str)
    if module.is_dynamic:
        assert_type(module.specialize({"x": (1, 3)}), weft.Executable)
    loaded: weft.Executable = weft.load(path)  # of a file of objects, whatever it holds
    assert_type(loaded.inputs, tuple[TensorSpec, ...])
    return module.inputs


@weft.function
def double(x: Any) -> Any:
    return x + x


def models(model: weft.ModelLike) -> weft.Executable:
    assert_type(double, PythonFunction)
    weft.compile(double)
    weft.compile(b"")
    return weft.compile(model)


def positions(rule: Rule) -> Insertion[Callable[[int], int]]:
    weft.compile("net.onnx", rules=[rule])
    compute: te.Tensor | None = None
    del compute
    return weft.pass_at(abs, after="fuse_ops")
