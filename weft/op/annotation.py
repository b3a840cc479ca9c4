"""Remarks for passes in a program: stop_fusion."""

from __future__ import annotations

import numpy as np

from weft import te
from weft.ir.attrs import Attrs
from weft.ir.op import OpPattern, case, define_op
from weft.ir.typing.relations import identity_relation
from weft.op.layout_inference import keep_layout
from weft.topi import elementwise


@define_op("annotation.stop_fusion", relation=identity_relation, pattern=OpPattern.OPAQUE,
           level=10, inputs=("x",))
def stop_fusion(x: te.Tensor, _attrs: Attrs) -> te.Tensor:
    """``x``, which is written to memory: what comes before and after is not one kernel."""
    return elementwise.identity(x)


stop_fusion.layout(keep_layout)
stop_fusion.spec(np.copy, case((3, 5)), case(()), case((0, 4)), case((2,), dtypes="bool"))
stop_fusion.gradient(lambda _call, _y, dy: [dy])
