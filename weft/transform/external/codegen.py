"""Bring your own code generator: delegate regions of a program to another compiler.

A code generator declares the calls it supports, and patterns of calls that it handles as one
composite operation. ``merge_composite`` marks the patterns, ``partition_graph`` moves the regions
that a generator supports into functions with the attribute ``compiler``, and
``generate_external`` asks the generator for a replacement of each region.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from weft.ir import Call, Expr, Function, IRModule
from weft.ir.rewrite.pattern import Term
from weft.support.dataclass import dataclass
from weft.support.registry import Registry


@dataclass(frozen=True, slots=True, eq=False)
class CompositePattern:
    """``name`` for expressions that match ``pattern`` and satisfy ``check``."""

    name: str
    pattern: Term
    check: Callable[[Expr], bool] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Region:
    """A part of a program that a generator compiles.

    ``function`` is typed and has static shapes; calls of composites are calls of functions with
    the attribute ``composite``. ``name`` is an identifier that only equal regions share, so it can
    serve as a symbol. ``target`` is the target of the program.
    """

    name: str
    function: Function
    target: Any


@dataclass(frozen=True, slots=True, eq=False)
class ObjectCode:
    """Machine code: an ELF object for the target that defines ``symbol``.

    ``void symbol(const void *input, ..., void *output, ...)``: a pointer for each tensor of the
    parameters and then of the result, in order. Arrays are dense, in C order, and do not overlap;
    the function must be thread-safe.
    """

    symbol: str
    object_code: bytes


@dataclass(frozen=True, slots=True, eq=False)
class TensorCode:
    """Tensor expressions: ``compute(*tensors)`` returns a tensor, or a tuple of them.

    weft schedules them and generates the code, as for its own operators.
    """

    compute: Callable[..., Any]


@dataclass(frozen=True, slots=True, eq=False)
class PythonCode:
    """A Python function of NumPy arrays, called each time the program reaches the region.

    ``call(*arrays)`` returns an array, or a tuple of them, of the region's types. The arguments
    are read-only and valid only during the call. A program with such code cannot be exported.
    """

    call: Callable[..., Any]


# The replacement of a region; ``None`` leaves the region to weft.
Generated: TypeAlias = "Function | IRModule | ObjectCode | TensorCode | PythonCode | None"


@dataclass(frozen=True, slots=True, eq=False)
class ExternalCodegen:
    """A code generator for parts of programs.

    ``supports`` decides for each operator call; calls of its composites are always supported.
    ``generate`` compiles a region; without it, regions can be partitioned but not compiled.
    """

    name: str
    supports: Callable[[Call], bool]
    patterns: tuple[CompositePattern, ...] = ()
    generate: Callable[[Region], Generated] | None = None


EXTERNAL_CODEGENS: Registry[ExternalCodegen] = Registry("external code generator")


def register_external_codegen(
    name: str, *, supports: Callable[[Call], bool] | Sequence[str] = (),
    patterns: Sequence[CompositePattern] = (), generate: Callable[[Region], Generated] | None = None
) -> ExternalCodegen:
    """Register a code generator as ``name``; ``supports`` may be a list of operator names.

    ``weft.compile(model, codegens=[name])`` uses it. Raises ``RegistryError`` for a duplicate name.
    """
    if callable(supports):
        accepts = supports
    else:
        names = frozenset(supports)

        def accepts(call: Call) -> bool:
            return getattr(call.op, "name", None) in names

    codegen = ExternalCodegen(name, accepts, tuple(patterns), generate)
    return EXTERNAL_CODEGENS.register(name, codegen)
