"""From the fused module's ``main`` to a straight line of kernel calls.

``main`` is first order: calls of primitive functions, tuples, projections, lets. Each distinct
primitive function becomes one kernel, found by its structural hash. Reshapes that move no data are
other names for the same memory. Results that the caller gets are written where the caller wants
them; what is returned twice, or is an input or a constant, is copied there by a kernel.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from weft.compiler.kernel_set import KernelSet
from weft.compiler.program import Place, PlaceKind, Port, Program, Step, bytes_of
from weft.ir.expr import Call, Constant, Expr, Function, GlobalVar, Let, Tuple, TupleGetItem, Var
from weft.ir.module import IRModule
from weft.ir.op import Op, get_op
from weft.ir.types import TensorType, TupleType, Type, is_static
from weft.ir.typing.infer import infer_expr
from weft.ir.visitor import post_order
from weft.support.errors import InternalError, TypeInferenceError, UnsupportedModelError
from weft.transform.graph import is_primitive

# Operators whose result holds the same elements in the same order as their first argument.
RESHAPES = frozenset({"reshape", "expand_dims", "squeeze", "nn.batch_flatten"})

# A tensor's memory, or the memories of a tuple's fields; tuples nest as their types do.
Value: TypeAlias = "Place | tuple[Value, ...]"


def lower_program(mod: IRModule) -> Program:
    """Lower ``mod["main"]``, whose nodes are typed and whose operators are in primitive functions.

    Raises ``UnsupportedModelError`` for sizes that are not fixed and for programs that are not
    first order.
    """
    return _Lowering(mod).run()


def is_first_order(mod: IRModule) -> bool:
    """Whether ``mod["main"]`` is what ``lower_program`` takes: kernels, tuples and fixed sizes."""
    main = mod["main"]
    if not all(is_static(_type_of(p)) for p in main.params):
        return False
    nodes = post_order(main.body, enter=lambda e: not isinstance(e, Function))
    return all(_is_plain(node, mod) for node in nodes)


def _is_plain(node: Expr, mod: IRModule) -> bool:
    if isinstance(node, Call):
        callee = mod[node.op] if isinstance(node.op, GlobalVar) else node.op
        return (isinstance(callee, Op) or is_primitive(callee)) and is_static(_type_of(node))
    if isinstance(node, Function):
        return is_primitive(node)
    return isinstance(node, (Var, GlobalVar, Op, Constant, Let, Tuple, TupleGetItem))


class _Lowering:
    def __init__(self, mod: IRModule) -> None:
        self.mod = mod
        self.main = mod["main"]
        self.values: dict[int, Value] = {}
        self.bound: dict[Var, Expr] = {}
        self.constants: dict[tuple[object, ...], int] = {}
        self.arrays: list[np.ndarray] = []
        self.temporaries: list[int] = []
        self.kernels = KernelSet()
        self.steps: list[Step] = []

    def run(self) -> Program:
        inputs = self._bind_parameters()
        for node in post_order(self.main.body, enter=lambda e: not isinstance(e, Function)):
            self._visit(node)
        result_type = _type_of(self.main.body)
        types = flat_types(result_type)
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
        self.steps.append(Step(self.kernels.number_of(function), (*reads, *writes), len(writes)))
        return _structure(result, writes)

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
        moved: dict[Place, Place] = {}
        copies = []
        for index, (place, type_) in enumerate(zip(results, types, strict=True)):
            target = Place(PlaceKind.OUTPUT, index)
            if place.kind is PlaceKind.TEMPORARY and place not in moved:
                moved[place] = target
            else:
                copies.append((moved.get(place, place), target, type_))
        if moved:
            self.steps = [Step(s.kernel, tuple(moved.get(p, p) for p in s.places), s.num_outputs)
                          for s in self.steps]
        for source, target, type_ in copies:
            copy = self.kernels.number_of(copy_function(type_))
            self.steps.append(Step(copy, (source, target), 1))


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
        expected="a first-order program: operators, tuples and lets",
        help="functions as values, recursion, references and data types need the interpreter",
    )
