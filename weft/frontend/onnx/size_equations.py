"""Symbolic sizes that the nodes of a model determine.

A file may name every axis of an image although the weights of the first convolution have 3
channels, and a ``Reshape`` to (1, 9216) fixes the batch. If such a node cannot be converted, the
import starts again with the size that the node demands. Nodes in branches and loops demand
nothing, because they may not run. ``Squeeze`` without axes removes axes of size 1, so the general
program has sizes from 2 on.

Decoders with a growing cache declare ``total_sequence_length`` for the mask,
``past_sequence_length`` for the cache and ``sequence_length`` for the new positions; no file says
that the first is the sum of the others. If a node needs a symbol to be a sum of other symbols, the
import starts again with the sum in its place. A call with other sizes is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from typing import TypeAlias

from weft.frontend.onnx.node import Node
from weft.frontend.onnx.shape_value import ShapeValue
from weft.ir import Constant, Expr, SizeRange, TensorType, name_of, range_of
from weft.ir.shape import Dim, Shape, SymDim, dim_add, dim_mul, dim_product, dim_sub, substitute_dim

# Pairs of dimensions that a node needs to be equal.
Equations: TypeAlias = "Iterator[tuple[Dim, Dim]]"


def sizes_demanded(node: Node) -> dict[str, SizeRange]:
    """The sizes of symbols, by name, at which the inputs of a node fit together."""
    found: dict[str, SizeRange] = {}
    if node.op == "Squeeze" and not _axes_of(node):
        return {name_of(s): SizeRange(2) for d in shape_of_input(node, 0) if isinstance(d, SymDim)
                for s in d.symbols() if d == SymDim.symbol(s) and range_of(s).low < 2}
    rule = _RULES.get(node.op)
    for left, right in rule(node) if rule is not None else ():
        solved = _solution(dim_sub(left, right))
        if solved is not None:
            symbol, size = solved
            found.setdefault(name_of(symbol), SizeRange(size, size))
    return found


def _solution(difference: Dim) -> tuple[str, int] | None:
    """The symbol in ``a*symbol + b``, and its size where that is 0; ``None`` if there is none."""
    if not isinstance(difference, SymDim):
        return None
    terms = dict(difference.terms)
    constant = terms.pop((), 0)
    if len(terms) != 1:
        return None
    ((symbol, *others), coefficient), = terms.items()
    if others or not isinstance(symbol, str) or constant % coefficient:
        return None
    size = -constant // coefficient
    return (symbol, size) if size in range_of(symbol) else None


def shape_of_input(node: Node, index: int) -> Shape:
    """The shape of an input; empty for sizes, and for one that is missing."""
    value = node.inputs[index] if node.has_input(index) else None
    type_ = value.checked_type if isinstance(value, Expr) else None
    return type_.shape if isinstance(type_, TensorType) else ()


def _channels(weight_axis: int) -> Callable[[Node], Equations]:
    def equations(node: Node) -> Equations:
        x, w = shape_of_input(node, 0), shape_of_input(node, 1)
        if len(x) > 1 and len(w) > weight_axis:
            groups = node.attrs.integer("group", 1) if weight_axis == 1 else 1
            yield x[1], dim_mul(w[weight_axis], groups)

    return equations


def _contracted(node: Node) -> Equations:
    a, b = shape_of_input(node, 0), shape_of_input(node, 1)
    if node.op == "Gemm":
        a = a[::-1] if node.attrs.integer("transA", 0) else a
        b = b[::-1] if node.attrs.integer("transB", 0) else b
    if a and b:
        yield a[-1], b[-2] if len(b) > 1 else b[-1]


def _features(node: Node) -> Equations:
    """The input features of LSTM, GRU and RNN."""
    x, w = shape_of_input(node, 0), shape_of_input(node, 1)
    if len(x) == len(w) == 3:
        yield x[2], w[2]


def _elements(node: Node) -> Equations:
    target = node.inputs[1] if node.has_input(1) else None
    if isinstance(target, Constant | ShapeValue):
        sizes = node.dims(1, "shape")
        if all(isinstance(size, SymDim) or (isinstance(size, int) and size > 0) for size in sizes):
            yield dim_product(shape_of_input(node, 0)), dim_product(sizes)


def _axes_of(node: Node) -> tuple[int, ...]:
    return node.attrs.integers("axes") or node.optional_ints(1, "axes") or ()


def _squeezed(node: Node) -> Equations:
    shape = shape_of_input(node, 0)
    yield from ((shape[axis], 1) for axis in _axes_of(node) if -len(shape) <= axis < len(shape))


def _parts(node: Node) -> Equations:
    shape, axis = shape_of_input(node, 0), node.attrs.integer("axis", 0)
    sizes: Sequence[Dim] | None = node.attrs.integers("split") or node.optional_dims(1, "split")
    if sizes and -len(shape) <= axis < len(shape):
        yield shape[axis], reduce(dim_add, sizes, 0)


_RULES: Mapping[str, Callable[[Node], Equations]] = {
    "Conv": _channels(1), "ConvTranspose": _channels(0), "BatchNormalization": _channels(0),
    "InstanceNormalization": _channels(0), "MatMul": _contracted, "Gemm": _contracted,
    "LSTM": _features, "GRU": _features, "RNN": _features, "Reshape": _elements,
    "Split": _parts, "Squeeze": _squeezed,
}


def sums_demanded(node: Node) -> dict[str, Dim]:
    """Sums by the name of the symbol that a node needs to be equal to them."""
    found: dict[str, Dim] = {}
    for pair in _SUM_RULES.get(node.op, _broadcast)(node):
        for symbol, total in (pair, pair[::-1]):
            name = _lone_name(symbol)
            if name is None or not isinstance(total, SymDim) or len(total.terms) < 2:
                continue
            plain = substitute_dim(total, {s: SymDim.symbol(name_of(s)) for s in total.symbols()})
            if isinstance(plain, SymDim) and name not in plain.symbols():
                found.setdefault(name, plain)
    return found


def _lone_name(dim: Dim) -> str | None:
    """The name of a dimension that is a single symbol."""
    symbols = dim.symbols() if isinstance(dim, SymDim) else frozenset()
    return next((name_of(s) for s in symbols if dim == SymDim.symbol(s)), None)


def _broadcast(node: Node) -> Equations:
    """Aligned axes of the inputs of an elementwise operator."""
    if node.op not in _ELEMENTWISE:
        return
    shapes = [shape_of_input(node, i) for i in range(len(node.inputs))]
    for number, one in enumerate(shapes):
        for other in shapes[number + 1:]:
            yield from zip(one[::-1], other[::-1], strict=False)


def _keys_of_mask(mask: int, past: int, past_axis: int, new: int) -> Callable[[Node], Equations]:
    """The last axis of a mask counts the past and the new keys."""
    def equations(node: Node) -> Iterator[tuple[Dim, Dim]]:
        shape, held, rows = (shape_of_input(node, i) for i in (mask, past, new))
        if len(shape) > 1 and len(held) > past_axis and len(rows) == 3:
            yield shape[-1], dim_add(held[past_axis], rows[1])

    return equations


_ELEMENTWISE = ("Add", "Sub", "Mul", "Div", "And", "Or", "Where", "Min", "Max")
_SUM_RULES: Mapping[str, Callable[[Node], Equations]] = {
    "com.microsoft::MultiHeadAttention": _keys_of_mask(4, 6, 2, 1),
    "com.microsoft::Attention": _keys_of_mask(3, 4, 3, 0),
}
