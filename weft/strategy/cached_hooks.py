"""Cached results of a target's hooks: if all are in the cache, no strategy is imported.

A result depends on the operator, the attributes, the types of the arguments, which of these are
constants, and the target. Its key covers them, and weft's sources as all keys do. The cache is read
until something in the process imports the strategies themselves, which users may change from then
on.
"""

from __future__ import annotations

import functools
import json
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from weft.ir import OPS, Attrs, Call, Constant, Expr, Op, PassContext, Type, is_static
from weft.ir.attrs import may_hold_floats
from weft.ir.deferred import is_finite
from weft.ir.json.values import load_value, save_value
from weft.strategy.registry import READ_FINITE, layout_hooks, legalizations
from weft.strategy.strategy_registry import has_strategies
from weft.support.cache import DiskCache, is_recording, open_cache
from weft.support.config import config
from weft.support.errors import InternalError
from weft.support.fingerprint import key_of
from weft.target import Target
from weft.transform.layout.layout_choice import AlterLayoutHook, LayoutChoice, LayoutChoices
from weft.transform.passes.legalize import LegalizeHook

A = TypeVar("A")


class NotCacheable(Exception):  # noqa: N818 - control flow, not an error
    """The result of a hook, or its call, cannot be written to the cache."""


class CachedHooks(Mapping[str, Callable[..., A]], Generic[A]):
    """The hooks that ``load`` gives by operator, with their results in the cache.

    The results of hooks in ``READ_FINITE`` also depend on whether constants are finite.
    """

    kind: str

    def __init__(self, target: Target, load: Callable[[], Mapping[str, Any]], cache: DiskCache
                 ) -> None:
        self._target = target
        self._load = load
        self._cache = cache
        self._hooks: Mapping[str, Any] | None = None
        self._answers: dict[_Question, str] = {}
        self._reads = not has_strategies(target.kind)

    @classmethod
    def of(cls, target: Target, load: Callable[[], Mapping[str, Callable[..., A]]]
           ) -> Mapping[str, Callable[..., A]]:
        """Cached hooks; those of ``load`` where the process has them already, or without a cache.

        A process that fills a store writes the results of weft's own hooks.
        """
        cache = open_cache()
        if cache is not None and not has_strategies(target.kind):
            return cls(target, load, cache)
        hooks = load()
        if cache is None or not is_recording() \
                or not all(hook.__module__.startswith("weft.") for hook in hooks.values()):
            return hooks
        return cls(target, load, cache)

    def __getitem__(self, name: str) -> Callable[..., A]:
        return self._hooks_by_name[name]

    def get(self, name: str, default: Any = None) -> Any:
        """As of any mapping; most operators have no hook, and passes ask for each call."""
        return self._hooks_by_name.get(name, default)

    @functools.cached_property
    def _hooks_by_name(self) -> dict[str, Callable[..., A]]:
        return {name: functools.partial(self._answer, reads_finite=reads_finite)
                for name, reads_finite in self._names.items()}

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    @abstractmethod
    def encoded(self, answer: A, call: Call) -> object:
        """The result for a call in types of JSON; raises ``NotCacheable``."""

    @abstractmethod
    def decoded(self, text: str, call: Call) -> A:
        """The inverse of ``encoded``."""

    @functools.cached_property
    def _names(self) -> dict[str, bool]:
        """The operators with hooks, and whether these are of ``READ_FINITE``."""
        key = key_of("hooked operators", self.kind, self._target.kind)
        found = self._cache.get(key)
        if found is not None:
            names: dict[str, bool] = json.loads(bytes(found))
            return names
        names = {name: hook in READ_FINITE for name, hook in self._loaded().items()}
        self._cache.put(key, json.dumps(names).encode())
        return names

    @functools.cached_property
    def _target_text(self) -> str:
        return str(self._target)

    def _loaded(self) -> Mapping[str, Any]:
        if self._hooks is None:
            self._hooks = self._load()
        return self._hooks

    def _answer(self, call: Call, types: Sequence[Type], context: Any, *, reads_finite: bool) -> A:
        try:
            question = _question(call, types, context, reads_finite=reads_finite)
            known = self._answers.get(question)
            key = "" if known is not None else key_of(self.kind, self._target_text, question.text)
        except (NotCacheable, InternalError):
            return self._asked(call, types, context)
        if known is not None:
            return self.decoded(known, call)
        may_read = self._reads and self._hooks is None
        found = self._cache.get(key) if may_read or is_recording() else None
        if found is not None and may_read:
            self._answers[question] = bytes(found).decode()
            return self.decoded(self._answers[question], call)
        answer = self._asked(call, types, context)
        try:
            text = json.dumps(self.encoded(answer, call))
        except (NotCacheable, InternalError):
            return answer
        self._cache.put(key, text.encode())
        self._answers[question] = text
        return answer

    def _asked(self, call: Call, types: Sequence[Type], context: Any) -> A:
        answer: A = self._loaded()[_name(call)](call, types, context)
        return answer


