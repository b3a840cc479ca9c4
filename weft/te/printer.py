"""A schedule as text: each stage with its attach point and its loops, outermost first."""

from __future__ import annotations

from weft.te.state import AttachAt, Prefetch, ScheduleState, StageState
from weft.te.tensor import REDUCE, IterVar
from weft.tir import ForKind, int_value


def as_text(schedule: ScheduleState) -> str:
    """One line per stage, followed by one line per loop of it."""
    return "\n".join(_stage(s) for s in schedule.stages if not s.is_placeholder)


def _stage(stage: StageState) -> str:
    shape = ", ".join(str(d) for d in stage.tensors[0].shape)
    notes = [_attach_point(stage)] + ([] if stage.scope == "global" else [stage.scope])
    notes += [f"{axis.name} apart by {factor} * n + {offset}"
              for axis, (factor, offset) in stage.alignments.items()]
    notes += ["double buffer"] * stage.is_double_buffered
    notes += [] if stage.stored_in is None else [f"in {stage.stored_in.name}"]
    lines = [f"{stage.name}({shape}): {', '.join(notes)}"]
    if stage.attach != "inline":
        lines += [f"  {_loop(stage, axis)}" for axis in stage.leaf_iter_vars]
    return "\n".join(lines)


def _attach_point(stage: StageState) -> str:
    at = stage.attach
    return f"at {at.stage.name}.{at.axis.name}" if isinstance(at, AttachAt) else at


def _loop(stage: StageState, axis: IterVar) -> str:
    size = int_value(axis.extent)
    text = f"{axis.name} in {axis.extent if size is None else size}"
    kind = stage.kinds.get(axis, ForKind.SERIAL)
    words = ["reduce"] if axis.kind == REDUCE else []
    words += [] if kind is ForKind.SERIAL else [stage.thread_tags.get(axis, kind.value)]
    if stage.tensorized is not None and stage.tensorized[0] is axis:
        words.append(stage.tensorized[1].name)
    words += [_prefetch(p) for p in stage.prefetches if p.axis is axis]
    words += [f"{key}={value}" for key, value in stage.pragmas.get(axis, {}).items()]
    return f"{text}: {', '.join(words)}" if words else text


def _prefetch(ahead: Prefetch) -> str:
    where = f"{ahead.offset} ahead" if ahead.readers is None else "block ahead"
    return f"prefetch {ahead.tensor.name} {where}"
