"""``weft.opcheck`` finds what is wrong with an operator, and passes what is right."""

from __future__ import annotations

import contextlib

import pytest

import weft
from weft import define_op, op_case, te
from weft.ir.op import OPS
from weft.ir.typing.relations import same_type_as
from weft.strategy import Implementation, strategy
from weft.strategy.registry import STRATEGIES
from weft.support.errors import OperatorError, WeftError


@contextlib.contextmanager
def operator(reference=lambda x: x * x, gradient=None, compute=None, **options):
    """``test.square``, with the parts that are given."""
    def square(x, attrs):
        """Each element squared."""
        return te.compute(x.shape, lambda *i: x[i] * x[i])

    relation = options.pop("relation", same_type_as(0))
    op = define_op("test.square", relation=relation, **options)(compute or square)
    try:
        op.spec(reference, op_case((3, 5)), op_case(()))
        if gradient is not None:
            op.gradient(gradient)
        yield op
    finally:
        OPS.remove("test.square")
        if "cpu:test.square" in STRATEGIES:
            STRATEGIES.remove("cpu:test.square")


def test_a_right_operator_is_reported():
    with operator(gradient=lambda call, _, dy: [dy * call.args[0] * 2.0]) as op:
        report = weft.opcheck(op)
    assert str(report) == ("test.square: 2 cases on test.square.cpu.default; gradient checked")


def refusal(**parts) -> WeftError:
    with operator(**parts), pytest.raises(OperatorError) as caught:
        weft.opcheck("test.square")
    assert __file__ in caught.value.where
    return caught.value


def test_another_value_than_the_reference():
    error = refusal(reference=lambda x: x * x + 1)
    assert "computes something else" in error.what
    assert any("15 of 15 elements differ" in note for note in error.notes)


def test_another_type_than_the_reference():
    assert "gives another type" in refusal(reference=lambda x: x[..., None] ** 2).what


def test_a_gradient_that_is_not_the_slope():
    assert "not the slope" in refusal(gradient=lambda call, _, dy: [dy * call.args[0]]).what


def test_too_many_gradients():
    assert "one expression per argument" in refusal(gradient=lambda _c, _y, dy: [dy, dy]).what


def test_every_implementation_is_run():
    def cubed(x, attrs):
        return te.compute(x.shape, lambda *i: x[i] * x[i] * x[i])

    with operator():
        @strategy("test.square", target="cpu")
        def dear_and_wrong(call, target):
            yield Implementation("right", lambda ctx: None, seconds=1e-6)
            yield Implementation("wrong", lambda ctx: None, cubed, seconds=1.0)

        with pytest.raises(OperatorError, match="wrong computes something else"):
            weft.opcheck("test.square")


def test_an_operator_without_cases_has_nothing_to_check():
    with operator() as op:
        del op.hooks["cases"]
        with pytest.raises(OperatorError, match="no cases"):
            weft.opcheck(op)


def test_the_built_in_ones_pass():
    for name in ("nn.softmax", "split", "argwhere", "nn.dense"):
        assert weft.opcheck(name).cases


def test_strategies_of_users_compete_and_fall_back():
    """A generator that yields nothing leaves the call to what runs it already."""
    with operator():
        @strategy("test.square", target="cpu")
        def for_matrices(call, target):
            if call.args[0].checked_type.ndim == 2:
                yield Implementation("mine", lambda ctx: None)

        report = weft.opcheck("test.square")
        assert report.implementations == ("mine", "test.square.cpu.default")

        @strategy("test.square", target="cpu")
        def for_matrices(call, target):  # noqa: F811 - a notebook's cell, run again
            yield Implementation("mine again", lambda ctx: None)

        assert weft.opcheck("test.square").implementations == (
            "mine again", "test.square.cpu.default")
