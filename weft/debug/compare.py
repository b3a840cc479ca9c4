"""Layer by layer: the tensors of a model in two evaluations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from weft.debug.tensors import ModelTensors, Values
from weft.frontend.source import ModelLike
from weft.ir.span import Span
from weft.support.dataclass import dataclass
from weft.support.markup import html_table

# Relative to the largest element of a tensor.
DEFAULT_BOUND = 1e-3


@dataclass(frozen=True, slots=True)
class TensorDifference:
    """How a tensor differs: ``absolute`` is the largest difference of an element, ``relative`` the
    same over the largest element expected. ``bad`` counts elements that are NaN or infinite here
    and finite there, or the other way round.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    absolute: float
    relative: float
    bad: int
    not_finite: int
    where: Span | None = None

    def exceeds(self, bound: float) -> bool:
        """Whether the tensor is wrong."""
        return self.bad > 0 or not self.relative <= bound


@dataclass(frozen=True, slots=True)
class Comparison:
    """The differences of all tensors, in the order of execution."""

    tensors: tuple[TensorDifference, ...]
    bound: float

    @property
    def first_wrong(self) -> TensorDifference | None:
        """The first tensor whose error exceeds the bound."""
        return next((t for t in self.tensors if t.exceeds(self.bound)), None)

    @property
    def first_not_finite(self) -> TensorDifference | None:
        """The first tensor with a NaN or an infinity."""
        return next((t for t in self.tensors if t.not_finite), None)

    def rows(self) -> list[tuple[str, str, str, str, str, str]]:
        """Name, dtype, shape, absolute and relative error, and a mark where it is wrong."""
        return [(t.name, t.dtype, "x".join(map(str, t.shape)) or "scalar", f"{t.absolute:.3g}",
                 f"{t.relative:.3g}", _mark(t, self.bound)) for t in self.tensors]

    def _repr_html_(self) -> str:
        return html_table(COLUMNS, self.rows(), numeric=(3, 4))


COLUMNS = ("tensor", "dtype", "shape", "absolute", "relative", "")


def _mark(tensor: TensorDifference, bound: float) -> str:
    if tensor.bad:
        return f"{tensor.bad} NaN or infinite"
    if tensor.exceeds(bound):
        return "wrong"
    return f"{tensor.not_finite} NaN or infinite in both" if tensor.not_finite else ""


def compare(model: ModelLike, inputs: Mapping[str, Any] | Sequence[Any], *,
            against: str = "reference", by: str = "weft", bound: float = DEFAULT_BOUND,
            example_inputs: Any = None) -> Comparison:
    """Every inner tensor of ``model`` in two evaluations (``ModelTensors.values``).

    Computing all tensors changes what fuses: an error of a fused kernel alone shows in
    ``first_wrong_kernel``. Raises what importing, compiling and running the model raise.
    """
    tensors = ModelTensors(model, inputs, example_inputs=example_inputs)
    return compared(tensors, tensors.values(by), tensors.values(against), bound)


def compared(tensors: ModelTensors, got: Values, expected: Values, bound: float) -> Comparison:
    """The differences of the tensors that both have."""
    return Comparison(tuple(difference(name, got[name], expected[name], tensors.span(name))
                            for name in tensors.names if name in got and name in expected), bound)


def difference(name: str, got: np.ndarray, expected: np.ndarray, where: Span | None = None
               ) -> TensorDifference:
    """How a tensor differs; one of another shape differs everywhere."""
    if got.shape != expected.shape:
        return TensorDifference(name, str(got.dtype), got.shape, np.inf, np.inf, got.size, 0, where)
    is_complex = got.dtype.kind == "c"
    a, b = (v.astype(np.complex128 if is_complex else np.float64) for v in (got, expected))
    finite = np.isfinite(a) & np.isfinite(b)
    same = finite | (np.isnan(a) & np.isnan(b)) | (a == b)
    apart = np.abs(np.where(finite, a, 0) - np.where(finite, b, 0))
    absolute = float(apart.max(initial=0.0))
    size = float(np.abs(np.where(finite, b, 0)).max(initial=0.0))
    relative = 0.0 if absolute == 0 else absolute / size if size else np.inf
    return TensorDifference(name, str(got.dtype), got.shape, absolute, relative,
                            int((~same).sum()), int((~np.isfinite(a)).sum()), where)
