"""Conversion of torch's symbolic sizes to weft dimensions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

import torch
from torch.utils._sympy.functions import FloorDiv

from weft.ir.shape import ANY, Dim, Shape, SymDim, dim_add, dim_floordiv, dim_mul


def shape_of(sizes: Sequence[Any], names: Mapping[str, str]) -> Shape:
    """The shape of a traced tensor; ``names`` renames torch's symbols."""
    return tuple(dim_of(size, names) for size in sizes)


def dim_of(size: Any, names: Mapping[str, str]) -> Dim:
    """The dimension of a traced size; ``ANY`` for an expression that weft does not support."""
    if not isinstance(size, torch.SymInt):
        return int(size)
    return _convert(size.node.expr, names)


def symbol_of(size: Any) -> str | None:
    """The name of a size that is a single symbol, else ``None``."""
    if isinstance(size, torch.SymInt) and size.node.expr.is_Symbol:
        return str(size.node.expr)
    return None


def _convert(expr: Any, names: Mapping[str, str]) -> Dim:
    if expr.is_Integer:
        return int(expr)
    if expr.is_Symbol:
        return SymDim.symbol(names.get(str(expr), str(expr)))
    parts = [_convert(part, names) for part in expr.args]
    if expr.is_Add:
        return reduce(dim_add, parts)
    if expr.is_Mul:
        return reduce(dim_mul, parts)
    if isinstance(expr, FloorDiv):
        return dim_floordiv(parts[0], parts[1])
    return ANY
