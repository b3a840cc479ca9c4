"""Compiled modules that run at all sizes of their symbols."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from weft.runtime.arena import AlignedBlock
from weft.runtime.arena_pool import ArenaPool
from weft.runtime.call_sizes import CallSizes, SizeSolver
from weft.runtime.calls_by_shape import CallsByShape
from weft.runtime.library import Library
from weft.runtime.manifest import Manifest
from weft.runtime.module import CompiledModule
from weft.runtime.ndarray import to_numpy
from weft.runtime.state import State
from weft.support.errors import ArtifactError, InvalidInputError
from weft.support.fallback import recording
from weft.support.fork_locks import renew_in_child

Shapes: TypeAlias = "tuple[tuple[int, ...], ...]"

# Sizes whose checked calls are kept ready. Others cost some ten microseconds again.
KEPT_SIZES = 256


class SharedCode(CompiledModule):
    """The code of a program with symbols, apart from its sizes.

    The modules of all sizes share its arenas, addresses and count of threads, so that one more
    takes some ten microseconds.
    """

    def _bind_sizes(self) -> None:
        """Wait for the sizes of a call."""

    @property
    def arenas(self) -> ArenaPool:
        """The arenas of all sizes."""
        return self._arenas


class AtSizes(CompiledModule):
    """The module for the sizes of a call."""

    def __init__(self, shared: SharedCode, sizes: CallSizes) -> None:
        self.__dict__.update(shared.__dict__)
        self._sizes = sizes
        self._bind_sizes()


def _classes(manifest: Manifest) -> tuple[type[SharedCode], type[AtSizes]]:
    if manifest.launched_by == "lanes":
        from weft.runtime.devices.sim.module import AtSizesOnLanes, SharedOnLanes

        return SharedOnLanes, AtSizesOnLanes
    if manifest.launched_by != "device":
        return SharedCode, AtSizes
    # Programs for CPUs do without the runtime of GPUs.
    from weft.runtime.devices.cuda.sized import AtSizesOnDevice, SharedOnDevice

    return SharedOnDevice, AtSizesOnDevice


class SizedModule(CallsByShape):
    """A program whose kernels take symbolic sizes at run time.

    It is called as a ``CompiledModule``. Code, weights and arenas are the same for all sizes; what
    the shapes of the inputs determine (``CallSizes``) is computed at the first call with them.
    """

    def __init__(self, manifest: Manifest, library: Library,
                 constants: bytes | memoryview | np.ndarray | AlignedBlock) -> None:
        super().__init__(manifest)
        self.library = library
        shared, self._at_sizes = _classes(manifest)
        with recording(self._fallbacks):  # what calls meet is listed here
            self._shared = shared(manifest, library, constants)
        self._solver = SizeSolver(manifest)
        self._ready: OrderedDict[Shapes, CompiledModule] = OrderedDict()
        self._lock = threading.Lock()
        renew_in_child(self, "_lock")

    @property
    def state(self) -> State:
        """See ``CompiledModule.state``; all sizes share it."""
        return self._shared.state

    @property
    def threads(self) -> int | None:
        """See ``CompiledModule.threads``."""
        return self.manifest.threads

    @property
    def arena_nbytes(self) -> int:
        """The memory for temporaries that calls so far needed."""
        return self._shared.arenas.nbytes

    def program_for(self, values: Sequence[Any]) -> CompiledModule:
        """The module for the shapes of these arguments.

        Raises ``InvalidInputError`` for shapes that do not fit the signature.
        """
        shapes = tuple([shape_of(value) for value in values])
        found = self._ready.get(shapes)
        return found if found is not None else self._make(shapes, values)

    def _make(self, shapes: Shapes, values: Sequence[Any]) -> CompiledModule:
        sizes = self._solver.solve(shapes)
        for value, spec in zip(values, sizes.inputs, strict=True):
            if not isinstance(value, np.ndarray) and self.manifest.launched_by != "device":
                to_numpy(value, spec)  # raises for values that are no arrays
        made = self._at_sizes(self._shared, sizes)
        with self._lock:
            self._ready[shapes] = made
            while len(self._ready) > KEPT_SIZES:
                self._ready.popitem(last=False)
        return made

    def __reduce__(self) -> Any:
        raise ArtifactError(
            "a loaded module cannot be pickled", got=self.manifest.signature(),
            help="pass the path of its artifact, and call weft.load there",
        )

    def __copy__(self) -> SizedModule:
        """The module itself, which is immutable."""
        return self

    def __deepcopy__(self, memo: Mapping[int, Any]) -> SizedModule:
        return self

    def __repr__(self) -> str:
        target = self.manifest.target
        return (f"<{type(self).__name__} {self.manifest.signature()}, "
                f"{len(self.manifest.steps)} kernel calls, for {target.cpu}>")


def shape_of(value: Any) -> tuple[int, ...]:
    """The shape of an array, of an object with a shape, or of nested lists.

    Raises ``InvalidInputError`` for objects without one.
    """
    if type(value) is np.ndarray:
        return value.shape
    try:
        return tuple(map(int, value.shape)) if hasattr(value, "shape") else np.shape(value)
    except (TypeError, ValueError) as error:
        raise InvalidInputError("an argument is not an array", expected="a tensor with a shape",
                                got=f"{type(value).__name__}: {error}") from None
