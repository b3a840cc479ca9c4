"""Methods of tensors that convert to a dtype, and that make tensors of the same dtype."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.eager.device import device
from weft.eager.dtypes import as_dtype, dtype
from weft.eager.functions.creation import full, tensor, zeros
from weft.eager.functions.elementwise import to_dtype
from weft.eager.functions.shape import sizes_of
from weft.eager.record import as_node
from weft.eager.signature import factory, public
from weft.support.errors import OptionError


def _to(name: str) -> Callable[..., Any]:
    """The method that converts to the dtype ``name``."""

    def convert(self: Any, memory_format: Any = None) -> Any:  # noqa: ARG001 - always row-major
        return to_dtype(self, name)

    convert.__doc__ = f"In {name}."
    return public(convert)


class Conversions:
    """Conversions, and new tensors like this one."""

    __slots__ = ()

    float, double, half, bfloat16 = _to("float32"), _to("float64"), _to("float16"), _to("bfloat16")
    long, int, short, char = _to("int64"), _to("int32"), _to("int16"), _to("int8")
    byte, bool = _to("uint8"), _to("bool")

    @factory
    def new_zeros(self, *size: Any, dtype: Any = None) -> Any:
        """Zeros in the dtype of this tensor."""
        return full(sizes_of(size), 0, dtype=_own(self, dtype))

    @factory
    def new_ones(self, *size: Any, dtype: Any = None) -> Any:
        """Ones in the dtype of this tensor."""
        return full(sizes_of(size), 1, dtype=_own(self, dtype))

    @factory
    def new_full(self, size: Any, fill_value: Any, *, dtype: Any = None) -> Any:
        """A tensor filled with a number, in the dtype of this tensor."""
        return full(size, fill_value, dtype=_own(self, dtype))

    @factory
    def new_empty(self, *size: Any, dtype: Any = None) -> Any:
        """Zeros in the dtype of this tensor."""
        return zeros(*size, dtype=_own(self, dtype))

    @factory
    def new_empty_strided(self, size: Any, stride: Any, *, dtype: Any = None) -> Any:  # noqa: ARG002 - row-major
        """Zeros in the dtype of this tensor, in row-major order."""
        return zeros(size, dtype=_own(self, dtype))

    @factory
    def new_tensor(self, data: Any, dtype: Any = None) -> Any:
        """A tensor of other elements in the dtype of this one."""
        return tensor(data, _own(self, dtype))


def _own(like: Any, dtype: Any) -> Any:
    return as_node(like).sig.out.dtype if dtype is None else dtype


def dtype_of(value: Any) -> dtype:
    """The dtype for what a user writes; ``OptionError`` says how devices are written."""
    try:
        return as_dtype(value)
    except OptionError as error:
        if isinstance(value, str):
            raise error.at(None, "a device is written such as 'cpu' or 'cuda:0'") from None
        raise


def is_device(arg: Any) -> bool:
    """Whether an argument of ``to`` names a device, not a dtype."""
    return isinstance(arg, device) or (isinstance(arg, int) and not isinstance(arg, bool)) or (
        isinstance(arg, str) and arg.partition(":")[0] in ("cpu", "cuda", "sim", "mps", "xpu",
                                                           "meta"))
