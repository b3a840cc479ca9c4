"""Reverse-mode automatic differentiation by source transformation."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import ClassVar

from weft import ir
from weft.op.gradients import field_of, typed_ones
from weft.support.dataclass import dataclass
from weft.support.errors import OptionError, PassError
from weft.transform.analysis.graph import rewrite_function, type_of
from weft.transform.autodiff.checkpoint.checkpoint import without_checkpoints
from weft.transform.autodiff.reverse.adjoint import Adjoint, Adjoints, is_differentiable, one_field
from weft.transform.autodiff.reverse.adjoint_types import field_types
from weft.transform.autodiff.reverse.custom_rules import with_plain_entry
from weft.transform.autodiff.reverse.derived_functions import DerivedFunctions, in_blocks
from weft.transform.autodiff.reverse.differentiable import (
    check_gradients_exist,
    refuse_ambiguous,
)
from weft.transform.autodiff.reverse.expand_for_gradient import ExpandForGradient
from weft.transform.autodiff.reverse.first_order import reached_functions, to_first_order
from weft.transform.autodiff.reverse.loop_tape import with_taped_loops
from weft.transform.autodiff.reverse.pure_graph import pure_graph
from weft.transform.autodiff.reverse.sweep import Reversal
from weft.transform.autodiff.reverse.unreached import refuse_unreached


def with_named_wildcards(fn: ir.Function, definitions: Mapping[str, ir.TypeData]) -> ir.Function:
    """``fn`` in which matches bind variables to tensors whose sizes only run time determines."""

    def step(original: ir.Expr, node: ir.Expr) -> ir.Expr:
        if not isinstance(node, ir.Match) or not isinstance(original, ir.Match):
            return node
        type_ = type_of(original.data)
        patterns = [_named(c.lhs, type_, definitions) for c in node.clauses]
        if all(p is c.lhs for p, c in zip(patterns, node.clauses, strict=True)):
            return node
        clauses = tuple(ir.Clause(p, c.rhs) for p, c in zip(patterns, node.clauses, strict=True))
        return node.replace(clauses=clauses)

    return rewrite_function(fn, step)


def _named(pattern: ir.Pattern, type_: ir.Type,
           definitions: Mapping[str, ir.TypeData]) -> ir.Pattern:
    # Patterns are written by hand and short, which bounds this recursion.
    if isinstance(pattern, ir.PatternWildcard):
        return ir.PatternVar(ir.Var("unused", type_)) if _is_unknown(type_) else pattern
    if isinstance(pattern, ir.PatternTuple) and isinstance(type_, ir.TupleType):
        inner = [_named(p, t, definitions)
                 for p, t in zip(pattern.patterns, type_.fields, strict=True)]
        is_same = all(a is b for a, b in zip(inner, pattern.patterns, strict=True))
        return pattern if is_same else ir.PatternTuple(tuple(inner))
    if isinstance(pattern, ir.PatternConstructor) and isinstance(type_, ir.TypeCall):
        data = definitions[pattern.constructor.belongs_to.name]
        types = field_types(pattern.constructor, type_, data)
        inner = [_named(p, t, definitions)
                 for p, t in zip(pattern.patterns, types, strict=True)]
        is_same = all(a is b for a, b in zip(inner, pattern.patterns, strict=True))
        return pattern if is_same else ir.PatternConstructor(pattern.constructor, tuple(inner))
    return pattern


def _is_unknown(type_: ir.Type) -> bool:
    """Whether zeros of ``type_`` need a value: a float tensor of unknown size, or a tuple of it."""
    if isinstance(type_, ir.TupleType):
        return any(map(_is_unknown, type_.fields))
    return isinstance(type_, ir.TensorType) and type_.dtype.is_float and ir.has_any(type_.shape)


@ir.register_pass
@dataclass(frozen=True)
class Gradient(ir.Pass):
    """Reverse-mode autodiff: make ``entry`` return its value and the gradients of its parameters.

    The result is ``(value, (d parameter, ..))`` for the floating-point parameters; for a value
    that is not a scalar, the gradients are those of the sum of its elements. The whole language is
    differentiated: shared nodes, tuples, branches, recursion, closures, generic functions, data
    types and references (``to_first_order``, ``Reversal``). A program with recursion or data keeps
    a tape in memory, which is as long as the computation. Raises ``PassError`` that lists all
    operators without a gradient, and for an ``entry`` that takes or returns references or data.

    ``with_respect_to`` names the parameters wanted, by default all. ``cotangent`` is the gradient
    of the value: ``"ones"``, the same if the value is a scalar and an error otherwise
    (``"scalar"``), or a last parameter of the value's type (``"parameter"``). With ``has_aux`` the
    value is the first field of the result, and the others are returned only. ``unused`` says what
    happens to a parameter on which the value does not depend, or only through operators without a
    derivative: ``"zeros"``, or an ``"error"`` that names the operators and the path to them.

    ``nn.batch_norm`` and ``nn.dropout`` raise ``PassError`` unless ``training`` says what they do:
    with ``False`` batch norm uses the given statistics and dropout is the identity; with ``True``
    batch norm uses the mean and biased variance of the batch, differentiates through them, and
    returns them as its second and third result, and dropout must be ``random.dropout``, which takes
    a key. ``annotation.stop_gradient`` blocks the gradient.

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
    cotangent: str = "ones"
    unused: str = "zeros"
    has_aux: bool = False

    def run_module(self, mod: ir.IRModule, ctx: ir.PassContext) -> ir.IRModule:
        self._check_options()
        refuse_ambiguous(mod, training=self.training)
        prepared = self._prepared(mod, ctx)
        derived = DerivedFunctions(prepared, self.entry)
        entry = prepared[self.entry]
        wanted = self._parameters(entry)
        passive = frozenset(entry.params).difference(wanted)
        check_gradients_exist([prepared[name] for name in derived.differentiated], passive)
        reversal = Reversal(pure_graph(entry.body), derived, derived.adjoints, passive)
        seed, extra = self._seed(self._differentiated(reversal.value), entry)
        found = reversal.adjoints_from(self._adjoint(seed, reversal, derived.adjoints))
        unreached = [v for v in wanted if found.get(v) is None]
        if unreached and self.unused == "error":
            refuse_unreached(self._differentiated(reversal.body), unreached, f"@{self.entry}")
        grads = tuple(derived.adjoints.as_gradient(found.get(v), v) for v in wanted)
        pair = ir.Tuple((reversal.value, ir.Tuple(grads, span=entry.span)), span=entry.span)
        made = entry.replace(params=(*entry.params, *extra), body=pair, ret_type=None)
        after = prepared.with_functions({
            self.entry: in_blocks(made) if derived.keeps_tape else made, **derived.definitions()})
        after = dataclasses.replace(after, type_definitions=derived.type_definitions)
        return without_checkpoints(after, derived.products, ctx)

    def _prepared(self, mod: ir.IRModule, ctx: ir.PassContext) -> ir.IRModule:
        """``mod`` in operators that have gradients, first-order and pure."""
        mod = to_first_order(with_plain_entry(mod, self.entry), self.entry, ctx)
        mod = ir.run_pass(ExpandForGradient(training=bool(self.training)), mod, ctx)
        mod = with_taped_loops(mod, self.entry, self._of_step, ctx)
        if not mod.type_definitions:
            return mod
        return ir.infer_type(mod.with_functions({
            name: with_named_wildcards(mod[name], mod.type_definitions)
            for name in reached_functions(mod, self.entry)}))

    def _of_step(self, step: ir.Function) -> ir.Function:
        """From the parameters of a step and the gradient of its value to (value, gradients)."""
        alone = Gradient(training=self.training, cotangent="parameter")
        return ir.infer_type(alone(ir.IRModule({"main": step})))["main"]

    def _check_options(self) -> None:
        for name, value, allowed in (("cotangent", self.cotangent, _COTANGENTS),
                                     ("unused", self.unused, _UNUSED)):
            if value not in allowed:
                raise OptionError(f"invalid option {name} of gradient", got=repr(value),
                                  expected=" or ".join(map(repr, allowed)))

    def _parameters(self, entry: ir.Function) -> list[ir.Var]:
        """The parameters to differentiate by; raises ``PassError`` for impossible ones."""
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
                    got=f"%{name}: {type_of(by_name[name])}" if name in by_name else None,
                    help="name floating-point parameters",
                )
        return [by_name[name] for name in names]

    def _differentiated(self, body: ir.Expr) -> ir.Expr:
        """The part of the result to differentiate: all of it, or the first field."""
        if not self.has_aux:
            return body
        type_ = type_of(body)
        if not isinstance(type_, ir.TupleType) or len(type_.fields) < 2:
            raise PassError("has_aux needs a result of a value and auxiliary values",
                            where=f"@{self.entry}", expected="a tuple of at least two fields",
                            got=type_)
        return field_of(body, 0)

    def _adjoint(self, seed: ir.Expr, reversal: Reversal, adjoints: Adjoints) -> Adjoint:
        """The adjoint of the whole result from the gradient of its differentiated part."""
        adjoint = adjoints.from_gradient(seed, type_of(seed))
        whole = type_of(reversal.body)
        if self.has_aux and isinstance(whole, ir.TupleType):
            return one_field(adjoint, 0, len(whole.fields))
        return adjoint

    def _seed(self, value: ir.Expr, entry: ir.Function) -> tuple[ir.Expr, tuple[ir.Var, ...]]:
        """The gradient of ``value`` to start from, and the parameter that holds it, if any."""
        type_ = type_of(value)
        if self.cotangent == "parameter":
            name = "cotangent"
            while any(p.name == name for p in entry.params):
                name += "_"
            seed = ir.Var(name, type_, span=entry.span)
            return seed, (seed,)
        if self.cotangent == "scalar" and not _is_scalar(type_):
            raise PassError("the gradient of a result that is not a scalar needs a cotangent",
                            where=f"@{self.entry}", expected="a floating-point scalar", got=type_,
                            help="sum the result, give a cotangent, or use vjp or jacobian")
        return typed_ones(value), ()


_COTANGENTS = ("ones", "scalar", "parameter")
_UNUSED = ("zeros", "error")


def _is_scalar(type_: ir.Type) -> bool:
    return isinstance(type_, ir.TensorType) and type_.ndim == 0 and type_.dtype.is_float


def gradient(fn: ir.Function) -> ir.Function:
    """A function that returns ``(value of fn, (gradient of each floating-point parameter, ..))``.

    Raises ``PassError`` if ``fn`` contains recursive functions, which need a module
    (``Gradient()(mod)``).
    """
    after = Gradient()(ir.IRModule.from_expr(fn))
    if len(after.functions) > 1:
        raise PassError("the gradient of a program with recursive functions is a module",
                        where=fn.span, got=", ".join(f"@{name}" for name in after.functions),
                        help="use Gradient()(IRModule.from_expr(fn))")
    return after["main"]
