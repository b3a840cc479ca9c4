"""Rewrite rules as data, sets of them, and those that users register for every compilation.

A rule is a pattern, a function from the captured expressions to the new expression, and a
docstring that shows a program before and after; ``driver.check_rule_docstring`` executes it.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeAlias

from weft.ir.expr import Call, Expr
from weft.ir.op import Op
from weft.ir.rewrite.matcher import matches
from weft.ir.rewrite.pattern import AltTerm, Term, captured_names, may_start_at, root_ops
from weft.ir.rewrite.quick_test import Test, quick_test
from weft.support.dataclass import dataclass
from weft.support.deprecation import warn_renamed
from weft.support.errors import OptionError, RegistryError
from weft.support.interpreter import interrupts_held
from weft.support.registry import Registry


@dataclass(frozen=True, slots=True)
class NoMatch:
    """A rule's refusal, with the reason that ``WEFT_EXPLAIN`` shows."""

    reason: str


@dataclass(frozen=True, slots=True, eq=False)
class Rule:
    """A rewriting of expressions that match ``pattern``.

    ``function`` takes captured names as parameters (``None`` if an optional part is missing)
    and ``call``, the whole expression; it returns the new expression, or ``NoMatch``.
    """

    name: str
    pattern: Term
    function: Callable[..., Expr | NoMatch]
    group: str = ""
    doc: str = ""
    where: str = ""
    parameters: tuple[str, ...] = ()

    def apply(self, expr: Expr) -> Expr | NoMatch | None:
        """The new expression; a refusal; or ``None`` if the pattern does not match."""
        refusal: NoMatch | None = None
        for captured in matches(self.pattern, expr):
            values = {**captured, "call": expr}
            result = self.function(**{p: values.get(p) for p in self.parameters})
            if not isinstance(result, NoMatch):
                return result
            refusal = refusal or result
        return refusal

    def __str__(self) -> str:
        return f"{self.name} ({self.where})"


# Every rule, by name, with its source location: the names that WEFT_EXPLAIN accepts.
KNOWN_RULES: dict[str, str] = {}
# Group -> the pass that applies its rules.
RULE_GROUPS = {"simplify": "simplify_expr"}
REGISTERED_RULES: Registry[Rule] = Registry("registered rule")


def rule(*patterns: Term, group: str = "", register: bool = False
         ) -> Callable[[Callable[..., Expr | NoMatch]], Rule]:
    """Make a rule of the decorated function; several patterns are alternatives.

    With ``register`` the rule takes part in every compilation from then on: ``simplify_expr``
    applies it, before weft's own rules. Without, it is for ``weft.compile(model, rules=[..])`` and
    for rule sets.

    Raises ``RegistryError`` if a parameter is not a captured name, the docstring is missing, or the
    name of a registered rule is in use; ``OptionError`` if the group of a registered rule is not in
    ``RULE_GROUPS``.
    """
    def wrap(function: Callable[..., Expr | NoMatch]) -> Rule:
        made = _rule(function, patterns, group)
        return registered(made) if register else made

    return wrap


def _rule(function: Callable[..., Expr | NoMatch], patterns: tuple[Term, ...], group: str) -> Rule:
    pattern = patterns[0] if len(patterns) == 1 else AltTerm(patterns)
    parameters = tuple(inspect.signature(function).parameters)
    known = {*captured_names(pattern), "call"}
    for parameter in parameters:
        if parameter not in known:
            raise RegistryError(f"rule {function.__name__}: {parameter!r} is not captured",
                                expected=", ".join(sorted(known)))
    doc = inspect.getdoc(function)
    if not doc:
        raise RegistryError(f"missing docstring of rule {function.__name__}",
                            help="show a program before and after, with => between them")
    code = function.__code__
    where = f"{Path(code.co_filename).name}:{code.co_firstlineno}"
    KNOWN_RULES.setdefault(function.__name__, where)
    return Rule(function.__name__, pattern, function, group, doc, where, parameters)


def registered(rule_: Rule) -> Rule:
    """Let a rule take part in every compilation; raises what ``rule`` raises for ``register``."""
    check_rules([rule_])
    return REGISTERED_RULES.register(rule_.name, rule_)


def register_rule(rule_: Rule) -> Rule:
    """The old name of ``rule(..., register=True)``, which decorated a rule."""
    warn_renamed("weft.register_rule", "weft.rule(..., register=True)")
    return registered(rule_)


