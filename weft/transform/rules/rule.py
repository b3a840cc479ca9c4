"""Rules that look at one call and its operands."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

from weft.ir.expr import Call, Expr

# A typed call -> an expression of the same type and value, or None where the rule does not apply.
LocalRule: TypeAlias = Callable[[Call], Expr | None]


class LocalRules:
    """Rules by the name of the operator at the root of what they replace, in order of definition."""

    def __init__(self, *parts: LocalRules) -> None:
        self._by_op: dict[str, list[LocalRule]] = {}
        for part in parts:
            for name, rules in part._by_op.items():
                self._by_op.setdefault(name, []).extend(rules)

    def add(self, rule: LocalRule, *names: str) -> None:
        for name in names:
            self._by_op.setdefault(name, []).append(rule)

    def for_op(self, name: str) -> list[LocalRule]:
        return self._by_op.get(name, [])

    def __iter__(self) -> Iterator[LocalRule]:
        """Each rule once."""
        found = (rule for rules in self._by_op.values() for rule in rules)
        return iter(dict.fromkeys(found))


def local_rule(rules: LocalRules, *names: str) -> Callable[[LocalRule], LocalRule]:
    """Add the decorated rule to ``rules`` for calls of the named operators.

    The rule's docstring is its before and after, which a test runs.
    """

    def wrap(rule: LocalRule) -> LocalRule:
        rules.add(rule, *names)
        return rule

    return wrap
