"""Users' additions to the compiler: passes, rules, tir passes, operators, strategies, targets.

The cache of whole models is keyed by weft's sources, not by users'. So a model whose code a user's
addition may decide is not kept whole, and its kernels are kept by what they compute, after the
addition has run.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

from weft.codegen import backend_of
from weft.ir import OPS, Call, Function, Op, post_order
from weft.ir.passes import INSERTED_PASSES, Pass, check_named
from weft.ir.rewrite.rules import REGISTERED_RULES, Rule, RuleSet, check_rules
from weft.strategy.decision import deciders_of, deciders_of_kind
from weft.strategy.registry import (
    layout_hooks,
    legalizations,
    strategies_of,
    strategies_of_kind,
)
from weft.strategy.strategy_registry import has_strategies
from weft.support.dataclass import dataclass
from weft.support.errors import OptionError
from weft.support.insertion import Insertion, as_insertions
from weft.target import Target
from weft.tir.transform.registered import (
    INSERTED_TIR_PASSES,
    TirInsertion,
    TirPass,
    check_tir_passes,
    tir_pass_name,
)
from weft.transform.external.generate_external import EXTERNAL_CODE

# What ``passes``, ``rules`` and ``tir_passes`` of ``weft.compile`` take.
PassesLike: TypeAlias = "Iterable[Pass | Insertion[Pass]]"
RulesLike: TypeAlias = "Iterable[Rule | RuleSet]"
TirPassesLike: TypeAlias = "Iterable[TirPass | TirInsertion]"


@dataclass(frozen=True, slots=True)
class Extensions:
    """The users' passes and rules of one compilation, in the order in which they are inserted."""

    passes: tuple[Insertion[Pass], ...] = ()
    rules: tuple[Rule, ...] = ()
    tir_passes: tuple[TirInsertion, ...] = ()

    @staticmethod
    def make(passes: PassesLike = (), rules: RulesLike = (), tir_passes: TirPassesLike = ()
             ) -> Extensions:
        """Those registered, then those given. Raises ``OptionError`` for values of other types."""
        return Extensions(
            (*map(INSERTED_PASSES.get, INSERTED_PASSES),
             *as_insertions(passes, _check_pass, "passes")),
            (*check_rules(rules), *map(REGISTERED_RULES.get, REGISTERED_RULES)),
            (*map(INSERTED_TIR_PASSES.get, INSERTED_TIR_PASSES), *check_tir_passes(tir_passes)),
        )

    def __bool__(self) -> bool:
        return bool(self.passes or self.rules or self.tir_passes)

    def __str__(self) -> str:
        """One line per addition: its kind, its name and its position."""
        lines = [("pass", str(i.item), i.position()) for i in self.passes]
        lines += [("rule", rule.name, rule.where) for rule in self.rules]
        lines += [("tir pass", tir_pass_name(i.item), i.position()) for i in self.tir_passes]
        return "\n".join(f"{kind} {name}" + (f" ({where})" if where else "")
                         for kind, name, where in lines)


def _check_pass(item: object) -> None:
    if isinstance(item, Pass):
        check_named(type(item))
        return
    is_class = isinstance(item, type) and issubclass(item, Pass)
    raise OptionError("not a pass", got=repr(item), expected="an instance of weft.ir.Pass",
                      help=f"write {item.__name__}()" if is_class else None)


def is_self_contained(function: Function, target: Target) -> bool:
    """Whether weft's sources alone decide the code of ``function``.

    They do not if it calls a user's operator, or an operator with a user's strategy, decision or
    hook, or if the back end is a user's. Only self-contained kernels may be looked up in the cache
    before they are lowered, and built in worker processes, which do not run the user's program.
    """
    if not is_own(backend_of(target)):
        return False
    operators = {node.op for node in post_order(function.body) if isinstance(node, Call)}
    return all(_is_own_op(op) and all(map(is_own, _deciders(op.name, target)))
               for op in operators if isinstance(op, Op))


def may_use_extensions(content: bytes, target: Target) -> bool:
    """Whether a user's operator, hook, strategy, decision or back end may decide a model's code.

    They may if ``content`` names a user's operator, if any operator has a user's strategy,
    decision, legalization or layout hook, if an operator of weft has a user's hook, such as a
    decomposition, and if the back end of the target is a user's.
    """
    loaded = [OPS.get(name) for name in OPS.loaded()]  # no user has touched the others
    foreign = [op.name for op in loaded if not _is_defined_by_weft(op)]
    own = [op for op in loaded if op.name not in foreign]
    makers: list[Any] = [backend_of(target)]
    if has_strategies(target.kind):
        deciders = (*strategies_of_kind(target.kind), *deciders_of_kind(target.kind))
        makers += [*layout_hooks(target).values(), *legalizations(target).values(),
                   *(maker for name, maker in deciders if name in OPS and name not in foreign)]
    return (not all(map(is_own, makers)) or not all(map(_has_own_hooks, own))
            or any(name.encode() in content for name in foreign))


def _deciders(name: str, target: Target) -> tuple[Any, ...]:
    """The strategies and decisions of an operator for a target, if a user may have some."""
    if not has_strategies(target.kind):
        return ()
    return *strategies_of(name, target.kind), *deciders_of(name, target.kind)


def _is_own_op(op: Op) -> bool:
    return _is_defined_by_weft(op) and _has_own_hooks(op)


def _is_defined_by_weft(op: Op) -> bool:
    return is_own(op.compute) and op.hook(EXTERNAL_CODE) is None


def _has_own_hooks(op: Op) -> bool:
    # References may be functions of NumPy and cases are tuples, so ask where they were registered.
    return all(table in op.origins and op.origins[table].module.startswith("weft.")
               for table in op.hooks)


def is_own(maker: Any) -> bool:
    """Whether weft defines a function, or the class of an object."""
    return maker is None or (getattr(maker, "__module__", None) or "").startswith("weft.")
