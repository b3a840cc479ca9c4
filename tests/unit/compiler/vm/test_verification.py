"""``WEFT_VERIFY=3`` on programs that the virtual machine runs."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from weft.compiler.verification import compare_modules
from weft.support.errors import InternalError

LIST = """
import "prelude"
def @main(%x: int32, %y: Tensor[(2,), float32]) {{ {body} }}"""


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path / "cache"))


def test_data_is_compared_by_constructor_and_fields():
    one = weft.parse(LIST.format(body="Cons(%x, Cons(1, Nil()))"))
    same = weft.parse(LIST.format(body="Cons(%x, Cons(subtract(2, 1), Nil()))"))
    other = weft.parse(LIST.format(body="Cons(%x, Cons(2, Nil()))"))
    compare_modules(one, same)
    with pytest.raises(InternalError, match="changed what"):
        compare_modules(one, other)


def test_every_pass_is_checked_on_the_way():
    mod = weft.parse(LIST.format(body="(Cons(%x, Nil()), exp(multiply(%y, 1f)))"))
    value, tensor = weft.compile(mod, verify=3)(np.int32(3), np.float32([0, 0]))
    assert str(value) == "Cons(array(3, dtype=int32), Nil())"
    np.testing.assert_array_equal(tensor, [1, 1])


def test_dynamic_shapes_compile_under_verification():
    mod = weft.parse("def @main(%x: Tensor[(n,), float32]) { exp(add(%x, 0f)) }")
    assert weft.compile(mod, verify=3)(np.zeros(3, np.float32)).tolist() == [1, 1, 1]
