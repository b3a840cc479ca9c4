"""Wording of type errors: operator, source location, argument and axis, expected and actual."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.ir import expr
from weft.ir.op import Op
from weft.ir.types import Type, type_text
from weft.support.errors import TypeInferenceError, WeftError

_SHOWN_ARGUMENTS = 6
_SHOWN_ERRORS = 20
_LONGEST = 1_000  # characters of a type in a message
_FURTHEST = 100_000  # characters of a type that are formatted at most
_DEEPEST = 8  # levels of nested expressions in a description


def describe(node: expr.Expr, *, arguments: bool = True, depth: int = _DEEPEST) -> str:
    """One short line for ``node``: the operator with the names of its operands.

    ``depth`` bounds the nesting; deeper expressions are omitted.
    """
    if isinstance(node, expr.Var):
        return f"%{node.name}"
    if isinstance(node, expr.GlobalVar):
        return f"@{node.name}"
    if isinstance(node, (Op, expr.Constructor)):
        return node.name
    if isinstance(node, expr.Constant):
        return str(node.data) if node.is_scalar else f"constant {node.tensor_type}"
    if depth == 0:
        return ".."

    def inner(part: expr.Expr) -> str:
        return describe(part, arguments=False, depth=depth - 1)

    if isinstance(node, expr.Call):
        return f"{inner(node.op)}({_operands(node.args, inner) if arguments else '..'})"
    if isinstance(node, expr.Tuple):
        return f"({_operands(node.fields, inner) if arguments else '..'})"
    form = _FORMS.get(type(node))
    return form(node, inner) if form is not None else f"{type(node).__name__.lower()} expression"


_Describe = Callable[[expr.Expr], str]
_FORMS: dict[type, Callable[[Any, _Describe], str]] = {
    expr.TupleGetItem: lambda node, inner: f"{inner(node.tuple_value)}.{node.index}",
    expr.Function: lambda fn, inner: f"fn ({_operands(fn.params, inner)})",
    expr.Let: lambda let, _: f"let %{let.var.name}",
    expr.If: lambda node, inner: f"if ({inner(node.cond)})",
    expr.Match: lambda node, inner: f"match ({inner(node.data)})",
    expr.RefCreate: lambda node, inner: f"ref({inner(node.value)})",
    expr.RefRead: lambda node, inner: f"ref_read({inner(node.ref)})",
    expr.RefWrite: lambda node, inner: f"ref_write({inner(node.ref)}, {inner(node.value)})",
}


def _operands(args: Sequence[expr.Expr], inner: _Describe) -> str:
    shown = [inner(a) for a in args[:_SHOWN_ARGUMENTS]]
    return ", ".join(shown + [".."] * (len(args) > _SHOWN_ARGUMENTS))


def location_of(node: expr.Expr, function: str | None) -> str:
    """The location of ``node``: its span, its text, and the enclosing function."""
    inside = f" in @{function}" if function else ""
    text = f"`{describe(node)}`{inside}"
    return f"{node.span}: {text}" if node.span else text


def type_error(node: expr.Expr, function: str | None, what: str, *, expected: object = None,
               got: object = None, notes: Sequence[str] = (),
               help: str | None = None) -> TypeInferenceError:
    """An error about ``node``, with its source line if that is available."""
    excerpt = node.span.excerpt() if node.span else ()
    return TypeInferenceError(what, where=location_of(node, function),
                              expected=_shortened(expected), got=_shortened(got),
                              notes=[*excerpt, *map(_shortened, notes)], help=_shortened(help))


def _shortened(value: Any) -> Any:
    """The text of ``value``, without its middle if it is very long."""
    text = readable_type(value) if isinstance(value, Type) else str(value)
    if value is None or len(text) <= _LONGEST:
        return value
    return f"{text[: _LONGEST // 2]} .. {text[-_LONGEST // 2 :]}"


def readable_type(type_: Type) -> str:
    """The text of ``type_``, truncated if it is very long."""
    return type_text(type_, limit=_FURTHEST)


def counted(count: int, noun: str) -> str:
    """``1 argument``, ``2 arguments``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def signature_help(op: Op) -> str:
    """The signature and summary of an operator, as a last resort for errors."""
    about = op.doc.strip().splitlines()[0] if op.doc.strip() else "see its documentation"
    return f"{op.name}({', '.join(op.inputs)}): {about}"


def argument_name(call: expr.Call, index: int) -> str:
    """``argument 1 (weight)``; counts from 0, like ``call.args``."""
    names = call.op.inputs if isinstance(call.op, Op) else ()
    name = f" ({names[index].lstrip('*')})" if index < len(names) else ""
    return f"argument {index}{name}"


def argument_notes(call: expr.Call, types: Sequence[Type]) -> list[str]:
    """One line per argument with its type."""
    lines = [
        f"{argument_name(call, i)}: {readable_type(t)}"
        for i, t in enumerate(types[:_SHOWN_ARGUMENTS])
    ]
    if len(types) > _SHOWN_ARGUMENTS:
        lines.append(f"and {len(types) - _SHOWN_ARGUMENTS} more arguments")
    return lines


def raise_collected(errors: Sequence[WeftError]) -> None:
    """Raise a single error unchanged, several as a list under one heading."""
    if not errors:
        return
    if len(errors) == 1:
        only = errors[0]
        raise TypeInferenceError(only.what, where=only.where, expected=only.expected, got=only.got,
                                 notes=only.notes, help=only.help, errors=errors)
    notes: list[str] = []
    for error in errors[:_SHOWN_ERRORS]:
        notes.extend(error.render().splitlines())
    if len(errors) > _SHOWN_ERRORS:
        notes.append(f"and {len(errors) - _SHOWN_ERRORS} more")
    raise TypeInferenceError(f"{len(errors)} type errors", notes=notes, errors=errors)
