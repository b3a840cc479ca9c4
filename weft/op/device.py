"""``device_copy``, which takes a tensor from one device to another.

Users and importers write ``annotation.on_device``. The pass ``plan_devices`` gives every expression
a device and leaves ``device_copy`` between the regions.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft import te
from weft.ir import Attrs, Call, Expr, OpPattern, OpTraits, attr, define_op, linear, op_case
from weft.ir.typing.relations import identity_relation
from weft.ir.virtual_device import DEVICE_TEXT, is_device_text
from weft.op.batching import leading
from weft.op.gradients import attrs_of
from weft.op.layout_inference import keep_layout
from weft.support.dataclass import dataclass
from weft.topi import elementwise


@dataclass(frozen=True, kw_only=True)
class DeviceCopyAttrs(Attrs):
    source: str = attr("", "device that computes x; empty for any", check=is_device_text,
                       expected=DEVICE_TEXT)
    destination: str = attr("", "device that reads the result; empty for any",
                            check=is_device_text, expected=DEVICE_TEXT)


@define_op("device_copy", attrs=DeviceCopyAttrs, relation=identity_relation, level=10,
           pattern=OpPattern.OPAQUE, inputs=("x",), traits=linear(OpTraits(is_annotation=True)))
def device_copy(x: te.Tensor, _attrs: DeviceCopyAttrs) -> te.Tensor:
    """A copy of ``x`` in the memory of another device.

    The pass ``plan_devices`` leaves it between the regions of a program. No kernel spans it. It
    is a transfer if the two devices differ, and nothing if they are one.
    """
    return elementwise.identity(x)


device_copy.spec(lambda x, **_attrs: np.copy(x), op_case((3, 5), destination="sim:1"),
                 op_case((), source="sim:0", destination="cpu:0"), op_case((0, 4), source="cuda"),
                 op_case((2,), dtypes="bool"))
device_copy.layout(keep_layout)
device_copy.batching(leading)


@device_copy.gradient
def _device_copy_gradient(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    attrs = attrs_of(call, DeviceCopyAttrs)
    return [device_copy(dy, source=attrs.destination, destination=attrs.source)]


@device_copy.jvp
def _device_copy_jvp(call: Call, _y: Expr, tangents: Sequence[Expr | None]) -> Expr | None:
    tangent = tangents[0]
    return None if tangent is None else Call(call.op, (tangent,), call.attrs, span=call.span)
