"""Data-dependent shapes: results whose sizes are known only at run time.

There are two kinds of operators with such results, each with a hook of the operator record:

- The values of the data determine a size that has a bound (``argwhere``, ``unique``, ``compress``,
  non-maximum suppression). ``op.bounds`` gives the largest result. The compute fills a buffer of
  that size, and returns after its results one int64 tensor with the actual sizes; the virtual
  machine slices the results to these.
- An operand holds what is an attribute of the static operator: a shape, axes, a count
  (``dyn.reshape``, ``dyn.full``). ``op.static_form`` makes the static call once the values of these
  operands are known. They may be constants (``dynamic_to_static``); otherwise the virtual machine
  compiles a kernel for the values of each run. An operator that also has bounds
  (``dyn.strided_slice``) has one kernel, which reads the values.

Types show such sizes as ``?``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from weft.ir.expr import Call, Constant, Expr, Function
from weft.ir.op import Op
from weft.ir.types import TensorType, TupleType, Type
from weft.support.dataclass import dataclass
from weft.support.errors import InternalError


@dataclass(frozen=True, slots=True)
class Bounds:
    """The largest results of a call, and which of their sizes are counted at run time.

    The compute returns the results in these shapes, then the counts, an int64 tensor. ``(result,
    axis, which)`` in ``counted`` says that ``counts[which]`` is the actual size of that axis.
    Elements beyond it are never read.
    """

    types: tuple[TensorType, ...]
    counted: tuple[tuple[int, int, int], ...]

    @property
    def num_counts(self) -> int:
        return 1 + max(which for _, _, which in self.counted)


@dataclass(frozen=True, slots=True)
class StaticForm:
    """``make(call, values)`` makes the static call from the values of the ``operands``."""

    operands: tuple[int, ...]
    make: Callable[[Call, Sequence[np.ndarray]], Expr]


def bounds_of(function: Function) -> Bounds | None:
    """The bounds of a kernel with static argument shapes; ``None`` if its types are static."""
    op = _operator(function)
    hook = op.hook("bounds") if op is not None else None
    if hook is None:
        return None
    call = function.body
    bounds: Bounds = hook(call.attrs, tuple(map(_type_of, call.args)))  # type: ignore[attr-defined]
    return bounds


def static_form_of(callee: Function | Op) -> StaticForm | None:
    """How to make a kernel (or an operator) static; ``None`` if it is static."""
    op = callee if isinstance(callee, Op) else _operator(callee)
    return op.hook("static_form") if op is not None else None


def needs_values(callee: Function | Op) -> bool:
    """Whether a kernel (or an operator) can be compiled only for given values of its operands."""
    op = callee if isinstance(callee, Op) else _operator(callee)
    return op is not None and bool(op.hook("static_form")) and not op.hook("bounds")


def value_params(function: Function) -> tuple[int, ...]:
    """The (tensor) parameters of a kernel whose values its static form needs."""
    form = static_form_of(function)
    if form is None or not needs_values(function):
        return ()
    args = function.body.args  # type: ignore[attr-defined]
    wanted = {id(args[at]) for at in form.operands}
    return tuple(n for n, param in enumerate(function.params) if id(param) in wanted)


def static_body(function: Function, values: Sequence[np.ndarray]) -> Expr:
    """The body of a kernel, given ``values`` of the parameters in ``value_params``."""
    form, call = static_form_of(function), function.body
    if form is None or not isinstance(call, Call):
        raise InternalError("missing static form of a kernel", got=str(function))
    known = {id(function.params[n]): v for n, v in zip(value_params(function), values,
                                                       strict=True)}
    operands = [call.args[at] for at in form.operands]
    return form.make(call, [a.data if isinstance(a, Constant) else known[id(a)]
                            for a in operands])


def depends_on_data(callee: Function | Op) -> bool:
    """Whether a kernel (or an operator) has result sizes that its argument types do not give."""
    op = callee if isinstance(callee, Op) else _operator(callee)
    return op is not None and any(op.hook(name) for name in ("bounds", "static_form"))


def result_types(function: Function) -> tuple[TensorType, ...]:
    """The types of a kernel's results, with the largest sizes."""
    bounds = bounds_of(function)
    if bounds is not None:
        return bounds.types
    result = _type_of(function.body)
    fields = result.fields if isinstance(result, TupleType) else (result,)
    return tuple(t for t in fields if isinstance(t, TensorType))


def _operator(function: Function) -> Op | None:
    """The operator of a kernel with one call; data-dependent operators are never fused."""
    body = function.body
    return body.op if isinstance(body, Call) and isinstance(body.op, Op) else None


def _type_of(expr: Expr) -> Type:
    if expr.checked_type is None:
        raise InternalError("an untyped kernel", where=expr.span)
    return expr.checked_type
