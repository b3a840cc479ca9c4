"""Lowers the fused module's ``main`` to a sequence of kernel calls (steps).

``main`` is first-order: calls of primitive functions, tuples, projections, lets, conditionals, and
calls of statically known functions. Each structurally distinct primitive function becomes one
kernel. Calls in a branch are guarded by its condition; both branches of a conditional write their
results to the same buffers. Other functions are inlined; one that calls itself in tail position
becomes a loop whose parameters are loop-carried buffers. Reshapes that do not move data alias the
memory of their argument. Results are written directly to the caller's outputs; a result that is
returned twice, or is an input or a constant, is copied by a kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from weft.compiler.program.constants import ConstantPool
from weft.compiler.program.data_sizes import (
    MATCH_CAST,
    CountedValue,
    DataSizes,
    bound_symbols,
    check_counts,
    counted_values,
)
from weft.compiler.program.function_calls import FunctionCalls, FunctionKey, loop_invariants
from weft.compiler.program.in_place import ask_for_reuse
from weft.compiler.program.joined_copies import join_copies
from weft.compiler.program.program import BufferKind, BufferRef, Port, Program
from weft.compiler.program.state import bind_state
from weft.compiler.program.step_order import ControlEdges, in_order_of_least_memory
from weft.compiler.program.step_writer import LoopFrame, Mark, StepWriter
from weft.compiler.program.verify import verify_program
from weft.ir import AnyDim, Op, Routine, TensorType, TupleType, Type, int64, post_order, visitor
from weft.ir.dynamic import bounds_of, depends_on_data
from weft.ir.expr import (
    Call,
    Constant,
    Expr,
    Function,
    GlobalVar,
    If,
    Let,
    Tuple,
    TupleGetItem,
    Var,
)
from weft.ir.module import IRModule, port_names
from weft.support.dataclass import dataclass
from weft.support.errors import InternalError, UnsupportedModelError
from weft.transform.analysis.graph import is_primitive, is_reshape, op_name
from weft.transform.normal_form.to_a_normal_form import Normalizer

# Each step records all enclosing branches and loops. Deeper programs run on the virtual machine.
MAX_NESTING = 32

# A tensor's memory, or the memories of a tuple's fields; tuples nest as their types do.
Value: TypeAlias = "BufferRef | CountedValue | tuple[Value, ...]"


@dataclass(frozen=True, slots=True)
class OpenLoop:
    """A loop under construction; ``parameters`` are the indices of its loop-carried parameters."""

    parameters: tuple[int, ...]
    frame: LoopFrame


# The enclosing loops that a tail call may continue, by their function.
Tails: TypeAlias = "Mapping[FunctionKey, OpenLoop]"


def lower_program(mod: IRModule, state: Mapping[str, str] | None = None,
                  refused: frozenset[str] = frozenset(),
                  limit: Callable[[Program], Program] | None = None) -> Program:
    """Lower ``mod["main"]``, which is typed and has its operators in primitive functions.

    ``state`` is that of ``bind_state``, whose errors are raised. ``refused`` are the digests of
    kernels that cannot work in place, as building them has shown. ``limit`` may repeat steps to
    reduce the memory (``within_budget``).
    Raises ``UnsupportedModelError`` for sizes that symbols do not determine, and for programs that
    are not first-order.
    """
    program = join_copies(_Lowering(mod, refused).run())
    check_counts(program)
    program = in_order_of_least_memory(bind_state(program, state or {}, refused))
    program = ask_for_reuse(program if limit is None else limit(program))
    verify_program(program, "lowering")
    return program


def lower_or_refuse(mod: IRModule, state: Mapping[str, str] | None = None,
                    limit: Callable[[Program], Program] | None = None
                    ) -> Program | UnsupportedModelError:
    """As ``lower_program``; the reason why a program needs the virtual machine, if it does."""
    try:
        return lower_program(mod, state, limit=limit)
    except UnsupportedModelError as reason:
        return reason


def try_lower_program(mod: IRModule) -> Program | None:
    """As ``lower_program``; ``None`` for programs that need the virtual machine."""
    found = lower_or_refuse(mod)
    return found if isinstance(found, Program) else None


class _Lowering:
    def __init__(self, mod: IRModule, refused: frozenset[str]) -> None:
        self.mod = mod
        self.main = mod["main"]
        self.calls = FunctionCalls(mod)
        self.values: dict[int, Value] = {}
        self.bound: dict[Var, Expr] = {}
        self.computed: set[Var] = set()  # loop invariants that were computed before their loop
        self.constants = ConstantPool()
        self.writer = StepWriter(refused)
        self.counts = DataSizes()
        self.control = ControlEdges()
        self.casts: dict[str, Expr] = {}  # by the symbols that they bind

    def run(self) -> Program:
        inputs = self._bind_parameters()
        nodes = list(post_order(self.main.body, enter=lambda e: not isinstance(e, Function)))
        result_type = _type_of(self.main.body)
        types = flat_types(result_type)
        # In a graph with branches or functions, post-order would compute the values of both
        # branches. A-normal form binds each value in the scope that needs it.
        if any(self._has_scope(node) for node in nodes):
            value = visitor.run_routine(self._entry())
            results = _flatten(self._given(value, self.main.body))
        else:
            self.casts = {symbol: node for node in nodes for symbol in bound_symbols(node)}
            for node in nodes:
                if id(node) not in self.values:
                    self._visit(node)
            results = _flatten(self._value(self.main.body))
        # Let the kernels that compute the results write to the caller's outputs.
        targets = [BufferRef(BufferKind.OUTPUT, index) for index in range(len(results))]
        self.writer.redirect(results, targets, types, Mark(0, 0))
        names = port_names(self.mod.attrs.get("output_names"), "output", len(types))
        outputs = tuple(Port(n, t) for n, t in zip(names, types, strict=True))
        writer = self.writer
        return Program(inputs, outputs, isinstance(result_type, TupleType),
                       tuple(self.constants.arrays), tuple(writer.temporaries),
                       tuple(writer.kernels.sources), tuple(writer.steps), tuple(writer.jumps),
                       counts=tuple(self.counts.bound),
                       conditions=self.mod.attrs.get("size_conditions", ()))

    def _entry(self) -> Routine[Value | None]:
        """The value of ``main``, which is a loop itself where it calls itself."""
        if self.calls.is_recursive("main"):
            return (yield self._loop("main", self.calls.enter("main", self.main.span), {}))
        return (yield self._scope(Normalizer(self.main.body).run(), {}))

    def _has_scope(self, node: Expr) -> bool:
        if isinstance(node, Function):
            return not is_primitive(node)
        return isinstance(node, If) or (
            isinstance(node, GlobalVar) and not is_primitive(self.mod[node]))

    def _bind_parameters(self) -> tuple[Port, ...]:
        ports: list[Port] = []
        for parameter in self.main.params:
            types = flat_types(_type_of(parameter))
            refs = [BufferRef(BufferKind.INPUT, len(ports) + i) for i in range(len(types))]
            self.values[id(parameter)] = _structure(_type_of(parameter), refs)
            suffixes = [""] if len(types) == 1 else [f".{i}" for i in range(len(types))]
            ports += [Port(parameter.name + s, t) for s, t in zip(suffixes, types, strict=True)]
        names = self.mod.attrs.get("input_names")
        if names is not None and len(names) == len(ports):
            ports = [Port(n, p.type) for n, p in zip(names, ports, strict=True)]
        return tuple(ports)

    def _visit(self, node: Expr) -> None:
        if isinstance(node, (Var, Function, GlobalVar, Op)):
            return  # variables are looked up where they are used
        if isinstance(node, Let):
            self.values[id(node)] = self._value(node.body)
        elif isinstance(node, Constant):
            self.values[id(node)] = self._constant(node)
        elif isinstance(node, Tuple):
            self.values[id(node)] = tuple(self._value(f) for f in node.fields)
            self.control.alias(node, map(self._named, node.fields))
        elif isinstance(node, TupleGetItem):
            whole = self._value(node.tuple_value)
            if not isinstance(whole, tuple):
                raise InternalError("projection from a value that is not a tuple", where=node.span)
            self.values[id(node)] = whole[node.index]
            self.control.alias(node, (self._named(node.tuple_value),))
        elif isinstance(node, Call):
            self.values[id(node)] = self._call(node)
        else:
            raise _not_first_order(type(node).__name__, node)

    def _named(self, expr: Expr) -> Expr:
        """The expression whose value a let-bound variable has; others are themselves."""
        while isinstance(expr, Var) and id(expr) not in self.values:
            if not self.bound:
                # Collected once, when the first let-bound variable is met.
                lets = (e for e in post_order(self.main.body) if isinstance(e, Let))
                self.bound = {let.var: let.value for let in lets}
            if expr not in self.bound:
                if self.calls.defines(expr):
                    raise _not_first_order("function as an argument", expr)
                raise InternalError(f"unbound variable: %{expr.name}", where=expr.span)
            expr = self.bound[expr]
        return expr

    def _value(self, expr: Expr) -> Value:
        expr = self._named(expr)
        try:
            return self.values[id(expr)]
        except KeyError:
            raise _not_first_order(type(expr).__name__, expr) from None

    def _constant(self, node: Constant) -> BufferRef:
        return BufferRef(BufferKind.CONSTANT, self.constants.number_of(node.content))

    def _call(self, call: Call) -> Value:
        if is_reshape(call):
            value = self._value(call.args[0])
            after = [ref for arg in call.args[1:] for ref in _flatten(self._value(arg))]
            self.control.alias(call, map(self._named, call.args), after)
            return self.counts.bound_value(call, value) if op_name(call) == MATCH_CAST else value
        function = self._callee(call)
        if depends_on_data(function):
            return self._counting_call(function, call)
        self._compute_sizes(function)
        alias = alias_of(function)
        operands = [self._named(arg) for arg in call.args]
        if alias is not None:
            edges = [ref for at, arg in enumerate(call.args) if at != alias
                     for ref in _flatten(self._value(arg))]
            self.control.alias(call, operands, edges)
            return self._value(call.args[alias])
        result = _type_of(call)
        reads = [ref for arg in call.args for ref in _flatten(self._value(arg))]
        writes = [self.writer.temporary(t) for t in flat_types(result)]
        after = self.control.before_step(function, operands, writes)
        self.writer.step(function, reads, writes, after)
        return _structure(result, writes)

    def _counting_call(self, function: Function, call: Call) -> Value:
        """A call of a kernel that fills a part of its results, and counts how much of them."""
        bounds = bounds_of(function)
        if bounds is None or self.writer.depth:
            raise _not_first_order("operator with a data-dependent shape", call)
        reads = [ref for arg in call.args for ref in _flatten(self._value(arg))]
        writes = [self.writer.temporary(t) for t in bounds.types]
        counts = self.writer.temporary(TensorType((bounds.num_counts,), int64))
        at = len(self.writer.steps)
        self.writer.step(function, reads, [*writes, counts])
        return _structure(_type_of(call), counted_values(bounds, writes, counts, at))

    def _compute_sizes(self, function: Function) -> None:
        """Write the steps that determine the sizes that ``function`` takes, if they come later.

        A size may be all that a kernel takes of the counted tensor.
        """
        for symbol in self.counts.missing(function):
            if id(cast := self.casts.get(symbol)) in self.values or cast is None:
                continue
            for node in post_order(cast, enter=lambda e: not isinstance(e, Function)):
                if id(node) not in self.values:
                    self._visit(node)

    def _callee(self, call: Call) -> Function:
        op = call.op
        if isinstance(op, Var):
            op = self.bound.get(op, op)
        if isinstance(op, GlobalVar):
            op = self.mod[op]
        if isinstance(op, Function) and is_primitive(op):
            return op
        if isinstance(op, Op):
            return primitive_of(call)
        raise _not_first_order("call of a computed function", call)

    def _scope(self, expr: Expr, tails: Tails) -> Routine[Value | None]:
        """The value of a scope in A-normal form: a chain of lets.

        A tail call of a function in ``tails`` continues its loop. ``None`` if the scope always ends
        in such a call.
        """
        while isinstance(expr, Let):
            value = expr.value
            if expr.body is expr.var:
                return (yield self._bound(value, tails))
            if isinstance(value, Function) and not is_primitive(value):
                self.calls.define(expr.var, value)
            elif expr.var not in self.computed:
                # A bound value is not in tail position, so a recursive call in it cannot be a jump.
                made = yield self._bound(value, {})
                self.values[id(expr.var)] = self._given(made, value)
            expr = expr.body
        return (yield self._bound(expr, tails))

    def _bound(self, expr: Expr, tails: Tails) -> Routine[Value | None]:
        if isinstance(expr, If):
            return (yield self._choice(expr, tails))
        if isinstance(expr, Call) and (key := self.calls.key_of(expr)) is not None:
            return (yield self._function_call(key, expr, tails))
        return self._plain(expr)

    def _plain(self, expr: Expr) -> Value:
        for node in post_order(expr, enter=lambda e: not isinstance(e, Function)):
            self._visit(node)
        return self._value(expr)

    def _choice(self, expr: If, tails: Tails) -> Routine[Value | None]:
        condition = self._plain(expr.cond)
        if not isinstance(condition, BufferRef):
            raise InternalError("condition that is not a tensor", where=expr.span)
        condition = self.writer.lasting(condition)
        types = flat_types(_type_of(expr))
        # Code after the branches must find the value in one buffer, whichever was taken.
        results = [self.writer.temporary(t) for t in types]
        branches = [(expr.true_branch, True), (expr.false_branch, False)]
        # If one branch continues a loop, the value of the other one is the result, without a copy.
        branches.sort(key=lambda branch: not self.calls.ends_in(branch[0], tails))
        chosen: Value | None = None
        for number, (branch, expected) in enumerate(branches):
            is_only = number == 1 and chosen is None
            with self.writer.branch(condition, expected=expected):
                if self.writer.depth > MAX_NESTING:
                    raise _not_first_order(f"nesting deeper than {MAX_NESTING}", expr)
                start = self.writer.mark()
                made = yield self._scope(branch, tails)
                if made is not None and not is_only:
                    self.writer.redirect(_flatten(made), results, types, start)
                    made = _structure(_type_of(expr), results)
            chosen = chosen if made is None else made
        return chosen

    def _function_call(self, key: FunctionKey, call: Call, tails: Tails) -> Routine[Value | None]:
        """Inline the function, or continue the loop that it is."""
        args = [self._plain(arg) for arg in call.args]
        if key in tails:
            open_loop = tails[key]
            changed = [args[number] for number in open_loop.parameters]
            self.writer.jump(open_loop.frame, [p for value in changed for p in _flatten(value)])
            return None
        function = self.calls.enter(key, call.span)
        for parameter, value in zip(function.params, args, strict=True):
            self.values[id(parameter)] = value
        if self.calls.is_recursive(key):
            made = yield self._loop(key, function, tails)
        else:
            made = yield self._scope(function.body, tails)
        self.calls.leave(key)
        return made

    def _loop(self, key: FunctionKey, function: Function, tails: Tails) -> Routine[Value | None]:
        changing = self.calls.changing_parameters(key)
        varies = [function.params[number] for number in changing]
        for var, value in loop_invariants(self.calls, key, varies):
            self.values[id(var)] = self._plain(value)
            self.computed.add(var)
        first = [pair for parameter in varies for pair in self._parts(parameter)]
        with self.writer.loop(first) as frame:
            if self.writer.depth > MAX_NESTING:
                raise _not_first_order(f"nesting deeper than {MAX_NESTING}", function)
            refs = iter(ref for ref, _ in frame.variables)
            for parameter in varies:
                self.values[id(parameter)] = _structure(_type_of(parameter), refs)
            # If this loop is in tail position itself, its end may continue an enclosing one.
            return (yield self._scope(function.body, {**tails, key: OpenLoop(changing, frame)}))

    def _parts(self, parameter: Var) -> list[tuple[BufferRef, TensorType]]:
        value = _flatten(self.values[id(parameter)])
        return list(zip(value, flat_types(_type_of(parameter)), strict=True))

    def _given(self, value: Value | None, expr: Expr) -> Value:
        if value is None:
            raise _not_first_order("infinite loop", expr)
        return value


def primitive_of(call: Call) -> Function:
    """A primitive function of one operator call, with its arguments as parameters."""
    params = tuple(Var(f"p{i}", _type_of(a), checked_type=_type_of(a))
                   for i, a in enumerate(call.args))
    body = call.replace(args=params).with_type(_type_of(call))
    return Function(params, body, _type_of(call), attrs={"primitive": True})


def flat_types(type_: Type) -> list[TensorType]:
    """The tensor types of a (nested tuple) type; ``UnsupportedModelError`` for unknown sizes."""
    if isinstance(type_, TupleType):
        return [flat for field in type_.fields for flat in flat_types(field)]
    objection = unsupported_type(type_)
    if objection is not None:
        raise objection
    return [type_]  # type: ignore[list-item] - a tensor


def unsupported_type(type_: Type) -> UnsupportedModelError | None:
    """Why a program cannot have inputs and outputs of a type; ``None`` if it can."""
    if isinstance(type_, TupleType):
        return next(filter(None, map(unsupported_type, type_.fields)), None)
    if not isinstance(type_, TensorType):
        return UnsupportedModelError("unsupported type of a program input or output",
                                     expected="tensors and tuples of tensors", got=str(type_))
    if any(isinstance(size, AnyDim) for size in type_.shape):
        return UnsupportedModelError(
            "a size that only run time determines, in a compiled program", got=str(type_),
            help='give all sizes, as in weft.compile(model, inputs={"x": (1, 3, 224, 224)})',
        )
    return None


def _type_of(expr: Expr) -> Type:
    found = expr.checked_type
    if found is None and isinstance(expr, Var):
        found = expr.annotation
    if found is None:
        raise InternalError("untyped expression in lowering", where=expr.span)
    return found


def _structure(type_: Type, refs: Iterable[BufferRef | CountedValue]) -> Value:
    """``refs`` arranged as the (possibly nested) tuple ``type_``."""
    rest = iter(refs)

    def arrange(current: Type) -> Value:
        if isinstance(current, TupleType):
            return tuple(arrange(field) for field in current.fields)
        return next(rest)

    return arrange(type_)


def _flatten(value: Value) -> list[BufferRef]:
    if isinstance(value, BufferRef):
        return [value]
    if isinstance(value, CountedValue):
        raise UnsupportedModelError("a size that only run time determines, in a compiled program")
    return [ref for field in value for ref in _flatten(field)]


def alias_of(function: Function) -> int | None:
    """The number of the parameter whose elements a function of reshapes returns, in order.

    ``None`` for a real kernel.
    """
    body = function.body
    while isinstance(body, Call) and is_reshape(body):
        body = body.args[0]
    return next((i for i, p in enumerate(function.params) if p is body), None)


def _not_first_order(what: str, node: Expr) -> UnsupportedModelError:
    return UnsupportedModelError(
        f"not a first-order program: {what}", where=node.span,
        expected="a first-order program: operators, tuples, lets, conditionals and loops",
        help="functions as values, other recursion, references and ADTs need the virtual machine",
    )
