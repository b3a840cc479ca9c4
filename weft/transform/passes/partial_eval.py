"""Partial evaluation: evaluate at compile time everything that does not depend on the inputs."""

from __future__ import annotations

from typing import ClassVar

from weft.ir import Function, IRModule, Pass, PassContext, infer_type, register_pass
from weft.support.dataclass import dataclass
from weft.transform.analysis.graph import is_primitive
from weft.transform.passes.dead_code_elimination import DeadCodeElimination
from weft.transform.passes.partial_evaluator import PartialEvaluator


@register_pass
@dataclass(frozen=True)
class PartialEval(Pass):
    """Unfold calls, decide branches and matches, and fold operators, as far as values are known.

    An online partial evaluator (Jones, Gomard and Sestoft 1993): functions, tuples, data and
    constants are static values; everything else becomes code in A-normal form, in the original
    order of evaluation. A recursive call is unfolded while no dynamic condition stands between it
    and the enclosing call of the same function, at most ``max_depth`` deep and ``max_unfold`` times
    in all; the other calls become calls of specialized functions. Effects on references stay.

    def @main(%x: Tensor[(2,), float32]) {
      let %power = fn (%n: Tensor[(), int32], %y: Tensor[(2,), float32]) -> Tensor[(2,), float32] {
        if (equal(%n, 1)) { %y } else { multiply(%y, %power(subtract(%n, 1), %y)) }
      };
      %power(3, %x)
    }
    =>
    def @main(%x: Tensor[(2,), float32]) {
      let %a = multiply(%x, %x);
      let %b = multiply(%x, %a);
      %b
    }
    """

    name: ClassVar[str] = "partial_eval"
    opt_level: ClassVar[int] = 1
    max_depth: int = 64
    max_unfold: int = 2000
    entries: tuple[str, ...] = ("main",)

    def run_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        specialized: dict[str, Function] = {}
        for name in self.entries:
            if not is_primitive(mod[name]):
                run = PartialEvaluator(mod, self.max_depth, self.max_unfold)
                specialized[name] = run.function(mod[name])
        after = infer_type(mod.with_functions(specialized))
        sweep = DeadCodeElimination()
        cleaned = {name: sweep.run(after[name], ctx) for name in specialized}
        return after.with_functions(cleaned)
