"""The engine of partial evaluation: static values, and residual code for dynamic ones."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any, TypeAlias

from weft import ir
from weft.ir.visitor import Routine, run_routine
from weft.support.dataclass import dataclass
from weft.transform.analysis.graph import is_constant, is_primitive
from weft.transform.normal_form.alpha import fresh_var
from weft.transform.passes.fold_constant import bytes_of, evaluate_constant

# fold_constant handles larger results of operators on constants, and weighs their cost.
MAX_FOLDED_BYTES = 1 << 16


@dataclass(eq=False, slots=True)
class Block:
    """Residual code in order of evaluation; ``made`` caches the code for static values."""

    parent: Block | None = None
    bindings: list[tuple[ir.Var, ir.Expr]] = field(default_factory=list)
    made: dict[object, ir.Expr] = field(default_factory=dict)

    def emit(self, value: ir.Expr, name: str = "v") -> ir.Var:
        var = ir.Var(name, span=value.span)
        self.bindings.append((var, value))
        return var

    def find(self, known: object) -> ir.Expr | None:
        block: Block | None = self
        while block is not None:
            if known in block.made:
                return block.made[known]
            block = block.parent
        return None

    def close(self, result: ir.Expr) -> ir.Expr:
        for var, value in reversed(self.bindings):
            result = ir.Let(var, value, result, span=value.span)
        return result


@dataclass(eq=False, slots=True)
class TupleValue:
    fields: tuple[Value, ...]


@dataclass(eq=False, slots=True)
class DataValue:
    constructor: ir.Constructor
    fields: tuple[Value, ...]
    type_args: tuple[ir.Type, ...] = ()


@dataclass(eq=False, slots=True)
class Closure:
    """``name`` is the variable by which the function calls itself, ``as_global`` its global."""

    function: ir.Function
    frame: Frame
    name: ir.Var | None = None
    as_global: ir.GlobalVar | None = None


# Code that names a value (a variable, a constant, a global), or a static value.
Value: TypeAlias = "ir.Expr | TupleValue | DataValue | Closure"


@dataclass(eq=False, slots=True)
class Frame:
    """The variables of an activation, the values computed in it, and the block for its code.

    ``active`` counts enclosing unfoldings by function; ``blocked`` are the functions that a
    dynamic condition separates from their next call.
    """

    block: Block
    parent: Frame | None = None
    variables: dict[ir.Var, Value] = field(default_factory=dict)
    computed: dict[ir.Expr, Value] = field(default_factory=dict)
    active: Mapping[ir.Function, int] = field(default_factory=dict)
    blocked: frozenset[ir.Function] = frozenset()

    def inner(self, block: Block, *, is_dynamic: bool) -> Frame:
        """The frame of a branch; a dynamic branch may not be reached."""
        blocked = self.blocked | frozenset(self.active) if is_dynamic else self.blocked
        return Frame(block, self, active=self.active, blocked=blocked)

    def look_up(self, expr: ir.Expr) -> Value | None:
        frame: Frame | None = self
        while frame is not None:
            table = frame.variables if isinstance(expr, ir.Var) else frame.computed
            if expr in table:
                return table[expr]  # type: ignore[index]
            frame = frame.parent
        return expr if isinstance(expr, ir.Var) else None


class PartialEvaluator:
    """Evaluates functions of ``mod``; ``depth`` and ``fuel`` bound the unfolding of recursion."""

    def __init__(self, mod: ir.IRModule, depth: int, fuel: int) -> None:
        self.mod = mod
        self.depth = depth
        self.fuel = fuel

    def function(self, fn: ir.Function) -> ir.Function:
        """``fn`` with its body partially evaluated."""
        return run_routine(self._residual_function(fn, Frame(Block()), None))

    # -- code for values ---------------------------------------------------------------------

    def _code(self, value: Value, frame: Frame) -> Routine[ir.Expr]:
        """An atom that represents ``value`` in the code of ``frame``."""
        if isinstance(value, ir.Expr):
            return value
        if isinstance(value, Closure) and value.as_global is not None:
            return value.as_global
        known = frame.block.find(value)
        if known is not None:
            return known
        if isinstance(value, Closure):
            return (yield self._closure_code(value, frame))
        fields = yield self._codes(value.fields, frame)
        made: ir.Expr = ir.Tuple(fields)
        if isinstance(value, DataValue):
            # The expression that fixed its type may be gone: ``Nil()`` is a list of anything.
            made = ir.Call(value.constructor, fields, type_args=value.type_args)
        atom = frame.block.emit(made)
        frame.block.made[value] = atom
        return atom

    def _codes(self, values: Sequence[Value], frame: Frame) -> Routine[tuple[ir.Expr, ...]]:
        found = []
        for value in values:
            found.append((yield self._code(value, frame)))  # noqa: PERF401 - it yields
        return tuple(found)

    def _closure_code(self, closure: Closure, frame: Frame) -> Routine[ir.Expr]:
        name = ir.Var(closure.name.name if closure.name is not None else "f")
        # Before its code, in which the function may call itself by this name.
        frame.block.made[closure] = name
        inside = Frame(Block(frame.block), closure.frame, active=frame.active,
                       blocked=frame.blocked | {closure.function})
        fn = yield self._residual_function(closure.function, inside, closure)
        frame.block.bindings.append((name, fn))
        return name

    def _residual_function(
        self, fn: ir.Function, frame: Frame, closure: Closure | None
    ) -> Routine[ir.Function]:
        params = tuple(fresh_var(p) for p in fn.params)
        frame.variables.update(zip(fn.params, params, strict=True))
        # The arguments of a residual function are dynamic, so nothing would bound the unfolding of
        # recursive calls in it.
        frame.blocked = frame.blocked | frozenset(frame.active) | {fn}
        if closure is not None and closure.name is not None:
            frame.variables[closure.name] = closure
        body = yield self._tail(fn.body, frame)
        return ir.Function(params, body, fn.ret_type, fn.type_params, fn.attrs, span=fn.span)

    def _tail(self, expr: ir.Expr, frame: Frame) -> Routine[ir.Expr]:
        """The code of a block whose result is ``expr``."""
        value = yield self._value(expr, frame)
        result = yield self._code(value, frame)
        return frame.block.close(result)

    # -- values of expressions ---------------------------------------------------------------

    def _value(self, expr: ir.Expr, frame: Frame) -> Routine[Value]:
        known = frame.look_up(expr)
        if known is not None:
            return known
        rule = _RULES.get(type(expr))
        value = self._at_once(expr, frame) if rule is None else (yield rule(self, expr, frame))
        # By frame, since a body that is unfolded twice has two values; within one, sharing is kept.
        frame.computed[expr] = value
        return value

    def _at_once(self, expr: ir.Expr, frame: Frame) -> Value:
        """The value of an expression that needs no evaluation."""
        if isinstance(expr, ir.GlobalVar):
            return Closure(self.mod[expr], Frame(Block()), as_global=expr)
        if isinstance(expr, ir.Function) and not is_primitive(expr):
            return Closure(expr, frame)
        return expr

    def _values(self, exprs: Sequence[ir.Expr], frame: Frame) -> Routine[tuple[Value, ...]]:
        found = []
        for expr in exprs:
            found.append((yield self._value(expr, frame)))  # noqa: PERF401 - it yields
        return tuple(found)

    def _tuple(self, expr: ir.Tuple, frame: Frame) -> Routine[Value]:
        return TupleValue((yield self._values(expr.fields, frame)))

    def _item(self, expr: ir.TupleGetItem, frame: Frame) -> Routine[Value]:
        whole = yield self._value(expr.tuple_value, frame)
        if isinstance(whole, TupleValue):
            return whole.fields[expr.index]
        return frame.block.emit(ir.TupleGetItem(whole, expr.index, span=expr.span))

    def _let(self, expr: ir.Let, frame: Frame) -> Routine[Value]:
        node: ir.Expr = expr
        while isinstance(node, ir.Let):
            if isinstance(node.value, ir.Function) and not is_primitive(node.value):
                frame.variables[node.var] = Closure(node.value, frame, node.var)
            else:
                frame.variables[node.var] = yield self._value(node.value, frame)
            node = node.body
        return (yield self._value(node, frame))

    def _if(self, expr: ir.If, frame: Frame) -> Routine[Value]:
        cond = yield self._value(expr.cond, frame)
        if isinstance(cond, ir.Constant):
            chosen = expr.true_branch if bool(cond.data) else expr.false_branch
            return (yield self._value(chosen, frame.inner(frame.block, is_dynamic=False)))
        branches = []
        for branch in (expr.true_branch, expr.false_branch):
            inner = frame.inner(Block(frame.block), is_dynamic=True)
            branches.append((yield self._tail(branch, inner)))
        return frame.block.emit(ir.If(cond, *branches, span=expr.span))

    def _match(self, expr: ir.Match, frame: Frame) -> Routine[Value]:
        data = yield self._value(expr.data, frame)
        chosen = _chosen_clause(expr.clauses, data)
        if chosen is not None:
            clause, bound = chosen
            inner = frame.inner(frame.block, is_dynamic=False)
            inner.variables.update(bound)
            return (yield self._value(clause.rhs, inner))
        scrutinee = yield self._code(data, frame)
        clauses = []
        for clause in expr.clauses:
            inner = frame.inner(Block(frame.block), is_dynamic=True)
            renamed = {v: fresh_var(v) for v in ir.pattern_vars(clause.lhs)}
            inner.variables.update(renamed)
            rhs = yield self._tail(clause.rhs, inner)
            clauses.append(ir.Clause(_renamed(clause.lhs, renamed), rhs))
        made = ir.Match(scrutinee, tuple(clauses), expr.complete, span=expr.span)
        return frame.block.emit(made)

    def _reference(self, expr: Any, frame: Frame) -> Routine[Value]:
        names = ("ref", "value") if isinstance(expr, ir.RefWrite) else (
            ("value",) if isinstance(expr, ir.RefCreate) else ("ref",)
        )
        parts = {}
        for name in names:
            value = yield self._value(getattr(expr, name), frame)
            parts[name] = yield self._code(value, frame)
        # A new node: code that is unfolded twice has its effects twice.
        return frame.block.emit(dataclasses.replace(expr, **parts, checked_type=None))

    # -- calls -------------------------------------------------------------------------------

    def _call(self, expr: ir.Call, frame: Frame) -> Routine[Value]:
        callee: Value = expr.op
        if not isinstance(expr.op, (ir.Op, ir.Constructor)):
            callee = yield self._value(expr.op, frame)
        args = yield self._values(expr.args, frame)
        if isinstance(callee, ir.Constructor):
            return DataValue(callee, args, expr.type_args or expr.checked_type_args)
        if isinstance(callee, Closure) and self._may_unfold(callee, frame):
            return (yield self._unfold(callee, args, frame))
        op = callee if isinstance(callee, ir.Op) else (yield self._code(callee, frame))
        code = yield self._codes(args, frame)
        call = dataclasses.replace(expr, op=op, args=code, checked_type=None)
        if isinstance(op, ir.Op):
            folded = _folded(call)
            if folded is not None:
                return folded
        return frame.block.emit(call)

    def _may_unfold(self, closure: Closure, frame: Frame) -> bool:
        fn = closure.function
        if fn.type_params or is_primitive(fn) or fn in frame.blocked or "compiler" in fn.attrs:
            return False
        return frame.active.get(fn, 0) < self.depth and self.fuel > 0

    def _unfold(self, closure: Closure, args: Sequence[Value], frame: Frame) -> Routine[Value]:
        self.fuel -= 1
        fn = closure.function
        active = {**frame.active, fn: frame.active.get(fn, 0) + 1}
        inner = Frame(frame.block, closure.frame, active=active, blocked=frame.blocked)
        inner.variables.update(zip(fn.params, args, strict=True))
        return (yield self._value(fn.body, inner))


def _folded(call: ir.Call) -> ir.Constant | None:
    if not call.args or not all(map(is_constant, call.args)):
        return None
    if not isinstance(call.op, ir.Op) or call.op.reference is None or call.op.traits.has_effect:
        return None
    if sum(a.data.nbytes for a in call.args if isinstance(a, ir.Constant)) > MAX_FOLDED_BYTES:
        return None
    type_ = ir.infer_expr(call).checked_type
    if not isinstance(type_, ir.TensorType) or not ir.is_static(type_) \
            or bytes_of(type_) > MAX_FOLDED_BYTES:
        return None
    value = evaluate_constant(call, type_)
    return value if isinstance(value, ir.Constant) else None


def _chosen_clause(
    clauses: Sequence[ir.Clause], data: Value
) -> tuple[ir.Clause, dict[ir.Var, Value]] | None:
    """The first clause that matches, if the static parts of ``data`` decide that."""
    for clause in clauses:
        bound = _bound(clause.lhs, data)
        if bound is None:
            return None
        if bound is not False:
            return clause, bound
    return None


def _bound(lhs: ir.Pattern, data: Value) -> Any:
    """The pattern's bindings; ``False`` if it does not match, ``None`` if that is unknown."""
    bound: dict[ir.Var, Value] = {}
    pending: list[tuple[ir.Pattern, Value]] = [(lhs, data)]
    while pending:
        pattern, value = pending.pop()
        if isinstance(pattern, ir.PatternVar):
            bound[pattern.var] = value
        elif isinstance(pattern, ir.PatternTuple):
            if not isinstance(value, TupleValue):
                return None
            pending.extend(zip(pattern.patterns, value.fields, strict=True))
        elif isinstance(pattern, ir.PatternConstructor):
            if not isinstance(value, DataValue):
                return None
            if value.constructor.tag != pattern.constructor.tag:
                return False
            pending.extend(zip(pattern.patterns, value.fields, strict=True))
    return bound


