"""``weft.checkpoint``: functions whose values the gradient computes again instead of keeping."""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

from weft.ir.expr import Function
from weft.ir.python.from_python import PythonFunction
from weft.support.errors import OptionError
from weft.transform.autodiff.checkpoint.checkpoint import checkpointed, in_segments


class CheckpointedFunction(PythonFunction):
    """A ``@weft.function`` with the attribute ``checkpoint``."""

    @property
    def function(self) -> Function:
        """The function; raises ``ParseError`` for Python that cannot be translated."""
        return checkpointed(super().function)


@overload
def checkpoint(function: PythonFunction) -> PythonFunction: ...


@overload
def checkpoint(function: Function) -> Function: ...


def checkpoint(function: PythonFunction | Function) -> PythonFunction | Function:
    """``function`` with its inner values computed again in the backward pass of a gradient.

    Only the arguments are kept until then (``jax.checkpoint``). It decorates a ``@weft.function``
    that others call, and takes a ``Function`` of the IR; in text it is the attribute
    ``checkpoint=True``. Checkpointed functions may call each other. Values are the same, to the
    bit where the second computation runs the same kernels.

    Raises ``OptionError`` for anything else.
    """
    if isinstance(function, PythonFunction):
        return CheckpointedFunction(function.python)
    if isinstance(function, Function):
        return checkpointed(function)
    raise OptionError("checkpoint takes a function", got=type(function).__name__,
                      expected="a @weft.function or a Function")


def checkpoint_sequential(
    functions: Sequence[PythonFunction | Function], segments: int | None = None
) -> Function:
    """The functions of one argument applied in order, checkpointed in ``segments`` parts.

    By default there are about sqrt(n) segments of n functions: the gradient then keeps about
    2 sqrt(n) values instead of n, and evaluates the functions once more (Chen et al. 2016). The
    last segment is not checkpointed, because its gradient begins at once. Raises ``PassError`` for
    functions of several arguments and for a number of segments out of range.
    """
    plain = [f.function if isinstance(f, PythonFunction) else f for f in functions]
    return in_segments(plain, segments)
