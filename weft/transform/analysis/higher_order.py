"""Which functions use functions as values."""

from __future__ import annotations

from weft.ir import Call, Constructor, Function, GlobalVar, Op, Var, post_order
from weft.transform.analysis.graph import enters, holds_function, is_primitive, known_type

_KNOWN_CALLEES = (Op, GlobalVar, Constructor, Function)


def is_higher_order(fn: Function) -> bool:
    """Whether ``fn`` is generic, or has functions as values."""
    if fn.type_params:
        return True
    for node in post_order(fn.body, enter=enters):
        if isinstance(node, Function) and not is_primitive(node):
            return True
        if isinstance(node, Call) and not isinstance(node.op, _KNOWN_CALLEES):
            return True
        known = known_type(node) if isinstance(node, Var) else None
        if known is not None and holds_function(known):
            return True
    return False
