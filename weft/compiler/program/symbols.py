"""The symbols of a program: their ranges, and the inputs that determine them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from weft.compiler.program.program import Port, Program
from weft.ir import AnyDim, Function, SymDim, TensorType, TupleType, Type, bounds_of, post_order
from weft.ir.symbol import name_of, range_of, size_of_dim
from weft.runtime.manifest import SymbolSpec
from weft.runtime.sizes import Size, is_entry_name, names_in
from weft.support.errors import UnsupportedModelError


def symbol_specs(inputs: Sequence[Port]) -> tuple[SymbolSpec, ...]:
    """The symbols in the types of the inputs, in order of first appearance.

    An axis of size ``n`` determines ``n``; without one, an axis of size ``a*n + b`` does. Raises
    ``UnsupportedModelError`` for a symbol that no input determines, for an unknown size, and for
    names that ``Manifest.sizes`` gives to its entries.
    """
    objection = undetermined_size(inputs)
    if objection is not None:
        raise objection
    return tuple(filter(None, _determined(inputs).values()))


def undetermined_size(inputs: Sequence[Port]) -> UnsupportedModelError | None:
    """The first size of the inputs that ``symbol_specs`` refuses; ``None`` if it takes all."""
    for port in inputs:
        if any(isinstance(dim, AnyDim) for dim in port.type.shape):
            return _unsupported(port, "a size without a name")
    for symbol, spec in _determined(inputs).items():
        if spec is None:
            return _unsupported(_port_of(symbol, inputs),
                                f"the size {name_of(symbol)}, which no axis determines")
        if is_entry_name(name_of(symbol)):
            return _unsupported(_port_of(symbol, inputs),
                                f"the size {name_of(symbol)}, a name that weft reserves")
    return None


def _determined(inputs: Sequence[Port]) -> dict[str, SymbolSpec | None]:
    """The symbols of the inputs, and how an axis determines each; ``None``: none does."""
    found: dict[str, SymbolSpec] = {}
    wanted: dict[str, None] = {}
    for number, port in enumerate(inputs):
        for axis, dim in enumerate(port.type.shape):
            if isinstance(dim, SymDim):
                wanted.update(dict.fromkeys(sorted(dim.symbols())))
                _determine(found, number, axis, dim)
    return {symbol: found.get(symbol) for symbol in wanted}


def sizes_to_check(program: Program) -> tuple[Size, ...]:
    """The sizes of tensors that are negative where an input is too small: ``n - 4`` of a window.

    Those of steps in branches are left out, as the branch may test the size. Conditions of the
    program follow. Raises ``UnsupportedModelError`` for one that data determines.
    """
    counted = {name_of(count.symbol) for count in program.counts}
    numbers = dict.fromkeys(step.kernel for step in program.steps if not step.path)
    dims = {dim: None for number in numbers for dim in _dims(program.kernels[number].function)}
    sizes = tuple(dict.fromkeys(size_of_dim(dim) for dim in dims
                                if (low := bounds_of(dim)[0]) is None or low < 0))
    for size in sizes:
        if names_in(size) & counted:
            raise UnsupportedModelError("a size that data may make negative", got=size)
    return (*sizes, *(size for size in program.conditions if size not in sizes))


def _dims(function: Function) -> Iterator[SymDim]:
    """The symbolic sizes of all tensors in a function."""
    for node in post_order(function.body):
        for tensor in _tensors(node.checked_type):
            yield from (dim for dim in tensor.shape if isinstance(dim, SymDim))


def _tensors(type_: Type | None) -> Iterator[TensorType]:
    if isinstance(type_, TensorType):
        yield type_
    elif isinstance(type_, TupleType):
        for field in type_.fields:
            yield from _tensors(field)


def _port_of(symbol: str, inputs: Sequence[Port]) -> Port:
    """The first input with a size over the symbol."""
    return next(port for port in inputs if any(
        isinstance(dim, SymDim) and symbol in dim.symbols() for dim in port.type.shape))


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
