"""Repeat passes until they reach a fixed point."""

from __future__ import annotations

from typing import ClassVar

from weft import ir
from weft.support.dataclass import dataclass
from weft.support.errors import OptionError, PassError


@ir.register_pass
@dataclass(frozen=True)
class FixedPoint(ir.Pass):
    """Run ``passes`` in order, repeatedly, until an iteration leaves the module unchanged.

    ``passes`` are names; from Python, ``pipeline`` takes pass objects with options instead. If
    ``limit`` iterations do not reach a fixed point, raises ``PassError``, or with
    ``settle=False`` keeps the result of the last iteration.

    With ``passes=("simplify_expr", "fold_constant")``:

    def @main(%x: Tensor[(2,), float32]) { multiply(%x, add(negative(1f), 2f)) }
    =>
    def @main(%x: Tensor[(2,), float32]) { %x }
    """

    name: ClassVar[str] = "fixed_point"
    opt_level: ClassVar[int] = 0
    passes: tuple[str, ...] = ()
    limit: int = 16
    settle: bool = True
    pipeline: ir.Sequential | None = None

    def run_module(self, mod: ir.IRModule, ctx: ir.PassContext) -> ir.IRModule:
        rounds = self.pipeline or ir.parse_pipeline(",".join(self.passes))
        if not rounds.passes or self.limit < 1:
            raise OptionError("a fixed point needs passes and a limit", where=str(self),
                              expected="fixed_point{passes=(simplify_expr fold_constant)}")
        for _ in range(self.limit):
            after = ir.run_pass(rounds, mod, ctx)
            # The identity test saves the comparison where no pass changed anything.
            if after is mod or ir.structural_equal(after, mod):
                return mod
            mod = after
        if self.settle:
            raise PassError(f"{rounds} still changes the program after {self.limit} iterations",
                            help="raise the limit, or look for two passes that undo each other")
        return mod
