"""Digests of Python code and values, used as cache keys of models.

The digest of a user's function or class covers its bytecode, constants, defaults, closures and the
globals that it names. An object of an installed library counts by its name and the version of the
library, provided that the name still leads to this object. Other references raise
``UnknownError``, which names the object without a digest.

A digest is the same in every process: it holds no address, order of a hash, time, or folder of the
code. It also keeps a digest of each part (a class, a function, a global), so that a start that was
not warm can say what changed.
"""

from __future__ import annotations

import dis
import enum
import functools
import hashlib
import importlib.metadata
import site
import sys
import sysconfig
import weakref
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePath
from types import (
    BuiltinFunctionType,
    CodeType,
    FunctionType,
    MappingProxyType,
    MethodType,
    ModuleType,
)
from typing import Any

import torch

from weft.frontend.torch.value_digest import builtin_name, content_of, is_of_c, owner_of

_PLAIN = (int, float, complex, str, bytes, bool, type(None), type(...), torch.dtype, torch.device,
          torch.layout, torch.memory_format, torch.Size, range)
# Standard library modules whose functions always return the same results.
_STANDARD = frozenset((
    "abc", "builtins", "collections", "contextlib", "copy", "dataclasses", "enum", "functools",
    "itertools", "math", "numbers", "operator", "re", "string", "types", "typing", "warnings",
    "_operator", "_collections_abc", "_functools", "__future__",
))
_CHANGING = frozenset(("random", "environ", "getenv", "time", "open", "globals", "exec", "eval",
                       "__import__", "import_module", "ops"))
# Class attributes that do not affect behaviour, or that Python derives from the others.
_BOOKKEEPING = frozenset(("__dict__", "__weakref__", "__doc__", "__module__", "__annotations__",
                          "__firstlineno__", "__static_attributes__", "__orig_bases__",
                          "__parameters__", "__abstractmethods__", "_abc_impl"))


# Functions of libraries that read files, whose content no digest covers.
_READERS = frozenset((("torch.serialization", "load"), ("torch.jit._serialization", "load"),
                      ("numpy", "load"), ("numpy", "fromfile"), ("numpy", "loadtxt"),
                      ("numpy", "genfromtxt"), ("numpy", "memmap")))
# Functions of Python whose results differ from process to process.
_CHANGING_GLOBALS = frozenset(("id", "hash", "input"))


class UnknownError(Exception):
    """Code refers to an object that has no digest; the text names it."""


