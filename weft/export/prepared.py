"""The normal form that writers of formats read: typed graphs without lets and calls."""

from __future__ import annotations

from weft.ir import IRModule, infer_type
from weft.transform.normal_form.to_graph_normal_form import ToGraphNormalForm
from weft.transform.passes.inline import Inline


def prepared(mod: IRModule) -> IRModule:
    """``mod`` with functions inlined that do not call themselves, and lets as shared nodes."""
    mod = infer_type(mod)
    wanted = tuple(name for name in mod.functions if name != "main")
    for step in (Inline(functions=wanted), ToGraphNormalForm()):
        mod = infer_type(step(mod))
    return mod
