"""Patterns, matching, rules and the driver."""

from __future__ import annotations

import sys
from types import ModuleType

import numpy as np
import pytest

from weft import op
from weft.ir import (
    NoMatch,
    RuleSet,
    Tuple,
    apply_rules,
    const,
    infer_expr,
    rule,
    structural_equal,
    var,
)
from weft.ir.rewrite.driver import RewriteStats, check_rule_docstring
from weft.ir.rewrite.matcher import match, matches
from weft.ir.rewrite.pattern import (
    any_,
    as_term,
    call,
    call_where,
    optional,
    root_ops,
    starts_of,
    tuple_,
    var_,
)
from weft.ir.rewrite.pattern import const as constant
from weft.ir.rewrite.rules import RuleModule
from weft.ir.structural import StructuralMismatchError
from weft.ir.text.parser import parse_expr
from weft.support.errors import AttrsError, PassError, RegistryError

X, Y = var("x", (4,)), var("y", (4,))
relu = op.nn.relu


def typed(text: str):
    return infer_expr(parse_expr(text))


@rule(relu(relu(any_("x")).named("inner")), group="canonicalize")
def relu_is_idempotent(inner):
    """
    fn (%x: Tensor[(4,), float32]) { nn.relu(nn.relu(%x)) }
    =>
    fn (%x: Tensor[(4,), float32]) { nn.relu(%x) }
    """
    return inner


@rule(any_("x") * 1.0)
def one_is_neutral(x, call):
    """
    fn (%x: Tensor[(4,), float32]) { multiply(1f, %x) }
    =>
    fn (%x: Tensor[(4,), float32]) { %x }
    """
    if x.checked_type != call.checked_type:
        return NoMatch("the product is larger than x")
    return x


# -- matching -----------------------------------------------------------------------------------


def test_captures_are_the_nodes():
    inner = relu(X)
    assert match(relu(relu(any_("x")).named("inner")), relu(inner)) == {"x": X, "inner": inner}
    assert match(relu(relu(any_())), inner) is None


def test_commutative_operands_match_in_either_order():
    product = op.multiply(X, const(2.0))
    assert match(constant("c") * var_("v"), product)["v"] is X
    assert match(op.subtract(constant("c"), var_("v")), op.subtract(X, const(2.0))) is None


def test_a_name_used_twice_is_one_expression():
    assert match(any_("a") + any_("a"), op.add(X, X)) == {"a": X}
    assert match(any_("a") + any_("a"), op.add(X, Y)) is None
    assert match(any_("a") + any_("a"), op.add(const(1.0), const(1.0))) is not None


def test_constants_by_value():
    assert match(constant(value=0), const(np.zeros((2, 2)))) is not None
    assert match(constant(value=0), const(np.eye(2))) is None
    assert match(constant(value=0), const(np.zeros((0,), np.float32))) is None
    assert match(constant("c"), X) is None


def test_attributes_by_value_and_by_condition():
    softmax = op.nn.softmax(X, axis=0)
    assert match(op.nn.softmax(any_(), axis=0), softmax) is not None
    assert match(op.nn.softmax(any_(), axis=1), softmax) is None
    assert match(op.nn.softmax(any_(), axis=lambda axis: axis >= 0), softmax) is not None
    with pytest.raises(AttrsError, match="no attribute 'axle'"):
        op.nn.softmax(any_(), axle=1)


def test_alternatives_and_optional_parts():
    either = op.exp(any_("x")) | op.tanh(any_("x"))
    assert match(either, op.tanh(X)) == {"x": X}
    assert match(either, op.abs(X)) is None
    biased = relu(optional(lambda e: op.add(e, constant("b")), op.exp(any_("x"))))
    assert match(biased, relu(op.exp(X))) == {"x": X}
    assert set(match(biased, relu(op.add(op.exp(X), const(1.0))))) == {"x", "b"}


