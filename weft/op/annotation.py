"""Remarks for passes in a program: stop_fusion, checkpoint, stop_gradient. They cost nothing."""

from __future__ import annotations

import numpy as np

from weft import te
from weft.ir.attrs import Attrs
from weft.ir.op import Op, OpPattern, case, define_op
from weft.ir.typing.relations import identity_relation
from weft.op.layout_inference import keep_layout
from weft.topi import elementwise


def _remark(name: str, doc: str) -> Op:
    """An operator that gives its argument, under another name for the same memory."""

    def run(x: te.Tensor, _attrs: Attrs) -> te.Tensor:
        return elementwise.identity(x)

    run.__doc__ = doc
    op = define_op(f"annotation.{name}", relation=identity_relation, pattern=OpPattern.OPAQUE,
                   level=10, inputs=("x",))(run)
    op.layout(keep_layout)
    op.spec(np.copy, case((3, 5)), case(()), case((0, 4)), case((2,), dtypes="bool"))
    return op


stop_fusion = _remark("stop_fusion", "``x``, written to memory: what comes before and what comes "
                      "after are not one kernel.")
checkpoint = _remark("checkpoint", "``x``, which is kept: the pass ``recompute`` computes later "
                     "values again from here, and not this one.")
stop_gradient = _remark("stop_gradient", "``x``, taken for a constant by differentiation: no "
                        "gradient flows back through it (``detach`` in torch).")
for _seen_through in (stop_fusion, checkpoint):
    _seen_through.gradient(lambda _call, _y, dy: [dy])
