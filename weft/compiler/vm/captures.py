"""Free variables of local functions: what their closures capture."""

from __future__ import annotations

from weft.ir.expr import Expr, Function, Let, Var
from weft.ir.visitor import binders, children, post_order
from weft.transform.analysis.graph import is_primitive


class Captures:
    """The captured variables of every local function in ``body``, in order of first use.

    ``own_name`` maps a function to the variable of its let, which is not captured.
    """

    def __init__(self, body: Expr) -> None:
        self.variables: dict[Function, tuple[Var, ...]] = {}
        self.own_name: dict[Function, Var] = {}
        order = list(post_order(body, enter=lambda e: not is_primitive(e)))
        for node in order:
            if isinstance(node, Let) and isinstance(node.value, Function):
                self.own_name[node.value] = node.var
        for node in order:  # nested functions come first
            if isinstance(node, Function):
                self.variables[node] = self._free(node)

    def _free(self, function: Function) -> tuple[Var, ...]:
        if is_primitive(function):
            return ()
        bound = {*function.params, self.own_name.get(function)}
        used: dict[Var, None] = {}
        for node in post_order(function.body, enter=lambda e: not isinstance(e, Function)):
            bound.update(binders(node) if not isinstance(node, Function) else ())
            if isinstance(node, Function):
                used.update(dict.fromkeys(self.variables[node]))
            else:
                used.update(dict.fromkeys(c for c in children(node) if isinstance(c, Var)))
        if isinstance(function.body, Var):
            used[function.body] = None
        return tuple(v for v in used if v not in bound)
