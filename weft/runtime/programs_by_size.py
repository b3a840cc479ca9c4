"""Tables of programs that are made at the first call for which they are needed."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

import numpy as np

from weft.runtime.call_sizes import SizeSolver
from weft.runtime.launchers import Launch, Launcher
from weft.runtime.ndarray import to_numpy
from weft.support.config import config
from weft.support.errors import InvalidInputError
from weft.support.fork_locks import renew_in_child

if TYPE_CHECKING:
    from weft.runtime.frequent_sizes import FrequentSizes

Shapes: TypeAlias = "tuple[tuple[int, ...], ...]"
K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

# Sizes whose checked calls are kept ready. Others cost some ten microseconds again.
KEPT_SIZES = 256


class LaunchesBySize:
    """The launches of a program with symbols, by the shapes of the inputs.

    Code, weights and arenas are the same for all; what the shapes determine (``CallSizes``) is
    computed at the first call with them. Several threads may use it. ``frequent`` counts the calls.
    """

    def __init__(self, launcher: Launcher, frequent: FrequentSizes | None = None) -> None:
        self._launcher = launcher
        self.frequent = frequent
        self._solver = SizeSolver(launcher.manifest)
        self._ready: OrderedDict[Shapes, Launch] = OrderedDict()
        self._lock = threading.Lock()
        renew_in_child(self, "_lock")

    def at(self, shapes: Shapes, values: Sequence[Any]) -> Launch:
        """The program at the shapes of these arguments.

        Raises ``InvalidInputError`` for shapes that do not fit the signature, and
        ``SizeOutOfRangeError`` for sizes beyond the range of a symbol.
        """
        found = self._ready.get(shapes) or self._made(shapes, values)
        if self.frequent is not None:
            self.frequent.note(shapes, found)
        return found

    def _made(self, shapes: Shapes, values: Sequence[Any]) -> Launch:
        launcher = self._launcher
        sizes = self._solver.solve(shapes)
        if not launcher.takes_device_arrays:
            for value, spec in zip(values, sizes.inputs, strict=True):
                if not isinstance(value, np.ndarray):
                    to_numpy(value, spec)  # raises for values that are no arrays
        made = launcher.at(sizes)
        with self._lock:
            self._ready[shapes] = made
            while len(self._ready) > KEPT_SIZES:
                self._ready.popitem(last=False)
        return made

    def clear(self) -> None:
        """Forget all launches; the next calls make them again."""
        with self._lock:
            self._ready.clear()


class KeptPrograms(Generic[K, V]):
    """Programs by a key, each compiled at its first use.

    The ``WEFT_DYNAMIC_PROGRAMS`` used last are kept, ``made`` counts all. Several threads may ask
    for one key at the same time: it is compiled once, and others find their programs meanwhile.
    """

    def __init__(self) -> None:
        self.made = 0
        self.limit = config.dynamic_programs
        self._programs: OrderedDict[K, V] = OrderedDict()
        self._table_lock = threading.Lock()
        renew_in_child(self, "_table_lock")
        self._compile_lock = threading.Lock()
        renew_in_child(self, "_compile_lock")

    @property
    def keys(self) -> tuple[K, ...]:
        """The keys of the kept programs, most recently used last."""
        with self._table_lock:
            return tuple(self._programs)

    @property
    def programs(self) -> tuple[V, ...]:
        """The kept programs, most recently used last."""
        with self._table_lock:
            return tuple(self._programs.values())

    def find(self, key: K) -> V | None:
        """The program of ``key`` if it is kept."""
        with self._table_lock:
            found = self._programs.get(key)
            if found is not None:
                self._programs.move_to_end(key)
            return found

    def get(self, key: K, compile_program: Callable[[], V]) -> V:
        """The program of ``key``, compiled if it is not kept."""
        with self._compile_lock:
            found = self.find(key)
            if found is not None:
                return found
            made = compile_program()
            self.made += 1
            with self._table_lock:
                self._programs[key] = made
                while len(self._programs) > self.limit:
                    self._programs.popitem(last=False)
            return made


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