def test_tuples_fields_conditions_and_kinds_of_calls():
    pair = Tuple((X, const(1.0)))
    assert match(tuple_(any_("a"), constant("c")), pair)["a"] is X
    assert match(any_("t")[1], pair[1]) == {"t": pair}
    assert match(any_("t")[0], pair[1]) is None
    assert match(any_().where(lambda e: e is X), X) == {}
    assert match(any_().where(lambda e: e is X), Y) is None
    assert match(call((op.exp, op.tanh), any_("x")), op.tanh(X)) == {"x": X}
    assert match(any_("x").of_dtype("int8"), X) is None
    assert match(any_("x").of_dtype("float32"), X) == {"x": X}


def test_all_ways_to_match_are_found():
    found = list(matches(any_("a") + any_("b"), op.add(X, Y)))
    assert found == [{"a": X, "b": Y}, {"a": Y, "b": X}]


def test_backtracking_over_operands():
    # The first order binds a to X, and fails only at the second operand.
    term = op.add(any_("a"), op.exp(any_("a")))
    assert match(term, op.add(op.exp(X), X)) == {"a": X}


def test_roots_index_rules():
    assert root_ops(relu(any_()) | op.exp(any_())) == {"nn.relu", "exp"}
    assert root_ops(relu(any_()) | any_()) is None


def test_rules_on_traits_are_candidates_only_where_the_traits_hold():
    @rule(call_where(lambda traits: traits.is_reshape, any_("x")))
    def test_drops_a_reshape(x):
        """Never applied here."""
        return x

    rules = RuleSet(test_drops_a_reshape)
    assert rules.candidates(op.reshape(X, newshape=(-1,))) == [test_drops_a_reshape]
    assert rules.candidates(op.exp(X)) == []
    assert rules.candidates(X) == []


def test_numbers_stand_for_constants_and_other_things_do_not():
    assert match(any_("x") - 1, op.subtract(X, const(1.0))) == {"x": X}
    assert match(-any_("x") / 2.0, op.divide(op.negative(X), const(2.0))) == {"x": X}
    with pytest.raises(AttrsError, match="invalid pattern"):
        as_term("x")


# -- rules --------------------------------------------------------------------------------------


@pytest.mark.parametrize("each", [relu_is_idempotent, one_is_neutral], ids=lambda r: r.name)
def test_docstrings_hold(each):
    sides = []
    check_rule_docstring(each, typed, lambda left, right: sides.append((left, right)))
    assert len(sides) == 1


def test_a_docstring_that_lies_is_caught():
    @rule(relu(any_("x")))
    def wrong(x):
        """
        fn (%x: Tensor[(4,), float32]) { nn.relu(%x) }
        =>
        fn (%x: Tensor[(4,), float32]) { tanh(%x) }
        """
        return op.exp(x)

    with pytest.raises(StructuralMismatchError):
        check_rule_docstring(wrong, typed)


def test_rules_are_checked_when_they_are_made():
    with pytest.raises(RegistryError, match="'z' is not captured"):
        rule(relu(any_("x")))(lambda z: z)
    with pytest.raises(RegistryError, match="missing docstring"):
        rule(relu(any_("x")))(lambda x: x)


def test_rules_apply_to_a_fixed_point_and_keep_types():
    fn = typed(
        "fn (%x: Tensor[(4,), float32]) { %0 = nn.relu(multiply(nn.relu(%x), 1f));"
        " add(%0, nn.relu(%0)) }"
    )
    stats = RewriteStats()
    result = apply_rules(fn, RuleSet(relu_is_idempotent, one_is_neutral), stats=stats)
    expected = typed("fn (%x: Tensor[(4,), float32]) { %0 = nn.relu(%x); add(%0, %0) }")
    assert structural_equal(result, expected)
    assert infer_expr(result) is result
    assert stats.applied["relu_is_idempotent"] == 2


