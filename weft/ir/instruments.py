"""Instruments: printing, dumping, timing and checking between passes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection
from dataclasses import field
from pathlib import Path
from typing import TextIO

from weft.ir.module import IRModule
from weft.ir.passes import Pass, pass_failure
from weft.ir.rewrite.driver import RewriteStats
from weft.ir.text.printer import as_text
from weft.ir.verify import verify_module
from weft.support.dataclass import dataclass
from weft.support.errors import InternalError
from weft.support.log import write_dump

Show = Callable[[IRModule], str]


def readable(mod: IRModule) -> str:
    """The module as text for reading: types as comments, large constants without their data."""
    return as_text(mod, metadata=False, types=True)


@dataclass(eq=False)
class PrintInstrument:
    """Prints the module around named passes (``"all"`` names every pass)."""

    before: Collection[str] = ()
    after: Collection[str] = ("all",)
    stream: TextIO | None = None
    show: Show = readable

    def before_pass(self, pass_: Pass, mod: IRModule) -> None:
        if _named(pass_, self.before):
            self._write(f"// before {pass_}", self.show(mod))

    def after_pass(self, pass_: Pass, before: IRModule, after: IRModule, seconds: float) -> None:  # noqa: ARG002
        if not _named(pass_, self.after):
            return
        text = self.show(after)
        same = after is before or text == self.show(before)
        self._write(f"// after {pass_}" + (": unchanged" if same else ""), "" if same else text)

    def _write(self, heading: str, text: str) -> None:
        stream = self.stream or sys.stderr
        stream.write(f"{heading}\n{text}\n" if text else f"{heading}\n")


def _named(pass_: Pass, names: Collection[str]) -> bool:
    return "all" in names or pass_.name in names


@dataclass(eq=False)
class ExplainInstrument:
    """Prints after each pass how often rewrite rules were tried, applied and refused, and why.

    ``names`` are rules (``"all"``: every rule that matched). Passes count into ``stats`` if the
    context has it: ``config={"rewrite_stats": instrument.stats}``.
    """

    names: Collection[str] = ("all",)
    stats: RewriteStats = field(default_factory=RewriteStats)
    stream: TextIO | None = None

    def before_pass(self, pass_: Pass, mod: IRModule) -> None:  # noqa: ARG002
        self.stats.clear()

    def after_pass(self, pass_: Pass, before: IRModule, after: IRModule, seconds: float) -> None:  # noqa: ARG002
        stream = self.stream or sys.stderr
        for name in sorted(self.stats.tried):
            matched = self.stats.applied[name] or name in self.stats.refused
            if name in self.names or ("all" in self.names and matched):
                stream.write(f"// {pass_.name}: {self.stats.explain(name)}\n")


@dataclass(eq=False)
class DumpInstrument:
    """Writes the module after every pass to ``directory/03-fuse_ops.ir``, in order."""

    directory: Path
    show: Show = readable
    count: int = 0

    def before_pass(self, pass_: Pass, mod: IRModule) -> None:  # noqa: ARG002
        if self.count == 0:
            self._write("input", self.show(mod))

    def after_pass(self, pass_: Pass, before: IRModule, after: IRModule, seconds: float) -> None:  # noqa: ARG002
        same = after is before
        self._write(pass_.name, f"// {pass_}: unchanged\n" if same else self.show(after))

    def _write(self, name: str, text: str) -> None:
        write_dump(self.directory, f"{self.count:02d}-{name}.ir",
                   text if text.endswith("\n") else text + "\n")
        self.count += 1


@dataclass(eq=False)
class TimingInstrument:
    """Collects the wall time of every pass; ``table()`` lists them, slowest first."""

    seconds: dict[str, float] = field(default_factory=dict)
    runs: dict[str, int] = field(default_factory=dict)

    def before_pass(self, pass_: Pass, mod: IRModule) -> None:
        """``after_pass`` gets the measured time."""

    def after_pass(self, pass_: Pass, before: IRModule, after: IRModule, seconds: float) -> None:  # noqa: ARG002
        self.seconds[pass_.name] = self.seconds.get(pass_.name, 0.0) + seconds
        self.runs[pass_.name] = self.runs.get(pass_.name, 0) + 1

    def table(self) -> str:
        """One line per pass: milliseconds, share, runs, name."""
        total = sum(self.seconds.values()) or 1.0
        rows = sorted(self.seconds.items(), key=lambda row: -row[1])
        lines = ["      ms      %  runs  pass"]
        for name, spent in rows:
            share = 100 * spent / total
            lines.append(f"{spent * 1e3:8.2f} {share:6.1f} {self.runs[name]:5d}  {name}")
        lines.append(f"{sum(self.seconds.values()) * 1e3:8.2f}  100.0        total")
        return "\n".join(lines)


@dataclass(eq=False)
class VerifyInstrument:
    """Checks well-formedness after every pass that changed something.

    ``compare`` is a further check of the module before against the one after, such as evaluating
    both on the same inputs.
    """

    compare: Callable[[IRModule, IRModule], None] | None = None

    def before_pass(self, pass_: Pass, mod: IRModule) -> None:
        """The module was verified after the pass before."""

    def after_pass(self, pass_: Pass, before: IRModule, after: IRModule, seconds: float) -> None:  # noqa: ARG002
        if after is before:
            return
        verify_module(after, after=pass_.name)
        if self.compare is None:
            return
        try:
            self.compare(before, after)
        except InternalError as error:
            raise pass_failure(pass_, "changed what the program computes",
                               notes=error.render().splitlines()) from error
