"""Layouts: names, shapes, indices and the steps from one to another."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.support.errors import AttrsError
from weft.topi.layout import BlockedIndex, Layout, convert_shape, transform_array, transform_steps

P = Layout.parse


def test_parts_of_a_name() -> None:
    layout = P("OIHW16i8o")
    assert str(layout) == layout.name == "OIHW16i8o"
    assert layout.primal_axes == "OIHW"
    assert layout.primal == P("OIHW")
    assert (layout.index_of("I"), layout.block_index_of("I"), layout.factor_of("I")) == (1, 4, 16)
    assert (layout.block_index_of("H"), layout.factor_of("H")) == (None, 1)
    assert P("NCHW16c") is P("NCHW16c")


@pytest.mark.parametrize("name", ["", "nchw", "NCHW16", "NCHWC", "NHW4c", "NC4c4c", "N-C", "NC0c"])
def test_malformed_names_are_refused(name: str) -> None:
    with pytest.raises(AttrsError, match="malformed layout"):
        P(name)


def test_shapes() -> None:
    assert convert_shape(P("NCHW"), P("NCHW16c"), (1, 64, 5, 6)) == (1, 4, 5, 6, 16)
    assert convert_shape(P("NCHW16c"), P("NHWC"), (1, 4, 5, 6, 16)) == (1, 5, 6, 64)
    assert convert_shape(P("OIHW"), P("OIHW1i4o"), (8, 1, 3, 3)) == (2, 1, 3, 3, 1, 4)


def test_equal_blocks_index_each_other_without_division() -> None:
    class Opaque:
        """An index that supports no arithmetic."""

    outer, inner = Opaque(), Opaque()
    found = P("NCHW4c").indices({"N": 0, "C": BlockedIndex(outer, inner, 4), "H": 1, "W": 2})
    assert found == (0, outer, 1, 2, inner)


def test_indices_between_different_blocks() -> None:
    index = P("NCHW8c").blocked_indices((0, 1, 2, 3, 5))
    assert P("NCHW").indices(index) == (0, 13, 2, 3)
    assert P("NCHW4c").indices(index) == (0, 3, 2, 3, 1)


def test_steps_leave_out_what_changes_nothing() -> None:
    assert transform_steps(P("NCHW"), P("NCHW"), (1, 8, 2, 2)) == []
    assert transform_steps(P("NC"), P("NC4c"), (2, 8)) == [("reshape", (2, 2, 4))]
    assert transform_steps(P("NC4c"), P("NC"), (2, 2, 4)) == [("reshape", (2, 8))]
    assert transform_steps(P("NCHW"), P("NHWC"), (1, 8, 2, 2)) == [("transpose", (0, 2, 3, 1))]


def test_blocks_must_divide() -> None:
    with pytest.raises(AttrsError, match="does not fit"):
        transform_array(np.zeros((1, 6, 2, 2)), P("NCHW"), P("NCHW4c"))
    with pytest.raises(AttrsError, match="cannot convert layout"):
        transform_array(np.zeros((1, 6, 2, 2)), P("NCHW"), P("OIHW"))


LAYOUTS = st.sampled_from(["NCHW", "NHWC", "NCHW2c", "NCHW6c", "NCHW3c2h", "HWNC3c", "CNHW1c"])


@given(LAYOUTS, LAYOUTS)
def test_transformation_agrees_with_the_indices(src: str, dst: str) -> None:
    array = np.arange(2 * 12 * 4 * 3).reshape(2, 12, 4, 3)
    array = transform_array(array, P("NCHW"), P(src))
    result = transform_array(array, P(src), P(dst))
    assert result.shape == convert_shape(P(src), P(dst), array.shape)
    for position in ((0,) * result.ndim, tuple(s - 1 for s in result.shape),
                     tuple(s // 2 for s in result.shape)):
        source = P(src).indices(P(dst).blocked_indices(position))
        assert result[position] == array[source]
