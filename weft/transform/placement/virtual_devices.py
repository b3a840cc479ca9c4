"""The device of every expression, and annotations of tensors by their names."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from weft.ir.expr import Call, Constant, Expr, Tuple, Var
from weft.ir.module import IRModule
from weft.ir.op import Op
from weft.ir.types import TensorType
from weft.ir.typing.infer import infer_type
from weft.ir.virtual_device import VirtualDevice
from weft.ir.visitor import children, post_order, replace_children
from weft.op.annotation import on_device
from weft.runtime.device import Device
from weft.transform.passes.extract_subgraph import tensors_and_body, unknown_tensor
from weft.transform.placement.constraints import constraints_of
from weft.transform.placement.heuristics import apply_heuristics


def virtual_devices(mod: IRModule) -> dict[Expr, VirtualDevice]:
    """The device of every expression of a module (``virtual_device_`` of Relay's expressions).

    It is what annotations, copies and heuristics say: ``ANYWHERE`` for an expression of a free
    region, an input or a constant. Raises ``TargetError`` where they contradict one another.
    """
    mod = infer_type(mod)
    found = constraints_of(mod)
    apply_heuristics(found)
    return {node: found.device_of(node) for function in mod.functions.values()
            for node in post_order(function)}


def alone(value: Expr, device: str = "", colocate: str = "") -> Expr:
    """``value`` on a device (or in a group), where its arguments may be on any other.

    ``on_device`` alone holds for all that computes ``value``; this is for nodes of graphs, which
    have devices one by one.
    """
    if isinstance(value, Call) and isinstance(value.op, Op):
        value = replace_children(value, [_bordered(arg) for arg in value.args])
    result: Expr = on_device(value, device=device, colocate=colocate, span=value.span)
    return result if value.checked_type is None else result.with_type(value.checked_type)


def annotated(mod: IRModule, devices: Mapping[str, Device | VirtualDevice | str]) -> IRModule:
    """The typed module with tensors of ``main`` on devices, by the names of ``tensors_of``.

    Each is on its device alone: what computes its arguments is not. Raises ``InvalidInputError``
    for an unknown name, with the closest ones.
    """
    if not devices:
        return mod
    known, body = tensors_and_body(mod)
    placed: dict[Expr, str] = {}
    for name, device in devices.items():
        if name not in known:
            raise unknown_tensor(name, known, mod)
        placed[known[name]] = str(device)
    memo: dict[Expr, Expr] = {}
    for node in post_order(body):
        written = replace_children(node, [memo[child] for child in children(node)])
        if node in placed and not isinstance(node, Var):
            written = alone(written, placed[node])
        memo[node] = written
    main = mod["main"].replace(body=memo[body])
    return infer_type(dataclasses.replace(mod, functions={**mod.functions, "main": main}))


def _bordered(arg: Expr) -> Expr:
    """``arg`` on whatever device; the fields of a tuple each."""
    if isinstance(arg, Tuple):
        return replace_children(arg, [_bordered(one) for one in arg.fields])
    if isinstance(arg, (Constant, Op)) or not isinstance(arg.checked_type, TensorType):
        return arg
    return on_device(arg, span=arg.span).with_type(arg.checked_type)
