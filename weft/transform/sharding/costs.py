"""What collectives cost: the bytes that a device receives, and the seconds that this takes.

The bytes are the fewest that a collective can move, and the messages one after another those of
recursive doubling and halving (Thakur, Rabenseifner and Gropp, "Optimization of collective
communication operations in MPICH", 2005). Seconds follow from the links of the mesh; on a mesh
without links the cost of a collective is its bytes.
"""

from __future__ import annotations

import math
from typing import Any

from weft.ir import Call, Expr, Op, TensorType
from weft.ir.sharding import Mesh


def _levels(n: int) -> int:
    return (n - 1).bit_length()


# Bytes received by each of n devices, in operands of one device, and messages one after another.
_COSTS = {
    "all_reduce": (lambda n: 2 * (n - 1) / n, lambda n: 2 * _levels(n)),
    "all_gather": (lambda n: n - 1, _levels),
    "reduce_scatter": (lambda n: (n - 1) / n, _levels),
    "all_to_all": (lambda n: (n - 1) / n, lambda n: n - 1),
    "permute": (lambda n: float(n > 1), lambda n: int(n > 1)),
    "broadcast": (lambda n: float(n > 1), _levels),
    "local_part": (lambda _: 0.0, lambda _: 0),
}


def nbytes_of(type_: TensorType) -> int:
    return math.prod(type_.concrete_shape) * type_.dtype.itemsize


def received_bytes(operator: str, local: float, axes: tuple[str, ...], mesh: Mesh) -> float:
    """Bytes that each device receives, for an operand of ``local`` bytes on each."""
    return local * _COSTS[operator][0](mesh.parts(axes))


def cost(operator: str, local: float, axes: tuple[str, ...], mesh: Mesh) -> float:
    """Seconds of a collective over the links of its axes; its bytes on a mesh without links."""
    link, messages = mesh.link(axes), _COSTS[operator][1](mesh.parts(axes))
    return received_bytes(operator, local, axes, mesh) / link.bandwidth + messages * link.latency


def collective_name(node: Expr) -> str | None:
    """``all_reduce`` of a call of ``collective.all_reduce``; ``None`` for other expressions."""
    if isinstance(node, Call) and isinstance(node.op, Op):
        family, _, name = node.op.name.partition(".")
        return name if family == "collective" else None
    return None


def is_exchange(node: Expr) -> bool:
    """Whether devices exchange data here."""
    return collective_name(node) not in (None, "local_part")


def call_bytes(call: Call, mesh: Mesh) -> float:
    """Bytes that each device receives in a typed call of a collective."""
    return received_bytes(*_of_call(call), mesh)


def call_cost(call: Call, mesh: Mesh) -> float:
    """The cost of a typed call of a collective."""
    return cost(*_of_call(call), mesh)


def _of_call(call: Call) -> tuple[str, float, tuple[str, ...]]:
    name, type_, attrs = collective_name(call), call.args[0].checked_type, call.attrs
    assert name is not None
    assert isinstance(type_, TensorType)
    axes: Any = getattr(attrs, "axes", ())
    return name, nbytes_of(type_), axes
