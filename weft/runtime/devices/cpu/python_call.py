"""``weft_main`` as a builtin function of CPython, for calls with minimal overhead.

The library contains ``PYTHON_CALL``, machine code with the ``METH_FASTCALL`` signature. Its
``self`` is the plan, an array of words in the order of ``PLAN_FIELDS`` with all pointers that a
call needs. The builtin takes one array per input, or also one per output behind these, and returns

- a list of new output arrays, if all arguments match the module's signature exactly;
- 0, if outputs are given, too, are writable, and share no memory with other arguments;
- ``None``, without running, if an argument does not;
- ``NO_ARENA``, without running, if other threads use all arenas, or the next one is too small;
- otherwise the nonzero status of ``weft_main``.

The GIL is released while compiled code runs, unless the run is shorter than reacquiring it may be.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from weft.runtime.arena import ArenaPool, address_of
from weft.runtime.call_sizes import CallSizes
from weft.runtime.devices.cpu.numpy_layout import known_layout
from weft.runtime.library import NativeLibrary
from weft.runtime.manifest import MAIN_SYMBOL, Manifest, TensorSpec
from weft.runtime.sizes import evaluate
from weft.support.errors import InternalError, WeftError

# The name changes with the plan: artifacts with the code for another one take a slower path.
PYTHON_CALL = "weft_python_call_2"
NO_ARENA = -1

# Functions of CPython's stable ABI, by field of the plan.
_FUNCTIONS = {
    "call": "PyObject_CallNoArgs", "list_new": "PyList_New", "list_set": "PyList_SetItem",
    "inc_ref": "Py_IncRef", "dec_ref": "Py_DecRef", "from_long": "PyLong_FromLong",
    "save_thread": "PyEval_SaveThread", "restore_thread": "PyEval_RestoreThread",
}
# ``arenas`` is the address of the head of the list of free arenas (``ArenaPool``), ``extras`` are
# the pointers behind those to the inputs (``behind_inputs``), ``makers`` are callables that
# allocate the output arrays, ``method`` is a ``PyMethodDef``. ``inputs`` and ``outputs`` are words
# of each array: its dtype object, its bytes, its rank and its sizes.
PLAN_FIELDS = ("main", "constants", "arenas", "arena_bytes", "extras", "num_extras", "inputs",
               "num_inputs", "outputs",
               "makers", "num_outputs", "releases", "array_type", "none", *_FUNCTIONS, "method")
_NUMBER = {field: number for number, field in enumerate(PLAN_FIELDS)}
_METHOD_WORDS = 4
_METH_FASTCALL = 0x80
_NAME = ctypes.c_char_p(MAIN_SYMBOL.encode())

# Lower bounds of FLOPs and bytes per microsecond, also for kernels that are not vectorised.
_FLOPS, _BYTES = 1000, 2000
_SHORT = 3.0  # microseconds
_SHORT_STEPS = 4

Builtin: TypeAlias = "Callable[..., list[np.ndarray] | int | None]"


class CallTemplate:
    """The words of a plan that are the same for all sizes of a program.

    It keeps the library and the constants alive.
    """

    __slots__ = ("constants", "library", "words")

    def __init__(self, library: NativeLibrary, constants: np.ndarray) -> None:
        self.library = library
        self.constants = constants
        values: dict[str, int] = {
            "main": library.address(MAIN_SYMBOL), "constants": address_of(constants),
            "array_type": id(np.ndarray), "none": id(None)}
        values |= {field: _address(getattr(ctypes.pythonapi, name))
                   for field, name in _FUNCTIONS.items()}
        method = (_address(_NAME), library.address(PYTHON_CALL), _METH_FASTCALL, 0)
        self.words = [*(values.get(field, 0) for field in PLAN_FIELDS[:-1]), *method]


class PythonCall:
    """``quick`` is the builtin; ``run`` also handles array subclasses, equal dtypes and arenas."""

    __slots__ = ("_arenas", "_dtypes", "_nbytes", "_plan", "quick")

    def __init__(self, template: CallTemplate, sizes: CallSizes,
                 makers: Sequence[Callable[[], np.ndarray]], arenas: ArenaPool, *,
                 extras: Sequence[int] = (), releases: bool) -> None:
        self._arenas = arenas
        self._dtypes = [spec.numpy_dtype for spec in sizes.inputs]
        self._nbytes = sizes.arena_bytes
        self._plan = _plan(template, sizes, self._dtypes, makers, arenas, extras,
                           releases=releases)
        method = ctypes.addressof(self._plan) + 8 * PLAN_FIELDS.index("method")
        self.quick: Builtin = _new_builtin(method, self._plan, None)
        arenas.add(self._nbytes)

    def run(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The outputs for C-contiguous arrays of the declared shapes and dtypes.

        ``InternalError`` if the program returns a nonzero status.
        """
        results = self.quick(*arrays)
        if results is None:
            # Replace array subclasses, and dtype objects that are equal but not identical.
            arrays = [np.asarray(array).view(dtype)
                      for array, dtype in zip(arrays, self._dtypes, strict=True)]
            results = self.quick(*arrays)
        while results == NO_ARENA:
            self._arenas.add(self._nbytes)
            results = self.quick(*arrays)
        if isinstance(results, list):
            return results
        raise InternalError("the compiled program failed", got=f"status {results}")


