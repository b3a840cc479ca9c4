"""What functions of tensors have in common: keywords, ``out=``, and errors of arguments.

The ``def`` of a public function is its signature, in torch's order and with torch's keywords.
``public`` reads it once and adds what all functions take: NumPy's names for keywords, ``out=``, and
an error that offers the nearest keyword. ``factory`` adds what functions that make tensors take.
Elementwise families are rows: ``exp = row("exp", "e to the power of the input.", unary, "exp")``.
"""

from __future__ import annotations

import functools
import inspect
import sys
import warnings
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from weft.eager.cell import MODE, Cell, bind, node_of, spec_of_cell
from weft.eager.device import get_default_device, resolved
from weft.eager.record import record
from weft.support.errors import InvalidInputError
from weft.support.suggestion import did_you_mean

# NumPy's keyword -> torch's.
NUMPY_KEYWORDS = {"axis": "dim", "keepdims": "keepdim", "x": "input", "a": "input", "x1": "input",
                  "x2": "other"}
_OUT = inspect.Parameter("out", inspect.Parameter.KEYWORD_ONLY, default=None)
_FACTORY = ("layout", "device", "pin_memory", "requires_grad")


class ArgumentError(InvalidInputError, TypeError):
    """A function is called with arguments that its signature does not have."""


def public(function: Callable[..., Any], *more: str) -> Callable[..., Any]:
    """The public form of a function whose ``def`` is its signature; ``more`` are the keywords that
    its caller takes.
    """
    signature = inspect.signature(function)
    takes_out = "out" not in signature.parameters
    names = frozenset((*signature.parameters, "out", *more))
    # The sizes or axes that may come one by one may also come by keyword.
    listed = next((n for n, p in signature.parameters.items() if p.kind is p.VAR_POSITIONAL), "")
    before = _before(signature, listed) if listed else []

    @functools.wraps(function)
    def call(*args: Any, **named: Any) -> Any:
        out = named.pop("out", None) if named and takes_out else None
        if named:
            if not named.keys() <= names:
                named = renamed(function.__name__, named, names)
            if listed in named:
                args = (*args, *[named.pop(n) for n in before[len(args):]], named.pop(listed))
        try:
            found = function(*args, **named)
        except TypeError as error:
            raise _refused(function, signature, error) from error
        return found if out is None else written(out, found)

    if takes_out:
        call.__signature__ = with_keywords(signature, _OUT)  # type: ignore[attr-defined]
    return call


F = TypeVar("F", bound=Callable[..., Any])


def checked(function: F) -> F:
    """The public form of a function that takes no ``out=`` and no names of NumPy: arguments that
    do not fit are errors that offer the nearest keyword.
    """

    @functools.wraps(function)
    def call(*args: Any, **named: Any) -> Any:
        try:
            return function(*args, **named)
        except TypeError as error:
            if named and _is_of_call(error):
                known = inspect.signature(function).parameters
                renamed(function.__name__, named, frozenset(known), {})
            raise _refused(function, None, error) from error

    return call  # type: ignore[return-value]


def _before(signature: inspect.Signature, last: str) -> list[str]:
    """The parameters before ``last``."""
    names = list(signature.parameters)
    return names[:names.index(last)]


def _refused(function: Callable[..., Any], signature: inspect.Signature | None, error: TypeError
             ) -> TypeError:
    """The error of a call that the signature does not fit; others unchanged."""
    if not _is_of_call(error):
        return error
    shown = _shown(inspect.signature(function) if signature is None else signature)
    return ArgumentError(f"the arguments do not fit {function.__name__}{shown}", got=str(error))


def _is_of_call(error: TypeError) -> bool:
    """Whether the arguments of a call are what is wrong, not what runs in it."""
    trace = error.__traceback__
    return trace is not None and trace.tb_next is None and not isinstance(error, ArgumentError)


def _shown(signature: inspect.Signature) -> str:
    """The names and defaults of a signature, without types."""
    plain = [p.replace(annotation=inspect.Parameter.empty) for p in signature.parameters.values()]
    return str(inspect.Signature(plain))


def with_keywords(signature: inspect.Signature, *more: inspect.Parameter) -> inspect.Signature:
    """A signature with more keywords, before ``**named`` if it has that."""
    have = list(signature.parameters.values())
    rest = [p for p in have if p.kind is inspect.Parameter.VAR_KEYWORD]
    kept = [p for p in have if p not in rest and p.name not in {m.name for m in more}]
    return signature.replace(parameters=[*kept, *more, *rest])


def renamed(function: str, named: dict[str, Any], known: frozenset[str],
            spellings: Mapping[str, str] = NUMPY_KEYWORDS) -> dict[str, Any]:
    """Keywords in torch's spelling. Raises ``ArgumentError`` for unknown ones."""
    found = {}
    for name, value in named.items():
        own = name if name in known else spellings.get(name, name)
        if own not in known:
            raise ArgumentError(f"{function} has no keyword {name!r}",
                                expected=", ".join(sorted(known)),
                                help=did_you_mean(name, known))
        found[own] = value
    return found


