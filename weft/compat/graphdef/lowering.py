"""Lowering of nodes to typed expressions: operators, calls of functions, effects of edges."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field

import numpy as np

from weft import ir
from weft.compat.graphdef import converters as _converters  # noqa: F401 - fills the table
from weft.compat.graphdef import state
from weft.compat.graphdef.annotate import Placements, ordered_after
from weft.compat.graphdef.catalogue import convert_operator
from weft.compat.graphdef.definitions import FunctionRef, Library, NodeDef, attribute_text
from weft.compat.graphdef.functions import find_function, instantiate, returned_arguments
from weft.compat.graphdef.gradients import gradient_call
from weft.compat.graphdef.names import parse_tensor
from weft.compat.graphdef.node import Node
from weft.compat.graphdef.node_order import execution_order, needed, nodes_by_name
from weft.compat.graphdef.registry import CONVERTERS, Converter
from weft.compat.graphdef.size_values import is_symbolic, size_values
from weft.frontend.common.typed import FOLD_LIMIT_ELEMENTS
from weft.support.dataclass import dataclass
from weft.support.errors import InvalidModelError, UnsupportedModelError
from weft.transform.autodiff.reverse.adjoint import is_differentiable

# Bodies are inlined by recursion; models nest a few levels.
_MAX_NESTING = 64


@dataclass
class Environment:
    """What the nodes of a graph and of its functions share.

    ``functions`` are those of the module that calls of ``noinline`` functions made; ``active`` are
    the functions whose bodies are being lowered. ``differentiated`` functions become those of
    their value and gradients.
    """

    source: str
    library: Library = field(default_factory=Library)
    functions: dict[str, ir.Function] = field(default_factory=dict)
    instances: dict[object, str] = field(default_factory=dict)
    active: list[str] = field(default_factory=list)
    differentiated: list[str] = field(default_factory=list)

    def span_of(self, proto: NodeDef) -> ir.Span:
        return proto.span or ir.Span(self.source, node=proto.label)

    @contextmanager
    def inside(self, name: str, where: object) -> Iterator[None]:
        """The context in which the body of a function is lowered."""
        if name in self.active:
            cycle = [*self.active[self.active.index(name):], name]
            raise UnsupportedModelError("a function calls itself", where=where,
                                        got=" -> ".join(cycle), help="use a While node")
        if len(self.active) >= _MAX_NESTING:
            raise UnsupportedModelError(f"calls are nested deeper than {_MAX_NESTING} levels",
                                        where=where, got=f"function {name!r}")
        self.active.append(name)
        try:
            yield
        finally:
            self.active.pop()


@dataclass(frozen=True, slots=True)
class Lowered:
    """The results of a node, and those of their values that are known and small."""

    results: tuple[ir.Expr, ...]
    values: tuple[np.ndarray | None, ...]


def lower_node(env: Environment, proto: NodeDef, inputs: Sequence[ir.Expr],
               values: Sequence[np.ndarray | None]) -> Lowered:
    """The results of ``proto`` for typed ``inputs``, of which ``values`` are known.

    Raises ``UnsupportedModelError`` for an unknown operator, ``TypeInferenceError`` and
    ``InvalidModelError`` for operands and attributes that do not fit.
    """
    results = _convert(env, proto, inputs, values, folds=False)
    known = tuple(_small_value(result) for result in results)
    if known and all(v is None for v in known):
        sizes = size_values(proto, inputs, values)
        if sizes is not None:
            return Lowered(results, tuple(sizes))
    is_known = all(v is not None and not is_symbolic(v) for v in values)
    if inputs and any(v is None for v in known) and is_known:
        constants = [ir.Constant(v, span=env.span_of(proto)) for v in values if v is not None]
        folded = _convert(env, proto, constants, values, folds=True)
        known = tuple(_small_value(result) for result in folded)
    return Lowered(results, known)


def _small_value(result: ir.Expr) -> np.ndarray | None:
    if isinstance(result, ir.Constant) and result.data.size <= FOLD_LIMIT_ELEMENTS:
        return result.data
    return None


def _convert(env: Environment, proto: NodeDef, inputs: Sequence[ir.Expr],
             values: Sequence[np.ndarray | None], *, folds: bool) -> tuple[ir.Expr, ...]:
    span = env.span_of(proto)
    functions = _Functions(env, span)
    node = Node(proto, span, tuple(inputs), tuple(values), functions, folds)
    if proto.op in env.library.functions:
        return functions.expand(FunctionRef(proto.op, proto.attrs), inputs)
    converter = CONVERTERS.find(proto.op)
    if converter is not None:
        _check(node, converter)
        made = converter.convert(node)
    elif proto.op in ir.OPS:
        made = convert_operator(node)
    else:
        raise UnsupportedModelError(f"unknown operator {proto.op!r}", where=node.span,
                                    help="`weft ops` lists the operators of weft")
    return (made,) if isinstance(made, ir.Expr) else tuple(made)


@dataclass(frozen=True, slots=True)
class _Functions:
    """The functions of the library, as a node at ``where`` calls them."""

    env: Environment
    where: ir.Span

    def expand(self, ref: FunctionRef, args: Sequence[ir.Expr]) -> tuple[ir.Expr, ...]:
        return expand(self.env, ref, args, self.where)

    def gradient(self, ref: FunctionRef, args: Sequence[ir.Expr]) -> tuple[ir.Expr, ...]:
        count = len(find_function(self.env.library, ref.name, self.where).inputs)
        types = _argument_types(ref, args[:count], self.where)
        name = _instance(self.env, ref, types, self.where, suffix="_gradient")
        return gradient_call(name, self.env.functions[name], args, self.where)

    def unchanged(self, ref: FunctionRef, args: Sequence[ir.Expr]) -> frozenset[int]:
        types = _argument_types(ref, args, self.where)
        return returned_arguments(instantiate(self.env.library, ref, types, self.where))


def _check(node: Node, converter: Converter) -> None:
    if converter.inputs is not None and len(node.inputs) not in converter.inputs:
        expected = " or ".join(map(str, converter.inputs))
        raise node.fail("wrong number of inputs", expected=expected, got=str(len(node.inputs)))
    for name, value in node.proto.attrs.items():
        if not name.startswith("_") and name not in converter.attributes:
            raise node.unsupported(f"unknown attribute {name!r}", got=attribute_text(value))


class Body:
    """The nodes of a graph, or of a function, lowered one after the other.

    ``tensors`` holds the results of lowered and given nodes, ``tokens`` the tensors that must be
    computed before a node counts as run.
    """

    def __init__(self, env: Environment, placements: Placements,
                 nodes: Mapping[str, NodeDef]) -> None:
        self.env = env
        self.placements = placements
        self.variables = state.Variables()
        self.nodes = nodes
        self.tensors: dict[str, tuple[ir.Expr, ...]] = {}
        self.values: dict[str, tuple[np.ndarray | None, ...]] = {}
        self.tokens: dict[str, tuple[ir.Expr, ...]] = {}

    def give(self, name: str, tensors: Sequence[ir.Expr]) -> None:
        """Set the results of a node: an argument, or a tensor that is fed."""
        self.tensors[name] = tuple(tensors)
        self.values[name] = tuple(_small_value(t) for t in tensors)
        self.tokens[name] = ()

    def tensor(self, text: str, where: object = None) -> ir.Expr:
        """The tensor ``node:index``; ``InvalidModelError`` if the node has fewer results."""
        ref = parse_tensor(text, where)
        if ref.node in self.variables.first and ref.index == 0:
            return self.variables.value(ref.node)
        results = self.tensors[ref.node]
        if ref.index >= len(results):
            raise InvalidModelError(
                f"there is no tensor {text!r}", where=where,
                got=f"{ref.node!r} has {len(results)} output{'s' if len(results) != 1 else ''}")
        return results[ref.index]

    def output(self, text: str, where: ir.Span) -> ir.Expr:
        """The tensor ``node:index`` as the caller reads it."""
        return self.placements.read(self.tensor(text, where), parse_tensor(text).node, None, where)

    def lower(self, proto: NodeDef) -> None:
        """Lower a node whose operands are lowered."""
        span = self.env.span_of(proto)
        refs = [parse_tensor(text) for text in proto.data_inputs]
        inputs = [self.placements.read(self.tensor(str(ref), span), ref.node, proto.name, span)
                  for ref in refs]
        values = [self.values[ref.node][ref.index] for ref in refs]
        after = tuple(t for t in self._after(proto) if all(t is not x for x in inputs))
        waits = next((i for i, x in enumerate(inputs)
                      if not isinstance(x, ir.Constant)
                      and isinstance(x.checked_type, ir.TensorType)),
                     None)
        if after and waits is not None:
            inputs[waits] = ordered_after(inputs[waits], after, span)
        made = lower_node(self.env, proto, inputs, values)
        results = made.results
        if proto.op in state.STATE_OPS:
            results = self._with_state(proto, inputs, results, span)
        elif after and waits is None:
            results = tuple(ordered_after(x, after, span) for x in results)
        self.tensors[proto.name] = results
        self.values[proto.name] = made.values
        done = results or tuple(self._assignment(proto))
        computed = tuple(x for x in done if not isinstance(x, (ir.Constant, ir.Var)))
        self.tokens[proto.name] = computed or after

    def _with_state(self, proto: NodeDef, inputs: Sequence[ir.Expr], results: tuple[ir.Expr, ...],
                    span: ir.Span) -> tuple[ir.Expr, ...]:
        """The results of a variable or an assignment, which takes effect here."""
        if self.env.active:
            raise UnsupportedModelError("variables of functions are not supported", where=span,
                                        help="use them outside of functions")
        if proto.op in state.VARIABLES:
            (var,) = results
            if isinstance(var, ir.Var):
                self.variables.declare(proto, var)
            return (self.variables.value(proto.name),)
        target = state.target_of(proto, self.nodes)
        if target not in self.variables.first:
            raise InvalidModelError(f"{proto.op}: the target is not a variable", where=span,
                                    got=target)
        value = self.variables.assign(target, proto.op, inputs[1], span)
        return (value,) if results else ()

    def _assignment(self, proto: NodeDef) -> list[ir.Expr]:
        """The value that an assignment without results has just made."""
        if proto.op not in state.ASSIGNMENTS:
            return []
        return [self.variables.value(state.target_of(proto, self.nodes))]

    def _after(self, proto: NodeDef) -> tuple[ir.Expr, ...]:
        """The tensors that control edges order before a node."""
        found: dict[int, ir.Expr] = {}
        for name in proto.control_inputs:
            found.update((id(token), token) for token in self.tokens[name])
        return tuple(found.values())


def expand(env: Environment, ref: FunctionRef, args: Sequence[ir.Expr], where: ir.Span
           ) -> tuple[ir.Expr, ...]:
    """The results of a function of the library for ``args``.

    The body becomes part of the caller, or, for a ``noinline`` function, a function of the module.
    Raises ``InvalidModelError`` for an unknown function and arguments that do not fit,
    ``UnsupportedModelError`` for a function that calls itself.
    """
    function = find_function(env.library, ref.name, where)
    if not function.noinline and ref.name not in env.library.gradients:
        return _body_results(env, ref, args, where)
    name = _instance(env, ref, _argument_types(ref, args, where), where)
    return _called(env.functions[name], name, args, where)


def _instance(env: Environment, ref: FunctionRef, types: tuple[ir.TensorType, ...], where: ir.Span,
              suffix: str = "") -> str:
    """The function of the module for arguments of ``types``, with its gradient if it has one.

    With a suffix it is one of its own, which gives its value and gradients (``with_gradients``).
    """
    key = ref.name + suffix, repr(sorted(ref.attrs.items(), key=lambda item: item[0])), types
    if key in env.instances:
        return env.instances[key]
    params = tuple(parameter(f"arg{i}", t, where) for i, t in enumerate(types))
    results = _body_results(env, ref, params, where)
    name = _free_name(ref.name + suffix, env.functions)
    attrs: dict[str, object] = {} if suffix else {"noinline": True}
    env.differentiated += [name] if suffix else []
    gradient = env.library.gradients.get(ref.name)
    if gradient is not None:
        attrs["custom_vjp"] = _gradient(env, FunctionRef(gradient, ref.attrs), params, results,
                                        where)
    env.functions[name] = ir.Function(params, _one(results, where), span=where, attrs=attrs)
    env.instances[key] = name
    return name


def _gradient(env: Environment, ref: FunctionRef, params: Sequence[ir.Var],
              results: Sequence[ir.Expr],
              where: ir.Span) -> str:
    """The function ``(x, .., dy) -> (dx, ..)`` of a registered gradient.

    Like TensorFlow's, the registered one takes a ``dy`` for each result and gives a ``dx`` for each
    argument; those of integers are dropped.
    """
    inputs = [parameter(p.name, t, where) for p, t in
              zip(params, _argument_types(ref, params, where), strict=True)]
    types = _argument_types(ref, results, where)
    if len(types) == 1:
        dy: ir.Var = parameter("dy", types[0], where)
        dys: tuple[ir.Expr, ...] = (dy,)
    else:
        dy = ir.Var("dy", ir.TupleType(types), span=where, checked_type=ir.TupleType(types))
        dys = tuple(ir.TupleGetItem(dy, i, span=where, checked_type=t) for i, t in enumerate(types))
    grads = _body_results(env, ref, (*inputs, *dys), where)
    if len(grads) != len(inputs):
        raise InvalidModelError(f"gradient {ref.name!r} must return one tensor for each argument",
                                where=where, expected=str(len(inputs)), got=str(len(grads)))
    kept = tuple(g for g, x in zip(grads, inputs, strict=True)
                 if x.checked_type is not None and is_differentiable(x.checked_type))
    name = _free_name(ref.name, env.functions)
    env.functions[name] = ir.Function((*inputs, dy), _one(kept, where), span=where)
    return name


def _one(results: Sequence[ir.Expr], where: ir.Span) -> ir.Expr:
    """The only result, or the tuple of all."""
    if len(results) == 1:
        return results[0]
    types = tuple(r.checked_type for r in results)
    return ir.Tuple(tuple(results), span=where,
                    checked_type=ir.TupleType(types))  # type: ignore[arg-type]


def _called(function: ir.Function, name: str, args: Sequence[ir.Expr],
            span: ir.Span) -> tuple[ir.Expr, ...]:
    result = function.body.checked_type
    types = tuple(p.checked_type for p in function.params)
    callee = ir.GlobalVar(name, span=span,
                          checked_type=ir.FuncType(types, result))  # type: ignore[arg-type]
    call = ir.Call(callee, tuple(args), span=span, checked_type=result)
    if not isinstance(result, ir.TupleType):
        return (call,)
    return tuple(ir.TupleGetItem(call, i, span=span, checked_type=field_)
                 for i, field_ in enumerate(result.fields))


def _argument_types(ref: FunctionRef, args: Sequence[ir.Expr], where: ir.Span
                    ) -> tuple[ir.TensorType, ...]:
    found = tuple(a.checked_type for a in args if isinstance(a.checked_type, ir.TensorType))
    if len(found) != len(args):
        raise UnsupportedModelError(f"an argument of function {ref.name!r} is no tensor",
                                    where=where)
    return found


def _body_results(env: Environment, ref: FunctionRef, args: Sequence[ir.Expr], where: ir.Span
                  ) -> tuple[ir.Expr, ...]:
    """The results of the body of a function for ``args``."""
    with env.inside(ref.name, where):
        found = instantiate(env.library, ref, _argument_types(ref, args, where), where)
        source = f"function {ref.name!r} of {env.source}"
        given = {name: NodeDef(name, "_Arg") for name in found.arguments}
        nodes = nodes_by_name((*given.values(), *found.nodes), source)
        body = Body(env, Placements(nodes), nodes)
        for name, arg in zip(found.arguments, args, strict=True):
            body.give(name, (arg,))
        targets = [parse_tensor(text, source).node for text in found.results]
        wanted = needed(nodes, (*targets, *found.effects), given)
        for name in execution_order(nodes, wanted, given, source):
            if name not in given:
                body.lower(nodes[name])
        tokens = tuple(t for name in found.effects for t in body.tokens[name])
        results = [body.output(text, where) for text in found.results]
    return tuple(ordered_after(r, tokens, where) if tokens else r for r in results)


def _free_name(name: str, taken: Mapping[str, object]) -> str:
    numbered = (name if i == 0 else f"{name}_{i}" for i in itertools.count())
    return next(n for n in numbered if n not in taken)


def stand_ins(types: Sequence[ir.TensorType], values: Sequence[np.ndarray | None], span: ir.Span
              ) -> list[ir.Expr]:
    """Operands for inference alone: constants where values are known, else variables."""
    return [ir.Var("x", type_, span=span) if value is None or is_symbolic(value)
            else ir.Constant(value, span=span)
            for type_, value in zip(types, values, strict=True)]


def tensor_types(env: Environment, proto: NodeDef, results: Sequence[ir.Expr]
                 ) -> tuple[ir.TensorType, ...]:
    """The types of the results of a node, which are tensors."""
    types = [result.checked_type for result in results]
    for type_ in types:
        if not isinstance(type_, ir.TensorType):
            raise UnsupportedModelError(f"{proto.op}: a result of a node must be a tensor",
                                        where=env.span_of(proto), got=str(type_))
    return tuple(t for t in types if isinstance(t, ir.TensorType))


def parameter(name: str, type_: ir.TensorType, span: ir.Span) -> ir.Var:
    return ir.Var(name, type_, span=span, checked_type=type_)


def by_name(values: Mapping[str, Sequence[ir.Expr]]) -> dict[str, ir.Expr]:
    """Tensors by name: ``n:0`` and ``n`` for the first result of ``n``, ``n:1`` for the next."""
    found: dict[str, ir.Expr] = {}
    for name, results in values.items():
        for index, result in enumerate(results):
            if isinstance(result.checked_type, ir.TensorType):
                found[f"{name}:{index}"] = result
    firsts = {name: results[0] for name, results in values.items()
              if results and isinstance(results[0].checked_type, ir.TensorType)}
    return {**found, **firsts}
