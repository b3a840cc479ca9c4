"""Binding of call arguments to the inputs of a module."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral
from typing import Any, NoReturn, Protocol

import numpy as np

from weft.runtime.manifest import Manifest, TensorSpec
from weft.runtime.run_control import RunControl
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


class _Runs(Protocol):
    def run(self, output_names: Sequence[str] | None, feeds: dict[str, Any],
            control: RunControl | None = None) -> list[np.ndarray]:
        """The named outputs for inputs by name."""
        ...


class NamedCall:
    """Calls a program with its ``inputs`` by position; gives the list of its outputs."""

    def __init__(self, program: _Runs, outputs: Sequence[str] | None, inputs: Sequence[str]
                 ) -> None:
        self._program = program
        self._outputs = None if outputs is None else tuple(outputs)
        self.inputs = tuple(inputs)

    def __call__(self, *values: Any, control: RunControl | None = None) -> list[np.ndarray]:
        """Raises ``InvalidInputError`` for another number of values, and what ``run`` raises."""
        if len(values) != len(self.inputs):
            raise InvalidInputError("wrong number of arguments", got=len(values),
                                    expected=f"{len(self.inputs)}: {', '.join(self.inputs)}")
        return self._program.run(self._outputs, dict(zip(self.inputs, values, strict=True)),
                                 control)


def concrete_shapes(manifest: Manifest, inputs: Mapping[str, Sequence[int]]
                    ) -> tuple[tuple[int, ...], ...]:
    """The shapes of all inputs, with those that ``inputs`` gives; ``InvalidInputError``: unfit."""
    if not isinstance(inputs, Mapping):
        raise InvalidInputError("specialize() takes shapes by input name", got=repr(inputs),
                                expected='such as specialize({"x": (1, 3, 224, 224)})')
    known = {spec.name: spec.shape for spec in manifest.inputs}
    unknown = [name for name in inputs if name not in known]
    if unknown:
        raise InvalidInputError(f"unknown input {', '.join(map(repr, unknown))}",
                                expected=manifest.signature())
    sizes: dict[str, int] = {}
    return tuple(_concrete_shape(spec, inputs.get(spec.name, spec.shape), sizes)
                 for spec in manifest.inputs)


def _concrete_shape(spec: TensorSpec, shape: Sequence[Any], sizes: dict[str, int]
                    ) -> tuple[int, ...]:
    """``shape`` checked against an input; ``sizes`` are the dimensions known so far, by name."""
    def refuse(what: str, help: str | None = None) -> NoReturn:
        raise InvalidInputError(f"input {spec.name!r} {what}", expected=spec, got=repr(shape),
                                help=help)

    if isinstance(shape, (str, bytes)) or not isinstance(shape, Iterable):
        refuse("needs a tuple of sizes as its shape")
    given = tuple(shape)
    if len(given) != len(spec.shape):
        refuse(f"has rank {len(spec.shape)}, the shape given has rank {len(given)}")
    for axis, (size, declared) in enumerate(zip(given, spec.shape, strict=True)):
        if isinstance(size, str):
            refuse("has a dynamic shape", help="give the shape of every such input")
        if not isinstance(size, Integral) or isinstance(size, bool) or size < 0:
            refuse(f"cannot have size {size!r} (axis {axis})")
        if isinstance(declared, int) and size != declared:
            refuse(f"has a fixed size of {declared} (axis {axis}), not {size}")
        if isinstance(declared, str) and declared.isidentifier() \
                and sizes.setdefault(declared, int(size)) != size:
            refuse(f"cannot have size {size} (axis {axis}): {declared} is {sizes[declared]}")
    return tuple(map(int, given))
