"""Plain-text tables, without dependencies."""

from __future__ import annotations

from collections.abc import Collection, Sequence


def render_table(columns: Sequence[str], rows: Sequence[Sequence[str]],
                 left: Collection[str] = ()) -> str:
    """Columns as wide as their widest cell; those named in ``left`` are aligned left."""
    lines = [tuple(columns), *rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(columns))]

    def shown(line: Sequence[str]) -> str:
        cells = [cell.ljust(width) if name in left else cell.rjust(width)
                 for cell, width, name in zip(line, widths, columns, strict=True)]
        return "  ".join(cells).rstrip()

    return "\n".join(map(shown, lines))
