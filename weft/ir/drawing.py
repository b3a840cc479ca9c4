"""Programs as graphs for drawing, and their text for Graphviz.

Calls, parameters and control flow are nodes; bindings are edges. Constants are mentioned in the
nodes that use them, and a kernel is drawn as the operators inside it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field

from weft.ir import expr
from weft.ir.module import IRModule
from weft.ir.op import Op
from weft.ir.text.values import value_text
from weft.ir.visitor import children, post_order
from weft.support.dataclass import dataclass

_MOST_ATTRIBUTES = 60  # characters of attributes in a label


@dataclass(frozen=True, slots=True)
class DrawnNode:
    """A box: lines of text, its kind, and the numbers of the nodes that it reads.

    ``kind`` is input, call, kernel, control or result; ``node`` is the expression, ``None`` for the
    result.
    """

    kind: str
    lines: tuple[str, ...]
    inputs: tuple[int, ...]
    node: expr.Expr | None = field(default=None, compare=False, repr=False)


def drawn_nodes(fn: expr.Function) -> list[DrawnNode]:
    """The nodes of a function in post-order, with its result last."""
    bound = {n.var: n.value for n in post_order(fn, enter=_is_open) if isinstance(n, expr.Let)}
    numbers: dict[expr.Expr, int] = {}
    nodes: list[DrawnNode] = []
    for node in (*fn.params, *post_order(fn.body, enter=_is_open)):
        if node not in numbers and not _is_passed_through(node, bound):
            inputs = dict.fromkeys(numbers[n] for n in _uses(node, bound) if n in numbers)
            numbers[node] = len(nodes)
            nodes.append(DrawnNode(_kind(node), tuple(_label(node)), tuple(inputs), node))
    results = (numbers[n] for n in _resolve(fn.body, bound) if n in numbers)
    nodes.append(DrawnNode("result", ("result", *_type_line(fn.body)), tuple(results)))
    return nodes


def as_dot(mod: IRModule) -> str:
    """``mod`` in Graphviz's language, with a cluster for each function: ``dot -Tsvg`` draws it."""
    lines = ["digraph weft {", f"  node [{_STYLE}];"]
    for cluster, (name, fn) in enumerate(mod.functions.items()):
        lines += [f"  subgraph cluster_{cluster} {{", f"    label={_quoted('@' + name)};"]
        for number, node in enumerate(drawn_nodes(fn)):
            text = "\\n".join(_escaped(line) for line in node.lines)
            color = _COLORS[node.kind]
            lines.append(f'    n{cluster}_{number} [label="{text}", fillcolor="{color}"];')
            lines += [f"    n{cluster}_{used} -> n{cluster}_{number};" for used in node.inputs]
        lines.append("  }")
    return "\n".join([*lines, "}", ""])


_STYLE = 'shape=box, style="rounded,filled", fontname="sans-serif", fontsize=11'
_COLORS = {"input": "#e3edf8", "call": "#ffffff", "kernel": "#e6f3e6", "control": "#fbeedb",
           "result": "#eeeeee"}


def _is_open(node: expr.Expr) -> bool:
    return not _is_kernel(node)


def _is_kernel(node: expr.Expr) -> bool:
    return isinstance(node, expr.Function) and bool(node.attrs.get("primitive"))


def _is_passed_through(node: expr.Expr, bound: dict[expr.Var, expr.Expr]) -> bool:
    """Whether a node is not drawn, so that its users get an edge from the node it resolves to."""
    if isinstance(node, expr.Var):
        return node in bound
    names = (expr.Let, expr.Constant, Op, expr.GlobalVar, expr.Constructor)
    return isinstance(node, names) or _is_kernel(node)


def _uses(node: expr.Expr, bound: dict[expr.Var, expr.Expr]) -> Iterator[expr.Expr]:
    for child in children(node):
        yield from _resolve(child, bound)


def _resolve(node: expr.Expr, bound: dict[expr.Var, expr.Expr]) -> Iterator[expr.Expr]:
    """The drawn nodes that ``node`` resolves to."""
    while isinstance(node, expr.Let) or (isinstance(node, expr.Var) and node in bound):
        node = node.body if isinstance(node, expr.Let) else bound[node]
    yield node


def _kind(node: expr.Expr) -> str:
    if isinstance(node, expr.Var):
        return "input"
    if isinstance(node, expr.Call):
        return "kernel" if _is_kernel(node.op) else "call"
    return "control"


def _label(node: expr.Expr) -> Iterator[str]:
    if isinstance(node, expr.Call):
        yield from _callee(node)
        constants = sum(isinstance(arg, expr.Constant) for arg in node.args)
        if constants:
            yield f"{constants} constant{'s' if constants > 1 else ''}"
    elif isinstance(node, expr.Var):
        yield f"%{node.name}"
    elif isinstance(node, expr.TupleGetItem):
        yield f".{node.index}"
    else:
        yield _WORDS.get(type(node), type(node).__name__)
    yield from _type_line(node)


_WORDS: dict[type[expr.Expr], str] = {
    expr.Tuple: "tuple", expr.If: "if", expr.Match: "match", expr.Function: "fn",
    expr.RefCreate: "ref", expr.RefRead: "ref_read", expr.RefWrite: "ref_write",
}


def _callee(call: expr.Call) -> Iterator[str]:
    op = call.op
    if isinstance(op, Op):
        yield op.name
        given = ", ".join(f"{name}={value_text(value)}"
                          for name, value in call.attrs.non_default_items())
        if given:
            yield given if len(given) <= _MOST_ATTRIBUTES else f"{given[:_MOST_ATTRIBUTES]}..."
    elif isinstance(op, expr.Function) and _is_kernel(op):
        inside = [n.op.name for n in post_order(op.body)
                  if isinstance(n, expr.Call) and isinstance(n.op, Op)]
        yield " + ".join(inside)
    elif isinstance(op, expr.GlobalVar):
        yield f"@{op.name}"
    else:
        yield f"%{op.name}" if isinstance(op, expr.Var) else "call"


def _type_line(node: expr.Expr) -> Iterator[str]:
    if node.checked_type is not None:
        yield str(node.checked_type)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _quoted(text: str) -> str:
    return f'"{_escaped(text)}"'