class CachedLayouts(CachedHooks[LayoutChoices]):
    """Layout hooks."""

    kind = "layouts"

    def encoded(self, answer: LayoutChoices, call: Call) -> object:
        """See ``CachedHooks``."""
        if answer is None:
            return None
        choices = [answer] if isinstance(answer, LayoutChoice) else answer
        return [[_saved_attrs(choice.attrs, call.op), choice.input_layouts, choice.output_layout,
                 choice.paddings, choice.cut, choice.seconds] for choice in choices]

    def decoded(self, text: str, call: Call) -> LayoutChoices:
        """See ``CachedHooks``."""
        return _choices(text, call.op)


@functools.lru_cache(maxsize=1024)
def _choices(text: str, operator: Expr) -> LayoutChoices:
    value = json.loads(text)
    return None if value is None else [
        LayoutChoice(_loaded_attrs(attrs, operator), *map(load_value, rest))
        for attrs, *rest in value]


class CachedLegalizations(CachedHooks["Expr | None"]):
    """Legalizations whose results are calls of operators on the arguments."""

    kind = "legalization"

    def encoded(self, answer: Expr | None, call: Call) -> object:
        """See ``CachedHooks``."""
        return None if answer is None else _saved(answer, call, set())

    def decoded(self, text: str, call: Call) -> Expr | None:
        """See ``CachedHooks``."""
        value = json.loads(text)
        return None if value is None else _restored(value, call)


def _name(call: Call) -> str:
    return call.op.name if isinstance(call.op, Op) else ""


class _Question(NamedTuple):
    """All that the result for a call depends on, besides the target.

    ``attrs_text`` tells attributes apart that compare equal: 0.0 and -0.0.
    """

    operator: Op
    attrs: Attrs
    attrs_text: str
    arguments: tuple[tuple[Type, bool, bool, bool], ...]
    result: Type | None
    winograd: tuple[object, object]

    @property
    def text(self) -> str:
        """The question as a part of a key; raises ``NotCacheable`` and ``InternalError``."""
        attrs = _saved_attrs(self.attrs, self.operator)
        arguments = [[str(type_), *flags] for type_, *flags in self.arguments]
        return json.dumps([self.operator.name, attrs, arguments, str(self.result), *self.winograd])


def _question(call: Call, types: Sequence[Type], context: Any, *, reads_finite: bool) -> _Question:
    if not isinstance(call.op, Op) or not all(map(is_static, types)):
        raise NotCacheable  # symbols have ranges and typical sizes
    arguments = tuple([
        (type_, arg.checked_type is None, isinstance(arg, Constant),
         reads_finite and isinstance(arg, Constant) and is_finite(arg.content))
        for arg, type_ in zip(call.args, types, strict=True)])
    facts = context.config if isinstance(context, PassContext) else {}
    text = ""
    if may_hold_floats(type(call.attrs)):
        text = json.dumps(_saved_attrs(call.attrs, call.op))
    return _Question(call.op, call.attrs, text, arguments, call.checked_type,
                     (config.winograd, facts.get("winograd")))


def _saved_attrs(attrs: Attrs, operator: Expr) -> object:
    saved = [[name, save_value(value)] for name, value in attrs.non_default_items()]
    if not isinstance(operator, Op) or _loaded_attrs(saved, operator) != attrs:
        raise NotCacheable
    return saved


def _loaded_attrs(saved: Any, operator: Expr) -> Attrs:
    made: Attrs = operator.attrs_type.make(  # type: ignore[attr-defined]
        {name: load_value(value) for name, value in saved})
    return made


def _saved(expr: Expr, call: Call, seen: set[int]) -> object:
    """An expression over the arguments of ``call``, each node of which has one use."""
    for number, arg in enumerate(call.args):
        if expr is arg:
            return number
    if not isinstance(expr, Call) or not isinstance(expr.op, Op) or id(expr) in seen \
            or expr.checked_type is not None or expr.span != call.span or expr.type_args:
        raise NotCacheable
    seen.add(id(expr))
    return [expr.op.name, _saved_attrs(expr.attrs, expr.op),
            [_saved(arg, call, seen) for arg in expr.args]]


def _restored(value: Any, call: Call) -> Expr:
    if isinstance(value, int):
        return call.args[value]
    name, attrs, args = value
    operator = OPS.get(name)
    return Call(operator, tuple(_restored(arg, call) for arg in args),
                _loaded_attrs(attrs, operator), span=call.span)


def cached_layout_hooks(target: Target) -> Mapping[str, AlterLayoutHook]:
    """The layout hooks of a target for ``AlterOpLayout``, by operator name."""
    return CachedLayouts.of(target, lambda: layout_hooks(target))


def cached_legalizations(target: Target) -> Mapping[str, LegalizeHook]:
    """The rewrites that ``Legalize`` applies for a target, by operator name."""
    return CachedLegalizations.of(target, lambda: legalizations(target))
