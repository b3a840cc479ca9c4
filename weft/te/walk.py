"""Queries about the loads of compute bodies, and rewriting of bodies."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from weft.te.tensor import ComputeOp, ExternOp, Operation, ScanOp, Tensor
from weft.tir import PrimExpr, ProducerLoad, Reduce, Var, post_order
from weft.tir.visitor import transform_expr


def contains_reduce(expr: PrimExpr) -> bool:
    """Whether an expression contains a reduction, at its root or below."""
    return any(type(e) is Reduce for e in post_order(expr))


def loads_of(body: tuple[PrimExpr, ...]) -> list[ProducerLoad]:
    """The distinct loads in ``body``, in order of first appearance."""
    found: dict[ProducerLoad, None] = {}
    for root in body:
        for e in post_order(root):
            if type(e) is ProducerLoad:
                found[e] = None
    return list(found)


def input_tensors(op: Operation) -> list[Tensor]:
    """The distinct tensors that ``op`` reads."""
    if isinstance(op, ExternOp):
        return list(dict.fromkeys(op.inputs))
    if isinstance(op, ScanOp):
        return [*op.init, *op.update]
    if isinstance(op, ComputeOp):
        if op.inputs is None:  # asked several times for each stage of a schedule
            op.inputs = tuple(dict.fromkeys(e.producer for e in loads_of(op.body)))
        return list(op.inputs)
    return []


def rewrite_body(body: tuple[PrimExpr, ...], values: Mapping[Var, PrimExpr],
                 on_load: Callable[[ProducerLoad], PrimExpr] | None = None) -> tuple[PrimExpr, ...]:
    """``body`` with variables replaced by ``values`` and each load by ``on_load`` of it."""
    memo: dict[PrimExpr, PrimExpr] = {**values}

    def fn(e: PrimExpr) -> PrimExpr:
        return on_load(e) if on_load is not None and type(e) is ProducerLoad else e

    return tuple(transform_expr(e, fn, memo) for e in body)
