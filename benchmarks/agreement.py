"""Whether peers compute the same, before anything is timed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx

Outputs = Sequence[np.ndarray]

# Relative to the largest element of an output; peers accumulate in different orders.
TOLERANCE = 1e-3


class DisagreementError(Exception):
    """A peer's results are wrong, or nothing can tell whether they are right."""


def check_agreement(what: str, outputs: Mapping[str, Outputs],
                    independent: Callable[[], Outputs]) -> None:
    """Raise ``DisagreementError`` unless all peers agree.

    ``outputs`` are results by peer. The last one but weft is what the others are compared with;
    where only one peer ran, that is what ``independent`` gives. Floats agree to ``TOLERANCE`` of
    the largest number of their output, everything else exactly. All numbers must be finite: the
    inputs are, and a comparison of NaN with NaN says nothing.
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
            _compare(f"{what}: {peer} and {reference} disagree", got, expected)


def _check_finite(what: str, peer: str, arrays: Outputs) -> None:
    for number, array in enumerate(arrays):
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise DisagreementError(
                f"{what}: output {number} of {peer} has numbers that are not finite")


def _compare(message: str, got: Outputs, expected: Outputs) -> None:
    if len(got) != len(expected):
        raise DisagreementError(f"{message}: {len(got)} and {len(expected)} outputs")
    for number, (a, b) in enumerate(zip(got, expected, strict=True)):
        where = f"{message} in output {number}"
        if a.shape != b.shape or a.dtype.kind != b.dtype.kind:
            raise DisagreementError(f"{where}: {a.dtype}{a.shape} and {b.dtype}{b.shape}")
        if b.dtype.kind != "f":
            wrong = int((a != b).sum())
            if wrong:
                raise DisagreementError(f"{where}: {wrong} of {b.size} elements differ")
            continue
        error = np.abs(a.astype(np.float64) - b).max(initial=0.0)
        scale = float(np.abs(b).max(initial=0.0)) or 1.0
        if error > TOLERANCE * scale:
            raise DisagreementError(f"{where}: by {error / scale:.2g} of the largest number, "
                                    f"tolerance {TOLERANCE:g}")


def reference_outputs(path: Path, feeds: Mapping[str, np.ndarray]) -> Outputs:
    """What onnx's own evaluator computes, operator by operator in NumPy."""
    from onnx.reference import ReferenceEvaluator

    results = ReferenceEvaluator(onnx.load(path)).run(None, dict(feeds))
    return [np.asarray(result) for result in results]
