"""The reference interpreter: defines the meaning of a program, slowly and simply.

Operators run by their NumPy references. Every evaluation is a generator that yields the
``(expression, frame)`` pairs it needs and is sent their values, so one loop with an explicit
stack evaluates programs of any depth. Compiled code and passes are tested against it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, TypeAlias

import numpy as np

from weft import ir
from weft.ir import Call, Dim, Function, IRModule, SymDim, TensorType, TupleType, Type, post_order
from weft.ir.substitution import has_symbols, substitute_symbols
from weft.ir.symbol import name_of
from weft.support.dataclass import dataclass
from weft.support.errors import InvalidInputError, PassError
from weft.transform.analysis.graph import known_type


def at_sizes_of(module: IRModule, entry: str, inputs: Sequence[Any]) -> IRModule:
    """``module`` with numbers for the symbols in its attributes, read from the shapes of inputs.

    Raises ``TypeInferenceError`` for shapes that the program does not accept.
    """
    if not any(isinstance(node, Call) and has_symbols(node.attrs)
               for fn in module.functions.values() for node in post_order(fn)):
        return module
    return substitute_symbols(module, symbol_sizes(module[entry], inputs))


def symbol_sizes(function: Function, inputs: Sequence[Any]) -> dict[str, int]:
    """The sizes of symbols by name, as far as a dimension of an input is a multiple of one."""
    sizes: dict[str, int] = {}
    for param, value in zip(function.params, inputs, strict=True):
        for dim, size in _dims(known_type(param), value):
            if isinstance(dim, SymDim) and len(dim.terms) == 1:
                (monomial, factor), = dim.terms
                if len(monomial) == 1 and isinstance(monomial[0], str):
                    sizes.setdefault(name_of(monomial[0]), size // factor)
    return sizes


def _dims(type_: Type | None, value: Any) -> Iterator[tuple[Dim, int]]:
    if isinstance(type_, TupleType):
        for field, part in zip(type_.fields, value, strict=True):
            yield from _dims(field, part)
    elif isinstance(type_, TensorType):
        yield from zip(type_.shape, np.shape(value), strict=False)


Value: TypeAlias = Any  # an array, a tuple of values, a Closure, Data, a one-element list (a ref)
Steps: TypeAlias = Generator[tuple[ir.Expr, "Frame"], Value, Value]


# Called for every write to a reference with the reference and its new value.
OnWrite: TypeAlias = Callable[[Value, Value], None]


@dataclass(frozen=True, eq=False)
class World:
    """The state that all frames of one evaluation share."""

    module: ir.IRModule
    on_write: OnWrite | None = None


@dataclass(eq=False)
class Frame:
    """The variables of one function activation, and the values computed in it so far.

    Branches, clauses and closures get an inner frame. They reuse values of the enclosing frames,
    but not the reverse, because a branch may not be evaluated.
    """

    world: World
    parent: Frame | None = None
    variables: dict[ir.Var, Value] = field(default_factory=dict)
    computed: dict[ir.Expr, Value] = field(default_factory=dict)

    def look_up(self, var: ir.Var) -> Value:
        frame: Frame | None = self
        while frame is not None:
            if var in frame.variables:
                return frame.variables[var]
            frame = frame.parent
        raise PassError(f"unbound variable %{var.name}", where=var.span)

    def look_up_computed(self, expr: ir.Expr) -> Value | None:
        frame: Frame | None = self
        while frame is not None:
            if expr in frame.computed:
                return frame.computed[expr]
            frame = frame.parent
        return None


@dataclass(frozen=True, eq=False)
class Closure:
    function: ir.Function
    frame: Frame


@dataclass(frozen=True, eq=False)
class Data:
    """A value of an algebraic data type."""

    constructor: ir.Constructor
    fields: tuple[Value, ...]


def evaluate(program: ir.IRModule | ir.Function, inputs: Sequence[Any] | Mapping[str, Any], *,
             entry: str = "main", on_write: OnWrite | None = None) -> Value:
    """The value of ``entry`` applied to ``inputs`` (by position, or by parameter name).

    Symbols stand for the sizes of the inputs. Returns an array or a (nested) tuple of arrays.
    ``on_write`` is called for each write to a reference, in order. Raises ``InvalidInputError``
    for a wrong number or wrong names of inputs, ``PassError`` for an operator without a NumPy
    reference.
    """
    module = program if isinstance(program, ir.IRModule) else ir.IRModule.from_expr(program)
    values = _ordered(module[entry], inputs)
    module = at_sizes_of(module, entry, values)
    function = module[entry]
    frame = Frame(World(module, on_write))
    frame.variables.update(zip(function.params, values, strict=True))
    return _run(function.body, frame)


def evaluate_call(call: ir.Call, args: Sequence[Value]) -> Value:
    """One operator applied to values, by its NumPy reference; ``PassError`` if it has none."""
    op = call.op
    if not isinstance(op, ir.Op) or op.reference is None:
        name = op.name if isinstance(op, ir.Op) else type(op).__name__
        raise PassError(f"no NumPy reference to evaluate {name}", where=call.span)
    # Overflow and invalid operands give infinities and NaN, as in compiled kernels.
    with np.errstate(all="ignore"):
        result = op.reference(*args, **dict(call.attrs.items()))
    return _as_value(result)


def _as_value(result: Any) -> Value:
    if isinstance(result, (tuple, list)):
        return tuple(_as_value(r) for r in result)
    return np.asarray(result)


def _ordered(function: ir.Function, inputs: Sequence[Any] | Mapping[str, Any]) -> list[Value]:
    names = [p.name for p in function.params]
    if isinstance(inputs, Mapping):
        if set(inputs) != set(names):
            raise InvalidInputError("the inputs do not match the parameters",
                                    expected=", ".join(names), got=", ".join(inputs))
        inputs = [inputs[n] for n in names]
    if len(inputs) != len(names):
        raise InvalidInputError(
            "wrong number of inputs", expected=str(len(names)), got=str(len(inputs))
        )
    return [v if isinstance(v, tuple) else np.asarray(v) for v in inputs]


def _run(expr: ir.Expr, frame: Frame) -> Value:
    stack: list[tuple[ir.Expr, Frame, Steps]] = [(expr, frame, _steps(expr, frame))]
    value: Value = None
    while stack:
        node, where, steps = stack[-1]
        try:
            wanted, inner = steps.send(value)
        except StopIteration as finished:
            value = finished.value
            where.computed[node] = value
            stack.pop()
        else:
            value = inner.look_up_computed(wanted)
            if value is None:
                stack.append((wanted, inner, _steps(wanted, inner)))
    return value


def _steps(expr: ir.Expr, frame: Frame) -> Steps:
    step = _STEPS.get(type(expr))
    if step is None:
        raise PassError(
            f"the reference interpreter cannot evaluate {type(expr).__name__}", where=expr.span
        )
    return step(expr, frame)


def _immediate(value_of: Callable[[Any, Frame], Value]) -> Callable[[Any, Frame], Steps]:
    def steps(expr: Any, frame: Frame) -> Steps:
        return value_of(expr, frame)
        yield  # makes this function a generator, without requests

    return steps


def _all(exprs: Sequence[ir.Expr], frame: Frame) -> Steps:
    values = []
    for expr in exprs:
        values.append((yield expr, frame))  # noqa: PERF401 - comprehensions cannot yield
    return tuple(values)


def _tuple(expr: ir.Tuple, frame: Frame) -> Steps:
    return (yield from _all(expr.fields, frame))


def _tuple_get_item(expr: ir.TupleGetItem, frame: Frame) -> Steps:
    return (yield expr.tuple_value, frame)[expr.index]


def _call(expr: ir.Call, frame: Frame) -> Steps:
    callee = expr.op if isinstance(expr.op, (ir.Op, ir.Constructor)) else (yield expr.op, frame)
    args = yield from _all(expr.args, frame)
    if isinstance(callee, ir.Op):
        return evaluate_call(expr, args)
    if isinstance(callee, ir.Constructor):
        return Data(callee, args)
    function = callee.function
    inner = Frame(frame.world, callee.frame, dict(zip(function.params, args, strict=True)))
    return (yield function.body, inner)


def _let(expr: ir.Let, frame: Frame) -> Steps:
    node: ir.Expr = expr
    while isinstance(node, ir.Let):  # a chain of bindings needs no stack
        if isinstance(node.value, ir.Function):
            frame.variables[node.var] = Closure(node.value, frame)  # may refer to itself
        else:
            frame.variables[node.var] = yield node.value, frame
        node = node.body
    return (yield node, frame)


def _if(expr: ir.If, frame: Frame) -> Steps:
    chosen = expr.true_branch if bool((yield expr.cond, frame)) else expr.false_branch
    return (yield chosen, Frame(frame.world, frame))


def _ref_create(expr: ir.RefCreate, frame: Frame) -> Steps:
    return [(yield expr.value, frame)]


def _ref_read(expr: ir.RefRead, frame: Frame) -> Steps:
    return (yield expr.ref, frame)[0]


def _ref_write(expr: ir.RefWrite, frame: Frame) -> Steps:
    ref = yield expr.ref, frame
    ref[0] = yield expr.value, frame
    if frame.world.on_write is not None:
        frame.world.on_write(ref, ref[0])
    return ()


def _match(expr: ir.Match, frame: Frame) -> Steps:
    data = yield expr.data, frame
    for clause in expr.clauses:
        bound = _bind(clause, data)
        if bound is not None:
            return (yield clause.rhs, Frame(frame.world, frame, bound))
    raise PassError("no match clause matches the value", where=expr.span)


def _bind(clause: ir.Clause, data: Value) -> dict[ir.Var, Value] | None:
    """The variables of the clause's pattern, or ``None`` if it does not match."""
    bound: dict[ir.Var, Value] = {}
    pending: list[tuple[ir.Pattern, Value]] = [(clause.lhs, data)]
    while pending:
        pattern, value = pending.pop()
        if isinstance(pattern, ir.PatternVar):
            bound[pattern.var] = value
        elif isinstance(pattern, ir.PatternTuple):
            pending.extend(zip(pattern.patterns, value, strict=True))
        elif isinstance(pattern, ir.PatternConstructor):
            if value.constructor.tag != pattern.constructor.tag:
                return None
            pending.extend(zip(pattern.patterns, value.fields, strict=True))
    return bound


def _constructor(expr: ir.Constructor, _: Frame) -> Value:
    return expr  # called like a function


_STEPS: dict[type, Callable[[Any, Frame], Steps]] = {
    ir.Constant: _immediate(lambda e, _: e.data),
    ir.Var: _immediate(lambda e, frame: frame.look_up(e)),
    ir.GlobalVar: _immediate(lambda e, f: Closure(f.world.module[e.name], Frame(f.world))),
    ir.Function: _immediate(Closure),
    ir.Constructor: _immediate(_constructor),
    ir.Tuple: _tuple,
    ir.TupleGetItem: _tuple_get_item,
    ir.Call: _call,
    ir.Let: _let,
    ir.If: _if,
    ir.RefCreate: _ref_create,
    ir.RefRead: _ref_read,
    ir.RefWrite: _ref_write,
    ir.Match: _match,
}
