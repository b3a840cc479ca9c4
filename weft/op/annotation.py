"""Annotations that direct passes: stop_fusion, checkpoint, stop_gradient. They cost nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from weft import te
from weft.ir.attrs import Attrs
from weft.ir.op import Op, OpPattern, case, define_op
from weft.ir.traits import ZERO_GRADIENT, OpTraits, linear
from weft.ir.typing.relations import identity_relation
from weft.op.batching import leading
from weft.op.layout_inference import keep_layout
from weft.topi import elementwise

_BARRIER = linear(OpTraits(is_reshape=True, is_annotation=True))


def _annotation(name: str, traits: OpTraits, doc: str) -> Op:
    """An operator that returns its argument, as an alias of its memory."""

    def run(x: te.Tensor, _attrs: Attrs) -> te.Tensor:
        return elementwise.identity(x)

    run.__doc__ = doc
    op = define_op(f"annotation.{name}", relation=identity_relation, pattern=OpPattern.OPAQUE,
                   level=10, inputs=("x",), traits=traits)(run)
    op.layout(keep_layout)
    op.batching(leading)
    op.spec(np.copy, case((3, 5)), case(()), case((0, 4)), case((2,), dtypes="bool"))
    return op


stop_fusion = _annotation(
    "stop_fusion", _BARRIER,
    "``x``, written to memory: operators before and after it never share a kernel.")
checkpoint = _annotation(
    "checkpoint", _BARRIER,
    "``x``, kept in memory: the pass ``recompute`` starts from it when it recomputes later values.")
stop_gradient = _annotation(
    "stop_gradient", replace(ZERO_GRADIENT, is_annotation=True),
    "``x``, treated as a constant by differentiation: no gradient flows back through it\n"
    "(``detach`` in torch).")
for _identity in (stop_fusion, checkpoint):
    _identity.gradient(lambda _call, _y, dy: [dy])

