"""A TensorFlow Lite model as it was read: subgraphs of operators on numbered tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from weft.ir.dtype import DType
from weft.support.dataclass import dataclass
from weft.support.errors import InvalidModelError


@dataclass(frozen=True, eq=False)
class Quantization:
    """``real = scale * (integer - zero)``, with one scale or one for each index of ``axis``."""

    scale: np.ndarray
    zero: np.ndarray
    axis: int


@dataclass(frozen=True, eq=False)
class Tensor:
    """A tensor of a subgraph; sizes that the model leaves open are -1.

    ``dtype`` is ``None`` where weft has none. ``load`` reads the constant, of which other tensors
    have none.
    """

    name: str
    shape: tuple[int, ...]
    type: str
    dtype: DType | None
    quantization: Quantization | None
    is_variable: bool
    load: Callable[[], np.ndarray] | None


@dataclass(frozen=True, eq=False)
class Operator:
    """An operator; ``options`` are fields of its table of the schema by the names of getters.

    ``custom`` are the bytes with the options of a custom one.
    """

    name: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options: Mapping[str, Any] | None
    custom: bytes = b""
    is_custom: bool = False


@dataclass(frozen=True, eq=False)
class Subgraph:
    name: str
    tensors: tuple[Tensor, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    operators: tuple[Operator, ...]


@dataclass(frozen=True, eq=False)
class Signature:
    """The names of the inputs and outputs of a subgraph, by the index of the tensor."""

    name: str
    subgraph: int
    inputs: Mapping[int, str]
    outputs: Mapping[int, str]


@dataclass(frozen=True, eq=False)
class Model:
    source: str
    subgraphs: tuple[Subgraph, ...]
    signatures: tuple[Signature, ...] = ()

    def signature(self, name: str | None) -> Signature:
        """The signature ``name``; without a name the one of the first subgraph."""
        if name is None:
            first = next((s for s in self.signatures if s.subgraph == 0), None)
            return first or Signature("", 0, {}, {})
        for found in self.signatures:
            if found.name == name:
                return found
        raise InvalidModelError(
            f"the model has no signature {name!r}", where=self.source,
            expected=", ".join(s.name for s in self.signatures) or "a model without signatures")
