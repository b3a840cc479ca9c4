"""Tensors, iteration variables and the operations that define tensors.

The semantics are those of TVM's tensor expressions: a tensor is a function from indices to an
expression. Loops, memory and execution order come from a schedule.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, TypeAlias

from weft import tir
from weft.ir.dtype import DType, int64
from weft.support.dataclass import dataclass
from weft.support.errors import LoweringError
from weft.te.role import StageRole

if TYPE_CHECKING:
    from weft.tir.foreign_kernel import ForeignKernel
    from weft.tir.python_function import PythonFunction

Index: TypeAlias = "tir.ExprLike | IterVar"
DATA = "data"
REDUCE = "reduce"


@dataclass(frozen=True, slots=True, eq=False)
class IterVar:
    """An axis of a computation: ``var`` runs over ``[min, min + extent)``.

    ``kind`` is ``data`` (an axis of the result) or ``reduce``. Arithmetic on an axis is
    arithmetic on its variable.
    """

    var: tir.Var
    min: tir.PrimExpr
    extent: tir.PrimExpr
    kind: str = DATA

    @property
    def name(self) -> str:
        return self.var.name

    def __repr__(self) -> str:
        return f"IterVar({self.name}, extent={self.extent}, {self.kind})"

    def __add__(self, other: Index) -> tir.PrimExpr:
        return self.var + as_index(other)

    def __radd__(self, other: Index) -> tir.PrimExpr:
        return as_index(other) + self.var

    def __sub__(self, other: Index) -> tir.PrimExpr:
        return self.var - as_index(other)

    def __rsub__(self, other: Index) -> tir.PrimExpr:
        return as_index(other) - self.var

    def __mul__(self, other: Index) -> tir.PrimExpr:
        return self.var * as_index(other)

    def __rmul__(self, other: Index) -> tir.PrimExpr:
        return as_index(other) * self.var

    def __floordiv__(self, other: Index) -> tir.PrimExpr:
        return self.var // as_index(other)

    def __mod__(self, other: Index) -> tir.PrimExpr:
        return self.var % as_index(other)

    def __neg__(self) -> tir.PrimExpr:
        return -self.var

    def __lt__(self, other: Index) -> tir.PrimExpr:
        return self.var < as_index(other)

    def __le__(self, other: Index) -> tir.PrimExpr:
        return self.var <= as_index(other)

    def __gt__(self, other: Index) -> tir.PrimExpr:
        return self.var > as_index(other)

    def __ge__(self, other: Index) -> tir.PrimExpr:
        return self.var >= as_index(other)

    def equal(self, other: Index) -> tir.PrimExpr:
        """The expression ``self == other`` (Python's ``==`` is identity)."""
        return self.var.equal(as_index(other))

    def not_equal(self, other: Index) -> tir.PrimExpr:
        return self.var.not_equal(as_index(other))

    def astype(self, dtype: DType | str) -> tir.PrimExpr:
        return self.var.astype(dtype)


def as_index(value: Index) -> tir.PrimExpr:
    """An index expression (int64) from a number, an expression or an axis."""
    if isinstance(value, IterVar):
        return value.var
    e = tir.as_prim(value)
    if e.dtype is int64:
        return e
    if not e.dtype.is_int:
        raise LoweringError("an index must be an integer", expected="int64", got=e.dtype)
    return tir.cast(e, int64)


def as_shape(shape: Sequence[Index] | Index) -> tuple[tir.PrimExpr, ...]:
    """A shape as int64 expressions; a single size makes a 1-D shape."""
    sizes = shape if isinstance(shape, Sequence) else (shape,)
    return tuple(as_index(s) for s in sizes)


@dataclass(frozen=True, slots=True, eq=False)
class Tensor:
    """Output ``value_index`` of ``op``; indexing it gives an expression that reads an element."""

    op: Operation
    value_index: int
    shape: tuple[tir.PrimExpr, ...]
    dtype: DType

    @property
    def name(self) -> str:
        base = self.op.name
        return base if self.op.num_outputs == 1 else f"{base}.v{self.value_index}"

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def static_shape(self) -> tuple[int, ...] | None:
        """The shape as integers; ``None`` if a size is symbolic."""
        sizes = tuple(s.value for s in self.shape if isinstance(s, tir.IntImm))
        return sizes if len(sizes) == self.ndim else None

    def __getitem__(self, indices: Index | tuple[Index, ...]) -> tir.ProducerLoad:
        """The element at ``indices``, one per axis; raises ``LoweringError`` for another number."""
        given = indices if isinstance(indices, tuple) else (indices,)
        if len(given) != self.ndim:
            raise LoweringError(
                f"tensor {self.name} has {self.ndim} axes and was indexed with {len(given)}",
                expected=f"{self.ndim} indices",
                got=f"{len(given)} indices",
            )
        return tir.ProducerLoad(self, tuple(as_index(i) for i in given))

    def __call__(self, *indices: Index) -> tir.ProducerLoad:
        return self[indices]

    def __iter__(self) -> Any:
        raise TypeError("a tensor expression cannot be iterated; index it inside te.compute")

    def __repr__(self) -> str:
        return f"Tensor({self.name}, shape={self.shape}, {self.dtype})"


@dataclass(slots=True, eq=False)
class Operation:
    """Base class of the definitions of tensors. ``outputs`` are the tensors, created once."""

    name: str
    outputs: tuple[Tensor, ...] = field(init=False, repr=False)

    def _define(self, *types: tuple[tuple[tir.PrimExpr, ...], DType]) -> None:
        self.outputs = tuple(Tensor(self, i, s, d) for i, (s, d) in enumerate(types))

    @property
    def num_outputs(self) -> int:
        return len(self.outputs)

    def output(self, index: int) -> Tensor:
        return self.outputs[index]


@dataclass(slots=True, eq=False)
class PlaceholderOp(Operation):
    """An input tensor, whose memory the caller provides."""

    shape: tuple[tir.PrimExpr, ...]
    dtype: DType

    def __post_init__(self) -> None:
        self._define((self.shape, self.dtype))


@dataclass(slots=True, eq=False)
class ComputeOp(Operation):
    """Tensors of one shape defined element by element.

    ``body`` holds one expression per output over the variables of ``axis`` and, if it is a
    ``Reduce``, of ``reduce_axis``. Schedules and sharding read ``role``.
    """

    axis: tuple[IterVar, ...]
    reduce_axis: tuple[IterVar, ...]
    body: tuple[tir.PrimExpr, ...]
    role: StageRole | None = None
    # The tensors that ``body`` reads, once ``walk.input_tensors`` has found them.
    inputs: tuple[Tensor, ...] | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        shape = tuple(a.extent for a in self.axis)
        self._define(*((shape, e.dtype) for e in self.body))


ExternBody: TypeAlias = "Callable[[tuple[tir.Buffer, ...], tuple[tir.Buffer, ...]], tir.Stmt]"


@dataclass(slots=True, eq=False)
class ExternOp(Operation):
    """Tensors written by a tir statement that ``build(input_buffers, output_buffers)`` returns.

    ``functions`` are the Python functions that the statement calls, ``kernels`` the kernels of
    other compilers that it launches; ``flops`` is the number of arithmetic operations that profiles
    report.
    """

    inputs: tuple[Tensor, ...]
    types: tuple[tuple[tuple[tir.PrimExpr, ...], DType], ...]
    build: ExternBody
    functions: tuple[PythonFunction, ...] = ()
    flops: int = 0
    kernels: tuple[ForeignKernel, ...] = ()

    def __post_init__(self) -> None:
        self._define(*self.types)


@dataclass(slots=True, eq=False)
class ScanOp(Operation):
    """A recurrence along the first axis of its tensors (``te.scan``).

    ``axis`` is the time axis of the entries that ``update`` computes. ``init``, ``update`` and
    the ``states`` placeholders all alias the buffers of the results.
    """

    axis: IterVar
    init: tuple[Tensor, ...]
    update: tuple[Tensor, ...]
    states: tuple[Tensor, ...]

    def __post_init__(self) -> None:
        self._define(*((t.shape, t.dtype) for t in self.states))

    def output_index_of(self, tensor: Tensor) -> int | None:
        """The index of the result whose buffer ``tensor`` aliases."""
        for number, same in enumerate(zip(self.init, self.update, self.states, strict=True)):
            if tensor in same:
                return number
        return None


def data_axis(name: str, extent: tir.PrimExpr) -> IterVar:
    """An axis of the result over ``[0, extent)``."""
    return IterVar(tir.Var(name), tir.const(0), extent, DATA)


def reduction_axis(name: str, extent: tir.PrimExpr, low: tir.PrimExpr | None = None) -> IterVar:
    """A reduction axis over ``[low, low + extent)``; ``low`` is 0 by default."""
    return IterVar(tir.Var(name), tir.const(0) if low is None else low, extent, REDUCE)
