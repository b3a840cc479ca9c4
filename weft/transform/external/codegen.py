"""Bring your own code generator: what other compilers can take over.

A code generator says which calls it supports, and which patterns of calls it knows as one
composite operation. ``merge_composite`` marks the patterns, ``partition_graph`` cuts the regions
that a generator supports out of the program, as functions with the attribute ``compiler``, and
``generate_external`` asks the generator what shall stand for each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from weft.ir.expr import Call, Expr, Function
from weft.ir.module import IRModule
from weft.ir.rewrite.pattern import Term
from weft.support.registry import Registry


@dataclass(frozen=True, slots=True, eq=False)
class CompositePattern:
    """``name`` for what ``pattern`` matches, where ``check`` holds of the matched expression."""

    name: str
    pattern: Term
    check: Callable[[Expr], bool] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Region:
    """A part of a program that a generator has to make code for.

    ``function`` is typed, with sizes that are fixed; calls of composites are calls of functions
    with the attribute ``composite``. ``name`` is an identifier, the same for equal regions and
    for no others: a symbol to use. ``target`` is what the program is compiled for.
    """

    name: str
    function: Function
    target: Any


@dataclass(frozen=True, slots=True, eq=False)
class ObjectCode:
    """Machine code: an ELF object for the target that defines ``symbol``.

    ``void symbol(const void *input, ..., void *output, ...)``: a pointer for each tensor of the
    parameters and then of the result, in order. Arrays are dense, in C order, and do not overlap;
    the function must be safe to be called from several threads at once.
    """

    symbol: str
    object_code: bytes


@dataclass(frozen=True, slots=True, eq=False)
class TensorCode:
    """Tensor expressions: ``compute(*tensors)`` gives a tensor, or a tuple of them.

    weft schedules them and generates the code, as it does for operators of its own.
    """

    compute: Callable[..., Any]


@dataclass(frozen=True, slots=True, eq=False)
class PythonCode:
    """A Python function of NumPy arrays, called whenever the program comes to the region.

    ``call(*arrays)`` gives an array, or a tuple of them, of the types of the region. The
    arguments are read-only and end with the call. A program with such code cannot be exported.
    """

    call: Callable[..., Any]


# What may stand for a region; ``None`` leaves it to weft.
Generated: TypeAlias = "Function | IRModule | ObjectCode | TensorCode | PythonCode | None"


@dataclass(frozen=True, slots=True, eq=False)
class ExternalCodegen:
    """A code generator for parts of programs.

    ``supports`` is asked of every operator call; calls of its composites are always taken.
    ``generate`` makes the code of a region; without it regions can be cut out, not compiled.
    """

    name: str
    supports: Callable[[Call], bool]
    patterns: tuple[CompositePattern, ...] = ()
    generate: Callable[[Region], Generated] | None = None


EXTERNAL_CODEGENS: Registry[ExternalCodegen] = Registry("external code generator")


def register_external_codegen(
    name: str,
    *,
    supports: Callable[[Call], bool] | Sequence[str] = (),
    patterns: Sequence[CompositePattern] = (),
    generate: Callable[[Region], Generated] | None = None,
) -> ExternalCodegen:
    """Make a code generator known by ``name``; ``supports`` may be a list of operator names.

    ``weft.compile(model, codegens=[name])`` uses it. Raises ``RegistryError`` for a name in use.
    """
    if callable(supports):
        accepts = supports
    else:
        names = frozenset(supports)

        def accepts(call: Call) -> bool:
            return getattr(call.op, "name", None) in names

    codegen = ExternalCodegen(name, accepts, tuple(patterns), generate)
    return EXTERNAL_CODEGENS.register(name, codegen)
