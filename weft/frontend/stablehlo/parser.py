"""The parser of StableHLO text, in MLIR's generic form and in the one that JAX prints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weft.frontend.stablehlo.assembly import CustomAssembly
from weft.frontend.stablehlo.syntax import (
    HloFunction,
    HloModule,
    HloType,
    Operation,
    Parameter,
    Region,
)
from weft.support.errors import InvalidModelError, WeftError

_SHORT_NAMES = {"call": "func.call", "return": "func.return"}
_FUNCTIONS = ("func.func", "func")


def parse_module(text: str, source: str = "<stablehlo>") -> HloModule:
    """The module that ``text`` writes; raises ``InvalidModelError`` with the place of an error."""
    return _Parser(text, source).module()


class _Parser(CustomAssembly):
    """Reads modules, functions and operations."""

    def module(self) -> HloModule:
        functions: dict[str, HloFunction] = {}
        locations: dict[str, str] = {}
        while self.now.kind != "end":
            if self.now.kind == "alias" and self.ahead().kind == "=":
                name = self.take().text
                self.take()
                if self.now.text == "loc":
                    locations[name] = self.location()
                else:
                    self.attribute()
            elif self.now.kind == "string" and self.now.text == '"builtin.module"':
                self.take()
                self.expect("(")
                self.expect(")")
                self._properties()
                self.expect("(")
                self._module_body(functions)
                self.expect(")")
                if self.now.kind == "{":
                    self.skip_group()
                self._signature_of_nothing()
            elif self.accept("word", "module") or self.accept("word", "builtin.module"):
                self.accept("symbol")
                if self.accept("word", "attributes"):
                    self.dictionary()
                self._module_body(functions)
            elif self.now.kind in ("word", "string"):
                self._module_member(functions)
            else:
                self.fail("module, or a function")
            self.location()
        if "main" not in functions:
            raise InvalidModelError("the module has no function main", where=None,
                                    got=", ".join(sorted(functions)) or "no function")
        return HloModule(functions, locations)

    def _module_body(self, functions: dict[str, HloFunction]) -> None:
        self.deeper()
        self.expect("{")
        while not self.accept("}"):
            self._module_member(functions)
        self.depth -= 1

    def _module_member(self, functions: dict[str, HloFunction]) -> None:
        if self.now.kind == "word" and self.now.text in _FUNCTIONS:
            function = self._function()
        elif self.now.kind == "string" and self.now.text == '"func.func"':
            function = self._generic_function()
        elif self.accept("word", "sdy.mesh"):
            self._mesh()
            return
        else:
            self.fail("a function")
        if function.name in functions:
            self.fail(f"one function of the name {function.name}")
        functions[function.name] = function

    def _mesh(self) -> None:
        """Skip a mesh of devices: programs run on one."""
        self.expect("symbol")
        self.expect("=")
        while self.now.kind in ("<", "{"):
            self.skip_group()
        self.location()

    def _function(self) -> HloFunction:
        self.take()
        if self.now.text in ("public", "private", "nested"):
            self.take()
        name = self.expect("symbol").text[1:].strip('"')
        self.expect("(")
        parameters: list[Parameter] = []
        while not self.accept(")"):
            value = self.expect("value").text
            self.expect(":")
            type_ = self.type()
            attributes = self.dictionary() if self.now.kind == "{" else {}
            parameters.append(Parameter(value, type_, attributes, self.location()))
            self.accept(",")
        types, result_attributes = self._results() if self.accept("arrow") else ((), ())
        if self.accept("word", "attributes"):
            self.dictionary()
        body = self.region(tuple(p.name for p in parameters))
        self.location()
        return HloFunction(name, tuple(parameters), types, result_attributes, body)

    def _results(self) -> tuple[tuple[HloType, ...], tuple[Mapping[str, Any], ...]]:
        if not self.accept("("):
            return (self.type(),), ({},)
        types: list[HloType] = []
        attributes: list[Mapping[str, Any]] = []
        while not self.accept(")"):
            types.append(self.type())
            attributes.append(self.dictionary() if self.now.kind == "{" else {})
            self.accept(",")
        return tuple(types), tuple(attributes)

    def _generic_function(self) -> HloFunction:
        found = self.operation()
        signature = found.attributes.get("function_type")
        if len(found.regions) != 1 or not isinstance(signature, tuple):
            self.fail("a function with a type and a body")
        types, results = signature
        given = found.attributes.get("arg_attrs") or [{}] * len(types)
        told = found.attributes.get("res_attrs") or [{}] * len(results)
        body = found.regions[0]
        places = self.argument_locations
        parameters = tuple(
            Parameter(name, type_, attributes, places.get(name, "")) for name, type_, attributes
            in zip(body.parameters, types, given, strict=True))
        return HloFunction(str(found.attributes.get("sym_name", "")), parameters, results,
                           tuple(told), body)

    def region(self, parameters: tuple[str, ...] = ()) -> Region:
        """``{ ... }`` with one block, whose arguments may come from outside."""
        self.deeper()
        self.expect("{")
        if self.now.kind == "block":
            parameters = self._block_header()
        operations: list[Operation] = []
        while not self.accept("}"):
            if self.now.kind == "block":
                self.fail("one block: programs with branches between blocks are not StableHLO")
            operations.append(self.operation())
        self.depth -= 1
        return Region(parameters, tuple(operations))

    def _block_header(self) -> tuple[str, ...]:
        self.take()
        names: list[str] = []
        if self.accept("("):
            while not self.accept(")"):
                name = self.expect("value").text
                names.append(name)
                self.expect(":")
                self.type()
                self.argument_locations[name] = self.location()
                self.accept(",")
        self.expect(":")
        return tuple(names)

    def operation(self) -> Operation:
        """One operation in either form."""
        results = self._result_names()
        token = self.take()
        if token.kind == "string":
            return self._generic(token.text.strip('"'), results, token.offset)
        if token.kind != "word":
            self.fail("an operation", token)
        try:
            return self.custom(_SHORT_NAMES.get(token.text, token.text), results, token.offset)
        except (TypeError, ValueError, LookupError, AttributeError) as error:
            if isinstance(error, WeftError):
                raise
            self.fail(f"an operation {token.text} with all its parts", token)

    def _result_names(self) -> tuple[str, ...]:
        names: list[str] = []
        while self.now.kind == "value":
            name = self.take().text
            if self.accept(":"):
                count = int(self.expect("number").text)
                names += [f"{name}#{n}" for n in range(count)]
            else:
                names.append(name)
            self.accept(",")
        if names:
            self.expect("=")
        return tuple(names)

    def _properties(self) -> dict[str, Any]:
        """``<{...}>``, if it comes here."""
        if self.now.kind != "<" or self.ahead().kind != "{":
            return {}
        self.take()
        found = self.dictionary()
        self.expect(">")
        return found

    def _generic(self, name: str, results: tuple[str, ...], offset: int) -> Operation:
        operands: list[str] = []
        self.expect("(")
        while not self.accept(")"):
            operands.append(self.expect("value").text)
            self.accept(",")
        attributes = self._properties()
        regions: list[Region] = []
        if self.accept("("):
            while not self.accept(")"):
                regions.append(self.region())
                self.accept(",")
        if self.now.kind == "{":
            attributes = {**attributes, **self.dictionary()}
        self.expect(":")
        operand_types = self.types()
        self.expect("arrow")
        result_types = self.types()
        return Operation(name, tuple(operands), results, attributes, tuple(regions),
                         operand_types, result_types, offset, self.location())

    def _signature_of_nothing(self) -> None:
        self.expect(":")
        self.types()
        self.expect("arrow")
        self.types()
