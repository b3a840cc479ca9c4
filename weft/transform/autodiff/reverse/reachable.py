"""Which global functions a function reaches, and whether they are recursive."""

from __future__ import annotations

from collections.abc import Iterable

from weft.ir import GlobalVar, IRModule, post_order


def reached_functions(mod: IRModule, entry: str) -> list[str]:
    """``entry`` and the global functions that it refers to, directly or not."""
    found = [entry]
    for name in found:  # the loop appends names
        found += [n for n in _references(mod, name) if n not in found]
    return found


def _references(mod: IRModule, name: str) -> list[str]:
    nodes = post_order(mod[name])
    return list(dict.fromkeys(n.name for n in nodes if isinstance(n, GlobalVar) and n.name in mod))


def has_cycle(mod: IRModule, names: Iterable[str]) -> bool:
    """Whether one of the functions calls itself, directly or not."""
    callees = {name: set(_references(mod, name)) for name in names}
    while True:
        leaves = [name for name, called in callees.items() if not called & callees.keys()]
        if not leaves:
            return bool(callees)
        for name in leaves:
            del callees[name]
