"""Kernels as callables on arrays, and specialisation of kernels with dynamic shapes."""

from __future__ import annotations

import threading
from collections.abc import Hashable, Sequence
from typing import Protocol, TypeAlias

import numpy as np

from weft.runtime.arena import AlignedBlock, addresses_of
from weft.runtime.call_sizes import SizeSolver, steps_at
from weft.runtime.devices.cpu import threads
from weft.runtime.dtypes import numpy_dtype
from weft.runtime.library import Library, synchronous
from weft.runtime.manifest import Manifest
from weft.runtime.sizes import evaluate
from weft.runtime.vm.program import (
    SpecialKernel,
    SymbolicKernel,
    TensorForm,
    VmKernel,
    VmProgram,
)
from weft.support.errors import ArtifactError, InvalidInputError
from weft.support.fork_locks import renew_in_child

Shapes: TypeAlias = "tuple[tuple[int, ...], ...]"
# Kernel number, argument shapes, and the bytes of the arguments whose values determine sizes.
_Key: TypeAlias = "tuple[int, Shapes, tuple[bytes, ...]]"

# Maximum number of specialisations kept; the oldest is evicted.
MAX_SPECIAL = 1024


def _key_of(one: SpecialKernel) -> _Key:
    return one.number, one.shapes, tuple(map(bytes.fromhex, one.values))


class Specialize(Protocol):
    """Compiles a kernel with dynamic shapes for given shapes."""

    def __call__(self, kernel: VmKernel, shapes: Shapes, values: Sequence[np.ndarray]
                 ) -> tuple[VmKernel, Library]:
        """The compiled kernel for arguments of these shapes.

        ``values`` are the arguments in ``kernel.value_args``.
        """
        ...


class Scratch:
    """The workspace of one run, which grows on demand."""

    __slots__ = ("_block",)

    def __init__(self) -> None:
        self._block = AlignedBlock(0)

    def address(self, nbytes: int) -> int:
        if nbytes > self._block.nbytes:
            self._block = AlignedBlock(nbytes, purpose="the workspace of kernels")
        return self._block.address


class LoadedKernel:
    """Machine code of a kernel at fixed shapes; keeps its library loaded.

    ``scalars`` are the values of the parameters that hold sizes.
    """

    __slots__ = ("_call", "_input_shapes", "_library", "_outputs", "_scalars", "_workspace_bytes",
                 "facts")

    def __init__(self, facts: VmKernel, library: Library, scalars: Sequence[int] = ()) -> None:
        self.facts = facts
        self._library = library
        self._input_shapes = list(facts.input_shapes)
        self._outputs = [(form.shape, numpy_dtype(form.dtype)) for form in facts.outputs]
        if facts.counted:
            self._outputs.append(((facts.num_counts,), np.dtype(np.int64)))
        self._workspace_bytes = facts.workspace_bytes
        self._scalars = scalars
        count = (facts.num_inputs + len(self._outputs) + len(scalars)
                 + (self._workspace_bytes > 0))
        # Bytecode reads the results right after the call.
        self._call = synchronous(library, library.kernel(facts.symbol, count))

    def __call__(self, args: Sequence[np.ndarray], scratch: Scratch) -> list[np.ndarray]:
        """Run the kernel; new arrays with the results.

        ``InvalidInputError`` for arguments of other shapes.
        """
        if [a.shape for a in args] != self._input_shapes:
            raise _other_sizes(self.facts, args)
        results = [np.empty(shape, dtype) for shape, dtype in self._outputs]
        pointers = [*addresses_of([*args, *results]), *self._scalars]
        if self._workspace_bytes:
            pointers.append(scratch.address(self._workspace_bytes))
        self._call(*pointers)
        return _cut(results, self.facts.counted) if self.facts.counted else results


def _cut(results: list[np.ndarray], counted: Sequence[tuple[int, int, int]]) -> list[np.ndarray]:
    """The results cropped to their data-dependent sizes, which the last result holds."""
    *cut, counts = results
    for output, axis, which in counted:
        cut[output] = cut[output][(slice(None),) * axis + (slice(0, int(counts[which])),)]
    return [np.ascontiguousarray(c) if c.ndim else c for c in cut]


def _other_sizes(facts: VmKernel, args: Sequence[np.ndarray]) -> InvalidInputError:
    return InvalidInputError(
        "run-time shape differs from the declared shape", where=facts.op,
        expected=", ".join(map(str, facts.input_shapes)),
        got=", ".join(str(a.shape) for a in args),
        help="declare the size as ? in the types of the program",
    )


