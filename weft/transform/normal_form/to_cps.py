"""Continuation-passing style (CPS): every function call is a tail call."""

from __future__ import annotations

from typing import ClassVar

from weft import ir
from weft.ir.types import CompositeType
from weft.ir.visitor import Routine, run_routine
from weft.support.dataclass import dataclass
from weft.support.errors import PassError
from weft.transform.analysis.graph import holds_function, is_primitive, type_of
from weft.transform.normal_form.to_a_normal_form import ToANormalForm


@ir.register_pass
@dataclass(frozen=True)
class ToCPS(ir.Pass):
    """Convert to continuation-passing style: each function takes a continuation for its result.

    A call of a function passes the rest of the computation as a function; operator calls stay as
    they are. The functions become generic in the type of the final answer, and get the attribute
    ``cps``. ``un_cps`` wraps them in functions of the old signatures. Raises ``PassError`` for
    data types that hold functions, and for modules in which only some functions are in CPS.

    def @main(%x: Tensor[(2,), float32]) { exp(@double(%x)) }
    def @double(%x: Tensor[(2,), float32]) { add(%x, %x) }
    =>
    def @main[A](%x: Tensor[(2,), float32], %k: fn (Tensor[(2,), float32]) -> A, cps=True) -> A {
      @double(%x, fn (%r: Tensor[(2,), float32]) -> A { let %e = exp(%r); %k(%e) })
    }
    def @double[A](%x: Tensor[(2,), float32], %k: fn (Tensor[(2,), float32]) -> A, cps=True) -> A {
      let %s = add(%x, %x);
      %k(%s)
    }
    """

    name: ClassVar[str] = "to_cps"
    opt_level: ClassVar[int] = 0

    def run_module(self, mod: ir.IRModule, ctx: ir.PassContext) -> ir.IRModule:
        for data in mod.type_definitions.values():
            if any(holds_function(t) for c in data.constructors for t in c.inputs):
                raise PassError("a data type holds functions", where=str(data.header),
                                help="run defunctionalization or partial_eval first")
        done = [name for name, fn in mod.functions.items() if fn.attrs.get("cps")]
        direct = [n for n, fn in mod.functions.items() if n not in done and not is_primitive(fn)]
        if done and direct:
            # A function in direct style calls the others without a continuation.
            raise PassError("the module mixes CPS and direct style", where=f"@{done[0]}",
                            expected="all functions in CPS, or none",
                            got="in direct style: " + ", ".join(f"@{name}" for name in direct),
                            help="run to_cps once; un_cps restores the old signatures")
        normal = ir.infer_type(ToANormalForm().run_module(mod, ctx))
        changed = {
            name: _Conversion().function(fn)
            for name, fn in normal.functions.items()
            if not is_primitive(fn) and not fn.attrs.get("cps")
        }
        return mod.with_functions(changed)