class Digest:
    """Accumulates the digest of a model; ``text`` is equal for equal models."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self._seen: dict[int, int] = {}
        self._kept: list[object] = []  # keeps the ids in ``_seen`` valid
        self._libraries: set[str] = set()
        self._namespaces: set[str] = set()
        self._named: set[tuple[str, frozenset[str]]] = set()
        self._parts: dict[str, Any] = {}
        self._label = "the model"
        self._folder = ""

    @contextmanager
    def part(self, label: str) -> Iterator[None]:
        """What the block adds, except in inner blocks, belongs to the part ``label``."""
        before, self._label = self._label, label
        try:
            yield
        finally:
            self._label = before

    @property
    def parts(self) -> dict[str, str]:
        """The digest of each part, by its label."""
        versions = {f"the version of {name}": _version(name) for name in sorted(self._libraries)}
        return {label: part.hexdigest()[:16] for label, part in self._parts.items()} | versions

    @property
    def text(self) -> str:
        """The digest of everything added and of the versions of the libraries used."""
        whole = self._hash.copy()
        for name in sorted(self._libraries):
            whole.update(f"{name} {_version(name)}".encode())
        return whole.hexdigest()

    def add(self, *parts: object) -> None:
        """Add the ``repr`` of numbers and strings."""
        for part in parts:
            data = repr(part).encode()
            self._update(len(data).to_bytes(8, "little") + data)

    def _update(self, data: bytes) -> None:
        self._hash.update(data)
        if self._label not in self._parts:
            self._parts[self._label] = hashlib.sha256()
        self._parts[self._label].update(data)

    def add_bytes(self, data: Any) -> None:
        """Add raw bytes."""
        self._update(hashlib.sha256(data).digest())

    def known(self, value: object) -> None:
        """Record an object whose content was already added, or is added elsewhere."""
        self._seen[id(value)] = len(self._seen)
        self._kept.append(value)

    def value(self, value: Any) -> None:
        """Add an object that code refers to; raises ``UnknownError`` if it has no digest."""
        if type(value) in _PLAIN:
            self.add(type(value).__name__, self._without_folder(value))
        elif id(value) in self._seen:
            self.add("again", self._seen[id(value)])
        else:
            self.known(value)
            self._structured(value)

    def _without_folder(self, value: Any) -> Any:
        """A text or path without the folder of the code that is being added."""
        if self._folder and isinstance(value, str) and f"{value}/".startswith(self._folder):
            return "<folder>" + f"{value}/".removeprefix(self._folder)
        return value

    def _structured(self, value: Any) -> None:
        kind = type(value)
        content = content_of(value)
        if content is not None:
            self.add(*content)
        elif kind in (list, tuple, OrderedDict, dict, MappingProxyType):
            self._items(value)
        elif isinstance(value, PurePath):
            self.value((kind.__name__, str(value)))
        elif kind is slice:
            self._items([value.start, value.stop, value.step])
        elif kind in (set, frozenset):
            self._set(value)
        elif isinstance(value, enum.Enum):
            self.klass(kind)
            self.add(value.name, repr(value.value) if type(value.value) in _PLAIN else "")
        elif isinstance(value, type):
            self.klass(value)
        elif isinstance(value, FunctionType):
            self.function(value)
        elif isinstance(value, MethodType):
            self.value(value.__self__)
            self.function(value.__func__)
        elif kind is weakref.ref:
            self.value(value())
        elif kind is functools._lru_cache_wrapper:  # noqa: SLF001 - has no public name
            self.value(value.__wrapped__)
        elif kind is functools.partial:
            self._items([value.func, value.args, value.keywords])
        elif isinstance(value, ModuleType):
            self._library(value.__name__)
        elif _named(value) is not None:
            self._library_object(value)
        elif is_of_c(value):
            self._of_c(value)
        else:
            self._object(value)

    def _of_c(self, value: Any) -> None:
        """A method of C that is bound to an object, or a descriptor of a user's class."""
        owner = owner_of(value)
        if isinstance(owner, (type, ModuleType)) and not is_library(
                owner.__module__ if isinstance(owner, type) else owner.__name__):
            self.add("member", owner.__name__, value.__name__)
            return
        if owner is None or isinstance(owner, (type, ModuleType)):
            raise UnknownError(f"{value.__name__}, which its name does not lead to")
        self.add("bound", value.__name__)
        self.value(owner)

    def _set(self, values: Any) -> None:
        """A set, whose order differs from process to process: in the order of the digests."""
        found = []
        for value in values:
            one = Digest()
            one._folder = self._folder
            one.value(value)
            self._libraries |= one._libraries
            found.append(one.text)
        self.add(type(values).__name__, sorted(found))

    def _object(self, value: Any) -> None:
        """An instance of a class: the class and the values of its attributes."""
        kind = type(value)
        if isinstance(value, (torch.Tensor, torch.nn.Module)):
            raise UnknownError(f"a {kind.__name__} that is not part of the model")
        is_container = isinstance(value, (list, tuple, dict))
        slots = {name: getattr(value, name) for base in kind.__mro__
                 for name in _slots_of(base) if hasattr(value, name)}
        if not (is_container or slots or hasattr(value, "__dict__")):
            raise UnknownError(f"a value of {kind.__module__}.{kind.__qualname__}")
        self.klass(kind)
        if is_container:
            self._items(value)
            self.value(getattr(value, "default_factory", None))
        self._items({**slots, **getattr(value, "__dict__", {})})

    def _items(self, values: Any) -> None:
        self.add(type(values).__name__, len(values))
        pairs = values.items() if isinstance(values, Mapping) else enumerate(values)
        for key, value in list(pairs):
            self.value(key)
            self.value(value)

    def klass(self, kind: type) -> None:
        """Add a class: by name if a library defines it, else by its functions and values."""
        if is_library(kind.__module__):
            self._library_object(kind)
            return
        with self.part(f"class {kind.__qualname__}"):
            self._own_class(kind)

    def _own_class(self, kind: type) -> None:
        self.add("class", kind.__qualname__, len(kind.__mro__))
        for base in kind.__mro__[1:]:
            self.value(base)
        for name, member in sorted(vars(kind).items()):
            if name in _BOOKKEEPING:
                continue
            self.add(name)
            for part in _functions_of(member):
                with self.part(f"value of {kind.__qualname__}.{name}"):
                    self.value(part)

    def function(self, function: FunctionType) -> None:
        """Add a function: by name if a library defines it, else by its code and globals."""
        file = function.__code__.co_filename
        if is_library_file(file) and (_named(function) is not None or not _is_wrapper(function)):
            self._library_object(function)
            return
        if not file.startswith("<") and is_library_file(file):
            self._library_wrapper(function)
            return
        before, self._folder = self._folder, _folder_of(file) or self._folder
        try:
            with self.part(f"code of {function.__qualname__}"):
                self._own_function(function)
        finally:
            self._folder = before

    def _library_wrapper(self, function: FunctionType) -> None:
        """Add a library's wrapper of a user's function, and the values that it closes over."""
        self._library(function.__globals__["__name__"])
        self.add("wrapper", function.__code__.co_qualname)
        for cell in function.__closure__ or ():
            self.value(cell.cell_contents)

    def _own_function(self, function: FunctionType) -> None:
        names = self._code(function.__code__)
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        values = {name: cell.cell_contents for name, cell in cells}
        values |= {n: function.__globals__[n] for n in names if n in function.__globals__}
        self.value((function.__defaults__, function.__kwdefaults__))
        for name in sorted(values):
            self.add(name)
            with self.part(f"value of {name}"):
                self._named_value(values[name], names)

    def _named_value(self, value: Any, names: frozenset[str]) -> None:
        """Add a global; of a module that the user wrote, only the attributes in ``names``."""
        if not isinstance(value, ModuleType):
            self.value(value)
            return
        if (value.__name__, names) in self._named:
            return
        self._named.add((value.__name__, names))
        library = is_library(value.__name__)
        if library:
            self._library(value.__name__)
        self.add("module", value.__name__)
        for name in sorted(names & vars(value).keys()):
            found = vars(value)[name]
            if (getattr(found, "__module__", None), name) in _READERS:
                raise UnknownError(f"{value.__name__}.{name}, which reads a file")
            if not library or (isinstance(found, ModuleType) and is_library(found.__name__)):
                self.add(name)
                self._named_value(found, names)

    def _code(self, code: CodeType) -> frozenset[str]:
        """Add bytecode and constants; returns the names and strings in the code."""
        instructions = list(dis.get_instructions(code))
        imports = {i.argval for i in instructions if i.opname == "IMPORT_NAME"}
        # Methods that Python calls for its tables may hash; programs do not see the result.
        loaded = {i.argval for i in instructions if i.opname == "LOAD_GLOBAL"
                  and code.co_name != "__hash__"}
        for name in sorted((_CHANGING & {*code.co_names}) | (_CHANGING_GLOBALS & loaded)):
            raise UnknownError(f"{code.co_qualname} uses {name}, whose result may change")
        for name in sorted(imports):
            if not is_library(name):
                raise UnknownError(f"{code.co_qualname} imports {name}")
        self.add(code.co_code, code.co_names, code.co_varnames, code.co_freevars, code.co_argcount)
        names = frozenset(code.co_names)
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                names |= self._code(constant)
            else:
                self.value(constant)
                names |= {constant} if isinstance(constant, str) else frozenset()
        return names

    def _library(self, name: str) -> None:
        if not is_library(name):
            raise UnknownError(f"module {name}")
        self._libraries.add(name.partition(".")[0])
        self.add("library", name)
        if name not in self._namespaces and name in sys.modules:
            self._namespaces.add(name)
            self.namespace(vars(sys.modules[name]))

    def namespace(self, members: Mapping[str, Any]) -> None:
        """Add the functions of a library that have other names; a user may have replaced some.

        What a library defines as it goes does not change the digest. Raises ``UnknownError`` for
        functions that the user wrote, also for those in dicts.
        """
        for name, member in sorted(members.items()):
            parts = member.values() if type(member) is dict else _functions_of(member)
            for function in list(parts):
                if isinstance(function, BuiltinFunctionType) and function.__name__ != name:
                    self.add(name, function.__name__)
                if not isinstance(function, FunctionType):
                    continue
                if not is_library_file(function.__code__.co_filename):
                    raise UnknownError(f"{function.__qualname__} replaces a library function")
                if function.__name__ != name:
                    self.add(name, function.__module__, function.__qualname__)

    def _library_object(self, value: Any) -> None:
        """Add a function or class that its library defines under its name."""
        named = _named(value)
        if named is None:
            name = getattr(value, "__qualname__", type(value).__name__)
            raise UnknownError(f"{name}, which is not found under its name")
        if named in _READERS:
            raise UnknownError(f"{'.'.join(named)}, which reads a file")
        self._library(named[0])
        self.add(named)
        if isinstance(value, type):
            self.namespace(vars(value))