def test_a_module_of_rules_is_imported_for_the_first_call_that_may_match(monkeypatch):
    class Noted(ModuleType):
        imports = 0

        @property
        def RULES(self):
            self.imports += 1
            return RuleSet(relu_is_idempotent)

    module = Noted("rules_of_this_test")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    starts = " ".join(starts_of(relu_is_idempotent.pattern))
    assert starts == "nn.relu:nn.relu"
    made = RuleSet(one_is_neutral, RuleModule(module.__name__, starts))
    once = relu(op.exp(relu(X)))
    assert apply_rules(once, made) is once
    assert not module.imports
    twice = relu(relu(op.exp(relu(relu(X)))))
    assert structural_equal(apply_rules(twice, made), once)
    assert module.imports == 1
    assert made.rules == (one_is_neutral, relu_is_idempotent)


def test_nothing_to_do_returns_the_argument():
    fn = typed("fn (%x: Tensor[(4,), float32]) { exp(%x) }")
    assert apply_rules(fn, RuleSet(relu_is_idempotent)) is fn


def test_refusals_are_counted_with_their_reason():
    fn = typed("fn (%x: Tensor[(1,), float32]) { multiply(%x, const([1, 1], (2,), float32)) }")
    stats = RewriteStats()
    assert apply_rules(fn, RuleSet(one_is_neutral), stats=stats) is fn
    assert stats.explain("one_is_neutral") == (
        "one_is_neutral: tried 1, applied 0, refused 1: the product is larger than x (1)"
    )


def test_the_first_rule_that_applies_wins_and_sets_add_up():
    @rule(relu(any_("x")))
    def to_exp(x):
        """first"""
        return op.exp(x)

    @rule(relu(any_("x")))
    def to_tanh(x):
        """second"""
        return op.tanh(x)

    both = RuleSet(to_exp) + RuleSet(to_tanh)
    assert [r.name for r in both] == ["to_exp", "to_tanh"]
    assert apply_rules(relu(X), both).op is op.exp


def test_missing_optional_captures_are_none():
    @rule(relu(optional(lambda e: op.add(e, constant("b")), op.exp(any_("x")))))
    def seen(x, b):
        """shows which form matched"""
        return op.abs(x) if b is None else op.tanh(x)

    assert apply_rules(relu(op.exp(X)), RuleSet(seen)).op is op.abs
    assert apply_rules(relu(op.add(op.exp(X), const(1.0))), RuleSet(seen)).op is op.tanh


def test_a_cycle_names_its_rules():
    @rule(op.exp(any_("x")))
    def there(x):
        """one way"""
        return op.tanh(x)

    @rule(op.tanh(any_("x")))
    def back(x):
        """and back"""
        return op.exp(x)

    with pytest.raises(PassError) as caught:
        apply_rules(op.exp(X), RuleSet(there, back))
    assert caught.value.got == "a cycle of back, there"


def test_a_rule_that_changes_a_type_is_reported():
    @rule(op.exp(any_("x")))
    def shrinks(x):
        """loses an axis"""
        return op.sum(x)

    with pytest.raises(PassError, match=r"rule shrinks \(test_rewrite.py:\d+\)"):
        apply_rules(infer_expr(op.exp(X)), RuleSet(shrinks))


def test_new_nodes_come_from_where_the_old_one_came_from():
    @rule(op.exp(any_("x")))
    def twice(x):
        """two new nodes"""
        return op.tanh(op.abs(x))

    fn = typed("fn (%x: Tensor[(4,), float32]) {\n  exp(%x) }")
    body = apply_rules(fn, RuleSet(twice)).body
    assert body.span.line == body.args[0].span.line == 2


def test_enter_protects_parts():
    fn = typed("fn (%x: Tensor[(4,), float32]) { nn.relu(nn.relu(%x)) }")
    assert apply_rules(fn, RuleSet(relu_is_idempotent), enter=lambda e: e is not fn) is fn
