"""Slots of users that decide how a node is compiled: compute, schedule, layout and pattern.

A node whose operator has such a slot calls an operator of the catalogue that is made from it,
``symbol.<name>``, with the type that the node has without the slot. Its gradient stays that of the
symbol's operator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from weft import ir
from weft import op as ops
from weft.compat.symbol.operator import Lower, SymbolOp
from weft.compat.symbol.slots import registered
from weft.ir import Op, OpPattern
from weft.strategy.implementation import Implementation
from weft.strategy.registry import alter_layout, strategy
from weft.support.errors import OptionError
from weft.transform.analysis.graph import type_of

COMPUTE, SCHEDULE, LAYOUT, PATTERN = (
    "FTVMCompute", "FTVMSchedule", "FTVMAlterOpLayout", "TOpPattern")
TARGETS = ("cpu", "cuda")

_MADE: dict[tuple[Any, ...], Op] = {}


def lower_of(op: SymbolOp) -> Lower:
    """How nodes of ``op`` become expressions, by the slots that users have set."""
    slots = {key: registered(op, key) for key in (COMPUTE, SCHEDULE, LAYOUT, PATTERN)}
    given = {key for key, value in slots.items() if value is not None}
    if not given:
        return op.lower
    if given == {PATTERN} and (op.op is None or slots[PATTERN] == OpPattern.OPAQUE):
        return _unfused(op) if slots[PATTERN] == OpPattern.OPAQUE else op.lower
    if op.op is None and slots[COMPUTE] is None:
        raise OptionError(f"{op.name} is several operators, which no schedule or layout fits",
                          help=f"set_attr({op.name!r}, {COMPUTE!r}, compute), too")

    def lower(attrs: Any, args: Sequence[ir.Expr]) -> ir.Expr:
        is_list = op.inputs(attrs)[:1] and op.inputs(attrs)[0].startswith("*")
        names = ("*inputs",) if is_list else tuple(f"x{i}" for i in range(len(args)))
        made = _operator(op, names, **slots)
        return ir.Call(made, (ir.Tuple(tuple(args)),) if is_list else tuple(args), attrs)

    return lower


def _operator(op: SymbolOp, names: tuple[str, ...], **slots: Any) -> Op:
    """The operator of the catalogue for these slots and inputs, made at the first use."""
    key = op.name, names, *slots.values()
    if key in _MADE:
        return _MADE[key]
    record = op.op
    compute = slots[COMPUTE] or (record and record.compute)
    pattern = slots[PATTERN] if slots[PATTERN] is not None else \
        record.pattern if record is not None else OpPattern.OPAQUE
    is_cached = all(slots[slot] is None for slot in (COMPUTE, SCHEDULE, LAYOUT))
    # Caches keep a program by the names of operators where no code of a user decides.
    name = f"symbol.{op.name.strip('_')}.{pattern.name.lower()}{'' if is_cached else len(_MADE)}"
    made = _MADE[key] = ir.OPS.register(name, Op(
        name, names, op.attrs_type, _relation_of(op), pattern, compute,
        f"{op.name} with slots of a user.", results=op.outputs or 1))
    for target in TARGETS:
        if slots[SCHEDULE] is not None:
            strategy(name, target=target, complete=True)(_generator(name, slots[SCHEDULE]))
        if slots[LAYOUT] is not None:
            alter_layout(name, target=target)(slots[LAYOUT])
    return made


def _relation_of(op: SymbolOp) -> Any:
    """The type relation: the type of the node's program."""

    def relation(ctx: Any) -> bool:
        types = [t for arg in ctx.args
                 for t in (arg.fields if isinstance(arg, ir.TupleType) else (arg,))]
        if not all(isinstance(t, ir.TensorType) for t in types):
            return False
        args = [ir.Var("x", t, checked_type=t) for t in types]
        ctx.output(type_of(ir.infer_expr(op.lower(ctx.attrs, args), trust=True)))
        return True

    return relation


def _generator(name: str, schedule: Any) -> Callable[[ir.Call, Any], Iterator[Implementation]]:
    def generate(_call: ir.Call, _target: Any) -> Iterator[Implementation]:
        yield Implementation(f"{name}.user", schedule=schedule)

    generate.__module__ = schedule.__module__  # caches ask whose code it is
    return generate


def _unfused(op: SymbolOp) -> Lower:
    """The program of ``op`` in kernels of its own."""

    def lower(attrs: Any, args: Sequence[ir.Expr]) -> ir.Expr:
        return _alone(ir.infer_expr(op.lower(attrs, [_alone(x) for x in args]), trust=True))

    return lower


def _alone(value: ir.Expr) -> ir.Expr:
    if not isinstance(value.checked_type, ir.TensorType) or isinstance(
            value, (ir.Var, ir.Constant)):
        return value
    return ir.infer_expr(ops.annotation.stop_fusion(value), trust=True)
