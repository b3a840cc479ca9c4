"""The device of every expression."""

from __future__ import annotations

from weft.ir import Expr, IRModule, VirtualDevice, infer_type, post_order
from weft.transform.placement.constraints import constraints_of
from weft.transform.placement.heuristics import apply_heuristics


def virtual_devices(mod: IRModule) -> dict[Expr, VirtualDevice]:
    """The device of every expression of a typed module (``virtual_device_`` in Relay).

    Annotations, copies and heuristics determine it; an expression of a free region, an input and a
    constant have the empty specification. Raises ``TargetError`` if they contradict.
    """
    mod = infer_type(mod)
    found = constraints_of(mod)
    apply_heuristics(found)
    return {node: found.device_of(node) for function in mod.functions.values()
            for node in post_order(function)}