class _SizedCode:
    """Machine code of a kernel for all sizes that its manifest permits."""

    def __init__(self, form: SymbolicKernel, library: Library) -> None:
        self._manifest = Manifest.from_json(form.text)
        self._solver = SizeSolver(self._manifest)
        self._counted = form.counted
        self._library = library

    def at(self, shapes: Shapes) -> LoadedKernel | None:
        """The kernel for arguments of these shapes; ``None`` if the code does not fit them."""
        try:
            sizes = self._solver.solve(shapes)
        except InvalidInputError:
            return None
        step, = steps_at(self._manifest, sizes)
        outputs = tuple(TensorForm(spec.dtype, spec.concrete_shape) for spec in sizes.outputs)
        facts = VmKernel(step.symbol, len(shapes), outputs, sizes.arena_bytes, step.implementation,
                         step.op, evaluate(step.flops, {}), evaluate(step.bytes_moved, {}),
                         input_shapes=shapes, counted=self._counted)
        return LoadedKernel(facts, self._library, sizes.table)


class KernelTable:
    """The compiled kernels of a program; specialises those with dynamic shapes on first use.

    Kernels with dynamic shapes that an artifact has no code for are compiled; without
    ``specialize`` they raise ``ArtifactError``.
    """

    def __init__(self, program: VmProgram, library: Library, specialize: Specialize | None,
                 owner: Hashable = None) -> None:
        self._owner = owner  # of the threads
        self._num_threads = 1
        self._sources = program.kernels
        self._fixed = [None if k.is_dynamic else LoadedKernel(k, library) for k in self._sources]
        self._specialize = specialize
        self._special: dict[_Key, tuple[LoadedKernel, threads.Threading | threads.Unthreaded]] = {}
        # Those of an artifact; they stay.
        self._given = {_key_of(one): LoadedKernel(one.kernel, library) for one in program.special}
        self._symbolic: dict[int, list[_SizedCode]] = {}
        for form in program.symbolic:
            self._symbolic.setdefault(form.number, []).append(_SizedCode(form, library))
        self._sized: dict[_Key, LoadedKernel] = {}
        self._met: dict[_Key, Sequence[np.ndarray]] = {}
        self._lock = threading.Lock()
        renew_in_child(self, "_lock")

    def find(self, number: int, args: Sequence[np.ndarray]) -> LoadedKernel:
        """The compiled kernel ``number`` for these arguments."""
        found = self._fixed[number]
        if found is None:
            values = [args[a] for a in self._sources[number].value_args]
            key = (number, tuple(a.shape for a in args), tuple(v.tobytes() for v in values))
            found = self._given.get(key) or self._sized.get(key) or self._at_sizes(key)
            if found is None:
                special = self._special.get(key) or self._compile(key, values)
                found = special[0]
        return found

    @property
    def met(self) -> list[tuple[VmKernel, Shapes, Sequence[np.ndarray]]]:
        """The kernels compiled in calls, with shapes of the arguments and values for sizes."""
        with self._lock:
            return [(self._sources[number], shapes, self._met[number, shapes, values])
                    for number, shapes, values in self._special]

    def apply_threads(self, count: int) -> None:
        """Set the number of threads of the specialised kernels."""
        self._num_threads = count
        for _, threading_ in list(self._special.values()):
            threading_.apply(count)

    def _at_sizes(self, key: _Key) -> LoadedKernel | None:
        """The first symbolic code that fits the shapes of the arguments."""
        number, shapes, _ = key
        for code in self._symbolic.get(number, ()):
            found = code.at(shapes)
            if found is not None:
                with self._lock:
                    if len(self._sized) >= MAX_SPECIAL:
                        del self._sized[next(iter(self._sized))]
                    self._sized[key] = found
                return found
        return None

    def _compile(self, key: _Key, values: Sequence[np.ndarray]
                 ) -> tuple[LoadedKernel, threads.Threading | threads.Unthreaded]:
        number, shapes, _ = key
        if self._specialize is None:
            raise ArtifactError(
                "kernel not compiled for these shapes", where=self._sources[number].op,
                got=", ".join(map(str, shapes)),
                help="export the model after calls with these shapes, or compile static shapes",
            )
        with self._lock:  # another thread may specialise the same shapes
            found = self._special.get(key)
            if found is None:
                facts, library = self._specialize(self._sources[number], shapes, values)
                threading_ = threads.threading_of(library, self._owner)
                threading_.apply(self._num_threads)
                found = LoadedKernel(facts, library), threading_
                if len(self._special) >= MAX_SPECIAL:
                    oldest = next(iter(self._special))
                    del self._special[oldest], self._met[oldest]
                self._special[key] = found
                self._met[key] = [np.array(value) for value in values]
        return found
