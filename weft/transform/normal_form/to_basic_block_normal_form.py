"""Basic-block normal form: a dataflow graph inside each scope, ``let`` between scopes."""

from __future__ import annotations

from typing import ClassVar

from weft.ir import Expr, Function, FunctionPass, Let, PassContext, children, register_pass
from weft.support.dataclass import dataclass
from weft.transform.analysis.effects import ordered_nodes
from weft.transform.analysis.graph import is_primitive
from weft.transform.analysis.scopes import Scopes
from weft.transform.normal_form.to_a_normal_form import Normalizer


@register_pass
@dataclass(frozen=True)
class ToBasicBlockNormalForm(FunctionPass):
    """Convert to basic-block normal form: bind by ``let`` only values that inner scopes use.

    Inside a scope (a body, a branch, a clause) the program is a graph of shared nodes. Bindings
    whose order of evaluation matters stay.

    def @main(%x: Tensor[(4,), float32], %c: Tensor[(), bool]) {
      %0 = exp(%x);
      %1 = negative(%0);
      add(%1, if (%c) { %1 } else { %0 })
    }
    =>
    def @main(%x: Tensor[(4,), float32], %c: Tensor[(), bool]) {
      let %a = exp(%x);
      let %b = negative(%a);
      add(%b, if (%c) { %b } else { %a })
    }
    """

    name: ClassVar[str] = "to_basic_block_normal_form"
    opt_level: ClassVar[int] = 0
    provides: ClassVar[tuple[str, ...]] = ("basic_block_normal_form",)

    def run(self, fn: Function, ctx: PassContext) -> Function:  # noqa: ARG002
        named = _named_nodes(fn.body)
        has_lets = any(isinstance(node, Let) for node in Scopes(fn.body).order)
        if not named and not has_lets:
            return fn
        body = Normalizer(fn.body, named.__contains__).run()
        return fn.replace(body=body, checked_type=fn.checked_type)


def name_captures(fn: Function) -> Function:
    """``fn`` in which local functions refer by name to values computed outside of them.

    A body can then be copied or moved without copying nodes that it shares with its surroundings.
    """
    scopes = Scopes(fn.body)
    if not any(isinstance(node, Function) and not is_primitive(node) for node in scopes.order):
        return fn
    if not any(children(node) for node in scopes.crossing):
        return fn
    named = Normalizer(fn.body, _named_nodes(fn.body).__contains__).run()
    return fn.replace(body=named, checked_type=fn.checked_type)


def _named_nodes(body: Expr) -> set[Expr]:
    """Let-bound values whose order matters, recursive functions, and nodes used across scopes."""
    scopes = Scopes(body)
    ordered = ordered_nodes(scopes.order)
    named = {n.value for n in scopes.order if isinstance(n, Let) and n.value in ordered}
    seen: dict[Expr, Expr] = {}  # the value of each variable and let
    for node in scopes.order:
        if isinstance(node, Let):
            seen[node.var] = node.value
            seen[node] = node.body
    for node in scopes.crossing:
        while node in seen:
            node = seen[node]  # noqa: PLW2901
        named.add(node)
    # Leaves, such as variables and constants, need no name.
    return {node for node in named if children(node)}
