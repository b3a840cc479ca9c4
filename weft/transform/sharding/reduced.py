"""A call in simpler operators that can be cut along more axes."""

from __future__ import annotations

from weft.ir import Call, Expr, Op, Tuple, TupleType, Type, Var, infer_expr
from weft.transform.passes.canonicalize_ops import decomposed

# Hooks of operators (``ir.op``), the first that an operator has.
FORMS = ("reduced_form", "expansion", "decomposition")


def simpler_form(call: Call) -> tuple[list[Expr], Expr] | None:
    """The call over fresh variables (tuples of them for tuples); ``None`` without such a form."""
    table = next((t for t in FORMS if isinstance(call.op, Op) and call.op.hook(t)), None)
    if table is None:
        return None
    params = [_variables(a.checked_type, f"x{n}") for n, a in enumerate(call.args)]
    typed = call.replace(args=tuple(params), checked_type=call.checked_type)
    found = decomposed(typed, table)
    return None if found is typed else (params, infer_expr(found, trust=True))


def _variables(type_: Type | None, name: str) -> Expr:
    if isinstance(type_, TupleType):
        fields = tuple(_variables(t, f"{name}_{i}") for i, t in enumerate(type_.fields))
        return Tuple(fields, checked_type=type_)
    return Var(name, type_)
