"""Passes over the functional IR: base classes, registration, and running them.

A pass is a frozen dataclass: its fields are its options; class variables give its name and the
lowest ``opt_level`` at which it runs. ``run_pass`` infers types after every pass that changed the
program, so every pass may rely on ``checked_type``.

Facts are what passes need and provide. A pass names what it ``depends`` on and what it
``provides``: facts of the registry, such as ``graph_normal_form``, and attributes of the module. A
fact is known after a pass that provides it, until a pass changes the program without preserving it.
A fact with a predicate ``holds`` is also looked up in the program itself, so a program that is in
the right form needs no pass that makes it.

Pipelines are text: ``fold_constant,fuse_ops{max_depth=8},dead_code_elimination``. Options are in
braces, separated by commas. A tuple is in parentheses, with spaces between its items
(``skip=(nn.dropout nn.lrn)``); a single item needs no parentheses. ``none`` is ``None`` for an
option that may be ``None``.
"""

from __future__ import annotations

import dataclasses
import re
import time
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any, ClassVar, Protocol, TypeVar, overload

from weft.ir.contents import Seeks
from weft.ir.expr import Function
from weft.ir.module import IRModule, KnownFacts
from weft.ir.typing.infer import infer_type
from weft.support.dataclass import dataclass
from weft.support.errors import InternalError, PassError, TypeInferenceError, WeftError
from weft.support.insertion import Insertion, pass_at
from weft.support.registry import Registry
from weft.support.suggestion import did_you_mean
from weft.support.user_code import location_in_traceback, location_of


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


class Instrument(Protocol):
    """Observes passes; called before and after each pass that runs."""

    def before_pass(self, pass_: Pass, mod: IRModule) -> None:
        """``mod`` is the module that the pass is about to transform."""
        ...

    def after_pass(self, pass_: Pass, before: IRModule, after: IRModule, seconds: float) -> None:
        """``after is before`` if the pass changed nothing."""
        ...


@dataclass(frozen=True)
class PassContext:
    """The compilation that a pass is part of: its options and instruments.

    ``target`` is opaque to this layer. ``config`` holds objects that a text form cannot give, such
    as tables of hooks.
    """

    opt_level: int = 3
    target: Any = None
    instruments: Sequence[Instrument] = ()
    config: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Pass:
    """Base of all passes, ``IRModule -> IRModule``; returning the argument means "no change"."""

    name: ClassVar[str]
    opt_level: ClassVar[int] = 0
    # Names of facts (``ir.facts``) or of attributes of the module. ``depends``: required before the
    # pass runs. ``provides``: true of its result. ``preserves``: still true of the result if true
    # before.
    depends: ClassVar[tuple[str, ...]] = ()
    provides: ClassVar[tuple[str, ...]] = ()
    preserves: ClassVar[tuple[str, ...]] = ()
    # What a program must hold to be changed; ``None`` if any program may be.
    seeks: ClassVar[Seeks | None] = None

    def needs(self, mod: IRModule) -> tuple[str, ...]:  # noqa: ARG002
        """What the pass depends on to transform ``mod``: by default ``depends``."""
        return self.depends

    def run_module(self, mod: IRModule, ctx: PassContext) -> IRModule:  # noqa: ARG002
        """The transformed module; ``mod`` is typed."""
        raise InternalError(f"{type(self).__name__} does not define run_module")

    def __call__(self, mod: IRModule, ctx: PassContext | None = None) -> IRModule:
        """Run this pass alone: infer the types of ``mod``, run, and infer those of the result."""
        return run_pass(self, infer_type(mod), ctx or PassContext())

    def __str__(self) -> str:
        options = [
            f"{f.name}={option_text(getattr(self, f.name))}"
            for f in dataclasses.fields(self)
            if getattr(self, f.name) != f.default
        ]
        return f"{self.name}{{{','.join(options)}}}" if options else self.name


@dataclass(frozen=True)
class FunctionPass(Pass):
    """A pass over one function at a time; functions with ``primitive=True`` are skipped."""

    def run(self, fn: Function, ctx: PassContext) -> Function:  # noqa: ARG002
        """The transformed function; returning ``fn`` means "no change"."""
        raise InternalError(f"{type(self).__name__} does not define run")

    def run_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        found = {name: self.run(fn, ctx) for name, fn in mod.functions.items()
                 if not fn.attrs.get("primitive")}
        for result in found.values():
            _check_result(self, result, Function)
        return mod.with_functions(found)


