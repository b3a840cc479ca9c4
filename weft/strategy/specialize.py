"""Specialises a primitive function to a part of the sizes of its symbols.

A symbol becomes a number or a symbol of a smaller range. A condition on a product, such as
``batch*seq`` in 1..8, hardly bounds either symbol. If the function treats the two axes as one, the
product becomes one symbol with the range of the condition, and the kernel takes its value as one
parameter. A matmul with an elementwise epilogue is such a function: tensors ``(batch, seq, K)``
have the same elements in the same order as ``(1, batch*seq, K)``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field

from weft.ir import Family, Op, OpPattern, TensorType, TupleType, Type, post_order
from weft.ir.expr import Call, Constant, Expr, Function, Var
from weft.ir.shape import Dim, KnownDim, Shape, SymDim
from weft.ir.substitution import has_symbols, substitute_symbols
from weft.ir.symbol import SizeRange, name_of, range_of, symbol_text
from weft.op.nn.dense import DenseAttrs
from weft.strategy.size_vars import symbols_of
from weft.strategy.variants import Variant, factors_of, intersection, product_of
from weft.support.dataclass import dataclass
from weft.support.names import unused


@dataclass(frozen=True, slots=True)
class Specialized:
    """A function for the sizes of a variant.

    ``sizes`` are the symbols that the function has instead of others, by name, as dimensions over
    the symbols of the general function.
    """

    function: Function
    sizes: Mapping[str, SymDim] = field(default_factory=dict)


def specialize(function: Function, variant: Variant) -> Specialized | None:
    """The function for the sizes that meet the conditions of a variant.

    ``None`` if it would be the same function, as for a product of axes that it treats differently.
    """
    values: dict[str, KnownDim] = {}
    products: list[tuple[tuple[str, ...], SizeRange]] = []
    for condition in variant:
        factors = factors_of(condition.size)
        if condition.sizes == SizeRange(1, 1):
            values.update(dict.fromkeys(factors, 1))
        elif len(factors) == 1:
            values[factors[0]] = _narrowed(values.get(factors[0], condition.size), condition.sizes)
        else:
            products.append((factors, condition.sizes))
    sizes: dict[str, SymDim] = {}
    for factors, wanted in products:
        left = tuple(f for f in factors if values.get(f) != 1)
        if len(left) == 1:
            values[left[0]] = _narrowed(values.get(left[0], SymDim.symbol(left[0])), wanted)
        elif left and not any(f in values for f in left) and are_one_axis(function, left):
            name = _fresh_name(left, function)
            sizes[name] = product_of(left)
            values.update(dict.fromkeys(left, 1))
            values[left[-1]] = _number_or_symbol(name, wanted)
    if not values:
        return None
    by_name = {name_of(symbol): value for symbol, value in values.items()}
    return Specialized(substitute_symbols(function, by_name), sizes)


def rounds_alike(function: Function) -> bool:
    """Whether the function gives the same results for the same data, whatever kernel runs it.

    A sum of floats depends on the order of its terms, which the size decides; what copies, compares
    or computes each element alone does not. Zeros of both signs count as one.
    """
    return all(isinstance(call.op, Op) and _has_no_order(call.op, call.checked_type)
               for call in post_order(function.body) if isinstance(call, Call))


def _has_no_order(op: Op, result: Type | None) -> bool:
    counts = isinstance(result, TensorType) and not result.dtype.is_float
    family = op.traits.family
    return (op.pattern <= OpPattern.INJECTIVE or op.traits.keeps_scale or family is Family.SORT
            or (family is Family.REDUCTION and counts))


def _narrowed(known: KnownDim, sizes: SizeRange) -> KnownDim:
    """The number or symbol for the sizes that are in a range and that earlier conditions allow."""
    if not isinstance(known, SymDim):
        return known
    symbol, = factors_of(known)
    return _number_or_symbol(name_of(symbol), intersection(range_of(symbol), sizes) or sizes)


def _number_or_symbol(name: str, sizes: SizeRange) -> KnownDim:
    return sizes.low if sizes.low == sizes.high else SymDim.symbol(symbol_text(name, sizes))


def _fresh_name(factors: tuple[str, ...], function: Function) -> str:
    return unused("_".join(map(name_of, factors)), set(map(name_of, symbols_of(function))))


def are_one_axis(function: Function, factors: tuple[str, ...]) -> bool:
    """Whether the function computes the same elements when the axes of these sizes are one axis.

    This holds if each tensor has one axis of the product size. It also holds for functions of
    elementwise operators and ``nn.dense`` whose tensors have the axes side by side in one order.
    """
    nodes = list(dict.fromkeys((*function.params, *post_order(function.body))))
    if any(isinstance(node, Call) and has_symbols(node.attrs) for node in nodes):
        return False
    found = [_runs(shape, factors) for node in nodes
             for shape in _shapes(node.checked_type or getattr(node, "annotation", None))]
    runs = {run for each in found for run in each or ()}
    if None in found or len(runs) != 1:
        return False
    return len(*runs) == 1 or all(map(_keeps_rows, nodes))


def _keeps_rows(node: Expr) -> bool:
    """Whether each row of the result depends on the same row of the arguments alone."""
    if isinstance(node, Var | Constant | Op):
        return True
    return isinstance(node, Call) and isinstance(node.op, Op) and (
        isinstance(node.attrs, DenseAttrs) or node.op.pattern <= OpPattern.BROADCAST)


def _runs(shape: Shape, factors: tuple[str, ...]) -> list[tuple[Dim, ...]] | None:
    """The groups of neighbouring axes that have the sizes ``factors``, in any order.

    ``None`` if one of the factors occurs elsewhere in the shape.
    """
    wanted = {SymDim.symbol(s) for s in factors}
    product = product_of(factors)
    found: list[tuple[Dim, ...]] = []
    at = 0
    while at < len(shape):
        dim = shape[at]
        group = shape[at : at + len(factors)]
        if set(group) == wanted:
            found.append(group)
            at += len(factors)
        elif dim == product:
            found.append((product,))
            at += 1
        elif isinstance(dim, SymDim) and dim.symbols() & set(factors):
            return None
        else:
            at += 1
    return found


def _shapes(type_: Type | None) -> Iterator[Shape]:
    if isinstance(type_, TensorType):
        yield type_.shape
    elif isinstance(type_, TupleType):
        for item in type_.fields:
            yield from _shapes(item)
