"""Constructors of tensors: ``placeholder``, ``compute``, ``reduce_axis``, ``extern``."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import TypeAlias, overload

from weft.ir.dtype import DType, int64
from weft.support.errors import LoweringError
from weft.te import tensor
from weft.te.role import StageRole
from weft.te.walk import contains_reduce
from weft.tir.expr import ExprLike, PrimExpr, Reduce, Var, as_prim

Body: TypeAlias = "ExprLike | Sequence[ExprLike]"


def var(name: str = "n", dtype: DType | str = int64) -> Var:
    """A symbolic size, which the kernel takes as a scalar argument."""
    return Var(name, DType.of(dtype))


def placeholder(
    shape: Sequence[tensor.Index], dtype: DType | str = "float32", name: str = "placeholder"
) -> tensor.Tensor:
    """An input tensor."""
    return tensor.PlaceholderOp(name, tensor.as_shape(shape), DType.of(dtype)).outputs[0]


def reduce_axis(domain: tensor.Index | tuple[tensor.Index, tensor.Index],
                name: str = "k") -> tensor.IterVar:
    """A reduction axis over ``[0, extent)``, or over ``[low, high)``."""
    if isinstance(domain, tuple):
        low, high = (tensor.as_index(d) for d in domain)
        return tensor.reduction_axis(name, high - low, low)
    return tensor.reduction_axis(name, tensor.as_index(domain))


@overload
def compute(shape: Sequence[tensor.Index], fcompute: Callable[..., ExprLike], name: str = ..., *,
            role: StageRole | None = ...) -> tensor.Tensor: ...


@overload
def compute(shape: Sequence[tensor.Index], fcompute: Callable[..., Sequence[ExprLike]],
            name: str = ..., *, role: StageRole | None = ...) -> tuple[tensor.Tensor, ...]: ...


def compute(shape: Sequence[tensor.Index], fcompute: Callable[..., Body], name: str = "compute", *,
            role: StageRole | None = None) -> tensor.Tensor | tuple[tensor.Tensor, ...]:
    """The tensor whose element at each index is ``fcompute(i0, i1, …)``; a tuple gives a tuple.

    A reduction is allowed only at the root of the expression. ``role`` tells schedules what
    the stage is for, where the body does not show it. Raises ``LoweringError`` for a wrong
    number of parameters, a reduction inside an expression, or outputs that reduce over different
    axes.
    """
    sizes = tensor.as_shape(shape)
    axes = tuple(tensor.data_axis(n, s) for n, s in zip(_axis_names(fcompute, len(sizes)), sizes,
                                                        strict=True))
    result = fcompute(*(a.var for a in axes))
    values = tuple(result) if isinstance(result, Sequence) else (result,)
    body = tuple(as_prim(e) for e in values)
    op = tensor.ComputeOp(name, axes, _reduced_axes(name, body), body, role)
    return op.outputs if isinstance(result, Sequence) else op.outputs[0]


def _axis_names(fcompute: Callable[..., Body], count: int) -> list[str]:
    """The names of the lambda's parameters; ``*indices`` gives i0, i1, …"""
    names: list[str] = []
    for p in inspect.signature(fcompute).parameters.values():
        if p.kind is p.VAR_POSITIONAL:
            names.extend(f"i{k}" for k in range(len(names), count))
        # A parameter with a default captures a value (``lambda i, n=n: ...``) and is no index.
        elif p.kind is not p.KEYWORD_ONLY and p.default is p.empty:
            names.append(p.name)
    if len(names) != count:
        raise LoweringError("te.compute: the function must take one index per axis",
                            expected=f"{count} parameters", got=f"{len(names)} parameters")
    return names


def _reduced_axes(name: str, body: tuple[PrimExpr, ...]) -> tuple[tensor.IterVar, ...]:
    """The reduction axes of a body; raises ``LoweringError`` for a reduction below the root."""
    first = body[0]
    if isinstance(first, Reduce):
        for e in body:
            if not isinstance(e, Reduce) or (e.combiner, e.source) != (first.combiner,
                                                                       first.source):
                raise LoweringError(
                    f"{name}: the outputs of one computation must share one reduction")
        inner: tuple[PrimExpr, ...] = (*first.source, first.condition)
    else:
        inner = body
    if any(contains_reduce(e) for e in inner):
        raise LoweringError(
            f"{name}: a reduction inside an expression",
            help="compute the reduction in a separate te.compute and read its result",
        )
    return first.axes if isinstance(first, Reduce) else ()


def extern(shapes: Sequence[Sequence[tensor.Index]], inputs: Sequence[tensor.Tensor],
           build: tensor.ExternBody, dtypes: Sequence[DType | str], name: str = "extern",
           flops: int = 0) -> tuple[tensor.Tensor, ...]:
    """Tensors of ``shapes`` and ``dtypes`` written by a hand-written tir statement.

    ``build(input_buffers, output_buffers)`` returns the statement; it is called when the schedule
    is lowered and may read any element of each input. ``flops`` is the number of arithmetic
    operations that profiles report.
    """
    types = tuple((tensor.as_shape(s), DType.of(d)) for s, d in zip(shapes, dtypes, strict=True))
    return tensor.ExternOp(name, tuple(inputs), types, build, flops=flops).outputs
