"""Decisions and selections as text, and their output for ``WEFT_EXPLAIN``."""

from __future__ import annotations

import sys

from weft.ir import Call, Function, Op, post_order
from weft.strategy.decision import Decision, time_text
from weft.strategy.implementation import Implementation
from weft.strategy.selection import Selection
from weft.support.config import config


def call_text(call: Call) -> str:
    """``nn.dense(Tensor[(1, 8), float32], Tensor[(4, 8), float32])``."""
    return f"{call.op}({', '.join(str(arg.checked_type) for arg in call.args)})"


def decision_text(call: Call, decision: Decision[object]) -> str:
    """The algorithm that an operator family chose for a call, and the rejected ones."""
    return f"{call_text(call)}: {decision}"


def kernel_text(function: Function, anchor: Call, selection: Selection) -> str:
    """The implementation of a kernel, the others, and the calls that run in its loops."""
    chosen, fused = selection.chosen, _fused_calls(function, anchor)
    lines = [f"{call_text(anchor)}: {chosen.name}, {estimate_text(chosen)}, {selection.reason}"]
    lines += [f"  not {other.name}: {estimate_text(other)}" for other in selection.others]
    lines += [f"  in the same kernel: {call_text(call)}" for call in fused]
    return "\n".join(lines)


def estimate_text(implementation: Implementation) -> str:
    seconds = implementation.seconds
    return "no estimate" if seconds is None else f"estimated {time_text(seconds)}"


def explain_kernel(function: Function, anchor: Call, selection: Selection) -> None:
    """Print the text of a kernel to stderr if ``WEFT_EXPLAIN`` names one of its operators."""
    if _is_asked_for(anchor, *_fused_calls(function, anchor)):
        _print(f"implementation of {kernel_text(function, anchor, selection)}")


def explain_decision(call: Call, decision: Decision[object]) -> None:
    """Print a family's decision to stderr if ``WEFT_EXPLAIN`` names the operator."""
    if _is_asked_for(call):
        _print(f"decision for {decision_text(call, decision)}")


def _is_asked_for(*calls: Call) -> bool:
    return "all" in config.explain or any(str(call.op) in config.explain for call in calls)


def _print(text: str) -> None:
    sys.stderr.write("".join(f"// {line}\n" for line in text.splitlines()))


def _fused_calls(function: Function, anchor: Call) -> list[Call]:
    calls = [node for node in post_order(function.body) if isinstance(node, Call)]
    return [call for call in calls if call is not anchor and isinstance(call.op, Op)]
