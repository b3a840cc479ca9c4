"""An operator's case with symbols for its sizes: the typed call, its kernel, and runs of it.

Each size above 1 of a case becomes a symbol; equal sizes share one. If an operator refuses symbols
of any size, they are as large as in the case or larger, and else multiples of the case's sizes. The
kernel is compiled once and runs at the sizes of the case and at others.
"""

from __future__ import annotations

import ctypes
import dataclasses
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.unit.op.harness import (
    bounds_of_call,
    flatten,
    make_call,
    make_inputs,
    output_types,
    parameters_of,
    reference_outputs,
)
from weft.codegen import backend_of
from weft.ir.dtype import DType
from weft.ir.expr import Call, Function, Tuple, Var, var
from weft.ir.op import Case, Op
from weft.ir.symbol import ANY_SIZE, SizeRange, size_of_dim, symbol_text
from weft.ir.types import TensorType
from weft.ir.typing.infer import infer_expr
from weft.runtime.sizes import evaluate
from weft.strategy.lower_function import LoweredKernel, lower_function
from weft.support.errors import WeftError
from weft.target import CpuTarget

_CANARY = 0xA5
_MARGIN = 256  # bytes around each array that a kernel must not write


@dataclass(frozen=True, slots=True)
class SymbolicForm:
    """``call`` over symbols; ``sizes`` are their values in the case.

    ``free`` are the symbols that may have other values, with their ranges: no array of given values
    has their size.
    """

    op: Op
    case: Case
    call: Call
    sizes: Mapping[str, int]
    free: Mapping[str, SizeRange]

    def inputs(self, sizes: Mapping[str, int], seed: int = 0) -> list[Any]:
        """Arrays for the call at ``sizes``."""
        return make_inputs(self.op, self.at(sizes), seed)

    def at(self, sizes: Mapping[str, int]) -> Case:
        """The case with other sizes."""
        changed = {self.sizes[s]: size for s, size in sizes.items()}
        inputs = tuple(_resized(spec, changed) for spec in self.case.inputs)
        return dataclasses.replace(self.case, inputs=inputs)


def symbolic_form(op: Op, one: Case, fixed: Sequence[str] = ()) -> SymbolicForm | None:
    """The symbolic form of a case; ``None`` if all its sizes are 0 or 1.

    ``fixed`` names inputs (``weight``) or axes of inputs (``boxes.1``) whose sizes stay numbers.
    Raises what type inference raises for symbols of any size if it refuses smaller ranges too.
    """
    try:
        return _form(op, one, fixed, lambda _: ANY_SIZE)
    except WeftError as error:
        for ranges in (SizeRange, lambda size: SizeRange(size, None, size)):
            try:
                return _form(op, one, fixed, ranges)
            except WeftError:
                continue
        raise error from None


def _form(op: Op, one: Case, fixed: Sequence[str], range_: Callable[[int], SizeRange]
          ) -> SymbolicForm | None:
    arrays = make_inputs(op, one)
    numbers = set(_fixed_sizes(op, arrays, fixed))
    symbols: dict[int, str] = {}

    def dim(size: int) -> int | str:
        if size <= 1 or size in numbers:
            return size
        symbols[size] = f"s{size}"
        return symbol_text(f"s{size}", range_(size))

    args = [_variables(f"x{i}", a, dim) for i, a in enumerate(arrays)]
    if not symbols:
        return None
    call = infer_expr(op(*args, **one.attrs))
    assert isinstance(call, Call)
    given = {size for spec in _specs(one.inputs) if isinstance(spec, np.ndarray)
             for size in spec.shape}
    free = {s: range_(size) for size, s in symbols.items() if size not in given}
    return SymbolicForm(op, one, call, {s: size for size, s in symbols.items()}, free)


def _fixed_sizes(op: Op, arrays: Sequence[Any], fixed: Sequence[str]) -> Iterator[int]:
    for text in fixed:
        name, _, axis = text.partition(".")
        shape = arrays[op.inputs.index(name)].shape
        yield from shape if not axis else shape[int(axis):int(axis) + 1]


def _variables(name: str, value: Any, dim: Callable[[int], int | str]) -> Var | Tuple:
    if isinstance(value, tuple):
        return Tuple(tuple(_variables(f"{name}_{i}", v, dim) for i, v in enumerate(value)))
    return var(name, tuple(map(dim, value.shape)), DType.of(value.dtype))


def _specs(inputs: Sequence[Any]) -> Iterator[Any]:
    for spec in inputs:
        if isinstance(spec, list):
            yield from _specs(spec)
        else:
            yield spec


