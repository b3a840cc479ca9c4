"""A module as the text of a StableHLO module."""

from __future__ import annotations

import os
from collections import ChainMap
from collections.abc import MutableMapping, Sequence
from pathlib import Path
from typing import TypeAlias

from weft.codegen.cost_model import tensor_types
from weft.export.files import replacing
from weft.export.gaps import Gaps
from weft.export.prepared import prepared
from weft.export.simpler import simpler_forms
from weft.export.stablehlo.call import Body, CallWriter, writer_of
from weft.export.stablehlo.text import type_text
from weft.export.writers import Value, flattened
from weft.ir import IRModule, Op, post_order
from weft.ir.expr import Call, Constant, Expr, Tuple, TupleGetItem
from weft.support.errors import ArtifactError

_Written: TypeAlias = "MutableMapping[int, Value]"


def export_stablehlo(mod: IRModule, path: str | os.PathLike[str]) -> None:
    """Write ``main`` of a module as a StableHLO file, which is replaced atomically.

    Raises what ``stablehlo_text`` raises, and ``ArtifactError`` if the file cannot be written.
    """
    text = stablehlo_text(mod)
    try:
        with replacing(Path(path)) as file:
            file.write(text.encode())
    except OSError as error:
        raise ArtifactError("the model cannot be written", where=path,
                            got=error.strerror or error) from None


def stablehlo_text(mod: IRModule) -> str:
    """``main`` of a module of fixed sizes as the text of a StableHLO module.

    Raises ``UnsupportedModelError`` with everything that StableHLO has no form for.
    """
    main = prepared(mod)["main"]
    body, gaps = Body(), Gaps("StableHLO")
    written: _Written = {}
    params: list[str] = []
    for number, param in enumerate(main.params):
        name = f"%arg{number}"
        body.types[name] = gaps.tensor(param.checked_type, f"parameter %{param.name}")
        params.append(f"{name}: {type_text(body.types[name])}")
        written[id(param)] = name
    found = flattened(_Program(body, gaps).write(main.body, written))
    gaps.check("main")
    types = [type_text(t) for t in tensor_types(main.body.checked_type)]
    head = (f"module @main {{\n  func.func public @main({', '.join(params)}) -> "
            f"({', '.join(types)}) {{")
    lines = [head, *body.lines,
             f"    return {', '.join(found)} : {', '.join(types)}", "  }", "}", ""]
    return "\n".join(lines)


class _Program:
    def __init__(self, body: Body, gaps: Gaps) -> None:
        self._body, self._gaps = body, gaps
        self._kept: list[Expr] = []  # identities of simpler forms stay unique

    def write(self, root: Expr, written: _Written) -> Value:
        for node in post_order(root, enter=lambda e: id(e) not in written):
            if id(node) not in written:
                written[id(node)] = self._node(node, written)
        return written[id(root)]

    def _node(self, node: Expr, written: _Written) -> Value:
        if isinstance(node, Constant):
            return self._body.constant(node.data, node.tensor_type.dtype)
        if isinstance(node, Tuple):
            return [written[id(f)] for f in node.fields]
        if isinstance(node, TupleGetItem):
            return written[id(node.tuple_value)][node.index]
        if isinstance(node, Call) and isinstance(node.op, Op):
            return self._call(node, node.op, [written[id(a)] for a in node.args], written)
        return self._gap(node, type(node).__name__, "")

    def _call(self, node: Call, op: Op, args: Sequence[Value], written: _Written) -> Value:
        mark, reason = len(self._body.lines), "no operation computes it"
        writer = writer_of(op.name)
        if writer is not None:
            site = CallWriter(node, args, self._body)
            found = writer(site)
            if found is not None:
                return found
            reason = site.reason
        del self._body.lines[mark:]
        for simpler in simpler_forms(node):
            before = self._gaps.mark()
            self._kept.append(simpler)
            found = self.write(simpler, ChainMap({}, written))
            if self._gaps.mark() == before:
                return found
            self._gaps.reset(before)
            del self._body.lines[mark:]
        return self._gap(node, op.name, reason)

    def _gap(self, node: Expr, what: str, reason: str) -> Value:
        self._gaps.add(node, what, reason)
        value = self._gaps.stand_in(node.checked_type)
        for name, type_ in zip(flattened(value), tensor_types(node.checked_type), strict=True):
            self._body.types[name] = type_
        return value
