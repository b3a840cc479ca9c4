"""Kind checking: declared types refer to defined data types, with all their arguments."""

from __future__ import annotations

from collections.abc import Mapping

from weft.ir.expr import TypeData
from weft.ir.types import GlobalTypeVar, Type, TypeCall, component_types
from weft.ir.typing.report import counted
from weft.support.errors import TypeInferenceError
from weft.support.suggestion import did_you_mean


def kind_error(type_: Type, definitions: Mapping[str, TypeData]) -> TypeInferenceError | None:
    """The error in ``type_``, or ``None``."""
    seen: set[int] = set()
    pending = [type_]
    while pending:
        current = pending.pop()
        if id(current) in seen:
            continue
        seen.add(id(current))
        if isinstance(current, TypeCall):
            error = _application_error(current, definitions)
            if error is not None:
                return error
            pending.extend(current.args)
        elif isinstance(current, GlobalTypeVar):
            return _bare(current)
        else:
            pending.extend(component_types(current))
    return None


def _application_error(
    call: TypeCall, definitions: Mapping[str, TypeData]
) -> TypeInferenceError | None:
    name = str(call.func)
    data = definitions.get(name)
    if data is None:
        return undefined(name, definitions)
    if len(call.args) == len(data.type_vars):
        return None
    return TypeInferenceError(
        f"the data type {name} takes {counted(len(data.type_vars), 'type argument')}",
        expected=f"{name}[{', '.join(map(str, data.type_vars))}]" if data.type_vars else name,
        got=call,
        help="write one type for each parameter of the definition",
    )


def undefined(name: str, definitions: Mapping[str, TypeData]) -> TypeInferenceError:
    """The error for an undefined data type."""
    return TypeInferenceError(
        f"undefined data type {name}",
        expected=", ".join(definitions) or "a module with type definitions",
        got=name,
        help=did_you_mean(name, [*definitions, "Tensor", "float32", "int32", "bool"],
                          f"define it: type {name} {{ .. }}, or import the prelude"),
    )


def _bare(header: GlobalTypeVar) -> TypeInferenceError:
    return TypeInferenceError(f"{header} is the name of a data type, not a type",
                              expected=f"{header}[..]", got=header,
                              help="apply it to its type arguments")
