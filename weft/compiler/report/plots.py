"""Plots of measurements as SVG: a bar for each value, and what each command draws."""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from weft.support.dataclass import dataclass

if TYPE_CHECKING:
    from weft.runtime.profile import Profile

_LABELS, _WIDTH, _ROW, _TOP = 330, 480, 20, 44
_LONGEST, _MOST_BARS, _BINS = 46, 40, 24
_FAR = 3  # medians; times beyond are drawn together
_STYLE = """text{font:12px system-ui,sans-serif;fill:#1c2430}.t{font-size:15px;font-weight:600}
rect.b{fill:#4a7ebb}.m{stroke:#c98a2b;stroke-width:3}svg{background:#fff}
@media(prefers-color-scheme:dark){text{fill:#dbe2ea}svg{background:#14181d}}"""


@dataclass(frozen=True, slots=True)
class Bar:
    """A value with its text; ``mark`` is a second value on the same scale."""

    label: str
    value: float
    text: str
    mark: float | None = None


def bars_svg(title: str, bars: Sequence[Bar], *, note: str = "", least: float | None = None) -> str:
    """Bars below each other; with ``least`` the scale is logarithmic and begins there."""
    shown = bars[:_MOST_BARS]
    if len(bars) > len(shown):
        note = f"{note}; {len(bars) - len(shown)} more are not shown".removeprefix("; ")
    finite = [v for bar in shown for v in (bar.value, bar.mark) if v is not None and v < math.inf]
    most = max([v for v in finite if v > 0], default=1.0)

    def x(value: float) -> float:
        if math.isnan(value) or value <= (least or 0.0):
            return 0.0
        if value >= most:
            return _WIDTH
        if least is None:
            return _WIDTH * value / most
        return _WIDTH * math.log(value / least) / math.log(max(most / least, 1.0001))

    height = _TOP + _ROW * len(shown) + 10
    parts = [(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_LABELS + _WIDTH + 110} '
              f'{height}" role="img" aria-label="{html.escape(title)}"><style>{_STYLE}</style>'),
             f'<text class="t" x="8" y="18">{html.escape(title)}</text>',
             f'<text x="8" y="35">{html.escape(note)}</text>']
    for number, bar in enumerate(shown):
        parts.append(_row(bar, _TOP + _ROW * number, x))
    return "".join([*parts, "</svg>\n"])


def _row(bar: Bar, y: float, x: Callable[[float], float]) -> str:
    width = x(bar.value)
    label = bar.label if len(bar.label) <= _LONGEST else f"{bar.label[: _LONGEST - 1]}…"
    mark = "" if bar.mark is None or math.isnan(bar.mark) else (
        f'<path class="m" d="M{_LABELS + x(bar.mark):.1f} {y + 1:.0f}v16"/>')
    return (f"<g><title>{html.escape(bar.label)}: {html.escape(bar.text)}</title>"
            f'<text x="{_LABELS - 8}" y="{y + 13:.0f}" text-anchor="end">'
            f'{html.escape(label)}</text>'
            f'<rect class="b" x="{_LABELS}" y="{y + 2:.0f}" width="{max(width, 1):.1f}" '
            f'height="14"/>'
            f'<text x="{_LABELS + max(width, 1) + 6:.1f}" y="{y + 13:.0f}">'
            f'{html.escape(bar.text)}</text>{mark}</g>')


def times_plot(title: str, milliseconds: Sequence[float]) -> str:
    """How many runs took how long."""
    low, median = min(milliseconds), sorted(milliseconds)[len(milliseconds) // 2]
    high = min(max(milliseconds), _FAR * median)
    step = (high - low) / _BINS or 1.0
    counts = [0] * _BINS
    for one in milliseconds:
        counts[min(int((one - low) / step), _BINS - 1)] += 1
    bars = [Bar(f"{low + n * step:.4g} to {low + (n + 1) * step:.4g} ms", count, str(count))
            for n, count in enumerate(counts)]
    return bars_svg(title, bars, note=f"runs by their time, {len(milliseconds)} in all; "
                                      f"the last row has all up to {max(milliseconds):.4g} ms")


def profile_plot(title: str, profile: Profile) -> str:
    """The time of each kernel, and the least that the machine allows."""
    bars = [Bar(f"{k.op or k.symbol} ({k.calls})", k.seconds, f"{k.seconds * 1e6:.1f} us", k.limit)
            for k in profile.kernels]
    return bars_svg(title, bars, note="time of all calls of each kernel; the mark is the limit of "
                                      "the machine")


def errors_plot(title: str, tensors: Sequence[tuple[str, float]], bound: float) -> str:
    """The relative error of each tensor in order of execution, of many the largest."""
    kept = {name for name, _ in sorted(tensors, key=lambda one: -one[1])[:_MOST_BARS]}
    bars = [Bar(name, error, f"{error:.2g}", bound)
            for name, error in tensors if name in kept]
    return bars_svg(title, bars, least=1e-9, note="relative error of each tensor, logarithmic; the "
                                                  "mark is the bound")
