"""Dead code elimination: remove unused let bindings."""

from __future__ import annotations

from typing import ClassVar

from weft import ir
from weft.support.dataclass import dataclass
from weft.transform.analysis.effects import effectful_nodes
from weft.transform.analysis.graph import rewrite_function


@ir.register_pass
@dataclass(frozen=True)
class DeadCodeElimination(ir.FunctionPass):
    """Remove let bindings whose variable is unused and whose value has no effect.

    Writing a reference is an effect, and so may be a call of any function but a literal one, and of
    an operator with the trait ``has_effect``.

    def @main(%x: Tensor[(4,), float32]) { let %a = exp(%x); let %b = log(%a); negative(%x) }
    =>
    def @main(%x: Tensor[(4,), float32]) { negative(%x) }
    """

    name: ClassVar[str] = "dead_code_elimination"
    opt_level: ClassVar[int] = 1
    seeks: ClassVar[ir.Seeks] = ir.Seeks(kinds=(ir.Let,))

    def run(self, fn: ir.Function, ctx: ir.PassContext) -> ir.Function:  # noqa: ARG002
        effects = effectful_nodes(ir.post_order(fn))
        live = _live_variables(fn, effects)

        def drop(original: ir.Expr, node: ir.Expr) -> ir.Expr:
            if not isinstance(original, ir.Let) or not isinstance(node, ir.Let):
                return node
            dead = original.var not in live and original.value not in effects
            return node.body if dead else node

        return rewrite_function(fn, drop)


def _live_variables(root: ir.Expr, effects: set[ir.Expr]) -> set[ir.Expr]:
    """Live variables, by a backward walk from the result."""
    live: set[ir.Expr] = set()
    waiting: dict[ir.Expr, list[ir.Expr]] = {}  # values of bindings not yet known to be live
    seen: set[ir.Expr] = set()
    pending: list[ir.Expr] = [root]
    while pending:
        node = pending.pop()
        if node in seen:
            continue
        seen.add(node)
        if isinstance(node, ir.Let):
            pending.append(node.body)
            if node.var in live or node.value in effects:
                pending.append(node.value)
            else:
                waiting.setdefault(node.var, []).append(node.value)
            continue
        if isinstance(node, ir.Var):
            live.add(node)
            pending.extend(waiting.pop(node, ()))
        pending.extend(ir.children(node))
    return live
