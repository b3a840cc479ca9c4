"""The dtypes of tensors: ``weft.float32``, printed like torch's, equal to NumPy's and to names."""

from __future__ import annotations

from typing import Any, ClassVar, TypeAlias

import numpy as np

from weft.ir.dtype import DType
from weft.support.errors import OptionError

COMPLEX = 3  # the highest category of dtypes
_CATEGORIES = {"complex": COMPLEX, "int": 1, "uint": 1}


class dtype:
    """An element type, one object each: ``weft.float32 == "float32"``."""

    __slots__ = ("code", "dtype", "ir", "is_floating_point", "itemsize", "name", "rank")

    _known: ClassVar[dict[DType, dtype]] = {}

    def __init__(self, ir: DType) -> None:
        self.ir = ir
        self.name = ir.name
        self.dtype = ir.numpy  # ``np.dtype(weft.float32)`` reads this attribute
        self.itemsize = ir.itemsize
        self.is_floating_point = ir.is_float
        # Categories of torch's promotion: bool below integers below floats below complex numbers.
        self.rank = _CATEGORIES.get(ir.code, 2 if ir.is_float else 0)

    @property
    def is_complex(self) -> bool:
        """Whether elements are pairs of floats."""
        return self.rank == COMPLEX

    @property
    def is_signed(self) -> bool:
        return self.rank > 1 or self.ir.code == "int"

    def to_real(self) -> dtype:
        """The dtype of the parts of complex numbers; another dtype itself."""
        return of_ir(DType("float", self.ir.bits // 2)) if self.is_complex else self

    def to_complex(self) -> dtype:
        """The dtype of complex numbers with parts of this one, of at least 32 bits."""
        if self.is_complex:
            return self
        if not self.is_floating_point:
            raise OptionError("complex numbers have floating-point parts", got=repr(self))
        return of_ir(DType("complex", 2 * max(32, self.ir.bits)))

    @property
    def numpy(self) -> np.dtype:
        return self.dtype

    def __repr__(self) -> str:
        return f"weft.{self.name}"

    __str__ = __repr__

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if isinstance(other, dtype):
            return False
        if isinstance(other, str):
            return other in (self.name, f"weft.{self.name}", f"torch.{self.name}")
        if isinstance(other, (DType, np.dtype, type)):
            try:
                return as_dtype(other) is self
            except OptionError:
                return False
        return NotImplemented

    def __hash__(self) -> int:
        return hash(self.name)

    def __reduce__(self) -> tuple[Any, ...]:
        return as_dtype, (self.name,)


DTypeLike: TypeAlias = "dtype | DType | str | np.dtype | type | None"

_PYTHON = {float: "float32", int: "int64", bool: "bool", complex: "complex64"}


def of_ir(ir: DType) -> dtype:
    """The dtype object of a dtype of the IR."""
    found = dtype._known.get(ir)  # noqa: SLF001 - the table of this module
    if found is None:
        found = dtype._known.setdefault(ir, dtype(ir))  # noqa: SLF001
    return found


def as_dtype(value: Any) -> dtype:
    """The dtype that a dtype object, a NumPy or torch dtype, a Python type or a name means.

    ``float`` is float32, ``complex`` complex64, ``int`` int64 and ``bool`` bool, as in torch.
    Raises ``OptionError``.
    """
    if type(value) is dtype:
        return value
    if isinstance(value, np.dtype):
        found = _NUMPY.get(value)
        if found is None:
            found = _NUMPY[value] = as_dtype(value.name)
        return found
    if isinstance(value, str):
        name = value.removeprefix("torch.").removeprefix("weft.")
        name = _ALIASES.get(name, name)
        return of_ir(_COMPLEX.get(name) or DType.parse(name))
    if isinstance(value, type) and value in _PYTHON:
        return as_dtype(_PYTHON[value])
    if type(value).__module__ == "torch":
        return as_dtype(str(value))
    try:
        if isinstance(value, type) and issubclass(value, np.complexfloating):
            return as_dtype(np.dtype(value).name)
        return of_ir(DType.of(value))
    except (TypeError, OptionError):
        raise OptionError("not a dtype", got=repr(value),
                          expected='weft.float32, np.float32 or "float32"') from None


_NUMPY: dict[np.dtype, dtype] = {}  # the name of a NumPy dtype takes a microsecond to make
_ALIASES = {"float": "float32", "double": "float64", "half": "float16", "int": "int32",
            "long": "int64", "short": "int16", "cfloat": "complex64", "cdouble": "complex128"}
# The IR has no such type: programs take floats, one more axis for the two parts.
_COMPLEX = {f"complex{bits}": DType("complex", bits) for bits in (64, 128)}

float16, float32, float64 = map(as_dtype, ("float16", "float32", "float64"))
bfloat16 = as_dtype("bfloat16")
uint8, uint16, uint32, uint64 = map(as_dtype, ("uint8", "uint16", "uint32", "uint64"))
int8, int16, int32, int64 = map(as_dtype, ("int8", "int16", "int32", "int64"))
bool_ = as_dtype("bool")
complex64, complex128 = as_dtype("complex64"), as_dtype("complex128")
cfloat, cdouble = complex64, complex128
double, half, long, short = float64, float16, int64, int16


class _Default:
    """The dtype of floating-point numbers without one of their own."""

    chosen: ClassVar[dtype] = float32


def get_default_dtype() -> dtype:
    """The dtype of tensors made from Python floats, float32 at first."""
    return _Default.chosen


def set_default_dtype(d: Any) -> None:
    """Make ``d``, a floating-point dtype, the dtype of tensors made from Python floats."""
    chosen = as_dtype(d)
    if not chosen.is_floating_point:
        raise OptionError("the default dtype is a floating-point dtype", got=repr(chosen))
    _Default.chosen = chosen
