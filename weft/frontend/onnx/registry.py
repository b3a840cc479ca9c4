"""The table of converters: which function converts which ONNX operator from which opset on."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

from onnx import NodeProto

from weft.frontend.onnx.node import Node, Value

Converted: TypeAlias = "Value | Sequence[Value]"
ConvertFunction: TypeAlias = Callable[[Node], Converted]
F = TypeVar("F", bound=ConvertFunction)


@dataclass(frozen=True)
class Converter:
    """How one operator converts since opset ``since``.

    ``attributes`` are the attributes that ``convert`` honours; ``only`` restricts some of them to
    the values that are supported; ``outputs`` is how many outputs it can produce.
    """

    op: str
    since: int
    convert: ConvertFunction
    attributes: frozenset[str]
    only: Mapping[str, Collection[object]] = field(default_factory=dict)
    outputs: int = 1


DEFAULT_DOMAIN = ("", "ai.onnx")
_CONVERTERS: dict[str, list[Converter]] = {}


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
    """As ``converts``, for functions made by a family."""
    only = dict(only or {})
    names = frozenset(attributes) | frozenset(only)
    # A module whose import was cut short registers the same once more when it is imported again.
    versions = [c for c in _CONVERTERS.get(op, ()) if c.since != since]
    versions.append(Converter(op, since, function, names, only, outputs))
    _CONVERTERS[op] = sorted(versions, key=lambda c: c.since)


def operator_name(node: NodeProto) -> str:
    """How an operator is called in the table: ``Conv``, ``ai.onnx.ml::Binarizer``."""
    return node.op_type if node.domain in DEFAULT_DOMAIN else f"{node.domain}::{node.op_type}"


def opset_of(node: NodeProto, opsets: Mapping[str, int]) -> int:
    """The version of the domain of ``node``."""
    return opsets["" if node.domain in DEFAULT_DOMAIN else node.domain]


def find_converter(op: str, opset: int) -> Converter | None:
    """The newest converter of ``op`` that is not newer than ``opset``."""
    found = None
    for converter in _CONVERTERS.get(op, ()):
        if converter.since <= opset:
            found = converter
    return found


def supported_operators() -> tuple[str, ...]:
    """Names of all ONNX operators with a converter."""
    return tuple(sorted(_CONVERTERS))


def converter_versions(op: str) -> tuple[Converter, ...]:
    """The converters of one operator, oldest first."""
    return tuple(_CONVERTERS.get(op, ()))
