"""Registry of converters by ONNX operator and first opset."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field
from typing import TypeAlias, TypeVar

from weft.frontend.common.registry import ConverterTable
from weft.frontend.onnx.node import Node, Value
from weft.frontend.onnx.protos import NodeProto
from weft.support.dataclass import dataclass

Converted: TypeAlias = "Value | Sequence[Value]"
ConvertFunction: TypeAlias = Callable[[Node], Converted]
F = TypeVar("F", bound=ConvertFunction)


@dataclass(frozen=True)
class Converter:
    """The converter of an operator from opset ``since`` on.

    ``attributes`` lists the supported attributes, ``only`` the supported values of some of them;
    ``outputs`` is the maximum number of outputs.
    """

    op: str
    since: int
    convert: ConvertFunction
    attributes: frozenset[str]
    only: Mapping[str, Collection[object]] = field(default_factory=dict)
    outputs: int = 1


DEFAULT_DOMAIN = ("", "ai.onnx")
CONVERTERS: ConverterTable[Converter] = ConverterTable()


def converts(
    op: str,
    *,
    since: int = 1,
    attributes: Collection[str] = (),
    only: Mapping[str, Collection[object]] | None = None,
    outputs: int = 1,
) -> Callable[[F], F]:
    """Register the decorated function as the converter of ``op`` from opset ``since`` on."""

    def wrap(function: F) -> F:
        register(op, function, since=since, attributes=attributes, only=only, outputs=outputs)
        return function

    return wrap


def register(
    op: str,
    function: ConvertFunction,
    *,
    since: int = 1,
    attributes: Collection[str] = (),
    only: Mapping[str, Collection[object]] | None = None,
    outputs: int = 1,
) -> None:
    """Register ``function``; like ``converts``, for generated functions."""
    only = dict(only or {})
    names = frozenset(attributes) | frozenset(only)
    CONVERTERS.register(op, Converter(op, since, function, names, only, outputs), since)


def operator_name(node: NodeProto) -> str:
    """Return the registry name of an operator: ``Conv``, ``ai.onnx.ml::Binarizer``."""
    return node.op_type if node.domain in DEFAULT_DOMAIN else f"{node.domain}::{node.op_type}"


def opset_of(node: NodeProto, opsets: Mapping[str, int]) -> int:
    """Return the opset version of the domain of ``node``."""
    return opsets["" if node.domain in DEFAULT_DOMAIN else node.domain]
