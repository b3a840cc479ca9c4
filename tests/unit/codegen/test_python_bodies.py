"""Python bodies of extern operators: compiled, evaluated, and refused."""

import math
import os
import re
import subprocess
import sys

import numpy as np
import pytest

from weft import te
from weft.codegen.llvm.build import build_object, emit_assembly, emit_llvm
from weft.support.errors import CodegenError, LoweringError, MissingToolError
from weft.target import CpuTarget, Target
from weft.tir.transform.pipeline import lower_prim_func

numba = pytest.importorskip("numba")


@pytest.fixture
def rng():
    return np.random.default_rng(3)


def lowered(outputs, inputs):
    schedule = te.create_schedule(outputs)
    return lower_prim_func(te.lower(schedule, [*inputs, *outputs], "kernel"), verify=True)


def of_body(body, *shapes, out=None, dtype="float32", **options):
    """The kernel of one body over inputs of ``shapes``."""
    inputs = [te.placeholder(s, dtype, name=f"x{i}") for i, s in enumerate(shapes)]
    result = te.python_extern([out or shapes[0]], inputs, body, [dtype], **options)
    return lowered(list(result), inputs)


def running_product(x, y, start):
    for i in range(x.shape[0]):
        acc = start
        for j in range(x.shape[1]):
            acc = acc * x[i, j]
            y[i, j] = acc


def test_a_body_is_compiled_to_what_python_computes(compiler, rng):
    func = of_body(running_product, (3, 5), scalars=[2.0])
    x = rng.random((3, 5), np.float32)
    (found,) = compiler.check(func, [x], [np.zeros_like(x)])
    np.testing.assert_allclose(found, 2 * np.cumprod(x, axis=1), rtol=1e-6)


def test_a_body_between_other_stages_works_in_scratch(compiler, rng):
    def ranks(x, out, order):
        for i in range(len(x)):
            order[i] = i
        for i in range(1, len(x)):  # insertion sort
            held = order[i]
            j = i
            while j > 0 and x[order[j - 1]] > x[held]:
                order[j] = order[j - 1]
                j -= 1
            order[j] = held
        for i in range(len(x)):
            out[order[i]] = i

    x = te.placeholder((9,), name="x")
    doubled = te.compute((9,), lambda i: x[i] * 2.0)
    (rank,) = te.python_extern([(9,)], [doubled], ranks, ["int32"], scratch=[((9,), "int64")])
    result = te.compute((9,), lambda i: rank[i] + 1)
    data = rng.random(9, np.float32)
    (found,) = compiler.check(lowered([result], [x]), [data], [np.zeros(9, np.int32)])
    np.testing.assert_array_equal(found, np.argsort(np.argsort(data)) + 1)


def test_sizes_and_scalars_may_be_known_at_run_time_only(compiler, rng):
    def shifted(x, y, offset):
        for i in range(x.shape[0]):
            for j in range(x.shape[1]):
                y[i, j] = x[i, j] + offset

    n = te.var("n")
    x = te.placeholder((n, 3), name="x")
    (y,) = te.python_extern([x.shape], [x], shifted, ["float32"], scalars=[n])
    func = lowered([y], [x])
    data = rng.random((4, 3), np.float32)
    found = np.zeros_like(data)
    compiler.compile(func)(data, found, 4)
    np.testing.assert_array_equal(found, data + np.float32(4))


@numba.njit
def _halved(value):
    return value / 2


_TABLE = np.array([1.0, 10.0, 100.0])


def test_a_body_uses_helpers_globals_views_and_mathematics(compiler, rng):
    def mixed(x, y):
        for i in range(x.shape[0]):
            row = x[i]
            most = row[0]
            for value in row[1:]:
                most = max(most, value)
            y[i] = math.exp(_halved(most)) * _TABLE[i % 3] + np.tanh(row[0]) + len(row)

    func = of_body(mixed, (5, 4), out=(5,), dtype="float64")
    x = rng.random((5, 4))
    (pair,) = compiler.both(func, [x], [np.zeros(5)])
    np.testing.assert_allclose(*pair, rtol=1e-14)


def test_booleans_narrow_integers_and_empty_arrays(compiler):
    def flags(x, y, limit, is_strict):
        for i in range(x.shape[0]):
            y[i] = x[i] > limit if is_strict else x[i] >= limit

    for size in (0, 5):
        x = te.placeholder((size,), "uint8", name="x")
        (y,) = te.python_extern([x.shape], [x], flags, ["bool"], scalars=[2, False])
        data = np.arange(size, dtype=np.uint8)
        (found,) = compiler.check(lowered([y], [x]), [data], [np.zeros(size, np.bool_)])
        np.testing.assert_array_equal(found, data >= 2)


