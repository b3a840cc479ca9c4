"""The parser of whole modules: definitions of functions and data types, and imports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weft.ir.expr import Constructor, Expr, Function, TypeData
from weft.ir.module import IRModule
from weft.ir.shape import KnownDim
from weft.ir.text.libraries import LIBRARIES
from weft.ir.text.parse_expr import ExpressionParser
from weft.ir.text.parse_types import parse_value, string_value
from weft.ir.text.printer import READABLE_VERSIONS, VERSION
from weft.ir.types import GlobalTypeVar, Type
from weft.ir.visitor import run_routine
from weft.support.errors import RegistryError


class ModuleParser(ExpressionParser):
    """Parses definitions of functions and data types."""

    def __init__(self, text: str, source: str, into: IRModule | None) -> None:
        super().__init__(text, source)
        self.functions: dict[str, Function] = {}
        self.definitions: dict[str, TypeData] = {}
        self.attrs: dict[str, Any] = {}
        # A definition here may replace an imported one.
        self.imported: set[str] = set()
        self.imported_types: set[str] = set()
        self.imported_constructors: set[str] = set()
        if into is not None:
            self._include(into)
            self.attrs.update(into.attrs)

    def _include(self, mod: IRModule) -> None:
        self.functions.update(mod.functions)
        self.imported.update(mod.functions)
        for data in mod.type_definitions.values():
            self._define(data)
            self.imported_types.add(data.header.name)
            self.imported_constructors.update(c.name for c in data.constructors)

    def _define(self, data: TypeData) -> None:
        self.definitions[data.header.name] = data
        for constructor in data.constructors:
            self.constructors[constructor.name] = constructor

    def module(self) -> IRModule:
        self._header()
        tokens = self.tokens
        if not any(map(tokens.at, ("def", "type", "import"))) and tokens.kind != "end":
            main = IRModule.from_expr(self._to_the_end())["main"]
            return IRModule({**self.functions, "main": main}, self.definitions, self.attrs)
        while tokens.kind != "end":
            self._item()
        return IRModule(self.functions, self.definitions, self.attrs)

    def _item(self) -> None:
        tokens = self.tokens
        start = tokens.offset
        if tokens.accept("import"):
            self._import()
        elif tokens.at("type"):
            data = self._type_data()
            name = data.header.name
            if name in self.definitions and name not in self.imported_types:
                tokens.fail(f"the data type {name} is defined twice", offset=start)
            self.imported_types.discard(name)
            self._define(data)
        else:
            name, fn = self._definition()
            if name in self.functions and name not in self.imported:
                tokens.fail(f"@{name} is defined twice", offset=start)
            self.imported.discard(name)
            self.functions[name] = fn

    def _import(self) -> None:
        start = self.tokens.offset
        name = string_value(self.tokens)
        try:
            library = LIBRARIES.get(name)
        except RegistryError:
            known = ", ".join(f'"{n}"' for n in LIBRARIES)
            self.tokens.fail(f"unknown library {name!r}", expected=known, offset=start)
        self._include(library())

    def lone_expression(self) -> Expr:
        self._header()
        return self._to_the_end()

    def lone_dim(self) -> KnownDim:
        """The dimension that the whole text holds."""
        found = self.types.known_dim()
        self.tokens.expect_kind("end", "the end of the dimension")
        return found

    def lone_type(self) -> Type:
        found = self.types.type_()
        if self.tokens.kind != "end":
            self.tokens.fail("unexpected text after the type", expected="the end of the text")
        return found

    def _to_the_end(self) -> Expr:
        while self.tokens.accept("free_var"):
            self._declare(self._binder())
            self.tokens.expect(";")
        expr = run_routine(self.block())
        if self.tokens.kind != "end":
            self.tokens.fail("unexpected text after the expression", expected="the end of the text")
        return expr

    def _header(self) -> None:
        while self.tokens.accept("#["):
            key = self.tokens.expect_kind("name", "version or attrs")
            self.tokens.expect("=")
            value = parse_value(self.tokens)
            self.tokens.expect("]")
            if key == "version" and value not in READABLE_VERSIONS:
                self.tokens.fail("the text has an unsupported language version", expected=VERSION,
                                 got=value,
                                 help="upgrade weft, or print the module with this version")
            if key == "attrs" and isinstance(value, Mapping):
                self.attrs.update(value)

    def _type_data(self) -> TypeData:
        tokens = self.tokens
        tokens.expect("type")
        header = GlobalTypeVar(tokens.expect_kind("name", "the name of a data type"))
        generics = self.types.generics()
        constructors: list[Constructor] = []
        tokens.expect("{")
        while not tokens.accept("}"):
            span = tokens.span()
            name = tokens.expect_kind("name", "the name of a constructor")
            if name in self.constructors and name not in self.imported_constructors:
                tokens.fail(f"the constructor {name} is defined twice",
                            expected="a distinct name for each constructor of a module",
                            offset=tokens.offset_of(span))
            self.imported_constructors.discard(name)
            inputs = self._constructor_inputs()
            made = Constructor(name, inputs, header, len(constructors), span=span)
            constructors.append(made)
            self.constructors[name] = made
            if not tokens.at("}"):
                tokens.expect(",")
        self.types.type_vars = {}
        return TypeData(header, generics, tuple(constructors))

    def _constructor_inputs(self) -> tuple[Any, ...]:
        inputs = []
        if self.tokens.accept("("):
            while not self.tokens.accept(")"):
                inputs.append(self.types.type_())
                if not self.tokens.at(")"):
                    self.tokens.expect(",")
        return tuple(inputs)

    def _definition(self) -> tuple[str, Function]:
        self.tokens.expect("def", "expected a definition")
        span = self.tokens.span()
        name = self._global_name()
        return name, run_routine(self.function_rest(span))
