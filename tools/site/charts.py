"""Line charts as small SVG text, readable on light and on dark pages."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 480, 240  # a phone shows all of it, and its text can still be read
LEFT, RIGHT, TOP, BOTTOM = 44, 16, 26, 44
INK, FAINT, STRONG = "#808080", "#80808099", "#2f7de1"


@dataclass(frozen=True)
class Line:
    """Points (x, y) with a name; a ``strong`` line has a colour, a ``dashed`` one is a limit."""

    points: Sequence[tuple[float, float]]
    name: str = ""
    strong: bool = False
    dashed: bool = False


@dataclass(frozen=True)
class Chart:
    """Lines over common axes; ``title`` is also what a screen reader says."""

    title: str
    x_label: str
    y_label: str
    lines: Sequence[Line]
    x_ticks: Sequence[float]
    top: float

    def svg(self) -> str:
        """The whole picture."""
        head = (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
                f'width="{WIDTH}" height="{HEIGHT}" role="img" font-family="sans-serif" '
                f'font-size="14" fill="{INK}">')
        parts = [head, f"<title>{escape(self.title)}</title>", *self._axes(),
                 *map(self._line, self.lines), *self._names(), "</svg>"]
        return "\n".join(parts) + "\n"

    def _x(self, value: float) -> float:
        low, high = self.x_ticks[0], self.x_ticks[-1]
        return LEFT + (value - low) / (high - low) * (WIDTH - LEFT - RIGHT)

    def _y(self, value: float) -> float:
        return HEIGHT - BOTTOM - value / self.top * (HEIGHT - TOP - BOTTOM)

    def _axes(self) -> list[str]:
        base = self._y(0)
        parts = [f'<path d="M{LEFT} {TOP}V{base:g}H{WIDTH - RIGHT}" fill="none" stroke="{INK}"/>',
                 f'<text x="4" y="15">{escape(self.y_label)}</text>',
                 _text(WIDTH - RIGHT, HEIGHT - 6, self.x_label, "end")]
        parts += [_text(LEFT - 6, self._y(tick) + 5, f"{tick:g}", "end")
                  for tick in y_ticks(self.top)]
        return parts + [_text(self._x(tick), base + 18, f"{tick:g}", "middle")
                        for tick in self.x_ticks]

    def _line(self, line: Line) -> str:
        points = " ".join(f"{self._x(x):.1f},{self._y(y):.1f}" for x, y in line.points)
        stroke = STRONG if line.strong else INK if line.dashed else FAINT
        dashes = ' stroke-dasharray="5 4"' if line.dashed else ""
        width = 2.5 if line.strong else 1.2
        return (f'<polyline points="{points}" fill="none" stroke="{stroke}" '
                f'stroke-width="{width}"{dashes}/>')

    def _names(self) -> list[str]:
        """Names of lines at their ends, above all of their last third."""
        start = self.x_ticks[0] + 2 / 3 * (self.x_ticks[-1] - self.x_ticks[0])
        return [_text(WIDTH - RIGHT, self._y(max(y for x, y in line.points if x >= start)) - 6,
                      line.name, "end", STRONG if line.strong else INK)
                for line in self.lines if line.name]


def y_ticks(top: float) -> list[float]:
    """Round numbers from 0 to ``top``, four to eight of them."""
    step = 10.0 ** math.floor(math.log10(top))
    while top / step < 4:
        step /= 2
    return [step * i for i in range(int(top / step) + 1)]


def _text(x: float, y: float, text: str, anchor: str, fill: str = INK) -> str:
    return (f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{fill}">'
            f"{escape(text)}</text>")
