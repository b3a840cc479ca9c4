"""The names and types of the inputs and outputs of a subgraph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from weft.frontend.tflite.model import Subgraph
from weft.ir.shape import KnownDim, as_shape
from weft.ir.types import TensorType
from weft.support.errors import InvalidInputError, UnsupportedModelError
from weft.support.names import claim
from weft.support.suggestion import did_you_mean


def names_of(graph: Subgraph, tensors: Sequence[int], told: Mapping[int, str]) -> tuple[str, ...]:
    """The names of a signature, else those of the tensors; equal ones get a number."""
    taken: set[str] = set()
    found: list[str] = []
    for position, index in enumerate(tensors):
        name = told.get(index) or graph.tensors[index].name or f"tensor{position}"
        found.append(claim(name, taken))
    return tuple(found)


def input_types(graph: Subgraph, names: Sequence[str],
                shapes: Mapping[str, Sequence[object] | None], source: str) -> list[TensorType]:
    """The types of the inputs. A size that is open is ``batch`` along the first axis."""
    unknown = sorted(shapes.keys() - set(names))
    if unknown:
        raise InvalidInputError(f"unknown input {unknown[0]!r}", where=source,
                                expected=", ".join(map(repr, names)) or "no inputs",
                                help=did_you_mean(unknown[0], names))
    types = []
    for index, name in zip(graph.inputs, names, strict=True):
        tensor = graph.tensors[index]
        if tensor.dtype is None:
            raise UnsupportedModelError(f"the input {name!r} has a type that weft lacks",
                                        where=source, got=tensor.type.lower())
        types.append(TensorType(_sizes(name, tensor.shape, shapes.get(name), source),
                                tensor.dtype))
    return types


def _sizes(name: str, known: Sequence[int], given: Sequence[object] | None, source: str
           ) -> tuple[KnownDim, ...]:
    """The sizes of an input. Given ones replace all: the runtime resizes fixed ones, too."""
    if given is None:
        symbol = "".join(c if c.isalnum() else "_" for c in name)
        symbol = symbol if symbol[:1].isalpha() else f"x{symbol}"
        given = tuple(size if size >= 0 else "batch" if axis == 0 else f"{symbol}_dim{axis}"
                      for axis, size in enumerate(known))
    if len(given) != len(known):
        raise InvalidInputError(f"the shape of the input {name!r} has the wrong length",
                                where=source, expected=str(tuple(known)), got=str(tuple(given)))
    return tuple(as_shape((size,))[0] for size in given)  # type: ignore[arg-type]