def _renamed(pattern: ir.Pattern, renamed: Mapping[ir.Var, ir.Var]) -> ir.Pattern:
    # Patterns are written by hand and short, which bounds this recursion.
    if isinstance(pattern, ir.PatternVar):
        return ir.PatternVar(renamed[pattern.var])
    if isinstance(pattern, ir.PatternConstructor):
        inner = tuple(_renamed(p, renamed) for p in pattern.patterns)
        return ir.PatternConstructor(pattern.constructor, inner)
    if isinstance(pattern, ir.PatternTuple):
        return ir.PatternTuple(tuple(_renamed(p, renamed) for p in pattern.patterns))
    return pattern


_RULES: dict[type, Callable[[PartialEvaluator, Any, Frame], Routine[Value]]] = {
    ir.Call: PartialEvaluator._call,  # noqa: SLF001
    ir.If: PartialEvaluator._if,  # noqa: SLF001
    ir.Let: PartialEvaluator._let,  # noqa: SLF001
    ir.Match: PartialEvaluator._match,  # noqa: SLF001
    ir.RefCreate: PartialEvaluator._reference,  # noqa: SLF001
    ir.RefRead: PartialEvaluator._reference,  # noqa: SLF001
    ir.RefWrite: PartialEvaluator._reference,  # noqa: SLF001
    ir.Tuple: PartialEvaluator._tuple,  # noqa: SLF001
    ir.TupleGetItem: PartialEvaluator._item,  # noqa: SLF001
}
