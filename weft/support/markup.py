"""HTML of texts, tables and arrays: what notebooks show of weft's objects, and parts of reports."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

# Notebooks and browsers render longer texts slowly.
MAX_CHARACTERS = 60_000
# A share of the whole, from 0 to 1, is drawn as a bar.
_BAR = '<td><div style="background:#4a7ebb;height:.7em;width:{:.1f}%;min-width:1px"></div></td>'


def text_html(text: str) -> str:
    """A text as it is written; of a long one the beginning."""
    shown, left_out = beginning(text)
    note = f"<p>{left_out} more lines</p>" if left_out else ""
    return f"<pre>{_escaped(shown)}</pre>{note}"


def shown_as_text(self: object) -> str:
    """The ``_repr_html_`` of a class: its ``str``, with the indentation kept."""
    return text_html(str(self))


def beginning(text: str, most: int = MAX_CHARACTERS) -> tuple[str, int]:
    """Whole lines of up to ``most`` characters, and the number of lines left out."""
    if len(text) <= most:
        return text, 0
    end = text.rfind("\n", 0, most)
    shown = text[: end if end > 0 else most]
    return shown, text[len(shown):].strip("\n").count("\n") + 1


def html_table(columns: Sequence[str], rows: Iterable[Sequence[object]],
               numeric: Collection[int] = (), *, bars: Collection[int] = (), caption: str = ""
               ) -> str:
    """A table; columns ``numeric`` have the class n, those of ``bars`` hold shares from 0 to 1."""
    kinds = [' class="n"' if n in numeric else "" for n in range(len(columns))]
    head = "".join(f"<th{kind}>{_escaped(name)}</th>"
                   for name, kind in zip(columns, kinds, strict=True))
    body = "".join(f"<tr>{_cells(row, kinds, bars)}</tr>" for row in rows)
    title = f"<caption>{_escaped(caption)}</caption>" if caption else ""
    return f"<table>{title}<tr>{head}</tr>{body}</table>"


def _cells(row: Sequence[object], kinds: Sequence[str], bars: Collection[int]) -> str:
    return "".join(_BAR.format(100 * value) if n in bars and isinstance(value, float)
                   else f"<td{kind}>{_escaped(str(value))}</td>"
                   for n, (value, kind) in enumerate(zip(row, kinds, strict=True)))


def _escaped(text: str) -> str:
    from html import escape  # with a table of all entities

    return escape(text)