def _functions_of(member: Any) -> list[Any]:
    if isinstance(member, (staticmethod, classmethod)):
        return [member.__func__]
    if isinstance(member, property):
        return [member.fget, member.fset]
    if isinstance(member, functools.cached_property):
        return [member.func]
    return [member]


def _slots_of(kind: type) -> tuple[str, ...]:
    """The names of the slots that a class declares, besides those for bookkeeping."""
    slots = vars(kind).get("__slots__", ())
    names = (slots,) if isinstance(slots, str) else tuple(slots)
    return tuple(name for name in names if name not in ("__dict__", "__weakref__"))


def _is_wrapper(function: FunctionType) -> bool:
    """Whether a library made the function for a user's module: for a dataclass, by a decorator."""
    return not is_library(function.__module__ or "") \
        or "<locals>" in function.__code__.co_qualname


def _folder_of(file: str) -> str:
    """The folder of a file of the user's code, with a separator; empty for generated code."""
    return "" if file.startswith("<") else f"{Path(file).absolute().parent}/"


def _named(value: Any) -> tuple[str, str] | None:
    """The module and name under which a library defines the value, or ``None``."""
    if isinstance(value, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):  # noqa: SLF001
        return "torch", str(value)
    if is_of_c(value):
        found_name = builtin_name(value)
        return found_name if found_name is not None and is_library(found_name[0]) else None
    module = getattr(value, "__module__", None)
    name = getattr(value, "__qualname__", None) or getattr(value, "__name__", None)
    if not isinstance(module, str) or not isinstance(name, str) or not is_library(module):
        return None
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return (module, name) if found is value else None


@functools.cache
def is_library(module: str) -> bool:
    """Whether a module belongs to a library that its name and version identify."""
    top = module.partition(".")[0]
    if top in sys.stdlib_module_names:
        return top in _STANDARD
    file = getattr(sys.modules.get(top), "__file__", None)
    return file is not None and is_library_file(file) and _version(top) != ""


@functools.cache
def is_library_file(file: str) -> bool:
    """Whether a file belongs to an installed library.

    Generated methods, such as those of dataclasses, have the file ``<string>``. A user's function
    with that file is rejected later, because its name does not lead to it.
    """
    if file.startswith(("<frozen", "<string>", "<attrs", "<__array_function__")):
        return True
    paths = {*site.getsitepackages(), site.getusersitepackages(),
             sysconfig.get_paths()["stdlib"], sysconfig.get_paths()["platstdlib"]}
    return any(file.startswith(f"{path}/") for path in paths)


@functools.cache
def _version(package: str) -> str:
    if package in sys.stdlib_module_names:
        return sys.version
    for name in importlib.metadata.packages_distributions().get(package, ()):
        return importlib.metadata.version(name)
    return ""
