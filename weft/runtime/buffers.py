"""Caller-provided output arrays (``mod(x, out=y)``), and calls bound to fixed buffers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from weft.runtime.arena import address_of
from weft.runtime.manifest import Manifest, TensorSpec
from weft.runtime.ndarray import from_dlpack
from weft.support.errors import InvalidInputError
from weft.support.fork_locks import renew_in_child


class BoundCall:
    """A call of a module on buffers that are checked only once: ``run = mod.bind(x, out=y)``.

    Each ``run()`` reads the current contents of the inputs, writes to the same outputs, and returns
    them. A lock serialises Python threads that share it.
    """

    __slots__ = ("__weakref__", "_lock", "_run", "inputs", "outputs")

    def __init__(self, run: Callable[[], object], inputs: Sequence[Any], outputs: Any) -> None:
        self._run = run
        self._lock = threading.Lock()
        renew_in_child(self, "_lock")
        self.inputs = tuple(inputs)
        self.outputs = outputs

    def __call__(self) -> Any:
        """Run the module and return the outputs: one array, or a tuple of several."""
        with self._lock:
            self._run()
        return self.outputs


def given_outputs(manifest: Manifest, out: Any) -> list[Any]:
    """One entry of ``out`` per output, in order; ``None`` asks the module to allocate an array.

    ``out`` is an array for a module with one output, a sequence with one entry per output, or a
    mapping by name. ``InvalidInputError`` for other values.
    """
    specs = manifest.outputs
    if isinstance(out, Mapping):
        names = [spec.name for spec in specs]
        unknown = [repr(name) for name in out if name not in names]
        if unknown:
            raise InvalidInputError(f"unknown output: {', '.join(unknown)}",
                                    expected=", ".join(names))
        return [out.get(name) for name in names]
    if isinstance(out, (tuple, list)):
        if len(out) != len(specs):
            raise InvalidInputError(f"out has {len(out)} entries for {len(specs)} outputs",
                                    expected=manifest.signature(),
                                    help="pass None for outputs that the module shall allocate")
        return list(out)
    if len(specs) != 1 or manifest.output_is_tuple:
        raise InvalidInputError(f"out is one array for {len(specs)} outputs",
                                expected=manifest.signature(),
                                help="pass a tuple with one array for each output")
    return [out]


def copy_into(manifest: Manifest, out: Any, inputs: Sequence[np.ndarray],
              results: Sequence[np.ndarray]) -> tuple[Any, ...]:
    """Copy results, whose sizes only the call determines, to the arrays of ``out``.

    Returns these arrays, and results for the outputs that ``out`` leaves out.
    """
    given = given_outputs(manifest, out)
    specs = [TensorSpec(spec.name, spec.dtype, result.shape)
             for spec, result in zip(manifest.outputs, results, strict=True)]
    buffers = [result if value is None else output_buffer(value, spec)
               for value, spec, result in zip(given, specs, results, strict=True)]
    check_apart(manifest, inputs, buffers)
    copy_all(results, buffers)
    return tuple(result if value is None else value
                 for value, result in zip(given, results, strict=True))


def copy_all(results: Sequence[np.ndarray], buffers: Sequence[np.ndarray]) -> None:
    """Copy each result to its buffer, unless it is the buffer."""
    for buffer, result in zip(buffers, results, strict=True):
        if buffer is not result:
            np.copyto(buffer, result)


def output_buffer(value: Any, spec: TensorSpec) -> np.ndarray:
    """``value`` as a NumPy view of the same memory, to write an output to.

    Accepts arrays with DLPack or ``__array_interface__``. ``InvalidInputError`` for a wrong dtype
    or shape, and for memory that is not C-contiguous or read-only.
    """
    array = value if isinstance(value, np.ndarray) else _viewed(value, f"output {spec.name!r}",
                                                                 spec)
    flags = array.flags
    if array.dtype != spec.numpy_dtype:
        wrong = "has the wrong dtype"
    elif array.shape != spec.concrete_shape:
        wrong = "has the wrong shape"
    elif not flags.writeable:
        wrong = "is read-only"
    elif not (flags.c_contiguous and flags.aligned):
        wrong = "is not contiguous in memory"
    else:
        return array
    raise InvalidInputError(
        f"output {spec.name!r} {wrong}", expected=spec, got=f"Tensor[{array.shape}, {array.dtype}]",
        help="out takes writable, C-contiguous arrays, with dtype and shape of the output")


def _viewed(value: Any, name: str, spec: TensorSpec) -> np.ndarray:
    """A NumPy view of an array of another library; ``InvalidInputError`` for other objects."""
    if isinstance(value, np.ndarray):
        return value
    try:
        if hasattr(value, "__dlpack__"):
            return from_dlpack(value)
        if hasattr(value, "__array_interface__") or isinstance(value, memoryview):
            return np.asarray(value)
    except Exception as error:  # noqa: BLE001 - the code of another library ran
        raise InvalidInputError(f"{name} cannot be read", expected=spec,
                                got=f"{type(value).__name__} ({error})") from None
    raise InvalidInputError(f"{name} is not an array", expected=spec, got=type(value).__name__)


def check_apart(manifest: Manifest, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
    """Raise ``InvalidInputError`` if an output overlaps an input or another output.

    Compiled code may write an output before it has read all inputs. Arrays are those of NumPy, or
    have ``address`` and ``nbytes``.
    """
    others = list(map(_extent, (*inputs, *outputs)))
    for number, (first, last) in enumerate(others[len(inputs):]):
        for other in range(len(inputs) + number):
            start, stop = others[other]
            if first < stop and start < last:
                names = [*(f"input {spec.name!r}" for spec in manifest.inputs),
                         *(f"output {spec.name!r}" for spec in manifest.outputs)]
                raise InvalidInputError(
                    f"{names[len(inputs) + number]} shares memory with {names[other]}",
                    help="pass an array that does not overlap others")


def check_in_place(specs: Sequence[TensorSpec], values: Sequence[Any], arrays: Sequence[Any]
                   ) -> None:
    """Raise ``InvalidInputError`` for copied inputs: a bound call would not see later changes.

    Arrays on a device are never copies.
    """
    for spec, value, array in zip(specs, values, arrays, strict=True):
        if not isinstance(array, np.ndarray):
            continue
        seen = _viewed(value, f"input {spec.name!r}", spec)
        if array.nbytes and address_of(seen) != address_of(array):
            raise InvalidInputError(
                f"input {spec.name!r} cannot be bound without a copy",
                expected=f"{spec}, C-contiguous", got=f"Tensor[{seen.shape}, {seen.dtype}]")


def _extent(array: Any) -> tuple[int, int]:
    start = address_of(array) if isinstance(array, np.ndarray) else array.address
    return start, start + array.nbytes
