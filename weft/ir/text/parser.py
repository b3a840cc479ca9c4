"""The parser of the text form: whole modules, single expressions, single types.

``parse(str(mod))`` is structurally equal to ``mod``. Errors carry line, column and a caret. The
grammar is imported with the first text: most models are none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from weft.ir.expr import Expr
from weft.ir.module import IRModule
from weft.ir.shape import KnownDim
from weft.ir.types import Type
from weft.support.errors import ParseError

if TYPE_CHECKING:
    from weft.ir.text.parse_module import ModuleParser


def parse(text: str, *, source: str = "<text>", into: IRModule | None = None) -> IRModule:
    """The module in ``text``; a single expression becomes ``@main``. Raises ``ParseError``.

    With ``into``, the definitions of that module are in scope and become part of the result.
    """
    return _parsed(lambda parser: parser.module(), text, source, into)


def parse_expr(text: str, *, source: str = "<text>", into: IRModule | None = None) -> Expr:
    """The expression in ``text``; ``free_var %x: T;`` declares free variables."""
    return _parsed(lambda parser: parser.lone_expression(), text, source, into)


def parse_type(text: str, *, source: str = "<text>") -> Type:
    """The type in ``text``: ``Tensor[(2, n), float32]``, ``List[int32]``."""
    return _parsed(lambda parser: parser.lone_type(), text, source)


def parse_dim(text: str, *, source: str = "<text>") -> KnownDim:
    """The symbolic size in ``text``: ``2*n + 1``, which may be negative."""
    return _parsed(lambda parser: parser.lone_dim(), text, source)


def _parsed(part: Callable[[ModuleParser], Any], text: str, source: str,
            into: IRModule | None = None) -> Any:
    from weft.ir.text.parse_module import ModuleParser

    try:
        return part(ModuleParser(text, source, into))
    except RecursionError:
        raise ParseError("attribute values are nested too deeply", where=source) from None