def written(out: Any, found: Any) -> Any:
    """``out``, a tensor or several, after it was made to hold a result."""
    if isinstance(found, tuple):
        if not isinstance(out, (tuple, list)) or len(out) != len(found):
            raise ArgumentError(f"out= takes {len(found)} tensors", got=type(out).__name__)
        parts = [written(one, value) for one, value in zip(out, found, strict=True)]
        return type(found)(*parts) if hasattr(found, "_fields") else tuple(parts)
    if not isinstance(out, Cell):
        raise ArgumentError("out= takes a tensor", got=type(out).__name__)
    node, spec = node_of(found), spec_of_cell(out)
    if node.sig.out.dtype.rank > spec.dtype.rank:
        raise InvalidInputError("out=: the result cannot be converted to the tensor's dtype",
                                expected=repr(spec.dtype), got=repr(node.sig.out.dtype))
    if MODE.grad and (node.grad is not None or node_of(out).grad is not None):
        raise InvalidInputError("out= of a result that requires a gradient",
                                help="compute it inside `with weft.no_grad():`")
    if node.sig.out.shape == spec.shape:
        return out.copy_(found)  # type: ignore[attr-defined] - of tensors
    if 0 not in spec.shape:
        warnings.warn(f"out= of shape {spec.shape} becomes {node.sig.out.shape}", stacklevel=4)
    bind(out, record("cast", (node,), {"dtype": spec.dtype.ir}))
    return out


def factory(function: Callable[..., Any]) -> Callable[..., Any]:
    """The public form of a function that makes a tensor, with ``device`` and ``requires_grad``.

    The tensor is made on the device of the first argument, if that is a tensor, else on the default
    device; ``device`` makes another the default inside. ``layout``, ``pin_memory`` and
    ``memory_format`` are torch's; tensors here are dense, in row-major order, so they change
    nothing.
    """
    signature = inspect.signature(function)
    inner = public(function, *_FACTORY)

    @functools.wraps(function)
    def call(*args: Any, **named: Any) -> Any:
        where = None
        if args and isinstance(args[0], Cell):
            where = spec_of_cell(args[0]).device
        if named:
            given = named.pop("device", None)
            if given is not None:
                where = resolved(given)
            elif where is None and isinstance(named.get("input"), Cell):
                where = spec_of_cell(named["input"]).device
            requires_grad = named.pop("requires_grad", False)
            for name in ("layout", "pin_memory", "memory_format"):
                named.pop(name, None)
        else:
            requires_grad = False
        if where is None or where is get_default_device():
            found = inner(*args, **named)
        else:
            with where:
                found = inner(*args, **named)
        return found.requires_grad_() if requires_grad else found

    more = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY,
                              default=None if name in ("layout", "device") else False)
            for name in _FACTORY]
    call.__signature__ = with_keywords(signature, _OUT, *more)  # type: ignore[attr-defined]
    return call


_UNARY, _BINARY = [inspect.Signature([*[
    inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in names], _OUT])
    for names in (("input",), ("input", "other"))]


def row(name: str, text: str, apply: Callable[..., Any], *first: Any) -> Callable[..., Any]:
    """The elementwise function ``name`` of one tensor: ``apply(*first, input)``."""

    def call(input: Any, *, out: Any = None, **named: Any) -> Any:
        if named:
            renamed(name, named, frozenset(("input", "out")))
        found = apply(*first, input)
        return found if out is None else written(out, found)

    return _named(call, name, text, _UNARY)


def pair(name: str, text: str, apply: Callable[..., Any], *first: Any, **defaults: Any
         ) -> Callable[..., Any]:
    """The elementwise function ``name`` of two operands: ``apply(*first, input, other)``.

    ``defaults`` are further keywords of ``apply``.
    """
    names = frozenset(("input", "other", "out", *defaults))

    def call(input: Any, other: Any, *, out: Any = None, **named: Any) -> Any:
        if named:
            named = renamed(name, named, names)
            found = apply(*first, input, other, **named)
        else:
            found = apply(*first, input, other)
        return found if out is None else written(out, found)

    more = [inspect.Parameter(n, inspect.Parameter.KEYWORD_ONLY, default=value)
            for n, value in defaults.items()]
    return _named(call, name, text, with_keywords(_BINARY, *more))


def _named(call: Any, name: str, text: str, signature: inspect.Signature) -> Callable[..., Any]:
    call.__name__ = call.__qualname__ = name
    call.__doc__ = text
    call.__module__ = sys._getframe(2).f_globals["__name__"]  # noqa: SLF001 - as namedtuple does
    call.__signature__ = signature
    return call
