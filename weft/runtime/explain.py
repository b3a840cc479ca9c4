"""``explain()`` of modules: how they started, and what weft does instead of what was asked for."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from weft.support.fallback import Fallback, FallbackLog


def explanation(signature: str, start: str, log: FallbackLog, more: Sequence[str] = ()) -> str:
    """The text of ``explain()``: the signature, the start, further facts, and the log as a table.

    The numbers are how often each was met: at compilation, and in calls.
    """
    counts = log.counts
    lines = [signature, f"start: {start}", *more]
    if not counts:
        return "\n".join([*lines, "what weft does instead: nothing"])
    lines.append("what weft does instead:")
    for number, (fallback, count) in enumerate(counts.items(), 1):
        lines += _entry(number, fallback, count)
    return "\n".join(lines)


def _entry(number: int, fallback: Fallback, count: int) -> list[str]:
    times = f" ({count} times)" if count > 1 else ""
    kind = " (listed only)" if fallback.listed_only else ""
    rows = [("", f"{fallback.what}{times}{kind}"), ("because ", fallback.cause),
            ("cost    ", fallback.cost), ("cure    ", fallback.cure)]
    wrapped = [line for label, text in rows for line in textwrap.wrap(
        text, 100, initial_indent=f"    {label}", subsequent_indent=" " * (4 + len(label)),
        break_long_words=False, break_on_hyphens=False)]
    return [f"{number:>3} {wrapped[0].strip()}", *wrapped[1:]]
