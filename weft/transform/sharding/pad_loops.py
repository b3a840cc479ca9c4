"""Loops whose state has padding.

The state has one padded size in all iterations: the sizes of its initial values grow until they
hold what an iteration makes of them. What its padding holds is not known, since an iteration may
change it: each use in the body fills it anew where that matters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from weft.ir import Call, Expr, GlobalVar, If, Type, Var, infer_expr
from weft.op.cut_axes import tensor_types
from weft.support.names import numbered
from weft.transform.sharding.index_maps import tree_of
from weft.transform.sharding.loops import Loop

if TYPE_CHECKING:
    from weft.transform.sharding.pad_axes import Padded, Padding

_MOST_TRIALS = 4  # of sizes of a loop's state
Shapes = list[tuple[int, ...]]


def pad_loop(outer: Padding, call: Call, given: Sequence[Padded]) -> list[Padded] | None:
    """The tensors of a call of a loop; ``None`` if its state has no size that fits."""
    assert isinstance(call.op, GlobalVar)
    loop, shapes = outer.loops[call.op.name], [v.shape for v in given]
    for _ in range(_MOST_TRIALS):
        inner = outer.inner()
        params = [inner.enter(p, shape) for p, shape in zip(loop.params, shapes, strict=True)]
        inner.visit_body(loop.body, {*loop.again, *loop.conditions})
        following = [_arguments(inner, again) for again in loop.again]
        grown = _largest([shapes, *[[v.shape for v in each] for each in following]])
        if grown == shapes:
            break
        shapes = grown
    else:
        return None
    exits = [inner.values[end] for end in loop.ends if end not in loop.again]
    results = _largest([[v.shape for v in each] for each in exits])
    made, kind = _padded(inner, loop, params, shapes, results)
    outer.loops[made.name] = made
    args = [v.node for v in outer.grown_to(given, shapes)]
    types = tensor_types(call.checked_type)
    return outer.results(call, Call(GlobalVar(made.name), tuple(args), span=call.span,
                                    checked_type=kind),
                         [{d: size for d, (size, length) in enumerate(zip(
                             shape, type_.concrete_shape, strict=True)) if size != length}
                          for shape, type_ in zip(results, types, strict=True)])


def _padded(inner: Padding, loop: Loop, params: Sequence[Var], state: Shapes, results: Shapes
            ) -> tuple[Loop, Type]:
    """The loop on padded tensors, and the type of its results."""
    name, made = numbered(f"{loop.name}_padded", inner.loops), dict[Expr, Expr]()
    again = loop.again
    for end in loop.ends:
        if end not in again:
            parts = (v.node for v in inner.grown_to(inner.values[end], results))
            made[end] = infer_expr(tree_of(end.checked_type, parts), trust=True)
    kind = next(iter(made.values())).checked_type
    for end in again:
        args = [v.node for v in inner.grown_to(_arguments(inner, end), state)]
        made[end] = Call(GlobalVar(name), tuple(args), span=end.span, checked_type=kind)
    conditions = []
    for node in loop.conditions:
        (cond,) = inner.values[node.cond]
        conditions.append(If(cond.node, made[node.true_branch], made[node.false_branch],
                             span=node.span, checked_type=kind))
        made[node] = conditions[-1]
    ends = tuple([made[end] for end in loop.ends])
    assert kind is not None
    return Loop(name, tuple(params), made[loop.body], ends, tuple(conditions)), kind


def _arguments(inner: Padding, call: Call) -> list[Padded]:
    return [v for a in call.args for v in inner.values[a]]


def _largest(each: Sequence[Shapes]) -> Shapes:
    return [tuple(map(max, *shapes)) if len(shapes) > 1 else shapes[0]
            for shapes in zip(*each, strict=True)]
