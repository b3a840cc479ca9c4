"""Legalization: rewrite calls for a target."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, TypeAlias

from weft.ir import Call, Expr, Function, FunctionPass, Op, PassContext, Seeks, Type, register_pass
from weft.support.dataclass import dataclass
from weft.transform.analysis.graph import rewrite_function, type_of

# (call, types of its arguments, context) -> its replacement, or None to keep the call.
LegalizeHook: TypeAlias = Callable[[Call, Sequence[Type], PassContext], "Expr | None"]


@register_pass
@dataclass(frozen=True)
class Legalize(FunctionPass):
    """Replace calls that the target cannot run, or runs better in another form.

    ``config["legalize"]`` of the context maps operator names to hooks. A replacement computes the
    same value, up to rounding where the hook's documentation says so; ``fold_constant`` evaluates
    what it does to constants. Without hooks the program stays unchanged.

    With a hook that wants squares as products:

    def @main(%x: Tensor[(2,), float32]) { power(%x, 2f) }
    =>
    def @main(%x: Tensor[(2,), float32]) { multiply(%x, %x) }
    """

    name: ClassVar[str] = "legalize"
    opt_level: ClassVar[int] = 3
    seeks: ClassVar[Seeks] = Seeks(table="legalize")

    def run(self, fn: Function, ctx: PassContext) -> Function:
        hooks: Mapping[str, LegalizeHook] = ctx.config.get("legalize", {})
        if not hooks:
            return fn

        def replace(original: Expr, node: Expr) -> Expr:
            if not isinstance(node, Call) or not isinstance(node.op, Op):
                return node
            hook = hooks.get(node.op.name)
            if hook is None or not isinstance(original, Call):
                return node
            # Rewritten arguments may be untyped; the original ones have the same types.
            found = hook(node, [type_of(a) for a in original.args], ctx)
            return node if found is None else found

        return rewrite_function(fn, replace, (Call,))
