"""Merge patterns of calls into composite functions."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from weft import ir
from weft.ir.rewrite.matcher import match
from weft.ir.rewrite.pattern import AnyTerm, Term, VarTerm
from weft.support.dataclass import dataclass
from weft.transform.analysis import graph
from weft.transform.external.codegen import EXTERNAL_CODEGENS, CompositePattern
from weft.transform.normal_form.alpha import fresh_copy


@ir.register_pass
@dataclass(frozen=True)
class MergeComposite(ir.FunctionPass):
    """Wrap the matches of the patterns of code generator ``compiler`` into composite functions.

    A match becomes a call of a function whose attribute ``composite`` is the name of the pattern.
    Its parameters are the matches of ``any_`` and ``var_``; constants stay inside. Earlier patterns
    take precedence, and among overlapping matches the one closest to the result. Values inside a
    match must not have other uses.

    With the pattern ``nn.relu(nn.dense(any_(), any_()))`` named ``dense_relu``:

    def @main(%x: Tensor[(2, 4), float32], %w: Tensor[(3, 4), float32]) {
      exp(nn.relu(nn.dense(%x, %w)))
    }
    =>
    def @main(%x: Tensor[(2, 4), float32], %w: Tensor[(3, 4), float32]) {
      %0 = fn (%a: Tensor[(2, 4), float32], %b: Tensor[(3, 4), float32], composite="dense_relu") {
        nn.relu(nn.dense(%a, %b))
      };
      exp(%0(%x, %w))
    }
    """

    name: ClassVar[str] = "merge_composite"
    opt_level: ClassVar[int] = 0
    compiler: str = ""

    def run(self, fn: ir.Function, ctx: ir.PassContext) -> ir.Function:  # noqa: ARG002
        return merge_patterns(fn, EXTERNAL_CODEGENS.get(self.compiler).patterns)


@dataclass(frozen=True, slots=True)
class _Match:
    """``inputs`` are the operands of the composite, ``inside`` the nodes that it replaces."""

    name: str
    inputs: tuple[ir.Expr, ...]
    inside: frozenset[ir.Expr]


def merge_patterns(fn: ir.Function, patterns: Sequence[CompositePattern]) -> ir.Function:
    """``fn`` with every match of ``patterns`` wrapped."""
    named = [(p, _with_named_leaves(p.pattern)) for p in patterns]
    uses = ir.count_uses(fn)
    taken: set[ir.Expr] = set()
    found: dict[ir.Expr, _Match] = {}
    order = [n for n in ir.post_order(fn, enter=_is_open)]  # noqa: C416 - a list to walk backwards
    for node in reversed(order):
        if node in taken or not isinstance(node, ir.Call):
            continue
        matched = _first_match(node, named, uses, taken)
        if matched is not None:
            found[node] = matched
            taken |= matched.inside
    return graph.as_function(_wrap(fn, found)) if found else fn


def _is_open(node: ir.Expr) -> bool:
    return graph.enters(node) and not (isinstance(node, ir.Function) and "composite" in node.attrs)


def _first_match(node: ir.Call, patterns: Sequence[tuple[CompositePattern, Term]],
                 uses: Mapping[ir.Expr, int], taken: set[ir.Expr]) -> _Match | None:
    for pattern, term in patterns:
        captured = match(term, node)
        if captured is None or (pattern.check is not None and not pattern.check(node)):
            continue
        leaves = {e for name, e in captured.items() if name.startswith(_LEAF)}
        inside = _down_to(node, leaves)
        calls = [n for n in inside if not isinstance(n, (ir.Constant, ir.Var))]
        if any(n in taken for n in calls) or not is_closed(node, calls, uses):
            continue
        inputs = dict.fromkeys(
            child for n in inside for child in ir.children(n)
            if child in leaves and not isinstance(child, ir.Constant)
        )
        return _Match(pattern.name, tuple(inputs), frozenset(calls))
    return None


def _down_to(node: ir.Expr, leaves: set[ir.Expr]) -> list[ir.Expr]:
    """The nodes from ``node`` down to ``leaves``, exclusive."""
    return [n for n in ir.post_order(node, enter=lambda n: n not in leaves) if n not in leaves]


def is_closed(root: ir.Expr, calls: Sequence[ir.Expr], uses: Mapping[ir.Expr, int]) -> bool:
    """Whether only ``root`` is used outside of the match."""
    within: dict[ir.Expr, int] = {}
    for node in calls:
        for child in ir.children(node):
            within[child] = within.get(child, 0) + 1
    return all(within.get(n, 0) == uses[n] for n in calls if n is not root)


def _wrap(fn: ir.Function, found: Mapping[ir.Expr, _Match]) -> ir.Expr:
    def step(original: ir.Expr, node: ir.Expr) -> ir.Expr:
        matched = found.get(original)
        return node if matched is None else _composite(original, node, matched)

    return graph.rewrite_typed(fn, step)


def _composite(original: ir.Expr, rewritten: ir.Expr, matched: _Match) -> ir.Expr:
    """A call of a function whose body is the match over parameters."""
    params = tuple(
        ir.Var(f"in{i}", graph.known_type(x), span=x.span) for i, x in enumerate(matched.inputs)
    )
    body = fresh_copy(original, dict(zip(matched.inputs, params, strict=True)))
    function = ir.Function(params, body, attrs={"composite": matched.name}, span=original.span)
    args = _rewritten_inputs(original, rewritten, matched)
    return ir.Call(function, args, span=original.span)


def _rewritten_inputs(original: ir.Expr, rewritten: ir.Expr, matched: _Match) -> tuple[ir.Expr,
                                                                                       ...]:
    """The rewritten inputs, found by walking both versions of the match in parallel."""
    pairs: dict[ir.Expr, ir.Expr] = {}
    pending = [(original, rewritten)]
    while pending:
        old, new = pending.pop()
        if old in pairs:
            continue
        pairs[old] = new
        if old in matched.inside:
            pending.extend(zip(ir.children(old), ir.children(new), strict=True))
    return tuple(pairs[x] for x in matched.inputs)


_LEAF = "leaf "


def _with_named_leaves(term: Term) -> Term:
    """The pattern with a unique capture name for every wildcard."""
    count = 0

    def rename(value: Any) -> Any:
        # Patterns are written by hand and short, which bounds this recursion.
        nonlocal count
        if isinstance(value, tuple):
            return tuple(map(rename, value))
        if not isinstance(value, Term):
            return value
        if isinstance(value, (AnyTerm, VarTerm)):
            count += 1
            return dataclasses.replace(value, name=f"{_LEAF}{value.name or count}")
        changes = {f.name: rename(getattr(value, f.name)) for f in dataclasses.fields(value)
                   if f.name not in ("name", "conditions", "attrs", "op", "ops")}
        return dataclasses.replace(value, **changes)

    return rename(term)


def is_composite(expr: ir.Expr) -> bool:
    """Whether ``expr`` calls a composite function."""
    return (
        isinstance(expr, ir.Call)
        and isinstance(expr.op, ir.Function)
        and "composite" in expr.op.attrs
        and not graph.is_primitive(expr.op)
    )
