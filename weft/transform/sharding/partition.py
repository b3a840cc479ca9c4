"""Partition a program: the program that every device of a mesh runs on its parts of the tensors.

One pass over the calls, operands first. Each call is cut as ``choose`` says; operands that arrive
cut otherwise are resharded, and partial results are combined at once. Constants and parameters
without a sharding are free until their first use, whose choice they take.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field

import numpy as np

from weft import op
from weft.ir import (
    Call,
    Constant,
    Expr,
    Function,
    Op,
    TensorType,
    Tuple,
    TupleGetItem,
    TupleType,
    Type,
    Var,
    infer_expr,
    is_static,
    post_order,
    var,
)
from weft.ir.sharding import Mesh, Sharding
from weft.op.cut_axes import tensor_types
from weft.support.dataclass import dataclass
from weft.support.errors import PassError
from weft.transform.sharding.choose import Choice, choices, nbytes_of
from weft.transform.sharding.index_maps import index_maps, tree_of
from weft.transform.sharding.local_call import local_call
from weft.transform.sharding.reshard import resharded, resharding_bytes


@dataclass(frozen=True, slots=True)
class Decided:
    """How a call was cut, for reports; ``whole`` says why, if its operands had to be gathered."""

    call: Call
    choice: Choice
    whole: str = ""


@dataclass(frozen=True, slots=True)
class Partitioned:
    """The program of one device. Its parameters are those of the whole one, then the weights.

    ``weights`` are the constants that devices hold parts of. ``results`` has a sharding for each
    tensor of the result.
    """

    mesh: Mesh
    function: Function
    whole: Function
    parameters: tuple[Sharding, ...]
    weights: tuple[np.ndarray, ...]
    weight_shardings: tuple[Sharding, ...]
    results: tuple[Sharding, ...]
    decisions: tuple[Decided, ...] = field(default=())

    @property
    def bytes_received(self) -> float:
        """Bytes that each device receives in a call."""
        return sum(d.choice.nbytes for d in self.decisions)


def partition(fn: Function, mesh: Mesh, parameters: Sequence[Sharding | None],
              *, values: Mapping[Expr, Sharding] | None = None,
              results: Sequence[Sharding | None] | None = None) -> Partitioned:
    """Cut a typed function without control flow over the devices of ``mesh``.

    ``parameters`` has a sharding, or ``None`` for any, for each parameter; ``values`` for inner
    values and constants; ``results`` for each tensor of the result (``None``: as it comes). Raises
    ``PassError`` for control flow and unknown sizes, ``OptionError`` for a sharding that does not
    fit.
    """
    return _Partition(fn, mesh, dict(values or {})).run(parameters, results)


@dataclass(slots=True)
class _Value:
    """A tensor of the program on the devices; ``sharding`` is ``None`` while any is as good."""

    node: Expr
    type: TensorType
    local: Expr | None = None
    sharding: Sharding | None = None


class _Partition:
    def __init__(self, fn: Function, mesh: Mesh, wanted: dict[Expr, Sharding]) -> None:
        self._fn = fn
        self._mesh = mesh
        self._wanted = wanted
        self._values: dict[Expr, list[_Value]] = {}
        self._weights: dict[Var, tuple[np.ndarray, Sharding]] = {}
        self._parameters: dict[Var, tuple[Var, Sharding]] = {}
        self._decisions: list[Decided] = []

    def run(self, parameters: Sequence[Sharding | None],
            results: Sequence[Sharding | None] | None) -> Partitioned:
        for node in post_order(self._fn.body):
            if not all(is_static(t) for t in tensor_types(node.checked_type)):
                raise PassError("a sharded program has tensors of known sizes", where=node.span,
                                got=node.checked_type, help="give the sizes of inputs")
        for param, sharding in zip(self._fn.params, parameters, strict=True):
            self._wanted |= {} if sharding is None else {param: sharding}
        for node in post_order(self._fn.body):
            self._values[node] = self._visit(node)
        body, shardings = self._results(results)
        for param in self._fn.params:  # those without a use
            if param not in self._parameters:
                self._place(param, self._wanted.get(param))
        local = tuple(self._parameters[p][0] for p in self._fn.params)
        fn = Function((*local, *self._weights), body)
        typed = infer_expr(fn, trust=True)
        assert isinstance(typed, Function)
        weights = tuple(self._weights.values())
        return Partitioned(
            self._mesh, typed, self._fn,
            tuple(self._parameters[p][1] for p in self._fn.params),
            tuple(w for w, _ in weights), tuple(s for _, s in weights), tuple(shardings),
            tuple(self._decisions))

    def _visit(self, node: Expr) -> list[_Value]:
        match node:
            case Var() | Constant():
                type_ = node.checked_type
                if not isinstance(type_, TensorType):
                    raise self._refused(node, "a parameter that is no tensor")
                return [_Value(node, type_)] if node not in self._wanted \
                    else [self._placed(node, type_, self._wanted[node])]
            case Tuple():
                return [v for f in node.fields for v in self._values[f]]
            case TupleGetItem():
                whole = node.tuple_value.checked_type
                assert isinstance(whole, TupleType)
                first = sum(len(tensor_types(t)) for t in whole.fields[:node.index])
                count = len(tensor_types(node.checked_type))
                return self._values[node.tuple_value][first:first + count]
            case Call() if isinstance(node.op, Op):
                return self._call(node)
            case Op():
                return []
        raise self._refused(node, type(node).__name__)

    def _refused(self, node: Expr, got: str) -> PassError:
        return PassError("a sharded program has operators on tensors only", where=node.span,
                         got=got, help="inline functions, and unroll control flow")

    def _call(self, call: Call) -> list[_Value]:
        given = [v for a in call.args for v in self._values[a]]
        types, outputs = [v.type for v in given], tensor_types(call.checked_type)
        maps = index_maps(call)
        for choice in choices(maps, types, outputs, [v.sharding for v in given], self._mesh):
            made = self._cut(call, choice)
            if made is not None:
                break
        else:
            raise self._refused(call, f"{call.op} of {call.checked_type}")
        reasons = {why for place, why in maps.blocked.items() if self._is_cut(given, place)}
        self._decisions.append(Decided(call, choice, "; ".join(sorted(reasons))))
        local = [TupleGetItem(made, i) for i in range(len(outputs))] \
            if isinstance(call.checked_type, TupleType) else [made]
        values = []
        for part, type_, sharding in zip(local, outputs, choice.results, strict=True):
            whole = functools.reduce(self._combined, choice.combine, part)
            values.append(_Value(call, type_, infer_expr(whole, trust=True), sharding))
        wanted = self._wanted.get(call)
        if wanted is not None and len(values) == 1:
            values = [_Value(call, values[0].type, self._as(values[0], wanted), wanted)]
        return values

    def _combined(self, x: Expr, combine: tuple[str, tuple[str, ...]]) -> Expr:
        reduction, axes = combine
        return op.collective.all_reduce(x, axes=axes, size=self._mesh.parts(axes),
                                        reduction=reduction)

    def _is_cut(self, given: Sequence[_Value], place: tuple[int, int]) -> bool:
        sharding = given[place[0]].sharding
        return sharding is not None and bool(sharding.dims[place[1]])

    def _cut(self, call: Call, choice: Choice) -> Expr | None:
        """The local call; ``None`` if the operator has none for this choice."""
        given = [v for a in call.args for v in self._values[a]]
        made: Call | None = call
        if choice.parts > 1:
            parts = iter([var(f"x{n}", s.local_shape(v.type.concrete_shape, self._mesh),
                              v.type.dtype)
                          for n, (v, s) in enumerate(zip(given, choice.operands, strict=True))])
            expected = _retyped(call.checked_type, iter(choice.results), self._mesh)
            made = local_call(call, [tree_of(a.checked_type, parts) for a in call.args], expected)
        if made is None:
            return None
        operands = iter([self._operand(v, s)
                         for v, s in zip(given, choice.operands, strict=True)])
        args = tuple(tree_of(a.checked_type, operands) for a in call.args)
        return infer_expr(made.replace(args=args, checked_type=None), trust=True)

    def _operand(self, value: _Value, sharding: Sharding) -> Expr:
        if value.sharding is None:
            placed = self._placed(value.node, value.type, sharding)
            value.local, value.sharding = placed.local, placed.sharding
        return self._as(value, sharding)

    def _as(self, value: _Value, sharding: Sharding) -> Expr:
        assert value.local is not None
        assert value.sharding is not None
        return resharded(value.local, value.sharding, sharding, self._mesh)

    def _placed(self, node: Expr, type_: TensorType, sharding: Sharding) -> _Value:
        """A parameter or a constant, of which every device gets its part."""
        shape = sharding.local_shape(type_.concrete_shape, self._mesh)
        if isinstance(node, Var):
            return _Value(node, type_, self._place(node, sharding), sharding)
        assert isinstance(node, Constant)
        if sharding.is_replicated:
            return _Value(node, type_, node, sharding)
        part = var(f"weight_{len(self._weights)}", shape, type_.dtype)
        self._weights[part] = (node.data, sharding)
        return _Value(node, type_, part, sharding)

    def _place(self, param: Var, sharding: Sharding | None) -> Var:
        type_ = param.checked_type
        assert isinstance(type_, TensorType)
        chosen = sharding or Sharding.replicated(type_.ndim)
        shape = chosen.local_shape(type_.concrete_shape, self._mesh)
        local = var(param.name, shape, type_.dtype)
        self._parameters[param] = (local, chosen)
        return local

    def _results(self, wanted: Sequence[Sharding | None] | None) -> tuple[Expr, list[Sharding]]:
        values = self._values[self._fn.body]
        parts, shardings = [], []
        for value, sharding in zip(values, wanted or [None] * len(values), strict=True):
            target = sharding or value.sharding or Sharding.replicated(value.type.ndim)
            if value.sharding is not None and sharding is not None:
                nbytes = resharding_bytes(nbytes_of(value.type), value.sharding, target, self._mesh)
                if nbytes:
                    self._decisions.append(Decided(_result_call(self._fn), Choice(
                        (value.sharding,), (target,), (), nbytes, 1)))
            parts.append(self._operand(value, target))
            shardings.append(target)
        return tree_of(self._fn.body.checked_type, iter(parts)), shardings


def _result_call(fn: Function) -> Call:
    body = fn.body
    return body if isinstance(body, Call) else next(
        (f for f in getattr(body, "fields", ()) if isinstance(f, Call)), Call(fn, fn.params))


def _retyped(type_: Type | None, shardings: Iterator[Sharding], mesh: Mesh) -> Type:
    if isinstance(type_, TupleType):
        return TupleType(tuple(_retyped(t, shardings, mesh) for t in type_.fields))
    assert isinstance(type_, TensorType)
    return TensorType(next(shardings).local_shape(type_.concrete_shape, mesh), type_.dtype)
