"""Files of ``torch.export.save``, checked before torch reads them.

torch unpickles parts of such a file, loads machine code from it, evaluates its sizes as Python,
writes its names into code, and takes any attribute of its modules for an operator. So a file that
would run code of its own is refused: one with pickled objects other than tensors, with compiled
code, with a size that is no arithmetic, a name that is none, or a function that is no operator.
"""

from __future__ import annotations

import ast
import io
import json
import math
import operator
import os
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch._ops import HigherOrderOperator, OpOverload
from torch.export.pt2_archive import PT2ArchiveReader
from torch.export.pt2_archive import constants as layout
from torch.export.pt2_archive._package import load_pt2
from torch.utils._sympy import functions as size_functions

from weft.frontend.torch.calls import SIZE_FUNCTIONS
from weft.frontend.torch.export import quiet, unlogged
from weft.support.allocation import allocation_budget, check_allocation
from weft.support.errors import InvalidModelError, UnsupportedModelError, WeftError

_LOAD = "if you trust the file, give weft.compile what torch.export.load(path) returns"
_OLDER = "save the program again with the installed torch: torch.export.save(program, path)"
_OBJECTS = (layout.CUSTOM_OBJ_FILENAME_PREFIX, layout.OPAQUE_OBJ_FILENAME_PREFIX)
_CODE = (layout.AOTINDUCTOR_DIR, layout.EXECUTORCH_DIR, layout.MTIA_DIR)
_ROOTS = {"_operator": operator, "math": math, "torch": torch}
# The functions in the texts of sizes; powers are computed when the text is read.
_POWERS = ("Pow", "PowByNatural", "FloatPow", "LShift")
_FUNCTIONS = frozenset((
    *_POWERS, *(name for name in dir(size_functions) if name[:1].isupper()),
    *("Symbol", "Integer", "Float", "Rational", "Add", "Mul", "Abs", "floor", "ceiling"),
    *("Eq", "Ne", "Ge", "Le", "Gt", "Lt", "And", "Or", "Not", "Max", "Min", "Piecewise"),
    *("Equality", "Unequality", "GreaterThan", "LessThan", "StrictGreaterThan", "StrictLessThan"),
))
# What torch writes into code for Python: names, and those in the structure of arguments.
_IN_CODE = {"name": re.compile(r"[\w.]*"), "in_spec": re.compile(r"[\w\s.,:\[\]{}\"\\/-]*")}
_ARITHMETIC = (ast.Expression, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.Name,
               ast.Load, ast.keyword, ast.operator, ast.unaryop, ast.boolop, ast.cmpop)


def load_archive(path: str | os.PathLike[str]) -> torch.export.ExportedProgram:
    """The program of a file that ``torch.export.save`` wrote.

    Raises ``InvalidModelError`` for a file that torch cannot read or that would run code, and
    ``UnsupportedModelError`` with all operators that are not registered in this process.
    """
    where = os.fspath(path)
    try:
        with allocation_budget(), quiet(), unlogged("torch.export"):
            _check_bytes(where)
            _check_records(PT2ArchiveReader(where))
            programs = load_pt2(where).exported_programs
    except WeftError as error:
        raise type(error)(error.what, where=where, expected=error.expected, got=error.got,
                          notes=error.notes, help=error.help) from None
    except Exception as error:  # torch raises errors of any class for damaged files
        raise InvalidModelError("torch cannot read the exported program", where=where,
                                got=f"{type(error).__name__}: {error}"[:500],
                                help=f"the installed torch is {torch.__version__}: "
                                     f"{_OLDER}") from error
    if len(programs) != 1:
        raise InvalidModelError("the file does not hold one program", where=where,
                                got=", ".join(programs) or "none", help=_LOAD)
    return next(iter(programs.values()))


def _check_bytes(path: str) -> None:
    """Refuse a file that is no archive, or whose records are larger than the budget allows."""
    try:
        with Path(path).open("rb"), zipfile.ZipFile(path) as archive:
            compressed = [r for r in archive.infolist() if r.compress_type != zipfile.ZIP_STORED]
    except OSError as error:
        raise InvalidModelError("the file cannot be read", got=str(error)) from None
    except zipfile.BadZipFile as error:
        raise InvalidModelError("not an exported program of torch", got=str(error),
                                expected="a file of torch.export.save") from None
    check_allocation((sum(record.file_size for record in compressed),), 1)


