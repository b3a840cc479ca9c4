"""Check that weft supports all operators and types of a model, before the conversion starts."""

from __future__ import annotations

from collections.abc import Iterator

from weft.frontend.common.coverage import counted, unsupported_operators
from weft.frontend.tflite.model import Model, Operator, Subgraph
from weft.frontend.tflite.refused import REFUSED
from weft.frontend.tflite.registry import CONVERTERS

HANDLES = ("RESOURCE", "VARIANT")


def check_coverage(model: Model, first: int) -> None:
    """Raise ``UnsupportedModelError`` with all that is missing, counts and places."""
    gaps: dict[str, list[str]] = {}
    missing: set[str] = set()
    for index, subgraph in reached(model, first):
        for position, operator in enumerate(subgraph.operators):
            place = place_of(subgraph, operator, index, position)
            if CONVERTERS.find(operator.name) is None:
                missing.add(operator.name)
                reason = REFUSED.get(operator.name, "")
                kind = "custom operator" if operator.is_custom else "operator"
                gaps.setdefault(f"{kind} {operator.name}{reason and f': {reason}'}",
                                []).append(place)
            else:
                for type_ in _lacking(subgraph, operator):
                    gaps.setdefault(f"{operator.name} of {type_.lower()}", []).append(place)
    if not gaps:
        return
    what = counted(len(missing), "operator") if missing else "types of tensors"
    raise unsupported_operators(
        f"the model uses {what} that weft does not support", gaps, model.source,
        f'register @weft.tflite_converter("{min(missing)}"), as in docs/frontends.md' if missing
        else "strings, complex numbers and other types without a dtype of weft are not read")


def reached(model: Model, first: int) -> Iterator[tuple[int, Subgraph]]:
    """The subgraph ``first`` and those that its operators run, each once."""
    seen: set[int] = set()
    waiting = [first]
    while waiting:
        index = waiting.pop()
        if index in seen or not 0 <= index < len(model.subgraphs):
            continue
        seen.add(index)
        subgraph = model.subgraphs[index]
        yield index, subgraph
        for operator in subgraph.operators:
            waiting.extend(_bodies(operator))


def _bodies(operator: Operator) -> Iterator[int]:
    """The subgraphs that an operator runs."""
    for name in ("ThenSubgraphIndex", "ElseSubgraphIndex", "CondSubgraphIndex",
                 "BodySubgraphIndex", "InitSubgraphIndex", "Subgraph"):
        if operator.options is not None and name in operator.options:
            yield operator.options[name]


def place_of(subgraph: Subgraph, operator: Operator, index: int, position: int) -> str:
    """Where an operator stands: the name of its first result, or its number."""
    names = [subgraph.tensors[t].name for t in operator.outputs if t >= 0]
    return next(filter(None, names), f"operator {position} of subgraph {index}")


def _lacking(subgraph: Subgraph, operator: Operator) -> list[str]:
    """The types of an operator that are no types of weft, each once."""
    tensors = [subgraph.tensors[t] for t in (*operator.inputs, *operator.outputs) if t >= 0]
    types = dict.fromkeys(t.type for t in tensors if t.dtype is None)
    return [t for t in types if t not in HANDLES]
