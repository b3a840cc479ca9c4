"""Passes, what they run with, and running several of them.

A pass is a frozen dataclass: its fields are its options, its class variables its name and the
optimisation level from which it runs. The manager infers types after every pass that changed
something, so that every pass may rely on ``checked_type``.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, TypeVar

from weft.ir.expr import Function
from weft.ir.module import IRModule
from weft.ir.typing.infer import infer_type
from weft.support.errors import InternalError, PassError, TypeInferenceError, WeftError
from weft.support.registry import Registry


class Instrument(Protocol):
    """Watches passes from outside; called around each pass that runs."""

    def before_pass(self, pass_: Pass, mod: IRModule) -> None:
        """``mod`` is what the pass will see."""
        ...

    def after_pass(self, pass_: Pass, before: IRModule, after: IRModule, seconds: float) -> None:
        """``after is before`` where the pass changed nothing."""
        ...


@dataclass(frozen=True)
class PassContext:
    """What passes may know of the compilation they belong to.

    ``target`` is opaque to this layer; ``config`` carries objects that have no text form, such as
    tables of hooks.
    """

    opt_level: int = 3
    target: Any = None
    instruments: Sequence[Instrument] = ()
    config: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Pass:
    """Base of all passes: ``IRModule -> IRModule``; returns its argument to say "no change"."""

    name: ClassVar[str]
    opt_level: ClassVar[int] = 0

    def run_module(self, mod: IRModule, ctx: PassContext) -> IRModule:  # noqa: ARG002
        """The transformed module; ``mod`` is typed."""
        raise InternalError(f"{type(self).__name__} does not define run_module")

    def __call__(self, mod: IRModule, ctx: PassContext | None = None) -> IRModule:
        """Run this pass alone, on a module that is typed first, and type the result."""
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
    """A pass that sees one function at a time; kernels (``primitive=True``) are left alone."""

    def run(self, fn: Function, ctx: PassContext) -> Function:  # noqa: ARG002
        """The transformed function; returns ``fn`` to say "no change"."""
        raise InternalError(f"{type(self).__name__} does not define run")

    def run_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        return mod.with_functions(
            {
                name: self.run(fn, ctx)
                for name, fn in mod.functions.items()
                if not fn.attrs.get("primitive")
            }
        )


PASSES: Registry[type[Pass]] = Registry("pass")
P = TypeVar("P", bound=type[Pass])


def register_pass(cls: P) -> P:
    """Make a pass known by its ``name``, to pipelines written as text and to the command line."""
    if not getattr(cls, "name", ""):
        raise PassError(f"{cls.__name__} has no name", help="add: name: ClassVar[str] = ...")
    PASSES.register(cls.name, cls)
    return cls


@dataclass(frozen=True)
class Sequential(Pass):
    """Passes one after the other; those above the context's ``opt_level`` are left out."""

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
    """One pass with its instruments; the result is typed.

    Raises ``InternalError`` where the pass fails on its own or leaves an ill-typed program.
    """
    if isinstance(pass_, Sequential):
        return pass_.run_module(mod, ctx)
    for instrument in ctx.instruments:
        instrument.before_pass(pass_, mod)
    start = time.perf_counter()
    after = _transform(pass_, mod, ctx)
    seconds = time.perf_counter() - start
    for instrument in reversed(ctx.instruments):
        instrument.after_pass(pass_, mod, after, seconds)
    return after


def _transform(pass_: Pass, mod: IRModule, ctx: PassContext) -> IRModule:
    try:
        after = pass_.run_module(mod, ctx)
    except WeftError:
        raise
    except Exception as error:
        raise InternalError(
            f"the pass {pass_.name} failed",
            got=f"{type(error).__name__}: {error}",
            help="report this with the model; leave the pass out to go on",
        ) from error
    if after is mod:
        return mod
    try:
        return infer_type(after)
    except TypeInferenceError as error:
        raise InternalError(
            f"the pass {pass_.name} left an ill-typed program",
            notes=error.render().splitlines(),
            help="report this with the model; leave the pass out to go on",
        ) from error


def option_text(value: Any) -> str:
    """An option's value as ``parse_pipeline`` reads it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (tuple, frozenset)):
        items = sorted(value) if isinstance(value, frozenset) else value
        return f"({' '.join(map(option_text, items))})"
    return "none" if value is None else str(value)
