"""The primitives that made a schedule, as Python that makes it again."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from weft.te.plan import attach_to_scans
from weft.te.state import ScheduleState, StageState
from weft.te.tensor import ComputeOp, IterVar, Tensor
from weft.tir.instruction import Instruction

F = TypeVar("F", bound=Callable[..., Any])
_INDENT = "    "


@dataclass(slots=True, eq=False)
class Journal:
    """Lines of Python, one for each primitive and one for each axis that it is the first to name.

    ``depth`` counts the primitives that run: those that others call are not written down.
    """

    schedule: ScheduleState
    lines: list[str] = field(default_factory=list)
    names: dict[Any, str] = field(default_factory=dict)
    taken: set[str] = field(default_factory=lambda: {"s", "te", "outputs"})
    depth: int = 0

    def name(self, thing: IterVar | Tensor) -> str:
        """A fresh identifier like the name of an axis or a tensor."""
        base = re.sub(r"\W", "_", thing.name)
        base = f"v{base}" if not base[:1].isalpha() or base in _RESERVED else base
        name, number = base, 1
        while name in self.taken:
            name, number = f"{base}_{number}", number + 1
        self.taken.add(name)
        self.names[thing] = name
        return name

    def text(self, value: Any) -> str:
        """An argument as Python; axes that have no name yet get one, in a line of their own."""
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
            parts = {"leaf_iter_vars": tuple(stage.leaf_iter_vars)}
            if isinstance(stage.op, ComputeOp):
                parts = {"axis": stage.axis, "reduce_axis": stage.reduce_axis, **parts}
            for part, axes in parts.items():
                if axis in axes:
                    place, owner = axes.index(axis), self.text(stage)
                    name = self.name(axis)
                    self.lines.append(f"{name} = {owner}.{part}[{place}]")
                    return name
        return repr(axis)  # of another schedule: the primitive refuses it

    def call(self, name: str, target: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> str:
        """The call of a primitive as Python."""
        owner = "s" if isinstance(target, ScheduleState) else self.text(target)
        words = [self.text(a) for a in args]
        words += [f"{key}={self.text(value)}" for key, value in kwargs.items()]
        return f"{owner}.{name}({', '.join(words)})"

    def forget(self, count: int) -> None:
        """Take back the lines from number ``count`` on: the call that wanted them was refused."""
        gone = {line.partition(" = ")[0] for line in self.lines[count:]}
        del self.lines[count:]
        self.names = {thing: name for thing, name in self.names.items() if name not in gone}
        self.taken -= gone

    def record(self, call: str, result: Any) -> None:
        results = result if isinstance(result, tuple) else (result,)
        names = [self.names.get(r) or self.name(r) for r in results
                 if isinstance(r, IterVar | Tensor)]
        fresh = ", ".join(names)
        self.lines.append(f"{fresh} = {call}" if names else call)

    def as_python(self, tensors: Sequence[Tensor]) -> str:
        """A function from the outputs to the schedule; ``tensors`` are one of each first stage."""
        head = ["def schedule(outputs):", "s = te.create_schedule(outputs)"]
        names = [self.names[t] for t in tensors]
        head.append(f"{', '.join(names)}{',' * (len(names) == 1)} = s.tensors")
        return f"\n{_INDENT}".join([*head, *self.lines, "return s"]) + "\n"


_RESERVED = frozenset(["False", "None", "True", "and", "as", "def", "del", "for", "from", "if",
                       "import", "in", "is", "lambda", "not", "or", "return", "while", "with"])


def recorded(primitive: F) -> F:
    """``primitive`` as a method that writes itself into the journal where it succeeds."""

    @functools.wraps(primitive)
    def method(*args: Any, **kwargs: Any) -> Any:
        target: Any = args[0]
        schedule = target if isinstance(target, ScheduleState) else target.schedule
        journal: Journal = schedule.journal
        is_outermost, known = journal.depth == 0, len(journal.lines)
        call = ""
        if is_outermost:  # names are those of before: the primitive may take axes away
            call = journal.call(primitive.__name__, target, args[1:], kwargs)
        journal.depth += 1
        try:
            result = primitive(*args, **kwargs)
        except Exception:
            if is_outermost:
                journal.forget(known)
            raise
        finally:
            journal.depth -= 1
        if is_outermost:
            attach_to_scans(schedule)  # new stages, and those that were taken to the root
            journal.record(call, result)
        return result

    return cast("F", method)
