"""Models with dynamic shapes.

Most have one general program, whose kernels take the sizes at run time. A model that cannot be
compiled so (a size that only data determines, an operator that needs numbers) is compiled as a
whole at the first call with each set of input shapes, and the program is cached for later calls.
"""

from __future__ import annotations

import dataclasses
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Integral
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

import numpy as np

from weft.compiler.compiled_model import Compilation, Compiled
from weft.compiler.executable import Executable
from weft.compiler.fallbacks import program_for_shapes
from weft.compiler.partial_programs import PartialPrograms
from weft.runtime import CompiledModule, Manifest, TensorSpec
from weft.runtime.call_sizes import SizeOutOfRangeError
from weft.runtime.calls_by_shape import CallsByShape
from weft.runtime.explain import explanation
from weft.runtime.named_call import NamedCall
from weft.runtime.ndarray import to_numpy
from weft.runtime.run_control import RunControl
from weft.runtime.sized_module import SizedModule, shape_of
from weft.runtime.state import State
from weft.runtime.vm.module import with_sizes
from weft.support.config import config
from weft.support.deprecation import renamed_arguments, renamed_method
from weft.support.errors import ArtifactError, InvalidInputError
from weft.support.fallback import recording, report
from weft.support.fork_locks import renew_in_child

if TYPE_CHECKING:
    from weft.compiler.options import CompileOptions

Sizes: TypeAlias = "tuple[tuple[int, ...], ...]"
CompileAt: TypeAlias = "Callable[[CompileOptions], Executable]"