PASSES: Registry[type[Pass]] = Registry("pass")
# Users' passes that run in every compilation, by name.
INSERTED_PASSES: Registry[Insertion[Pass]] = Registry("inserted pass")
P = TypeVar("P", bound=type[Pass])


@overload
def register_pass(cls: P) -> P: ...


@overload
def register_pass(*, phase: str | None = None, after: str | None = None,
                  before: str | None = None) -> Callable[[P], P]: ...


def register_pass(cls: P | None = None, *, phase: str | None = None, after: str | None = None,
                  before: str | None = None) -> P | Callable[[P], P]:
    """Register a pass class under its ``name``, for ``parse_pipeline`` and ``weft opt -p``.

    With a position, as in ``@register_pass(after="fold_constant")``, an instance with default
    options also runs in every compilation from then on; ``weft.pass_at`` explains positions.
    Raises ``PassError`` for a class without a name, ``RegistryError`` for a name in use.
    """
    if cls is not None:
        return _register(cls)
    if phase is None and after is None and before is None:
        raise PassError("register_pass() needs a position",
                        expected='@register_pass, or @register_pass(phase="optimized")')

    def wrap(cls: P) -> P:
        check_named(cls)
        insertion: Insertion[Pass] = pass_at(cls(), phase=phase, after=after, before=before)
        _register(cls)  # first, so that a pass whose name is in use is not inserted
        INSERTED_PASSES.register(cls.name, insertion)
        return cls

    return wrap


def _register(cls: P) -> P:
    check_named(cls)
    PASSES.register(cls.name, cls)
    return cls


def check_named(cls: type[Pass]) -> None:
    """Raise ``PassError`` for a pass class that does not define ``name``."""
    if not getattr(cls, "name", ""):
        raise PassError(f"the pass {cls.__name__} does not define a name",
                        help="add: name: ClassVar[str] = ...")


@dataclass(frozen=True)
class Sequential(Pass):
    """Passes in sequence; those with an ``opt_level`` above the context's are skipped."""

    name: ClassVar[str] = "sequential"
    passes: tuple[Pass, ...] = ()

    def run_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        for pass_ in self.passes:
            if pass_.opt_level <= ctx.opt_level:
                mod = run_pass(pass_, mod, ctx)
        return mod

    def __call__(self, mod: IRModule, ctx: PassContext | None = None) -> IRModule:
        return self.run_module(infer_type(mod), ctx or PassContext())

    def __str__(self) -> str:
        return ",".join(map(str, self.passes))


def run_pass(pass_: Pass, mod: IRModule, ctx: PassContext) -> IRModule:
    """Run one pass with the instruments of ``ctx``; the result is typed.

    Raises ``PassError`` if ``mod`` lacks what the pass needs, and if a user's pass fails with
    another error than a ``WeftError`` or leaves an ill-typed program; ``InternalError`` if one of
    weft's does.
    """
    if isinstance(pass_, Sequential):
        return pass_.run_module(mod, ctx)
    check_needs(pass_.name, pass_.needs(mod), mod, providers_of)
    for instrument in ctx.instruments:
        instrument.before_pass(pass_, mod)
    start = time.perf_counter()
    after = _with_facts(pass_, mod, _transform(pass_, mod, ctx))
    seconds = time.perf_counter() - start
    for instrument in reversed(ctx.instruments):
        instrument.after_pass(pass_, mod, after, seconds)
    return after


def providers_of(name: str) -> list[str]:
    """The registered passes that provide a fact or an attribute."""
    return [known for known in PASSES if name in PASSES.get(known).provides]


def _with_facts(pass_: Pass, before: IRModule, after: IRModule) -> IRModule:
    """``after`` with its known facts; ``PassError`` if a promised attribute is missing."""
    for name in pass_.provides:
        if name not in FACTS and name not in after.attrs:
            raise pass_failure(pass_, f"did not provide the attribute {name!r}")
    kept = before.known_facts if after is before \
        else before.known_facts.intersection(pass_.preserves)
    # For an unchanged module, identity tells more than a fact that can be looked up.
    names = kept.union(n for n in pass_.provides if n in FACTS
                       and (after is not before or FACTS.get(n).holds is None))
    if names == after.known_facts:
        return after
    return dataclasses.replace(after, facts=KnownFacts(after.functions, names))


