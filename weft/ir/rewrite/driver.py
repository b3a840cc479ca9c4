"""The driver that applies rewrite rules to a fixed point, and what it counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any

from weft.ir.expr import Expr
from weft.ir.rewrite.rules import NoMatch, Rule, RuleSet
from weft.ir.structural import assert_structural_equal
from weft.ir.typing.infer import infer_expr, typed_call
from weft.ir.typing.node_rules import known_result
from weft.ir.typing.solver import TypeSolver, UnifyError
from weft.ir.visitor import Enter, children, post_order, replace_children, rewrite_post_order
from weft.support.dataclass import dataclass, replace
from weft.support.errors import (
    InternalError,
    PassError,
    RegistryError,
    TypeInferenceError,
    WeftError,
)

# Results of rules inside each other; each is rewritten before the one around it is done.
_MOST_STEPS = 256
_ENTER, _OPERANDS, _RESULT = "enter", "operands", "result"
_CHANGED = "changed the type of an expression"


@dataclass(eq=False)
class RewriteStats:
    """How often each rule was tried and applied, and its reasons to refuse.

    A pass gets one from ``PassContext.config["rewrite_stats"]``.
    """

    tried: Counter[str] = field(default_factory=Counter)
    applied: Counter[str] = field(default_factory=Counter)
    refused: dict[str, Counter[str]] = field(default_factory=dict)

    def note(self, rule_: Rule, outcome: Expr | NoMatch | None) -> None:
        self.tried[rule_.name] += 1
        if isinstance(outcome, NoMatch):
            self.refused.setdefault(rule_.name, Counter())[outcome.reason] += 1
        elif outcome is not None:
            self.applied[rule_.name] += 1

    def clear(self) -> None:
        """Reset all counts."""
        self.tried.clear()
        self.applied.clear()
        self.refused.clear()

    def explain(self, name: str) -> str:
        """``tried 14, applied 3, refused 11: scale is not per output channel (11)``."""
        reasons = self.refused.get(name, Counter())
        text = f"{name}: tried {self.tried[name]}, applied {self.applied[name]}"
        if reasons:
            listed = ", ".join(f"{reason} ({count})" for reason, count in reasons.most_common())
            text += f", refused {sum(reasons.values())}: {listed}"
        return text


def apply_rules(expr: Expr, rules: RuleSet, *, stats: RewriteStats | None = None,
                enter: Enter | None = None) -> Expr:
    """Rewrite ``expr`` with ``rules`` until none applies; ``expr`` itself if none did.

    Operands are rewritten first. In a typed program rules see types and the result is typed; a
    rule that changes the type of an expression raises an error. ``enter`` excludes parts of the
    program from the walk. Raises ``PassError`` naming the rules of a cycle.
    """
    return _Rewriting(rules, stats, enter).rewrite(expr)


class _Rewriting:
    """One walk in post-order, which enters the result of a rule as soon as it is made."""

    def __init__(self, rules: RuleSet, stats: RewriteStats | None, enter: Enter | None) -> None:
        self.rules = rules
        self.stats = stats
        self.enter = enter
        # The rewritten form of each node; no rule applies to those that stand for themselves.
        self.done: dict[Expr, Expr] = {}
        # The rules whose results are being rewritten, innermost last.
        self.applied: list[str] = []
        self.applied_any = False

    def rewrite(self, root: Expr) -> Expr:
        done = self.done
        for node in post_order(root, enter=self.enter):
            if node in done:  # part of a result
                continue
            current = self._over_rewritten(node) if self.applied_any else node
            candidates = self.rules.candidates(current)
            step = None
            if candidates and current not in done:
                step = _first_step(current, candidates, self.stats)
            if step is None:
                done[node] = done.setdefault(current, current)
            else:
                self._settle(node, *step)
        return done[root]

    def _settle(self, node: Expr, rule_: Rule, result: Expr) -> None:
        """Rewrite ``result``, which a rule made of ``node``, and all that rules make of it."""
        done, stack = self.done, list[tuple[Expr, str]]()
        self._push(node, rule_, result, stack)
        while stack:
            node, step = stack.pop()
            if step is _RESULT:
                self.applied.pop()
                before = stack.pop()[0]
                done[before] = done[node]
            elif step is _OPERANDS:
                self._visit(node, stack)
            elif node not in done:
                waiting = [(part, _ENTER) for part in self._parts(node) if part not in done]
                if waiting:
                    stack.append((node, _OPERANDS))
                    stack += waiting[::-1]
                else:
                    self._visit(node, stack)

    def _push(self, node: Expr, rule_: Rule, result: Expr, stack: list[tuple[Expr, str]]) -> None:
        self.applied_any = True
        self.applied.append(rule_.name)
        if len(self.applied) > _MOST_STEPS:
            raise _cycle(self.applied)
        stack += ((node, _RESULT), (result, _RESULT), (result, _ENTER))

    def _parts(self, node: Expr) -> tuple[Expr, ...]:
        return children(node) if self.enter is None or self.enter(node) else ()

    def _over_rewritten(self, node: Expr) -> Expr:
        """``node`` over its rewritten operands; rules keep types, so it has the type it had."""
        parts = self._parts(node)
        return replace_children(node, [self.done[part] for part in parts]) if parts else node

    def _visit(self, node: Expr, stack: list[tuple[Expr, str]]) -> None:
        """Apply the first rule that matches ``node``, whose operands are done."""
        current = self._over_rewritten(node)
        step = None if current in self.done \
            else _first_step(current, self.rules.candidates(current), self.stats)
        if step is None:
            self.done[node] = self.done.setdefault(current, current)
        else:
            self._push(node, *step, stack)


def _first_step(node: Expr, candidates: Sequence[Rule], stats: RewriteStats | None
                ) -> tuple[Rule, Expr] | None:
    for candidate in candidates:
        try:
            result = candidate.apply(node)
        except WeftError:
            raise
        except Exception as error:
            raise _failure(candidate, "failed", [f"{type(error).__name__}: {error}"]) from error
        if result is node:
            result = None
        if stats is not None:
            stats.note(candidate, result)
        if isinstance(result, Expr):
            return candidate, _typed_like(candidate, node, result)
    return None


def _typed_like(applied: Rule, old: Expr, new: Expr) -> Expr:
    """``new``, typed if ``old`` is; new nodes get the span of ``old``."""
    if old.checked_type is None:
        return new
    if new.checked_type is None and known_result(new) == old.checked_type:
        return replace(new, span=old.span, checked_type=old.checked_type)
    rebuilt = rewrite_post_order(
        new,
        lambda node: node if node.checked_type is not None
        else typed_call(node.replace(span=old.span)),
        enter=_is_new,
    )
    try:
        typed = infer_expr(rebuilt, trust=True)
    except TypeInferenceError as error:
        raise _failure(applied, _CHANGED, error.render().splitlines()) from error
    if typed.checked_type != old.checked_type and not _agree(typed, old):
        raise _failure(applied, _CHANGED, [f"{old.checked_type} became {typed.checked_type}"])
    return typed


def _agree(new: Expr, old: Expr) -> bool:
    """Whether the types are equal up to unknown dimensions (``?`` against a size)."""
    if new.checked_type is None or old.checked_type is None:
        return False
    try:
        TypeSolver().unify(new.checked_type, old.checked_type)
    except UnifyError:
        return False
    return True


def _is_new(node: Expr) -> bool:
    return node.checked_type is None


def _failure(applied: Rule, what: str, notes: list[str]) -> WeftError:
    """``PassError`` for a user's rule, ``InternalError`` for one of weft's."""
    is_own = applied.function.__module__.startswith("weft.")
    return (InternalError if is_own else PassError)(f"the rule {applied} {what}", notes=notes)


def _cycle(fired: list[str]) -> PassError:
    names = list(dict.fromkeys(reversed(fired)))[:8]
    return PassError("rewrite rules do not terminate", got=f"a cycle of {', '.join(sorted(names))}",
                     help="give one of these rules a condition that its own result does not meet")


def check_rule_docstring(
    applied: Rule, parse: Callable[[str], Expr], check: Callable[[Expr, Expr], Any] | None = None
) -> None:
    """Execute the example in a rule's docstring.

    ``parse`` reads one side (``parse_expr`` then ``infer_expr``); ``check`` is called with both
    sides as parsed, to evaluate them on the same inputs. Raises ``RegistryError`` for a docstring
    without a ``=>`` line, ``StructuralMismatchError`` if the rule does something else.
    """
    before, after = docstring_sides(applied)
    left, right = parse(before), parse(after)
    assert_structural_equal(apply_rules(left, RuleSet(applied)), right)
    if check is not None:
        check(left, right)


def docstring_sides(applied: Rule) -> tuple[str, str]:
    """The two programs in a rule's docstring."""
    before, arrow, after = applied.doc.partition("\n=>\n")
    if not arrow:
        raise RegistryError(f"the docstring of rule {applied} lacks an example",
                            expected="a program, a line with =>, the program after")
    return before, after