def _resized(spec: Any, changed: Mapping[int, int]) -> Any:
    if isinstance(spec, list):
        return [_resized(s, changed) for s in spec]
    if isinstance(spec, (np.ndarray, np.generic)):
        return spec
    return tuple(changed.get(s, s) for s in spec)


class SymbolicKernel:
    """The machine code of a symbolic form."""

    def __init__(self, form: SymbolicForm, target: CpuTarget) -> None:
        function = Function(parameters_of(form.call), form.call, form.call.checked_type,
                            attrs={"primitive": True})
        self.form = form
        self.lowered: LoweredKernel = lower_function(function, target)
        backend, func = backend_of(target), self.lowered.func
        code = backend.build_kernel(func, target)
        self._library = backend.load([code, *backend.support_objects(target)], target)
        bounds = bounds_of_call(form.call)
        self._counted = () if bounds is None else bounds.counted
        types = output_types(form.call.checked_type) if bounds is None else bounds.types
        self._types = tuple(types)
        self._counts = 0 if bounds is None else bounds.num_counts

    def run(self, inputs: Sequence[Any], sizes: Mapping[str, int]) -> list[np.ndarray]:
        """The results for ``inputs``; checks that nothing else is written."""
        func = self.lowered.func
        results = [_Guarded(_shape_at(t, sizes), t.dtype.numpy) for t in self._types]
        if self._counts:
            results.append(_Guarded((self._counts,), np.dtype(np.int64)))
        sources = [_Guarded.holding(a) for a in flatten(list(inputs))]
        memory = [*sources, *results]
        bytes_ = func.attrs.get("workspace_bytes", 0)
        if bytes_:
            memory.append(_Guarded((evaluate(bytes_, sizes),), np.dtype(np.uint8)))
        arrays = [m.address for m in memory[:len(sources) + len(results)]]
        values = [evaluate(s, sizes) for s in self.lowered.sizes]
        kinds = [ctypes.c_void_p] * len(arrays) + [ctypes.c_int64] * len(values)
        call = [*arrays, *values]
        if bytes_:
            kinds, call = [*kinds, ctypes.c_void_p], [*call, memory[-1].address]
        ctypes.CFUNCTYPE(None, *kinds)(self._library.address(func.name))(*call)
        for one in memory:
            one.check()
        return self._cut([r.array for r in results])

    def _cut(self, results: list[np.ndarray]) -> list[np.ndarray]:
        """The results without what lies beyond their counts."""
        if not self._counts:
            return results
        *found, counts = results
        for output, axis, which in self._counted:
            found[output] = np.take(found[output], range(counts[which]), axis)
        return found


class _Guarded:
    """An array at a cache line, with a margin of known bytes on both sides."""

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype) -> None:
        count = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        self._raw = np.full(count + 2 * _MARGIN + 64, _CANARY, np.uint8)
        self._start = _MARGIN + -(self._raw.ctypes.data + _MARGIN) % 64
        self._stop = self._start + count
        self.array = self._raw[self._start:self._stop].view(dtype).reshape(shape)
        self.address = self._raw.ctypes.data + self._start

    @classmethod
    def holding(cls, values: np.ndarray) -> _Guarded:
        made = cls(values.shape, values.dtype)
        made.array[...] = values
        return made

    def check(self) -> None:
        assert (self._raw[:self._start] == _CANARY).all(), "a kernel wrote before an array"
        assert (self._raw[self._stop:] == _CANARY).all(), "a kernel wrote beyond an array"


def _shape_at(type_: TensorType, sizes: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(evaluate(size_of_dim(d), sizes) for d in type_.shape)


def expected_at(form: SymbolicForm, sizes: Mapping[str, int],
                arrays: Sequence[Any]) -> tuple[np.ndarray, ...] | None:
    """The results of the reference at ``sizes``; ``None`` where the operator refuses them.

    The shapes of the symbolic type must be those of the type for fixed sizes.
    """
    try:
        call = make_call(form.op, form.at(sizes), list(arrays))
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            expected = reference_outputs(call, list(arrays))
    except (WeftError, ValueError, IndexError, ZeroDivisionError, np.linalg.LinAlgError):
        return None
    if bounds_of_call(call) is None:
        for symbolic, array in zip(output_types(form.call.checked_type), expected, strict=True):
            assert _shape_at(symbolic, sizes) == array.shape, (str(symbolic), array.shape, sizes)
    return expected
