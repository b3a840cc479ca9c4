"""Which implementation runs a call: records, implementations without an estimate, estimates."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import ClassVar

import pytest

from tests.unit.op.harness import make_call, make_inputs, static_call
from tests.unit.strategy.kernels import SMALL_CPU, WIDE_CPU, primitive
from weft import op
from weft.ir.expr import Call, var
from weft.ir.op import OPS, Op
from weft.strategy import Implementation, implementations, lower_function, strategy
from weft.strategy.registry import STRATEGIES
from weft.strategy.selection import Reason, candidates, in_order, select
from weft.strategy.space import Knob, Space
from weft.support.config import config
from weft.support.errors import LoweringError
from weft.target import TARGET_KINDS, Target, register_target_kind

KEY = "cpu:nn.relu"


@pytest.fixture
def strategies() -> Iterator[None]:
    yield
    STRATEGIES.remove(KEY)


def relu() -> Call:
    x = var("x", (4, 8), "float32")
    call = primitive([x], op.nn.relu(x)).body
    assert isinstance(call, Call)
    return call


def offer(*offered: Implementation, complete: bool = False) -> None:
    @strategy("nn.relu", target="cpu", complete=complete)
    def generator(call, target):
        yield from offered


def named(name: str, seconds: float | None = None, **more) -> Implementation:
    return Implementation(name, lambda ctx: None, seconds=seconds, **more)


def test_implementations_without_an_estimate_come_first_in_their_order():
    found = in_order([named("b", 2.0), named("x"), named("a", 1.0), named("y"), named("c", 1.0)])
    assert [one.name for one in found] == ["x", "y", "a", "c", "b"]


def test_the_default_schedule_competes_by_its_estimate(strategies):
    offer(named("fast", 1e-12), named("slow", 1.0))
    found = select(relu(), WIDE_CPU)
    assert (found.chosen.name, found.reason) == ("fast", Reason.ESTIMATE)
    assert [one.name for one in found.others] == ["nn.relu.cpu.default", "slow"]


def test_a_complete_strategy_replaces_the_default_schedule(strategies):
    offer(named("mine", 1.0), complete=True)
    assert [one.name for one in implementations(relu(), WIDE_CPU)] == ["mine"]
    assert select(relu(), WIDE_CPU).reason is Reason.ONLY


def test_a_complete_strategy_that_yields_nothing_is_an_error(strategies):
    offer(complete=True)
    with pytest.raises(LoweringError, match=r"nn\.relu has no implementation for this call"):
        implementations(relu(), WIDE_CPU)


def test_a_user_s_implementation_without_an_estimate_is_used(strategies):
    offer(named("mine"))
    found = select(relu(), WIDE_CPU)
    assert (found.chosen.name, found.reason) == ("mine", Reason.NO_ESTIMATE)


@pytest.mark.parametrize("seconds", [1e-12, None])
def test_a_fallback_runs_only_calls_without_another_candidate(strategies, seconds):
    fallback = named("loops", is_fallback=True)
    offer(fallback, named("mine", seconds), complete=True)
    assert select(relu(), WIDE_CPU).chosen.name == "mine"
    STRATEGIES.remove(KEY)
    offer(fallback, complete=True)
    assert select(relu(), WIDE_CPU).chosen is fallback


def test_a_target_kind_without_a_default_schedule_prefers_estimates_to_its_fallback():
    @register_target_kind
    @dataclasses.dataclass(frozen=True, slots=True)
    class Tiny(Target):
        kind: ClassVar[str] = "tiny"

        def __str__(self) -> str:
            return self.kind

        @classmethod
        def parse(cls, text: str) -> Tiny:
            return cls()

    @strategy("nn.relu", target="tiny")
    def generator(call, target):
        yield named("mine", 1.0)

    found = select(relu(), Tiny())
    STRATEGIES.remove("tiny:nn.relu")
    TARGET_KINDS.remove("tiny")
    assert (found.chosen.name, found.reason) == ("mine", Reason.ESTIMATE)
    assert [one.name for one in found.others] == ["nn.relu.tiny.unscheduled"]
    assert select(relu(), Tiny()).chosen.name == "nn.relu.tiny.unscheduled"


@pytest.mark.parametrize("seconds", [-1e-6, float("nan"), float("inf")])
def test_invalid_estimates_are_refused(seconds):
    with pytest.raises(LoweringError, match="invalid estimate of the implementation mine"):
        named("mine", seconds)


def test_records_come_before_estimates_and_name_points_too(strategies):
    space = Space("tiled", (Knob.of("rows", (2, 4, 8), 2),), lambda _: named("tiled"))
    offer(named("tiled", 1e-11, space=lambda: space), named("other", 1e-12))
    found = select(relu(), WIDE_CPU, ranking=("gone", "tiled[rows=3]", "tiled[rows=8]", "other"))
    assert (found.chosen.name, found.reason) == ("tiled[rows=8]", Reason.RECORD)
    assert [c.name for c in candidates(relu(), WIDE_CPU)] == [
        "other", "tiled", "nn.relu.cpu.default"]


def test_the_selection_is_explained_under_each_operator_of_the_kernel(capsys):
    x, w = var("x", (32, 64), "float32"), var("w", (48, 64), "float32")
    function = primitive([x, w], op.nn.relu(op.nn.dense(x, w)))
    for name in ("nn.dense", "nn.relu"):
        with config(explain=(name,)):
            lower_function(function, WIDE_CPU)
        lines = capsys.readouterr().err.splitlines()
        assert lines[0].startswith("// implementation of nn.dense(Tensor[(32, 64), float32], ")
        assert any(line.startswith("//   not nn.dense.cpu.generic: estimated") for line in lines)
        assert "//   in the same kernel: nn.relu(Tensor[(32, 48), float32])" in lines
    with config(explain=("nn.softmax",)):
        lower_function(function, WIDE_CPU)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("target", [SMALL_CPU, WIDE_CPU], ids=["avx2", "avx512"])
def test_every_implementation_of_weft_has_an_estimate(target):
    """Over all cases of all operators: only users may leave the estimate out."""
    for name in OPS:
        for case in OPS.get(name).cases:
            arrays = make_inputs(OPS.get(name), case)
            call = static_call(make_call(OPS.get(name), case, arrays), arrays)
            if not isinstance(call, Call) or not isinstance(call.op, Op):
                continue  # a tuple, or several operators
            for one in implementations(call, target):
                assert one.seconds is not None, (one.name, case)
                assert 0 <= one.seconds < 3600, (one.name, case)
