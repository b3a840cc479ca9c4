"""Conversion of a module to a graph: one node for each call, named as the model names it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft import ir
from weft.compat.graph.graph import Graph
from weft.compat.graph.node import Node, Tensor
from weft.compat.graphdef import definitions
from weft.compat.graphdef.catalogue import OPERANDS, operand_sizes
from weft.compat.graphdef.names import is_node_name
from weft.support.dataclass import dataclass
from weft.support.errors import UnsupportedModelError
from weft.transform.normal_form.to_graph_normal_form import ToGraphNormalForm


def from_module(mod: ir.IRModule, name: str = "graph") -> tuple[Graph, tuple[Tensor, ...]]:
    """The graph of ``main``, and the tensors that it returns.

    Inputs become placeholders, branches ``If`` and loops ``While`` nodes, calls of functions nodes
    of the library. Nodes have the names of the tensors (``IRModule.named``), else those of their
    operators. Raises ``UnsupportedModelError`` for closures, references, data types, and tuples
    inside of tuples.
    """
    graph = Graph(name=name)
    mod = ToGraphNormalForm()(ir.infer_type(mod))
    names = {value: _node_name(text) for text, value in mod.named.items()
             if ":" not in text and _node_name(text)}
    builder = _Builder(graph, mod, names)
    main = mod["main"]
    for param, text in zip(main.params, ir.input_names(mod), strict=True):
        builder.add_input(param, _node_name(text) or "input")
    results = main.body.fields if isinstance(main.body, ir.Tuple) else (main.body,)
    for value, text in zip(results, ir.output_names(mod), strict=False):
        if _node_name(text.removesuffix(":0")):
            names.setdefault(value, _node_name(text.removesuffix(":0")))
    builder.add(main.body)
    return graph, tuple(builder.tensors(main.body))


def _node_name(text: str) -> str:
    """``text`` as the name of a node, or an empty string."""
    return text if is_node_name(text) else ""


class _Builder:
    """Adds expressions to a graph; ``_made`` holds the tensors of each."""

    def __init__(self, graph: Graph, mod: ir.IRModule, names: dict[ir.Expr, str]) -> None:
        self._graph = graph
        self._mod = mod
        self._names = names
        self._made: dict[ir.Expr, tuple[Tensor, ...]] = {}
        self._loops: dict[ir.Expr, _Loop] = {}

    def tensors(self, expr: ir.Expr) -> tuple[Tensor, ...]:
        """The tensor of an expression, or the tensors of a tuple expression."""
        return self._made[expr]

    def add_input(self, param: ir.Var, name: str) -> None:
        type_ = param.checked_type
        if not isinstance(type_, ir.TensorType):
            raise _unsupported(param, "an input that is not a tensor")
        shape = definitions.ShapeAttr(type_.shape)  # type: ignore[arg-type]
        attrs = {"dtype": type_.dtype, "shape": shape}
        self._made[param] = self._node("Placeholder", (), attrs, name, param).outputs

    def add(self, root: ir.Expr) -> None:
        """Add everything that ``root`` needs, outside of branches and functions."""
        stack = [root]
        while stack:
            expr = stack[-1]
            if isinstance(expr, ir.Let):
                self._loops.setdefault(expr.var, _checked_loop(expr))
            waits = [e for e in _operands(expr) if e not in self._made]
            if expr in self._made or not waits:
                stack.pop()
                if expr not in self._made:
                    self._made[expr] = self._tensors_of(expr)
            else:
                stack.extend(reversed(waits))

    def _tensors_of(self, expr: ir.Expr) -> tuple[Tensor, ...]:
        if isinstance(expr, ir.Constant):
            attrs = {"dtype": expr.tensor_type.dtype, "value": expr.data}
            return self._node("Const", (), attrs, "Const", expr).outputs
        if isinstance(expr, ir.Tuple):
            if any(isinstance(f.checked_type, ir.TupleType) for f in expr.fields):
                raise _unsupported(expr, "a tuple in a tuple")
            return tuple(t for f in expr.fields for t in self._made[f])
        if isinstance(expr, ir.TupleGetItem):
            return (self._made[expr.tuple_value][expr.index],)
        if isinstance(expr, ir.Call):
            return self._call(expr)
        if isinstance(expr, ir.If):
            return self._branch(expr)
        if isinstance(expr, ir.Let):
            return self._made[expr.body]
        if isinstance(expr, (ir.Op, ir.GlobalVar)):
            return ()
        raise _unsupported(expr, f"a {type(expr).__name__} expression")

    def _call(self, call: ir.Call) -> tuple[Tensor, ...]:
        inputs = [t for arg in call.args for t in self._made[arg]]
        if isinstance(call.op, ir.GlobalVar):
            ref = self._function(call.op.name, self._mod[call.op.name])
            return self._node(ref, inputs, {}, ref, call).outputs
        if call.op in self._loops:
            return self._loop(call, self._loops[call.op])
        if not isinstance(call.op, ir.Op):
            raise _unsupported(call, "a call of a function that is a value")
        attrs = dict(call.attrs.non_default_items())
        sizes = operand_sizes(call.op, [arg.checked_type for arg in call.args])
        if sizes:
            attrs[OPERANDS] = sizes
        return self._node(call.op.name, inputs, attrs, call.op.name.rpartition(".")[2],
                          call).outputs

    def _node(self, op: str, inputs: Sequence[Tensor], attrs: dict[str, Any], stem: str,
              expr: ir.Expr
              ) -> Node:
        name = self._names.get(expr, "") or stem
        return self._graph.create_as(definitions.NodeDef("", op, (), "", attrs, expr.span), inputs,
                                     name)

    def _function(self, name: str, function: ir.Function) -> str:
        """Add a function of the module to the library."""
        if name not in self._graph.library.functions:
            self._define(name, function.params, function.body, noinline=True)
        return name

    def _define(self, name: str, params: Sequence[ir.Var], body: ir.Expr, *, noinline: bool = False
                ) -> definitions.FunctionRef:
        """Add a function with this body to the library."""
        inner, results = self._body(params, body)
        args = tuple(definitions.ArgDef(f"arg{i}") for i in range(len(params)))
        outputs = tuple(definitions.ArgDef(f"result{i}") for i in range(len(results)))
        named = {t.node.name: arg.name for t, arg in
                 zip((inner.tensor(f"arg{i}") for i in range(len(params))), args, strict=True)}
        nodes = tuple(n.definition() for n in inner.op_nodes if n.name not in named)
        returns = {o.name: (t.node.name if t.node.name in named else t.name)
                   for o, t in zip(outputs, results, strict=True)}
        library = inner.library
        made = definitions.FunctionDef(name, args, outputs, nodes, returns,
                                       attrs={"_noinline": True} if noinline else {})
        self._graph.library = definitions.Library({**library.functions, name: made},
                                                  library.gradients)
        return definitions.FunctionRef(name)

    def _body(self, params: Sequence[ir.Var], body: ir.Expr) -> tuple[Graph, tuple[Tensor, ...]]:
        """The graph of a function body; its placeholders are ``arg0``, ``arg1``, .."""
        graph = Graph(self._graph.library, name="function")
        builder = _Builder(graph, self._mod, {})
        builder._loops = self._loops
        for index, param in enumerate(params):
            builder.add_input(param, f"arg{index}")
        builder.add(body)
        return graph, builder.tensors(body)

    def _free_function(self, stem: str) -> str:
        number, name = 0, stem
        while name in self._graph.library.functions or name in self._mod.functions:
            number += 1
            name = f"{stem}_{number}"
        return name

    def _captured(self, *bodies: ir.Expr) -> list[ir.Var]:
        """The variables and outer tensors that bodies read."""
        found: dict[ir.Var, None] = {}
        pending = [var for body in bodies for var in ir.free_vars(body)][::-1]
        seen: set[ir.Var] = set()
        while pending:
            var = pending.pop()
            if var in seen:
                continue
            seen.add(var)
            loop = self._loops.get(var)
            if loop is None:
                found[var] = None
            else:  # the outside values that the loop reads
                inner = (v for part in (loop.condition, *loop.following)
                         for v in ir.free_vars(part))
                pending.extend(v for v in inner if v not in loop.params)
        return list(found)

    def _branch(self, expr: ir.If) -> tuple[Tensor, ...]:
        captured = self._captured(expr.true_branch, expr.false_branch)
        attrs: dict[str, Any] = {}
        for key, body in (("then_branch", expr.true_branch), ("else_branch", expr.false_branch)):
            attrs[key] = self._define(self._free_function(key), captured, body)
        inputs = [*self._made[expr.cond], *(t for v in captured for t in self._made[v])]
        return self._node("If", inputs, attrs, "If", expr).outputs

    def _loop(self, call: ir.Call, loop: _Loop) -> tuple[Tensor, ...]:
        captured = [v for v in self._captured(loop.condition, *loop.following)
                    if v not in loop.params]
        params = (*loop.params, *captured)
        following = ir.Tuple((*loop.following, *captured), span=call.span)
        attrs = {"cond": self._define(self._free_function("cond"), params, loop.condition),
                 "body": self._define(self._free_function("body"), params, following)}
        inputs = [t for v in (*call.args, *captured) for t in self._made[v]]
        return self._node("While", inputs, attrs, "While", call).outputs[:len(loop.params)]


@dataclass(frozen=True, slots=True)
class _Loop:
    """A loop as a recursive function: its variables, the test, and their next values."""

    params: tuple[ir.Var, ...]
    condition: ir.Expr
    following: tuple[ir.Expr, ...]


def _checked_loop(expr: ir.Let) -> _Loop:
    """The loop that a ``let`` binds: a choice between a call of itself and its variables."""
    function = expr.value
    if not isinstance(function, ir.Function) or not isinstance(function.body, ir.If):
        raise _unsupported(expr, "a let that is not a loop")
    again, last = function.body.true_branch, function.body.false_branch
    if (not isinstance(again, ir.Call) or again.op is not expr.var
            or not isinstance(last, ir.Tuple)
            or tuple(last.fields) != tuple(function.params)):
        raise _unsupported(expr, "a recursive function that is not a loop")
    return _Loop(function.params, function.body.cond, again.args)


def _operands(expr: ir.Expr) -> tuple[ir.Expr, ...]:
    """The expressions to convert before ``expr``; bodies of branches and loops are functions."""
    if isinstance(expr, ir.If):
        return (expr.cond,)
    if isinstance(expr, ir.Let):
        return (expr.body,)
    if isinstance(expr, ir.Call):
        return expr.args
    return () if isinstance(expr, (ir.Function, ir.Var)) else ir.children(expr)


def _unsupported(expr: ir.Expr, what: str) -> UnsupportedModelError:
    return UnsupportedModelError(f"a graph cannot hold {what}", where=expr.span,
                                 got=str(expr.checked_type))