class RuleModule:
    """The set ``RULES`` of a module, which is imported for the first call that may match a rule.

    ``starts`` says which calls these are, as ``pattern.starts_of`` writes it.
    """

    def __init__(self, module: str, starts: str) -> None:
        self.module = module
        self._operands: dict[str, list[frozenset[str]]] = {}
        for start in starts.split():
            root, _, operands = start.partition(":")
            needed = frozenset(filter(None, operands.split(",")))
            self._operands.setdefault(root, []).append(needed)
        self._loaded: RuleSet | None = None

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The rules; importing the module makes them."""
        if self._loaded is None:
            with interrupts_held():
                self._loaded = importlib.import_module(self.module).RULES
        return self._loaded.rules

    @property
    def is_loaded(self) -> bool:
        """Whether the rules are needed: they are loaded, or may match any expression."""
        return self._loaded is not None or "*" in self._operands

    def may_start_at(self, operator: Op | None) -> bool:
        """Whether a match can start with a call of ``operator``."""
        return operator is not None and operator.name in self._operands

    def may_match(self, expr: Expr) -> bool:
        """Whether a call, of an operator at which a match can start, may match a rule."""
        if not isinstance(expr, Call) or not isinstance(expr.op, Op):
            return False
        present = {arg.op.name for arg in expr.args
                   if isinstance(arg, Call) and isinstance(arg.op, Op)}
        return any(map(present.issuperset, self._operands[expr.op.name]))


# The rules that may match a call of an operator, and the modules that no call has needed so far.
_Starting: TypeAlias = "tuple[list[tuple[Rule, Test | None]], list[RuleModule]]"


class RuleSet:
    """Rules in order of preference, indexed by the operator at their root."""

    def __init__(self, *rules: Rule | RuleSet | RuleModule) -> None:
        flat: list[Rule | RuleModule] = []
        for item in rules:
            flat.extend(item.parts if isinstance(item, RuleSet) else (item,))
        self.parts = tuple(flat)
        self._starting: dict[Op | None, _Starting] = {}

    @property
    def rules(self) -> tuple[Rule, ...]:
        """All rules; modules of rules are imported."""
        return tuple(rule_ for part in self.parts for rule_ in _rules_of(part))

    def candidates(self, expr: Expr) -> list[Rule]:
        """The rules whose pattern may match ``expr``, as far as a quick test tells."""
        operator = expr.op if type(expr) is Call and type(expr.op) is Op else None
        starting = self._starting.get(operator)
        if starting is None:
            starting = self._starting[operator] = self._starting_at(operator)
        tests, waiting = starting
        if not tests and not waiting:  # true of most leaves
            return []
        needed = [part for part in waiting if part.may_match(expr)] if waiting else ()
        if needed:
            for part in needed:
                _ = part.rules
            tests, _ = self._starting[operator] = self._starting_at(operator)
        return [rule for rule, test in tests if test is None or test(expr)]

    def _starting_at(self, operator: Op | None) -> _Starting:
        """What may match a call of ``operator``; for ``None`` any other expression."""
        found, waiting = [], [part for part in self.parts if isinstance(part, RuleModule)
                              and not part.is_loaded]
        for rule_ in (r for part in self.parts if part not in waiting for r in _rules_of(part)):
            names = root_ops(rule_.pattern)
            named = names is None or (operator is not None and operator.name in names)
            if named and may_start_at(rule_.pattern, operator):
                found.append((rule_, quick_test(rule_.pattern)))
        return found, [part for part in waiting if part.may_start_at(operator)]

    def __add__(self, other: RuleSet) -> RuleSet:
        return RuleSet(self, other)

    def __iter__(self) -> Iterator[Rule]:
        return iter(self.rules)

    def __len__(self) -> int:
        return len(self.rules)


def _rules_of(part: Rule | RuleModule) -> tuple[Rule, ...]:
    return (part,) if isinstance(part, Rule) else part.rules


def check_rules(rules: Iterable[Rule | RuleSet]) -> tuple[Rule, ...]:
    """The rules with rule sets flattened; ``OptionError`` for other values and unknown groups.

    A rule without a group belongs to ``simplify``.
    """
    if isinstance(rules, Rule) or not isinstance(rules, Iterable):
        raise OptionError("rules is not a list", got=repr(rules), expected="rules=[my_rule]")
    flat: list[Rule] = []
    for item in rules:
        if isinstance(item, RuleSet):
            flat.extend(item.rules)
        elif isinstance(item, Rule):
            flat.append(item)
        else:
            raise OptionError("not a rewrite rule", got=repr(item),
                              expected="a function decorated with @weft.ir.rule(pattern)")
    for rule in flat:
        if rule.group and rule.group not in RULE_GROUPS:
            raise OptionError(f"unknown group {rule.group!r} of the rule {rule.name}",
                              where=rule.where, expected=", ".join(RULE_GROUPS))
    return tuple(flat)
