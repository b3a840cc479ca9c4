"""Lowers one function in A-normal form to bytecode.

A scope is a chain of lets; its bindings become instructions in order. Branches and match clauses
are nested scopes, which are queued until the enclosing code is done. Their results go to a register
and a continuation block or, at the end of a function, to the caller. A call at the end of a
function is a tail call.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.compiler.program.lowering import alias_of, primitive_of
from weft.compiler.program.ports import tensors_of
from weft.compiler.vm.blocks import Block
from weft.compiler.vm.bounded_loop import BoundedLoop
from weft.compiler.vm.function_builder import FunctionBuilder
from weft.compiler.vm.tables import Captures, Pending, Tables
from weft.ir import Op, TensorType, is_static
from weft.ir.expr import (
    Call,
    Constant,
    Constructor,
    Expr,
    Function,
    GlobalVar,
    If,
    Let,
    Match,
    Pattern,
    PatternConstructor,
    PatternTuple,
    PatternVar,
    PatternWildcard,
    RefCreate,
    RefRead,
    RefWrite,
    Tuple,
    TupleGetItem,
    Var,
)
from weft.runtime.vm import bytecode as bc
from weft.runtime.vm.program import VmFunction
from weft.support.dataclass import dataclass
from weft.support.errors import InternalError, UnsupportedModelError
from weft.transform.analysis.graph import is_primitive, type_of
from weft.transform.normal_form.to_a_normal_form import Normalizer


def lower_clause(builder: FunctionBuilder, pattern: Pattern, data: int, other: Block,
                 registers: dict[Var, int]) -> bool:
    """Emit the test of ``data`` against a pattern, and bind its variables in ``registers``.

    The builder continues in the block where the pattern matches; if it does not match, control goes
    to ``other``. Returns whether the pattern matches every value.
    """
    always = True
    pending = [(pattern, data)]
    while pending:
        current, register = pending.pop()
        if isinstance(current, PatternVar):
            registers[current.var] = register
        elif isinstance(current, PatternConstructor):
            always = False
            _test_tag(builder, register, current.constructor.tag, other)
            pending.extend(_fields(builder, current, register, bc.GetField))
        elif isinstance(current, PatternTuple):
            pending.extend(_fields(builder, current, register, bc.GetItem))
    return always


def _test_tag(builder: FunctionBuilder, register: int, tag: int, other: Block) -> None:
    following = builder.new_block()
    builder.emit(bc.JumpUnlessTag(register, tag, other.number))
    builder.block.next = following.number
    builder.block = following


def _fields(builder: FunctionBuilder, pattern: PatternConstructor | PatternTuple, register: int,
           load: type[bc.GetField | bc.GetItem]) -> list[tuple[Pattern, int]]:
    """Load the fields that have sub-patterns; (sub-pattern, register) of each, last first."""
    fields: list[tuple[Pattern, int]] = []
    for index, inner in enumerate(pattern.patterns):
        if not isinstance(inner, PatternWildcard):
            field = builder.new_register()
            builder.emit(load(field, register, index))
            fields.append((inner, field))
    return fields[::-1]


@dataclass(frozen=True, slots=True)
class Goal:
    """The continuation of a scope: the register for its value, and the block that reads it."""

    register: int
    block: Block


def lower_function(pending: Pending, tables: Tables) -> VmFunction:
    """Lower a global function, local function, kernel or constructor."""
    source = pending.source
    if isinstance(source, Constructor):
        return _constructor_function(source)
    if is_primitive(source):
        return _kernel_function(source, pending.name, tables)
    body, captures = source.body, pending.captures
    if captures is None:
        body = Normalizer(body).run()
        captures = Captures(body)
    builder = FunctionBuilder(pending.name, len(pending.captured), len(source.params))
    lowering = _Lowering(builder, tables, captures, pending.own_name)
    lowering.run((*pending.captured, *source.params), body)
    return builder.finish()


def _constructor_function(constructor: Constructor) -> VmFunction:
    count = len(constructor.inputs)
    builder = FunctionBuilder(constructor.name, 0, count)
    result = builder.new_register()
    builder.emit(bc.MakeData(result, constructor.tag, constructor.name, tuple(range(count))))
    builder.emit(bc.Return(result))
    return builder.finish()


def _kernel_function(kernel: Function, name: str, tables: Tables) -> VmFunction:
    builder = FunctionBuilder(name, 0, len(kernel.params))
    result = invoke_kernel(builder, tables, kernel, range(len(kernel.params)))
    builder.emit(bc.Return(result))
    return builder.finish()


def invoke_kernel(builder: FunctionBuilder, tables: Tables, kernel: Function,
                  args: Sequence[int]) -> int:
    """Emit a kernel call, or a reshape if it only changes the shape; the register of its result."""
    result_type = type_of(kernel.body)
    alias = alias_of(kernel)
    if alias is not None and isinstance(result_type, TensorType) and is_static(result_type):
        result = builder.new_register()
        builder.emit(bc.Reshape(result, args[alias], result_type.concrete_shape))
        return result
    flat = [r for a, p in zip(args, kernel.params, strict=True)
            for r in builder.flatten(a, type_of(p))]
    results = [builder.new_register() for _ in tensors_of(result_type)]
    builder.emit(bc.InvokeKernel(tuple(results), tables.kernels.number_of(kernel), tuple(flat)))
    return builder.assemble(results, result_type)


class _Lowering:
    def __init__(self, builder: FunctionBuilder, tables: Tables, captures: Captures,
                 own_name: Var | None) -> None:
        self.builder = builder
        self.tables = tables
        self.captures = captures
        self.own_name = own_name
        self.registers: dict[Var, int] = {}
        self.waiting: list[tuple[Block, Expr, Goal | None]] = []

    def run(self, variables: Sequence[Var], body: Expr) -> None:
        self.registers.update((v, n) for n, v in enumerate(variables))
        self.waiting.append((self.builder.block, body, None))
        while self.waiting:
            block, scope, goal = self.waiting.pop()
            self.builder.block = block
            self._scope(scope, goal)

    def _scope(self, expr: Expr, goal: Goal | None) -> None:
        while isinstance(expr, Let):
            if expr.body is expr.var and not isinstance(expr.value, Function):
                expr = expr.value  # the last binding may be a tail call
                break
            self._bind(expr.var, expr.value)
            expr = expr.body
        if isinstance(expr, (If, Match)):
            self._branch(expr, goal)
        elif goal is not None:
            self._deliver(self._value(expr), goal)
        elif isinstance(expr, Call) and self._is_function_call(expr):
            self._tail_call(expr)
        else:
            self.builder.emit(bc.Return(self._value(expr)))

    def _deliver(self, register: int, goal: Goal) -> None:
        self.builder.emit(bc.Move(goal.register, register))
        self.builder.block.next = goal.block.number

    def _bind(self, var: Var, value: Expr) -> None:
        if isinstance(value, (If, Match)):
            goal = Goal(self.builder.new_register(), self.builder.new_block())
            self._branch(value, goal)
            self.registers[var] = goal.register
            self.builder.block = goal.block
        else:
            self.registers[var] = self._value(value)

    def _branch(self, expr: If | Match, goal: Goal | None) -> None:
        if isinstance(expr, Match):
            self._match(expr, goal)
            return
        condition = self._operand(expr.cond)
        then, otherwise = self.builder.new_block(), self.builder.new_block()
        self.builder.emit(bc.JumpUnless(condition, otherwise.number))
        self.builder.block.next = then.number
        self.waiting.append((otherwise, expr.false_branch, goal))
        self.waiting.append((then, expr.true_branch, goal))

    def _match(self, match: Match, goal: Goal | None) -> None:
        data = self._operand(match.data)
        for clause in match.clauses:
            other = self.builder.new_block()
            always = lower_clause(self.builder, clause.lhs, data, other, self.registers)
            self.waiting.append((self.builder.block, clause.rhs, goal))
            self.builder.block = other
            if always:
                return
        where = f"match in @{self.builder.name}" if match.span is None else str(match.span)
        self.builder.emit(bc.Fail(where))

    def _operand(self, expr: Expr) -> int:
        """The register of an atom: a variable, constant or function."""
        if isinstance(expr, Var) and expr in self.registers:
            return self.registers[expr]
        result = self.builder.new_register()
        self.builder.emit(self._load(expr, result))
        return result

    def _load(self, expr: Expr, result: int) -> bc.Instruction:
        if isinstance(expr, Constant):
            return bc.LoadConstant(result, self.tables.constant(expr.data))
        if isinstance(expr, Var) and expr is self.own_name:
            return bc.LoadSelf(result)
        if isinstance(expr, GlobalVar):
            return bc.MakeClosure(result, self.tables.global_function(expr), ())
        if isinstance(expr, Constructor):
            return bc.MakeClosure(result, self.tables.constructor(expr), ())
        if isinstance(expr, Function):
            return self._closure(expr, result)
        if isinstance(expr, Op):
            raise UnsupportedModelError(
                f"operator {expr.name} used as a value", where=expr.span,
                help=f"wrap it in a function: fn (%x) {{ {expr.name}(%x) }}",
            )
        raise InternalError("operand that is not an atom", where=expr.span, got=type(expr).__name__)

    def _closure(self, function: Function, result: int) -> bc.Instruction:
        captures = None if is_primitive(function) else self.captures
        number = self.tables.local_function(function, captures, self.builder.name)
        captured = () if captures is None else captures.variables[function]
        return bc.MakeClosure(result, number, tuple(self._operand(v) for v in captured))

    def _value(self, expr: Expr) -> int:
        """Emit the computation of a let-bound value; the register of its result."""
        if isinstance(expr, Call):
            return self._call(expr)
        if not isinstance(expr, (Tuple, TupleGetItem, RefCreate, RefRead, RefWrite)):
            return self._operand(expr)
        result = self.builder.new_register()
        if isinstance(expr, RefWrite):
            self.builder.emit(bc.WriteRef(self._operand(expr.ref), self._operand(expr.value)))
            self.builder.emit(bc.MakeTuple(result, ()))
        else:
            self.builder.emit(self._structure(expr, result))
        return result

    def _structure(
        self, expr: Tuple | TupleGetItem | RefCreate | RefRead, result: int
    ) -> bc.Instruction:
        if isinstance(expr, Tuple):
            return bc.MakeTuple(result, self._operands(expr.fields))
        if isinstance(expr, TupleGetItem):
            return bc.GetItem(result, self._operand(expr.tuple_value), expr.index)
        if isinstance(expr, RefCreate):
            return bc.MakeRef(result, self._operand(expr.value))
        return bc.ReadRef(result, self._operand(expr.ref))

    def _operands(self, exprs: Sequence[Expr]) -> tuple[int, ...]:
        return tuple(self._operand(e) for e in exprs)

    def _kernel_of(self, call: Call) -> Function | None:
        callee = self.tables.mod[call.op] if isinstance(call.op, GlobalVar) else call.op
        if isinstance(callee, Op):
            return primitive_of(call)
        return callee if isinstance(callee, Function) and is_primitive(callee) else None

    def _is_function_call(self, call: Call) -> bool:
        return not isinstance(call.op, Constructor) and self._kernel_of(call) is None \
            and self._loop_of(call) is None

    def _loop_of(self, call: Call) -> BoundedLoop | None:
        return self.tables.loop(call.op) if isinstance(call.op, GlobalVar) else None

    def _call(self, call: Call) -> int:
        kernel = self._kernel_of(call)
        if kernel is not None:
            return invoke_kernel(self.builder, self.tables, kernel, self._operands(call.args))
        args = self._operands(call.args)
        loop = self._loop_of(call)
        if loop is not None:
            constants = [self._operand(Constant(data)) for data in loop.constants]
            return invoke_kernel(self.builder, self.tables, loop.function, (*args, *constants))
        result = self.builder.new_register()
        if isinstance(call.op, Constructor):
            self.builder.emit(bc.MakeData(result, call.op.tag, call.op.name, args))
        elif isinstance(call.op, GlobalVar):
            self.builder.emit(bc.Call(result, self.tables.global_function(call.op), args))
        else:
            self.builder.emit(bc.CallClosure(result, self._operand(call.op), args))
        return result

    def _tail_call(self, call: Call) -> None:
        args = self._operands(call.args)
        if isinstance(call.op, GlobalVar):
            self.builder.emit(bc.TailCall(self.tables.global_function(call.op), args))
        else:
            self.builder.emit(bc.TailCallClosure(self._operand(call.op), args))
