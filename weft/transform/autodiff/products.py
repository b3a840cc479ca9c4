"""Vector-Jacobian products of global functions."""

from __future__ import annotations

from weft.ir.expr import Expr, Function, RefCreate, RefRead, RefWrite, Tuple, Var
from weft.ir.module import IRModule
from weft.ir.visitor import post_order
from weft.support.errors import PassError
from weft.transform.analysis.graph import type_of
from weft.transform.autodiff.adjoint import is_differentiable
from weft.transform.autodiff.differentiable import check_gradients_exist
from weft.transform.autodiff.pure_graph import pure_graph
from weft.transform.autodiff.reverse import Sweep
from weft.transform.normal_form.alpha import fresh_copy, fresh_var


class Products:
    """The vector-Jacobian products of global functions, created on demand."""

    def __init__(self, mod: IRModule) -> None:
        self.mod = mod
        self.names: dict[str, str] = {}

    def name_of(self, function: str) -> str:
        if function not in self.names:
            name = f"{function}_vjp"
            while name in self.mod:
                name += "_"
            self.names[function] = name
        return self.names[function]

    def definitions(self) -> dict[str, Function]:
        made: dict[str, Function] = {}
        # A product may call those of further functions.
        while len(made) < len(self.names):
            for function, name in list(self.names.items()):
                if name not in made:
                    made[name] = self._product(self.mod[function])
        return made

    def check(self, fn: Function) -> None:
        """Raise ``PassError`` for references, and for operators without a gradient (all listed)."""
        check_gradients_exist([fn])
        for node in post_order(fn.body):
            if isinstance(node, (RefCreate, RefRead, RefWrite)):
                raise PassError("cannot differentiate through references", where=node.span,
                                help="pass values along instead of writing to them")

    def _product(self, fn: Function) -> Function:
        """``fn (params, dy)`` to the tuple of gradients; it recomputes the values of ``fn``."""
        self.check(fn)
        body = pure_graph(fn.body)
        dy = Var("dy", type_of(body), span=fn.span)
        wanted = [p for p in fn.params if is_differentiable(type_of(p))]
        grads = Sweep(self.name_of).gradients(body, wanted, dy)
        # ``fn`` stays in the module, where each variable is bound only once.
        renamed: dict[Expr, Expr] = {p: fresh_var(p) for p in fn.params}
        result = fresh_copy(Tuple(tuple(grads), span=fn.span), renamed)
        params = tuple(v for v in renamed.values() if isinstance(v, Var))
        return Function((*params, dy), result, span=fn.span)
