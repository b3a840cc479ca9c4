"""autocast: matrix products in bfloat16, reductions and losses in float32 (Micikevicius 2017)."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self, TypeVar

from weft.eager.cell import MODE
from weft.eager.dtypes import as_dtype, bfloat16, dtype, float16, float32
from weft.eager.tensor import Tensor
from weft.support.errors import OptionError

F = TypeVar("F", bound=Callable[..., Any])


class autocast:
    """Within ``with autocast():``, layers run products in bfloat16, as in torch.

    ``nn.functional.linear``, ``bilinear``, convolutions and attention convert float32 arguments to
    ``dtype``; losses, softmax and normalization run in float32. Gradients have the dtype of their
    parameters. Also a decorator.
    """

    def __init__(
        self, device_type: str = "cpu", dtype: Any = None, enabled: bool = True,
        cache_enabled: bool | None = None,  # noqa: ARG002 - torch's argument
    ) -> None:
        chosen = bfloat16 if dtype is None else as_dtype(dtype)
        if chosen not in (bfloat16, float16, float32):
            raise OptionError("autocast to an unsupported dtype", got=repr(chosen),
                              expected="bfloat16 or float16")
        self.device_type = device_type
        self.dtype = chosen if enabled and chosen is not float32 else None
        self._before: list[Any] = []

    def __enter__(self) -> Self:
        self._before.append(MODE.autocast)
        MODE.autocast = self.dtype
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        MODE.autocast = self._before.pop()

    def __call__(self, function: F) -> F:
        @functools.wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            with self:
                return function(*args, **kwargs)
        return run  # type: ignore[return-value]


def is_autocast_enabled() -> bool:
    """Whether products run in a narrow dtype here."""
    return MODE.autocast is not None


def narrowed(*tensors: Tensor | None) -> Any:
    """The operands of a product, in the narrow dtype if autocast is on."""
    chosen = MODE.autocast
    if chosen is None:
        return tensors
    return tuple(_converted(t, chosen) for t in tensors)


def upcast(*tensors: Tensor | None) -> Any:
    """The operands of a sensitive function, in float32 if autocast is on."""
    if MODE.autocast is None:
        return tensors
    return tuple(_converted(t, float32) for t in tensors)


_FLOATS = (float32, bfloat16, float16)


def _converted(tensor: Tensor | None, chosen: dtype) -> Tensor | None:
    if tensor is None or tensor.dtype is chosen or tensor.dtype not in _FLOATS:
        return tensor
    return tensor.to(chosen)
