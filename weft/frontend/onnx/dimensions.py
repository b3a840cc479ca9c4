"""The dimensions of graph inputs: declared by the model, or given by the user.

Named dimensions become symbols, and unnamed ones symbols with fresh names. Inputs that share a
name share a size: what the user gives for it in one input (a number, another name, bounds) holds
in all inputs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any

from onnx import TypeProto, ValueInfoProto

from weft.frontend.onnx.size_limits import limited
from weft.ir.shape import AnyDim, Dim, Shape, SymDim, as_dim, substitute_dim
from weft.ir.size_syntax import is_size_name
from weft.ir.span import Span
from weft.ir.symbol import SizeRange, common_symbols, name_of
from weft.support.dataclass import dataclass
from weft.support.errors import InvalidInputError, InvalidModelError, TypeInferenceError


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
