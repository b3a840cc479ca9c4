"""Complex numbers: tensors from parts, their parts as views, angles and conjugates.

``weft.eager.complex_pairs`` says what a complex tensor is in memory.
"""

from __future__ import annotations

import builtins
import math
from typing import TYPE_CHECKING, Any

from weft.eager.cell import Cell
from weft.eager.complex_numbers import joined
from weft.eager.dtypes import bool_, get_default_dtype
from weft.eager.emitter import TENSORS
from weft.eager.functions.elementwise import cast, isnan, lt, mul, sign, where
from weft.eager.functions.indexing import getitem
from weft.eager.functions.shape import viewed
from weft.eager.node import Node
from weft.eager.record import as_node, record, wrap
from weft.eager.signature import checked, public, row
from weft.eager.views import Conjugated, Joined, Parts
from weft.op.composites import complex_arithmetic as arithmetic
from weft.support.errors import InvalidInputError

if TYPE_CHECKING:
    from weft.eager.tensor import Tensor


def _tensor(x: Any) -> Any:
    return x if isinstance(x, Cell) else wrap(as_node(x))


def _is_complex(x: Any) -> builtins.bool:
    return as_node(x).sig.out.dtype.is_complex


def _parts_to_join(what: str, first: Any, second: Any) -> tuple[Any, Any]:
    """Two tensors of one float dtype, broadcast together."""
    one, two = as_node(first).sig.out.dtype, as_node(second).sig.out.dtype
    if one is not two or one.name not in ("float32", "float64"):
        raise InvalidInputError(f"{what} takes two tensors of float32 or two of float64",
                                got=f"{one} and {two}")
    x, y = _tensor(first), _tensor(second)
    if tuple(x.shape) != tuple(y.shape):
        zero = mul(mul(x.detach(), 0), mul(y.detach(), 0)).shape
        x, y = x.expand(zero), y.expand(zero)
    return x, y


@public
def complex(real: Any, imag: Any) -> Tensor:
    """Complex numbers of two parts, tensors of one floating-point dtype."""
    return wrap(joined(*_parts_to_join("complex", real, imag)))


@public
def polar(abs: Any, angle: Any) -> Tensor:
    """Complex numbers of lengths and angles."""
    return wrap(joined(*arithmetic.polar(TENSORS, *_parts_to_join("polar", abs, angle))))


@checked
def view_as_real(input: Any) -> Tensor:
    """A view of complex numbers with a new last axis for the two parts."""
    if not _is_complex(input):
        raise InvalidInputError("view_as_real takes complex tensors",
                                got=repr(as_node(input).sig.out.dtype))
    return viewed(input, Parts())


@checked
def view_as_complex(input: Any) -> Tensor:
    """A view of floats, whose last axis of size 2 holds the two parts, as complex numbers."""
    return viewed(input, Joined())


def _part(index: int, x: Any) -> Any:
    return getitem(view_as_real(x), (..., index))


def _real(x: Any) -> Any:
    return _part(0, x) if _is_complex(x) else _tensor(x)


def _imag(x: Any) -> Any:
    if not _is_complex(x):
        raise InvalidInputError("imag of a real tensor", got=repr(as_node(x).sig.out.dtype),
                                help="its imaginary parts are zeros")
    return _part(1, x)


def _conj(x: Any) -> Any:
    return viewed(x, Conjugated()) if _is_complex(x) else _tensor(x)


def _conj_physical(x: Any) -> Any:
    return wrap(record("copy", (as_node(_conj(x)),), {}))


def _angle(x: Any) -> Any:
    if _is_complex(x):
        return arithmetic.angle(TENSORS, (_real(x), _imag(x)))
    node: Node = as_node(x)
    x = wrap(node if node.sig.out.dtype.rank > 1 else cast(node, get_default_dtype()))
    return where(isnan(x), x, where(lt(x, 0), math.pi, 0.0))


def _sgn(x: Any) -> Any:
    return wrap(record("sign", (as_node(x),), {})) if _is_complex(x) else sign(x)


def _isreal(x: Any) -> Any:
    if _is_complex(x):
        return _imag(x) == 0
    return wrap(record("ones", (), {"shape": as_node(x).sig.out.shape, "dtype": bool_.ir}))


real = row("real", "The real part, a view; a real tensor itself.", _real)
imag = row("imag", "The imaginary part, a view.", _imag)
conj = row("conj", "The conjugate, a view; a real tensor itself.", _conj)
conj_physical = row("conj_physical", "The conjugate, a copy.", _conj_physical)
resolve_conj = row("resolve_conj", "The tensor itself: conjugates are computed.", _tensor)
resolve_neg = row("resolve_neg", "The tensor itself: negatives are computed.", _tensor)
angle = row("angle", "The angle from the positive real axis; of real numbers pi for negative ones, "
            "0 for others.", _angle)
sgn = row("sgn", "-1, 0 or 1; of complex numbers ``input / abs(input)``.", _sgn)
isreal = row("isreal", "Whether the imaginary part is zero.", _isreal)


@checked
def adjoint(input: Any) -> Tensor:
    """The conjugate transposes of the matrices of the last two axes."""
    return conj(_tensor(input).transpose(-2, -1))


@checked
def is_complex(input: Any) -> builtins.bool:
    """Whether the elements are complex numbers."""
    return _is_complex(input)


__all__ = ["adjoint", "angle", "complex", "conj", "conj_physical", "imag", "is_complex",
           "isreal", "polar", "real", "resolve_conj", "resolve_neg", "sgn",
           "view_as_complex", "view_as_real"]
