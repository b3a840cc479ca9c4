"""Binding of call arguments to the inputs of a module."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from weft.runtime.manifest import Manifest
from weft.support.errors import InvalidInputError
from weft.support.suggestion import did_you_mean


class Signature:
    """The inputs and outputs of a module by number and by name."""

    __slots__ = ("_input_names", "_manifest", "_output_number")

    def __init__(self, manifest: Manifest) -> None:
        self._manifest = manifest
        self._input_names = tuple(spec.name for spec in manifest.inputs)
        self._output_number = {spec.name: i for i, spec in enumerate(manifest.outputs)}

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Sequence[Any]:
        """One value per input, in order.

        ``InvalidInputError`` for missing, surplus, duplicate or unknown arguments.
        """
        names = self._input_names
        if not kwargs and len(args) == len(names):
            return args
        if type(kwargs) is dict and not args and len(kwargs) == len(names):
            try:
                return [kwargs[name] for name in names]
            except KeyError:
                pass  # reported below
        if len(args) > len(names):
            raise self._error(f"the module takes {_count(len(names), 'input')}, {len(args)} given")
        given = dict(zip(names, args, strict=False))
        for name in kwargs:
            if name in given:
                raise self._error(f"input {name!r} is passed both by position and by name")
        self._refuse_unknown(kwargs, names, "input")
        given.update(kwargs)
        missing = [name for name in names if name not in given]
        if missing:
            listed = ", ".join(map(repr, missing))
            raise self._error(f"the module takes {_count(len(names), 'input')}, {len(given)} "
                              f"given: {listed} missing")
        return [given[name] for name in names]

    def takes(self, name: str) -> bool:
        """Whether ``name`` is the name of an input."""
        return name in self._input_names

    def output_numbers(self, names: Sequence[str]) -> list[int]:
        """The indices of named outputs; ``InvalidInputError`` for an unknown name."""
        if isinstance(names, str):
            names = [names]
        if not isinstance(names, Iterable):
            raise self._error("output names are not a sequence of names")
        self._refuse_unknown(names, tuple(self._output_number), "output")
        return [self._output_number[name] for name in names]

    def is_whole(self, outputs: object, inputs: object) -> bool:
        """Whether the program itself computes ``outputs`` from ``inputs``, or refuses them.

        Otherwise they name other tensors of the model.
        """
        if not isinstance(inputs, Mapping):
            return True
        inner = any(name not in self._input_names for name in inputs)
        if outputs is None:
            return not inner
        if isinstance(outputs, str) or not isinstance(outputs, Sequence):
            return True
        return not inner and len(inputs) == len(self._input_names) \
            and all(name in self._output_number for name in outputs)

    def _refuse_unknown(self, names: Iterable[str], known: tuple[str, ...], kind: str) -> None:
        unknown = [str(name) for name in names if name not in known]
        if unknown:
            raise self._error(f"unknown {kind}: {', '.join(map(repr, unknown))}",
                              help=did_you_mean(unknown[0], known))

    def _error(self, what: str, help: str | None = None) -> InvalidInputError:
        return InvalidInputError(what, expected=self._manifest.signature(), help=help)


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"
