"""Simpler forms of calls, for formats that have no word for an operator."""

from __future__ import annotations

from collections.abc import Iterator

from weft.export.forms import form_of
from weft.export.from_compute import compute_form
from weft.ir import Call, Expr, Op, infer_expr, post_order
from weft.ir.analysis import known_type

# In the order in which they are tried: what stays closest to the call comes first.
_HOOKS = ("decomposition", "canonical_form", "inference_form", "expansion")


def simpler_forms(call: Call) -> Iterator[Expr]:
    """Equivalents of ``call`` in other operators, typed, the closest one first."""
    if not isinstance(call.op, Op) or not all(map(known_type, call.args)):
        return
    for table in _HOOKS:
        hook = call.op.hook(table)
        found = hook(call) if hook is not None else None
        if found is not None and not _is_same(found, call):
            yield infer_expr(found, trust=True)
    form = form_of(call.op.name)
    made = form(call) if form is not None else None
    if made is not None:
        yield infer_expr(made, trust=True)
    found = compute_form(call)
    if found is not None and not _calls(found, call):
        yield found


def _is_same(found: Expr, call: Call) -> bool:
    return isinstance(found, Call) and found.op is call.op and found.attrs == call.attrs \
        and len(found.args) == len(call.args) \
        and all(a is b for a, b in zip(found.args, call.args, strict=True))


def _calls(found: Expr, call: Call) -> bool:
    """Whether a form calls the operator that it is to replace, which would not end."""
    given = {id(a) for a in call.args}
    return any(isinstance(e, Call) and e.op is call.op
               for e in post_order(found, enter=lambda e: id(e) not in given) if id(e) not in given)
