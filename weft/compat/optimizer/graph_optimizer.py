"""The graph optimiser: simplifications in iterations until an iteration changes nothing."""

from __future__ import annotations

from typing import ClassVar

from weft.compat.optimizer.prune_control_edges import PruneControlEdges
from weft.ir import IRModule, Pass, PassContext, register_pass, run_pass, structural_equal
from weft.support.dataclass import dataclass
from weft.support.errors import OptionError, PassError
from weft.support.log import logger
from weft.transform.fusion.fuse_attention import FuseAttention
from weft.transform.passes.combine_matmul_sums import CombineMatmulSums
from weft.transform.passes.dead_code_elimination import DeadCodeElimination
from weft.transform.passes.eliminate_common_subexpr import EliminateCommonSubexpr
from weft.transform.passes.eliminate_identity import EliminateIdentity
from weft.transform.passes.fold_constant import FoldConstant
from weft.transform.passes.fold_scale_axis import FoldScaleAxis
from weft.transform.passes.inline import Inline
from weft.transform.passes.remove_unused_functions import RemoveUnusedFunctions
from weft.transform.passes.simplify_expr import SimplifyExpr
from weft.transform.passes.simplify_inference import SimplifyInference


@register_pass
@dataclass(frozen=True)
class GraphOptimizer(Pass):
    """Run the optimisers of a graph in rounds until a round changes nothing.

    The stages are those of TensorFlow's ``GraphOptimizer`` and Grappler, in this order; an option
    with the name of a stage switches it off:

    * ``pruning``: dead bindings, and calls that return their operand;
    * ``constant_folding``: calls on constants, up to ``max_constant_bytes`` per result;
    * ``common_subexpressions``: equal calls, with the operands of commutative operators in any
      order, and equal control edges;
    * ``inlining``: functions with ``inline=True``, of one use, or of at most ``inlined_nodes``
      nodes, but not with ``noinline=True``;
    * ``arithmetic``: the rules of ``simplify_expr``;
    * ``remapping``: batch norm as arithmetic and into weights, sums of matmuls, attention;
    * ``dependencies``: redundant control edges.

    Calls of the operators in ``skip`` are neither merged nor folded. After ``rounds`` rounds that
    changed something the optimiser stops with a warning in the log ``weft.optimizer`` that names
    the stages, or with ``settle`` raises ``PassError``.

    def @main(%x: Tensor[(4,), float32], %y: Tensor[(4,), float32]) {
      %0 = multiply(copy(%x), @twice(%y));
      %1 = multiply(@twice(%y), %x);
      annotation.barrier(subtract(%0, %1), add(1f, 2f))
    }
    def @twice(%a: Tensor[(4,), float32], inline=True) { multiply(%a, add(1f, 1f)) }
    =>
    def @main(%x: Tensor[(4,), float32], %y: Tensor[(4,), float32]) {
      %0 = multiply(%x, multiply(%y, 2f));
      subtract(%0, %0)
    }
    """

    name: ClassVar[str] = "graph_optimizer"
    opt_level: ClassVar[int] = 1
    rounds: int = 10
    settle: bool = False
    pruning: bool = True
    constant_folding: bool = True
    max_constant_bytes: int = 10 << 20
    common_subexpressions: bool = True
    inlining: bool = True
    inlined_nodes: int = 0
    arithmetic: bool = True
    remapping: bool = True
    dependencies: bool = True
    skip: tuple[str, ...] = ()

    def run_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        stages = self.stages()
        if not stages or self.rounds < 1:
            raise OptionError("the graph optimiser needs a stage and a round", where=str(self))
        changing: list[str] = []
        for _ in range(self.rounds):
            before, changing = mod, []
            for stage, passes in stages.items():
                after = mod
                for pass_ in passes:
                    if pass_.opt_level <= ctx.opt_level:
                        after = run_pass(pass_, after, ctx)
                if after is not mod and not structural_equal(after, mod):
                    mod = after
                    changing.append(stage)
            if not changing or structural_equal(mod, before):
                return mod
        return self._unsettled(mod, changing)

    def stages(self) -> dict[str, tuple[Pass, ...]]:
        """The passes of each stage that is switched on."""
        every: dict[str, tuple[Pass, ...]] = {
            "pruning": (DeadCodeElimination(), EliminateIdentity()),
            "constant_folding": (
                FoldConstant(max_bytes=self.max_constant_bytes, skip=self.skip),),
            "common_subexpressions": (EliminateCommonSubexpr(skip=self.skip),),
            "inlining": (Inline(single_use=True, max_nodes=self.inlined_nodes),
                         RemoveUnusedFunctions()),
            "arithmetic": (SimplifyExpr(),),
            "remapping": (SimplifyInference(), CombineMatmulSums(), FuseAttention(),
                          FoldScaleAxis()),
            "dependencies": (PruneControlEdges(),),
        }
        return {stage: passes for stage, passes in every.items() if getattr(self, stage)}

    def _unsettled(self, mod: IRModule, changing: list[str]) -> IRModule:
        message = (f"the graph optimiser still changes the program after {self.rounds} rounds: "
                   f"{', '.join(changing)}")
        if self.settle:
            raise PassError(message, help="raise rounds, or switch one of these stages off")
        logger("optimizer").warning("%s", message)
        return mod
