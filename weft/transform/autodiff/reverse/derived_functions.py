"""The functions that derivatives of global functions are made of."""

from __future__ import annotations

from weft import ir
from weft.op.gradients import typed_zeros
from weft.transform.analysis.graph import as_function, enters, type_of
from weft.transform.autodiff.checkpoint.checkpoint import behind_barrier, is_checkpointed
from weft.transform.autodiff.reverse import custom_rules
from weft.transform.autodiff.reverse.adjoint import Adjoints, one_field
from weft.transform.autodiff.reverse.adjoint_types import AdjointTypes
from weft.transform.autodiff.reverse.first_order import has_cycle, reached_functions
from weft.transform.autodiff.reverse.pure_graph import pure_graph
from weft.transform.autodiff.reverse.sweep import Reversal
from weft.transform.normal_form.alpha import fresh_function
from weft.transform.normal_form.to_basic_block_normal_form import ToBasicBlockNormalForm


class DerivedFunctions:
    """Derivatives of the global functions that ``entry`` reaches, created on demand.

    Without a tape, ``f_vjp`` maps the arguments and the adjoint of the result to the adjoints of
    the arguments, and computes the values of ``f`` again. A program with recursion or data keeps a
    tape: ``f_forward`` returns the value of ``f`` and a pullback, a closure from the adjoint of the
    result to those of the arguments. The time is then linear in that of ``f`` (without a tape, a
    recursion would compute the values of the inner calls again at each level).
    """

    def __init__(self, mod: ir.IRModule, entry: str) -> None:
        self.mod = mod
        self.reached = reached_functions(mod, entry)
        self.keeps_tape = has_cycle(mod, self.reached) or any(
            isinstance(node, (ir.Match, ir.Constructor)) or (
                isinstance(node, ir.Call) and isinstance(node.op, ir.Constructor))
            for name in self.reached for node in ir.post_order(mod[name], enter=enters))
        self.adjoints = Adjoints(AdjointTypes(mod.type_definitions), taken=frozenset(mod.functions))
        self.differentiated = self._differentiated(entry)
        self.products: dict[str, str] = {}
        self.forwards: dict[str, str] = {}

    def _differentiated(self, entry: str) -> list[str]:
        """The functions with calls whose arguments and results are floats, and ``entry``."""
        found = [entry]
        is_float = self.adjoints.types.is_differentiable
        for name in found:  # the loop appends names
            for node in ir.post_order(self.mod[name], enter=enters):
                if isinstance(node, ir.Call) and isinstance(node.op, ir.GlobalVar) and (
                        not custom_rules.has_custom_rule(self.mod[node.op.name])
                        and node.op.name not in found and is_float(type_of(node))
                        and any(is_float(type_of(a)) for a in node.args)):
                    found.append(node.op.name)
        return found

    def taped(self, function: str) -> str | None:
        """The name of the function that returns the value and the pullback."""
        if is_checkpointed(self.mod[function]) or custom_rules.has_custom_rule(self.mod[function]):
            return None
        return self._forward(function)

    def product(self, function: str) -> str:
        """The name of the function from arguments and adjoint of the result to adjoints."""
        return self._named(self.products, function, f"{function}_vjp")

    def custom(self, function: str) -> custom_rules.CustomVjp | None:
        """The rule of a function that saves values for its derivative."""
        return custom_rules.custom_pair(self.mod, function)

    def _forward(self, function: str) -> str:
        return self._named(self.forwards, function, f"{function}_forward")

    def _named(self, names: dict[str, str], function: str, name: str) -> str:
        if function not in names:
            while name in self.mod:
                name += "_"
            names[function] = name
        return names[function]

    def definitions(self) -> dict[str, ir.Function]:
        """The definitions of all functions that were asked for, and of those that these call."""
        made: dict[str, ir.Function] = {}
        size = -1
        while len(made) > size:
            size = len(made)
            for function, name in list(self.products.items()):
                if name not in made:
                    product = self._product_of(function)
                    made[name] = product if not is_checkpointed(self.mod[function]) \
                        else behind_barrier(product)
            for function, name in list(self.forwards.items()):
                if name not in made:
                    made[name] = self._forward_of(self.mod[function])
        return {**made, **self.adjoints.functions}

    @property
    def type_definitions(self) -> dict[str, ir.TypeData]:
        """The data types of the module and those of adjoints."""
        return {**self.mod.type_definitions, **self.adjoints.types.made}

    def _forward_of(self, fn: ir.Function) -> ir.Function:
        fn = fresh_function(fn)  # the original stays, and a variable is bound once
        reversal = Reversal(pure_graph(fn.body), self, self.adjoints)
        seed, pullback = self._pullback(fn, reversal)
        type_ = ir.TupleType((type_of(fn.body), self._pullback_type(fn)))
        closure = ir.Function((seed,), pullback, type_of(pullback), span=fn.span,
                              checked_type=type_.fields[1])
        pair = ir.Tuple((reversal.value, closure), span=fn.span, checked_type=type_)
        return in_blocks(ir.Function(fn.params, pair, type_, span=fn.span))

    def _product_of(self, function: str) -> ir.Function:
        custom = custom_rules.custom_product(self.mod, function)
        if custom is not None:
            return custom
        if custom_rules.has_custom_rule(self.mod[function]):
            return self._transposed(function)
        fn = fresh_function(self.mod[function])
        if not self.keeps_tape:
            reversal = Reversal(pure_graph(fn.body), self, self.adjoints)
            seed, result = self._pullback(fn, reversal)
            return ir.Function((*fn.params, seed), result, span=fn.span)
        pullback = self._pullback_type(fn)
        both = ir.TupleType((type_of(fn.body), pullback))
        signature = ir.FuncType(tuple(map(type_of, fn.params)), both)
        target = ir.GlobalVar(self._forward(function), checked_type=signature)
        pair = ir.Call(target, fn.params, span=fn.span, checked_type=both)
        seed = ir.Var("dy", pullback.arg_types[0], span=fn.span)
        result = ir.Call(pair[1].with_type(pullback), (seed,), checked_type=pullback.ret_type)
        return ir.Function((*fn.params, seed), result, pullback.ret_type, span=fn.span)

    def _transposed(self, function: str) -> ir.Function:
        """The transpose of the ``custom_jvp`` of a function, which is linear in the tangents."""
        rule = custom_rules.checked_jvp(self.mod, function)
        fn = fresh_function(self.mod[rule.name])
        count = len(self.mod[function].params)
        params, tangents = fn.params[:count], fn.params[count:]
        reversal = Reversal(pure_graph(fn.body), self, self.adjoints, frozenset(params))
        y = type_of(self.mod[function].body)
        dy = ir.Var("dy", self.adjoints.types.of(y), span=fn.span)
        found = reversal.adjoints_from(one_field(dy, 1, 2))
        grads = tuple(self.adjoints.written(found.get(t), t) for t in tangents)
        floats = [p for p in params if self.adjoints.types.is_differentiable(type_of(p))]
        # The transpose does not depend on the tangents.
        zeros: dict[ir.Var, ir.Expr] = {t: typed_zeros(p) for t,
                                        p in zip(tangents, floats, strict=True)}
        type_ = ir.TupleType(tuple(map(type_of, grads)))
        body = ir.substitute(ir.Tuple(grads, span=fn.span, checked_type=type_), zeros)
        return ir.Function((*params, dy), body, span=fn.span)

    def _pullback(self, fn: ir.Function, reversal: Reversal) -> tuple[ir.Var, ir.Expr]:
        """The adjoints of the parameters, and the variable for that of the result."""
        seed = ir.Var("dy", self.adjoints.types.of(type_of(fn.body)), span=fn.span)
        found = reversal.adjoints_from(seed)
        wanted = self._wanted(fn)
        grads = tuple(self.adjoints.written(found.get(p), p) for p in wanted)
        type_ = ir.TupleType(tuple(map(type_of, grads)))
        return seed, ir.Tuple(grads, span=fn.span, checked_type=type_)

    def _wanted(self, fn: ir.Function) -> list[ir.Var]:
        return [p for p in fn.params if self.adjoints.types.is_differentiable(type_of(p))]

    def _pullback_type(self, fn: ir.Function) -> ir.FuncType:
        types = self.adjoints.types
        return ir.FuncType((types.of(type_of(fn.body)),),
                           ir.TupleType(tuple(types.of(type_of(p)) for p in self._wanted(fn))))


def in_blocks(fn: ir.Function) -> ir.Function:
    """``fn`` with names for the values that its closures capture."""
    return as_function(ToBasicBlockNormalForm().run(fn, ir.PassContext()))
