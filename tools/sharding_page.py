"""The page of how operators are cut over devices: which are read off, and which state it."""

from __future__ import annotations

from collections.abc import Iterable

from weft.compiler.opcheck import random_arguments, typed_call
from weft.ir import Op
from weft.ir.dynamic import needs_values
from weft.transform.sharding.index_maps import IndexMaps, index_maps
from weft.transform.sharding.reduced import FORMS

_PAGE = """\
# How operators are cut over devices

[Plans](../scale.md) read off the tensor expression of an operator how it can be cut. This page is
written from the operators by `python -m tools.operator_pages`. {count} of {all} operators are read
off. The table has the others, and those that exchange borders, by their own test cases:

| operators | how |
|---|---|
{rows}
"""
# Kinds of operators, each with what is said of it; an operator is of the first that fits.
_SAID = {
    "stated": "The record states the axes: loops are written by hand (`Op.cut_axes`).",
    "windows": "Windows along a cut axis exchange the borders of parts.",
    "simpler": "Written in simpler operators where an axis that it reduces is cut.",
    "by hand": "Needs its operands whole: its loops are written by hand, and no axes are stated.",
    "whole": "Needs its operands whole, by what its expression reads.",
    "values": "Not cut: its sizes depend on values.",
    "": "",
}


def sharding_page(operators: Iterable[Op]) -> str:
    """The Markdown of the page."""
    found: dict[str, list[str]] = {kind: [] for kind in _SAID}
    for op in operators:
        found[_kind(op)].append(f"[`{op.name}`]({op.name}.md)")
    rows = "\n".join(f"| {', '.join(found[kind])} | {said} |"
                     for kind, said in _SAID.items() if kind and found[kind])
    return _PAGE.format(count=len(found[""]), all=sum(map(len, found.values())), rows=rows)


def _kind(op: Op) -> str:
    if op.hook("cut_axes"):
        return "stated"
    if needs_values(op):
        return "values"
    maps = [index_maps(typed_call(op, one, random_arguments(one))) for one in op.cases]
    if any(f.windows for each in maps for f in each.factors):
        return "windows"
    if any(op.hook(table) for table in FORMS):
        return "simpler"
    if any(each.factors for each in maps) or not any(each.blocked for each in maps):
        return ""
    return "by hand" if _reasons(maps) == {"its loops are written by hand"} else "whole"


def _reasons(maps: Iterable[IndexMaps]) -> set[str]:
    return {why for each in maps for why in each.blocked.values()}
