"""Registry of converters by ONNX operator and first opset."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field
from typing import TypeAlias, TypeVar

from onnx import NodeProto

from weft.frontend.onnx.node import Node, Value
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
    """Register ``function``; like ``converts``, for generated functions."""
    only = dict(only or {})
    names = frozenset(attributes) | frozenset(only)
    # Replace an entry of the same opset: a module whose import failed is imported again.
    versions = [c for c in _CONVERTERS.get(op, ()) if c.since != since]
    versions.append(Converter(op, since, function, names, only, outputs))
    _CONVERTERS[op] = sorted(versions, key=lambda c: c.since)


def operator_name(node: NodeProto) -> str:
    """Return the registry name of an operator: ``Conv``, ``ai.onnx.ml::Binarizer``."""
    return node.op_type if node.domain in DEFAULT_DOMAIN else f"{node.domain}::{node.op_type}"


def opset_of(node: NodeProto, opsets: Mapping[str, int]) -> int:
    """Return the opset version of the domain of ``node``."""
    return opsets["" if node.domain in DEFAULT_DOMAIN else node.domain]


def find_converter(op: str, opset: int) -> Converter | None:
    """Return the newest converter of ``op`` that is not newer than ``opset``, else ``None``."""
    found = None
    for converter in _CONVERTERS.get(op, ()):
        if converter.since <= opset:
            found = converter
    return found


def supported_operators() -> tuple[str, ...]:
    """Return the names of all ONNX operators with a converter."""
    return tuple(sorted(_CONVERTERS))


def foreign_converters() -> tuple[str, ...]:
    """Return the names of the operators with a converter that a user registered."""
    return tuple(op for op in supported_operators()
                 if not all(getattr(c.convert, "__module__", "").startswith("weft.")
                            for c in _CONVERTERS[op]))


def converter_versions(op: str) -> tuple[Converter, ...]:
    """Return the converters of ``op``, oldest first."""
    return tuple(_CONVERTERS.get(op, ()))
