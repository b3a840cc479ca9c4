"""Users' tir passes in ``weft.compile``: positions, registration, caching, errors."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import weft
from weft.support.errors import ArtifactError, LoweringError, OptionError
from weft.tir.expr import FloatImm, const
from weft.tir.transform.registered import INSERTED_TIR_PASSES, register_tir_pass
from weft.tir.visitor import map_body, transform_expr, transform_stmt

pytestmark = pytest.mark.usefixtures("own_cache")

TEXT = "def @main(%x: Tensor[(4,), float32]) { multiply(%x, 3f) }"
X = np.float32([1, 2, 3, 4])


def three_is(number):
    def three_becomes_another(func):
        def visit(expr):
            same = isinstance(expr, FloatImm) and expr.value == 3
            return const(number, expr.dtype) if same else expr

        return map_body(func, lambda body: transform_stmt(
            body, fn_expr=lambda expr: transform_expr(expr, visit)))

    return three_becomes_another


def note(seen, name):
    def noting(func):
        seen.append((name, str(func)))
        return func

    noting.__name__ = name
    return noting


def compiled(text=TEXT, **options):
    return weft.compile(weft.parse(text), **options)


def test_a_tir_pass_changes_every_kernel():
    np.testing.assert_array_equal(compiled(tir_passes=[three_is(4)])(X), 4 * X)
    np.testing.assert_array_equal(compiled()(X), 3 * X)


def test_an_edited_pass_never_meets_the_code_of_an_old_one():
    """The name of the pass, the model and the kernel are the same."""
    for number in (5, 6, 5):
        np.testing.assert_array_equal(compiled(tir_passes=[three_is(number)])(X), number * X)


def test_kernels_are_built_in_this_process():
    """Worker processes do not have the user's pass."""
    sums = ", ".join(f"cumsum(multiply(%x, {number}f))" for number in range(8))
    text = f"def @main(%x: Tensor[(4,), float32]) {{ ({sums}) }}"
    module = compiled(text, tir_passes=[three_is(5)], build_jobs=4)
    results = module(X)
    np.testing.assert_allclose(results[3], np.cumsum(5 * X))
    np.testing.assert_allclose(results[4], np.cumsum(4 * X))


def test_positions():
    seen = []
    compiled(tir_passes=[
        weft.pass_at(note(seen, "late"), after="flatten_buffer"),
        note(seen, "first"), note(seen, "second"),
        weft.pass_at(note(seen, "later"), after="flatten_buffer"),
        weft.pass_at(note(seen, "early"), before="simplify")])
    assert [name for name, _ in seen] == ["first", "second", "early", "late", "later"]
    assert seen[0][1] != seen[-1][1]


@pytest.mark.parametrize(("passes", "what"), [
    ([weft.pass_at(len, after="vectorise_loop")], "unknown pass 'vectorise_loop' in the tir"),
    ([weft.pass_at(len, phase="optimized")], "tir passes have no phases"),
    ([3], "not a tir pass"),
    (three_is(4), "tir_passes is not a list"),
])
def test_mistakes_are_refused(passes, what):
    with pytest.raises(OptionError, match=what):
        compiled(tir_passes=passes)


@pytest.mark.parametrize(("function", "what"), [
    (lambda func: None, "did not return a PrimFunc"),
    (lambda func: func.gone, "failed"),
    (lambda func: func.replace(params=()), "left an invalid function"),
])
def test_a_pass_that_fails_is_named(function, what):
    function.__name__ = "acme_tir"
    with pytest.raises(LoweringError, match=f"the tir pass acme_tir {what}") as found:
        compiled(tir_passes=[function])
    assert "test_user_tir_passes.py" in found.value.where


@pytest.mark.parametrize("change", [
    lambda func: func.replace(name="other"),
    lambda func: func.replace(params=func.params[::-1]),
    lambda func: func.with_attrs(num_outputs=2),
])
def test_a_pass_that_changes_the_signature_is_named(change):
    change.__name__ = "acme_tir"
    with pytest.raises(LoweringError, match="the tir pass acme_tir changed the signature") as found:
        compiled("def @main(%x: Tensor[(4,), float32]) { nn.relu(%x) }", tir_passes=[change])
    assert "test_user_tir_passes.py" in found.value.where
    assert found.value.expected != found.value.got


def test_unknown_positions_are_reported_for_dynamic_models_too():
    with pytest.raises(OptionError, match="unknown pass 'nope' in the tir pipeline"):
        compiled("def @main(%x: Tensor[(n,), float32]) { sin(%x) }",
                 tir_passes=[weft.pass_at(three_is(4), after="nope")])


def test_registered_passes_run_in_every_compilation():
    register_tir_pass(after="simplify")(three_is(7))
    try:
        module = compiled()
        np.testing.assert_array_equal(module(X), 7 * X)
        assert str(module.options.extensions) == "tir pass three_becomes_another (after simplify)"
    finally:
        INSERTED_TIR_PASSES.remove("three_becomes_another")
    np.testing.assert_array_equal(compiled()(X), 3 * X)


def test_text_stages_show_their_result():
    module = compiled(tir_passes=[three_is(4)])
    assert "4.0" in module.as_text("tir")
    assert "4.0" not in module.as_text("scheduled")


def test_kernels_specialised_at_run_time_have_them():
    text = """
    def @main(%x: Tensor[(4,), bool]) {
      if (any(%x)) {
        let %found = argwhere(%x);
        multiply(sum(cast(%found, dtype="float32")), 3f)
      } else { 0f }
    }"""
    with pytest.warns(weft.FallbackWarning, match=r"compiled during calls.*sum"):
        module = compiled(text, tir_passes=[three_is(4)])
    np.testing.assert_array_equal(module(X > 2), 4 * np.float32(2 + 3))
    with pytest.raises(ArtifactError, match="cannot be pickled"):
        pickle.dumps(module)