class _Conversion:
    """Converts one global function from A-normal form."""

    def __init__(self) -> None:
        self.answer = ir.TypeVar("A")
        self.memo: dict[ir.Expr, ir.Expr] = {}
        self.types: dict[ir.Type, ir.Type] = {}

    def function(self, fn: ir.Function) -> ir.Function:
        converted = run_routine(self._function(fn))
        return converted.replace(
            type_params=(*fn.type_params, self.answer), attrs={**fn.attrs, "cps": True}
        )

    def _function(self, fn: ir.Function) -> Routine[ir.Function]:
        params = tuple(self._bind(p) for p in fn.params)
        k = ir.Var("k", ir.FuncType((self._type(type_of(fn.body)),), self.answer), span=fn.span)
        body = yield self._block(fn.body, k)
        return ir.Function((*params, k), body, self.answer, (), fn.attrs, span=fn.span)

    def _bind(self, var: ir.Var) -> ir.Var:
        new = ir.Var(var.name, self._type(type_of(var)), span=var.span)
        self.memo[var] = new
        return new

    def _block(self, block: ir.Expr, k: ir.Var) -> Routine[ir.Expr]:
        """``block`` with its result passed to ``k``; bindings are converted from last to first."""
        # All variables first: the conversion runs backwards, and later bindings use earlier
        # variables.
        bindings: list[ir.Let] = []
        node = block
        while isinstance(node, ir.Let):
            bindings.append(node)
            if _is_function_call(node.value) or isinstance(node.value, (ir.If, ir.Match)):
                self._bind(node.var)  # the parameter of a continuation
            else:
                self.memo[node.var] = ir.Var(node.var.name, span=node.var.span)
            node = node.body
        result: ir.Expr = ir.Call(k, (self._atom(node),), span=node.span)
        for let in reversed(bindings):
            result = yield self._binding(let, result, k)
        return result

    def _binding(self, let: ir.Let, rest: ir.Expr, k: ir.Var) -> Routine[ir.Expr]:
        var, value = self.memo[let.var], let.value
        if not isinstance(var, ir.Var):
            raise PassError("a variable lost its binding in CPS conversion", where=let.span)
        if _is_function_call(value):
            return self._call(value, self._continuation(var, rest, k))
        if isinstance(value, (ir.If, ir.Match)):
            join = self._continuation(var, rest, k)
            if isinstance(join, ir.Var):
                return (yield self._choice(value, join))
            # All branches call the continuation by name. A copy in each would multiply the code.
            name = ir.Var("join", span=let.span)
            return ir.Let(name, join, (yield self._choice(value, name)), span=let.span)
        if isinstance(value, ir.Function) and not is_primitive(value):
            converted = yield self._function(value)
            return ir.Let(var, converted, rest, span=let.span)
        parts = [self._atom(c) for c in ir.children(value)]
        return ir.Let(var, ir.rebuild(value, parts), rest, span=let.span)

    def _continuation(self, var: ir.Var, rest: ir.Expr, k: ir.Var) -> ir.Expr:
        """``rest`` as a function of ``var``; ``k`` itself where ``rest`` only calls it."""
        if isinstance(rest, ir.Call) and rest.op is k and rest.args[0] is var:
            return k
        return ir.Function((var,), rest, self.answer, span=var.span)

    def _call(self, call: ir.Expr, k: ir.Expr) -> ir.Expr:
        callee, *args = ir.children(call)
        converted = tuple(self._atom(a) for a in args)
        return ir.Call(self._atom(callee), (*converted, k), span=call.span)

    def _choice(self, value: ir.Expr, k: ir.Var) -> Routine[ir.Expr]:
        if isinstance(value, ir.If):
            true_branch = yield self._block(value.true_branch, k)
            false_branch = yield self._block(value.false_branch, k)
            return ir.If(self._atom(value.cond), true_branch, false_branch, span=value.span)
        if not isinstance(value, ir.Match):
            raise PassError("expected a branch or a match", where=value.span)
        clauses = []
        for clause in value.clauses:
            lhs = self._pattern(clause.lhs)
            clauses.append(ir.Clause(lhs, (yield self._block(clause.rhs, k))))
        return ir.Match(self._atom(value.data), tuple(clauses), value.complete, span=value.span)

    def _pattern(self, pattern: ir.Pattern) -> ir.Pattern:
        # Patterns are written by hand and short, which bounds this recursion.
        if isinstance(pattern, ir.PatternVar):
            return ir.PatternVar(self._bind(pattern.var))
        if isinstance(pattern, ir.PatternConstructor):
            inner = tuple(map(self._pattern, pattern.patterns))
            return ir.PatternConstructor(pattern.constructor, inner)
        if isinstance(pattern, ir.PatternTuple):
            return ir.PatternTuple(tuple(map(self._pattern, pattern.patterns)))
        return pattern

    def _atom(self, node: ir.Expr) -> ir.Expr:
        if isinstance(node, ir.GlobalVar):
            return ir.GlobalVar(node.name, span=node.span)  # its type has changed
        return self.memo.get(node, node)

    def _type(self, type_: ir.Type) -> ir.Type:
        """``type_`` with a continuation parameter in every function type."""
        pending = [type_]
        while pending:
            current = pending[-1]
            missing = [p for p in ir.component_types(current) if p not in self.types]
            if missing:
                pending.extend(missing)
                continue
            pending.pop()
            self.types[current] = self._converted(current)
        return self.types[type_]

    def _converted(self, type_: ir.Type) -> ir.Type:
        """``type_``, whose component types are already converted."""
        if not isinstance(type_, CompositeType):
            return type_
        parts = tuple(self.types[p] for p in type_.components())
        if isinstance(type_, ir.FuncType):
            continuation = ir.FuncType((parts[-1],), self.answer)
            return ir.FuncType((*parts[:-1], continuation), self.answer)
        return type_.with_components(parts)


def _is_function_call(value: ir.Expr) -> bool:
    """Whether ``value`` calls a function that takes a continuation."""
    if not isinstance(value, ir.Call) or isinstance(value.op, (ir.Op, ir.Constructor)):
        return False
    return not is_primitive(value.op)
