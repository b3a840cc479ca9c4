"""The records that the parser makes: modules, functions, regions and operations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Any

from weft.support.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class HloType:
    """A type: sizes (``None`` for ``?``) and the element type as it is written (``f32``).

    What is no tensor (a token, a tuple) has its text as ``element`` and no sizes.
    """

    shape: tuple[int | None, ...]
    element: str

    def __str__(self) -> str:
        sizes = "".join(f"{'?' if n is None else n}x" for n in self.shape)
        return f"tensor<{sizes}{self.element}>"


@dataclass(frozen=True, slots=True)
class Literal:
    """The text of an array in a module (``dense<[1, 2]>``) with its type."""

    text: str
    type: HloType


@dataclass(frozen=True, slots=True)
class Region:
    """One block: the names of its arguments, and its operations, a ``return`` last."""

    parameters: tuple[str, ...]
    operations: tuple[Operation, ...]

    def returned(self) -> tuple[str, ...]:
        """The names of the values that the region returns."""
        return self.operations[-1].operands if self.operations else ()

    def nested(self) -> Iterator[Operation]:
        """All operations, those of inner regions among them."""
        stack: list[Region] = [self]
        while stack:
            for operation in stack.pop().operations:
                yield operation
                stack.extend(operation.regions)


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation, with the names of its operands and results.

    ``offset`` is its position in the text, and ``location`` the text of its ``loc``.
    """

    name: str
    operands: tuple[str, ...]
    results: tuple[str, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    regions: tuple[Region, ...] = ()
    operand_types: tuple[HloType, ...] = ()
    result_types: tuple[HloType, ...] = ()
    offset: int = 0
    location: str = ""

    @property
    def target(self) -> str:
        """The function that a custom call or a call names; empty for other operations."""
        name = self.attributes.get("call_target_name", self.attributes.get("callee", ""))
        return str(name).removeprefix("@")


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a function."""

    name: str
    type: HloType
    attributes: Mapping[str, Any]
    location: str = ""


@dataclass(frozen=True, slots=True)
class HloFunction:
    """A function of a module."""

    name: str
    parameters: tuple[Parameter, ...]
    result_types: tuple[HloType, ...]
    result_attributes: tuple[Mapping[str, Any], ...]
    body: Region


@dataclass(frozen=True, slots=True)
class HloModule:
    """A module: its functions, and what the names of locations (``#loc1``) stand for."""

    functions: Mapping[str, HloFunction]
    locations: Mapping[str, str]
