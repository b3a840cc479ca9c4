"""From the fused module's ``main`` to a line of kernel calls.

``main`` is first order: calls of primitive functions, tuples, projections, lets, choices. Each
distinct primitive function becomes one kernel, found by its structural hash. The calls of a branch
are guarded by its condition; both branches of a choice write their results to the same places.
Reshapes that move no data are other names for the same memory. Results that the caller gets are
written where the caller wants them; what is returned twice, or is an input or a constant, is
copied there by a kernel.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from weft.compiler.kernel_set import KernelSet
from weft.compiler.program import Guard, Place, PlaceKind, Port, Program, Step, bytes_of
from weft.ir import trampoline
from weft.ir.dynamic import depends_on_data
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
from weft.ir.module import IRModule
from weft.ir.op import Op, get_op
from weft.ir.trampoline import Routine
from weft.ir.types import TensorType, TupleType, Type, is_static
from weft.ir.typing.infer import infer_expr
from weft.ir.visitor import post_order
from weft.support.errors import InternalError, TypeInferenceError, UnsupportedModelError
from weft.transform.graph import is_primitive
from weft.transform.scopes import Scopes
from weft.transform.to_a_normal_form import Normalizer

# Operators whose result holds the same elements in the same order as their first argument.
RESHAPES = frozenset({"reshape", "expand_dims", "squeeze", "nn.batch_flatten"})

# A step has a guard for every choice around it. What nests deeper runs on the virtual machine.
MAX_NESTING = 32

# A tensor's memory, or the memories of a tuple's fields; tuples nest as their types do.
Value: TypeAlias = "Place | tuple[Value, ...]"


def lower_program(mod: IRModule) -> Program:
    """Lower ``mod["main"]``, whose nodes are typed and whose operators are in primitive functions.

    Raises ``UnsupportedModelError`` for sizes that are not fixed and for programs that are not
    first order.
    """
    return _Lowering(mod).run()


def is_first_order(mod: IRModule) -> bool:
    """Whether ``lower_program`` takes ``mod["main"]``: kernels, tuples, choices, fixed sizes."""
    main = mod["main"]
    if not all(is_static(_type_of(p)) for p in main.params):
        return False
    nodes = list(post_order(main.body, enter=lambda e: not isinstance(e, Function)))
    return all(_is_plain(node, mod) for node in nodes) and _nesting(main.body, nodes) <= MAX_NESTING


def _nesting(body: Expr, nodes: Sequence[Expr]) -> int:
    """How many choices stand inside each other at most."""
    if not any(isinstance(node, If) for node in nodes):
        return 0
    return max(scope.depth for scope in Scopes(body).inner.values())


def _is_plain(node: Expr, mod: IRModule) -> bool:
    if isinstance(node, Call):
        callee = mod[node.op] if isinstance(node.op, GlobalVar) else node.op
        is_kernel = isinstance(callee, Op) or is_primitive(callee)
        return is_kernel and is_static(_type_of(node)) and not depends_on_data(callee)
    if isinstance(node, Function):
        return is_primitive(node)
    return isinstance(node, (Var, GlobalVar, Op, Constant, Let, Tuple, TupleGetItem, If))


class _Lowering:
    def __init__(self, mod: IRModule) -> None:
        self.mod = mod
        self.main = mod["main"]
        self.body = self.main.body
        self.guards: list[Guard] = []
        self.values: dict[int, Value] = {}
        self.bound: dict[Var, Expr] = {}
        self.constants: dict[tuple[object, ...], int] = {}
        self.arrays: list[np.ndarray] = []
        self.temporaries: list[int] = []
        self.kernels = KernelSet()
        self.steps: list[Step] = []

    def run(self) -> Program:
        inputs = self._bind_parameters()
        nodes = list(post_order(self.main.body, enter=lambda e: not isinstance(e, Function)))
        result_type = _type_of(self.main.body)
        types = flat_types(result_type)
        if any(isinstance(node, If) for node in nodes):
            self.body = Normalizer(self.main.body).run()
            results = _flatten(trampoline.run(self._scope(self.body)))
        else:
            for node in nodes:
                self._visit(node)
            results = _flatten(self._value(self.main.body))
        self._redirect_outputs(results, types)
        names = port_names(self.mod.attrs.get("output_names"), "output", len(types))
        outputs = tuple(Port(n, t) for n, t in zip(names, types, strict=True))
        return Program(inputs, outputs, isinstance(result_type, TupleType), tuple(self.arrays),
                       tuple(self.temporaries), tuple(self.kernels.sources), tuple(self.steps))

    def _bind_parameters(self) -> tuple[Port, ...]:
        ports: list[Port] = []
        for parameter in self.main.params:
            types = flat_types(_type_of(parameter))
            places = [Place(PlaceKind.INPUT, len(ports) + i) for i in range(len(types))]
            self.values[id(parameter)] = _structure(_type_of(parameter), places)
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
        elif isinstance(node, TupleGetItem):
            whole = self._value(node.tuple_value)
            if isinstance(whole, Place):
                raise InternalError("a projection from what is no tuple", where=node.span)
            self.values[id(node)] = whole[node.index]
        elif isinstance(node, Call):
            self.values[id(node)] = self._call(node)
        else:
            raise _not_first_order(type(node).__name__, node)

    def _value(self, expr: Expr) -> Value:
        while isinstance(expr, Var) and id(expr) not in self.values:
            if not self.bound:
                lets = (e for e in post_order(self.main.body) if isinstance(e, Let))
                self.bound = {let.var: let.value for let in lets}
            if expr not in self.bound:
                raise InternalError(f"%{expr.name} is used and nowhere bound", where=expr.span)
            expr = self.bound[expr]
        try:
            return self.values[id(expr)]
        except KeyError:
            raise _not_first_order(type(expr).__name__, expr) from None

    def _constant(self, node: Constant) -> Place:
        key = constant_key(node.data)
        if key not in self.constants:
            self.constants[key] = len(self.arrays)
            self.arrays.append(node.data)
        return Place(PlaceKind.CONSTANT, self.constants[key])

    def _call(self, call: Call) -> Value:
        if is_reshape(call):
            return self._value(call.args[0])
        function = self._callee(call)
        alias = alias_of(function)
        if alias is not None:
            return self._value(call.args[alias])
        result = _type_of(call)
        reads = [place for arg in call.args for place in _flatten(self._value(arg))]
        writes = [self._temporary(t) for t in flat_types(result)]
        self._step(function, reads, writes)
        return _structure(result, writes)

    def _step(self, function: Function, reads: Sequence[Place], writes: Sequence[Place]) -> None:
        kernel = self.kernels.number_of(function)
        self.steps.append(Step(kernel, (*reads, *writes), len(writes), tuple(self.guards)))

    def _scope(self, expr: Expr) -> Routine[Value]:
        """The value of a scope in A-normal form: a chain of lets, some of which are choices."""
        while isinstance(expr, Let):
            self.values[id(expr.var)] = yield self._bound(expr.value)
            expr = expr.body
        return (yield self._bound(expr))

    def _bound(self, expr: Expr) -> Routine[Value]:
        computed = expr.cond if isinstance(expr, If) else expr
        for node in post_order(computed, enter=lambda e: not isinstance(e, Function)):
            self._visit(node)
        if not isinstance(expr, If):
            return self._value(expr)
        condition = self._value(expr.cond)
        if not isinstance(condition, Place):
            raise InternalError("a condition that is no scalar", where=expr.span)
        types = flat_types(_type_of(expr))
        results = [self._temporary(t) for t in types]
        for branch, expected in ((expr.true_branch, True), (expr.false_branch, False)):
            first_step, first_temporary = len(self.steps), len(self.temporaries)
            self.guards.append(Guard(condition, expected))
            chosen = _flatten((yield self._scope(branch)))
            copies = self._redirect(chosen, results, first_step, first_temporary)
            for source, target in copies:
                type_ = types[results.index(target)]
                self._step(copy_function(type_), (source,), (target,))
            self.guards.pop()
        return _structure(_type_of(expr), results)

    def _redirect(self, made: Sequence[Place], wanted: Sequence[Place], first_step: int,
                  first_temporary: int) -> list[tuple[Place, Place]]:
        """Let the steps from ``first_step`` on write to the places ``wanted`` what they write to
        temporaries from ``first_temporary`` on; returns what has to be copied there.
        """
        moved: dict[Place, Place] = {}
        copies = []
        for place, target in zip(made, wanted, strict=True):
            own = place.kind is PlaceKind.TEMPORARY and place.index >= first_temporary
            if own and place not in moved:
                moved[place] = target
            else:
                copies.append((moved.get(place, place), target))
        if moved:
            self.steps[first_step:] = [s.moved(moved) for s in self.steps[first_step:]]
        return copies

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
        raise _not_first_order("a call of a function", call)

    def _temporary(self, type_: TensorType) -> Place:
        self.temporaries.append(bytes_of(type_))
        return Place(PlaceKind.TEMPORARY, len(self.temporaries) - 1)

    def _redirect_outputs(self, results: Sequence[Place], types: Sequence[TensorType]) -> None:
        """Let the kernels that make the results write them where the caller wants them."""
        targets = [Place(PlaceKind.OUTPUT, index) for index in range(len(results))]
        for source, target in self._redirect(results, targets, 0, 0):
            self._step(copy_function(types[target.index]), (source,), (target,))


def constant_key(data: np.ndarray) -> tuple[object, ...]:
    """Equal for arrays that may share memory: same bytes, whatever their shape."""
    raw = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
    return raw.size, hashlib.blake2b(raw.data, digest_size=32).digest()


def primitive_of(call: Call) -> Function:
    """One operator call as a kernel of its own, its arguments as parameters."""
    params = tuple(Var(f"p{i}", _type_of(a), checked_type=_type_of(a))
                   for i, a in enumerate(call.args))
    body = call.replace(args=params).with_type(_type_of(call))
    return Function(params, body, _type_of(call), attrs={"primitive": True})


def copy_function(type_: TensorType) -> Function:
    """The kernel that copies one tensor."""
    source = Var("x", type_, checked_type=type_)
    body = infer_expr(get_op("copy")(source))
    return Function((source,), body, type_, attrs={"primitive": True})


def flat_types(type_: Type) -> list[TensorType]:
    """The tensors of a type in order; ``UnsupportedModelError`` for sizes that are not fixed."""
    if isinstance(type_, TupleType):
        return [flat for field in type_.fields for flat in flat_types(field)]
    if not isinstance(type_, TensorType):
        raise UnsupportedModelError("compiled programs take and give tensors", got=str(type_))
    try:
        type_.concrete_shape  # noqa: B018 - raises where a size is symbolic
    except TypeInferenceError:
        raise UnsupportedModelError(
            "a size is not fixed", got=str(type_),
            help='give all sizes, as in weft.compile(model, inputs={"x": (1, 3, 224, 224)})',
        ) from None
    return [type_]


def _type_of(expr: Expr) -> Type:
    found = expr.checked_type
    if found is None and isinstance(expr, Var):
        found = expr.annotation
    if found is None:
        raise InternalError("an expression without a type reached lowering", where=expr.span)
    return found


def _structure(type_: Type, places: Sequence[Place]) -> Value:
    """``places`` arranged as the (possibly nested) tuple ``type_``."""
    rest = iter(places)

    def arrange(current: Type) -> Value:
        if isinstance(current, TupleType):
            return tuple(arrange(field) for field in current.fields)
        return next(rest)

    return arrange(type_)


def _flatten(value: Value) -> list[Place]:
    if isinstance(value, Place):
        return [value]
    return [place for field in value for place in _flatten(field)]


def is_reshape(expr: Expr) -> bool:
    """Whether ``expr`` is a call that gives the memory of its argument another shape."""
    return isinstance(expr, Call) and isinstance(expr.op, Op) and expr.op.name in RESHAPES


def alias_of(function: Function) -> int | None:
    """The number of the parameter whose elements a function of reshapes returns, in order.

    ``None`` for a real kernel.
    """
    body = function.body
    while isinstance(body, Call) and is_reshape(body):
        body = body.args[0]
    return next((i for i, p in enumerate(function.params) if p is body), None)


def port_names(given: object, stem: str, count: int) -> list[str]:
    """The names that a model gives its ports, else names made of ``stem``."""
    if isinstance(given, (tuple, list)) and len(given) == count:
        return [str(name) for name in given]
    return [stem] if count == 1 else [f"{stem}{i}" for i in range(count)]


def _not_first_order(what: str, node: Expr) -> UnsupportedModelError:
    return UnsupportedModelError(
        f"{what} cannot be compiled", where=node.span,
        expected="a first-order program: operators, tuples, lets and choices",
        help="functions as values, recursion, references and data need the virtual machine",
    )
