"""Loops of tensors, whose gradients keep the values of many steps in one tensor.

Reverse mode saves what each step of a loop computes. A closure for each step costs an interpreter
more than a small step itself. So a loop of tensors of fixed sizes runs in segments of at most
``C`` steps: a segment is a loop that writes the carried values to tensors with a row for each step,
and its derivative is a loop that reads the rows in reverse order and computes the step again. Both
are first-order, so they become machine code; only segments are steps of the interpreter.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from weft import op
from weft.ir import (
    Call,
    Constructor,
    Expr,
    Function,
    GlobalVar,
    If,
    IRModule,
    Match,
    PassContext,
    TensorType,
    Tuple,
    TupleGetItem,
    TupleType,
    Type,
    Var,
    const,
    infer_type,
    is_static,
    post_order,
    substitute,
)
from weft.ir.visitor import run_routine
from weft.op.gradients import field_of
from weft.runtime.dtypes import numpy_dtype
from weft.support.dataclass import dataclass
from weft.transform.analysis.graph import traits_of, type_of
from weft.transform.autodiff.batching.batch_types import NotVectorisedError
from weft.transform.autodiff.batching.divergent_loop import as_condition, check_tails, choose
from weft.transform.autodiff.checkpoint.checkpoint import is_checkpointed
from weft.transform.autodiff.reverse.custom_rules import VJP, has_custom_rule
from weft.transform.autodiff.reverse.first_order import has_cycle, reached_functions
from weft.transform.autodiff.reverse.pure_graph import pure_graph
from weft.transform.normal_form.alpha import fresh_function
from weft.transform.passes.inline import Inline

# Attribute of loops that end after a bounded number of steps: they may run as one kernel.
BOUNDED = "bounded_loop"

# The bytes that the rows of a segment take if it has neither its most steps nor its fewest: those
# for rows of at most so many bytes. A loop may be short, and all rows of a segment are allocated.
_TAPE_BYTES = 1 << 14
_MOST = 512
_FEWEST = ((1 << 18, 16), (1 << 20, 8))

# From (parameters) -> values to (parameters, gradients of the values) -> (values, gradients).
Differentiate = Callable[[Function], Function]


def with_taped_loops(mod: IRModule, entry: str, differentiate: Differentiate,
                     ctx: PassContext) -> IRModule:
    """``mod`` whose loops run in segments with a gradient of their own.

    With ``@segment`` for ``@loop_segment``, which has ``custom_vjp``:

    def @loop(%n: Tensor[(), int32], %x: Tensor[(2,), float32]) -> Tensor[(2,), float32] {
      if (less_equal(%n, 0)) { %x } else { @loop(subtract(%n, 1), tanh(%x)) }
    }
    =>
    def @loop(%n: Tensor[(), int32], %x: Tensor[(2,), float32]) -> Tensor[(2,), float32] {
      if (logical_not(less_equal(%n, 0))) { %0 = @segment(%n, %x); @loop(%0.0, %0.1) } else { %x }
    }
    """
    for name in reached_functions(mod, entry):
        if name != entry and has_cycle(mod, [name]):
            loop = _loop_of(mod, name, ctx)
            if loop is not None:
                mod = infer_type(mod.with_functions(_Segments(mod, loop, differentiate).made()))
    return mod


@dataclass(frozen=True, eq=False, slots=True)
class _TensorLoop:
    """``name (params) = if continues { name(following) } else { result }``.

    ``changes`` says which parameters a step changes.
    """

    name: str
    params: tuple[Var, ...]
    continues: Expr
    following: tuple[Expr, ...]
    result: Expr
    changes: tuple[bool, ...]

    def step(self) -> Function:
        """From the parameters to the next values of those of floating point that change."""
        values = [value for param, value, changes in zip(
            self.params, self.following, self.changes, strict=True) if changes and _is_float(param)]
        return Function(self.params, Tuple(tuple(values)))


def _loop_of(mod: IRModule, name: str, ctx: PassContext) -> _TensorLoop | None:
    """The parts of a function that is a loop of tensors of fixed sizes; ``None`` for others."""
    fn = _without_calls(mod, name, ctx)
    if fn is None or not all(_is_fixed_tensor(p) for p in fn.params):
        return None
    body = pure_graph(fn.body)
    order = list(post_order(body))
    if any(traits_of(node).has_effect or isinstance(node, (Function, Match, Constructor))
           for node in order):
        return None
    try:
        check_tails(body, name, set())
    except NotVectorisedError:
        return None
    calls = [node.args for node in order if isinstance(node, Call) and _calls(node, name)]
    continues = run_routine(choose(body, name, lambda _: const(True), lambda _: const(False)))
    following = [run_routine(choose(body, name, lambda call, i=i: call.args[i], lambda _: None))
                 for i in range(len(fn.params))]
    result = run_routine(choose(body, name, lambda _: None, lambda value: value))
    known = [value for value in following if value is not None]
    if continues is None or result is None or len(known) < len(fn.params):
        return None
    changes = tuple([any(args[i] is not p for args in calls)
                     for i, p in enumerate(fn.params)])
    if not any(c and _is_float(p) for c, p in zip(changes, fn.params, strict=True)):
        return None
    return _TensorLoop(name, fn.params, as_condition(continues), tuple(known), result, changes)


def _without_calls(mod: IRModule, name: str, ctx: PassContext) -> Function | None:
    """The function, in which it calls itself alone; ``None`` if others are no plain functions."""
    fn = mod[name]
    if fn.type_params or BOUNDED in fn.attrs or _has_own_derivative(fn):
        return None
    others = [other for other in reached_functions(mod, name) if other != name]
    if others:
        if has_cycle(mod, others) or any(_has_own_derivative(mod[other]) for other in others):
            return None
        fn = infer_type(Inline(functions=tuple(others)).run_module(mod, ctx))[name]
    return fresh_function(fn)


def _has_own_derivative(fn: Function) -> bool:
    return has_custom_rule(fn) or is_checkpointed(fn)


class _Segments:
    """The functions of a loop in segments."""

    def __init__(self, mod: IRModule, loop: _TensorLoop, differentiate: Differentiate) -> None:
        self.mod, self.loop = mod, loop
        self.segment = self._name("segment")
        self.forward, self.backward = self._name("segment_forward"), self._name("segment_backward")
        self.record, self.replay = self._name("record"), self._name("replay")
        self.carried = [p for p, c in zip(loop.params, loop.changes, strict=True) if c]
        self.fixed = [p for p, c in zip(loop.params, loop.changes, strict=True) if not c]
        vjp = differentiate(loop.step())
        *self.vjp_params, self.cotangent = vjp.params
        self.grads = _fields(_fields(vjp.body)[1])
        read = {node for grad in self.grads for node in post_order(grad) if isinstance(node, Var)}
        places = dict(zip(loop.params, self.vjp_params, strict=True))
        # What the derivative of a step reads.
        self.taped = [p for p in self.carried if places[p] in read]
        self.kept = [p for p in self.fixed if places[p] in read]
        self.places = places
        row = sum(_nbytes(p) for p in self.taped)
        # 0 for rows that are so large that a step takes longer than a closure.
        fewest = next((steps for most, steps in _FEWEST if row <= most), 0)
        self.rows = fewest and min(max(_TAPE_BYTES // max(row, 1), fewest), _MOST)

    def made(self) -> dict[str, Function]:
        """The loop and the functions of its segments; none if rows are large."""
        if not self.rows:
            return {}
        return {self.loop.name: self._whole(), self.segment: self._segment(),
                self.forward: self._forward(), self.backward: self._backward(),
                self.record: self._record(), self.replay: self._replay()}

    def _name(self, suffix: str) -> str:
        name = f"{self.loop.name}_{suffix}"
        while name in self.mod:
            name += "_"
        return name

    def _whole(self) -> Function:
        loop, fn = self.loop, self.mod[self.loop.name]
        after = Call(GlobalVar(self.segment), loop.params, span=fn.span)
        values = dict(zip(self.carried, _items(after, len(self.carried)), strict=True))
        again = Call(GlobalVar(loop.name), tuple([values.get(p, p) for p in loop.params]),
                     span=fn.span)
        choice = If(loop.continues, again, loop.result, span=fn.span)
        return fresh_function(Function(loop.params, choice, fn.ret_type, attrs=fn.attrs,
                                       span=fn.span))

    def _recorded(self) -> list[Expr]:
        """The steps, carried values and rows after a segment."""
        first = [_zeros(self._rows_type(p)) for p in self.taped]
        call = Call(GlobalVar(self.record),
                    (const(0, "int32"), *self.carried, *self.fixed, *first))
        return _items(call, 1 + len(self.carried) + len(self.taped))

    def _segment(self) -> Function:
        _, *values = self._recorded()
        body = Tuple(tuple(values[:len(self.carried)]))
        return fresh_function(Function(self.loop.params, body,
                                       attrs={VJP: [self.forward, self.backward]}))

    def _forward(self) -> Function:
        steps, *values = self._recorded()
        count = len(self.carried)
        saved = Tuple((steps, *values[count:], *self.kept))
        return fresh_function(Function(self.loop.params,
                                       Tuple((Tuple(tuple(values[:count])), saved))))

    def _backward(self) -> Function:
        types = [type_of(p) for p in self.carried]
        rows = [self._rows_type(p) for p in self.taped]
        saved_type = [_COUNT, *rows, *map(type_of, self.kept)]
        saved, dy = Var("saved", _tuple_of(saved_type)), Var("dy", _tuple_of(types))
        steps, *kept = _items(saved, len(saved_type))
        arriving = [one for p, one in zip(self.carried, _items(dy, len(types)), strict=True)
                    if _is_float(p)]
        sums = [_zeros(type_of(p)) for p in self.fixed if _is_float(p)]
        call = Call(GlobalVar(self.replay), (steps, *arriving, *sums, *kept))
        floats = [*filter(_is_float, self.carried), *filter(_is_float, self.fixed)]
        found = dict(zip(floats, _items(call, len(floats)), strict=True))
        grads = tuple([found[p] for p in self.loop.params if p in found])
        return Function((saved, dy), Tuple(grads))

    def _record(self) -> Function:
        """A loop over the steps of a segment that writes a row for each."""
        loop, step = self.loop, Var("step", _COUNT)
        rows = {p: Var(f"{p.name}_rows", self._rows_type(p)) for p in self.taped}
        goes_on = op.logical_and(op.less(step, const(self.rows, "int32")), loop.continues)
        position = op.reshape(step, newshape=(1,))
        written = [op.scatter_nd(rows[p], position, p, mode="update") for p in self.taped]
        following = dict(zip(loop.params, loop.following, strict=True))
        again = Call(GlobalVar(self.record), (
            op.add(step, const(1, "int32")), *[following[p] for p in self.carried], *self.fixed,
            *written))
        result = Tuple((step, *self.carried, *rows.values()))
        return self._bounded((step, *self.carried, *self.fixed, *rows.values()), goes_on, again,
                             result)

    def _replay(self) -> Function:
        """A loop over the steps of a segment, the last one first, of the gradients."""
        step = Var("step", _COUNT)
        floats = [*filter(_is_float, self.carried), *filter(_is_float, self.fixed)]
        grads = {p: Var(f"d_{p.name}", type_of(p)) for p in floats}
        rows = {p: Var(f"{p.name}_rows", self._rows_type(p)) for p in self.taped}
        at = op.subtract(step, const(1, "int32"))
        values: dict[Var, Expr] = {self.places[p]: p for p in self.kept}
        values |= {self.places[p]: op.take(rows[p], at, axis=0, mode="clip") for p in self.taped}
        values[self.cotangent] = Tuple(tuple([grads[p] for p in self.carried if p in grads]))
        found = substitute(Tuple(tuple(self.grads)), values)
        assert isinstance(found, Tuple)
        new = dict(zip([p for p in self.loop.params if _is_float(p)], found.fields, strict=True))
        following = [new[p] if p in self.carried else op.add(grads[p], new[p]) for p in floats]
        again = Call(GlobalVar(self.replay), (at, *following, *rows.values(), *self.kept))
        goes_on = op.less(const(0, "int32"), step)
        return self._bounded((step, *grads.values(), *rows.values(), *self.kept), goes_on, again,
                             Tuple(tuple(grads.values())))

    def _bounded(self, params: tuple[Var, ...], goes_on: Expr, again: Expr, result: Tuple
                 ) -> Function:
        types = _tuple_of([type_of(value) for value in result.fields])
        return fresh_function(Function(params, If(goes_on, again, result), types,
                                       attrs={BOUNDED: True}))

    def _rows_type(self, param: Var) -> TensorType:
        type_ = type_of(param)
        assert isinstance(type_, TensorType)
        return TensorType((self.rows, *type_.shape), type_.dtype)


_COUNT = TensorType.of((), "int32")


def _calls(node: Call, name: str) -> bool:
    return isinstance(node.op, GlobalVar) and node.op.name == name


def _is_fixed_tensor(value: Expr) -> bool:
    type_ = type_of(value)
    return isinstance(type_, TensorType) and is_static(type_)


def _is_float(value: Expr) -> bool:
    type_ = type_of(value)
    return isinstance(type_, TensorType) and type_.dtype.is_float


def _nbytes(value: Expr) -> int:
    type_ = type_of(value)
    assert isinstance(type_, TensorType)
    return math.prod(type_.concrete_shape) * numpy_dtype(str(type_.dtype)).itemsize


def _zeros(type_: Type) -> Expr:
    assert isinstance(type_, TensorType)
    return op.zeros(shape=type_.concrete_shape, dtype=type_.dtype)


def _tuple_of(types: Sequence[Type]) -> TupleType:
    return TupleType(tuple(types))


def _items(value: Expr, count: int) -> list[Expr]:
    return [TupleGetItem(value, i) for i in range(count)]


def _fields(value: Expr) -> Sequence[Expr]:
    """The fields of a typed tuple."""
    if isinstance(value, Tuple):
        return value.fields
    type_ = type_of(value)
    assert isinstance(type_, TupleType)
    return [field_of(value, i) for i in range(len(type_.fields))]
