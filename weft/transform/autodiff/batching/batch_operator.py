"""One operator call on a batch: by the operator's rule, an expansion, or example by example."""

from __future__ import annotations

from collections.abc import Sequence

from weft import ir, op
from weft.op.batching import broadcasting, leading
from weft.op.gradients import field_of
from weft.support.errors import PassError
from weft.transform.passes.canonicalize_ops import decomposed

# Calls without a rule are copied for up to this many examples; for more, they run in a loop.
MOST_COPIES = 32


def rule_of(operator: ir.Op) -> ir.BatchingRule | None:
    """The registered rule, or the one that follows from the pattern of elementwise operators."""
    if operator.batching_rule is not None:
        return operator.batching_rule
    if operator.pattern is ir.OpPattern.ELEMWISE and len(operator.inputs) == 1:
        return leading
    is_plain = operator.attrs_type is ir.NoAttrs and not any(
        name.startswith("*") for name in operator.inputs)
    return broadcasting if operator.pattern is ir.OpPattern.BROADCAST and is_plain else None


def native(call: ir.Call, args: Sequence[ir.Expr], is_batched: Sequence[bool],
           size: ir.Dim) -> ir.Expr | None:
    """The call on a batch by the operator's rule; ``None`` if no rule covers it."""
    rule = rule_of(call.op) if isinstance(call.op, ir.Op) else None
    return None if rule is None else rule(call, args, is_batched, size)


def expanded(call: ir.Call) -> tuple[list[ir.Expr], ir.Expr] | None:
    """The call in simpler operators over fresh variables (tuples of variables for tuples).

    ``None`` if the operator has no expansion.
    """
    params = [_variables(f"x{i}", a) for i, a in enumerate(call.args)]
    typed = call.replace(args=tuple(params), checked_type=call.checked_type)
    found = decomposed(typed, "expansion")
    found = decomposed(typed) if found is typed else found
    return None if found is typed else (params, ir.infer_expr(found, trust=True))


def _variables(name: str, arg: ir.Expr) -> ir.Expr:
    type_ = arg.checked_type
    if isinstance(type_, ir.TupleType):
        fields = tuple(ir.Var(f"{name}_{i}", t) for i, t in enumerate(type_.fields))
        return ir.Tuple(fields, checked_type=type_)
    return ir.Var(name, type_)


def each_example(
    call: ir.Call, args: Sequence[ir.Expr], is_batched: Sequence[bool], size: int
) -> ir.Expr:
    """The call repeated for each example, and the results stacked."""
    results = [call.replace(args=tuple(_example(a, e, i) if b else a for a, e, b
                                       in zip(args, call.args, is_batched, strict=True)))
               .with_type(known_type(call)) for i in range(size)]
    return _stacked(results, known_type(call))


def _stacked(results: Sequence[ir.Expr], type_: ir.Type) -> ir.Expr:
    if isinstance(type_, ir.TupleType):  # the depth is that of the type of a result
        return ir.Tuple(tuple(_stacked([ir.TupleGetItem(r, i, checked_type=t) for r in results], t)
                              for i, t in enumerate(type_.fields)))
    return _joined(results, type_)


def _joined(parts: Sequence[ir.Expr], type_: ir.Type) -> ir.Expr:
    if not parts:
        assert isinstance(type_, ir.TensorType)
        return op.zeros(shape=(0, *type_.shape), dtype=type_.dtype)
    return op.stack(ir.Tuple(tuple(parts)), axis=0)


def _example(x: ir.Expr, example: ir.Expr, number: int) -> ir.Expr:
    """Example ``number`` of a batched tensor, or of a tuple of them."""
    type_ = example.checked_type
    if isinstance(type_, ir.TupleType):
        return ir.Tuple(tuple(_example(field_of(x, i), field_of(example, i), number)
                              for i in range(len(type_.fields))))
    row = op.strided_slice(x, begin=(number,), end=(number + 1,), axes=(0,))
    return op.squeeze(row, axis=0).with_type(known_type(example))


def check_sizes(call: ir.Call, name: str) -> None:
    """Raise ``PassError`` for results of ``name`` with data-dependent shapes."""
    if any(ir.has_any(leaf.shape) for leaf in tensor_leaves(known_type(call))):
        raise PassError(f"vmap of {name}: each example would have a result of another size",
                        where=call.span, got=call.checked_type,
                        help="compute it outside the function, or bound its size")


def tensor_leaves(type_: ir.Type) -> list[ir.TensorType]:
    """The tensors in a type of tensors and tuples, in order."""
    found: list[ir.TensorType] = []
    pending = [type_]
    while pending:
        current = pending.pop()
        if isinstance(current, ir.TensorType):
            found.append(current)
        pending += reversed(current.fields) if isinstance(current, ir.TupleType) else ()
    return found


def known_type(expr: ir.Expr) -> ir.Type:
    if expr.checked_type is None:
        raise PassError("vmap needs typed calls", where=expr.span)
    return expr.checked_type
