"""The decisions of a compilation as text: ``weft inspect`` and ``WEFT_EXPLAIN``.

Two kinds are shown. Operator families decide the algorithm of each call (``strategy.decision``),
before legalisation rewrites calls and changes their layouts. Later an implementation is selected
for each kernel, by the candidates of its anchor call (``strategy.selection``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field

from weft.compiler.program.program import KernelSource
from weft.ir import Call, IRModule, Pass, post_order
from weft.strategy.build_tensors import anchor_of
from weft.strategy.decision import decision_of
from weft.strategy.explain import call_text, explain_decision, kernel_text
from weft.strategy.records import ranking_of
from weft.strategy.selection import select
from weft.support.dataclass import dataclass
from weft.target import Target
from weft.transform.passes.legalize import Legalize


@dataclass(frozen=True, slots=True)
class Described:
    """A call or kernel with the text of its decision; ``count`` of them have the same text."""

    subject: str
    text: str
    count: int = 1


@dataclass(eq=False)
class KeepBeforeLegalize:
    """An instrument that keeps the module whose calls the operator families decide."""

    module: IRModule | None = field(default=None)

    def before_pass(self, pass_: Pass, mod: IRModule) -> None:
        if isinstance(pass_, Legalize):
            self.module = mod

    def after_pass(self, pass_: Pass, before: IRModule, after: IRModule, seconds: float) -> None:
        """Nothing to do after a pass."""


@dataclass(frozen=True, slots=True)
class ExplainDecisions:
    """An instrument that prints the decisions of operators that ``WEFT_EXPLAIN`` names."""

    target: Target

    def before_pass(self, pass_: Pass, mod: IRModule) -> None:
        if not isinstance(pass_, Legalize):
            return
        for call in calls_of(mod):
            decision = decision_of(call, self.target)
            if decision is not None:
                explain_decision(call, decision)

    def after_pass(self, pass_: Pass, before: IRModule, after: IRModule, seconds: float) -> None:
        """Nothing to do after a pass."""


def calls_of(mod: IRModule) -> list[Call]:
    """The calls of a module in evaluation order, those inside primitive functions included."""
    found: dict[Call, None] = {}
    for function in mod.functions.values():
        for node in post_order(function):
            if isinstance(node, Call):
                found[node] = None
    return list(found)


def family_decisions(mod: IRModule, target: Target, *, in_kernel: bool = False
                     ) -> list[Described]:
    """The decisions of all calls whose operator family registered a decision.

    ``in_kernel`` says that legalisation does not rewrite the calls.
    """
    described = []
    for call in calls_of(mod):
        decision = decision_of(call, target, in_kernel=in_kernel)
        if decision is not None:
            described.append(Described(call_text(call), str(decision)))
    return _merged(described)


def kernel_selections(kernels: Sequence[KernelSource], target: Target) -> list[Described]:
    """The implementation of each kernel and its other candidates, with their estimates."""
    described = []
    for kernel in kernels:
        anchor = anchor_of(kernel.function)
        text = "copies its arguments"
        if anchor is not None:
            selection = select(anchor, target, ranking_of(kernel.function, target))
            text = kernel_text(kernel.function, anchor, selection)
        described.append(Described(kernel.text, text))
    return _merged(described)


def decisions_text(families: Iterable[Described], kernels: Iterable[Described]) -> str:
    """Both kinds of decisions, one block of lines for each."""
    blocks = [f"{_times(each)}{each.subject}: {each.text}" for each in families]
    blocks += [f"{_times(each)}kernel {each.subject}\n{_indented(each.text)}" for each in kernels]
    return "\n".join(blocks)


def _merged(described: Iterable[Described]) -> list[Described]:
    """Equal entries once, with their number."""
    counts: dict[tuple[str, str], int] = {}
    for each in described:
        key = each.subject, each.text
        counts[key] = counts.get(key, 0) + each.count
    return [Described(subject, text, count) for (subject, text), count in counts.items()]


def _times(described: Described) -> str:
    return f"{described.count} x " if described.count > 1 else ""


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())
