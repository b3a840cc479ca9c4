"""Do two modules compute the same? Asked of the reference interpreter, on random inputs."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from weft.ir.module import IRModule
from weft.ir.types import TensorType, is_static
from weft.support.errors import InternalError
from weft.transform.graph import type_of
from weft.transform.reference import Value, evaluate

# Folding scales into weights reorders roundings of long sums; anything above this is a bug.
TOLERANCE = {"float64": 1e-9, "float32": 1e-3, "float16": 3e-2, "bfloat16": 1e-1}


def check_same_values(before: IRModule, after: IRModule, *, seed: int = 0) -> None:
    """Evaluate ``main`` of both on the same inputs and compare, relative to each result's size.

    Programs whose inputs are not tensors of fixed shape are not compared. Made for
    ``VerifyInstrument(compare=...)``; raises ``InternalError`` for the first result that differs.
    """
    inputs = random_inputs(before, seed)
    if inputs is None:
        return
    pairs = zip(
        arrays_of(evaluate(before, inputs)), arrays_of(evaluate(after, inputs)), strict=True
    )
    for position, (expected, got) in enumerate(pairs):
        problem = _difference(expected, got)
        if problem is not None:
            raise InternalError(
                f"a pass changed what the program computes: {problem}",
                where=f"result {position} of @main",
                help="report this with the model; leave the pass out to go on",
            )


def random_inputs(mod: IRModule, seed: int = 0) -> list[np.ndarray] | None:
    """One array for each parameter of ``main``; ``None`` if not all are tensors of fixed shape."""
    rng = np.random.default_rng(seed)
    inputs = []
    for param in mod["main"].params:
        type_ = type_of(param)
        if not isinstance(type_, TensorType) or not is_static(type_):
            return None
        low = -1 if type_.dtype.is_float or type_.dtype.code == "int" else 0
        # Few and small integers, for they may well be indices.
        values = rng.uniform(low, 2, type_.concrete_shape)
        inputs.append(np.asarray(values, type_.dtype.numpy))
    return inputs


def arrays_of(value: Value) -> Iterator[np.ndarray]:
    """The tensors of a result, tuples flattened."""
    pending = [value]
    while pending:
        current = pending.pop()
        if isinstance(current, tuple):
            pending.extend(reversed(current))
        else:
            yield current


def _difference(expected: np.ndarray, got: np.ndarray) -> str | None:
    if expected.shape != got.shape or expected.dtype != got.dtype:
        return f"{expected.dtype}{expected.shape} became {got.dtype}{got.shape}"
    tolerance = TOLERANCE.get(expected.dtype.name)
    if tolerance is None:
        return None if np.array_equal(expected, got) else "unequal elements"
    wide, found = expected.astype(np.float64), got.astype(np.float64)
    finite = np.isfinite(wide)
    if not np.array_equal(wide[~finite], found[~finite], equal_nan=True):
        return "infinities or NaN in other places"
    scale = float(np.abs(wide[finite]).max(initial=0)) or 1.0
    error = float(np.abs(wide[finite] - found[finite]).max(initial=0)) / scale
    return None if error <= tolerance else f"relative error {error:.2g}"
