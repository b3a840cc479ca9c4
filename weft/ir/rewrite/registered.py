"""Users' rewrite rules: checking them, and registering them for every compilation."""

from __future__ import annotations

from collections.abc import Iterable

from weft.ir.rewrite.driver import Rule, RuleSet
from weft.support.errors import OptionError
from weft.support.registry import Registry

# Group -> the pass that applies its rules.
RULE_GROUPS = {"simplify": "simplify_expr"}
REGISTERED_RULES: Registry[Rule] = Registry("registered rule")


def register_rule(rule: Rule) -> Rule:
    """Make a rule take part in every compilation; usable as a decorator above ``@rule``.

    ``simplify_expr`` applies it, before weft's own rules. Raises ``OptionError`` for a group that
    is not in ``RULE_GROUPS``, ``RegistryError`` for a name in use.
    """
    check_rules([rule])
    return REGISTERED_RULES.register(rule.name, rule)


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
