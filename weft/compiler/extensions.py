"""What a user has added to weft, whose sources no cache key covers."""

from __future__ import annotations

from typing import Any

from weft.ir.expr import Call, Function
from weft.ir.op import OPS, Op
from weft.ir.visitor import post_order
from weft.strategy.registry import layout_hooks, strategies_of
from weft.target import CpuTarget
from weft.transform.external.generate_external import EXTERNAL_CODE


def is_self_contained(function: Function, target: CpuTarget) -> bool:
    """Whether weft's own sources determine the code: no operator or strategy of a user.

    Only such kernels may be looked up in the cache before they are lowered, or built by a process
    that has not run the user's program.
    """
    operators = (node.op for node in post_order(function.body) if isinstance(node, Call))
    return all(_is_own_op(op) and all(map(_is_own, strategies_of(op.name, target.kind)))
               for op in operators if isinstance(op, Op))


def may_use_extensions(content: bytes, target: CpuTarget) -> bool:
    """Whether a model file may mean something else in a program that has added nothing.

    It does where it names an operator of the user's, and it may where the user has another
    strategy or layout for operators that exist.
    """
    foreign = [name for name in OPS if not _is_own_op(OPS.get(name))]
    makers = [*layout_hooks(target).values(), *(
        s for name in OPS if name not in foreign for s in strategies_of(name, target.kind))]
    return not all(map(_is_own, makers)) or any(name.encode() in content for name in foreign)


def _is_own_op(op: Op | None) -> bool:
    return op is not None and _is_own(op.compute) and op.hook(EXTERNAL_CODE) is None


def _is_own(maker: Any) -> bool:
    return maker is None or getattr(maker, "__module__", "").startswith("weft.")
