"""The text of ``Executable.explain()``: the kernels of a program, and what weft does instead."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Iterator, Sequence

from weft.runtime.calls import KernelCall
from weft.runtime.manifest import Manifest
from weft.runtime.profile import KernelProfile, Profile, render_table
from weft.runtime.roofline import Limit
from weft.support.fallback import Fallback, FallbackLog

_COLUMNS = ("predicted", "measured", "limit", "calls", "operators", "implementation", "takes time")
_LEFT = ("operators", "implementation", "takes time")
_LONGEST = 60  # characters of the operators of a kernel


def kernel_lines(manifest: Manifest, profile: Profile | None) -> list[str]:
    """The kernels of a program, slowest first, as lines of a table, and its copies.

    ``profile`` is the last one; without one nothing is measured, and limits are unknown.
    """
    groups: dict[str, list[KernelCall]] = {}
    for call in manifest.steps:
        groups.setdefault(call.symbol, []).append(call)
    if not groups:
        return []
    measured = {} if profile is None else {kernel.symbol: kernel for kernel in profile.kernels}
    limits = {} if profile is None else {
        step.call.symbol: limit for step, limit in zip(profile.steps, profile.limits, strict=False)}
    order = sorted(groups.values(), key=lambda group: -_seconds(group, measured))
    rows = [row for group in order for row in _rows(
        group, measured.get(group[0].symbol), limits.get(group[0].symbol))]
    about = f"kernels of one call, in us; predicted for one core of {manifest.target.cpu}, warm"
    told = ("mod.profile(inputs) measures them" if profile is None
            else f"measured on {profile.num_threads} thread(s) by the last profile")
    return [f"{about}; {told}:", *render_table(_COLUMNS, rows, _LEFT).splitlines(),
            *_copies(manifest.steps)]


def _seconds(group: Sequence[KernelCall], measured: dict[str, KernelProfile]) -> float:
    found = measured.get(group[0].symbol)
    return sum(call.seconds for call in group) if found is None else found.seconds


def _rows(group: Sequence[KernelCall], measured: KernelProfile | None, limit: Limit | None
          ) -> Iterator[Sequence[str]]:
    """The row of a kernel, and one for each specialisation that some sizes take."""
    first = group[0]
    predicted = sum(call.seconds for call in group)
    bound = "-" if limit is None or measured is None else (
        f"{_us(measured.limit)} {'FMA' if limit.arithmetic > limit.traffic else 'bandwidth'}")
    yield (_us(predicted or math.nan), _us(math.nan if measured is None else measured.seconds),
           bound, str(len(group)), textwrap.shorten(first.op or first.symbol, _LONGEST),
           first.implementation, first.spent)
    for variant in first.variants:
        yield (_us(variant.seconds or math.nan), "", "", "", "  for some sizes",
               variant.implementation, "")


def _copies(steps: Iterable[KernelCall]) -> list[str]:
    """How much of the predicted time goes to kernels that compute nothing."""
    steps = list(steps)
    moving = [call for call in steps if call.flops == 0]
    total = sum(call.seconds for call in steps)
    if not moving or not total:
        return []
    share = sum(call.seconds for call in moving) / total
    calls = f"{len(moving)} of {len(steps)} calls"
    return [f"copies and changes of layout: {calls}, predicted {share:.1%} of the time"]


def _us(seconds: float) -> str:
    return "-" if math.isnan(seconds) else f"{seconds * 1e6:.1f}"


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
