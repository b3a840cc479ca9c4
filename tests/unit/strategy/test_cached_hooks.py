"""Answers of hooks come from the cache, and are those that the hooks give."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
from weft import op
from weft.compiler.options import CompileOptions
from weft.compiler.pipeline import run_pipeline
from weft.ir import (
    Call,
    Constant,
    Expr,
    Function,
    IRModule,
    TensorType,
    Var,
    float32,
    infer_type,
    structural_hash,
)
from weft.strategy import cached_hooks
from weft.strategy.cached_hooks import (
    CachedHooks,
    _question,
    cached_layout_hooks,
    cached_legalizations,
)
from weft.strategy.registry import layout_hooks, legalizations
from weft.support.cache import open_cache, recorded_keys
from weft.target import Target

TARGET = Target.of("llvm -mcpu=znver4")


@pytest.fixture(autouse=True)
def loads(monkeypatch: pytest.MonkeyPatch, own_cache: Path) -> list[str]:
    """The kinds of hooks that were needed themselves, as in processes without strategies."""
    found: list[str] = []
    loaded = CachedHooks._loaded

    def noted(self: CachedHooks[Any]) -> Mapping[str, Any]:
        found.append(self.kind)
        return loaded(self)

    monkeypatch.setattr(CachedHooks, "_loaded", noted)
    monkeypatch.setattr(cached_hooks, "has_strategies", lambda _: False)
    return found


def weights(*shape: int) -> Constant:
    return Constant(np.linspace(0.5, 1.0, np.prod(shape), dtype=np.float32).reshape(shape))


def typed(x: Var, body: Expr) -> IRModule:
    return infer_type(IRModule({"main": Function((x,), body)}))


def image(*shape: int) -> Var:
    return Var("x", TensorType(shape, float32))


def network() -> IRModule:
    """A convolution by Winograd's algorithm, a direct one, and a matmul over packed weights."""
    x = image(1, 64, 28, 28)
    y = op.nn.relu(op.nn.conv2d(x, weights(64, 64, 3, 3), padding=[1, 1]))
    y = op.nn.conv2d(y, weights(128, 64, 1, 1), strides=[2, 2])
    return typed(x, op.nn.dense(op.squeeze(op.nn.global_avg_pool2d(y), axis=[2, 3]),
                                weights(100, 128)))


def lowered(mod: IRModule) -> str:
    return structural_hash(run_pipeline(mod, CompileOptions.make(target=TARGET))["main"])


def test_a_network_is_lowered_alike_without_strategies(
        loads: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    first = lowered(network())
    assert {"layouts", "legalization"} == set(loads)
    loads.clear()
    assert lowered(network()) == first
    assert not loads
    monkeypatch.setattr(cached_hooks, "has_strategies", lambda _: True)  # the hooks themselves
    assert lowered(network()) == first
    text = str(run_pipeline(network(), CompileOptions.make(target=TARGET)))
    assert "winograd_conv2d" in text
    assert "NCHW16c" in text


def test_a_process_that_fills_a_store_looks_up_all_answers(
        loads: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that has the strategies, and has compiled other models before."""
    monkeypatch.setattr(cached_hooks, "has_strategies", lambda _: True)
    with recorded_keys() as keys:
        first = lowered(network())
    cache = open_cache()
    assert cache is not None
    answers = {key for key in keys if cache.get(key) is not None}
    loads.clear()
    monkeypatch.setattr(cached_hooks, "has_strategies", lambda _: False)
    with recorded_keys() as needed:
        assert lowered(network()) == first
    assert not loads
    assert needed <= answers


def convolution(kernel: Expr, channels: int = 64, groups: int = 1) -> Call:
    call = typed(image(1, channels, 28, 28), op.nn.conv2d(
        image(1, channels, 28, 28), kernel, padding=[1, 1], groups=groups))["main"].body
    assert isinstance(call, Call)
    return call


def asks(call: Call, target: Target = TARGET) -> object:
    hooks = cached_layout_hooks(target)
    return hooks["nn.conv2d"](call, [a.checked_type for a in call.args], target)  # type: ignore[misc]


def test_what_an_answer_depends_on_is_part_of_its_key(loads: list[str]) -> None:
    x = image(64, 64, 3, 3)
    infinite = Constant(np.full((64, 64, 3, 3), np.inf, np.float32))
    calls = [convolution(weights(64, 64, 3, 3)), convolution(x), convolution(infinite),
             convolution(weights(64, 64, 5, 5)), convolution(weights(64, 1, 3, 3), groups=64)]
    for call in calls:
        assert asks(call) is not None
    asks(calls[0], Target.of("llvm -mcpu=haswell"))
    with weft.config(winograd=False):
        asks(calls[0])
    assert len(loads) == len(calls) + 3  # the first one also asks for the operators
    loads.clear()
    for call in calls:
        assert asks(call) == layout_hooks(TARGET)["nn.conv2d"](
            call, [a.checked_type for a in call.args], TARGET)  # type: ignore[misc]
    assert not loads


def test_a_question_tells_attributes_apart_that_compare_equal() -> None:
    x = image(8, 64)
    calls = [typed(x, op.nn.leaky_relu(x, alpha=alpha))["main"].body for alpha in (0.0, -0.0)]
    plus, minus = (_question(call, [x.annotation], None, reads_finite=False)  # type: ignore[arg-type, list-item]
                   for call in calls)
    assert plus.attrs == minus.attrs
    assert plus != minus


def test_an_answer_with_new_constants_is_not_kept(loads: list[str]) -> None:
    x = image(8, 64)
    call = typed(x, op.nn.dense(x, weights(32, 64)))["main"].body
    wide = typed(image(2, 4, 64), op.nn.dense(image(2, 4, 64), image(32, 64)))["main"].body
    for body, count in ((call, 1), (wide, 2)):
        assert isinstance(body, Call)
        loads.clear()
        for _ in range(3):
            hooks = cached_legalizations(TARGET)
            kept = hooks["nn.dense"](body, [a.checked_type for a in body.args],  # type: ignore[misc]
                                     weft.ir.PassContext(target=TARGET))
            assert (kept is None) is (body is call)
        assert (len(loads) >= 3) is (count == 2)


def test_operators_are_those_with_hooks() -> None:
    for _ in range(2):
        assert {*cached_layout_hooks(TARGET)} == {*layout_hooks(TARGET)}
        assert {*cached_legalizations(TARGET)} == {*legalizations(TARGET)}


def test_a_process_with_strategies_neither_reads_nor_writes(
        monkeypatch: pytest.MonkeyPatch, own_cache: Path) -> None:
    monkeypatch.setattr(cached_hooks, "has_strategies", lambda _: True)
    assert dict(cached_layout_hooks(TARGET)) == dict(layout_hooks(TARGET))
    assert not own_cache.exists()
