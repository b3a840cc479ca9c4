"""Check that weft supports all operations of a module, before the conversion starts."""

from __future__ import annotations

from collections.abc import Iterator

from weft.frontend.common.coverage import counted, unsupported_operators
from weft.frontend.stablehlo.locations import Places
from weft.frontend.stablehlo.refused import reason_for
from weft.frontend.stablehlo.registry import CONVERTERS, converter_name
from weft.frontend.stablehlo.syntax import HloFunction, HloModule, HloType, Operation
from weft.frontend.stablehlo.types import dtype_of

RETURNS = ("stablehlo.return", "func.return", "mhlo.return")


def check_coverage(module: HloModule, places: Places, source: str) -> None:
    """Raise ``UnsupportedModelError`` with all that is missing, counts and places."""
    gaps: dict[str, list[Operation]] = {}
    missing: set[str] = set()
    for operation in reached(module):
        name = converter_name(operation)
        converter = CONVERTERS.find(name)
        if operation.name in RETURNS:
            continue
        if converter is None:
            missing.add(name)
            reason = reason_for(operation)
            gaps.setdefault(f"{_shown(name)}{reason and f': {reason}'}", []).append(operation)
        else:
            for type_ in _lacking(operation):
                gaps.setdefault(f"{_shown(name)} of {type_.element}", []).append(operation)
    if not gaps:
        return
    what = f"{counted(len(missing), 'operation')}" if missing else "types of tensors"
    raise unsupported_operators(
        f"the module uses {what} that weft does not support",
        {gap: [str(places.span(one)) for one in found] for gap, found in gaps.items()}, source,
        f'register @weft.stablehlo_converter("{min(missing)}"), as in docs/jax.md' if missing
        else "complex numbers and other types without a dtype of weft are not read",
        noun="time")


def reached(module: HloModule) -> Iterator[Operation]:
    """The operations of ``main`` and of the functions that it calls, each once."""
    seen: set[str] = set()
    waiting: list[HloFunction] = [module.functions["main"]]
    while waiting:
        function = waiting.pop()
        if function.name in seen:
            continue
        seen.add(function.name)
        for operation in function.body.nested():
            yield operation
            for name in (operation.target, str(operation.attributes.get("decomposition", ""))):
                called = module.functions.get(name.removeprefix("@"))
                if called is not None and operation.name in ("func.call", "stablehlo.composite") \
                        and (operation.name == "func.call" or converter_name(operation)
                             == operation.name):
                    waiting.append(called)


def _lacking(operation: Operation) -> list[HloType]:
    """The types of an operation that are no types of weft, each once."""
    types = dict.fromkeys((*operation.operand_types, *operation.result_types))
    return [t for t in types if dtype_of(t) is None and "token" not in t.element]


def _shown(name: str) -> str:
    return f"custom call {name[1:]}" if name.startswith("@") else name
