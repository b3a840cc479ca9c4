"""The module of a model, and the parameters by which a transformation differentiates it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from weft.compiler.options import CompileOptions
from weft.frontend.source import ModelLike, open_source
from weft.ir.module import IRModule
from weft.support.dataclass import dataclass
from weft.support.errors import OptionError
from weft.support.plugins import load_plugins
from weft.transform.analysis.graph import type_of
from weft.transform.autodiff.reverse.adjoint import is_differentiable

Inputs: TypeAlias = "Mapping[str, Sequence[object]] | None"
ExampleInputs: TypeAlias = "Sequence[Any] | Mapping[str, Any] | None"
Argnums: TypeAlias = "int | Sequence[int] | None"


def imported(model: ModelLike, inputs: Inputs, example_inputs: ExampleInputs) -> IRModule:
    """The typed module of ``model``; the arguments are those of ``weft.compile``."""
    load_plugins()
    options = CompileOptions.make(inputs=inputs)
    return open_source(model, example_inputs, options).import_module(options)


@dataclass(frozen=True, slots=True)
class Wanted:
    """The names of the parameters to differentiate by; ``single`` for one outside of a tuple."""

    names: tuple[str, ...]
    single: bool

    @staticmethod
    def of(mod: IRModule, argnums: Argnums, with_respect_to: str | Sequence[str]) -> Wanted:
        """By position, or by name; by default all parameters that hold floating point.

        Raises ``OptionError`` for positions that do not exist, for duplicates, for both at once,
        and for a program without a floating-point parameter.
        """
        params = mod["main"].params
        if argnums is not None:
            if with_respect_to:
                raise OptionError("argnums and with_respect_to are both given",
                                  help="name the parameters by position, or by name")
            single = isinstance(argnums, int)
            numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums)
            names = tuple(_at(n, [p.name for p in params]) for n in numbers)
        elif with_respect_to:
            single = isinstance(with_respect_to, str)
            names = (with_respect_to,) if isinstance(with_respect_to, str) else tuple(
                with_respect_to)
        else:
            single = False
            names = tuple(p.name for p in params if is_differentiable(type_of(p)))
        if not names:
            raise OptionError("no parameters to differentiate by",
                              got=", ".join(f"%{p.name}: {type_of(p)}" for p in params) or "none",
                              expected="floating-point parameters")
        repeated = [n for i, n in enumerate(names) if n in names[:i]]
        if repeated:
            raise OptionError(f"duplicate parameter %{repeated[0]}", got=", ".join(names))
        return Wanted(names, single)


def _at(number: int, names: list[str]) -> str:
    if isinstance(number, bool) or not -len(names) <= number < len(names):
        raise OptionError("argnums out of range", got=repr(number),
                          expected=f"0 to {len(names) - 1}: " + ", ".join(f"%{n}" for n in names))
    return names[number]
