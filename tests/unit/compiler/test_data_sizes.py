"""Sizes that data determines are symbols of the compiled program, read where it runs."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weft
from weft.compiler.program import launches
from weft.compiler.program.data_sizes import largest
from weft.runtime.manifest import Manifest
from weft.support.errors import (
    ArtifactError,
    InternalError,
    InvalidInputError,
    UnsupportedModelError,
)

# The size is a row count of a matmul, a row of a softmax, a reduced axis, and a size without data.
TEXT = """
def @main(%x: Tensor[(SHAPE), float32], %w: Tensor[(2, 8), float32]) {
  let %at = argwhere(greater(%x, 0.5f));
  let %y = nn.dense(cast(%at, dtype="float32"), transpose(%w, axes=[1, 0]));
  (%at, nn.softmax(%y), sum(%y, axis=[0]), add(%y, sum(%y, axis=[0])))
}"""
W = np.random.default_rng(0).standard_normal((2, 8)).astype(np.float32)


def compiled(shape: str, **options: object) -> weft.Executable:
    return weft.compile(weft.parse(TEXT.replace("SHAPE", shape)), **options)


@pytest.fixture(scope="module")
def model() -> weft.Executable:
    made = compiled("n, m")
    assert made.is_dynamic
    assert made.general is not None, made.reason
    return made


def image(n: int, m: int, share: float = 0.5) -> np.ndarray:
    values = np.random.default_rng(n * 100 + m).random((n, m))
    return (values * (0.5 / (1 - share)) if share < 1 else values + 1).astype(np.float32)


def check(results: tuple[np.ndarray, ...], x: np.ndarray) -> None:
    at = np.argwhere(x > np.float32(0.5))
    y = at.astype(np.float32) @ W
    e = np.exp(y - y.max(1, keepdims=True, initial=-np.inf))
    wanted = (at, e / e.sum(1, keepdims=True), y.sum(0), y + y.sum(0))
    for got, reference in zip(results, wanted, strict=True):
        assert got.shape == reference.shape
        np.testing.assert_allclose(got, reference, rtol=1e-3, atol=1e-3 * max(1, x.size))


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 40), st.integers(0, 20), st.sampled_from([0.0, 0.1, 0.6, 1.0]))
def test_one_program_runs_all_sizes(model: weft.Executable, n: int, m: int, share: float) -> None:
    check(model(image(n, m, share), W), image(n, m, share))
    assert model.sizes == ()


def test_the_signature_names_the_sizes(model: weft.Executable) -> None:
    assert [spec.shape for spec in model.outputs] == [("u0", 2), ("u0", 8), (8,), ("u0", 8)]
    (count,) = model.manifest.counts
    assert (count.name, count.bound) == ("u0", "m*n")
    assert Manifest.from_json(model.manifest.to_json()) == model.manifest


def test_inputs_of_fixed_sizes(tmp_path) -> None:
    fixed = compiled("6, 5")
    assert fixed.manifest.vm is None
    assert fixed.outputs[0].shape == ("u0", 2)
    fixed.export(tmp_path / "m.weft")
    loaded = weft.load(tmp_path / "m.weft")
    for share in (0.0, 0.3, 1.0):
        x = image(6, 5, share)
        for runs in (fixed, loaded):
            check(runs(x, W), x)
            check(tuple(runs.run(None, {"x": x, "w": W})), x)


def test_names_that_the_model_has_are_not_taken() -> None:
    model = compiled("u0, u1")
    assert [count.name for count in model.manifest.counts] == ["u2"]
    check(model(image(7, 3), W), image(7, 3))


def test_artifacts(model: weft.Executable, tmp_path) -> None:
    model.export(tmp_path / "m.weft")
    loaded = weft.load(tmp_path / "m.weft")
    for n in (1, 30):
        check(loaded(image(n, 4), W), image(n, 4))
    with pytest.raises(ArtifactError, match="data determines sizes"):
        model.export(tmp_path / "c", format="c")


def test_arrays_of_the_caller(model: weft.Executable) -> None:
    x = image(3, 4)
    wanted = model(x, W)
    with pytest.raises(InvalidInputError, match="cannot be bound where data determines sizes"):
        model.bind(x, W)
    place = np.empty_like(wanted[1])
    results = model(x, W, out={"output1": place})
    assert results[1] is place
    check(results, x)
    with pytest.raises(InvalidInputError, match="wrong shape"):
        model(x, W, out={"output1": np.zeros((12, 8), np.float32)})
    check(model(x, W), x)


def test_kernels_one_by_one(model: weft.Executable, capsys) -> None:
    calls = {kernel.op: kernel for kernel in model.profile(image(9, 9), W, repeat=2).kernels}
    rows = int((image(9, 9) > 0.5).sum())
    assert calls["sum"].flops == rows * 16
    with weft.config(debug=2):
        watched = compiled("n, m{1..}")
        for share in (0.2, 1.0, 0.0):
            x = image(5, 6, share)
            check(watched(x, W), x)
    assert "argwhere" in capsys.readouterr().err


def test_memory_depends_on_the_inputs_alone(model: weft.Executable) -> None:
    model(image(60, 60, 0.1), W)
    assert model.general is not None
    before = model.general.arena_nbytes
    for share in (0.0, 0.5, 1.0):
        results = model(image(60, 60, share), W)
        assert all(result.nbytes < 3 * 60 * 60 * 32 for result in results)
    assert model.general.arena_nbytes == before


def test_a_small_result_does_not_hold_the_memory_of_the_largest(model: weft.Executable) -> None:
    x = np.zeros((300, 300), np.float32)
    x[7, 9] = 1
    at, *_ = model(x, W)
    np.testing.assert_array_equal(at, [[7, 9]])
    assert at.base is None or at.base.nbytes < 1000


def test_calls_at_the_same_time(model: weft.Executable) -> None:
    failed: list[Exception] = []

    def call(n: int) -> None:
        try:
            for share in (0.1, 0.9, 0.4) * 10:
                check(model(image(n, 8, share), W), image(n, 8, share))
        except Exception as error:  # noqa: BLE001 - reported by the assertion
            failed.append(error)

    threads = [threading.Thread(target=call, args=(n,)) for n in (3, 3, 25)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


def test_counts_of_counted_tensors() -> None:
    model = weft.compile(weft.parse("""
