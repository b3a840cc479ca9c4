"""Digests of Python functions: equal where the machine code would be, different otherwise."""

import numpy as np
import pytest

from weft.support.errors import LoweringError
from weft.support.function_digest import function_digest


def defined(source, name="f", **names):
    space = dict(names)
    exec(source, space)
    return space[name]


BASE = "def f(x, y):\n    y[0] = x[0] * 2.0 + k\n"


def test_the_same_source_elsewhere_is_the_same():
    assert function_digest(defined(BASE, k=1)) == function_digest(defined("\n\n\n" + BASE, k=1))


@pytest.mark.parametrize(
    "other",
    [
        defined(BASE.replace("2.0", "3.0"), k=1),
        defined(BASE.replace("*", "+"), k=1),
        defined(BASE, k=2),
        defined(BASE, k=1.0),
        defined(BASE, k=True),
        defined(BASE, k=np.float32(1)),
        defined(BASE, k=np.ones(1)),
        defined(BASE.replace("(x, y)", "(x, y, z=1)"), k=1),
    ],
)
def test_any_change_of_meaning_shows(other):
    assert function_digest(other) != function_digest(defined(BASE, k=1))


def test_functions_that_are_called_count():
    def outer(step):
        def helper(v):
            return v + step

        return lambda x, y: helper(x)

    assert function_digest(outer(1)) == function_digest(outer(1))
    assert function_digest(outer(1)) != function_digest(outer(2))


def test_a_function_may_call_itself():
    source = "def f(n):\n    return n if n < 2 else f(n - 1)\n"
    assert function_digest(defined(source)) == function_digest(defined(source))


def test_attributes_of_own_modules_count(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    source = "def f(x):\n    return helpers.rate * x\n"
    digests = []
    for name, rate in (("one_helper", 1), ("two_helper", 2)):
        (tmp_path / f"{name}.py").write_text(f"rate = {rate}\nunused = object()\n")
        module = __import__(name)
        module.__name__ = "helpers"
        digests.append(function_digest(defined(source, helpers=module)))
    assert digests[0] != digests[1]


def test_an_attribute_is_no_global_of_that_name():
    source = "def f(x):\n    return x.shape\n"
    assert function_digest(defined(source, shape=object())) == function_digest(defined(source))


def test_what_has_no_stable_form_is_refused():
    with pytest.raises(LoweringError, match="uses k, whose type cannot be compiled"):
        function_digest(defined(BASE, k=object()))
    with pytest.raises(LoweringError, match="plain Python function"):
        function_digest(len)
