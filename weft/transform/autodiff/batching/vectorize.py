"""Vectorisation: a function of one example becomes a function of a batch of examples."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import ClassVar, TypeAlias

from weft import ir
from weft.ir.visitor import Routine, run_routine
from weft.op.batching import batched_type, moved
from weft.op.gradients import field_of
from weft.support.dataclass import dataclass
from weft.support.errors import PassError
from weft.support.log import Level, debug
from weft.transform.analysis.graph import rewrite_function, type_of
from weft.transform.autodiff.batching import batch_types
from weft.transform.autodiff.batching.batch_walk import BodyWalk, Key, Vectoriser
from weft.transform.autodiff.batching.one_by_one import can_run_one_by_one
from weft.transform.autodiff.checkpoint.checkpoint import is_checkpointed
from weft.transform.autodiff.reverse.custom_rules import (
    has_custom_rule,
    rule_names,
    with_plain_entry,
)
from weft.transform.autodiff.reverse.pure_graph import pure_graph
from weft.transform.normal_form.alpha import fresh_function, fresh_var
from weft.transform.normal_form.lambda_lift import LambdaLift
from weft.transform.passes.dynamic_to_static import DynamicToStatic
from weft.transform.passes.inline import Inline

# The position of the batch among the axes of a tensor; ``None`` without a batch. For a tuple, one
# for all its tensors, or one for each field.
Axes: TypeAlias = "int | tuple[Axes, ...] | None"


@ir.register_pass
@dataclass(frozen=True)
class Vectorize(ir.Pass):
    """Vectorising map: make ``entry`` work on ``axis_size`` examples at once (JAX's ``vmap``).

    ``in_axes`` gives the axis of the batch for each parameter, ``None`` for parameters that all
    examples share; a single number holds for all of them. ``out_axes`` does the same for the
    results. ``axis_size`` is a number or a symbol.

    Each operator is replaced by its batching rule (``Op.batching``). An operator without a rule is
    expanded, or repeated for each example: as copies for few examples, else in a loop. A condition
    that differs between examples selects between the results of both branches, and a loop runs
    until all examples are done. Operators on values that all examples share are evaluated once: a
    random number from a shared key is the same for all.

    Some constructs run example by example, in the smallest enclosing function of tensors: recursion
    other than loops whose depth differs between examples, choices between functions or data that
    differ, recursive functions that return functions, and references.

    Raises ``PassError`` for axes that do not fit, and for data-dependent shapes of results.

    With ``axis_size=8``:

    def @main(%x: Tensor[(4,), float32]) { nn.softmax(%x) }
    =>
    def @main(%x: Tensor[(8, 4), float32]) { nn.softmax(%x, axis=1) }
    """

    name: ClassVar[str] = "vectorize"
    opt_level: ClassVar[int] = 0
    axis_size: ir.KnownDim = 1
    in_axes: Axes = 0
    out_axes: Axes = 0
    entry: str = "main"

    def run_module(self, mod: ir.IRModule, ctx: ir.PassContext) -> ir.IRModule:
        after, repeated = self.run_and_report(mod, ctx)
        for name, count in Counter(repeated).items():
            debug(Level.PASSES, "vmap", f"{name}: {count} calls run example by example")
        return after

    def run_and_report(self, mod: ir.IRModule, ctx: ir.PassContext) -> tuple[ir.IRModule,
                                                                             list[str]]:
        """The module, and the operator of each call that is repeated for each example."""
        mod = with_plain_entry(mod, self.entry)
        mod = _without_calls_of(self.entry, _first_order(mod, ctx))
        vectoriser = Vectoriser(mod, self.axis_size, _groups(mod))
        entry = mod[self.entry]
        in_axes = _per_item(self.in_axes, [f"%{p.name}" for p in entry.params], "in_axes")
        given = [run_routine(_given(_Input(p.name, type_of(p)), a, self.axis_size))
                 for p, a in zip(entry.params, in_axes, strict=True)]
        while True:
            vectoriser.restart()
            made = self._entry(vectoriser, entry, given)
            if not vectoriser.changed:
                break
        functions = {vectoriser.name_of(key): fn for key, fn in vectoriser.made.items()}
        after = mod.with_functions({**functions, **vectoriser.further, self.entry: made})
        return _without_unused(after, self.entry), vectoriser.loops

    def _entry(self, vectoriser: Vectoriser, entry: ir.Function,
               given: Sequence[_Given]) -> ir.Function:
        body = pure_graph(entry.body)
        params = tuple(ir.Var(p.name, one.type_, span=p.span)
                       for p, one in zip(entry.params, given, strict=True))
        args = [(run_routine(_to_front(p, one.type_, one.axes)), one.mapped)
                for p, one in zip(params, given, strict=True)]
        value, mapped = self._body(vectoriser, entry, body, args)
        result = run_routine(_from_front(value, body, mapped, self.out_axes, self.axis_size, {}))
        return entry.replace(params=params, body=result, ret_type=None)

    def _body(self, vectoriser: Vectoriser, entry: ir.Function, body: ir.Expr,
              args: Sequence[tuple[ir.Expr, batch_types.Mapped]]) -> tuple[ir.Expr,
                                                                          batch_types.Mapped]:
        """``body`` of ``entry`` for a batch of these arguments."""
        given = [f for _, f in args]
        if self.entry not in vectoriser.apart:
            walk = BodyWalk(vectoriser, Key(self.entry, ()), body)
            walk.memo |= dict(zip(entry.params, args, strict=True))
            try:
                return run_routine(walk.run(body))
            except batch_types.NotVectorisedError:
                if not can_run_one_by_one(entry, given):
                    raise
                vectoriser.apart.add(self.entry)
        one = vectoriser.unused(f"{self.entry}_one")
        vectoriser.further[one] = fresh_function(entry)
        each = vectoriser.one_by_one(entry, one, given)
        bound: dict[ir.Var, ir.Expr] = {p: x for p, (x, _) in zip(each.params, args, strict=True)}
        return ir.substitute(each.body, bound), True


def vectorized(
    mod: ir.IRModule, *, axis_size: ir.KnownDim, in_axes: Axes = 0, out_axes: Axes = 0
) -> tuple[ir.IRModule, list[str]]:
    """``Vectorize`` of ``mod``, and the operators whose calls are repeated for each example."""
    pass_ = Vectorize(axis_size=axis_size, in_axes=in_axes, out_axes=out_axes)
    after, repeated = pass_.run_and_report(ir.infer_type(mod), ir.PassContext())
    return ir.infer_type(after), repeated


@dataclass(frozen=True, slots=True)
class _Input:
    name: str
    type_: ir.Type


@dataclass(frozen=True, slots=True)
class _Given:
    """A parameter with a batch: its type, the axis of the batch, and its mapped tensors."""

    type_: ir.Type
    axes: Axes
    mapped: batch_types.Mapped


def _per_item(axes: Axes, names: Sequence[str], what: str) -> Sequence[Axes]:
    if axes is None or isinstance(axes, int):
        return [axes] * len(names)
    if len(axes) != len(names):
        raise PassError(f"{what} does not fit the function",
                        expected=f"{len(names)} entries ({', '.join(names)})",
                        got=f"{len(axes)}: {axes}")
    return axes


def _given(param: _Input, axes: Axes, size: ir.KnownDim) -> Routine[_Given]:
    type_ = param.type_
    if isinstance(type_, ir.TupleType):
        names = [f"%{param.name}.{i}" for i in range(len(type_.fields))]
        parts = []
        for axis, field in zip(_per_item(axes, names, f"in_axes of %{param.name}"), type_.fields,
                               strict=True):
            part_ = yield _given(_Input(param.name, field), axis, size)
            parts.append(part_)
        return _Given(ir.TupleType(tuple(p.type_ for p in parts)), tuple(p.axes for p in parts),
                      batch_types.tuple_of([p.mapped for p in parts]))
    if axes is None:
        return _Given(type_, None, False)
    if not isinstance(type_, ir.TensorType) or not isinstance(axes, int):
        raise PassError(f"in_axes of %{param.name} does not fit its type",
                        got=f"{axes} for {type_}",
                        expected="an axis for a tensor, None for other values")
    axis = _position(axes, type_.ndim, f"in_axes of %{param.name}")
    shape = (*type_.shape[:axis], size, *type_.shape[axis:])
    return _Given(ir.TensorType(shape, type_.dtype), axis, True)


def _position(axis: int, ndim: int, what: str) -> int:
    if not -ndim - 1 <= axis <= ndim:
        raise PassError(f"{what} is out of range", got=axis,
                        expected=f"{-ndim - 1} to {ndim}, for tensors of rank {ndim} per example")
    return axis % (ndim + 1)


def _to_front(x: ir.Expr, type_: ir.Type, axes: Axes) -> Routine[ir.Expr]:
    if isinstance(type_, ir.TupleType) and isinstance(axes, tuple):
        fields = []
        for i, (field, axis) in enumerate(zip(type_.fields, axes, strict=True)):
            field_ = yield _to_front(field_of(x, i), field, axis)
            fields.append(field_)
        return ir.Tuple(tuple(fields), span=x.span)
    if isinstance(axes, int) and isinstance(type_, ir.TensorType):
        return moved(x, axes, 0, type_.ndim)
    return x


def _from_front(
    x: ir.Expr, example: ir.Expr, mapped: batch_types.Mapped, axes: Axes, size: ir.KnownDim,
    made: dict[tuple[int, int, int], tuple[ir.Expr, ir.Expr, ir.Expr]],
) -> Routine[ir.Expr]:
    """``made`` memoizes results by value, ``Mapped`` and axes, and keeps the values alive."""
    type_ = example.checked_type
    if isinstance(type_, ir.TupleType):
        key = id(x), id(mapped), id(axes)
        if key in made:
            return made[key][0]
        names = [f"result {i}" for i in range(len(type_.fields))]
        fields = []
        for i, axis in enumerate(_per_item(axes, names, "out_axes")):
            field_ = yield _from_front(field_of(x, i), field_of(example, i),
                                       batch_types.field_mapped(mapped, i), axis, size, made)
            fields.append(field_)
        made[key] = ir.Tuple(tuple(fields), span=x.span), x, example
        return made[key][0]
    if axes is None:
        if batch_types.has_batch(mapped):
            raise PassError("out_axes is None for a result that differs between the examples",
                            where=example.span, got=type_, help="give the axis of the batch")
        return x
    if not isinstance(type_, ir.TensorType) or not isinstance(axes, int):
        raise PassError("out_axes does not fit the results", where=example.span,
                        got=f"{axes} for {type_}", expected="an axis for each tensor")
    axis = _position(axes, type_.ndim, "out_axes")
    whole = batch_types.add_batch(x, example, mapped, True,
                                  size).with_type(batched_type(type_, size))
    return moved(whole, 0, axis, type_.ndim + 1)


def _first_order(mod: ir.IRModule, ctx: ir.PassContext) -> ir.IRModule:
    """Local functions moved to the module, and inlined where they are not recursive.

    Constant shape operands become attributes: results then have sizes that all examples share.
    """
    mod = ir.infer_type(LambdaLift(prefix="local").run_module(ir.infer_type(mod), ctx))
    lifted = tuple(n for n, fn in mod.functions.items()
                   if n.startswith("local_") and not is_checkpointed(fn)
                   and not has_custom_rule(fn))
    mod = ir.infer_type(Inline(functions=lifted).run_module(mod, ctx))
    return ir.infer_type(DynamicToStatic().run_module(mod, ctx))


def _without_calls_of(entry: str, mod: ir.IRModule) -> ir.IRModule:
    """``mod`` in which no function calls ``entry``: calls go to a copy under another name."""
    if not any(isinstance(n, ir.GlobalVar) and n.name == entry
               for fn in mod.functions.values() for n in ir.post_order(fn)):
        return mod
    name = f"{entry}_inner"
    while name in mod:
        name += "_"

    def renamed(_: ir.Expr, node: ir.Expr) -> ir.Expr:
        is_entry = isinstance(node, ir.GlobalVar) and node.name == entry
        return node.replace(name=name) if is_entry else node

    functions = {n: rewrite_function(fn, renamed) for n, fn in mod.functions.items()}
    inner = functions[entry]
    params = tuple(map(fresh_var, inner.params))
    outer = ir.Function(params, ir.Call(ir.GlobalVar(name), params, span=inner.span),
                        span=inner.span,
                        attrs=inner.attrs)
    return ir.infer_type(mod.with_functions({**functions, name: inner, entry: outer}))


def _groups(mod: ir.IRModule) -> dict[str, frozenset[str]]:
    """For each function, those that it is mutually recursive with; empty without recursion."""
    callees = {name: {n.name for n in ir.post_order(fn) if isinstance(n, ir.GlobalVar)}
               for name, fn in mod.functions.items()}
    reached = {name: _reachable(name, callees) for name in callees}
    return {name: frozenset(other for other in found if name in reached[other])
            for name, found in reached.items()}


def _reachable(name: str, callees: dict[str, set[str]]) -> set[str]:
    found: set[str] = set()
    pending = list(callees[name])
    while pending:
        current = pending.pop()
        if current not in found:
            found.add(current)
            pending.extend(callees[current])
    return found


def _without_unused(mod: ir.IRModule, entry: str) -> ir.IRModule:
    """``mod`` without the versions for one example or for a batch that are never called."""
    callees = {name: {n.name for n in ir.post_order(fn) if isinstance(n, ir.GlobalVar)}
               | set(rule_names(fn)) for name, fn in mod.functions.items()}
    used = {entry, *_reachable(entry, callees)}
    return mod.without(*(name for name in mod.functions if name not in used))
