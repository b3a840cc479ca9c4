"""The benchmarks compare results before they time anything, and say when weft fails."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from benchmarks import __main__ as models_command
from benchmarks import harness, kernels
from benchmarks.agreement import DisagreementError, check_agreement, reference_outputs
from benchmarks.harness import Contestant, by_winograd
from benchmarks.kernel_models import KERNELS
from benchmarks.models import MODELS, conv_layer, random_inputs, save
from benchmarks.suite import FURTHER, KNOWN, SUITE

Y = np.float32([[1, -2], [3, 4]])
INDICES = np.array([3, 999, 0])


def none() -> list[np.ndarray]:
    raise AssertionError("two peers are compared with each other")


def test_peers_that_agree() -> None:
    check_agreement("m", {"weft": [Y, INDICES], "torch": [Y * (1 + 5e-4), INDICES]}, none)
    check_agreement("m", {}, none)


@pytest.mark.parametrize(("got", "words"), [
    ([Y * 1.01, INDICES], "weft and torch disagree in output 0: by 0.01"),
    ([Y, INDICES + INDICES // 999], "output 1: 1 of 3 elements"),  # by a thousandth of the largest
    ([Y], "1 and 2 outputs"),
    ([Y[0], INDICES], "output 0"),
    ([Y, INDICES.astype(np.float32)], "output 1"),
    ([Y * np.float32([[np.nan, 1], [1, 1]]), INDICES], "output 0 of weft is not finite"),
])
def test_peers_that_do_not(got: list[np.ndarray], words: str) -> None:
    with pytest.raises(DisagreementError, match=words):
        check_agreement("m", {"weft": got, "torch": [Y, INDICES]}, none)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("peers", [("weft", "torch"), ("weft",)])
def test_a_reference_that_is_not_finite_proves_nothing(value: float, peers: tuple) -> None:
    bad = np.where(Y == 3, np.float32(value), Y)
    with pytest.raises(DisagreementError, match="not finite"):
        check_agreement("m", {peer: [bad] for peer in peers}, lambda: [bad])


def test_one_peer_alone_is_compared_with_the_reference() -> None:
    check_agreement("m", {"weft": [Y]}, lambda: [Y])
    with pytest.raises(DisagreementError, match="weft and the reference disagree"):
        check_agreement("m", {"weft": [Y]}, lambda: [Y + 1])


def test_weft_is_no_reference_for_others() -> None:
    """Whatever the order of the peers, all are compared with one that is not weft."""
    with pytest.raises(DisagreementError, match="weft and torch"):
        check_agreement("m", {"torch": [Y], "weft": [Y + 1]}, none)


@given(st.sampled_from([("weft",), ("weft", "torch"), ("torch", "weft", "ort"), ("ort", "torch")]),
       st.integers(0, 2), st.integers(0, 3), st.sampled_from([0.5, np.nan, np.inf]))
@settings(deadline=None)
def test_one_wrong_number_of_any_peer_is_found(peers: tuple, who: int, where: int, by: float
                                                ) -> None:
    outputs = {peer: [Y.copy()] for peer in peers}
    outputs[peers[who % len(peers)]][0].flat[where] += by
    with pytest.raises(DisagreementError):
        check_agreement("m", outputs, lambda: [Y])


def test_the_reference_is_onnx_itself(tmp_path: Path) -> None:
    graph = helper.make_graph(
        [helper.make_node("Softmax", ["x"], ["y"], axis=1)], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (2, 2))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (2, 2))])
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    (found,) = reference_outputs(path, {"x": Y})
    np.testing.assert_allclose(found, np.exp(Y) / np.exp(Y).sum(1, keepdims=True), rtol=1e-6)


class FakeProcess:
    """A worker that is always ready."""

    stdin = stdout = None


class FakeContestant(Contestant):
    def time_round(self, warmup: int, calls: int) -> None:
        self.times.extend([1e-3] * calls)

    def ask(self, **_: object) -> dict[str, Any]:
        return {"limit": 5e-4, "call": 1e-3, "kernels": 9e-4, "arithmetic": 5e-4, "traffic": 1e-4,
                "machine": "fast"}

    def stop(self) -> None:
        pass


def starting(results: dict[str, Any]) -> Callable[..., Contestant | None]:
    """A ``start`` that gives these outputs by peer, and no contestant for others."""
    def start(peer: str, *_: object) -> Contestant | None:
        if peer not in results:
            return None
        return FakeContestant(peer, FakeProcess(), results[peer], 0.1,  # type: ignore[arg-type]
                              implementations=("nn.winograd_conv2d.cpu.blocked",))
    return start


@pytest.mark.parametrize(("results", "status", "words"), [
    ({"weft": [Y], "torch": [Y]}, 0, "1.00"),
    ({"torch": [Y]}, 1, "mlp-1: weft failed"),
    ({}, 1, "mlp-1: weft failed"),
    ({"weft": [Y + 1], "torch": [Y]}, 1, "weft and torch disagree"),
    ({"weft": [Y * np.nan], "torch": [Y * np.nan]}, 1, "not finite"),
])
def test_the_status_of_the_model_benchmark(monkeypatch, results, status, words) -> None:
    monkeypatch.setattr(harness, "start", starting(results))
    monkeypatch.setattr(harness, "reference_outputs", lambda *_: [Y])
    monkeypatch.setattr(harness, "SETTLE_SECONDS", 0)
    arguments = ["--models", "mlp", "--peers", "weft,torch", "--threads", "1",
                 "--rounds", "1", "--seconds", "0.001"]
    done = CliRunner().invoke(models_command.main, arguments)
    assert done.exit_code == status, done.output
    assert words in done.output
    assert ("50% dense" in done.output) == (status == 0)


def test_kernels_by_winograd_say_so() -> None:
    assert by_winograd(["nn.dense.cpu.prepacked_gemm", "nn.winograd_conv2d.cpu.blocked"])
    assert not by_winograd(["nn.conv2d.cpu.direct_blocked"])


class FakePeer(kernels.Peer):
    """Answers as a worker does, with ``outputs``, or an error where there are none."""

    def __init__(self, name: str, outputs: list[np.ndarray] | None) -> None:
        super().__init__(name, None)  # type: ignore[arg-type]
        self.outputs = outputs

    def ask(self, **command: Any) -> dict[str, Any]:
        if "load" in command:
            if self.outputs is None:
                return {"error": "RuntimeError: no"}
            np.savez(command["outputs"], *self.outputs)
            return {"outputs": command["outputs"], "implementations": ["winograd"]}
        return {"rate": 1.0} if "copy" in command else {"times": [1e-3] * command["calls"]}


@pytest.mark.parametrize(("mine", "theirs", "failure"), [
    (Y, Y, None), (None, Y, "weft failed"), (None, None, "weft failed"), (Y + 1, Y, "disagree"),
])
def test_failures_of_the_kernel_benchmark(monkeypatch, tmp_path, mine, theirs, failure) -> None:
    monkeypatch.setattr(kernels, "SETTLE_SECONDS", 0)
    monkeypatch.setattr(kernels, "reference_outputs", lambda *_: [Y])
    small = next(k for k in KERNELS if k.name == "softmax 1x1000")
    peers = [FakePeer(n, None if y is None else [y]) for n, y in (("weft", mine), ("ort", theirs))]
    failures = harness.Failures()
    result = kernels.measured(failures, small, peers, tmp_path, 1, 0.001)
    assert len(failures.texts) == (failure is not None)
    assert failure is None or failure in failures.texts[0]
    cells = kernels._row(result, ["weft", "ort"], 100.0)
    assert len(cells) == 8
    assert cells[6].startswith("W ") == (failure is None)


def test_a_worker_names_implementations(tmp_path: Path) -> None:
    """Through the real process: weft says how it computes a convolution that is worth Winograd."""
    model = conv_layer(64, 64, 3, 1, 56)
    path = save(model, tmp_path, "conv")
    inputs = path.with_suffix(".npz")
    np.savez(inputs, **random_inputs(model))
    contestant = harness.start("weft", path, 1, inputs)
    assert contestant is not None
    try:
        assert contestant.implementations
        assert contestant.process.poll() is None
    finally:
        contestant.stop()
    assert isinstance(contestant.process, subprocess.Popen)


def test_every_model_of_the_suite_is_built_by_someone() -> None:
    zoo = pytest.importorskip("benchmarks.torch_further")
    assert set(SUITE) == {*MODELS, *KNOWN, *FURTHER}
    assert {*KNOWN, *FURTHER} <= set(zoo.BENCHMARKED)
    assert {name for name, model in SUITE.items() if model.is_new} == set(FURTHER)


@pytest.mark.torch
def test_eager_torch_takes_its_inputs_as_they_are(monkeypatch, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from benchmarks import torch_eager

    model = conv_layer(3, 4, 3, 1, 8)
    path, feeds = save(model, tmp_path, "m"), random_inputs(model)
    run = torch_eager.load(path, torch.get_num_threads())
    (first,) = run(feeds)
    made: list[object] = []
    tensor = torch_eager._tensor
    monkeypatch.setattr(torch_eager, "_tensor", lambda a: made.append(a) or tensor(a))
    (second,) = run(feeds)
    assert made == []
    np.testing.assert_array_equal(first, second)
    other = {name: array + 1 for name, array in feeds.items()}
    assert np.abs(run(other)[0] - first).max() > 0
    assert len(made) == 1
