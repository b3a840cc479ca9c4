"""Cost models come from the back end of a target; a kind without one has the neutral model."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import ClassVar

import pytest

import weft
from weft.codegen import BACKENDS, Backend, backend_of, register_backend
from weft.codegen.cost_model import NEUTRAL, CostModel, call_work
from weft.compiler.options import CompileOptions
from weft.compiler.report.static_kernels import static_profile
from weft.compiler.stages import Stages, kernels_of
from weft.frontend.source import open_source
from weft.ir import infer_type
from weft.ir.dtype import DType
from weft.ir.passes import PassContext
from weft.ir.types import TensorType
from weft.strategy.registry import DEFAULT_SCHEDULES, default_schedule
from weft.strategy.selection import default_implementation
from weft.support.errors import RegistryError, TargetError
from weft.target import TARGET_KINDS, Target, register_target_kind
from weft.transform import FuseOps

SOFTMAX = "def @main(%x: Tensor[(4, 4096), float32]) { nn.softmax(%x) }"


class PlainTarget(Target):
    kind: ClassVar[str] = "plain"

    def __str__(self) -> str:
        return "plain"

    @classmethod
    def parse(cls, text: str) -> PlainTarget:
        return cls()


class PlainBackend(Backend[PlainTarget]):
    kind: ClassVar[str] = "plain"

    def build_kernel(self, func, target):
        return str(func).encode()

    def load(self, objects, target):
        raise AssertionError("not run")


class Slow(CostModel):
    """Rows of more than 16 elements leave the cache."""

    longest_row = 16

    def call_seconds(self, call):
        return 3.0


@pytest.fixture
def plain() -> Iterator[PlainTarget]:
    register_target_kind(PlainTarget)
    register_backend(PlainBackend())
    yield PlainTarget()
    BACKENDS.remove("plain")
    TARGET_KINDS.remove("plain")


def softmax_call():
    return infer_type(weft.parse(SOFTMAX))["main"].body


def test_a_kind_without_a_cost_model_has_the_neutral_one(plain):
    model = backend_of(plain).cost_model(plain)
    assert type(model) is CostModel
    call = softmax_call()
    work = call_work(call)
    assert work.moved_bytes == 2 * 4 * 4096 * 4
    assert work.elements == 4 * 4096
    assert model.call_seconds(call) == pytest.approx(
        2e-7 + max(work.elements * (20 if work.is_expensive else 1) / 2e10,
                   work.moved_bytes / 1e10))
    assert model.conversion_seconds(TensorType.of((4, 4))) == 0
    assert not model.multiplies_bytes(DType.of("uint8"), DType.of("int8"))
    assert model.parallel_from is None


def test_the_default_schedule_is_estimated_by_the_cost_model(plain, monkeypatch):
    @default_schedule(target="plain")
    def serial(ctx):
        pass

    try:
        call = softmax_call()
        assert default_implementation(call, plain).seconds == NEUTRAL.call_seconds(call)
        monkeypatch.setattr(PlainBackend, "cost_model_class", Slow)
        assert default_implementation(call, plain).seconds == 3.0
    finally:
        DEFAULT_SCHEDULES.remove("plain")


@pytest.mark.parametrize("text", ["cpu", "cuda", "cuda -arch=sm_90a"])
def test_shipped_kinds_have_models_of_their_own(text):
    target = Target.of(text)
    model = backend_of(target).cost_model(target)
    assert type(model) is not CostModel
    call = softmax_call()
    assert model.call_seconds(call) == default_implementation(call, target).seconds


def test_fusion_of_rows_asks_the_cost_model(plain, monkeypatch):
    text = """def @main(%x: Tensor[(4, 4096), float32]) {
      divide(%x, sum(%x, axis=[1], keepdims=True))
    }"""

    def kernels():
        options = CompileOptions.make("plain")
        stages = Stages(open_source(weft.parse(text), None, options), options)
        return len(kernels_of(stages.module_at("lowered")))

    assert kernels() == 1
    monkeypatch.setattr(PlainBackend, "cost_model_class", Slow)
    assert kernels() == 2


def test_a_pass_without_a_context_uses_the_neutral_model():
    mod = FuseOps()(weft.parse(SOFTMAX), PassContext())
    assert "primitive=True" in str(mod)


def test_unknown_and_repeated_kinds_name_the_nearest(plain):
    with pytest.raises(RegistryError, match="back end 'plain' is registered twice"):
        register_backend(PlainBackend())
    with pytest.raises(RegistryError, match="unknown back end 'plane'") as caught:
        BACKENDS.get("plane")
    assert "plain" in caught.value.help
    with pytest.raises(RegistryError, match="unknown kind of target 'plane'") as caught:
        default_schedule(target="plane")
    assert "plain" in caught.value.help
    with pytest.raises(TargetError, match="unknown target 'plane'") as caught:
        Target.of("plane")
    assert "plain" in caught.value.help


def test_static_profiles_come_from_the_cost_model(plain):
    mod = weft.parse(SOFTMAX)
    with pytest.raises(TargetError, match="static profile of kernels is not supported"):
        static_profile(mod, CompileOptions.make("plain"))
    if shutil.which("ptxas") is None:
        pytest.skip("needs ptxas")
    (row,) = static_profile(mod, CompileOptions.make("cuda"))
    assert list(row)[:4] == ["operators", "implementation", "grid", "block"]
    assert row["implementation"] == "nn.softmax.cuda.default"
    assert float(row["roofline us"]) > 0
    assert row["occupancy"].endswith("%")
