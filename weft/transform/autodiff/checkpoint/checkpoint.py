"""Gradient checkpointing: the derivative of a function computes the values inside it again.

A function with the attribute ``checkpoint=True`` stays a call until it is differentiated. Its
derivative takes the arguments and the adjoint of the result, and computes the values that it needs
from the arguments (Griewank and Walther 2000, "Revolve"; ``jax.checkpoint``). The arguments pass a
barrier, ``annotation.barrier``. It keeps common subexpressions of both computations from being
merged, and delays the second one until the adjoint is known, so that its values occupy no memory
before.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

from weft import ir, op
from weft.ir.visitor import Routine, run_routine
from weft.op.gradients import field_of
from weft.support.errors import PassError
from weft.transform.normal_form.alpha import fresh_copy, fresh_var
from weft.transform.passes.inline import Inline

ATTRIBUTE = "checkpoint"


def is_checkpointed(fn: ir.Function) -> bool:
    """Whether the derivative of ``fn`` computes its values again."""
    return bool(fn.attrs.get(ATTRIBUTE))


def checkpointed(fn: ir.Function) -> ir.Function:
    """``fn`` with the attribute ``checkpoint``."""
    return fn.replace(attrs={**fn.attrs, ATTRIBUTE: True}, checked_type=fn.checked_type)


def behind_barrier(product: ir.Function) -> ir.Function:
    """``product (arguments.., adjoint)`` with the arguments available after the adjoint."""
    *params, adjoint = product.params
    after = tuple(run_routine(_tensors(adjoint)))
    new = [fresh_var(p) for p in product.params]
    arriving = ir.Tuple(tuple(run_routine(_tensors(new[-1])))) if after else None
    values: dict[ir.Expr, ir.Expr] = {adjoint: new[-1]}
    for param, variable in zip(params, new[:-1], strict=True):
        values[param] = variable if arriving is None else run_routine(_guarded(variable, arriving))
    return product.replace(params=tuple(new), body=fresh_copy(product.body, values))


def _tensors(value: ir.Expr) -> Routine[list[ir.Expr]]:
    type_ = value.checked_type
    if isinstance(type_, ir.TensorType):
        return [value]
    found: list[ir.Expr] = []
    for index in range(len(type_.fields) if isinstance(type_, ir.TupleType) else 0):
        part = yield _tensors(field_of(value, index))
        found += part
    return found


def _guarded(value: ir.Expr, after: ir.Expr) -> Routine[ir.Expr]:
    type_ = value.checked_type
    if isinstance(type_, ir.TensorType):
        return op.annotation.barrier(value, after).with_type(type_)
    if not isinstance(type_, ir.TupleType):
        return value  # data is not merged: constructors are calls of functions
    fields = []
    for index in range(len(type_.fields)):
        field = yield _guarded(field_of(value, index), after)
        fields.append(field)
    return ir.Tuple(tuple(fields), span=value.span, checked_type=type_)


def without_checkpoints(
    mod: ir.IRModule, products: Mapping[str, str], ctx: ir.PassContext
) -> ir.IRModule:
    """``mod`` with calls of checkpointed functions and of their derivatives inlined.

    ``products`` are the names of the derivatives. Recursive functions stay. Inlined code fuses with
    the code around it; the barriers keep both computations apart.
    """
    names = [n for n, fn in mod.functions.items() if is_checkpointed(fn)]
    if not names:
        return mod
    names += [products[n] for n in names if n in products]
    after = Inline(functions=tuple(names)).run_module(ir.infer_type(mod), ctx)
    used = {n.name for fn in after.functions.values() for n in ir.post_order(fn)
            if isinstance(n, ir.GlobalVar)}
    return after.without(*(n for n in names if n not in used))


def in_segments(functions: Sequence[ir.Function], segments: int | None = None) -> ir.Function:
    """The composition of functions of one argument, the last applied last, in checkpointed
    segments.

    Each segment but the last is checkpointed: the gradient keeps the values between segments, and
    those inside one segment at a time. By default there are about sqrt(n) segments of n functions,
    so that memory grows with sqrt(n), for one more evaluation of the functions (Chen et al. 2016,
    "Training deep nets with sublinear memory cost"). Raises ``PassError`` for no functions, for
    functions of several arguments, and for a number of segments out of range.
    """
    count = round(math.sqrt(len(functions))) if segments is None else segments
    if not functions or any(len(f.params) != 1 for f in functions):
        raise PassError("checkpointing in segments needs functions of one argument",
                        got=f"{[len(f.params) for f in functions]} arguments")
    if not 1 <= count <= len(functions):
        raise PassError("number of segments out of range", got=count,
                        expected=f"1 to {len(functions)}")
    bounds = [len(functions) * i // count for i in range(count + 1)]
    parts = [_composed(functions[a:b]) for a, b in itertools.pairwise(bounds)]
    return _composed([*map(checkpointed, parts[:-1]), parts[-1]])


def _composed(functions: Sequence[ir.Function]) -> ir.Function:
    """The functions applied one after the other, as calls."""
    first = functions[0].params[0]
    start = ir.Var(first.name, first.annotation or first.checked_type, span=first.span)
    bound: list[tuple[ir.Var, ir.Expr]] = []
    value: ir.Expr = start
    for fn in functions:
        bound.append((ir.Var("y"), ir.Call(fn, (value,), span=fn.span)))
        value = bound[-1][0]
    body = value
    for var, call in reversed(bound):
        body = ir.Let(var, call, body)
    return ir.Function((start,), body)
