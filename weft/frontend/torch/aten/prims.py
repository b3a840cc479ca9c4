"""Converters of prims, which torch writes where its decompositions go below ATen."""

from __future__ import annotations

import dataclasses
from operator import attrgetter
from typing import Any

import torch

from weft.frontend.torch.node import Node, shape_in
from weft.frontend.torch.registry import converts, find_converter
from weft.ir import Expr

# Prims on elements, and the operators of ATen with their arguments: of one tensor, and of two.
_OF_ONE = ("abs acos acosh asin asinh atan atanh bitwise_not ceil cos cosh digamma erf erfc exp "
           "exp2 expm1 floor isfinite lgamma log log10 log1p log2 neg reciprocal rsqrt sign "
           "signbit sin sinh sqrt tan tanh trunc clone")
_OF_TENSORS = "bitwise_and bitwise_or bitwise_xor eq fmod ge gt le lt ne remainder add sub mul div"
_OF_TWO = {name: f"{name}.Tensor" for name in _OF_TENSORS.split()} | {
    name: f"{name}.default" for name in ("atan2", "fmax", "fmin", "gcd", "hypot", "maximum",
                                         "minimum")} | {
    "pow": "pow.Tensor_Tensor", "shift_left": "bitwise_left_shift.Tensor",
    "shift_right_arithmetic": "bitwise_right_shift.Tensor"}
PRIMS: dict[str, str] = {name: f"{name}.default" for name in _OF_ONE.split()} | _OF_TWO | {
    "cat": "cat.default", "erf_inv": "erfinv.default", "bessel_i0": "i0.default",
    "reshape": "view.default", "rev": "flip.default", "transpose": "permute.default",
    "where": "where.self"}


def _register(name: str, target: str) -> None:
    own, other = (_arguments(getattr(torch.ops.prims, name).default),
                  _arguments(attrgetter(target)(torch.ops.aten)))
    rest = [argument.default_value for argument in other[len(own):]]

    @converts(f"prims.{name}")
    def convert(node: Node, *arguments: Any) -> Expr:
        converter = find_converter(f"aten.{target}")
        if converter is None:
            raise node.unsupported("no converter of ATen's operator", got=target)
        return converter(dataclasses.replace(node, op=f"aten.{target}"), *arguments, *rest)

    convert.__doc__ = f"As ``aten.{target}``."


def _arguments(overload: Any) -> Any:
    return overload._schema.arguments  # noqa: SLF001 - torch has no public name for it


for _name, _target in PRIMS.items():
    _register(_name, _target)


@converts("prims.broadcast_in_dim")
def broadcast_in_dim(node: Node, x: Expr, shape: Any, axes: Any) -> Expr:
    """The axes of ``x`` are ``axes`` of the result."""
    wide = [1] * len(shape)
    for axis, size in zip(axes, shape_in(x), strict=True):
        wide[axis] = size
    return node.broadcast(node.reshape(x, wide), shape)
