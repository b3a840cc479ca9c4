"""Programs that run at all sizes of their symbols: values, variants, checks, memory, artifacts."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weft
from weft.support.errors import InvalidInputError, OptionError

TEXT = """
def @main(%x: Tensor[(n, 16), float32], %w: Tensor[(16, 16), float32]) {
  %a = nn.dense(%x, %w);
  %b = multiply(%a, sigmoid(%a));
  (nn.softmax(nn.dense(%b, %w)), %b, concatenate((%x, %b)))
}"""
W = np.random.default_rng(0).standard_normal((16, 16)).astype(np.float32) / 4


def compiled(**options: object) -> weft.Executable:
    model = weft.compile(weft.parse(TEXT), **options)
    assert model.is_dynamic
    assert model.general is not None
    return model


@pytest.fixture(scope="module")
def model() -> weft.Executable:
    return compiled()


def array(n: int) -> np.ndarray:
    return np.random.default_rng(n).standard_normal((n, 16)).astype(np.float32)


def check(model: object, n: int) -> None:
    x = array(n)
    softmax, b, both = model(x, W)
    a = x @ W.T
    wanted = a / (1 + np.exp(-a))
    np.testing.assert_allclose(b, wanted, rtol=1e-4, atol=1e-6)
    e = np.exp(wanted @ W.T)
    np.testing.assert_allclose(softmax, e / e.sum(1, keepdims=True), rtol=1e-4)
    np.testing.assert_allclose(both, np.concatenate([x, wanted]), rtol=1e-4, atol=1e-6)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 300))
def test_one_program_runs_all_sizes(model: weft.Executable, n: int) -> None:
    check(model, n)
    assert model.sizes == ()  # nothing was compiled for this size


def test_results_do_not_depend_on_earlier_sizes(model: weft.Executable) -> None:
    first = model(array(7), W)
    for n in (300, 1, 0, 40):
        model(array(n), W)
    for before, after in zip(first, model(array(7), W), strict=True):
        np.testing.assert_array_equal(before, after)


def test_memory_is_that_of_the_largest_size() -> None:
    model = compiled()
    model(array(500), W)
    largest = model.general.arena_nbytes
    for n in range(1, 500, 7):
        model(array(n), W)
    assert model.general.arena_nbytes == largest


def test_variants_run_in_their_ranges() -> None:
    model = compiled(specialize={"n": [1, (2, 16)]})
    for n in (1, 2, 16, 17, 40):
        check(model, n)
    steps = [step for step in model.manifest.steps if step.variants]
    tests = [test for variant in steps[0].variants[:2] for test in variant.tests]
    assert [(test.low, test.high) for test in tests] == [(1, 1), (2, 16)]
    used = {n: model.profile(array(n), W, repeat=1).steps[0].call.symbol for n in (1, 2, 16, 17)}
    assert used[2] == used[16]
    assert len(set(used.values())) == 3


@pytest.mark.parametrize("wanted", [{"k": [1]}, {"n": ["x"]}, {"n": [-1]}, {"n": [(3, 2)]}, [1]])
def test_wrong_specialisations_are_refused(wanted: object) -> None:
    with pytest.raises(OptionError):
        weft.compile(weft.parse(TEXT), specialize=wanted)


def test_models_of_fixed_sizes_have_nothing_to_specialise() -> None:
    text = "def @main(%x: Tensor[(4), float32]) { tanh(%x) }"
    with pytest.raises(OptionError, match="models with symbolic sizes"):
        weft.compile(weft.parse(text), specialize={"n": [1]})


@pytest.mark.parametrize(("shapes", "words"), [
    (((2, 15), (16, 16)), r"'x' has a fixed size of 16 \(axis 1\), not 15"),
    (((2,), (16, 16)), "'x' has rank 1, expected 2"),
    (((2, 16), (3, 16)), r"'w' has a fixed size of 16 \(axis 0\), not 3"),
])
def test_shapes_that_do_not_fit_are_refused(
    model: weft.Executable, shapes: tuple, words: str
) -> None:
    with pytest.raises(InvalidInputError, match=words):
        model(*(np.zeros(s, np.float32) for s in shapes))
    check(model, 3)


def test_symbols_that_contradict_and_bounds() -> None:
    model = weft.compile(weft.parse("""
    def @main(%x: Tensor[(n{2..8}, 3), float32], %y: Tensor[(2*n{2..8}, 3), float32]) {
      concatenate((%x, %y))
    }"""))
    assert model(np.ones((4, 3), np.float32), np.ones((8, 3), np.float32)).shape == (12, 3)
    for rows, words in (((4, 7), r"size 7 \(axis 0\): 2\*n is 8"), ((9, 18), "n is from 2 to 8"),
                        ((1, 2), "n is from 2 to 8")):
        with pytest.raises(InvalidInputError, match=words):
            model(*(np.ones((r, 3), np.float32) for r in rows))


def test_artifacts_and_pickles_run_all_sizes(model: weft.Executable, tmp_path) -> None:
    path = tmp_path / "m.weft"
    model.export(path)
    again = tmp_path / "again.weft"
    compiled().export(again)
    assert path.read_bytes() == again.read_bytes()
    for other in (weft.load(path), pickle.loads(pickle.dumps(model))):
        for n in (0, 1, 33):
            check(other, n)
            for one, two in zip(other(array(n), W), model(array(n), W), strict=True):
                np.testing.assert_array_equal(one, two)


def test_out_bind_run_and_profile(model: weft.Executable) -> None:
    x = array(5)
    expected = model(x, W)
    out = tuple(np.empty_like(e) for e in expected)
    assert model(x, W, out=out)[0] is out[0]
    bound = model.bind(x, W)
    for results in (out, bound(), model.run(None, {"x": x, "w": W})):
        for one, two in zip(results, expected, strict=True):
            np.testing.assert_array_equal(one, two)
    flops = {n: sum(k.flops for k in model.profile(array(n), W, repeat=1).kernels) for n in (5, 10)}
    assert flops[10] > 1.8 * flops[5] > 0


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_every_thread_count_gives_the_same_bits(model: weft.Executable, threads: int) -> None:
    x = array(291)
    with weft.config(threads=1):
        expected = model(x, W)
    with weft.config(threads=threads):
        for one, two in zip(model(x, W), expected, strict=True):
            np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize(("axes", "form"), [("0, 1, 2, 3", "n, m, m"), ("0, 1, 3", "n, 3, m")])
def test_reductions_behind_an_axis_of_size_1(axes: str, form: str) -> None:
    """The outermost reduced axis has nothing to share among threads; the next one may have."""
    model = weft.compile(weft.parse(f"""
    def @main(%x: Tensor[(1, {form}), float32]) {{ sum(multiply(%x, %x), axis=[{axes}]) }}"""))
    assert model.reason is None
    for n, m in ((1, 1), (3, 2), (300, 9), (70, 40), (0, 4)):
        x = np.random.default_rng(n).standard_normal(
            (1, n, *(int(s) if s.isdigit() else m for s in form.split(", ")[1:])), np.float32)
        expected = (x * x).sum(tuple(map(int, axes.split(", "))), dtype=np.float64)
        np.testing.assert_allclose(model(x), expected, rtol=1e-4)
