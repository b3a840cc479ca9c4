"""Reverse-mode automatic differentiation by source transformation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from weft.ir.expr import (
    Call,
    Expr,
    Function,
    GlobalVar,
    Let,
    RefCreate,
    RefRead,
    RefWrite,
    Tuple,
    Var,
)
from weft.ir.module import IRModule
from weft.ir.passes import Pass, PassContext, register_pass
from weft.ir.typing.infer import infer_type
from weft.ir.visitor import children, post_order, replace_children
from weft.op.gradients import typed_ones
from weft.support.errors import PassError
from weft.transform.analysis.graph import op_name, type_of
from weft.transform.autodiff.adjoint import is_differentiable
from weft.transform.autodiff.expand_for_gradient import ExpandForGradient
from weft.transform.autodiff.reverse import Sweep, missing_gradients
from weft.transform.normal_form.alpha import fresh_copy, fresh_var
from weft.transform.normal_form.lambda_lift import LambdaLift
from weft.transform.passes.inline import Inline


@register_pass
@dataclass(frozen=True)
class Gradient(Pass):
    """Reverse-mode autodiff: make ``entry`` return its value and the gradients of its parameters.

    The result is ``(value, (d parameter, ..))`` for the floating-point parameters; for a value
    that is not a scalar, the gradients are those of the sum of its elements. The pass handles
    shared nodes, tuples, ``if``, calls and recursion, and lifts local functions first.
    ``with_respect_to`` names the parameters wanted, by default all. Raises ``PassError`` for
    references, data types, functions as values, and operators without a gradient, and lists all
    of these operators.

    The gradient of an operator is that of the value it computes. ``nn.batch_norm`` uses the given
    statistics, which are inputs or constants like others; with ``training`` it uses the mean and
    biased variance of the batch, differentiates through them, and returns them as its second and
    third result. ``nn.dropout`` with a rate above 0 is the identity in inference; because its
    gradient there is rarely the intended one, it raises ``PassError`` unless ``training`` is
    ``False``. ``annotation.stop_gradient`` blocks the gradient.

    def @main(%x: Tensor[(4,), float32]) { exp(%x) }
    =>
    def @main(%x: Tensor[(4,), float32]) {
      %0 = exp(%x);
      (%0, (multiply(ones(shape=(4,), dtype="float32"), %0),))
    }
    """

    name: ClassVar[str] = "gradient"
    opt_level: ClassVar[int] = 0
    entry: str = "main"
    with_respect_to: tuple[str, ...] = ()
    training: bool | None = None

    def run_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        if self.training is not False:
            _refuse_dropout(mod)
        prepared = infer_type(_first_order(mod, ctx, training=bool(self.training)))
        products = _Products(prepared)
        entry = prepared[self.entry]
        products.check(entry)
        wanted = self._parameters(entry)
        body = pure_graph(entry.body)
        grads = Sweep(products.name_of).gradients(body, wanted, typed_ones(body))
        pair = Tuple((body, Tuple(tuple(grads), span=entry.span)), span=entry.span)
        changed = {self.entry: entry.replace(body=pair, ret_type=None), **products.definitions()}
        return prepared.with_functions(changed)

    def _parameters(self, entry: Function) -> list[Var]:
        names = self.with_respect_to or tuple(
            p.name for p in entry.params if is_differentiable(type_of(p))
        )
        by_name = {p.name: p for p in entry.params}
        for name in names:
            if name not in by_name or not is_differentiable(type_of(by_name[name])):
                raise PassError(
                    f"cannot differentiate with respect to %{name}",
                    where=f"@{self.entry}",
                    expected=", ".join(f"%{p.name}" for p in entry.params),
                    help="name floating-point parameters",
                )
        return [by_name[name] for name in names]


def gradient(fn: Function) -> Function:
    """A function that returns ``(value of fn, (gradient of each floating-point parameter, ..))``.

    Raises ``PassError`` if ``fn`` contains recursive functions, which need a module
    (``Gradient()(mod)``).
    """
    after = Gradient()(IRModule.from_expr(fn))
    if len(after.functions) > 1:
        raise PassError(
            "the gradient of a program with recursive functions is a module",
            where=fn.span,
            got=", ".join(f"@{name}" for name in after.functions),
            help="use Gradient()(IRModule.from_expr(fn))",
        )
    return after["main"]


def pure_graph(body: Expr) -> Expr:
    """``body`` without lets: every variable is replaced by the shared node of its value.

    Valid for pure programs only, because unused values disappear.
    """
    order = list(post_order(body))
    value_of = {n.var: n.value for n in order if isinstance(n, Let)}
    memo: dict[Expr, Expr] = {}
    for node in order:
        if isinstance(node, Let):
            memo[node] = memo[node.body]
        elif isinstance(node, Var) and node in value_of:
            memo[node] = node  # replaced by its value, which is visited later
        else:
            parts = [_resolved(c, memo, value_of) for c in children(node)]
            memo[node] = replace_children(node, parts)
    return _resolved(body, memo, value_of)


def _resolved(node: Expr, memo: dict[Expr, Expr], value_of: dict[Var, Expr]) -> Expr:
    while isinstance(node, (Var, Let)) and (isinstance(node, Let) or node in value_of):
        node = node.body if isinstance(node, Let) else value_of[node]
    return memo[node]


def _refuse_dropout(mod: IRModule) -> None:
    """Raise ``PassError`` for dropout with a rate above 0."""
    for function in mod.functions.values():
        for node in post_order(function):
            if op_name(node) == "nn.dropout" and isinstance(node, Call):
                rate = node.attrs.rate  # type: ignore[attr-defined]
                if rate > 0:
                    raise PassError(
                        f"ambiguous gradient of nn.dropout with rate {rate}",
                        where=node.span,
                        help="training=False differentiates the inference behaviour, where nothing "
                             "is dropped; for training, multiply by a mask that random.bernoulli "
                             "draws from a key, and divide by 1 - rate",
                    )


def _first_order(mod: IRModule, ctx: PassContext, *, training: bool) -> IRModule:
    # Lifting turns captured variables into arguments, for which gradients can be returned. Then
    # only recursive functions need to stay functions, with products of their own.
    for pass_ in (ExpandForGradient(training=training), LambdaLift(prefix="local"), _InlineLocal()):
        mod = infer_type(pass_.run_module(mod, ctx))
    return mod


class _InlineLocal(Inline):
    """Inlines lifted functions that are not recursive back into their callers."""

    name: ClassVar[str] = "inline_local"

    def run_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        lifted = tuple(n for n in mod.functions if n.startswith("local_"))
        after = Inline(functions=lifted).run_module(mod, ctx)
        used = {n.name for f in after.functions.values() for n in post_order(f)
                if isinstance(n, GlobalVar)}
        return after.without(*(n for n in lifted if n not in used))


class _Products:
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
        missing = missing_gradients(fn.body)
        if missing:
            raise PassError(
                f"missing gradient of {', '.join(missing)}",
                where=fn.span,
                help="register one with @op.gradient, or keep it out of the function",
            )
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
