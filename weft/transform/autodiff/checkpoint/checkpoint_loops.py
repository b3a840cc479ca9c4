"""Loops in checkpointed segments: the tape of a loop keeps only some of the states."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import ClassVar

from weft import op
from weft.ir import IRModule, Pass, PassContext, TensorType, TupleType, infer_type, register_pass
from weft.ir.expr import Call, Clause, Expr, Function, GlobalVar, If, Match, Tuple, Var, const
from weft.ir.visitor import Routine, post_order, run_routine
from weft.op.gradients import field_of
from weft.support.dataclass import dataclass
from weft.support.errors import OptionError
from weft.transform.analysis.graph import type_of
from weft.transform.autodiff.checkpoint.checkpoint import checkpointed, is_checkpointed
from weft.transform.autodiff.reverse.first_order import reached_functions, to_first_order
from weft.transform.autodiff.reverse.pure_graph import pure_graph
from weft.transform.normal_form.alpha import fresh_function, fresh_var

COUNT = TensorType.of((), "int32")


@register_pass
@dataclass(frozen=True)
class CheckpointLoops(Pass):
    """Bound the memory of the gradients of loops: ``every=(k,)`` keeps each k-th state only.

    A loop is a function that calls itself in tail position alone, or ``@foldl``. Run the pass
    before the gradient. The steps between two kept states are a checkpointed function, which the
    gradient computes again: a loop of n steps keeps n / k states and the values of k steps, and
    its steps run twice. ``every=(k, m)`` divides segments of k * m steps again, which keeps
    n / (k * m) states, k further ones and the values of m steps, and runs each step three times
    (recursive checkpointing, Griewank 1992). The program becomes first-order (``Gradient``).

    With ``every=(8,)``:

    def @main(%n: Tensor[(), int32], %x: Tensor[(2,), float32]) { @loop(%n, %x) }
    def @loop(%n: Tensor[(), int32], %x: Tensor[(2,), float32]) -> Tensor[(2,), float32] {
      if (less_equal(%n, 0)) { %x } else { @loop(subtract(%n, 1), tanh(%x)) }
    }
    =>
    def @main(%n: Tensor[(), int32], %x: Tensor[(2,), float32]) { @loop(%n, %x) }
    def @loop(%n: Tensor[(), int32], %x: Tensor[(2,), float32]) -> Tensor[(2,), float32] {
      if (less_equal(%n, 0)) { %x } else {
        %0 = @loop_segment(subtract(%n, 1), tanh(%x));
        @loop(%0.0, %0.1)
      }
    }
    def @loop_segment(%n: Tensor[(), int32], %x: Tensor[(2,), float32], checkpoint=True)
        -> (Tensor[(), int32], Tensor[(2,), float32]) {
      @loop_steps(7, %n, %x)
    }
    def @loop_steps(%steps: Tensor[(), int32], %n: Tensor[(), int32], %x: Tensor[(2,), float32])
        -> (Tensor[(), int32], Tensor[(2,), float32]) {
      if (less_equal(%steps, 0)) { (%n, %x) } else {
        if (less_equal(%n, 0)) { (%n, %x) }
        else { @loop_steps(subtract(%steps, 1), subtract(%n, 1), tanh(%x)) }
      }
    }
    """

    name: ClassVar[str] = "checkpoint_loops"
    opt_level: ClassVar[int] = 0
    every: tuple[int, ...] = (32,)
    entry: str = "main"

    def run_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        if not self.every or any(k < 2 for k in self.every):
            raise OptionError("checkpoints of loops need segments of two steps or more",
                              got=str(self.every), expected="every=(k,) or every=(k, m)")
        mod = to_first_order(mod, self.entry, ctx)
        for name in reached_functions(mod, self.entry):
            if name != self.entry and not is_checkpointed(mod[name]):
                mod = self._segmented(mod, name)
        return mod

    def _segmented(self, mod: IRModule, name: str) -> IRModule:
        """``mod`` with the loop ``name``, if it is one, split into segments, recursively."""
        for level in range(len(self.every)):
            tails = _tail_calls(mod[name], name)
            if not tails:
                return mod
            segment, steps = _unused(f"{name}_segment", mod), _unused(f"{name}_steps", mod)
            count = math.prod(self.every[level:]) - 1  # the loop itself takes one step
            fn = mod[name]
            mod = infer_type(mod.with_functions({
                name: _in_segments(fn, name, segment),
                segment: checkpointed(_segment_of(fn, steps, count)),
                steps: _steps_of(fresh_function(fn), name, steps)}))
            name = steps
        return mod


def _unused(name: str, mod: IRModule) -> str:
    while name in mod:
        name += "_"
    return name


def _tail_calls(fn: Function, name: str) -> int:
    """The number of tail calls of ``name`` in itself; 0 if it calls itself elsewhere too."""
    found: list[Call] = []

    def note(call: Call) -> Expr:
        found.append(call)
        return call

    body = pure_graph(fn.body)
    run_routine(_Tails(name, note, lambda e: e).of(body))
    nodes = list(post_order(body))
    calls = [n for n in nodes if isinstance(n, Call) and _calls(n, name)]
    uses = sum(1 for n in nodes if isinstance(n, GlobalVar) and n.name == name)
    return len(found) if len(set(found)) == len(calls) and uses <= len(calls) else 0


def _calls(call: Call, name: str) -> bool:
    return isinstance(call.op, GlobalVar) and call.op.name == name


def _in_segments(fn: Function, name: str, segment: str) -> Function:
    """A loop that takes one step, and calls ``segment`` for the other steps of a segment."""

    def jump(call: Call) -> Expr:
        state = Call(GlobalVar(segment), call.args, span=call.span, checked_type=_state_type(fn))
        again = tuple(field_of(state, i) for i in range(len(call.args)))
        return Call(GlobalVar(name), again, span=call.span)

    body = run_routine(_Tails(name, jump, lambda e: e).of(pure_graph(fn.body)))
    return Function(fn.params, body, fn.ret_type, attrs=fn.attrs, span=fn.span)


def _segment_of(fn: Function, steps: str, count: int) -> Function:
    """The state after ``count`` steps, or after the last step of the loop."""
    params = tuple(fresh_var(p) for p in fn.params)
    body = Call(GlobalVar(steps), (const(count, "int32"), *params), span=fn.span)
    return Function(params, body, _state_type(fn), span=fn.span)


def _steps_of(fn: Function, name: str, steps: str) -> Function:
    """The state after as many steps as the first parameter says, or after the last step."""
    left = Var("steps", COUNT)

    def jump(call: Call) -> Expr:
        fewer = op.subtract(left, const(1, "int32"))
        return Call(GlobalVar(steps), (fewer, *call.args), span=call.span)

    def leave(_: Expr) -> Expr:
        return Tuple(fn.params, span=fn.span)

    body = run_routine(_Tails(name, jump, leave).of(pure_graph(fn.body)))
    bounded = If(op.less_equal(left, const(0, "int32")), leave(body), body, span=fn.span)
    return Function((left, *fn.params), bounded, _state_type(fn), span=fn.span)


def _state_type(fn: Function) -> TupleType:
    return TupleType(tuple(map(type_of, fn.params)))


@dataclass(eq=False, slots=True)
class _Tails:
    """Replaces what a function returns: its tail calls by ``jump``, other results by ``leave``."""

    name: str
    jump: Callable[[Call], Expr]
    leave: Callable[[Expr], Expr]
    made: dict[Expr, Expr] = field(default_factory=dict)

    def of(self, node: Expr) -> Routine[Expr]:
        if node not in self.made:
            if isinstance(node, (If, Match)):
                branches: Sequence[Expr] = (
                    (node.true_branch, node.false_branch) if isinstance(node, If)
                    else [c.rhs for c in node.clauses])
                results = []
                for branch in branches:
                    results.append((yield self.of(branch)))  # noqa: PERF401 - cannot yield
                self.made[node] = _with_results(node, results)
            elif isinstance(node, Call) and _calls(node, self.name):
                self.made[node] = self.jump(node)
            else:
                self.made[node] = self.leave(node)
        return self.made[node]


def _with_results(node: If | Match, results: Sequence[Expr]) -> Expr:
    if isinstance(node, If):
        return If(node.cond, results[0], results[1], span=node.span)
    clauses = tuple(Clause(c.lhs, r) for c, r in zip(node.clauses, results, strict=True))
    return Match(node.data, clauses, node.complete, span=node.span)
