"""Names of sizes that are sums of other sizes: the total length of past and new positions.

Decoders with a growing cache declare ``total_sequence_length`` for the mask,
``past_sequence_length`` for the cache and ``sequence_length`` for the new positions; no file says
that the first is the sum of the others. Where a node needs a symbol to be a sum of other symbols,
the import starts again with the sum in its place. A call with other sizes is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from weft.frontend.onnx.node import Node
from weft.frontend.onnx.size_equations import Equations, shape_of_input
from weft.ir.shape import Dim, SymDim, dim_add, substitute_dim
from weft.ir.symbol import name_of


def sums_demanded(node: Node) -> dict[str, Dim]:
    """Sums by the name of the symbol that a node needs to be equal to them."""
    found: dict[str, Dim] = {}
    for pair in _RULES.get(node.op, _broadcast)(node):
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
    """The last axis of a mask is that of the past and the new keys."""
    def equations(node: Node) -> Iterator[tuple[Dim, Dim]]:
        shape, held, rows = (shape_of_input(node, i) for i in (mask, past, new))
        if len(shape) > 1 and len(held) > past_axis and len(rows) == 3:
            yield shape[-1], dim_add(held[past_axis], rows[1])

    return equations


_ELEMENTWISE = ("Add", "Sub", "Mul", "Div", "And", "Or", "Where", "Min", "Max")
_RULES: Mapping[str, Callable[[Node], Equations]] = {
    "com.microsoft::MultiHeadAttention": _keys_of_mask(4, 6, 2, 1),
    "com.microsoft::Attention": _keys_of_mask(3, 4, 3, 0),
}
