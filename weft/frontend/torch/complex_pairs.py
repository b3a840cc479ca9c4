"""Complex tensors as pairs of real ones.

weft has no complex dtype. A complex tensor of the graph is a ``Complex``; as an input or output of
the model it is a real tensor whose last axis holds the two parts, as ``torch.view_as_real`` gives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
import torch.fx
from torch.utils import _pytree as pytree

from weft import op
from weft.frontend.common.typed import tensor_type, typed
from weft.ir import Constant, Expr, Span, TensorType, Tuple
from weft.support.dataclass import dataclass

_PART = {torch.complex64: torch.float32, torch.complex128: torch.float64}
_OF_COMPLEX: dict[str, Callable[..., Any]] = {}


@dataclass(frozen=True, eq=False)
class Complex:
    """A complex tensor; the parts have one type."""

    real: Expr
    imag: Expr

    def over_parts(self, function: Callable[[Expr], Expr]) -> Complex:
        """A linear function of each part."""
        return Complex(function(self.real), function(self.imag))


def of_complex(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register the converter of operators whose arguments or result are complex.

    Names are as in ``converts``.
    """
    def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            _OF_COMPLEX[name] = function
        return function

    return wrap


def complex_converter(target: str) -> Callable[..., Any] | None:
    """The converter of ``aten.mul.Tensor``, say, for complex numbers."""
    name = target.removeprefix("aten.")
    return _OF_COMPLEX.get(name) or _OF_COMPLEX.get(name.partition(".")[0])


def is_complex(value: Any) -> bool:
    """Whether a tensor, as torch traced it, is complex."""
    return isinstance(value, torch.Tensor) and value.dtype.is_complex


def has_complex(node: torch.fx.Node) -> bool:
    """Whether an argument or a result of a node is complex."""
    traced: Iterable[Any] = (n.meta.get("val") for n in (node, *node.all_input_nodes))
    return any(map(is_complex, pytree.tree_leaves(list(traced))))


def real_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype of the parts of a complex dtype; other dtypes are their own."""
    return _PART.get(dtype, dtype)


def parts_of(pair: Expr, span: Span) -> Complex:
    """A tensor whose last axis holds the two parts, as a complex one."""
    axis = tensor_type(pair).ndim - 1
    real, imag = (typed(op.take(pair, Constant(np.asarray(i)), axis=axis, mode="clip", span=span))
                  for i in range(2))
    return Complex(real, imag)


def pair_of(value: Complex) -> Expr:
    """The two parts along a new last axis."""
    axis = tensor_type(value.real).ndim
    return typed(op.stack(Tuple((value.real, value.imag)), axis=axis))


def constant_of(tensor: torch.Tensor, span: Span) -> Complex:
    """A complex weight."""
    array = tensor.detach().resolve_conj().resolve_neg().numpy()
    return Complex(*(Constant(np.ascontiguousarray(part), span=span)
                     for part in (array.real, array.imag)))


def pair_type(type_: TensorType) -> TensorType:
    """The type of a complex input or output whose parts have ``type_``."""
    return TensorType((*type_.shape, 2), type_.dtype)
