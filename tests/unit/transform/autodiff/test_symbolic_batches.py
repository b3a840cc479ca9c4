"""Each operator with a derivative has one on a batch of a size that is a symbol.

``WEFT_FUZZ_EXAMPLES`` asks for all operators and cases; the suite takes a sample.
"""

import os
import random

import pytest

from tests.unit.op.harness import make_call, make_inputs, output_types, parameters_of
from weft.ir.expr import Function
from weft.ir.module import IRModule
from weft.ir.op import OPS
from weft.ir.shape import SymDim
from weft.ir.types import has_any
from weft.ir.typing.infer import infer_type
from weft.support.errors import PassError
from weft.transform.autodiff.batching.vectorize import Vectorize
from weft.transform.autodiff.reverse.gradient import Gradient

IS_WHOLE = "WEFT_FUZZ_EXAMPLES" in os.environ
PARTS = 4


def operators():
    found = [name for name in OPS if any(
        OPS.get(name).hook(table) is not None for table in ("gradient", "expansion"))]
    once_refused = {"nn.group_norm", "nn.instance_norm", "nn.pad"}
    return found if IS_WHOLE else sorted({*random.Random(3).sample(found, 48), *once_refused})


def differentiable(operator, one):
    """A program of the call, or ``None`` if it has no gradient for one example."""
    call = make_call(operator, one, make_inputs(operator, one))
    mod = infer_type(IRModule.from_expr(Function(parameters_of(call), call)))
    if any(has_any(t.shape) for t in output_types(mod["main"].body.checked_type)):
        return None  # results whose sizes differ between examples are no batch
    try:
        Gradient(training=False)(mod)
    except PassError:
        return None
    return mod


@pytest.mark.parametrize("part", range(PARTS))
def test_gradients_of_a_batch(part):
    tried = 0
    for name in operators()[part::PARTS]:
        for one in OPS.get(name).cases[: None if IS_WHOLE else 2]:
            mod = differentiable(OPS.get(name), one)
            if mod is None:
                continue
            axes = tuple(0 if p.annotation.dtype.is_float else None for p in mod["main"].params)
            batch = Vectorize(axis_size=SymDim.symbol("batch"), in_axes=axes)
            if any(axis is not None for axis in axes):
                Gradient(training=False)(infer_type(batch(mod)))
                tried += 1
    assert tried > 10