def _transform(pass_: Pass, mod: IRModule, ctx: PassContext) -> IRModule:
    if pass_.seeks is not None and not pass_.seeks.may_be_in(mod.contents, ctx):
        return mod
    try:
        after = pass_.run_module(mod, ctx)
    except WeftError as error:
        if _is_own(pass_):
            raise
        if isinstance(error, TypeInferenceError):
            raise _ill_typed(pass_, error) from error
        where = location_in_traceback(error.__traceback__)
        raise error.at(where, f"in the pass {pass_.name}") from error
    except Warning:  # the user's filter turns warnings into errors
        raise
    except Exception as error:
        raise pass_failure(pass_, "failed", got=f"{type(error).__name__}: {error}") from error
    _check_result(pass_, after, IRModule)
    if after is mod:
        return mod
    try:
        return infer_type(after)
    except TypeInferenceError as error:
        raise _ill_typed(pass_, error) from error


def _ill_typed(pass_: Pass, error: TypeInferenceError) -> WeftError:
    return pass_failure(pass_, "left an ill-typed program", notes=error.render().splitlines())


def _is_own(pass_: Pass) -> bool:
    return type(pass_).__module__.startswith("weft.")


def _check_result(pass_: Pass, result: object, expected: type) -> None:
    if not isinstance(result, expected):
        raise pass_failure(pass_, f"returned {type(result).__name__}", expected=expected.__name__,
                       got=type(result).__name__)


def pass_failure(pass_: Pass, what: str, *, expected: object = None, got: object = None,
             notes: Sequence[str] = ()) -> WeftError:
    """``PassError`` at the user's code for a user's pass, ``InternalError`` for one of weft's."""
    message = f"the pass {pass_.name} {what}"
    if _is_own(pass_):
        return InternalError(message, expected=expected, got=got, notes=notes,
                             help="report this with the model; leave the pass out to go on")
    method = getattr(type(pass_), "run", type(pass_).run_module)
    return PassError(message, where=location_of(method), expected=expected, got=got, notes=notes)


def option_text(value: Any) -> str:
    """The text of an option's value, as ``parse_pipeline`` reads it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (tuple, frozenset)):
        items = sorted(value) if isinstance(value, frozenset) else value
        return f"({' '.join(map(option_text, items))})"
    return "none" if value is None else str(value)


_ITEM = re.compile(r"\s*([A-Za-z_][\w.]*)\s*(?:\{([^{}]*)\})?\s*(,|$)")
_REFUSED = object()


def parse_pipeline(text: str) -> Sequential:
    """The passes of ``text``.

    Raises ``PassError`` for wrong syntax or options, ``RegistryError`` for unknown passes.
    """
    passes: list[Pass] = []
    position = 0
    while position < len(text):
        match = _ITEM.match(text, position)
        if match is None:
            raise PassError("syntax error in a pipeline of passes", where=f"column {position + 1}",
                            expected="name or name{option=value,option=value}, separated by commas",
                            got=repr(text[position : position + 30]))
        passes.append(_make(match[1], match[2] or ""))
        position = match.end()
    return Sequential(tuple(passes))


def _make(name: str, options: str) -> Pass:
    cls = PASSES.get(name)
    hints = typing.get_type_hints(cls)
    fields = {f.name: f for f in dataclasses.fields(cls)}
    values: dict[str, Any] = {}
    for option in filter(None, (item.strip() for item in options.split(","))):
        key, equals, text = (field.strip() for field in option.partition("="))
        if key not in fields:
            raise PassError(f"unknown option {key!r} of the pass {name}",
                            expected=", ".join(fields) or "no options",
                            help=did_you_mean(key, fields))
        # ``verbose`` alone means ``verbose=true``.
        value = _read(text if equals else "true", hints[key])
        if value is _REFUSED:
            raise PassError(f"option {key!r} of the pass {name} has the wrong type",
                            expected=getattr(hints[key], "__name__", str(hints[key])),
                            got=repr(text))
        values[key] = value
    return cls(**values)


def _read(text: str, hint: Any) -> Any:
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        options = typing.get_args(hint)
        if text == "none" and type(None) in options:
            return None  # before a member such as ``str`` reads it as a value
        found = (_read(text, option) for option in options)
        return next((value for value in found if value is not _REFUSED), _REFUSED)
    if origin in (tuple, frozenset):
        inner = text[1:-1] if text.startswith("(") and text.endswith(")") else text
        items = [_read(item, typing.get_args(hint)[0]) for item in inner.split()]
        return _REFUSED if _REFUSED in items else origin(items)
    if hint is type(None):
        return None if text == "none" else _REFUSED
    if hint is bool:
        return {"true": True, "false": False}.get(text.lower(), _REFUSED)
    if hint in (int, float):
        try:
            return hint(text)
        except ValueError:
            return _REFUSED
    return text if hint is str else _REFUSED
