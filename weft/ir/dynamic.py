"""Results whose sizes are known only when the program runs.

There are two kinds of operators with such results, and a hook of the record for each:

- Data decides how much of a bounded result there is (``argwhere``, ``unique``, ``compress``,
  non-maximum suppression). ``op.bounds`` gives the result at its largest. The compute fills that
  much memory, and returns after its results one int64 tensor with the sizes there really are; the
  virtual machine cuts the results to them.
- An operand holds what is an attribute of another operator: a shape, axes, a count
  (``dyn.reshape``, ``dyn.full``). ``op.static_form`` gives the call that stands for it once the
  values of these operands are known: when they are constants (``dynamic_to_static``), or when
  the program runs, where a kernel is made for the values it meets. An operator with bounds too
  (``dyn.strided_slice``) has one kernel, which reads the values.

In types the sizes that are not known are ``?``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from weft.ir.expr import Call, Constant, Expr, Function
from weft.ir.op import Op
from weft.ir.types import TensorType, TupleType, Type
from weft.support.errors import InternalError


@dataclass(frozen=True, slots=True)
class Bounds:
    """The results of a call at their largest, and which of their sizes are counted.

    The compute returns the results in these shapes, then the counts, an int64 tensor. ``(result,
    axis, which)`` in ``counted`` says that ``counts[which]`` is the true size of that axis. What
    lies beyond is never read.
    """

    types: tuple[TensorType, ...]
    counted: tuple[tuple[int, int, int], ...]

    @property
    def num_counts(self) -> int:
        return 1 + max(which for _, _, which in self.counted)


BoundsOf = Callable[..., Bounds]


@dataclass(frozen=True, slots=True)
class StaticForm:
    """``make(call, values)`` gives the static call; ``operands`` are the arguments it needs."""

    operands: tuple[int, ...]
    make: Callable[[Call, Sequence[np.ndarray]], Expr]


def bounds_of(function: Function) -> Bounds | None:
    """The bounds of a kernel of fixed argument sizes, ``None`` where types give all sizes."""
    op = _operator(function)
    hook = op.hook("bounds") if op is not None else None
    if hook is None:
        return None
    call = function.body
    bounds: Bounds = hook(call.attrs, tuple(map(_type_of, call.args)))  # type: ignore[attr-defined]
    return bounds


def static_form_of(callee: Function | Op) -> StaticForm | None:
    """How a kernel (or an operator) becomes static, ``None`` where it is."""
    op = callee if isinstance(callee, Op) else _operator(callee)
    return op.hook("static_form") if op is not None else None


def needs_values(callee: Function | Op) -> bool:
    """Whether a kernel (or an operator) has code only for given values of its operands."""
    op = callee if isinstance(callee, Op) else _operator(callee)
    return op is not None and bool(op.hook("static_form")) and not op.hook("bounds")


def value_params(function: Function) -> tuple[int, ...]:
    """The parameters of a kernel whose values its static form needs; they are no tuples."""
    form = static_form_of(function)
    if form is None or not needs_values(function):
        return ()
    args = function.body.args  # type: ignore[attr-defined]
    wanted = {id(args[at]) for at in form.operands}
    return tuple(n for n, param in enumerate(function.params) if id(param) in wanted)


def static_body(function: Function, values: Sequence[np.ndarray]) -> Expr:
    """What a kernel computes where the parameters in ``value_params`` have ``values``."""
    form, call = static_form_of(function), function.body
    if form is None or not isinstance(call, Call):
        raise InternalError("a kernel of values has no static form", got=str(function))
    known = {id(function.params[n]): v for n, v in zip(value_params(function), values,
                                                       strict=True)}
    operands = [call.args[at] for at in form.operands]
    return form.make(call, [a.data if isinstance(a, Constant) else known[id(a)]
                            for a in operands])


def depends_on_data(callee: Function | Op) -> bool:
    """Whether a kernel (or an operator) has sizes that its argument types do not give."""
    op = callee if isinstance(callee, Op) else _operator(callee)
    return op is not None and any(op.hook(name) for name in ("bounds", "static_form"))


def result_types(function: Function) -> tuple[TensorType, ...]:
    """The tensors that a kernel gives, at their largest."""
    bounds = bounds_of(function)
    if bounds is not None:
        return bounds.types
    result = _type_of(function.body)
    fields = result.fields if isinstance(result, TupleType) else (result,)
    return tuple(t for t in fields if isinstance(t, TensorType))


def _operator(function: Function) -> Op | None:
    """Such operators are opaque: a kernel with one of them has no other."""
    body = function.body
    return body.op if isinstance(body, Call) and isinstance(body.op, Op) else None


def _type_of(expr: Expr) -> Type:
    if expr.checked_type is None:
        raise InternalError("a kernel without types", where=expr.span)
    return expr.checked_type
