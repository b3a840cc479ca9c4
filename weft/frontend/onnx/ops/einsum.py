"""Converters of Einsum and LpNormalization."""

from __future__ import annotations

from functools import reduce

from weft import op
from weft.frontend.onnx.node import Node, tensor_type
from weft.frontend.onnx.ops.linear import multiplied
from weft.frontend.onnx.registry import converts
from weft.frontend.onnx.reshaping import reshape_to
from weft.ir import Dim, Expr, dim_product
from weft.support.errors import UnsupportedModelError

# Names of the axes of an ellipsis, last axis first; equations contain no digits.
_ELLIPSIS = "9876543210"


class Term:
    """A tensor with named axes, one character for each."""

    def __init__(self, value: Expr, names: str) -> None:
        self.value = value
        self.names = names

    def size(self, name: str) -> Dim:
        return tensor_type(self.value).shape[self.names.index(name)]


@converts("Einsum", since=12, attributes=("equation",))
def einsum(node: Node) -> Expr:
    """Contract the operands from left to right, each step as a batched matmul."""
    equation = node.attrs.text("equation", "").replace(" ", "")
    left, arrow, right = equation.partition("->")
    names = left.split(",")
    if len(names) != len(node.inputs):
        raise node.fail("the equation does not match the inputs",
                        expected=f"{len(node.inputs)} terms", got=equation)
    terms = [_term(node, i, text) for i, text in enumerate(names)]
    target = _written_out(node, right, terms) if arrow else _implied(left, terms)
    result = _summed(node, terms[0], target, terms[1:])
    for i, term in enumerate(terms[1:], start=1):
        rest = terms[i + 1:]
        result = _contracted(node, result, _summed(node, term, target, [result, *rest]),
                             target, rest)
    return _arranged(node, result, target)


def _term(node: Node, index: int, text: str) -> Term:
    """Return input ``index`` with the ellipsis expanded and diagonals taken of repeated names."""
    rank = node.rank(index)
    if "..." in text:
        hidden = rank - len(text) + 3
        if not 0 <= hidden <= len(_ELLIPSIS):
            raise node.fail("rank of an operand does not match the equation",
                            expected=f"rank {rank}", got=text)
        text = text.replace("...", _ELLIPSIS[len(_ELLIPSIS) - hidden:])
    if len(text) != rank or (not text.isalnum() and text):
        raise node.fail("rank of an operand does not match the equation",
                        expected=f"rank {rank}", got=text)
    value = node.input(index)
    repeated = next((c for c in text if text.count(c) > 1), None)
    while repeated is not None:
        first, second = (i for i, c in enumerate(text) if c == repeated and i in
                         (text.index(repeated), text.index(repeated, text.index(repeated) + 1)))
        value = _diagonal(node, value, first, second)
        text = text[:second] + text[second + 1:]
        repeated = next((c for c in text if text.count(c) > 1), None)
    return Term(value, text)


def _diagonal(node: Node, value: Expr, first: int, second: int) -> Expr:
    """Take the diagonal of two axes, along the first of them."""
    shape = tensor_type(value).shape
    size = shape[first]
    if not isinstance(size, int) or size != shape[second]:
        raise UnsupportedModelError(
            "Einsum repeats an index over axes of different or symbolic sizes", where=node.span)
    rank = len(shape)
    rest = [a for a in range(rank) if a not in (first, second)]
    pairs = node.call(op.transpose, value, axes=(first, second, *rest))
    flat = reshape_to(node, pairs, (size * size, *(shape[a] for a in rest)))
    line = node.call(op.strided_slice, flat, begin=(0,), end=(size * size,), strides=(size + 1,),
                     axes=(0,))
    axes = [*range(1, rank - 1)]
    axes.insert(first, 0)
    return node.call(op.transpose, line, axes=tuple(axes))


def _written_out(node: Node, text: str, terms: list[Term]) -> str:
    longest = max((sum(c in _ELLIPSIS for c in t.names) for t in terms), default=0)
    target = text.replace("...", _ELLIPSIS[len(_ELLIPSIS) - longest:])
    known = {c for t in terms for c in t.names}
    if len(set(target)) < len(target) or not set(target) <= known:
        raise node.fail("the output repeats an axis or names an unknown axis",
                        got=text)
    return target


def _implied(left: str, terms: list[Term]) -> str:
    """Return the implicit output: the axes of an ellipsis, then letters that occur once, sorted.

    Letters are counted in the equation, since ``_term`` removes repeated letters.
    """
    every = "".join(t.names for t in terms)
    hidden = "".join(c for c in _ELLIPSIS if c in every)
    return hidden + "".join(sorted(c for c in set(left) if c.isalpha() and left.count(c) == 1))


def _summed(node: Node, term: Term, target: str, others: list[Term]) -> Term:
    """Sum over the axes that neither the result nor another operand uses."""
    needed = set(target).union(*(set(t.names) for t in others))
    axes = tuple(i for i, c in enumerate(term.names) if c not in needed)
    if not axes:
        return term
    names = "".join(c for c in term.names if c in needed)
    return Term(node.call(op.sum, term.value, axis=axes), names)


def _contracted(node: Node, a: Term, b: Term, target: str, rest: list[Term]) -> Term:
    """Contract two terms by a batched matmul.

    Shared axes that are needed later become batch axes; the other shared axes are summed.
    """
    needed = set(target).union(*(set(t.names) for t in rest))
    shared = [c for c in a.names if c in b.names]
    stretched = [c for c in shared if a.size(c) != b.size(c)]
    if stretched:
        return _multiplied_out(node, a, b, needed)
    stack = "".join(c for c in shared if c in needed)
    inner = "".join(c for c in shared if c not in needed)
    rows = "".join(c for c in a.names if c not in shared)
    columns = "".join(c for c in b.names if c not in shared)
    left = _as_matrices(node, a, (stack, rows, inner))
    right = _as_matrices(node, b, (stack, inner, columns))
    sizes = [*(a.size(c) for c in stack + rows), *(b.size(c) for c in columns)]
    product = reshape_to(node, multiplied(node, left, right), sizes)
    return Term(product, stack + rows + columns)


def _as_matrices(node: Node, term: Term, groups: tuple[str, str, str]) -> Expr:
    value = _arranged(node, term, "".join(groups))
    return reshape_to(node, value, [dim_product(tuple(map(term.size, g))) for g in groups])


def _multiplied_out(node: Node, a: Term, b: Term, needed: set[str]) -> Term:
    """Contract terms with broadcast axes: multiply elementwise, then sum."""
    names = a.names + "".join(c for c in b.names if c not in a.names)
    wide = [
        reshape_to(node, _arranged(node, t, "".join(c for c in names if c in t.names)),
                   [t.size(c) if c in t.names else 1 for c in names])
        for t in (a, b)
    ]
    product = Term(reduce(lambda x, y: node.call(op.multiply, x, y), wide), names)
    return _summed(node, product, "".join(sorted(needed)), [])


def _arranged(node: Node, term: Term, names: str) -> Expr:
    axes = tuple(term.names.index(c) for c in names)
    if axes == tuple(range(len(axes))):
        return term.value
    return node.call(op.transpose, term.value, axes=axes)