class DynamicModel(CallsByShape, Compiled):
    """An executable for all sizes of the symbolic dimensions of its inputs.

    ``general`` is its program for all sizes. Without one, the model compiles at the first call with
    each set of input shapes, and keeps the ``WEFT_DYNAMIC_PROGRAMS`` programs used last; ``reason``
    says why. Several threads may call it at once.
    """

    def __init__(self, manifest: Manifest, compilation: Compilation, compile_at: CompileAt,
                 general: SizedModule | None = None, reason: str | None = None) -> None:
        super().__init__(manifest)
        self.reason = reason
        self.general = general
        if general is not None:
            self._fallbacks = general._fallbacks  # noqa: SLF001 - its calls are those of this
        self._compilation = compilation
        self._compile_at = compile_at
        self._parts = PartialPrograms(manifest)
        self._programs: OrderedDict[Sizes, Executable] = OrderedDict()
        self._limit = config.dynamic_programs
        self._compiled = 0
        self._table_lock = threading.Lock()
        renew_in_child(self, "_table_lock")
        self._compile_lock = threading.Lock()
        renew_in_child(self, "_compile_lock")

    @property
    def sizes(self) -> tuple[Sizes, ...]:
        """The input shapes of the cached programs, most recently used last."""
        with self._table_lock:
            return tuple(self._programs)

    @property
    def state(self) -> State:
        """The tensors that the module keeps from call to call, by the name of their input."""
        return State(()) if self.general is None else self.general.state

    def specialize(self, inputs: Mapping[str, Sequence[int]]) -> Executable:
        """The program for these input shapes: to export it, print it, or compile it ahead of time.

        An input with a fixed shape may be left out. Raises ``InvalidInputError`` for unknown
        inputs, for shapes of another rank, and for sizes that contradict the model.
        """
        if not isinstance(inputs, Mapping):
            raise InvalidInputError("specialize() takes shapes by input name", got=repr(inputs),
                                    expected='such as specialize({"x": (1, 3, 224, 224)})')
        known = {spec.name: spec.shape for spec in self.inputs}
        unknown = [name for name in inputs if name not in known]
        if unknown:
            raise InvalidInputError(f"unknown input {', '.join(map(repr, unknown))}",
                                    expected=self.manifest.signature())
        sizes: dict[str, int] = {}
        return self._program(tuple(_fixed(spec, inputs.get(spec.name, spec.shape), sizes)
                                   for spec in self.inputs))

    at = renamed_method("at", "specialize")

    @renamed_arguments(kind="format")
    def export(self, path: str | os.PathLike[str], *, format: str = "weft") -> None:
        """Write the general program as an artifact that runs at all sizes.

        Raises ``ArtifactError`` for a model without one, besides what other executables raise.
        """
        if self.general is not None:
            super().export(path, format=format)
            return
        raise ArtifactError(
            "a model with dynamic shapes cannot be exported: artifacts contain no compiler",
            where=path, got=self.manifest.signature(),
            notes=[] if self.reason is None else [f"not compiled for all sizes: {self.reason}"],
            help='give all sizes, as in weft.compile(model, inputs={"x": (1, 3, 224, 224)}), '
                 'or export model.specialize({"x": (1, 3, 224, 224)})',
        )

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the general program; the copy compiles for no further shapes.

        Raises ``ArtifactError`` for a model without one.
        """
        if self.general is None:
            return super().__reduce__()
        from weft.compiler.extensions import Extensions
        from weft.compiler.open_model import unpickled_for_all_sizes

        options = dataclasses.replace(self.options, extensions=Extensions(), records_file=None)
        return unpickled_for_all_sizes, (b"".join(map(bytes, self._code.to_parts())), options)

    def run(self, output_names: Sequence[str] | None, feeds: Mapping[str, Any],
            control: RunControl | None = None) -> list[np.ndarray]:
        """See ``CompiledModel.run``."""
        if self._parts.is_whole(output_names, feeds):
            return super().run(output_names, feeds, control)
        return self._parts.run(self._stages, output_names, feeds, control)

    def callable(self, outputs: Sequence[str] | None = None,
                 inputs: Sequence[str] | None = None) -> NamedCall:
        """See ``CompiledModel.callable``."""
        return self._parts.callable_of(self, self._stages, outputs, inputs)

    def explain(self) -> str:
        """See ``CompiledModule.explain``; says how many programs were compiled in calls."""
        made = (f"compiled for sets of input shapes: {self._compiled}, of which "
                f"{len(self._programs)} are kept (at most {self._limit}, WEFT_DYNAMIC_PROGRAMS)")
        return explanation(self.manifest.signature(), self._start, self._fallbacks,
                           [made] if self._compiled else [])

    def __repr__(self) -> str:
        kind = "for all sizes" if self.general is not None else (
            f"programs for {len(self._programs)} sizes")
        return f"<{type(self).__name__} {self.manifest.signature()}, {kind}>"

    def program_for(self, values: Sequence[Any]) -> Executable | CompiledModule:
        """The program for the shapes of these arguments, compiled if there is none.

        Raises ``InvalidInputError`` for shapes that do not fit the signature.
        """
        if self.general is not None:
            try:
                return self.general.program_for(values)
            except SizeOutOfRangeError:
                if self.state or not self._is_declared(values):
                    raise
                # Outside of what the compiler assumed: a program for these shapes.
        shapes = tuple([shape_of(value) for value in values])
        found = self._find(shapes)
        if found is not None:
            return found
        sizes: dict[str, int] = {}
        for value, spec in zip(values, self.inputs, strict=True):
            to_numpy(value, with_sizes(spec, value, sizes))  # raises before any compilation
        if self.general is not None:
            report(program_for_shapes(self.manifest), self._fallbacks)
        return self._program(shapes)

    def _is_declared(self, values: Sequence[Any]) -> bool:
        """Whether the sizes of the arguments are in the ranges that the user declared.

        The symbols of models of ONNX and torch have ranges that the compiler assumed, besides those
        of ``inputs``; other programs declare all ranges themselves.
        """
        from weft.ir.shape import SymDim, as_dim
        from weft.ir.symbol import is_symbol, range_of

        source = self._stages.source
        if source is None or not source.assumes_ranges:
            return False
        declared = self.options.input_shapes or {}
        for value, spec in zip(values, self.inputs, strict=True):
            for size, dim in zip(shape_of(value), declared.get(spec.name) or (), strict=False):
                if isinstance(bound := as_dim(dim), SymDim) and is_symbol(str(bound)) \
                        and size not in range_of(str(bound)):
                    return False
        return True

    def _find(self, shapes: Sizes) -> Executable | None:
        with self._table_lock:
            found = self._programs.get(shapes)
            if found is not None:
                self._programs.move_to_end(shapes)
            return found

    def _program(self, shapes: Sizes) -> Executable:
        with self._compile_lock:  # several threads may call with one new shape
            found = self._find(shapes)
            if found is not None:
                return found
            by_name = {spec.name: s for spec, s in zip(self.inputs, shapes, strict=True)}
            with recording(self._fallbacks):
                made = self._compile_at(self._stages.options.at(by_name))
                self._compiled += 1
            with self._table_lock:
                self._programs[shapes] = made
                while len(self._programs) > self._limit:
                    self._programs.popitem(last=False)
            return made


def _fixed(spec: TensorSpec, shape: Sequence[Any], sizes: dict[str, int]) -> tuple[int, ...]:
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
