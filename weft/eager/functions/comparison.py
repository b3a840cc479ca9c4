"""Comparisons of whole tensors, membership, and questions about tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft.eager.cell import Cell
from weft.eager.functions.elementwise import abs, add, eq, isfinite, isnan, le, mul, operands, sub
from weft.eager.record import as_node, wrap
from weft.eager.signature import checked, public
from weft.support.errors import InvalidInputError

if TYPE_CHECKING:
    from weft.eager.tensor import Tensor


def _same_dtype(what: str, input: Any, other: Any) -> None:
    first, second = as_node(input).sig.out.dtype, as_node(other).sig.out.dtype
    if first is not second:
        raise InvalidInputError(f"{what} of tensors of different dtypes",
                                got=f"{first} and {second}")


@public
def isclose(input: Any, other: Any, rtol: float = 1e-05, atol: float = 1e-08,
            equal_nan: bool = False) -> Tensor:
    """Whether ``|input - other| <= atol + rtol * |other|``, and equal infinities."""
    _same_dtype("isclose", input, other)
    if rtol < 0 or atol < 0:
        raise InvalidInputError("isclose takes tolerances of at least 0", got=f"{rtol}, {atol}")
    x, y = [wrap(n) for n in operands(input, other)]
    close = eq(x, y)
    if equal_nan and x.dtype.rank > 1:
        close = close | (isnan(x) & isnan(y))
    if not (rtol or atol):
        return close
    if x.dtype.name == "bool":
        x, y = x.to("uint8"), y.to("uint8")
    d = x.dtype if x.dtype.rank > 1 else None
    first, second = (x, y) if d is not None else (x.to("float64"), y.to("float64"))
    gap = abs(sub(first, second))
    return close | (isfinite(gap) & le(gap, add(mul(abs(second), rtol), atol)))


@public
def allclose(input: Any, other: Any, rtol: float = 1e-05, atol: float = 1e-08,
             equal_nan: bool = False) -> bool:
    """Whether all elements are close to each other: ``isclose``."""
    return bool(isclose(input, other, rtol, atol, equal_nan).all())


@public
def equal(input: Any, other: Any) -> bool:
    """Whether two tensors have the same shape and equal elements."""
    if as_node(input).sig.out.shape != as_node(other).sig.out.shape:
        return False
    return bool(eq(input, other).all())


@public
def isin(elements: Any, test_elements: Any, *, assume_unique: bool = False,  # noqa: ARG001 - a hint
         invert: bool = False) -> Tensor:
    """Whether each element is one of the test elements."""
    x, tests = [wrap(n) for n in operands(elements, test_elements)]
    found = eq(x.unsqueeze(-1), tests.reshape(-1)).any(-1)
    return found.logical_not() if invert else found


@public
def is_nonzero(input: Any) -> bool:
    """Whether the single element is not zero."""
    return bool(input)


def is_tensor(obj: Any) -> bool:
    """Whether an object is a tensor."""
    return isinstance(obj, Cell)


@checked
def is_floating_point(input: Any) -> bool:
    """Whether the elements are floating-point numbers."""
    return as_node(input).sig.out.dtype.is_floating_point


@checked
def is_signed(input: Any) -> bool:
    """Whether the dtype has numbers below 0."""
    return as_node(input).sig.out.dtype.is_signed


@checked
def is_conj(input: Any) -> bool:  # noqa: ARG001 - conjugates are computed
    """False: no tensor waits for its conjugation."""
    return False


is_neg = is_conj


@checked
def is_inference(input: Any) -> bool:  # noqa: ARG001 - of any tensor gradients may be taken
    """False: tensors of ``inference_mode`` are like others."""
    return False


@checked
def get_device(input: Any) -> int:
    """The number of the device, -1 for the CPU."""
    return input.get_device()  # type: ignore[no-any-return]


@checked
def is_same_size(input: Any, other: Any) -> bool:
    """Whether two tensors have the same shape."""
    return as_node(input).sig.out.shape == as_node(other).sig.out.shape


@checked
def numel(input: Any) -> int:
    """The number of elements."""
    return input.numel()