def _check_records(archive: Any) -> None:
    names = archive.get_file_names()
    for name in names:
        if name.startswith(_CODE):
            raise InvalidModelError("the file holds compiled code", got=name, help=_LOAD)
        if Path(name).name.startswith(_OBJECTS):
            raise InvalidModelError("the file holds pickled objects", got=name, help=_LOAD)
        if name.startswith((layout.WEIGHTS_DIR, layout.CONSTANTS_DIR)) and name.endswith(".pt"):
            raise InvalidModelError("the file has the format of an older torch", got=name,
                                    help=_OLDER)
        if name.startswith(layout.SAMPLE_INPUTS_DIR):
            _check_pickle(archive, name)
        if name.startswith((layout.WEIGHTS_DIR, layout.CONSTANTS_DIR)) and name.endswith(".json"):
            folder = name.rpartition("/")[0]
            for record in _json(archive, name)["config"].values():
                if record["use_pickle"]:
                    _check_pickle(archive, f"{folder}/{record['path_name']}")
        if name.startswith(layout.MODELS_DIR):
            _check_program(_json(archive, name))


def _json(archive: Any, name: str) -> Any:
    return json.loads(archive.read_bytes(name))


def _check_pickle(archive: Any, name: str) -> None:
    """Refuse a pickle of anything but tensors in tuples, lists and dictionaries."""
    data = archive.read_bytes(name)
    if not data:
        return
    try:
        torch.load(io.BytesIO(data), weights_only=True)
    except Exception as error:  # of the unpickler, which damaged data makes raise anything
        raise InvalidModelError("the file holds pickled objects other than tensors", got=name,
                                notes=[f"{type(error).__name__}: {error}".split("\n", 1)[0]],
                                help=_LOAD) from error


def _check_program(program: Any) -> None:
    unknown: dict[str, None] = {}
    for record in _records(program):
        if "expr_str" in record:
            _check_size(record["expr_str"])
        for key, text in record.items():
            if isinstance(text, str) and key in _IN_CODE and not _IN_CODE[key].fullmatch(text):
                raise InvalidModelError(f"the program has a {key} that is no name",
                                        got=repr(text)[:100])
        if "target" in record and "inputs" in record and isinstance(record["target"], str):
            name = record["target"]
            if _resolved(name) is None and not name.startswith("#"):
                unknown[name] = None
    if unknown:
        raise UnsupportedModelError(
            f"{len(unknown)} of the program's operators are not registered in this process",
            notes=list(unknown), help="import the libraries that define them before")


def _records(value: Any) -> Iterator[dict[str, Any]]:
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            yield one
            waiting += one.values()
        elif isinstance(one, list):
            waiting += one


def _resolved(name: str) -> Any:
    """The operator of a name; ``None`` if there is none.

    Raises ``InvalidModelError`` for the name of something else.
    """
    root, *parts = name.split(".")
    found: Any = _ROOTS.get(root)
    if found is None or not parts:
        return None
    for part in parts:
        found = getattr(found, part, None)
    if found is None:
        return None
    is_plain = getattr(found, "__module__", "") in ("_operator", "math") \
        or found in SIZE_FUNCTIONS
    if not isinstance(found, (OpOverload, HigherOrderOperator)) and not is_plain:
        raise InvalidModelError("the program calls a function that is no operator", got=name)
    return found


def _check_size(text: Any) -> None:
    """Refuse a size whose text is not arithmetic on symbols."""
    try:
        tree = ast.parse(text, mode="eval")
    except (SyntaxError, TypeError, ValueError, RecursionError, MemoryError):
        tree = None
    if tree is None or not all(map(_is_arithmetic, ast.walk(tree))):
        raise InvalidModelError("a size of the program is no arithmetic", got=repr(text)[:100])


def _is_arithmetic(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        return name in _FUNCTIONS and (name not in _POWERS or _is_small_power(*node.args[:2]))
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Pow, ast.LShift)):
        return _is_small_power(node.left, node.right)
    if isinstance(node, ast.Constant):  # ``Symbol('s0', integer=True)`` has the name of a symbol
        return isinstance(node.value, (bool, int, float)) \
            or (isinstance(node.value, str) and node.value.isidentifier())
    return isinstance(node, _ARITHMETIC)


def _is_small_power(base: ast.AST | None = None, exponent: ast.AST | None = None) -> bool:
    """Whether a power is of a symbol: one of numbers would be computed, however large it is."""
    is_symbol = isinstance(base, ast.Name) or (isinstance(base, ast.Call)
                                               and getattr(base.func, "id", "") == "Symbol")
    if isinstance(exponent, ast.Call) and len(exponent.args) == 1:  # ``Integer(2)``
        exponent = exponent.args[0]
    return is_symbol and isinstance(exponent, ast.Constant) and exponent.value in range(64)
