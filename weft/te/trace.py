"""The schedule trace: the primitives applied so far, printed as Python that applies them again."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any, TypeVar, cast

from weft.support.dataclass import dataclass
from weft.te.plan import attach_to_scans
from weft.te.state import ScheduleState, StageState
from weft.te.tensor import ComputeOp, IterVar, Tensor
from weft.tir.instruction import Instruction

F = TypeVar("F", bound=Callable[..., Any])
_INDENT = "    "


@dataclass(slots=True, eq=False)
class ScheduleTrace:
    """Lines of Python: one per primitive, and one per axis that a primitive names first.

    ``depth`` counts the primitives on the call stack: only the outermost one is traced.
    """

    schedule: ScheduleState
    lines: list[str] = field(default_factory=list)
    names: dict[Any, str] = field(default_factory=dict)
    taken: set[str] = field(default_factory=lambda: {"s", "te", "outputs"})
    depth: int = 0

    def name(self, thing: IterVar | Tensor) -> str:
        """A fresh Python identifier derived from the name of an axis or a tensor."""
        base = re.sub(r"\W", "_", thing.name)
        base = f"v{base}" if not base[:1].isalpha() or base in _RESERVED else base
        name, number = base, 1
        while name in self.taken:
            name, number = f"{base}_{number}", number + 1
        self.taken.add(name)
        self.names[thing] = name
        return name

    def text(self, value: Any) -> str:
        """An argument as Python source; an axis without a name gets one in a new line."""
        match value:
            case StageState():
                return f"s[{self.text(value.tensors[0])}]"
            case IterVar():
                return self.names.get(value) or self._bound(value)
            case Tensor():
                return self.names.get(value) or self.name(value)
            case Instruction():
                return f"te.find_instruction({value.name!r})"
            case list() | tuple():
                return f"[{', '.join(map(self.text, value))}]"
        return repr(value)

    def _bound(self, axis: IterVar) -> str:
        for stage in self.schedule.stages:
            fields = {"leaf_iter_vars": tuple(stage.leaf_iter_vars)}
            if isinstance(stage.op, ComputeOp):
                # Data and reduction axes first: unlike loops, they keep their positions when loops
                # are split or reordered.
                fields = {"axis": stage.axis, "reduce_axis": stage.reduce_axis, **fields}
            for field_name, axes in fields.items():
                if axis in axes:
                    position, owner = axes.index(axis), self.text(stage)
                    name = self.name(axis)
                    self.lines.append(f"{name} = {owner}.{field_name}[{position}]")
                    return name
        return repr(axis)  # an axis of another schedule; the primitive raises the error

    def call(self, name: str, target: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> str:
        """The call of a primitive as Python."""
        owner = "s" if isinstance(target, ScheduleState) else self.text(target)
        words = [self.text(a) for a in args]
        words += [f"{key}={self.text(value)}" for key, value in kwargs.items()]
        return f"{owner}.{name}({', '.join(words)})"

    def forget(self, count: int) -> None:
        """Drop the lines from index ``count`` on: the primitive that needed them raised."""
        gone = {line.partition(" = ")[0] for line in self.lines[count:]}
        del self.lines[count:]
        self.names = {thing: name for thing, name in self.names.items() if name not in gone}
        self.taken -= gone

    def record(self, call: str, result: Any) -> None:
        """Append a call, with names for the axes and tensors that it returned."""
        results = result if isinstance(result, tuple) else (result,)
        names = [self.names.get(r) or self.name(r) for r in results
                 if isinstance(r, IterVar | Tensor)]
        fresh = ", ".join(names)
        self.lines.append(f"{fresh} = {call}" if names else call)

    def as_python(self, tensors: Sequence[Tensor]) -> str:
        """Source of ``schedule(outputs)``; ``tensors`` holds one tensor of each initial stage."""
        head = ["def schedule(outputs):", "s = te.create_schedule(outputs)"]
        names = [self.names[t] for t in tensors]
        head.append(f"{', '.join(names)}{',' * (len(names) == 1)} = s.tensors")
        return f"\n{_INDENT}".join([*head, *self.lines, "return s"]) + "\n"


_RESERVED = frozenset(["False", "None", "True", "and", "as", "def", "del", "for", "from", "if",
                       "import", "in", "is", "lambda", "not", "or", "return", "while", "with"])


def traced(primitive: F) -> F:
    """``primitive`` as a method that appends its call to the trace if it succeeds."""

    @functools.wraps(primitive)
    def method(*args: Any, **kwargs: Any) -> Any:
        target: Any = args[0]
        schedule = target if isinstance(target, ScheduleState) else target.schedule
        trace: ScheduleTrace = schedule.trace
        is_outermost, known = trace.depth == 0, len(trace.lines)
        call = ""
        if is_outermost:  # before the call, because the primitive may consume axes
            call = trace.call(primitive.__name__, target, args[1:], kwargs)
        trace.depth += 1
        try:
            result = primitive(*args, **kwargs)
        except Exception:
            if is_outermost:
                trace.forget(known)
            raise
        finally:
            trace.depth -= 1
        if is_outermost:
            attach_to_scans(schedule)  # new stages, and stages that compute_root moved
            trace.record(call, result)
        return result

    return cast("F", method)
