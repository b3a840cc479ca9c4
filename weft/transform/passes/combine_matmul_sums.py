"""Sums of matrix multiplications as one multiplication over a longer K."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, ClassVar

from weft import ir, op
from weft.support.dataclass import dataclass
from weft.transform.analysis import graph


@ir.register_pass
@dataclass(frozen=True)
class CombineMatmulSums(ir.FunctionPass):
    """Replace a sum of ``min_terms`` or more multiplications of one shape by one.

    They are ``nn.dense``, or ``nn.matmul`` of two matrices. The operands are concatenated along K:
    A1 B1 + A2 B2 is [A1 A2] [B1; B2]. The gradient of a weight that every step of an unrolled
    recurrent network uses is such a sum, with a K as small as the batch. The pass applies where
    the concatenated operands are smaller than the partial sums that are no longer written and read.

    def @main(%a: Tensor[(8, 2), float32], %b: Tensor[(9, 2), float32],
              %c: Tensor[(8, 1), float32], %d: Tensor[(9, 1), float32],
              %e: Tensor[(8, 2), float32], %f: Tensor[(9, 2), float32]) {
      add(add(nn.dense(%a, %b), nn.dense(%c, %d)), nn.dense(%e, %f))
    }
    =>
    def @main(%a: Tensor[(8, 2), float32], %b: Tensor[(9, 2), float32],
              %c: Tensor[(8, 1), float32], %d: Tensor[(9, 1), float32],
              %e: Tensor[(8, 2), float32], %f: Tensor[(9, 2), float32]) {
      nn.dense(concatenate((%a, %c, %e), axis=1), concatenate((%b, %d, %f), axis=1))
    }
    """

    name: ClassVar[str] = "combine_matmul_sums"
    opt_level: ClassVar[int] = 2
    seeks: ClassVar[ir.Seeks] = ir.Seeks(operators=("nn.dense", "nn.matmul"))
    min_terms: int = 3

    def run(self, fn: ir.Function, ctx: ir.PassContext) -> ir.Function:  # noqa: ARG002
        sums = _sums(fn)
        groups = {id(top): found for top, terms in sums.items()
                  if len(found := self._group(terms)) >= max(self.min_terms, 2)}
        if not groups:
            return fn
        rebuilt: dict[int, ir.Expr] = {}

        def step(original: ir.Expr, node: ir.Expr) -> ir.Expr:
            if id(original) in groups:
                node = _combined(sums[original], groups[id(original)], rebuilt)
            rebuilt[id(original)] = node
            return node

        return graph.rewrite_function(fn, step)

    def _group(self, terms: Sequence[ir.Expr]) -> list[ir.Call]:
        """The largest group of terms of one shape for which the rewrite pays."""
        groups: dict[Hashable, list[ir.Call]] = {}
        for term in terms:
            key = _likeness(term)
            if key is not None and isinstance(term, ir.Call):
                groups.setdefault(key, []).append(term)
        return max(groups.values(), key=len, default=[])


def _sums(fn: ir.Function) -> dict[ir.Expr, list[ir.Expr]]:
    """The outermost additions of each sum, with their terms."""
    uses: dict[int, int] = {}
    adds: list[ir.Call] = []
    for node in ir.post_order(fn):
        for child in ir.children(node):
            uses[id(child)] = uses.get(id(child), 0) + 1
        if _is_sum(node):
            adds.append(node)  # type: ignore[arg-type]
    inner = {id(arg) for add in adds for arg in add.args if uses[id(arg)] == 1 and _is_sum(arg)}
    return {add: _terms(add, uses, inner) for add in adds if id(add) not in inner}


def _is_sum(node: ir.Expr) -> bool:
    """Whether a node adds two tensors of its own shape."""
    return (graph.op_name(node) == "add" and graph.is_known_tensor(node)
            and isinstance(node, ir.Call)
            and all(graph.is_known_tensor(arg) and graph.shape_of(arg) == graph.shape_of(node)
                    for arg in node.args))


def _terms(top: ir.Call, uses: Mapping[int, int], inner: set[int]) -> list[ir.Expr]:
    """What an addition adds, from left to right; a term with other uses counts as a whole."""
    terms: list[ir.Expr] = []
    stack: list[ir.Expr] = list(reversed(top.args))
    while stack:
        node = stack.pop()
        if id(node) in inner and isinstance(node, ir.Call):
            stack.extend(reversed(node.args))
        else:
            terms.append(node)
    return [t if uses[id(t)] == 1 else ir.Tuple((t,)) for t in terms]


def _likeness(term: ir.Expr) -> Hashable | None:
    """The key that the multiplications of one group share; ``None`` for other terms."""
    if not isinstance(term, ir.Call) or (axes := _summed_axes(term)) is None:
        return None
    left, right = (graph.tensor_type_of(a) for a in term.args)
    sizes = (*left.shape, *right.shape)
    if left.ndim != 2 or right.ndim != 2 or not all(isinstance(s, int) for s in sizes):
        return None
    m, n = graph.shape_of(term)
    k: Any = left.shape[axes[0]]
    # Copied elements, against the elements of a partial sum that is written, read and added.
    pays = 2 * k * (m + n) < 3 * m * n
    return (graph.op_name(term), m, n, term.attrs, left.dtype, right.dtype) if pays else None


def _summed_axes(call: ir.Call) -> tuple[int, int] | None:
    """The axes of two matrices along which a call multiplies them; ``None`` for other calls."""
    attrs: Any = call.attrs
    match graph.op_name(call):
        case "nn.dense" if attrs.weight_layout in ("NK", "KN"):
            return 1, attrs.weight_layout.index("K")
        case "nn.matmul":
            return int(not attrs.transpose_a), int(attrs.transpose_b)
    return None


def _combined(terms: Sequence[ir.Expr], group: Sequence[ir.Call],
              rebuilt: Mapping[int, ir.Expr]) -> ir.Expr:
    """The sum with one multiplication instead of those of the group."""
    first, members = group[0], {id(call) for call in group}
    operands = tuple(_concatenated([rebuilt[id(call.args[i])] for call in group], axis)
                     for i, axis in enumerate(_summed_axes(first) or ()))
    one = ir.Call(first.op, operands, first.attrs, span=first.span)
    total: ir.Expr | None = None
    for term in terms:
        if id(term) in members and term is not first:
            continue
        whole = term.fields[0] if isinstance(term, ir.Tuple) else term
        value = one if term is first else rebuilt[id(whole)]
        total = value if total is None else op.add(total, value, span=first.span)
    return one if total is None else total


def _concatenated(parts: Sequence[ir.Expr], axis: int) -> ir.Expr:
    """The parts side by side; transposed parts are concatenated before they are transposed."""
    if all(_is_transposed(part) for part in parts):
        inner = ir.Tuple(tuple(part.args[0] for part in parts if isinstance(part, ir.Call)))
        return op.transpose(op.concatenate(inner, axis=1 - axis), axes=(1, 0))
    return op.concatenate(ir.Tuple(tuple(parts)), axis=axis)


def _is_transposed(part: ir.Expr) -> bool:
    if graph.op_name(part) != "transpose" or not isinstance(part, ir.Call):
        return False
    attrs: Any = part.attrs
    return attrs.axes is None or tuple(attrs.axes) in ((1, 0), (-1, 0), (1, -2), (-1, -2))
