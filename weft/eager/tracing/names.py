"""Names of the state of a compiled step: those that the model and the optimiser give it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from weft.eager.cell import Cell
from weft.eager.functions.random import current_generator
from weft.eager.tracing.trace import Traced

_OTHER = re.compile(r"[^A-Za-z0-9_.]+")


def state_names(traced: Traced, cells: Sequence[Cell], taken: Iterable[str]) -> list[str]:
    """A name for each tensor of ``cells``, unlike those in ``taken``.

    A tensor of a model has its name in ``state_dict`` (``body.0.weight``), with the name of the
    model before it if the step changes several; the state of an optimiser has the name of the
    parameter (``optimizer.exp_avg.body.0.weight``). Other tensors are called as in the program.
    """
    found = _of_models(traced, cells)
    for owner in traced.objects:
        if hasattr(owner, "_named_state") and not isinstance(owner, type):
            for name, tensor in owner._named_state(found):  # noqa: SLF001 - a protocol of weft
                found.setdefault(id(tensor), f"{_last(traced.paths[id(owner)])}.{name}")
    found.setdefault(id(current_generator().key), "random.key")
    return _unique([_clean(found.get(id(cell)) or traced.paths.get(id(cell)) or f"state{i}")
                    for i, cell in enumerate(cells)], taken)


def _of_models(traced: Traced, cells: Sequence[Cell]) -> dict[int, str]:
    """The names of the tensors of models: the longest are those in the outermost model."""
    best: dict[int, tuple[str, Any]] = {}
    for owner in traced.objects:
        if not hasattr(owner, "named_buffers") or isinstance(owner, type):
            continue
        for name, tensor in (*owner.named_parameters(), *owner.named_buffers()):
            known = best.get(id(tensor))
            if known is None or known[0].count(".") < name.count("."):
                best[id(tensor)] = name, owner
    roots = {id(best[id(cell)][1]) for cell in cells if id(cell) in best}
    if len(roots) <= 1:
        return {number: name for number, (name, _) in best.items()}
    return {number: f"{_last(traced.paths.get(id(owner), 'model'))}.{name}"
            for number, (name, owner) in best.items()}


def _last(path: str) -> str:
    """``optimizer`` of ``self.optimizer``."""
    return path.removeprefix("self.")


def _clean(name: str) -> str:
    parts = [part.strip("_") for part in _OTHER.sub(".", name).split(".")]
    return ".".join([part for part in parts if part]) or "state"


def _unique(names: Sequence[str], taken: Iterable[str]) -> list[str]:
    used, found = set(taken), []
    for name in names:
        number, one = 0, name
        while one in used:
            number += 1
            one = f"{name}_{number}"
        used.add(one)
        found.append(one)
    return found
