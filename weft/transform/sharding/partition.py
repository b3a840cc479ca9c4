"""Partition a program: the program that every device of a mesh runs on its parts of the tensors.

One pass over the calls, operands first. Each call is cut as ``choose`` says; operands that arrive
cut otherwise are resharded, and partial results are combined where they are first used, which may
be by a reduce-scatter. What one use has made of a tensor serves the next. Constants and parameters
without a sharding are free until their first use, whose choice they take.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import field

import numpy as np

from weft.ir import (
    Call,
    Constant,
    DType,
    Expr,
    Function,
    GlobalVar,
    If,
    IRModule,
    Op,
    TensorType,
    Tuple,
    TupleGetItem,
    TupleType,
    Type,
    Var,
    infer_expr,
    is_static,
    post_order,
    var,
)
from weft.ir.sharding import Mesh, Sharding
from weft.op.cut_axes import tensor_types
from weft.support.dataclass import dataclass
from weft.support.errors import PassError
from weft.transform.sharding.choose import Choice, Costs, because, choices, fits
from weft.transform.sharding.costs import call_bytes, call_cost, is_exchange, nbytes_of
from weft.transform.sharding.cut_loops import cut_if, cut_loop
from weft.transform.sharding.index_maps import index_maps, tree_of
from weft.transform.sharding.local_call import local_call
from weft.transform.sharding.loops import Loop
from weft.transform.sharding.reduced import simpler_form
from weft.transform.sharding.reshard import Form, form_cost, steps_between
from weft.transform.sharding.tuples import tensors_of_tree, values_of_tuple
from weft.transform.sharding.windows import with_halo


@dataclass(frozen=True, slots=True)
class Decided:
    """How a call was cut, for reports; ``whole`` says why, if its operands had to be gathered.

    ``within`` is the call of the model that was written in simpler operators, this one among them.
    ``collectives`` are those that bring its operands and combine its result, and ``nbytes`` the
    bytes that each device receives in them. In a loop that counts it is called ``times``.
    ``because`` compares the choice with others, where the mesh has links.
    """

    call: Call | If
    choice: Choice
    whole: str = ""
    within: Call | None = None
    collectives: tuple[Call, ...] = ()
    nbytes: float = 0.0
    because: str = ""
    times: int = 1


@dataclass(frozen=True, slots=True)
class Partitioned:
    """The program of one device. Its parameters are those of the whole one, then the weights.

    ``functions`` are the loops that it calls, of which ``iterations`` has those that count.

    ``whole`` are the parameters of the whole program, and ``result_type`` is that of its result;
    parts together may be larger than these tensors, which then have padding (``pad_axes``).
    ``weights`` are the constants that devices hold parts of. ``results`` has a sharding for each
    tensor of the result.
    """

    mesh: Mesh
    function: Function
    whole: tuple[Var, ...]
    result_type: Type
    parameters: tuple[Sharding, ...]
    weights: tuple[np.ndarray, ...]
    weight_shardings: tuple[Sharding, ...]
    results: tuple[Sharding, ...]
    decisions: tuple[Decided, ...] = field(default=())
    functions: Mapping[str, Function] = field(default_factory=dict)
    iterations: Mapping[str, int] = field(default_factory=dict)
    because: str = ""

    @property
    def computing(self) -> float:
        """Seconds that each device computes in a call, where they are known."""
        return sum(d.times * d.choice.seconds for d in self.decisions)

    @property
    def exchanging(self) -> float:
        """The cost of all collectives (``costs``), without computation that hides them."""
        return sum(d.times * call_cost(c, self.mesh)
                   for d in self.decisions for c in d.collectives)

    @property
    def module(self) -> IRModule:
        """The program with the functions that it calls."""
        return IRModule({"main": self.function, **self.functions})

    @property
    def has_control_flow(self) -> bool:
        """Whether the program has branches, loops or other functions."""
        return bool(self.functions) or any(
            isinstance(node, If) for node in post_order(self.function.body))

    @property
    def bytes_received(self) -> float:
        """Bytes that each device receives in a call.

        A loop whose iterations are not known beforehand counts once.
        """
        return sum(d.nbytes for d in self.decisions)


def partition(fn: Function, mesh: Mesh, parameters: Sequence[Sharding | None],
              *, values: Mapping[Expr, Sharding] | None = None,
              results: Sequence[Sharding | None] | None = None,
              loops: Mapping[str, Loop] | None = None,
              costs: Costs | None = None) -> Partitioned:
    """Cut a typed function without ``let`` over the devices of ``mesh``.

    ``parameters`` has a sharding, or ``None`` for any, for each parameter; ``values`` for inner
    values and constants; ``results`` for each tensor of the result (``None``: as it comes);
    ``loops`` are the functions that it calls; ``costs`` is for a mesh with links. Raises
    ``PassError`` for closures, data types and unknown sizes, ``OptionError`` for a sharding that
    does not fit.
    """
    return Partition(mesh, dict(values or {}), loops or {}, costs=costs).run(
        fn, parameters, results)


@dataclass(slots=True, eq=False)
class Value:
    """A tensor of the program on the devices, in each form that it has; none while any is as good.

    ``producer`` is the number of the decision that made it.
    """

    node: Expr
    type: TensorType
    forms: dict[Form, Expr] = field(default_factory=dict)
    producer: int | None = None

    @property
    def sharding(self) -> Sharding | None:
        return next((form.sharding for form in self.forms), None)


class Partition:
    """The program of one device under construction: of ``main``, or of a loop that it calls."""

    def __init__(self, mesh: Mesh, wanted: dict[Expr, Sharding], loops: Mapping[str, Loop],
                 names: Iterable[str] = (), costs: Costs | None = None) -> None:
        self.costs = costs
        self.mesh = mesh
        self.loops = loops
        self.values: dict[Expr, list[Value]] = {}
        self.weights: dict[Var, tuple[np.ndarray, Sharding]] = {}
        self.parameters: dict[Var, tuple[Var, Sharding]] = {}
        self.decisions: list[Decided] = []
        self.collectives: list[tuple[int, Call]] = []  # with the numbers of their decisions
        self.functions: dict[str, Function] = {}
        self.iterations: dict[str, int] = {}
        self.names = {"main", *names}  # of functions
        self._wanted = wanted
        self._within: Call | None = None

    def inner(self) -> Partition:
        """The program of a loop that this one calls."""
        return Partition(self.mesh, self._wanted, self.loops, self.names, self.costs)

    def run(self, fn: Function, parameters: Sequence[Sharding | None],
            results: Sequence[Sharding | None] | None) -> Partitioned:
        check_program(fn, self.loops)
        for param, sharding in zip(fn.params, parameters, strict=True):
            self._wanted |= {} if sharding is None else {param: sharding}
        self.visit(fn.body)
        body, shardings = self._results(fn, results)
        for param in fn.params:  # those without a use
            if param not in self.parameters:
                self.place(param, self._wanted.get(param))
        local = tuple(self.parameters[p][0] for p in fn.params)
        typed = infer_expr(Function((*local, *self.weights), body), trust=True)
        assert isinstance(typed, Function)
        weights = tuple(self.weights.values())
        return Partitioned(
            self.mesh, typed, fn.params, _type_of(fn.body),
            tuple(self.parameters[p][1] for p in fn.params),
            tuple(w for w, _ in weights), tuple(s for _, s in weights), tuple(shardings),
            tuple(self._reported(typed)), self.functions, self.iterations)

    def visit(self, body: Expr, without: Container[Expr] = ()) -> None:
        """Cut all calls of an expression, except for the nodes ``without``."""
        for node in post_order(body):
            if node not in self.values:
                self.values[node] = [] if node in without else self._visit(node)

    def _reported(self, made: Function) -> Iterator[Decided]:
        used = {n for fn in (made, *self.functions.values()) for n in post_order(fn.body)}
        for number, decided in enumerate(self.decisions):
            mine = tuple(call for n, call in self.collectives
                         if n == number and call in used and is_exchange(call))
            nbytes = decided.times * sum(call_bytes(call, self.mesh) for call in mine)
            if mine or not is_end(decided.call):
                yield dataclasses.replace(decided, collectives=mine, nbytes=nbytes)

    def _visit(self, node: Expr) -> list[Value]:
        match node:
            case Var() | Constant():
                type_ = node.checked_type
                if not isinstance(type_, TensorType):
                    raise refused(node, "a parameter that is no tensor")
                return [Value(node, type_)] if node not in self._wanted \
                    else [self._placed(node, type_, self._wanted[node])]
            case Tuple() | TupleGetItem():
                return values_of_tuple(node, self.values)
            case Call() if isinstance(node.op, Op):
                return self._call(node)
            case Call() if isinstance(node.op, GlobalVar) and node.op.name in self.loops:
                return self._wished(node, cut_loop(self, node, self.loops[node.op.name]))
            case If():
                return cut_if(self, node)
            case Op() | GlobalVar():
                return []
        raise refused(node, type(node).__name__)

    def _call(self, call: Call) -> list[Value]:
        given = [v for a in call.args for v in self.values[a]]
        types, outputs = [v.type for v in given], tensor_types(call.checked_type)
        maps = index_maps(call)
        reasons = {why for place, why in maps.blocked.items() if self._is_cut(given, place)}
        tries_reduced, skipped = bool(reasons), None
        candidates = choices(maps, types, outputs, [list(v.forms) for v in given], self.mesh, call,
                             self.costs)
        for choice in candidates:
            if tries_reduced and choice.cost:
                tries_reduced = False
                reduced = self._reduced(call, choice.cost)
                if reduced is not None:
                    return self._wished(call, reduced)
            made = self._cut(call, choice)
            if made is not None:
                break
            skipped = skipped or choice
        else:
            raise refused(call, f"{call.op} of {call.checked_type}")
        reasons |= {"a part is narrower than the windows' borders" for factor in maps.factors
                    for n, d in factor.operands if factor.windows and (s := given[n].sharding)
                    and s.dims[d] and not fits(factor, s.dims[d], types, self.mesh)}
        if skipped is not None and skipped.cost < choice.cost:
            reasons.add(f"its formula on parts of {_listed(skipped.operands)} is another")
        return self._wished(call, self.made(call, made, choice, "; ".join(sorted(reasons)),
                                            because(choice, candidates)))

    def made(self, call: Call | If, made: Expr, choice: Choice, why: str = "", because: str = ""
             ) -> list[Value]:
        """The tensors of a local call, with the decision that led to it."""
        number, outputs = len(self.decisions), tensor_types(call.checked_type)
        self.decisions.append(Decided(call, choice, why, self._within, because=because))
        local = [infer_expr(TupleGetItem(made, i), trust=True) for i in range(len(outputs))] \
            if isinstance(call.checked_type, TupleType) else [made]
        return [Value(call, type_, {Form(sharding, choice.combine): part}, number)
                for part, type_, sharding in zip(local, outputs, choice.results, strict=True)]

    def _wished(self, call: Expr, values: list[Value]) -> list[Value]:
        """The result as the user wants it cut."""
        wanted = self._wanted.get(call)
        if wanted is None or len(values) != 1:
            return values
        (value,) = values
        part = self.as_(value, wanted, value.producer)
        return [Value(call, value.type, {Form(wanted): part}, value.producer)]

    def _reduced(self, call: Call, limit: float) -> list[Value] | None:
        """The results of the call in simpler operators, if their collectives cost less than that.

        Devices that hold parts of the axis of a softmax exchange the maximum and the sum of each
        row.
        """
        form = simpler_form(call)
        if form is None:
            return None
        given = [(v, dict(v.forms)) for a in call.args for v in self.values[a]]
        before = dict(self.weights), dict(self.parameters)
        decided, moved = len(self.decisions), len(self.collectives)
        within, self._within = self._within, self._within or call
        params, body = form
        for param, arg in zip(params, call.args, strict=True):
            self.values |= {p: [v] for p, v in zip(tensors_of_tree(param), self.values[arg],
                                                    strict=True)}
        for node in post_order(body):
            if node not in self.values:
                self.values[node] = self._visit(node)
        self._within = within
        costs = [call_cost(c, self.mesh) for _, c in self.collectives[moved:]]
        costs += [form_cost(nbytes_of(v.type), f, f.sharding, self.mesh)
                  for v in self.values[body] for f in list(v.forms)[:1]]
        if sum(costs) < limit:
            return self.values[body]
        del self.decisions[decided:], self.collectives[moved:]
        self.weights, self.parameters = before
        for value, forms in given:
            value.forms = forms
        return None

    def _is_cut(self, given: Sequence[Value], place: tuple[int, int]) -> bool:
        sharding = given[place[0]].sharding
        return sharding is not None and bool(sharding.dims[place[1]])

    def _cut(self, call: Call, choice: Choice) -> Expr | None:
        """The local call; ``None`` if the operator has none for this choice."""
        given = [v for a in call.args for v in self.values[a]]
        made: Call | None = call
        if choice.parts > 1:
            shapes = [list(s.local_shape(v.type.concrete_shape, self.mesh))
                      for v, s in zip(given, choice.operands, strict=True)]
            for window, _ in choice.halos:
                shapes[window.operand][window.dim] += window.before + window.after
            parts = iter([var(f"x{n}", shape, v.type.dtype)
                          for n, (v, shape) in enumerate(zip(given, shapes, strict=True))])
            expected = _retyped(call.checked_type, iter(choice.results), self.mesh)
            made = local_call(call, [tree_of(a.checked_type, parts) for a in call.args], expected,
                              [(w.operand, w.dim) for w, _ in choice.halos])
        if made is None:
            return None
        locals_ = [self.as_(v, s) for v, s in zip(given, choice.operands, strict=True)]
        for window, axes in choice.halos:
            locals_[window.operand], moved = with_halo(locals_[window.operand], window, axes,
                                                       self.mesh)
            self.collectives += [(len(self.decisions), call) for call in moved]
        operands = iter(locals_)
        args = tuple(tree_of(a.checked_type, operands) for a in call.args)
        return infer_expr(made.replace(args=args, checked_type=None), trust=True)

    def as_(self, value: Value, sharding: Sharding, number: int | None = None) -> Expr:
        """The value in a sharding, for the decision of that number, or the next."""
        if not value.forms:
            value.forms = self._placed(value.node, value.type, sharding).forms
        nbytes = nbytes_of(value.type)
        form = min(value.forms, key=lambda f: form_cost(nbytes, f, sharding, self.mesh))
        part = value.forms[form]
        for step in steps_between(form, sharding):
            part = step.apply(part, self.mesh)
            combines = step.operator in ("all_reduce", "reduce_scatter")
            owner = value.producer if combines and value.producer is not None else number
            self.collectives.append((len(self.decisions) if owner is None else owner, part))
            if step.operator == "all_reduce" and len(form.partial) == 1:
                value.forms[Form(form.sharding)] = part
        return value.forms.setdefault(Form(sharding), part)

    def _placed(self, node: Expr, type_: TensorType, sharding: Sharding) -> Value:
        """A parameter or a constant, of which every device gets its part."""
        form = Form(sharding)
        if isinstance(node, Var):
            return Value(node, type_, {form: self.place(node, sharding)})
        assert isinstance(node, Constant)
        if sharding.is_replicated:
            return Value(node, type_, {form: node})
        return Value(node, type_, {form: self.weight(node.data, sharding)})

    def enter(self, param: Var, sharding: Sharding | None) -> None:
        """Let the parameter of a loop be cut like this, or as its first use will be."""
        type_ = param.checked_type
        assert isinstance(type_, TensorType)
        self.values[param] = [Value(param, type_) if sharding is None
                              else self._placed(param, type_, sharding)]

    def weight(self, data: np.ndarray, sharding: Sharding) -> Var:
        """A further parameter: the part of a constant."""
        shape = sharding.local_shape(data.shape, self.mesh)
        part = var(f"weight_{len(self.weights)}", shape, DType.of(data.dtype))
        self.weights[part] = (data, sharding)
        return part

    def place(self, param: Var, sharding: Sharding | None) -> Var:
        type_ = param.checked_type
        assert isinstance(type_, TensorType)
        chosen = sharding or Sharding.replicated(type_.ndim)
        shape = chosen.local_shape(type_.concrete_shape, self.mesh)
        local = infer_expr(var(param.name, shape, type_.dtype))
        assert isinstance(local, Var)
        self.parameters[param] = (local, chosen)
        return local

    def _results(self, fn: Function, wanted: Sequence[Sharding | None] | None
                 ) -> tuple[Expr, list[Sharding]]:
        values = self.values[fn.body]
        shardings = [s or v.sharding or Sharding.replicated(v.type.ndim)
                     for v, s in zip(values, wanted or [None] * len(values), strict=True)]
        parts = [self.as_(v, s) for v, s in zip(values, shardings, strict=True)]
        self.decisions.append(Decided(Call(fn, fn.params), Choice(
            (), tuple(shardings), (), 0.0, 1)))
        return tree_of(fn.body.checked_type, iter(parts)), shardings


def is_end(node: Call | If) -> bool:
    """Whether a decision is about the results of the program."""
    return isinstance(node, Call) and isinstance(node.op, Function)


def check_program(fn: Function, loops: Mapping[str, Loop]) -> None:
    """Raise ``PassError`` for unknown sizes."""
    for node in (n for body in (fn.body, *(p.body for p in loops.values()))
                 for n in post_order(body)):
        if not all(is_static(t) for t in tensor_types(node.checked_type)):
            raise PassError("a sharded program has tensors of known sizes", where=node.span,
                            got=node.checked_type, help="give the sizes of inputs, or cut the "
                            "model for each size: weft.distributed.shard_by_size")


def refused(node: Expr, got: str) -> PassError:
    return PassError("a sharded program has operators, branches and loops on tensors only",
                     where=node.span, got=got, help="inline functions that are values")


def _type_of(x: Expr) -> Type:
    assert x.checked_type is not None
    return x.checked_type


def _listed(shardings: Sequence[Sharding]) -> str:
    return ", ".join(map(str, shardings))


def _retyped(type_: Type | None, shardings: Iterator[Sharding], mesh: Mesh) -> Type:
    if isinstance(type_, TupleType):
        return TupleType(tuple(_retyped(t, shardings, mesh) for t in type_.fields))
    assert isinstance(type_, TensorType)
    return TensorType(next(shardings).local_shape(type_.concrete_shape, mesh), type_.dtype)