BUILD = """
import hashlib
from weft import te
from weft.codegen.llvm.build import build_object
from weft.target import CpuTarget, Target
from weft.tir.transform.pipeline import lower_prim_func

def body(x, y):
    for i in range(x.shape[0]):
        y[i] = max(x[i], 0.5)

x = te.placeholder((4,))
(y,) = te.python_extern([(4,)], [x], body, ["float32"])
func = lower_prim_func(te.lower(te.create_schedule(y), [x, y]))
code = build_object(func, CpuTarget.host())
digest = hashlib.sha256(code.object + code.llvm_ir.encode()).hexdigest()
"""


def test_the_code_is_the_same_in_every_process():
    """numba numbers what it compiles, and hashes names; nothing of that may be left."""
    numba.njit(lambda x: x + 1)(2)
    here = {}
    exec(BUILD, here)
    environment = {**os.environ, "PYTHONHASHSEED": "77"}
    there = subprocess.run([sys.executable, "-c", f"{BUILD}\nprint(digest)"], check=True, text=True,
                           capture_output=True, env=environment).stdout
    assert there.strip() == here["digest"]


def test_bodies_cross_compile():
    func = of_body(running_product, (3, 5), scalars=[2.0])
    target = Target.of("llvm -mcpu=generic -mtriple=aarch64-unknown-linux-gnu")
    assert "running_product" in emit_assembly(func, target)
    assert build_object(func, target).object


def test_the_body_is_inside_the_module_and_has_no_other_symbols():
    func = of_body(running_product, (3, 5), scalars=[2.0])
    text = emit_llvm(func, CpuTarget.host())
    assert re.search(r"define internal void @running_product_[0-9a-f]{16}\(", text)
    assert "Numba" not in text


def refused(body, *shapes, error=CodegenError, **options):
    with pytest.raises(error) as caught:
        build_object(of_body(body, *(shapes or ((4,),)), **options), CpuTarget.host())
    return caught.value


def line_of(function, offset):
    return f"{__file__}:{function.__code__.co_firstlineno + offset} in "


def test_an_input_cannot_be_written():
    def writes(x, y):
        for i in range(4):
            x[i] = y[i]

    error = refused(writes)
    assert line_of(writes, 2) in error.where
    assert "inputs cannot be written" in error.help


def test_what_numba_cannot_type_points_to_the_line():
    def unknown(x, y):
        y[0] = 1
        y[1] = x.no_such_attribute

    error = refused(unknown)
    assert line_of(unknown, 2) in error.where
    assert "no_such_attribute" in error.got


def plain_helper(value):
    return value + 1


def test_an_undecorated_helper_is_named():
    def calls(x, y):
        y[0] = plain_helper(x[0])

    error = refused(calls)
    assert line_of(calls, 1) in error.where
    assert "numba.njit" in error.help


def test_a_body_that_may_raise_is_refused_at_its_line():
    def raises(x, y):
        for i in range(4):
            if x[i] < 0:
                raise ValueError("negative")
            y[i] = x[i]

    error = refused(raises)
    assert "may raise" in error.what
    assert line_of(raises, 3) in error.where


def test_a_check_of_known_sizes_costs_nothing(compiler):
    def checked(x, y):
        if x.shape[0] != 4:
            raise ValueError("four are needed")
        y[0] = x[3]

    (found,) = compiler.check(of_body(checked, (4,), out=(1,)), [np.arange(4, dtype=np.float32)],
                              [np.zeros(1, np.float32)])
    assert found[0] == 3


def test_a_body_that_allocates_is_refused():
    def allocates(x, y):
        spare = np.zeros(len(x))
        for i in range(len(x)):
            spare[int(x[i])] += 1
        y[0] = spare[0]

    error = refused(allocates)
    assert "allocates memory" in error.what
    assert "scratch=" in error.help


def test_a_body_that_prints_needs_the_interpreter():
    def prints(x, y):
        y[0] = x[0]
        print(x[0])

    assert "needs the Python interpreter" in refused(prints).what


def test_without_numba_the_error_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "numba.core", None)
    error = refused(running_product, (3, 5), error=MissingToolError, scalars=[2.0])
    assert "cannot be imported" in error.what
    assert "pip install numba" in error.help


def test_a_returned_value_would_be_lost():
    def returns(x, y):
        return x[0] + y[0]

    assert "returns a value" in refused(returns).what


def test_mistakes_in_the_call_are_refused_where_it_is_written():
    def two(x, y):
        y[0] = x[0]

    error = refused(two, error=LoweringError, scalars=[1.0])
    assert "3 parameters" in error.expected
    assert line_of(two, 0) in error.where
    assert "bfloat16" in refused(two, error=LoweringError, dtype="bfloat16").what
    with pytest.raises(LoweringError, match="plain Python function"):
        of_body(len, (4,))
    with pytest.raises(LoweringError, match="a scalar of a Python body"):
        of_body(running_product, (4, 4), scalars=["one"])
