"""Every module that a test infers or prints must come back from its own text."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from weft.ir import (
    IRModule,
    as_text,
    assert_structural_equal,
    install_printer,
    parse,
    verify_module,
)
from weft.ir.visitor import post_order
from weft.support.errors import WellFormedError

# Larger programs are printed and parsed by tests of their own.
LARGEST = 400


@pytest.fixture(autouse=True)
def round_trip(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    seen: dict[int, IRModule] = {}
    rebuild = IRModule.with_functions

    def with_functions(mod: IRModule, functions: Any) -> IRModule:
        made = rebuild(mod, functions)
        seen[id(made)] = made
        return made

    def render(node: Any) -> str:
        if isinstance(node, IRModule):
            seen[id(node)] = node
        return as_text(node)

    monkeypatch.setattr(IRModule, "with_functions", with_functions)
    install_printer(render)
    yield
    install_printer(as_text)
    monkeypatch.undo()
    for mod in list(seen.values())[:50]:
        if _is_small(mod) and _is_well_formed(mod):
            assert_structural_equal(parse(as_text(mod)), mod)


def _is_well_formed(mod: IRModule) -> bool:
    try:
        verify_module(mod, typed=False)
    except WellFormedError:
        return False  # tests of the verifier break programs on purpose
    return True


def _is_small(mod: IRModule) -> bool:
    nodes = itertools.chain.from_iterable(map(post_order, mod.functions.values()))
    return next(itertools.islice(nodes, LARGEST, None), None) is None
