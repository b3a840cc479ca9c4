"""Python functions that loop programs call.

The evaluator runs the function itself over arrays; code generation compiles it
(``weft.codegen.llvm.python_bodies.link``). A program calls it by ``symbol`` with ``call_extern``;
the operands are the addresses of the arrays, then the values that are known only at run time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from weft.ir.dtype import DType
from weft.support.dataclass import dataclass
from weft.tir.func import PrimFunc

# A compile-time constant, or the dtype of a run-time value.
Scalar: TypeAlias = "bool | int | float | DType"


@dataclass(frozen=True, slots=True)
class ArrayParam:
    """A C-contiguous array; a size is ``None`` if a run-time value gives it."""

    dtype: DType
    shape: tuple[int | None, ...]
    is_written: bool


@dataclass(frozen=True, slots=True)
class PythonFunction:
    """A function ``body(*arrays, *scalars) -> None`` under the name ``symbol``.

    Calls pass the run-time values in order: the sizes of the arrays that are ``None``, then the
    scalars that are dtypes. Functions with different machine code have different symbols.
    """

    symbol: str
    body: Callable[..., None]
    arrays: tuple[ArrayParam, ...]
    scalars: tuple[Scalar, ...]

    def run(self, memory: Sequence[np.ndarray], values: Sequence[Any]) -> None:
        """Call the Python function on views of ``memory``, read-only for input arrays."""
        rest = iter(values)
        views = [self._view(p, m, rest) for p, m in zip(self.arrays, memory, strict=True)]
        # As NumPy scalars, constants have the types in arithmetic that numba gives them.
        scalars = [next(rest) if isinstance(s, DType) else np.asarray(s)[()] for s in self.scalars]
        self.body(*views, *scalars)

    def _view(self, param: ArrayParam, memory: np.ndarray, rest: Iterator[Any]) -> np.ndarray:
        shape = tuple(int(next(rest)) if size is None else size for size in param.shape)
        # Buffers that are alive at different times may share one that is larger.
        view = memory[:math.prod(shape)].reshape(shape)
        view.flags.writeable = param.is_written
        return view


def functions_of(func: PrimFunc) -> Mapping[str, PythonFunction]:
    """The Python functions that a loop program calls, by symbol."""
    return func.attrs.get("python_functions", {})
