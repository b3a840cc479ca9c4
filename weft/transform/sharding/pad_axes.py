"""Pad the axes of a program that a mesh does not divide, so that ``partition`` can cut them.

Padding lies behind the elements of a dimension. What it holds is the last element again, and then
whatever operators make of it: an operator whose formula is the same at the padded size computes
the elements before the padding as ever (``local_call`` compares the formulas). Where an operator
reduces a padded axis, or reads it in windows, the padding gets a value first that leaves the result
as it is. Other uses are refused. The results are cut to their sizes where parts are joined.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import field
from fractions import Fraction

import numpy as np

from weft import op
from weft.ir import (
    Call,
    Constant,
    Expr,
    Function,
    GlobalVar,
    If,
    Op,
    TensorType,
    Tuple,
    TupleGetItem,
    TupleType,
    Type,
    Var,
    const,
    infer_expr,
    post_order,
)
from weft.ir.sharding import Mesh, Sharding
from weft.op.cut_axes import tensor_types
from weft.support.dataclass import dataclass
from weft.support.errors import PassError
from weft.transform.sharding.choose import Costs
from weft.transform.sharding.index_maps import Factor, IndexMaps, Place, index_maps, tree_of
from weft.transform.sharding.local_call import local_call
from weft.transform.sharding.loops import Loop
from weft.transform.sharding.neutral import neutral_of, reduces_neutral
from weft.transform.sharding.pad_loops import pad_loop
from weft.transform.sharding.partition import Partitioned, check_program, partition, refused
from weft.transform.sharding.reduced import simpler_form
from weft.transform.sharding.tuples import tensors_of_tree, values_of_tuple


def partition_padded(fn: Function, mesh: Mesh, parameters: Sequence[Sharding | None], *,
                     values: Mapping[Expr, Sharding], results: Sequence[Sharding | None] | None,
                     loops: Mapping[str, Loop] | None = None, costs: Costs | None = None
                     ) -> Partitioned:
    """``partition`` of the program with the axes padded that its shardings do not divide.

    The parts are those of padded tensors. Raises ``PassError`` with the axis and the operator that
    needs it without padding.
    """
    check_program(fn, loops or {})
    given = {p: s for p, s in zip(fn.params, parameters, strict=True) if s is not None}
    multiples = {node: tuple(mesh.parts(axes) for axes in s.dims)
                 for node, s in {**values, **given}.items()}
    ends = [tuple(mesh.parts(axes) for axes in s.dims) if s is not None else None
            for s in results or [None] * len(tensor_types(fn.body.checked_type))]
    padded, forms, loops = pad_axes(fn, multiples, ends, loops)
    made = partition(padded, mesh, parameters, results=results, loops=loops, costs=costs, values={
        new: s for node, s in values.items() for new in forms.get(node, [])})
    assert fn.body.checked_type is not None
    return dataclasses.replace(made, whole=fn.params, result_type=fn.body.checked_type)


def pad_axes(fn: Function, multiples: Mapping[Expr, tuple[int, ...]],
             results: Sequence[tuple[int, ...] | None] = (), loops: Mapping[str, Loop] | None = None
             ) -> tuple[Function, dict[Expr, list[Expr]], dict[str, Loop]]:
    """The program on tensors whose sizes are multiples of those given, nodes in it, and its loops.

    ``results`` has the multiples of each tensor of the result, ``None`` for any.
    """
    pass_ = Padding(multiples, dict(loops or {}))
    for node in (*fn.params, *post_order(fn.body)):
        pass_.visit(node)
    ends = pass_.values[fn.body]
    parts = [pass_.multiple(v, each) if each else v
             for v, each in zip(ends, results or [None] * len(ends), strict=True)]
    params = tuple(pass_.values[p][0].node for p in fn.params)
    made = Function(params, tree_of(  # type: ignore[arg-type]
        fn.body.checked_type, (p.node for p in parts)))
    typed = infer_expr(made, trust=True)
    assert isinstance(typed, Function)
    return typed, pass_.forms, pass_.loops


@dataclass(frozen=True, slots=True)
class Padded:
    """A tensor of the padded program: what its padded dimensions hold, ``None`` if not known."""

    node: Expr
    type: TensorType  # without padding
    fills: Mapping[int, float | None] = field(default_factory=dict)

    @property
    def shape(self) -> tuple[int, ...]:
        (type_,) = tensor_types(self.node.checked_type)
        return type_.concrete_shape


class Padding:
    """The padded program under construction: of ``main``, or of a loop that it calls."""

    def __init__(self, multiples: Mapping[Expr, tuple[int, ...]], loops: dict[str, Loop]) -> None:
        self.loops = loops
        self.values: dict[Expr, list[Padded]] = {}
        self.forms: dict[Expr, list[Expr]] = {}
        self._multiples = multiples
        self._source: dict[Expr, Expr] = {}  # of constants in padded forms

    def inner(self) -> Padding:
        """The program of a loop that this one calls."""
        made = Padding(self._multiples, self.loops)
        made.forms = self.forms
        return made

    def enter(self, param: Var, shape: tuple[int, ...]) -> Var:
        """Let the parameter of a loop have this size, with padding that may hold anything."""
        (type_,) = tensor_types(param.checked_type)
        made = infer_expr(Var(param.name, TensorType(shape, type_.dtype)))
        assert isinstance(made, Var)
        self.values[param] = [Padded(made, type_, {
            d: None for d, n in enumerate(type_.concrete_shape) if n != shape[d]})]
        return made

    def visit_body(self, body: Expr, without: Container[Expr]) -> None:
        """Pad all calls of an expression, except for the nodes ``without``."""
        for node in post_order(body):
            if node in without:
                self.values[node] = []
            else:
                self.visit(node)

    def grown_to(self, values: Sequence[Padded], shapes: Sequence[tuple[int, ...]]
                 ) -> list[Padded]:
        """The values with padding up to these sizes."""
        found = list(values)
        for n, shape in enumerate(shapes):
            for d, size in enumerate(shape):
                found[n] = self._grown(found[n], d, size)
        return found

    def visit(self, node: Expr) -> None:
        if node in self.values:
            return
        self.values[node] = found = self._visit(node)
        wanted = self._multiples.get(node)
        if wanted is not None and len(found) == 1 and not isinstance(node, Var):
            self.values[node] = found = [self.multiple(found[0], wanted)]
        if len(found) == 1:
            self.forms.setdefault(node, []).append(found[0].node)

    def multiple(self, value: Padded, wanted: tuple[int, ...]) -> Padded:
        """The value with sizes that are multiples of those wanted."""
        for d, parts in enumerate(wanted):
            value = self._grown(value, d, -(-value.shape[d] // parts) * parts)
        return value

    def _visit(self, node: Expr) -> list[Padded]:
        match node:
            case Var():
                return [self._parameter(node)]
            case Constant():
                self._source[node] = node
                return [Padded(node, t) for t in tensor_types(node.checked_type)]
            case Tuple() | TupleGetItem():
                return values_of_tuple(node, self.values)
            case Call() if isinstance(node.op, Op):
                return self._call(node)
            case Call() if isinstance(node.op, GlobalVar):
                return self._function_call(node)
            case If():
                return self._branches(node)
            case Op() | GlobalVar():
                return []
        raise refused(node, type(node).__name__)

    def _parameter(self, param: Var) -> Padded:
        type_, wanted = param.checked_type, self._multiples.get(param, ())
        if not isinstance(type_, TensorType):
            raise refused(param, "a parameter that is no tensor")
        shape = list(type_.concrete_shape)
        for d, parts in enumerate(wanted):
            shape[d] = -(-shape[d] // parts) * parts
        fills = {d: None for d, n in enumerate(type_.concrete_shape) if n != shape[d]}
        made = infer_expr(Var(param.name, TensorType(tuple(shape), type_.dtype))) if fills \
            else infer_expr(param)
        return Padded(made, type_, fills)

    def _function_call(self, call: Call) -> list[Padded]:
        """A call of a loop, or of another function."""
        given = [v for a in call.args for v in self.values[a]]
        if not any(v.fills for v in given):
            made = call.replace(args=tuple(self._arguments(call, given)),
                                checked_type=call.checked_type)
            return self.results(call, made, [{} for _ in tensor_types(call.checked_type)])
        found = pad_loop(self, call, given)
        if found is None:
            place = next(((n, min(v.fills)) for n, v in enumerate(given) if v.fills), (0, 0))
            raise _refused(call, given, place, "each iteration would need more of it")
        return found

    def _branches(self, node: If) -> list[Padded]:
        """Both branches with the padding of either."""
        yes, no = list(self.values[node.true_branch]), list(self.values[node.false_branch])
        for n, (a, b) in enumerate(zip(yes, no, strict=True)):
            for d in {*a.fills, *b.fills}:
                size = max(yes[n].shape[d], no[n].shape[d])
                yes[n], no[n] = self._grown(yes[n], d, size), self._grown(no[n], d, size)
        made = infer_expr(If(self.values[node.cond][0].node, *(
            tree_of(node.checked_type, (v.node for v in each)) for each in (yes, no)),
            span=node.span), trust=True)
        return self.results(node, made, [dict.fromkeys((*a.fills, *b.fills), 0)
                                          for a, b in zip(yes, no, strict=True)])

    def _call(self, call: Call) -> list[Padded]:
        given = [v for a in call.args for v in self.values[a]]
        if not any(v.fills for v in given):
            made = infer_expr(call.replace(args=tuple(self._arguments(call, given)),
                                           checked_type=None), trust=True)
            return self.results(call, made, [{} for _ in tensor_types(call.checked_type)])
        found = self._padded_call(call, given, index_maps(call))
        if not isinstance(found, PassError):
            return found
        form = simpler_form(call)
        if form is None:
            raise found
        params, body = form
        for param, arg in zip(params, call.args, strict=True):
            self.values |= {p: [v] for p, v in zip(tensors_of_tree(param), self.values[arg],
                                                   strict=True)}
        try:
            for node in post_order(body):
                self.visit(node)
        except PassError:
            raise found from None
        return self.values[body]

    def _padded_call(self, call: Call, given: list[Padded], maps: IndexMaps
                     ) -> list[Padded] | PassError:
        """The results of the call on padded operands, or why there are none."""
        factors: dict[Factor, Fraction] = {}
        place = (0, 0)
        for n, value in enumerate(given):
            for d in value.fills:
                factor = maps.factor_of((n, d))
                if factor is None:
                    why = "it has one element, which is broadcast" \
                        if value.type.concrete_shape[d] == 1 \
                        else maps.blocked.get((n, d), "its elements have no loop of their own")
                    return _refused(call, given, (n, d), why)
                growth = Fraction(value.shape[d], value.type.concrete_shape[d])
                factors[factor] = max(growth, factors.get(factor, growth))
        sizes: list[dict[int, int]] = [{} for _ in tensor_types(call.checked_type)]
        for factor, growth in factors.items():
            place = next(p for p in factor.operands if p[1] in given[p[0]].fills)
            why = self._filled(call, given, factor, growth)
            for n, d in factor.results:
                size = tensor_types(call.checked_type)[n].concrete_shape[d] * growth
                why = why or _uneven(size)
                sizes[n][d] = int(size)
            if why:
                return _refused(call, given, place, why)
        grown = iter(sizes)
        assert call.checked_type is not None
        made = local_call(call, self._arguments(call, given), _resized(call.checked_type, grown),
                          is_padded=True)
        if made is None:
            return _refused(call, given, place, "its formula at another size is another")
        return self.results(call, made, sizes)

    def _filled(self, call: Call, given: list[Padded], factor: Factor, growth: Fraction) -> str:
        """Pad the operands along a factor; why that is not possible, if it is not."""
        reduction, fills = factor.reduction, {(w.operand, w.dim): w.fill for w in factor.windows}
        if not factor.results and not (reduction and reduces_neutral(call, factor)):
            return "no value leaves its reduction as it is"
        for n, d in factor.operands:
            size = given[n].type.concrete_shape[d] * growth
            if why := _uneven(size):
                return why
            fill = neutral_of(reduction, given[n].type.dtype) if reduction else fills.get((n, d))
            given[n] = self._grown(given[n], d, int(size), fill)
        return ""

    def _grown(self, value: Padded, d: int, size: int, fill: float | None = None) -> Padded:
        """The value with a dimension padded to ``size``, by ``fill`` if there is one."""
        has, length = value.shape[d], value.type.concrete_shape[d]
        is_filled = fill is None or has == length or value.fills[d] == fill
        node = value.node
        if isinstance(node, Constant) and node in self._source and (has < size or not is_filled):
            data = np.take(node.data, range(length), d)
            node = self._constant(node, padded_array(data, d, size, fill))
        else:
            if not is_filled:
                node = _masked(node, d, length, fill)
            if has < size:
                node = padded_tensor(node, d, size, fill)
        known = {d: fill if has == length or not is_filled or value.fills[d] == fill else None} \
            if size > length else {}
        return Padded(node, value.type, {**value.fills, **known})

    def _constant(self, node: Constant, data: np.ndarray) -> Constant:
        source = self._source[node]
        made = infer_expr(Constant(np.ascontiguousarray(data), span=source.span))
        assert isinstance(made, Constant)
        self._source[made] = source
        self.forms.setdefault(source, []).append(made)
        return made

    def _arguments(self, call: Call, given: Sequence[Padded]) -> list[Expr]:
        nodes: Iterator[Expr] = (v.node for v in given)
        return [tree_of(a.checked_type, nodes) for a in call.args]

    def results(self, call: Expr, made: Expr, sizes: Sequence[Mapping[int, int]]
                 ) -> list[Padded]:
        types = tensor_types(call.checked_type)
        nodes = [made] if isinstance(call.checked_type, TensorType) else \
            [infer_expr(TupleGetItem(made, i), trust=True) for i in range(len(types))]
        return [Padded(node, t, dict.fromkeys(padded))
                for node, t, padded in zip(nodes, types, sizes, strict=True)]


def _uneven(size: Fraction) -> str:
    return "" if size.denominator == 1 else "its operands and results cannot grow alike"


def _name_of(call: Call) -> str:
    return f"@{call.op.name}" if isinstance(call.op, GlobalVar) else str(call.op)


def _refused(call: Call, given: Sequence[Padded], place: Place, why: str) -> PassError:
    n, d = place
    return PassError(
        f"{_name_of(call)} cannot take dimension {d} of operand {n} with padding: {why}",
        where=call.span,
        expected=f"{given[n].type.concrete_shape[d]} elements",
        got=f"{given[n].shape[d]} with padding",
        help="choose a sharding that the mesh divides for this axis, or leave it whole")


def _resized(type_: Type, sizes: Iterator[Mapping[int, int]]) -> Type:
    if isinstance(type_, TupleType):
        return TupleType(tuple(_resized(t, sizes) for t in type_.fields))
    assert isinstance(type_, TensorType)
    grown = next(sizes)
    return TensorType(tuple(grown.get(d, n) for d, n in enumerate(type_.concrete_shape)),
                      type_.dtype)


def _masked(x: Expr, d: int, length: int, fill: float | None) -> Expr:
    """``fill`` behind the first ``length`` elements of a dimension."""
    (type_,) = tensor_types(x.checked_type)
    shape = [n if i == d else 1 for i, n in enumerate(type_.concrete_shape)]
    inside = (np.arange(type_.concrete_shape[d]) < length).reshape(shape)
    return infer_expr(op.where(Constant(inside), x, const(fill, type_.dtype)), trust=True)


def padded_tensor(x: Expr, d: int, size: int, fill: float | None = None) -> Expr:
    """A tensor with a dimension padded to ``size``, by its last element where there is no fill."""
    (type_,) = tensor_types(x.checked_type)
    if type_.shape[d] == size:
        return x
    widths = [(0, size - n if i == d else 0) for i, n in enumerate(type_.concrete_shape)]
    return infer_expr(op.nn.pad(
        x, const(0 if fill is None else fill, type_.dtype), pad_width=tuple(widths),
        pad_mode="edge" if fill is None else "constant"), trust=True)


def padded_array(x: np.ndarray, d: int, size: int, fill: float | None = None) -> np.ndarray:
    """What ``padded_tensor`` computes."""
    widths = [(0, size - n if i == d else 0) for i, n in enumerate(x.shape)]
    return np.pad(x, widths, mode="edge") if fill is None else \
        np.pad(x, widths, constant_values=x.dtype.type(fill))
