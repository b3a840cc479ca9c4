"""Check that all peers compute the same results, before timing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx

Outputs = Sequence[np.ndarray]

# Relative to the largest element of an output; peers accumulate in different orders.
TOLERANCE = 1e-3


class DisagreementError(Exception):
    """Results of peers differ or are not finite."""


def check_agreement(what: str, outputs: Mapping[str, Outputs],
                    independent: Callable[[], Outputs], tolerance: float = TOLERANCE) -> None:
    """Raise ``DisagreementError`` unless all peers agree.

    ``outputs`` maps peers to results. The reference is the last peer other than weft; if only one
    peer ran, it is the result of ``independent``. Floats agree to ``tolerance`` times the largest
    number of their output, bytes to ``tolerance`` times 255, everything else exactly. All
    numbers must be finite, as the inputs are: NaN agrees with NaN even if both are wrong.
    """
    if not outputs:
        return
    others = [peer for peer in outputs if peer != "weft"]
    if len(outputs) == 1:
        reference, expected = "the reference", list(independent())
    else:
        reference = others[-1]
        expected = list(outputs[reference])
    _check_finite(what, reference, expected)
    for peer, got in outputs.items():
        if peer != reference:
            _check_finite(what, peer, got)
            _compare(f"{what}: {peer} and {reference} disagree", got, expected, tolerance)


def _check_finite(what: str, peer: str, arrays: Outputs) -> None:
    for number, array in enumerate(arrays):
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise DisagreementError(
                f"{what}: output {number} of {peer} is not finite")


def _compare(message: str, got: Outputs, expected: Outputs, tolerance: float) -> None:
    if len(got) != len(expected):
        raise DisagreementError(f"{message}: {len(got)} and {len(expected)} outputs")
    for number, (a, b) in enumerate(zip(got, expected, strict=True)):
        where = f"{message} in output {number}"
        if a.shape != b.shape or a.dtype.kind != b.dtype.kind:
            raise DisagreementError(f"{where}: {a.dtype}{a.shape} and {b.dtype}{b.shape}")
        if b.dtype.kind != "f":
            steps = int(255 * tolerance) if b.dtype.itemsize == 1 else 0
            wrong = int((np.abs(a.astype(np.int64) - b.astype(np.int64)) > steps).sum())
            if wrong:
                raise DisagreementError(f"{where}: {wrong} of {b.size} elements differ")
            continue
        error = np.abs(a.astype(np.float64) - b).max(initial=0.0)
        scale = float(np.abs(b).max(initial=0.0)) or 1.0
        if error > tolerance * scale:
            raise DisagreementError(f"{where}: by {error / scale:.2g} of the largest number, "
                                    f"tolerance {tolerance:g}")


def reference_outputs(path: Path, feeds: Mapping[str, np.ndarray]) -> Outputs:
    """Results of onnx's reference evaluator, which runs operator by operator in NumPy."""
    from onnx.reference import ReferenceEvaluator

    results = ReferenceEvaluator(onnx.load(path)).run(None, dict(feeds))
    return [np.asarray(result) for result in results]
