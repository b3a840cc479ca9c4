"""Names of sizes, sizes beyond int64 and contradictory ranges, from text to calls."""

from __future__ import annotations

import keyword
import unicodedata

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import weft
from weft.ir.shape import as_dim
from weft.ir.size_range import is_reserved
from weft.ir.size_syntax import is_size_name
from weft.support.errors import InvalidInputError, ParseError, TypeInferenceError

NAMES = st.text(st.characters(categories=("L", "Nd")) | st.just("_"), min_size=1, max_size=8)
PROGRAM = """
def @main(%x: Tensor[(NAME, 4), float32], %y: Tensor[(b{{2..}}, 2), float32]) {
  (reshape(%x, newshape=[2, 2*NAME]), full(1f, shape=(max(NAME - 1, 0), floordiv(b{{2..}}, 2))))
}""".replace("{{", "{").replace("}}", "}")


@given(NAMES.filter(lambda name: not name[0].isdigit() and not is_reserved(name) and name != "b"))
@settings(max_examples=60, deadline=None)
@example("floordiv")
@example("max")
@example("min")
@example("if")
@example("größe")
@example("ﬁ")
def test_programs_with_any_name_print_and_parse(name: str) -> None:
    module = weft.parse(PROGRAM.replace("NAME", name))
    assert weft.parse(str(module)) == module or str(weft.parse(str(module))) == str(module)
    assert f"Tensor[({name}, 4), float32]" in str(module)


@pytest.mark.sample(0.5)
@pytest.mark.parametrize("name", ["floordiv", "max", "größe", "長さ", "if", "lambda"])
def test_programs_with_odd_names_run(name: str, tmp_path) -> None:
    model = weft.compile(weft.parse(PROGRAM.replace("NAME", name)))
    assert model.reason is None
    assert model.inputs[0].shape == (name, 4)
    model.export(tmp_path / "m.weft")
    for each in (model, weft.load(tmp_path / "m.weft")):
        first, second = each(np.ones((6, 4), np.float32), np.ones((5, 2), np.float32))
        assert (first.shape, second.shape) == ((2, 12), (5, 2))


@given(NAMES)
@settings(max_examples=60, deadline=None)
def test_users_may_write_names_and_bounds_alike(name: str) -> None:
    if not is_size_name(unicodedata.normalize("NFKC", name)):
        with pytest.raises(TypeInferenceError):
            as_dim(name)
        return
    [plain], [bounded] = as_dim(name).symbols(), as_dim(f"{name} <= 7").symbols()
    assert bounded == plain + "{0..7}"
    [multiple] = as_dim(f"2*{name}").symbols()
    assert multiple == plain


@pytest.mark.parametrize("name", ["float32", "bool", "int8x4", "inf", "None", "True"])
def test_names_that_mean_something_else_are_refused(name: str) -> None:
    with pytest.raises(ParseError, match="cannot be the name of a size"):
        weft.parse(PROGRAM.replace("NAME", name))
    with pytest.raises(TypeInferenceError, match="not a dimension"):
        as_dim(name)
    assert not is_size_name(name)


def test_keywords_are_refused_where_expressions_are_read() -> None:
    for name in keyword.kwlist:
        with pytest.raises(TypeInferenceError, match="not a dimension"):
            as_dim(name)


HUGE = 99999999999999999999


@pytest.mark.parametrize(("size", "words"), [
    (f"{HUGE}", "a dimension beyond int64"), (f"{HUGE}*n", "a dimension beyond int64"),
    (f"n + {HUGE}", "a dimension beyond int64"), (f"n{{1..{HUGE}}}", "a size beyond int64"),
    (f"n{{{HUGE}..}}", "a size beyond int64"), (f"n{{0..%{HUGE}}}", "a size beyond int64"),
    ("n{4..1}", "an empty range"), ("n{5..7%4}", "an empty range"), ("n{1..4%0}", "an empty range"),
    ("floordiv(n, 0)", "divided by a number above 0"),
    ("floordiv(n, 1.5)", "divided by a number above 0"),
])
def test_impossible_dimensions_point_at_the_text(size: str, words: str) -> None:
    with pytest.raises(ParseError, match=words) as caught:
        weft.parse(f"def @main(%x: Tensor[({size}, 2), float32]) {{ tanh(%x) }}")
    assert "-->" in str(caught.value)


@pytest.mark.parametrize("size", [HUGE, f"{HUGE}*n", f"n <= {HUGE}", f"n % {HUGE} == 0",
                                  f"n + {HUGE}", "5 <= n <= 7 and n % 4 == 0"])
def test_impossible_sizes_of_inputs_are_refused(size: object) -> None:
    module = weft.parse("def @main(%x: Tensor[(n, 2), float32]) { tanh(%x) }")
    with pytest.raises(weft.WeftError):
        weft.compile(module, inputs={"x": (size, 2)})


@pytest.mark.parametrize("second", ["n", "n{2..8}", "n{6..8}", "2*n{1..4%2}"])
def test_two_ranges_of_one_name_are_refused(second: str) -> None:
    with pytest.raises(TypeInferenceError, match="n has two ranges"):
        weft.parse(f"""
        def @main(%x: Tensor[(n{{1..4}}, 2), float32], %y: Tensor[({second}, 2), float32]) {{
          concatenate((%x, %y))
        }}""")


def test_sizes_that_overflow_are_refused_and_the_module_stays_usable() -> None:
    model = weft.compile(weft.parse("""
    def @main(%x: Tensor[(n, 4), float32]) {
      (full(1f, shape=(n*n*n*n*n, 2)), full(1f, shape=(9223372036854775807*n, n)))
    }"""))
    for rows in (2000, 1):
        with pytest.raises(InvalidInputError, match="more memory than there are addresses"):
            model(np.ones((rows, 4), np.float32))
    shapes = [y.shape for y in model(np.ones((0, 4), np.float32))]
    assert shapes == [(0, 2), (0, 0)]


def test_a_huge_axis_beside_an_empty_one_is_refused() -> None:
    model = weft.compile(weft.parse(f"""
    def @main(%x: Tensor[(n, 4), float32]) {{ broadcast_to(%x, shape=[{2**62}, n, 4]) }}"""))
    for rows in (0, 1):
        with pytest.raises(InvalidInputError, match="more memory than there are addresses"):
            model(np.ones((rows, 4), np.float32))
