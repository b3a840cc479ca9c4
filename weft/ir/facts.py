"""Facts about programs that passes need and provide, and the check before a pass runs.

A pass names what it ``depends`` on and what it ``provides``: facts of this registry, such as
``graph_normal_form``, and attributes of the module. A fact is known after a pass that provides it,
until a pass changes the program without preserving it. A fact with a predicate ``holds`` is also
looked up in the program itself, so a program that is in the right form needs no pass that makes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from weft.ir.module import IRModule
from weft.support.dataclass import dataclass
from weft.support.errors import PassError
from weft.support.registry import Registry


@dataclass(frozen=True, slots=True)
class Fact:
    """A named property of programs; ``doc`` completes "a program ..."."""

    name: str
    doc: str
    holds: Callable[[IRModule], bool] | None = None


FACTS: Registry[Fact] = Registry("fact")


def register_fact(name: str, doc: str, holds: Callable[[IRModule], bool] | None = None) -> Fact:
    """Register a fact that passes may name in ``depends`` and ``provides``.

    Without ``holds`` only passes establish it. Raises ``RegistryError`` for a name in use.
    """
    return FACTS.register(name, Fact(name, doc, holds))


def has_fact(mod: IRModule, name: str) -> bool:
    """Whether a fact is known of ``mod`` or holds, or the module has an attribute of this name."""
    if name not in FACTS:
        return name in mod.attrs
    if name in mod.known_facts:
        return True
    holds = FACTS.get(name).holds
    return holds is not None and holds(mod)


def check_needs(pass_name: str, needs: Iterable[str], mod: IRModule,
                providers: Callable[[str], list[str]]) -> None:
    """Raise ``PassError`` for the first of ``needs`` that ``mod`` lacks.

    ``providers`` gives the names of the passes that provide one.
    """
    for name in needs:
        if has_fact(mod, name):
            continue
        found = providers(name)
        what = f"a program {FACTS.get(name).doc}" if name in FACTS \
            else f"the attribute {name!r} of the module"
        raise PassError(f"the pass {pass_name} needs {what}", expected=name,
                        got=", ".join((*sorted(mod.known_facts), *mod.attrs)) or "nothing known",
                        help=f"run {' or '.join(found)} before" if found
                        else "no registered pass provides it")
