"""Compare two modules with the reference interpreter, on random inputs."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from weft.ir import IRModule, TensorType, is_static
from weft.support.errors import InternalError
from weft.transform.analysis.graph import type_of
from weft.transform.analysis.reference import Data, Value, evaluate

# Folding scales into weights reorders the rounding of long sums; a larger error is a bug.
TOLERANCE = {"float64": 1e-9, "float32": 1e-3, "float16": 3e-2, "bfloat16": 1e-1}


def check_same_values(before: IRModule, after: IRModule, *, seed: int = 0) -> None:
    """Evaluate ``main`` of both modules on the same inputs, and compare the results.

    Errors are relative to the size of each result. Both must also write the same values to their
    references, equally often and in the same order, because effects are part of a program's
    meaning. Programs with inputs other than tensors of static shape are not compared. Meant for
    ``VerifyInstrument(compare=...)``; raises ``InternalError`` for the first difference.
    """
    inputs = random_inputs(before, seed)
    if inputs is None:
        return
    wrote, writes = Writes(), Writes()
    expected = evaluate(before, inputs, on_write=wrote)
    got = evaluate(after, inputs, on_write=writes)
    _compare(expected, got, "result")
    for number, (old, new) in enumerate(zip(wrote.made, writes.made, strict=False)):
        _compare(old, new, f"write {number} to a reference, part")
    if len(wrote.made) != len(writes.made):
        problem = f"{len(wrote.made)} writes to references became {len(writes.made)}"
        raise _changed(problem, "the effects of @main")


class Writes:
    """The writes of one evaluation, in order; ``made`` has (number of the reference, value).

    References are numbered by their first write; a reference that is never written has no number.
    """

    def __init__(self) -> None:
        self.made: list[Value] = []
        self._numbers: dict[int, tuple[int, Value]] = {}

    def __call__(self, ref: Value, value: Value) -> None:
        # Keep the reference alive: a later one could reuse the id of a collected one.
        number, _ = self._numbers.setdefault(id(ref), (len(self._numbers), ref))
        self.made.append((np.asarray(number), value))


def random_inputs(mod: IRModule, seed: int = 0) -> list[np.ndarray] | None:
    """One array per parameter of ``main``; ``None`` if one is not a tensor of static shape."""
    rng = np.random.default_rng(seed)
    inputs = []
    for param in mod["main"].params:
        type_ = type_of(param)
        if not isinstance(type_, TensorType) or not is_static(type_):
            return None
        low = -1 if type_.dtype.is_float or type_.dtype.code == "int" else 0
        # Few and small integers, because they may be indices.
        values = rng.uniform(low, 2, type_.concrete_shape)
        inputs.append(np.asarray(values, type_.dtype.numpy))
    return inputs


def arrays_of(value: Value) -> Iterator[np.ndarray]:
    """The tensors of a result: those of tuples flattened, and constructor tags of data.

    Functions and references contain no tensors to compare.
    """
    pending = [value]
    while pending:
        current = pending.pop()
        if isinstance(current, tuple):
            pending.extend(reversed(current))
        elif isinstance(current, Data):
            pending.extend((*reversed(current.fields), np.asarray(current.constructor.tag)))
        elif isinstance(current, np.ndarray):
            yield current


def _compare(before: Value, after: Value, what: str) -> None:
    left, right = list(arrays_of(before)), list(arrays_of(after))
    for position, (expected, got) in enumerate(zip(left, right, strict=False)):
        problem = _difference(expected, got)
        if problem is not None:
            raise _changed(problem, f"{what} {position} of @main")
    if len(left) != len(right):
        raise _changed(f"{len(left)} tensors became {len(right)}", f"{what}s of @main")


def _changed(problem: str, where: str) -> InternalError:
    return InternalError(f"a pass changed what the program computes: {problem}", where=where,
                         help="WEFT_PRINT_AFTER=all shows the programs; report this with the model")


def _difference(expected: np.ndarray, got: np.ndarray) -> str | None:
    if expected.shape != got.shape or expected.dtype != got.dtype:
        return f"{expected.dtype}{expected.shape} became {got.dtype}{got.shape}"
    tolerance = TOLERANCE.get(expected.dtype.name)
    if tolerance is None:
        return None if np.array_equal(expected, got) else "unequal elements"
    wide, found = expected.astype(np.float64), got.astype(np.float64)
    finite = np.isfinite(wide)
    if not np.array_equal(wide[~finite], found[~finite], equal_nan=True):
        return "infinities or NaN at other positions"
    scale = float(np.abs(wide[finite]).max(initial=0)) or 1.0
    error = float(np.abs(wide[finite] - found[finite]).max(initial=0)) / scale
    return None if error <= tolerance else f"relative error {error:.2g}"
