"""Dead code elimination: remove unused let bindings."""

from __future__ import annotations

from typing import ClassVar

from weft.ir.expr import Expr, Function, Let, Var
from weft.ir.passes import FunctionPass, PassContext, register_pass
from weft.ir.visitor import children, post_order
from weft.support.dataclass import dataclass
from weft.transform.analysis.effects import effectful_nodes
from weft.transform.analysis.graph import rewrite_function


@register_pass
@dataclass(frozen=True)
class DeadCodeElimination(FunctionPass):
    """Remove let bindings whose variable is unused and whose value has no effect.

    Writing a reference is an effect, and so may be a call of any function but a literal one, and of
    an operator with the trait ``has_effect``.

    def @main(%x: Tensor[(4,), float32]) { let %a = exp(%x); let %b = log(%a); negative(%x) }
    =>
    def @main(%x: Tensor[(4,), float32]) { negative(%x) }
    """

    name: ClassVar[str] = "dead_code_elimination"
    opt_level: ClassVar[int] = 1

    def run(self, fn: Function, ctx: PassContext) -> Function:  # noqa: ARG002
        effects = effectful_nodes(post_order(fn))
        live = _live_variables(fn, effects)

        def drop(original: Expr, node: Expr) -> Expr:
            if not isinstance(original, Let) or not isinstance(node, Let):
                return node
            dead = original.var not in live and original.value not in effects
            return node.body if dead else node

        return rewrite_function(fn, drop)


def _live_variables(root: Expr, effects: set[Expr]) -> set[Expr]:
    """Live variables, by a backward walk from the result."""
    live: set[Expr] = set()
    waiting: dict[Expr, list[Expr]] = {}  # values of bindings not yet known to be live
    seen: set[Expr] = set()
    pending: list[Expr] = [root]
    while pending:
        node = pending.pop()
        if node in seen:
            continue
        seen.add(node)
        if isinstance(node, Let):
            pending.append(node.body)
            if node.var in live or node.value in effects:
                pending.append(node.value)
            else:
                waiting.setdefault(node.var, []).append(node.value)
            continue
        if isinstance(node, Var):
            live.add(node)
            pending.extend(waiting.pop(node, ()))
        pending.extend(children(node))
    return live
