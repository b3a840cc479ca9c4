"""``StepTrace``: when each step of a run ran, on which device; as a Chrome trace and as a page."""

from __future__ import annotations

import html
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft.support.dataclass import dataclass

if TYPE_CHECKING:
    from weft.runtime.profile import StepTime

_LANE_HEIGHT, _LABEL_WIDTH, _WIDTH = 28, 150, 1000
_COLOURS = ("#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#76b7b2", "#edc948", "#b07aa1", "#9c755f")


@dataclass(frozen=True, slots=True)
class TracedStep:
    """One kernel call or copy: seconds since the start of the run, and its duration."""

    name: str
    lane: str
    start: float
    seconds: float


@dataclass(frozen=True, slots=True)
class StepTrace:
    """``steps`` in order of their starts; a lane is a device, a stream of one, or a link."""

    steps: tuple[TracedStep, ...]

    @staticmethod
    def of(times: Sequence[StepTime], begin: float) -> StepTrace:
        """The trace of steps whose starts are readings of the clock; ``begin`` is the run's."""
        from weft.runtime.profile import lane_of  # it imports this module's users

        made = [TracedStep(one.call.op or one.call.symbol, lane_of(one.call), one.start - begin,
                           one.seconds) for one in times]
        return StepTrace(tuple(sorted(made, key=lambda step: step.start)))

    @property
    def lanes(self) -> tuple[str, ...]:
        """The lanes in order of their first step."""
        return tuple(dict.fromkeys(step.lane for step in self.steps))

    @property
    def seconds(self) -> float:
        """The end of the last step."""
        return max((step.start + step.seconds for step in self.steps), default=0.0)

    def chrome_trace(self, path: str | os.PathLike[str]) -> None:
        """Write the steps as a trace for chrome://tracing or Perfetto, a thread for each lane."""
        numbers = {lane: number for number, lane in enumerate(self.lanes)}
        events: list[dict[str, Any]] = [
            {"name": "thread_name", "ph": "M", "pid": 0, "tid": number, "args": {"name": lane}}
            for lane, number in numbers.items()]
        events += [{"name": step.name, "cat": "step", "ph": "X", "pid": 0,
                    "tid": numbers[step.lane], "ts": step.start * 1e6, "dur": step.seconds * 1e6}
                   for step in self.steps]
        Path(path).write_text(json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}),
                              encoding="utf-8")

    def html(self, path: str | os.PathLike[str]) -> None:
        """Write one page without references to others: a row for each lane, a box for each step."""
        lanes = self.lanes
        scale = _WIDTH / self.seconds if self.seconds else 0.0
        colours: dict[str, str] = {}
        boxes = []
        for step in self.steps:
            colour = colours.setdefault(step.name, _COLOURS[len(colours) % len(_COLOURS)])
            title = f"{step.name}: {step.seconds * 1e6:.1f} us at {step.start * 1e6:.1f} us"
            boxes.append(
                f'<rect x="{_LABEL_WIDTH + step.start * scale:.2f}" '
                f'y="{lanes.index(step.lane) * _LANE_HEIGHT + 4}" '
                f'width="{max(step.seconds * scale, 0.5):.2f}" height="{_LANE_HEIGHT - 8}" '
                f'fill="{colour}"><title>{html.escape(title)}</title></rect>')
        labels = [f'<text x="4" y="{number * _LANE_HEIGHT + 18}">{html.escape(lane)}</text>'
                  for number, lane in enumerate(lanes)]
        svg = (f'<svg xmlns="http://www.w3.org/2000/svg" width="{_LABEL_WIDTH + _WIDTH + 10}" '
               f'height="{len(lanes) * _LANE_HEIGHT + 10}" font-family="sans-serif" '
               f'font-size="12">{"".join(labels + boxes)}</svg>')
        Path(path).write_text(
            '<!DOCTYPE html><html><head><meta charset="utf-8"><title>Steps of a run</title></head>'
            f"<body><h1>{self.seconds * 1e6:.1f} us on {len(lanes)} lanes</h1>{svg}</body></html>",
            encoding="utf-8")