def @main(%x: Tensor[(n), int64]) {
  let %u = unique(%x);
  let %large = argwhere(greater(%u.0, 3i64));
  (%u.0, %large, %u.2, add(%u.3, 1i64), zeros_like(%large))
}"""))
    assert model.reason is None
    assert [count.bound for count in model.manifest.counts] == ["n", "n"]
    for n in (0, 1, 50, 2000):
        x = np.random.default_rng(n).integers(-9, 9, n)
        values, inverse, counts = np.unique(x, return_inverse=True, return_counts=True)
        results = model(x)
        large = np.argwhere(values > 3)
        for got, wanted in zip(results, (values, large, inverse, counts + 1, large * 0),
                               strict=True):
            np.testing.assert_array_equal(got, wanted)
    assert model.sizes == ()


@pytest.mark.usefixtures("own_cache")
def test_a_count_beyond_its_bound_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launches, "_number", lambda _: 2)
    model = weft.compile(weft.parse("""
def @main(%x: Tensor[(7), float32]) { sum(argwhere(%x), axis=[0]) }"""))
    assert model(np.float32([0, 0, 1, 0, 0, 1, 0])) == 7
    with pytest.raises(InternalError, match="status 1"):
        model(np.float32([0, 0, 1, 0, 0, 1, 1]))
    assert model(np.float32([0, 0, 1, 0, 0, 0, 0])) == 2


# A count in a branch, and a size that broadcasting needs to be equal to another one.
REFUSED = {
    "branch": """
def @main(%c: bool, %x: Tensor[(n), float32]) {
  let %y = if (%c) { sum(argwhere(%x), axis=[0]) } else { zeros(shape=[1], dtype="int64") };
  %y
}""",
    "broadcast": """
def @main(%c: bool, %x: Tensor[(n), float32]) {
  add(reshape(argwhere(%x), newshape=[-1]), zeros(shape=[3], dtype="int64"))
}""",
}


@pytest.mark.parametrize("name", REFUSED)
def test_other_programs_run_as_before(name: str) -> None:
    with pytest.warns(weft.FallbackWarning, match="kernels are compiled during calls"):
        model = weft.compile(weft.parse(REFUSED[name].replace("(n)", "(4)")))
    assert "sizes that data determines are unknown" in model.explain()
    assert model.manifest.vm is not None
    x = np.float32([0, 2, 3, 5])
    for flag in (True, False):
        wanted = np.int64([1, 2, 3]) if name == "broadcast" else np.int64([6 if flag else 0])
        np.testing.assert_array_equal(model(np.array(flag), x), wanted)


def test_sizes_are_used_in_loops_and_branches_after_the_count() -> None:
    model = weft.compile(weft.parse("""
def @main(%n: int64, %x: Tensor[(k), float32]) {
  let %at = argwhere(%x);
  let %rows = cast(%at, dtype="float32");
  let %loop = fn (%i: int64, %s: Tensor[(1), float32]) -> Tensor[(1), float32] {
    if (less(%i, %n)) { %loop(add(%i, 1i64), add(%s, sum(%rows, axis=[0]))) } else { %s }
  };
  %loop(0i64, zeros(shape=[1], dtype="float32"))
}"""))
    x = np.float32([0, 1, 1, 0, 1])
    for n in (0, 3):
        np.testing.assert_array_equal(model(np.array(n), x), [7.0 * n])


def test_memory_at_the_bound() -> None:
    bounds = {"u0": "m*n"}
    assert largest(64, bounds) == 64
    assert largest("8*n", bounds) == "8*n"
    assert largest("64*floordiv(u0 + 15, 16)", bounds) == "64*floordiv((m*n) + 15, 16)"
    assert largest("max(u0 - 4, 0)*n", bounds) == "max((m*n) - 4, 0)*n"
    for size in ("n - u0", "m*(4 - 2*u0)", "-u0 + n", "floordiv(n, u0)"):
        with pytest.raises(UnsupportedModelError, match="shrinks as a counted size grows"):
            largest(size, bounds)
