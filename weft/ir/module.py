"""A module: named functions and data types. Immutable; a change makes a new module.

The inputs and outputs of ``main`` have the names that this module gives.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import field
from functools import cached_property
from typing import Any

from weft.ir.contents import Contents
from weft.ir.expr import Expr, Function, GlobalVar, TypeData, html_of, text_of
from weft.ir.types import TupleType, Type
from weft.support.dataclass import dataclass
from weft.support.errors import RegistryError


@dataclass(frozen=True, slots=True, eq=False)
class Settled:
    """A function that is fully typed, given these types of the functions that it refers to."""

    function: Function
    globals: Mapping[str, Type]
    definitions: Mapping[str, TypeData]


@dataclass(frozen=True, slots=True, eq=False)
class KnownFacts:
    """Facts about these functions that passes have established."""

    functions: Mapping[str, Function] | None = None
    names: frozenset[str] = frozenset()


@dataclass(frozen=True, eq=False, repr=False)
class IRModule:
    """``functions`` by name in definition order; ``attrs`` carries facts such as input names.

    ``settled`` caches what inference knows about unchanged functions. ``named`` maps the names that
    an imported model gives to tensors (ONNX values, nodes and modules of torch) to expressions,
    also where no result depends on the tensor. ``facts`` holds the facts that passes have
    established. These three are not part of the program, and passes that change ``main`` need not
    update ``named``.
    """

    functions: Mapping[str, Function] = field(default_factory=dict)
    type_definitions: Mapping[str, TypeData] = field(default_factory=dict)
    attrs: Mapping[str, Any] = field(default_factory=dict)
    settled: Mapping[str, Settled] = field(default_factory=dict)
    named: Mapping[str, Expr] = field(default_factory=dict)
    facts: KnownFacts = KnownFacts()

    @property
    def known_facts(self) -> frozenset[str]:
        """The facts that passes have established about the current functions (``ir.facts``)."""
        return self.facts.names if self.facts.functions is self.functions else frozenset()

    @cached_property
    def contents(self) -> Contents:
        """What the functions hold; computed once."""
        return Contents.of(self.functions.values())

    @staticmethod
    def from_expr(expr: Expr) -> IRModule:
        """A module with ``expr`` as ``main``; a non-function becomes one without parameters."""
        function = expr if isinstance(expr, Function) else Function((), expr, span=expr.span)
        return IRModule({"main": function})

    def __getitem__(self, name: str | GlobalVar) -> Function:
        key = name.name if isinstance(name, GlobalVar) else name
        try:
            return self.functions[key]
        except KeyError:
            raise RegistryError(
                f"unknown function @{key}",
                expected=", ".join(f"@{n}" for n in self.functions) or "an empty module",
            ) from None

    def __contains__(self, name: object) -> bool:
        return name in self.functions

    def with_function(self, name: str, function: Function) -> IRModule:
        return self.with_functions({name: function})

    def with_functions(self, functions: Mapping[str, Function]) -> IRModule:
        """A module with ``functions`` added, replacing those of the same name."""
        if all(self.functions.get(n) is f for n, f in functions.items()):
            return self
        return dataclasses.replace(self, functions={**self.functions, **functions})

    def without(self, *names: str) -> IRModule:
        kept = {n: f for n, f in self.functions.items() if n not in names}
        return dataclasses.replace(self, functions=kept)

    def with_attrs(self, **attrs: Any) -> IRModule:
        return dataclasses.replace(self, attrs={**self.attrs, **attrs})

    def __str__(self) -> str:
        return text_of(self)

    def _repr_html_(self) -> str:
        return html_of(self)


def input_names(mod: IRModule) -> list[str]:
    """The names that the model gives (``attrs``), else those of the parameters."""
    params = mod["main"].params
    listed = mod.attrs.get("input_names")
    if isinstance(listed, (tuple, list)) and len(listed) == len(params):
        return [str(name) for name in listed]
    return [param.name for param in params]


def output_names(mod: IRModule) -> list[str]:
    """The names of the results of a typed module; results without names are ``output<n>``."""
    type_ = mod["main"].body.checked_type
    count = len(type_.fields) if isinstance(type_, TupleType) else 1
    return port_names(mod.attrs.get("output_names"), "output", count)


def port_names(given: object, stem: str, count: int) -> list[str]:
    """The names of ports given by the model, else ``stem`` with a number."""
    if isinstance(given, (tuple, list)) and len(given) == count:
        return [str(name) for name in given]
    return [stem] if count == 1 else [f"{stem}{i}" for i in range(count)]
