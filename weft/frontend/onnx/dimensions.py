"""The dimensions of graph inputs: declared by the model, or given by the user.

Named dimensions become symbols, unnamed ones symbols with fresh names. Inputs that share a name
share a size: a size that the user gives for one input (a number, another name, bounds) holds for
all inputs.

Tables and slices of a model limit sizes. A model with 512 positions slices its table to the input
length n, which gives min(512, n) rows, and adds them to n rows: it runs for n <= 512 alone.
Differences of neighbours give max(0, n - 1) elements, so n is at least 1. If a node cannot be
converted and such sizes are among its inputs, the import starts again with the limited range.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

from weft.frontend.onnx.protos import TypeProto, ValueInfoProto
from weft.frontend.onnx.shape_value import ShapeValue
from weft.ir import Span, TensorType
from weft.ir.shape import AnyDim, Dim, ExtremeAtom, KnownDim, Shape, SymDim, as_dim, substitute_dim
from weft.ir.size_syntax import is_size_name
from weft.ir.symbol import SizeRange, common_range, common_symbols, name_of, range_of, symbol_text
from weft.support.dataclass import dataclass
from weft.support.errors import InvalidInputError, InvalidModelError, TypeInferenceError, WeftError

_MAX_ELEMENTS = 64


class SizeLimitNeeded(Exception):  # noqa: N818 - the import goes on
    """A node failed with ``error``; it may succeed if symbols have these ranges, by name.

    ``sums`` replace symbols, by name.
    """

    def __init__(self, error: WeftError, limits: Mapping[str, SizeRange],
                 sums: Mapping[str, Dim]) -> None:
        super().__init__(str(error))
        self.error = error
        self.limits = limits
        self.sums = sums


def limits_in(values: Iterable[Any]) -> dict[str, SizeRange]:
    """Ranges, by the symbol's name, at which the extremes in the sizes of ``values`` may vanish.

    Sizes of at least 1 come first, where min(1, symbol) or a maximum occurs: they exclude no size
    that matters. Otherwise, min(bound, symbol) is the symbol up to the bound.
    """
    extremes = [atom for value in values for dim in _dims_of(value) for atom in _extremes(dim)]
    lower = {name_of(symbol): SizeRange(1) for atom in extremes
             if atom.is_max or 1 in atom.operands for operand in atom.operands
             if isinstance(operand, SymDim) for symbol in operand.symbols()
             if range_of(symbol).low == 0}
    if lower:
        return lower
    limits: dict[str, SizeRange] = {}
    for bound, symbol in filter(None, map(_upper_bound, extremes)):
        name = name_of(symbol)
        known = limits.get(name)
        if known is None or known.high is None or bound < known.high:
            limits[name] = SizeRange(0, bound)
    return limits


def limited(symbol: str, limit: SizeRange) -> KnownDim:
    """``symbol`` with its range intersected with ``limit``; a number if one size remains.

    If the ranges do not intersect, the symbol is returned unchanged, and each call compares its
    sizes with the bounds and reports the contradiction.
    """
    try:
        sizes = common_range(name_of(symbol), range_of(symbol), limit)
    except TypeInferenceError:
        return SymDim.symbol(symbol)
    if sizes.low == sizes.high:
        return sizes.low
    return SymDim.symbol(symbol_text(name_of(symbol), sizes))


def _dims_of(value: Any) -> Iterator[Dim]:
    if isinstance(value, ShapeValue):
        if value.dims.size <= _MAX_ELEMENTS:
            yield from (d for d in value.dims.reshape(-1).tolist() if isinstance(d, SymDim))
    else:
        type_ = getattr(value, "checked_type", None)
        yield from type_.shape if isinstance(type_, TensorType) else ()


def _extremes(dim: Dim) -> Iterator[ExtremeAtom]:
    """The max and min terms of a dimension, those inside others included."""
    for monomial, _ in dim.terms if isinstance(dim, SymDim) else ():
        for atom in monomial:
            if isinstance(atom, ExtremeAtom):
                yield atom
                for operand in atom.operands:
                    yield from _extremes(operand)


def _upper_bound(atom: ExtremeAtom) -> tuple[int, str] | None:
    """The bound and the symbol of min(bound, symbol)."""
    if atom.is_max or len(atom.operands) != 2:
        return None
    bounds = [d for d in atom.operands if isinstance(d, int)]
    symbols = [t for d in atom.operands if isinstance(d, SymDim)
               for t in d.symbols() if d == SymDim.symbol(t)]
    return (bounds[0], symbols[0]) if bounds and symbols else None


@dataclass(frozen=True)
class Dimensions:
    """The shapes of graph inputs.

    ``names`` maps the text of a declared dimension to its symbol; ``given`` maps symbols that
    the user fixes, renames or bounds, by name, to dimensions. ``limits`` are ranges by name
    that the graph implies (``size_limits``).
    """

    source: str
    names: Mapping[str, Dim]
    given: Mapping[str, Dim]
    taken: set[str]
    limits: Mapping[str, SizeRange] = field(default_factory=dict)

    @staticmethod
    def of(source: str, inputs: Sequence[ValueInfoProto], overrides: Mapping[str, Any],
           limits: Mapping[str, SizeRange], sums: Mapping[str, Dim] | None = None) -> Dimensions:
        """Read the declared names, and the sizes that ``overrides`` and ``sums`` give for them.

        Raises ``InvalidInputError`` for overrides that contradict each other.
        """
        tensors = [(v.name, v.type.tensor_type) for v in inputs
                   if v.type.WhichOneof("value") == "tensor_type"]
        texts = [d.dim_param for _, t in tensors for d in t.shape.dim if d.dim_param]
        taken: set[str] = set()
        names = _symbols_of(texts, taken)
        given: dict[str, Dim] = {}
        shapes: list[Shape] = []
        for name, tensor in tensors:
            shape = overrides.get(name)
            if shape is None or len(tuple(shape)) != len(tensor.shape.dim):
                continue
            where = Span(source, node=name)
            sizes = tuple(_size(size, where) for size in shape)
            shapes.append(sizes)
            for declared, size in zip(tensor.shape.dim, sizes, strict=True):
                _give(given, names.get(declared.dim_param), size, where)
        try:
            common = common_symbols(shapes)
        except TypeInferenceError as error:
            raise InvalidInputError(error.what, where=source, expected=error.expected,
                                    got=error.got) from None
        taken |= common.keys()
        given = {n: substitute_dim(size, common) for n, size in given.items()}
        given = {**common, **given}
        # A sum of sizes that the user gives is a sum of these.
        added = {n: substitute_dim(total, given) for n, total in (sums or {}).items()}
        return Dimensions(source, names, {**added, **given}, taken, limits)

    def declared(self, name: str, kind: TypeProto) -> Shape:
        """The declared shape of input ``name``, a tensor."""
        where = Span(self.source, node=name)
        return self._limited(self._declared(name, axis, dim, where)
                             for axis, dim in enumerate(kind.tensor_type.shape.dim))

    def of_result(self, kind: TypeProto) -> tuple[Dim | None, ...] | None:
        """The declared sizes of a tensor that the graph computes.

        ``None`` for names that no input has, and for a tensor without a declared shape.
        """
        if not kind.tensor_type.HasField("shape"):
            return None
        sizes: list[Dim | None] = []
        for dim in kind.tensor_type.shape.dim:
            known = self.names.get(dim.dim_param)
            sizes.append(dim.dim_value if dim.WhichOneof("value") == "dim_value" else
                         None if known is None else
                         self._limited([substitute_dim(known, self.given)])[0])
        return tuple(sizes)

    def override(self, name: str, shape: Iterable[object]) -> Shape:
        """The shape that the user gives for input ``name``."""
        where = Span(self.source, node=name)
        sizes = (_size(size, where) for size in shape)
        return self._limited(self._fresh(name, axis) if isinstance(size, AnyDim)
                             else substitute_dim(size, self.given)
                             for axis, size in enumerate(sizes))

    def _limited(self, dims: Iterable[Dim]) -> Shape:
        shape = tuple(dims)
        texts = {t for d in shape if isinstance(d, SymDim) for t in d.symbols()}
        symbols = {t: limited(t, self.limits[name_of(t)]) for t in texts
                   if name_of(t) in self.limits}
        return tuple(substitute_dim(d, symbols) for d in shape)

    def _declared(self, name: str, axis: int, dim: Any, where: Span) -> Dim:
        stated = dim.WhichOneof("value")
        if stated == "dim_param" and dim.dim_param:
            return substitute_dim(self.names[dim.dim_param], self.given)
        if stated != "dim_value":
            return self._fresh(name, axis)
        if dim.dim_value < 0:
            raise InvalidModelError(
                f"dimension {axis} of graph input {name!r} is negative",
                where=where,
                got=str(dim.dim_value),
                help=f'give the shape: inputs={{"{name}": (1, 3, 224, 224)}}',
            )
        return int(dim.dim_value)

    def _fresh(self, name: str, axis: int) -> Dim:
        return SymDim.symbol(identifier(f"{name}_dim{axis}", self.taken))


def _symbols_of(texts: Sequence[str], taken: set[str]) -> dict[str, Dim]:
    """A symbol for each text; an expression if all its names are texts of their own.

    Exporters declare ``past_sequence_length + sequence_length``.
    """
    names: dict[str, Dim] = {t: SymDim.symbol(t) for t in texts
                            if is_size_name(t)}
    taken |= names.keys()
    for text in texts:
        if text in names:
            continue
        try:
            dim = as_dim(text)
        except TypeInferenceError:
            dim = 0
        if not isinstance(dim, SymDim) or not all(name_of(s) in names for s in dim.symbols()):
            dim = SymDim.symbol(identifier(text, taken))
        names[text] = dim
    return names


def _size(size: object, where: Span) -> Dim:
    try:
        return as_dim(size)
    except TypeInferenceError as error:
        raise InvalidInputError(error.what, where=where, expected=error.expected,
                                got=error.got) from None


def _give(given: dict[str, Dim], declared: Dim | None, size: Dim, where: Span) -> None:
    """Note that the user gives ``size`` for a declared symbol."""
    if not isinstance(declared, SymDim) or isinstance(size, AnyDim):
        return
    ((monomial, coefficient), *rest) = declared.terms
    if rest or coefficient != 1 or len(monomial) != 1 or not isinstance(monomial[0], str):
        return
    name = monomial[0]
    before = given.setdefault(name, size)
    if isinstance(before, int) and isinstance(size, int) and before != size:
        raise InvalidInputError(f"the sizes given for {name!r} contradict each other", where=where,
                                expected=str(before), got=str(size))


def identifier(name: str, taken: set[str]) -> str:
    """Return a unique identifier for ``name``: ``gpu_0/data_0`` -> ``gpu_0_data_0``."""
    base = re.sub(r"\W", "_", name, flags=re.ASCII)
    base = base if is_size_name(base) else f"x_{base}"
    result, count = base, 1
    while result in taken:
        result, count = f"{base}_{count}", count + 1
    taken.add(result)
    return result
