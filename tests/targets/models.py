"""Models for foreign machines: operator cases and light models, exported for C programs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

import weft
from tests.models import test_light_models as light
from tests.models.randomize import light_model_output, light_model_path
from tests.unit.op.harness import (
    CaseId,
    assert_close,
    case_of,
    flatten,
    make_call,
    make_inputs,
    parameters_of,
    reference_outputs,
    static_call,
)
from weft.codegen import backend_of
from weft.codegen.llvm.helpers.build import HELPER_SYMBOLS
from weft.codegen.llvm.python_bodies.link import MATH_SYMBOLS
from weft.codegen.objects.symbols import object_symbols
from weft.ir.expr import Function
from weft.ir.module import IRModule
from weft.ir.op import OPS
from weft.target import CpuTarget

Check = Callable[[np.ndarray, np.ndarray], None]


@dataclass(frozen=True)
class Model:
    """An object that exports ``NAME_run``, with inputs and what they shall give.

    ``label`` is what reports say.
    """

    name: str
    label: str
    object: bytes
    workspace_bytes: int
    inputs: Sequence[np.ndarray]
    expected: Sequence[np.ndarray]
    check: Check

    @property
    def needs_math(self) -> bool:
        """Whether the object calls functions of the C math library."""
        return any(not s.is_defined and s.name in MATH_SYMBOLS - HELPER_SYMBOLS
                   for s in object_symbols(self.object))


class DoesNotFit(Exception):  # noqa: N818 - a case that C programs cannot say, not an error
    """A C program cannot run the case."""


def case_model(id_: CaseId, target: CpuTarget) -> Model:
    """An operator case; ``DoesNotFit`` where data determines the sizes of results."""
    op, one = OPS.get(id_[0]), case_of(id_)
    arrays = make_inputs(op, one)
    call = make_call(op, one, arrays)
    expected = reference_outputs(call, arrays)
    static = static_call(call, arrays)
    module = IRModule.from_expr(Function(parameters_of(static), static))
    label = f"{id_[0]}-{id_[1]}"
    kept = {id(p) for p in parameters_of(static)}
    flat = [a for p, a in zip(parameters_of(call), flatten(arrays), strict=True) if id(p) in kept]
    return _model(label, module, target, flat, expected,
                  lambda got, want: assert_close(got, want, one))


def light_model(name: str, target: CpuTarget) -> Model:
    """One of the nine models of the onnx wheel, with its stored output."""
    return _model(name, light_model_path(name), target, [light.ONES], [light_model_output(name)],
                  light.assert_close)


def _model(label: str, source: object, target: CpuTarget, inputs: Sequence[np.ndarray],
           expected: Sequence[np.ndarray], check: Check) -> Model:
    compiled = weft.compile(source, target=target, build_jobs=1)
    code = compiled.recompiler.code
    manifest = code.manifest
    if manifest.counts or manifest.vm is not None:
        raise DoesNotFit(label)
    backend = backend_of(target)
    own = code.objects[: len(code.objects) - len(backend.support_objects(target))]
    name = "m_" + "".join(c if c.isalnum() else "_" for c in label)
    weights = np.ascontiguousarray(code.constants).view(np.uint8).data
    obj = backend.c_object(name, manifest, own, weights, target)
    assert isinstance(manifest.arena_bytes, int)
    aligned = [np.ascontiguousarray(a) for a in inputs]
    return Model(name, label, obj, manifest.arena_bytes, aligned,
                 [np.asarray(e) for e in expected], check)
