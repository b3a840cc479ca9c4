"""Gradient templates: the gradient of a call as a list of calls, made once per signature.

The rule that the operator registers runs on placeholders; its expressions become instructions over
numbered values (operands, result, arriving gradients). ``backward`` then records a gradient by
copying the list, without rules, IR or inference.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.eager.device import CPU, copied, device
from weft.eager.node import (
    CALL,
    FIELD,
    LOOP,
    NUMBER,
    Node,
    Signature,
    Spec,
    call_of,
    call_signature,
    field_signature,
    number_node,
    pack_signature,
    spec_of_type,
    user_span,
    value_node,
)
from weft.ir.expr import Call, Constant, Expr, Function, Tuple, TupleGetItem, Var
from weft.ir.module import IRModule
from weft.ir.op import Op
from weft.ir.typing.infer import infer_expr
from weft.ir.visitor import post_order
from weft.op.gradients import field_of, typed_zeros
from weft.support.dataclass import dataclass
from weft.support.errors import PassError
from weft.transform.autodiff.reverse.gradient import Gradient
from weft.transform.autodiff.reverse.gradient_contract import checked_gradients
from weft.transform.passes.canonicalize_ops import decomposed


@dataclass(frozen=True, slots=True)
class Template:
    """The gradients of the operands of a signature.

    Values 0.. are the operands, then the result, then the gradients that arrive (one per field of a
    tuple), then one per instruction: a signature with operands, or a constant as a node.
    ``results`` are the numbers of the gradients, ``None`` for operands without one. ``needs`` are
    the operands whose values the instructions read, ``needs_result`` whether they read the result.
    """

    code: tuple[tuple[Any, tuple[int, ...]], ...]
    results: tuple[int | None, ...]
    needs: tuple[int, ...]
    needs_result: bool
    fields: tuple[int, ...]  # of the result that is a tuple, which are read


def template_of(sig: Signature, wanted: tuple[bool, ...], arriving: tuple[bool, ...]) -> Template:
    """The gradients of the operands ``wanted``; ``arriving`` says which fields have a gradient.

    Raises ``PassError`` for an operator without a derivative.
    """
    key = (wanted, arriving)
    found = sig.rules.get(key)
    if found is None:
        found = sig.rules[key] = _made(sig, wanted, arriving)
    return found


def wanted_of(node: Node) -> tuple[bool, ...]:
    """Which operands of a recorded node take part in the graph of gradients."""
    return tuple([arg.grad is not None for arg in node.args])


def values_needed(node: Node) -> list[tuple[Node, int | None]]:
    """The nodes, or fields of nodes, whose values the gradient of ``node`` will read."""
    sig = node.sig
    if sig.kind == LOOP:
        fields = len(sig.out.fields or ())
        return [*((arg, None) for arg in node.args),
                *((node, i) for i in range(fields - sig.attrs.saved, fields))]
    if sig.kind != CALL:
        return []
    spec = sig.out
    arriving = (True,) if spec.fields is None else tuple(
        [f.dtype.is_floating_point for f in spec.fields])
    try:
        template = template_of(sig, wanted_of(node), arriving)
    except PassError:
        return []  # backward through it is an error that backward reports
    found: list[tuple[Node, int | None]] = [(node.args[i], None) for i in template.needs]
    if template.needs_result:
        fields = (None,) if spec.fields is None else range(len(spec.fields))
        found += [(node, i) for i in fields]
    else:
        found += [(node, i) for i in template.fields]
    return found


def _made(sig: Signature, wanted: tuple[bool, ...], arriving: tuple[bool, ...]) -> Template:
    op = sig.op
    assert op is not None
    args = tuple([Var(f"x{i}", spec.type) for i, spec in enumerate(sig.args)])
    call = infer_expr(call_of(op, sig.attrs, args, user_span()), trust=True)
    assert isinstance(call, Call)
    specs = (sig.out,) if sig.out.fields is None else sig.out.fields
    incoming = [Var(f"dy{i}", spec.type) for i, spec in enumerate(specs)]
    if op.no_gradient_reason is not None:
        raise PassError(f"{op.name} has no derivative", got=op.no_gradient_reason,
                        where=call.span, help="detach() its operands")
    if op.gradient_rule is not None and decomposed(call, "expansion") is call:
        dy = _arriving(call, incoming, arriving)
        grads = checked_gradients(call, op, op.gradient_rule, dy)
        if call.args != args:  # one tuple of tensors
            grads = [field_of(grads[0], i) for i in range(len(args))]
    else:
        grads = _by_pass(call, args, incoming, arriving)
    return _flattened(sig, call, args, incoming, [g if w and _is_float(s) else None for g, w, s in
                                                  zip(grads, wanted, sig.args, strict=True)])


def _is_float(spec: Spec) -> bool:
    return spec.fields is not None or spec.dtype.is_floating_point


def _arriving(call: Call, incoming: list[Var], arriving: tuple[bool, ...]) -> Expr:
    """The gradient of the result, with zeros for fields that none arrives at."""
    if call.checked_type is incoming[0].checked_type or (len(incoming) == 1 \
            and call.checked_type == incoming[0].checked_type):
        return incoming[0]
    fields = tuple([dy if there else typed_zeros(dy)
                    for dy, there in zip(incoming, arriving, strict=True)])
    return infer_expr(Tuple(fields), trust=True)


def _by_pass(call: Call, args: tuple[Var, ...], incoming: list[Var], arriving: tuple[bool, ...]
             ) -> list[Expr]:
    """The gradients of an operator that is expanded for differentiation."""
    module = IRModule.from_expr(Function(args, call))
    # A recorded batch norm is that of inference; that of training is an operator of its own.
    made = Gradient(cotangent="parameter", training=False)(module)["main"]
    body = made.body
    assert isinstance(body, Tuple)
    assert isinstance(body.fields[1], Tuple)
    given = dict(zip(made.params, [*args, _arriving(call, incoming, arriving)], strict=True))
    grads = iter(body.fields[1].fields)
    found = [next(grads) if _is_float(spec_of_type(a.checked_type)) else a  # type: ignore[arg-type]
             for a in args]
    return [_substituted(g, given) for g in found]


def _substituted(expr: Expr, given: dict[Var, Expr]) -> Expr:
    made: dict[Expr, Expr] = {**given}
    for node in post_order(expr):
        if node in made:
            continue
        if isinstance(node, Call):
            made[node] = node.replace(args=tuple([made.get(a, a) for a in node.args]))
        elif isinstance(node, Tuple):
            made[node] = node.replace(fields=tuple([made.get(a, a) for a in node.fields]))
        elif isinstance(node, TupleGetItem):
            made[node] = node.replace(tuple_value=made.get(node.tuple_value, node.tuple_value))
        else:
            made[node] = node
    return infer_expr(made[expr], trust=True)


def _flattened(sig: Signature, call: Call, args: tuple[Var, ...], incoming: list[Var],
               grads: list[Expr | None]) -> Template:
    number: dict[Expr, int] = {var: i for i, var in enumerate((*args, call, *incoming))}
    specs: list[Spec] = [*sig.args, sig.out,
                         *((sig.out,) if sig.out.fields is None else sig.out.fields)]
    code: list[tuple[Signature | Node, tuple[int, ...]]] = []

    def emit(expr: Expr, one: Signature | Node, operands: tuple[int, ...]) -> None:
        code.append((one, operands))
        number[expr] = len(specs)
        specs.append(one.out if isinstance(one, Signature) else one.sig.out)

    for grad in grads:
        if grad is None:
            continue
        for expr in post_order(grad):
            if expr not in number and not isinstance(expr, Op):
                _emit(expr, number, specs, emit, sig.out.device)
    made, results = _live(code, tuple([None if g is None else number[g] for g in grads]),
                          len(specs) - len(code))
    return _template(sig, made, results)


def _template(sig: Signature, code: tuple[tuple[Signature | Node, tuple[int, ...]], ...],
              results: tuple[int | None, ...]) -> Template:
    """With what the instructions read: operands, the result, fields of the result."""
    count = len(sig.args)
    read = {r for r in results if r is not None}
    fields: set[int] = set()
    for one, operands in code:
        if isinstance(one, Signature) and one.kind == FIELD and operands == (count,):
            fields.add(one.attrs)
        else:
            read.update(operands)
    return Template(code, results, tuple([i for i in range(count) if i in read]), count in read,
                    tuple(sorted(fields)))


def _live(code: list[tuple[Signature | Node, tuple[int, ...]]], results: tuple[int | None, ...],
          first: int) -> tuple[Any, Any]:
    """The instructions that the results need, renumbered; ``first`` values precede them."""
    needed = {r for r in results if r is not None}
    for at in range(len(code) - 1, -1, -1):
        if first + at in needed:
            needed.update(code[at][1])
    number = {i: i for i in range(first)}
    kept = []
    for at, (one, operands) in enumerate(code):
        if first + at in needed:
            number[first + at] = first + len(kept)
            kept.append((one, tuple([number[i] for i in operands])))
    return tuple(kept), tuple([None if r is None else number[r] for r in results])


def _emit(expr: Expr, number: dict[Expr, int], specs: list[Spec], emit: Any, where: device
          ) -> None:
    if isinstance(expr, Constant):
        emit(expr, _constant(expr.data, spec_of_type(expr.tensor_type), where), ())
    elif isinstance(expr, TupleGetItem):
        whole = number[expr.tuple_value]
        emit(expr, field_signature(specs[whole], expr.index), (whole,))
    elif isinstance(expr, Tuple):
        operands = tuple([number[f] for f in expr.fields])
        emit(expr, pack_signature(tuple([specs[i] for i in operands])), operands)
    elif isinstance(expr, Call) and isinstance(expr.op, Op):
        operands = tuple([number[a] for a in expr.args])
        is_list = len(expr.op.inputs) == 1 and expr.op.inputs[0].startswith("*")
        if is_list and isinstance(expr.args[0], Tuple):
            operands = tuple([number[f] for f in expr.args[0].fields])
        emit(expr, _signature(expr, tuple([specs[i] for i in operands]), where), operands)
    else:
        raise PassError("a gradient is not a graph of operators", got=type(expr).__name__,
                        where=expr.span)


def _signature(call: Call, specs: tuple[Spec, ...], where: device) -> Signature:
    assert isinstance(call.op, Op)
    attrs = dict(call.attrs.items())
    operands = tuple([Node(Signature(NUMBER, spec), (), 0, None) for spec in specs])
    return call_signature(call.op.name, attrs, call.attrs, operands, where)


def _constant(data: np.ndarray, spec: Spec, where: device) -> Node:
    if data.ndim == 0:
        return number_node(data.item(), spec.dtype)
    return value_node(copied(np.ascontiguousarray(data), CPU, where), spec.dtype, where)
