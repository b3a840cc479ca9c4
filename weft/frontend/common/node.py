"""The base of the nodes that converters get: typed calls, constants and errors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weft import op
from weft.frontend.common.typed import tensor_type, typed
from weft.ir import Constant, DType, Expr, Op, Span, Tuple, TupleGetItem
from weft.op.composites.terms import composed
from weft.support.errors import AttrsError, InvalidModelError, UnsupportedModelError, WeftError


class NodeBase:
    """A node of a model to convert; a front end adds its inputs and attributes."""

    if TYPE_CHECKING:
        @property
        def op(self) -> str: ...

        @property
        def span(self) -> Span: ...

    def call(self, operator: Op, /, *args: Any, **attrs: Any) -> Expr:
        """The typed call of ``operator``; a small call of constants is folded."""
        return typed(operator(*args, span=self.span, **attrs))

    def tuple_call(self, operator: Op, parts: Sequence[Expr], **attrs: Any) -> Expr:
        """Like ``call``, for an operator that takes one tuple of tensors."""
        return self.call(operator, Tuple(tuple(parts), span=self.span), **attrs)

    def composed(self, composite: Callable[..., Any], *operands: Any, **attrs: Any) -> Any:
        """A composite of ``weft.op.composites`` applied to expressions and numbers."""
        return composed(self, composite, *operands, **attrs)

    def field(self, value: Expr, index: int) -> Expr:
        """One tensor of a tuple."""
        return typed(TupleGetItem(value, index, span=self.span))

    def reshape(self, x: Expr, shape: Sequence[Any]) -> Expr:
        """Reshape ``x``, if it has another shape."""
        target = tuple(shape)
        return x if target == tensor_type(x).shape else self.call(
            op.reshape, x, newshape=target, allowzero=0 in target)

    def transpose(self, x: Expr, axes: Sequence[int]) -> Expr:
        """Permute the axes of ``x``, if they have another order."""
        order = tuple(axes)
        return x if order == tuple(range(len(order))) else self.call(op.transpose, x, axes=order)

    def constant(self, value: Any, dtype: DType | str) -> Constant:
        return Constant(np.asarray(value, DType.of(dtype).numpy), span=self.span)

    def scalar_like(self, value: Any, other: Expr) -> Expr:
        """A scalar constant with the dtype of ``other``."""
        return self.constant(value, tensor_type(other).dtype)

    def axis(self, axis: int, rank: int) -> int:
        """``axis`` counted from the start; ``InvalidModelError`` if it is out of range."""
        if not -rank <= axis < rank:
            raise self.fail(
                "axis out of range", got=str(axis),
                expected=f"{-rank} to {rank - 1} for a tensor of rank {rank}" if rank
                else "a tensor of rank 1 or more")
        return axis % rank

    def axes(self, axes: Sequence[int], rank: int) -> tuple[int, ...]:
        """Different ``axes``, counted from the start; ``InvalidModelError`` for others."""
        found = tuple(self.axis(axis, rank) for axis in axes)
        if len(set(found)) < len(found):
            raise self.fail("an axis is given twice", expected="different axes", got=str(axes))
        return found

    def fail(self, what: str, **details: Any) -> InvalidModelError:
        """The error of a node that contradicts itself or its inputs."""
        return InvalidModelError(f"{self.op}: {what}", where=self.span, **details)

    def unsupported(self, what: str, **details: Any) -> UnsupportedModelError:
        """The error of a valid node that weft cannot convert."""
        return UnsupportedModelError(f"{self.op}: {what}", where=self.span, **details)

    def placed(self, error: WeftError) -> WeftError:
        """``error`` at the place of this node, if it has no place yet.

        Attributes of weft's operators come from the model: where they are refused, it is invalid.
        """
        if isinstance(error, AttrsError):
            return self.fail(error.what, expected=error.expected, got=error.got, help=error.help)
        return error.at(str(self.span))
