"""Give each expression a device, and copy tensors between the devices.

The constraint part of placement: Relay's ``PlanDevices`` with the colocation groups and heuristics
of TensorFlow's placer. A region without an annotation or heuristic stays free: it runs on the first
device, or placement by cost chooses a device for its kernels (``place_tasks``).
"""

from __future__ import annotations

from typing import ClassVar

from weft import ir
from weft.support.dataclass import dataclass


@ir.register_pass
@dataclass(frozen=True)
class PlanDevices(ir.Pass):
    """Replace ``on_device`` by ``device_copy`` between the regions of a program.

    A region is a set of expressions that annotations, colocation groups and heuristics put on one
    device, or a free set. A tensor that crosses the border of a region with a device is copied,
    once for each destination; inputs of ``main`` are copied to each region that reads them.

    ``devices`` are those that the program may run on, such as ``sim:0``, the default first; a
    partial specification (``sim``) means the first device that matches. Without ``devices``
    specifications are not resolved. ``soft`` maps a device that ``devices`` lacks to one of the
    same kind, or to the default; otherwise it is a ``TargetError``. Contradictions are errors too.

    def @main(%x: Tensor[(4,), float32]) {
      add(annotation.on_device(nn.relu(%x), device="sim:1"), 1f)
    }
    =>
    def @main(%x: Tensor[(4,), float32]) {
      add(device_copy(nn.relu(device_copy(%x, destination="sim:1")), source="sim:1"), 1f)
    }
    """

    name: ClassVar[str] = "plan_devices"
    seeks: ClassVar[ir.Seeks] = ir.Seeks(operators=("annotation.on_device", "device_copy"),
                                         hooks=("device_kinds",))
    devices: tuple[str, ...] = ()
    soft: bool = False

    def run_module(self, mod: ir.IRModule, ctx: ir.PassContext) -> ir.IRModule:  # noqa: ARG002
        from weft.transform.placement.copies import planned

        return planned(mod, self.devices, soft=self.soft)
