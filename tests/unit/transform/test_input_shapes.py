"""Binding symbolic dimensions and changing the shapes of inputs."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from weft.ir.types import TensorType
from weft.support.errors import InvalidInputError, TypeInferenceError
from weft.transform import evaluate
from weft.transform.passes.input_shapes import with_input_shapes

OPEN = """
def @main(%x: Tensor[(n, m), float32], %y: Tensor[(2*n, m), float32])
    -> Tensor[(2*n, m), float32] {
  let %h: Tensor[(n, m), float32] = @twice(%x);
  concatenate((%h, tanh(%x)), axis=0) + %y
}
def @twice(%x: Tensor[(n, m), float32]) -> Tensor[(n, m), float32] { add(%x, %x) }
"""


def test_names_get_their_sizes_in_the_whole_module():
    mod = with_input_shapes(weft.parse(OPEN), {"x": (2, 3), "y": (4, 3)})
    assert mod["twice"].params[0].checked_type == TensorType((2, 3), weft.ir.DType.parse("float32"))
    x, y = np.ones((2, 3), np.float32), np.zeros((4, 3), np.float32)
    expected = np.concatenate([2 * x, np.tanh(x)])
    np.testing.assert_allclose(evaluate(mod, [x, y]), expected, rtol=1e-6)


def test_a_batch_changes():
    mod = weft.parse("""
        def @main(%x: Tensor[(1, 3), float32]) -> Tensor[(1, 6), float32] {
          nn.dense(nn.relu(%x), ones(shape=[6, 3], dtype="float32"))
        }""")
    wider = with_input_shapes(mod, {"x": (5, 3)})
    assert wider["main"].body.checked_type.shape == (5, 6)
    named = with_input_shapes(mod, {"x": ("batch", 3)})
    assert str(named["main"].body.checked_type) == "Tensor[(batch, 6), float32]"


@pytest.mark.parametrize(("shapes", "message"), [
    ({"z": (2, 3)}, "unknown input 'z'"),
    ({"x": (2, 3, 4)}, "wrong rank"),
    ({"x": (2, 3), "y": (5, 3)}, "has a wrong size"),
    ({"x": (2, 3), "y": (4, 4)}, "has a wrong size"),
])
def test_what_does_not_fit_is_refused(shapes, message):
    with pytest.raises(InvalidInputError, match=message):
        with_input_shapes(weft.parse(OPEN), shapes)


def test_a_program_that_does_not_fit_its_new_shapes():
    mod = weft.parse("def @main(%x: Tensor[(2, 6), float32]) { reshape(%x, newshape=[3, 4]) }")
    with pytest.raises(TypeInferenceError, match="number of elements"):
        with_input_shapes(mod, {"x": (3, 6)})


def test_attributes_and_data_types_follow_the_inputs():
    mod = weft.parse("""
        type Held { Some_n(Tensor[(n,), float32]), Nothing }
        def @main(%x: Tensor[(n,), float32]) {
          match (Some_n(add(%x, zeros(shape=(n,))))) { Some_n(%y) => { %y }, Nothing => { %x } }
        }""")
    after = with_input_shapes(mod, {"x": (3,)})
    assert str(after["main"].body.checked_type) == "Tensor[(3,), float32]"
    assert after.type_definitions["Held"].constructors[0].inputs[0].concrete_shape == (3,)
