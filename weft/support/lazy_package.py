"""Packages whose public names load the module that defines them when they are first used.

The ``__init__`` of such a package says its names once, by module::

    NAMES = {"weft.nn.modules.conv": "Conv1d Conv2d"}
    load_names_lazily(__name__, NAMES)

Type checkers read the stub that ``tools/lazy_index.py`` generates from this table.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from weft.support.interpreter import interrupts_held
from weft.support.suggestion import missing_attribute


class LazyPackage(ModuleType):
    """The class of such packages.

    ``weft_names`` maps a public name to the module that defines it and its name there. Other names
    are submodules. A public name hides a submodule of the same name, such as the operator
    ``conv2d`` the file ``conv2d.py``, as if the package had imported it: the import system may not
    bind that submodule.
    """

    weft_names: dict[str, tuple[str, str]]

    def __getattr__(self, name: str) -> Any:
        found = self.weft_names.get(name)
        if found is None:
            return self._submodule(name)
        module, attribute = found
        with interrupts_held():
            value = getattr(importlib.import_module(module), attribute)
        super().__setattr__(name, value)
        return value

    def _submodule(self, name: str) -> ModuleType:
        full = f"{self.__name__}.{name}"
        if not name.startswith("_"):
            try:
                with interrupts_held():
                    return importlib.import_module(full)
            except ModuleNotFoundError as error:
                if error.name != full:
                    raise
        raise missing_attribute(self.__name__, name, self.weft_names)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.weft_names and isinstance(value, ModuleType):
            return
        super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        public = self.__dict__.get("__all__", ())
        return sorted({*super().__dir__(), *self.weft_names, *public})


def load_names_lazily(package: str, modules: Mapping[str, str]) -> None:
    """Make ``package`` lazy.

    ``modules`` maps a module to the names in it, parted by spaces, each followed by ``=name`` where
    the package gives it another; names of the package itself are its public submodules.
    """
    names: dict[str, tuple[str, str]] = {}
    for module, defined in modules.items():
        for word in defined.split() if module != package else ():
            attribute, _, name = word.partition("=")
            names[name or attribute] = module, attribute
    made: Any = sys.modules[package]
    made.weft_names = names
    made.__all__ = sorted((*names, *modules.get(package, "").split()))
    made.__class__ = LazyPackage
