"""The decisions of placement as lines of text, for ``WEFT_EXPLAIN=placement``."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

from weft.ir import Call, Op
from weft.support.config import config
from weft.transform.placement.available import AvailableDevices, name_of
from weft.transform.placement.constraints import Constraints
from weft.transform.placement.task_graph import Placement, Task

_SHOWN = 4


def explain_placement(lines: Iterable[str]) -> None:
    """Print decisions to stderr if ``WEFT_EXPLAIN`` names ``placement``."""
    if "placement" in config.explain or "all" in config.explain:
        sys.stderr.write("".join(f"// placement: {line}\n" for line in lines))


def region_lines(found: Constraints, available: AvailableDevices) -> list[str]:
    """One line for each region: its device and the origin of that device."""
    domains = found.domains
    regions: dict[int, list[Call]] = {}
    for call, domain in found.calls:
        regions.setdefault(domains.root(domain), []).append(call)
    lines = []
    for root, calls in regions.items():
        known = domains.known(root)
        device = available.resolved(known)
        why = "; ".join(dict.fromkeys(f"by {pin.origin}" for pin in known.pins))
        groups = ", ".join(f"in group {name!r}" for name in known.groups)
        soft = f"no device is {known.device}" if available.is_soft(known) else ""
        reasons = "; ".join(one for one in (why, groups, soft) if one) or "no constraint"
        lines.append(f"{calls_text(calls)}: {name_of(device)}, {reasons}")
    return lines


def calls_text(calls: Sequence[Call]) -> str:
    """The operators of a region, with their numbers of calls."""
    names = list(dict.fromkeys(call.op.name for call in calls if isinstance(call.op, Op)))
    shown = ", ".join(names[:_SHOWN]) + (", .." if len(names) > _SHOWN else "")
    return shown if len(calls) == 1 else f"{shown} ({len(calls)} calls)"


def task_lines(tasks: Sequence[Task], placement: Placement) -> list[str]:
    """Each task of a placement by cost with its device, its times, and the reason."""
    return [f"{tasks[number].name}: {placement.devices[number]}, "
            f"{placement.starts[number] * 1e6:.1f} to {placement.finishes[number] * 1e6:.1f} us, "
            f"{placement.reasons[number]}" for number in placement.order]
