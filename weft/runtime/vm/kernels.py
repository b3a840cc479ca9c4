"""The kernels of a program as things to call with arrays."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

import numpy as np

from weft.runtime import threads
from weft.runtime.arena import AlignedBlock, address_of
from weft.runtime.dtypes import numpy_dtype
from weft.runtime.library import Library, function
from weft.runtime.vm.program import VmKernel
from weft.support.errors import ArtifactError

_POINTER = ctypes.c_void_p
Shapes: TypeAlias = "tuple[tuple[int, ...], ...]"


class Specialize(Protocol):
    """Makes code of a kernel with open sizes; a compiler stands behind it."""

    def __call__(self, kernel: VmKernel, shapes: Shapes) -> tuple[VmKernel, Library]:
        """The kernel for arguments of these shapes, in machine code."""
        ...


class Scratch:
    """Working memory of one run, which grows as kernels ask for more."""

    __slots__ = ("_block",)

    def __init__(self) -> None:
        self._block = AlignedBlock(0)

    def address(self, nbytes: int) -> int:
        if nbytes > self._block.nbytes:
            self._block = AlignedBlock(nbytes)
        return self._block.address


class LoadedKernel:
    """Machine code of fixed sizes, which lives as long as this."""

    __slots__ = ("_call", "_library", "_outputs", "_workspace_bytes", "facts")

    def __init__(self, facts: VmKernel, library: Library) -> None:
        self.facts = facts
        self._library = library
        self._outputs = [(form.shape, numpy_dtype(form.dtype)) for form in facts.outputs]
        self._workspace_bytes = facts.workspace_bytes
        count = facts.num_inputs + len(self._outputs) + (self._workspace_bytes > 0)
        self._call: Callable[..., None] = function(library, facts.symbol, None,
                                                   *[_POINTER] * count)

    def __call__(self, args: Sequence[np.ndarray], scratch: Scratch) -> list[np.ndarray]:
        """New arrays with the results."""
        results = [np.empty(shape, dtype) for shape, dtype in self._outputs]
        pointers = [address_of(a) for a in args]
        pointers += [address_of(r) for r in results]
        if self._workspace_bytes:
            pointers.append(scratch.address(self._workspace_bytes))
        self._call(*pointers)
        return results


class KernelTable:
    """Finds the code of kernel ``number``: at once, or for sizes met for the first time.

    Without ``specialize`` kernels with open sizes are refused.
    """

    def __init__(self, kernels: Sequence[VmKernel], library: Library,
                 specialize: Specialize | None) -> None:
        self._sources = kernels
        self._fixed = [None if k.is_open else LoadedKernel(k, library) for k in kernels]
        self._specialize = specialize
        self._special: dict[tuple[int, Shapes], LoadedKernel] = {}
        self._threadings: list[threads.Threading] = []
        self._lock = threading.Lock()

    def find(self, number: int, args: Sequence[np.ndarray]) -> LoadedKernel:
        """The code of a kernel for these arguments."""
        found = self._fixed[number]
        if found is None:
            shapes = tuple(a.shape for a in args)
            found = self._special.get((number, shapes)) or self._compile(number, shapes)
        return found

    def apply_threads(self, count: int) -> None:
        """Let code that was made for sizes met on the way use ``count`` threads."""
        for threading_ in list(self._threadings):
            threading_.apply(count)

    def _compile(self, number: int, shapes: Shapes) -> LoadedKernel:
        if self._specialize is None:
            raise ArtifactError(
                "a kernel has no code for these sizes", where=self._sources[number].op,
                got=", ".join(map(str, shapes)),
                help="run the model where it is compiled, or compile it with fixed sizes",
            )
        with self._lock:  # several threads may meet new sizes at once
            found = self._special.get((number, shapes))
            if found is None:
                facts, library = self._specialize(self._sources[number], shapes)
                threading_ = threads.Threading(library)
                threading_.apply(threads.num_threads())
                found = LoadedKernel(facts, library)
                self._threadings.append(threading_)
                self._special[number, shapes] = found
        return found
