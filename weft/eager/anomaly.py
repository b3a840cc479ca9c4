"""``weft.detect_anomaly``: the first operator that made a NaN or an infinity."""

from __future__ import annotations

from types import TracebackType

from weft.eager.cell import MODE


class detect_anomaly:
    """Check every floating-point result that is computed inside for NaN and infinities.

    ``AnomalyError`` names the first operator, in the order of recording, that made one, and the
    line that recorded it. Programs compute one boolean more for each result. The check of a
    compiled step is ``weft.train_step(f, debug_nans=True)``.
    """

    def __init__(self) -> None:
        self._before: list[bool] = []

    def __enter__(self) -> None:
        self._before.append(MODE.anomaly)
        MODE.anomaly = True

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 traceback: TracebackType | None) -> None:
        MODE.anomaly = self._before.pop()
