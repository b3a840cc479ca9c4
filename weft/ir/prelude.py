"""The prelude: lists, options and trees, with the functions over them, written in weft's text.

``prelude.weft`` is parsed and type-checked on first use. A text imports it by ``import "prelude"``,
a program by ``import_prelude(mod)``. The same folder has other libraries: ``import "nat"`` defines
natural numbers as Peano numerals.
"""

from __future__ import annotations

import functools
from pathlib import Path

from weft.ir.expr import Constructor, GlobalVar, TypeData
from weft.ir.module import IRModule
from weft.ir.structural import structural_equal
from weft.ir.text.libraries import LIBRARIES
from weft.ir.text.parser import parse
from weft.ir.types import GlobalTypeVar
from weft.ir.typing.infer import infer_type
from weft.support.errors import RegistryError

_FOLDER = Path(__file__).parent / "std"


@functools.cache
def library(name: str) -> IRModule:
    """The typed module of ``std/NAME.weft``, with what it imports."""
    file = f"{name}.weft"
    return infer_type(parse((_FOLDER / file).read_text(encoding="utf-8"), source=file))


def prelude() -> IRModule:
    """The typed module of the prelude; the catalogue of operators (``weft.op``) must be imported.

    Types: ``List{Cons, Nil}``, ``Option{Some, None}``, ``Tree{Rose}``; functions: ``@id``,
    ``@compose``, ``@map``, ``@foldl`` and twenty more, named as in Relay.
    """
    return library("prelude")


def import_prelude(mod: IRModule) -> IRModule:
    """``mod`` with the definitions of the prelude; ``RegistryError`` for conflicting names."""
    std = prelude()
    for name, data in std.type_definitions.items():
        other = mod.type_definitions.get(name)
        if other is not None and _shape_of(other) != _shape_of(data):
            raise RegistryError(f"the data type {name} of the prelude has another definition here")
    for name, fn in std.functions.items():
        if name in mod and not structural_equal(mod[name], fn):
            raise RegistryError(
                f"@{name} of the prelude has another definition here", help="rename this function"
            )
    return IRModule({**std.functions, **mod.functions},
                    {**std.type_definitions, **mod.type_definitions}, mod.attrs)


def _shape_of(data: TypeData) -> list[tuple[str, int]]:
    return [(c.name, len(c.inputs)) for c in data.constructors]


class Prelude:
    """A module that contains the prelude, and access to its names for builders in Python::

    p = Prelude(mod)
    cons, nil = p.get_ctor("Cons"), p.get_ctor("Nil")
    one = cons(const(1), nil())
    """

    def __init__(self, mod: IRModule | None = None) -> None:
        self.mod = import_prelude(mod or IRModule())

    def get_global_var(self, name: str) -> GlobalVar:
        """The function ``@name``; raises ``RegistryError`` if it does not exist."""
        return GlobalVar(name, checked_type=self.mod[name].checked_type)

    def get_type(self, name: str) -> GlobalTypeVar:
        """The data type ``name``; raises ``RegistryError`` if it does not exist."""
        return self._definition(name).header

    def get_ctor(self, name: str) -> Constructor:
        """The constructor ``name``; raises ``RegistryError`` if it does not exist."""
        every = [c for data in self.mod.type_definitions.values() for c in data.constructors]
        for constructor in every:
            if constructor.name == name:
                return constructor
        known = ", ".join(c.name for c in every)
        raise RegistryError(f"unknown constructor {name!r}", expected=f"one of {known}")

    def _definition(self, name: str) -> TypeData:
        try:
            return self.mod.type_definitions[name]
        except KeyError:
            known = ", ".join(self.mod.type_definitions)
            raise RegistryError(f"unknown data type {name!r}", expected=known) from None


for _name in ("prelude", "nat"):
    LIBRARIES.register(_name, functools.partial(library, _name))
