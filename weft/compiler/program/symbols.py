"""The symbols of a program: their ranges, and the inputs that determine them."""

from __future__ import annotations

from collections.abc import Sequence

from weft.compiler.program.program import Port
from weft.ir.shape import AnyDim, SymDim
from weft.ir.symbol import name_of, range_of
from weft.runtime.manifest import SymbolSpec
from weft.support.errors import UnsupportedModelError


def symbol_specs(inputs: Sequence[Port]) -> tuple[SymbolSpec, ...]:
    """The symbols in the types of the inputs, in order of first appearance.

    An axis of size ``n`` determines ``n``; without one, an axis of size ``a*n + b`` does. Raises
    ``UnsupportedModelError`` for a symbol that no input determines, and for an unknown size.
    """
    found: dict[str, SymbolSpec] = {}
    wanted: dict[str, None] = {}
    for number, port in enumerate(inputs):
        for axis, dim in enumerate(port.type.shape):
            if isinstance(dim, AnyDim):
                raise _unsupported(port, "a size without a name")
            if isinstance(dim, SymDim):
                wanted.update(dict.fromkeys(sorted(dim.symbols())))
                _determine(found, number, axis, dim)
    for symbol in wanted:
        if symbol not in found:
            port = next(p for p in inputs if any(
                isinstance(d, SymDim) and symbol in d.symbols() for d in p.type.shape))
            raise _unsupported(port, f"the size {name_of(symbol)}, which no axis determines")
    return tuple(found[symbol] for symbol in wanted)


def _determine(found: dict[str, SymbolSpec], number: int, axis: int, dim: SymDim) -> None:
    """Note that an axis determines a symbol, if it does and none does so more directly."""
    terms = dict(dim.terms)
    offset = terms.pop((), 0)
    if len(terms) != 1:
        return
    (monomial, scale), = terms.items()
    if len(monomial) != 1 or not isinstance(monomial[0], str) or scale < 1:
        return
    symbol = monomial[0]
    known = found.get(symbol)
    is_direct = (scale, offset) == (1, 0)
    if known is None or (is_direct and (known.scale, known.offset) != (1, 0)):
        sizes = range_of(symbol)
        found[symbol] = SymbolSpec(name_of(symbol), number, axis, sizes.low, sizes.high,
                                   sizes.multiple, scale, offset)


def _unsupported(port: Port, what: str) -> UnsupportedModelError:
    return UnsupportedModelError(f"input {port.name!r} has {what}", got=str(port.type),
                                 help='name the size, as in inputs={"x": ("batch", 3)}')
