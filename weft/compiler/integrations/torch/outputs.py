"""Results of a region as tensors with the strides that torch traced."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import sympy
import torch
import torch.fx

Maker = Callable[[Iterator[np.ndarray]], Any]


def maker_of(outputs: Sequence[torch.fx.Node], placeholders: Sequence[torch.fx.Node],
             args: Sequence[Any], numbers: Mapping[torch.fx.Node, Any]) -> list[Maker]:
    """For every output how it is made of the arrays that a program returns, in order."""
    symbols = _symbols(placeholders, args)
    return [_number(numbers[n]) if n in numbers else _tensor(n.meta["val"], symbols)
            for n in outputs]


def _number(value: Any) -> Maker:
    return lambda _: value


def _tensor(traced: torch.Tensor, symbols: Mapping[Any, Any]) -> Maker:
    shape = [_known(s, symbols) for s in traced.shape]
    strides = [_known(s, symbols) for s in traced.stride()]
    dense = _dense_strides(shape)
    if None in shape or None in strides or strides == dense:
        return _as_it_is
    if all(s == d for n, s, d in zip(shape, strides, dense, strict=True) if n != 1):
        return lambda arrays: tensor_of(next(arrays)).as_strided(shape, strides)

    def rearranged(arrays: Iterator[np.ndarray]) -> torch.Tensor:
        made = torch.empty_strided(shape, strides, dtype=traced.dtype)
        return made.copy_(tensor_of(next(arrays)))

    return rearranged


def _as_it_is(arrays: Iterator[np.ndarray]) -> torch.Tensor:
    return tensor_of(next(arrays))


def _dense_strides(shape: Sequence[Any]) -> list[int]:
    """The strides of a tensor in row-major order, as torch counts them."""
    strides, stride = [], 1
    for size in reversed(shape):
        strides.append(stride)
        stride *= max(size or 0, 1)
    return strides[::-1]


def _symbols(placeholders: Sequence[torch.fx.Node], args: Sequence[Any]) -> dict[Any, Any]:
    """What the symbols of a trace are in a call."""
    symbols: dict[Any, Any] = {}
    for node, value in zip(placeholders, args, strict=True):
        traced = node.meta.get("val")
        if isinstance(traced, torch.Tensor) and isinstance(value, torch.Tensor):
            for size, known in zip(traced.shape, value.shape, strict=True):
                _bind(size, known, symbols)
        else:
            _bind(traced, value, symbols)
    return symbols


def _bind(size: Any, known: Any, symbols: dict[Any, Any]) -> None:
    if isinstance(size, torch.SymInt) and size.node.expr.is_Symbol:
        symbols[size.node.expr] = sympy.Integer(int(known))


def _known(size: Any, symbols: Mapping[Any, Any]) -> int | None:
    if not isinstance(size, torch.SymInt):
        return int(size)
    value = size.node.expr.xreplace(symbols)
    return int(value) if value.is_number else None


def tensor_of(array: np.ndarray) -> torch.Tensor:
    """A tensor over the array's memory."""
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.uint16)).view(torch.bfloat16)
    return torch.from_numpy(array)
