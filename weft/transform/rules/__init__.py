"""Rewrite rules by subject; ``simplify_expr`` applies ``SIMPLIFICATIONS``.

A module of rules is imported for the first call that one of them may match.
"""

from weft.ir.rewrite.rules import RuleModule, RuleSet
from weft.transform.index import RULES

# In order of preference.
_SUBJECTS = ("algebraic identities distributive division transpose matmul reshape reductions "
             "layout padding gather blocks")
SIMPLIFICATIONS = RuleSet(*(RuleModule(module, RULES.get(module, "*"))
                            for module in (f"{__name__}.{name}" for name in _SUBJECTS.split())))

__all__ = ["SIMPLIFICATIONS"]