def call_template(library: NativeLibrary, constants: np.ndarray) -> CallTemplate | None:
    """The state that the builtin calls of a module share.

    ``None`` if the interpreter has another object layout, or the library lacks the symbol.
    """
    if not known_layout():
        return None
    try:
        library.address(PYTHON_CALL)
    except WeftError:
        return None
    return CallTemplate(library, constants)


class _Words(ctypes.Array):
    """A plan: an array with attributes, which keep the objects alive that it points to."""

    _type_ = ctypes.c_uint64
    _length_ = len(PLAN_FIELDS) - 1 + _METHOD_WORDS


def _plan(template: CallTemplate, sizes: CallSizes, dtypes: Sequence[np.dtype],
          makers: Sequence[Callable[[], np.ndarray]], arenas: ArenaPool, extras: Sequence[int], *,
          releases: bool) -> _Words:
    made_dtypes = [spec.numpy_dtype for spec in sizes.outputs]
    inputs, outputs = _forms(sizes.inputs, dtypes), _forms(sizes.outputs, made_dtypes)
    behind = (ctypes.c_uint64 * max(1, len(extras)))(*extras)
    made = (ctypes.c_uint64 * max(1, len(makers)))(*map(id, makers))
    plan = _Words(*template.words)
    for field, value in (
        ("arenas", arenas.head), ("arena_bytes", sizes.arena_bytes),
        ("extras", ctypes.addressof(behind)), ("num_extras", len(extras)),
        ("inputs", ctypes.addressof(inputs)), ("num_inputs", len(sizes.inputs)),
        ("outputs", ctypes.addressof(outputs)), ("makers", ctypes.addressof(made)),
        ("num_outputs", len(makers)), ("releases", int(releases)),
    ):
        plan[_NUMBER[field]] = value
    kept = (template, inputs, outputs, made_dtypes, behind, list(makers), made, arenas, sizes)
    setattr(plan, "alive", kept)  # noqa: B010
    return plan


def _forms(specs: Sequence[TensorSpec], dtypes: Sequence[np.dtype]) -> ctypes.Array[Any]:
    words = [word for spec, dtype in zip(specs, dtypes, strict=True)
             for word in (id(dtype), spec.nbytes, len(spec.shape), *spec.concrete_shape)]
    return (ctypes.c_uint64 * max(1, len(words)))(*words)


def is_short(manifest: Manifest, sizes: CallSizes) -> bool:
    """Whether a call takes at most a few microseconds, so that the GIL is not released.

    Reacquiring the GIL may take a thousand times as long. ``False`` for programs with loops, and
    with kernels that do not state the bytes they move (external code).
    """
    steps = manifest.steps
    if manifest.jumps or not all(step.bytes_moved for step in steps):
        return False
    if manifest.symbols and len(steps) > _SHORT_STEPS:
        return False  # without evaluating the work of each at every new size
    work = 0.0
    for step in steps:
        work += (evaluate(step.flops, sizes.symbols) / _FLOPS
                 + evaluate(step.bytes_moved, sizes.symbols) / _BYTES)
    return work < _SHORT


def _address(pointer: Any) -> int:
    return ctypes.cast(pointer, ctypes.c_void_p).value or 0


_new_builtin = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.py_object,
                                 ctypes.c_void_p)(("PyCFunction_NewEx", ctypes.pythonapi))
